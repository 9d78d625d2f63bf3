//! Messages that clients want as streams.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeResponsePatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Gate, Payload, Seen},
    gateway::Gateway,
    provider::{
        FakeProvider, ProviderAct, StreamEnd,
        messages::{
            answer, delta, error, event, events, events_of_block, message, raw, redacted_thinking, says,
            start, stream_of, text, thinking, tool_use,
        },
    },
    token::token,
};
use serde_json::{Value, json};

use super::messages_support::{
    always, ask, assistant, gateway, post, request, results, say, setup, stream, user,
};

const CALL: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

fn question() -> Value {
    ask(&json!([user("x")]))
}

/// The same, as a stream.
fn streamed_question() -> Value {
    let mut body = question();
    body["stream"] = json!(true);
    body
}

/// Redacts one phone number.
fn redact(seen: &Seen) -> Act {
    match &seen.payload {
        Payload::BeforeResponse(answer) if answer.content.contains("555-0100") => {
            let content = Some(answer.content.replace("555-0100", "[PHONE]"));
            Act::patch(BeforeResponsePatch { content, ..BeforeResponsePatch::default() })
        }
        _ => Act::pass(),
    }
}

/// A gateway with a redactor.
async fn redacting(provider: &FakeProvider) -> (FakePlugin, Gateway) {
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, redact).start().await;
    let gateway = gateway(provider, &plugin).await;
    (plugin, gateway)
}

#[tokio::test]
async fn a_streamed_message_is_judged_whole_however_it_was_cut() {
    let provider = always(says("call 555-0100, please")).await;
    let (plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(got.content(), &json!([text("call [PHONE], please")]));
    assert_eq!((&got.message["stop_reason"], got.is_done), (&json!("end_turn"), true), "{got:?}");
    assert_eq!(
        (&got.message["id"], &got.message["role"], &got.message["type"]),
        (&json!("msg_1"), &json!("assistant"), &json!("message"))
    );
    let usage = &got.message["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(5), &json!(7)));
    assert_eq!(usage["cache_read_input_tokens"], 3);
    let answer = &got.answer;
    assert_eq!(
        (answer.header("cache-control"), answer.header("hookgate-decision")),
        (Some("no-cache"), None)
    );
    assert_eq!(answer.header("hookgate-upstream-request-id"), Some("req-1"));
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
    let [seen] = <[_; 1]>::try_from(plugin.seen()).expect("one question");
    let Payload::BeforeResponse(payload) = seen.payload else { panic!("{seen:?}") };
    assert_eq!(
        (payload.content.as_str(), payload.stop_reason.as_deref()),
        ("call 555-0100, please", Some("end_turn"))
    );
    assert_eq!(payload.token_usage.map(|usage| (usage.input, usage.output)), Some((10, 7)));
}

#[tokio::test]
async fn every_kind_of_block_is_in_the_stream_as_in_a_whole_message() {
    let citation = json!({
        "type": "page_location", "cited_text": "555", "document_index": 0, "document_title": null,
        "start_page_number": 1, "end_page_number": 2,
    });
    let blocks = json!([
        thinking("so"),
        redacted_thinking("hm"),
        { "type": "text", "text": "It is known.", "citations": [citation] },
        tool_use("toolu_1", "fs_read", &json!({})),
        tool_use("toolu_2", "fs_read", &json!({ "path": "/\u{e9}" })),
    ]);
    let provider = always(answer(&message(&blocks))).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!((got.content(), &got.message["stop_reason"]), (&blocks, &json!("tool_use")));
    // What a client keeps of it, the provider takes again.
    let returned = results(&[("toolu_1", "a"), ("toolu_2", "b")]);
    let turn = json!([user("x"), assistant(got.content()), returned]);
    assert!(stream(&gateway, ask(&turn)).await.is_done);
}

#[tokio::test]
async fn a_tenant_without_plugins_gets_the_providers_bytes() {
    let pieces = [
        ": hello\n\nevent: x\r\ndata: {\"a\"",
        ":1}\r\n\r\n",
        "id: 1\ndata: nonsense\n\n",
        "event: message_stop\ndata: {}\n\n",
        "more",
    ];
    let pieces = pieces.map(str::to_owned);
    let provider = always(ProviderAct::pieces(pieces.clone(), StreamEnd::Closed)).await;
    let gateway = setup(&provider).start().await;
    let body = r#"{"model": "claude-5", "messages": [{"role": "user", "content": "x"}],  "stream":true, "max_tokens": 10}"#;
    let got = post(&gateway, body.to_owned()).await;
    assert_eq!((got.text, provider.request().body), (pieces.concat(), Bytes::from(body)));
}

#[tokio::test]
async fn nothing_of_a_blocked_message_is_in_the_stream() {
    let provider = always(says("secret")).await;
    let block = Act::cancel("POLICY", "I can't say.");
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).at(ANSWER, block).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(
        (got.text().as_str(), &got.message["stop_reason"], got.is_done),
        ("I can't say.", &json!("end_turn"), true)
    );
    assert!(!got.answer.text.contains("sec"), "{got:?}");
    let line = gateway.log().wait_for(|line| line.field("outcome") == Some(&json!("block"))).await;
    assert_eq!(line.field("streamed"), Some(&json!(true)));
}

/// The events of a message with these events of blocks.
fn around(blocks: Vec<Value>, stop_reason: &str) -> Vec<Value> {
    let end = json!({ "stop_reason": stop_reason, "stop_sequence": null });
    let end = json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": 7 } });
    let first = start(&message(&json!([])));
    std::iter::once(first).chain(blocks).chain([end, json!({ "type": "message_stop" })]).collect()
}

/// The events of a call whose arguments come in these pieces.
fn call(index: usize, name: &str, pieces: &[&str]) -> Vec<Value> {
    let mut events = events_of_block(index, &tool_use(&format!("toolu_{index}"), name, &json!({})));
    let stop = events.pop().expect("it stops");
    events.truncate(1);
    let piece = |piece: &&str| delta(index, &json!({ "type": "input_json_delta", "partial_json": piece }));
    events.extend(pieces.iter().map(piece));
    events.push(stop);
    events
}

#[tokio::test]
async fn a_tool_call_is_in_the_stream_whole_or_not_at_all() {
    let calls = [
        call(0, "bad_shell", &["", "{\"cmd\"", ":1}"]),
        call(1, "fs_read", &["{ \"pa", "th\" : \"/a\" }"]),
        call(2, "fs_read", &["{\"path\":"]),
        call(3, "fs_list", &[]),
    ];
    let provider = always(stream_of(&around(calls.concat(), "tool_use"), StreamEnd::Closed)).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, |seen| match &seen.payload {
        Payload::BeforeToolCall(call) if call.tool_name.starts_with("bad") => {
            Act::cancel("NO", "Not on your plan.")
        }
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = stream(&gateway, question()).await;
    let expected = json!([
        text("Tool call bad_shell was refused: Not on your plan."),
        text("Tool call fs_read was refused: its arguments are not valid JSON"),
        tool_use("toolu_1", "fs_read", &json!({ "path": "/a" })),
        tool_use("toolu_3", "fs_list", &json!({})),
    ]);
    assert_eq!(got.content(), &expected, "{got:?}");
    assert_eq!((&got.message["stop_reason"], got.is_done), (&json!("tool_use"), true));
    assert!(got.answer.text.contains(r#"{ \"path\" : \"/a\" }"#), "byte for byte: {got:?}");
    assert!(!got.answer.text.contains("cmd"), "{got:?}");
    plugin.set(CALL, Act::cancel("NO", "Not on your plan."));
    let got = stream(&gateway, question()).await;
    let blocks = got.content().as_array().expect("a list");
    assert!(blocks.len() == 4 && blocks.iter().all(|block| block["type"] == "text"), "{got:?}");
    assert_eq!(got.message["stop_reason"], "end_turn");
}

#[tokio::test]
async fn without_a_decision_a_stream_ends_with_an_error_and_nothing_of_the_message() {
    let provider = always(says("secret")).await;
    let plugin = FakePlugin::named("broken").only(&[ANSWER]).at(ANSWER, Act::hang()).start().await;
    let setup = setup(&provider).plugin(&plugin).binding_with("broken", 10, &json!({ "timeout": "200ms" }));
    let gateway = setup.start().await;
    let got = stream(&gateway, question()).await;
    assert_eq!((&got.error["code"], got.is_done), (&json!("PLUGIN_TIMEOUT"), false), "{got:?}");
    assert_eq!(
        (&got.error["type"], got.names.last().map(String::as_str)),
        (&json!("timeout_error"), Some("error"))
    );
    assert_eq!(got.error["hookgate"]["plugin"], "broken");
    assert!(!got.answer.text.contains("secret") && got.text().is_empty(), "{got:?}");
}

#[tokio::test]
async fn what_is_decided_before_the_message_begins_has_a_status() {
    let provider = always(error(529, "overloaded_error", "Overloaded")).await;
    let plugin =
        FakePlugin::named("policy").at_with(ExtensionPoint::BeforeLlmRequest, |seen| match &seen.payload {
            Payload::BeforeLlmRequest(request) if request.text == "bomb" => Act::cancel("POLICY", "No."),
            _ => Act::pass(),
        });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    for (text, status, kind) in [("bomb", 400, "invalid_request_error"), ("x", 529, "overloaded_error")] {
        let mut body = ask(&json!([user(text)]));
        body["stream"] = json!(true);
        let got = say(&gateway, &body).await;
        assert_eq!((got.status.as_u16(), &got.json()["error"]["type"]), (status, &json!(kind)), "{got:?}");
    }
}

/// How a stream with these pieces after some text ends for a client whose answers are redacted.
async fn ends(pieces: &[String], end: StreamEnd) -> (String, Value, bool, String) {
    let block = events_of_block(0, &text("call 555-0100"));
    let first: Vec<_> = std::iter::once(start(&message(&json!([])))).chain(block).collect();
    let all = first.iter().map(event).chain(pieces.iter().cloned());
    let provider = always(ProviderAct::pieces(all, end)).await;
    let limits = json!({ "idle": "300ms", "answer": "4KiB" });
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, redact).start().await;
    let gateway =
        setup(&provider).set("/llm/limits", limits).plugin(&plugin).binding("redactor", 10).start().await;
    let got = stream(&gateway, question()).await;
    // The request's id is random, and may have any digits.
    let id = got.answer.header("x-request-id").expect("the id of the request");
    assert!(!got.answer.text.replace(id, "").contains("555"), "{got:?}");
    let stopped = got.names.iter().any(|name| name == "message_stop");
    assert_eq!(got.is_done, stopped && got.error.is_null(), "{got:?}");
    (got.text(), got.error["code"].clone(), got.is_done, got.answer.text)
}

#[tokio::test]
async fn what_came_of_a_stream_that_breaks_off_is_judged_and_its_end_is_an_error() {
    let unavailable = json!("UPSTREAM_UNAVAILABLE");
    let redacted = "call [PHONE]";
    let whole_call: Vec<_> = call(1, "fs_read", &["{}"]).iter().map(event).collect();
    let (said, error, is_done, all) = ends(&whole_call, StreamEnd::Cut).await;
    assert_eq!((said.as_str(), error, is_done), (redacted, unavailable.clone(), false));
    assert!(!all.contains("tool_use"), "the model may have meant more calls: {all}");
    let (said, error, is_done, _) = ends(&[], StreamEnd::Hang).await;
    assert_eq!((said.as_str(), error, is_done), (redacted, json!("UPSTREAM_TIMEOUT"), false));
    let (said, error, is_done, _) = ends(&[], StreamEnd::Closed).await;
    assert_eq!((said.as_str(), error, is_done), (redacted, json!("UPSTREAM_BAD_ANSWER"), false));
    let failed =
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "it said 555-0100" } });
    let stop = json!({ "type": "message_stop" });
    let (said, error, is_done, _) = ends(&[event(&failed), event(&stop)], StreamEnd::Closed).await;
    assert_eq!((said.as_str(), error, is_done), (redacted, unavailable, false));
}

#[tokio::test]
async fn a_stream_that_plugins_cannot_judge_is_an_error_and_none_of_it_is_sent() {
    let long = events_of_block(1, &text(&"x".repeat(5_000)));
    let gap = events_of_block(2, &text("y"));
    let second = event(&start(&message(&json!([]))));
    for (piece, code) in [
        ("event: content_block_delta\ndata: 555-0100\n\n".to_owned(), "UPSTREAM_BAD_ANSWER"),
        (
            "event: message_stop\ndata: {\"type\":\"message_stop\",\"type\":\"x\"}\n\n".to_owned(),
            "UPSTREAM_BAD_ANSWER",
        ),
        ("event: message_stop\ndata: {\"type\":\"message_delta\"}\n\n".to_owned(), "UPSTREAM_BAD_ANSWER"),
        (gap.iter().map(event).collect(), "UPSTREAM_BAD_ANSWER"),
        (second, "UPSTREAM_BAD_ANSWER"),
        (long.iter().map(event).collect(), "ANSWER_TOO_LARGE"),
    ] {
        let (said, error, is_done, _) = ends(&[piece], StreamEnd::Closed).await;
        assert_eq!((said.as_str(), error, is_done), ("", json!(code), false));
    }
}

#[tokio::test]
async fn a_provider_that_answers_whole_is_streamed() {
    let body = message(&json!([text("call 555-0100")])).to_string();
    let provider = FakeProvider::always(raw(200, &body)).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!((got.content(), got.is_done), (&json!([text("call [PHONE]")]), true));
}

#[tokio::test]
async fn a_client_that_waits_for_a_judged_stream_gets_pings() {
    let gate = Gate::closed();
    let provider = always(says("hi")).await;
    let plugin =
        FakePlugin::named("slow").only(&[ANSWER]).at(ANSWER, Act::pass().behind(&gate)).start().await;
    let setup = setup(&provider).plugin(&plugin).set("/limits/budget", "1m");
    let gateway = setup.binding_with("slow", 10, &json!({ "timeout": "30s" })).start().await;
    let request = request(&gateway, "/messages", streamed_question().to_string());
    let began = Instant::now();
    let mut answer = request.header("x-api-key", token("acme")).send().await.expect("it begins");
    assert!(began.elapsed() < Duration::from_secs(9), "the headers don't wait for the verdict");
    let first = answer.chunk().await.expect("a piece").expect("the body goes on");
    let ping = json!({ "type": "ping" });
    let (name, data) = std::str::from_utf8(&first)
        .ok()
        .and_then(|piece| piece.strip_suffix("\n\n")?.split_once("\ndata: "))
        .expect("one event");
    assert_eq!((name, serde_json::from_str::<Value>(data).ok()), ("event: ping", Some(ping)));
    assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
    gate.open();
    let rest = answer.text().await.expect("a whole body");
    assert!(rest.starts_with("event: message_start\n"), "{rest}");
    assert!(rest.contains("event: message_stop\n"), "{rest}");
}

/// The first events of a message that says this.
fn beginning(said: &str) -> ProviderAct {
    let events = events(&message(&json!([text(said)])));
    ProviderAct::pieces(events.into_iter().take(5), StreamEnd::Hang)
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_providers_answer_and_the_questions() {
    let provider = always(beginning("hi, you there")).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let request = request(&gateway, "/messages", streamed_question().to_string());
    let answer = request.header("x-api-key", token("acme")).send().await;
    assert_eq!(provider.answers(), 1);
    drop(answer);
    let line = gateway.log().wait_for(|line| line.field("outcome") == Some(&json!("cancelled"))).await;
    assert_eq!(line.field("code"), Some(&json!("CANCELLED")));
    provider.wait_until_idle().await;
}

#[tokio::test]
async fn a_drain_ends_a_held_stream_with_an_error() {
    let provider = always(beginning("secret, not told")).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).start().await;
    let setup = setup(&provider).set("/drain", json!({ "grace": "0s", "finish": "500ms" }));
    let gateway = setup.plugin(&plugin).binding("redactor", 10).start().await;
    let drained = async {
        while provider.answers() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gateway.terminate();
    };
    let (got, ()) = tokio::join!(stream(&gateway, question()), drained);
    assert_eq!((&got.error["code"], got.is_done), (&json!("DRAINING"), false), "{got:?}");
    assert!(!got.answer.text.contains("secret"), "{got:?}");
}

#[tokio::test]
async fn without_plugins_a_stream_that_breaks_off_does_so_for_the_client() {
    let pieces = ["event: message_start\ndata: {\"ty".to_owned()];
    let provider = always(ProviderAct::pieces(pieces, StreamEnd::Cut)).await;
    let gateway = setup(&provider).start().await;
    let request = request(&gateway, "/messages", streamed_question().to_string());
    // The connection may end before its client has read that the answer began.
    let request = request.header("x-api-key", token("acme"));
    let read = async { request.send().await?.text().await };
    read.await.expect_err("it isn't whole");
}
