//! Puts configurations in force, and a new routing table of the same configuration whenever the plugins' accepted
//! manifests change, or a bypass ends.

use std::{slice, sync::Arc};

use arc_swap::ArcSwap;
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use crate::{
    config::{Bypass, Config, Problem},
    control::{
        active_bypasses::ActiveBypasses,
        client_drain::DrainingClients,
        generation::{AcceptedManifests, ConfigBasis, Generation, RuntimeBuilder},
    },
    registry::{Contents, Registry, bypass},
    routing::RouteTable,
    snapshot::SnapshotCell,
    task::{drop_off_thread::drop_off_thread, join::joined},
};

/// Of the configuration that a process starts with.
pub(crate) const FIRST_REVISION: u64 = 1;

/// The snapshots of a process that starts with `first`, whose table has no manifests yet.
pub(crate) fn snapshots(workshop: &RuntimeBuilder, first: &Generation) -> SnapshotCell {
    workshop.telemetry.configured(&first.config);
    SnapshotCell::new(workshop.to_snapshot(
        first,
        Arc::clone(&first.config),
        RouteTable::clone(&first.table.load()),
    ))
}

/// The one who publishes.
pub(crate) struct Publisher {
    workshop: Arc<RuntimeBuilder>,
    snapshots: Arc<SnapshotCell>,
    current: Arc<Generation>,
    /// The same, for the dry run of a change.
    seen: Arc<ArcSwap<Generation>>,
    /// Those of the table in force.
    manifests: AcceptedManifests,
    /// The same.
    bypassed: ActiveBypasses,
    /// What is in force was made of these. Their bypasses are those that were read last, whatever else of that is waited for.
    contents: Arc<Contents>,
    registry: Option<RegistryUpdates>,
    revision: u64,
    draining: DrainingClients,
}

/// The registry, and whether something else was read of it.
struct RegistryUpdates {
    registry: Arc<Registry>,
    news: watch::Receiver<()>,
}

impl RegistryUpdates {
    fn new(registry: &Arc<Registry>) -> Self {
        RegistryUpdates { news: registry.news(), registry: Arc::clone(registry) }
    }
}

impl Publisher {
    /// A publisher for `snapshots`, which is [`snapshots`] of what `seen` holds, and shows there what is in force.
    pub(crate) fn new(
        workshop: Arc<RuntimeBuilder>,
        snapshots: Arc<SnapshotCell>,
        seen: Arc<ArcSwap<Generation>>,
        registry: Option<&Arc<Registry>>,
    ) -> Self {
        let first = seen.load_full();
        let manifests = vec![None; first.clients().count()];
        let revision = first.basis.revision().unwrap_or(FIRST_REVISION);
        let (bypassed, draining) = (ActiveBypasses::default(), DrainingClients::new(Arc::clone(&snapshots)));
        draining.set_in_use([&*first].into_iter());
        let (contents, registry) = (first.basis.contents(), registry.map(RegistryUpdates::new));
        let current = first;
        let publisher = Publisher {
            workshop,
            snapshots,
            current,
            seen,
            manifests,
            bypassed,
            contents,
            registry,
            revision,
            draining,
        };
        publisher.keep();
        publisher
    }

    /// What is in force.
    pub(crate) fn current(&self) -> &Arc<Generation> {
        &self.current
    }

    /// The clients that were replaced.
    pub(crate) fn draining(&self) -> &DrainingClients {
        &self.draining
    }

    /// Until [`Publisher::refresh`] has to be called, whatever happens: a bypass ends, or somebody wrote one.
    pub(crate) async fn due(&mut self) {
        let until = self.bypassed.again;
        let news = async {
            let heard = match &mut self.registry {
                Some(RegistryUpdates { news, .. }) => news.changed().await.is_ok(),
                None => false,
            };
            if !heard {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = sleep_until_moment(until) => {}
            () = news => {}
        }
    }

    /// Puts a table with the manifests and the bypasses of this moment in force, unless it is already.
    pub(crate) async fn refresh(&mut self) {
        let contents = self.as_read_last(&self.contents);
        if !Arc::ptr_eq(&self.contents, &contents) {
            self.contents = contents;
            self.keep();
        }
        let now = self.current.manifests();
        let bypassed = self.workshop.bypasses.active(&self.contents);
        if same(&self.manifests, &now) && self.bypassed.bypasses == bypassed.bypasses {
            self.bypassed = bypassed;
            return;
        }
        let (current, contents) = (Arc::clone(&self.current), Arc::clone(&self.contents));
        if let Err(problems) = self.publish(&current, &contents, now.clone(), self.revision).await {
            log_refused(&problems);
            self.bypassed.again = bypassed.again;
        }
        // Not tried again with the same manifests.
        self.manifests = now;
    }

    /// The same by all that is known of the plugins: one may have come while the table was made, which has no step of it then.
    pub(crate) async fn catch_up(&mut self) {
        self.refresh().await;
        while !same(&self.manifests, &self.current.manifests()) {
            self.refresh().await;
        }
    }

    /// Works for ever: nothing but bypasses changes what is in force.
    pub(crate) async fn keep_time(&mut self) {
        loop {
            self.due().await;
            self.refresh().await;
        }
    }

    /// `contents` with the bypasses that were read last.
    fn as_read_last(&self, contents: &Arc<Contents>) -> Arc<Contents> {
        match &self.registry {
            Some(RegistryUpdates { registry, .. }) => bypass::as_in(&registry.contents(), contents),
            None => Arc::clone(contents),
        }
    }

    /// Has what is in force kept for a start without the registry.
    fn keep(&self) {
        if let (Some(RegistryUpdates { registry, .. }), ConfigBasis::Registry(_)) =
            (&self.registry, &self.current.basis)
        {
            registry.keep(Arc::clone(&self.contents));
        }
    }

    /// Puts `next` in force under the registry's revision, or else under a new one, and lets go of the plugins that it has no more.
    ///
    /// # Errors
    /// The table can't be built; everything stays as it is.
    pub(crate) async fn adopt(&mut self, next: Arc<Generation>) -> Result<(), Vec<Problem>> {
        self.workshop.telemetry.configured(&next.config);
        let revision = next.basis.revision().unwrap_or(self.revision + 1);
        let contents = self.as_read_last(&next.basis.contents());
        self.publish(&next, &contents, next.manifests(), revision).await?;
        self.seen.store(Arc::clone(&next));
        let before = std::mem::replace(&mut self.current, next);
        self.contents = contents;
        self.keep();
        self.expect(None);
        for (plugin, fresh) in self.current.fresh(slice::from_ref(&before)) {
            let name = &*plugin.name;
            let Some(old) = before.client(name) else {
                fresh.log_registered();
                continue;
            };
            fresh.add_dropped(old.observers_dropped());
            let was_enabled = before.config.plugins.iter().any(|old| old.name == *name && old.enabled);
            let (event, message) = match (was_enabled, plugin.enabled) {
                (true, false) => ("plugin.disabled", "disabled: the gateway no longer connects to it"),
                (false, true) => ("plugin.enabled", "switched on"),
                _ => ("plugin.config_changed", "its configuration entry has changed"),
            };
            tracing::info!(event, plugin = name, "{message}");
        }
        for (plugin, old) in before.fresh(slice::from_ref(&self.current)) {
            if self.current.client(&plugin.name).is_none() {
                tracing::info!(
                    event = "plugin.removed",
                    plugin = plugin.name,
                    "removed from the configuration"
                );
            }
            self.draining.retire_after_calls(Arc::clone(old));
        }
        drop_off_thread(before);
        Ok(())
    }

    /// Takes note of what may be in force next: who is let go of meanwhile must not be missed by it.
    pub(crate) fn expect(&self, candidate: Option<&Generation>) {
        self.draining.set_in_use([&*self.current].into_iter().chain(candidate));
    }

    /// Lets go of the plugins of `candidate`, which is never put in force; those of `next` stay.
    pub(crate) fn abandon(&self, candidate: &Generation, next: Option<&Arc<Generation>>) {
        self.expect(next.map(|next| &**next));
        let stay: Vec<_> = [&self.current].into_iter().chain(next).cloned().collect();
        for (_, client) in candidate.fresh(&stay) {
            self.draining.retire_unused(Arc::clone(client));
        }
    }

    /// Given up while the table is built, it has changed nothing.
    async fn publish(
        &mut self,
        generation: &Arc<Generation>,
        contents: &Contents,
        manifests: AcceptedManifests,
        revision: u64,
    ) -> Result<(), Vec<Problem>> {
        let (bypassed, config, table) = loop {
            let active = || self.workshop.bypasses.active(contents);
            let bypassed = active();
            let config = with_bypasses(&generation.config, &bypassed.bypasses);
            let (config, table) = build(generation, config, &manifests, revision).await?;
            generation.table.store(Arc::new(table.clone()));
            // One may have run out while the table was built, which is made from this one then.
            if active().bypasses == bypassed.bypasses {
                break (bypassed, config, table);
            }
        };
        for problem in table.config_problems() {
            let (pointer, message) = (&problem.pointer, &problem.message);
            tracing::warn!(event = "plugin.config_refused", pointer, "{message}");
        }
        self.snapshots.publish(self.workshop.to_snapshot(generation, config, table));
        (self.manifests, self.revision) = (manifests, revision);
        tracing::info!(event = "table.published", revision, "a new routing table is active");
        log_bypass_changes(&self.bypassed.bypasses, &bypassed.bypasses);
        self.bypassed = bypassed;
        Ok(())
    }
}

/// At `moment`, or never.
async fn sleep_until_moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The table of `config`, which is `generation`'s but for the bypasses: on a thread that may take its time, since everybody's
/// plans are made anew where a manifest is another.
async fn build(
    generation: &Arc<Generation>,
    config: Arc<Config>,
    manifests: &AcceptedManifests,
    revision: u64,
) -> Result<(Arc<Config>, RouteTable), Vec<Problem>> {
    let (before, manifests) = (generation.table.load_full(), manifests.clone());
    let built = move || before.after(&config, &manifests, revision).map(|table| (config, table));
    joined(spawn_blocking(built)).await
}

/// `config` while these are in effect.
fn with_bypasses(config: &Arc<Config>, bypasses: &[Arc<Bypass>]) -> Arc<Config> {
    if bypasses.is_empty() {
        return Arc::clone(config);
    }
    Arc::new(Config { bypasses: bypasses.to_vec(), ..Config::clone(config) })
}

/// Says which bindings stand no more, and which stand again.
fn log_bypass_changes(before: &[Arc<Bypass>], now: &[Arc<Bypass>]) {
    for bypass in now.iter().filter(|bypass| !before.contains(bypass)) {
        let Bypass { binding, tenant, until, reason } = &**bypass;
        tracing::warn!(
            event = "binding.bypassed",
            binding,
            tenant,
            %until,
            reason,
            "the binding is bypassed for the tenant"
        );
    }
    let is_of = |other: &Bypass, of: &Bypass| (&other.binding, &other.tenant) == (&of.binding, &of.tenant);
    for ended in before.iter().filter(|old| !now.iter().any(|new| is_of(new, old))) {
        let Bypass { binding, tenant, until, reason } = &**ended;
        tracing::info!(
            event = "binding.bypass_ended",
            binding,
            tenant,
            %until,
            reason,
            "the binding applies to the tenant again"
        );
    }
}

fn log_refused(problems: &[Problem]) {
    for problem in problems {
        let (pointer, message) = (&problem.pointer, &problem.message);
        tracing::error!(event = "config.rejected", pointer, "{message}");
    }
}

fn same(left: &AcceptedManifests, right: &AcceptedManifests) -> bool {
    left.iter().zip(right).all(|pair| match pair {
        (None, None) => true,
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (Some(_), None) | (None, Some(_)) => false,
    })
}

#[cfg(test)]
#[path = "publisher_tests.rs"]
mod tests;
