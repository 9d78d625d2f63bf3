//! Tests a database that stops, falls silent, or is lost during a write.

use std::{sync::Arc, time::Duration};

use hookgate::store::{self, CommitError, Store, StoreError};
use hookgate_tests::{
    postgres::{self, Cluster},
    proxy::{Flow, Proxy},
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::{Instant, timeout};

use crate::store::support::add;

/// A silent database delays nobody for longer than 4 s. This is more, because other tests run, but less
/// than twice that.
const AT_MOST: Duration = Duration::from_millis(7500);

async fn is_unavailable(store: &dyn Store) -> String {
    let since = Instant::now();
    let head = store.head().await;
    let Err(StoreError::Unavailable(said)) = head else { panic!("{head:?}") };
    let commit = store.commit(&add(1, "never")).await;
    assert!(matches!(commit, Err(CommitError::Store(StoreError::Unavailable(_)))), "{commit:?}");
    let snapshot = store.snapshot().await;
    assert!(matches!(snapshot, Err(StoreError::Unavailable(_))), "{snapshot:?}");
    let prepared = store.prepare().await;
    assert!(matches!(prepared, Err(StoreError::Unavailable(_))), "{prepared:?}");
    assert!(since.elapsed() < AT_MOST * 4, "{:?}", since.elapsed());
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_stopped_is_used_again_as_soon_as_it_runs() {
    let cluster = Arc::new(tokio::task::spawn_blocking(Cluster::start).await.unwrap());
    let url = cluster.database().await;
    let (store, other) = (store::open(&url).unwrap(), store::open(&url).unwrap());
    store.prepare().await.unwrap();
    let mut hints = store.hints();
    timeout(AT_MOST, hints.changed()).await.unwrap().unwrap();
    assert_eq!(store.commit(&add(0, "a")).await.unwrap(), 1);
    assert_eq!(other.head().await.unwrap(), 1);
    for head in 1..3 {
        cluster.stop();
        let said = is_unavailable(&*store).await;
        assert!(said.contains(&cluster.address()) && said.contains("refused"), "{said}");
        hints.borrow_and_update();
        cluster.start_again();
        // Acknowledged writes are there, and another client's writes are noticed.
        assert_eq!((store.head().await.unwrap(), other.head().await.unwrap()), (head, head));
        timeout(AT_MOST * 2, hints.changed()).await.unwrap().unwrap();
        hints.borrow_and_update();
        assert_eq!(other.commit(&add(head, &format!("t{head}"))).await.unwrap(), head + 1);
        timeout(AT_MOST, hints.changed()).await.unwrap().unwrap();
        assert_eq!(store.snapshot().await.unwrap().revision, head + 1);
    }
    store.close().await;
    other.close().await;
}

/// A store behind a faulty network.
async fn behind_proxy() -> (Proxy, Arc<dyn Store>, String) {
    let url = postgres::database().await;
    let (before, database) = url.rsplit_once('/').unwrap();
    let server = before.rsplit_once('@').unwrap().1;
    let proxy = Proxy::before(&format!("http://{server}")).await;
    let near = proxy.endpoint("http");
    let near = near.strip_prefix("http://").unwrap();
    let through = format!("postgres://hookgate:geheim@{near}/{database}?sslmode=disable");
    let store = store::open(&through).unwrap();
    store.prepare().await.unwrap();
    (proxy, store, url)
}

#[tokio::test]
async fn a_silent_database_delays_no_call_and_is_used_again_when_it_responds() {
    let (proxy, store, _) = behind_proxy().await;
    assert_eq!(store.commit(&add(0, "a")).await.unwrap(), 1);
    for flow in [Flow::Vanish, Flow::Stop] {
        proxy.both(flow);
        let since = Instant::now();
        let said = is_unavailable(&*store).await;
        assert!(said.contains("does not answer in time") && !said.contains("geheim"), "{said}");
        // There were four sequential requests, and a dozen concurrent ones take no longer than one.
        let asked = Instant::now();
        let all = futures::future::join_all((0..12).map(|_| store.head())).await;
        assert!(all.iter().all(Result::is_err) && asked.elapsed() < AT_MOST, "{:?}", asked.elapsed());
        assert!(since.elapsed() < AT_MOST * 5);
        proxy.reset();
        proxy.both(Flow::Pass);
        assert_eq!(store.head().await.unwrap(), 1);
    }
    // Only the existing connections are dead, and neither side was told.
    proxy.lose();
    assert_eq!(store.commit(&add(1, "b")).await.unwrap(), 2);
}

#[tokio::test]
async fn a_write_that_is_cut_off_anywhere_is_whole_or_not_there_and_told_as_it_is() {
    let (proxy, store, url) = behind_proxy().await;
    let direct = store::open(&url).unwrap();
    let quiet = proxy.traffic().passed_up;
    let mut base = store.commit(&add(0, "first")).await.unwrap();
    let spoken = proxy.traffic().passed_up - quiet;
    for sixth in 0..6 {
        let draft = add(base, &format!("t{sixth}"));
        let allowed = proxy.traffic().passed_up + spoken * sixth / 6;
        let cut = async {
            proxy.wait_until(|traffic| traffic.passed_up >= allowed).await;
            proxy.reset();
        };
        let (outcome, ()) = tokio::join!(store.commit(&draft), cut);
        let written = direct.find_revision(draft.id).await.unwrap();
        match outcome {
            Ok(number) => assert_eq!(written, Some(number)),
            Err(CommitError::Store(StoreError::Unavailable(_))) => assert_eq!(written, None),
            other => panic!("it can be found out: {other:?}"),
        }
        base = direct.head().await.unwrap();
    }
    assert_eq!(store.snapshot().await.unwrap(), direct.snapshot().await.unwrap());
}

/// Makes every COMMIT of a revision take this many seconds.
async fn slow_commits(url: &str, seconds: f64) -> PgConnection {
    let mut hand = PgConnection::connect(url).await.unwrap();
    let slow = format!(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
         AS $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON hookgate_revisions DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION slow();"
    );
    sqlx::raw_sql(AssertSqlSafe(slow)).execute(&mut hand).await.unwrap();
    hand
}

/// Waits for a COMMIT to begin, and returns its session.
async fn committing(hand: &mut PgConnection) -> i32 {
    let asleep =
        "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    loop {
        if let Some(session) = sqlx::query_scalar(asleep).fetch_optional(&mut *hand).await.unwrap() {
            return session;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_write_whose_last_answer_is_lost_is_found_to_be_written() {
    let (proxy, store, url) = behind_proxy().await;
    let mut hand = slow_commits(&url, 5.5).await;
    let draft = add(0, "a");
    // The client no longer waits when the server has committed; later requests must wait for that commit.
    let lost = async {
        committing(&mut hand).await;
        proxy.lose();
    };
    let (outcome, ()) = tokio::join!(store.commit(&draft), lost);
    assert_eq!(outcome.unwrap(), 1);
    assert_eq!(store.find_revision(draft.id).await.unwrap(), Some(1));
}

#[tokio::test]
async fn a_write_whose_session_is_ended_in_the_last_moment_is_found_not_to_be_written() {
    let (_proxy, store, url) = behind_proxy().await;
    let mut hand = slow_commits(&url, 2.0).await;
    let draft = add(0, "a");
    let ended = async {
        let session = committing(&mut hand).await;
        sqlx::query("SELECT pg_terminate_backend($1)").bind(session).execute(&mut hand).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(store.commit(&draft), ended);
    assert!(matches!(outcome, Err(CommitError::Store(StoreError::Unavailable(_)))), "{outcome:?}");
    assert_eq!((store.find_revision(draft.id).await.unwrap(), store.head().await.unwrap()), (None, 0));
    assert_eq!(store.commit(&draft).await.unwrap(), 1);
}

#[tokio::test]
async fn a_write_whose_end_nobody_can_be_asked_for_is_unknown_and_its_id_tells_later() {
    let (proxy, store, url) = behind_proxy().await;
    let mut hand = slow_commits(&url, 2.0).await;
    let draft = add(0, "a");
    let silence = async {
        committing(&mut hand).await;
        proxy.both(Flow::Vanish);
    };
    let (outcome, ()) = tokio::join!(store.commit(&draft), silence);
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    proxy.reset();
    proxy.both(Flow::Pass);
    assert_eq!(store.find_revision(draft.id).await.unwrap(), Some(1));
    assert_eq!(store.commit(&draft).await.unwrap(), 1);
}
