//! Keys that an issuer publishes as a JWK set. They are fetched at start and then every TTL, and additionally
//! when a token names an unknown key. If the issuer can't be reached, they are used for one more hour.
//!
//! Readers see an immutable set. They never wait for a fetch, except for the one that their own unknown key
//! requested.

mod document;
mod http;

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::{sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use super::key::KeySet;
use crate::task::single_flight::SingleFlight;

/// How long keys are used beyond their TTL if newer ones can't be fetched. After that, all tokens of the
/// issuer are rejected.
const MAX_STALENESS: Duration = Duration::from_secs(3_600);
/// Minimum time between fetches for unknown keys.
const MIN_REFETCH_INTERVAL: Duration = Duration::from_secs(30);
/// Delay after the first failed fetch; doubles with each further one.
const INITIAL_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest delay after a failed fetch.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Fetches the text of a JWK set.
pub(super) trait Fetch: fmt::Debug + Send + Sync {
    /// One attempt, limited in time and size.
    fn fetch(&self) -> BoxFuture<'_, Result<Vec<u8>, FetchError>>;
}

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// Redirects are included, because they are not followed.
    #[error("the answer has the status {0}, not 200")]
    Status(u16),
    #[error("the answer is larger than 256 KiB")]
    TooLarge,
    #[error("{0}")]
    Transport(String),
    #[error("the answer is not a JWK set: {0}")]
    Document(String),
}

/// The keys that one issuer publishes.
#[derive(Debug)]
pub(super) struct PublishedKeys {
    issuer: String,
    /// Where the issuer publishes them.
    url: String,
    source: Box<dyn Fetch>,
    ttl: Duration,
    current: ArcSwapOption<FetchedKeys>,
    /// Locked during a fetch, so that there is one at a time.
    gate: Mutex<FetchState>,
    /// The fetch for an unknown key.
    refetching: SingleFlight<()>,
}

#[derive(Debug)]
struct FetchedKeys {
    keys: Arc<KeySet>,
    fetched: Instant,
}

#[derive(Debug, Default)]
struct FetchState {
    /// When a fetch for an unknown key was last requested.
    refetched: Option<Instant>,
    /// SHA-256 of the current set.
    document: Option<[u8; 32]>,
}

impl FetchState {
    /// Whether a token that arrived at `asked` may not cause another fetch.
    fn limits(&self, asked: Instant) -> bool {
        // Also true if `asked` is before the last fetch, which then ended while this token waited and brought
        // current keys.
        self.refetched.is_some_and(|last| asked.saturating_duration_since(last) < MIN_REFETCH_INTERVAL)
    }
}

impl PublishedKeys {
    /// Keys from `url`, not fetched yet. `Err` says what is wrong with the URL.
    pub(super) fn new(issuer: &str, url: &str, ttl: Duration) -> Result<Arc<Self>, String> {
        let source = http::Http::new(url, http::FETCH_TIMEOUT)?;
        Ok(Self::from_source(issuer, url, Box::new(source), ttl))
    }

    fn from_source(issuer: &str, url: &str, source: Box<dyn Fetch>, ttl: Duration) -> Arc<Self> {
        Arc::new(PublishedKeys {
            issuer: issuer.to_owned(),
            url: url.to_owned(),
            source,
            ttl,
            current: ArcSwapOption::empty(),
            gate: Mutex::default(),
            refetching: SingleFlight::new(),
        })
    }

    /// Whether [`PublishedKeys::new`] with these arguments would be equal.
    pub(super) fn is_of(&self, issuer: &str, url: &str, ttl: Duration) -> bool {
        (&*self.issuer, &*self.url, self.ttl) == (issuer, url, ttl)
    }

    /// The keys, unless they were never fetched or are too old.
    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        let current = self.current.load();
        let usable =
            current.as_ref().filter(|current| current.fetched.elapsed() <= self.ttl + MAX_STALENESS)?;
        Some(Arc::clone(&usable.keys))
    }

    /// Time since the keys were fetched.
    pub(super) fn age(&self) -> Option<Duration> {
        self.current.load().as_ref().map(|current| current.fetched.elapsed())
    }

    /// Time until keys of this age are no longer used.
    pub(super) fn left(&self, age: Duration) -> Duration {
        (self.ttl + MAX_STALENESS).saturating_sub(age)
    }

    /// Fetches periodically until `stop`. During a reload, the old and the new configuration may both run
    /// this: neither repeats the other's fetch.
    pub(super) async fn keep_fresh(&self, stop: &CancellationToken) {
        let rounds = async {
            let mut retry = INITIAL_RETRY_DELAY;
            loop {
                let mut gate = self.gate.lock().await;
                let left = self.age().map_or(Duration::ZERO, |age| self.ttl.saturating_sub(age));
                let pause = if !left.is_zero() {
                    left
                } else if self.fetch(&mut gate).await {
                    retry = INITIAL_RETRY_DELAY;
                    self.ttl
                } else {
                    let pause = retry;
                    retry = (retry * 2).min(MAX_RETRY_DELAY);
                    pause
                };
                drop(gate);
                tokio::time::sleep(pause).await;
            }
        };
        stop.run_until_cancelled(rounds).await;
    }

    /// Fetches again for a token with an unknown key, unless that was done within 30 s. Waits for the running
    /// fetch, if there is one.
    pub(super) async fn refetch(self: &Arc<Self>) {
        let asked = Instant::now();
        let limited = || self.gate.try_lock().is_ok_and(|gate| gate.limits(asked)).then_some(());
        let published = Arc::clone(self);
        let job = move || async move {
            let mut gate = published.gate.lock().await;
            if !gate.limits(asked) {
                gate.refetched = Some(Instant::now());
                published.fetch(&mut gate).await;
            }
        };
        // One job for all callers, however many, since none has shown a valid token yet. It is detached, so
        // that a caller who hangs up doesn't cancel the fetch for others. If it is lost because the process
        // ends, the keys stay as they are.
        self.refetching.join(limited, job).await.unwrap_or_default();
    }

    /// Runs one fetch. Returns whether it succeeded.
    async fn fetch(&self, gate: &mut FetchState) -> bool {
        let read = |text: Vec<u8>| match document::parse(&text) {
            Ok(document) => Ok((document, Sha256::digest(&text).into())),
            Err(why) => Err(FetchError::Document(why)),
        };
        match self.source.fetch().await.and_then(read) {
            Ok((document, digest)) => {
                self.publish(gate, document, digest);
                true
            }
            Err(error) => {
                tracing::warn!(issuer = self.issuer, %error, "the issuer's keys could not be fetched");
                false
            }
        }
    }

    /// An unchanged text keeps its generation, so that verified tokens stay in the cache.
    fn publish(&self, gate: &mut FetchState, document: document::Document, digest: [u8; 32]) {
        let before = self.current.load_full();
        let keys = match before {
            Some(before) if gate.document == Some(digest) => Arc::clone(&before.keys),
            before => {
                let (usable, skipped) = (document.keys.len(), document.skipped.len());
                let first = document.skipped.first();
                tracing::info!(
                    issuer = self.issuer,
                    usable,
                    skipped,
                    first,
                    "the issuer's keys have changed"
                );
                let generation = before.map_or(1, |before| before.keys.generation + 1);
                Arc::new(KeySet { generation, keys: document.keys })
            }
        };
        gate.document = Some(digest);
        self.current.store(Some(Arc::new(FetchedKeys { keys, fetched: Instant::now() })));
    }
}

#[cfg(test)]
mod tests;
