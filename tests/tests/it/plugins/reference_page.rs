//! Reads docs/reference-plugins.md, and tests it: its configurations start a gateway, and its notices are what that
//! gateway answers.

use hookgate_proto::types::v1::ExtensionPoint::{self, BeforeLlmRequest, BeforeToolCall};
use hookgate_tests::{
    gateway::{Gateway, Setup},
    repository,
    token::{SECRET, token},
};
use serde_json::{Value, json};

use crate::docs::pages::{parts, read};

/// The configuration in the section of a plugin.
pub(super) fn example(plugin: &str) -> Value {
    serde_saphyr::from_str(&section(plugin).0).expect("it is YAML")
}

/// The section of a plugin: its configuration, and the JSON that it shows.
pub(super) fn section(plugin: &str) -> (String, Vec<Value>) {
    let page = read(&repository::root().join("docs/reference-plugins.md"));
    let (_, rest) = page.split_once(&format!("\n## {plugin}\n")).expect("the page has a section");
    let blocks = parts(rest.split("\n## ").next().unwrap_or_default()).1;
    let (mut configurations, mut shown) = (Vec::new(), Vec::new());
    for (language, text) in blocks {
        match language.as_str() {
            "yaml" => configurations.push(text),
            "json" => shown.push(serde_json::from_str(&text).expect("the page shows JSON")),
            _ => {}
        }
    }
    assert_eq!(configurations.len(), 1, "{plugin}: the section has one whole configuration");
    (configurations.remove(0), shown)
}

async fn start(configuration: &str) -> Gateway {
    let addresses = "server: { data_addr: \"127.0.0.1:0\", ops_addr: \"127.0.0.1:0\" }\n";
    let rest = "drain: { grace: 0ms, finish: 5s }\nlog: { format: json }\n";
    let text = format!("{configuration}{addresses}{rest}");
    Setup::file(&text).environment("JWT_SECRET", SECRET).start().await
}

/// Starts a gateway with a plugin's section, makes the call, and compares the first notice and the status.
async fn answers_as_shown(plugin: &str, point: ExtensionPoint, payload: Value, status: u16) {
    let (configuration, shown) = section(plugin);
    let gateway = start(&configuration).await;
    let answer = gateway.http(&token("acme")).call(point, payload).await;
    assert_eq!(answer.status, status, "{plugin}: {answer:?}");
    assert_eq!(shown, [answer.body["notices"][0].clone()], "{plugin}: the page should show this notice");
}

#[tokio::test]
async fn the_page_shows_a_cut_by_content_policy() {
    let text = "Summarize this very long text in one sentence.";
    answers_as_shown("content-policy", BeforeLlmRequest, json!({ "text": text }), 200).await;
}

#[tokio::test]
async fn the_page_shows_a_redaction_by_redact() {
    let args = json!({ "to": ["ada@example.com", "bob@example.com"], "about": "C-123456" });
    let payload = json!({ "tool_name": "mail", "args": args });
    answers_as_shown("redact", BeforeToolCall, payload, 200).await;
}

#[tokio::test]
async fn the_page_shows_a_block_by_secrets() {
    let id = format!("AKIA{}", "Q7ZT3VBNKP2LMRW4");
    let args = json!({ "env": { "AWS_ID": id }, "payment": "4111 1111 1111 1111" });
    let payload = json!({ "tool_name": "deploy", "args": args });
    answers_as_shown("secrets", BeforeToolCall, payload, 422).await;
}
