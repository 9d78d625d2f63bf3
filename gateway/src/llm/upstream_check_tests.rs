//! Tests of what a check makes of answers. Those of a running gateway are in `tests/tests/it/admin/upstream_check.rs`.

use std::{future::pending, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::timeout,
};

use super::*;
use crate::config::LlmProxy;

fn list(body: &str) -> Option<ModelList> {
    ModelList::read(body.as_bytes())
}

fn lacks(list: &ModelList, format: ApiFormat, models: &[&str]) -> Vec<String> {
    let asked_for: Vec<_> = models.iter().map(|&model| ("a-rule", model)).collect();
    let unlisted = list.lacks(format, &asked_for);
    assert!(unlisted.iter().all(|one| one.rule == "a-rule"));
    unlisted.into_iter().map(|one| one.model).collect()
}

#[test]
fn a_list_of_models_has_data_with_ids() {
    let names = |body: &str| list(body).map(|list| list.names.len());
    assert_eq!(names(r#"{"object":"list","data":[{"id":"a","x":1},{"id":"b\n"},{"id":"a"}]}"#), Some(2));
    assert_eq!(names(r#"{"data":[]}"#), Some(0));
    for body in ["", "<html>", "[]", "{}", r#"{"data":{}}"#, r#"{"data":[{}]}"#, r#"{"data":[{"id":7}]}"#] {
        assert_eq!(names(body), None, "{body}");
    }
}

#[test]
fn a_list_lacks_names_that_it_could_have() {
    let whole = list(r#"{"data":[{"id":"gpt-5"},{"id":"claude-x-4-20250514"}],"has_more":false}"#).unwrap();
    let models = ["gpt-5", "gpt", "claude-x-4", "claude-x", "claude-x-4-20250514"];
    assert_eq!(lacks(&whole, ApiFormat::Openai, &models), ["gpt", "claude-x-4", "claude-x"]);
    assert_eq!(lacks(&whole, ApiFormat::Anthropic, &models), ["gpt", "claude-x"], "an alias is listed");
    let part = list(r#"{"data":[{"id":"gpt-5"}],"has_more":true}"#).unwrap();
    assert_eq!(lacks(&part, ApiFormat::Openai, &models), [""; 0]);
}

#[test]
fn a_detail_is_one_line_of_bounded_length() {
    let failure = CheckFailure::from(UpstreamError::Unavailable(format!("a\u{1b}[31m\n{}", "é".repeat(900))));
    assert_eq!(failure.result, UpstreamCheckResult::Unreachable);
    assert_eq!(failure.detail.chars().count(), MAX_DETAIL_CHARS);
    assert!(failure.detail.starts_with("the provider is unavailable: a [31m é"), "{}", failure.detail);
}

#[test]
fn a_provider_that_is_busy_has_no_wrong_address() {
    for (status, remedy) in
        [(404, "check `base_url` and `format`"), (429, "try again later"), (503, "try again later")]
    {
        let failure = CheckFailure::from_status(StatusCode::from_u16(status).unwrap());
        assert_eq!(failure.result, UpstreamCheckResult::NoModelList);
        assert_eq!(failure.detail, format!("the provider answers with the status {status}: {remedy}"));
    }
}

fn routes(upstream: &Value) -> ModelRoutes {
    let config = serde_json::from_value(json!({ "upstreams": [upstream] })).unwrap();
    ModelRoutes::build(&config, &[]).unwrap()
}

/// The request of a check, as a provider with this format reads it.
async fn request(format: &str, path: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}{path}", listener.local_addr().unwrap());
    let read = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}").await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let upstream = json!({ "name": "one", "format": format, "base_url": base_url, "credential": "sk-1" });
    let checks = check_upstreams(&routes(&upstream), &[]).await;
    assert_eq!((checks[0].result, checks[0].models), (UpstreamCheckResult::Ok, Some(0)), "{checks:?}");
    read.await.unwrap()
}

#[tokio::test]
async fn a_check_asks_for_the_models_with_the_key() {
    let openai = request("openai", "/v1").await;
    assert!(openai.starts_with("GET /v1/models HTTP/1.1\r\n"), "{openai}");
    assert!(openai.contains("\r\nauthorization: Bearer sk-1\r\n"), "{openai}");
    assert!(!openai.contains("content-") && !openai.contains("anthropic"), "{openai}");
    let anthropic = request("anthropic", "").await;
    assert!(anthropic.starts_with("GET /v1/models?limit=1000 HTTP/1.1\r\n"), "{anthropic}");
    assert!(anthropic.contains("\r\nx-api-key: sk-1\r\n"), "{anthropic}");
    assert!(anthropic.contains("\r\nanthropic-version: 2023-06-01\r\n"), "{anthropic}");
}

#[tokio::test]
async fn an_upstream_whose_key_is_not_on_this_machine_is_asked_nothing() {
    let upstream = json!({ "name": "one", "base_url": "http://127.0.0.1:1/v1" });
    let mut config = serde_json::from_value(json!({ "upstreams": [upstream] })).unwrap();
    let LlmProxy { upstreams, .. } = &mut config;
    Arc::make_mut(&mut upstreams[0]).credential_error = Some("HOOKGATE_SECRET_ONE is not set".to_owned());
    let checks = check_upstreams(&ModelRoutes::build(&config, &[]).unwrap(), &[]).await;
    assert_eq!(checks[0].result, UpstreamCheckResult::CredentialMissing);
    assert!(checks[0].detail.ends_with("HOOKGATE_SECRET_ONE is not set"), "{checks:?}");
}

#[tokio::test]
async fn a_provider_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let _open = listener.accept().await.unwrap();
        pending::<()>().await;
    });
    let routes = routes(&json!({ "name": "silent", "base_url": base_url }));
    let checking = check(&routes, &routes.upstreams()[0], Duration::from_millis(50));
    let check = timeout(CHECK_TIMEOUT, checking).await.expect("its own limit is shorter");
    assert_eq!(
        (check.result, &*check.detail, check.models),
        (UpstreamCheckResult::Unreachable, "the provider has not begun its answer in time", None)
    );
    assert!(check.duration_us >= 50_000, "{check:?}");
}
