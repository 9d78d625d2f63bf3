//! What a model answers to a client of OpenAI's Responses.

use hookgate_proto::types::v1::{BeforeResponsePatch, BeforeToolCallPatch, CancelScope, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    provider::responses::{
        answer, calls, custom_call, function_call, message, output_text, raw, reasoning, repeating, response,
        says,
    },
};
use serde_json::{Value, json};

use super::{
    responses_support::{always, ask, called, outline, result, say, stream},
    support::{gateway, setup, user},
};

const CALL: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

fn question() -> Value {
    ask(&json!([user("x")]))
}

/// What a client asks that has got these items, and that has run the calls whose ids end so.
fn next_question(output: &Value, ran: &[&str]) -> Value {
    let mut items = vec![user("x")];
    items.extend(output.as_array().expect("a list of items").iter().cloned());
    items.extend(ran.iter().map(|at| result(at, "done")));
    items.push(user("and?"));
    ask(&json!(items))
}

/// Blocks the tools whose names begin with `bad`.
fn no_bad_tools(seen: &Seen) -> Act {
    match &seen.payload {
        Payload::BeforeToolCall(call) if call.tool_name.starts_with("bad") => {
            Act::cancel("TOOL_NOT_ALLOWED", "Not on your plan.")
        }
        _ => Act::pass(),
    }
}

/// Replaces the text, and the reasoning if there is any.
fn rewrite(seen: &Seen) -> Act {
    let Payload::BeforeResponse(payload) = &seen.payload else { return Act::pass() };
    let redact = |text: &String| text.replace("555-0100", "[PHONE]");
    Act::patch(BeforeResponsePatch {
        content: Some(redact(&payload.content)),
        reasoning: payload.reasoning.as_ref().map(redact),
        ..BeforeResponsePatch::default()
    })
}

/// A message that cites a page.
fn cited(id: &str, said: &str) -> Value {
    let citation = json!({ "type": "url_citation", "start_index": 0, "end_index": 2, "url": "https://example.com/a", "title": "Menu" });
    let mut message = message(id, said);
    message["content"][0]["annotations"] = json!([citation]);
    message
}

/// A message of this phase.
fn phased(id: &str, phase: &str, said: &str) -> Value {
    let mut message = message(id, said);
    message["phase"] = json!(phase);
    message
}

#[tokio::test]
async fn a_judged_answer_that_nobody_changes_is_as_the_provider_sent_it() {
    let output = json!([
        reasoning("rs_1", "so \u{e9}"),
        cited("msg_1", "It says so."),
        phased("msg_2", "commentary", "Reading."),
        function_call("1", "fs_read", r#"{ "path" : "/\u0061" }"#),
        custom_call("2", "sql", "select 1"),
    ]);
    let body = repeating(&response(&output), &question()).to_string().replace("[{", "[ {");
    let provider = always(raw(200, &body)).await;
    let plugin = FakePlugin::named("watcher").start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    assert_eq!(got.text, body);
    let streamed = stream(&gateway, question()).await;
    assert_eq!((streamed.output(), &streamed.response), (output, &got.json()));
}

#[tokio::test]
async fn a_patched_answer_is_what_the_client_gets() {
    let output = json!([cited("msg_1", "call 555-0100")]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, rewrite).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    assert_eq!(got.output(), json!([message("msg_1", "call [PHONE]")]), "a citation of other words is none");
    assert_eq!(got.json()["status"], "completed");
    let mut seen = plugin.seen();
    seen.retain(|seen| !seen.call.context.as_ref().is_some_and(|context| context.part));
    let [seen] = <[_; 1]>::try_from(seen).expect("one call that is about no citation");
    let Payload::BeforeResponse(payload) = seen.payload else { panic!("{seen:?}") };
    assert_eq!(
        (payload.content.as_str(), payload.stop_reason.as_deref(), payload.model.as_deref()),
        ("call 555-0100", Some("completed"), Some("gpt-5-2025-08-07"))
    );
    assert_eq!(payload.token_usage.map(|usage| (usage.input, usage.output)), Some((10, 7)));
    assert_eq!(stream(&gateway, question()).await.response, got.json());
}

#[tokio::test]
async fn a_patched_text_stands_in_its_own_message() {
    let output = json!([
        reasoning("rs_1", "hm"),
        phased("msg_1", "commentary", "looking up 555-0100; "),
        phased("msg_2", "final_answer", "call 555-0100"),
    ]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, rewrite).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let said = [
        phased("msg_1", "commentary", "looking up [PHONE]; "),
        phased("msg_2", "final_answer", "call [PHONE]"),
    ];
    let got = say(&gateway, &question()).await;
    assert_eq!(got.output(), json!([output[0], said[0], said[1]]));
    assert_eq!(stream(&gateway, question()).await.response, got.json());
    say(&gateway, &next_question(&got.output(), &[])).await.output();
}

#[tokio::test]
async fn patched_reasoning_keeps_what_is_encrypted() {
    let thought = reasoning("rs_1", "call 555-0100");
    let provider = always(answer(&response(&json!([thought, message("msg_1", "call 555-0100")])))).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, rewrite).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    let outlined = json!([{ "thought": "call [PHONE]" }, "call [PHONE]"]);
    assert_eq!(outline(&got.output()), outlined);
    assert_eq!(got.output()[0]["encrypted_content"], thought["encrypted_content"]);
    plugin.set_with(ANSWER, |seen| match &seen.payload {
        Payload::BeforeResponse(_) => Act::patch(BeforeResponsePatch {
            content: Some("call me".into()),
            reasoning: Some(String::new()),
            ..BeforeResponsePatch::default()
        }),
        _ => Act::pass(),
    });
    let got = say(&gateway, &question()).await;
    assert_eq!(outline(&got.output()), json!([{ "thought": "" }, "call me"]));
    assert_eq!(got.output()[0]["encrypted_content"], thought["encrypted_content"]);
    assert_eq!(stream(&gateway, question()).await.response, got.json());
    // The provider takes it so.
    say(&gateway, &next_question(&got.output(), &[])).await.output();
}

#[tokio::test]
async fn a_blocked_answer_is_its_message_and_an_ordinary_end() {
    let output =
        json!([reasoning("rs_1", "secret"), message("msg_1", "secret"), function_call("1", "f", "{}")]);
    let mut body = response(&output);
    body["status"] = json!("incomplete");
    body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let provider = always(answer(&body)).await;
    let block = Act::cancel("POLICY", "I can't say.");
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).at(ANSWER, block).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    assert_eq!(got.output(), json!([message("msg_1_0", "I can't say.")]));
    let body = got.json();
    assert_eq!(
        (&body["status"], &body["incomplete_details"], got.header("hookgate-decision")),
        (&json!("completed"), &Value::Null, Some("block"))
    );
    assert!(!got.text.contains("secret"), "{}", got.text);
    let streamed = stream(&gateway, question()).await;
    assert_eq!(streamed.response, body);
    assert!(!streamed.answer.text.contains("secret") && streamed.is_done, "{streamed:?}");
    assert_eq!(streamed.names.last().map(String::as_str), Some("response.completed"));
}

#[tokio::test]
async fn where_json_is_expected_a_block_is_a_refusal() {
    let call = function_call("1", "bad_shell", "{}");
    let output = json!([message("msg_1", r#"{"said":"secret"}"#), call]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("policy").only(&[ANSWER, CALL]).at_with(CALL, no_bad_tools);
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let format = json!({ "type": "json_schema", "name": "said", "schema": { "type": "object" } });
    let mut body = question();
    body["text"] = json!({ "format": format });
    let note = json!({ "refusal": "Tool call bad_shell was refused: Not on your plan." });
    let got = say(&gateway, &body).await;
    assert_eq!(outline(&got.output()), json!([r#"{"said":"secret"}"#, note]));
    assert_eq!(stream(&gateway, body.clone()).await.response, got.json());
    plugin.set(ANSWER, Act::cancel("POLICY", "I can't say."));
    let got = say(&gateway, &body).await;
    let refusal = json!([{ "refusal": "I can't say." }]);
    assert_eq!((outline(&got.output()), &got.json()["status"]), (refusal, &json!("completed")));
    assert_eq!(stream(&gateway, body).await.response, got.json());
    say(&gateway, &next_question(&got.output(), &[])).await.output();
}

#[tokio::test]
async fn a_refused_tool_call_is_a_note_and_the_others_stay_as_they_are() {
    let arguments = r#"{ "path" : "/\u0061" }"#;
    let output = json!([
        reasoning("rs_1", "two calls"),
        message("msg_1", "Let me see."),
        function_call("1", "bad_shell", r#"{"cmd":"rm"}"#),
        function_call("2", "fs_read", arguments),
    ]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, no_bad_tools).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    let note = "\nTool call bad_shell was refused: Not on your plan.";
    let expected = json!([{ "thought": "two calls" }, "Let me see.", note, called("fs_read", arguments)]);
    assert_eq!(outline(&got.output()), expected);
    let left = got.output();
    assert_eq!([&left[0], &left[1], &left[3]], [&output[0], &output[1], &output[3]]);
    assert!(!got.text.contains("cmd") && got.header("hookgate-decision") == Some("block"), "{got:?}");
    let mut seen: Vec<_> = plugin
        .seen()
        .into_iter()
        .map(|seen| match seen.payload {
            Payload::BeforeToolCall(call) => (call.tool_name, call.call_id.unwrap_or_default()),
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort();
    let ids = [("bad_shell", "call_1"), ("fs_read", "call_2")];
    assert_eq!(seen, ids.map(|(name, id)| (name.to_owned(), id.to_owned())));
    let streamed = stream(&gateway, question()).await;
    assert_eq!(streamed.response, got.json());
    say(&gateway, &next_question(&left, &["2"])).await.output();
}

#[tokio::test]
async fn a_refused_tool_call_takes_the_reasoning_along_that_led_to_nothing_else() {
    let output = json!([
        reasoning("rs_1", "one"),
        reasoning("rs_2", "two"),
        function_call("1", "bad_shell", "{}"),
        reasoning("rs_3", "three"),
        function_call("2", "fs_read", "{}"),
    ]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, no_bad_tools).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let note = "Tool call bad_shell was refused: Not on your plan.";
    let got = say(&gateway, &question()).await;
    let expected = json!([note, { "thought": "three" }, called("fs_read", "{}")]);
    assert_eq!(outline(&got.output()), expected);
    assert_eq!(stream(&gateway, question()).await.response, got.json());
    // The provider refuses reasoning that led to nothing.
    say(&gateway, &next_question(&got.output(), &["2"])).await.output();
}

#[tokio::test]
async fn with_all_tool_calls_refused_the_turn_ends() {
    let output = json!([
        reasoning("rs_1", "two calls"),
        function_call("1", "bad_shell", "{}"),
        function_call("2", "bad_mail", "{}"),
    ]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, no_bad_tools).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let notes = "Tool call bad_shell was refused: Not on your plan.\nTool call bad_mail was refused: Not on your plan.";
    let got = say(&gateway, &question()).await;
    assert_eq!((outline(&got.output()), &got.json()["status"]), (json!([notes]), &json!("completed")));
    assert_eq!(stream(&gateway, question()).await.response, got.json());
    say(&gateway, &next_question(&got.output(), &[])).await.output();
    plugin.set(CALL, Act::cancel("STOP", "The run is over.").scope(CancelScope::Run));
    let got = say(&gateway, &question()).await;
    assert_eq!(outline(&got.output()), json!(["The run is over."]));
}

#[tokio::test]
async fn a_patched_tool_call_is_what_the_client_runs() {
    let output = json!([
        reasoning("rs_1", "three calls"),
        function_call("1", "fs_read", r#"{"path":"/etc"}"#),
        custom_call("2", "sql", "drop all"),
        function_call("3", "fs_read", r#"{"path":"/home"}"#),
    ]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("paths").only(&[CALL]).at_with(CALL, |seen| match &seen.payload {
        Payload::BeforeToolCall(call) if call.call_id.as_deref() == Some("call_1") => {
            Act::patch(BeforeToolCallPatch {
                tool_name: Some("fs_list".into()),
                args: Some(r#"{"path":"/safe"}"#.into()),
                ..BeforeToolCallPatch::default()
            })
        }
        Payload::BeforeToolCall(call) if call.args.as_ref() == br#""drop all""# => {
            Act::patch(BeforeToolCallPatch {
                args: Some(r#""select 1""#.into()),
                ..BeforeToolCallPatch::default()
            })
        }
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut expected = output;
    expected[1] = function_call("1", "fs_list", r#"{"path":"/safe"}"#);
    expected[2] = custom_call("2", "sql", "select 1");
    let got = say(&gateway, &question()).await;
    assert_eq!(got.output(), expected);
    assert_eq!(stream(&gateway, question()).await.response, got.json());
}

#[tokio::test]
async fn arguments_that_are_no_json_are_refused() {
    let provider = always(calls(&[("fs_read", r#"{"path":"#), ("fs_read", "{}")])).await;
    let plugin = FakePlugin::named("watcher").only(&[CALL]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let note = "Tool call fs_read was refused: its arguments are not valid JSON";
    let got = say(&gateway, &question()).await;
    assert_eq!(outline(&got.output()), json!([note, called("fs_read", "{}")]));
}

#[tokio::test]
async fn what_the_provider_ran_by_itself_is_withheld_and_named() {
    let searched = json!({ "id": "ws_1", "type": "web_search_call", "status": "completed", "action": { "type": "search", "query": "x" } });
    let mut said = message("msg_1", "hi");
    said["content"] = json!([{ "type": "invented", "said": "x" }, output_text("hi")]);
    let mut body = response(&json!([searched, said]));
    body["thoughts"] = json!("x".repeat(100));
    let body = repeating(&body, &question());
    let provider = always(answer(&body)).await;
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).start().await;
    let judged = gateway(&provider, &plugin).await;
    let got = say(&judged, &question()).await;
    assert_eq!((got.output(), got.json().get("thoughts")), (json!([message("msg_1", "hi")]), None));
    let line = judged.log().wait_for(|line| line.field("withheld").is_some()).await;
    let withheld = line.field("withheld").and_then(Value::as_str).unwrap_or_default();
    for name in ["web_search_call", "invented", "thoughts"] {
        assert!(withheld.contains(name), "{withheld}");
    }
    assert_eq!(stream(&judged, question()).await.response, got.json());
    let plain = setup(&provider).start().await;
    assert_eq!(say(&plain, &question()).await.json(), body, "a tenant without plugins has a plain proxy");
}

#[tokio::test]
async fn a_long_response_is_too_large_and_bytes_of_answers_count_in_the_memory_of_calls() {
    let provider = always(says(&"x".repeat(3 << 20))).await;
    let limited = setup(&provider).set("/llm/limits", json!({ "answer": "4KiB" })).start().await;
    say(&limited, &question()).await.assert_error(502, "ANSWER_TOO_LARGE");
    let limits = json!({ "request": "1MiB", "bytes_in_flight": "2MiB" });
    let limited = setup(&provider).set("/limits", limits).start().await;
    say(&limited, &question()).await.assert_error(503, "OVERLOADED");
}
