//! Tests plugins during reloads: an unchanged entry keeps its connections, a new plugin is up before it is
//! used, and a removed one is shut down after its last call.

use std::{fs, time::Duration};

use hookgate_tests::{
    fake::{Act, Builder, FakePlugin, Gate},
    gateway::{Gateway, Line, ProcessExit, Setup},
    token::{Token, token},
};
use serde_json::{Value, json};

use crate::{
    edge::support::{POINT, payload},
    registry::support::status_is,
};

fn guard() -> Builder {
    FakePlugin::named("guard")
        .config_schema(json!({ "properties": { "secret": {} } }))
        .tenant_config_schema(json!({ "properties": { "rule": {} } }))
}

fn with_guard(plugin: &FakePlugin, config: Value) -> Setup {
    let setup = Gateway::with().tenant("acme").admin();
    setup.plugin_with(plugin, &json!({ "config": config })).binding("guard", 1)
}

async fn call(gateway: &Gateway) -> (u16, Value) {
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    (answer.status, answer.body["revision"].clone())
}

fn event<'a>(event: &'a str, plugin: &'a str) -> impl Fn(&Line) -> bool + 'a {
    move |line| line.field("event") == Some(&json!(event)) && line.field("plugin") == Some(&json!(plugin))
}

#[tokio::test]
async fn a_plugin_whose_entry_stays_keeps_connection_configuration_and_counts() {
    let plugin = guard().start_unix().await;
    let gateway = with_guard(&plugin, json!({})).start().await;
    assert_eq!(call(&gateway).await, (200, json!(1)));
    let before = plugin.counts();
    gateway.reload(&with_guard(&plugin, json!({})).tenant("globex").set("/bindings/0/timeout", "1s"));
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway).await, (200, json!(2)));
    let after = plugin.counts();
    assert_eq!(
        (after.connections, after.describes, after.initializes, after.shutdowns),
        (before.connections, before.describes, before.initializes, 0)
    );
    let operator = gateway.admin(&Token::for_operators().mint());
    let status = operator.get("/admin/v1/plugins/guard").await.unwrap().body;
    assert_eq!(status["points"]["before_tool_call"]["calls"], json!(2), "{status}");
}

#[tokio::test]
async fn a_plugin_s_new_configuration_is_handed_over_before_it_is_used() {
    let plugin = guard().start_unix().await;
    let gateway = with_guard(&plugin, json!({ "secret": 1 })).start().await;
    assert_eq!(call(&gateway).await.0, 200);
    gateway.reload(&with_guard(&plugin, json!({ "secret": 2 })));
    gateway.wait_for_revision(2).await;
    gateway.log().wait_for(event("plugin.config_changed", "guard")).await;
    assert_eq!(call(&gateway).await, (200, json!(2)));
    let digests: Vec<_> = plugin.seen().iter().map(|seen| seen.call.config_digest.clone()).collect();
    let told: Vec<_> = plugin.initialized().iter().map(|told| told.config_digest.clone()).collect();
    assert_eq!((told.len(), &digests), (2, &told), "each call with the configuration of its time");
    // Its process still serves this gateway, so it gets no Shutdown.
    let counts = plugin.counts();
    assert_eq!((counts.shutdowns, counts.uninitialized), (0, 0), "{counts:?}");
}

#[tokio::test]
async fn a_secret_s_file_that_changed_is_handed_over_at_a_hangup() {
    let plugin = guard().start_unix().await;
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "first").unwrap();
    let config = json!({ "secret": format!("${{file:{}}}", secret.path().display()) });
    let gateway = with_guard(&plugin, config).start().await;
    fs::write(secret.path(), "second").unwrap();
    gateway.hang_up();
    plugin.wait_until(|counts| counts.initializes == 2).await;
    let told: Vec<Value> =
        plugin.initialized().iter().map(|told| serde_json::from_slice(&told.config).unwrap()).collect();
    assert_eq!(told, [json!({ "secret": "first" }), json!({ "secret": "second" })]);
}

#[tokio::test]
async fn a_call_in_flight_ends_with_the_old_configuration_and_then_its_plugin_is_retired() {
    let (gate, plugin) = (Gate::closed(), guard().start_unix().await);
    plugin.set(POINT, Act::pass().behind(&gate));
    let gateway = with_guard(&plugin, json!({})).start().await;
    let under_way = tokio::spawn({
        let agent = gateway.http(&token("acme"));
        async move { agent.call(POINT, payload()).await }
    });
    plugin.wait_until(|counts| counts.calls == 1).await;

    gateway.reload(&Gateway::with().tenant("acme").admin());
    gateway.wait_for_revision(2).await;
    gateway.log().wait_for(event("plugin.removed", "guard")).await;
    assert_eq!(call(&gateway).await, (200, json!(2)), "nothing holds up who comes after");
    assert_eq!(plugin.counts().shutdowns, 0, "a call to it is in flight");

    gate.open();
    let answer = under_way.await.unwrap();
    assert_eq!((answer.status, &answer.body["revision"]), (200, &json!(1)), "{answer:?}");
    assert_eq!(answer.body["steps"][0]["plugin"], json!("guard"), "{answer:?}");
    plugin.wait_until(|counts| counts.shutdowns == 1).await;
}

#[tokio::test]
async fn a_required_plugin_that_is_not_there_holds_the_table_back_until_it_comes() {
    let mut plugin = guard().start_unix().await;
    plugin.stop().await;
    let plain = Gateway::with().tenant("acme").admin();
    let gateway = plain.start().await;
    let next = with_guard(&plugin, json!({})).set("/startup/wait", "300ms");
    gateway.reload(&next);
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("config.rejected"))).await;
    assert!(line.message().unwrap().starts_with("required plugin 'guard' is unhealthy: "), "{line:?}");
    assert_eq!(call(&gateway).await, (200, json!(1)));

    plugin.start().await;
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway).await, (200, json!(2)));
    assert_eq!(plugin.seen().len(), 1);
    // The table is active shortly before the status says so.
    status_is(&gateway, |status| status["configuration"]["rejected"].is_null()).await;
}

/// The operator who changed the file sees that the change was noticed.
#[tokio::test]
async fn a_file_that_waits_for_a_plugin_says_so() {
    let mut plugin = guard().start_unix().await;
    plugin.stop().await;
    let gateway = Gateway::with().tenant("acme").start().await;
    gateway.reload(&with_guard(&plugin, json!({})));
    let waits = |line: &Line| {
        line.message() == Some("a changed configuration is pending: waiting for plugin 'guard'")
    };
    gateway.log().wait_for(waits).await;
    plugin.start().await;
    gateway.wait_for_revision(2).await;
}

#[tokio::test]
async fn a_plugin_that_is_refused_is_said_at_once_and_a_file_without_it_takes_its_place() {
    let plugin = guard().manifest(|manifest| manifest.version = "no version".into()).start_unix().await;
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    gateway.reload(&with_guard(&plugin, json!({})));
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("config.rejected"))).await;
    assert!(line.message().unwrap().contains("BAD_MANIFEST"), "{line:?}");
    assert_eq!(call(&gateway).await, (200, json!(1)));
    gateway.reload(&Gateway::with().tenant("acme").tenant("globex").admin());
    gateway.wait_for_revision(2).await;
}

/// A plugin that only advises holds nothing up: without it, its step is skipped.
#[tokio::test]
async fn an_optional_plugin_that_is_not_there_holds_nothing_back() {
    let mut plugin = guard().start_unix().await;
    plugin.stop().await;
    let gateway = Gateway::with().tenant("acme").start().await;
    let next = Gateway::with().tenant("acme").plugin(&plugin);
    gateway.reload(&next.binding_with("guard", 1, &json!({ "mode": "advise" })));
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway).await, (200, json!(2)));
}

/// An optional plugin that is up is connected first, so a reload skips none of its steps.
#[tokio::test]
async fn an_optional_plugin_that_is_there_misses_no_call() {
    let plugin = guard().start_unix().await;
    let advise = |secret: u64| {
        let setup =
            Gateway::with().tenant("acme").plugin_with(&plugin, &json!({ "config": { "secret": secret } }));
        setup.binding_with("guard", 1, &json!({ "mode": "advise" }))
    };
    let gateway = advise(0).start().await;
    gateway.wait_for_revision(1).await;
    for secret in 1..=10 {
        gateway.reload(&advise(secret));
        gateway.wait_for_revision(secret + 1).await;
        let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
        assert_eq!(answer.body["steps"][0]["outcome"], json!("continued"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_hangup_during_the_start_ends_nothing_and_is_heard_afterwards() {
    let mut plugin = guard().start_unix().await;
    plugin.stop().await;
    let gateway = with_guard(&plugin, json!({})).start_unready().await;
    gateway.reload(&with_guard(&plugin, json!({})).tenant("globex"));
    tokio::time::sleep(Duration::from_millis(200)).await;
    plugin.start().await;
    gateway.wait_until_ready().await;
    gateway.wait_for_revision(2).await;
    assert_eq!(gateway.http(&token("globex")).call(POINT, payload()).await.status, 200);
}

#[tokio::test]
async fn a_gateway_that_waits_for_a_candidate_s_plugin_drains_and_tells_the_others() {
    let (mut missing, there) = (guard().start_unix().await, FakePlugin::named("other").start_unix().await);
    missing.stop().await;
    let gateway = Gateway::with().tenant("acme").start().await;
    let next = Gateway::with().tenant("acme").plugin(&missing).plugin(&there);
    gateway.reload(&next.binding("guard", 1).binding("other", 2));
    gateway.log().wait_for(event("plugin.initialized", "other")).await;
    let ProcessExit { code, log } = gateway.stop().await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(there.counts().shutdowns, 1, "it was initialised");
}
