//! Tests several concurrent users of one store.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use hookgate::{
    core::object::ObjectKind,
    store::{CommitError, StoreError},
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::{Instant, timeout};

use crate::store::support::{Place, add, versions};

const WRITERS: usize = 6;
const ROUNDS: u64 = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_writers_with_the_same_base_exactly_one_wins_and_numbers_have_no_gaps() {
    for place in Place::every().await {
        place.prepared().await;
        let stores: Vec<_> = (0..WRITERS).map(|_| place.open()).collect();
        let mut winners = Vec::new();
        for base in 0..ROUNDS {
            let drafts: Vec<_> = (0..WRITERS).map(|writer| add(base, &format!("{base}-{writer}"))).collect();
            let all = join_all(stores.iter().zip(&drafts).map(|(store, draft)| store.commit(draft))).await;
            let won: Vec<_> = (0..WRITERS)
                .filter(|writer| matches!(all[*writer], Ok(number) if number == base + 1))
                .collect();
            let moved =
                all.iter().filter(|one| matches!(one, Err(CommitError::Moved { head }) if *head == base + 1));
            assert_eq!((won.len(), moved.count()), (1, WRITERS - 1), "{place}: {all:?}");
            winners.push(format!("{base}-{}", won[0]));
        }
        let revisions = stores[0].since(0, usize::MAX).await.unwrap();
        assert_eq!(
            revisions.iter().map(|one| one.number).collect::<Vec<_>>(),
            (1..=ROUNDS).collect::<Vec<_>>()
        );
        let written: Vec<_> = revisions.iter().map(|one| one.changes[0].name.to_string()).collect();
        assert_eq!(written, winners, "{place}");
        let snapshot = stores[1].snapshot().await.unwrap();
        let there: BTreeSet<_> =
            versions(&snapshot).into_iter().map(|(_, name, version)| (version, name)).collect();
        let expected = winners.iter().enumerate().map(|(base, name)| (base as u64 + 1, &**name)).collect();
        assert_eq!(there, expected, "{place}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_whole_revisions_only_and_in_order_while_others_write() {
    for place in Place::every().await {
        let writer = place.prepared().await;
        let reader = place.open();
        let writing = tokio::spawn(async move {
            for base in 0..40 {
                writer.commit(&add(base, &format!("t{base}"))).await.unwrap();
            }
        });
        let mut last = 0;
        while last < 40 {
            let snapshot = reader.snapshot().await.unwrap();
            assert_eq!(snapshot.objects.len() as u64, snapshot.revision, "{place}");
            let revisions = reader.since(0, usize::MAX).await.unwrap();
            assert!(revisions.len() as u64 >= snapshot.revision && snapshot.revision >= last, "{place}");
            last = snapshot.revision;
        }
        writing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_prepare_an_empty_database_at_once() {
    for place in Place::every().await {
        let stores: Vec<_> = (0..8).map(|_| place.open()).collect();
        let tasks = stores.iter().cloned().map(|store| tokio::spawn(async move { store.prepare().await }));
        for prepared in join_all(tasks).await {
            assert!(matches!(prepared, Ok(Ok(()))), "{place}: {prepared:?}");
        }
        assert_eq!(stores[3].commit(&add(0, "a")).await.unwrap(), 1, "{place}");
        assert_eq!(versions(&stores[5].snapshot().await.unwrap()), [(ObjectKind::Tenant, "a", 1)], "{place}");
    }
}

#[tokio::test]
async fn a_write_is_a_hint_to_who_follows_the_same_store() {
    for place in Place::every().await {
        let store = place.prepared().await;
        let mut hints = store.hints();
        hints.borrow_and_update();
        store.commit(&add(0, "a")).await.unwrap();
        timeout(Duration::from_secs(10), hints.changed()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_write_of_one_process_is_a_hint_to_the_others_that_can_see_it_by_then() {
    let place = Place::postgres().await;
    let (here, there) = (place.prepared().await, place.open());
    let mut hints = here.hints();
    // The first hint says that it is listening now.
    timeout(Duration::from_secs(10), hints.changed()).await.unwrap().unwrap();
    for base in 0..5 {
        hints.borrow_and_update();
        there.commit(&add(base, &format!("t{base}"))).await.unwrap();
        timeout(Duration::from_secs(10), hints.changed()).await.unwrap().unwrap();
        assert_eq!(here.head().await.unwrap(), base + 1);
    }
}

#[tokio::test]
async fn a_writer_with_an_open_transaction_delays_others_only_briefly() {
    let place = Place::postgres().await;
    let store = place.prepared().await;
    let mut other = PgConnection::connect(&place.url).await.unwrap();
    sqlx::query("BEGIN").execute(&mut other).await.unwrap();
    sqlx::query("UPDATE hookgate_head SET revision = revision").execute(&mut other).await.unwrap();
    let since = Instant::now();
    let blocked = store.commit(&add(0, "a")).await;
    assert!(matches!(blocked, Err(CommitError::Store(StoreError::Unavailable(_)))), "{blocked:?}");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(store.head().await.unwrap(), 0);
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(store.commit(&add(0, "a")).await.unwrap(), 1);
}

#[tokio::test]
async fn connections_end_with_the_store_and_no_more_than_five_are_used() {
    let place = Place::postgres().await;
    let database = place.url.rsplit_once('/').unwrap().1;
    let mut other = PgConnection::connect(&place.url).await.unwrap();
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = 'hookgate'"
    );
    let store = place.prepared().await;
    let all = join_all((0..40).map(|_| store.snapshot())).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let open: i64 = sqlx::query_scalar(AssertSqlSafe(count.clone())).fetch_one(&mut other).await.unwrap();
    assert!((1..=5).contains(&open), "{open}");
    store.close().await;
    let gone = async {
        while sqlx::query_scalar::<_, i64>(AssertSqlSafe(count.clone())).fetch_one(&mut other).await.unwrap()
            > 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(10), gone).await.unwrap();
}
