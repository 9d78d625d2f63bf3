//! Tests quotas, what is deleted with a plugin or by its expiry, and the keys that sign tokens.

use hookgate::store::{DataUsage, SigningKey};

use super::{LATER, add, added, put, put_until, read, scope, written};
use crate::store::support::Place;

#[tokio::test]
async fn usage_is_the_keys_and_values_of_one_scope_that_have_not_expired() {
    for place in Place::every().await {
        let (store, own) = (place.prepared().await, scope("p", Some("t")));
        assert_eq!(store.usage(&own, 0).await.unwrap(), DataUsage::default(), "{place}");
        written(&*store, &own, put("\u{e4}", "12345"), 0).await;
        added(&*store, &own, add("cc", 1, 9, None), 0).await;
        written(&*store, &own, put_until("x", "\u{e4}", 100), 0).await;
        written(&*store, &scope("p", None), put("other", "scope"), 0).await;
        let usage = |entries, bytes| DataUsage { entries, bytes };
        assert_eq!(store.usage(&own, 99).await.unwrap(), usage(3, 7 + 10 + 3), "{place}");
        assert_eq!(store.usage(&own, 100).await.unwrap(), usage(2, 7 + 10), "{place}");
    }
}

#[tokio::test]
async fn expired_entries_are_deleted_up_to_the_most_and_no_others() {
    for place in Place::every().await {
        let store = place.prepared().await;
        let scopes = [scope("p", None), scope("p", Some("t")), scope("q", Some("t"))];
        for own in &scopes {
            let old: Vec<_> = (0..700).map(|number| put_until(&format!("old{number}"), "x", 100)).collect();
            store.write(own, &old, 0).await.unwrap().unwrap();
            let kept = [put("kept", "x"), put_until("later", "x", 101)];
            store.write(own, &kept, 0).await.unwrap().unwrap();
        }
        assert_eq!(store.delete_expired(99, 5000).await.unwrap(), 0, "{place}");
        assert_eq!(store.delete_expired(100, 0).await.unwrap(), 0, "{place}");
        assert_eq!(store.delete_expired(100, 7).await.unwrap(), 7, "{place}");
        // More than one statement deletes.
        assert_eq!(store.delete_expired(100, 1500).await.unwrap(), 1500, "{place}");
        assert_eq!(store.delete_expired(100, usize::MAX).await.unwrap(), 593, "{place}");
        assert_eq!(store.delete_expired(100, usize::MAX).await.unwrap(), 0, "{place}");
        for own in &scopes {
            assert_eq!(store.usage(own, 0).await.unwrap().entries, 2, "{place}");
        }
    }
}

#[tokio::test]
async fn a_plugins_data_is_deleted_for_every_tenant_and_no_other_plugins() {
    for place in Place::every().await {
        let store = place.prepared().await;
        for tenant in [None, Some("t"), Some("u")] {
            let many: Vec<_> = (0..900).map(|number| put(&format!("k{number}"), "x")).collect();
            store.write(&scope("p", tenant), &many, 0).await.unwrap().unwrap();
            written(&*store, &scope("p2", tenant), put("k", "x"), 0).await;
        }
        assert_eq!(store.delete_plugin("P").await.unwrap(), 0, "{place}");
        assert_eq!(store.delete_plugin("p").await.unwrap(), 2700, "{place}");
        assert_eq!(store.delete_plugin("p").await.unwrap(), 0, "{place}");
        for tenant in [None, Some("t"), Some("u")] {
            assert!(read(&*store, &scope("p", tenant), "k1", 0).await.is_none(), "{place}");
            assert!(read(&*store, &scope("p2", tenant), "k", LATER).await.is_some(), "{place}");
        }
    }
}

fn numbers(keys: &[SigningKey]) -> Vec<(u64, i64, [u8; 32])> {
    keys.iter().map(|key| (key.generation, key.created_ms, key.secret)).collect()
}

#[tokio::test]
async fn two_newest_signing_keys_are_kept_and_the_first_of_a_generation_stays() {
    for place in Place::every().await {
        let store = place.prepared().await;
        assert!(store.signing_keys().await.unwrap().is_empty(), "{place}");
        for (generation, byte) in [(1, 1), (2, 2), (2, 9), (3, 3), (1, 9)] {
            let created_ms = 1000 + i64::from(byte);
            store.add_signing_key(&SigningKey { generation, created_ms, secret: [byte; 32] }).await.unwrap();
        }
        let keys = store.signing_keys().await.unwrap();
        assert_eq!(numbers(&keys), [(3, 1003, [3; 32]), (2, 1002, [2; 32])], "{place}");
        // A replica that starts later reads the same.
        assert_eq!(numbers(&place.open().signing_keys().await.unwrap()), numbers(&keys), "{place}");
    }
}
