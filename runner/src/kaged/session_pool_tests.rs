use tokio::time::timeout;

use super::*;
use crate::kaged::{
    connection::tests::no_config,
    session::tests::{FakeProcess, session},
};

const LONG: Duration = Duration::from_secs(3600);

fn owner(tenant: &str, config: &'static str) -> SessionOwner {
    SessionOwner { tenant: tenant.into(), instance: no_config(), tenant_config: config.into() }
}

/// A session of `owner` that has started, and takes a place.
async fn started(pool: &SessionPool, owner: &SessionOwner) -> (SessionLease, FakeProcess) {
    let (lease, starting) = pool.lease(owner).expect("the pool is open");
    let (session, process) = session().await;
    starting.expect("it is new").send(Some(Ok(session))).expect("the lease waits");
    (lease, process)
}

fn is_stopped(lease: &SessionLease) -> bool {
    lease.0.stop.is_cancelled()
}

#[tokio::test]
async fn a_tenant_has_a_session_for_each_configuration() {
    let pool = SessionPool::new(8);
    let acme = owner("acme", "{}");
    let (first, _process) = started(&pool, &acme).await;
    let (again, starting) = pool.lease(&acme).expect("the pool is open");
    assert!(starting.is_none() && Arc::ptr_eq(&first.0, &again.0));
    for other in [owner("globex", "{}"), owner("acme", r#"{"a":1}"#)] {
        assert!(pool.lease(&other).expect("the pool is open").1.is_some());
    }
}

#[tokio::test]
async fn a_session_that_failed_or_ended_is_started_again() {
    let (pool, acme) = (SessionPool::new(8), owner("acme", "{}"));
    let (lease, starting) = pool.lease(&acme).expect("the pool is open");
    let failed = Err(StartFault::from(Status::internal("no")));
    starting.expect("it is new").send(Some(failed)).expect("the lease waits");
    assert_eq!(lease.session().await.err().map(|fault| fault.status.code()), Some(tonic::Code::Internal));
    let (lease, process) = started(&pool, &acme).await;
    drop(process.ending);
    assert!(lease.0.is_over());
    // One whose start panicked.
    let (lease, starting) = pool.lease(&acme).expect("the pool is open");
    drop(starting);
    assert!(lease.session().await.is_err() && lease.0.is_over());
    assert!(pool.lease(&acme).expect("the pool is open").1.is_some());
}

#[tokio::test]
async fn a_session_without_calls_ends_when_it_is_old_or_has_used_its_cpu_time() {
    let (pool, acme) = (SessionPool::new(8), owner("acme", "{}"));
    let (lease, _process) = started(&pool, &acme).await;
    pool.sweep(Duration::ZERO, LONG);
    assert!(!is_stopped(&lease));
    let entry = Arc::clone(&lease.0);
    drop(lease);
    pool.sweep(LONG, LONG);
    assert!(!entry.stop.is_cancelled());
    tokio::time::sleep(Duration::from_millis(2)).await;
    pool.sweep(Duration::from_millis(1), LONG);
    assert!(entry.stop.is_cancelled());
}

#[tokio::test]
async fn a_session_that_used_its_cpu_time_gets_no_more_calls_and_ends_after_those_that_it_has() {
    let (pool, acme) = (SessionPool::new(8), owner("acme", "{}"));
    let (lease, _process) = started(&pool, &acme).await;
    // This process has used more than nothing: the test would otherwise not have come so far.
    while !lease.session().await.is_ok_and(|session| session.has_used(Duration::ZERO)) {
        tokio::task::yield_now().await;
    }
    pool.sweep(LONG, Duration::ZERO);
    assert!(!is_stopped(&lease));
    let (other, starting) = pool.lease(&acme).expect("the pool is open");
    assert!(starting.is_some() && !Arc::ptr_eq(&lease.0, &other.0));
    let entry = Arc::clone(&lease.0);
    drop(lease);
    assert!(entry.stop.is_cancelled());
}

#[tokio::test]
async fn the_session_unused_for_the_longest_makes_room_and_no_more_than_wait() {
    let pool = Arc::new(SessionPool::new(3));
    let mut entries = Vec::new();
    let mut places = Vec::new();
    for tenant in ["a", "b", "c"] {
        let (lease, process) = started(&pool, &owner(tenant, "{}")).await;
        places.push(pool.place(&lease.0.stop).await.expect("there is room"));
        entries.push((Arc::clone(&lease.0), process));
        tokio::time::sleep(Duration::from_millis(2)).await;
        drop(lease);
    }
    let stopped = |entries: &[(Arc<PooledSession>, FakeProcess)]| {
        entries.iter().map(|(entry, _)| entry.stop.is_cancelled()).collect::<Vec<_>>()
    };
    let (waiting, _starting) = pool.lease(&owner("d", "{}")).expect("the pool is open");
    let stop = waiting.0.stop.clone();
    let mut place = Box::pin(pool.place(&stop));
    assert!(timeout(Duration::from_millis(10), &mut place).await.is_err());
    assert_eq!(stopped(&entries), [true, false, false]);
    // The first one is still ending.
    pool.sweep(LONG, LONG);
    assert_eq!(stopped(&entries), [true, false, false]);
    drop(places.remove(0));
    assert!(place.await.is_some());
}

#[tokio::test]
async fn a_busy_session_makes_room_after_its_calls() {
    let pool = SessionPool::new(1);
    let (busy, _process) = started(&pool, &owner("a", "{}")).await;
    let place = pool.place(&busy.0.stop).await.expect("there is room");
    let (waiting, _starting) = pool.lease(&owner("b", "{}")).expect("the pool is open");
    let stop = waiting.0.stop.clone();
    let mut next = Box::pin(pool.place(&stop));
    assert!(timeout(Duration::from_millis(10), &mut next).await.is_err());
    assert!(!is_stopped(&busy));
    let entry = Arc::clone(&busy.0);
    drop(busy);
    assert!(entry.stop.is_cancelled());
    drop(place);
    assert!(next.await.is_some());
}

#[tokio::test]
async fn a_newcomer_does_not_wait_for_a_busy_session_that_retires_while_another_is_idle() {
    let pool = SessionPool::new(2);
    let (busy, _busy_process) = started(&pool, &owner("a", "{}")).await;
    let _busy_place = pool.place(&busy.0.stop).await.expect("there is room");
    let (idle, _idle_process) = started(&pool, &owner("b", "{}")).await;
    let idle_place = pool.place(&idle.0.stop).await.expect("there is room");
    pool.state().sessions.retain(|key, _| &*key.tenant != "a");
    pool.state().retire(&busy.0);
    let idle_entry = Arc::clone(&idle.0);
    drop(idle);
    let (waiting, _starting) = pool.lease(&owner("c", "{}")).expect("the pool is open");
    let stop = waiting.0.stop.clone();
    let mut next = Box::pin(pool.place(&stop));
    assert!(timeout(Duration::from_millis(10), &mut next).await.is_err());
    assert!(idle_entry.stop.is_cancelled() && !is_stopped(&busy));
    drop(idle_place);
    assert!(next.await.is_some());
}

#[tokio::test]
async fn nothing_starts_after_the_close_and_what_waits_for_a_place_gets_none() {
    let pool = Arc::new(SessionPool::new(1));
    let acme = owner("acme", "{}");
    let (lease, _process) = started(&pool, &acme).await;
    let _place = pool.place(&lease.0.stop).await.expect("there is room");
    let (waiting, _starting) = pool.lease(&owner("globex", "{}")).expect("the pool is open");
    let place = tokio::spawn({
        let (pool, stop) = (Arc::clone(&pool), waiting.0.stop.clone());
        async move { pool.place(&stop).await.is_some() }
    });
    tokio::task::yield_now().await;
    pool.close();
    assert!(!place.await.expect("no panic"));
    assert!(is_stopped(&lease));
    assert_eq!(pool.lease(&acme).err().map(|status| status.code()), Some(tonic::Code::Unavailable));
}
