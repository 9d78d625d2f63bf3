//! A configuration that is right, and waits for its plugins and keys: since when, and what is to be said of that.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::{
    control::{
        generation::Generation,
        readiness_gate::{MissingPlugin, is_from_registry, is_there},
    },
    upstream::PluginClient,
};

/// Whoever changed the file, or wrote, begins to wonder.
const NOTICE_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct Candidate {
    pub(crate) generation: Arc<Generation>,
    /// Its plugins that have to be there, with the moment from which on each is waited for.
    awaited: Vec<(Arc<PluginClient>, Instant)>,
    keys: Instant,
    /// Whether it was said that it waits.
    pub(crate) noted: bool,
}

/// Whether a candidate can become active.
pub(crate) enum CandidateStatus {
    Ready,
    Waiting(Blocker),
    /// It may still become ready; for now somebody has to know.
    Blocked(Blocker),
}

/// What is waited for.
pub(crate) struct Blocker {
    /// As a sentence goes on behind "waits for". Stays the same as long as it is the same.
    pub(crate) what: String,
    is_required: bool,
    /// How that is, as the sentence goes on.
    how: String,
    /// The same as a sentence of its own.
    pub(crate) why: String,
}

impl Blocker {
    fn plugin(client: &PluginClient, is_required: bool) -> Self {
        let missing = MissingPlugin::new(client);
        let MissingPlugin { plugin, state, reason, detail } = &missing;
        let mut how = format!(", which is {state}");
        for more in [*reason, detail.as_str()].into_iter().filter(|more| !more.is_empty()) {
            how += &format!(": {more}");
        }
        let why = if is_required { missing.to_string() } else { format!("plugin '{plugin}'{how}") };
        Blocker { what: format!("plugin '{plugin}'"), is_required, how, why }
    }

    fn keys() -> Self {
        Blocker {
            what: "the keys of an issuer".to_owned(),
            is_required: false,
            how: ", which can't be fetched: see the log".to_owned(),
            why: "an issuer has no keys: see the log for why they can't be fetched".to_owned(),
        }
    }

    /// Behind "waits for".
    pub(crate) fn in_full(&self) -> String {
        format!("{}{}{}", if self.is_required { "required " } else { "" }, self.what, self.how)
    }
}

impl Candidate {
    /// In the place of `before`, with which it goes on waiting for what that waited for. `snapshot` serves until it is ready.
    pub(crate) fn new(
        generation: Arc<Generation>,
        before: Option<&Candidate>,
        snapshot: &Arc<Generation>,
    ) -> Self {
        let now = Instant::now();
        let since = |client: &Arc<PluginClient>| {
            let known = before.and_then(|before| before.since(client)).unwrap_or(now);
            (Arc::clone(client), known)
        };
        let awaited = generation.awaited_clients(snapshot).map(|(_, client)| since(client)).collect();
        let same_keys = before.filter(|before| generation.has_keys_of(&before.generation));
        let keys = same_keys.map_or(now, |before| before.keys);
        Candidate { generation, awaited, keys, noted: false }
    }

    fn since(&self, client: &Arc<PluginClient>) -> Option<Instant> {
        self.awaited.iter().find(|(awaited, _)| Arc::ptr_eq(awaited, client)).map(|(_, since)| *since)
    }

    /// `before`: what is in force, and serves as long as this one doesn't; `is_started`: it was ready once. Before, what
    /// the registry requires holds that up, and no table: the next one may be the one that mends it.
    pub(crate) fn status(&self, before: &Arc<Generation>, is_started: bool) -> CandidateStatus {
        let config = &self.generation.config;
        let is_late = |since: Instant| since.elapsed() >= config.startup.wait.0;
        let mut waits_for = None;
        for (plugin, client) in self.generation.awaited_clients(before) {
            let holds_up = is_started || !is_from_registry(config, plugin);
            let is_required = holds_up && self.generation.requires(&plugin.name);
            match is_there(client, is_required, self.since(client).is_some_and(is_late)) {
                Some(true) => {}
                Some(false) => return CandidateStatus::Blocked(Blocker::plugin(client, is_required)),
                None => waits_for = Some(Blocker::plugin(client, is_required)),
            }
        }
        if !self.generation.has_keys_after(before) {
            if is_late(self.keys) {
                return CandidateStatus::Blocked(Blocker::keys());
            }
            waits_for.get_or_insert_with(Blocker::keys);
        }
        waits_for.map_or(CandidateStatus::Ready, CandidateStatus::Waiting)
    }
}

/// What was read last isn't in force: from the first reading of which that is so to the next one that is in force. Another
/// write in between changes neither since when it is waited, nor what was said of it.
pub(crate) struct Wait {
    since: Instant,
    told: Option<String>,
}

impl Wait {
    pub(crate) fn new() -> Self {
        Wait { since: Instant::now(), told: None }
    }

    /// Whether it takes long enough for somebody to wonder.
    pub(crate) fn is_noticed(&self) -> bool {
        self.since.elapsed() >= NOTICE_DELAY
    }

    /// Whether operators have to be told after `patience`, for whatever reasons it took that long.
    pub(crate) fn is_late(&self, patience: Duration) -> bool {
        self.since.elapsed() >= patience
    }

    /// Whether somebody was told, so that nobody looks at it all the time.
    pub(crate) fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Whether operators weren't told yet that `what` is waited for.
    pub(crate) fn tells(&mut self, what: &Blocker) -> bool {
        self.told.replace(what.what.clone()).is_none_or(|before| before != what.what)
    }
}
