use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::config::Span;

const FAILURES: u32 = 5;
const OPEN: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(30);

fn breaker() -> CircuitBreaker {
    CircuitBreaker::new(config::Breaker { failures: FAILURES, open: Span(OPEN), max_open: Span(MOST) })
}

/// Opens `breaker`, and returns for how long.
fn opened(breaker: &CircuitBreaker) -> Duration {
    for _ in 1..FAILURES {
        let pass = breaker.enter(Instant::now()).expect("it is closed");
        assert_eq!(breaker.judge(pass, BreakerVerdict::Bad, Instant::now()), None);
    }
    fail(breaker)
}

/// A call that passes, fails and opens the breaker.
fn fail(breaker: &CircuitBreaker) -> Duration {
    let pass = breaker.enter(Instant::now()).expect("one call passes");
    match breaker.judge(pass, BreakerVerdict::Bad, Instant::now()) {
        Some(BreakerTransition::Opened(length)) => length,
        other => panic!("{other:?}"),
    }
}

fn about(length: Duration, expected: Duration) {
    assert!(length >= expected.mul_f64(0.9) && length <= expected.mul_f64(1.1), "{length:?}, {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_open_it_for_a_second_and_one_call_tries() {
    let breaker = breaker();
    let length = opened(&breaker);
    about(length, OPEN);
    assert_eq!(breaker.state(Instant::now()), BreakerState::Open);
    advance(length - Duration::from_millis(1)).await;
    assert_eq!(breaker.enter(Instant::now()), None);
    advance(Duration::from_millis(1)).await;
    let probe = breaker.enter(Instant::now()).expect("its time is over");
    assert_eq!(breaker.enter(Instant::now()), None, "one at a time");
    assert_eq!(breaker.judge(probe, BreakerVerdict::Good, Instant::now()), Some(BreakerTransition::Closed));
    assert_eq!(breaker.state(Instant::now()), BreakerState::Closed);
    about(opened(&breaker), OPEN);
}

#[tokio::test(start_paused = true)]
async fn each_failed_probe_doubles_the_time_up_to_half_a_minute() {
    let breaker = breaker();
    let mut length = opened(&breaker);
    for expected in [2, 4, 8, 16, 30, 30, 30] {
        advance(length).await;
        length = fail(&breaker);
        about(length, Duration::from_secs(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_between_failures_starts_the_count_anew() {
    let breaker = breaker();
    for _ in 0..10 {
        for judgement in [
            BreakerVerdict::Bad,
            BreakerVerdict::Bad,
            BreakerVerdict::Bad,
            BreakerVerdict::Bad,
            BreakerVerdict::Good,
        ] {
            let pass = breaker.enter(Instant::now()).expect("it stays closed");
            assert_eq!(breaker.judge(pass, judgement, Instant::now()), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_say_nothing_neither_count_nor_make_good() {
    let breaker = breaker();
    for judgement in [BreakerVerdict::Bad, BreakerVerdict::Nothing].repeat(4) {
        let pass = breaker.enter(Instant::now()).expect("it is closed");
        assert_eq!(breaker.judge(pass, judgement, Instant::now()), None);
    }
    let length = fail(&breaker);
    advance(length).await;
    let probe = breaker.enter(Instant::now()).expect("its time is over");
    assert_eq!(breaker.judge(probe, BreakerVerdict::Nothing, Instant::now()), None);
    about(fail(&breaker), 2 * OPEN);
}

#[tokio::test(start_paused = true)]
async fn late_judgements_change_nothing() {
    let breaker = breaker();
    let late: Vec<_> = (0..9).map(|_| breaker.enter(Instant::now()).expect("it is closed")).collect();
    let length = opened(&breaker);
    for pass in &late {
        assert_eq!(breaker.judge(*pass, BreakerVerdict::Good, Instant::now()), None);
    }
    assert_eq!(breaker.state(Instant::now()), BreakerState::Open);
    advance(length).await;
    let probe = breaker.enter(Instant::now()).expect("its time is over");
    breaker.judge(probe, BreakerVerdict::Good, Instant::now());
    for pass in late {
        assert_eq!(breaker.judge(pass, BreakerVerdict::Bad, Instant::now()), None);
    }
    assert_eq!(breaker.state(Instant::now()), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_was_reached_anew_is_tried_at_once() {
    let breaker = breaker();
    opened(&breaker);
    assert!(!breaker.lets_through(Instant::now()));
    breaker.note_reached(Instant::now());
    assert!(breaker.lets_through(Instant::now()));
    about(fail(&breaker), 2 * OPEN);
    assert!(!breaker.lets_through(Instant::now()));
}

/// An event in a breaker's life.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Call,
    /// Ends the oldest running call.
    Ends(BreakerVerdict),
    Passes(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Call),
        5 => Just(Happens::Ends(BreakerVerdict::Bad)),
        1 => Just(Happens::Ends(BreakerVerdict::Good)),
        1 => Just(Happens::Ends(BreakerVerdict::Nothing)),
        3 => (1u64..40_000).prop_map(Happens::Passes),
    ]
}

/// A simpler model: the verdicts since it last closed, and the time from which one call may try.
#[derive(Default)]
struct Model {
    run: u32,
    openings: u32,
    closed_again_at: u32,
    shut_until: Option<Instant>,
    probing: bool,
}

proptest! {
    #[test]
    fn it_does_what_the_model_does(script in prop::collection::vec(happens(), 1..200)) {
        let (breaker, mut model, mut now) = (breaker(), Model::default(), Instant::now());
        // Each running call, with the number of earlier transitions.
        let mut under_way: std::collections::VecDeque<(BreakerPermit, u32, bool)> = Default::default();
        for happens in script {
            match happens {
                Happens::Passes(millis) => now += Duration::from_millis(millis),
                Happens::Call => {
                    let due = model.shut_until.is_none_or(|until| now >= until) && !model.probing;
                    prop_assert_eq!(breaker.lets_through(now), due);
                    let pass = breaker.enter(now);
                    prop_assert_eq!(pass.is_some(), due);
                    if let Some(pass) = pass {
                        model.probing = model.shut_until.is_some();
                        under_way.push_back((pass, model.openings + model.closed_again_at, model.probing));
                    }
                }
                Happens::Ends(judgement) => {
                    let Some((pass, age, probe)) = under_way.pop_front() else { continue };
                    let change = breaker.judge(pass, judgement, now);
                    let in_time = age == model.openings + model.closed_again_at;
                    let opens = in_time && judgement == BreakerVerdict::Bad && (probe || model.run + 1 == FAILURES);
                    match (in_time, judgement) {
                        (false, _) => {}
                        (true, BreakerVerdict::Bad) => model.run += 1,
                        (true, BreakerVerdict::Good) => model.run = 0,
                        (true, BreakerVerdict::Nothing) => {}
                    }
                    if in_time && probe {
                        model.probing = false;
                    }
                    match change {
                        Some(BreakerTransition::Opened(length)) => {
                            prop_assert!(opens);
                            model.openings += 1;
                            let doublings = model.run - FAILURES;
                            let expected = OPEN.saturating_mul(1 << doublings.min(10)).min(MOST);
                            prop_assert!(length >= expected.mul_f64(0.9) && length <= expected.mul_f64(1.1));
                            model.shut_until = Some(now + length);
                        }
                        Some(BreakerTransition::Closed) => {
                            prop_assert!(in_time && probe && judgement == BreakerVerdict::Good);
                            model.closed_again_at += 1;
                            model.shut_until = None;
                        }
                        None => {
                            prop_assert!(!opens);
                            prop_assert!(!in_time || !probe || judgement != BreakerVerdict::Good);
                        }
                    }
                    if in_time && probe && judgement == BreakerVerdict::Nothing {
                        model.shut_until = Some(now);
                    }
                }
            }
        }
    }
}
