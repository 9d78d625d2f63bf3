//! A connection that was described and accepted, with the configuration that goes with it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::{
    core::tool::Tools,
    task::single_flight::SingleFlight,
    upstream::{
        connection::Connection, initialize::PreparedConfig, manifest_validation::AcceptedManifest, state::Why,
    },
};

/// Why there is no usable connection.
#[derive(Clone)]
pub(super) enum ConnectError {
    /// Retried soon.
    Away(String),
    /// The connection was gone before anything was sent: another one may be made at once.
    Gone(String),
    /// Refused or out of rotation. Retried when this connection has ended, and periodically.
    Out(Why, String, Arc<Connection>),
}

/// A worker makes its own connection after this many calls over another thread's, so that plugins with few calls
/// have few connections.
const CALLS_OVER_ANOTHERS: usize = 32;

pub(super) struct ReadyConnection {
    pub(super) connection: Arc<Connection>,
    pub(super) accepted: Arc<AcceptedManifest>,
    pub(super) config: Arc<PreparedConfig>,
    /// What the plugin answered to Initialize over this connection, or over another one to the same process.
    tools: Mutex<Option<Tools>>,
    /// Whether Initialize is known to have been answered for this configuration. A plugin that restarted
    /// behind the same address reports NOT_INITIALIZED itself.
    initialised: AtomicBool,
    /// Whether a call was answered over this connection.
    proven: AtomicBool,
    /// Initialize calls answered here. Distinguishes a late NOT_INITIALIZED from a new one.
    generation: AtomicU64,
    pub(super) initializes: SingleFlight<Result<(), ConnectError>>,
    withdrawn: CancellationToken,
    in_flight: AtomicUsize,
    /// Calls of workers that don't serve the connection.
    visits: AtomicUsize,
    /// Whether the plugin has no health service: asked once per connection.
    lacks_health: AtomicBool,
    pub(super) since: Instant,
    /// The span of the handshake, until the plugin is initialised.
    handshake: Mutex<Option<Span>>,
}

impl ReadyConnection {
    /// `known` is true if the plugin got this configuration over an earlier connection.
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
            tools: Mutex::default(),
            initialised: AtomicBool::new(known),
            proven: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            initializes: SingleFlight::new(),
            withdrawn: CancellationToken::new(),
            in_flight: AtomicUsize::new(0),
            visits: AtomicUsize::new(0),
            lacks_health: AtomicBool::new(false),
            since: Instant::now(),
            handshake: Mutex::new((!known).then(Span::current)),
        })
    }

    /// The span of the handshake that made this connection, for the part that is left. `None` if the handshake
    /// is over.
    pub(super) fn take_handshake(&self) -> Option<Span> {
        self.handshake.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The tools of the process behind the connection. `None` while it has not given any.
    pub(super) fn tools(&self) -> Option<Tools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_tools(&self, tools: Tools) {
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some(tools);
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

    /// Records that a call was answered.
    pub(super) fn note_answer(&self) {
        if !self.proven.load(Ordering::Relaxed) {
            self.proven.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the process behind this very connection is known to have its configuration.
    pub(super) fn is_proven(&self) -> bool {
        self.is_initialised() && (self.generation() > 0 || self.proven.load(Ordering::Relaxed))
    }

    /// Records that the plugin reported NOT_INITIALIZED to a call that was sent after generation `seen`.
    pub(super) fn note_forgotten(&self, seen: u64) {
        if self.generation() == seen {
            self.initialised.store(false, Ordering::Release);
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn lacks_health(&self) -> bool {
        self.lacks_health.load(Ordering::Relaxed)
    }

    pub(super) fn note_lack_of_health(&self) {
        self.lacks_health.store(true, Ordering::Relaxed);
    }

    /// Takes the connection out of use. Running calls continue.
    pub(super) fn withdraw(&self) {
        self.withdrawn.cancel();
    }

    /// Returns when the connection is closed or withdrawn.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.connection.closed() => {}
            () = self.withdrawn.cancelled() => {}
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts a call of a worker that doesn't serve the connection. True if it is time for the worker's own.
    pub(super) fn note_visit(&self) -> bool {
        (self.visits.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(CALLS_OVER_ANOTHERS)
    }

    /// Counts a call for as long as the guard lives.
    pub(super) fn occupied(&self) -> InFlightGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(&self.in_flight)
    }
}

/// A call in flight over one connection.
pub(super) struct InFlightGuard<'a>(&'a AtomicUsize);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
