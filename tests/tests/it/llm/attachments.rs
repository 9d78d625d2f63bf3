//! Files in messages of users: `redact` and `secrets` read those that are text, in all three APIs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hookgate_tests::{
    gateway::{Gateway, Setup},
    provider::{FakeProvider, ProviderAct, messages, responses},
};
use serde_json::{Value, json};

use super::{messages_support, responses_support, support};

const TEXT: &str = "mail ada@example.com";

/// What `redact` makes of [`TEXT`].
const REDACTED: &str = "mail [EMAIL]";

async fn redacting(setup: Setup) -> Gateway {
    let redact = json!({ "detectors": ["email"] });
    let gateway = setup.builtin("redact", &redact).binding("redact", 10).start().await;
    gateway.wait_until_ready().await;
    gateway
}

/// A text file in a `data:` URL.
fn data_url(text: &str) -> String {
    format!("data:text/plain;base64,{}", STANDARD.encode(text))
}

fn body(provider: &FakeProvider) -> Value {
    serde_json::from_slice(&provider.request().body).expect("JSON")
}

#[tokio::test]
async fn a_text_file_in_a_chat_is_redacted() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let gateway = redacting(support::setup(&provider)).await;
    let with = |text: &str| {
        let file = json!({ "type": "file", "file": { "filename": "a.txt", "file_data": data_url(text) } });
        json!([{ "role": "user", "content": [{ "type": "text", "text": "Read." }, file] }])
    };
    assert_eq!(support::chat(&gateway, &support::ask(&with(TEXT))).await.status, 200);
    assert_eq!(body(&provider)["messages"], with(REDACTED));
}

#[tokio::test]
async fn a_key_in_an_image_that_is_text_is_blocked() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let setup = support::setup(&provider).builtin("secrets", &json!({})).binding("secrets", 10);
    let gateway = setup.start().await;
    gateway.wait_until_ready().await;
    // In two parts, so that no scanner of sources takes it for a key.
    let svg = format!("<svg>ghp_{}</svg>", "q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1EuV5o");
    let url = format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg));
    let image = json!({ "type": "image_url", "image_url": { "url": url } });
    let got = support::chat(&gateway, &support::ask(&json!([{ "role": "user", "content": [image] }]))).await;
    got.assert_error(400, "SECRET_FOUND");
    assert!(got.text.contains("/images/0/data") && provider.requests().is_empty(), "{}", got.text);
}

#[tokio::test]
async fn a_text_file_for_responses_is_redacted() {
    let provider = responses_support::always(responses::says("hi")).await;
    let gateway = redacting(support::setup(&provider)).await;
    let with = |text: &str| {
        let file = json!({ "type": "input_file", "filename": "a.txt", "file_data": data_url(text) });
        json!([{ "role": "user", "content": [{ "type": "input_text", "text": "Read." }, file] }])
    };
    assert_eq!(responses_support::say(&gateway, &responses_support::ask(&with(TEXT))).await.status, 200);
    assert_eq!(body(&provider)["input"], with(REDACTED));
}

#[tokio::test]
async fn a_text_document_of_this_turn_and_of_an_earlier_one_is_redacted() {
    let provider = messages_support::always(messages::says("hi")).await;
    let gateway = redacting(messages_support::setup(&provider)).await;
    let with = |text: &str| {
        let source = json!({ "type": "text", "media_type": "text/plain", "data": text });
        let read = json!({ "role": "user", "content": [
            { "type": "document", "source": source }, { "type": "text", "text": "Read." },
        ] });
        json!([read, messages_support::assistant(&json!("Done.")), read])
    };
    assert_eq!(messages_support::say(&gateway, &messages_support::ask(&with(TEXT))).await.status, 200);
    assert_eq!(body(&provider)["messages"], with(REDACTED));
}
