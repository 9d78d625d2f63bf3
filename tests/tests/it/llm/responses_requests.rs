//! What a client of OpenAI's Responses sends, on its way to the model.

use hookgate_proto::types::v1::{AfterToolResultPatch, BeforeLlmRequestPatch, CancelScope, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    provider::responses::{function_call, message, raw, reasoning, says},
};
use serde_json::{Value, json};

use super::{
    responses_support::{always, ask, outline, post, result, say, stream},
    support::{CREDENTIAL, gateway, setup, user},
};

const REQUEST: ExtensionPoint = ExtensionPoint::BeforeLlmRequest;
const RESULT: ExtensionPoint = ExtensionPoint::AfterToolResult;
const ANSWER: ExtensionPoint = ExtensionPoint::BeforeResponse;

/// A body that a JSON library would write otherwise.
const EXACT: &str = r#"{ "store":false,"input":[{"content":[{"text":"caf\u00e9 \ud83d\ude00","type":"input_text"}],"role":"user"}] ,"temperature":1.0,"model":"gpt-5" }"#;

#[tokio::test]
async fn without_plugins_request_and_answer_are_byte_for_byte_what_they_are_without_the_gateway() {
    let answer = r#"{"output":[ {"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi \u00e9","new":{"a":1.0}}]}], "id":"x","later":[]}"#;
    let provider = always(raw(200, answer)).await;
    let gateway = setup(&provider).start().await;
    let got = post(&gateway, EXACT.to_owned()).await;
    assert_eq!((got.status.as_u16(), got.text.as_str()), (200, answer));
    assert_eq!(got.header("hookgate-upstream-request-id"), Some("req-1"));
    let sent = provider.request();
    assert_eq!((sent.path.as_str(), sent.body.as_ref()), ("/v1/responses", EXACT.as_bytes()));
    assert_eq!(sent.headers["authorization"], format!("Bearer {CREDENTIAL}"));
    assert_eq!(sent.headers["content-type"], "application/json");
}

#[tokio::test]
async fn plugins_that_change_nothing_leave_every_byte() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").start().await;
    let gateway = gateway(&provider, &plugin).await;
    let texts = [EXACT, r#"{"model": "gpt-5" , "store":false, "input":"caf\u00e9"}"#];
    for exact in texts {
        assert_eq!(outline(&post(&gateway, exact.to_owned()).await.output()), json!(["hi"]));
        assert_eq!(provider.requests().pop().expect("a request").body.as_ref(), exact.as_bytes());
    }
    let points: Vec<_> = plugin.seen().iter().map(|seen| seen.point).collect();
    assert_eq!(points, [REQUEST, ANSWER, REQUEST, ANSWER]);
}

#[tokio::test]
async fn the_provider_keeps_nothing_whatever_the_client_says() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").start().await;
    let gateways = [gateway(&provider, &plugin).await, setup(&provider).start().await];
    let input = json!([user("x"), message("msg_9", "hi"), user("and?")]);
    for gateway in &gateways {
        for (input, store) in [
            (json!("x"), None),
            (json!("x"), Some(json!(true))),
            (input.clone(), None),
            (input.clone(), Some(Value::Null)),
            (input.clone(), Some(json!(false))),
        ] {
            let mut body = json!({ "model": "gpt-5", "input": input });
            if let Some(store) = store {
                body["store"] = store;
            }
            say(gateway, &body).await.output();
            body["store"] = json!(false);
            assert_eq!(provider.requests().pop().expect("a request").json(), body);
        }
    }
}

/// A client that doesn't know it sends the ids of thoughts that the provider hasn't kept.
#[tokio::test]
async fn thoughts_that_the_provider_has_not_kept_are_left_out() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").start().await;
    let gateways = [gateway(&provider, &plugin).await, setup(&provider).start().await];
    let mut forgotten = reasoning("rs_1", "hm");
    forgotten["encrypted_content"] = Value::Null;
    let (kept, said) = (reasoning("rs_2", "so"), message("msg_9", "hi"));
    let body = json!({ "model": "gpt-5", "input": [user("x"), forgotten, kept, said, user("and?")] });
    let mut keeps_nothing = body.clone();
    keeps_nothing["store"] = json!(false);
    for gateway in &gateways {
        for body in [&body, &keeps_nothing] {
            say(gateway, body).await.output();
            let sent = provider.requests().pop().expect("a request").json();
            assert_eq!(sent["input"], json!([user("x"), kept, said, user("and?")]));
        }
    }
}

#[tokio::test]
async fn plugins_see_the_text_the_rest_of_the_conversation_and_who_asks() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").only(&[REQUEST]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let parts = json!([
        { "type": "input_text", "text": "What is new?" },
        { "type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto" },
        { "type": "input_text", "text": "Look." },
    ]);
    let tools = json!([{ "type": "function", "name": "fs_read", "parameters": { "type": "object" } }]);
    let developer = json!({ "role": "developer", "content": "Be kind." });
    let mut body = ask(&json!([developer, { "role": "user", "content": parts }]));
    for (member, value) in [
        ("model", json!("fast")),
        ("instructions", json!("Be brief.")),
        ("tools", tools.clone()),
        ("temperature", json!(0.5)),
        ("metadata", json!({ "task": "t-1" })),
        ("safety_identifier", json!("u-1")),
    ] {
        body[member] = value;
    }
    say(&gateway, &body).await.output();
    assert_eq!(provider.request().json()["model"], "gpt-5-nano", "the route says how the provider calls it");
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
    let others = json!({
        "temperature": 0.5, "metadata": { "task": "t-1" }, "safety_identifier": "u-1", "include": body["include"],
    });
    assert_eq!(extra["request"], others);
    let context = seen.call.context.expect("a context");
    assert_eq!((context.tenant.as_str(), context.user_id.as_deref()), ("acme", Some("u-1")));
    assert_eq!((context.provider.as_deref(), context.model.as_deref()), (Some("openai"), Some("fast")));
    assert!(context.session_id.is_some_and(|id| id.starts_with("d-")) && context.exchange_id.is_some());
    assert!(!context.replay);
}

#[tokio::test]
async fn a_session_is_known_by_the_key_of_the_prompt_cache() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").only(&[REQUEST]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut body = ask(&json!([user("x")]));
    body["prompt_cache_key"] = json!("s-1");
    say(&gateway, &body).await.output();
    let sessions: Vec<_> =
        plugin.seen().into_iter().map(|seen| seen.call.context.unwrap().session_id).collect();
    assert_eq!(sessions, [Some("s-1".to_owned())]);
}

#[tokio::test]
async fn a_patched_text_is_what_the_model_reads_in_the_form_of_the_clients() {
    let provider = always(says("hi")).await;
    let patch =
        BeforeLlmRequestPatch { text: Some("mail [EMAIL]".into()), ..BeforeLlmRequestPatch::default() };
    let plugin = FakePlugin::named("redactor").only(&[REQUEST]).at(REQUEST, Act::patch(patch)).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let parts = json!([
        { "type": "input_text", "text": "mail" },
        { "type": "input_text", "text": "ada@example.com" },
    ]);
    let part = json!([{ "type": "input_text", "text": "mail [EMAIL]" }]);
    for (input, expected) in [
        (json!("mail ada@example.com"), json!("mail [EMAIL]")),
        (json!([user("mail ada@example.com")]), json!([user("mail [EMAIL]")])),
        (json!([{ "role": "user", "content": parts }]), json!([{ "role": "user", "content": part }])),
    ] {
        say(&gateway, &ask(&input)).await.output();
        assert_eq!(provider.requests().pop().expect("a request").json()["input"], expected, "{input}");
    }
}

/// Writes rules of its own into the request, and marks it.
fn govern(seen: &Seen) -> Act {
    let Payload::BeforeLlmRequest(request) = &seen.payload else { return Act::pass() };
    let extra = String::from_utf8_lossy(&request.extra).replace("t-1", "of-the-plugin");
    Act::patch(BeforeLlmRequestPatch {
        system_prompt: Some("Rules of-the-plugin.".into()),
        extra: Some(extra.into_bytes().into()),
        ..BeforeLlmRequestPatch::default()
    })
}

#[tokio::test]
async fn an_answer_repeats_what_the_client_wrote_and_not_what_plugins_made_of_it() {
    let provider = always(says("hi, you there")).await;
    for points in [&[REQUEST][..], &[REQUEST, ANSWER]] {
        let plugin = FakePlugin::named("rules").only(points).at_with(REQUEST, govern).start().await;
        let gateway = gateway(&provider, &plugin).await;
        let developer = json!({ "role": "developer", "content": "Be kind." });
        for (instructions, input) in
            [(json!("Be brief."), json!([user("x")])), (Value::Null, json!([developer, user("x")]))]
        {
            let mut body = ask(&input);
            body["metadata"] = json!({ "task": "t-1" });
            if !instructions.is_null() {
                body["instructions"] = instructions.clone();
            }
            let got = say(&gateway, &body).await;
            let sent = provider.requests().pop().expect("a request").json();
            assert_eq!(
                (&sent["instructions"], &sent["metadata"], &sent["input"]),
                (&json!("Rules of-the-plugin."), &json!({ "task": "of-the-plugin" }), &json!([user("x")]))
            );
            let streamed = stream(&gateway, body).await;
            for repeated in [got.json(), streamed.response.clone()] {
                assert_eq!(
                    (&repeated["instructions"], &repeated["metadata"]),
                    (&instructions, &json!({ "task": "t-1" })),
                    "{points:?}"
                );
                assert_eq!(outline(&repeated["output"]), json!(["hi, you there"]));
            }
            for text in [&got.text, &streamed.answer.text] {
                assert!(!text.contains("of-the-plugin"), "{points:?}: {text}");
            }
            assert!(streamed.is_done && streamed.names.len() > 4, "{streamed:?}");
        }
    }
}

#[tokio::test]
async fn of_what_the_model_said_only_texts_may_be_changed() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("redactor").only(&[REQUEST]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let change = |from: &'static str, to: &'static str| {
        plugin.set_with(REQUEST, move |seen| match &seen.payload {
            Payload::BeforeLlmRequest(request) if request.text == "and?" => {
                let messages = String::from_utf8_lossy(&request.messages).replace(from, to);
                let messages = Some(messages.into_bytes().into());
                Act::patch(BeforeLlmRequestPatch { messages, ..BeforeLlmRequestPatch::default() })
            }
            _ => Act::pass(),
        });
    };
    let conversation = |phone: &str| {
        let said = message("msg_9", &format!("call {phone}"));
        json!([user(phone), reasoning("rs_1", "hm"), said, user("and?")])
    };
    change("555-0100", "[PHONE]");
    say(&gateway, &ask(&conversation("555-0100"))).await.output();
    assert_eq!(provider.request().json()["input"], conversation("[PHONE]"));
    for (from, to) in [
        ("\"rs_1\"", "\"rs_2\""),
        ("\"type\":\"reasoning\"", "\"type\":\"message\""),
        ("\"role\":\"assistant\"", "\"role\":\"user\""),
    ] {
        change(from, to);
        let got = say(&gateway, &ask(&conversation("x"))).await;
        got.assert_error(502, "PLUGIN_BAD_REPLY");
    }
    plugin.set_with(REQUEST, |seen| match &seen.payload {
        Payload::BeforeLlmRequest(request) if request.text == "and?" => {
            let messages = Some("[]".into());
            Act::patch(BeforeLlmRequestPatch { messages, ..BeforeLlmRequestPatch::default() })
        }
        _ => Act::pass(),
    });
    say(&gateway, &ask(&conversation("x"))).await.assert_error(502, "PLUGIN_BAD_REPLY");
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn a_block_is_a_400_that_no_sdk_retries_and_the_provider_is_not_asked() {
    let provider = always(says("hi")).await;
    let block = Act::cancel("POLICY", "Not about that.");
    let plugin = FakePlugin::named("policy").only(&[REQUEST]).at(REQUEST, block).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut body = ask(&json!("x"));
    for stream in [false, true] {
        body["stream"] = json!(stream);
        let got = say(&gateway, &body).await;
        got.assert_error(400, "POLICY");
        let error = got.json()["error"].clone();
        assert_eq!(
            (&error["message"], &error["type"], &error["hookgate"]["plugin"]),
            (&json!("Not about that."), &json!("invalid_request_error"), &json!("policy"))
        );
        assert_eq!(
            (got.header("x-should-retry"), got.header("hookgate-decision"), got.header("content-type")),
            (Some("false"), Some("block"), Some("application/json"))
        );
    }
    plugin.set(REQUEST, Act::cancel("RATE_LIMITED", "Slow down.").retry_after_ms(1_500));
    let got = say(&gateway, &body).await;
    got.assert_error(429, "RATE_LIMITED");
    assert_eq!((got.header("retry-after"), got.header("x-should-retry")), (Some("2"), None));
    assert!(provider.requests().is_empty());
}

/// Two calls and their results, the second a failure, and what the user says to it.
fn tool_turn() -> Value {
    let mut gone = result("2", "gone");
    gone["status"] = json!("incomplete");
    ask(&json!([
        user("read my mail"),
        reasoning("rs_1", "two calls"),
        function_call("1", "mail_list", r#"{"box":"in"}"#),
        function_call("2", "fs_read", "{}"),
        gone,
        result("1", "from ada@example.com"),
        user("and?"),
    ]))
}

#[tokio::test]
async fn results_are_judged_one_by_one_with_the_tools_name_and_a_patch_takes_their_place() {
    let provider = always(says("hi")).await;
    let redact = |seen: &Seen| match &seen.payload {
        Payload::AfterToolResult(result) if result.tool_name == "mail_list" => {
            let result = Some(r#"[{"type":"input_text","text":"from [EMAIL]"}]"#.into());
            Act::patch(AfterToolResultPatch { result, ..AfterToolResultPatch::default() })
        }
        _ => Act::pass(),
    };
    let plugin = FakePlugin::named("redactor").only(&[RESULT]).at_with(RESULT, redact).start().await;
    let gateway = gateway(&provider, &plugin).await;
    say(&gateway, &tool_turn()).await.output();
    let mut expected = tool_turn()["input"].clone();
    expected[5]["output"] = json!([{ "type": "input_text", "text": "from [EMAIL]" }]);
    assert_eq!(provider.request().json()["input"], expected);
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
        one("fs_read", "{}", r#""gone""#, "call_2", false),
        one("mail_list", r#"{"box":"in"}"#, r#""from ada@example.com""#, "call_1", true),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_blocked_result_is_the_message_unless_the_run_ends() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("policy").only(&[RESULT]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    plugin.set_with(RESULT, |seen| match &seen.payload {
        Payload::AfterToolResult(result) if result.tool_name == "mail_list" => {
            Act::cancel("SECRET", "It held a secret.")
        }
        _ => Act::pass(),
    });
    say(&gateway, &tool_turn()).await.output();
    let mut expected = tool_turn()["input"].clone();
    expected[5]["output"] = json!("It held a secret.");
    assert_eq!(provider.request().json()["input"], expected);
    plugin.set(RESULT, Act::cancel("SECRET", "Stop.").scope(CancelScope::Run));
    say(&gateway, &tool_turn()).await.assert_error(400, "SECRET");
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn results_of_shells_and_patches_have_their_form_when_they_are_blocked_or_patched() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("policy").only(&[RESULT]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let outputs = |stdout: &str, stderr: &str, code: u8| json!([{ "stdout": stdout, "stderr": stderr, "outcome": { "type": "exit", "exit_code": code } }]);
    let body = ask(&json!([
        user("x"),
        { "type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "status": "completed", "action": { "type": "exec", "command": ["ls"], "env": {} } },
        { "type": "shell_call", "id": "sh_1", "call_id": "call_2", "status": "completed", "action": { "commands": ["ls"] } },
        { "type": "apply_patch_call", "id": "apc_1", "call_id": "call_3", "status": "completed", "operation": { "type": "delete_file", "path": "a" } },
        { "type": "local_shell_call_output", "id": "call_1", "output": "a secret" },
        { "type": "shell_call_output", "call_id": "call_2", "output": outputs("a secret", "", 0) },
        { "type": "apply_patch_call_output", "call_id": "call_3", "status": "completed", "output": "a secret" },
    ]));
    plugin.set(RESULT, Act::cancel("SECRET", "No."));
    say(&gateway, &body).await.output();
    let mut expected = body["input"].clone();
    expected[4]["output"] = json!("No.");
    expected[5]["output"] = outputs("", "No.", 1);
    expected[6]["output"] = json!("No.");
    expected[6]["status"] = json!("failed");
    assert_eq!(provider.requests()[0].json()["input"], expected);
    let mut tools: Vec<_> = plugin
        .seen()
        .into_iter()
        .map(|seen| match seen.payload {
            Payload::AfterToolResult(result) => result.tool_name,
            other => panic!("{other:?}"),
        })
        .collect();
    tools.sort();
    assert_eq!(tools, ["apply_patch", "local_shell", "shell"]);
    let patch =
        AfterToolResultPatch { result: Some(r#""redacted""#.into()), ..AfterToolResultPatch::default() };
    plugin.set(RESULT, Act::patch(patch));
    say(&gateway, &body).await.output();
    let mut expected = body["input"].clone();
    expected[4]["output"] = json!("redacted");
    expected[5]["output"] = outputs("redacted", "", 0);
    expected[6]["output"] = json!("redacted");
    assert_eq!(provider.requests()[1].json()["input"], expected);
}
