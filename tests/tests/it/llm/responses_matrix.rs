//! Every point and everything that a plugin may do there, for whole and for streamed responses.

use hookgate_proto::types::v1::{
    AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, CancelScope,
    ExtensionPoint,
};
use hookgate_tests::{
    fake::{Act, FakePlugin},
    gateway::Gateway,
    provider::responses::{answer, function_call, message, reasoning, response},
    token::token,
};
use serde_json::{Value, json};

use super::{
    responses_support::{ClientEvents, always, ask, called, outline, request, result},
    support::{CREDENTIAL, send, setup, user},
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
    /// The client gets items with this outline.
    Answered(Value),
}

/// What the model answers.
fn said() -> Value {
    let call = function_call("1", "fs_read", r#"{"path":"/etc"}"#);
    json!([reasoning("rs_1", "hm"), message("msg_1", &format!("call {CANARY}")), call])
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
    let outlined = outline(&said());
    let (thought, text, call) = (&outlined[0], &outlined[1], &outlined[2]);
    match (point, action) {
        (_, PluginAction::Advise) => Outcome::Answered(outlined),
        (_, PluginAction::Hang) => Outcome::Failed(504, "PLUGIN_TIMEOUT"),
        (_, PluginAction::BadReply) => Outcome::Failed(502, "PLUGIN_BAD_REPLY"),
        (ExtensionPoint::BeforeLlmRequest, PluginAction::Patch) => {
            Outcome::Sent("/input/0/content", json!("[PHONE]"))
        }
        (ExtensionPoint::BeforeLlmRequest, _) | (ExtensionPoint::AfterToolResult, PluginAction::BlockRun) => {
            Outcome::Refused(400, "POLICY")
        }
        (ExtensionPoint::AfterToolResult, PluginAction::Block) => {
            Outcome::Sent("/input/2", result("0", "No."))
        }
        (ExtensionPoint::AfterToolResult, PluginAction::Patch) => {
            Outcome::Sent("/input/2", result("0", "[PHONE]"))
        }
        (ExtensionPoint::BeforeToolCall, PluginAction::Patch) => {
            Outcome::Answered(json!([thought, text, called("fs_read", r#"{"path":"/safe"}"#)]))
        }
        (ExtensionPoint::BeforeToolCall, PluginAction::Block) => {
            Outcome::Answered(json!([thought, text, "\nTool call fs_read was refused: No."]))
        }
        // Nobody judges the text, so it has gone out.
        (ExtensionPoint::BeforeToolCall, PluginAction::BlockRun) if is_streamed => {
            Outcome::Answered(json!([thought, format!("call {CANARY}\nNo.")]))
        }
        (_, PluginAction::Patch) => Outcome::Answered(json!([thought, "[PHONE]", call])),
        (_, PluginAction::Block | PluginAction::BlockRun) => Outcome::Answered(json!(["No."])),
    }
}

/// A request that the point is asked about.
fn question(point: ExtensionPoint) -> Value {
    match point {
        ExtensionPoint::AfterToolResult => {
            let call = function_call("0", "mail_list", r#"{"box":"in"}"#);
            ask(&json!([user("read my mail"), call, result("0", CANARY)]))
        }
        _ => ask(&json!([user(&format!("mail {CANARY}"))])),
    }
}

/// What a client got.
#[derive(Debug)]
struct Got {
    /// Status and code.
    error: Option<(u16, String)>,
    outline: Value,
    status: Value,
    text: String,
}

/// Asks as a tenant.
async fn got(gateway: &Gateway, tenant: &str, mut body: Value, is_streamed: bool) -> Got {
    if is_streamed {
        body["stream"] = json!(true);
    }
    let token = token(tenant);
    let answer = send(request(gateway, "/responses", body.to_string()).bearer_auth(&token)).await;
    assert!(!answer.text.contains(CREDENTIAL) && !answer.text.contains(&token), "{answer:?}");
    let (status, text) = (answer.status.as_u16(), answer.text.clone());
    if status != 200 {
        let code = answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        answer.assert_error(status, &code);
        return Got { error: Some((status, code)), outline: Value::Null, status: Value::Null, text };
    }
    if !is_streamed {
        let status = answer.json()["status"].clone();
        return Got { error: None, outline: outline(&answer.output()), status, text };
    }
    let read = ClientEvents::read(answer);
    let code = read.error["code"].as_str().map(str::to_owned);
    assert_eq!(read.is_done, code.is_none(), "{read:?}");
    let (outline, status_at_end) = (outline(&read.output()), read.response["status"].clone());
    Got { error: code.map(|code| (status, code)), outline, status: status_at_end, text }
}

/// Checks every action at a point, in both forms.
async fn assert_guarded(point: ExtensionPoint) {
    let provider = always(answer(&response(&said()))).await;
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
                assert_eq!((got.error, &got.outline), (None, &outline(&said())), "{cell}");
                let body = sent[0].json();
                assert_eq!(body.pointer(pointer), Some(&expected), "{cell}: {body}");
                assert!(!body.to_string().contains(CANARY), "{cell}: {body}");
            }
            Outcome::Answered(outlined) => {
                assert_eq!((got.error, &got.outline), (None, &outlined), "{cell}");
                assert_eq!(got.status, "completed", "{cell}");
                // What is passed on as it comes may be cut anywhere.
                assert!(!got.text.contains(CANARY) || outlined.to_string().contains(CANARY), "{cell}");
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
