//! What a model answers to a client of Anthropic's API.

use hookgate_proto::types::v1::{BeforeResponsePatch, BeforeToolCallPatch, CancelScope, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    provider::messages::{answer, calls, message, raw, redacted_thinking, says, text, thinking, tool_use},
};
use serde_json::{Value, json};

use super::messages_support::{always, ask, assistant, gateway, say, setup, stream, user};

const CALL: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

fn question() -> Value {
    ask(&json!([user("x")]))
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

/// A citation of this text.
fn citation(cited: &str) -> Value {
    json!({
        "type": "char_location", "cited_text": cited, "document_index": 0, "document_title": "Notes",
        "start_char_index": 0, "end_char_index": 4,
    })
}

fn cited(said: &str, cited_text: &str) -> Value {
    json!({ "type": "text", "text": said, "citations": [citation(cited_text)] })
}

#[tokio::test]
async fn a_judged_answer_that_nobody_changes_is_as_the_provider_sent_it() {
    let blocks = json!([
        thinking("so \u{e9}"),
        redacted_thinking("hm"),
        cited("It says so. ", "so it"),
        text("Reading."),
        tool_use("toolu_1", "fs_read", &json!({ "path": "/a" })),
    ]);
    let body = message(&blocks).to_string().replace("[{", "[ {");
    let provider = always(raw(200, &body)).await;
    let plugin = FakePlugin::named("watcher").start().await;
    let gateway = gateway(&provider, &plugin).await;
    assert_eq!(say(&gateway, &question()).await.text, body);
    assert_eq!(stream(&gateway, question()).await.content(), &blocks);
}

#[tokio::test]
async fn a_patched_answer_is_what_the_client_gets() {
    let provider = always(answer(&message(&json!([cited("call ", "call me"), text("555-0100")])))).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, rewrite).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    assert_eq!(got.content(), json!([text("call [PHONE]")]), "a citation of other words is none");
    assert_eq!(got.json()["stop_reason"], "end_turn");
    let mut seen = plugin.seen();
    seen.retain(|seen| !seen.call.context.as_ref().is_some_and(|context| context.part));
    let [seen] = <[_; 1]>::try_from(seen).expect("one call that is about no citation");
    let Payload::BeforeResponse(payload) = seen.payload else { panic!("{seen:?}") };
    assert_eq!(
        (payload.content.as_str(), payload.stop_reason.as_deref(), payload.model.as_deref()),
        ("call 555-0100", Some("end_turn"), Some("claude-sonnet-5-20260929"))
    );
    assert_eq!(payload.token_usage.map(|usage| (usage.input, usage.output)), Some((10, 7)));
}

#[tokio::test]
async fn patched_thinking_loses_its_text_and_keeps_its_signature() {
    let thought = thinking("call 555-0100");
    let blocks = json!([thought, redacted_thinking("hm"), text("call 555-0100")]);
    let provider = always(answer(&message(&blocks))).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, |seen| match &seen.payload {
        Payload::BeforeResponse(_) => Act::patch(BeforeResponsePatch {
            content: Some("call me".into()),
            reasoning: Some(String::new()),
            ..BeforeResponsePatch::default()
        }),
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let emptied = json!({ "type": "thinking", "thinking": "", "signature": thought["signature"] });
    let expected = json!([emptied, redacted_thinking("hm"), text("call me")]);
    let got = say(&gateway, &question()).await;
    assert_eq!(got.content(), expected);
    assert_eq!(stream(&gateway, question()).await.content(), &expected);
    // The provider takes it so.
    let turn = json!([user("x"), assistant(&got.content()), user("and?")]);
    say(&gateway, &ask(&turn)).await.content();
}

#[tokio::test]
async fn a_blocked_answer_is_its_message_and_an_ordinary_end() {
    let blocks = json!([thinking("secret"), text("secret"), tool_use("toolu_1", "f", &json!({}))]);
    let provider = always(answer(&message(&blocks))).await;
    let block = Act::cancel("POLICY", "I can't say.");
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).at(ANSWER, block).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    assert_eq!(got.content(), json!([text("I can't say.")]));
    let body = got.json();
    assert_eq!(
        (&body["stop_reason"], &body["stop_sequence"], got.header("hookgate-decision")),
        (&json!("end_turn"), &Value::Null, Some("block"))
    );
    assert!(!got.text.contains("secret"), "{}", got.text);
    let streamed = stream(&gateway, question()).await;
    assert_eq!(
        (streamed.content(), &streamed.message["stop_reason"]),
        (&body["content"], &json!("end_turn"))
    );
    assert!(!streamed.answer.text.contains("secret") && streamed.is_done, "{streamed:?}");
}

#[tokio::test]
async fn where_json_is_expected_a_block_is_a_refusal() {
    let provider = always(says(r#"{"said":"secret"}"#)).await;
    let block = Act::cancel("POLICY", "I can't say.");
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).at(ANSWER, block).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let format = json!({ "type": "json_schema", "schema": { "type": "object" } });
    for (member, value) in [("output_config", json!({ "format": format })), ("output_format", format.clone())]
    {
        let mut body = question();
        body[member] = value;
        let whole = say(&gateway, &body).await.json();
        let streamed = stream(&gateway, body).await.message;
        for got in [whole, streamed] {
            let details = json!({ "type": "refusal", "category": null, "explanation": "I can't say." });
            assert_eq!(
                (&got["stop_reason"], &got["stop_details"]),
                (&json!("refusal"), &details),
                "{member}"
            );
            assert_eq!(got["content"], json!([]), "the client would parse a text: {member}");
        }
    }
}

#[tokio::test]
async fn a_refused_tool_call_is_a_note_and_the_others_stay_as_they_are() {
    let body = message(&json!([
        text("Let me see."),
        tool_use("toolu_1", "bad_shell", &json!({ "cmd": "rm" })),
        tool_use("toolu_2", "fs_read", &json!({ "path": "/a" })),
    ]));
    let exact = body.to_string().replace(r#"{"path":"/a"}"#, r#"{ "path" : "/\u0061" }"#);
    let provider = always(raw(200, &exact)).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, no_bad_tools).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    let note = text("Tool call bad_shell was refused: Not on your plan.");
    let expected = json!([text("Let me see."), note, body["content"][2]]);
    assert_eq!(got.content(), expected);
    assert!(got.text.contains(r#"{ "path" : "/\u0061" }"#) && !got.text.contains("rm"), "{}", got.text);
    assert_eq!(
        (&got.json()["stop_reason"], got.header("hookgate-decision")),
        (&json!("tool_use"), Some("block"))
    );
    let mut seen: Vec<_> = plugin
        .seen()
        .into_iter()
        .map(|seen| match seen.payload {
            Payload::BeforeToolCall(call) => (call.tool_name, call.call_id.unwrap_or_default()),
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort();
    let ids = [("bad_shell", "toolu_1"), ("fs_read", "toolu_2")];
    assert_eq!(seen, ids.map(|(name, id)| (name.to_owned(), id.to_owned())));
    let streamed = stream(&gateway, question()).await;
    assert_eq!((streamed.content(), &streamed.message["stop_reason"]), (&expected, &json!("tool_use")));
}

#[tokio::test]
async fn with_all_tool_calls_refused_the_turn_ends() {
    let provider = always(calls(&[("bad_shell", json!({})), ("bad_mail", json!({}))])).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, no_bad_tools).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let notes = json!([
        text("Tool call bad_shell was refused: Not on your plan."),
        text("Tool call bad_mail was refused: Not on your plan."),
    ]);
    let got = say(&gateway, &question()).await;
    assert_eq!((got.content(), &got.json()["stop_reason"]), (notes.clone(), &json!("end_turn")));
    let streamed = stream(&gateway, question()).await;
    assert_eq!((streamed.content(), &streamed.message["stop_reason"]), (&notes, &json!("end_turn")));
    plugin.set(CALL, Act::cancel("STOP", "The run is over.").scope(CancelScope::Run));
    let got = say(&gateway, &question()).await;
    assert_eq!(got.content(), json!([text("The run is over.")]));
}

#[tokio::test]
async fn a_patched_tool_call_is_what_the_client_runs() {
    let blocks = json!([
        thinking("two calls"),
        tool_use("toolu_1", "fs_read", &json!({ "path": "/etc" })),
        tool_use("toolu_2", "fs_read", &json!({ "path": "/home" })),
    ]);
    let provider = always(answer(&message(&blocks))).await;
    let plugin = FakePlugin::named("paths").only(&[CALL]).at_with(CALL, |seen| match &seen.payload {
        Payload::BeforeToolCall(call) if call.call_id.as_deref() == Some("toolu_1") => {
            Act::patch(BeforeToolCallPatch {
                tool_name: Some("fs_list".into()),
                args: Some(r#"{"path":"/safe"}"#.into()),
                ..BeforeToolCallPatch::default()
            })
        }
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut expected = blocks;
    expected[1] = tool_use("toolu_1", "fs_list", &json!({ "path": "/safe" }));
    assert_eq!(say(&gateway, &question()).await.content(), expected);
    assert_eq!(stream(&gateway, question()).await.content(), &expected);
}

#[tokio::test]
async fn what_the_provider_ran_by_itself_is_withheld_and_named() {
    let searched = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "x" } });
    let found = json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [] });
    let mut body = message(&json!([searched, found, text("hi")]));
    body["thoughts"] = json!("x".repeat(100));
    let provider = always(answer(&body)).await;
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).start().await;
    let judged = gateway(&provider, &plugin).await;
    let got = say(&judged, &question()).await;
    assert_eq!((got.content(), got.json().get("thoughts")), (json!([text("hi")]), None));
    let line = judged.log().wait_for(|line| line.field("withheld").is_some()).await;
    let withheld = line.field("withheld").and_then(Value::as_str).unwrap_or_default();
    for name in ["server_tool_use", "web_search_tool_result", "thoughts"] {
        assert!(withheld.contains(name), "{withheld}");
    }
    let plain = setup(&provider).start().await;
    assert_eq!(say(&plain, &question()).await.json(), body, "a tenant without plugins has a plain proxy");
}

#[tokio::test]
async fn a_long_message_is_too_large_and_bytes_of_answers_count_in_the_memory_of_calls() {
    let provider = always(says(&"x".repeat(3 << 20))).await;
    let limited = setup(&provider).set("/llm/limits", json!({ "answer": "4KiB" })).start().await;
    say(&limited, &question()).await.assert_anthropic_error(502, "ANSWER_TOO_LARGE");
    let limits = json!({ "request": "1MiB", "bytes_in_flight": "2MiB" });
    let limited = setup(&provider).set("/limits", limits).start().await;
    say(&limited, &question()).await.assert_anthropic_error(503, "OVERLOADED");
}
