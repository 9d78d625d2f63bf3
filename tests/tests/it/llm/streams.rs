//! Answers that clients want as streams.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeResponsePatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Gate, Payload, Seen},
    gateway::Gateway,
    provider::{DONE, FakeProvider, ProviderAct, StreamEnd, chunk, event, usage_chunk},
    token::token,
};
use serde_json::{Value, json};

use super::support::{ask, chat, gateway, post, setup, stream, user};

const CALL: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

fn question() -> Value {
    ask(&json!([user("x")]))
}

/// Redacts one phone number.
fn redact(seen: &Seen) -> Act {
    match &seen.payload {
        Payload::BeforeResponse(answer) => Act::patch(BeforeResponsePatch {
            content: Some(answer.content.replace("555-0100", "[PHONE]")),
            ..BeforeResponsePatch::default()
        }),
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
async fn a_streamed_answer_is_judged_whole_however_it_was_cut() {
    let provider =
        FakeProvider::always(ProviderAct::streams(&["call 5", "55-", "01", "00, ", "please"])).await;
    let (plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!((got.text(0).as_str(), got.finish_reason(0)), ("call [PHONE], please", json!("stop")));
    assert!(got.is_done, "{got:?}");
    assert!(got.chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk"), "{got:?}");
    assert_eq!(got.chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let answer = &got.answer;
    assert_eq!(
        (answer.header("cache-control"), answer.header("hookgate-decision")),
        (Some("no-cache"), None)
    );
    assert_eq!(answer.header("hookgate-upstream-request-id"), Some("req-1"));
    let [seen] = <[_; 1]>::try_from(plugin.seen()).expect("one question");
    let Payload::BeforeResponse(payload) = seen.payload else { panic!("{seen:?}") };
    assert_eq!(
        (payload.content.as_str(), payload.stop_reason.as_deref()),
        ("call 555-0100, please", Some("stop"))
    );
    assert_eq!(payload.token_usage.map(|usage| (usage.input, usage.output)), Some((5, 7)));
}

#[tokio::test]
async fn plugins_have_the_usage_and_the_client_if_it_asks_for_it() {
    let provider = FakeProvider::always(ProviderAct::streams(&["hi"])).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let plain = stream(&gateway, question()).await;
    assert!(plain.chunks.iter().all(|chunk| chunk.get("usage").is_none()), "{plain:?}");
    assert_eq!(provider.request().json()["stream_options"], json!({ "include_usage": true }));
    let mut body = question();
    body["stream_options"] = json!({ "include_usage": true, "include_obfuscation": false });
    let asked = stream(&gateway, body.clone()).await;
    let last = asked.chunks.last().expect("chunks");
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(12)));
    assert_eq!(provider.requests()[1].json()["stream_options"], body["stream_options"]);
}

#[tokio::test]
async fn a_tenant_without_plugins_gets_the_providers_bytes() {
    let pieces =
        [": hello\n\nevent: x\r\ndata: {\"a\"", ":1}\r\n\r\n", "id: 1\ndata: nonsense\n\n", DONE, "more"];
    let pieces = pieces.map(str::to_owned);
    let provider = FakeProvider::always(ProviderAct::pieces(pieces.clone(), StreamEnd::Closed)).await;
    let gateway = setup(&provider).start().await;
    let body = r#"{"model": "gpt-5", "messages": [{"role": "user", "content": "x"}],  "stream":true, "new": {"a": ["b"]}}"#;
    let got = post(&gateway, body.to_owned()).await;
    assert_eq!((got.text, provider.request().body), (pieces.concat(), Bytes::from(body)));
}

#[tokio::test]
async fn nothing_of_a_blocked_answer_is_in_the_stream() {
    let provider = FakeProvider::always(ProviderAct::streams(&["sec", "ret"])).await;
    let plugin =
        FakePlugin::named("policy").only(&[ANSWER]).at(ANSWER, Act::cancel("POLICY", "I can't say."));
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(
        (got.text(0).as_str(), got.finish_reason(0), got.is_done),
        ("I can't say.", json!("stop"), true)
    );
    assert!(!got.answer.text.contains("sec"), "{got:?}");
    let line = gateway.log().wait_for(|line| line.field("outcome") == Some(&json!("block"))).await;
    assert_eq!(line.field("streamed"), Some(&json!(true)));
}

/// Chunks of two calls whose pieces are mixed.
fn two_calls() -> Vec<Value> {
    let begin = |index: usize, name: &str| {
        let function = json!({ "name": name, "arguments": "" });
        json!({ "tool_calls": [{ "index": index, "id": format!("c{index}"), "type": "function", "function": function }] })
    };
    let piece = |index: usize, piece: &str| json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] });
    let deltas = [
        json!({ "role": "assistant", "content": null }),
        begin(0, "bad.shell"),
        begin(1, "fs.read"),
        piece(1, "{ \"pa"),
        piece(0, "{\"cmd\""),
        piece(1, "th\": \"/a\" }"),
        piece(0, ":1}"),
    ];
    let last = chunk(0, &json!({}), Some("tool_calls"));
    deltas.iter().map(|delta| chunk(0, delta, None)).chain([last, usage_chunk()]).collect()
}

#[tokio::test]
async fn a_tool_call_is_in_the_stream_whole_or_not_at_all() {
    let provider = FakeProvider::always(ProviderAct::stream(&two_calls())).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, |seen| match &seen.payload {
        Payload::BeforeToolCall(call) if call.tool_name.starts_with("bad") => {
            Act::cancel("NO", "Not on your plan.")
        }
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(got.calls(), [("fs.read".to_owned(), "{ \"path\": \"/a\" }".to_owned())]);
    assert_eq!(got.text(0), "Tool call bad.shell was refused: Not on your plan.");
    assert_eq!((got.finish_reason(0), got.is_done), (json!("tool_calls"), true));
    assert!(!got.answer.text.contains("cmd"), "{got:?}");
    plugin.set(CALL, Act::cancel("NO", "Not on your plan."));
    let got = stream(&gateway, question()).await;
    assert_eq!((got.calls(), got.finish_reason(0)), (vec![], json!("stop")));
}

#[tokio::test]
async fn each_choice_of_a_stream_is_judged() {
    let said = |index: usize, text: &str| chunk(index, &json!({ "content": text }), None);
    let end = |index: usize| chunk(index, &json!({}), Some("stop"));
    let chunks = [
        said(1, "call 555"),
        said(0, "o"),
        said(1, "-0100"),
        said(2, "two"),
        said(0, "ne"),
        end(0),
        end(1),
        end(2),
    ];
    let provider = FakeProvider::always(ProviderAct::stream(&chunks)).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let mut body = question();
    body["n"] = json!(3);
    let got = stream(&gateway, body).await;
    assert_eq!([got.text(0), got.text(1), got.text(2)], ["one", "call [PHONE]", "two"]);
}

#[tokio::test]
async fn without_a_decision_a_stream_ends_with_an_error_and_nothing_of_the_answer() {
    let provider = FakeProvider::always(ProviderAct::streams(&["secret"])).await;
    let plugin = FakePlugin::named("broken").only(&[ANSWER]).at(ANSWER, Act::hang()).start().await;
    let setup = setup(&provider).plugin(&plugin).binding_with("broken", 10, &json!({ "timeout": "200ms" }));
    let gateway = setup.start().await;
    let got = stream(&gateway, question()).await;
    assert_eq!((got.error(), got.is_done, got.chunks.len()), (json!("PLUGIN_TIMEOUT"), false, 1), "{got:?}");
    assert_eq!(got.chunks[0]["error"]["hookgate"]["plugin"], "broken");
    assert!(!got.answer.text.contains("secret"));
}

#[tokio::test]
async fn what_is_decided_before_the_answer_begins_has_a_status() {
    let provider = FakeProvider::always(ProviderAct::text(
        429,
        r#"{"error":{"message":"slow down","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
    ));
    let provider = provider.await;
    let plugin =
        FakePlugin::named("policy").at_with(ExtensionPoint::BeforeLlmRequest, |seen| match &seen.payload {
            Payload::BeforeLlmRequest(request) if request.text == "bomb" => Act::cancel("POLICY", "No."),
            _ => Act::pass(),
        });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    for (text, status, code) in [("bomb", 400, "POLICY"), ("x", 429, "rate_limit_exceeded")] {
        let mut body = ask(&json!([user(text)]));
        body["stream"] = json!(true);
        chat(&gateway, &body).await.assert_error(status, code);
    }
}

/// How a stream with these pieces after some text ends for a client whose answers are redacted.
async fn ends(pieces: &[String], end: StreamEnd) -> (String, Value, bool, String) {
    let text = event(&chunk(0, &json!({ "content": "call 555-0100" }), None));
    let all = std::iter::once(text).chain(pieces.iter().cloned());
    let provider = FakeProvider::always(ProviderAct::pieces(all, end)).await;
    let limits = json!({ "idle": "300ms", "answer": "4KiB" });
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, redact).start().await;
    let gateway =
        setup(&provider).set("/llm/limits", limits).plugin(&plugin).binding("redactor", 10).start().await;
    let got = stream(&gateway, question()).await;
    // The request's id is random, and may have any digits.
    let id = got.answer.header("x-request-id").expect("the id of the request");
    assert!(!got.answer.text.replace(id, "").contains("555"), "{got:?}");
    (got.text(0), got.error(), got.is_done, got.answer.text)
}

#[tokio::test]
async fn what_came_of_a_stream_that_breaks_off_is_judged_and_its_end_is_an_error() {
    let unavailable = json!("UPSTREAM_UNAVAILABLE");
    let redacted = "call [PHONE]";
    let call = json!({ "tool_calls": [{ "index": 0, "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }] });
    let call = event(&chunk(0, &call, None));
    let (text, error, is_done, all) = ends(&[call], StreamEnd::Cut).await;
    assert_eq!((text.as_str(), error, is_done), (redacted, unavailable.clone(), false));
    assert!(!all.contains("tool_calls"), "it may not be whole: {all}");
    let (text, error, is_done, _) = ends(&[], StreamEnd::Hang).await;
    assert_eq!((text.as_str(), error, is_done), (redacted, json!("UPSTREAM_TIMEOUT"), false));
    let (text, error, is_done, _) = ends(&[], StreamEnd::Closed).await;
    assert_eq!((text.as_str(), error, is_done), (redacted, json!("UPSTREAM_BAD_ANSWER"), false));
    let failed =
        r#"data: {"error":{"message":"it said 555-0100","code":"server_error"}}"#.to_owned() + "\n\n";
    let (text, error, is_done, _) = ends(&[failed, DONE.to_owned()], StreamEnd::Closed).await;
    assert_eq!((text.as_str(), error, is_done), (redacted, unavailable, false));
}

#[tokio::test]
async fn a_stream_that_ends_without_its_mark_after_the_model_has_is_whole() {
    let last = event(&chunk(0, &json!({}), Some("stop")));
    let (text, error, is_done, _) = ends(&[last], StreamEnd::Closed).await;
    assert_eq!((text.as_str(), error, is_done), ("call [PHONE]", Value::Null, true));
}

#[tokio::test]
async fn a_stream_that_plugins_cannot_judge_is_an_error_and_none_of_it_is_sent() {
    let long = event(&chunk(0, &json!({ "content": "x".repeat(5_000) }), None));
    for (piece, code) in [
        ("data: 555-0100\n\n".to_owned(), "UPSTREAM_BAD_ANSWER"),
        ("data: {\"choices\":[],\"choices\":[]}\n\n".to_owned(), "UPSTREAM_BAD_ANSWER"),
        (long, "ANSWER_TOO_LARGE"),
    ] {
        let (text, error, is_done, _) = ends(&[piece, DONE.to_owned()], StreamEnd::Closed).await;
        assert_eq!((text.as_str(), error, is_done), ("", json!(code), false));
    }
}

#[tokio::test]
async fn a_provider_that_answers_whole_is_streamed() {
    let provider = FakeProvider::always(ProviderAct::says("call 555-0100")).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(
        (got.text(0).as_str(), got.finish_reason(0), got.is_done),
        ("call [PHONE]", json!("stop"), true)
    );
}

#[tokio::test]
async fn a_client_that_waits_for_a_judged_stream_gets_comments() {
    let gate = Gate::closed();
    let provider = FakeProvider::always(ProviderAct::streams(&["hi"])).await;
    let plugin =
        FakePlugin::named("slow").only(&[ANSWER]).at(ANSWER, Act::pass().behind(&gate)).start().await;
    let setup = setup(&provider).plugin(&plugin).set("/limits/budget", "1m");
    let gateway = setup.binding_with("slow", 10, &json!({ "timeout": "30s" })).start().await;
    let mut body = question();
    body["stream"] = json!(true);
    let url = format!("http://{}/openai/v1/chat/completions", gateway.data_addr());
    let request = reqwest::Client::new().post(url).bearer_auth(token("acme")).json(&body);
    let began = Instant::now();
    let mut answer = request.send().await.expect("it begins");
    assert!(began.elapsed() < Duration::from_secs(9), "the headers don't wait for the verdict");
    let first = answer.chunk().await.expect("a piece");
    assert_eq!(first.as_deref(), Some(&b": hookgate\n\n"[..]));
    assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
    gate.open();
    let rest = answer.text().await.expect("a whole body");
    assert!(rest.ends_with(DONE), "{rest}");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_providers_answer_and_the_questions() {
    let pieces = [event(&chunk(0, &json!({ "content": "hi" }), None))];
    let provider = FakeProvider::always(ProviderAct::pieces(pieces, StreamEnd::Hang)).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let mut body = question();
    body["stream"] = json!(true);
    let url = format!("http://{}/openai/v1/chat/completions", gateway.data_addr());
    let answer = reqwest::Client::new().post(url).bearer_auth(token("acme")).json(&body).send().await;
    assert_eq!(provider.answers(), 1);
    drop(answer);
    let line = gateway.log().wait_for(|line| line.field("outcome") == Some(&json!("cancelled"))).await;
    assert_eq!(line.field("code"), Some(&json!("CANCELLED")));
    provider.wait_until_idle().await;
}

#[tokio::test]
async fn a_drain_ends_a_held_stream_with_an_error() {
    let pieces = [event(&chunk(0, &json!({ "content": "secret" }), None))];
    let provider = FakeProvider::always(ProviderAct::pieces(pieces, StreamEnd::Hang)).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).start().await;
    let setup = setup(&provider).set("/drain", json!({ "grace": "0s", "finish": "500ms" }));
    let gateway = setup.plugin(&plugin).binding("redactor", 10).start().await;
    gateway.wait_until_ready().await;
    let drained = async {
        while provider.answers() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gateway.terminate();
    };
    let (got, ()) = tokio::join!(stream(&gateway, question()), drained);
    assert_eq!((got.error(), got.is_done), (json!("DRAINING"), false), "{got:?}");
    assert!(!got.answer.text.contains("secret"), "{got:?}");
}

#[tokio::test]
async fn without_plugins_a_stream_that_breaks_off_does_so_for_the_client() {
    let pieces = ["data: {\"choices\":[{\"de".to_owned()];
    let provider = FakeProvider::always(ProviderAct::pieces(pieces, StreamEnd::Cut)).await;
    let gateway = setup(&provider).start().await;
    let mut body = question();
    body["stream"] = json!(true);
    let url = format!("http://{}/openai/v1/chat/completions", gateway.data_addr());
    let request = reqwest::Client::new().post(url).bearer_auth(token("acme")).json(&body);
    // The connection may end before its client has read that the answer began.
    let read = async { request.send().await?.text().await };
    read.await.expect_err("it isn't whole");
}
