//! What was removed from a conversation of Anthropic's API stays removed, and what the model said comes back to it untouched.

use hookgate_proto::types::v1::{
    AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, ExtensionPoint,
};
use hookgate_tests::{
    fake::{Act, FakePlugin, POINTS, Payload, Seen},
    gateway::Gateway,
    provider::{
        FakeProvider, ProviderAct, ProviderRequest,
        messages::{answer, message, redacted_thinking, says, text, thinking, tool_use},
    },
};
use serde_json::{Value, json};

use super::messages_support::{always, ask, assistant, gateway, provider, results, say, setup, stream, user};

const SECRET: &str = "ada@example.com";
const PHONE: &str = "555-0100";
const TURNS: usize = 10;

/// Redacts [`SECRET`] in what users say and tools return, and [`PHONE`] in what the model says and calls. Blocks `forbidden`.
fn redact(seen: &Seen) -> Act {
    let redacted = |json: &[u8], from: &str, to: &str| {
        let text = String::from_utf8_lossy(json);
        text.contains(from).then(|| text.replace(from, to))
    };
    match &seen.payload {
        Payload::BeforeLlmRequest(request) if request.text.contains("forbidden") => {
            Act::cancel("POLICY", "Not that.")
        }
        Payload::BeforeLlmRequest(request) => {
            let text = redacted(request.text.as_bytes(), SECRET, "[EMAIL]");
            let patch = |text| BeforeLlmRequestPatch { text: Some(text), ..BeforeLlmRequestPatch::default() };
            text.map_or_else(Act::pass, |text| Act::patch(patch(text)))
        }
        Payload::AfterToolResult(result) => {
            let text = redacted(&result.result, SECRET, "[EMAIL]");
            let patch = |text: String| AfterToolResultPatch {
                result: Some(text.into()),
                ..AfterToolResultPatch::default()
            };
            text.map_or_else(Act::pass, |text| Act::patch(patch(text)))
        }
        Payload::BeforeToolCall(call) => {
            let text = redacted(&call.args, PHONE, "[PHONE]");
            let patch = |text: String| BeforeToolCallPatch {
                args: Some(text.into()),
                ..BeforeToolCallPatch::default()
            };
            text.map_or_else(Act::pass, |text| Act::patch(patch(text)))
        }
        Payload::BeforeResponse(answer) => {
            let text = redacted(answer.content.as_bytes(), PHONE, "[PHONE]");
            let patch = |text| BeforeResponsePatch { content: Some(text), ..BeforeResponsePatch::default() };
            text.map_or_else(Act::pass, |text| Act::patch(patch(text)))
        }
        Payload::Hook(_) => Act::pass(),
    }
}

/// A redactor at these points.
async fn redactor(points: &[ExtensionPoint]) -> FakePlugin {
    let plugin = FakePlugin::named("redactor").only(points);
    points.iter().fold(plugin, |plugin, point| plugin.at_with(*point, redact)).start().await
}

async fn redactor_of_requests() -> FakePlugin {
    redactor(&[ExtensionPoint::BeforeLlmRequest, ExtensionPoint::AfterToolResult]).await
}

/// What the model says in a turn. In every second one a citation stays, in the others the text is redacted.
fn said(turn: usize, phone: &str) -> Value {
    let citation = json!({
        "type": "char_location", "cited_text": "caf\u{e9}", "document_index": 0, "document_title": "Menu",
        "start_char_index": 0, "end_char_index": 4,
    });
    let said = match turn % 2 {
        0 => text(&format!("{turn}: call {phone}")),
        _ => json!({ "type": "text", "text": format!("{turn}: a caf\u{e9}"), "citations": [citation] }),
    };
    let call = tool_use(&format!("toolu_{turn}"), "mail_list", &json!({ "turn": turn, "phone": phone }));
    json!([thinking(&format!("turn {turn} \u{1f600}")), redacted_thinking("hm"), said, call])
}

/// The script of a model that says so.
fn model(request: &ProviderRequest) -> ProviderAct {
    let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
    let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
    answer(&message(&said(turn, PHONE)))
}

/// What an agent sends after a turn: the call's result, and at times a text.
fn returned(turn: usize) -> Value {
    let (id, content) = (format!("toolu_{turn}"), format!("{turn}: {SECRET}"));
    let mut message = results(&[(id.as_str(), content.as_str())]);
    if turn.is_multiple_of(3) {
        let blocks = message["content"].as_array_mut().expect("a list");
        blocks.push(text(&format!("and {SECRET}?")));
    }
    message
}

fn first_message() -> Value {
    let document = json!({ "type": "text", "media_type": "text/plain", "data": "A caf\u{e9}." });
    json!({ "role": "user", "content": [
        { "type": "document", "source": document, "citations": { "enabled": true } },
        { "type": "text", "text": format!("mail {SECRET}"), "cache_control": { "type": "ephemeral", "ttl": "1h" } },
    ] })
}

/// Has ten turns, whole and streamed by turns. Returns the conversation as the agent has it.
async fn converse(gateway: &Gateway) -> Vec<Value> {
    let mut messages = vec![first_message()];
    for turn in 0..TURNS {
        let mut body = ask(&json!(messages));
        body["thinking"] = json!({ "type": "enabled", "budget_tokens": 1024 });
        body["system"] =
            json!([{ "type": "text", "text": "Be kind.", "cache_control": { "type": "ephemeral" } }]);
        let content = match turn % 2 {
            0 => say(gateway, &body).await.content(),
            _ => stream(gateway, body).await.content().clone(),
        };
        assert_eq!(content, said(turn, "[PHONE]"), "turn {turn}");
        messages.extend([assistant(&content), returned(turn)]);
    }
    messages
}

#[tokio::test]
async fn ten_turns_are_guarded_at_all_points_and_what_the_model_said_comes_back_byte_for_byte() {
    let provider = provider(model).await;
    let plugin = redactor(&POINTS).await;
    let gateway = gateway(&provider, &plugin).await;
    let messages = converse(&gateway).await;
    let requests = provider.requests();
    assert_eq!(requests.len(), TURNS);
    let bodies: Vec<_> =
        requests.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect();
    for (turn, body) in bodies.iter().enumerate() {
        assert!(!body.contains(SECRET) && !body.contains(PHONE), "turn {turn}: {body}");
        assert!(body.contains(r#""cache_control":{"ttl":"1h","type":"ephemeral"}"#), "turn {turn}: {body}");
        for message in messages.iter().take(turn * 2).filter(|message| message["role"] == "assistant") {
            assert!(body.contains(&message.to_string()), "turn {turn}: {message} is not in {body}");
        }
    }
    let sent: Vec<Value> = requests.iter().map(|request| request.json()["messages"].take()).collect();
    for pair in sent.windows(2) {
        let [earlier, later] = [0, 1].map(|turn| pair[turn].as_array().expect("messages"));
        assert!(later.starts_with(earlier), "the prompt cache holds: {pair:?}");
    }
    let seen = plugin.seen();
    assert!(seen.iter().all(|seen| !seen.call.context.as_ref().is_some_and(|context| context.replay)));
    let counts = POINTS.map(|point| seen.iter().filter(|seen| seen.point == point).count());
    // Each request's main call, each call, each answer and both texts of its citation, and each result once.
    let cited_texts = TURNS / 2 * 2;
    assert_eq!(counts, [TURNS, TURNS, TURNS - 1, TURNS + cited_texts]);
}

#[tokio::test]
async fn another_replica_judges_older_parts_again_as_replays_and_sends_the_same_bytes() {
    let provider = provider(model).await;
    let plugin = redactor(&POINTS).await;
    let (first, second) = (gateway(&provider, &plugin).await, gateway(&provider, &plugin).await);
    let messages = converse(&first).await;
    let body = ask(&json!(messages[..=4]));
    say(&first, &body).await.content();
    let before = plugin.seen().len();
    say(&second, &body).await.content();
    let replays: Vec<_> = plugin.seen()[before..]
        .iter()
        .filter(|seen| seen.call.context.as_ref().is_some_and(|context| context.replay))
        .map(|seen| seen.point)
        .collect();
    let of = |point: ExtensionPoint| replays.iter().filter(|replay| **replay == point).count();
    // The first message, and the text and the result after the first turn.
    let counts = (of(ExtensionPoint::BeforeLlmRequest), of(ExtensionPoint::AfterToolResult), replays.len());
    assert_eq!(counts, (2, 1, 3));
    let requests = provider.requests();
    let [.., one, other] = requests.as_slice() else { panic!("two requests") };
    assert_eq!(one.body, other.body);
}

#[tokio::test]
async fn marks_of_the_cache_that_move_bring_nothing_back() {
    let provider = provider(model).await;
    let plugin = redactor_of_requests().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut messages = vec![user(&format!("mail {SECRET}"))];
    for turn in 0..TURNS {
        let mut marked = json!(messages);
        if let Some(block) = marked[turn * 2]["content"].get_mut(0) {
            block["cache_control"] = json!({ "type": "ephemeral" });
        }
        let content = say(&gateway, &ask(&marked)).await.content();
        messages.extend([assistant(&content), returned(turn)]);
    }
    for request in provider.requests() {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains(SECRET), "{body}");
    }
}

#[tokio::test]
async fn a_message_that_was_blocked_is_left_out_and_the_conversation_goes_on() {
    let provider = always(says("hi")).await;
    let plugin = redactor_of_requests().await;
    let gateway = gateway(&provider, &plugin).await;
    let call = assistant(&json!([tool_use("toolu_1", "f", &json!({}))]));
    let sorry = assistant(&json!([text("sorry")]));
    let mut both = results(&[("toolu_1", "a note")]);
    both["content"].as_array_mut().unwrap().extend([text("forbidden"), text("really")]);
    for blocked in [json!([user("forbidden")]), json!([user("x"), call, both])] {
        say(&gateway, &ask(&blocked)).await.assert_anthropic_error(400, "POLICY");
    }
    let messages = json!([user("forbidden"), call, both, sorry, user("something else")]);
    say(&gateway, &ask(&messages)).await.content();
    let mut expected = messages;
    expected[0] = user("[removed: POLICY]");
    expected[2] = results(&[("toolu_1", "a note")]);
    expected[2]["content"].as_array_mut().unwrap().push(text("[removed: POLICY]"));
    assert_eq!(provider.request().json()["messages"], expected);
}

#[tokio::test]
async fn the_beginning_of_an_answer_belongs_to_the_current_turn() {
    let provider = always(says("hi")).await;
    let plugin = redactor_of_requests().await;
    let gateway = gateway(&provider, &plugin).await;
    let prefilled = |asked: &str| ask(&json!([user(asked), assistant(&json!([text("I")]))]));
    say(&gateway, &prefilled("forbidden")).await.assert_anthropic_error(400, "POLICY");
    say(&gateway, &prefilled(SECRET)).await.content();
    assert_eq!(provider.request().json()["messages"], prefilled("[EMAIL]")["messages"]);
}

/// What the provider gets of these messages.
async fn sent_for(gateway: &Gateway, provider: &FakeProvider, messages: &Value) -> String {
    say(gateway, &ask(messages)).await.content();
    provider.requests().pop().expect("a request").json().to_string()
}

#[tokio::test]
async fn what_a_failed_plugin_let_through_is_judged_again() {
    let provider = always(says("hi")).await;
    let plugin = redactor_of_requests().await;
    let skipping = json!({ "on_error": "skip", "timeout": "2s" });
    let gateway = setup(&provider).plugin_without_breaker(&plugin).binding_with("redactor", 10, &skipping);
    let gateway = gateway.start().await;
    gateway.wait_until_ready().await;
    plugin.set(ExtensionPoint::BeforeLlmRequest, Act::no_verdict());
    let first = json!([user(SECRET)]);
    assert!(sent_for(&gateway, &provider, &first).await.contains(SECRET), "the binding says so");
    plugin.set_with(ExtensionPoint::BeforeLlmRequest, redact);
    let second = json!([user(SECRET), assistant(&json!([text("hi")])), user("and?")]);
    assert!(!sent_for(&gateway, &provider, &second).await.contains(SECRET));
}

#[tokio::test]
async fn a_result_is_judged_again_if_its_call_has_other_arguments() {
    let provider = always(says("hi")).await;
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
        let call = assistant(&json!([tool_use("toolu_1", "fs_read", &json!({ "path": path }))]));
        let end = assistant(&json!([text("so")]));
        ask(&json!([user("x"), call, results(&[("toolu_1", "text")]), end, user("and?")]))
    };
    for (path, expected) in [("/public", "text"), ("/secret", "no"), ("/public", "text")] {
        say(&gateway, &body(path)).await.content();
        let sent = provider.requests().pop().expect("a request").json();
        assert_eq!(sent["messages"][2]["content"][0]["content"], expected, "{path}");
    }
}

#[tokio::test]
async fn observers_hear_of_a_part_once() {
    let provider = always(says("hi")).await;
    let watcher = FakePlugin::named("watcher").only(&[ExtensionPoint::BeforeLlmRequest]).start().await;
    let setup = setup(&provider).plugin(&watcher);
    let gateway = setup.binding_with("watcher", 10, &json!({ "mode": "observe" })).start().await;
    gateway.wait_until_ready().await;
    let messages = json!([user("one"), assistant(&json!([text("hi")])), user("two")]);
    for calls in [1, 2] {
        say(&gateway, &ask(&messages)).await.content();
        watcher.wait_until(|counts| counts.calls == calls).await;
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
