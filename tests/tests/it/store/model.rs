//! Property test: compares any history of writes with a model in memory.

use std::{collections::BTreeMap, sync::Arc};

use hookgate::{
    core::object::{ObjectKind, Owner},
    store::{Change, ObjectContent, Revision, Snapshot, Store},
};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::store::support::{Place, change, draft};

type Objects = BTreeMap<(ObjectKind, Arc<str>), (ObjectContent, u64)>;

/// The wanted state of some objects; `None` deletes an existing object.
type Step = BTreeMap<(ObjectKind, &'static str), Option<ObjectContent>>;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = (prop::sample::select(&ObjectKind::ALL), prop::sample::select(&["a", "B", "\u{e4}", "'; --"]));
    let value = prop_oneof![
        any::<f64>().prop_filter("JSON has only these", |n| n.is_finite()).prop_map(|n| json!({ "n": n })),
        any::<u64>().prop_map(|n| json!([n, null, { "": true }])),
        any::<String>().prop_map(Value::String),
    ];
    let content = (any::<bool>(), value).prop_map(|(file, spec)| ObjectContent {
        owner: if file { Owner::File } else { Owner::Api },
        spec: spec.into(),
    });
    prop::collection::vec(prop::collection::btree_map(key, prop::option::weighted(0.7, content), 1..6), 1..12)
}

/// The changes that a step makes to the objects in `there`.
fn changes(step: &Step, there: &Objects) -> Vec<Change> {
    let all = step.iter().map(|((kind, name), after)| {
        let before = there.get(&(*kind, Arc::from(*name))).map(|(content, _)| content.clone());
        change(*kind, name, before, after.clone())
    });
    all.filter(|change| change.before.is_some() || change.after.is_some()).collect()
}

fn apply(objects: &mut Objects, changes: &[Change], number: u64) {
    for Change { kind, name, after, .. } in changes {
        let key = (*kind, name.clone());
        match after {
            Some(after) => objects.insert(key, (after.clone(), number)),
            None => objects.remove(&key),
        };
    }
}

fn objects(snapshot: &Snapshot) -> Objects {
    let all = snapshot.objects.iter();
    all.map(|one| ((one.kind, one.name.clone()), (one.content.clone(), one.version))).collect()
}

fn replayed(revisions: &[Revision]) -> Objects {
    let mut objects = Objects::new();
    for revision in revisions {
        apply(&mut objects, &revision.changes, revision.number);
    }
    objects
}

async fn follow(store: &dyn Store, steps: &[Step]) {
    let (mut model, mut head) = (Objects::new(), 0);
    for step in steps {
        let changes = changes(step, &model);
        if changes.is_empty() {
            continue;
        }
        let draft = draft(head, changes);
        head = store.commit(&draft).await.unwrap();
        apply(&mut model, &draft.changes, head);
        assert_eq!(store.revision(head).await.unwrap().unwrap().changes, draft.changes);
    }
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(
        (snapshot.revision, snapshot.objects.is_sorted_by_key(|one| (one.kind, one.name.clone()))),
        (head, true)
    );
    assert_eq!(objects(&snapshot), model);
    assert_eq!(replayed(&store.since(0, usize::MAX).await.unwrap()), model);
}

#[test]
fn any_history_follows_from_its_revisions_and_ends_in_the_current_contents() {
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
