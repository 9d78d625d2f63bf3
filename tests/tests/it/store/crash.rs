//! Tests a process that is killed while it writes. The test binary itself is that process: it runs the
//! ignored test below.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

use hookgate::{
    core::object::ObjectKind,
    store::{self, Change},
};
use serde_json::json;
use tokio::time::timeout;

use crate::store::support::{Place, api, change, draft};

/// The URL of the store that the process writes to.
const URL: &str = "HOOKGATE_TESTS_STORE_URL";
const KILLS: u64 = 8;

/// Changes of one plugin, one tenant and one binding, which all contain `number`.
fn three(number: u64, there: bool) -> Vec<Change> {
    let spec = |number: u64| api(json!({ "n": number, "long": "x".repeat(3000) }));
    let before = || if there { spec(number - 1) } else { None };
    ObjectKind::ALL.map(|kind| change(kind, "same", before(), spec(number))).into()
}

#[tokio::test]
#[ignore = "it is the process that the tests below kill"]
async fn a_process_that_writes_until_it_is_killed() {
    let store = store::open(&env::var(URL).expect("who runs it says where")).unwrap();
    store.prepare().await.unwrap();
    let mut head = store.head().await.unwrap();
    loop {
        head = store.commit(&draft(head, three(head + 1, head > 0))).await.unwrap();
        // Not through the test runner, which would capture it.
        writeln!(std::io::stdout(), "\nwritten {head}").unwrap();
    }
}

fn writer(url: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "store::crash::a_process_that_writes_until_it_is_killed", "--ignored"]);
    command.env(URL, url).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().unwrap()
}

/// Kills a writer after it reported this many writes, and returns the last number that it reported.
fn killed(url: &str, after: u64) -> u64 {
    let mut child = writer(url);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut written = || lines.find_map(|line| line.strip_prefix("written ")?.parse::<u64>().ok());
    let mut last = 0;
    for _ in 0..after {
        last = written().expect("it writes until it is killed");
    }
    // Somewhere within the next write.
    std::thread::sleep(Duration::from_micros(after * 371 % 2500));
    child.kill().unwrap();
    last = std::iter::from_fn(written).last().unwrap_or(last);
    child.wait().unwrap();
    last
}

async fn nothing_acknowledged_is_lost(place: Place) {
    let mut least = 0;
    for kill in 1..=KILLS {
        let url = place.url.clone();
        let said = tokio::task::spawn_blocking(move || killed(&url, kill * 3)).await.unwrap();
        assert!(said >= least + kill * 3, "{place}: after {least}, {said} was said");
        least = said;
        let store = place.open();
        // Without `prepare`, to see what the killed process left.
        let snapshot = timeout(Duration::from_secs(20), store.snapshot()).await.unwrap().unwrap();
        let head = snapshot.revision;
        assert!(head == least || head == least + 1, "{place}: {least} was acknowledged, {head} is there");
        let whole =
            snapshot.objects.iter().all(|one| one.version == head && one.content.spec.value()["n"] == head);
        assert!(
            whole && snapshot.objects.len() == ObjectKind::ALL.len(),
            "{place}: half of a revision is there: {snapshot:?}"
        );
        let mut revisions = store.since(0, usize::MAX).await.unwrap();
        // The database server may still process what the killed process had sent.
        revisions.truncate(usize::try_from(head).unwrap());
        assert!(revisions.iter().map(|one| one.number).eq(1..=head), "{place}");
        least = head;
        store.close().await;
    }
}

#[tokio::test]
async fn kill_9_in_the_middle_of_writes_loses_none_that_was_acknowledged_in_a_file() {
    nothing_acknowledged_is_lost(Place::file()).await;
}

#[tokio::test]
async fn kill_9_in_the_middle_of_writes_loses_none_that_was_acknowledged_in_postgresql() {
    nothing_acknowledged_is_lost(Place::postgres().await).await;
}
