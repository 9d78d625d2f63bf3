//! Tests draining a plugin that two gateways with one database use (docs/registry.md).

use std::sync::atomic::{AtomicUsize, Ordering};

use hookgate_tests::{
    fake::{Act, FakePlugin, Gate},
    gateway::Gateway,
    postgres,
    token::token,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::{
    admin::registry::support::{administrator, get, post, put, written},
    edge::support::{POINT, payload},
    registry::support::{call, file_with, serves_by, status_is},
};

async fn replica(url: &str, folder: &TempDir) -> Gateway {
    let setup = file_with("acme").store(url, folder.path());
    setup.set("/egress/cidrs", json!(["127.0.0.0/8"])).set("/limits/budget", "60s").start().await
}

/// A call that the plugin holds back.
async fn held(gateway: &Gateway, plugin: &FakePlugin) -> JoinHandle<u16> {
    let before = plugin.counts().calls;
    let agent = gateway.http(&token("acme"));
    let calling = tokio::spawn(async move { agent.call(POINT, payload()).await.status });
    plugin.wait_until(|counts| counts.calls == before + 1).await;
    calling
}

#[tokio::test]
async fn a_drained_plugin_is_shut_down_by_every_replica_and_no_call_in_flight_is_lost() {
    let url = postgres::database().await;
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("there is room"));
    let (one, other) = (replica(&url, &folders[0]).await, replica(&url, &folders[1]).await);
    let (operator, elsewhere) = (one.admin(&administrator()), other.admin(&administrator()));
    let (gates, plugin) = ([Gate::closed(), Gate::closed()], FakePlugin::named("guard").start().await);
    let limits = json!({ "timeout": "60s" });
    let entry = json!({ "endpoint": plugin.endpoint(), "accepted": plugin.accepted(), "limits": limits });
    written(&put(&operator, "plugins/guard?expected_version=0", entry).await);
    let binding = json!({ "plugin": "guard", "tenant": "*", "priority": 20 });
    let revision = written(&put(&operator, "bindings/guard?expected_version=0", binding).await);
    serves_by(&other, revision).await;
    assert_eq!((call(&one, "acme").await.status, call(&other, "acme").await.status), (200, 200));

    let (first, second, number) = (gates[0].clone(), gates[1].clone(), AtomicUsize::new(0));
    plugin.set_with(POINT, move |_| match number.fetch_add(1, Ordering::SeqCst) {
        0 => Act::pass().behind(&first),
        1 => Act::pass().behind(&second),
        _ => Act::pass(),
    });
    let here = held(&one, &plugin).await;
    let there = held(&other, &plugin).await;
    let calls = plugin.counts().calls;

    gates[0].open();
    let drained = post(&operator, "plugins/guard/drain?reason=new+disk").await;
    let revision = drained.body["revision"].as_u64().expect("it was switched off");
    let wanted = json!({ "revision": revision, "active": true, "in_flight": 0, "drained": true });
    assert_eq!((drained.status, &drained.body), (200, &wanted));
    assert_eq!(here.await.expect("it ends"), 200);
    assert_eq!(plugin.counts().shutdowns, 1, "the other replica's call is still in flight");

    // The other gateway follows: no new calls, the call in flight finishes, then Shutdown.
    serves_by(&other, revision).await;
    assert_eq!((call(&one, "acme").await.status, call(&other, "acme").await.status), (200, 200));
    assert_eq!(plugin.counts().calls, calls, "it gets no more calls");
    let still = post(&elsewhere, "plugins/guard/drain?timeout=1s").await;
    let held = json!({ "revision": null, "active": true, "in_flight": 1, "drained": false });
    assert_eq!((still.status, &still.body), (200, &held));
    assert!(!there.is_finished());
    assert_eq!(plugin.counts().shutdowns, 1);
    gates[1].open();
    assert_eq!(there.await.expect("it ends"), 200);
    let done = post(&elsewhere, "plugins/guard/drain").await;
    assert_eq!((&done.body["drained"], &done.body["revision"]), (&json!(true), &Value::Null), "{done:?}");
    assert_eq!(plugin.counts().shutdowns, 2);
    assert_eq!(get(&elsewhere, "plugins/guard").await.body["state"], json!("disabled"));
    status_is(&other, |status| status["plugins"]["disabled"] == 1).await;

    let off = post(&elsewhere, "plugins/guard/describe").await;
    assert_eq!((off.status, &off.body["code"]), (409, &json!("CONFLICT")), "{off:?}");
    assert_eq!(off.body["detail"], json!("Plugin `guard` is disabled: enable it first"));

    let revision = written(&post(&elsewhere, "plugins/guard/enable").await);
    serves_by(&one, revision).await;
    assert_eq!((call(&one, "acme").await.status, call(&other, "acme").await.status), (200, 200));
    assert_eq!(plugin.counts().calls, calls + 2, "it is back for both");
}
