//! Tests what a write predicts about failing steps, and how its plugin then reports.

use hookgate_proto::admin::v1 as wire;
use hookgate_tests::{
    agent::HttpAgent,
    fake::{FakePlugin, Handshake},
};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};
use tonic::Status;

use crate::{
    admin::{
        grpc::support::{dial, text, written as as_http},
        registry::support::{Stored, administrator, get, patch, post, put, stored_as, written},
    },
    edge::support::POINT,
    registry::support::{SOON, call, file_with},
};

async fn stored() -> Stored {
    stored_as(file_with("acme").set("/egress/cidrs", json!(["127.0.0.0/8"]))).await
}

fn said(value: &Value) -> &str {
    value.as_str().expect("it is text")
}

/// The steps that would fail at `before_tool_call` for the first tenant in the sample, with the reasons.
fn failing(answer: &Value) -> Vec<(&str, &str, &str)> {
    let failing = answer["effects"]["sample"][0]["points"]["before_tool_call"]["failing"].as_array();
    let failing = failing.unwrap_or_else(|| panic!("{answer:#}"));
    failing.iter().map(|of| (said(&of["binding"]), said(&of["reason"]), said(&of["detail"]))).collect()
}

/// Waits until the plugin is in this state.
async fn state_is(operator: &HttpAgent, name: &str, state: &str) -> Value {
    let end = Instant::now() + SOON;
    loop {
        let plugin = get(operator, &format!("plugins/{name}")).await.body;
        if plugin["state"] == state {
            return plugin;
        }
        assert!(Instant::now() < end, "{plugin:#}");
        sleep(Duration::from_millis(20)).await;
    }
}

fn bound(plugin: &str) -> Value {
    json!({ "plugin": plugin, "tenant": "*", "priority": 30 })
}

/// Does a dry run of binding `name`, and returns the steps that would fail.
async fn bind(operator: &HttpAgent, name: &str, binding: Value) -> Value {
    put(operator, &format!("bindings/{name}?expected_version=0&dry_run=true"), binding).await.body
}

#[tokio::test]
async fn a_step_at_a_point_that_its_plugin_does_not_offer_fails_in_the_dry_run_and_in_the_call() {
    let Stored { gateway, operator, folder: _folder } = stored().await;
    let wrong = json!({ "plugin": "content-policy", "tenant": "acme", "priority": 20, "points": ["before_tool_call"] });
    let tried = bind(&operator, "wrong", wrong.clone()).await;
    let why = "its binding names this point, but the plugin does not offer it";
    assert_eq!(failing(&tried), [("wrong", "point_not_offered", why)]);
    let done = put(&operator, "bindings/wrong?expected_version=0", wrong).await;
    written(&done);
    assert_eq!(done.body["effects"], tried["effects"]);
    let answer = call(&gateway, "acme").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body["detail"].to_string().contains(why), "{answer:?}");
}

#[tokio::test]
async fn steps_of_a_plugin_that_is_not_ready_fail_in_the_dry_run() {
    let (guard, other) =
        (FakePlugin::named("guard").only(&[POINT]).start().await, FakePlugin::named("else").start().await);
    let Stored { gateway: _gateway, operator, folder: _folder } = stored().await;
    let added =
        put(&operator, "plugins/guard?expected_version=0", json!({ "endpoint": guard.endpoint() })).await;
    written(&added);
    let waits = state_is(&operator, "guard", "pending").await;
    let approval = "the plugin is waiting for approval of its manifest";
    let tried = bind(&operator, "guard", bound("guard")).await;
    assert_eq!(failing(&tried), [("guard", "not_ready", approval)]);

    let liar = json!({ "endpoint": other.endpoint(), "accepted": other.accepted() });
    written(&put(&operator, "plugins/liar?expected_version=0", liar).await);
    state_is(&operator, "liar", "refused").await;
    let tried = bind(&operator, "liar", bound("liar")).await;
    let [("liar", "not_ready", why)] = failing(&tried)[..] else { panic!("{tried:#}") };
    assert!(why.contains("NAME_MISMATCH"), "{why}");

    // With consent and a connection, the step is expected to run. In a process that never met the plugin it
    // is expected to fail, and so it is without consent.
    written(&put(&operator, "bindings/guard?expected_version=0", bound("guard")).await);
    let path = |query: &str| format!("plugins/guard?expected_version={}{query}", waits["version"]);
    let consent = json!({ "accepted": guard.accepted() });
    let tried = patch(&operator, &path("&dry_run=true"), consent.clone()).await.body;
    assert!(failing(&tried).is_empty(), "{tried:#}");
    written(&patch(&operator, &path(""), consent).await);
    let version = state_is(&operator, "guard", "ready").await["version"].clone();
    let path = format!("plugins/guard?expected_version={version}&dry_run=true");
    let config = patch(&operator, &path, json!({ "config": { "level": 1 } })).await.body;
    assert!(failing(&config).is_empty(), "{config:#}");
    let moved = patch(&operator, &path, json!({ "endpoint": "http://127.0.0.1:9" })).await.body;
    assert_eq!(
        failing(&moved),
        [("guard", "not_ready", "the plugin has not been reached at its new address yet")]
    );
    let back = patch(&operator, &path, json!({ "accepted": null })).await.body;
    assert_eq!(failing(&back), [("guard", "not_ready", approval)]);
    let otherwise = json!({ "points": { "before_tool_call": null, "before_response": { "access": "read", "side_effects": "none" } } });
    let other = patch(&operator, &path, json!({ "accepted": otherwise })).await.body;
    let points = &other["effects"]["sample"][0]["points"];
    assert_eq!(points["before_tool_call"]["removed"], json!(["guard"]), "{other:#}");
    assert_eq!(points["before_response"]["failing"][0]["binding"], "guard", "{other:#}");
}

#[tokio::test]
async fn a_rejected_entry_shows_in_the_answer_and_in_every_view_of_the_plugin() {
    let plugin = FakePlugin::named("guard").start().await;
    let Stored { gateway, operator, folder: _folder } = stored().await;
    let entry =
        json!({ "endpoint": plugin.endpoint(), "config": { "level": 1 }, "accepted": plugin.accepted() });
    let added = put(&operator, "plugins/guard?expected_version=0", entry).await;
    assert_eq!(added.body["rejected"], json!([]), "{added:?}");
    let version = written(&added);
    written(&put(&operator, "bindings/guard?expected_version=0", bound("guard")).await);
    assert_eq!(state_is(&operator, "guard", "ready").await["rejected"], Value::Null);

    plugin.set_initialize(Handshake::Fails(Status::invalid_argument("level 2 is too high")));
    let path = format!("plugins/guard?expected_version={version}");
    let level = json!({ "config": { "level": 2 } });
    let refused = patch(&operator, &path, level.clone()).await;
    let version = written(&refused);
    let is_told = |held: &Value| {
        assert_eq!(held["reason"], "CONFIG_REFUSED", "{held:#}");
        assert!(held["detail"].to_string().contains("level 2 is too high"), "{held:#}");
    };
    assert_eq!(refused.body["rejected"][0]["plugin"], "guard", "{refused:?}");
    is_told(&refused.body["rejected"][0]);
    let shown = get(&operator, "plugins/guard").await.body;
    assert_eq!(shown["state"], "ready", "by the entry before");
    is_told(&shown["rejected"]);
    let listed = get(&operator, "plugins?owner=api").await.body;
    is_told(&listed["plugins"][0]["rejected"]);
    is_told(&post(&operator, "plugins/guard/describe").await.body["plugin"]["rejected"]);
    assert_eq!(call(&gateway, "acme").await.status, 200);
    // Writers of other objects don't see the rejection.
    let other = put(&operator, "tenants/globex?expected_version=0", json!({})).await;
    assert_eq!((other.status, &other.body["rejected"]), (201, &json!([])), "{other:?}");

    // A writer of the same entry does, over gRPC and over HTTP.
    let mut client = dial(&gateway, &administrator()).await;
    let request = wire::PatchObjectRequest {
        kind: wire::Kind::Plugin.into(),
        name: "guard".into(),
        patch_json: text(&level),
        expected_version: Some(version),
        ..wire::PatchObjectRequest::default()
    };
    let again = as_http(client.patch_object(request).await.expect("it may be").into_inner().written);
    assert_eq!((&again["revision"], &again["rejected"]), (&Value::Null, &refused.body["rejected"]));

    plugin.set_initialize(Handshake::Proper);
    let taken = post(&operator, "plugins/guard/describe").await;
    assert_eq!(taken.body["plugin"]["rejected"], Value::Null, "{taken:?}");
}
