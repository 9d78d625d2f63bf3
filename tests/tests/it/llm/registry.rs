//! Providers and rules for models that operators write to a registry while calls go on.

use std::time::Duration;

use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    gateway::{Gateway, Setup},
    provider::{FakeProvider, ProviderAct, chunk},
    token::token,
};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use super::support::{ClientAnswer, ask, chat, send, stream, user};
use crate::{
    admin::registry::support::{
        Stored, administrator, apply, confined, delete, get, patch, post, put, stored_as, written,
    },
    registry::support::{serves_by, status},
};

const KEY: &str = "sk-of-the-operator";
const KEY_REFERENCE: &str = "${HOOKGATE_SECRET_PROVIDER}";

/// A gateway that has models of the registry only, for two tenants.
fn empty() -> Setup {
    Gateway::with()
        .tenant("acme")
        .tenant("globex")
        .admin()
        .set("/llm", json!({}))
        .environment("HOOKGATE_SECRET_PROVIDER", KEY)
}

fn upstream(provider: &FakeProvider) -> Value {
    json!({ "base_url": provider.base_url(), "credential": KEY_REFERENCE })
}

async fn asked(gateway: &Gateway) -> ClientAnswer {
    chat(gateway, &ask(&json!([user("hello")]))).await
}

/// The first error of a refused write.
fn refused(answer: &HttpAnswer) -> (u16, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let error = &answer.body["errors"][0];
    (answer.status, text(&error["pointer"]), text(&error["message"]))
}

#[tokio::test]
async fn a_model_of_the_registry_can_be_used_from_its_revision_on() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let Stored { gateway, operator, folder: _folder } = stored_as(empty()).await;
    asked(&gateway).await.assert_error(404, "model_not_found");

    written(&put(&operator, "upstreams/ours?expected_version=0", upstream(&provider)).await);
    asked(&gateway).await.assert_error(404, "model_not_found");
    let rule = json!({ "match": "gpt-*", "upstream": "ours", "as": "gpt-5-nano" });
    let ruled = written(&put(&operator, "models/gpt?expected_version=0", rule).await);
    assert_eq!(asked(&gateway).await.message()["content"], "hi");
    let got = provider.request();
    assert_eq!(got.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(got.json()["model"], "gpt-5-nano");

    written(&delete(&operator, &format!("models/gpt?expected_version={ruled}")).await);
    asked(&gateway).await.assert_error(404, "model_not_found");
    written(&post(&operator, &format!("revisions/{ruled}/rollback")).await);
    assert_eq!(asked(&gateway).await.message()["content"], "hi");
    let revision = get(&operator, &format!("revisions/{ruled}")).await.body;
    assert_eq!(revision["changes"][0]["kind"], "model");
    assert!(!gateway.log().to_string().contains(KEY), "{}", gateway.log());
}

#[tokio::test]
async fn what_operators_see_holds_references_and_no_key() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let in_file = json!({ "name": "own", "base_url": provider.base_url(), "credential": "sk-in-the-file" });
    let rules = json!([{ "match": "gpt-*", "upstream": "own" }, { "match": "*", "upstream": "own" }]);
    let setup = empty().set("/llm", json!({ "upstreams": [in_file], "models": rules }));
    let Stored { gateway, operator, folder: _folder } = stored_as(setup).await;
    written(&put(&operator, "upstreams/ours?expected_version=0", upstream(&provider)).await);

    let listed = get(&operator, "upstreams").await;
    let specs: Vec<_> = listed.body["upstreams"].as_array().unwrap().iter().map(|one| &one["spec"]).collect();
    assert_eq!(specs[0]["credential"], KEY_REFERENCE);
    assert!(specs[1].get("credential").is_none() && specs[1]["name"] == "own", "{listed:?}");
    let models = get(&operator, "models?upstream=own&owner=file").await;
    let priorities: Vec<_> = models.body["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (rule["name"].clone(), rule["spec"]["priority"].clone()))
        .collect();
    assert_eq!(priorities, [(json!("*@own"), json!(20)), (json!("gpt-*@own"), json!(10))]);
    assert_eq!(asked(&gateway).await.message()["content"], "hi");
    assert_eq!(provider.request().headers["authorization"], "Bearer sk-in-the-file");
    for path in ["upstreams", "revisions/1", "revisions/2", "upstreams/own", "upstreams/ours"] {
        let text = get(&operator, path).await.body.to_string();
        assert!(!text.contains("sk-"), "{path}: {text}");
    }
    // A tenant's operators see none of it.
    let tenants = gateway.admin(&confined("acme"));
    for path in ["upstreams", "upstreams/own", "models", "models/gpt-*@own"] {
        assert_eq!(get(&tenants, path).await.status, 404, "{path}");
    }
    let of_file = patch(&operator, "upstreams/own?expected_version=1", json!({ "labels": {} })).await;
    assert_eq!((of_file.status, &of_file.body["code"]), (409, &json!("CONFLICT")), "{of_file:?}");
}

#[tokio::test]
async fn rules_of_the_file_and_of_the_api_are_tried_by_priority() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let own = json!({ "name": "own", "base_url": provider.base_url() });
    let rules = json!([{ "match": "gpt-5", "upstream": "own", "as": "first" }]);
    let setup = empty().set("/llm", json!({ "upstreams": [own], "models": rules }));
    let Stored { gateway, operator, folder: _folder } = stored_as(setup).await;
    let sent = async |wanted: &str| {
        asked(&gateway).await.message();
        assert_eq!(provider.requests().last().expect("one").json()["model"], wanted);
    };
    sent("first").await;
    let rule = json!({ "match": "gpt-5", "upstream": "own", "as": "behind" });
    let behind = written(&put(&operator, "models/mine?expected_version=0", rule).await);
    sent("first").await;
    let front = json!({ "priority": 9, "as": "front" });
    written(&patch(&operator, &format!("models/mine?expected_version={behind}"), front).await);
    sent("front").await;
}

#[tokio::test]
async fn an_upstream_that_the_api_may_not_have_is_refused_with_the_place() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let Stored { gateway, operator, folder: _folder } = stored_as(empty()).await;
    let cases = [
        (json!({ "base_url": "https://10.0.0.1/v1" }), "/base_url", "is in no network that `egress` permits"),
        (json!({ "base_url": "https://169.254.169.254/v1" }), "/base_url", "never connects"),
        (json!({ "credential": "sk-literal" }), "/credential", "is not a reference"),
        (
            json!({ "credential": "${HOOKGATE_SECRET_PROVIDER:-sk-literal}" }),
            "/credential",
            "is not a reference",
        ),
        (
            json!({ "credential": "${PATH}" }),
            "/credential",
            "the API may not name the environment variable PATH",
        ),
        (
            json!({ "credential": "${HOOKGATE_SECRET_OTHER}" }),
            "/credential",
            "HOOKGATE_SECRET_OTHER is not set",
        ),
        (json!({ "credential": "${file:/etc/passwd}" }), "/credential", "the API may not name the file"),
        (json!({ "colour": "blue" }), "/colour", "not a key"),
    ];
    for (members, pointer, message) in cases {
        let mut spec = upstream(&provider);
        spec.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let answer = put(&operator, "upstreams/ours?expected_version=0", spec).await;
        let (status, at, said) = refused(&answer);
        assert_eq!((status, at.as_str()), (422, pointer), "{members}: {answer:?}");
        assert!(
            said.contains(message) && !answer.body.to_string().contains("sk-literal"),
            "{members}: {said}"
        );
    }
    let rule = json!({ "match": "gpt-*", "upstream": "nobody" });
    let answer = put(&operator, "models/gpt?expected_version=0", rule).await;
    assert_eq!(refused(&answer).1, "/upstream", "{answer:?}");
    assert_eq!(status(&gateway).await["revision"], 1);
}

#[tokio::test]
async fn an_upstream_that_a_rule_names_is_not_removed() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let Stored { gateway, operator, folder: _folder } = stored_as(empty()).await;
    let document = json!({
        "upstreams": [{ "name": "ours", "base_url": provider.base_url(), "credential": KEY_REFERENCE }],
        "models": [{ "match": "gpt-*", "upstream": "ours" }],
    });
    let made = written(&apply(&operator, "", document).await);
    asked(&gateway).await.message();
    let answer = delete(&operator, &format!("upstreams/ours?expected_version={made}")).await;
    let (status, pointer, message) = refused(&answer);
    assert_eq!((status, pointer.as_str()), (422, "/models/gpt-*@ours/upstream"), "{answer:?}");
    assert!(
        message.starts_with("upstream `ours` would be removed, but model `gpt-*@ours` names it"),
        "{message}"
    );
    let both = json!({ "remove": [{ "kind": "model", "name": "gpt-*@ours" }, { "kind": "upstream", "name": "ours" }] });
    written(&apply(&operator, "", both).await);
    asked(&gateway).await.assert_error(404, "model_not_found");
}

/// Asks again and again until `ended`. Returns how often, and panics if an answer is an error.
async fn load(gateway: &Gateway, ended: &tokio_util::sync::CancellationToken) -> usize {
    let mut count = 0;
    while !ended.is_cancelled() {
        assert_eq!(asked(gateway).await.message()["content"], "hi");
        count += 1;
    }
    count
}

#[tokio::test]
async fn a_provider_s_key_is_rotated_under_load_without_a_failed_call() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let secrets = TempDir::new().unwrap();
    let file = |name: &str| secrets.path().join(name).display().to_string();
    let write = |name: &str, key: &str| std::fs::write(file(name), format!("{key}\n")).unwrap();
    write("first", "sk-first");
    write("second", "sk-second");
    let setup = empty().set("/secrets", json!({ "dir": secrets.path() }));
    let Stored { gateway, operator, folder: _folder } = stored_as(setup).await;
    let spec =
        json!({ "base_url": provider.base_url(), "credential": format!("${{file:{}}}", file("first")) });
    let mut version = written(&put(&operator, "upstreams/ours?expected_version=0", spec).await);
    let rule = json!({ "match": "*", "upstream": "ours" });
    written(&put(&operator, "models/all?expected_version=0", rule).await);

    let ended = tokio_util::sync::CancellationToken::new();
    let rotation = async {
        for name in ["second", "first", "second"] {
            sleep(Duration::from_millis(100)).await;
            let key = json!({ "credential": format!("${{file:{}}}", file(name)) });
            version =
                written(&patch(&operator, &format!("upstreams/ours?expected_version={version}"), key).await);
        }
        // The file's contents change, and the gateway is told so.
        write("second", "sk-third");
        gateway.hang_up();
        let third = || {
            provider.requests().iter().any(|request| request.headers["authorization"] == "Bearer sk-third")
        };
        for _ in 0..200 {
            if third() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        assert!(third(), "the new contents are used\n{}", gateway.log());
        ended.cancel();
    };
    let (first, second, ()) = tokio::join!(load(&gateway, &ended), load(&gateway, &ended), rotation);
    assert!(first > 0 && second > 0);
    let keys: std::collections::BTreeSet<_> = provider
        .requests()
        .iter()
        .map(|request| request.headers["authorization"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys, ["Bearer sk-first", "Bearer sk-second", "Bearer sk-third"].map(String::from).into());
}

#[tokio::test]
async fn no_spelling_of_an_address_evades_what_egress_permits() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let Stored { gateway: _gateway, operator, folder: _folder } = stored_as(empty()).await;
    for host in [
        "10.0.0.1",
        "167772161",
        "0x0a000001",
        "012.0.0.1",
        "10.1",
        "10.0.0.1.",
        "[::ffff:10.0.0.1]",
        "\u{ff11}0.0.0.1",
    ] {
        let mut spelled = upstream(&provider);
        spelled["base_url"] = json!(format!("https://{host}/v1"));
        let answer = put(&operator, "upstreams/ours?expected_version=0", spelled).await;
        let (status, at, _) = refused(&answer);
        assert_eq!((status, at.as_str()), (422, "/base_url"), "{host}: {answer:?}");
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn what_one_gateway_lacks_fails_there_and_nothing_is_sent() {
    let provider = FakeProvider::always(ProviderAct::says("hi")).await;
    let Stored { gateway, operator, folder } = stored_as(empty()).await;
    written(&put(&operator, "upstreams/ours?expected_version=0", upstream(&provider)).await);
    let rule = json!({ "match": "*", "upstream": "ours" });
    let revision = written(&put(&operator, "models/all?expected_version=0", rule).await);

    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let local = json!({ "cidrs": ["127.0.0.0/8"] });
    let lacking = empty().environment("HOOKGATE_SECRET_PROVIDER", "").set("/egress", local);
    let lacking = lacking.store(&url, tempfile::tempdir().unwrap().path()).start().await;
    serves_by(&lacking, revision).await;
    let answer = asked(&lacking).await;
    answer.assert_error(502, "UPSTREAM_CREDENTIAL");
    assert!(answer.text.contains("can't be resolved on this gateway: the key is empty"), "{answer:?}");
    let elsewhere = empty().set("/egress", json!({ "cidrs": ["10.0.0.0/8"] }));
    let elsewhere = elsewhere.store(&url, tempfile::tempdir().unwrap().path()).start().await;
    serves_by(&elsewhere, revision).await;
    let answer = asked(&elsewhere).await;
    answer.assert_error(503, "UPSTREAM_UNAVAILABLE");
    assert!(answer.text.contains("is in no network that `egress` permits"), "{answer:?}");
    assert!(provider.requests().is_empty());
    asked(&gateway).await.message();
}

#[tokio::test]
async fn a_model_taken_from_a_tenant_is_gone_for_its_next_call_and_streams_end_as_they_would() {
    let pieces = ["a", "b", "c", "d"].map(|text| chunk(0, &json!({ "content": text }), None));
    let mut chunks = pieces.to_vec();
    chunks.push(chunk(0, &json!({}), Some("stop")));
    let provider = FakeProvider::always(ProviderAct::stream(&chunks).paced(Duration::from_millis(200))).await;
    let setup = Gateway::with().admin().set("/tenants/unknown", "refuse").set("/llm", json!({}));
    let setup = setup.environment("HOOKGATE_SECRET_PROVIDER", KEY);
    let Stored { gateway, operator, folder: _folder } = stored_as(setup).await;
    written(&put(&operator, "upstreams/ours?expected_version=0", upstream(&provider)).await);
    written(
        &put(&operator, "models/all?expected_version=0", json!({ "match": "*", "upstream": "ours" })).await,
    );
    let tenant =
        put(&operator, "tenants/acme?expected_version=0", json!({ "llm": { "models": ["gpt-*"] } })).await;
    let tenant = written(&tenant);

    let taken = async {
        while provider.requests().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        let none = json!({ "llm": { "models": [] } });
        written(&patch(&operator, &format!("tenants/acme?expected_version={tenant}"), none).await);
        asked(&gateway).await.assert_error(404, "model_not_found");
    };
    let (got, ()) = tokio::join!(stream(&gateway, ask(&json!([user("hello")]))), taken);
    assert_eq!((got.text(0).as_str(), got.is_done), ("abcd", true), "{got:?}");
    assert_eq!(provider.requests().len(), 1);
}

#[tokio::test]
async fn without_llm_in_its_file_a_gateway_writes_no_upstream() {
    let setup = Gateway::with().tenant("acme").admin();
    let Stored { operator, gateway: _gateway, folder: _folder } = stored_as(setup).await;
    let answer =
        put(&operator, "upstreams/demo?expected_version=0", json!({ "builtin": "demo-model" })).await;
    let (status, pointer, message) = refused(&answer);
    assert_eq!((status, pointer.as_str()), (422, ""), "{answer:?}");
    assert!(message.contains("set `llm: {}` in it"), "{message}");
}

#[tokio::test]
async fn clients_of_the_demo_model_need_no_provider_in_the_registry_either() {
    let Stored { gateway, operator, folder: _folder } = stored_as(empty()).await;
    let document = json!({
        "upstreams": [{ "name": "demo", "builtin": "demo-model" }],
        "models": [{ "match": "demo", "upstream": "demo" }],
    });
    written(&apply(&operator, "", document).await);
    let url = format!("http://{}/openai/v1/models", gateway.data_addr());
    let listed = send(reqwest::Client::new().get(url).bearer_auth(token("globex"))).await;
    assert_eq!(listed.json()["data"][0]["id"], "demo", "{listed:?}");
    let readers = gateway.admin(&administrator());
    let page = HttpAgent::send(readers.request(Method::GET, "/admin/v1/models?limit=1")).await.unwrap();
    assert_eq!(page.body["models"][0]["name"], "demo@demo");
}
