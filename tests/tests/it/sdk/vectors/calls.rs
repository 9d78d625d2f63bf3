//! Calls a plugin as a gateway does, and compares its answer with the expected one. A payload goes through the gateway's own
//! checks first, so that no case has one that a plugin would never get.

use std::{fmt::Debug, time::Duration};

use bytes::Bytes;
use hookgate::transcode::{HttpRequestMessage, ReplyMessage, decode_at, decode_reply};
use hookgate_proto::{
    gateway::v1::{self as gateway, RequestContext},
    plugin::v1::{
        self as plugin, Call, CallContext, Cancel, InitializeRequest,
        plugin_service_client::PluginServiceClient,
    },
    types::v1::HookPayload,
};
use tonic::{
    Code, Request, Status,
    metadata::AsciiMetadataValue,
    transport::{Channel, Endpoint},
};

use super::{
    canonical::canonical,
    cases::{Callee, Case, ExpectedAnswer, ExpectedError},
};

const DIGEST: &str = "d1";
const TIMEOUT: Duration = Duration::from_secs(10);

type Client = PluginServiceClient<Channel>;

/// A connection to the vectors' plugin of a language, which has its configuration.
pub(super) struct VectorClient(Client);

impl VectorClient {
    pub(super) async fn connect(address: &str) -> Self {
        let endpoint = Endpoint::from_shared(address.to_owned()).unwrap();
        let mut client = PluginServiceClient::new(endpoint.connect().await.unwrap());
        let initialize = InitializeRequest {
            config_digest: DIGEST.into(),
            gateway_instance_id: "gateway-1".into(),
            ..InitializeRequest::default()
        };
        client.initialize(as_gateway(initialize)).await.expect("the plugin starts");
        VectorClient(client)
    }

    /// Makes the call of a case.
    ///
    /// # Errors
    /// What differs from the expected answer.
    pub(super) async fn check(&mut self, case: &Case, uncaught: Code) -> Result<(), String> {
        let client = &mut self.0;
        let found = match &case.callee {
            Callee::Hook(_) => ask::<OnHook>(client, case, uncaught).await,
            Callee::Tool(_) => ask::<BeforeToolCall>(client, case, uncaught).await,
            Callee::Point(point) => match point.as_str() {
                "before_llm_request" => ask::<BeforeLlmRequest>(client, case, uncaught).await,
                "before_tool_call" => ask::<BeforeToolCall>(client, case, uncaught).await,
                "after_tool_result" => ask::<AfterToolResult>(client, case, uncaught).await,
                "before_response" => ask::<BeforeResponse>(client, case, uncaught).await,
                other => Err(format!("there is no point `{other}`")),
            },
        };
        found.map_err(|difference| {
            format!("  payload   {}\n  script    {}\n{difference}", case.payload, case.script)
        })
    }
}

/// One method of the plugin's service.
trait VectorMethod {
    /// What an agent asks a gateway at this place.
    type AgentRequest: HttpRequestMessage;
    type Reply: ComparedReply;

    fn context(request: &mut Self::AgentRequest) -> Option<RequestContext>;

    async fn call(
        client: &mut Client,
        call: Call,
        request: Self::AgentRequest,
    ) -> Result<Self::Reply, Status>;
}

/// A reply whose parts are compared in different ways.
trait ComparedReply: ReplyMessage + Debug + PartialEq {
    fn cancel(&mut self) -> Option<&mut Cancel>;

    /// The JSON texts; an empty one is absent.
    fn json_texts(&mut self) -> Vec<&mut Bytes>;
}

macro_rules! vector_points {
    ($($point:ident $method:ident $request:ident $response:ident $verdict:ident [$($member:ident),+];)+) => {$(
        struct $point;

        impl VectorMethod for $point {
            type AgentRequest = gateway::$request;
            type Reply = plugin::$response;

            fn context(request: &mut Self::AgentRequest) -> Option<RequestContext> {
                request.context.take()
            }

            async fn call(
                client: &mut Client,
                call: Call,
                request: Self::AgentRequest,
            ) -> Result<Self::Reply, Status> {
                let request = plugin::$request { call: Some(call), payload: request.payload };
                Ok(client.$method(as_gateway(request)).await?.into_inner())
            }
        }

        impl ComparedReply for plugin::$response {
            fn cancel(&mut self) -> Option<&mut Cancel> {
                match &mut self.verdict {
                    Some(plugin::$verdict::Verdict::Cancel(cancel)) => Some(cancel),
                    _ => None,
                }
            }

            fn json_texts(&mut self) -> Vec<&mut Bytes> {
                let mut texts: Vec<_> = self.notices.iter_mut().map(|notice| &mut notice.details).collect();
                if let Some(patch) = &mut self.modify {
                    $(texts.extend(&mut patch.$member);)+
                }
                if let Some(plugin::$verdict::Verdict::Cancel(cancel)) = &mut self.verdict {
                    texts.push(&mut cancel.result);
                }
                texts
            }
        }
    )+};
}

vector_points! {
    BeforeLlmRequest before_llm_request BeforeLlmRequestRequest BeforeLlmRequestResponse before_llm_request_response [messages, tools, extra];
    BeforeToolCall before_tool_call BeforeToolCallRequest BeforeToolCallResponse before_tool_call_response [args, extra];
    AfterToolResult after_tool_result AfterToolResultRequest AfterToolResultResponse after_tool_result_response [result, extra];
    BeforeResponse before_response BeforeResponseRequest BeforeResponseResponse before_response_response [extra];
}

struct OnHook;

impl VectorMethod for OnHook {
    type AgentRequest = gateway::RunHookRequest;
    type Reply = plugin::OnHookResponse;

    fn context(request: &mut Self::AgentRequest) -> Option<RequestContext> {
        request.context.take()
    }

    async fn call(
        client: &mut Client,
        call: Call,
        request: Self::AgentRequest,
    ) -> Result<Self::Reply, Status> {
        let payload = HookPayload { hook: request.hook, body: request.body };
        let request = plugin::OnHookRequest { call: Some(call), payload: Some(payload) };
        Ok(client.on_hook(as_gateway(request)).await?.into_inner())
    }
}

impl ComparedReply for plugin::OnHookResponse {
    fn cancel(&mut self) -> Option<&mut Cancel> {
        None
    }

    fn json_texts(&mut self) -> Vec<&mut Bytes> {
        let details = self.notices.iter_mut().map(|notice| &mut notice.details);
        details.chain(self.contributions.iter_mut().map(|contribution| &mut contribution.value)).collect()
    }
}

async fn ask<M: VectorMethod>(client: &mut Client, case: &Case, uncaught: Code) -> Result<(), String> {
    let (body, hook) = match &case.callee {
        Callee::Point(_) => (format!(r#"{{"context":{},"payload":{}}}"#, case.context, case.payload), None),
        Callee::Hook(hook) => {
            (format!(r#"{{"context":{},"body":{}}}"#, case.context, case.payload), Some(hook))
        }
        Callee::Tool(tool) => {
            let tool = serde_json::Value::from(tool.as_str());
            (format!(r#"{{"payload":{{"tool_name":{tool},"args":{}}}}}"#, case.payload), None)
        }
    };
    let mut request: M::AgentRequest = decode_at(&body.into(), hook.map(String::as_str))
        .map_err(|violations| format!("  a gateway refuses the payload: {violations:?}"))?;
    let call = Call {
        context: Some(call_context(M::context(&mut request).unwrap_or_default())),
        config_digest: DIGEST.into(),
        tenant_config: case.script.clone().into(),
        run_tool: matches!(case.callee, Callee::Tool(_)),
        ..Call::default()
    };
    let answer = M::call(client, call, request).await;
    match (&case.expected, answer) {
        (ExpectedAnswer::Reply(text), Ok(reply)) => compare(text, reply, case.own_words),
        (ExpectedAnswer::Error(error), Err(status)) => compare_error(error, &status, uncaught),
        (ExpectedAnswer::Reply(text), Err(status)) => {
            Err(format!("  expected  {text}\n  got       {:?}: {}", status.code(), status.message()))
        }
        (ExpectedAnswer::Error(error), Ok(reply)) => {
            Err(format!("  expected  {error:?}\n  got       {reply:?}"))
        }
    }
}

fn compare<R: ComparedReply>(expected: &str, mut reply: R, own_words: bool) -> Result<(), String> {
    let expected = decode_reply::<R>(&expected.to_owned().into());
    let mut expected = expected.map_err(|wrong| format!("  the expected reply is wrong: {wrong:?}"))?.message;
    for text in expected.json_texts().into_iter().chain(reply.json_texts()).filter(|text| !text.is_empty()) {
        *text = canonical(text)?.into();
    }
    if own_words
        && let (Some(expected), Some(cancel)) = (expected.cancel(), reply.cancel())
        && cancel.message.starts_with(&expected.message)
    {
        expected.message.clone_from(&cancel.message);
    }
    if reply == expected { Ok(()) } else { Err(format!("  expected  {expected:?}\n  got       {reply:?}")) }
}

fn compare_error(expected: &ExpectedError, status: &Status, uncaught: Code) -> Result<(), String> {
    let is_status = match expected.status.as_str() {
        "UNCAUGHT" => status.code() == uncaught,
        name => status_name(status.code()) == name,
    };
    let is_message = expected.message.as_ref().is_none_or(|message| message == status.message());
    if is_status && is_message {
        return Ok(());
    }
    Err(format!("  expected  {expected:?}\n  got       {:?}: {:?}", status.code(), status.message()))
}

/// The name of a status as gRPC writes it, such as `INVALID_ARGUMENT`.
fn status_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn call_context(context: RequestContext) -> CallContext {
    CallContext {
        tenant: "acme".into(),
        operator: "op".into(),
        request_id: "r-1".into(),
        correlation_id: Some("x-1".into()),
        labels: context.labels,
        session_id: context.session_id,
        run_id: context.run_id,
        parent_run_id: context.parent_run_id,
        depth: context.depth,
        agent_id: context.agent_id,
        agent_path: context.agent_path,
        project_id: context.project_id,
        user_id: context.user_id,
        provider: context.provider,
        model: context.model,
        exchange_id: Some("e-1".into()),
        replay: true,
        part: true,
    }
}

/// A request with the metadata of a gateway.
fn as_gateway<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hookgate-plugin", AsciiMetadataValue::from_static("vectors"));
    request.set_timeout(TIMEOUT);
    request
}
