//! What was removed from a conversation of Responses stays removed, and what the model said comes back to it untouched.

use hookgate_proto::types::v1::{
    AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, ExtensionPoint,
};
use hookgate_tests::{
    fake::{Act, FakePlugin, POINTS, Payload, Seen},
    gateway::Gateway,
    provider::{
        FakeProvider, ProviderAct, ProviderRequest,
        responses::{answer, custom_call, function_call, message, reasoning, response, says},
    },
};
use serde_json::{Value, json};

use super::{
    responses_support::{always, ask, provider, result, say, stream},
    support::{gateway, setup, user},
};

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

/// Whether the model calls two tools in a turn.
fn has_two_calls(turn: usize) -> bool {
    turn % 3 == 1
}

/// What the model says in a turn. In every second one a citation stays, in the others the text is redacted.
fn said(turn: usize, phone: &str) -> Vec<Value> {
    let citation = json!({ "type": "url_citation", "start_index": 3, "end_index": 4, "url": "https://example.com/caf\u{e9}", "title": "Menu" });
    let id = format!("msg_{turn}");
    let mut said = message(&id, &format!("{turn}: call {phone}"));
    if turn % 2 == 1 {
        said = message(&id, &format!("{turn}: a caf\u{e9}"));
        said["content"][0]["annotations"] = json!([citation]);
    }
    let arguments = json!({ "phone": phone, "turn": turn }).to_string();
    let thought = reasoning(&format!("rs_{turn}"), &format!("turn {turn} \u{1f600}"));
    let mut output = vec![thought, said, function_call(&turn.to_string(), "mail_list", &arguments)];
    if has_two_calls(turn) {
        output.push(reasoning(&format!("rs_{turn}c"), "and"));
        output.push(custom_call(&format!("{turn}c"), "note", &format!("call {phone}")));
    }
    output
}

/// The script of a model that says so.
fn model(request: &ProviderRequest) -> ProviderAct {
    let input = request.json()["input"].as_array().cloned().unwrap_or_default();
    let turn = input.iter().filter(|item| item["type"] == "function_call").count();
    let mut body = response(&json!(said(turn, PHONE)));
    body["id"] = json!(format!("resp_{turn}"));
    answer(&body)
}

/// What an agent sends after a turn: the results of the calls, and at times a text.
fn returned(turn: usize) -> Vec<Value> {
    let mut items = vec![result(&turn.to_string(), &format!("{turn}: {SECRET}"))];
    if has_two_calls(turn) {
        let call = format!("call_{turn}c");
        items.push(json!({ "type": "custom_tool_call_output", "call_id": call, "output": SECRET }));
    }
    if turn.is_multiple_of(3) {
        items.push(user(&format!("and {SECRET}?")));
    }
    items
}

fn first_message() -> Value {
    json!({ "role": "user", "content": [
        { "type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto" },
        { "type": "input_text", "text": format!("mail {SECRET}"), "prompt_cache_breakpoint": { "mode": "explicit" } },
    ] })
}

/// Has ten turns, whole and streamed by turns. Returns the conversation as the agent has it: what it sent at first, and for each turn
/// what the model said and what the agent sent then.
async fn converse(gateway: &Gateway) -> Vec<Vec<Value>> {
    let mut steps = vec![vec![first_message()]];
    for turn in 0..TURNS {
        let mut body = ask(&json!(steps.concat()));
        body["reasoning"] = json!({ "effort": "low", "summary": "auto" });
        body["instructions"] = json!("Be kind.");
        let output = match turn % 2 {
            0 => say(gateway, &body).await.output(),
            _ => stream(gateway, body).await.output(),
        };
        assert_eq!(output, json!(said(turn, "[PHONE]")), "turn {turn}");
        steps.extend([said(turn, "[PHONE]"), returned(turn)]);
    }
    steps
}

#[tokio::test]
async fn ten_turns_are_guarded_at_all_points_and_what_the_model_said_comes_back_byte_for_byte() {
    let provider = provider(model).await;
    let plugin = redactor(&POINTS).await;
    let gateway = gateway(&provider, &plugin).await;
    let steps = converse(&gateway).await;
    let requests = provider.requests();
    assert_eq!(requests.len(), TURNS);
    let bodies: Vec<_> =
        requests.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect();
    for (turn, body) in bodies.iter().enumerate() {
        assert!(!body.contains(SECRET) && !body.contains(PHONE), "turn {turn}: {body}");
        assert!(body.contains(r#""prompt_cache_breakpoint":{"mode":"explicit"}"#), "turn {turn}: {body}");
        for item in steps.iter().skip(1).step_by(2).take(turn).flatten() {
            assert!(body.contains(&item.to_string()), "turn {turn}: {item} is not in {body}");
        }
    }
    let sent: Vec<Value> = requests.iter().map(|request| request.json()["input"].take()).collect();
    for pair in sent.windows(2) {
        let [earlier, later] = [0, 1].map(|turn| pair[turn].as_array().expect("items"));
        assert!(later.starts_with(earlier), "the prompt cache holds: {pair:?}");
    }
    let seen = plugin.seen();
    assert!(seen.iter().all(|seen| !seen.call.context.as_ref().is_some_and(|context| context.replay)));
    let counts = POINTS.map(|point| seen.iter().filter(|seen| seen.point == point).count());
    // Each request's main call, each call and each result once, each answer for each of its thoughts, and both texts of its citation.
    let second_calls = (0..TURNS).filter(|turn| has_two_calls(*turn)).count();
    let cited_texts = TURNS / 2 * 2;
    let answers = TURNS + second_calls + cited_texts;
    assert_eq!(counts, [TURNS, TURNS + second_calls, TURNS - 1 + second_calls, answers]);
}

#[tokio::test]
async fn another_replica_judges_older_parts_again_as_replays_and_sends_the_same_bytes() {
    let provider = provider(model).await;
    let plugin = redactor(&POINTS).await;
    let (first, second) = (gateway(&provider, &plugin).await, gateway(&provider, &plugin).await);
    let steps = converse(&first).await;
    let body = ask(&json!(steps[..=4].concat()));
    say(&first, &body).await.output();
    let before = plugin.seen().len();
    say(&second, &body).await.output();
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

/// An item whose last text is marked for the provider's cache, which makes a part of it.
fn marked(item: &Value) -> Value {
    let mut marked = item.clone();
    for member in ["content", "output"] {
        if let Some(text) = item[member].as_str() {
            let mark = json!({ "mode": "explicit" });
            marked[member] = json!([{ "type": "input_text", "text": text, "prompt_cache_breakpoint": mark }]);
        }
    }
    marked
}

#[tokio::test]
async fn marks_of_the_cache_that_move_bring_nothing_back_and_judge_nothing_again() {
    let provider = provider(model).await;
    let plugin = redactor_of_requests().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut items = vec![user(&format!("mail {SECRET}"))];
    for turn in 0..TURNS {
        let mut sent = items.clone();
        let last = sent.pop().expect("an item");
        sent.push(marked(&last));
        let output = say(&gateway, &ask(&json!(sent))).await.output();
        items.extend(output.as_array().expect("a list").iter().cloned());
        items.extend(returned(turn));
    }
    for request in provider.requests() {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains(SECRET), "{body}");
        assert!(body.contains("prompt_cache_breakpoint"), "{body}");
    }
    assert!(
        plugin.seen().iter().all(|seen| !seen.call.context.as_ref().is_some_and(|context| context.replay))
    );
}

#[tokio::test]
async fn a_message_that_was_blocked_is_left_out_and_the_conversation_goes_on() {
    let provider = always(says("hi")).await;
    let plugin = redactor_of_requests().await;
    let gateway = gateway(&provider, &plugin).await;
    let parts = json!([
        { "type": "input_text", "text": "forbidden" },
        { "type": "input_text", "text": "really" },
    ]);
    let blocked = json!({ "role": "user", "content": parts });
    let (call, note) = (function_call("1", "f", "{}"), result("1", "a note"));
    for items in [json!([user("forbidden")]), json!([user("x"), call, note, blocked]), json!("forbidden")] {
        say(&gateway, &ask(&items)).await.assert_error(400, "POLICY");
    }
    let sorry = message("msg_9", "sorry");
    let items = json!([user("forbidden"), call, note, blocked, sorry, user("something else")]);
    say(&gateway, &ask(&items)).await.output();
    let mut expected = items;
    expected[0] = user("[removed: POLICY]");
    expected[3]["content"] = json!([{ "type": "input_text", "text": "[removed: POLICY]" }]);
    assert_eq!(provider.request().json()["input"], expected);
}

#[tokio::test]
async fn a_result_that_was_blocked_stays_so_in_every_later_turn() {
    let provider = provider(model).await;
    let point = ExtensionPoint::AfterToolResult;
    let plugin = FakePlugin::named("policy").only(&[point]).at(point, Act::cancel("SECRET", "No."));
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut items = vec![user("x")];
    for turn in 0..3 {
        let output = say(&gateway, &ask(&json!(items))).await.output();
        items.extend(output.as_array().expect("a list").iter().cloned());
        items.push(result(&turn.to_string(), &format!("{turn}: {SECRET}")));
        if has_two_calls(turn) {
            let call = format!("call_{turn}c");
            items.push(json!({ "type": "custom_tool_call_output", "call_id": call, "output": SECRET }));
        }
        items.push(user("go on"));
    }
    say(&gateway, &ask(&json!(items))).await.output();
    let asked = plugin.seen().len();
    assert_eq!(asked, 4, "each result is judged once");
    for request in provider.requests() {
        let sent = request.json()["input"].take();
        let results = sent.as_array().expect("a list").iter().filter(|item| !item["output"].is_null());
        assert!(results.clone().all(|item| item["output"] == "No."), "{sent}");
    }
}

/// What the provider gets of these items.
async fn sent_for(gateway: &Gateway, provider: &FakeProvider, items: &Value) -> String {
    say(gateway, &ask(items)).await.output();
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
    let second = json!([user(SECRET), message("msg_9", "hi"), user("and?")]);
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
        let call = function_call("1", "fs_read", &json!({ "path": path }).to_string());
        ask(&json!([user("x"), call, result("1", "text"), message("msg_9", "so"), user("and?")]))
    };
    for (path, expected) in [("/public", "text"), ("/secret", "no"), ("/public", "text")] {
        say(&gateway, &body(path)).await.output();
        let sent = provider.requests().pop().expect("a request").json();
        assert_eq!(sent["input"][2]["output"], expected, "{path}");
    }
}

#[tokio::test]
async fn observers_hear_of_a_part_once() {
    let provider = always(says("hi")).await;
    let watcher = FakePlugin::named("watcher").only(&[ExtensionPoint::BeforeLlmRequest]).start().await;
    let setup = setup(&provider).plugin(&watcher);
    let gateway = setup.binding_with("watcher", 10, &json!({ "mode": "observe" })).start().await;
    gateway.wait_until_ready().await;
    let items = json!([user("one"), message("msg_9", "hi"), user("two")]);
    for calls in [1, 2] {
        say(&gateway, &ask(&items)).await.output();
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
