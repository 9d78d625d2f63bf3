//! What was removed from a conversation stays removed, although agents send the whole of it again with every turn.

use hookgate_proto::types::v1::{AfterToolResultPatch, BeforeLlmRequestPatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    provider::{FakeProvider, ProviderAct},
};
use serde_json::{Value, json};

use super::support::{ask, chat, gateway, setup, user};

const SECRET: &str = "ada@example.com";

/// Redacts [`SECRET`] in what users say and tools return, and blocks `forbidden`.
fn redact(seen: &Seen) -> Act {
    match &seen.payload {
        Payload::BeforeLlmRequest(request) if request.text.contains("forbidden") => {
            Act::cancel("POLICY", "Not that.")
        }
        Payload::BeforeLlmRequest(request) if request.text.contains(SECRET) => {
            let text = Some(request.text.replace(SECRET, "[EMAIL]"));
            Act::patch(BeforeLlmRequestPatch { text, ..BeforeLlmRequestPatch::default() })
        }
        Payload::AfterToolResult(result) => {
            let text = String::from_utf8_lossy(&result.result).into_owned();
            match text.contains(SECRET) {
                true => {
                    let result = Some(text.replace(SECRET, "[EMAIL]").into());
                    Act::patch(AfterToolResultPatch { result, ..AfterToolResultPatch::default() })
                }
                false => Act::pass(),
            }
        }
        _ => Act::pass(),
    }
}

async fn redactor() -> FakePlugin {
    let points = [ExtensionPoint::BeforeLlmRequest, ExtensionPoint::AfterToolResult];
    let plugin = FakePlugin::named("redactor").only(&points);
    plugin.at_with(points[0], redact).at_with(points[1], redact).start().await
}

/// The messages of an agent that keeps what it wrote, after `turns` turns.
fn conversation(turns: usize) -> Value {
    let mut messages = vec![user(&format!("mail {SECRET}"))];
    for turn in 1..turns {
        let call = json!({ "id": format!("call_{turn}"), "type": "function", "function": { "name": "mail", "arguments": "{}" } });
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
        messages.push(json!({ "role": "tool", "tool_call_id": format!("call_{turn}"), "content": format!("{turn}: {SECRET}") }));
    }
    ask(&Value::Array(messages))
}

#[tokio::test]
async fn a_part_is_judged_once_and_its_redaction_is_in_every_later_request() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let plugin = redactor().await;
    let gateway = gateway(&provider, &plugin).await;
    for turns in 1..=10 {
        chat(&gateway, &conversation(turns)).await.message();
    }
    for request in provider.requests() {
        assert!(!String::from_utf8_lossy(&request.body).contains(SECRET), "{request:?}");
    }
    let seen = plugin.seen();
    assert!(seen.iter().all(|seen| !seen.call.context.as_ref().is_some_and(|context| context.replay)));
    // Each turn's main call, and each result once.
    assert_eq!(seen.len(), 10 + 9);
}

#[tokio::test]
async fn another_replica_judges_older_parts_again_as_replays_and_sends_the_same_bytes() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let plugin = redactor().await;
    let (first, second) = (gateway(&provider, &plugin).await, gateway(&provider, &plugin).await);
    chat(&first, &conversation(1)).await.message();
    chat(&first, &conversation(2)).await.message();
    chat(&first, &conversation(3)).await.message();
    let before = plugin.seen().len();
    chat(&second, &conversation(3)).await.message();
    let replays: Vec<_> = plugin.seen()[before..]
        .iter()
        .map(|seen| seen.call.context.as_ref().is_some_and(|context| context.replay))
        .collect();
    assert_eq!(
        replays.iter().filter(|is_replay| **is_replay).count(),
        2,
        "the user's message and the first result"
    );
    let requests = provider.requests();
    assert_eq!(requests[2].body, requests[3].body);
}

#[tokio::test]
async fn of_the_questions_about_messages_only_that_about_the_whole_request_is_no_part() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let points =
        [ExtensionPoint::BeforeLlmRequest, ExtensionPoint::AfterToolResult, ExtensionPoint::BeforeResponse];
    let plugin = FakePlugin::named("watcher").only(&points).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let call = |id: &str| {
        let call = json!({ "id": id, "type": "function", "function": { "name": "mail", "arguments": "{}" } });
        json!({ "role": "assistant", "content": null, "tool_calls": [call] })
    };
    let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": format!("{text} result") });
    let earlier = [user("old"), call("a"), result("a", "old"), call("b")];
    let current = [result("b", "new"), user("one"), user("two"), user("three")];
    chat(&gateway, &ask(&json!([earlier.as_slice(), &current].concat()))).await.message();
    let seen = plugin.seen();
    let contexts: Vec<_> =
        seen.iter().map(|seen| seen.call.context.clone().expect("every call has a context")).collect();
    let exchange = &contexts[0].exchange_id;
    assert!(exchange.is_some() && contexts.iter().all(|context| context.exchange_id == *exchange));
    let text = |seen: &Seen| match &seen.payload {
        Payload::BeforeLlmRequest(request) => request.text.clone(),
        Payload::AfterToolResult(result) => String::from_utf8_lossy(&result.result).into_owned(),
        Payload::BeforeResponse(answer) => answer.content.clone(),
        other => panic!("{other:?}"),
    };
    let texts = seen.iter().map(text);
    let mut questions: Vec<_> =
        texts.zip(&contexts).map(|(text, context)| (text, context.replay, context.part)).collect();
    questions.sort();
    let questions: Vec<_> =
        questions.iter().map(|(text, replay, part)| (text.as_str(), *replay, *part)).collect();
    let expected = [
        ("\"new result\"", false, false),
        ("\"old result\"", true, false),
        ("hi", false, false),
        ("old", true, true),
        ("one", false, true),
        ("three", false, false),
        ("two", false, true),
    ];
    assert_eq!(questions, expected);
}

#[tokio::test]
async fn a_message_that_was_blocked_is_left_out_and_the_conversation_goes_on() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let plugin = redactor().await;
    let gateway = gateway(&provider, &plugin).await;
    chat(&gateway, &ask(&json!([user("forbidden")]))).await.assert_error(400, "POLICY");
    let messages =
        json!([user("forbidden"), { "role": "assistant", "content": "sorry" }, user("something else")]);
    chat(&gateway, &ask(&messages)).await.message();
    let sent = provider.request().json();
    assert_eq!(sent["messages"][0], user("[removed: POLICY]"));
    assert_eq!(sent["messages"][2], user("something else"));
}

#[tokio::test]
async fn what_a_failed_plugin_let_through_is_judged_again() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let plugin = redactor().await;
    let skipping = json!({ "on_error": "skip", "timeout": "2s" });
    let gateway = setup(&provider).plugin_without_breaker(&plugin).binding_with("redactor", 10, &skipping);
    let gateway = gateway.start().await;
    gateway.wait_until_ready().await;
    plugin.set(ExtensionPoint::BeforeLlmRequest, Act::no_verdict());
    chat(&gateway, &conversation(1)).await.message();
    assert!(provider.requests()[0].json().to_string().contains(SECRET), "the binding says so");
    plugin.set_with(ExtensionPoint::BeforeLlmRequest, redact);
    chat(&gateway, &conversation(2)).await.message();
    assert!(!provider.requests()[1].json().to_string().contains(SECRET), "{:?}", provider.requests());
}

#[tokio::test]
async fn a_result_is_judged_again_if_its_call_has_other_arguments() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let point = ExtensionPoint::AfterToolResult;
    let plugin = FakePlugin::named("paths").only(&[point]).at_with(point, |seen| match &seen.payload {
        Payload::AfterToolResult(result) if result.args.as_ref() != br#"{"path":"/public"}"# => {
            Act::cancel("POLICY", "no")
        }
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let body = |path: &str| {
        let function = json!({ "name": "fs.read", "arguments": json!({ "path": path }).to_string() });
        let call = json!({ "id": "call_1", "type": "function", "function": function });
        let result = json!({ "role": "tool", "tool_call_id": "call_1", "content": "text" });
        let turn = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
        ask(&json!([user("x"), turn, result, { "role": "assistant", "content": "so" }, user("and?")]))
    };
    for (path, expected) in [("/public", "text"), ("/secret", "no"), ("/public", "text")] {
        chat(&gateway, &body(path)).await.message();
        let sent = provider.requests().pop().expect("a request").json();
        assert_eq!(sent["messages"][2]["content"], expected, "{path}");
    }
}

#[tokio::test]
async fn observers_hear_of_a_part_once() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let watcher = FakePlugin::named("watcher").only(&[ExtensionPoint::BeforeLlmRequest]).start().await;
    let gateways = [(); 2].map(|()| setup(&provider).plugin(&watcher));
    let mut told = Vec::new();
    for setup in gateways {
        let gateway = setup.binding_with("watcher", 10, &json!({ "mode": "observe" })).start().await;
        gateway.wait_until_ready().await;
        let messages = json!([user("one"), { "role": "assistant", "content": "hi" }, user("two")]);
        chat(&gateway, &ask(&messages)).await.message();
        told.push(watcher.wait_until(|counts| counts.calls > told.len() as u64).await);
    }
    let texts: Vec<_> = watcher
        .seen()
        .iter()
        .map(|seen| match &seen.payload {
            Payload::BeforeLlmRequest(request) => request.text.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, ["two", "two"], "what is older was said before");
}
