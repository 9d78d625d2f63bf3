//! Tests tenant ids that could be confused with another id or with something else (G34): each tenant has
//! its own chain only.

use std::{collections::BTreeSet, fmt::Write as _};

use hookgate::core::error::Code;
use hookgate_proto::types::v1::NoticeKind;
use hookgate_tests::{
    agent::HttpAnswer,
    fake::{Act, FakePlugin, Seen, notice},
    gateway::Gateway,
    token::Token,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{apply, ask, delete, get, head, patch, pointers, put, stored_as, written},
    edge::support::{POINT, assert_http_error, assert_no_panic, payload},
};

/// Valid ids, although they look odd.
const ODD: &[&str] = &[
    "acme",
    "../acme",
    "acme/..",
    "a/b",
    "a//b",
    "/",
    ".",
    "..",
    ":",
    "acme:globex",
    "*x",
    "acme*",
    "?",
    "acme?dry_run=true",
    "#",
    "%2e%2e",
    "%2Facme",
    "%",
    "%00",
    "%FF",
    "+",
    "a b",
    " acme",
    "acme ",
    "a&b=c",
    "'; DROP TABLE hookgate_tenants;--",
    "\" OR \"\"=\"",
    "\\",
    "$1",
    "?1",
    "{}",
    "${HOME}x",
    "__proto__",
    "constructor",
    "null",
    "0",
    "-1",
    "true",
    "plan",
    "acme/plan",
    "~1acme",
    "~0",
    "😀",
    "👩‍👩‍👧",
    // Similar to `acme`: another letter, another case, another normalization.
    "ACME",
    "Acme",
    "аcme",
    "caf\u{e9}",
    "cafe\u{301}",
    "\u{212b}",
    "\u{c5}",
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "ſ",
    "s",
    "İ",
    "i\u{307}",
    "I",
    "i",
    "acme\u{200b}",
    "acme\u{feff}",
    "\u{202e}emca",
];

/// [`ODD`] and the longest ids.
fn hostile() -> Vec<String> {
    let mut ids: Vec<String> = ODD.iter().copied().map(str::to_owned).collect();
    // The longest ids, which differ in one byte at either end.
    ids.extend(["x".repeat(256), "x".repeat(255), format!("{}y", "x".repeat(255)), "😀".repeat(64)]);
    // Tenants may not contain references.
    ids.retain(|id| !id.contains("${"));
    ids
}

/// Impossible ids.
fn impossible() -> Vec<String> {
    let mut ids: Vec<String> =
        ["", "*", "\0", "acme\0", "a\nb", "\r\n", "\t", "\u{1b}[31m", "\u{7f}", "\u{85}"]
            .map(str::to_owned)
            .into();
    ids.extend(["x".repeat(257), format!("{}é", "x".repeat(255)), "x".repeat(4096), "😀".repeat(65)]);
    ids
}

/// `id` as a path segment.
fn part(id: &str) -> String {
    id.bytes().fold(String::new(), |mut part, byte| {
        if byte.is_ascii_alphanumeric() {
            part.push(char::from(byte));
        } else {
            write!(part, "%{byte:02X}").expect("a string takes everything");
        }
        part
    })
}

/// Whether `id` can be a path segment. Clients remove dot segments, however they are encoded.
fn has_path(id: &str) -> bool {
    !["", ".", ".."].contains(&id)
}

fn canary(at: usize) -> String {
    format!("canary-{at}-")
}

/// Reports what the plugin was given.
fn telling(seen: &Seen) -> Act {
    let config: Value = serde_json::from_slice(&seen.call.tenant_config).expect("it is JSON");
    Act::pass().with_notice(notice(NoticeKind::Info, "", "given", &config))
}

/// The distinct pairs of tenant and config that a plugin was given.
fn given(plugin: &FakePlugin) -> BTreeSet<(String, String)> {
    let one = |seen: &Seen| {
        let tenant = seen.call.context.as_ref().expect("a call has one").tenant.clone();
        (tenant, String::from_utf8(seen.call.tenant_config.to_vec()).expect("JSON is text"))
    };
    plugin.seen().iter().map(one).collect()
}

/// The tenant `id` with a canary in its config, and its own binding with the same canary.
fn document(at: usize, id: &str) -> Value {
    json!({
        "tenants": [{ "id": id, "config": { "shared": { "canary": canary(at) } } }],
        "bindings": [{
            "name": format!("own-{at}"), "plugin": "own", "tenant": id, "priority": 30,
            "config": { "own": canary(at) },
        }],
    })
}

fn assert_own(at: usize, id: &str, answer: &HttpAnswer) {
    assert_eq!(answer.status, 200, "{id:?}: {answer:?}");
    let details: Vec<_> = answer.body["notices"].as_array().expect("both told").iter().collect();
    let details: Vec<_> = details.iter().map(|notice| &notice["details"]).collect();
    let expected = [json!({ "canary": canary(at) }), json!({ "own": canary(at) })];
    assert_eq!(details, expected.iter().collect::<Vec<_>>(), "{id:?}");
}

/// One call for `id`, with an operator name that is valid whatever the id.
async fn call(gateway: &Gateway, id: &str) -> HttpAnswer {
    let token = Token::for_tenant(id).claim("sub", "agent").mint();
    gateway.http(&token).call(POINT, payload()).await
}

async fn plugins() -> [FakePlugin; 2] {
    let mut plugins = [FakePlugin::named("shared").start().await, FakePlugin::named("own").start().await];
    for plugin in &mut plugins {
        plugin.set_with(POINT, telling);
    }
    plugins
}

#[tokio::test]
async fn a_tenant_by_any_name_that_is_one_has_its_own_chain_and_no_other() {
    let (ids, [shared, own]) = (hostile(), plugins().await);
    let setup = Gateway::with().tenant("of-the-file").plugin(&shared).plugin(&own).binding("shared", 10);
    let it = stored_as(setup.admin()).await;
    for (at, id) in ids.iter().enumerate() {
        let mut document = document(at, id);
        if has_path(id) {
            let tenant = document["tenants"][0].take();
            let path = format!("tenants/{}?expected_version=0", part(id));
            written(&put(&it.operator, &path, tenant).await);
            document["tenants"] = json!([]);
        }
        written(&apply(&it.operator, "", document).await);
    }
    for (at, id) in ids.iter().enumerate() {
        assert_own(at, id, &call(&it.gateway, id).await);
        if has_path(id) {
            let path = format!("tenants/{}", part(id));
            let shown = get(&it.operator, &path).await;
            assert_eq!((&shown.body["id"], &shown.body["spec"]["id"]), (&json!(id), &json!(id)), "{shown:?}");
            assert_eq!(shown.body["spec"]["config"]["shared"]["canary"], canary(at));
            let plan = get(&it.operator, &format!("{path}/plan")).await;
            assert_eq!(plan.body["tenant"], json!(id), "{plan:?}");
            assert!(plan.text.contains(&format!("own-{at}\"")), "{plan:?}");
        }
        let bindings = get(&it.operator, &format!("bindings?tenant={}", part(id))).await;
        let bindings = bindings.body["bindings"].as_array().expect("a list");
        assert_eq!((bindings.len(), &bindings[0]["name"]), (1, &json!(format!("own-{at}"))), "{id:?}");
    }
    let all = |member: &str| -> BTreeSet<_> {
        let config = |at: usize| json!({ member: canary(at) }).to_string();
        ids.iter().enumerate().map(|(at, id)| (id.clone(), config(at))).collect()
    };
    assert_eq!((given(&shared), given(&own)), (all("canary"), all("own")));

    // What happens to one tenant doesn't affect the others.
    let (gone, off) = (ids.iter().position(|id| id == "../acme"), ids.iter().position(|id| id == "ACME"));
    let version = get(&it.operator, "tenants/ACME").await.body["version"].clone();
    written(
        &patch(
            &it.operator,
            &format!("tenants/ACME?expected_version={version}"),
            json!({ "enabled": false }),
        )
        .await,
    );
    let at = gone.expect("it is among them");
    let version = get(&it.operator, "tenants/%2E%2E%2Facme").await.body["version"].clone();
    let with_binding = json!({ "remove": [{ "kind": "tenant", "name": "../acme" }, { "kind": "binding", "name": format!("own-{at}") }], "versions": { "tenants": { "../acme": version } } });
    written(&apply(&it.operator, "", with_binding).await);
    for (at, id) in ids.iter().enumerate() {
        let answer = call(&it.gateway, id).await;
        match (Some(at) == gone, Some(at) == off) {
            (true, _) => assert_eq!(answer.body["code"], "TENANT_UNKNOWN", "{answer:?}"),
            (_, true) => assert_eq!(answer.body["code"], "TENANT_DISABLED", "{answer:?}"),
            _ => assert_own(at, id, &answer),
        }
    }
    assert_no_panic(&it.gateway);
}

#[tokio::test]
async fn what_can_be_no_tenant_is_refused_in_a_sentence_and_reaches_no_database_and_no_plugin() {
    let [shared, own] = plugins().await;
    let setup = Gateway::with().tenant("acme").plugin(&shared).plugin(&own).binding("shared", 10);
    let it = stored_as(setup.admin()).await;
    for (at, id) in impossible().iter().enumerate() {
        let tenant = apply(&it.operator, "", json!({ "tenants": [{ "id": id }] })).await;
        let binding = json!({ "name": "own", "plugin": "own", "tenant": id, "priority": 30 });
        // A binding may be for all tenants.
        if id != "*" {
            let binding = apply(&it.operator, "", json!({ "bindings": [binding] })).await;
            assert_http_error(&binding, Code::ConfigInvalid);
            assert_eq!(pointers(&binding), ["/bindings/0/tenant"], "{binding:?}");
        }
        let code = if id == "*" { Code::ConfigInvalid } else { Code::PayloadInvalid };
        assert_http_error(&tenant, code);
        assert!(pointers(&tenant)[0].starts_with("/tenants/0"), "{tenant:?}");
        if has_path(id) {
            for (method, version, body) in [
                (Method::PUT, "?expected_version=0", Some(document(at, id)["tenants"][0].clone())),
                (Method::PATCH, "?expected_version=1", Some(json!({}))),
                (Method::DELETE, "?expected_version=1", None),
                (Method::GET, "", None),
            ] {
                let is_put = method == Method::PUT;
                let path = format!("tenants/{}{version}", part(id));
                let answer = ask(&it.operator, method, &path, body.as_ref()).await;
                let code = match (is_put, id.as_str()) {
                    (true, "*") => Code::ConfigInvalid,
                    (true, _) => Code::PayloadInvalid,
                    (false, _) => Code::NotFound,
                };
                assert_http_error(&answer, code);
                let said = "The id of a tenant must have 1 to 256 bytes, and no control characters";
                assert!(code != Code::PayloadInvalid || answer.body["detail"] == said, "{answer:?}");
            }
        }
        let answer = call(&it.gateway, id).await;
        assert!((400..500).contains(&answer.status), "{id:?}: {answer:?}");
    }
    assert_http_error(&delete(&it.operator, "tenants/?expected_version=1").await, Code::NotFound);
    let unnamed = put(&it.operator, "tenants/?expected_version=0", json!({})).await;
    assert_http_error(&unnamed, Code::PayloadInvalid);
    assert_eq!(head(&it.operator).await, 1, "nothing was written");
    let seen: BTreeSet<_> = given(&shared).into_iter().chain(given(&own)).collect();
    assert_eq!(seen, BTreeSet::new(), "no plugin was called");
    assert_eq!(call(&it.gateway, "acme").await.status, 200);
    assert_no_panic(&it.gateway);
}
