//! Requests that can't be carried out: each is answered clearly and changes nothing.

use hookgate_proto::host::v1::{
    AddRequest, DeleteRequest, GetManyRequest, ListRequest, Operation, PutRequest, TransactRequest,
    TransactResponse, operation, rejected, transact_response,
};
use hookgate_tests::postgres;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::support::{Client, add, get, of_plugin, of_tenant, put, setup, stored_at, storing};

fn reason(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default())
}

#[tokio::test]
async fn a_request_outside_its_limits_names_the_field_and_writes_nothing() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    let mut client = of_tenant(&gateway, &plugin, "acme").await;
    let long = "k".repeat(513);
    for (key, value, field) in
        [("", "v", "key"), (&*long, "v", "key"), ("a\u{7}", "v", "key"), ("k", &*"v".repeat(65_537), "value")]
    {
        let refused = put(&mut client, key, value).await.unwrap_err();
        assert_eq!(reason(&refused), (Code::InvalidArgument, "FIELD_INVALID".into()));
        let violations = refused.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, field);
    }
    put(&mut client, "k", &"v".repeat(65_536)).await.unwrap();
    let listed = client.list(ListRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.entries.len(), 1);
}

#[tokio::test]
async fn a_full_quota_refuses_new_entries_and_keeps_the_others_usable() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).set("/limits/storage_entries", 3).start().await;
    let mut acme = of_tenant(&gateway, &plugin, "acme").await;
    add(&mut acme, "counter", None).await.unwrap();
    put(&mut acme, "a", "1").await.unwrap();
    put(&mut acme, "b", "1").await.unwrap();
    for refused in [put(&mut acme, "c", "1").await.err(), add(&mut acme, "d", None).await.err()] {
        let refused = refused.unwrap();
        assert_eq!(reason(&refused), (Code::ResourceExhausted, "QUOTA_FULL".into()));
        assert!(refused.message().contains("3 entries (`limits.storage_entries`)"), "{}", refused.message());
    }
    // What is there can still be counted and replaced, and other tenants have a quota of their own.
    assert_eq!(add(&mut acme, "counter", None).await.unwrap(), Some(2));
    put(&mut acme, "a", "2").await.unwrap();
    assert_eq!(get(&mut acme, "a").await.unwrap().as_deref(), Some("2"));
    let mut globex = of_tenant(&gateway, &plugin, "globex").await;
    put(&mut globex, "c", "1").await.unwrap();
}

#[tokio::test]
async fn a_quota_of_bytes_refuses_what_would_grow_and_loses_nothing() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).set("/limits/storage_bytes", "1KiB").start().await;
    let mut acme = of_tenant(&gateway, &plugin, "acme").await;
    // A counter counts as 8 bytes, so that with the three keys these are 1024.
    add(&mut acme, "c", None).await.unwrap();
    put(&mut acme, "a", &"a".repeat(1000)).await.unwrap();
    put(&mut acme, "b", &"b".repeat(13)).await.unwrap();
    for refused in [
        put(&mut acme, "d", "").await.err(),
        put(&mut acme, "b", &"x".repeat(14)).await.err(),
        add(&mut acme, "d", None).await.err(),
        transact(&mut acme, vec![put_operation("b", &"x".repeat(13)), put_operation("d", "")]).await.err(),
    ] {
        let refused = refused.unwrap();
        assert_eq!(reason(&refused), (Code::ResourceExhausted, "QUOTA_FULL".into()));
        assert!(refused.message().contains("1024 bytes (`limits.storage_bytes`)"), "{}", refused.message());
    }
    // At the limit, a counter still counts, and a value that is not larger still replaces another one.
    assert_eq!(add(&mut acme, "c", None).await.unwrap(), Some(2));
    put(&mut acme, "b", &"B".repeat(13)).await.unwrap();
    assert_eq!(
        contents(&mut acme).await,
        [("a", "a".repeat(1000)), ("b", "B".repeat(13)), ("c", "2".into())]
    );
    put(&mut acme, "a", &"A".repeat(500)).await.unwrap();
    // What that freed can be used at once, to the last byte.
    put(&mut acme, "d", &"d".repeat(499)).await.unwrap();
    let refused = put(&mut acme, "e", "").await.unwrap_err();
    assert_eq!(reason(&refused), (Code::ResourceExhausted, "QUOTA_FULL".into()));
    let deletion = DeleteRequest { key: "b".into(), expected_version: None };
    let delete_operation = Operation { operation: Some(operation::Operation::Delete(deletion)) };
    // What a transaction deletes gives it no room: writes at the same time would count it too.
    let refused = transact(&mut acme, vec![put_operation("e", &"e".repeat(12)), delete_operation]).await;
    assert_eq!(reason(&refused.unwrap_err()), (Code::ResourceExhausted, "QUOTA_FULL".into()));
    acme.delete(DeleteRequest { key: "b".into(), expected_version: None }).await.unwrap();
    put(&mut acme, "e", &"e".repeat(12)).await.unwrap();
    acme.delete(DeleteRequest { key: "d".into(), expected_version: None }).await.unwrap();
    put(&mut acme, "b", &"b".repeat(500)).await.unwrap();
    let expected =
        [("a", "A".repeat(500)), ("b", "b".repeat(500)), ("c", "2".to_owned()), ("e", "e".repeat(12))];
    assert_eq!(contents(&mut acme).await, expected);
    let mut globex = of_tenant(&gateway, &plugin, "globex").await;
    put(&mut globex, "a", &"a".repeat(1000)).await.unwrap();
}

#[tokio::test]
async fn a_value_that_is_replaced_again_and_again_uses_its_quota_once() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let setup = setup(&folder, &[&plugin]).set("/limits/storage_bytes", "1KiB");
    let gateway = setup.set("/limits/storage_entries", 5).start().await;
    let mut client = of_tenant(&gateway, &plugin, "acme").await;
    for _ in 0..20 {
        put(&mut client, "a", &"a".repeat(100)).await.unwrap();
    }
    for key in ["b", "c", "d", "e"] {
        put(&mut client, key, &"x".repeat(100)).await.unwrap();
    }
    let refused = put(&mut client, "f", "").await.unwrap_err();
    assert!(refused.message().contains("5 entries (`limits.storage_entries`)"), "{}", refused.message());
}

/// The keys of a scope, each with its value or counter.
async fn contents(client: &mut Client) -> Vec<(&'static str, String)> {
    let mut contents = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        contents.extend(get(client, key).await.unwrap().map(|content| (key, content)));
    }
    let listed = client.list(ListRequest::default()).await.unwrap().into_inner().entries;
    assert_eq!(listed.len(), contents.len());
    contents
}

fn put_operation(key: &str, value: &str) -> Operation {
    let value = value.as_bytes().to_vec().into();
    let request = PutRequest { key: key.into(), value, ..Default::default() };
    Operation { operation: Some(operation::Operation::Put(request)) }
}

async fn transact(client: &mut Client, operations: Vec<Operation>) -> Result<TransactResponse, Status> {
    Ok(client.transact(TransactRequest { operations }).await?.into_inner())
}

#[tokio::test]
async fn more_than_32_operations_or_keys_are_refused_and_32_are_not() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    let mut client = of_tenant(&gateway, &plugin, "acme").await;
    let keys = |count: usize| (0..count).map(|number| format!("k{number}")).collect::<Vec<_>>();
    let puts = |count| keys(count).iter().map(|key| put_operation(key, "v")).collect::<Vec<_>>();
    let too_many = transact(&mut client, puts(33)).await.unwrap_err();
    assert_eq!(client.list(ListRequest::default()).await.unwrap().into_inner().entries, []);
    let Some(transact_response::Result::Committed(committed)) =
        transact(&mut client, puts(32)).await.unwrap().result
    else {
        panic!("nothing rejects them")
    };
    assert_eq!(committed.results.len(), 32);
    let too_many_keys = client.get_many(GetManyRequest { keys: keys(33) }).await.unwrap_err();
    for (refused, field) in [(too_many, "operations"), (too_many_keys, "keys")] {
        assert_eq!(reason(&refused), (Code::InvalidArgument, "FIELD_INVALID".into()));
        assert_eq!(refused.get_details_bad_request().unwrap().field_violations[0].field, field);
    }
    let read = client.get_many(GetManyRequest { keys: keys(32) }).await.unwrap().into_inner();
    assert_eq!(read.entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>(), keys(32));
}

#[tokio::test]
async fn a_transaction_with_a_reached_limit_changes_nothing_and_says_which_operation() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    let mut client = of_tenant(&gateway, &plugin, "acme").await;
    assert_eq!(rejected_at(&mut client, 1).await, None);
    assert_eq!(rejected_at(&mut client, 1).await, Some(1));
    assert_eq!(get(&mut client, "z").await.unwrap().as_deref(), Some("1"));
    let value = PutRequest { key: "value".into(), value: "v".into(), ..Default::default() };
    client.put(value).await.unwrap();
    let refused = add(&mut client, "value", None).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "NOT_A_COUNTER".into()));
}

/// Adds to `z`, and to `a` up to `limit`, together. Returns the rejected operation.
async fn rejected_at(client: &mut Client, limit: i64) -> Option<u32> {
    let add = |key: &str, limit| Operation {
        operation: Some(operation::Operation::Add(AddRequest {
            key: key.into(),
            delta: 1,
            limit,
            window_ms: None,
        })),
    };
    let operations = vec![add("z", None), add("a", Some(limit))];
    match transact(client, operations).await.unwrap().result.unwrap() {
        transact_response::Result::Committed(committed) => {
            assert_eq!(committed.results.len(), 2);
            None
        }
        transact_response::Result::Rejected(rejected) => {
            assert!(matches!(rejected.reason, Some(rejected::Reason::LimitReached(_))), "{rejected:?}");
            Some(rejected.index)
        }
    }
}

#[tokio::test]
async fn an_unreachable_database_is_an_error_and_what_was_stored_is_there_later() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let server = postgres::Cluster::start();
    let url = server.database().await;
    let setup = stored_at(&url, folder.path(), &[&plugin]).set("/server/host_addr", "127.0.0.1:0");
    let _gateway = setup.start().await;
    let mut client = of_plugin(&plugin).await;
    assert_eq!(add(&mut client, "k", None).await.unwrap(), Some(1));
    server.stop();
    let refused = add(&mut client, "k", None).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::Unavailable, "STORE_UNAVAILABLE".into()));
    assert!(!refused.message().contains(&server.address()), "{}", refused.message());
    server.start_again();
    assert_eq!(add(&mut client, "k", None).await.unwrap(), Some(2));
}
