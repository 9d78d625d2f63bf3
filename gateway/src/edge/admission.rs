//! Limits calls in flight: in total, per tenant, and in payload bytes (docs/protocol.md, section 6). Counters
//! without locks; each admission is a guard that returns its permit when dropped, however the call ends.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, clock::Clock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    config::Rate,
    core::{
        error::{Code, Error},
        fair_share,
    },
};

/// When a call without a permit should be retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many questions within exchanges of one depth a tenant has at the same time.
const MAX_TENANT_QUESTIONS: usize = 64;
/// How many depths an exchange may have (`hookgate-depth`, 0 to 3).
const DEPTHS: usize = 4;

/// A counter that can't exceed its limit.
#[derive(Debug, Default)]
struct LimitedCounter {
    taken: AtomicUsize,
}

/// A part of a [`LimitedCounter`], given back on drop.
#[derive(Debug)]
struct CounterPermit {
    gauge: Arc<LimitedCounter>,
    amount: usize,
}

impl LimitedCounter {
    fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    fn take(self: &Arc<Self>, amount: usize, limit: usize) -> Option<CounterPermit> {
        let more = |taken: usize| taken.checked_add(amount).filter(|sum| *sum <= limit);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(CounterPermit { gauge: Arc::clone(self), amount })
    }
}

impl CounterPermit {
    fn none_of(gauge: &Arc<LimitedCounter>) -> Self {
        CounterPermit { gauge: Arc::clone(gauge), amount: 0 }
    }

    /// Takes `amount` more. `None` if that exceeds the limit.
    fn grow(&mut self, amount: usize, limit: usize) -> Option<()> {
        let mut more = self.gauge.take(amount, limit)?;
        self.amount += std::mem::take(&mut more.amount);
        Some(())
    }
}

impl Drop for CounterPermit {
    fn drop(&mut self) {
        self.gauge.taken.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

/// One tenant's usage.
struct TenantUsage {
    calls: Arc<LimitedCounter>,
    exchanges: Arc<LimitedCounter>,
    /// Those within exchanges, by how many gateways their exchange has passed.
    questions: Arc<[Arc<Semaphore>; DEPTHS]>,
    bytes: Arc<LimitedCounter>,
    /// The rate limiter, with the rate it was made for. A new rate makes a new limiter.
    rate: Option<(Rate, Arc<DefaultDirectRateLimiter>)>,
}

impl TenantUsage {
    fn enter(
        &self,
        counter: &Arc<LimitedCounter>,
        most: usize,
        what: &str,
    ) -> Result<TenantCallPermit, Error> {
        let taken = counter.take(1, most).ok_or_else(|| {
            let detail = format!("The tenant has {most} {what} in flight, which is its limit");
            Error::new(Code::TenantLimited, detail).retry_after(RETRY_AFTER)
        })?;
        Ok(TenantCallPermit { _taken: taken, bytes: Arc::clone(&self.bytes) })
    }

    fn check_rate(&self) -> Result<(), Error> {
        if let Some((rate, limiter)) = &self.rate
            && let Err(not_until) = limiter.check()
        {
            let wait = not_until.wait_time_from(limiter.clock().now());
            let detail = format!("The tenant calls more often than its limit of {rate}");
            return Err(Error::new(Code::TenantLimited, detail).retry_after(wait));
        }
        Ok(())
    }
}

/// The limits that every call passes.
#[derive(Default)]
pub struct Admission {
    calls: Arc<LimitedCounter>,
    exchanges: Arc<LimitedCounter>,
    bytes: Arc<LimitedCounter>,
    // Only a verified token adds a tenant, so the map has at most as many entries as there are customers.
    tenants: papaya::HashMap<Arc<str>, Arc<TenantUsage>>,
}

/// A permit among all calls in flight.
#[derive(Debug)]
pub struct CallPermit {
    _taken: CounterPermit,
}

/// A permit among the calls of one tenant.
#[derive(Debug)]
pub struct TenantCallPermit {
    _taken: CounterPermit,
    bytes: Arc<LimitedCounter>,
}

/// The permits that a call got so far.
#[derive(Debug, Default)]
pub struct CallPermits {
    pub(crate) of_all: Option<CallPermit>,
    pub(crate) of_tenant: Option<TenantCallPermit>,
    pub(crate) memory: Option<MemoryPermit>,
}

/// Memory for the payload bytes of one call.
#[derive(Debug)]
pub struct MemoryPermit {
    all: CounterPermit,
    /// `None` for an operator's request.
    of_tenant: Option<CounterPermit>,
    most: usize,
}

impl MemoryPermit {
    /// Takes `bytes` more. OVERLOADED if there is no memory left, TENANT_LIMITED if the rest is reserved for
    /// other tenants.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        self.all.grow(bytes, self.most).ok_or_else(|| {
            Error::new(Code::Overloaded, "The gateway has too many payload bytes in flight")
                .retry_after(RETRY_AFTER)
        })?;
        let Some(of_tenant) = &mut self.of_tenant else { return Ok(()) };
        of_tenant.grow(bytes, usize::MAX);
        let (held, free) = (of_tenant.gauge.taken(), self.most.saturating_sub(self.all.gauge.taken()));
        // A tenant's only call may use all memory that is left.
        if held > of_tenant.amount && !fair_share::may_take(held, free) {
            let detail = "The tenant's calls in flight use up its share of the gateway's payload bytes";
            return Err(Error::new(Code::TenantLimited, detail).retry_after(RETRY_AFTER));
        }
        Ok(())
    }
}

impl Admission {
    /// A permit among all calls, of which there are at most `most`. Otherwise OVERLOADED.
    pub fn enter(&self, most: usize) -> Result<CallPermit, Error> {
        self.calls.take(1, most).map(|taken| CallPermit { _taken: taken }).ok_or_else(|| {
            Error::new(Code::Overloaded, "The gateway has too many calls in flight").retry_after(RETRY_AFTER)
        })
    }

    /// A permit among all exchanges with models, of which there are at most `most`. Otherwise OVERLOADED.
    pub fn enter_exchange(&self, most: usize) -> Result<CallPermit, Error> {
        self.exchanges.take(1, most).map(|taken| CallPermit { _taken: taken }).ok_or_else(|| {
            let detail = "The gateway has too many exchanges with models in flight";
            Error::new(Code::Overloaded, detail).retry_after(RETRY_AFTER)
        })
    }

    /// Exchanges with models in flight.
    pub fn exchanges(&self) -> usize {
        self.exchanges.taken()
    }

    /// Calls in flight.
    pub fn calls(&self) -> usize {
        self.calls.taken()
    }

    /// A permit among the tenant's calls. Otherwise TENANT_LIMITED.
    pub fn enter_tenant(
        &self,
        tenant: &Arc<str>,
        most: usize,
        rate: Option<Rate>,
    ) -> Result<TenantCallPermit, Error> {
        let usage = self.tenant(tenant, rate);
        let permit = usage.enter(&usage.calls, most, "calls")?;
        usage.check_rate()?;
        Ok(permit)
    }

    /// A permit among the tenant's exchanges with models, which count in its rate of calls. Otherwise TENANT_LIMITED.
    pub fn enter_tenant_exchange(
        &self,
        tenant: &Arc<str>,
        most: usize,
        rate: Option<Rate>,
    ) -> Result<TenantCallPermit, Error> {
        let usage = self.tenant(tenant, rate);
        let permit = usage.enter(&usage.exchanges, most, "exchanges with models")?;
        usage.check_rate()?;
        Ok(permit)
    }

    /// A turn for a question within an exchange, whose rate was counted. Questions of one tenant wait for each other. Those of a
    /// plugin that itself asks a model, at a greater `depth`, don't wait for the question that the plugin answers.
    pub async fn question(
        &self,
        tenant: &Arc<str>,
        rate: Option<Rate>,
        depth: u32,
    ) -> Option<OwnedSemaphorePermit> {
        let usage = self.tenant(tenant, rate);
        let questions = usage.questions.get(depth as usize).or(usage.questions.last())?;
        // It is never closed.
        Arc::clone(questions).acquire_owned().await.ok()
    }

    /// Memory from a total of `most` bytes. Nothing is taken yet.
    pub fn room(&self, most: usize) -> MemoryPermit {
        MemoryPermit { all: CounterPermit::none_of(&self.bytes), of_tenant: None, most }
    }

    /// The same for a call of the tenant with the permit `place`, within the tenant's share.
    pub fn tenant_room(&self, place: &TenantCallPermit, most: usize) -> MemoryPermit {
        MemoryPermit { of_tenant: Some(CounterPermit::none_of(&place.bytes)), ..self.room(most) }
    }

    fn tenant(&self, tenant: &Arc<str>, rate: Option<Rate>) -> Arc<TenantUsage> {
        let tenants = self.tenants.pin();
        let known = tenants.get(tenant).filter(|known| known.rate.as_ref().map(|(rate, _)| *rate) == rate);
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let limiter = |rate: Rate| {
            let quota = Quota::with_period(rate.per / rate.count)?.allow_burst(NonZeroU32::new(rate.count)?);
            Some((rate, Arc::new(DefaultDirectRateLimiter::direct(quota))))
        };
        let fresh = |calls, exchanges, questions, bytes| {
            Arc::new(TenantUsage { calls, exchanges, questions, bytes, rate: rate.and_then(limiter) })
        };
        // A new rate keeps the counts of calls in flight.
        Arc::clone(tenants.update_or_insert_with(
            Arc::clone(tenant),
            |old| {
                let TenantUsage { calls, exchanges, questions, bytes, .. } = &**old;
                fresh(Arc::clone(calls), Arc::clone(exchanges), Arc::clone(questions), Arc::clone(bytes))
            },
            || {
                let questions = [(); DEPTHS].map(|()| Arc::new(Semaphore::new(MAX_TENANT_QUESTIONS)));
                let questions = Arc::new(questions);
                fresh(Arc::default(), Arc::default(), questions, Arc::default())
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Calls of `tenant` with `bytes` each, until one is refused.
    fn fill(
        admission: &Admission,
        tenant: &str,
        bytes: usize,
        most: usize,
    ) -> (Vec<(TenantCallPermit, MemoryPermit)>, Code) {
        let mut calls = Vec::new();
        loop {
            let place = admission.enter_tenant(&tenant.into(), 1_000, None).expect("there are places");
            let mut room = admission.tenant_room(&place, most);
            match room.grow(bytes) {
                Ok(()) => calls.push((place, room)),
                Err(error) => return (calls, error.code),
            }
        }
    }

    #[test]
    fn largest_calls_of_one_tenant_leave_room_for_the_others() {
        let admission = Admission::default();
        let (noisy, refused) = fill(&admission, "noisy", 4 * MIB, 512 * MIB);
        assert_eq!((noisy.len(), refused), (95, Code::TenantLimited));
        let (quiet, refused) = fill(&admission, "quiet", 4 * MIB, 512 * MIB);
        assert_eq!((quiet.len(), refused), (24, Code::TenantLimited));
        drop((noisy, quiet));
        assert_eq!(admission.bytes.taken(), 0);
        assert_eq!(fill(&admission, "noisy", 4 * MIB, 512 * MIB).0.len(), 95, "all of it was given back");
    }

    #[test]
    fn a_tenants_only_call_may_have_everything_that_is_free() {
        let admission = Admission::default();
        let place = admission.enter_tenant(&"acme".into(), 10, None).expect("a place");
        let mut room = admission.tenant_room(&place, 4 * MIB);
        for _ in 0..4 {
            room.grow(MIB).expect("its own bytes don't stand in its way");
        }
        assert_eq!(room.grow(1).expect_err("there is no more").code, Code::Overloaded);
    }
}
