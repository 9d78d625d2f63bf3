//! Tests pruning with documents that define a whole set of objects by labels, and writes with a revision as
//! the precondition.

use hookgate_tests::{agent::HttpAgent, fake::FakePlugin};
use serde_json::{Value, json};

use crate::{
    admin::registry::support::{
        apply, delete, get, head, names, patch, pointers, post, put, stored, written,
    },
    registry::support::call,
};

/// A tenant and a binding with `team=a`, a tenant and a binding of another team, and a tenant without a
/// team.
async fn filled(operator: &HttpAgent) -> u64 {
    let of = |team: &str| json!({ "team": team, "plan": "gold" });
    let tenants =
        json!([{ "id": "a1", "labels": of("a") }, { "id": "b1", "labels": of("b") }, { "id": "free" }]);
    let bind = |name: &str, team: &str, priority: u64| json!({ "name": name, "plugin": "content-policy", "selector": { "plan": "gold" }, "priority": priority, "labels": of(team) });
    let document =
        json!({ "tenants": tenants, "bindings": [bind("first", "a", 20), bind("other", "b", 21)] });
    written(&apply(operator, "", document).await)
}

#[tokio::test]
async fn what_has_the_labels_and_is_not_named_goes_in_the_same_revision_and_nothing_else() {
    let it = stored().await;
    let before = filled(&it.operator).await;
    let keep = json!({ "id": "a2", "labels": { "team": "a" } });
    let document = json!({ "tenants": [keep], "prune": { "labels": { "team": "a" } } });
    let tried = apply(&it.operator, "?dry_run=true", document.clone()).await;
    assert_eq!((tried.status, head(&it.operator).await), (200, before), "{tried:?}");
    let what = |change: &Value| {
        let kept = if change["after"].is_object() { "+" } else { "-" };
        format!("{kept}{}", change["name"].as_str().expect("a name"))
    };
    let changes: Vec<_> = tried.body["changes"].as_array().expect("changes").iter().map(what).collect();
    assert_eq!(changes, ["-a1", "+a2", "-first"], "{tried:?}");
    let done = apply(&it.operator, "", document.clone()).await;
    assert_eq!((written(&done), &done.body["changes"]), (before + 1, &tried.body["changes"]));
    assert_eq!(names(&get(&it.operator, "tenants").await, "tenants"), ["a2", "acme", "b1", "free"]);
    assert_eq!((call(&it.gateway, "a1").await.status, call(&it.gateway, "b1").await.status), (403, 200));
    // The second time, there is nothing to do.
    assert_eq!(apply(&it.operator, "", document).await.body["revision"], Value::Null);
}

#[tokio::test]
async fn a_document_that_is_not_the_whole_of_its_set_is_refused_with_the_place() {
    let it = stored().await;
    let before = filled(&it.operator).await;
    let other = json!({ "id": "x", "labels": { "team": "b" } });
    for (document, status, places) in [
        (
            json!({ "tenants": [other, { "id": "y" }], "prune": { "labels": { "team": "a" } } }),
            400,
            vec!["/tenants/0/labels", "/tenants/1/labels"],
        ),
        (json!({ "tenants": [], "prune": { "labels": {} } }), 400, vec!["/prune/labels"]),
        (json!({ "tenants": [], "prune": {} }), 400, vec!["/prune"]),
        (json!({ "tenants": [], "prune": true }), 400, vec!["/prune"]),
        // The binding is not in the set, and would name a missing tenant.
        (
            json!({ "bindings": [{ "name": "first", "plugin": "content-policy", "tenant": "a1", "priority": 20, "labels": { "plan": "gold" } }], "prune": { "labels": { "plan": "gold" } } }),
            422,
            vec!["/bindings/0/tenant"],
        ),
    ] {
        let answer = apply(&it.operator, "", document.clone()).await;
        assert_eq!((answer.status, pointers(&answer)), (status, places), "{document}: {answer:?}");
    }
    assert_eq!(head(&it.operator).await, before);
}

#[tokio::test]
async fn what_the_file_owns_and_what_others_still_need_is_not_pruned() {
    let guard = FakePlugin::named("guard").start().await;
    let it = stored().await;
    let labels = json!({ "team": "a" });
    let plugin = json!({ "endpoint": guard.endpoint(), "accepted": guard.accepted(), "labels": labels });
    written(&put(&it.operator, "plugins/guard?expected_version=0", plugin).await);
    let bind = json!({ "plugin": "guard", "tenant": "acme", "priority": 50 });
    written(&put(&it.operator, "bindings/watch?expected_version=0", bind).await);
    let nothing = json!({ "prune": { "labels": { "team": "a" } } });
    let used = apply(&it.operator, "", nothing.clone()).await;
    assert_eq!((used.status, pointers(&used)), (409, vec!["/bindings/watch/plugin"]), "{used:?}");
    let forced = apply(&it.operator, "?force=true", nothing).await;
    let gone = forced.body["changes"].as_array().map(Vec::len);
    assert_eq!((written(&forced), gone), (4, Some(2)), "{forced:?}");
    // The file's own label.
    let file = apply(&it.operator, "", json!({ "prune": { "labels": { "plan": "file" } } })).await;
    assert_eq!((file.status, &file.body["revision"]), (200, &Value::Null), "{file:?}");
    assert_eq!(get(&it.operator, "tenants/acme").await.status, 200);
}

#[tokio::test]
async fn objects_of_every_kind_are_listed_by_their_labels_and_a_plugin_runs_on_with_others() {
    let guard = FakePlugin::named("guard").start().await;
    let it = stored().await;
    let plugin =
        json!({ "endpoint": guard.endpoint(), "accepted": guard.accepted(), "labels": { "team": "a" } });
    written(&put(&it.operator, "plugins/guard?expected_version=0", plugin).await);
    let bind =
        json!({ "plugin": "guard", "tenant": "acme", "priority": 50, "labels": { "team": "a", "of": "x" } });
    written(&put(&it.operator, "bindings/watch?expected_version=0", bind).await);
    assert_eq!(call(&it.gateway, "acme").await.status, 200);
    let digest = |answer: Value| answer["points"]["before_llm_request"]["plan_digest"].clone();
    let plan = digest(get(&it.operator, "tenants/acme/plan").await.body);
    for kind in ["plugins", "bindings"] {
        let name = if kind == "plugins" { "guard" } else { "watch" };
        assert_eq!(names(&get(&it.operator, &format!("{kind}?label.team=a")).await, kind), [name]);
        assert_eq!(names(&get(&it.operator, &format!("{kind}?label.team=b")).await, kind).len(), 0);
        let path = format!("{kind}/{name}?expected_version={}", if kind == "plugins" { 2 } else { 3 });
        let done = patch(&it.operator, &path, json!({ "labels": { "team": "b" } })).await;
        let effects = &done.body["effects"]["tenants"];
        assert_eq!((written(&done) > 3, effects), (true, &json!(0)), "no call sees them: {done:?}");
        assert_eq!(names(&get(&it.operator, &format!("{kind}?label.team=b")).await, kind), [name]);
    }
    assert_eq!(names(&get(&it.operator, "bindings?label.team=b&label.of=x").await, "bindings"), ["watch"]);
    assert_eq!(digest(get(&it.operator, "tenants/acme/plan").await.body), plan);
    assert_eq!(call(&it.gateway, "acme").await.status, 200);
    assert_eq!(guard.counts().initializes, 1, "a change of labels doesn't retire the plugin");
    let wrong = put(
        &it.operator,
        "bindings/w?expected_version=0",
        json!({ "plugin": "guard", "tenant": "*", "priority": 1, "labels": ["a"] }),
    )
    .await;
    assert_eq!((wrong.status, pointers(&wrong)), (422, vec!["/labels"]), "{wrong:?}");
}

#[tokio::test]
async fn a_rollback_and_a_document_may_expect_a_revision_and_the_refusal_names_the_current_one() {
    let it = stored().await;
    written(&put(&it.operator, "tenants/x?expected_version=0", json!({})).await);
    written(&put(&it.operator, "tenants/y?expected_version=0", json!({})).await);
    let document = || json!({ "tenants": [{ "id": "z" }] });
    for dry_run in [true, false] {
        for answer in [
            post(&it.operator, &format!("revisions/1/rollback?expected_revision=2&dry_run={dry_run}")).await,
            apply(&it.operator, &format!("?expected_revision=2&dry_run={dry_run}"), document()).await,
        ] {
            let said = (answer.status, answer.body["code"].as_str(), answer.body["detail"].as_str());
            let expected = (409, Some("CONFLICT"), Some("The registry is at revision 3, and 2 is expected"));
            assert_eq!(said, expected, "{answer:?}");
        }
    }
    assert_eq!(head(&it.operator).await, 3);
    assert_eq!(written(&apply(&it.operator, "?expected_revision=3", document()).await), 4);
    assert_eq!(written(&post(&it.operator, "revisions/1/rollback?expected_revision=4").await), 5);
    assert_eq!(names(&get(&it.operator, "tenants").await, "tenants"), ["acme"]);
    for answer in [
        post(&it.operator, "revisions/1/rollback?expected_revision=last").await,
        post(&it.operator, "revisions/1/rollback?expected_version=5").await,
        delete(&it.operator, "tenants/acme?expected_revision=5").await,
    ] {
        assert_eq!(
            (answer.status, answer.body["code"].as_str()),
            (400, Some("PAYLOAD_INVALID")),
            "{answer:?}"
        );
    }
}
