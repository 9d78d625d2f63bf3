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
enum PluginAction {
    Block,
    BlockRun,
    Patch,
    Hang,
    BadReply,
    /// A block that only advises.
    Advise,
}

const ACTIONS: [PluginAction; 6] = [
    PluginAction::Block,
    PluginAction::BlockRun,
    PluginAction::Patch,
    PluginAction::Hang,
    PluginAction::BadReply,
    PluginAction::Advise,
];

/// The outcome for the client and the provider.
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

fn act(point: ExtensionPoint, action: PluginAction) -> Act {
    let redacted = || Some("[PHONE]".to_owned());
    match (action, point) {
        (PluginAction::Block | PluginAction::Advise, _) => Act::cancel("POLICY", "No."),
        (PluginAction::BlockRun, _) => Act::cancel("POLICY", "No.").scope(CancelScope::Run),
        (PluginAction::Hang, _) => Act::hang(),
        (PluginAction::BadReply, _) => Act::no_verdict(),
        (PluginAction::Patch, ExtensionPoint::BeforeLlmRequest) => {
            Act::patch(BeforeLlmRequestPatch { text: redacted(), ..BeforeLlmRequestPatch::default() })
        }
        (PluginAction::Patch, ExtensionPoint::AfterToolResult) => {
            let result = Some(r#""[PHONE]""#.into());
            Act::patch(AfterToolResultPatch { result, ..AfterToolResultPatch::default() })
        }
        (PluginAction::Patch, ExtensionPoint::BeforeToolCall) => {
            let args = Some(r#"{"path":"/safe"}"#.into());
            Act::patch(BeforeToolCallPatch { args, ..BeforeToolCallPatch::default() })
        }
        (PluginAction::Patch, _) => {
            Act::patch(BeforeResponsePatch { content: redacted(), ..BeforeResponsePatch::default() })
        }
    }
}

fn outcome(point: ExtensionPoint, action: PluginAction, is_streamed: bool) -> Outcome {
    let result =
        |content: &str| json!({ "type": "tool_result", "tool_use_id": "toolu_0", "content": content });
    match (point, action) {
        (_, PluginAction::Advise) => Outcome::Answered(said(), "tool_use"),
        (_, PluginAction::Hang) => Outcome::Failed(504, "PLUGIN_TIMEOUT"),
        (_, PluginAction::BadReply) => Outcome::Failed(502, "PLUGIN_BAD_REPLY"),
        (ExtensionPoint::BeforeLlmRequest, PluginAction::Patch) => {
            Outcome::Sent("/messages/0/content", json!("[PHONE]"))
        }
        (ExtensionPoint::BeforeLlmRequest, _) | (ExtensionPoint::AfterToolResult, PluginAction::BlockRun) => {
            Outcome::Refused(400, "POLICY")
        }
        (ExtensionPoint::AfterToolResult, PluginAction::Block) => {
            let mut result = result("No.");
            result["is_error"] = json!(true);
            Outcome::Sent("/messages/2/content/0", result)
        }
        (ExtensionPoint::AfterToolResult, PluginAction::Patch) => {
            Outcome::Sent("/messages/2/content/0", result("[PHONE]"))
        }
        (ExtensionPoint::BeforeToolCall, PluginAction::Patch) => {
            Outcome::Answered(json!([said()[0], call(&json!({ "path": "/safe" }))]), "tool_use")
        }
        (ExtensionPoint::BeforeToolCall, PluginAction::Block) => {
            Outcome::Answered(json!([said()[0], text("Tool call fs_read was refused: No.")]), "end_turn")
        }
        // Nobody judges the text, so it has gone out.
        (ExtensionPoint::BeforeToolCall, PluginAction::BlockRun) if is_streamed => {
            Outcome::Answered(json!([text(&format!("call {CANARY}\nNo."))]), "end_turn")
        }
        (_, PluginAction::Patch) => Outcome::Answered(json!([text("[PHONE]"), said()[1]]), "tool_use"),
        (_, PluginAction::Block | PluginAction::BlockRun) => {
            Outcome::Answered(json!([text("No.")]), "end_turn")
        }
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

/// Checks every action at a point, in both forms.
async fn assert_guarded(point: ExtensionPoint) {
    let provider = always(answer(&message(&said()))).await;
    let plugin = FakePlugin::named("policy").only(&[point]).start().await;
    let enforced = json!({ "tenant": "acme", "timeout": "1s" });
    let advised = json!({ "tenant": "globex", "timeout": "1s", "mode": "advise", "name": "advised" });
    let setup = setup(&provider).tenant("globex").plugin_without_breaker(&plugin);
    let setup = setup.binding_with("policy", 10, &enforced).binding_with("policy", 10, &advised);
    let gateway = setup.start().await;
    for (action, is_streamed) in ACTIONS.into_iter().flat_map(|action| [(action, false), (action, true)]) {
        plugin.set(point, act(point, action));
        let before = provider.requests().len();
        let tenant = if action == PluginAction::Advise { "globex" } else { "acme" };
        let got = got(&gateway, tenant, question(point), is_streamed).await;
        let sent = provider.requests().split_off(before);
        let cell = format!("{point:?} {action:?}, streamed: {is_streamed}: {got:?}");
        match outcome(point, action, is_streamed) {
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
async fn every_action_before_the_request_has_its_outcome() {
    assert_guarded(ExtensionPoint::BeforeLlmRequest).await;
}

#[tokio::test]
async fn every_action_after_a_result_has_its_outcome() {
    assert_guarded(ExtensionPoint::AfterToolResult).await;
}

#[tokio::test]
async fn every_action_before_a_call_has_its_outcome() {
    assert_guarded(ExtensionPoint::BeforeToolCall).await;
}

#[tokio::test]
async fn every_action_before_the_answer_has_its_outcome() {
    assert_guarded(ExtensionPoint::BeforeResponse).await;
}
