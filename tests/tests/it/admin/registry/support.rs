//! Writes to the registry as operators do: over HTTP, with a token.

use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    gateway::{Gateway, Setup},
    token::Token,
};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::registry::support::file_with;

/// A gateway with a registry in SQLite.
pub(crate) struct Stored {
    pub(crate) gateway: Gateway,
    pub(crate) operator: HttpAgent,
    pub(crate) folder: TempDir,
}

/// A gateway whose file has the tenant `acme` and the built-in `content-policy` for all at priority 10.
pub(crate) async fn stored() -> Stored {
    stored_as(file_with("acme")).await
}

/// A gateway with this file.
pub(crate) async fn stored_as(setup: Setup) -> Stored {
    let folder = tempfile::tempdir().expect("there is room");
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let sockets = std::env::temp_dir().display().to_string();
    let egress = json!({ "cidrs": ["127.0.0.0/8"], "socket_dirs": [sockets] });
    let gateway = setup.store(&url, folder.path()).set("/egress", egress).start().await;
    let operator = gateway.admin(&administrator());
    Stored { gateway, operator, folder }
}

/// A token that may write.
pub(crate) fn administrator() -> String {
    Token::for_operators().scopes("hookgate:admin").mint()
}

/// A token that is confined to one tenant.
pub(crate) fn confined(tenant: &str) -> String {
    Token::for_operators().scopes("hookgate:admin").claim("tenant_id", tenant).mint()
}

/// Sends a request below `/admin/v1/`.
pub(crate) async fn ask(agent: &HttpAgent, method: Method, path: &str, body: Option<&Value>) -> HttpAnswer {
    let media_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = agent.request(method, &format!("/admin/v1/{path}"));
    if let Some(body) = body {
        request = request.header("content-type", media_type).body(body.to_string());
    }
    HttpAgent::send(request).await.expect("the admin port answers")
}

pub(crate) async fn get(agent: &HttpAgent, path: &str) -> HttpAnswer {
    ask(agent, Method::GET, path, None).await
}

pub(crate) async fn put(agent: &HttpAgent, path: &str, spec: Value) -> HttpAnswer {
    ask(agent, Method::PUT, path, Some(&spec)).await
}

pub(crate) async fn patch(agent: &HttpAgent, path: &str, patch: Value) -> HttpAnswer {
    ask(agent, Method::PATCH, path, Some(&patch)).await
}

pub(crate) async fn delete(agent: &HttpAgent, path: &str) -> HttpAnswer {
    ask(agent, Method::DELETE, path, None).await
}

pub(crate) async fn post(agent: &HttpAgent, path: &str) -> HttpAnswer {
    ask(agent, Method::POST, path, None).await
}

pub(crate) async fn apply(agent: &HttpAgent, query: &str, document: Value) -> HttpAnswer {
    ask(agent, Method::POST, &format!("apply{query}"), Some(&document)).await
}

/// The revision of a successful write, which must be active.
pub(crate) fn written(answer: &HttpAnswer) -> u64 {
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    assert_eq!(answer.body["active"], json!(true), "{answer:?}");
    answer.body["revision"].as_u64().unwrap_or_else(|| panic!("nothing was written: {answer:?}"))
}

/// The number of the current revision.
pub(crate) async fn head(agent: &HttpAgent) -> u64 {
    get(agent, "tenants?limit=1").await.body["revision"].as_u64().expect("a list has a revision")
}

/// The pointers of the violations.
pub(crate) fn pointers(answer: &HttpAnswer) -> Vec<&str> {
    let errors = answer.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    errors.iter().map(|error| error["pointer"].as_str().expect("a pointer")).collect()
}

/// The names of a list's objects.
pub(crate) fn names<'a>(answer: &'a HttpAnswer, kind: &str) -> Vec<&'a str> {
    let objects = answer.body[kind].as_array().unwrap_or_else(|| panic!("no {kind}: {answer:?}"));
    let name = |object: &'a Value| object.get("name").or_else(|| object.get("id"))?.as_str();
    objects.iter().map(|object| name(object).expect("every object has one")).collect()
}
