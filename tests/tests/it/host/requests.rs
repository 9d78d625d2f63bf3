//! Requests that can't be carried out: each is answered clearly and changes nothing.

use hookgate_proto::host::v1::{
    AddRequest, Operation, PutRequest, TransactRequest, operation, rejected, transact_response,
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
    let listed = client.list(hookgate_proto::host::v1::ListRequest::default()).await.unwrap().into_inner();
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
    match client.transact(TransactRequest { operations }).await.unwrap().into_inner().result.unwrap() {
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
