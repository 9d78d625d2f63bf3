//! Tests the order in which plugins are initialised: by the priority of their bindings, then by name.
//! Shutdown is in reverse order.

use std::time::Duration;

use hookgate_tests::{
    fake::{FakePlugin, Handshake},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::json;

use crate::edge::support::{POINT, payload};

/// The plugins' names in the order of these positions.
fn in_order(plugins: &[FakePlugin], places: impl Fn(&FakePlugin) -> Vec<u64>) -> Vec<&str> {
    let mut all: Vec<_> = plugins.iter().map(|plugin| (places(plugin), plugin.name())).collect();
    for (places, name) in &all {
        assert_eq!(places.len(), 1, "{name}: {places:?}");
    }
    all.sort();
    all.into_iter().map(|(_, name)| name).collect()
}

/// Plugins that answer Describe the later, the earlier their turn is.
async fn backwards<const N: usize>(names: [&str; N]) -> Vec<FakePlugin> {
    let mut plugins = Vec::new();
    for (place, name) in names.into_iter().rev().enumerate() {
        let slow = Handshake::Slow(Duration::from_millis(60 * place as u64));
        plugins.push(FakePlugin::named(name).on_describe(slow).start().await);
    }
    plugins
}

fn registered(setup: Setup, plugins: &[FakePlugin]) -> Setup {
    plugins.iter().fold(setup, |setup, plugin| setup.plugin_with(plugin, &json!({ "required": true })))
}

fn for_tenant(tenant: &str) -> serde_json::Value {
    json!({ "tenant": tenant })
}

#[tokio::test]
async fn plugins_are_initialised_by_priority_and_name_and_shut_down_in_reverse() {
    let names = ["negative", "twice", "alpha", "beta", "idle", "unbound"];
    let plugins = backwards(names).await;
    let setup = Gateway::with().tenant("acme").tenant("globex");
    let off = json!({ "enabled": false });
    let gateway = registered(setup, &plugins)
        .binding_with("beta", 10, &for_tenant("acme"))
        .binding_with("alpha", 10, &for_tenant("globex"))
        .binding_with("twice", 90, &for_tenant("acme"))
        .binding_with("twice", 5, &for_tenant("globex"))
        .binding("negative", -7)
        .binding_with("idle", -100, &off)
        .start()
        .await;
    assert_eq!(in_order(&plugins, FakePlugin::initialized_at), names);
    assert_eq!(gateway.stop().await.code, Some(0));
    let mut back = names;
    back.reverse();
    assert_eq!(in_order(&plugins, FakePlugin::shut_down_at), back);
}

#[tokio::test]
async fn plugins_that_come_with_a_reload_are_initialised_in_their_order_after_those_before() {
    let first = FakePlugin::named("first").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&first).binding("first", 50);
    let gateway = setup.clone().start().await;
    let new = backwards(["z", "m", "a"]).await;
    gateway.reload(&registered(setup, &new).binding("z", 1).binding("m", 2).binding("a", 3));
    gateway.wait_for_revision(2).await;
    assert_eq!(in_order(&new, FakePlugin::initialized_at), ["z", "m", "a"]);
    assert_eq!(gateway.stop().await.code, Some(0));
    assert_eq!(in_order(&new, FakePlugin::shut_down_at), ["a", "m", "z"]);
    assert!(first.shut_down_at() > new[0].shut_down_at(), "who was first is last");
}

#[tokio::test]
async fn missing_plugin_delays_no_other_and_is_initialised_when_it_comes() {
    let mut away = FakePlugin::named("away").start().await;
    away.stop().await;
    let here = FakePlugin::named("here").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_with(&away, &json!({ "required": false }))
        .binding_with("away", 1, &json!({ "on_error": "skip" }))
        .plugin(&here)
        .binding("here", 2)
        .start()
        .await;
    assert_eq!(gateway.http(&token("acme")).call(POINT, payload()).await.status, 200);
    away.start().await;
    away.wait_until(|counts| counts.initializes == 1).await;
    assert!(away.initialized_at() > here.initialized_at());
    assert_eq!(gateway.stop().await.code, Some(0));
    assert!(away.shut_down_at() < here.shut_down_at(), "Shutdown goes out in reverse order");
}

#[tokio::test]
async fn plugins_that_hang_hold_the_next_one_up_for_a_share_of_the_start_alone() {
    let silent = FakePlugin::named("silent").on_describe(Handshake::Hangs).start().await;
    let hanging = FakePlugin::named("hanging").on_initialize(Handshake::Hangs).start().await;
    let needed = FakePlugin::named("needed").start().await;
    let optional = json!({ "required": false, "limits": { "initialize": "120s" } });
    let skipped = json!({ "on_error": "skip" });
    // If it were not ready in that time, the start would abort.
    let gateway = Gateway::with()
        .set("/startup/wait", "20s")
        .tenant("acme")
        .plugin_with(&silent, &optional)
        .binding_with("silent", 1, &skipped)
        .plugin_with(&hanging, &optional)
        .binding_with("hanging", 2, &skipped)
        .plugin(&needed)
        .binding("needed", 3)
        .start()
        .await;
    assert!(hanging.initialized_at() < needed.initialized_at(), "its turn came, and was over");
    drop(gateway);
}
