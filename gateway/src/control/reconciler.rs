//! Reads the configuration again while calls go on (docs/decisions/0020-reloading.md), whether it is the file that changed
//! or the registry (docs/decisions/0025-registry.md). What it says is put in force as a whole when a start would be ready by it: its plugins connected, its issuers' keys there. A mistake, or a required
//! plugin that isn't there, leaves what is in force as it is.

use std::sync::Arc;

use tokio::{
    sync::{Notify, watch},
    task::{JoinError, JoinHandle},
    time::{Duration, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, Problems},
    control::{
        candidate::{Blocker, Candidate, Standing, Wait},
        desired_config::{DesiredConfig, LoadError, ReloadTrigger},
        generation::{Generation, RuntimeBuilder},
        pending_reloads::Asked,
        publisher::Publisher,
        readiness_gate::ReadinessGate,
        reload_requests::{Ask, ReloadReply, Wish},
    },
    registry::operations::invalid,
    snapshot::{SnapshotCell, reload_status::Applied},
    task::join::joined,
};

/// How often it is looked whether a candidate's plugins are there.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The same for one of which it was said what it waits for.
const BLOCKED_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Most problems that are logged one by one.
const MAX_LOGGED_PROBLEMS: usize = 20;

/// Keeps what is in force up to date with the file and with the plugins' manifests.
pub(crate) struct Reload {
    workshop: Arc<RuntimeBuilder>,
    snapshots: Arc<SnapshotCell>,
    publisher: Publisher,
    origin: Option<Arc<DesiredConfig>>,
    /// The file is to be read.
    again: Arc<Notify>,
    /// The registry is.
    moved: Arc<Notify>,
    /// Operators want it, and wait for what comes of it.
    asked: Asked,
    /// The file could not be written to the registry, and is to be read with it.
    is_behind: bool,
    /// What the process was started with: some of it holds until its end.
    started: Arc<Config>,
    /// Of the start, which the registry's plugins may hold up.
    ending: ReadinessGate,
    candidate: Option<Candidate>,
    /// None: what was read last is in force, or refused.
    wait: Option<Wait>,
    /// One of the two is being read.
    reading: Option<JoinHandle<Read>>,
    ended: CancellationToken,
}

/// What was read.
struct Read {
    occasion: ReloadTrigger,
    /// What it took over from.
    before: Vec<Arc<Generation>>,
    generation: Result<Arc<Generation>, LoadError>,
}

impl Reload {
    /// Follows `origin`, where there is one, and what is in force of `publisher`, until `ended`.
    pub(crate) fn new(
        workshop: Arc<RuntimeBuilder>,
        snapshots: Arc<SnapshotCell>,
        publisher: Publisher,
        origin: Option<Arc<DesiredConfig>>,
        asked: Asked,
        ending: ReadinessGate,
        ended: CancellationToken,
    ) -> Self {
        let started = Arc::clone(&publisher.current().config);
        Reload {
            workshop,
            snapshots,
            publisher,
            origin,
            again: Arc::default(),
            moved: Arc::default(),
            asked,
            is_behind: false,
            started,
            ending,
            candidate: None,
            wait: None,
            reading: None,
            ended,
        }
    }

    /// Has the file read again when `hangups` say so, or when it changed.
    pub(crate) fn listen(&self, hangups: tokio::signal::unix::Signal) {
        let Some(origin) = self.origin.clone() else { return };
        let (again, ended) = (Arc::clone(&self.again), self.ended.clone());
        tokio::spawn(async move { origin.source().follow(hangups, again, ended).await });
    }

    /// Has the registry read again when others have written to it.
    pub(crate) fn follow(&self) {
        if let Some(origin) = &self.origin {
            origin.follow(&self.moved, &self.ended);
        }
    }

    /// What publishes.
    pub(crate) fn publisher(&mut self) -> &mut Publisher {
        &mut self.publisher
    }

    /// Lets go of where it reads from, at the end.
    pub(crate) async fn close(&self) {
        if let Some(origin) = &self.origin {
            origin.close().await;
        }
    }

    /// Works for ever. Dropped, it leaves everything in order.
    pub(crate) async fn run(&mut self, mut changes: watch::Receiver<u64>) {
        loop {
            if !self.ending.is_over() {
                self.publisher.catch_up().await;
            }
            self.ending.look(self.publisher.current()).await;
            let until_look = self.until_look();
            tokio::select! {
                () = self.again.notified(), if self.reading.is_none() => self.read(ReloadTrigger::File),
                () = self.moved.notified(), if self.reading.is_none() => self.read(ReloadTrigger::Registry),
                ask = self.asked.next(), if self.reading.is_none() => self.begin(ask),
                // A file system may hang: what is in force goes on following its plugins.
                Some(read) = ended(&mut self.reading) => self.take(read).await,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.publisher.refresh().await;
                    self.look().await;
                }
                () = sleep(until_look), if self.candidate.is_some() => self.look().await,
                () = self.publisher.due() => self.publisher.refresh().await,
            }
        }
    }

    /// Of changes of plugins it hears; time passes and keys come without a word.
    fn until_look(&self) -> Duration {
        match &self.wait {
            // It may take hours.
            Some(wait) if wait.is_told() => BLOCKED_POLL_INTERVAL,
            _ => POLL_INTERVAL,
        }
    }

    /// Gives up what waits, at the end.
    pub(crate) fn give_up(&mut self) {
        self.asked.close();
        self.replace_candidate(None);
        self.snapshots.settle();
    }

    /// Begins to do what an operator asks for.
    fn begin(&mut self, ask: Ask) {
        let occasion = match &ask.wish {
            Wish::Reload => Some(ReloadTrigger::File),
            Wish::Retry(name) => self.workshop.refusals.forget(name).then_some(ReloadTrigger::Registry),
        };
        match occasion.filter(|_| self.origin.is_some()) {
            Some(occasion) => {
                self.asked.keep(ask);
                self.read(occasion);
            }
            None => ask.tell(ReloadReply::Settled { changed: false, rejected: Vec::new() }),
        }
    }

    /// Begins to read.
    fn read(&mut self, occasion: ReloadTrigger) {
        let Some(origin) = self.origin.clone() else { return };
        let occasion = if self.is_behind { ReloadTrigger::File } else { occasion };
        let (workshop, before) = (Arc::clone(&self.workshop), self.before());
        self.reading = Some(tokio::spawn(async move {
            let generation = generation(&origin, occasion, &workshop, &before).await;
            Read { occasion, before, generation }
        }));
    }

    /// What another configuration takes over from.
    fn before(&self) -> Vec<Arc<Generation>> {
        let candidate = self.candidate.iter().map(|candidate| &candidate.generation);
        [self.publisher.current()].into_iter().chain(candidate).cloned().collect()
    }

    /// Takes what was read. What waited before is what was said before.
    async fn take(&mut self, read: Result<Read, JoinError>) {
        let Read { occasion, before, generation } = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(event = "config.rejected", %error, "reading the configuration failed");
                self.replace_candidate(None);
                let why = format!("reading the configuration failed: {error}");
                self.asked.tell(&ReloadReply::Failed(why.clone()));
                return self.refused(vec![why]);
            }
        };
        let now = self.before();
        if before.len() != now.len() || !before.iter().zip(&now).all(|(then, now)| Arc::ptr_eq(then, now)) {
            // The candidate came into force meanwhile, or was given up: clients that this one would take over are let go of.
            return match occasion {
                ReloadTrigger::File => self.again.notify_one(),
                ReloadTrigger::Registry => self.moved.notify_one(),
            };
        }
        if occasion == ReloadTrigger::File {
            self.is_behind = matches!(generation, Err(LoadError::Later(_)));
        }
        match generation {
            Ok(same) if same.is(self.publisher.current()) => {
                self.replace_candidate(None);
                self.snapshots.set_applied(self.snapshots.applied().whole());
                self.settled(&same, false);
                if occasion == ReloadTrigger::File {
                    tracing::info!("the configuration was reloaded and has not changed");
                }
            }
            Ok(same) if self.candidate.as_ref().is_some_and(|waits| same.is(&waits.generation)) => {
                tracing::info!(
                    "the configuration was reloaded and has not changed: it waits for its plugins"
                );
            }
            Ok(generation) => {
                generation.start(&before, &self.ended);
                // Whoever is the last to have what is in force until now lets go of it on another thread.
                drop(before);
                self.replace_candidate(Some(generation));
                self.look().await;
            }
            Err(LoadError::Later(why)) if occasion == ReloadTrigger::File => {
                self.asked.tell(&ReloadReply::Later(why.clone()));
                tracing::error!(event = "config.rejected", "{why}; the file is read again afterwards");
                self.refused(vec![why]);
            }
            // What is in force is what was read last.
            Err(LoadError::Later(why)) => self.asked.tell(&ReloadReply::Later(why)),
            Err(LoadError::Refused(problems)) => {
                self.replace_candidate(None);
                self.asked.tell(&ReloadReply::Refused(invalid(&problems)));
                self.refused(problems.printed());
                log(&problems);
            }
        }
    }

    /// Gives up what waits for `next`.
    fn replace_candidate(&mut self, next: Option<Arc<Generation>>) {
        let given_up = self.candidate.take();
        if let Some(given_up) = &given_up {
            self.publisher.abandon(&given_up.generation, next.as_ref());
        }
        self.publisher.expect(next.as_deref());
        match next {
            Some(generation) => {
                self.wait.get_or_insert_with(Wait::begun);
                let current = self.publisher.current();
                self.candidate = Some(Candidate::new(generation, given_up.as_ref(), current));
            }
            None => self.waiting_for(None),
        }
    }

    /// Shows what is waited for; none: nothing is.
    fn waiting_for(&mut self, what: Option<String>) {
        if what.is_none() {
            self.wait = None;
        }
        let applied = self.snapshots.applied();
        if applied.waiting_for != what {
            self.snapshots.set_applied(applied.waiting(what));
        }
    }

    /// Puts the candidate in force if it is ready.
    async fn look(&mut self) {
        let (Some(candidate), Some(wait)) = (&self.candidate, &self.wait) else { return };
        let is_late = wait.is_late(candidate.generation.config.startup.wait.0);
        match candidate.standing(self.publisher.current(), self.ending.is_over()) {
            Standing::Waiting(what) if is_late => self.held(&what),
            Standing::Waiting(what) => self.waiting(&what),
            Standing::Held(what) => self.held(&what),
            Standing::Ready
                if self.workshop.refusals.note(&candidate.generation, self.publisher.current()) =>
            {
                // Made once more, by what is known now.
                self.replace_candidate(None);
                self.moved.notify_one();
            }
            Standing::Ready => {
                let generation = Arc::clone(&candidate.generation);
                self.adopt(generation).await;
            }
        }
    }

    /// For a while, as it may.
    fn waiting(&mut self, what: &Blocker) {
        self.asked.tell_late(&what.in_full());
        if !self.wait.as_ref().is_some_and(Wait::is_noticed) {
            return;
        }
        self.waiting_for(Some(what.in_full()));
        let noted = self.candidate.as_mut().map(|candidate| std::mem::replace(&mut candidate.noted, true));
        if noted == Some(false) {
            tracing::info!("a changed configuration is pending: waiting for {}", what.what);
        }
    }

    /// For longer than that.
    fn held(&mut self, what: &Blocker) {
        self.asked.tell(&ReloadReply::Waiting(what.in_full()));
        let is_news = self.wait.as_mut().is_some_and(|wait| wait.tells(what));
        self.waiting_for(Some(what.in_full()));
        if is_news {
            self.refused(vec![what.why.clone()]);
            tracing::error!(event = "config.rejected", "{}; it becomes active afterwards", what.why);
        }
    }

    /// It stays the candidate until it is in force: given up before, it is let go of as any other.
    async fn adopt(&mut self, generation: Arc<Generation>) {
        let restart_required = self.started.waits_for_restart(&generation.config);
        let adopted = self.publisher.adopt(Arc::clone(&generation)).await;
        (self.candidate, self.wait) = (None, None);
        if let Err(problems) = adopted {
            self.waiting_for(None);
            let said = |problem: &crate::config::Problem| format!("{}: {}", problem.pointer, problem.message);
            let problems: Vec<_> = problems.iter().map(said).collect();
            self.asked.tell(&ReloadReply::Failed(problems.join("; ")));
            self.refused(problems);
            return self.publisher.abandon(&generation, None);
        }
        let keys = restart_required.join(", ");
        self.snapshots.set_applied(Applied::now(restart_required));
        self.settled(&generation, true);
        if !keys.is_empty() {
            tracing::warn!(keys, "restart the process to apply changes of these keys");
        }
    }

    /// `generation` is in force, but for the entries that plugins refuse; `changed`: since now.
    fn settled(&mut self, generation: &Generation, changed: bool) {
        let rejected: Vec<_> = generation.held_back.iter().map(|held| held.why.clone()).collect();
        if !rejected.is_empty() {
            self.refused(rejected.clone());
        }
        self.asked.tell(&ReloadReply::Settled { changed, rejected });
    }

    /// Before it is logged, so that whoever reads of it there finds it in the status.
    fn refused(&self, problems: Vec<String>) {
        self.snapshots.set_applied(self.snapshots.applied().but(problems));
    }
}

/// What `origin` wants now.
async fn generation(
    origin: &Arc<DesiredConfig>,
    occasion: ReloadTrigger,
    workshop: &Arc<RuntimeBuilder>,
    before: &[Arc<Generation>],
) -> Result<Arc<Generation>, LoadError> {
    let (loaded, basis) = origin.again(occasion, workshop, before).await?;
    let (workshop, before) = (Arc::clone(workshop), before.to_vec());
    // A large table takes a while.
    let built = joined(tokio::task::spawn_blocking(move || workshop.build(loaded, basis, &before))).await;
    built.map(|built| Arc::new(built.generation)).map_err(LoadError::Refused)
}

/// What came of what is under way; none: nothing is.
async fn ended<T>(under_way: &mut Option<JoinHandle<T>>) -> Option<Result<T, JoinError>> {
    let result = under_way.as_mut()?.await;
    *under_way = None;
    Some(result)
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
