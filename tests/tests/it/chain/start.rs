//! Tests what prevents a start and what doesn't, and the order in which plugins are shut down.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::{Builder, Counts, FakePlugin, Handshake},
    gateway::{Gateway, Line, ProcessExit},
    token::token,
};
use serde_json::json;
use tokio::sync::Semaphore;
use tonic::Status;

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

fn assert_refused(exit: &ProcessExit, code: i32, words: &[&str]) {
    let log = exit.log.to_string();
    assert_eq!(exit.code, Some(code), "{log}");
    for word in words {
        assert!(log.contains(word), "no {word} in:\n{log}");
    }
}

#[tokio::test]
async fn equal_priorities_of_enabled_bindings_refuse_the_start_with_both_names() {
    let (one, two) = (FakePlugin::named("one").start().await, FakePlugin::named("two").start().await);
    let setup = || Gateway::with().tenant("acme").plugin(&one).plugin(&two).binding("one", -7);
    let exit = setup().binding("two", -7).run_to_the_end().await;
    assert_refused(&exit, 2, &["one", "two", "-7"]);
    assert_eq!((one.counts().connections, two.counts().connections), (0, 0));

    let off = json!({ "enabled": false });
    let gateway = setup().binding_with("two", -7, &off).start().await;
    assert_eq!(gateway.stop().await.code, Some(0));
}

#[tokio::test]
async fn a_repeated_name_fails_the_start() {
    let one = FakePlugin::named("one").start().await;
    let exit = Gateway::with().tenant("acme").plugin(&one).plugin(&one).run_to_the_end().await;
    assert_refused(&exit, 2, &["one"]);
}

#[tokio::test]
async fn one_broken_plugin_of_three_required_ones_is_named_and_nothing_is_served() {
    let broken: [(Builder, &str, &str); 3] = [
        (FakePlugin::named("broken").only(&[]), "30s", "NO_EXTENSION_POINT"),
        (
            FakePlugin::named("broken")
                .on_initialize(Handshake::Fails(Status::invalid_argument("no such thing"))),
            "30s",
            "CONFIG_REFUSED",
        ),
        (FakePlugin::named("broken").on_initialize(Handshake::Hangs), "200ms", "INITIALIZE_TIMEOUT"),
    ];
    for (broken, limit, reason) in broken {
        let (first, broken, last) = (
            FakePlugin::named("first").start().await,
            broken.start().await,
            FakePlugin::named("last").start_unix().await,
        );
        let exit = Gateway::with()
            .tenant("acme")
            .plugin(&first)
            .plugin_with(&broken, &json!({ "limits": { "initialize": limit } }))
            .plugin(&last)
            .binding("first", 1)
            .binding("broken", 2)
            .binding("last", 3)
            .run_to_the_end()
            .await;
        assert_refused(&exit, 4, &["required plugin 'broken'", reason]);
        assert_eq!((first.counts().calls, last.counts().calls), (0, 0));
    }
}

#[tokio::test]
async fn a_required_plugin_that_is_not_there_is_waited_for_and_then_named() {
    let mut absent = FakePlugin::named("absent").start().await;
    absent.stop().await;
    let setup = Gateway::with().tenant("acme").plugin(&absent).binding("absent", 1);
    let exit = setup.set("/startup/wait", "300ms").run_to_the_end().await;
    assert_refused(&exit, 4, &["required plugin 'absent'"]);
}

#[tokio::test]
async fn an_optional_plugin_that_is_refused_stops_neither_the_start_nor_other_steps() {
    let optional = FakePlugin::named("optional").only(&[]).start().await;
    let good = FakePlugin::named("good").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&optional)
        .plugin(&good)
        .binding_with("optional", 1, &json!({ "blocking": false }))
        .binding("good", 2)
        .start()
        .await;
    let payload = json!({ "tool_name": "t", "args": 1 });
    let answer = gateway.http(&token("acme")).call(POINT, payload).await;
    let steps = &answer.body["steps"];
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((&steps[0]["outcome"], &steps[0]["reason"]), (&json!("failed_open"), &json!("not_ready")));
    assert_eq!(steps[1]["outcome"], json!("continued"), "{answer:?}");
}

/// Waits until the gateway has initialised the plugin.
async fn configured(gateway: &Gateway, plugin: &str) {
    let is_it = |line: &Line| {
        line.field("event") == Some(&json!("plugin.initialized"))
            && line.field("plugin") == Some(&json!(plugin))
    };
    gateway.log().wait_for(is_it).await;
}

#[tokio::test]
async fn plugins_are_configured_before_readiness_and_shut_down_in_reverse_order() {
    let mut plugins = Vec::new();
    let mut setup = Gateway::with().tenant("acme");
    for (priority, name) in (1..).zip(["second", "third", "first"]) {
        let mut plugin = FakePlugin::named(name).start().await;
        plugin.stop().await;
        setup = setup.plugin(&plugin).binding(name, priority);
        plugins.push(plugin);
    }
    let gateway = setup.start_unready().await;
    // They connect in another order than that of the file and of the chain, each after the previous one was
    // initialised.
    for at in [2, 0, 1] {
        let ready = gateway.ops().get("/readyz").await.expect("the operators' port answers");
        assert_eq!(ready.status, 503, "{} is not configured yet", plugins[at].name());
        plugins[at].start().await;
        configured(&gateway, plugins[at].name()).await;
    }
    gateway.wait_until_ready().await;
    assert!(plugins.iter().all(|plugin| plugin.counts().initializes == 1));

    let order = Arc::new(Mutex::new(Vec::new()));
    // On one thread, waiting tasks run in the order in which they are woken.
    let waiting = Arc::new(Semaphore::new(0));
    let told = plugins.into_iter().map(|plugin| {
        let (order, waiting) = (Arc::clone(&order), Arc::clone(&waiting));
        tokio::spawn(async move {
            let is_told = |counts: &Counts| {
                waiting.add_permits(1);
                counts.shutdowns == 1
            };
            plugin.wait_until(is_told).await;
            order.lock().expect("nobody panics").push(plugin.name().to_owned());
            plugin
        })
    });
    let told: Vec<_> = told.collect();
    let _all = waiting.acquire_many(3).await.expect("it is never closed");
    assert_eq!(gateway.stop().await.code, Some(0));
    for plugin in told {
        plugin.await.expect("each plugin gets Shutdown");
    }
    assert_eq!(*order.lock().expect("nobody panics"), ["third", "second", "first"]);
}

#[tokio::test]
async fn a_failed_start_shuts_down_the_plugins_it_initialised() {
    let whole = FakePlugin::named("whole").start().await;
    let mut broken = FakePlugin::named("broken").only(&[]).start().await;
    broken.stop().await;
    let setup = Gateway::with().tenant("acme").plugin(&whole).plugin(&broken);
    let gateway = setup.binding("whole", 1).binding("broken", 2).start_unready().await;
    // The broken plugin comes after the good one is initialised.
    configured(&gateway, "whole").await;
    broken.start().await;
    let exit = gateway.exited().await;
    assert_refused(&exit, 4, &["broken", "NO_EXTENSION_POINT"]);
    let counts = whole.counts();
    assert_eq!((counts.initializes, counts.shutdowns), (1, 1));
}

#[tokio::test]
async fn plugins_that_come_while_the_first_table_is_built_are_in_the_next_one() {
    let mut setup = Gateway::with().builtin("content-policy", &json!({ "redact_emails": true }));
    let tenants: Vec<_> = (0..2000).map(|number| format!("tenant-{number}")).collect();
    let own = |tenant: &String| json!({ "plugin": "content-policy", "tenant": tenant, "priority": 10 });
    setup = setup.set("/tenants/list", tenants.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>());
    setup = setup.set("/bindings", tenants.iter().map(own).collect::<Vec<_>>());
    // Building the table begins as soon as the only required plugin is up.
    let mut late = Vec::new();
    for (name, ms) in [("a", 50), ("b", 100), ("c", 150), ("d", 200)] {
        let handshake = Handshake::Slow(Duration::from_millis(ms));
        let plugin = FakePlugin::named(name).on_describe(handshake).start().await;
        setup = setup.plugin_with(&plugin, &json!({ "required": false })).binding(name, 100 + ms as i64);
        late.push(plugin);
    }
    let gateway = setup.start().await;
    let agent = gateway.http(&token("tenant-1"));
    let payload = || json!({ "tool_name": "fs.read", "args": {} });
    for _ in 0..500 {
        if agent.call(POINT, payload()).await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // polling is the only way
    }
    panic!("some plugin stays out: {:?}", agent.call(POINT, payload()).await);
}
