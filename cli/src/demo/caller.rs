//! The demo's agents: make calls over HTTP or gRPC, and convert the answers to one form.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use bytes::Bytes;
use hookgate_sdk::{
    AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
    agent::{Agent, AgentError, AnswerFacts, CallError, Continue, Payload, Signer},
};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::script::{CallTransport, ExpectedAnswer, PayloadFields, ScriptedCall, Verdict};
pub(super) use crate::call::path;
use hookgate::core::point::Point;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer, and the details shown beside it.
pub(super) struct CallResult {
    pub(super) answer: ExpectedAnswer,
    /// The called plugins and their durations.
    pub(super) plugins: Vec<(String, Duration)>,
    /// The error or block message, for people.
    pub(super) message: String,
}

/// An agent of one tenant.
pub(super) struct Caller {
    http: reqwest::Client,
    grpc: Agent,
    gateway: SocketAddr,
    token: String,
}

impl Caller {
    pub(super) fn new(gateway: SocketAddr, signer: Signer) -> Result<Self, String> {
        // Ignore the machine's proxies.
        let http = reqwest::Client::builder().no_proxy().timeout(CALL_TIMEOUT).build();
        let token = signer.token();
        let grpc = Agent::new(&format!("http://{gateway}"), signer).map_err(|error| error.to_string())?;
        Ok(Caller {
            http: http.map_err(|error| error.to_string())?,
            grpc: grpc.with_timeout(CALL_TIMEOUT),
            gateway,
            token,
        })
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Makes the call.
    pub(super) async fn call(&self, call: &ScriptedCall) -> Result<CallResult, String> {
        match call.via {
            CallTransport::Http => {
                self.over_http(call).await.map_err(|error| format!("no answer over HTTP: {error}"))
            }
            CallTransport::Grpc => self.over_grpc(call).await,
        }
    }

    async fn over_http(&self, call: &ScriptedCall) -> reqwest::Result<CallResult> {
        let url = format!("http://{}{}", self.gateway, path(call.point));
        let request = self.http.post(url).bearer_auth(&self.token);
        let request = request.header("content-type", "application/json").body(body(call));
        let response = request.send().await?;
        let status = response.status().as_u16().to_string();
        let verdict = match response.headers().get("hookgate-decision").map(|value| value.as_bytes()) {
            Some(b"continue") => Verdict::Continue,
            Some(b"block") => Verdict::Block,
            _ => Verdict::NoDecision,
        };
        let body: HttpResponseBody = response.json().await?;
        let payload = |members: BTreeMap<String, Box<RawValue>>| {
            members.into_iter().map(|(name, value)| (name, value.into())).collect()
        };
        // Over both transports, the message of an error names the plugin.
        let steps = if verdict == Verdict::NoDecision { Vec::new() } else { body.steps };
        let steps = steps.into_iter().map(|step| (step.plugin, step.duration_us));
        Ok(CallResult {
            answer: ExpectedAnswer { verdict, status, code: body.code, payload: body.payload.map(payload) },
            plugins: called(steps),
            message: body.errors.into_iter().next().map_or(body.detail, |error| error.message),
        })
    }

    async fn over_grpc(&self, call: &ScriptedCall) -> Result<CallResult, String> {
        let fields = |name: &str| call.sent.iter().find(|(field, _)| *field == name).map(|(_, json)| &**json);
        let text = |name: &str| -> Result<String, String> {
            let text = serde_json::from_str(fields(name).unwrap_or(r#""""#));
            text.map_err(|error| format!("`{name}` is not a text: {error}"))
        };
        let json = |name: &str| Bytes::from(fields(name).unwrap_or_default().to_owned());
        let answer = match call.point {
            Point::BeforeLlmRequest => {
                let payload = BeforeLlmRequestPayload {
                    text: text("text")?,
                    extra: json("extra"),
                    ..BeforeLlmRequestPayload::default()
                };
                self.grpc.before_llm_request(payload).await.map(|go| go_on(go, Payload::BeforeLlmRequest))
            }
            Point::BeforeToolCall => {
                let payload = BeforeToolCallPayload {
                    tool_name: text("tool_name")?,
                    args: json("args"),
                    ..BeforeToolCallPayload::default()
                };
                self.grpc.before_tool_call(payload).await.map(|go| go_on(go, Payload::BeforeToolCall))
            }
            Point::AfterToolResult => {
                let payload = AfterToolResultPayload {
                    tool_name: text("tool_name")?,
                    result: json("result"),
                    success: fields("success").map(|success| success == "true"),
                    ..AfterToolResultPayload::default()
                };
                self.grpc.after_tool_result(payload).await.map(|go| go_on(go, Payload::AfterToolResult))
            }
            Point::BeforeResponse => {
                let payload = BeforeResponsePayload {
                    content: text("content")?,
                    extra: json("extra"),
                    ..BeforeResponsePayload::default()
                };
                self.grpc.before_response(payload).await.map(|go| go_on(go, Payload::BeforeResponse))
            }
        };
        Ok(answer.unwrap_or_else(not_so))
    }
}

/// The request's body, with JSON as in the script.
pub(super) fn body(call: &ScriptedCall) -> String {
    let fields: Vec<_> = call.sent.iter().map(|(field, json)| format!(r#""{field}": {json}"#)).collect();
    let context = call.context.map(|json| format!(r#""context": {json}, "#)).unwrap_or_default();
    format!(r#"{{{context}"payload": {{{}}}}}"#, fields.join(", "))
}

/// The members of an answer over HTTP.
#[derive(Deserialize)]
struct HttpResponseBody {
    payload: Option<BTreeMap<String, Box<RawValue>>>,
    #[serde(default)]
    steps: Vec<HttpStep>,
    #[serde(default)]
    code: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    errors: Vec<HttpError>,
}

#[derive(Deserialize)]
struct HttpStep {
    plugin: String,
    duration_us: u64,
}

#[derive(Deserialize)]
struct HttpError {
    message: String,
}

fn called(steps: impl Iterator<Item = (String, u64)>) -> Vec<(String, Duration)> {
    let called = steps.filter(|(_, micros)| *micros > 0); // an observer is called when the answer is given
    called.map(|(plugin, micros)| (plugin, Duration::from_micros(micros))).collect()
}

fn steps(answered: AnswerFacts) -> Vec<(String, Duration)> {
    called(answered.steps.into_iter().map(|step| (step.plugin, step.duration_us)))
}

fn go_on<P>(go: Continue<P>, any: fn(P) -> Payload) -> CallResult {
    let answer = ExpectedAnswer {
        verdict: Verdict::Continue,
        status: "OK".into(),
        code: String::new(),
        payload: Some(fields(any(go.payload))),
    };
    CallResult { answer, plugins: steps(go.answered), message: String::new() }
}

fn not_so(error: AgentError) -> CallResult {
    match error {
        AgentError::Blocked(blocked) => CallResult {
            answer: ExpectedAnswer {
                verdict: Verdict::Block,
                status: "OK".into(),
                code: blocked.code,
                payload: Some(fields(blocked.payload)),
            },
            plugins: steps(blocked.answered),
            message: blocked.message,
        },
        AgentError::NoDecision(outage) => {
            let CallError { status, code, message, .. } = outage.error;
            let (status, code) = (format!("{status:?}").to_uppercase(), code.unwrap_or_default());
            let answer = ExpectedAnswer { verdict: Verdict::NoDecision, status, code, payload: None };
            CallResult { answer, plugins: Vec::new(), message }
        }
    }
}

/// The set fields, each as JSON text.
fn fields(payload: Payload) -> PayloadFields {
    let text = |text: &String| to_raw_value(text).map(Box::<str>::from).unwrap_or_default();
    let json = |json: &Bytes| Box::<str>::from(String::from_utf8_lossy(json));
    let fields = match payload {
        Payload::BeforeLlmRequest(payload) => {
            vec![("text", text(&payload.text)), ("extra", json(&payload.extra))]
        }
        Payload::BeforeToolCall(payload) => {
            vec![("tool_name", text(&payload.tool_name)), ("args", json(&payload.args))]
        }
        Payload::AfterToolResult(payload) => {
            let success = payload.success.map(|success| success.to_string()).unwrap_or_default();
            vec![
                ("tool_name", text(&payload.tool_name)),
                ("result", json(&payload.result)),
                ("success", success.into()),
            ]
        }
        Payload::BeforeResponse(payload) => {
            vec![("content", text(&payload.content)), ("extra", json(&payload.extra))]
        }
    };
    fields.into_iter().filter(|(_, json)| !json.is_empty()).map(|(name, json)| (name.into(), json)).collect()
}
