//! Tests a rollout to a version with other points: the new replicas stay out until no old one is left, then
//! the table changes once.

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::fake::FakePlugin;
use serde_json::{Value, json};

use crate::replicas::support::{POINT, Rig, assert_one_change_of_plan, echo, replica, states};

const OLD: ExtensionPoint = ExtensionPoint::BeforeResponse;
const NEW: ExtensionPoint = ExtensionPoint::BeforeLlmRequest;

/// Stops the replica and starts another process with the new point instead of the old one.
async fn replace(rig: &mut Rig, index: usize) {
    let plugin = &mut rig.replicas[index];
    plugin.leave().await;
    plugin.change_manifest(|manifest| {
        manifest.version = "2.0.0".into();
        let old = manifest.points.iter_mut().find(|offer| offer.point() == OLD);
        old.expect("it offers the old point").set_point(NEW);
    });
    echo(plugin, "2.0.0");
    plugin.start().await;
}

fn points(guard: &Value) -> Vec<&str> {
    let points = guard["manifest"]["points"].as_array().expect("a manifest was accepted");
    points.iter().map(|offer| offer["point"].as_str().unwrap_or_default()).collect()
}

fn calls(plugin: &FakePlugin) -> u64 {
    plugin.counts().calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_other_points_stay_out_until_none_of_the_old_is_left_and_the_table_changes_once() {
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(replica("1.0.0").only(&[POINT, OLD]).start().await);
    }
    let mut rig = Rig::before(replicas, |_, endpoint| endpoint, json!({})).await;
    let published = rig.events("table.published").len();
    let load = rig.load().await;
    load.turn().await;

    for index in 0..2 {
        let old = calls(&rig.replicas[index]);
        rig.replicas[index].wait_until(|counts| counts.calls > old + 20).await;
        replace(&mut rig, index).await;
        let address = rig.replicas[index].endpoint();
        rig.told("plugin.health_failed", "manifest_mismatch", &address).await;
        let (before, witness) = (calls(&rig.replicas[index]), calls(&rig.replicas[2]));
        rig.replicas[2].wait_until(|counts| counts.calls > witness + 100).await;
        assert_eq!(calls(&rig.replicas[index]), before, "it is out");
        let guard = rig.status().await;
        assert_eq!(states(&guard)[index], "manifest_mismatch");
        assert_eq!((&guard["state"], &guard["manifest"]["version"]), (&json!("ready"), &json!("1.0.0")));
        assert_eq!(points(&guard), ["before_tool_call", "before_response"]);
    }
    assert_eq!((rig.events("plugin.upgraded").len(), rig.events("table.published").len()), (0, published));

    replace(&mut rig, 2).await;
    let all_serve = |guard: &Value| states(guard) == ["serving"; 3];
    let guard = rig.wait_for("the new ones are in", all_serve).await;
    assert_eq!(points(&guard), ["before_llm_request", "before_tool_call"]);
    assert_eq!(guard["manifest"]["version"], json!("2.0.0"));
    for plugin in &rig.replicas {
        let before = calls(plugin);
        plugin.wait_until(|counts| counts.calls > before + 20).await;
    }
    rig.wait_for_events("plugin.upgraded", 1).await;
    rig.wait_for_events("table.published", published + 1).await;
    load.turn().await;
    assert_eq!(rig.events("plugin.upgraded").len(), 1);
    assert_eq!(rig.events("table.published").len(), published + 1);

    let made = load.end().await;
    assert_one_change_of_plan(&made);
    for worker in &made {
        // Between the last old replica's end and the first new one's acceptance, calls fail.
        let is_new = |plan: &str| worker.last().unwrap().result.as_ref().unwrap().plan == plan;
        let first = worker.iter().position(|made| made.result.as_ref().is_ok_and(|made| is_new(&made.plan)));
        let flipped = &worker[first.expect("the plan changed")..];
        assert!(flipped.iter().all(|made| made.result.as_ref().is_ok_and(|made| is_new(&made.plan))));
    }
}
