//! Every point and everything that a plugin may do there, for whole and for streamed messages.

use hookgate_proto::types::v1::{
    AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, CancelScope,
    ExtensionPoint,
};
use hookgate_tests::{
    fake::{Act, FakePlugin},
    gateway::Gateway,
    provider::messages::{answer, message, text, tool_use},
    token::token,
};
use serde_json::{Value, json};

use super::{
    messages_support::{ClientEvents, always, ask, assistant, request, results, setup, user},
    support::{CREDENTIAL, send},
};

const CANARY: &str = "555-0100";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Block,
    BlockRun,
    Patch,
    Hang,
    BadReply,
    /// A block that only advises.
    Advise,
}

const DEEDS: [Deed; 6] = [Deed::Block, Deed::BlockRun, Deed::Patch, Deed::Hang, Deed::BadReply, Deed::Advise];

/// What comes of it.
#[derive(Debug)]
enum Outcome {
    /// No provider is asked. Status and code.
    Refused(u16, &'static str),
    /// The answer is an error, whose status a stream can't have any more.
    Failed(u16, &'static str),
    /// The provider gets this at a pointer.
    Sent(&'static str, Value),
    /// The client gets these blocks and this reason of the end.
    Answered(Value, &'static str),
}

fn call(input: &Value) -> Value {
    tool_use("toolu_1", "fs_read", input)
}

/// What the model answers.
fn said() -> Value {
    json!([text(&format!("call {CANARY}")), call(&json!({ "path": "/etc" }))])
}

fn act(point: ExtensionPoint, deed: Deed) -> Act {
    let redacted = || Some("[PHONE]".to_owned());
    match (deed, point) {
        (Deed::Block | Deed::Advise, _) => Act::cancel("POLICY", "No."),
        (Deed::BlockRun, _) => Act::cancel("POLICY", "No.").scope(CancelScope::Run),
        (Deed::Hang, _) => Act::hang(),
        (Deed::BadReply, _) => Act::no_verdict(),
        (Deed::Patch, ExtensionPoint::BeforeLlmRequest) => {
            Act::patch(BeforeLlmRequestPatch { text: redacted(), ..BeforeLlmRequestPatch::default() })
        }
        (Deed::Patch, ExtensionPoint::AfterToolResult) => {
            let result = Some(r#""[PHONE]""#.into());
            Act::patch(AfterToolResultPatch { result, ..AfterToolResultPatch::default() })
        }
        (Deed::Patch, ExtensionPoint::BeforeToolCall) => {
            let args = Some(r#"{"path":"/safe"}"#.into());
            Act::patch(BeforeToolCallPatch { args, ..BeforeToolCallPatch::default() })
        }
        (Deed::Patch, _) => {
            Act::patch(BeforeResponsePatch { content: redacted(), ..BeforeResponsePatch::default() })
        }
    }
}

fn outcome(point: ExtensionPoint, deed: Deed) -> Outcome {
    let result =
        |content: &str| json!({ "type": "tool_result", "tool_use_id": "toolu_0", "content": content });
    match (point, deed) {
        (_, Deed::Advise) => Outcome::Answered(said(), "tool_use"),
        (_, Deed::Hang) => Outcome::Failed(504, "PLUGIN_TIMEOUT"),
        (_, Deed::BadReply) => Outcome::Failed(502, "PLUGIN_BAD_REPLY"),
        (ExtensionPoint::BeforeLlmRequest, Deed::Patch) => {
            Outcome::Sent("/messages/0/content", json!("[PHONE]"))
        }
        (ExtensionPoint::BeforeLlmRequest, _) | (ExtensionPoint::AfterToolResult, Deed::BlockRun) => {
            Outcome::Refused(400, "POLICY")
        }
        (ExtensionPoint::AfterToolResult, Deed::Block) => {
            let mut result = result("No.");
            result["is_error"] = json!(true);
            Outcome::Sent("/messages/2/content/0", result)
        }
        (ExtensionPoint::AfterToolResult, Deed::Patch) => {
            Outcome::Sent("/messages/2/content/0", result("[PHONE]"))
        }
        (ExtensionPoint::BeforeToolCall, Deed::Patch) => {
            Outcome::Answered(json!([said()[0], call(&json!({ "path": "/safe" }))]), "tool_use")
        }
        (ExtensionPoint::BeforeToolCall, Deed::Block) => {
            Outcome::Answered(json!([said()[0], text("Tool call fs_read was refused: No.")]), "end_turn")
        }
        (_, Deed::Patch) => Outcome::Answered(json!([text("[PHONE]"), said()[1]]), "tool_use"),
        (_, Deed::Block | Deed::BlockRun) => Outcome::Answered(json!([text("No.")]), "end_turn"),
    }
}

/// A request that the point is asked about.
fn question(point: ExtensionPoint) -> Value {
    let asked = user(&format!("mail {CANARY}"));
    match point {
        ExtensionPoint::AfterToolResult => {
            let turn = assistant(&json!([tool_use("toolu_0", "mail_list", &json!({ "box": "in" }))]));
            ask(&json!([user("read my mail"), turn, results(&[("toolu_0", CANARY)])]))
        }
        _ => ask(&json!([asked])),
    }
}

/// What a client got.
#[derive(Debug)]
struct Got {
    /// Status and code.
    error: Option<(u16, String)>,
    content: Value,
    stop_reason: Value,
    text: String,
}

/// Asks as a tenant.
async fn got(gateway: &Gateway, tenant: &str, mut body: Value, is_streamed: bool) -> Got {
    if is_streamed {
        body["stream"] = json!(true);
    }
    let token = token(tenant);
    let answer = send(request(gateway, "/messages", body.to_string()).header("x-api-key", &token)).await;
    assert!(!answer.text.contains(CREDENTIAL) && !answer.text.contains(&token), "{answer:?}");
    let (status, text) = (answer.status.as_u16(), answer.text.clone());
    if status != 200 {
        let code = answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        answer.assert_anthropic_error(status, &code);
        return Got { error: Some((status, code)), content: Value::Null, stop_reason: Value::Null, text };
    }
    if !is_streamed {
        let message = answer.json();
        let (content, stop_reason) = (message["content"].clone(), message["stop_reason"].clone());
        return Got { error: None, content, stop_reason, text };
    }
    let read = ClientEvents::read(answer);
    let code = read.error["code"].as_str().map(str::to_owned);
    assert_eq!(read.is_done, code.is_none(), "{read:?}");
    let (content, stop_reason) = (read.content().clone(), read.message["stop_reason"].clone());
    Got { error: code.map(|code| (status, code)), content, stop_reason, text }
}

/// Checks every deed at a point, in both forms.
async fn assert_guarded(point: ExtensionPoint) {
    let provider = always(answer(&message(&said()))).await;
    let plugin = FakePlugin::named("policy").only(&[point]).start().await;
    let enforced = json!({ "tenant": "acme", "timeout": "1s" });
    let advised = json!({ "tenant": "globex", "timeout": "1s", "mode": "advise", "name": "advised" });
    let setup = setup(&provider).tenant("globex").plugin_without_breaker(&plugin);
    let setup = setup.binding_with("policy", 10, &enforced).binding_with("policy", 10, &advised);
    let gateway = setup.start().await;
    for (deed, is_streamed) in DEEDS.into_iter().flat_map(|deed| [(deed, false), (deed, true)]) {
        plugin.set(point, act(point, deed));
        let before = provider.requests().len();
        let tenant = if deed == Deed::Advise { "globex" } else { "acme" };
        let got = got(&gateway, tenant, question(point), is_streamed).await;
        let sent = provider.requests().split_off(before);
        let cell = format!("{point:?} {deed:?}, streamed: {is_streamed}: {got:?}");
        match outcome(point, deed) {
            Outcome::Refused(status, code) => {
                assert_eq!((got.error, sent.len()), (Some((status, code.to_owned())), 0), "{cell}");
            }
            Outcome::Failed(status, code) => {
                let is_late =
                    matches!(point, ExtensionPoint::BeforeToolCall | ExtensionPoint::BeforeResponse);
                let status = if is_late && is_streamed { 200 } else { status };
                assert_eq!(got.error, Some((status, code.to_owned())), "{cell}");
                assert_eq!(sent.len(), usize::from(is_late), "{cell}");
                assert!(!got.text.contains(CANARY), "{cell}");
            }
            Outcome::Sent(pointer, expected) => {
                assert_eq!((got.error, &got.content), (None, &said()), "{cell}");
                let body = sent[0].json();
                assert_eq!(body.pointer(pointer), Some(&expected), "{cell}: {body}");
                assert!(!body.to_string().contains(CANARY), "{cell}: {body}");
            }
            Outcome::Answered(content, stop_reason) => {
                assert_eq!((got.error, &got.content), (None, &content), "{cell}");
                assert_eq!(got.stop_reason, stop_reason, "{cell}");
                // What is passed on as it comes may be cut anywhere.
                assert!(!got.text.contains(CANARY) || content.to_string().contains(CANARY), "{cell}");
            }
        }
    }
}

#[tokio::test]
async fn every_deed_before_the_request_has_its_outcome() {
    assert_guarded(ExtensionPoint::BeforeLlmRequest).await;
}

#[tokio::test]
async fn every_deed_after_a_result_has_its_outcome() {
    assert_guarded(ExtensionPoint::AfterToolResult).await;
}

#[tokio::test]
async fn every_deed_before_a_call_has_its_outcome() {
    assert_guarded(ExtensionPoint::BeforeToolCall).await;
}

#[tokio::test]
async fn every_deed_before_the_answer_has_its_outcome() {
    assert_guarded(ExtensionPoint::BeforeResponse).await;
}
