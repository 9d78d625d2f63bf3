use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::*;
use crate::{
    InitError, PluginError,
    context::ForwardedMetadata,
    harness::TestHost,
    host_service::{HostClient, HostLinks, HostServices, bearer},
};
use hookgate_proto::plugin::v1::InitializeRequest;
use tonic::{Code, body::Body};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn storage() -> Storage {
    TestHost::new().storage_of("p", Some("acme"))
}

#[tokio::test]
async fn values_are_written_read_and_deleted() {
    let storage = storage();
    assert_eq!(storage.get("k").await.unwrap(), None);
    let Ok(PutResult::Written { version }) = storage.put("k", "one").await else { panic!() };
    let entry = storage.get("k").await.unwrap().unwrap();
    assert_eq!((entry.value().unwrap().as_ref(), entry.version), (b"one".as_slice(), version));
    assert_eq!((entry.counter(), entry.expires_in), (None, None));
    assert_eq!(storage.delete("k").await.unwrap(), DeleteResult::Deleted { existed: true });
    assert_eq!(storage.delete("k").await.unwrap(), DeleteResult::Deleted { existed: false });
    let Ok(PutResult::Written { version: later }) = storage.put("k", "").await else { panic!() };
    assert!(later > version, "a version never returns");
}

#[tokio::test]
async fn a_write_with_another_version_changes_nothing() {
    let storage = storage();
    let first = storage.put("k", "one").expected_version(0).await.unwrap();
    let PutResult::Written { version } = first else { panic!("{first:?}") };
    let conflict = PutResult::Conflict { version };
    assert_eq!(storage.put("k", "two").expected_version(0).await.unwrap(), conflict);
    assert_eq!(
        storage.delete("k").expected_version(version + 1).await.unwrap(),
        DeleteResult::Conflict { version }
    );
    assert!(storage.put("k", "three").expected_version(version).await.unwrap().is_written());
    assert_eq!(storage.get("k").await.unwrap().unwrap().value().unwrap().as_ref(), b"three");
    assert_eq!(storage.put("new", "").expected_version(7).await.unwrap(), PutResult::Conflict { version: 0 });
}

#[tokio::test(start_paused = true)]
async fn an_entry_expires_after_its_time() {
    let storage = storage();
    storage.put("k", "v").ttl(Duration::from_micros(1500)).await.unwrap();
    let expires_in = storage.get("k").await.unwrap().unwrap().expires_in;
    assert_eq!(expires_in, Some(Duration::from_millis(2)), "rounded up");
    tokio::time::advance(Duration::from_millis(2)).await;
    assert_eq!(storage.get("k").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_counter_stops_at_its_limit_and_starts_again_in_the_next_window() {
    let storage = storage();
    tokio::time::advance(Duration::from_secs(10)).await;
    let add = |delta| storage.add("n", delta).limit(3).window(DAY);
    let two = add(2).await.unwrap();
    assert_eq!((two.is_added(), two.counter(), two.remaining()), (true, 2, Some(1)));
    assert_eq!(two.resets_in(), Some(DAY - Duration::from_secs(10)));
    let over = add(2).await.unwrap();
    assert_eq!(
        (over.is_added(), over.counter(), over.remaining(), over.version()),
        (false, 2, Some(1), None)
    );
    assert!(add(1).await.unwrap().is_added());
    let without_limit = storage.add("n", 4).await.unwrap();
    assert_eq!((without_limit.counter(), without_limit.remaining()), (7, None));
    assert_eq!(add(0).await.unwrap().remaining(), Some(0), "never negative");
    tokio::time::advance(DAY - Duration::from_secs(10)).await;
    assert_eq!(add(1).await.unwrap().counter(), 1);
}

#[tokio::test]
async fn a_transaction_makes_all_changes_or_none() {
    let storage = storage();
    let version = match storage.put("a", "1").await.unwrap() {
        PutResult::Written { version } => version,
        PutResult::Conflict { .. } => panic!(),
    };
    let changes = || -> [Operation; 3] {
        [
            Put::new("a", "2").expected_version(version).into(),
            Delete::new("b").into(),
            Add::new("n", 1).limit(1).into(),
        ]
    };
    let TransactResult::Committed(results) = storage.transact(changes()).await.unwrap() else { panic!() };
    assert!(matches!(results[0], OperationResult::Written { version: newer } if newer > version));
    assert_eq!(results[1], OperationResult::Deleted { existed: false });
    assert!(matches!(results[2], OperationResult::Added(added) if added.remaining() == Some(0)));

    let rejected = storage.transact(changes()).await.unwrap();
    assert!(
        matches!(rejected, TransactResult::Rejected { index: 0, reason: RejectedReason::Conflict { version: now } } if now > version)
    );
    let changes = [Put::new("a", "3").into(), Add::new("n", 1).limit(1).into()];
    let TransactResult::Rejected { index: 1, reason: RejectedReason::LimitReached(reached) } =
        storage.transact(changes).await.unwrap()
    else {
        panic!()
    };
    assert_eq!((reached.counter(), reached.remaining(), reached.is_added()), (1, Some(0), false));
    assert_eq!(storage.get("a").await.unwrap().unwrap().value().unwrap().as_ref(), b"2");
}

#[tokio::test]
async fn several_entries_are_read_in_the_order_of_the_keys() {
    let storage = storage();
    let _ = storage.add("n", 7).await.unwrap();
    storage.put("v", "x").await.unwrap();
    let entries = storage.get_many(["v", "none", "n", "v"]).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["v", "n", "v"]);
    assert_eq!((entries[1].counter(), entries[1].value()), (Some(7), None));
}

#[tokio::test]
async fn entries_are_listed_in_pages_and_up_to_a_maximum() {
    let storage = storage();
    for number in 0..230 {
        storage.put(format!("k/{number:03}"), "").await.unwrap();
    }
    storage.put("j", "").await.unwrap();
    storage.put("l", "").await.unwrap();
    let page = storage.list_page("k/", "").await.unwrap();
    assert_eq!((page.entries.len(), page.next_after.as_deref()), (100, Some("k/099")));
    let last = storage.list_page("k/", "k/199").await.unwrap();
    assert_eq!((last.entries.len(), last.entries[0].key.as_str(), last.next_after), (30, "k/200", None));
    assert_eq!(storage.list("k/", 1000).await.unwrap().len(), 230);
    assert_eq!(storage.list("k/", 150).await.unwrap().len(), 150);
    assert_eq!(storage.list("", 1000).await.unwrap().len(), 232);
}

#[tokio::test]
async fn large_entries_end_a_page_early() {
    let storage = storage();
    for number in 0..20 {
        storage.put(format!("{number:02}"), vec![0; 64 << 10]).await.unwrap();
    }
    let page = storage.list_page("", "").await.unwrap();
    assert_eq!((page.entries.len(), page.next_after.as_deref()), (15, Some("14")));
    assert_eq!(storage.list("", 100).await.unwrap().len(), 20);
}

#[tokio::test]
async fn an_error_says_what_is_wrong() {
    let storage = TestHost::with_quota(100).storage_of("p", Some("acme"));
    storage.put("v", "x").await.unwrap();
    let zero = Duration::ZERO;
    let cases = [
        (storage.get("").await.map(drop), "`key`: 1 to 512 bytes, no control characters"),
        (storage.get("a\nb").await.map(drop), "`key`"),
        (storage.put("k", vec![0; (64 << 10) + 1]).await.map(drop), "`value`: at most 64 KiB"),
        (storage.put("k", "").ttl(zero).await.map(drop), "`ttl_ms`: 1 to 31622400000 milliseconds"),
        (storage.delete("k").expected_version(0).await.map(drop), "`expected_version`: at least 1"),
        (storage.add("k", i64::MAX).await.map(drop), "`delta`: between -2^53 and 2^53"),
        (storage.add("k", 1).limit(i64::MIN).await.map(drop), "`limit`"),
        (storage.add("k", 1).window(DAY * 367).await.map(drop), "`window_ms`"),
        (storage.get_many::<&str>([]).await.map(drop), "`keys`: 1 to 32 keys"),
        (storage.transact([]).await.map(drop), "`operations`: 1 to 32 operations"),
        (
            storage.transact([Delete::new("k").into(), Add::new("k", 1).into()]).await.map(drop),
            "`operations`: each on another key",
        ),
    ];
    for (result, expected) in cases {
        let Err(error @ HostError::Invalid(_)) = result else { panic!("{expected}: {result:?}") };
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(PluginError::from(error).into_status().code(), Code::Internal);
    }
    let not_a_counter = storage.add("v", 1).await.unwrap_err();
    assert_eq!(not_a_counter, HostError::NotACounter("`v` holds a value".to_owned()));
    let full = storage.put("k", vec![0; 98]).await.unwrap_err();
    assert!(matches!(full, HostError::QuotaExceeded(_)));
    assert!(PluginError::from(full).into_status().message().contains("exceeds its quota"));
    storage.put("k", vec![0; 97]).await.unwrap();
}

/// A plugin's own error.
#[derive(Debug, thiserror::Error)]
#[error("the budget is unknown")]
struct BudgetError(#[from] HostError);

#[tokio::test]
async fn an_unavailable_storage_makes_an_unavailable_plugin() {
    let all = TestHost::new();
    let storage = all.storage_of("p", Some("acme"));
    all.set_available(false);
    let error = storage.get("k").await.unwrap_err();
    assert!(error.is_unavailable());
    assert_eq!(PluginError::from(error.clone()).into_status().code(), Code::Unavailable);
    assert_eq!(InitError::from(error.clone()).into_status().code(), Code::Unavailable);
    let wrapped = PluginError::from(BudgetError(error)).into_status();
    assert_eq!((wrapped.code(), wrapped.message()), (Code::Unavailable, "the budget is unknown"));
    all.set_available(true);
    assert_eq!(storage.get("k").await.unwrap(), None);
}

fn storage_at(service: HostService, left: Option<Duration>) -> Storage {
    let links = Arc::new(HostLinks::default());
    let gateway = InitializeRequest { capabilities: vec!["storage:read".into()], ..Default::default() };
    links.add(Arc::new(HostServices::in_process(service).link(&gateway)));
    let deadline = left.map(|left| Instant::now() + left);
    Storage::new(HostClient::for_call(links, bearer("t"), deadline, ForwardedMetadata::default()))
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_at_most_the_time_left_and_five_seconds() {
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, Infallible>>()
    });
    for (left, expected) in [(None, 5000), (Some(100), 100), (Some(60_000), 5000), (Some(0), 0)] {
        let storage = storage_at(HostService::new(silent), left.map(Duration::from_millis));
        let began = Instant::now();
        let error = storage.get("k").await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert_eq!(began.elapsed(), Duration::from_millis(expected), "{left:?}");
    }
}

#[tokio::test]
async fn a_call_says_how_much_time_it_has_and_which_token() {
    let (seen, mut headers) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        seen.send(request.headers().clone()).unwrap();
        std::future::ready(Ok::<_, Infallible>(Status::unimplemented("").into_http::<Body>()))
    });
    let storage = storage_at(HostService::new(service), Some(Duration::from_millis(900)));
    let error = storage.get("k").await.unwrap_err();
    assert!(matches!(error, HostError::Failed(_)), "{error}");
    let headers = headers.recv().await.unwrap();
    assert_eq!(headers["authorization"], "Bearer t");
    let timeout = headers["grpc-timeout"].to_str().unwrap();
    let microseconds: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
    assert!((1..=900_000).contains(&microseconds), "{timeout}");
}

#[tokio::test]
async fn nothing_secret_is_printed() {
    let storage = storage_at(TestHost::new().host_service(), None);
    assert_eq!(format!("{storage:?}"), "Storage { .. }");
}
