//! Reads the configuration again during operation, when the file changed (docs/decisions/0020-reloading.md)
//! or the registry did (docs/decisions/0025-registry.md). A new configuration becomes active as a whole, and
//! only when a start with it would be ready: plugins connected, issuers' keys fetched. If it has a mistake or
//! lacks a required plugin, the active one stays. `ReloadState` is the state machine.

use std::sync::Arc;

use tokio::{
    sync::{Notify, watch},
    task::JoinError,
    time::{Duration, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::{
    config::{Config, Problems},
    control::{
        candidate::{Blocker, CandidateStatus},
        desired_config::{DesiredConfig, LoadError, ReloadTrigger},
        generation::{Generation, RuntimeBuilder},
        pending_reloads::PendingReloads,
        publisher::Publisher,
        readiness_gate::ReadinessGate,
        reload_requests::{ReloadCommand, ReloadReply, ReloadRequest},
        reload_span::{ReloadOutcome, ReloadSpan},
        reload_state::{PendingConfig, ReloadState},
    },
    snapshot::{SnapshotCell, reload_status::ReloadStatus},
    task::join::joined,
};

/// How often a pending configuration is checked for keys and waiting time.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The same once operators know what it waits for.
const BLOCKED_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Most problems that are logged one by one.
const MAX_LOGGED_PROBLEMS: usize = 20;

/// Keeps what is active up to date with the file, the registry and the plugins' manifests.
pub(crate) struct Reconciler {
    workshop: Arc<RuntimeBuilder>,
    snapshots: Arc<SnapshotCell>,
    publisher: Publisher,
    desired: Option<Arc<DesiredConfig>>,
    /// Notified when the file should be read.
    file_changed: Arc<Notify>,
    /// Notified when the registry should be read.
    registry_changed: Arc<Notify>,
    /// Reloads that operators requested and wait for.
    requests: PendingReloads,
    /// The file could not be written to the registry yet, so the next load includes it.
    file_is_unwritten: bool,
    /// The configuration at the start of the process: some keys need a restart.
    started: Arc<Config>,
    /// Readiness of the start, which plugins of the registry may delay.
    readiness_gate: ReadinessGate,
    state: ReloadState<LoadResult>,
    ended: CancellationToken,
}

/// The result of reading and building.
struct LoadResult {
    trigger: ReloadTrigger,
    /// The generations it was built from.
    before: Vec<Arc<Generation>>,
    generation: Result<Arc<Generation>, LoadError>,
    span: ReloadSpan,
}

impl Reconciler {
    /// Follows `desired`, if there is one, and the manifests of the published generation, until `ended`.
    pub(crate) fn new(
        workshop: Arc<RuntimeBuilder>,
        snapshots: Arc<SnapshotCell>,
        publisher: Publisher,
        desired: Option<Arc<DesiredConfig>>,
        requests: PendingReloads,
        readiness_gate: ReadinessGate,
        ended: CancellationToken,
    ) -> Self {
        let started = Arc::clone(&publisher.current().config);
        Reconciler {
            workshop,
            snapshots,
            publisher,
            desired,
            file_changed: Arc::default(),
            registry_changed: Arc::default(),
            requests,
            file_is_unwritten: false,
            started,
            readiness_gate,
            state: ReloadState::default(),
            ended,
        }
    }

    /// Reloads the file on each of `hangups` and when the file changes.
    pub(crate) fn listen(&self, hangups: tokio::signal::unix::Signal) {
        let Some(desired) = self.desired.clone() else { return };
        let (file_changed, ended) = (Arc::clone(&self.file_changed), self.ended.clone());
        tokio::spawn(async move { desired.source().follow(hangups, file_changed, ended).await });
    }

    /// Reads the registry again after another gateway wrote to it.
    pub(crate) fn follow(&self) {
        if let Some(desired) = &self.desired {
            desired.follow(&self.registry_changed, &self.ended);
        }
    }

    /// The publisher.
    pub(crate) fn publisher(&mut self) -> &mut Publisher {
        &mut self.publisher
    }

    /// Closes the store, at the end.
    pub(crate) async fn close(&self) {
        if let Some(desired) = &self.desired {
            desired.close().await;
        }
    }

    /// Runs for ever. Can be dropped at any time.
    pub(crate) async fn run(&mut self, mut changes: watch::Receiver<u64>) {
        loop {
            if !self.readiness_gate.is_over() {
                self.publisher.catch_up().await;
            }
            self.readiness_gate.look(self.publisher.current()).await;
            let (until_look, is_loading) = (self.until_look(), self.state.is_loading());
            let is_pending = self.state.pending().is_some();
            tokio::select! {
                () = self.file_changed.notified(), if !is_loading => self.load(ReloadTrigger::File),
                () = self.registry_changed.notified(), if !is_loading => self.load(ReloadTrigger::Registry),
                request = self.requests.next(), if !is_loading => self.begin(request),
                // A file system may hang; meanwhile the active configuration still follows its plugins.
                Some(loaded) = self.state.loaded() => self.loaded(loaded).await,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.publisher.refresh().await;
                    self.check_pending().await;
                }
                () = sleep(until_look), if is_pending => self.check_pending().await,
                () = self.publisher.due() => self.publisher.refresh().await,
            }
        }
    }

    /// Plugins notify of changes, but time and keys have to be polled.
    fn until_look(&self) -> Duration {
        match self.state.pending() {
            // This may take hours.
            Some(pending) if pending.wait.is_told() => BLOCKED_POLL_INTERVAL,
            _ => POLL_INTERVAL,
        }
    }

    /// Gives up the pending configuration, at the end.
    pub(crate) fn give_up(&mut self) {
        self.requests.close();
        self.replace_pending(None);
        self.snapshots.settle();
    }

    /// Starts what an operator requested.
    fn begin(&mut self, request: ReloadRequest) {
        let trigger = match &request.command {
            ReloadCommand::Reload => Some(ReloadTrigger::File),
            ReloadCommand::Retry(name) => {
                self.workshop.refusals.forget(name).then_some(ReloadTrigger::Registry)
            }
        };
        match trigger.filter(|_| self.desired.is_some()) {
            Some(trigger) => {
                self.requests.keep(request);
                self.load(trigger);
            }
            None => request.tell(ReloadReply::Settled { changed: false, rejected: Vec::new() }),
        }
    }

    /// Starts a load.
    fn load(&mut self, trigger: ReloadTrigger) {
        let Some(desired) = self.desired.clone() else { return };
        let trigger = if self.file_is_unwritten { ReloadTrigger::File } else { trigger };
        let (workshop, before) = (Arc::clone(&self.workshop), self.generations());
        self.state.start_load(tokio::spawn(async move {
            let span = ReloadSpan::new(trigger);
            let reading = generation(&desired, trigger, &workshop, &before);
            let generation = reading.instrument(span.span().clone()).await;
            LoadResult { trigger, before, generation, span }
        }));
    }

    /// The generations whose clients and keys a new one may reuse: the active and the pending one.
    fn generations(&self) -> Vec<Arc<Generation>> {
        let pending = self.state.pending().map(|pending| &pending.candidate.generation);
        [self.publisher.current()].into_iter().chain(pending).cloned().collect()
    }

    /// Handles the result of a load.
    async fn loaded(&mut self, loaded: Result<LoadResult, JoinError>) {
        let LoadResult { trigger, before, generation, span } = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::error!(event = "config.rejected", %error, "reading the configuration failed");
                self.replace_pending(None);
                let why = format!("reading the configuration failed: {error}");
                self.requests.tell(&ReloadReply::Failed(why.clone()));
                return self.reject(vec![why]);
            }
        };
        let now = self.generations();
        if before.len() != now.len() || !before.iter().zip(&now).all(|(then, now)| Arc::ptr_eq(then, now)) {
            // The configuration that was pending has become active or was given up since, and clients that
            // this one reused are being retired.
            return match trigger {
                ReloadTrigger::File => self.file_changed.notify_one(),
                ReloadTrigger::Registry => self.registry_changed.notify_one(),
            };
        }
        if trigger == ReloadTrigger::File {
            self.file_is_unwritten = matches!(generation, Err(LoadError::Later(_)));
        }
        match generation {
            Ok(same) if same.is(self.publisher.current()) => {
                self.replace_pending(None);
                self.snapshots.set_reload_status(self.snapshots.reload_status().whole());
                self.note_settled(&same, false);
                span.end(ReloadOutcome::Unchanged);
                if trigger == ReloadTrigger::File {
                    tracing::info!("the configuration was reloaded and has not changed");
                }
            }
            Ok(same) if self.is_pending(&same) => {
                span.end(ReloadOutcome::Unchanged);
                tracing::info!(
                    "the configuration was read again: the changed one still waits for its plugins"
                );
            }
            Ok(generation) => {
                generation.start(&before, &self.ended);
                // The publisher must be the last holder of the active generation, because it drops it on
                // another thread.
                drop((before, now));
                self.replace_pending(Some((generation, span)));
                self.check_pending().await;
            }
            Err(LoadError::Later(why)) => {
                span.end(ReloadOutcome::Unavailable);
                self.defer(trigger, why);
            }
            Err(LoadError::Refused(problems)) => {
                span.end(ReloadOutcome::Rejected);
                self.replace_pending(None);
                self.requests.tell(&ReloadReply::Refused(problems.clone()));
                self.reject(problems.printed());
                log(&problems);
            }
        }
    }

    fn is_pending(&self, generation: &Generation) -> bool {
        self.state.pending().is_some_and(|pending| generation.is(&pending.candidate.generation))
    }

    /// Waits for the store, which can't be reached.
    fn defer(&mut self, trigger: ReloadTrigger, why: String) {
        self.requests.tell(&ReloadReply::Later(why.clone()));
        // Without a changed file, the active configuration is the last one read.
        if trigger == ReloadTrigger::File {
            tracing::error!(event = "config.rejected", "{why}; the file is read again afterwards");
            self.reject(vec![why]);
        }
    }

    /// Gives up the pending configuration for `next`.
    fn replace_pending(&mut self, next: Option<(Arc<Generation>, ReloadSpan)>) {
        let given_up = self.state.take_pending();
        let generation = next.as_ref().map(|(generation, _)| generation);
        if let Some(given_up) = &given_up {
            self.publisher.abandon(&given_up.candidate.generation, generation);
        }
        self.publisher.expect(generation.map(|generation| &**generation));
        match next {
            Some((generation, span)) => {
                let next = PendingConfig::new(generation, span, given_up, self.publisher.current());
                self.state.set_pending(next);
            }
            None => self.show_waiting_for(None),
        }
    }

    /// Shows in the status what is waited for, or that nothing is.
    fn show_waiting_for(&mut self, what: Option<String>) {
        let status = self.snapshots.reload_status();
        if status.waiting_for != what {
            self.snapshots.set_reload_status(status.waiting(what));
        }
    }

    /// Makes the pending configuration active if it is ready.
    async fn check_pending(&mut self) {
        let Some(PendingConfig { candidate, wait, .. }) = self.state.pending() else { return };
        let is_late = wait.is_late(candidate.generation.config.startup.wait.0);
        match candidate.status(self.publisher.current(), self.readiness_gate.is_over()) {
            CandidateStatus::Waiting(what) if is_late => self.show_blocked(&what),
            CandidateStatus::Waiting(what) => self.show_waiting(&what),
            CandidateStatus::Blocked(what) => self.show_blocked(&what),
            CandidateStatus::Ready
                if self.workshop.refusals.note(&candidate.generation, self.publisher.current()) =>
            {
                // Built again without the entries that plugins have just rejected.
                self.replace_pending(None);
                self.registry_changed.notify_one();
            }
            CandidateStatus::Ready => {
                let generation = Arc::clone(&candidate.generation);
                self.activate(generation).await;
            }
        }
    }

    /// Shows what is waited for, once the wait is noticeable.
    fn show_waiting(&mut self, what: &Blocker) {
        self.requests.tell_late(&what.in_full());
        let Some(pending) = self.state.pending_mut().filter(|pending| pending.wait.is_noticed()) else {
            return;
        };
        let is_news = !std::mem::replace(&mut pending.candidate.noted, true);
        self.show_waiting_for(Some(what.in_full()));
        if is_news {
            tracing::info!("a changed configuration is pending: waiting for {}", what.what);
        }
    }

    /// Reports the configuration as rejected for now: it has waited too long, or waits for something that
    /// needs an operator.
    fn show_blocked(&mut self, what: &Blocker) {
        self.requests.tell(&ReloadReply::Waiting(what.in_full()));
        let is_news = self.state.pending_mut().is_some_and(|pending| pending.wait.tells(what));
        self.show_waiting_for(Some(what.in_full()));
        if is_news {
            self.reject(vec![what.why.clone()]);
            tracing::error!(event = "config.rejected", "{}; it becomes active afterwards", what.why);
        }
    }

    /// Makes `generation` active. It stays pending meanwhile, so that a dropped call gives it up like any
    /// other.
    async fn activate(&mut self, generation: Arc<Generation>) {
        let restart_required = self.started.waits_for_restart(&generation.config);
        let span = self.state.pending().map_or_else(Span::none, |pending| pending.span.span().clone());
        let adopted = self.publisher.adopt(Arc::clone(&generation)).instrument(span).await;
        let span = self.state.take_pending().map(|pending| pending.span);
        if let Err(problems) = adopted {
            if let Some(span) = span {
                span.end(ReloadOutcome::Rejected);
            }
            self.show_waiting_for(None);
            let said = |problem: &crate::config::Problem| format!("{}: {}", problem.pointer, problem.message);
            let problems: Vec<_> = problems.iter().map(said).collect();
            self.requests.tell(&ReloadReply::Failed(problems.join("; ")));
            self.reject(problems);
            return self.publisher.abandon(&generation, None);
        }
        if let Some(span) = span {
            span.end_active(self.publisher.revision());
        }
        let keys = restart_required.join(", ");
        self.snapshots.set_reload_status(ReloadStatus::now(restart_required));
        self.note_settled(&generation, true);
        if !keys.is_empty() {
            tracing::warn!(keys, "restart the process to apply changes of these keys");
        }
    }

    /// Records that `generation` is active, apart from rejected entries. `changed` tells whether it became
    /// active just now.
    fn note_settled(&mut self, generation: &Generation, changed: bool) {
        let rejected: Vec<_> = generation.held_back.iter().map(|held| held.why.clone()).collect();
        if !rejected.is_empty() {
            self.reject(rejected.clone());
        }
        self.requests.tell(&ReloadReply::Settled { changed, rejected });
    }

    /// Sets the status before it logs, so that a reader of the log finds the rejection in the status.
    fn reject(&self, problems: Vec<String>) {
        self.snapshots.set_reload_status(self.snapshots.reload_status().but(problems));
    }
}

/// Reads and builds what `desired` gives now.
async fn generation(
    desired: &Arc<DesiredConfig>,
    trigger: ReloadTrigger,
    workshop: &Arc<RuntimeBuilder>,
    before: &[Arc<Generation>],
) -> Result<Arc<Generation>, LoadError> {
    let (loaded, basis) = desired.again(trigger, workshop, before).await?;
    let (workshop, before) = (Arc::clone(workshop), before.to_vec());
    // Building a large table takes a while.
    let built = joined(tokio::task::spawn_blocking(move || workshop.build(loaded, basis, &before))).await;
    built.map(|built| Arc::new(built.generation)).map_err(LoadError::Refused)
}

fn log(problems: &Problems) {
    for located in problems.iter().take(MAX_LOGGED_PROBLEMS) {
        let (pointer, message, remedy) =
            (&located.problem.pointer, &located.problem.message, &located.problem.remedy);
        let (line, variable) = (located.position.map(|(line, _)| line), &located.variable);
        tracing::error!(event = "config.rejected", line, variable, pointer, remedy, "{message}");
    }
    let problems = problems.count();
    tracing::error!(event = "config.rejected", problems, "the current configuration stays active");
}
