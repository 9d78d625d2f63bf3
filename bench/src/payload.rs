//! The payloads of calls: which one a call carries, and the requests that carry it.

use bytes::Bytes;
use hookgate_proto::{
    gateway::v1 as gateway,
    plugin::v1 as plugin,
    types::v1::{
        AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
    },
};
use serde_json::{Value, json};

use crate::llm_provider::StreamShape;

/// The size of an ordinary payload.
pub(crate) const SMALL_BYTES: usize = 1 << 10;
/// The size of a large `content`.
pub(crate) const LARGE_BYTES: usize = 256 << 10;
/// The size of a `content` that takes a plugin long, and of a piece of a stream that does.
pub(crate) const HUGE_BYTES: usize = 1 << 20;
/// The tools' results of a long conversation: how many, and their size in all.
const HISTORY_RESULTS: usize = 60;
const HISTORY_BYTES: usize = 200 << 10;
/// What a streamed answer has in it once its first text is there.
const FIRST_TEXT: &[u8] = br#""content":" word"#;
/// The tenant that calls, unless a scenario has several.
pub(crate) const TENANT: &str = "acme";
/// The hook that is called.
pub(crate) const HOOK: &str = "recall";

/// What the calls of a scenario carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Payload {
    /// A tool call with arguments of 1 KiB.
    ToolCall,
    /// A response with 1 KiB of `content`.
    SmallContent,
    /// A response with 256 KiB of `content`.
    LargeContent,
    /// A response with 1 MiB of `content`.
    HugeContent,
    /// 1 KiB at each of the four points in turn.
    EveryPoint,
    /// A request to a model with 1 KiB of text, behind a tool's result.
    Completion,
    /// The same for a streamed answer.
    #[value(skip)]
    Stream(StreamShape),
    /// A request to a model with 200 KiB of earlier tools' results.
    History,
    /// A hook with a message of 1 KiB. The answer must have this many contributions.
    #[value(skip)]
    Hook { contributions: usize },
}

impl Payload {
    /// The requests to the gateway, in the order in which a caller sends them.
    pub(crate) fn requests(self) -> Vec<GatewayRequest> {
        match self {
            // They go over HTTP alone.
            Payload::Completion | Payload::Stream(_) | Payload::History => Vec::new(),
            Payload::ToolCall => vec![tool_call()],
            Payload::SmallContent => vec![response(SMALL_BYTES)],
            Payload::LargeContent => vec![response(LARGE_BYTES)],
            Payload::HugeContent => vec![response(HUGE_BYTES)],
            Payload::Hook { contributions } => vec![GatewayRequest::RunHook(hook(), contributions)],
            Payload::EveryPoint => {
                let llm_request = gateway::BeforeLlmRequestRequest {
                    payload: Some(BeforeLlmRequestPayload { text: text(SMALL_BYTES), ..Default::default() }),
                    ..Default::default()
                };
                let result = gateway::AfterToolResultRequest {
                    payload: Some(AfterToolResultPayload {
                        tool_name: "fs.read".into(),
                        result: arguments(SMALL_BYTES),
                        success: Some(true),
                        ..Default::default()
                    }),
                    ..Default::default()
                };
                vec![
                    GatewayRequest::BeforeLlmRequest(llm_request),
                    tool_call(),
                    GatewayRequest::AfterToolResult(result),
                    response(SMALL_BYTES),
                ]
            }
        }
    }

    /// The request over HTTP.
    pub(crate) fn http_request(self) -> HttpRequest {
        match self {
            Payload::Stream(shape) => HttpRequest {
                mark: b"data: [DONE]",
                timed_to: shape.begins_with_a_word().then_some(FIRST_TEXT),
                ..HttpRequest::to_model(model_request(shape.model(), true, question()))
            },
            Payload::Completion => HttpRequest::to_model(model_request("gpt-5", false, question())),
            Payload::History => HttpRequest::to_model(model_request("gpt-5", false, conversation())),
            _ => {
                let arguments = arguments(SMALL_BYTES);
                let body = [br#"{"payload":{"tool_name":"fs.read","args":"#, &arguments[..], b"}}"].concat();
                let mark = br#""decision":"continue""#;
                HttpRequest { path: "/v1/before-tool-call", body: body.into(), mark, timed_to: None }
            }
        }
    }
}

/// A request over HTTP.
pub(crate) struct HttpRequest {
    pub(crate) path: &'static str,
    pub(crate) body: Bytes,
    /// What the answer must have in it.
    pub(crate) mark: &'static [u8],
    /// The latency of a call ends when the answer has this in it. Absent: when the answer ends.
    pub(crate) timed_to: Option<&'static [u8]>,
}

impl HttpRequest {
    fn to_model(body: Bytes) -> Self {
        let mark = br#""finish_reason":"tool_calls""#;
        HttpRequest { path: "/openai/v1/chat/completions", body, mark, timed_to: None }
    }
}

fn model_request(model: &str, is_streamed: bool, messages: Vec<Value>) -> Bytes {
    let function = json!({ "name": "fs_read", "parameters": { "type": "object" } });
    let tools = [json!({ "type": "function", "function": function })];
    json!({ "model": model, "stream": is_streamed, "messages": messages, "tools": tools }).to_string().into()
}

/// A turn of an agent: a tool call, its result, and a question, so that each point has something to judge.
fn question() -> Vec<Value> {
    let [call, result] = tool_use(1, "1,204");
    vec![system_message(), call, result, user_message()]
}

/// A question after a long run of tools. All of their results are of an earlier turn.
fn conversation() -> Vec<Value> {
    let mut messages = vec![system_message()];
    let result = text(HISTORY_BYTES / HISTORY_RESULTS);
    messages.extend((0..HISTORY_RESULTS).flat_map(|number| tool_use(number, &result)));
    messages.extend([json!({ "role": "assistant", "content": "That is all." }), user_message()]);
    messages
}

fn system_message() -> Value {
    json!({ "role": "system", "content": "You answer questions about sales." })
}

fn user_message() -> Value {
    json!({ "role": "user", "content": text(SMALL_BYTES) })
}

/// A call and its result.
fn tool_use(number: usize, result: &str) -> [Value; 2] {
    let id = format!("call_{number}");
    let function = json!({ "name": "fs_read", "arguments": "{\"path\":\"a\"}" });
    let call = json!({ "id": id, "type": "function", "function": function });
    [
        json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
        json!({ "role": "tool", "tool_call_id": id, "content": result }),
    ]
}

/// A request to the gateway.
#[derive(Debug, Clone)]
pub(crate) enum GatewayRequest {
    BeforeLlmRequest(gateway::BeforeLlmRequestRequest),
    BeforeToolCall(gateway::BeforeToolCallRequest),
    AfterToolResult(gateway::AfterToolResultRequest),
    BeforeResponse(gateway::BeforeResponseRequest),
    /// With how many contributions it must be answered.
    RunHook(gateway::RunHookRequest, usize),
}

fn tool_call() -> GatewayRequest {
    let payload = BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: arguments(SMALL_BYTES),
        ..Default::default()
    };
    GatewayRequest::BeforeToolCall(gateway::BeforeToolCallRequest {
        payload: Some(payload),
        ..Default::default()
    })
}

fn response(bytes: usize) -> GatewayRequest {
    let payload = BeforeResponsePayload { content: text(bytes), ..Default::default() };
    GatewayRequest::BeforeResponse(gateway::BeforeResponseRequest {
        payload: Some(payload),
        ..Default::default()
    })
}

fn hook() -> gateway::RunHookRequest {
    let body = json!({ "message": text(SMALL_BYTES) }).to_string();
    gateway::RunHookRequest { hook: HOOK.into(), body: body.into(), ..Default::default() }
}

/// The context that a plugin gets with a call, as short as it can be.
pub(crate) fn plugin_call(config_digest: &str) -> plugin::Call {
    let context = plugin::CallContext {
        tenant: TENANT.into(),
        operator: "bench".into(),
        request_id: "00000000-0000-7000-8000-000000000000".into(),
        ..Default::default()
    };
    plugin::Call { context: Some(context), config_digest: config_digest.into(), ..Default::default() }
}

/// A tool's typical arguments, with a note that fills them up to `bytes`.
pub(crate) fn arguments(bytes: usize) -> Bytes {
    let with_note = |note: String| {
        json!({
            "path": "/srv/reports/2026/november/sales.csv", "offset": 9_007_199_254_740_993_u64, "limit": 500,
            "columns": ["date", "region", "product", "amount", "currency"],
            "filter": { "region": "EMEA", "amount": { "gte": 1000, "lt": 12.5e3 }, "note": null },
            "sort": "date", "descending": false, "note": note,
        })
        .to_string()
    };
    let rest = with_note(String::new()).len();
    with_note(text(bytes.saturating_sub(rest))).into()
}

/// Plain English text of this many bytes.
pub(crate) fn text(bytes: usize) -> String {
    "The quarterly report lists revenue by region and product. ".chars().cycle().take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_exactly_the_stated_size() {
        assert_eq!(arguments(SMALL_BYTES).len(), SMALL_BYTES);
        assert_eq!(text(LARGE_BYTES).len(), LARGE_BYTES);
    }
}
