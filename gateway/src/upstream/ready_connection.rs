//! A connection that was described and accepted, with the configuration that goes with it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    task::single_flight::SingleFlight,
    upstream::{
        connection::Connection, initialize::PreparedConfig, manifest_validation::AcceptedManifest, state::Why,
    },
};

/// Why there is no usable connection.
#[derive(Clone)]
pub(super) enum ConnectError {
    /// Tried again soon.
    Away(String),
    /// The connection was gone before anything was sent: another one may be made at once.
    Gone(String),
    /// Refused or out of rotation: tried again when this connection has ended, and now and then.
    Out(Why, String, Arc<Connection>),
}

pub(super) struct ReadyConnection {
    pub(super) connection: Arc<Connection>,
    pub(super) accepted: Arc<AcceptedManifest>,
    pub(super) config: Arc<PreparedConfig>,
    /// Whether Initialize is known to have been answered for this configuration. A plugin that restarted
    /// behind the same address says otherwise itself (NOT_INITIALIZED).
    initialised: AtomicBool,
    /// Whether a call was answered over it.
    proven: AtomicBool,
    /// Initialize calls answered here; tells a late NOT_INITIALIZED from a new one.
    generation: AtomicU64,
    pub(super) initializes: SingleFlight<Result<(), ConnectError>>,
    withdrawn: CancellationToken,
    in_flight: AtomicUsize,
    /// The plugin has no health service: asked once per connection.
    lacks_health: AtomicBool,
    pub(super) since: Instant,
}

impl ReadyConnection {
    /// `known`: the plugin was handed this configuration over an earlier connection.
    pub(super) fn new(
        connection: Arc<Connection>,
        accepted: AcceptedManifest,
        config: Arc<PreparedConfig>,
        known: bool,
    ) -> Arc<Self> {
        Arc::new(ReadyConnection {
            connection,
            accepted: Arc::new(accepted),
            config,
            initialised: AtomicBool::new(known),
            proven: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            initializes: SingleFlight::new(),
            withdrawn: CancellationToken::new(),
            in_flight: AtomicUsize::new(0),
            lacks_health: AtomicBool::new(false),
            since: Instant::now(),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.connection.is_closed() && !self.withdrawn.is_cancelled()
    }

    pub(super) fn is_initialised(&self) -> bool {
        self.initialised.load(Ordering::Acquire)
    }

    pub(super) fn note_initialised(&self) {
        self.initialised.store(true, Ordering::Release);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// A call was answered over it.
    pub(super) fn note_answer(&self) {
        if !self.proven.load(Ordering::Relaxed) {
            self.proven.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the process behind this very connection is known to have its configuration.
    pub(super) fn is_proven(&self) -> bool {
        self.is_initialised() && (self.generation() > 0 || self.proven.load(Ordering::Relaxed))
    }

    /// The plugin said that it doesn't know its configuration, to a call that was sent after generation `seen`.
    pub(super) fn note_forgotten(&self, seen: u64) {
        if self.generation() == seen {
            self.initialised.store(false, Ordering::Release);
        }
    }

    /// Initialize calls answered over this connection.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn lacks_health(&self) -> bool {
        self.lacks_health.load(Ordering::Relaxed)
    }

    pub(super) fn note_lack_of_health(&self) {
        self.lacks_health.store(true, Ordering::Relaxed);
    }

    /// No more calls; those under way go on.
    pub(super) fn withdraw(&self) {
        self.withdrawn.cancel();
    }

    /// Returns when it is no longer used.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.connection.closed() => {}
            () = self.withdrawn.cancelled() => {}
        }
    }

    /// Calls under way over it.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a call for as long as the guard lives.
    pub(super) fn occupied(&self) -> InFlightGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(&self.in_flight)
    }
}

/// A call under way over one connection.
pub(super) struct InFlightGuard<'a>(&'a AtomicUsize);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
