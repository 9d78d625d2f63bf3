//! Tests three gateways on one database with writes through each: they converge, none goes back, and no
//! acknowledged write is lost, while the database stops and starts (G24, G36).

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hookgate::store;
use hookgate_tests::{agent::HttpAgent, gateway::Gateway, postgres::Cluster};
use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    admin::registry::support::{administrator, get},
    registry::{
        pairs::{WriteAnswer, WriteRecord, assert_history, write},
        support::{call, file_with, status},
    },
};

const REPLICAS: usize = 3;
const WRITERS: usize = 4;
/// Acknowledged writes of each writer.
const WRITES: usize = 8;
const TENANTS: usize = 5;
/// After this many "unavailable" answers, the database is started again.
const REFUSALS: usize = 12;
/// The limit of G36.
const CONVERGED: Duration = Duration::from_secs(5);
/// The timeout for a stopped database and for the writers.
const PATIENCE: Duration = Duration::from_secs(60);

/// A replica's answers in order, each with its revision and the plan's digest.
type Answers = Vec<(u64, String)>;

/// Calls until told to stop.
async fn traffic(gateway: Arc<Gateway>, stop: Arc<AtomicBool>) -> Answers {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let answer = call(&gateway, "t-0").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let revision = answer.body["revision"].as_u64().expect("every answer has one");
        seen.push((revision, answer.body["plan_digest"].as_str().expect("every answer has one").to_owned()));
        // Leaves the machine to the writers for a moment.
        sleep(Duration::from_millis(3)).await;
    }
    seen
}

/// One attempted write.
#[derive(Debug, Clone)]
struct Attempt {
    label: String,
    /// The replica that it was sent to.
    replica: usize,
    tenant: usize,
    began: Instant,
    ended: Instant,
    answered: WriteAnswer,
}

impl Attempt {
    /// One line, for failure messages.
    fn told(&self) -> String {
        let Attempt { label, replica, tenant, began, ended, answered } = self;
        format!("{label} of t-{tenant} through {replica}: {answered:?} after {:?}\n", *ended - *began)
    }
}

/// What all writers know.
#[derive(Clone)]
struct Notes {
    said: Arc<Mutex<WriteRecord>>,
    /// Acknowledged writes, and writes that failed because the database was away.
    counts: watch::Sender<(usize, usize)>,
    attempts: Arc<Mutex<Vec<Attempt>>>,
}

/// Writes to changing replicas until all writes are acknowledged; reads again after conflicts.
async fn writer(number: usize, replicas: Vec<HttpAgent>, notes: Notes) {
    // Each time another replica and tenant, without a pattern that the writers share.
    let mut dice = number as u64 + 1;
    let mut roll = |sides: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize % sides
    };
    let (mut acknowledged, mut tried) = (0, 0);
    while acknowledged < WRITES {
        let label = format!("w{number}-{tried}");
        tried += 1;
        notes.said.lock().expect("no panic").attempted.insert(label.clone());
        let (replica, tenant, began) = (roll(REPLICAS), roll(TENANTS), Instant::now());
        let answered = write(&replicas[replica], tenant, &label).await;
        notes.said.lock().expect("no panic").note(&label, answered);
        let attempt = Attempt { label, replica, tenant, began, ended: Instant::now(), answered };
        notes.attempts.lock().expect("no panic").push(attempt);
        match answered {
            WriteAnswer::Written(_) => {
                acknowledged += 1;
                notes.counts.send_modify(|counts| counts.0 += 1);
            }
            WriteAnswer::Unavailable => notes.counts.send_modify(|counts| counts.1 += 1),
            WriteAnswer::Conflict | WriteAnswer::Unknown => {}
            WriteAnswer::Lost => panic!("no replica goes away"),
        }
        sleep(Duration::from_millis(roll(20) as u64)).await;
    }
}

/// Waits until all replicas serve `revision`, and returns how long that took.
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

/// Stops the database during the writes, and starts it after failures were noticed. Returns the period in
/// which it was certainly away.
async fn outage(cluster: Arc<Cluster>, counts: &watch::Sender<(usize, usize)>) -> (Instant, Instant) {
    let wait = async |enough: &(dyn Fn(&(usize, usize)) -> bool + Sync)| {
        let mut counts = counts.subscribe();
        timeout(PATIENCE, counts.wait_for(|counts| enough(counts)))
            .await
            .expect("in time")
            .expect("they write");
    };
    wait(&|(acknowledged, _)| *acknowledged >= WRITERS * WRITES / 3).await;
    let database = Arc::clone(&cluster);
    tokio::task::spawn_blocking(move || database.stop()).await.expect("it stops");
    let (gone, refused) = (Instant::now(), counts.borrow().1);
    wait(&|(_, refusals)| *refusals >= refused + REFUSALS).await;
    let back = Instant::now();
    tokio::task::spawn_blocking(move || cluster.start_again()).await.expect("it starts");
    (gone, back)
}

/// Every plan of every tenant at a replica.
async fn plans(replica: &Gateway) -> Vec<Value> {
    let operator = replica.admin(&administrator());
    let mut plans = Vec::new();
    for tenant in 0..TENANTS {
        let plan = get(&operator, &format!("tenants/t-{tenant}/plan")).await;
        assert_eq!(plan.status, 200, "{plan:?}");
        plans.push(plan.body);
    }
    plans
}

/// Checks that no replica went back, and that a revision is the same at all replicas.
fn assert_in_order(answers: &[Answers]) {
    let mut digests: BTreeMap<u64, &str> = BTreeMap::new();
    for seen in answers {
        assert!(seen.is_sorted_by_key(|(revision, _)| *revision), "a replica went back: {seen:?}");
        assert!(seen[0].0 < seen[seen.len() - 1].0, "it served by several revisions: {seen:?}");
        for (revision, digest) in seen {
            assert_eq!(digests.entry(*revision).or_insert(digest), digest, "of revision {revision}");
        }
    }
}

/// Checks that writes which began and ended without a database failed as such.
fn assert_refused(attempts: &[Attempt], (gone, back): (Instant, Instant)) -> usize {
    let without = attempts.iter().filter(|attempt| attempt.began > gone && attempt.ended < back);
    without.inspect(|attempt| assert_eq!(attempt.answered, WriteAnswer::Unavailable, "{attempt:?}")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_converge_and_none_answers_by_an_older_revision_while_the_database_comes_and_goes() {
    let cluster = Arc::new(tokio::task::spawn_blocking(Cluster::start).await.expect("it starts"));
    let url = cluster.database().await;
    let folders: Vec<_> = (0..REPLICAS).map(|_| tempfile::tempdir().expect("there is room")).collect();
    let starting = folders.iter().map(|folder| file_with("acme").store(&url, folder.path()).start());
    let replicas: Vec<_> = futures::future::join_all(starting).await.into_iter().map(Arc::new).collect();
    let operators: Vec<_> = replicas.iter().map(|replica| replica.admin(&administrator())).collect();
    let notes = Notes { said: Arc::default(), counts: watch::Sender::new((0, 0)), attempts: Arc::default() };
    for tenant in 0..TENANTS {
        let label = format!("first-{tenant}");
        notes.said.lock().expect("no panic").attempted.insert(label.clone());
        let answered = write(&operators[0], tenant, &label).await;
        assert!(matches!(answered, WriteAnswer::Written(_)), "{answered:?}");
    }
    converged(&replicas, 1 + TENANTS as u64).await;

    let stop = Arc::new(AtomicBool::new(false));
    let (mut calls, mut writers) = (JoinSet::new(), JoinSet::new());
    for replica in &replicas {
        calls.spawn(traffic(Arc::clone(replica), Arc::clone(&stop)));
    }
    for number in 0..WRITERS {
        writers.spawn(writer(number, operators.clone(), notes.clone()));
    }
    let away = outage(Arc::clone(&cluster), &notes.counts).await;
    let ended = timeout(PATIENCE, writers.join_all()).await;
    let written = notes.attempts.lock().expect("no panic").clone();
    let told: String = written.iter().map(Attempt::told).collect();
    assert!(ended.is_ok(), "they don't go on once it is back:\n{told}");
    let store = store::open(&url).expect("the URL is one");
    let now = store.snapshot().await.expect("it runs");
    let took = converged(&replicas, now.revision).await;
    stop.store(true, Ordering::Relaxed);

    let answers = calls.join_all().await;
    assert_in_order(&answers);
    let refused = assert_refused(&written, away);
    assert!(refused >= REFUSALS / 2, "{refused} writes met no database");
    let revisions = store.since(0, usize::MAX).await.expect("it runs");
    assert_history(&revisions, &now, &notes.said.lock().expect("no panic"));
    store.close().await;
    let first = plans(&replicas[0]).await;
    for replica in &replicas {
        assert_eq!(plans(replica).await, first);
    }
    let calls: usize = answers.iter().map(Vec::len).sum();
    let conflicts = written.iter().filter(|attempt| attempt.answered == WriteAnswer::Conflict).count();
    let revision = now.revision;
    println!(
        "converged {took:?} after revision {revision}; {refused} refused, {conflicts} conflicts, {calls} calls"
    );
}
