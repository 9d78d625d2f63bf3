//! Tests which configurations plugins are told to release, and when.

use hookgate_tests::{
    fake::{Act, FakePlugin, Gate},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::json;

use crate::edge::support::{POINT, payload};

/// With this `config` and timeout of the plugin.
fn setup(plugin: &FakePlugin, level: u64, timeout: &str) -> Setup {
    let members = json!({ "config": { "level": level }, "limits": { "timeout": timeout } });
    Gateway::with().tenant("acme").plugin_with(plugin, &members).binding(plugin.name(), 10)
}

/// The digest of the last configuration that was handed over.
fn last(plugin: &FakePlugin) -> String {
    plugin.initialized().pop().expect("one was").config_digest
}

#[tokio::test]
async fn configuration_is_released_when_its_last_call_has_ended_unless_it_is_in_use() {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("guard").at(POINT, Act::pass().behind(&gate)).start().await;
    let gateway = setup(&plugin, 1, "30s").set("/limits/budget", "60s").start().await;
    let first = last(&plugin);
    let agent = gateway.http(&token("acme"));
    let under_way = tokio::spawn(async move { agent.call(POINT, payload()).await });
    plugin.wait_until(|counts| counts.calls == 1).await;

    plugin.set(POINT, Act::pass());
    gateway.reload(&setup(&plugin, 2, "30s").set("/limits/budget", "60s"));
    gateway.wait_for_revision(2).await;
    let second = last(&plugin);
    let agent = gateway.http(&token("acme"));
    assert_eq!(agent.call(POINT, payload()).await.status, 200);
    assert!(plugin.released().is_empty() && !under_way.is_finished(), "a call uses it");
    gate.open();
    assert_eq!(under_way.await.unwrap().status, 200);
    plugin.wait_until(|counts| counts.releases == 1).await;
    assert_eq!(plugin.released(), std::slice::from_ref(&first));

    // Another timeout means another client with the same configuration, which is released with the last of
    // them.
    gateway.reload(&setup(&plugin, 2, "29s"));
    gateway.wait_for_revision(3).await;
    gateway.reload(&setup(&plugin, 3, "29s"));
    gateway.wait_for_revision(4).await;
    plugin.wait_until(|_| plugin.released().contains(&second)).await;
    let third = last(&plugin);
    gateway.reload(&setup(&plugin, 1, "29s"));
    gateway.wait_for_revision(5).await;
    plugin.wait_until(|_| plugin.released().contains(&third)).await;
    let mut released = plugin.released();
    // The last two clients with it may be retired at the same time.
    released.dedup();
    assert_eq!(released, [first, second, third]);
    assert_eq!(agent.call(POINT, payload()).await.status, 200);
    assert_eq!(plugin.counts().uninitialized, 0, "none was released that is in use");
    assert_eq!((gateway.stop().await.code, plugin.counts().shutdowns), (Some(0), 1));
}
