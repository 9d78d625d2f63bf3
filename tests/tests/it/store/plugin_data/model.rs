//! Property test: compares any history of several scopes with a model in memory.

use std::collections::BTreeMap;

use hookgate::store::{
    DataChange, DataEntry, DataOperation, DataScope, DataUsage, EntryContent, ListRange, MAX_COUNTER,
    RejectedReason, Store,
};
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::runtime::Runtime;

use super::scope;
use crate::store::support::Place;

const KEYS: [&str; 4] = ["a", "a/b", "\u{e4}", "B"];

/// The version that a put or a delete expects.
#[derive(Debug, Clone, Copy)]
enum ExpectedVersion {
    Any,
    /// None for a put; a version that never was for a delete.
    Absent,
    Current,
}

#[derive(Debug, Clone)]
enum ModelOperation {
    Put { value: Vec<u8>, expected: ExpectedVersion, ttl: Option<i64> },
    Delete { expected: ExpectedVersion },
    Add { delta: i64, limit: i64, ttl: Option<i64> },
}

#[derive(Debug, Clone)]
struct ModelStep {
    scope: usize,
    operations: BTreeMap<usize, ModelOperation>,
    /// Whether the operations are requested in the reverse order.
    is_reversed: bool,
    /// The time that passes before it.
    pause: i64,
    is_swept: bool,
}

fn operations() -> impl Strategy<Value = ModelOperation> {
    let expected = prop_oneof![
        3 => Just(ExpectedVersion::Any),
        1 => Just(ExpectedVersion::Absent),
        3 => Just(ExpectedVersion::Current)
    ];
    let ttl = prop::option::of(1..60_i64);
    let delta = prop_oneof![-5..=5_i64, Just(MAX_COUNTER), Just(-MAX_COUNTER), Just(1 - MAX_COUNTER)];
    let limit = prop_oneof![-3..=8_i64, Just(MAX_COUNTER), Just(-MAX_COUNTER)];
    prop_oneof![
        (prop::collection::vec(any::<u8>(), 0..20), expected.clone(), ttl.clone())
            .prop_map(|(value, expected, ttl)| ModelOperation::Put { value, expected, ttl }),
        expected.prop_map(|expected| ModelOperation::Delete { expected }),
        (delta, limit, ttl).prop_map(|(delta, limit, ttl)| ModelOperation::Add { delta, limit, ttl }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let operations = prop_oneof![
        3 => prop::collection::btree_map(0..KEYS.len(), operations(), 1..2),
        2 => prop::collection::btree_map(0..KEYS.len(), operations(), 2..5),
    ];
    let step = (0..4_usize, operations, any::<bool>(), 0..30_i64, prop::bool::weighted(0.1));
    let step = step.prop_map(|(scope, operations, is_reversed, pause, is_swept)| ModelStep {
        scope,
        operations,
        is_reversed,
        pause,
        is_swept,
    });
    prop::collection::vec(step, 1..60)
}

/// The entries of one scope, and the greatest version that each key ever had.
#[derive(Default, Clone)]
struct ModelScope {
    entries: BTreeMap<String, DataEntry>,
    versions: BTreeMap<String, u64>,
}

impl ModelScope {
    fn forget_expired(&mut self, now: i64) {
        self.entries.retain(|_, entry| entry.expires_ms.is_none_or(|expires| expires > now));
    }

    /// The operation for the store. An expected version is the one that the model knows.
    fn request(&self, key: &str, operation: &ModelOperation, now: i64) -> DataOperation {
        let version = |expected: &ExpectedVersion, absent| match expected {
            ExpectedVersion::Any => None,
            ExpectedVersion::Absent => Some(absent),
            ExpectedVersion::Current => Some(self.entries.get(key).map_or(absent, |entry| entry.version)),
        };
        let expires = |ttl: &Option<i64>| ttl.map(|ttl| now + ttl);
        let key = key.to_owned();
        match operation {
            ModelOperation::Put { value, expected, ttl } => DataOperation::Put {
                key,
                value: value.clone().into(),
                expected: version(expected, 0),
                expires_ms: expires(ttl),
            },
            ModelOperation::Delete { expected } => {
                DataOperation::Delete { key, expected: version(expected, 1) }
            }
            ModelOperation::Add { delta, limit, ttl } => {
                DataOperation::Add { key, delta: *delta, limit: *limit, expires_ms: expires(ttl) }
            }
        }
    }

    /// Why the operation has to be rejected.
    fn rejection(&self, operation: &DataOperation) -> Option<RejectedReason> {
        let entry = self.entries.get(operation.key());
        match operation {
            DataOperation::Put { expected: Some(expected), .. }
            | DataOperation::Delete { expected: Some(expected), .. } => {
                let version = entry.map_or(0, |entry| entry.version);
                (version != *expected).then_some(RejectedReason::Conflict { version })
            }
            DataOperation::Put { .. } | DataOperation::Delete { .. } => None,
            DataOperation::Add { delta, limit, .. } => {
                let (counter, expires_ms) = match entry.map(|entry| (&entry.content, entry.expires_ms)) {
                    Some((EntryContent::Value(_), _)) => return Some(RejectedReason::NotACounter),
                    Some((EntryContent::Counter(counter), expires_ms)) => (*counter, expires_ms),
                    None => (0, None),
                };
                let sum = counter + delta;
                (sum > *limit || !(-MAX_COUNTER..=MAX_COUNTER).contains(&sum))
                    .then_some(RejectedReason::LimitReached { counter, expires_ms })
            }
        }
    }

    /// Makes the operation, whose result in the store is `change`.
    fn apply(&mut self, operation: &DataOperation, change: &DataChange) {
        let key = operation.key().to_owned();
        let (content, version, expires_ms) = match (operation, change) {
            (DataOperation::Put { value, expires_ms, .. }, DataChange::Written { version }) => {
                (EntryContent::Value(value.clone()), *version, *expires_ms)
            }
            (DataOperation::Delete { .. }, DataChange::Deleted { existed }) => {
                assert_eq!(self.entries.remove(&key).is_some(), *existed, "{operation:?}");
                return;
            }
            (
                DataOperation::Add { delta, expires_ms, .. },
                DataChange::Added { counter, version, expires_ms: kept },
            ) => {
                let (before, expires_ms) = match self.entries.get(&key) {
                    Some(DataEntry { content: EntryContent::Counter(before), expires_ms, .. }) => {
                        (*before, *expires_ms)
                    }
                    _ => (0, *expires_ms),
                };
                assert_eq!((*counter, *kept), (before + delta, expires_ms), "{operation:?}");
                (EntryContent::Counter(*counter), *version, *kept)
            }
            other => panic!("{other:?}"),
        };
        let before = self.versions.insert(key.clone(), version).unwrap_or_default();
        assert!(version > before, "{operation:?}: {version}, {before}");
        self.entries.insert(key.clone(), DataEntry { key, content, version, expires_ms });
    }

    fn usage(&self) -> DataUsage {
        let bytes = self.entries.values().map(|entry| {
            let content = match &entry.content {
                EntryContent::Value(value) => value.len(),
                EntryContent::Counter(_) => 8,
            };
            (entry.key.len() + content) as u64
        });
        DataUsage { entries: self.entries.len() as u64, bytes: bytes.sum() }
    }
}

async fn check(store: &dyn Store, scope: &DataScope, model: &ModelScope, now: i64) {
    let expected: Vec<_> = model.entries.values().cloned().collect();
    let listed = store.list(scope, ListRange { prefix: "", after: "", limit: 100 }, now).await.unwrap();
    assert_eq!(listed, expected, "{scope:?}");
    let mut read = store.read(scope, &KEYS.map(ToOwned::to_owned), now).await.unwrap();
    read.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(read, expected, "{scope:?}");
    assert_eq!(store.usage(scope, now).await.unwrap(), model.usage(), "{scope:?}");
}

async fn follow(store: &dyn Store, steps: &[ModelStep]) {
    let scopes = [scope("p", None), scope("p", Some("t")), scope("q", Some("t")), scope("q", Some("u"))];
    let mut models: [ModelScope; 4] = Default::default();
    let mut now = 1000;
    for step in steps {
        now += step.pause;
        models.iter_mut().for_each(|model| model.forget_expired(now));
        if step.is_swept {
            store.delete_expired(now, 3).await.unwrap();
        }
        let (scope, model) = (&scopes[step.scope], &mut models[step.scope]);
        let mut requested: Vec<_> = step
            .operations
            .iter()
            .map(|(key, operation)| model.request(KEYS[*key], operation, now))
            .collect();
        if step.is_reversed {
            requested.reverse();
        }
        let rejections: Vec<_> = requested.iter().map(|operation| model.rejection(operation)).collect();
        match store.write(scope, &requested, now).await.unwrap() {
            Ok(changes) => {
                assert!(rejections.iter().all(Option::is_none), "{requested:?}: {rejections:?}");
                assert_eq!(changes.len(), requested.len());
                requested.iter().zip(&changes).for_each(|(operation, change)| model.apply(operation, change));
            }
            // Of several that have to be rejected, any may be named.
            Err(rejected) => assert_eq!(Some(rejected.reason), rejections[rejected.index], "{requested:?}"),
        }
        check(store, scope, model, now).await;
    }
    for (scope, model) in scopes.iter().zip(&models) {
        check(store, scope, model, now).await;
    }
    store.delete_expired(now, usize::MAX).await.unwrap();
    let of_p: usize = models[..2].iter().map(|model| model.entries.len()).sum();
    assert_eq!(store.delete_plugin("p").await.unwrap(), of_p as u64);
    for (scope, model) in scopes[2..].iter().zip(&models[2..]) {
        check(store, scope, model, now).await;
    }
}

#[test]
fn any_history_of_several_scopes_is_that_of_the_model_and_no_scope_sees_another() {
    let runtime = Runtime::new().unwrap();
    let config = ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            runtime.block_on(async {
                for place in Place::every().await {
                    let store = place.prepared().await;
                    follow(&*store, &steps).await;
                    store.close().await;
                }
            });
            Ok(())
        })
        .unwrap();
}
