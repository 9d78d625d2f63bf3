//! Follows names that resolve to several addresses: looks them up every 10 s, and sooner if an address can't
//! be reached or on request (docs/protocol.md, section 6).

use std::{io, net::SocketAddr, time::Duration};

use futures::future::BoxFuture;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::upstream::dial_error::DialErrorKind;

const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between lookups, however many dials fail.
const MIN_LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Most addresses of one name that are used.
const MAX_ADDRESSES: usize = 256;

pub(super) trait Resolver: Send + Sync {
    /// The addresses of `host`, with `port`.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
pub(super) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// The result of a lookup: at least one address, sorted and without duplicates, or why there is none.
pub(super) type LookupResult = Result<Vec<SocketAddr>, (DialErrorKind, String)>;

/// Lookups of one name on request, numbered so that callers can await theirs.
#[derive(Default)]
pub(super) struct LookupRequests {
    wanted: watch::Sender<u64>,
    /// The last request that was served.
    done: watch::Sender<u64>,
}

impl LookupRequests {
    /// Requests a lookup, and returns when its result was applied. Never returns if the name isn't followed.
    pub(super) async fn look_up(&self) {
        let mut number = 0;
        self.wanted.send_modify(|wanted| {
            *wanted += 1;
            number = *wanted;
        });
        let mut done = self.done.subscribe();
        // This can't fail: `self` holds the sender.
        let _ = done.wait_for(|done| *done >= number).await;
    }
}

/// Looks `host` up for ever and passes each result on. `failed` signals an address that can't be reached.
pub(super) async fn follow(
    resolver: &dyn Resolver,
    host: &str,
    port: u16,
    failed: &Notify,
    asked: &LookupRequests,
    mut found: impl FnMut(LookupResult),
) {
    let mut wanted = asked.wanted.subscribe();
    loop {
        let (looked_up, number) = (Instant::now(), *wanted.borrow_and_update());
        found(look_up(resolver, host, port).await);
        asked.done.send_replace(number);
        let next = looked_up + LOOKUP_INTERVAL.mul_f64(0.9 + fastrand::f64() / 5.0);
        let soonest = async {
            failed.notified().await;
            sleep_until(looked_up + MIN_LOOKUP_INTERVAL).await;
        };
        tokio::select! {
            () = sleep_until(next) => {}
            () = soonest => {}
            _ = wanted.changed() => {}
        }
    }
}

async fn look_up(resolver: &dyn Resolver, host: &str, port: u16) -> LookupResult {
    let mut addresses = match timeout(LOOKUP_TIMEOUT, resolver.resolve(host, port)).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => {
            return Err((
                DialErrorKind::NameUnresolved,
                format!("the name `{host}` can't be resolved: {error}"),
            ));
        }
        Err(_) => {
            return Err((
                DialErrorKind::NameUnresolved,
                format!("the name `{host}` was not resolved within {LOOKUP_TIMEOUT:?}"),
            ));
        }
    };
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() {
        return Err((DialErrorKind::NoAddress, format!("the name `{host}` has no address")));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Returns the scripted answer, and records when it was asked.
    #[derive(Default)]
    struct ScriptedResolver {
        answer: Mutex<Option<Vec<SocketAddr>>>,
        asked: Mutex<Vec<Instant>>,
    }

    impl Resolver for ScriptedResolver {
        fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
            self.asked.lock().expect("unpoisoned").push(Instant::now());
            let answer = self.answer.lock().expect("unpoisoned").clone();
            Box::pin(async move { answer.ok_or_else(|| io::Error::other("no such name")) })
        }
    }

    /// Follows a name until the test ends.
    fn following(resolver: &Arc<ScriptedResolver>) -> (Arc<Notify>, Arc<Mutex<Vec<LookupResult>>>) {
        let (failed, all) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
        let (resolver, told, into) = (Arc::clone(resolver), Arc::clone(&failed), Arc::clone(&all));
        tokio::spawn(async move {
            let found = |found| into.lock().expect("unpoisoned").push(found);
            follow(&*resolver, "plugins", 7000, &told, &LookupRequests::default(), found).await;
        });
        (failed, all)
    }

    #[tokio::test(start_paused = true)]
    async fn name_is_looked_up_every_ten_seconds_a_tenth_more_or_less() {
        let resolver = Arc::new(ScriptedResolver::default());
        let _following = following(&resolver);
        tokio::time::sleep(Duration::from_secs(1_000)).await;
        let asked = resolver.asked.lock().expect("unpoisoned").clone();
        assert!((90..=112).contains(&asked.len()), "{}", asked.len());
        let gaps: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (9_000..=11_001).contains(&gap.as_millis())), "{gaps:?}");
        assert!(gaps.iter().any(|gap| *gap != gaps[0]), "always the same");
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_cannot_be_reached_has_the_name_looked_up_once_a_second_at_most() {
        let resolver = Arc::new(ScriptedResolver::default());
        let (failed, _) = following(&resolver);
        for _ in 0..500 {
            failed.notify_one();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let asked = resolver.asked.lock().expect("unpoisoned").len();
        assert!((5..=6).contains(&asked), "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_found_is_handed_on_in_order_and_each_once() {
        let resolver = Arc::new(ScriptedResolver::default());
        let (failed, all) = following(&resolver);
        let [a, b]: [SocketAddr; 2] = [([10, 0, 0, 1], 7000).into(), ([10, 0, 0, 2], 7000).into()];
        for answer in [Some(vec![b, a, b]), Some(Vec::new()), None] {
            *resolver.answer.lock().expect("unpoisoned") = answer;
            failed.notify_one();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let all = all.lock().expect("unpoisoned");
        let causes: Vec<_> = all.iter().map(|found| found.as_ref().map_err(|(cause, _)| *cause)).collect();
        let expected = [Ok(&vec![a, b]), Err(DialErrorKind::NoAddress), Err(DialErrorKind::NameUnresolved)];
        assert!(causes.ends_with(&expected), "{causes:?}");
    }
}
