use std::sync::{Arc, Mutex};

use hookgate_proto::{
    gateway::v1::{
        self as wire, Block,
        extension_point_service_server::{ExtensionPointService, ExtensionPointServiceServer},
    },
    types::v1::{CancelScope, Decision},
};
use prost::Message;
use prost_types::Any;
use tokio::net::TcpListener;
use tonic::{Code, Response, async_trait, metadata::MetadataMap};
use tonic_types::{ErrorDetails, StatusExt, pb::Status as RpcStatus};

use super::*;
use crate::{context::CallSite, listen::connections};

type Answer = Result<wire::BeforeToolCallResponse, Status>;

/// Gives every tool call the same answer, and records the requests.
#[derive(Clone)]
struct Gateway {
    answer: Arc<dyn Fn() -> Answer + Send + Sync>,
    /// Never answers.
    hangs: bool,
    calls: Arc<Mutex<Vec<(MetadataMap, wire::BeforeToolCallRequest)>>>,
}

impl Gateway {
    fn new(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Gateway { answer: Arc::new(answer), hangs: false, calls: Arc::default() }
    }

    /// Serves on a free port until the test's runtime ends.
    async fn agent(&self) -> Agent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router =
            tonic::transport::Server::builder().add_service(ExtensionPointServiceServer::new(self.clone()));
        tokio::spawn(router.serve_with_incoming(connections(listener)));
        Agent::new(&address, Token::fixed("token").unwrap()).unwrap()
    }
}

#[async_trait]
impl ExtensionPointService for Gateway {
    async fn before_llm_request(
        &self,
        request: Request<wire::BeforeLlmRequestRequest>,
    ) -> Result<Response<wire::BeforeLlmRequestResponse>, Status> {
        let (decision, payload) = (Decision::Continue.into(), request.into_inner().payload);
        Ok(Response::new(wire::BeforeLlmRequestResponse { decision, payload, ..Default::default() }))
    }

    async fn before_tool_call(
        &self,
        request: Request<wire::BeforeToolCallRequest>,
    ) -> Result<Response<wire::BeforeToolCallResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.calls.lock().unwrap().push((metadata, message));
        if self.hangs {
            std::future::pending::<()>().await;
        }
        (self.answer)().map(Response::new)
    }

    async fn after_tool_result(
        &self,
        request: Request<wire::AfterToolResultRequest>,
    ) -> Result<Response<wire::AfterToolResultResponse>, Status> {
        let (decision, payload) = (Decision::Continue.into(), request.into_inner().payload);
        Ok(Response::new(wire::AfterToolResultResponse { decision, payload, ..Default::default() }))
    }

    async fn before_response(
        &self,
        request: Request<wire::BeforeResponseRequest>,
    ) -> Result<Response<wire::BeforeResponseResponse>, Status> {
        let (decision, payload) = (Decision::Continue.into(), request.into_inner().payload);
        Ok(Response::new(wire::BeforeResponseResponse { decision, payload, ..Default::default() }))
    }
}

fn payload(tool: &str) -> BeforeToolCallPayload {
    BeforeToolCallPayload { tool_name: tool.to_owned(), args: "{}".into(), ..Default::default() }
}

fn continues() -> wire::BeforeToolCallResponse {
    wire::BeforeToolCallResponse {
        decision: Decision::Continue.into(),
        payload: Some(payload("patched")),
        modified: true,
        plan_digest: "plan".to_owned(),
        request_id: "id".to_owned(),
        ..Default::default()
    }
}

async fn no_decision(agent: &Agent) -> NoDecision {
    match agent.before_tool_call(payload("tool")).await {
        Err(AgentError::NoDecision(outage)) => *outage,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_continue_gives_the_returned_payload() {
    let agent = Gateway::new(|| Ok(continues())).agent().await;
    let go = agent.before_tool_call(payload("own")).await.unwrap();
    assert_eq!(go.payload, payload("patched"));
    assert!(go.modified && go.no_decision.is_none());
    assert_eq!((go.answered.plan_digest.as_str(), go.answered.request_id.as_str()), ("plan", "id"));
}

#[tokio::test]
async fn all_four_points_are_called() {
    let agent = Gateway::new(|| Ok(continues())).agent().await;
    let text = BeforeLlmRequestPayload { text: "t".into(), ..Default::default() };
    assert_eq!(agent.before_llm_request(text.clone()).await.unwrap().payload, text);
    let result = AfterToolResultPayload { success: Some(false), ..Default::default() };
    assert_eq!(agent.after_tool_result(result.clone()).await.unwrap().payload, result);
    let response = BeforeResponsePayload { content: "c".into(), ..Default::default() };
    assert_eq!(agent.before_response(response.clone()).await.unwrap().payload, response);
}

#[tokio::test]
async fn a_block_is_raised_with_all_that_is_said_and_never_retried() {
    let gateway = Gateway::new(|| {
        let block = Block {
            plugin: Some("tenant-auth".to_owned()),
            code: "TOOL_NOT_ALLOWED".to_owned(),
            message: "no".to_owned(),
            retry_after_ms: Some(1500),
            scope: CancelScope::Run.into(),
            ..Default::default()
        };
        let notices = vec![PluginNotice::default()];
        Ok(wire::BeforeToolCallResponse {
            decision: Decision::Block.into(),
            block: Some(block),
            notices,
            ..continues()
        })
    });
    // `GoOn` applies to no decision, never to a block.
    let agent = gateway.agent().await.on_no_decision(Point::BeforeToolCall, OnNoDecision::GoOn);
    let Err(AgentError::Blocked(block)) = agent.before_tool_call(payload("own")).await else {
        panic!("not blocked")
    };
    assert_eq!((block.code.as_str(), block.message.as_str()), ("TOOL_NOT_ALLOWED", "no"));
    assert_eq!((block.scope, block.retry_after), (Scope::Run, Some(Duration::from_millis(1500))));
    assert_eq!(block.plugin.as_deref(), Some("tenant-auth"));
    assert_eq!(block.payload, Payload::BeforeToolCall(payload("patched")));
    assert_eq!(block.notices.len(), 1);
    assert_eq!(gateway.calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_error_is_no_decision_with_code_and_violations() {
    let agent = Gateway::new(|| {
        let mut details = ErrorDetails::with_error_info("PAYLOAD_INVALID", "hookgate", []);
        details.add_bad_request_violation("/payload/args", "args is required");
        Err(Status::with_error_details(Code::InvalidArgument, "bad", details))
    })
    .agent()
    .await;
    let outage = no_decision(&agent).await;
    assert_eq!(
        (outage.error.code.as_deref(), outage.error.status),
        (Some("PAYLOAD_INVALID"), Code::InvalidArgument)
    );
    assert_eq!(outage.error.violations, [("/payload/args".to_owned(), "args is required".to_owned())]);
    assert!(!outage.error.is_transient());
}

#[tokio::test]
async fn an_overload_is_transient_and_says_when_to_return() {
    let agent = Gateway::new(|| {
        let mut details = ErrorDetails::with_error_info("OVERLOADED", "hookgate", []);
        details.set_retry_info(Some(Duration::from_secs(3)));
        Err(Status::with_error_details(Code::Unavailable, "busy", details))
    })
    .agent()
    .await;
    let outage = no_decision(&agent).await;
    assert!(outage.error.is_transient());
    assert_eq!(outage.error.retry_after, Some(Duration::from_secs(3)));
}

/// An error status of the gateway's to which the step of `guard` led.
fn failed_step(report: Vec<u8>) -> Status {
    let metadata = [("plugin", "guard"), ("binding", "floor"), ("step_reason", "breaker_open")];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let details = ErrorDetails::with_error_info("PLUGIN_UNAVAILABLE", "hookgate", metadata);
    let status = Status::with_error_details(Code::Unavailable, "down", details);
    let mut details = RpcStatus::decode(status.details()).unwrap();
    let type_url = "type.googleapis.com/hookgate.gateway.v1.ChainReport".to_owned();
    details.details.push(Any { type_url, value: report });
    Status::with_details(Code::Unavailable, "down", details.encode_to_vec().into())
}

#[tokio::test]
async fn an_error_names_the_step_that_failed_and_has_the_steps_until_then() {
    let step = |plugin: &str, outcome: StepOutcome| Step {
        plugin: plugin.to_owned(),
        outcome: outcome.into(),
        ..Default::default()
    };
    let steps = vec![step("first", StepOutcome::Modified), step("guard", StepOutcome::Failed)];
    let report = wire::ChainReport { steps: steps.clone(), omitted_steps: 3 }.encode_to_vec();
    let agent = Gateway::new(move || Err(failed_step(report.clone()))).agent().await;
    let outage = no_decision(&agent).await;
    assert_eq!(
        (outage.point, outage.error.code.as_deref()),
        (Point::BeforeToolCall, Some("PLUGIN_UNAVAILABLE"))
    );
    let named =
        (outage.error.plugin.as_deref(), outage.error.binding.as_deref(), outage.error.reason.as_deref());
    assert_eq!(named, (Some("guard"), Some("floor"), Some("breaker_open")));
    assert_eq!((outage.error.steps, outage.error.omitted_steps), (steps, 3));

    // What can't be read is left out, and the error is as good as before.
    let agent = Gateway::new(|| Err(failed_step(vec![0xff]))).agent().await;
    let outage = no_decision(&agent).await;
    assert_eq!((outage.error.plugin.as_deref(), outage.error.steps.len()), (Some("guard"), 0));
}

#[tokio::test]
async fn another_services_error_info_is_not_a_code() {
    let details = || ErrorDetails::with_error_info("OVERLOADED", "elsewhere", []);
    let agent = Gateway::new(move || Err(Status::with_error_details(Code::Internal, "x", details())));
    assert_eq!(no_decision(&agent.agent().await).await.error.code, None);
}

#[tokio::test]
async fn an_answer_without_decision_or_payload_is_no_decision() {
    for answer in [
        wire::BeforeToolCallResponse { decision: 0, ..continues() },
        wire::BeforeToolCallResponse { decision: 77, ..continues() },
        wire::BeforeToolCallResponse { payload: None, ..continues() },
        wire::BeforeToolCallResponse { block: Some(Block::default()), ..continues() },
    ] {
        let agent = Gateway::new(move || Ok(answer.clone())).agent().await;
        assert_eq!(no_decision(&agent).await.error.status, Code::Internal);
        let agent = agent.on_no_decision(Point::BeforeToolCall, OnNoDecision::GoOn);
        assert_eq!(no_decision(&agent).await.error.status, Code::Internal, "a malformed answer is no outage");
    }
}

#[tokio::test]
async fn an_agent_that_ignores_outages_stops_at_errors_that_a_request_can_cause() {
    let refused = || Err(Status::invalid_argument("payload.args: is too deep"));
    let agent = Gateway::new(refused).agent().await.on_no_decision(Point::BeforeToolCall, OnNoDecision::GoOn);
    assert_eq!(no_decision(&agent).await.error.status, Code::InvalidArgument);
}

#[tokio::test]
async fn a_gateway_that_does_not_answer_in_time_is_no_decision() {
    let gateway = Gateway { hangs: true, ..Gateway::new(|| Ok(continues())) };
    let agent = gateway.agent().await.with_timeout(Duration::from_secs(2));
    let outage = no_decision(&agent).await;
    assert_eq!((outage.error.status, outage.error.code.as_deref()), (Code::DeadlineExceeded, None));
    assert!(outage.error.is_transient());
    let told = gateway.calls.lock().unwrap()[0].0.get("grpc-timeout").unwrap().clone();
    assert_eq!(told, "2000000u");
}

#[tokio::test]
async fn an_unreachable_gateway_is_no_decision() {
    // A port for a service that nobody runs any more.
    let agent = Agent::new("http://127.0.0.1:1", Token::fixed("token").unwrap()).unwrap();
    assert_eq!(no_decision(&agent).await.error.status, Code::Unavailable);

    let agent = agent.on_no_decision(Point::BeforeToolCall, OnNoDecision::GoOn);
    let go = agent.before_tool_call(payload("own")).await.unwrap();
    assert_eq!(go.payload, payload("own"));
    assert_eq!(go.no_decision.unwrap().error.status, Code::Unavailable);
    assert!(
        agent.before_response(BeforeResponsePayload::default()).await.is_err(),
        "told for one point alone"
    );
}

#[tokio::test]
async fn token_context_and_plan_are_sent() {
    let gateway = Gateway::new(|| Ok(continues()));
    let context = RequestContext { session_id: Some("s".to_owned()), ..Default::default() };
    let agent = gateway.agent().await.with_context(context.clone()).with_plan("expected");
    agent.before_tool_call(payload("own")).await.unwrap();
    let calls = gateway.calls.lock().unwrap();
    let (metadata, message) = &calls[0];
    assert_eq!(metadata.get("authorization").unwrap(), "Bearer token");
    assert_eq!(message.context, Some(context));
    assert_eq!(message.expect_plan_digest.as_deref(), Some("expected"));
    assert_eq!(metadata.get("hookgate-depth"), None);
}

#[tokio::test]
async fn a_plugins_call_keeps_its_callers_time_trace_and_depth() {
    let mut metadata = MetadataMap::new();
    metadata
        .insert("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    metadata.insert("tracestate", "a=1".parse().unwrap());
    metadata.insert("hookgate-depth", "2".parse().unwrap());
    metadata.insert("grpc-timeout", "3S".parse().unwrap());
    metadata.insert("authorization", "Bearer somebody else's".parse().unwrap());
    let ctx = Context::new(
        CallSite::Point(Point::BeforeToolCall),
        &mut Default::default(),
        &metadata,
        Default::default(),
    );

    let gateway = Gateway::new(|| Ok(continues()));
    gateway.agent().await.with_caller(&ctx).before_tool_call(payload("own")).await.unwrap();
    let sent = gateway.calls.lock().unwrap()[0].0.clone();
    for key in ["traceparent", "tracestate", "hookgate-depth"] {
        assert_eq!(sent.get(key), metadata.get(key), "{key}");
    }
    assert_eq!(sent.get("authorization").unwrap(), "Bearer token");
    let timeout = sent.get("grpc-timeout").unwrap().to_str().unwrap();
    let micros: u64 = timeout.trim_end_matches('u').parse().unwrap();
    assert!((1_000_000..=3_000_000).contains(&micros), "{timeout}");

    metadata.insert("grpc-timeout", "0S".parse().unwrap());
    let ctx = Context::new(
        CallSite::Point(Point::BeforeToolCall),
        &mut Default::default(),
        &metadata,
        Default::default(),
    );
    let late = no_decision(&gateway.agent().await.with_caller(&ctx)).await;
    assert_eq!(late.error.status, Code::DeadlineExceeded);
}
