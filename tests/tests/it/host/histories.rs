//! Property test: compares any history of what two plugins request over gRPC, each for two tenants and for itself, with a
//! model in memory.

use std::collections::BTreeMap;

use hookgate_proto::host::v1::{
    AddRequest, Conflict, DeleteRequest, Entry, GetManyRequest, ListRequest, Operation, PutRequest,
    TransactRequest, add_response, delete_response, entry::Content, operation::Operation as Change,
    operation_result::Result as Changed, put_response, rejected::Reason, transact_response,
};
use hookgate_tests::{fake::FakePlugin, gateway::Gateway};
use proptest::{prelude::*, test_runner::TestRunner};
use tokio::runtime::Runtime;
use tonic::{Code, Status};

use super::support::{Client, get, of_plugin, of_tenant, setup, storing};

const KEYS: [&str; 5] = ["B", "a", "a/b", "a/c", "\u{e4}"];
const PREFIXES: [&str; 4] = ["", "a", "a/", "none"];
const SCOPES: usize = 6;

/// The version that a put or a delete expects.
#[derive(Debug, Clone, Copy)]
enum ExpectedVersion {
    Any,
    /// None for a put; a version that never was for a delete.
    Absent,
    Current,
}

#[derive(Debug, Clone)]
enum PlannedChange {
    Put { value: String, expected: ExpectedVersion },
    Delete { expected: ExpectedVersion },
    Add { delta: i64, limit: Option<i64> },
}

#[derive(Debug, Clone)]
enum PlannedRequest {
    Get(usize),
    GetMany(Vec<usize>),
    /// By pages of this size.
    List(&'static str, u32),
    One(usize, PlannedChange),
    Transact(BTreeMap<usize, PlannedChange>),
}

fn changes() -> impl Strategy<Value = PlannedChange> {
    let expected = prop_oneof![
        4 => Just(ExpectedVersion::Any),
        1 => Just(ExpectedVersion::Absent),
        2 => Just(ExpectedVersion::Current)
    ];
    prop_oneof![
        ("[a-z\u{e4}]{0,8}", expected.clone())
            .prop_map(|(value, expected)| PlannedChange::Put { value, expected }),
        expected.prop_map(|expected| PlannedChange::Delete { expected }),
        (-3..=5_i64, prop::option::of(0..8_i64))
            .prop_map(|(delta, limit)| PlannedChange::Add { delta, limit }),
    ]
}

/// Each with the scope whose client makes it.
fn requests() -> impl Strategy<Value = Vec<(usize, PlannedRequest)>> {
    let key = 0..KEYS.len();
    let request = prop_oneof![
        1 => key.clone().prop_map(PlannedRequest::Get),
        1 => prop::collection::vec(key.clone(), 1..8).prop_map(PlannedRequest::GetMany),
        1 => (prop::sample::select(&PREFIXES[..]), 1..4_u32)
            .prop_map(|(prefix, size)| PlannedRequest::List(prefix, size)),
        4 => (key.clone(), changes()).prop_map(|(key, change)| PlannedRequest::One(key, change)),
        3 => prop::collection::btree_map(key, changes(), 1..5).prop_map(PlannedRequest::Transact),
    ];
    prop::collection::vec((0..SCOPES, request), 1..80)
}

/// What a change has to lead to.
#[derive(Debug, PartialEq)]
enum Rejection {
    Conflict(u64),
    LimitReached(i64),
    NotACounter,
}

/// The entries of one scope.
#[derive(Default)]
struct ModelScope(BTreeMap<String, Entry>);

impl ModelScope {
    fn version(&self, key: &str) -> u64 {
        self.0.get(key).map_or(0, |entry| entry.version)
    }

    /// The change of the contract. An expected version is the one that the model knows.
    fn change(&self, key: usize, planned: &PlannedChange) -> Change {
        let key = KEYS[key].to_owned();
        let expected = |expected: &ExpectedVersion, absent: u64| match expected {
            ExpectedVersion::Any => None,
            ExpectedVersion::Absent => Some(absent),
            ExpectedVersion::Current => Some(self.version(&key).max(absent)),
        };
        match planned {
            PlannedChange::Put { value, expected: version } => Change::Put(PutRequest {
                expected_version: expected(version, 0),
                value: value.clone().into(),
                key,
                ttl_ms: None,
            }),
            PlannedChange::Delete { expected: version } => {
                Change::Delete(DeleteRequest { expected_version: expected(version, 1), key })
            }
            PlannedChange::Add { delta, limit } => {
                Change::Add(AddRequest { key, delta: *delta, limit: *limit, window_ms: None })
            }
        }
    }

    fn counter(&self, key: &str) -> Option<i64> {
        match self.0.get(key).map(|entry| &entry.content) {
            None => Some(0),
            Some(Some(Content::Counter(counter))) => Some(*counter),
            Some(_) => None,
        }
    }

    /// Why the change has to be rejected.
    fn rejection(&self, change: &Change) -> Option<Rejection> {
        match change {
            Change::Put(PutRequest { key, expected_version, .. })
            | Change::Delete(DeleteRequest { key, expected_version }) => {
                let version = self.version(key);
                expected_version
                    .is_some_and(|expected| expected != version)
                    .then_some(Rejection::Conflict(version))
            }
            Change::Add(AddRequest { key, delta, limit, .. }) => match self.counter(key) {
                None => Some(Rejection::NotACounter),
                Some(counter) => limit
                    .is_some_and(|limit| counter + delta > limit)
                    .then_some(Rejection::LimitReached(counter)),
            },
        }
    }

    /// Makes the change, which the gateway answered with `changed`.
    fn apply(&mut self, change: Change, changed: &Changed) {
        let (key, content, version) = match (change, changed) {
            (Change::Put(PutRequest { key, value, .. }), Changed::Written(written)) => {
                (key, Content::Value(value), written.version)
            }
            (Change::Delete(DeleteRequest { key, .. }), Changed::Deleted(deleted)) => {
                assert_eq!(self.0.remove(&key).is_some(), deleted.existed, "{key}");
                return;
            }
            (Change::Add(AddRequest { key, delta, .. }), Changed::Added(added)) => {
                assert_eq!(Some(added.counter), self.counter(&key).map(|counter| counter + delta), "{key}");
                (key, Content::Counter(added.counter), added.version)
            }
            other => panic!("{other:?}"),
        };
        assert!(version > self.version(&key), "{key}");
        let entry = Entry { key: key.clone(), content: Some(content), version, expires_in_ms: None };
        self.0.insert(key, entry);
    }

    /// Compares the answer to a write with what has to become of it.
    fn written(&mut self, changes: Vec<Change>, answer: Result<Vec<Changed>, (usize, Rejection)>) {
        let rejections: Vec<_> = changes.iter().map(|change| self.rejection(change)).collect();
        match answer {
            Ok(changed) => {
                assert!(rejections.iter().all(Option::is_none), "{changes:?}: {rejections:?}");
                assert_eq!(changed.len(), changes.len());
                changes.into_iter().zip(&changed).for_each(|(change, changed)| self.apply(change, changed));
            }
            // The status of a transaction names no operation.
            Err((_, Rejection::NotACounter)) => {
                assert!(rejections.contains(&Some(Rejection::NotACounter)), "{changes:?}");
            }
            // Of several that have to be rejected, any may be named.
            Err((index, rejection)) => assert_eq!(Some(rejection), rejections[index], "{changes:?}"),
        }
    }

    fn of_prefix(&self, prefix: &str) -> Vec<Entry> {
        self.0.values().filter(|entry| entry.key.starts_with(prefix)).cloned().collect()
    }
}

type Answer = Result<Vec<Changed>, (usize, Rejection)>;

fn not_a_counter(status: &Status) -> Answer {
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    Err((0, Rejection::NotACounter))
}

/// Makes one change with the rpc that it has.
async fn make(client: &mut Client, change: Change) -> Answer {
    let conflict = |conflict: Conflict| Err((0, Rejection::Conflict(conflict.version)));
    match change {
        Change::Put(request) => match client.put(request).await.unwrap().into_inner().result.unwrap() {
            put_response::Result::Written(written) => Ok(vec![Changed::Written(written)]),
            put_response::Result::Conflict(found) => conflict(found),
        },
        Change::Delete(request) => match client.delete(request).await.unwrap().into_inner().result.unwrap() {
            delete_response::Result::Deleted(deleted) => Ok(vec![Changed::Deleted(deleted)]),
            delete_response::Result::Conflict(found) => conflict(found),
        },
        Change::Add(request) => match client.add(request).await {
            Err(status) => not_a_counter(&status),
            Ok(answer) => match answer.into_inner().result.unwrap() {
                add_response::Result::Added(added) => Ok(vec![Changed::Added(added)]),
                add_response::Result::LimitReached(reached) => {
                    Err((0, Rejection::LimitReached(reached.counter)))
                }
            },
        },
    }
}

async fn transact(client: &mut Client, changes: &[Change]) -> Answer {
    let operations = changes.iter().map(|change| Operation { operation: Some(change.clone()) }).collect();
    let answer = match client.transact(TransactRequest { operations }).await {
        Ok(answer) => answer.into_inner().result.unwrap(),
        Err(status) => return not_a_counter(&status),
    };
    match answer {
        transact_response::Result::Committed(committed) => {
            Ok(committed.results.into_iter().map(|result| result.result.unwrap()).collect())
        }
        transact_response::Result::Rejected(rejected) => Err((
            rejected.index as usize,
            match rejected.reason.unwrap() {
                Reason::Conflict(conflict) => Rejection::Conflict(conflict.version),
                Reason::LimitReached(reached) => Rejection::LimitReached(reached.counter),
            },
        )),
    }
}

async fn listed(client: &mut Client, prefix: &str, page_size: u32) -> Vec<Entry> {
    let (mut entries, mut after) = (Vec::new(), String::new());
    loop {
        let request = ListRequest { prefix: prefix.to_owned(), after, page_size };
        let page = client.list(request).await.unwrap().into_inner();
        assert!(page.entries.len() <= page_size as usize);
        entries.extend(page.entries);
        after = page.next_after;
        if after.is_empty() {
            return entries;
        }
    }
}

async fn read(client: &mut Client, keys: &[usize]) -> Vec<Entry> {
    let keys = keys.iter().map(|&key| KEYS[key].to_owned()).collect();
    client.get_many(GetManyRequest { keys }).await.unwrap().into_inner().entries
}

async fn follow(client: &mut Client, model: &mut ModelScope, planned: &PlannedRequest) {
    match planned {
        PlannedRequest::Get(key) => {
            let expected = model.0.get(KEYS[*key]).and_then(|entry| entry.content.clone());
            let expected = expected.map(|content| match content {
                Content::Value(value) => String::from_utf8(value.to_vec()).unwrap(),
                Content::Counter(counter) => counter.to_string(),
            });
            assert_eq!(get(client, KEYS[*key]).await.unwrap(), expected);
        }
        PlannedRequest::GetMany(keys) => {
            let expected: Vec<_> = keys.iter().filter_map(|&key| model.0.get(KEYS[key]).cloned()).collect();
            assert_eq!(read(client, keys).await, expected);
        }
        PlannedRequest::List(prefix, page_size) => {
            assert_eq!(listed(client, prefix, *page_size).await, model.of_prefix(prefix));
        }
        PlannedRequest::One(key, planned) => {
            let change = model.change(*key, planned);
            let answer = make(client, change.clone()).await;
            model.written(vec![change], answer);
        }
        PlannedRequest::Transact(planned) => {
            let changes: Vec<_> = planned.iter().map(|(&key, planned)| model.change(key, planned)).collect();
            let answer = transact(client, &changes).await;
            model.written(changes, answer);
        }
    }
}

/// Clients with new tokens: of each plugin for its own data, and for each tenant's.
async fn clients(gateway: &Gateway, plugins: [&FakePlugin; 2]) -> Vec<Client> {
    let mut clients = Vec::new();
    for plugin in plugins {
        clients.push(of_plugin(plugin).await);
        for tenant in ["acme", "globex"] {
            clients.push(of_tenant(gateway, plugin, tenant).await);
        }
    }
    assert_eq!(clients.len(), SCOPES);
    clients
}

/// Every scope has the entries of its model, and no others.
async fn check(clients: &mut [Client], models: &[ModelScope]) {
    for (scope, (client, model)) in clients.iter_mut().zip(models).enumerate() {
        let expected = model.of_prefix("");
        assert_eq!(listed(client, "", 100).await, expected, "scope {scope}");
        let all: Vec<_> = (0..KEYS.len()).collect();
        assert_eq!(read(client, &all).await, expected, "scope {scope}");
    }
}

#[test]
fn any_history_of_plugins_and_tenants_is_that_of_the_model_and_none_sees_another() {
    let (runtime, folder) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let (one, two, gateway) = runtime.block_on(async {
        let (one, two) = (storing("one").start().await, storing("two").start().await);
        let gateway = setup(&folder, &[&one, &two]).start().await;
        (one, two, gateway)
    });
    // Each run makes other requests. If it fails, it prints the shortest ones that do.
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&requests(), |requests| {
            runtime.block_on(async {
                let mut clients = clients(&gateway, [&one, &two]).await;
                let mut models: [ModelScope; SCOPES] = Default::default();
                for client in &mut clients {
                    for entry in listed(client, "", 100).await {
                        client
                            .delete(DeleteRequest { key: entry.key, expected_version: None })
                            .await
                            .unwrap();
                    }
                }
                for (scope, request) in &requests {
                    follow(&mut clients[*scope], &mut models[*scope], request).await;
                }
                check(&mut clients, &models).await;
            });
            Ok(())
        })
        .unwrap();
    runtime.block_on(async { drop((gateway, one, two)) });
}
