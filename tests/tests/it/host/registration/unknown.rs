//! Plugins that nobody configured.

use hookgate_tests::fake::FakePlugin;
use serde_json::json;
use tonic::Code;

use super::support::{Registration, SOON, call_until, register, registering, setup, with_plugin};
use crate::{
    admin::registry::support::{administrator, get, patch, put, written},
    registry::consent::{approve, named_plugin_is, reason_is, wanted},
};

async fn bind(operator: &hookgate_tests::agent::HttpAgent) {
    let binding = json!({ "plugin": "guard", "tenant": "*", "priority": 10 });
    written(&put(operator, "bindings/guard?expected_version=0", binding).await);
}

#[tokio::test]
async fn an_unknown_plugin_is_called_only_after_an_operator_has_approved_it() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let gateway = setup(&folder).start().await;
    let operator = gateway.admin(&administrator());
    let (mut registration, answer) =
        Registration::begin(&folder, &registering(&["guard"]), "guard", &plugin.endpoint()).await.unwrap();
    assert_eq!((answer.lease_ms, answer.approval_pending), (30_000, true));
    let revisions = get(&operator, "revisions").await.body;
    let newest = &revisions["revisions"][0];
    assert_eq!(
        (&newest["author"], &newest["reason"]),
        (&json!("deployer (https://id.example.com)"), &json!("the plugin registered itself"))
    );
    bind(&operator).await;
    let refused = call_until(&gateway, 503, SOON).await;
    assert_eq!(refused.body["code"], "PLUGIN_UNAVAILABLE");
    let wanted = wanted(&operator).await["accepted"].clone();
    assert_eq!((plugin.counts().initializes, plugin.seen().len()), (0, 0), "it was only described");
    written(&approve(&operator, "", &wanted).await);
    call_until(&gateway, 200, SOON).await;
    assert!(!registration.renew().await.unwrap().approval_pending);
}

#[tokio::test]
async fn a_file_takes_over_a_plugin_that_registered_itself_before_and_none_that_an_operator_has_changed() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let before = setup(&folder).start().await;
    let registration = register(&folder, &plugin).await;
    before.stop().await;
    drop(registration);
    let after = with_plugin(setup(&folder), &plugin).start().await;
    let operator = after.admin(&administrator());
    assert_eq!(get(&operator, "plugins/guard").await.body["owner"], "file");
    call_until(&after, 200, SOON).await;

    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let before = setup(&folder).start().await;
    let _registration = register(&folder, &plugin).await;
    let operator = before.admin(&administrator());
    let path =
        format!("plugins/guard?expected_version={}", get(&operator, "plugins/guard").await.body["version"]);
    written(&patch(&operator, &path, json!({ "limits": { "in_flight": 3 } })).await);
    before.stop().await;
    assert_eq!(with_plugin(setup(&folder), &plugin).run_to_the_end().await.code, Some(2));
}

#[tokio::test]
async fn where_unknown_plugins_are_allowed_they_run_at_once_and_have_no_capability() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let wanting =
        FakePlugin::named("wanting").manifest(|manifest| manifest.capabilities = vec!["log".into()]);
    let wanting = wanting.start().await;
    let gateway = setup(&folder).set("/self_registration/unknown_plugins", "allow").start().await;
    let operator = gateway.admin(&administrator());
    let token = registering(&["guard", "wanting"]);
    let begun = Registration::begin(&folder, &token, "guard", &plugin.endpoint()).await;
    assert!(!begun.as_ref().unwrap().1.approval_pending);
    bind(&operator).await;
    call_until(&gateway, 200, SOON).await;
    let _wanting = Registration::begin(&folder, &token, "wanting", &wanting.endpoint()).await.unwrap();
    wanting.wait_until(|counts| counts.describes > 0).await;
    named_plugin_is(&operator, "wanting", reason_is("CAPABILITY_OVERREACH")).await;
    assert_eq!(wanting.counts().initializes, 0);
}

#[tokio::test]
async fn where_unknown_plugins_are_denied_only_configured_ones_register() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let gateway = setup(&folder).set("/self_registration/unknown_plugins", "deny").start().await;
    let operator = gateway.admin(&administrator());
    let token = registering(&["guard"]);
    let refused = Registration::begin(&folder, &token, "guard", &plugin.endpoint()).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert!(refused.message().contains("hookgate plugin add guard --self-registration"), "{refused:?}");
    assert_eq!(get(&operator, "plugins/guard").await.status, 404);
    let entry = json!({ "self_registration": true });
    written(&put(&operator, "plugins/guard?expected_version=0", entry).await);
    let _registration = register(&folder, &plugin).await;
}
