//! A valid configuration that waits for its plugins and keys: how long it has waited, and how to describe
//! that.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::{
    control::{
        generation::Generation,
        readiness_gate::{MissingPlugin, is_from_registry, is_there},
    },
    upstream::PluginClient,
};

/// After this delay the status says what a changed configuration waits for.
const NOTICE_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct Candidate {
    pub(crate) generation: Arc<Generation>,
    /// The plugins that the configuration waits for, and since when.
    awaited: Vec<(Arc<PluginClient>, Instant)>,
    keys: Instant,
    /// Whether the log has said that the configuration waits.
    pub(crate) noted: bool,
}

/// Whether a candidate can become active.
pub(crate) enum CandidateStatus {
    Ready,
    Waiting(Blocker),
    /// May still become ready, but an operator should know.
    Blocked(Blocker),
}

/// What a candidate waits for.
pub(crate) struct Blocker {
    /// Completes the phrase "waits for". Unchanged while the candidate waits for the same thing.
    pub(crate) what: String,
    is_required: bool,
    /// The state of it, as a continuation of that phrase.
    how: String,
    /// The same as a full sentence.
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

    /// Completes the phrase "waits for", with all details.
    pub(crate) fn in_full(&self) -> String {
        format!("{}{}{}", if self.is_required { "required " } else { "" }, self.what, self.how)
    }
}

impl Candidate {
    /// A candidate that replaces `before` and keeps its waiting times. `snapshot` serves until the candidate
    /// is ready.
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

    /// `before` is active and serves meanwhile. `is_started` tells whether the gateway was ever ready. Until
    /// then, a plugin that the registry requires delays readiness but blocks no configuration, because the
    /// next one may be the repair.
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

/// Waiting of configurations that aren't active yet: from the first one that has to wait until one is active.
/// Further writes in between restart neither the time nor the messages.
pub(crate) struct Wait {
    since: Instant,
    told: Option<String>,
}

impl Wait {
    pub(crate) fn new() -> Self {
        Wait { since: Instant::now(), told: None }
    }

    /// Whether the wait is long enough to show.
    pub(crate) fn is_noticed(&self) -> bool {
        self.since.elapsed() >= NOTICE_DELAY
    }

    /// Whether the wait exceeds `patience`, whatever the reason.
    pub(crate) fn is_late(&self, patience: Duration) -> bool {
        self.since.elapsed() >= patience
    }

    /// Whether operators know of the wait, so that it can be polled less often.
    pub(crate) fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Records that operators are told of `what`. Returns whether that is news.
    pub(crate) fn tells(&mut self, what: &Blocker) -> bool {
        self.told.replace(what.what.clone()).is_none_or(|before| before != what.what)
    }
}
