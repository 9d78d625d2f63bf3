//! Tests what every store guarantees to a reader and writer.

use hookgate::{
    core::object::ObjectKind,
    store::{CommitError, Snapshot, StoreError},
};
use serde_json::json;
use uuid::Uuid;

use crate::store::support::{Place, add, api, change, draft, versions};

#[tokio::test]
async fn a_new_store_is_empty_and_can_be_prepared_again() {
    for place in Place::every().await {
        let store = place.prepared().await;
        store.prepare().await.unwrap();
        assert_eq!(store.head().await.unwrap(), 0, "{place}");
        assert_eq!(store.snapshot().await.unwrap(), Snapshot::default(), "{place}");
        assert_eq!(store.since(0, 10).await.unwrap(), [], "{place}");
        assert_eq!(store.before(None, 10).await.unwrap(), [], "{place}");
        assert_eq!(store.revision(0).await.unwrap(), None, "{place}");
        assert_eq!(store.revision(u64::MAX).await.unwrap(), None, "{place}");
        assert_eq!(store.find_revision(Uuid::now_v7()).await.unwrap(), None, "{place}");
    }
}

#[tokio::test]
async fn a_store_that_was_never_prepared_says_so_and_makes_no_file() {
    for place in Place::every().await {
        let error = place.open().head().await.unwrap_err().to_string();
        assert!(error.starts_with("the store"), "{place}: {error}");
        if let Some(path) = place.url.strip_prefix("sqlite:/") {
            assert!(!std::path::Path::new(&format!("/{path}")).exists());
        }
    }
}

#[tokio::test]
async fn a_commit_is_a_revision_with_all_that_it_did_and_gives_objects_its_number() {
    for place in Place::every().await {
        let store = place.prepared().await;
        let plugin =
            api(json!({ "name": "a", "config": { "key": "${HOOKGATE_SECRET_X}", "n": 0.1, "z": [null] } }));
        let first = draft(
            0,
            vec![
                change(ObjectKind::Plugin, "a", None, plugin.clone()),
                change(ObjectKind::Tenant, "t", None, api(json!({ "id": "t" }))),
                change(ObjectKind::Binding, "b", None, api(json!({ "plugin": "a" }))),
            ],
        );
        assert_eq!(store.commit(&first).await.unwrap(), 1, "{place}");
        let after = api(json!({ "plugin": "a", "priority": 7 }));
        let second = vec![
            change(ObjectKind::Tenant, "t", api(json!({ "id": "t" })), None),
            change(ObjectKind::Binding, "b", api(json!({ "plugin": "a" })), after.clone()),
        ];
        let second = draft(1, second);
        assert_eq!(store.commit(&second).await.unwrap(), 2, "{place}");

        let snapshot = store.snapshot().await.unwrap();
        assert_eq!((snapshot.revision, store.head().await.unwrap()), (2, 2), "{place}");
        assert_eq!(
            versions(&snapshot),
            [(ObjectKind::Plugin, "a", 1), (ObjectKind::Binding, "b", 2)],
            "{place}"
        );
        assert_eq!(Some(&snapshot.objects[0].content), plugin.as_ref(), "{place}");
        assert_eq!(Some(&snapshot.objects[1].content), after.as_ref(), "{place}");
        let read = store.revision(2).await.unwrap().unwrap();
        assert_eq!((read.number, read.at, &*read.author, &*read.reason), (2, second.at, "olga", "because"));
        assert_eq!(read.changes, second.changes, "{place}");
    }
}

#[tokio::test]
async fn a_draft_based_on_an_old_revision_changes_nothing_and_names_the_last() {
    for place in Place::every().await {
        let store = place.prepared().await;
        assert_eq!(store.commit(&add(0, "a")).await.unwrap(), 1);
        for base in [0, 2, u64::MAX - 1] {
            let refused = store.commit(&add(base, "b")).await;
            assert!(matches!(refused, Err(CommitError::Moved { head: 1 })), "{place}: {refused:?}");
        }
        assert_eq!(versions(&store.snapshot().await.unwrap()), [(ObjectKind::Tenant, "a", 1)], "{place}");
        assert_eq!(store.commit(&add(1, "b")).await.unwrap(), 2, "{place}");
    }
}

#[tokio::test]
async fn the_same_draft_twice_is_one_revision() {
    for place in Place::every().await {
        let store = place.prepared().await;
        let mut written = add(0, "a");
        assert_eq!(store.commit(&written).await.unwrap(), 1);
        assert_eq!(store.commit(&add(1, "b")).await.unwrap(), 2);
        assert_eq!(store.commit(&written).await.unwrap(), 1, "{place}");
        assert_eq!(store.find_revision(written.id).await.unwrap(), Some(1), "{place}");
        // Changing only the base, without a new id, must fail too, in one way or another.
        written.base = 2;
        assert!(store.commit(&written).await.is_err(), "{place}");
        assert_eq!(store.head().await.unwrap(), 2, "{place}");
    }
}

#[tokio::test]
async fn a_draft_that_does_not_fit_the_contents_is_refused_as_a_whole() {
    for place in Place::every().await {
        let store = place.prepared().await;
        store.commit(&add(0, "a")).await.unwrap();
        let (there, other) = (api(json!({ "id": "a" })), api(json!({ "id": "x" })));
        let good = || change(ObjectKind::Plugin, "p", None, api(json!({})));
        let of_a = |before, after| vec![good(), change(ObjectKind::Tenant, "a", before, after)];
        let misfits = [
            of_a(None, other.clone()),
            of_a(other.clone(), None),
            of_a(None, None),
            vec![good(), change(ObjectKind::Tenant, "nobody", there.clone(), other.clone())],
            vec![good(), good()],
            vec![change(ObjectKind::Tenant, "z", None, other.clone()), good()],
            vec![change(ObjectKind::Tenant, "", None, other.clone())],
            vec![change(ObjectKind::Tenant, "a\0b", None, other.clone())],
            vec![change(ObjectKind::Tenant, &"x".repeat(4096), None, other.clone())],
            vec![],
        ];
        for changes in misfits {
            let refused = store.commit(&draft(1, changes)).await;
            assert!(
                matches!(refused, Err(CommitError::Store(StoreError::Unusable(_)))),
                "{place}: {refused:?}"
            );
        }
        let snapshot = store.snapshot().await.unwrap();
        assert_eq!(
            (snapshot.revision, versions(&snapshot)),
            (1, vec![(ObjectKind::Tenant, "a", 1)]),
            "{place}"
        );
        assert_eq!(store.commit(&draft(1, of_a(there, other))).await.unwrap(), 2, "{place}");
    }
}

#[tokio::test]
async fn what_is_deleted_and_made_again_has_a_version_it_never_had() {
    for place in Place::every().await {
        let store = place.prepared().await;
        let there = api(json!({ "id": "a" }));
        let mut seen = Vec::new();
        for base in [0, 2, 4] {
            store.commit(&add(base, "a")).await.unwrap();
            seen.push(store.snapshot().await.unwrap().objects[0].version);
            let gone = draft(base + 1, vec![change(ObjectKind::Tenant, "a", there.clone(), None)]);
            store.commit(&gone).await.unwrap();
        }
        assert_eq!(seen, [1, 3, 5], "{place}");
    }
}

#[tokio::test]
async fn revisions_are_read_a_page_at_a_time_both_ways() {
    for place in Place::every().await {
        let store = place.prepared().await;
        for base in 0..5 {
            store.commit(&add(base, &format!("t{base}"))).await.unwrap();
        }
        let numbers =
            |page: Vec<hookgate::store::Revision>| page.iter().map(|one| one.number).collect::<Vec<_>>();
        let none: [u64; 0] = [];
        assert_eq!(numbers(store.since(0, 2).await.unwrap()), [1, 2], "{place}");
        assert_eq!(numbers(store.since(2, 2).await.unwrap()), [3, 4], "{place}");
        assert_eq!(numbers(store.since(4, usize::MAX).await.unwrap()), [5], "{place}");
        assert_eq!(numbers(store.since(u64::MAX, 2).await.unwrap()), none, "{place}");
        assert_eq!(numbers(store.before(None, 2).await.unwrap()), [5, 4], "{place}");
        assert_eq!(numbers(store.before(Some(4), 2).await.unwrap()), [3, 2], "{place}");
        assert_eq!(numbers(store.before(Some(1), 2).await.unwrap()), none, "{place}");
        assert_eq!(numbers(store.before(None, 0).await.unwrap()), none, "{place}");
    }
}

/// Possible tenant ids, in byte order, which no database's collation changes.
const HOSTILE: [&str; 12] = [
    "%00%2e",
    "'; DROP TABLE hookgate_tenants; --",
    "../x",
    ":",
    "A",
    "B",
    "\\\"`$1 {} \u{202e}",
    "a",
    "a ",
    "\u{e4}",
    "e\u{301}",
    "😀",
];

#[tokio::test]
async fn hostile_names_are_kept_as_they_are_and_in_the_order_of_their_bytes() {
    let mut names: Vec<String> = HOSTILE.iter().map(|name| (*name).to_owned()).collect();
    names.extend(["x".repeat(1024), "😀".repeat(64)]);
    names.sort();
    for place in Place::every().await {
        let store = place.prepared().await;
        let spec = |name: &String| api(json!({ "id": name, "labels": { "nul": "\0", name: 1e-7 } }));
        let new = names.iter().map(|name| change(ObjectKind::Tenant, name, None, spec(name)));
        let mut made = draft(0, new.collect());
        made.reason = HOSTILE.concat();
        store.commit(&made).await.unwrap();
        let snapshot = store.snapshot().await.unwrap();
        let read: Vec<_> = snapshot.objects.iter().map(|object| object.name.to_string()).collect();
        assert_eq!(read, names, "{place}");
        for object in &snapshot.objects {
            assert_eq!(Some(&object.content), spec(&object.name.to_string()).as_ref(), "{place}");
        }
        let revision = store.revision(1).await.unwrap().unwrap();
        assert_eq!((&revision.changes, &revision.reason), (&made.changes, &made.reason), "{place}");
        // One is deleted, and no other.
        let gone = change(ObjectKind::Tenant, HOSTILE[1], spec(&HOSTILE[1].to_owned()), None);
        store.commit(&draft(1, vec![gone])).await.unwrap();
        assert_eq!(store.snapshot().await.unwrap().objects.len(), names.len() - 1, "{place}");
    }
}

#[tokio::test]
async fn a_closed_store_answers_at_once_that_it_is_closed() {
    for place in Place::every().await {
        let store = place.prepared().await;
        store.close().await;
        let closed = store.head().await;
        assert!(matches!(closed, Err(StoreError::Unavailable(_))), "{place}: {closed:?}");
        let closed = store.commit(&add(0, "a")).await;
        assert!(matches!(closed, Err(CommitError::Store(StoreError::Unavailable(_)))), "{place}: {closed:?}");
        store.close().await;
    }
}
