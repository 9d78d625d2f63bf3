//! The breakers of one endpoint: one for all calls, and one for each tenant whose calls failed recently.
//!
//! A failed connection says something about the endpoint. A failed call may be the fault of its input, and
//! one tenant's input must not take the plugin away from the others
//! (docs/decisions/0040-fair-between-tenants.md).

use std::sync::Arc;

use tokio::time::Instant;

use super::breaker::{self, BreakerState, BreakerTransition, BreakerVerdict, CircuitBreaker};
use crate::config;

/// Above this many tenants' breakers, those that let calls through are dropped.
const MAX_TENANTS: usize = 1_000;

/// What a call's outcome says about its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallClass {
    /// The endpoint works, whatever the call returned.
    Success,
    /// The endpoint is unreachable, or the connection was lost. This counts for every tenant.
    ConnectionFailure,
    /// The endpoint answered this call with an error, or with a reply that can't be decoded.
    CallFailure,
    /// The endpoint did not answer this call in time, or refused the stream.
    NoAnswer,
    /// Nothing: the call never reached the endpoint, or its caller went away.
    Unknown,
}

/// Permission for one call, which must be judged afterwards.
pub(super) struct BreakerPermits {
    all: breaker::BreakerPermit,
    /// `None` if no call of the tenant failed recently.
    tenant: Option<(Arc<CircuitBreaker>, breaker::BreakerPermit)>,
}

/// A transition caused by a verdict, and whether it concerns one tenant or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScopedTransition {
    ForAll(BreakerTransition),
    ForTenant(BreakerTransition),
}

pub(super) struct Breakers {
    settings: config::Breaker,
    all: CircuitBreaker,
    /// Usually empty. A tenant is removed with its next successful call.
    tenants: papaya::HashMap<Arc<str>, Arc<CircuitBreaker>>,
}

impl Breakers {
    pub(super) fn new(settings: config::Breaker) -> Self {
        Breakers { all: CircuitBreaker::new(settings.clone()), tenants: papaya::HashMap::new(), settings }
    }

    /// Whether a call of `tenant` would pass now. `None` asks only the breaker of all calls.
    pub(super) fn lets_through(&self, tenant: Option<&str>, now: Instant) -> bool {
        let of_tenant = tenant.and_then(|tenant| self.for_tenant(tenant));
        self.all.lets_through(now) && of_tenant.is_none_or(|breaker| breaker.lets_through(now))
    }

    /// A permit for one call of `tenant`. Returns `None` if the call must fail at once.
    pub(super) fn enter(&self, tenant: &str, now: Instant) -> Option<BreakerPermits> {
        let all = self.all.enter(now)?;
        let Some(breaker) = self.for_tenant(tenant) else {
            return Some(BreakerPermits { all, tenant: None });
        };
        let Some(pass) = breaker.enter(now) else {
            // The permit for all calls goes unused. If it was for the trial call, the next call may try
            // instead.
            self.all.judge(all, BreakerVerdict::Nothing, now);
            return None;
        };
        Some(BreakerPermits { all, tenant: Some((breaker, pass)) })
    }

    /// Records the outcome of a call of `tenant`.
    pub(super) fn judge(
        &self,
        BreakerPermits { all, tenant: of_tenant }: BreakerPermits,
        tenant: &Arc<str>,
        class: CallClass,
        now: Instant,
    ) -> Option<ScopedTransition> {
        let (for_all, for_tenant) = match class {
            CallClass::Success => (BreakerVerdict::Good, BreakerVerdict::Good),
            CallClass::ConnectionFailure => (BreakerVerdict::Bad, BreakerVerdict::Nothing),
            // Even an error answer proves that the endpoint is alive.
            CallClass::CallFailure => (BreakerVerdict::Good, BreakerVerdict::Bad),
            CallClass::NoAnswer => (BreakerVerdict::Nothing, BreakerVerdict::Bad),
            CallClass::Unknown => (BreakerVerdict::Nothing, BreakerVerdict::Nothing),
        };
        let changed = self.all.judge(all, for_all, now).map(ScopedTransition::ForAll);
        let (breaker, pass) = match of_tenant {
            Some(entered) => entered,
            None if for_tenant == BreakerVerdict::Bad => {
                (self.for_failing_tenant(tenant), breaker::BreakerPermit::first())
            }
            None => return changed,
        };
        let of_tenant = breaker.judge(pass, for_tenant, now).map(ScopedTransition::ForTenant);
        if for_tenant == BreakerVerdict::Good && breaker.state(now) == BreakerState::Closed {
            self.tenants.pin().remove(tenant);
        }
        changed.or(of_tenant)
    }

    /// Records that the endpoint was reached again: open breakers let the next call try.
    pub(super) fn note_reached(&self, now: Instant) {
        self.all.note_reached(now);
        self.tenants.pin().values().for_each(|breaker| breaker.note_reached(now));
    }

    /// The state of the breaker for all calls.
    pub(super) fn state(&self, now: Instant) -> BreakerState {
        self.all.state(now)
    }

    /// How many tenants' breakers are open or half-open. A breaker whose open time is over no longer counts:
    /// its tenant may never call again.
    pub(super) fn tenant_breakers_open(&self, now: Instant) -> usize {
        self.tenants.pin().values().filter(|breaker| !breaker.lets_through(now)).count()
    }

    /// Whether some tenants' calls may be blocked by a breaker of their own.
    pub(super) fn has_of_tenants(&self) -> bool {
        !self.tenants.is_empty()
    }

    fn for_tenant(&self, tenant: &str) -> Option<Arc<CircuitBreaker>> {
        if self.tenants.is_empty() {
            return None;
        }
        self.tenants.pin().get(tenant).map(Arc::clone)
    }

    fn for_failing_tenant(&self, tenant: &Arc<str>) -> Arc<CircuitBreaker> {
        let (tenants, fresh) = (self.tenants.pin(), || Arc::new(CircuitBreaker::new(self.settings.clone())));
        if tenants.len() >= MAX_TENANTS {
            // These tenants failed occasionally, or are gone.
            let now = Instant::now();
            tenants.retain(|_, breaker| !breaker.lets_through(now));
        }
        Arc::clone(tenants.get_or_insert_with(Arc::clone(tenant), fresh))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::time::advance;

    use super::*;
    use crate::config::Span;

    const OPEN: Duration = Duration::from_secs(1);

    fn breakers() -> Breakers {
        let settings = config::Breaker { failures: 5, open: Span(OPEN), max_open: Span(OPEN * 30) };
        Breakers::new(settings)
    }

    /// Makes a call of `tenant`, and returns whether it passed.
    fn call(breakers: &Breakers, tenant: &str, class: CallClass) -> bool {
        let now = Instant::now();
        let pass = breakers.enter(tenant, now);
        let passed = pass.is_some();
        if let Some(pass) = pass {
            breakers.judge(pass, &Arc::from(tenant), class, now);
        }
        passed
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_are_their_tenants_and_lost_connections_everybodys() {
        let breakers = breakers();
        for _ in 0..5 {
            assert!(call(&breakers, "hostile", CallClass::CallFailure));
        }
        assert!(!call(&breakers, "hostile", CallClass::Success));
        assert!(call(&breakers, "other", CallClass::Success));
        assert_eq!(
            (breakers.state(Instant::now()), breakers.tenant_breakers_open(Instant::now())),
            (BreakerState::Closed, 1)
        );
        advance(OPEN * 2).await;
        assert!(call(&breakers, "hostile", CallClass::Success), "one call tries");
        assert_eq!((breakers.tenant_breakers_open(Instant::now()), breakers.tenants.len()), (0, 0));

        for tenant in ["hostile", "other", "hostile", "other", "hostile"] {
            assert!(call(&breakers, tenant, CallClass::ConnectionFailure));
        }
        assert!(!call(&breakers, "third", CallClass::Success));
        assert_eq!(breakers.state(Instant::now()), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_is_out_does_not_use_up_the_call_that_tries_the_endpoint() {
        let breakers = breakers();
        for _ in 0..5 {
            call(&breakers, "hostile", CallClass::CallFailure);
        }
        for _ in 0..5 {
            call(&breakers, "other", CallClass::ConnectionFailure);
        }
        advance(OPEN / 2).await;
        breakers.all.note_reached(Instant::now());
        assert!(!call(&breakers, "hostile", CallClass::Success));
        assert!(call(&breakers, "other", CallClass::Success), "the endpoint is tried");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_any_kind_closes_the_endpoints_breaker_and_silence_does_not() {
        for (class, state) in
            [(CallClass::CallFailure, BreakerState::Closed), (CallClass::NoAnswer, BreakerState::HalfOpen)]
        {
            let breakers = breakers();
            for _ in 0..5 {
                call(&breakers, "other", CallClass::ConnectionFailure);
            }
            breakers.note_reached(Instant::now());
            assert!(call(&breakers, "hostile", class));
            assert_eq!(breakers.state(Instant::now()), state, "{class:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_never_calls_again_is_forgotten() {
        let breakers = breakers();
        for _ in 0..5 {
            call(&breakers, "gone", CallClass::CallFailure);
        }
        advance(OPEN * 2).await;
        assert_eq!(breakers.tenant_breakers_open(Instant::now()), 0);
        for number in 0..2 * MAX_TENANTS {
            call(&breakers, &number.to_string(), CallClass::CallFailure);
        }
        assert!(breakers.tenants.len() <= MAX_TENANTS, "{}", breakers.tenants.len());
    }

    fn class() -> impl Strategy<Value = CallClass> {
        prop_oneof![
            Just(CallClass::NoAnswer),
            Just(CallClass::Success),
            Just(CallClass::CallFailure),
            Just(CallClass::Unknown)
        ]
    }

    proptest! {
        #[test]
        fn what_one_tenants_calls_come_to_changes_nothing_for_another(
            hostile in prop::collection::vec(class(), 0..40),
            calls in prop::collection::vec((class(), 0_usize..4), 0..40),
        ) {
            let (alone, together) = (breakers(), breakers());
            let mut hostile = hostile.into_iter();
            for (class, between) in calls {
                for class in hostile.by_ref().take(between) {
                    call(&together, "hostile", class);
                }
                prop_assert_eq!(call(&together, "other", class), call(&alone, "other", class));
            }
        }
    }
}
