//! Entries of plugins that were written through the API and that the plugin refuses: it goes on by the one before, and
//! everything else of the revision is taken. The writer could not know; other rules don't wait for it.

use crate::snapshot::{self, EntryRefusal};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    config::{Config, Plugin},
    control::generation::{ClientEntry, ClientInputs, Generation},
    core::object::Owner,
    upstream::State,
};

/// After which an entry is tried again with the next change: as long as a refused endpoint waits.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// An entry that its plugin refuses.
#[derive(Clone)]
pub(crate) struct EntryRejection {
    from: Arc<ClientInputs>,
    since: Instant,
    /// Why, for operators.
    pub(crate) why: String,
    /// The same in its parts.
    pub(crate) told: snapshot::RejectedEntry,
}

/// All that are known.
#[derive(Default)]
pub(crate) struct PluginRejections(Mutex<Vec<EntryRejection>>);

impl PluginRejections {
    fn lock(&self) -> MutexGuard<'_, Vec<EntryRejection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what plugins of `candidate` refuse while another entry of theirs is served in `current`. Says whether
    /// there was any.
    pub(crate) fn note(&self, candidate: &Generation, current: &Generation) -> bool {
        let mut known = self.lock();
        known.retain(|held| held.since.elapsed() < RETRY_INTERVAL);
        let before = known.len();
        for made in candidate.new_client_entries(current) {
            let (plugin, status) = (made.entry(), made.client.status());
            let serves =
                |before: &ClientEntry| before.entry().enabled && before.client.status().state == State::Ready;
            if plugin.owner == Owner::Api
                && status.state == State::Refused
                && current.client_entry(&plugin.name).is_some_and(serves)
            {
                let (name, reason, detail) = (&plugin.name, status.why.as_str(), &status.detail);
                let why = format!(
                    "plugin `{name}` rejected its new entry ({reason}: {detail}); keeping the previous one"
                );
                tracing::error!(event = "plugin.config_refused", plugin = name, reason, "{why}");
                let refusal = EntryRefusal { reason, detail: detail.clone() };
                let told = snapshot::RejectedEntry { plugin: name.clone(), refusal };
                known.push(EntryRejection { from: Arc::clone(&made.from), since: Instant::now(), why, told });
            }
        }
        known.len() > before
    }

    /// Forgets what the plugin `name` refuses: the next time it is asked again. Says whether anything was known of it.
    pub(crate) fn forget(&self, name: &str) -> bool {
        let mut known = self.lock();
        let before = known.len();
        known.retain(|held| held.from.name() != name);
        known.len() < before
    }

    /// Whether nothing is known to be refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The refusal of what `from` would make.
    pub(crate) fn find(&self, from: &ClientInputs) -> Option<EntryRejection> {
        let known = self.lock();
        known.iter().find(|held| held.since.elapsed() < RETRY_INTERVAL && *held.from == *from).cloned()
    }
}

/// The entry of the plugin `name` in `config`.
pub(crate) fn entry(config: &Config, name: &str) -> Option<Arc<Plugin>> {
    config.plugins.iter().find(|plugin| plugin.name == name).cloned()
}
