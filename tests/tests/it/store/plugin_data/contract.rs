//! Tests what a plugin may rely on when it reads and writes its data.

use hookgate::store::{
    DataChange, DataEntry, DataOperation, EntryContent, ListRange, MAX_COUNTER, RejectedReason,
    RejectedWrite, Store,
};

use super::{LATER, add, added, delete, make, put, put_over, put_until, read, scope, value, written};
use crate::store::support::Place;

#[tokio::test]
async fn a_value_is_read_as_it_was_written_until_it_expires() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", None));
        let bytes: Vec<u8> = (0..=255).collect();
        let operation = DataOperation::Put {
            key: "\u{e4} '; --".into(),
            value: bytes.clone().into(),
            expected: None,
            expires_ms: Some(100),
        };
        let version = written(&*store, &own, operation, 50).await;
        let entry = DataEntry {
            key: "\u{e4} '; --".into(),
            content: EntryContent::Value(bytes.into()),
            version,
            expires_ms: Some(100),
        };
        assert_eq!(read(&*store, &own, &entry.key, 99).await, Some(entry.clone()), "{place}");
        assert_eq!(read(&*store, &own, &entry.key, 100).await, None, "{place}");
        let empty = written(&*store, &own, put("empty", ""), 0).await;
        let keys = ["empty", "no such", &entry.key, "empty"].map(ToOwned::to_owned);
        let mut found = store.read(&own, &keys, 99).await.unwrap();
        found.sort_by(|one, other| one.key.cmp(&other.key));
        let empty = DataEntry { key: "empty".into(), content: value(""), version: empty, expires_ms: None };
        assert_eq!(found, [empty, entry], "{place}");
        assert_eq!(store.read(&own, &[], 0).await.unwrap(), [], "{place}");
        assert_eq!(store.write(&own, &[], 0).await.unwrap(), Ok(vec![]), "{place}");
    }
}

#[tokio::test]
async fn a_put_over_another_version_changes_nothing_and_names_the_version() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", Some("t")));
        let conflict = |version| Err(RejectedReason::Conflict { version });
        assert_eq!(make(&*store, &own, put_over("k", "x", 7), 0).await, conflict(0), "{place}");
        let first = written(&*store, &own, put_over("k", "a", 0), 0).await;
        for expected in [0, 1, first + 1, u64::MAX] {
            let made = make(&*store, &own, put_over("k", "x", expected), 0).await;
            assert_eq!(made, conflict(first), "{place}, {expected}");
        }
        assert_eq!(read(&*store, &own, "k", 0).await.unwrap().content, value("a"), "{place}");
        let second = written(&*store, &own, put_over("k", "b", first), 0).await;
        assert_eq!(make(&*store, &own, put_over("k", "c", first), 0).await, conflict(second), "{place}");
        assert_eq!(read(&*store, &own, "k", 0).await.unwrap().content, value("b"), "{place}");
    }
}

#[tokio::test]
async fn an_entry_is_deleted_once_and_only_in_the_expected_version() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", Some("t")));
        let conflict = |version| Err(RejectedReason::Conflict { version });
        let deleted = |existed| Ok(DataChange::Deleted { existed });
        assert_eq!(make(&*store, &own, delete("k", None), 0).await, deleted(false), "{place}");
        assert_eq!(make(&*store, &own, delete("k", Some(5)), 0).await, conflict(0), "{place}");
        let version = written(&*store, &own, put("k", "a"), 0).await;
        assert_eq!(
            make(&*store, &own, delete("k", Some(version - 1)), 0).await,
            conflict(version),
            "{place}"
        );
        assert_eq!(make(&*store, &own, delete("k", Some(version)), 0).await, deleted(true), "{place}");
        written(&*store, &own, put("k", "a"), 0).await;
        assert_eq!(make(&*store, &own, delete("k", None), 0).await, deleted(true), "{place}");
        assert_eq!(read(&*store, &own, "k", 0).await, None, "{place}");
    }
}

#[tokio::test]
async fn versions_of_a_key_only_grow_also_after_deletion_and_expiry() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", None));
        let mut versions = Vec::new();
        for _ in 0..20 {
            versions.push(written(&*store, &own, put_until("k", "a", 100), 0).await);
            versions.push(written(&*store, &own, put_until("k", "b", 100), 100).await);
            make(&*store, &own, delete("k", None), 0).await.unwrap();
            let Ok(DataChange::Added { version, .. }) =
                make(&*store, &own, add("k", 1, 9, Some(100)), 0).await
            else {
                panic!("{place}")
            };
            versions.push(version);
            store.delete_expired(LATER, 10).await.unwrap();
        }
        assert!(versions.is_sorted_by(|one, next| one < next), "{place}: {versions:?}");
        // JSON reads it exactly.
        assert!(versions.last() < Some(&(1 << 53)), "{place}: {versions:?}");
    }
}

#[tokio::test]
async fn an_expired_entry_counts_as_none() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", None));
        let expire = async |key: &str| written(&*store, &own, put_until(key, "old", 100), 0).await;
        let version = expire("k").await;
        let conflict = Err(RejectedReason::Conflict { version: 0 });
        assert_eq!(make(&*store, &own, put_over("k", "x", version), 100).await, conflict, "{place}");
        assert_eq!(make(&*store, &own, delete("k", Some(version)), 100).await, conflict, "{place}");
        let gone = make(&*store, &own, delete("k", None), 100).await;
        assert_eq!(gone, Ok(DataChange::Deleted { existed: false }), "{place}");
        expire("k").await;
        let at_limit = Err(RejectedReason::LimitReached { counter: 0, expires_ms: None });
        assert_eq!(make(&*store, &own, add("k", 2, 1, None), 100).await, at_limit, "{place}");
        written(&*store, &own, put_over("k", "new", 0), 100).await;
        let entry = read(&*store, &own, "k", LATER).await.unwrap();
        assert_eq!((entry.content, entry.expires_ms), (value("new"), None), "{place}");
        // A counter begins again, in place of a value or of a counter.
        expire("c").await;
        assert_eq!(added(&*store, &own, add("c", 3, 10, Some(200)), 100).await, (3, Some(200)), "{place}");
        assert_eq!(added(&*store, &own, add("c", 4, 10, Some(300)), 200).await, (4, Some(300)), "{place}");
        assert_eq!(added(&*store, &own, add("c", 5, 10, None), 300).await, (5, None), "{place}");
    }
}

#[tokio::test]
async fn a_counter_keeps_its_expiry_and_stays_within_its_limit() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", Some("t")));
        assert_eq!(added(&*store, &own, add("c", 6, 10, Some(100)), 0).await, (6, Some(100)), "{place}");
        assert_eq!(added(&*store, &own, add("c", 4, 10, Some(999)), 1).await, (10, Some(100)), "{place}");
        assert_eq!(added(&*store, &own, add("c", 0, 10, None), 1).await, (10, Some(100)), "{place}");
        let reached = |counter| Err(RejectedReason::LimitReached { counter, expires_ms: Some(100) });
        for (delta, limit) in [(1, 10), (11, 10), (MAX_COUNTER, MAX_COUNTER), (-1, 8), (0, 9), (1, -5)] {
            let made = make(&*store, &own, add("c", delta, limit, None), 1).await;
            assert_eq!(made, reached(10), "{place}: {delta}, {limit}");
        }
        assert_eq!(added(&*store, &own, add("c", -3, 8, None), 1).await, (7, Some(100)), "{place}");
        let none = Err(RejectedReason::LimitReached { counter: 0, expires_ms: None });
        assert_eq!(make(&*store, &own, add("new", 2, 1, Some(5)), 1).await, none, "{place}");
        assert_eq!(read(&*store, &own, "new", 1).await, None, "{place}");
        // A negative counter has room for a delta above the limit.
        assert_eq!(added(&*store, &own, add("new", -5, 1, Some(50)), 1).await, (-5, Some(50)), "{place}");
        assert_eq!(added(&*store, &own, add("new", 6, 1, None), 1).await, (1, Some(50)), "{place}");
        let none = Err(RejectedReason::LimitReached { counter: 1, expires_ms: Some(50) });
        assert_eq!(make(&*store, &own, add("new", 6, 1, None), 1).await, none, "{place}");
        assert_eq!(read(&*store, &own, "new", 1).await.unwrap().content, EntryContent::Counter(1), "{place}");
    }
}

#[tokio::test]
async fn counters_stay_within_their_range_whatever_is_added() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", None));
        for sign in [1, -1] {
            let key = format!("c{sign}");
            let edge = sign * MAX_COUNTER;
            assert_eq!(
                added(&*store, &own, add(&key, edge, MAX_COUNTER, None), 0).await,
                (edge, None),
                "{place}"
            );
            for delta in [sign, edge, sign * i64::MAX, if sign < 0 { i64::MIN } else { i64::MAX }] {
                for limit in [MAX_COUNTER, i64::MAX, i64::MIN] {
                    let made = make(&*store, &own, add(&key, delta, limit, None), 0).await;
                    let reached = RejectedReason::LimitReached { counter: edge, expires_ms: None };
                    assert_eq!(made, Err(reached), "{place}: {delta}, {limit}");
                }
            }
            assert_eq!(
                added(&*store, &own, add(&key, -edge, MAX_COUNTER, None), 0).await,
                (0, None),
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn a_value_is_no_counter_but_a_put_replaces_either() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", None));
        written(&*store, &own, put("k", "7"), 0).await;
        for delta in [1, 100] {
            let made = make(&*store, &own, add("k", delta, 10, None), 0).await;
            assert_eq!(made, Err(RejectedReason::NotACounter), "{place}");
        }
        added(&*store, &own, add("c", 1, 10, Some(100)), 0).await;
        let counter = read(&*store, &own, "c", 0).await.unwrap();
        assert_eq!(counter.content, EntryContent::Counter(1), "{place}");
        written(&*store, &own, put_over("c", "value", counter.version), 0).await;
        let entry = read(&*store, &own, "c", LATER).await.unwrap();
        assert_eq!((entry.content, entry.expires_ms), (value("value"), None), "{place}");
    }
}

async fn keys(store: &dyn Store, prefix: &str, after: &str, limit: usize) -> Vec<String> {
    let range = ListRange { prefix, after, limit };
    let page = store.list(&scope("p", Some("t")), range, 50).await.unwrap();
    page.into_iter().map(|entry| entry.key).collect()
}

#[tokio::test]
async fn a_list_has_the_keys_of_a_prefix_in_the_order_of_their_bytes_by_pages() {
    let mut all =
        ["B", "a", "a\u{10ffff}", "a\u{10ffff}z", "a%", "a/1", "a/10", "a/2", "a_", "ab", "a\u{e4}", "b"]
            .map(ToOwned::to_owned)
            .to_vec();
    all.extend(
        ["\u{d7ff}x", "\u{e000}", "\u{10ffff}", "\u{10ffff}\u{10ffff}y", "\u{1f600}"].map(ToOwned::to_owned),
    );
    for place in Place::every().await {
        let store = place.prepared().await;
        let here = scope("p", Some("t"));
        for key in &all {
            written(&*store, &here, put_until(key, "", 100), 0).await;
        }
        written(&*store, &here, put_until("a/11", "expired", 50), 0).await;
        for other in [scope("p", None), scope("p", Some("u")), scope("o", Some("t")), scope("q", Some("t"))] {
            written(&*store, &other, put("a/0", ""), 0).await;
        }
        all.sort();
        for prefix in
            ["", "a", "a/", "a/1", "a/10x", "a\u{10ffff}", "\u{d7ff}", "\u{10ffff}", "no", "a%", "a_"]
        {
            let expected: Vec<_> = all.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
            assert_eq!(keys(&*store, prefix, "", usize::MAX).await, expected, "{place}: {prefix:?}");
            for size in [1, 3] {
                let (mut paged, mut after) = (Vec::new(), String::new());
                loop {
                    let page = keys(&*store, prefix, &after, size).await;
                    paged.extend(page.clone());
                    match page.last() {
                        Some(last) if page.len() == size => after.clone_from(last),
                        _ => break,
                    }
                }
                assert_eq!(paged, expected, "{place}: {prefix:?}, {size}");
            }
        }
        // From any place on, also before or behind the prefix.
        assert_eq!(keys(&*store, "a/", "B", 1).await, ["a/1"], "{place}");
        assert_eq!(keys(&*store, "a/", "a/1\u{1}", 9).await, ["a/10", "a/2"], "{place}");
        assert!(keys(&*store, "a/", "b", 9).await.is_empty(), "{place}");
        assert!(keys(&*store, "", "", 0).await.is_empty(), "{place}");
    }
}

#[tokio::test]
async fn a_transaction_makes_all_its_operations_or_none() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", Some("t")));
        let gone = written(&*store, &own, put("gone", "x"), 0).await;
        let operations =
            [put("z", "1"), delete("gone", Some(gone)), add("c", 5, 10, Some(100)), put_over("a", "2", 0)];
        let made = store.write(&own, &operations, 0).await.unwrap().unwrap();
        let [
            DataChange::Written { version: z },
            DataChange::Deleted { existed: true },
            DataChange::Added { counter: 5, expires_ms: Some(100), .. },
            DataChange::Written { version: a },
        ] = made[..]
        else {
            panic!("{place}: {made:?}")
        };
        let before = store.list(&own, ListRange { prefix: "", after: "", limit: 10 }, 0).await.unwrap();
        assert_eq!(before.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["a", "c", "z"], "{place}");
        assert_eq!((before[0].version, before[2].version), (a, z), "{place}");
        let reached = RejectedReason::LimitReached { counter: 5, expires_ms: Some(100) };
        for (misfit, reason) in [
            (add("c", 6, 10, None), reached),
            (add("a", 1, 10, None), RejectedReason::NotACounter),
            (put_over("z", "x", 0), RejectedReason::Conflict { version: z }),
            (delete("none", Some(1)), RejectedReason::Conflict { version: 0 }),
        ] {
            let operations = [put("0", "x"), delete("c0", None), misfit, put("zz", "x")];
            let made = store.write(&own, &operations, 0).await.unwrap();
            assert_eq!(made, Err(RejectedWrite { index: 2, reason }), "{place}");
            let after = store.list(&own, ListRange { prefix: "", after: "", limit: 10 }, 0).await.unwrap();
            assert_eq!(after, before, "{place}");
        }
    }
}
