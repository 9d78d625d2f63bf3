//! Makes configurations active, and publishes a new routing table of the active one whenever the accepted
//! manifests change or a bypass begins or ends.

use std::{collections::HashSet, slice, sync::Arc};

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
    routing::{RouteTable, UnofferedSite, unoffered_sites},
    snapshot::SnapshotCell,
    task::{drop_off_thread::drop_off_thread, join::joined},
};

/// The revision of the configuration that a process starts with.
pub(crate) const FIRST_REVISION: u64 = 1;

/// The snapshot cell of a process that starts with `first`, whose table has no manifests yet.
pub(crate) fn snapshots(workshop: &RuntimeBuilder, first: &Generation) -> SnapshotCell {
    workshop.telemetry.configured(&first.config);
    SnapshotCell::new(workshop.to_snapshot(
        first,
        Arc::clone(&first.config),
        RouteTable::clone(&first.table.load()),
    ))
}

/// Publishes snapshots; one per process.
pub(crate) struct Publisher {
    workshop: Arc<RuntimeBuilder>,
    snapshots: Arc<SnapshotCell>,
    current: Arc<Generation>,
    /// `current`, for dry runs in other tasks.
    seen: Arc<ArcSwap<Generation>>,
    /// The manifests of the active table.
    manifests: AcceptedManifests,
    /// Where steps of the active table fail for want of an offer.
    unoffered: Vec<UnofferedSite>,
    /// The bypasses of the active table.
    bypassed: ActiveBypasses,
    /// The objects of the active configuration. Their bypasses are always those that were read last, even if
    /// the rest is pending.
    contents: Arc<Contents>,
    registry: Option<RegistryUpdates>,
    revision: u64,
    draining: DrainingClients,
}

/// The registry, and notifications that something new was read from it.
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
    /// A publisher for `snapshots`, which came from [`snapshots`] for the generation in `seen`. Keeps `seen`
    /// up to date.
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
            unoffered: Vec::new(),
            bypassed,
            contents,
            registry,
            revision,
            draining,
        };
        publisher.keep();
        publisher
    }

    /// The active generation.
    pub(crate) fn current(&self) -> &Arc<Generation> {
        &self.current
    }

    /// The replaced clients.
    pub(crate) fn draining(&self) -> &DrainingClients {
        &self.draining
    }

    /// Resolves when [`Publisher::refresh`] is due for another reason than manifests: a bypass has ended or
    /// was written.
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

    /// Publishes a table with the current manifests and bypasses, unless it is already active.
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
        // After a failure, the same manifests are not tried again.
        self.manifests = now;
    }

    /// Refreshes until the table has all known manifests: a plugin may connect while the table is built.
    pub(crate) async fn catch_up(&mut self) {
        self.refresh().await;
        while !same(&self.manifests, &self.current.manifests()) {
            self.refresh().await;
        }
    }

    /// Runs for ever, and publishes only changes of bypasses.
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

    /// Saves the active configuration for a start without the registry.
    fn keep(&self) {
        if let (Some(RegistryUpdates { registry, .. }), ConfigBasis::Registry(_)) =
            (&self.registry, &self.current.basis)
        {
            registry.keep(Arc::clone(&self.contents));
        }
    }

    /// The revision of the active table.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Makes `next` active, under the registry's revision or else under a new one, and retires the clients
    /// that it no longer has.
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

    /// Sets the configuration that may become active next, so that no client that it uses is shut down
    /// meanwhile.
    pub(crate) fn expect(&self, candidate: Option<&Generation>) {
        self.draining.set_in_use([&*self.current].into_iter().chain(candidate));
    }

    /// Retires the clients of `candidate`, which will never be active, except those that `next` uses.
    pub(crate) fn abandon(&self, candidate: &Generation, next: Option<&Arc<Generation>>) {
        self.expect(next.map(|next| &**next));
        let stay: Vec<_> = [&self.current].into_iter().chain(next).cloned().collect();
        for (_, client) in candidate.fresh(&stay) {
            self.draining.retire_unused(Arc::clone(client));
        }
    }

    /// If this is dropped while the table is built, nothing has changed.
    async fn publish(
        &mut self,
        generation: &Arc<Generation>,
        contents: &Contents,
        manifests: AcceptedManifests,
        revision: u64,
    ) -> Result<(), Vec<Problem>> {
        let (bypassed, BuiltTable { config, table, unoffered }) = loop {
            let active = || self.workshop.bypasses.active(contents);
            let bypassed = active();
            let config = with_bypasses(&generation.config, &bypassed.bypasses);
            let built = build(generation, config, &manifests, revision).await?;
            generation.table.store(Arc::new(built.table.clone()));
            // A bypass may have ended while the table was built. The next table is built from this one.
            if active().bypasses == bypassed.bypasses {
                break (bypassed, built);
            }
        };
        for problem in table.config_problems() {
            let (pointer, message) = (&problem.pointer, &problem.message);
            tracing::warn!(event = "plugin.config_refused", pointer, "{message}");
        }
        log_unoffered(&self.unoffered, &unoffered);
        self.unoffered = unoffered;
        self.snapshots.publish(self.workshop.to_snapshot(generation, config, table));
        (self.manifests, self.revision) = (manifests, revision);
        tracing::info!(event = "table.published", revision, "a new routing table is active");
        log_bypass_changes(&self.bypassed.bypasses, &bypassed.bypasses);
        self.bypassed = bypassed;
        Ok(())
    }
}

/// Sleeps until `moment`, or for ever without one.
async fn sleep_until_moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// A table, its configuration, and where steps of it fail for want of an offer.
struct BuiltTable {
    config: Arc<Config>,
    table: RouteTable,
    unoffered: Vec<UnofferedSite>,
}

/// Builds the table of `config`, which is the generation's own apart from bypasses. Runs on a blocking
/// thread, because a changed manifest rebuilds the plans of all tenants.
async fn build(
    generation: &Arc<Generation>,
    config: Arc<Config>,
    manifests: &AcceptedManifests,
    revision: u64,
) -> Result<BuiltTable, Vec<Problem>> {
    let (before, manifests) = (generation.table.load_full(), manifests.clone());
    let built = move || {
        let table = before.after(&config, &manifests, revision)?;
        Ok(BuiltTable { unoffered: unoffered_sites(&config, &manifests), config, table })
    };
    joined(spawn_blocking(built)).await
}

/// `config` with these bypasses.
fn with_bypasses(config: &Arc<Config>, bypasses: &[Arc<Bypass>]) -> Arc<Config> {
    if bypasses.is_empty() {
        return Arc::clone(config);
    }
    Arc::new(Config { bypasses: bypasses.to_vec(), ..Config::clone(config) })
}

/// Logs which bypasses have begun and which have ended.
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

/// Logs where steps begin to fail because their plugin doesn't offer the point or hook.
fn log_unoffered(before: &[UnofferedSite], now: &[UnofferedSite]) {
    let key = |unoffered: &UnofferedSite| {
        (unoffered.plugin.clone(), unoffered.binding.clone(), unoffered.site.clone())
    };
    let before: HashSet<_> = before.iter().map(key).collect();
    for unoffered in now.iter().filter(|unoffered| !before.contains(&key(unoffered))) {
        let UnofferedSite { plugin, binding, site, remedy, .. } = unoffered;
        let (point, hook) = (site.point().map(|point| point.as_str()), site.hook().map(|hook| hook.as_str()));
        tracing::warn!(
            event = "binding.point_not_offered",
            plugin,
            binding,
            point,
            hook,
            remedy,
            "the plugin doesn't offer `{site}`, which its binding names: each step there fails"
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
