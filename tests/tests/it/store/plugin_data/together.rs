//! Tests several replicas, or processes, that write the same entries at the same time.

use std::sync::Arc;

use futures::future::join_all;
use hookgate::store::{DataChange, EntryContent, RejectedReason, Store};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{add, delete, make, put, put_until, read, scope};
use crate::store::support::Place;

const TASKS: usize = 40;
const ADDITIONS_PER_TASK: usize = 50;
const LIMIT: i64 = 1000;

/// A server whose transactions fail when they meet, unless they ask for another isolation.
async fn serializable() -> Place {
    let place = Place::postgres().await;
    let database = place.url.rsplit_once('/').unwrap().1;
    let sql = format!("ALTER DATABASE \"{database}\" SET default_transaction_isolation = 'serializable'");
    let mut connection = PgConnection::connect(&place.url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    place
}

/// How many of a task's additions were accepted.
async fn add_many(store: Arc<dyn Store>) -> usize {
    let (own, mut accepted) = (scope("p", Some("t")), 0);
    for _ in 0..ADDITIONS_PER_TASK {
        match make(&*store, &own, add("c", 1, LIMIT, None), 0).await {
            Ok(DataChange::Added { counter, .. }) => {
                assert!((1..=LIMIT).contains(&counter), "{counter}");
                accepted += 1;
            }
            Err(RejectedReason::LimitReached { counter: LIMIT, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_that_add_at_once_stop_exactly_at_the_limit() {
    for place in [Place::file(), Place::postgres().await, serializable().await] {
        let stores = [place.prepared().await, place.open()];
        let tasks = (0..TASKS).map(|task| tokio::spawn(add_many(Arc::clone(&stores[task % 2]))));
        let accepted: usize = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(accepted, usize::try_from(LIMIT).unwrap(), "{place}");
        let counter = read(&*stores[1], &scope("p", Some("t")), "c", 0).await.unwrap();
        assert_eq!(counter.content, EntryContent::Counter(LIMIT), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_create_an_entry_one_wins() {
    for place in Place::every().await {
        let stores = [place.prepared().await, place.open()];
        for round in 0..10 {
            let key = format!("k{round}");
            let tasks = (0..8).map(|task| {
                let (store, key) = (Arc::clone(&stores[task % 2]), key.clone());
                tokio::spawn(async move {
                    make(&*store, &scope("p", None), super::put_over(&key, "x", 0), 0).await
                })
            });
            let made: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
            let [version] = made
                .iter()
                .filter_map(|one| match one {
                    Ok(DataChange::Written { version }) => Some(*version),
                    _ => None,
                })
                .collect::<Vec<_>>()[..]
            else {
                panic!("{place}: {made:?}")
            };
            let lost = made.iter().filter(|one| **one == Err(RejectedReason::Conflict { version })).count();
            assert_eq!(lost, 7, "{place}: {made:?}");
        }
    }
}

/// Transactions over the same keys in different orders, while expired entries and the plugin are deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transactions_and_deletions_that_meet_do_not_fail() {
    for place in Place::every().await {
        let stores = [place.prepared().await, place.open()];
        let tasks = (0..8_usize).map(|task| {
            let store = Arc::clone(&stores[task % 2]);
            tokio::spawn(async move {
                let own = scope("p", Some("t"));
                for round in 0..20 {
                    let mut operations = vec![
                        add("a", 1, 1000, None),
                        put("b", "x"),
                        delete("c", None),
                        put_until("d", "x", 50),
                    ];
                    operations.rotate_left((task + round) % 4);
                    if task % 3 == 0 {
                        operations.reverse();
                    }
                    store.write(&own, &operations, 0).await.unwrap().unwrap();
                    match task {
                        0 => drop(store.delete_expired(100, 10).await.unwrap()),
                        1 | 2 => drop(store.delete_plugin("p").await.unwrap()),
                        _ => {}
                    }
                }
            })
        });
        for task in join_all(tasks).await {
            task.unwrap_or_else(|error| panic!("{place}: {error}"));
        }
    }
}
