//! Tests several files in succession: while a call of the first is in flight, while the second waits for
//! its plugins, and when the file is replaced by something that isn't one.

use std::{fs, process::Command};

use hookgate_tests::{
    fake::{Act, Builder, FakePlugin, Gate, Handshake},
    gateway::{Gateway, Line, ProcessExit, Setup},
    metrics::Scrape,
    token::token,
};
use serde_json::json;
use tokio::time::Duration;

use crate::edge::support::{POINT, payload};

fn guard() -> Builder {
    FakePlugin::named("guard").config_schema(json!({ "properties": { "secret": {} } }))
}

fn plain() -> Setup {
    Gateway::with().tenant("acme")
}

fn with(plugin: &FakePlugin) -> Setup {
    plain().plugin(plugin).binding(plugin.name(), 1)
}

async fn status(gateway: &Gateway, tenant: &str) -> u16 {
    gateway.http(&token(tenant)).call(POINT, payload()).await.status
}

fn refused(line: &Line) -> bool {
    line.field("event") == Some(&json!("config.rejected"))
}

/// Matches the line about the `nth` configuration that waits long enough to be logged.
fn waits(nth: usize) -> impl FnMut(&Line) -> bool {
    let mut told = 0;
    move |line| {
        let text = line.message().unwrap_or_default();
        told += usize::from(text.starts_with("a changed configuration is pending: waiting for "));
        told == nth
    }
}

/// The plugin was removed and added again before its last call ended: the old client was retired, but the
/// plugin got no Shutdown.
#[tokio::test]
async fn a_plugin_that_returns_during_an_earlier_call_gets_no_shutdown() {
    let (gate, plugin) = (Gate::closed(), guard().start_unix().await);
    plugin.set(POINT, Act::pass().behind(&gate));
    let gateway = with(&plugin).start().await;
    let under_way = tokio::spawn({
        let agent = gateway.http(&token("acme"));
        async move { agent.call(POINT, payload()).await }
    });
    plugin.wait_until(|counts| counts.calls == 1).await;
    gateway.reload(&plain());
    gateway.wait_for_revision(2).await;
    gateway.reload(&with(&plugin));
    gateway.wait_for_revision(3).await;

    gate.open();
    assert_eq!(under_way.await.unwrap().status, 200);
    assert_eq!(status(&gateway, "acme").await, 200);
    // The exit waits for all retired clients.
    let ProcessExit { code, log } = gateway.stop().await;
    assert_eq!(code, Some(0), "{log}");
    let counts = plugin.counts();
    assert_eq!((counts.shutdowns, counts.uninitialized), (1, 0), "{counts:?}");
}

#[tokio::test]
async fn a_file_that_follows_one_that_waits_goes_on_with_the_plugins_that_are_there() {
    let (there, mut missing) = (guard().start_unix().await, FakePlugin::named("late").start_unix().await);
    missing.stop().await;
    let both = || with(&there).plugin(&missing).binding("late", 2).set("/startup/wait", "60s");
    let gateway = plain().start().await;
    gateway.reload(&both());
    gateway.log().wait_for(waits(1)).await;
    gateway.reload(&both());
    gateway.log().wait_for(|line| line.message().is_some_and(|text| text.contains("still waits for"))).await;
    gateway.reload(&both().tenant("globex"));
    // Before the second file was read, the plugin would make the first one active.
    gateway.log().wait_for(waits(2)).await;
    missing.start().await;
    gateway.wait_for_revision(2).await;
    assert_eq!(status(&gateway, "globex").await, 200);
    let counts = there.counts();
    assert_eq!((counts.connections, counts.initializes, counts.shutdowns), (1, 1, 0), "{counts:?}");
}

#[tokio::test]
async fn a_plugin_that_is_given_up_while_it_is_initialised_is_told_so_afterwards() {
    let slow = Handshake::Slow(Duration::from_millis(1_500));
    let plugin = guard().on_initialize(slow).start_unix().await;
    let gateway = plain().start().await;
    gateway.reload(&with(&plugin));
    plugin.wait_until(|counts| counts.initializes == 1).await;
    gateway.reload(&plain());
    plugin.wait_until(|counts| counts.shutdowns == 1).await;
    assert_eq!(plugin.initialized().len(), 1, "it has the configuration that is taken back");
    assert_eq!(status(&gateway, "acme").await, 200);
}

/// The plugin was optional and down. A start with the new file would abort.
#[tokio::test]
async fn a_binding_that_makes_a_missing_plugin_a_required_one_is_not_taken_before_it_is_there() {
    let mut plugin = guard().start_unix().await;
    plugin.stop().await;
    let advise = plain().plugin(&plugin).binding_with("guard", 1, &json!({ "mode": "advise" }));
    let gateway = advise.start().await;
    gateway.reload(&with(&plugin).set("/startup/wait", "300ms"));
    let line = gateway.log().wait_for(refused).await;
    assert!(line.message().unwrap().starts_with("required plugin 'guard' is unhealthy: "), "{line:?}");
    assert_eq!(status(&gateway, "acme").await, 200, "it is skipped as before");
    plugin.start().await;
    gateway.wait_for_revision(2).await;
    assert_eq!(status(&gateway, "acme").await, 200);
    assert_eq!(plugin.counts().calls, 1);
}

/// Opening a pipe blocks until someone writes to it.
#[tokio::test]
async fn a_pipe_in_the_place_of_the_file_is_refused_and_holds_nothing_up() {
    let gateway = plain().start().await;
    // Atomically, because a missing file is rejected too, with another message.
    let pipe = gateway.file().with_extension("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::rename(pipe, gateway.file()).unwrap();
    gateway.hang_up();
    let line = gateway.log().wait_for(refused).await;
    assert_eq!(line.message(), Some("is not a regular file"), "{line:?}");

    fs::remove_file(gateway.file()).unwrap();
    fs::write(gateway.file(), plain().tenant("globex").text()).unwrap();
    gateway.wait_for_revision(2).await;
    assert_eq!(status(&gateway, "globex").await, 200);
}

#[tokio::test]
async fn a_configuration_out_of_a_pipe_is_served_and_stays() {
    let shell = ["bash", "-c", r#"exec "$0" "$1" "$2" <(cat "$3")"#];
    let gateway = plain().launched_by(&shell).start().await;
    assert_eq!(status(&gateway, "acme").await, 200);
    gateway.hang_up();
    gateway.log().wait_for(|line| line.message() == Some("the current configuration stays active")).await;
    assert_eq!(status(&gateway, "acme").await, 200);
}

/// The observer takes no calls: its queue is given up, and then it gets Shutdown, however little time there
/// is.
#[tokio::test]
async fn an_observer_that_left_and_takes_nothing_is_told_of_the_end_of_the_process() {
    let plugin = guard().at(POINT, Act::hang()).start_unix().await;
    let plain = || plain().set("/drain/finish", "0ms");
    let observed = plain().plugin_with(&plugin, &json!({ "required": true }));
    let members = json!({ "mode": "observe", "timeout": "60s" });
    let gateway = observed.binding_with("guard", 1, &members).start().await;
    assert_eq!(status(&gateway, "acme").await, 200);
    plugin.wait_until(|counts| counts.calls == 1).await;
    gateway.reload(&plain());
    gateway.wait_for_revision(2).await;
    let ProcessExit { code, log } = gateway.stop().await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(plugin.counts().shutdowns, 1, "{log}");
}

/// The metric belongs to the plugin, whichever of its clients gave up calls.
#[tokio::test]
async fn what_a_replaced_client_s_observers_give_up_is_counted() {
    let plugin = guard().at(POINT, Act::hang()).start_unix().await;
    let with = |secret: u64| {
        let members = json!({ "required": true, "config": { "secret": secret } });
        let setup = plain().plugin_with(&plugin, &members);
        setup.binding_with("guard", 1, &json!({ "mode": "observe", "timeout": "60s" }))
    };
    let gateway = with(1).start().await;
    assert_eq!(status(&gateway, "acme").await, 200);
    plugin.wait_until(|counts| counts.calls == 1).await;
    gateway.reload(&with(2));
    gateway.log().wait_for(|line| line.message() == Some("observers did not receive every call")).await;
    let counted = |scrape: &Scrape| scrape.sum("hookgate_observer_dropped_total", &[]);
    for _ in 0..500 {
        if counted(&Scrape::of(&gateway).await) > 0.0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // polling is the only way
    }
    assert_eq!(counted(&Scrape::of(&gateway).await), 1.0);
}
