//! Plugins whose processes register themselves.

mod leases;
mod process;
mod refusals;
mod support;
mod unknown;

use hookgate_tests::{agent::HttpAgent, fake::FakePlugin, token::Token};
use serde_json::json;
use tonic::Code;

use self::support::{Registration, SOON, call, call_until, event, register, setup, with_plugin};
use crate::admin::registry::support::{administrator, delete, get, patch, post, put, written};

/// The version of the plugin's entry.
async fn version(operator: &HttpAgent) -> u64 {
    get(operator, "plugins/guard").await.body["version"].as_u64().expect("a version")
}

#[tokio::test]
async fn a_gateway_serves_without_a_registration_and_calls_the_plugin_as_soon_as_there_is_one() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let gateway = with_plugin(setup(&folder), &plugin).start().await;
    let answer = call(&gateway).await;
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("PLUGIN_UNAVAILABLE")));
    let operator = gateway.admin(&administrator());
    let shown = get(&operator, "plugins/guard").await.body;
    assert_eq!(
        (&shown["state"], &shown["reason"]),
        (&json!("unhealthy"), &json!("not_registered")),
        "{shown:#}"
    );

    let registration = register(&folder, &plugin).await;
    call_until(&gateway, 200, SOON).await;
    let shown = get(&operator, "plugins/guard").await.body;
    assert_eq!(shown["endpoints"][0]["address"], plugin.endpoint());
    let told = event(&gateway, "endpoint.registered").await;
    assert_eq!((&told["plugin"], &told["endpoint"]), (&json!("guard"), &json!(plugin.endpoint())));
    assert_eq!(told["author"], "deployer (https://id.example.com)");

    registration.close().await;
    call_until(&gateway, 503, SOON).await;
    assert_eq!(event(&gateway, "endpoint.removed").await["reason"], "closed");
    plugin.wait_until(|counts| counts.shutdowns == 1).await;
}

#[tokio::test]
async fn calls_go_to_all_registered_endpoints_and_none_fails_when_one_leaves() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let other = FakePlugin::named("guard").start().await;
    let gateway = with_plugin(setup(&folder), &plugin).start().await;
    let (first, _second) = (register(&folder, &plugin).await, register(&folder, &other).await);
    call_until(&gateway, 200, SOON).await;
    other.wait_until(|counts| counts.initializes > 0).await;
    let mut first = Some(first);
    for number in 0..200 {
        if number == 100
            && let Some(first) = first.take()
        {
            first.close().await;
        }
        let answer = call(&gateway).await;
        assert_eq!(answer.status, 200, "{number}: {answer:?}");
    }
    assert!(plugin.seen().len() > 10 && other.seen().len() > 100);
}

#[tokio::test]
async fn a_change_of_the_entry_keeps_the_registered_endpoints_in_use() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let gateway = setup(&folder).set("/self_registration/unknown_plugins", "allow").start().await;
    let operator = gateway.admin(&administrator());
    let _registration = register(&folder, &plugin).await;
    let binding = json!({ "plugin": "guard", "tenant": "*", "priority": 10 });
    written(&put(&operator, "bindings/guard?expected_version=0", binding).await);
    call_until(&gateway, 200, SOON).await;
    let path = format!("plugins/guard?expected_version={}", version(&operator).await);
    let change = patch(&operator, &path, json!({ "limits": { "in_flight": 3 } })).await;
    written(&change);
    plugin.wait_until(|counts| counts.initializes > 1).await;
    assert_eq!(call(&gateway).await.status, 200);
    // Another config: the plugin is told that the old one is not used any more.
    let path = format!("plugins/guard?expected_version={}", version(&operator).await);
    written(&patch(&operator, &path, json!({ "config": { "a": 1 } })).await);
    plugin.wait_until(|counts| counts.releases > 0).await;
    assert_eq!(plugin.counts().shutdowns, 0, "it is in use");
    written(&post(&operator, "plugins/guard/disable").await);
    plugin.wait_until(|counts| counts.shutdowns == 1).await;
}

#[tokio::test]
async fn a_removed_plugin_and_a_gateway_that_shuts_down_end_the_stream_and_say_so() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let gateway = setup(&folder).start().await;
    let operator = gateway.admin(&administrator());
    let mut removed = register(&folder, &plugin).await;
    let path = format!("plugins/guard?expected_version={}", version(&operator).await);
    written(&delete(&operator, &path).await);
    let refused = removed.renew().await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::NotFound, "the plugin `guard` doesn't register itself any more")
    );
    assert_eq!(event(&gateway, "endpoint.removed").await["reason"], "plugin_removed");

    let mut draining = register(&folder, &plugin).await;
    gateway.terminate();
    let refused = draining.answer().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    gateway.exited().await;
}

#[tokio::test]
async fn a_registration_ends_with_its_token_and_the_endpoint_stays() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    // The leeway is 30 s.
    let token: Token = support::registering(&["guard"]).expiring_in(-27);
    let gateway = with_plugin(setup(&folder), &plugin).start().await;
    let begun = Registration::begin(&folder, &token, "guard", &plugin.endpoint()).await;
    let (mut registration, _) = begun.unwrap();
    let refused = registration.answer().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
    call_until(&gateway, 200, SOON).await;
}
