//! Tests replacing three replicas one by one under load: no avoidable failure, no call runs twice or with
//! another configuration, and the routing table changes once.

use std::collections::BTreeMap;

use hookgate_tests::fake::FakePlugin;
use serde_json::{Value, json};

use crate::replicas::support::{Made, Rig, assert_one_change_of_plan, assert_own_configuration, echo};

#[derive(Clone, Copy, PartialEq)]
enum End {
    /// Accepts no new connections, sends GOAWAY, and answers the calls in flight.
    Told,
    Killed,
}

/// The digests that were handed to each process, by address and version.
type Told = BTreeMap<(String, String), Vec<String>>;

fn digests(plugin: &FakePlugin, since: usize) -> Vec<String> {
    plugin.initialized()[since..].iter().map(|told| told.config_digest.clone()).collect()
}

/// Replaces one replica by a process of another version, with a new configuration if `rotates`. Waits until
/// it serves.
async fn replace(rig: &mut Rig, index: usize, end: End, rotates: bool, told: &mut Told) {
    let plugin = &mut rig.replicas[index];
    plugin.wait_until(|counts| counts.calls > counts.finished + counts.cancelled).await;
    match end {
        End::Told => plugin.leave().await,
        End::Killed => plugin.stop().await,
    }
    let before = plugin.initialized().len();
    told.insert((plugin.endpoint(), "1.0.0".into()), digests(plugin, 0));
    if rotates {
        rig.rotate(&format!("secret-{}", index + 1));
    }
    let plugin = &mut rig.replicas[index];
    plugin.change_manifest(|manifest| manifest.version = "2.0.0".into());
    echo(plugin, "2.0.0");
    plugin.start().await;
    let calls = plugin.counts().calls;
    // A replica whose calls were lost counts as busier for a while.
    plugin.wait_until(|counts| counts.calls > calls + 5).await;
    let new = digests(plugin, before);
    let old = &told[&(plugin.endpoint(), "1.0.0".into())];
    assert!(!new.is_empty(), "it got no message");
    assert!(new.iter().all(|digest| old.contains(digest) != rotates), "{new:?} after {old:?}");
    told.insert((plugin.endpoint(), "2.0.0".into()), new);
}

async fn rolled_out(end: End, rotates: bool) -> (Rig, Vec<Vec<Made>>) {
    let mut rig = Rig::over_all_transports("1.0.0").await;
    let published = rig.events("table.published").len();
    let (load, mut told) = (rig.load().await, Told::new());
    for index in 0..3 {
        rig.replicas[index].wait_until(|counts| counts.calls > 20).await;
    }
    load.turn().await;
    for index in 0..3 {
        let manifest = rig.status().await["manifest"]["version"].clone();
        assert_eq!(manifest, json!("1.0.0"), "an old one is left");
        replace(&mut rig, index, end, rotates, &mut told).await;
    }
    rig.wait_for("the new version is the accepted one", |guard| guard["manifest"]["version"] == "2.0.0")
        .await;
    rig.wait_for_events("plugin.upgraded", 1).await;
    rig.wait_for_events("table.published", published + 1).await;
    load.turn().await;
    let made = load.end().await;
    assert_own_configuration(&made, &told);
    assert_one_change_of_plan(&made);
    assert_eq!(rig.events("plugin.upgraded").len(), 1, "{}", rig.gateway.log());
    assert_eq!(rig.events("table.published").len(), published + 1, "{}", rig.gateway.log());
    (rig, made)
}

fn assert_none_failed(rig: &Rig, made: &[Vec<Made>]) {
    let executions = rig.executions();
    for made in made.iter().flatten() {
        assert!(made.result.is_ok(), "{made:?}");
        assert_eq!(executions.get(&made.id), Some(&1), "{made:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_told_to_go_are_replaced_without_one_failed_call() {
    let (rig, made) = rolled_out(End::Told, false).await;
    assert_none_failed(&rig, &made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_replaced_while_their_configuration_changes_and_no_answer_has_the_wrong_one() {
    let (rig, made) = rolled_out(End::Told, true).await;
    assert_none_failed(&rig, &made);
}

/// The reasons of the failed steps in the log.
fn reasons(rig: &Rig) -> Vec<Value> {
    rig.events("decision.error")
        .iter()
        .map(|line| line.field("steps").unwrap()[0]["reason"].clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_killed_fail_the_calls_alone_that_were_sent_to_them() {
    let (rig, made) = rolled_out(End::Killed, true).await;
    let executions = rig.executions();
    let (mut failed, calls) = (0, made.iter().flatten().count());
    for made in made.iter().flatten() {
        let executed = executions.get(&made.id).copied().unwrap_or_default();
        match &made.result {
            Ok(_) => assert_eq!(executed, 1, "{made:?}"),
            Err(_) => {
                failed += 1;
                assert!(executed <= 1, "{executed} times: {made:?}");
            }
        }
    }
    // The log is complete once the gateway has exited.
    assert_eq!(rig.gateway.stop().await.code, Some(0));
    // No call failed waiting for a connection, a permit or a breaker: these calls were sent, and their
    // connection ended.
    let reasons = reasons(&rig);
    assert_eq!(reasons.len(), failed);
    assert!(
        reasons.iter().all(|reason| ["rpc_error", "bad_reply"].iter().any(|one| reason == one)),
        "{reasons:?}"
    );
    assert!(failed <= 3 * 12, "at most one call per agent: {failed} of {calls}");
}
