//! Reads the configuration again while calls go on (docs/decisions/0020-reloading.md). What it says is put in force as a
//! whole when a start would be ready by it: its plugins connected, its issuers' keys there. A mistake, or a required
//! plugin that isn't there, leaves what is in force as it is.

use std::sync::Arc;

use tokio::{
    sync::{Notify, watch},
    time::{Duration, Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{Generation, Missing, Publisher, Source, Workshop};
use crate::{
    config::{Config, Problems},
    ingress::{applied::Applied, call::Gateway},
    telemetry::Telemetry,
    upstream::{PluginClient, State},
};

/// How often it is looked whether a candidate's plugins are there.
const LOOK: Duration = Duration::from_millis(20);
/// Most problems that are logged one by one.
const MOST_LOGGED: usize = 20;

/// Keeps what is in force up to date with the file and with the plugins' manifests.
pub(super) struct Reload {
    workshop: Arc<Workshop>,
    gateway: Arc<Gateway>,
    publisher: Publisher,
    source: Option<Arc<Source>>,
    again: Arc<Notify>,
    /// What the process was started with: some of it holds until its end.
    started: Arc<Config>,
    candidate: Option<Candidate>,
    ended: CancellationToken,
}

/// A configuration that is right, and waits for its plugins and keys.
struct Candidate {
    generation: Arc<Generation>,
    since: Instant,
    /// Whether it was said what it waits for.
    told: bool,
}

/// Where a candidate stands.
enum Standing {
    Ready,
    Waiting,
    /// It may still become ready; for now somebody has to know.
    Held(String),
}

impl Reload {
    /// Follows `source`, where there is one, and what is in force of `publisher`, until `ended`.
    pub(super) fn new(
        workshop: Arc<Workshop>,
        gateway: Arc<Gateway>,
        publisher: Publisher,
        source: Option<Source>,
        ended: CancellationToken,
    ) -> Self {
        let started = Arc::clone(&publisher.current().config);
        let (source, again) = (source.map(Arc::new), Arc::default());
        Reload { workshop, gateway, publisher, source, again, started, candidate: None, ended }
    }

    /// Has the file read again when `hangups` say so, or when it changed.
    pub(super) fn listen(&self, hangups: tokio::signal::unix::Signal) {
        let Some(source) = self.source.clone() else { return };
        let (again, ended) = (Arc::clone(&self.again), self.ended.clone());
        tokio::spawn(async move { source.follow(hangups, again, ended).await });
    }

    /// What publishes.
    pub(super) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Works for ever. Dropped, it leaves everything in order.
    pub(super) async fn run(&mut self, mut changes: watch::Receiver<u64>) {
        loop {
            tokio::select! {
                () = self.again.notified() => self.read().await,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.publisher.refresh();
                }
                () = sleep(LOOK), if self.candidate.is_some() => self.look(),
            }
        }
    }

    /// Gives up what waits, at the end.
    pub(super) fn give_up(&mut self) {
        if let Some(candidate) = self.candidate.take() {
            self.publisher.abandon(&candidate.generation);
        }
    }

    /// Reads the file. What waited before is what the file said before.
    async fn read(&mut self) {
        let Some(source) = self.source.clone() else { return };
        let (workshop, current) = (Arc::clone(&self.workshop), Arc::clone(self.publisher.current()));
        let before = Arc::clone(&current);
        // Reads files, and a large table takes a while.
        let built = tokio::task::spawn_blocking(move || {
            let (loaded, _) = source.load(Telemetry::rehearse)?;
            workshop.build(loaded, Some(&before)).map(|(generation, _)| generation)
        });
        let built = built.await;
        self.give_up();
        match built {
            Ok(Ok(same)) if same.is(&current) => {
                tracing::info!("the configuration was read again and is as it was");
                self.gateway.set_applied(self.gateway.applied().whole());
            }
            Ok(Ok(generation)) => {
                generation.start(Some(&current), &self.ended);
                let generation = Arc::new(generation);
                self.candidate = Some(Candidate { generation, since: Instant::now(), told: false });
                self.look();
            }
            Ok(Err(problems)) => {
                log(&problems);
                self.refused(
                    problems.iter().map(|located| located.to_string().trim_end().to_owned()).collect(),
                );
            }
            Err(error) => {
                tracing::error!(event = "table.refused", %error, "reading the configuration failed");
                self.refused(vec![format!("reading the configuration failed: {error}")]);
            }
        }
    }

    /// Puts the candidate in force if it is ready.
    fn look(&mut self) {
        let Some(candidate) = &mut self.candidate else { return };
        match candidate.standing(self.publisher.current()) {
            Standing::Waiting => {}
            Standing::Held(why) => {
                if !std::mem::replace(&mut candidate.told, true) {
                    tracing::error!(event = "table.refused", "{why}; it is taken once that has passed");
                    self.refused(vec![why]);
                }
            }
            Standing::Ready => {
                let Some(candidate) = self.candidate.take() else { return };
                self.adopt(candidate.generation);
            }
        }
    }

    fn adopt(&mut self, generation: Arc<Generation>) {
        let at_restart = self.started.waits_for_restart(&generation.config);
        if let Err(problems) = self.publisher.adopt(Arc::clone(&generation)) {
            let said = |problem: &crate::config::Problem| format!("{}: {}", problem.pointer, problem.message);
            self.refused(problems.iter().map(said).collect());
            return self.publisher.abandon(&generation);
        }
        if !at_restart.is_empty() {
            let keys = at_restart.join(", ");
            tracing::warn!(keys, "the process has to be started again for these keys to take effect");
        }
        self.gateway.set_applied(Applied::now(at_restart));
    }

    fn refused(&self, problems: Vec<String>) {
        self.gateway.set_applied(self.gateway.applied().but(problems));
    }
}

impl Candidate {
    /// `before`: what is in force, and serves as long as this one doesn't.
    fn standing(&self, before: &Generation) -> Standing {
        let config = &self.generation.config;
        let is_late = self.since.elapsed() >= config.startup.wait.0;
        let mut is_waiting = false;
        for (plugin, client) in self.generation.fresh(Some(before)).filter(|(plugin, _)| plugin.enabled) {
            match is_there(client, config.requires(plugin), is_late) {
                Some(true) => {}
                Some(false) => return Standing::Held(Missing::new(client).to_string()),
                None => is_waiting = true,
            }
        }
        if !self.generation.has_keys() {
            if is_late {
                return Standing::Held(
                    "an issuer has no keys: see the log for why they can't be fetched".into(),
                );
            }
            is_waiting = true;
        }
        if is_waiting { Standing::Waiting } else { Standing::Ready }
    }
}

/// Whether the table can do with the plugin as it is; none: it is on its way. An optional one that was tried and isn't
/// there holds nothing up.
fn is_there(client: &PluginClient, is_required: bool, is_late: bool) -> Option<bool> {
    match client.status().state {
        State::Ready | State::Disabled => Some(true),
        State::Refused => Some(!is_required),
        State::Unhealthy if !is_required => Some(true),
        State::Unhealthy | State::Connecting | State::Pending | State::Draining => {
            is_late.then_some(!is_required)
        }
    }
}

fn log(problems: &Problems) {
    for located in problems.iter().take(MOST_LOGGED) {
        let (pointer, message, remedy) =
            (&located.problem.pointer, &located.problem.message, &located.problem.remedy);
        let (line, variable) = (located.position.map(|(line, _)| line), &located.variable);
        tracing::error!(event = "table.refused", line, variable, pointer, remedy, "{message}");
    }
    let problems = problems.count();
    tracing::error!(event = "table.refused", problems, "the configuration in force stays");
}
