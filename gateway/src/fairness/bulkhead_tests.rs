use futures::{FutureExt as _, future::BoxFuture};
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn tenant(name: &str) -> Arc<str> {
    name.into()
}

/// A call that has a permit, waits for one, or was rejected.
enum Call {
    Has { _place: BulkheadPermit },
    Waits(BoxFuture<'static, Result<BulkheadPermit, Full>>),
    TurnedAway,
}

impl Call {
    /// A call of `tenant` that waits without a limit.
    fn of(bulkhead: &Arc<Bulkhead>, tenant: &str) -> Self {
        let (bulkhead, tenant) = (Arc::clone(bulkhead), Arc::from(tenant));
        Call::Waits(async move { bulkhead.enter(&tenant, Duration::MAX).await }.boxed()).looked_at()
    }

    /// The call's current state.
    fn looked_at(self) -> Self {
        let Call::Waits(mut waits) = self else { return self };
        match (&mut waits).now_or_never() {
            None => Call::Waits(waits),
            Some(Ok(place)) => Call::Has { _place: place },
            Some(Err(full)) => {
                assert_eq!(full, Full::Queue);
                Call::TurnedAway
            }
        }
    }

    fn has(&self) -> bool {
        matches!(self, Call::Has { .. })
    }

    fn waits(&self) -> bool {
        matches!(self, Call::Waits(_))
    }
}

fn calls(bulkhead: &Arc<Bulkhead>, tenant: &str, count: usize) -> Vec<Call> {
    (0..count).map(|_| Call::of(bulkhead, tenant)).collect()
}

#[tokio::test(start_paused = true)]
async fn call_beyond_the_queue_is_turned_away_at_once() {
    let bulkhead = Arc::new(Bulkhead::new(1, 1));
    let mut calls = calls(&bulkhead, "acme", 3);
    assert!(calls[0].has() && calls[1].waits() && matches!(calls[2], Call::TurnedAway));
    drop(calls.remove(0));
    assert!(calls.remove(0).looked_at().has());
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_place_ends() {
    let bulkhead = Bulkhead::new(1, 1);
    let _held = bulkhead.enter(&tenant("acme"), Duration::ZERO).await.ok();
    let since = Instant::now();
    assert_eq!(bulkhead.enter(&tenant("acme"), SECOND / 2).await.err(), Some(Full::Wait));
    assert_eq!(since.elapsed(), SECOND / 2);
}

#[tokio::test(start_paused = true)]
async fn caller_that_went_away_leaves_the_queue() {
    let bulkhead = Arc::new(Bulkhead::new(1, 1));
    let mut calls = calls(&bulkhead, "acme", 2);
    drop(calls.pop());
    assert_eq!(bulkhead.0.state().waiting.len(), 0);
    drop(calls);
    let place = bulkhead.enter(&tenant("acme"), Duration::ZERO).await;
    assert_eq!(place.map(|place| place.waited).ok(), Some(Duration::ZERO));
    assert!(bulkhead.0.state().held.is_empty(), "nothing is kept of a tenant that is gone");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_comes_as_its_caller_goes_is_given_back() {
    let bulkhead = Arc::new(Bulkhead::new(1, 1));
    let mut calls = calls(&bulkhead, "acme", 2);
    // The permit is sent to the waiting call, which is dropped before it receives it.
    drop(calls.remove(0));
    assert_eq!(bulkhead.taken(), 1);
    drop(calls);
    assert_eq!(bulkhead.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_wants_everything_leaves_places_and_the_queue_to_others() {
    let bulkhead = Arc::new(Bulkhead::new(64, 128));
    let noisy = calls(&bulkhead, "noisy", 500);
    let count = |is: fn(&Call) -> bool| noisy.iter().filter(|call| is(call)).count();
    assert_eq!((count(Call::has), count(Call::waits)), (48, 128));
    let others = calls(&bulkhead, "quiet", 12);
    assert!(others.iter().all(Call::has));
    // All permits are taken or reserved now, and one tenant fills the queue: its newest calls make room.
    let third = calls(&bulkhead, "third", 3).into_iter().chain(calls(&bulkhead, "quiet", 5));
    assert!(third.map(Call::looked_at).all(|call| call.has() || call.waits()));
    let noisy: Vec<_> = noisy.into_iter().map(Call::looked_at).collect();
    let turned_away = noisy.iter().rposition(|call| call.waits()).expect("the oldest still wait");
    assert!(noisy[turned_away + 1..].iter().all(|call| matches!(call, Call::TurnedAway)));
}

#[tokio::test(start_paused = true)]
async fn a_free_place_goes_to_the_tenant_that_holds_the_fewest() {
    let bulkhead = Arc::new(Bulkhead::new(1, 10));
    let mut noisy = calls(&bulkhead, "noisy", 5);
    let quiet = Call::of(&bulkhead, "quiet");
    drop(noisy.remove(0));
    // Neither tenant holds a permit, and the noisy one has waited longer. The other one is next.
    let first = noisy.remove(0).looked_at();
    assert!(first.has());
    drop(first);
    assert!(quiet.looked_at().has());
}

#[tokio::test(start_paused = true)]
async fn observed_calls_wait_beside_the_queue_and_have_turns_of_their_own() {
    let bulkhead = Arc::new(Bulkhead::new(1, 2));
    let mut noisy = calls(&bulkhead, "noisy", 3);
    let mut observer = std::pin::pin!(bulkhead.enter_observer());
    assert!((&mut observer).now_or_never().is_none());
    let quiet = Call::of(&bulkhead, "quiet");
    assert!(quiet.waits(), "it took the place of one of the noisy ones");
    drop(noisy.remove(0));
    drop(noisy.remove(0).looked_at());
    assert!((&mut observer).now_or_never().is_some());
}

#[derive(Debug, Clone)]
enum Act {
    Come(usize),
    Go(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![(0_usize..4).prop_map(Act::Come), (0_usize..64).prop_map(Act::Go)];
    prop::collection::vec(act, 0..120)
}

proptest! {
    #[test]
    fn no_permit_is_lost_and_none_stays_free_while_a_call_may_have_it(
        acts in acts(),
        places in 1_usize..9,
        queue in 0_usize..9,
    ) {
        const TENANTS: [&str; 4] = ["a", "b", "c", "d"];
        let bulkhead = Arc::new(Bulkhead::new(places, queue));
        let mut calls: Vec<(usize, Call)> = Vec::new();
        for act in acts {
            match act {
                Act::Come(tenant) => calls.push((tenant, Call::of(&bulkhead, TENANTS[tenant]))),
                Act::Go(index) if !calls.is_empty() => drop(calls.swap_remove(index % calls.len())),
                Act::Go(_) => {}
            }
            calls = calls.into_iter().map(|(tenant, call)| (tenant, call.looked_at())).collect();
            let has = |of: usize| calls.iter().filter(|(tenant, call)| *tenant == of && call.has()).count();
            let waits = |of: usize| calls.iter().filter(|(tenant, call)| *tenant == of && call.waits()).count();
            let taken: usize = (0..4).map(has).sum();
            prop_assert_eq!(taken, bulkhead.taken());
            prop_assert!(taken <= places && (0..4).map(waits).sum::<usize>() <= queue);
            for (tenant, name) in TENANTS.iter().enumerate() {
                let may = taken < places && fair_share::may_take(has(tenant), places - taken);
                prop_assert!(!(may && waits(tenant) > 0), "{name} waits beside a free place");
            }
            calls.retain(|(_, call)| !matches!(call, Call::TurnedAway));
        }
        drop(calls);
        prop_assert_eq!(bulkhead.taken(), 0);
    }
}
