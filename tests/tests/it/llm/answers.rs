//! What a model answers, on its way to the client.

use hookgate_proto::types::v1::{BeforeResponsePatch, BeforeToolCallPatch, CancelScope, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    metrics::Scrape,
    provider::{FakeProvider, ProviderAct, completion},
};
use serde_json::{Value, json};

use super::support::{CREDENTIAL, ask, chat, gateway, setup, user};

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

#[tokio::test]
async fn a_patched_answer_is_what_the_client_gets() {
    let provider = FakeProvider::always(ProviderAct::says("call 555-0100")).await;
    let patch =
        BeforeResponsePatch { content: Some("call [PHONE]".into()), ..BeforeResponsePatch::default() };
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).at(ANSWER, Act::patch(patch)).start().await;
    let gateway = gateway(&provider, &plugin).await;
    assert_eq!(chat(&gateway, &question()).await.message()["content"], "call [PHONE]");
    let [seen] = <[_; 1]>::try_from(plugin.seen()).expect("one call");
    let Payload::BeforeResponse(payload) = seen.payload else { panic!("{seen:?}") };
    assert_eq!((payload.content.as_str(), payload.stop_reason.as_deref()), ("call 555-0100", Some("stop")));
    assert_eq!(payload.token_usage.map(|usage| (usage.input, usage.output)), Some((5, 7)));
}

#[tokio::test]
async fn a_blocked_answer_is_its_message_and_an_ordinary_end() {
    let provider = FakeProvider::always(ProviderAct::says("secret")).await;
    let plugin = FakePlugin::named("policy")
        .only(&[ANSWER])
        .at(ANSWER, Act::cancel("POLICY", "I can't say."))
        .start()
        .await;
    let gateway = gateway(&provider, &plugin).await;
    let got = chat(&gateway, &question()).await;
    assert_eq!(got.message()["content"], "I can't say.");
    assert_eq!(
        (&got.json()["choices"][0]["finish_reason"], got.header("hookgate-decision")),
        (&json!("stop"), Some("block"))
    );
    assert!(!got.text.contains("secret"), "{}", got.text);
    let mut json_mode = question();
    json_mode["response_format"] = json!({ "type": "json_object" });
    let message = chat(&gateway, &json_mode).await.message();
    assert_eq!((&message["content"], &message["refusal"]), (&Value::Null, &json!("I can't say.")));
}

#[tokio::test]
async fn each_choice_is_judged() {
    let choice = |index: u32, text: &str| json!({ "index": index, "message": { "role": "assistant", "content": text }, "finish_reason": "stop" });
    let body = completion(&json!([choice(0, "one"), choice(1, "two"), choice(2, "three")]));
    let provider = FakeProvider::always(ProviderAct::json(&body)).await;
    let plugin = FakePlugin::named("policy").only(&[ANSWER]);
    let plugin = plugin.at_with(ANSWER, |seen| match &seen.payload {
        Payload::BeforeResponse(answer) if answer.content == "two" => Act::cancel("POLICY", "no"),
        _ => Act::pass(),
    });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut body = question();
    body["n"] = json!(3);
    let got = chat(&gateway, &body).await.json();
    let texts: Vec<_> = (0..3).map(|at| got["choices"][at]["message"]["content"].clone()).collect();
    assert_eq!(texts, [json!("one"), json!("no"), json!("three")]);
}

#[tokio::test]
async fn a_refused_tool_call_is_a_note_and_the_others_stay_as_they_are() {
    let calls = [("bad.shell", "{\"cmd\":\"rm\"}"), ("fs.read", "{ \"path\": \"/a\" }")];
    let provider = FakeProvider::always(ProviderAct::calls(&calls)).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, no_bad_tools).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = chat(&gateway, &question()).await;
    let message = got.message();
    assert_eq!(message["content"], "Tool call bad.shell was refused: Not on your plan.");
    assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(1));
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{ \"path\": \"/a\" }");
    assert_eq!(
        (&got.json()["choices"][0]["finish_reason"], got.header("hookgate-decision")),
        (&json!("tool_calls"), Some("block"))
    );
}

#[tokio::test]
async fn with_all_tool_calls_refused_the_turn_ends() {
    let provider = FakeProvider::always(ProviderAct::calls(&[("bad.shell", "{}")])).await;
    let plugin = FakePlugin::named("tools").only(&[CALL]).at_with(CALL, no_bad_tools).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = chat(&gateway, &question()).await;
    assert_eq!(got.json()["choices"][0]["finish_reason"], "stop");
    assert!(got.message().get("tool_calls").is_none(), "{}", got.text);
    plugin.set(CALL, Act::cancel("STOP", "The run is over.").scope(CancelScope::Run));
    assert_eq!(chat(&gateway, &question()).await.message()["content"], "The run is over.");
}

#[tokio::test]
async fn a_patched_tool_call_is_what_the_client_runs_and_broken_arguments_are_refused() {
    let provider = FakeProvider::always(ProviderAct::calls(&[
        ("fs.read", "{\"path\":\"/etc\"}"),
        ("fs.read", "{\"path\":"),
    ]))
    .await;
    let patch =
        BeforeToolCallPatch { args: Some(r#"{"path":"/safe"}"#.into()), ..BeforeToolCallPatch::default() };
    let plugin = FakePlugin::named("paths").only(&[CALL]).at(CALL, Act::patch(patch)).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let message = chat(&gateway, &question()).await.message();
    assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(1), "{message}");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"path":"/safe"}"#);
    assert_eq!(message["content"], "Tool call fs.read was refused: its arguments are not valid JSON");
}

#[tokio::test]
async fn without_a_decision_about_an_answer_the_client_gets_none_of_it() {
    let provider = FakeProvider::always(ProviderAct::says("secret")).await;
    let plugin = FakePlugin::named("broken").only(&[ANSWER]).at(ANSWER, Act::hang()).start().await;
    let setup = setup(&provider).plugin(&plugin).binding_with("broken", 10, &json!({ "timeout": "200ms" }));
    let gateway = setup.start().await;
    let got = chat(&gateway, &question()).await;
    got.assert_error(504, "PLUGIN_TIMEOUT");
    assert!(!got.text.contains("secret"));
    assert_eq!(got.header("x-should-retry"), None, "another try may end otherwise");
}

#[tokio::test]
async fn the_providers_errors_pass_but_for_the_operators_credential() {
    let limited =
        r#"{"error":{"message":"slow down","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#;
    let provider =
        FakeProvider::start(move |request| match request.json()["messages"][0]["content"].as_str() {
            Some("limited") => {
                let mut act = ProviderAct::text(429, limited);
                if let ProviderAct::Answer(_, headers, _) = &mut act {
                    headers.push(("retry-after", "7".into()));
                    headers.push(("set-cookie", "a=b".into()));
                }
                act
            }
            Some("unauthorized") => ProviderAct::text(
                401,
                &format!(r#"{{"error":{{"message":"Incorrect API key: {CREDENTIAL}"}}}}"#),
            ),
            Some("html") => {
                ProviderAct::Answer(200, vec![("content-type", "text/html".into())], "<p>hi".into())
            }
            _ => ProviderAct::text(200, "{}"),
        });
    let provider = provider.await;
    let plugin = FakePlugin::named("watcher").only(&[ANSWER]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = chat(&gateway, &ask(&json!([user("limited")]))).await;
    assert_eq!((got.status.as_u16(), got.text.as_str()), (429, limited));
    assert_eq!((got.header("retry-after"), got.header("set-cookie")), (Some("7"), None));
    let got = chat(&gateway, &ask(&json!([user("unauthorized")]))).await;
    got.assert_error(502, "UPSTREAM_CREDENTIAL");
    assert!(!got.text.contains(CREDENTIAL), "{}", got.text);
    for what in ["html", "empty"] {
        chat(&gateway, &ask(&json!([user(what)]))).await.assert_error(502, "UPSTREAM_BAD_ANSWER");
    }
    assert!(plugin.seen().is_empty(), "nothing of it was an answer");
    assert!(!gateway.log().to_string().contains(CREDENTIAL), "{}", gateway.log());
}

#[tokio::test]
async fn a_provider_that_is_away_slow_or_endless_is_named() {
    let provider = FakeProvider::start(|request| match request.json()["messages"][0]["content"].as_str() {
        Some("slow") => ProviderAct::Hang,
        _ => ProviderAct::says(&"x".repeat(5_000)),
    });
    let provider = provider.await;
    let limits = json!({ "first_byte": "300ms", "answer": "4KiB" });
    let gateway = setup(&provider).set("/llm/limits", limits).start().await;
    chat(&gateway, &ask(&json!([user("slow")]))).await.assert_error(504, "UPSTREAM_TIMEOUT");
    chat(&gateway, &ask(&json!([user("long")]))).await.assert_error(502, "ANSWER_TOO_LARGE");
    drop(provider);
    // The kept connection ends with the provider's tasks; a new one is refused.
    let gone = setup(&FakeProvider::always(ProviderAct::says("")).await).start().await;
    chat(&gone, &ask(&json!([user("x")]))).await.assert_error(503, "UPSTREAM_UNAVAILABLE");
}

#[tokio::test]
async fn a_block_of_the_run_replaces_all_choices() {
    let call =
        json!([{ "id": "c", "type": "function", "function": { "name": "bad.shell", "arguments": "{}" } }]);
    let choice =
        |index: u32, message: Value| json!({ "index": index, "message": message, "finish_reason": "stop" });
    let texts = choice(0, json!({ "role": "assistant", "content": "one" }));
    let calls = choice(1, json!({ "role": "assistant", "content": null, "tool_calls": call }));
    let provider = FakeProvider::always(ProviderAct::json(&completion(&json!([texts, calls])))).await;
    let stop = Act::cancel("STOP", "The run is over.").scope(CancelScope::Run);
    let plugin = FakePlugin::named("tools").only(&[CALL]).at(CALL, stop).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut body = question();
    body["n"] = json!(2);
    let got = chat(&gateway, &body).await.json();
    for choice in got["choices"].as_array().expect("a list") {
        assert_eq!(choice["message"]["content"], "The run is over.", "{got}");
        assert!(choice["message"].get("tool_calls").is_none(), "{got}");
    }
}

#[tokio::test]
async fn what_the_model_said_within_an_error_of_the_provider_is_not_shown() {
    let error = r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"secret"}}"#;
    let provider = FakeProvider::always(ProviderAct::text(400, error)).await;
    let plugin = FakePlugin::named("policy").only(&[ANSWER]).start().await;
    let judged = gateway(&provider, &plugin).await;
    let got = chat(&judged, &question()).await;
    got.assert_error(400, "tool_use_failed");
    assert!(!got.text.contains("secret"), "{}", got.text);
    let plain = setup(&provider).start().await;
    assert_eq!(chat(&plain, &question()).await.text, error, "a tenant without plugins has a plain proxy");
}

#[tokio::test]
async fn errors_about_the_credential_are_told_from_those_about_the_request() {
    let error = |message: &str| {
        json!({ "error": { "message": message, "type": "t", "param": null, "code": "c" } }).to_string()
    };
    let flagged = error("Your input was flagged, organization org-Ab12");
    let cases = [
        (401, error("Incorrect key"), 502, "UPSTREAM_CREDENTIAL"),
        (402, error("No credit"), 502, "UPSTREAM_CREDENTIAL"),
        (403, error("Not for this key"), 502, "UPSTREAM_CREDENTIAL"),
        (400, error("API_KEY_INVALID"), 502, "UPSTREAM_CREDENTIAL"),
        (
            400,
            json!({ "error": "Incorrect API key provided: sk***wn." }).to_string(),
            502,
            "UPSTREAM_CREDENTIAL",
        ),
        (429, error(&format!("The key {CREDENTIAL} is over its limit")), 429, "c"),
        (403, flagged, 400, "c"),
        (400, error("Too many tokens"), 400, "c"),
    ];
    for (status, body, expected, code) in cases {
        let provider = FakeProvider::always(ProviderAct::text(status, &body)).await;
        let plugin = FakePlugin::named("policy").only(&[ANSWER]).start().await;
        for gateway in [setup(&provider).start().await, gateway(&provider, &plugin).await] {
            let got = chat(&gateway, &question()).await;
            got.assert_error(expected, code);
            assert!(!got.text.contains("org-Ab12") && !got.text.contains(CREDENTIAL), "{}", got.text);
        }
    }
}

#[tokio::test]
async fn an_error_of_the_provider_is_no_answer_in_metrics_and_the_log() {
    let cases = [(500, "WARN"), (503, "WARN"), (429, "INFO"), (400, "INFO"), (403, "INFO")];
    let provider = FakeProvider::start(|request| match request.json()["messages"][0]["content"].as_str() {
        Some("ok") => ProviderAct::says("hi"),
        status => {
            let status = status.and_then(|status| status.parse().ok()).expect("a status");
            ProviderAct::text(
                status,
                r#"{"error":{"message":"It was flagged.","type":"t","param":null,"code":"c"}}"#,
            )
        }
    });
    let provider = provider.await;
    let gateway = setup(&provider).set("/telemetry/slow_invocation", "60s").start().await;
    for (status, level) in cases {
        let got = chat(&gateway, &ask(&json!([user(&status.to_string())]))).await;
        let shown = if status == 403 { 400 } else { status };
        assert_eq!(got.status.as_u16(), shown, "{got:?}");
        let line = gateway.log().wait_for(|line| line.field("upstream_status") == Some(&json!(status))).await;
        let fields = [line.field("event"), line.field("outcome")].map(|field| field.and_then(Value::as_str));
        assert_eq!(fields, [Some("llm.exchange"), Some("provider_error")], "{}", line.text);
        assert_eq!(
            (line.level(), line.message()),
            (Some(level), Some("a provider answered with an error")),
            "{}",
            line.text
        );
    }
    assert_eq!(chat(&gateway, &ask(&json!([user("ok")]))).await.status, 200);
    let scrape = Scrape::of(&gateway).await;
    let count = |labels: &[(&str, &str)]| scrape.sum("hookgate_llm_exchange_duration_seconds_count", labels);
    for (status, _) in cases {
        let labels = [("hookgate_outcome", "provider_error"), ("error_type", &*status.to_string())];
        assert_eq!(count(&labels), 1.0, "{status}: {}", scrape.text);
    }
    assert_eq!(count(&[("hookgate_outcome", "answer")]), 1.0, "{}", scrape.text);
}

#[tokio::test]
async fn what_plugins_cannot_see_is_withheld_also_from_those_that_only_advise() {
    let message = json!({ "role": "assistant", "content": "hi", "thoughts": "x".repeat(100) });
    let body = completion(&json!([{ "index": 0, "message": message, "finish_reason": "stop" }]));
    let provider = FakeProvider::always(ProviderAct::json(&body)).await;
    let plugin = FakePlugin::named("redactor").only(&[ANSWER]).start().await;
    let setup = setup(&provider).plugin(&plugin).set("/plugins/0/required", true);
    let gateway = setup.binding_with("redactor", 10, &json!({ "mode": "advise" })).start().await;
    assert!(chat(&gateway, &question()).await.message().get("thoughts").is_none());
    let line = gateway.log().wait_for(|line| line.field("withheld").is_some()).await;
    assert_eq!(line.field("withheld"), Some(&json!("thoughts")));
}

#[tokio::test]
async fn bytes_of_answers_count_in_the_memory_of_calls() {
    let provider = FakeProvider::always(ProviderAct::says(&"x".repeat(3 << 20))).await;
    let limits = json!({ "request": "1MiB", "bytes_in_flight": "2MiB" });
    let gateway = setup(&provider).set("/limits", limits).start().await;
    chat(&gateway, &question()).await.assert_error(503, "OVERLOADED");
}
