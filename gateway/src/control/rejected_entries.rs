//! Remembers plugin entries from the API that their plugins rejected. Such a plugin keeps its previous entry,
//! and the rest of the revision becomes active: the writer couldn't know, and other rules must not wait for
//! it.

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

/// After this time a rejected entry is tried again with the next change. A refused endpoint waits as long.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// An entry that its plugin rejected.
#[derive(Clone)]
pub(crate) struct EntryRejection {
    from: Arc<ClientInputs>,
    since: Instant,
    /// The reason, for operators.
    pub(crate) why: String,
    /// The reason in its parts.
    pub(crate) told: snapshot::RejectedEntry,
}

/// All known rejections.
#[derive(Default)]
pub(crate) struct PluginRejections(Mutex<Vec<EntryRejection>>);

impl PluginRejections {
    fn lock(&self) -> MutexGuard<'_, Vec<EntryRejection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the entries of `candidate` that plugins reject while `current` serves them with another
    /// entry. Returns whether there was any.
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

    /// Forgets the rejection by the plugin `name`, so that its entry is tried again. Returns whether there
    /// was one.
    pub(crate) fn forget(&self, name: &str) -> bool {
        let mut known = self.lock();
        let before = known.len();
        known.retain(|held| held.from.name() != name);
        known.len() < before
    }

    /// Whether no rejection is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The rejection of an entry with the inputs `from`.
    pub(crate) fn find(&self, from: &ClientInputs) -> Option<EntryRejection> {
        let known = self.lock();
        known.iter().find(|held| held.since.elapsed() < RETRY_INTERVAL && *held.from == *from).cloned()
    }
}

/// The entry of the plugin `name` in `config`.
pub(crate) fn entry(config: &Config, name: &str) -> Option<Arc<Plugin>> {
    config.plugins.iter().find(|plugin| plugin.name == name).cloned()
}
