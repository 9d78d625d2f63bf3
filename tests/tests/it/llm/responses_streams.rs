//! Responses that clients want as streams.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeLlmRequestPatch, BeforeResponsePatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Gate, Payload, Seen},
    gateway::Gateway,
    provider::{
        FakeProvider, ProviderAct, StreamEnd,
        responses::{
            answer, begin, custom_call, end, error, event, events, events_of_item, function_call, message,
            numbered, output_text, raw, reasoning, response, says, stream_of,
        },
    },
    token::token,
};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::{
    responses_support::{ClientEvents, always, ask, called, outline, post, request, result, say, stream},
    support::{ClientAnswer, gateway, setup, user},
};

const CALL: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

fn question() -> Value {
    ask(&json!([user("x")]))
}

/// The same, as a stream.
fn streamed_question(gateway: &Gateway) -> RequestBuilder {
    let mut body = question();
    body["stream"] = json!(true);
    request(gateway, "/responses", body.to_string()).bearer_auth(token("acme"))
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
async fn a_streamed_response_is_judged_whole_however_it_was_cut() {
    let provider = always(says("call 555-0100, please")).await;
    let (plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(got.output(), json!([message("msg_1", "call [PHONE], please")]));
    assert_eq!((&got.response["status"], got.is_done), (&json!("completed"), true), "{got:?}");
    assert_eq!(got.response["usage"], response(&json!([]))["usage"]);
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
        ("call 555-0100, please", Some("completed"))
    );
    assert_eq!(payload.token_usage.map(|usage| (usage.input, usage.output)), Some((10, 7)));
}

#[tokio::test]
async fn every_item_is_in_the_stream_in_all_its_copies_as_in_a_whole_response() {
    let citation = json!({ "type": "url_citation", "start_index": 0, "end_index": 2, "url": "https://example.com/a", "title": "Menu" });
    let mut said = message("msg_1", "It is known.");
    said["content"][0]["annotations"] = json!([citation]);
    let mut two = message("msg_2", "So ");
    two["content"] = json!([output_text("So "), { "type": "refusal", "refusal": "no." }]);
    let mut thought = reasoning("rs_1", "so");
    thought["content"] = json!([{ "type": "reasoning_text", "text": "and so on" }]);
    let shell = json!({
        "type": "local_shell_call", "id": "lsh_1", "call_id": "call_3", "status": "completed",
        "action": { "type": "exec", "command": ["ls"], "env": {} },
    });
    let output = json!([
        thought,
        said,
        two,
        function_call("1", "fs_read", "{}"),
        custom_call("2", "sql", "select '\u{e9}'"),
        shell,
        function_call("4", "fs_read", ""),
    ]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("watcher").only(&[ANSWER]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(got.output(), output);
    assert_eq!(got.response, say(&gateway, &question()).await.json());
    assert!(!got.answer.text.contains("obfuscation"), "the text's length is no secret any more");
    // What a client keeps of it, the provider takes again.
    let mut items = vec![user("x")];
    items.extend(output.as_array().expect("a list").iter().cloned());
    items.extend([
        result("1", "a"),
        json!({ "type": "custom_tool_call_output", "call_id": "call_2", "output": "b" }),
        json!({ "type": "local_shell_call_output", "id": "call_3", "output": "c" }),
        result("4", "d"),
    ]);
    assert!(stream(&gateway, ask(&json!(items))).await.is_done);
}

#[tokio::test]
async fn a_response_that_is_cut_short_says_so() {
    let mut body = response(&json!([message("msg_1", "call 555-0100")]));
    body["status"] = json!("incomplete");
    body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let provider = always(answer(&body)).await;
    let (plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!(outline(&got.output()), json!(["call [PHONE]"]));
    assert_eq!(got.names.last().map(String::as_str), Some("response.incomplete"));
    assert_eq!(got.response, say(&gateway, &question()).await.json());
    let Payload::BeforeResponse(payload) = plugin.seen().remove(0).payload else { panic!("no answer") };
    assert_eq!(payload.stop_reason.as_deref(), Some("max_output_tokens"));
}

#[tokio::test]
async fn a_tenant_without_plugins_gets_the_providers_bytes() {
    let pieces = [
        ": hello\n\nevent: x\r\ndata: {\"a\"",
        ":1}\r\n\r\n",
        "id: 1\ndata: nonsense\n\n",
        "event: response.completed\ndata: {}\n\n",
        "more",
    ];
    let pieces = pieces.map(str::to_owned);
    let provider = always(ProviderAct::pieces(pieces.clone(), StreamEnd::Closed)).await;
    let gateway = setup(&provider).start().await;
    let body =
        r#"{"model": "gpt-5", "input": [{"role": "user", "content": "x"}],  "stream":true, "store":false}"#;
    let got = post(&gateway, body.to_owned()).await;
    assert_eq!((got.text, provider.request().body), (pieces.concat(), Bytes::from(body)));
}

#[tokio::test]
async fn nothing_of_a_blocked_response_is_in_the_stream() {
    let provider = always(says("secret")).await;
    let block = Act::cancel("POLICY", "I can't say.");
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).at(ANSWER, block).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = stream(&gateway, question()).await;
    assert_eq!((outline(&got.output()), got.is_done), (json!(["I can't say."]), true));
    assert_eq!(got.names.last().map(String::as_str), Some("response.completed"));
    assert!(!got.answer.text.contains("sec"), "{got:?}");
    let line = gateway.log().wait_for(|line| line.field("outcome") == Some(&json!("block"))).await;
    assert_eq!(line.field("streamed"), Some(&json!(true)));
}

#[tokio::test]
async fn a_tool_call_is_in_the_stream_whole_or_not_at_all() {
    let output = json!([
        function_call("0", "bad_shell", r#"{"cmd":1}"#),
        function_call("1", "fs_read", r#"{ "path" : "/a" }"#),
        function_call("2", "fs_read", r#"{"path":"#),
        function_call("3", "fs_list", "{}"),
    ]);
    let provider = always(answer(&response(&output))).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, |seen| match &seen.payload {
        Payload::BeforeToolCall(call) if call.tool_name.starts_with("bad") => {
            Act::cancel("NO", "Not on your plan.")
        }
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = stream(&gateway, question()).await;
    let notes = "Tool call bad_shell was refused: Not on your plan.\nTool call fs_read was refused: its arguments are not valid JSON";
    let expected = json!([notes, called("fs_read", r#"{ "path" : "/a" }"#), called("fs_list", "{}")]);
    assert_eq!((outline(&got.output()), got.is_done), (expected, true), "{got:?}");
    assert!(!got.answer.text.contains("cmd"), "{got:?}");
    plugin.set(CALL, Act::cancel("NO", "Not on your plan."));
    let got = stream(&gateway, question()).await;
    let items = got.output();
    let items = items.as_array().expect("a list");
    assert!(items.len() == 1 && items[0]["type"] == "message", "{got:?}");
}

#[tokio::test]
async fn without_a_decision_a_stream_ends_with_an_error_and_nothing_of_the_response() {
    let provider = always(says("secret")).await;
    let plugin = FakePlugin::named("broken").only(&[ANSWER]).at(ANSWER, Act::hang()).start().await;
    let setup = setup(&provider).plugin(&plugin).binding_with("broken", 10, &json!({ "timeout": "200ms" }));
    let gateway = setup.start().await;
    let got = stream(&gateway, question()).await;
    assert_eq!((&got.error["code"], got.is_done), (&json!("PLUGIN_TIMEOUT"), false), "{got:?}");
    assert_eq!(got.names.last().map(String::as_str), Some("error"));
    assert_eq!(got.error["hookgate"]["plugin"], "broken");
    assert!(!got.answer.text.contains("secret") && got.output() == json!([]), "{got:?}");
}

#[tokio::test]
async fn what_is_decided_before_the_response_begins_has_a_status() {
    let provider = always(error(503, "overloaded", "Overloaded")).await;
    let plugin =
        FakePlugin::named("policy").at_with(ExtensionPoint::BeforeLlmRequest, |seen| match &seen.payload {
            Payload::BeforeLlmRequest(request) if request.text == "bomb" => Act::cancel("POLICY", "No."),
            _ => Act::pass(),
        });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    for (text, status, code) in [("bomb", 400, "POLICY"), ("x", 503, "overloaded")] {
        let mut body = ask(&json!(text));
        body["stream"] = json!(true);
        let got = say(&gateway, &body).await;
        assert_eq!((got.status.as_u16(), &got.json()["error"]["code"]), (status, &json!(code)), "{got:?}");
    }
}

/// How a stream with these pieces after some text ends for a client whose answers are redacted.
async fn ends(pieces: &[String], end: StreamEnd) -> (Value, Value, bool, String) {
    let text = events_of_item(0, &message("msg_1", "call 555-0100"));
    let first = numbered(begin(&response(&json!([]))).into_iter().chain(text));
    let all = first.iter().map(event).chain(pieces.iter().cloned());
    let provider = always(ProviderAct::pieces(all, end)).await;
    let limits = json!({ "idle": "300ms", "answer": "32KiB" });
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at_with(ANSWER, redact).start().await;
    let gateway =
        setup(&provider).set("/llm/limits", limits).plugin(&plugin).binding("redactor", 10).start().await;
    let got = stream(&gateway, question()).await;
    // The request's id is random, and may have any digits.
    let id = got.answer.header("x-request-id").expect("the id of the request");
    assert!(!got.answer.text.replace(id, "").contains("555"), "{got:?}");
    assert_eq!(got.is_done, got.error.is_null(), "{got:?}");
    (outline(&got.output()), got.error["code"].clone(), got.is_done, got.answer.text)
}

/// Events as pieces of a stream.
fn pieces(events: &[Value]) -> Vec<String> {
    events.iter().map(event).collect()
}

#[tokio::test]
async fn what_came_of_a_stream_that_breaks_off_is_judged_and_its_end_is_an_error() {
    let unavailable = json!("UPSTREAM_UNAVAILABLE");
    let redacted = json!(["call [PHONE]"]);
    let mut open_call = events_of_item(1, &function_call("1", "fs_read", r#"{"path":"/a"}"#));
    let done = open_call.pop().expect("the end of the item");
    let (said, error, is_done, all) = ends(&pieces(&open_call), StreamEnd::Cut).await;
    assert_eq!((&said, &error, is_done), (&redacted, &unavailable, false));
    assert!(!all.contains("function_call"), "its arguments may be incomplete: {all}");
    open_call.push(done);
    // What comes right before the connection is lost may be lost with it.
    let (said, error, is_done, _) = ends(&pieces(&open_call), StreamEnd::Hang).await;
    let with_call = json!(["call [PHONE]", called("fs_read", r#"{"path":"/a"}"#)]);
    assert_eq!((&said, error, is_done), (&with_call, json!("UPSTREAM_TIMEOUT"), false));
    let (said, error, is_done, _) = ends(&[], StreamEnd::Hang).await;
    assert_eq!((&said, error, is_done), (&redacted, json!("UPSTREAM_TIMEOUT"), false));
    let (said, error, is_done, _) = ends(&[], StreamEnd::Closed).await;
    assert_eq!((&said, error, is_done), (&redacted, json!("UPSTREAM_BAD_ANSWER"), false));
    let message = "it said 555-0100";
    let failed = json!({ "type": "error", "code": "server_error", "message": message, "param": null, "sequence_number": 9 });
    let mut failure = response(&json!([]));
    failure["status"] = json!("failed");
    failure["error"] = json!({ "code": "server_error", "message": message });
    for failed in [failed, end(&failure)] {
        let (said, error, is_done, _) = ends(&pieces(&[failed]), StreamEnd::Closed).await;
        assert_eq!((&said, &error, is_done), (&redacted, &unavailable, false));
    }
}

#[tokio::test]
async fn a_stream_that_plugins_cannot_judge_is_an_error_and_none_of_it_is_sent() {
    let long = events_of_item(1, &message("msg_2", &"x".repeat(40_000)));
    for (piece, code) in [
        ("event: response.output_text.delta\ndata: 555-0100\n\n".to_owned(), "UPSTREAM_BAD_ANSWER"),
        (
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"type\":\"x\"}\n\n"
                .to_owned(),
            "UPSTREAM_BAD_ANSWER",
        ),
        (pieces(&long).concat(), "ANSWER_TOO_LARGE"),
    ] {
        let (said, error, is_done, _) = ends(&[piece], StreamEnd::Closed).await;
        assert_eq!((said, error, is_done), (json!([]), json!(code), false));
    }
}

#[tokio::test]
async fn a_provider_that_answers_whole_is_streamed() {
    let body = response(&json!([message("msg_1", "call 555-0100")])).to_string();
    let provider = FakeProvider::always(raw(200, &body)).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let got = stream(&gateway, question()).await;
    assert_eq!((outline(&got.output()), got.is_done), (json!(["call [PHONE]"]), true));
}

#[tokio::test]
async fn a_client_that_waits_for_a_judged_stream_gets_the_first_events() {
    let gate = Gate::closed();
    let provider = always(says("hi")).await;
    let rules = BeforeLlmRequestPatch {
        system_prompt: Some("Rules of-the-plugin.".into()),
        ..BeforeLlmRequestPatch::default()
    };
    let plugin = FakePlugin::named("slow")
        .only(&[ExtensionPoint::BeforeLlmRequest, ANSWER])
        .at(ExtensionPoint::BeforeLlmRequest, Act::patch(rules))
        .at(ANSWER, Act::pass().behind(&gate));
    let plugin = plugin.start().await;
    let setup = setup(&provider).plugin(&plugin).set("/limits/budget", "1m");
    let gateway = setup.binding_with("slow", 10, &json!({ "timeout": "30s" })).start().await;
    let began = Instant::now();
    let mut answer = streamed_question(&gateway).send().await.expect("it begins");
    assert!(began.elapsed() < Duration::from_secs(9), "the headers don't wait for the verdict");
    let (status, headers) = (answer.status(), answer.headers().clone());
    let first = answer.chunk().await.expect("a piece").expect("the body goes on");
    let first = String::from_utf8(first.to_vec()).expect("text");
    assert!(first.starts_with("event: response.created\n"), "{first}");
    assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
    gate.open();
    let rest = answer.text().await.expect("a whole body");
    assert!(rest.starts_with("event: response.in_progress\n"), "it goes on from there: {rest}");
    let got = ClientEvents::read(ClientAnswer { status, headers, text: first + &rest });
    assert_eq!((outline(&got.output()), got.is_done), (json!(["hi"]), true));
    assert!(!got.answer.text.contains("of-the-plugin"), "{got:?}");
    assert_eq!(got.response["instructions"], Value::Null);
}

/// The first events of a response that says this.
fn beginning(said: &str) -> ProviderAct {
    let events = events(&response(&json!([message("msg_1", said)])));
    stream_of(&events[..6], StreamEnd::Hang)
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_providers_answer_and_the_questions() {
    let provider = always(beginning("hi, you there")).await;
    let (_plugin, gateway) = redacting(&provider).await;
    let answer = streamed_question(&gateway).send().await;
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
    let pieces = ["event: response.created\ndata: {\"ty".to_owned()];
    let provider = always(ProviderAct::pieces(pieces, StreamEnd::Cut)).await;
    let gateway = setup(&provider).start().await;
    // The connection may end before its client has read that the answer began.
    let request = streamed_question(&gateway);
    let read = async { request.send().await?.text().await };
    read.await.expect_err("it isn't whole");
}
