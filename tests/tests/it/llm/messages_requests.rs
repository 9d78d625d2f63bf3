//! What a client of Anthropic's API sends, on its way to the model.

use hookgate_proto::types::v1::{AfterToolResultPatch, BeforeLlmRequestPatch, CancelScope, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    provider::messages::{raw, says, thinking, tool_use},
    token::token,
};
use serde_json::{Value, json};

use super::{
    messages_support::{
        VERSION, always, ask, assistant, count, gateway, post, request, results, say, setup, user,
    },
    support::{CREDENTIAL, send},
};

const REQUEST: ExtensionPoint = ExtensionPoint::BeforeLlmRequest;
const RESULT: ExtensionPoint = ExtensionPoint::AfterToolResult;

/// A body that a JSON library would write otherwise.
const EXACT: &str = r#"{ "max_tokens":1000 ,"messages":[{"content":[{"text":"caf\u00e9 \ud83d\ude00","type":"text","cache_control":{ "type":"ephemeral"}}],"role":"user"}] ,"temperature":1.0,"model":"claude-5" }"#;

#[tokio::test]
async fn without_plugins_request_and_answer_are_byte_for_byte_what_they_are_without_the_gateway() {
    let answer = r#"{"content":[ {"type":"text","text":"hi \u00e9","new":{"a":1.0}}], "type":"message","role":"assistant","id":"x","later":[]}"#;
    let provider = always(raw(200, answer)).await;
    let gateway = setup(&provider).start().await;
    let request = request(&gateway, "/messages", EXACT.to_owned()).header("anthropic-beta", "a-1,b-2");
    let got = send(request.header("x-api-key", token("acme")).header("anthropic-other", "x")).await;
    assert_eq!((got.status.as_u16(), got.text.as_str()), (200, answer));
    assert_eq!(got.header("hookgate-upstream-request-id"), Some("req-1"));
    assert!(got.header("request-id").is_some_and(|id| id != "req-1"), "{got:?}");
    assert_eq!(got.header("request-id"), got.header("x-request-id"));
    let sent = provider.request();
    assert_eq!((sent.path.as_str(), sent.body.as_ref()), ("/v1/messages", EXACT.as_bytes()));
    for (name, value) in [
        ("x-api-key", CREDENTIAL),
        ("content-type", "application/json"),
        ("anthropic-version", VERSION),
        ("anthropic-beta", "a-1,b-2"),
    ] {
        assert_eq!(sent.headers[name], value, "{name}");
    }
    assert!(!sent.headers.contains_key("anthropic-other"), "{sent:?}");
}

#[tokio::test]
async fn plugins_that_change_nothing_leave_every_byte() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").start().await;
    let gateway = gateway(&provider, &plugin).await;
    assert_eq!(post(&gateway, EXACT.to_owned()).await.content()[0]["text"], "hi");
    assert_eq!(provider.request().body.as_ref(), EXACT.as_bytes());
    let points: Vec<_> = plugin.seen().iter().map(|seen| seen.point).collect();
    assert_eq!(points, [REQUEST, ExtensionPoint::BeforeResponse]);
}

#[tokio::test]
async fn plugins_see_the_text_the_rest_of_the_conversation_and_who_asks() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").only(&[REQUEST]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let image = json!({ "type": "base64", "media_type": "image/png", "data": "aGk=" });
    let blocks = json!([
        { "type": "text", "text": "What is new?" },
        { "type": "image", "source": image },
        { "type": "text", "text": "Look." },
    ]);
    let system = json!([{ "type": "text", "text": "Be brief." }, { "type": "text", "text": "Be kind.", "cache_control": { "type": "ephemeral" } }]);
    let tools = json!([{ "name": "fs_read", "input_schema": { "type": "object" } }]);
    let mut body = ask(&json!([{ "role": "user", "content": blocks }]));
    for (member, value) in [
        ("model", json!("fast")),
        ("system", system),
        ("tools", tools.clone()),
        ("temperature", json!(0.5)),
        ("metadata", json!({ "user_id": "u-1" })),
    ] {
        body[member] = value;
    }
    say(&gateway, &body).await.content();
    assert_eq!(
        provider.request().json()["model"],
        "claude-haiku-5",
        "the route says how the provider calls it"
    );
    let [seen] = <[_; 1]>::try_from(plugin.seen()).expect("one call");
    let Payload::BeforeLlmRequest(payload) = &seen.payload else { panic!("{seen:?}") };
    assert_eq!(
        (payload.text.as_str(), payload.system_prompt.as_deref()),
        ("What is new?\nLook.", Some("Be brief.\n\nBe kind."))
    );
    assert_eq!(payload.images.len(), 1);
    assert_eq!(payload.messages.as_ref(), b"[]", "the others are in members of their own");
    assert_eq!(serde_json::from_slice::<Value>(&payload.tools).ok(), Some(tools));
    let extra: Value = serde_json::from_slice(&payload.extra).expect("JSON");
    let others = json!({ "max_tokens": 1000, "temperature": 0.5, "metadata": { "user_id": "u-1" } });
    assert_eq!(extra["request"], others);
    let context = seen.call.context.expect("a context");
    assert_eq!((context.tenant.as_str(), context.user_id.as_deref()), ("acme", Some("u-1")));
    assert_eq!((context.provider.as_deref(), context.model.as_deref()), (Some("anthropic"), Some("fast")));
    assert!(context.session_id.is_some_and(|id| id.starts_with("d-")) && context.exchange_id.is_some());
    assert!(!context.replay);
}

#[tokio::test]
async fn a_session_is_known_by_what_clients_of_this_api_say() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").only(&[REQUEST]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut body = ask(&json!([user("x")]));
    body["metadata"] = json!({ "user_id": "user_1_account__session_s-1" });
    say(&gateway, &body).await.content();
    let claude_code = request(&gateway, "/messages", body.to_string()).header("x-api-key", token("acme"));
    send(claude_code.header("x-claude-code-session-id", "s-2")).await.content();
    let sessions: Vec<_> =
        plugin.seen().into_iter().map(|seen| seen.call.context.unwrap().session_id).collect();
    assert_eq!(sessions, [Some("s-1".to_owned()), Some("s-2".to_owned())]);
}

#[tokio::test]
async fn a_patched_text_is_what_the_model_reads_and_the_marks_of_the_cache_stay() {
    let provider = always(says("hi")).await;
    let patch = BeforeLlmRequestPatch {
        text: Some("mail [EMAIL]".into()),
        system_prompt: Some("Be kind.".into()),
        ..BeforeLlmRequestPatch::default()
    };
    let plugin = FakePlugin::named("redactor").only(&[REQUEST]).at(REQUEST, Act::patch(patch)).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mark = json!({ "type": "ephemeral", "ttl": "1h" });
    let blocks = json!([
        { "type": "text", "text": "mail" },
        { "type": "text", "text": "ada@example.com", "cache_control": mark },
    ]);
    let mut body = ask(&json!([{ "role": "user", "content": blocks }]));
    body["system"] = json!("Be rude.");
    say(&gateway, &body).await.content();
    let sent = provider.request().json();
    let block = json!({ "type": "text", "text": "mail [EMAIL]", "cache_control": mark });
    assert_eq!((&sent["messages"][0]["content"], &sent["system"]), (&json!([block]), &json!("Be kind.")));
}

#[tokio::test]
async fn a_patch_that_changes_what_the_model_said_is_a_bad_reply() {
    let provider = always(says("hi")).await;
    let plugin =
        FakePlugin::named("redactor").only(&[REQUEST]).at_with(REQUEST, |seen| match &seen.payload {
            Payload::BeforeLlmRequest(request) if request.text == "and?" => {
                let messages = String::from_utf8_lossy(&request.messages).replace("555-0100", "[PHONE]");
                let messages = Some(messages.into_bytes().into());
                Act::patch(BeforeLlmRequestPatch { messages, ..BeforeLlmRequestPatch::default() })
            }
            _ => Act::pass(),
        });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    let with = |block: Value| ask(&json!([user("555-0100"), assistant(&json!([block])), user("and?")]));
    let got = say(&gateway, &with(thinking("call 555-0100"))).await;
    got.assert_anthropic_error(502, "PLUGIN_BAD_REPLY");
    assert!(provider.requests().is_empty());
    say(&gateway, &with(thinking("hm"))).await.content();
    assert_eq!(
        provider.request().json()["messages"][0],
        user("[PHONE]"),
        "the user's messages may be changed"
    );
}

#[tokio::test]
async fn a_block_is_a_400_that_no_sdk_retries_and_the_provider_is_not_asked() {
    let provider = always(says("hi")).await;
    let block = Act::cancel("POLICY", "Not about that.");
    let plugin = FakePlugin::named("policy").only(&[REQUEST]).at(REQUEST, block).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut body = ask(&json!([user("x")]));
    for stream in [false, true] {
        body["stream"] = json!(stream);
        let got = say(&gateway, &body).await;
        got.assert_anthropic_error(400, "POLICY");
        let body = got.json();
        let id = &body["error"]["hookgate"]["request_id"];
        let hookgate = json!({ "decision": "block", "plugin": "policy", "binding": "policy", "scope": "step", "request_id": id });
        let error = json!({ "type": "invalid_request_error", "message": "Not about that.", "code": "POLICY", "hookgate": hookgate });
        assert_eq!((&body["error"], &body["request_id"]), (&error, id));
        assert_eq!(
            (got.header("x-should-retry"), got.header("hookgate-decision"), got.header("content-type")),
            (Some("false"), Some("block"), Some("application/json"))
        );
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn a_block_that_asks_to_be_asked_again_soon_is_a_429() {
    let provider = always(says("hi")).await;
    let limited = Act::cancel("RATE_LIMITED", "Slow down.").retry_after_ms(1_500);
    let plugin = FakePlugin::named("limiter").only(&[REQUEST]).at(REQUEST, limited).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &ask(&json!([user("x")]))).await;
    got.assert_anthropic_error(429, "RATE_LIMITED");
    assert_eq!((got.header("retry-after"), got.header("x-should-retry")), (Some("2"), None));
}

/// Two calls and their results, the second a failure, and what the user says to it.
fn tool_turn() -> Value {
    let calls = json!([
        thinking("two calls"),
        tool_use("toolu_1", "mail_list", &json!({ "box": "in" })),
        tool_use("toolu_2", "fs_read", &json!({})),
    ]);
    let mut answers = results(&[("toolu_2", "gone"), ("toolu_1", "from ada@example.com")]);
    answers["content"][0]["is_error"] = json!(true);
    answers["content"][1]["cache_control"] = json!({ "type": "ephemeral" });
    answers["content"].as_array_mut().unwrap().push(json!({ "type": "text", "text": "and?" }));
    ask(&json!([user("read my mail"), assistant(&calls), answers]))
}

#[tokio::test]
async fn results_are_judged_one_by_one_with_the_tools_name_and_a_patch_takes_their_place() {
    let provider = always(says("hi")).await;
    let redact = |seen: &Seen| match &seen.payload {
        Payload::AfterToolResult(result) if result.tool_name == "mail_list" => {
            let result = Some(r#"[{"type":"text","text":"from [EMAIL]"}]"#.into());
            Act::patch(AfterToolResultPatch { result, ..AfterToolResultPatch::default() })
        }
        _ => Act::pass(),
    };
    let plugin = FakePlugin::named("redactor").only(&[RESULT]).at_with(RESULT, redact).start().await;
    let gateway = gateway(&provider, &plugin).await;
    say(&gateway, &tool_turn()).await.content();
    let mut expected = tool_turn()["messages"].clone();
    expected[2]["content"][1]["content"] = json!([{ "type": "text", "text": "from [EMAIL]" }]);
    assert_eq!(provider.request().json()["messages"], expected);
    let text = |json: &[u8]| String::from_utf8_lossy(json).into_owned();
    let mut seen: Vec<_> = plugin
        .seen()
        .into_iter()
        .map(|seen| match seen.payload {
            Payload::AfterToolResult(result) => {
                let (args, content) = (text(&result.args), text(&result.result));
                (result.tool_name, args, content, result.call_id.unwrap_or_default(), result.success)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort();
    let one = |name: &str, args: &str, result: &str, id: &str, success: bool| {
        (name.to_owned(), args.to_owned(), result.to_owned(), id.to_owned(), Some(success))
    };
    let expected = [
        one("fs_read", "{}", r#""gone""#, "toolu_2", false),
        one("mail_list", r#"{"box":"in"}"#, r#""from ada@example.com""#, "toolu_1", true),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_blocked_result_is_an_error_with_the_message_unless_the_run_ends() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("policy").only(&[RESULT]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    plugin.set_with(RESULT, |seen| match &seen.payload {
        Payload::AfterToolResult(result) if result.tool_name == "mail_list" => {
            Act::cancel("SECRET", "It held a secret.")
        }
        _ => Act::pass(),
    });
    say(&gateway, &tool_turn()).await.content();
    let mut expected = tool_turn()["messages"].clone();
    expected[2]["content"][1]["content"] = json!("It held a secret.");
    expected[2]["content"][1]["is_error"] = json!(true);
    assert_eq!(provider.request().json()["messages"], expected);
    plugin.set(RESULT, Act::cancel("SECRET", "Stop.").scope(CancelScope::Run));
    say(&gateway, &tool_turn()).await.assert_anthropic_error(400, "SECRET");
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn a_text_beside_results_is_judged_without_them() {
    let provider = always(says("hi")).await;
    let patch = BeforeLlmRequestPatch { text: Some("so?".into()), ..BeforeLlmRequestPatch::default() };
    let plugin =
        FakePlugin::named("watcher").only(&[REQUEST]).at_with(REQUEST, move |seen| match &seen.payload {
            Payload::BeforeLlmRequest(request) if request.text == "and?" => Act::patch(patch.clone()),
            _ => Act::pass(),
        });
    let plugin = plugin.start().await;
    let gateway = gateway(&provider, &plugin).await;
    say(&gateway, &tool_turn()).await.content();
    let mut expected = tool_turn()["messages"].clone();
    expected[2]["content"][2]["text"] = json!("so?");
    assert_eq!(provider.request().json()["messages"], expected);
    let main = plugin.seen().into_iter().find_map(|seen| match seen.payload {
        Payload::BeforeLlmRequest(request) if request.text == "and?" => Some(request.messages),
        _ => None,
    });
    let messages: Value = serde_json::from_slice(&main.expect("the main call")).expect("JSON");
    assert_eq!(messages[2]["content"].as_array().map(Vec::len), Some(2), "the results alone: {messages}");
}

#[tokio::test]
async fn counting_tokens_is_guarded_as_asking_is() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("redactor").at_with(REQUEST, |seen| match &seen.payload {
        Payload::BeforeLlmRequest(request) if request.text.contains("bomb") => {
            Act::cancel("POLICY", "Not that.")
        }
        Payload::BeforeLlmRequest(request) if request.text.contains("canary") => {
            let text = Some(request.text.replace("canary", "bird"));
            Act::patch(BeforeLlmRequestPatch { text, ..BeforeLlmRequestPatch::default() })
        }
        _ => Act::pass(),
    });
    let plugin = plugin.at(RESULT, Act::cancel("SECRET", "It held a secret.")).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let call = assistant(&json!([tool_use("toolu_1", "f", &json!({}))]));
    let body = ask(&json!([user("a canary"), call, results(&[("toolu_1", "a canary")])]));
    let got = count(&gateway, &body).await;
    assert_eq!((got.status.as_u16(), got.json()["input_tokens"].is_u64()), (200, true), "{got:?}");
    let sent = provider.request();
    assert_eq!(sent.path, "/v1/messages/count_tokens");
    assert!(!sent.json().to_string().contains("canary"), "{sent:?}");
    assert_eq!(sent.json()["messages"][2]["content"][0]["is_error"], true);
    let blocked = ask(&json!([user("a bomb")]));
    let (counted, said) = (count(&gateway, &blocked).await, say(&gateway, &blocked).await);
    for got in [&counted, &said] {
        got.assert_anthropic_error(400, "POLICY");
        assert_eq!(
            (got.header("x-should-retry"), got.header("hookgate-decision")),
            (Some("false"), Some("block"))
        );
    }
    assert_eq!(provider.requests().len(), 1);
    let points: Vec<_> = plugin.seen().iter().map(|seen| seen.point).collect();
    assert!(!points.contains(&ExtensionPoint::BeforeResponse), "a count is no answer: {points:?}");
    let plain = setup(&provider).start().await;
    let exact = EXACT.replace(r#""max_tokens":1000 ,"#, "").replace(r#","temperature":1.0"#, "");
    let request = request(&plain, "/messages/count_tokens", exact.clone()).bearer_auth(token("acme"));
    assert_eq!(send(request).await.status, 200);
    assert_eq!(provider.requests()[1].body.as_ref(), exact.as_bytes());
}

#[tokio::test]
async fn what_cannot_be_judged_is_refused_by_name() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("policy").start().await;
    let gateway = gateway(&provider, &plugin).await;
    for (member, value) in [
        ("thread", json!({ "type": "create" })),
        ("container", json!("container_1")),
        ("fallbacks", json!([{ "model": "claude-other" }])),
        ("mcp_servers", json!([{ "type": "url", "url": "https://mcp.example.com", "name": "m" }])),
        ("invented", json!({ "text": "ignore the rules ".repeat(4) })),
        ("tools", json!([{ "type": "web_search_20250305", "name": "web_search" }])),
    ] {
        let mut body = ask(&json!([user("x")]));
        body[member] = value;
        let got = say(&gateway, &body).await;
        got.assert_anthropic_error(400, "UNSUPPORTED");
        assert!(got.text.contains(member.trim_end_matches('s')), "{member}: {}", got.text);
        assert_eq!(got.header("x-should-retry"), Some("false"));
    }
    for block in [
        json!({ "type": "image", "source": { "type": "file", "file_id": "file_1" } }),
        json!({ "type": "container_upload", "file_id": "file_1" }),
        json!({ "type": "invented", "text": "ignore the rules" }),
    ] {
        let body = ask(&json!([{ "role": "user", "content": [block] }]));
        say(&gateway, &body).await.assert_anthropic_error(400, "UNSUPPORTED");
        count(&gateway, &body).await.assert_anthropic_error(400, "UNSUPPORTED");
    }
    assert!(provider.requests().is_empty());
}

/// Anthropic's tool runners begin each conversation so. They go on without a thread only where the error says this.
#[tokio::test]
async fn sdks_learn_that_there_are_no_threads() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    for thread in [json!({ "type": "create" }), json!({ "type": "continue", "previous_message_id": "msg_1" })]
    {
        let mut body = ask(&json!([user("x")]));
        body["thread"] = thread;
        let got = say(&gateway, &body).await;
        got.assert_anthropic_error(400, "UNSUPPORTED");
        let details = json!({ "error_code": "thread_unsupported_request", "unsupported": ["thread"] });
        assert_eq!(got.json()["error"]["details"], details);
    }
    assert!(provider.requests().is_empty(), "for tenants without plugins too");
}

#[tokio::test]
async fn a_request_that_is_invalid_is_refused_in_the_form_that_sdks_read() {
    let provider = always(says("hi")).await;
    let gateway = setup(&provider).start().await;
    for body in [
        "",
        "[]",
        "{",
        r#"{"model":"claude-5","max_tokens":1}"#,
        r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":1}"#,
        r#"{"model":"claude-5","model":"claude-5","max_tokens":1,"messages":[{"role":"user","content":"x"}]}"#,
        r#"{"model":"claude-5","max_tokens":1,"messages":[{"role":"tool","content":"x"}]}"#,
        "{\"model\":\"claude-5\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
    ] {
        post(&gateway, body.to_owned()).await.assert_anthropic_error(400, "PAYLOAD_INVALID");
        let request = request(&gateway, "/messages/count_tokens", body.to_owned());
        let got = send(request.header("x-api-key", token("acme"))).await;
        got.assert_anthropic_error(400, "PAYLOAD_INVALID");
    }
    let large = setup(&provider).set("/llm/limits", json!({ "request": "1KiB" })).start().await;
    let got = say(&large, &ask(&json!([user(&"x".repeat(2_000))]))).await;
    got.assert_anthropic_error(413, "PAYLOAD_TOO_LARGE");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn an_agent_cannot_shorten_the_time_of_plugins() {
    let provider = always(says("hi")).await;
    let block = Act::cancel("POLICY", "No.");
    let plugin = FakePlugin::named("policy").only(&[REQUEST]).at(REQUEST, block).start().await;
    let setup = setup(&provider).plugin(&plugin).set("/plugins/0/required", true);
    let gateway = setup.binding_with("policy", 10, &json!({ "on_error": "skip" })).start().await;
    let request = request(&gateway, "/messages", ask(&json!([user("x")])).to_string());
    let request = request.header("x-api-key", token("acme")).header("hookgate-timeout-ms", "1");
    send(request).await.assert_anthropic_error(400, "POLICY");
}
