use hookgate_sdk::{Media, StatusCode, Verdict, harness::TestPlugin, proto::types::v1::media::Source};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A token of GitHub that is nobody's; in two parts, so that no scanner of sources finds it.
fn token() -> String {
    format!("ghp_{}", "q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1EuV5o")
}

async fn start(config: Value) -> TestPlugin<Secrets> {
    TestPlugin::start(&config).await.unwrap()
}

async fn ask(config: Value, args: &str) -> Reply<BeforeToolCallPatch> {
    let call = BeforeToolCallPayload {
        tool_name: "deploy".to_owned(),
        args: args.to_owned().into(),
        ..Default::default()
    };
    start(config).await.before_tool_call(call).await.unwrap()
}

fn details<P>(reply: &Reply<P>) -> Value {
    serde_json::from_slice(reply.notices()[0].details_json()).unwrap()
}

#[tokio::test]
async fn a_secret_blocks_and_the_notice_says_which_and_where() {
    let args = json!({ "env": [{ "CI/TOKEN": token() }] }).to_string();
    let reply = ask(json!({}), &args).await;
    let message = "The tool's arguments contain a secret: github_token at /args/env/0/CI~1TOKEN";
    let cancel = reply.cancelled().unwrap();
    assert_eq!((cancel.code(), cancel.message()), ("SECRET_FOUND", message));
    let notice = &reply.notices()[0];
    assert_eq!((notice.code(), notice.message()), (Some("SECRET_FOUND"), message));
    let finding = json!({ "detector": "github_token", "pointer": "/args/env/0/CI~1TOKEN" });
    assert_eq!(details(&reply), json!({ "findings": [finding] }));
    assert!(reply.changes().is_none());
    assert!(!format!("{reply:?}").contains(&token()[4..]));
}

#[tokio::test]
async fn a_redaction_replaces_the_secrets_and_goes_on() {
    let args = format!(r#"{{"n":9007199254740993, "url":"https://x@github.com?t={}","a":"b"}}"#, token());
    let reply = ask(json!({ "action": "redact" }), &args).await;
    assert_eq!(reply.verdict(), &Verdict::Continue);
    let expected = r#"{"n":9007199254740993, "url":"https://x@github.com?t=[REDACTED]","a":"b"}"#;
    assert_eq!(reply.changes().unwrap().args.as_deref(), Some(expected.as_bytes()));
    let notice = &reply.notices()[0];
    assert_eq!(
        (notice.code(), notice.message()),
        (Some("SECRET_REDACTED"), "Redacted: github_token at /args/url")
    );
    assert_eq!(details(&reply)["findings"][0]["pointer"], "/args/url");
}

#[tokio::test]
async fn a_secret_in_a_name_blocks_because_no_patch_can_hide_it() {
    for action in ["block", "redact"] {
        let config = json!({ "action": action });
        let reply = ask(config, &json!({ "a": { token(): { "b": token() } } }).to_string()).await;
        assert_eq!(reply.cancelled().unwrap().code(), "SECRET_FOUND");
        let findings = json!([
            { "detector": "github_token", "pointer": "/args/a", "in_member_name": true },
            { "detector": "github_token", "pointer": "/args/a/[REDACTED]/b" },
        ]);
        assert_eq!(details(&reply), json!({ "findings": findings }));
        assert!(!format!("{reply:?}").contains(&token()[4..]));
    }
}

#[tokio::test]
async fn a_number_that_is_a_card_blocks_or_becomes_a_string() {
    let args = r#"{"card": 4111111111111111, "n":1}"#;
    let reply = ask(json!({}), args).await;
    let message = "The tool's arguments contain a secret: card at /args/card";
    assert_eq!(reply.cancelled().unwrap().message(), message);
    let reply = ask(json!({ "action": "redact" }), args).await;
    let expected = r#"{"card": "[CARD]", "n":1}"#;
    assert_eq!(reply.changes().unwrap().args.as_deref(), Some(expected.as_bytes()));
}

#[tokio::test]
async fn every_point_is_checked() {
    let plugin = start(json!({})).await;
    let request = BeforeLlmRequestPayload {
        messages: json!([{ "role": "user", "content": token() }]).to_string().into(),
        system_prompt: Some("Bearer abc.1234-def".to_owned()),
        ..Default::default()
    };
    let reply = plugin.before_llm_request(request).await.unwrap();
    let message = "The request contains a secret: labelled_key at /system_prompt, and 1 more";
    assert_eq!(reply.cancelled().unwrap().message(), message);
    assert_eq!(details(&reply)["findings"][1]["pointer"], "/messages/0/content");

    let result = AfterToolResultPayload { result: json!([token()]).to_string().into(), ..Default::default() };
    let reply = plugin.after_tool_result(result).await.unwrap();
    let message = "The tool's result contains a secret: github_token at /result/0";
    assert_eq!(reply.cancelled().unwrap().message(), message);

    let response = BeforeResponsePayload {
        content: "Done.".to_owned(),
        reasoning: Some(format!("with {}", token())),
        ..Default::default()
    };
    let reply = plugin.before_response(response).await.unwrap();
    let message = "The answer contains a secret: github_token at /reasoning";
    assert_eq!(reply.cancelled().unwrap().message(), message);
}

#[tokio::test]
async fn prose_ids_hashes_and_pages_pass() {
    for args in [
        json!("Write to ada@example.com about the token: something."),
        json!({ "id": "550e8400-e29b-41d4-a716-446655440000", "nextPageToken": "CAUQAA123456" }),
        json!({ "commit": "da39a3ee5e6b4b0d3255bfef95601890afd80709" }),
        json!({ "path": "/home/ada/Projects2024/hookgate/plugins/redaction/src/lib.rs", "n": 1732450000000000000_u64 }),
        json!({ "api_key": "${OPENAI_API_KEY}", "password": "<your password>" }),
        json!("iVBORw0KGgo4".repeat(200)),
    ] {
        assert_eq!(ask(json!({}), &args.to_string()).await, Reply::proceed(), "{args}");
    }
}

#[tokio::test]
async fn a_key_after_an_escape_in_json_after_prose_is_found() {
    let env = json!({ "env": format!("USER=ada\n{}\n", token()) }).to_string();
    let log = format!("HTTP/1.1 200 OK\n\n{env}");
    for result in [log, format!(r"b'id\n{}'", token()), format!("_{}_", token()), format!("x%3D{}", token())]
    {
        let payload =
            AfterToolResultPayload { result: json!(result).to_string().into(), ..Default::default() };
        let reply =
            start(json!({ "except": ["high_entropy"] })).await.after_tool_result(payload).await.unwrap();
        let message = "The tool's result contains a secret: github_token at /result";
        assert_eq!(reply.cancelled().map(|cancel| cancel.message()), Some(message), "{result}");
    }
}

#[tokio::test]
async fn detectors_are_chosen() {
    let random = json!("q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1E").to_string();
    let card = json!("4111 1111 1111 1111").to_string();
    for (config, args, blocks) in [
        (json!({}), &random, true),
        (json!({ "except": ["high_entropy"] }), &random, false),
        (json!({ "detectors": ["high_entropy"] }), &card, false),
        (json!({ "detectors": ["card", "jwt"] }), &card, true),
    ] {
        assert_eq!(ask(config.clone(), args).await.cancelled().is_some(), blocks, "{config} {args}");
    }
}

#[tokio::test]
async fn a_wrong_setting_is_named() {
    for (config, says) in [
        (json!({ "action": "s3cret" }), "field `action`: expected `block` or `redact`"),
        (json!({ "detectors": [] }), "`detectors`: expected at least one detector; leave it out"),
        (json!({ "detectors": ["jwt"], "except": ["jwt"] }), "`except`: it leaves out every detector"),
        (json!({ "except": ["email"] }), "`except[0]`: `email` isn't among the detectors"),
        (json!({ "actions": "block" }), "unknown field `actions`"),
    ] {
        let status = TestPlugin::<Secrets>::start(&config).await.err().unwrap();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert!(status.message().contains(says), "{}", status.message());
    }
}

#[tokio::test]
async fn many_findings_are_counted_and_long_names_are_cut() {
    let args: Vec<_> = (0..40).map(|_| json!({ "é\u{1}".repeat(3000): token() })).collect();
    let reply = ask(json!({}), &json!(args).to_string()).await;
    let notice = &reply.notices()[0];
    assert!(notice.message().ends_with("…, and 39 more"), "{}", notice.message());
    assert!(notice.details_json().len() <= 4096, "{}", notice.details_json().len());
    let details = details(&reply);
    let listed = details["findings"].as_array().unwrap().len();
    assert!(listed > 2, "{details}");
    assert_eq!(details["not_listed"], 40 - listed);
    assert!(reply.cancelled().unwrap().message().len() <= 1024);
}

proptest! {
    #[test]
    fn no_reply_shows_what_was_found(
        before in "[a-z \"\\\\é]{0,20}",
        secret in "(ghp_[a-zA-Z0-9]{36}|AKIA[A-Z0-9]{16}|sk-ant-[a-z0-9]{24})",
        in_name: bool,
        redacts: bool,
    ) {
        let value = format!("{before} {secret}");
        let args = if in_name { json!({ value: 1 }) } else { json!([{ "a": value }]) }.to_string();
        let config = json!({ "action": if redacts { "redact" } else { "block" } });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reply = runtime.block_on(ask(config, &args));
        prop_assert_eq!(reply.notices().len(), 1);
        let shown = format!("{reply:?}");
        prop_assert!(!shown.contains(&secret), "{}", shown);
        prop_assert!(reply.cancelled().is_some() != reply.changes().is_some());
    }
}

#[tokio::test]
async fn a_secret_in_a_text_file_is_found_with_its_place() {
    let data = format!("key: {}", token()).into_bytes();
    let file = Media { source: Some(Source::Data(data.into())), ..Media::default() };
    let request = BeforeLlmRequestPayload { files: vec![Media::default(), file], ..Default::default() };
    let reply = start(json!({})).await.before_llm_request(request).await.unwrap();
    let message = "The request contains a secret: github_token at /files/1/data";
    assert_eq!(reply.cancelled().unwrap().message(), message);
}

#[tokio::test]
async fn a_secret_in_tools_or_extra_blocks_unless_that_is_off() {
    let tools = json!([{ "name": "t", "description": format!("uses {}", token()) }]).to_string();
    let extra = json!({ "request": { "prediction": { "type": "content", "content": token() } } }).to_string();
    for (tools, extra, pointer) in [
        (tools.as_str(), "", "/tools/0/description"),
        ("", extra.as_str(), "/extra/request/prediction/content"),
    ] {
        let request = BeforeLlmRequestPayload {
            tools: tools.to_owned().into(),
            extra: extra.to_owned().into(),
            ..Default::default()
        };
        let reply =
            start(json!({ "action": "redact" })).await.before_llm_request(request.clone()).await.unwrap();
        assert_eq!(reply.cancelled().map(|cancel| cancel.code()), Some("SECRET_FOUND"));
        assert_eq!(details(&reply)["findings"][0]["pointer"], pointer);
        let plugin = start(json!({ "tools_and_extra": "ignore" })).await;
        assert_eq!(plugin.before_llm_request(request).await.unwrap().verdict(), &Verdict::Continue);
    }
}
