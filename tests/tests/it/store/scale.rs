//! Tests a registry of ten thousand tenants.

use std::time::{Duration, Instant};

use hookgate::core::object::ObjectKind;
use serde_json::json;

use crate::store::support::{Place, api, change, draft};

const TENANTS: usize = 10_000;
const BINDINGS: usize = 5;

#[tokio::test]
async fn sixty_thousand_objects_are_written_at_once_and_read_in_a_moment() {
    let tenants = (0..TENANTS).map(|tenant| {
        let spec = json!({ "id": format!("t{tenant:05}"), "labels": { "plan": "pro" } });
        change(ObjectKind::Tenant, &format!("t{tenant:05}"), None, api(spec))
    });
    let bindings = (0..TENANTS * BINDINGS).map(|number| {
        let (tenant, place) = (number / BINDINGS, number % BINDINGS);
        let name = format!("p{place}@t{tenant:05}");
        let spec = json!({
            "name": &name, "plugin": format!("p{place}"), "tenant": format!("t{tenant:05}"), "priority": place * 10,
            "points": ["before_tool_call"], "match": { "tools": ["fs.*"] }, "config": { "limit": number },
        });
        change(ObjectKind::Binding, &name, None, api(spec))
    });
    let mut changes: Vec<_> = tenants.chain(bindings).collect();
    changes.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    let all = draft(0, changes);
    for place in Place::every().await {
        let store = place.prepared().await;
        let since = Instant::now();
        assert_eq!(store.commit(&all).await.unwrap(), 1, "{place}");
        let written = since.elapsed();
        let since = Instant::now();
        let snapshot = store.snapshot().await.unwrap();
        let read = since.elapsed();
        println!("{place}: written in {written:?}, read in {read:?}");
        assert_eq!(snapshot.objects.len(), TENANTS * (BINDINGS + 1), "{place}");
        // Many times what a debug build takes with other tests running, but less than quadratic time would
        // take.
        assert!(
            read < Duration::from_secs(60) && written < Duration::from_secs(180),
            "{place}: {written:?} {read:?}"
        );
        let revision = store.revision(1).await.unwrap().unwrap();
        assert_eq!(revision.changes.len(), all.changes.len(), "{place}");
    }
}
