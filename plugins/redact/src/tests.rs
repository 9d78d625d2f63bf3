use hookgate_sdk::{Media, StatusCode, Verdict, harness::TestPlugin, proto::types::v1::media};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

async fn start(config: Value) -> TestPlugin<Redact> {
    TestPlugin::start(&config).await.unwrap()
}

fn call(args: &str) -> BeforeToolCallPayload {
    BeforeToolCallPayload { tool_name: "mail".to_owned(), args: args.to_owned().into(), ..Default::default() }
}

fn details<P>(reply: &Reply<P>) -> Value {
    serde_json::from_slice(reply.notices()[0].details_json()).unwrap()
}

#[tokio::test]
async fn values_in_arguments_are_redacted_and_nothing_else() {
    let args = r#"{"to":["ada@example.com", "b@c.de"], "n":9007199254740993,"ada@example.com":{"z":null,"iban":"DE89 3704 0044 0532 0130 00"},"card":4111111111111111}"#;
    let expected = r#"{"to":["[EMAIL]", "[MAIL]"], "n":9007199254740993,"ada@example.com":{"z":null,"iban":"[IBAN]"},"card":"[CARD]"}"#;
    let reply = start(json!({})).await.before_tool_call(call(args)).await.unwrap();
    assert_eq!(reply.changes().unwrap().args.as_deref(), Some(expected.as_bytes()));
    let notice = &reply.notices()[0];
    assert_eq!((notice.code(), notice.message()), (Some("REDACTED"), "4 values redacted"));
    assert_eq!(details(&reply), json!({ "counts": { "card": 1, "email": 2, "iban": 1 } }));
}

#[tokio::test]
async fn a_conversation_is_redacted_and_its_format_stays() {
    let long_id = "call_q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1E";
    let messages = json!([
        { "role": "user", "id": "ada@example.com", "content": "ada@example.com" },
        { "role": "assistant", "tool_calls": [
            { "id": long_id, "type": "function", "function": { "name": "a@b.cc", "arguments": "{\"to\":\"a@b.cc\"}" } },
        ] },
        { "role": "tool", "tool_call_id": long_id, "content": [{ "type": "text", "text": "4111111111111111" }] },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "a@b.cc", "signature": "a@b.cc" },
            { "type": "tool_use", "id": "a@b.cc", "name": "mail", "input": { "id": "a@b.cc", "n": 9007199254740993_u64 } },
        ] },
        { "role": "user", "parts": [
            { "inlineData": { "mimeType": "image/png", "data": long_id.replace("call_", "").repeat(2) } },
            { "functionResponse": { "name": "mail", "response": { "name": "a@b.cc" } } },
        ] },
        "a@b.cc",
        { "role": "user", "content": [
            { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "a@b.cc" } },
        ] },
    ]);
    let mut expected = messages.clone();
    expected[0]["content"] = json!("[EMAIL]");
    expected[1]["tool_calls"][0]["function"]["arguments"] = json!("{\"to\":\"[MAIL]\"}");
    expected[2]["content"][0]["text"] = json!("[CARD]");
    expected[3]["content"][1]["input"]["id"] = json!("[MAIL]");
    expected[4]["parts"][1]["functionResponse"]["response"]["name"] = json!("[MAIL]");
    expected[5] = json!("[MAIL]");
    expected[6]["content"][0]["source"]["data"] = json!("[MAIL]");
    let request = BeforeLlmRequestPayload {
        text: "from ada@example.com".to_owned(),
        system_prompt: Some("You serve ada@example.com".to_owned()),
        messages: messages.to_string().into(),
        tools: r#"[{"description":"a@b.cc"}]"#.into(),
        extra: r#"{"owner":"a@b.cc"}"#.into(),
        ..Default::default()
    };
    let plugin = start(json!({ "detectors": ["email", "card", "high_entropy"] })).await;
    let reply = plugin.before_llm_request(request).await.unwrap();
    let patch = reply.changes().unwrap();
    assert_eq!(patch.text.as_deref(), Some("from [EMAIL]"));
    assert_eq!(patch.system_prompt.as_deref(), Some("You serve [EMAIL]"));
    assert_eq!(serde_json::from_slice::<Value>(patch.messages.as_ref().unwrap()).unwrap(), expected);
    assert_eq!((&patch.tools, &patch.extra), (&None, &None));
}

fn file(mime_type: &str, name: &str, data: &[u8]) -> Media {
    let source = Some(media::Source::Data(data.to_vec().into()));
    Media { mime_type: mime_type.to_owned(), filename: Some(name.to_owned()), source }
}

#[tokio::test]
async fn files_that_are_text_are_redacted_and_others_stay() {
    let url = || media::Source::Url("https://a@b.cc/".to_owned());
    let files = vec![
        file("text/plain", "for a@b.cc", b"mail ada@example.com"),
        file("application/pdf", "a.pdf", b"%PDF \xff ada@example.com"),
        Media { source: Some(url()), ..file("text/plain", "x", b"") },
        file("", "a.json", br#"{"to":"ada@example.com","n":1}"#),
        file("Text/CSV; charset=latin1", "a.csv", b"caf\xe9,ada@example.com"),
    ];
    let expected = vec![
        file("text/plain", "for [MAIL]", b"mail [EMAIL]"),
        files[1].clone(),
        files[2].clone(),
        file("", "a.json", br#"{"to":"[EMAIL]","n":1}"#),
        file("Text/CSV; charset=latin1", "a.csv", b"caf?,[EMAIL]"),
    ];
    let images = vec![file("image/svg+xml", "a.svg", b"<svg>ada@example.com</svg>")];
    let request = BeforeLlmRequestPayload { text: "look".to_owned(), images, files, ..Default::default() };
    let reply = start(json!({})).await.before_llm_request(request).await.unwrap();
    let patch = reply.changes().unwrap();
    assert_eq!(patch.files.as_ref().map(|list| &list.items), Some(&expected));
    let image = file("image/svg+xml", "a.svg", b"<svg>[EMAIL]</svg>");
    assert_eq!(patch.images.as_ref().map(|list| &list.items), Some(&vec![image]));
    assert_eq!((&patch.text, details(&reply)), (&None, json!({ "counts": { "email": 5 } })));
}

#[tokio::test]
async fn results_and_answers_are_redacted() {
    let plugin = start(json!({})).await;
    let result = AfterToolResultPayload {
        tool_name: "mail".to_owned(),
        result: r#"{"from":"ada@example.com","password":"correct-horse"}"#.into(),
        args: r#""ada@example.com""#.into(),
        success: Some(true),
        ..Default::default()
    };
    let reply = plugin.after_tool_result(result).await.unwrap();
    let expected = r#"{"from":"[EMAIL]","password":"[REDACTED]"}"#;
    assert_eq!(reply.changes().unwrap().result.as_deref(), Some(expected.as_bytes()));
    assert_eq!(details(&reply), json!({ "counts": { "email": 1, "labelled_key": 1 } }));

    let response = BeforeResponsePayload {
        content: "Paid with 4111 1111 1111 1111.".to_owned(),
        reasoning: Some("ada@example.com paid".to_owned()),
        ..Default::default()
    };
    let reply = plugin.before_response(response).await.unwrap();
    let patch = reply.changes().unwrap();
    assert_eq!(patch.content.as_deref(), Some("Paid with [CARD]."));
    assert_eq!(patch.reasoning.as_deref(), Some("[EMAIL] paid"));
}

#[tokio::test]
async fn a_card_that_is_a_number_becomes_a_string_and_other_numbers_stay() {
    let pattern = json!({ "patterns": [{ "name": "id", "regex": "[0-9]{5}" }] });
    let (card, masked) = (r#"{"card": 4111111111111111, "n": 12345}"#, r#"{"card": "[CARD]", "n": 12345}"#);
    let plugin = start(pattern).await;
    let reply = plugin.before_tool_call(call(card)).await.unwrap();
    assert_eq!(reply.changes().unwrap().args.as_deref(), Some(masked.as_bytes()));
    assert_eq!(details(&reply), json!({ "counts": { "card": 1 } }));
    let reply = start(json!({})).await.before_response(answer(card)).await.unwrap();
    assert_eq!(reply.changes().unwrap().content.as_deref(), Some(masked));
}

#[tokio::test]
async fn ids_and_hashes_stay_by_default_and_a_clean_payload_gets_no_patch() {
    let plugin = start(json!({})).await;
    for args in [
        r#"{"id":"550e8400-e29b-41d4-a716-446655440000"}"#,
        r#""da39a3ee5e6b4b0d3255bfef95601890afd80709""#,
        "null",
        "12",
    ] {
        assert_eq!(plugin.before_tool_call(call(args)).await.unwrap(), Reply::proceed(), "{args}");
    }
    let api_keys = start(json!({ "detectors": ["api_key"] })).await;
    let reply =
        api_keys.before_tool_call(call(r#""da39a3ee5e6b4b0d3255bfef95601890afd80709""#)).await.unwrap();
    assert_eq!(reply.changes().unwrap().args.as_deref(), Some(br#""[REDACTED]""#.as_slice()));
}

#[tokio::test]
async fn own_patterns_have_their_names_and_replacements() {
    let config = json!({
        "except": ["email"],
        "patterns": [
            { "name": "employee", "regex": r"\bE-\d{4}\b", "replacement": "an \"employee\"" },
            { "name": "project", "regex": "(?i)project [a-z]+" },
        ],
    });
    let plugin = start(config).await;
    let reply = plugin.before_tool_call(call(r#"["E-1234 ada@example.com","Project X"]"#)).await.unwrap();
    let expected = r#"["an \"employee\" ada@example.com","[REDACTED]"]"#;
    assert_eq!(reply.changes().unwrap().args.as_deref(), Some(expected.as_bytes()));
    assert_eq!(details(&reply), json!({ "counts": { "employee": 1, "project": 1 } }));
}

#[tokio::test]
async fn a_tenant_adds_detectors_and_patterns() {
    let plugin = start(json!({ "detectors": ["email"] })).await;
    let text = r#""ada@example.com E-1 4111111111111111""#;
    let extra = json!({ "extra_detectors": ["card"], "extra_patterns": [{ "name": "id", "regex": "E-1" }] });
    for (tenant, expected) in
        [(json!({}), r#""[EMAIL] E-1 4111111111111111""#), (extra, r#""[EMAIL] [REDACTED] [CARD]""#)]
    {
        let plugin = plugin.with_tenant_config(&tenant).unwrap();
        let reply = plugin.before_tool_call(call(text)).await.unwrap();
        assert_eq!(reply.changes().unwrap().args.as_deref(), Some(expected.as_bytes()));
    }
}

#[tokio::test]
async fn a_wrong_setting_is_named_and_its_value_is_not_shown() {
    let many: Vec<_> = (0..101).map(|n| json!({ "name": format!("p{n}"), "regex": "a" })).collect();
    let one = |pattern: Value| json!({ "patterns": [{ "name": "ok", "regex": "a" }, pattern] });
    for (config, says) in [
        (
            one(json!({ "name": "id", "regex": "(s3cret" })),
            "`patterns[1].regex`: isn't a valid regular expression: unclosed group",
        ),
        (
            one(json!({ "name": "id", "regex": "(s3cret)?" })),
            "`patterns[1].regex`: must not match the empty text",
        ),
        (one(json!({ "name": "id", "regex": "(s3cret){99999}" })), "`patterns[1].regex`: is too large"),
        (one(json!({ "name": "1", "regex": "a" })), "`patterns[1].name`: a letter and up to 63"),
        (one(json!({ "name": "ok", "regex": "a" })), "`patterns[1].name`: another pattern"),
        (one(json!({ "name": "email", "regex": "a" })), "`patterns[1].name`: another pattern or a detector"),
        (
            one(json!({ "name": "id", "regex": "a", "replacement": "x".repeat(257) })),
            "`patterns[1].replacement`: at most 256",
        ),
        (json!({ "patterns": many }), "`patterns`: at most 100"),
        (json!({ "detectors": ["emails"] }), "`detectors[0]`"),
        (
            json!({ "detectors": [] }),
            "`detectors`: expected at least one detector or a pattern in `patterns`",
        ),
        (json!({ "detectors": ["jwt"], "except": ["jwt"] }), "`except`: it leaves out every detector"),
        (json!({ "except": ["api_key"] }), "`except[0]`: `api_key` isn't among the detectors"),
        (json!({ "detector": [] }), "unknown field `detector`"),
    ] {
        let status = TestPlugin::<Redact>::start(&config).await.err().unwrap();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert!(status.message().contains(says), "{says}: {}", status.message());
        assert!(!status.message().contains("s3cret"), "{}", status.message());
    }
    let tenant = json!({ "extra_patterns": [{ "name": "id", "regex": "(s3cret" }] });
    let plugin = start(json!({})).await.with_tenant_config(&tenant).unwrap();
    let status = plugin.before_tool_call(call("null")).await.unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert!(status.message().contains("`extra_patterns[0].regex`: isn't a valid"), "{}", status.message());
    assert!(!status.message().contains("s3cret"), "{}", status.message());
}

#[tokio::test]
async fn patterns_alone_are_rules_enough() {
    let pattern = json!([{ "name": "id", "regex": "E1" }]);
    for config in [
        json!({ "detectors": [], "patterns": pattern }),
        json!({ "detectors": ["email"], "except": ["email"], "patterns": pattern }),
    ] {
        let reply = start(config).await.before_tool_call(call("\"E1 a@b.cc\"")).await.unwrap();
        assert_eq!(reply.changes().unwrap().args.as_deref(), Some(b"\"[REDACTED] a@b.cc\"".as_slice()));
    }
}

#[tokio::test]
async fn a_value_that_is_not_json_is_an_error() {
    let status = start(json!({})).await.before_tool_call(call("{\"a\":")).await.unwrap_err();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert!(status.message().starts_with("`args` isn't valid JSON"), "{}", status.message());
}

#[tokio::test]
async fn replacements_that_do_not_fit_into_the_payload_become_asterisks() {
    const MAX_PAYLOAD: usize = (4 << 20) - 8192; // of the harness
    let config = json!({ "detectors": ["email"], "patterns": [{ "name": "id", "regex": "E1", "replacement": "[an employee]" }] });
    let plugin = start(config).await;
    for (surplus, expected) in [(0, "\"[an employee] [MAIL] x"), (1, "\"** [MAIL] x")] {
        let empty = call("").encoded_len() + 1 + 4; // the field's tag and length
        let room = MAX_PAYLOAD - empty - 11 - 16; // the growth, and what may be needed for lengths
        let args = format!("\"E1 a@b.cc {}\"", "x".repeat(room - 12 + surplus));
        let reply = plugin.before_tool_call(call(&args)).await.unwrap();
        let args = reply.changes().unwrap().args.as_ref().unwrap();
        assert!(args.starts_with(expected.as_bytes()), "{surplus}");
        assert_eq!(details(&reply), json!({ "counts": { "email": 1, "id": 1 } }));
    }
}

#[tokio::test]
async fn details_that_the_gateway_does_not_take_are_left_out() {
    let name = |n| format!("{}{n}", "a".repeat(60));
    let patterns: Vec<_> =
        (0..100).map(|n| json!({ "name": name(n), "regex": format!("\\bE{n}\\b") })).collect();
    let plugin = start(json!({ "patterns": patterns })).await;
    let text: Vec<_> = (0..100).map(|n| format!("E{n}")).collect();
    let reply = plugin.before_tool_call(call(&json!(text).to_string())).await.unwrap();
    assert_eq!(reply.notices()[0].message(), "100 values redacted");
    let length = reply.notices()[0].details_json().len();
    assert!((3072..=4096).contains(&length), "{length}");
}

proptest! {
    #[test]
    fn a_redacted_value_has_the_same_shape(
        texts in prop::collection::vec("(ada@example\\.com|4111111111111111|[a-z\"\\\\é ]{0,6}){0,3}", 0..6),
    ) {
        let args = json!({ "z": texts, "a": { "n": 1.5, "text": texts.concat() } }).to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reply = runtime.block_on(async { start(json!({})).await.before_tool_call(call(&args)).await.unwrap() });
        let found = args.contains("ada@example.com");
        prop_assert!(!found || reply.changes().is_some());
        if let Some(patch) = reply.changes() {
            let new: Value = serde_json::from_slice(patch.args.as_ref().unwrap()).unwrap();
            prop_assert_eq!(new["z"].as_array().unwrap().len(), texts.len());
            prop_assert_eq!(&new["a"]["n"], &json!(1.5));
            prop_assert!(!new.to_string().contains("ada@example.com"), "{}", new);
        }
    }
}

fn answer(content: &str) -> BeforeResponsePayload {
    BeforeResponsePayload { content: content.to_owned(), ..Default::default() }
}

#[test]
fn an_answer_becomes_the_same_wherever_it_is_cut() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config =
        json!({ "patterns": [{ "name": "id", "regex": r"\bE-\d{2,}\b", "replacement": "[employee]" }] });
    let plugin = runtime.block_on(start(config));
    let piece = "ada@example\\.com|E-[0-9]{1,4}|\\[|\\{\"password\": \"correct-horse\"\\}|\"a\": ?|[\\]}, \n]|[a-zé日]{1,6} ?|-?[0-9.]{1,3}|sk-ant-[a-z0-9]{18,24}";
    let text = prop::collection::vec(piece, 0..7).prop_map(|pieces| pieces.concat());
    let cuts = prop::collection::vec(0_usize..120, 0..6);
    proptest!(ProptestConfig::with_cases(10_000), |(text in text, mut cuts in cuts)| {
        cuts.sort_unstable();
        let (mut pieces, mut start) = (Vec::new(), 0);
        for cut in cuts.iter().map(|cut| text.floor_char_boundary(*cut)).chain([text.len()]) {
            pieces.push(&text[start..cut.max(start)]);
            start = cut.max(start);
        }
        let shown = runtime.block_on(plugin.answer_in_windows(&pieces)).unwrap();
        let reply = runtime.block_on(plugin.before_response(answer(&text))).unwrap();
        let whole = reply.changes().and_then(|patch| patch.content.as_deref()).unwrap_or(&text);
        prop_assert_eq!(shown.text, whole, "{:?}", pieces);
    });
}

#[tokio::test]
async fn windows_pass_before_the_answer_ends_unless_it_may_be_json() {
    let plugin = start(json!({})).await;
    let reply = async |content: &str, reasoning: Option<&str>| {
        let response = BeforeResponsePayload { reasoning: reasoning.map(str::to_owned), ..answer(content) };
        plugin.before_response_window(response, ResponseWindow::default()).await.unwrap()
    };
    let redacted = reply("write to ada@example.com, or ", Some("to a@b.cc")).await;
    let patch = BeforeResponsePatch {
        content: Some("write to [EMAIL], or ".to_owned()),
        reasoning: Some("to [MAIL]".to_owned()),
        ..Default::default()
    };
    assert_eq!((redacted.changes(), redacted.consumes()), (Some(&patch), Some(29)));
    assert_eq!(details(&redacted), json!({ "counts": { "email": 2 } }));
    assert_eq!(reply("{\"to\": \"ada@example.com\", ", None).await, Reply::proceed().consumed(0));
    assert_eq!(reply("[the guide](https://example.com) ", None).await, Reply::proceed().consumed(33));
}

#[tokio::test]
async fn replacements_that_do_not_fit_into_a_window_fail_the_call() {
    let config = json!({ "patterns": [{ "name": "x", "regex": "x", "replacement": "y".repeat(256) }] });
    let plugin = start(config).await;
    let reply = plugin.before_response_window(answer(&"x ".repeat(20_000)), ResponseWindow::default()).await;
    assert_eq!(reply.unwrap_err().code(), StatusCode::Internal);
}

#[tokio::test]
async fn tools_and_extra_stay_and_block_if_that_is_set() {
    let request = BeforeLlmRequestPayload {
        text: "I am ada@example.com.".to_owned(),
        tools: json!([{ "name": "t", "description": "mails ada@example.com" }]).to_string().into(),
        extra: json!({ "request": { "user": "ada@example.com" } }).to_string().into(),
        ..Default::default()
    };
    let reply = start(json!({})).await.before_llm_request(request.clone()).await.unwrap();
    let patch = reply.changes().expect("the text is redacted");
    assert_eq!((patch.text.as_deref(), &patch.tools, &patch.extra), (Some("I am [EMAIL]."), &None, &None));
    let plugin = start(json!({ "tools_and_extra": "block" })).await;
    let reply = plugin.before_llm_request(request).await.unwrap();
    let cancel = reply.cancelled().expect("it blocks");
    let message = "`tools` contains what can't be replaced there: email";
    assert_eq!((cancel.code(), cancel.message()), ("NOT_REDACTABLE", message));
    let request = BeforeLlmRequestPayload {
        extra: json!({ "request": { "user": "ada@example.com" } }).to_string().into(),
        ..Default::default()
    };
    assert_eq!(plugin.before_llm_request(request).await.unwrap().verdict(), &Verdict::Continue);
}
