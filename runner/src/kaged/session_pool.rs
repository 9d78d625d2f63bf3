//! The sessions of one plugin: one for each tenant and configuration.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    KagedPlugin,
    session::{Session, SessionOwner, StartFault},
    session_process::SessionStop,
};
use crate::{instances::Instance, program_host::ProgramHost};

/// The sessions of one plugin.
pub(crate) struct SessionPool {
    state: Mutex<PoolState>,
    /// Processes of all tenants.
    places: Arc<Semaphore>,
    limit: usize,
    /// Sessions that wait for a place.
    waiting: AtomicUsize,
    /// Cancelled when the runner stops, and with it each session's.
    runner: CancellationToken,
}

#[derive(Default)]
struct PoolState {
    /// Those that take calls. Each has a place or waits for one.
    sessions: HashMap<SessionKey, Arc<PooledSession>>,
    /// Those that end after the calls that they have.
    retired: Vec<Arc<PooledSession>>,
    is_closed: bool,
}

impl PoolState {
    fn retire(&mut self, session: &Arc<PooledSession>) {
        session.retire();
        if !session.stop.is_cancelled() {
            self.retired.push(Arc::clone(session));
        }
    }

    /// Forgets the sessions that have ended or are about to. Their places are free soon.
    fn remove_ended(&mut self) {
        self.sessions.retain(|_, session| !session.is_over());
        self.retired.retain(|session| !session.is_over());
    }

    /// The session that gives its place up first: the one that has waited for a call the longest. `None` if all have calls.
    fn oldest_idle(&self) -> Option<SessionKey> {
        let started = self.sessions.iter().filter(|(_, session)| session.session().is_some());
        let idle = started.filter(|(_, session)| session.usage().calls == 0);
        idle.min_by_key(|(_, session)| session.usage().used).map(|(key, _)| key.clone())
    }

    /// The session that has been there the longest.
    fn oldest(&self) -> Option<SessionKey> {
        let started = self.sessions.iter().filter(|(_, session)| session.session().is_some());
        started.min_by_key(|(_, session)| session.created).map(|(key, _)| key.clone())
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct SessionKey {
    tenant: Arc<str>,
    config_digest: String,
    tenant_config: Bytes,
}

/// A session, also one that is starting.
struct PooledSession {
    instance: Arc<Instance>,
    created: Instant,
    /// `None` until it has started or failed to.
    started: watch::Receiver<Option<Result<Arc<Session>, StartFault>>>,
    stop: CancellationToken,
    usage: Mutex<SessionUsage>,
}

struct SessionUsage {
    calls: usize,
    /// When the last call ended.
    used: Instant,
    /// Whether it ends after its calls.
    is_retiring: bool,
}

/// A session in use.
pub(super) struct SessionLease(Arc<PooledSession>);

impl PooledSession {
    fn usage(&self) -> MutexGuard<'_, SessionUsage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.started.borrow().as_ref().and_then(|started| started.as_ref().ok().cloned())
    }

    /// Whether it has ended, or will.
    fn is_over(&self) -> bool {
        let has_ended = match &*self.started.borrow() {
            Some(Ok(session)) => session.has_ended(),
            Some(Err(_)) => true,
            None => self.started.has_changed().is_err(),
        };
        has_ended || self.stop.is_cancelled()
    }

    /// Whether nobody has used it for longer than `idle`, or its configuration is not used any more.
    fn is_unneeded(&self, idle: Duration) -> bool {
        let usage = self.usage();
        usage.calls == 0 && (usage.used.elapsed() > idle || self.instance.is_released())
    }

    /// Ends it after its calls. It gets no other.
    fn retire(&self) {
        let mut usage = self.usage();
        usage.is_retiring = true;
        if usage.calls == 0 {
            self.stop.cancel();
        }
    }
}

impl SessionLease {
    fn new(session: &Arc<PooledSession>) -> Self {
        session.usage().calls += 1;
        SessionLease(Arc::clone(session))
    }

    /// The session, once it has started.
    ///
    /// # Errors
    /// Why it could not be started.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StartFault> {
        let mut started = self.0.started.clone();
        let started = started.wait_for(Option::is_some).await.ok().and_then(|started| started.clone());
        started.unwrap_or_else(|| Err(Status::unavailable("the runner stops").into()))
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        let mut usage = self.0.usage();
        usage.calls -= 1;
        usage.used = Instant::now();
        if usage.calls == 0 && usage.is_retiring {
            self.0.stop.cancel();
        }
    }
}

impl SessionPool {
    /// A pool of up to `limit` processes.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        SessionPool {
            state: Mutex::default(),
            places: Arc::new(Semaphore::new(limit)),
            limit,
            waiting: AtomicUsize::new(0),
            runner: CancellationToken::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of `owner`, which is started if there is none. It starts also if nobody waits for it any more: a gateway
    /// that gave its call up makes another one.
    ///
    /// # Errors
    /// UNAVAILABLE if the runner stops.
    pub(super) fn acquire(
        host: &Arc<ProgramHost>,
        plugin: &Arc<KagedPlugin>,
        owner: SessionOwner,
    ) -> Result<SessionLease, Status> {
        let (lease, starting) = host.sessions.lease(&owner)?;
        let Some(starting) = starting else { return Ok(lease) };
        let (host, plugin, session) = (Arc::clone(host), Arc::clone(plugin), lease.0.stop.clone());
        let stop = SessionStop { session, runner: host.sessions.runner.clone() };
        tokio::spawn(async move {
            let place = host.sessions.place(&stop.session).await;
            let started = match place {
                Some(place) => Session::start(&host, &plugin, &owner, place, stop).await,
                None => Err(Status::unavailable("the plugin was stopped before it had a place").into()),
            };
            let _ = starting.send(Some(started));
        });
        Ok(lease)
    }

    /// A lease of the session of `owner`. If there was none, also whom to tell of its start.
    fn lease(&self, owner: &SessionOwner) -> Result<(SessionLease, Option<StartSender>), Status> {
        let key = SessionKey {
            tenant: Arc::clone(&owner.tenant),
            config_digest: owner.instance.digest.clone(),
            tenant_config: owner.tenant_config.clone(),
        };
        let mut state = self.state();
        if state.is_closed {
            return Err(Status::unavailable("the runner stops"));
        }
        let found = state.sessions.get(&key);
        if let Some(session) = found.filter(|session| !session.is_over() && !session.instance.is_released()) {
            return Ok((SessionLease::new(session), None));
        }
        let (starting, started) = watch::channel(None);
        let usage = SessionUsage { calls: 0, used: Instant::now(), is_retiring: false };
        let session = Arc::new(PooledSession {
            instance: Arc::clone(&owner.instance),
            created: Instant::now(),
            started,
            stop: self.runner.child_token(),
            usage: Mutex::new(usage),
        });
        let lease = SessionLease::new(&session);
        if let Some(replaced) = state.sessions.insert(key, session) {
            state.retire(&replaced);
        }
        Ok((lease, Some(starting)))
    }

    /// Waits for the place of a process, unless `stop` is cancelled before.
    async fn place(&self, stop: &CancellationToken) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.make_room();
        let place = tokio::select! {
            place = Arc::clone(&self.places).acquire_owned() => place.ok(),
            () = stop.cancelled() => None,
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        place
    }

    /// Retires sessions for those that wait for a place: those without calls until each will soon have one, and if these
    /// aren't enough, those with calls until each will have one at all.
    fn make_room(&self) {
        let mut state = self.state();
        state.remove_ended();
        let waiting = self.waiting.load(Ordering::Acquire);
        loop {
            let staying = state.sessions.len().saturating_sub(waiting);
            let free_at_last = self.limit.saturating_sub(staying);
            let free_soon = free_at_last.saturating_sub(state.retired.len());
            let idle = state.oldest_idle().filter(|_| free_soon < waiting);
            let next = idle.or_else(|| state.oldest().filter(|_| free_at_last < waiting));
            let Some(session) = next.and_then(|key| state.sessions.remove(&key)) else { return };
            state.retire(&session);
        }
    }

    /// Retires the sessions that have waited for a call longer than `idle`, or used more CPU time than `cpu`.
    pub(crate) fn sweep(&self, idle: Duration, cpu: Duration) {
        let sessions: Vec<_> = self.state().sessions.values().cloned().collect();
        // Without the lock: it reads files.
        let is_spent =
            |session: &Arc<PooledSession>| session.session().is_some_and(|session| session.has_used(cpu));
        let spent: Vec<_> = sessions.into_iter().filter(is_spent).collect();
        let mut state = self.state();
        let is_unneeded = |session: &Arc<PooledSession>| {
            session.is_unneeded(idle) || spent.iter().any(|spent| Arc::ptr_eq(spent, session))
        };
        let unneeded: Vec<_> = state
            .sessions
            .extract_if(|_, session| is_unneeded(session))
            .map(|(_, session)| session)
            .collect();
        unneeded.iter().for_each(|session| state.retire(session));
        state.remove_ended();
        drop(state);
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.make_room();
        }
    }

    /// Ends all sessions, also retired ones. None is started any more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.sessions.clear();
        state.retired.clear();
        drop(state);
        self.runner.cancel();
    }
}

/// Whom to tell of the start of a session.
type StartSender = watch::Sender<Option<Result<Arc<Session>, StartFault>>>;

#[cfg(test)]
#[path = "session_pool_tests.rs"]
mod tests;
