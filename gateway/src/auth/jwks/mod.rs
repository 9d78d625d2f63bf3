//! Keys that an issuer publishes as a JWK set: fetched at start and then every TTL, once more when a token names an
//! unknown key, and used for an hour longer when the issuer cannot be reached. Readers see an immutable set and
//! never wait for a fetch, except for the one their own unknown key asked for.

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

/// How long keys are used beyond their TTL when no newer ones can be had; after that nobody gets in.
const MAX_STALENESS: Duration = Duration::from_secs(3_600);
/// Least time between two fetches that unknown keys ask for.
const MIN_REFETCH_INTERVAL: Duration = Duration::from_secs(30);
/// Pause after the first fetch that failed; doubles with each further one.
const INITIAL_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest pause after a fetch that failed.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Gets the text of a JWK set from where it is published.
pub(super) trait Fetch: fmt::Debug + Send + Sync {
    /// One attempt, bounded in time and size.
    fn fetch(&self) -> BoxFuture<'_, Result<Vec<u8>, FetchError>>;
}

/// Why there are no new keys.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// Redirects included: they are not followed.
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
    /// Where it publishes them.
    url: String,
    source: Box<dyn Fetch>,
    ttl: Duration,
    current: ArcSwapOption<FetchedKeys>,
    /// Held by the one fetch under way.
    gate: Mutex<FetchState>,
    /// The fetch that an unknown key asked for.
    refetching: SingleFlight<()>,
}

#[derive(Debug)]
struct FetchedKeys {
    keys: Arc<KeySet>,
    fetched: Instant,
}

#[derive(Debug, Default)]
struct FetchState {
    /// When an unknown key last asked for a fetch.
    refetched: Option<Instant>,
    /// SHA-256 of the set that stands.
    document: Option<[u8; 32]>,
}

impl FetchState {
    /// Whether a token that came at `asked` may not have a fetch of its own.
    fn limits(&self, asked: Instant) -> bool {
        // `asked` before the last one: it ended while this one waited, and brought what there is.
        self.refetched.is_some_and(|last| asked.saturating_duration_since(last) < MIN_REFETCH_INTERVAL)
    }
}

impl PublishedKeys {
    /// Keys from `url`; nothing is fetched yet. Err says what is wrong with the URL.
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

    /// Whether [`PublishedKeys::new`] would make the same of these.
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

    /// Time until keys of that age are used no more.
    pub(super) fn left(&self, age: Duration) -> Duration {
        (self.ttl + MAX_STALENESS).saturating_sub(age)
    }

    /// Fetches now and then, until `stop`. While one configuration takes the place of another, both may ask for this:
    /// what one fetched, the other doesn't fetch again.
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

    /// A token named a key that is not there: fetches, unless that was done within 30 s, and waits for the fetch
    /// under way, if there is one.
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
        // One job for all who ask, however many: they have shown no valid token yet. It outlives a caller who hangs
        // up, who must not end a fetch that others wait for. None: the process ends; the keys are then the old ones.
        self.refetching.join(limited, job).await.unwrap_or_default();
    }

    /// One fetch; whether it succeeded.
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

    /// The same text keeps its generation, so that verified tokens stay remembered.
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
