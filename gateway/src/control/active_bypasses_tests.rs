//! Tests of bypasses with two clocks.

use serde_json::json;

use super::*;
use crate::{
    core::object::{ObjectKind, Owner},
    store::{Object, ObjectContent, Snapshot},
};

const START: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

/// Bypasses of `guard` with these tenants, versions, and ends in seconds after the start.
fn contents(bypasses: &[(&str, u64, u64)]) -> Contents {
    let object = |(tenant, version, seconds): &(&str, u64, u64)| {
        let until = Until(START + Duration::from_secs(*seconds));
        let spec = json!({ "binding": "guard", "tenant": tenant, "until": until, "reason": "x" });
        let (name, content) =
            (format!("guard@{tenant}").into(), ObjectContent { owner: Owner::Api, spec: spec.into() });
        Object { kind: ObjectKind::Bypass, name, version: *version, content }
    };
    let objects = bypasses.iter().map(object).collect();
    Contents::read(Snapshot { revision: 9, objects }).expect("right")
}

fn tenants(active: &ActiveBypasses) -> Vec<&str> {
    active.bypasses.iter().map(|bypass| &*bypass.tenant).collect()
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_bypass_is_in_effect_until_its_time_and_no_longer() {
    let (bypasses, start) = (Bypasses::default(), Instant::now());
    let contents = contents(&[("a", 1, 10), ("b", 1, 100), ("c", 1, 0)]);
    let at = |seconds| bypasses.active_at(&contents, START + s(seconds), start + s(seconds));
    let first = at(0);
    assert_eq!((tenants(&first), first.again), (vec!["a", "b"], Some(start + s(10))));
    assert_eq!(tenants(&at(9)), ["a", "b"]);
    let second = at(10);
    // Somebody may set the wall clock, so it is checked every 30 s.
    assert_eq!((tenants(&second), second.again), (vec!["b"], Some(start + s(40))));
    assert_eq!(at(100), ActiveBypasses::default());
}

#[tokio::test(start_paused = true)]
async fn whichever_clock_says_first_that_it_has_ended_is_right() {
    let (bypasses, start) = (Bypasses::default(), Instant::now());
    let contents = contents(&[("a", 1, 60)]);
    assert_eq!(tenants(&bypasses.active_at(&contents, START, start)), ["a"]);
    // Setting the wall clock back by an hour doesn't prolong the bypass.
    let back = START - s(3600);
    assert_eq!(tenants(&bypasses.active_at(&contents, back + s(59), start + s(59))), ["a"]);
    assert_eq!(tenants(&bypasses.active_at(&contents, back + s(60), start + s(60))), [""; 0]);
    // Setting the clock forward ends the bypass, and setting it back again doesn't revive it.
    let bypasses = Bypasses::default();
    assert_eq!(tenants(&bypasses.active_at(&contents, START, start)), ["a"]);
    assert_eq!(tenants(&bypasses.active_at(&contents, START + s(3600), start + s(1))), [""; 0]);
    assert_eq!(tenants(&bypasses.active_at(&contents, START + s(2), start + s(2))), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_bypass_that_is_written_again_lasts_as_it_says_then() {
    let (bypasses, start) = (Bypasses::default(), Instant::now());
    let at =
        |contents: &Contents, seconds| bypasses.active_at(contents, START + s(seconds), start + s(seconds));
    assert_eq!(tenants(&at(&contents(&[("a", 1, 10)]), 0)), ["a"]);
    assert_eq!(tenants(&at(&contents(&[("a", 2, 600)]), 5)), ["a"]);
    assert_eq!(tenants(&at(&contents(&[("a", 2, 600)]), 599)), ["a"]);
    assert_eq!(tenants(&at(&contents(&[("a", 3, 5)]), 600)), [""; 0]);
    // Dry runs don't fill the memory for ever.
    for version in 0..5000 {
        at(&contents(&[("a", version, 10_000)]), 600);
    }
    assert!(bypasses.0.lock().unwrap().len() <= MAX_REMEMBERED + 1);
}
