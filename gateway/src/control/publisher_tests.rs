//! Tests of what is published when plugins are accepted and a write follows.

use serde_json::json;
use tokio::time::{Duration, timeout};
use tokio_util::sync::CancellationToken;

use super::{super::generation::ConfigBasis, *};
use crate::{
    config::{LoadedConfig, from_text},
    core::{api_format::ApiFormat, point::Point},
    llm::Llm,
    routing::{Plan, TenantRoute},
    snapshot::ConfigSnapshot,
    telemetry::Telemetry,
};

const TENANTS: [&str; 3] = ["t0", "t1", "t2"];

/// Three tenants, each with a binding to a built-in plugin.
fn loaded() -> LoadedConfig {
    let own = |id: &&str| json!({ "name": format!("guard-{id}"), "plugin": "content-policy", "tenant": id, "priority": 1 });
    let text = json!({
        "auth": { "issuers": [{ "issuer": "i", "audience": "a", "jwks_url": "https://id/keys", "tenants": "*" }] },
        "plugins": [{ "name": "content-policy", "builtin": "content-policy" }],
        "tenants": { "list": TENANTS.map(|id| json!({ "id": id })) },
        "bindings": TENANTS.iter().map(own).collect::<Vec<_>>(),
    });
    from_text("f.yaml".into(), &text.to_string(), []).expect("it is right")
}

fn plan<'f>(snapshot: &'f ConfigSnapshot, id: &str) -> &'f Plan {
    match snapshot.invoker.routes().table.tenant(id) {
        TenantRoute::Known(plans) => plans.plan(Point::BeforeLlmRequest),
        other => panic!("{id}: {other:?}"),
    }
}

/// The tenants whose plans were rebuilt. Both tables are still alive, so no address is reused.
fn remade(before: &ConfigSnapshot, after: &ConfigSnapshot) -> Vec<&'static str> {
    TENANTS.into_iter().filter(|id| !std::ptr::eq(plan(before, id), plan(after, id))).collect()
}

#[tokio::test]
async fn the_first_write_after_a_manifest_was_accepted_remakes_the_plans_of_its_tenant_alone() {
    let loaded = loaded();
    let workshop = Arc::new(RuntimeBuilder::new(&loaded.config, Telemetry::unseen()));
    let built = |loaded: &LoadedConfig, before: &[Arc<Generation>]| {
        let built = workshop.build(loaded.clone(), ConfigBasis::from_file(loaded), before);
        Arc::new(built.unwrap_or_else(|problems| panic!("{problems}")).generation)
    };
    let first = built(&loaded, &[]);
    let snapshots = Arc::new(snapshots(&workshop, &first));
    let seen = Arc::new(ArcSwap::new(Arc::clone(&first)));
    let mut publisher = Publisher::new(Arc::clone(&workshop), Arc::clone(&snapshots), seen, None);
    let (start, mut changes) = (snapshots.current(), workshop.shared.changes());
    let policy = first.client("content-policy").expect("it is registered");
    policy.start(CancellationToken::new());
    let is_accepted = async {
        while policy.status().manifest.is_none() {
            changes.changed().await.expect("the workshop tells of changes");
        }
    };
    timeout(Duration::from_secs(10), is_accepted).await.expect("nothing is wrong with it");

    publisher.refresh().await;
    let accepted = snapshots.current();
    assert_eq!(remade(&start, &accepted), TENANTS, "a manifest concerns whoever is bound to its plugin");

    let mut written = loaded.clone();
    let other = json!({ "name": "guard-t1", "plugin": "content-policy", "tenant": "t1", "priority": 7, "mode": "observe" });
    written.config.bindings[1] = serde_json::from_value(other).expect("a binding");
    publisher.adopt(built(&written, &[first])).await.expect("nothing is wrong with it");
    assert_eq!(remade(&accepted, &snapshots.current()), ["t1"]);
}

#[tokio::test]
async fn a_reload_keeps_the_clients_of_unchanged_providers() {
    let mut loaded = loaded();
    let section = json!({
        "upstreams": [{ "name": "a", "base_url": "http://a" }, { "name": "b", "base_url": "http://b" }],
        "models": [{ "match": "a-*", "upstream": "a" }, { "match": "b-*", "upstream": "b" }],
    });
    let workshop = RuntimeBuilder::new(&loaded.config, Telemetry::unseen());
    let built = |loaded: &LoadedConfig, before: &[Arc<Generation>]| {
        let built = workshop.build(loaded.clone(), ConfigBasis::from_file(loaded), before);
        Arc::new(built.unwrap_or_else(|problems| panic!("{problems}")).generation)
    };
    let llm = |of: &Generation| {
        let table = RouteTable::clone(&of.table.load());
        workshop.to_snapshot(of, Arc::clone(&of.config), table).llm
    };
    let without = built(&loaded, &[]);
    assert!(llm(&without).is_none(), "the LLM proxy is not configured");

    loaded.config.llm = serde_json::from_value(section.clone()).expect("a section");
    let first = built(&loaded, &[without]);
    let same = built(&loaded, &[Arc::clone(&first)]);
    let (first, same) = (llm(&first).expect("it is served"), (llm(&same).expect("it is served"), same));
    assert!(Arc::ptr_eq(&first, &same.0));

    let mut changed = section;
    changed["upstreams"][1]["base_url"] = json!("http://c");
    loaded.config.llm = serde_json::from_value(changed).expect("a section");
    let after = llm(&built(&loaded, &[same.1])).expect("it is served");
    let is_kept = |model| {
        let upstream = |llm: &Llm| {
            llm.routes.route(ApiFormat::Openai, model, "acme", None).map(|route| Arc::clone(route.upstream))
        };
        upstream(&first).zip(upstream(&after)).is_some_and(|(then, now)| Arc::ptr_eq(&then, &now))
    };
    assert_eq!((is_kept("a-1"), is_kept("b-1")), (true, false));
}
