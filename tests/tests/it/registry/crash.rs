//! Tests gateways that are killed while operators write to them (G35).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate::{
    core::object::ObjectKind,
    store::{Revision, Snapshot},
};
use hookgate_tests::{agent::HttpAgent, gateway::Gateway};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    admin::registry::support::{administrator, get},
    registry::{
        pairs::{WriteAnswer, WriteRecord, assert_history, write},
        support::{SOON, file_with},
    },
    store::support::Place,
};

const KILLS: u64 = 8;
const CLIENTS: usize = 4;

/// Writes until the gateway is gone, and counts in `written`.
async fn client(
    operator: HttpAgent,
    at: usize,
    round: u64,
    said: Arc<Mutex<WriteRecord>>,
    written: watch::Sender<u64>,
) {
    for number in 0.. {
        let label = format!("r{round}-c{at}-{number}");
        said.lock().expect("no panic").attempted.insert(label.clone());
        let answered = write(&operator, at, &label).await;
        said.lock().expect("no panic").note(&label, answered);
        match answered {
            WriteAnswer::Written(_) => written.send_modify(|written| *written += 1),
            WriteAnswer::Conflict => {}
            WriteAnswer::Lost => return,
            // The database is always there.
            other => panic!("{label}: {other:?}"),
        }
    }
}

/// The contents and all revisions.
async fn read(place: &Place) -> (Snapshot, Vec<Revision>) {
    let store = place.open();
    // Without `prepare`, to see what the killed gateway left.
    let snapshot = timeout(SOON, store.snapshot()).await.expect("in time").expect("it can be read");
    let mut revisions = store.since(0, usize::MAX).await.expect("it can be read");
    store.close().await;
    // The database server may still process what the killed gateway had sent.
    revisions.truncate(usize::try_from(snapshot.revision).expect("few"));
    (snapshot, revisions)
}

/// Checks that a restarted gateway shows exactly what is stored.
async fn assert_shown(operator: &HttpAgent, place: &Place) {
    let (snapshot, _) = read(place).await;
    let shown = get(operator, "tenants?limit=500").await.body;
    assert_eq!(shown["revision"], snapshot.revision);
    let tenants = snapshot.objects.iter().filter(|object| object.kind == ObjectKind::Tenant);
    let expected = tenants.map(|tenant| (tenant.version, tenant.content.spec.value()));
    let shown = shown["tenants"].as_array().expect("a list").iter();
    let shown = shown.map(|tenant| (tenant["version"].as_u64().expect("a version"), tenant["spec"].clone()));
    assert_eq!(shown.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

async fn killed_again_and_again(place: Place) {
    let folder = tempfile::tempdir().expect("there is room");
    let said = Arc::new(Mutex::new(WriteRecord::default()));
    let mut known: Vec<Revision> = Vec::new();
    for round in 0..KILLS {
        let gateway: Gateway = file_with("acme").store(&place.url, folder.path()).start().await;
        let operator = gateway.admin(&administrator());
        assert_shown(&operator, &place).await;
        let written = watch::Sender::new(0);
        let mut clients = JoinSet::new();
        for at in 0..CLIENTS {
            clients.spawn(client(operator.clone(), at, round, Arc::clone(&said), written.clone()));
        }
        let enough = 3 + round * 5 % 11;
        let mut written = written.subscribe();
        timeout(SOON, written.wait_for(|written| *written >= enough))
            .await
            .expect("in time")
            .expect("they write");
        // Somewhere within the next writes.
        sleep(Duration::from_micros(round * 1_733 % 9_001)).await;
        gateway.kill().await;
        while let Some(ended) = clients.join_next().await {
            ended.expect("no client met anything else");
        }
        let (snapshot, revisions) = read(&place).await;
        assert!(revisions.starts_with(&known), "{place}: a revision is not what it was");
        assert_history(&revisions, &snapshot, &said.lock().expect("no panic"));
        known = revisions;
    }
    let said = said.lock().expect("no panic");
    let lost = said.attempted.len() - said.acknowledged.len();
    assert!(lost > 0, "no write was in flight at the kill");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_killed_in_the_middle_of_writes_has_all_it_acknowledged_and_no_half_in_a_file() {
    killed_again_and_again(Place::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_killed_in_the_middle_of_writes_has_all_it_acknowledged_and_no_half_in_postgresql() {
    killed_again_and_again(Place::postgres().await).await;
}
