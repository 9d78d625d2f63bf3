//! Three gateways over one database: they converge, and none goes back (G24, G36).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hookgate_tests::{gateway::Gateway, postgres::Cluster};
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::registry_support::{Writer, call, file_with, status, tenant};

const REPLICAS: usize = 3;
const WRITES: u64 = 60;
/// G36.
const CONVERGED: Duration = Duration::from_secs(5);

/// Calls until told to stop; how often, and every revision that an answer had, in order.
async fn traffic(gateway: Arc<Gateway>, stop: Arc<AtomicBool>) -> Vec<u64> {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let answer = call(&gateway, "acme").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        seen.push(answer.body["revision"].as_u64().expect("every answer has one"));
    }
    seen
}

/// Waits until all replicas serve by `revision`; how long that took.
async fn converged(replicas: &[Arc<Gateway>], revision: u64) -> Duration {
    let start = Instant::now();
    for replica in replicas {
        while status(replica).await["revision"] != revision {
            let late = start.elapsed() > CONVERGED;
            assert!(
                !late,
                "not at {revision} within {CONVERGED:?}: {:#}\n{}",
                status(replica).await,
                replica.log()
            );
            sleep(Duration::from_millis(10)).await;
        }
    }
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_converge_and_none_answers_by_an_older_revision_while_the_database_comes_and_goes() {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.expect("it starts");
    let url = cluster.database().await;
    let folders: Vec<_> = (0..REPLICAS).map(|_| tempfile::tempdir().expect("there is room")).collect();
    let mut replicas = Vec::new();
    for folder in &folders {
        // All at once would do too; that is for the store's own tests.
        replicas.push(Arc::new(file_with("acme").store(&url, folder.path()).start().await));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut calls = JoinSet::new();
    for replica in &replicas {
        calls.spawn(traffic(Arc::clone(replica), Arc::clone(&stop)));
    }

    let writer = Writer::open(&url).await;
    let mut last = 0;
    for write in 0..WRITES {
        if write == WRITES / 3 {
            cluster.stop();
            sleep(Duration::from_millis(300)).await;
            cluster.start_again();
        }
        let id = format!("tenant-{}", write % 7);
        // While the server starts it refuses connections.
        let end = Instant::now() + Duration::from_secs(20);
        last = loop {
            match writer.write(&[tenant(&id, write)]).await {
                Ok(revision) => break revision,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            sleep(Duration::from_millis(20)).await;
        };
        sleep(Duration::from_millis(write % 13)).await;
    }
    let took = converged(&replicas, last).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(seen) = calls.join_next().await {
        let seen = seen.expect("no call failed");
        assert!(seen.is_sorted(), "a replica went back: {seen:?}");
        assert!(seen.last() > seen.first(), "it served by several revisions: {seen:?}");
    }
    let digests: Vec<Value> = {
        let mut digests = Vec::new();
        for replica in &replicas {
            digests.push(call(replica, "tenant-1").await.body["plan_digest"].clone());
        }
        digests
    };
    assert!(digests.iter().all(|digest| *digest == digests[0] && digest.is_string()), "{digests:?}");
    println!("converged {took:?} after the last of {last} revisions");
}
