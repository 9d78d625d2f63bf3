//! How many calls are under way: in all, per tenant, and in payload bytes (docs/protocol.md, section 6). Counters
//! without locks; each admission is a guard that gives its place back when dropped, however the call ends.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, clock::Clock};

use crate::{
    config::Rate,
    error::{Code, Error},
};

/// When a call that found no place should come back.
const COME_BACK: Duration = Duration::from_secs(1);

/// A number that may not pass its limit.
#[derive(Debug, Default)]
struct Gauge {
    taken: AtomicUsize,
}

/// A part of a [`Gauge`], given back on drop.
#[derive(Debug)]
struct Taken {
    gauge: Arc<Gauge>,
    amount: usize,
}

impl Gauge {
    fn take(self: &Arc<Self>, amount: usize, limit: usize) -> Option<Taken> {
        let more = |taken: usize| taken.checked_add(amount).filter(|sum| *sum <= limit);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Taken { gauge: Arc::clone(self), amount })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.gauge.taken.fetch_sub(self.amount, Ordering::AcqRel);
    }
}

/// One tenant's count of calls.
struct Tenant {
    gauge: Arc<Gauge>,
    /// The limiter with the rate it was made for; another rate makes another limiter.
    rate: Option<(Rate, Arc<DefaultDirectRateLimiter>)>,
}

/// The gates that every call passes.
#[derive(Default)]
pub struct Admission {
    calls: Arc<Gauge>,
    bytes: Arc<Gauge>,
    // A tenant gets here with a verified token only, so there are as many as there are customers.
    tenants: papaya::HashMap<Arc<str>, Arc<Tenant>>,
}

/// A place among the calls under way.
#[derive(Debug)]
pub struct Place {
    _taken: Taken,
}

/// Room for the payload bytes of one call.
#[derive(Debug)]
pub struct Room {
    taken: Taken,
    most: usize,
}

impl Room {
    /// Takes room for `bytes` more, or OVERLOADED.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        let mut more = self.taken.gauge.take(bytes, self.most).ok_or_else(|| {
            Error::new(Code::Overloaded, "The gateway has too many payload bytes under way")
                .retry_after(COME_BACK)
        })?;
        self.taken.amount += std::mem::take(&mut more.amount);
        Ok(())
    }
}

impl Admission {
    /// A place among all calls, of which there are at most `most`, or OVERLOADED.
    pub fn enter(&self, most: usize) -> Result<Place, Error> {
        self.calls.take(1, most).map(|taken| Place { _taken: taken }).ok_or_else(|| {
            Error::new(Code::Overloaded, "The gateway has too many calls under way").retry_after(COME_BACK)
        })
    }

    /// Calls under way.
    pub fn calls(&self) -> usize {
        self.calls.taken.load(Ordering::Relaxed)
    }

    /// A place among the tenant's calls, or TENANT_LIMITED.
    pub fn enter_tenant(&self, tenant: &Arc<str>, most: usize, rate: Option<Rate>) -> Result<Place, Error> {
        let entry = self.tenant(tenant, rate);
        let taken = entry.gauge.take(1, most).ok_or_else(|| {
            let detail = format!("The tenant has {most} calls under way, which is its limit");
            Error::new(Code::TenantLimited, detail).retry_after(COME_BACK)
        })?;
        if let Some((rate, limiter)) = &entry.rate
            && let Err(not_until) = limiter.check()
        {
            let wait = not_until.wait_time_from(limiter.clock().now());
            let detail = format!("The tenant calls more often than its limit of {rate}");
            return Err(Error::new(Code::TenantLimited, detail).retry_after(wait));
        }
        Ok(Place { _taken: taken })
    }

    /// Room for payload bytes, of which all calls have at most `most`; none of it taken yet.
    pub fn room(&self, most: usize) -> Room {
        Room { taken: Taken { gauge: Arc::clone(&self.bytes), amount: 0 }, most }
    }

    fn tenant(&self, tenant: &Arc<str>, rate: Option<Rate>) -> Arc<Tenant> {
        let tenants = self.tenants.pin();
        let known = tenants.get(tenant).filter(|known| known.rate.as_ref().map(|(rate, _)| *rate) == rate);
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let limiter = |rate: Rate| {
            let quota = Quota::with_period(rate.per / rate.count)?.allow_burst(NonZeroU32::new(rate.count)?);
            Some((rate, Arc::new(DefaultDirectRateLimiter::direct(quota))))
        };
        let fresh = |gauge: Arc<Gauge>| Arc::new(Tenant { gauge, rate: rate.and_then(limiter) });
        // Another rate keeps the count of calls under way.
        Arc::clone(tenants.update_or_insert_with(
            Arc::clone(tenant),
            |old| fresh(Arc::clone(&old.gauge)),
            || fresh(Arc::default()),
        ))
    }
}
