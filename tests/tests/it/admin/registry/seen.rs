//! Tests who may see and write what in the registry, what is always hidden, who wrote what, and rollback
//! (docs/registry.md).

use hookgate::core::error::Code;
use hookgate_tests::{fake::FakePlugin, token::Token};
use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{
        apply, ask, confined, delete, get, head, names, patch, pointers, post, put, stored, written,
    },
    edge::support::assert_http_error,
    registry::support::{call, status},
};

#[tokio::test]
async fn a_token_without_admin_reads_objects_and_neither_writes_nor_sees_who_wrote() {
    let it = stored().await;
    let reader = it.gateway.admin(&Token::for_operators().mint());
    assert_eq!(names(&get(&reader, "tenants").await, "tenants"), ["acme"]);
    for answer in [
        put(&reader, "tenants/x?expected_version=0", json!({})).await,
        patch(&reader, "tenants/acme?expected_version=1", json!({})).await,
        delete(&reader, "tenants/acme?expected_version=1").await,
        post(&reader, "plugins/content-policy/disable").await,
        apply(&reader, "", json!({})).await,
        get(&reader, "revisions").await,
        get(&reader, "revisions/1").await,
        get(&reader, "revisions/1/diff").await,
        post(&reader, "revisions/1/rollback").await,
    ] {
        assert_http_error(&answer, Code::ScopeMissing);
    }
    let other = ask(&it.operator, Method::POST, "tenants/acme", None).await;
    assert_eq!((other.status, other.header("allow")), (405, Some("GET, PUT, PATCH, DELETE")));
    assert_eq!(head(&it.operator).await, 1);
}

/// Paths that a token of `acme` must not see, and names that don't exist.
fn hidden() -> [String; 26] {
    let long = "a".repeat(4096);
    [
        "tenants",
        "tenants/globex",
        "tenants/nobody",
        "tenants/..%2Fglobex",
        "tenants/acme%2F..%2Fglobex",
        "tenants/acme:globex",
        "tenants/%F0%9F%A6%80",
        "tenants/'%3B%20DROP%20TABLE%20objects%3B--",
        "tenants/globex%00",
        "tenants/%00",
        "tenants/%FF",
        "tenants/ACME",
        "tenants/acme%20",
        "tenants/",
        "bindings/of-globex",
        "bindings/content-policy",
        "bindings/nobody",
        "plugins",
        "plugins/content-policy",
        "revisions",
        "revisions/1",
        "revisions/1/diff",
        "status",
        "apply",
        &format!("tenants/{long}"),
        &format!("bindings/{long}"),
    ]
    .map(str::to_owned)
}

#[tokio::test]
async fn a_token_with_a_tenant_sees_its_tenant_and_its_bindings_and_can_guess_nothing_else() {
    let it = stored().await;
    let canary = "canary-of-globex";
    let document = json!({
        "tenants": [{ "id": "globex", "labels": { "secret": canary } }, { "id": "*x" }],
        "bindings": [
            { "name": "of-globex", "plugin": "content-policy", "tenant": "globex", "priority": 20 },
            { "name": "of-acme", "plugin": "content-policy", "tenant": "acme", "priority": 20 },
        ],
    });
    written(&apply(&it.operator, "", document).await);
    let acme = it.gateway.admin(&confined("acme"));
    assert_eq!(get(&acme, "tenants/acme").await.body["id"], "acme");
    assert_eq!(names(&get(&acme, "bindings").await, "bindings"), ["of-acme"]);
    assert_eq!(names(&get(&acme, "bindings?tenant=globex").await, "bindings"), [""; 0]);
    assert_eq!(get(&acme, "bindings/of-acme").await.status, 200);
    let hidden = hidden();
    let mut seen = Vec::new();
    for path in &hidden {
        let mut answer = get(&acme, path).await;
        assert_http_error(&answer, Code::NotFound);
        assert!(!answer.text.contains(canary) && !answer.text.contains("globex"), "{answer:?}");
        answer.body["request_id"].take();
        seen.push(answer.body);
    }
    let own = "tenants/acme?expected_version=1";
    for mut answer in [
        put(&acme, own, json!({})).await,
        patch(&acme, own, json!({})).await,
        delete(&acme, own).await,
        apply(&acme, "", json!({ "tenants": [{ "id": "acme" }] })).await,
        post(&acme, "plugins/content-policy/disable").await,
        post(&acme, "plugins/content-policy/approve").await,
        post(&acme, "revisions/1/rollback").await,
    ] {
        assert_http_error(&answer, Code::NotFound);
        answer.body["request_id"].take();
        seen.push(answer.body);
    }
    assert!(seen.iter().all(|body| *body == seen[0]), "they can't be told apart: {seen:?}");
    // For an unrestricted caller, these names don't exist either.
    for path in hidden.iter().filter(|path| path.contains('%') || path.len() > 1000) {
        assert_http_error(&get(&it.operator, path).await, Code::NotFound);
    }
    assert_eq!(head(&it.operator).await, 2);
}

#[tokio::test]
async fn bodies_are_bounded_json_of_one_meaning() {
    let it = stored().await;
    let send = |media_type: Option<&'static str>, body: String| {
        let request = it.operator.request(Method::PUT, "/admin/v1/tenants/x?expected_version=0");
        let request =
            media_type.into_iter().fold(request, |request, value| request.header("content-type", value));
        async move { hookgate_tests::agent::HttpAgent::send(request.body(body)).await.expect("an answer") }
    };
    let json = Some("application/json");
    let deep = format!("{{\"labels\":{}{}}}", "[".repeat(64), "]".repeat(64));
    let twice = send(json, r#"{"labels":{"a":"1","a":"2"}}"#.into()).await;
    assert_http_error(&twice, Code::PayloadInvalid);
    assert_eq!(pointers(&twice), ["/labels/a"]);
    for body in [deep, "[]".into(), String::new(), "{".into(), "\"x\"".into()] {
        assert_http_error(&send(json, body).await, Code::PayloadInvalid);
    }
    let large = format!("{{\"labels\":{{\"a\":\"{}\"}}}}", "x".repeat(1 << 20));
    assert_http_error(&send(json, large).await, Code::PayloadTooLarge);
    assert_http_error(&send(Some("text/yaml"), "{}".into()).await, Code::ContentType);
    let request = it.operator.request(Method::PATCH, "/admin/v1/tenants/x?expected_version=1");
    let request = request.header("content-type", "application/json").body("{}");
    let patched = hookgate_tests::agent::HttpAgent::send(request).await.expect("an answer");
    assert_http_error(&patched, Code::ContentType);
    let request = it.operator.request(Method::PUT, "/admin/v1/tenants/x?expected_version=0").body("{}");
    let twice = request.header("content-type", "application/json").header("content-type", "text/yaml");
    let twice = hookgate_tests::agent::HttpAgent::send(twice).await.expect("an answer");
    assert_http_error(&twice, Code::PayloadInvalid);
    let reason = "x".repeat(501);
    assert_http_error(
        &put(&it.operator, &format!("tenants/x?expected_version=0&reason={reason}"), json!({})).await,
        Code::PayloadInvalid,
    );
    assert_eq!(head(&it.operator).await, 1);
    // `curl -T` sends no content type.
    assert_eq!(written(&send(None, "{}".into()).await), 2);
}

#[tokio::test]
async fn a_secret_in_a_plugins_config_is_never_shown_and_stays_when_it_is_sent_back_masked() {
    let canary = "canary-a-secret-somebody-wrote-down";
    let guard = FakePlugin::named("guard").start().await;
    let it = stored().await;
    let spec = json!({ "endpoint": guard.endpoint(), "accepted": guard.accepted(), "allow_plaintext": true, "config": { "key": canary, "deep": [{ "pin": 1_234_567 }], "on": true } });
    let mut answers = vec![put(&it.operator, "plugins/guard?expected_version=0", spec).await];
    assert_eq!(written(&answers[0]), 2);
    let shown = get(&it.operator, "plugins/guard").await;
    let masked = shown.body["spec"].clone();
    assert_eq!(masked["config"], json!({ "key": "***", "deep": [{ "pin": "***" }], "on": true }));
    let mut again = masked;
    again["config"]["on"] = json!(false);
    answers.push(put(&it.operator, "plugins/guard?expected_version=2", again).await);
    assert_eq!(written(&answers[1]), 3);
    let last = guard.wait_until(|counts| counts.initializes > 1).await;
    assert!(last.initializes > 1);
    let given = guard.initialized();
    let config: Value = serde_json::from_slice(&given.last().expect("it was").config).expect("JSON");
    assert_eq!(
        config,
        json!({ "key": canary, "deep": [{ "pin": 1_234_567 }], "on": false }),
        "what was masked stays"
    );
    answers.push(shown);
    for path in [
        "plugins",
        "revisions",
        "revisions/2",
        "revisions/3",
        "revisions/0/diff",
        "revisions/2/diff?to=3",
        "status",
    ] {
        answers.push(get(&it.operator, path).await);
    }
    answers.push(patch(&it.operator, "plugins/guard?expected_version=3", json!({ "config": 7 })).await);
    answers.push(post(&it.operator, "revisions/2/rollback?dry_run=true").await);
    answers.push(delete(&it.operator, "plugins/guard?expected_version=1").await);
    for answer in &answers {
        assert!(!answer.text.contains(canary) && !answer.text.contains("1234567"), "{answer:?}");
    }
    assert!(!it.gateway.log().to_string().contains(canary));
}

#[tokio::test]
async fn plugin_level_and_tenant_level_config_are_checked_each_by_its_own_schema() {
    let only = |name: &str, kind: &str| json!({ "type": "object", "properties": { name: { "type": kind } }, "additionalProperties": false });
    let guard = FakePlugin::named("guard");
    let guard = guard
        .config_schema(only("server", "string"))
        .tenant_config_schema(only("limit", "integer"))
        .start()
        .await;
    let it = stored().await;
    let spec = |config: Value| json!({ "endpoint": guard.endpoint(), "accepted": guard.accepted(), "allow_plaintext": true, "config": config });
    written(&put(&it.operator, "plugins/guard?expected_version=0", spec(json!({ "server": "a" }))).await);
    let bind = |config: Value| json!({ "plugin": "guard", "tenant": "*", "priority": 30, "config": config });
    for (path, body, pointer) in [
        ("plugins/guard?expected_version=2", spec(json!({ "server": 7 })), "/config/server"),
        ("plugins/guard?expected_version=2", spec(json!({ "limit": 7 })), "/config"),
        ("bindings/b?expected_version=0", bind(json!({ "server": "a" })), "/config"),
        ("bindings/b?expected_version=0", bind(json!({ "limit": "many" })), "/config"),
    ] {
        let answer = put(&it.operator, path, body).await;
        assert_http_error(&answer, Code::ConfigInvalid);
        assert!(pointers(&answer).iter().any(|at| at.starts_with(pointer)), "{pointer}: {answer:?}");
    }
    written(&put(&it.operator, "bindings/b?expected_version=0", bind(json!({ "limit": 7 }))).await);
    // One tenant's mistake is rejected before it is written, and another tenant's calls are not affected.
    written(&put(&it.operator, "tenants/globex?expected_version=0", json!({})).await);
    let before = call(&it.gateway, "acme").await.body["plan_digest"].clone();
    let wrong = patch(
        &it.operator,
        "tenants/globex?expected_version=4",
        json!({ "config": { "guard": { "limit": "x" } } }),
    )
    .await;
    assert_http_error(&wrong, Code::ConfigInvalid);
    assert_eq!(call(&it.gateway, "acme").await.body["plan_digest"], before);
    assert_eq!(call(&it.gateway, "globex").await.status, 200);
    assert_eq!((status(&it.gateway).await["revision"].clone(), head(&it.operator).await), (json!(4), 4));
}

#[tokio::test]
async fn revisions_say_who_wrote_what_and_why_and_lead_back() {
    let it = stored().await;
    written(
        &put(
            &it.operator,
            "tenants/a?expected_version=0&reason=first%20one",
            json!({ "labels": { "v": "1" } }),
        )
        .await,
    );
    written(&put(&it.operator, "tenants/a?expected_version=2", json!({ "labels": { "v": "2" } })).await);
    written(&put(&it.operator, "tenants/b?expected_version=0", json!({})).await);
    let list = get(&it.operator, "revisions?limit=3").await.body;
    let numbers: Vec<_> =
        list["revisions"].as_array().unwrap().iter().map(|one| one["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [4, 3, 2]);
    let rest =
        get(&it.operator, &format!("revisions?cursor={}", list["next_cursor"].as_str().unwrap())).await.body;
    assert_eq!((&rest["revisions"][0]["author"], &rest["next_cursor"]), (&json!("file"), &Value::Null));
    let second = get(&it.operator, "revisions/2").await.body;
    let said = ["author", "reason"].map(|member| second[member].as_str().unwrap_or_default().to_owned());
    assert_eq!(said, ["operator (https://id.example.com)".to_owned(), "first one".into()]);
    let line = it.gateway.log().wait_for(|line| line.field("reason") == Some(&json!("first one"))).await;
    assert_eq!(line.field("event"), Some(&json!("registry.written")));
    assert_eq!(line.field("objects"), Some(&json!("created tenant a")));
    let forth = get(&it.operator, "revisions/2/diff").await.body;
    assert_eq!((&forth["to"], forth["changes"].as_array().map(Vec::len)), (&json!(4), Some(2)));
    let back = get(&it.operator, "revisions/4/diff?to=2").await.body;
    assert_eq!(back["changes"][0]["after"], forth["changes"][0]["before"]);
    for path in [
        "revisions/5",
        "revisions/5/diff",
        "revisions/2/diff?to=9",
        "revisions/x",
        "revisions/18446744073709551616",
    ] {
        assert_http_error(&get(&it.operator, path).await, Code::NotFound);
    }
    for number in [0, 9] {
        let path = format!("revisions/{number}/rollback");
        assert_http_error(&post(&it.operator, &path).await, Code::NotFound);
    }

    let gone = post(&it.operator, "revisions/2/rollback?reason=oops").await;
    assert_eq!(written(&gone), 5);
    assert_eq!(get(&it.operator, "tenants/a").await.body["spec"]["labels"]["v"], "1");
    assert_http_error(&get(&it.operator, "tenants/b").await, Code::NotFound);
    assert_eq!(get(&it.operator, "tenants/acme").await.body["version"], 1, "the file's stay");
    assert_eq!(call(&it.gateway, "a").await.body["revision"], 5);
}
