//! Determines which configuration should be active: that of the file, combined with the registry if the file
//! names a store. It is read at start, and again whenever the file or the registry changes.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{self, LoadedConfig, ObjectSet, Problem, Problems},
    control::{
        file_source::Source,
        generation::{ConfigBasis, Generation, RuntimeBuilder},
    },
    core::{failure::Failure, manifest::Manifest, step::Reason},
    registry::{
        Contents, ContentsCheck, Registry, RegistryError,
        operations::{self, DryRunState, DryRunner},
    },
    routing::RouteTable,
    snapshot::SnapshotCell,
    store::StoreError,
    task::join::joined,
    telemetry::Telemetry,
    upstream::PluginClient,
};

/// What to read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadTrigger {
    /// The file, and then the registry.
    File,
    /// The registry alone.
    Registry,
}

impl ReloadTrigger {
    /// The name in telemetry.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            ReloadTrigger::File => "file",
            ReloadTrigger::Registry => "registry",
        }
    }
}

/// Why a load gave no configuration.
pub(crate) enum LoadError {
    /// An operator has to correct something.
    Refused(Problems),
    /// The store can't be reached. The load is repeated once it can.
    Later(String),
}

pub(crate) struct DesiredConfig {
    source: Source,
    registry: Option<Arc<Registry>>,
    /// The last file that was read without a mistake.
    file: ArcSwap<LoadedConfig>,
}

impl DesiredConfig {
    /// `loaded` is the first result of `source`.
    ///
    /// # Errors
    /// The problem with the store's settings.
    pub(crate) fn new(source: Source, loaded: LoadedConfig) -> Result<Self, Problems> {
        let open = |settings| {
            Registry::open(settings).map_err(|fault| loaded.render(&[Problem::new("/store/url", fault)]))
        };
        let registry = loaded.config.store.as_ref().map(open).transpose()?;
        Ok(DesiredConfig { source, registry, file: ArcSwap::from_pointee(loaded) })
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn registry(&self) -> Option<&Arc<Registry>> {
        self.registry.as_ref()
    }

    /// The configuration for the start. An unreachable store is not an error: the process starts with the
    /// last good table, or without objects, and catches up when the store is back.
    ///
    /// # Errors
    /// Every mistake; those in the file with their lines.
    pub(crate) async fn first(
        &self,
        workshop: &Arc<RuntimeBuilder>,
    ) -> Result<(LoadedConfig, ConfigBasis), Problems> {
        let loaded = LoadedConfig::clone(&self.file.load());
        let Some(registry) = &self.registry else {
            let basis = ConfigBasis::from_file(&loaded);
            return Ok((loaded, basis));
        };
        if !applies(&loaded) && loaded.has_objects() {
            tracing::warn!(
                "the file's plugins, tenants, bindings, upstreams and models are ignored (`store.apply_file: false`)"
            );
        }
        match self.composed(registry, &loaded, ReloadTrigger::File, workshop, &[]).await {
            Ok(first) => return Ok(first),
            Err(LoadError::Refused(problems)) => return Err(problems),
            Err(LoadError::Later(_)) => {}
        }
        match registry.last_good() {
            Some(contents) => {
                let revision = contents.revision();
                tracing::warn!(revision, "the store can't be reached: starting with the last good table");
                Ok((loaded.with(contents.objects()), ConfigBasis::Registry(contents)))
            }
            None => {
                tracing::error!(
                    "the store can't be reached, and there is no last good table: calls are refused until it can be \
                     reached"
                );
                Ok((loaded.with(ObjectSet::default()), ConfigBasis::Nothing))
            }
        }
    }

    /// The configuration that should be active now. Parts of `before` are reused.
    pub(crate) async fn again(
        self: &Arc<Self>,
        occasion: ReloadTrigger,
        workshop: &Arc<RuntimeBuilder>,
        before: &[Arc<Generation>],
    ) -> Result<(LoadedConfig, ConfigBasis), LoadError> {
        let loaded = match occasion {
            ReloadTrigger::File => Arc::new(self.read_file().await.map_err(LoadError::Refused)?),
            ReloadTrigger::Registry => self.file.load_full(),
        };
        let Some(registry) = &self.registry else {
            let basis = ConfigBasis::from_file(&loaded);
            return Ok((Arc::unwrap_or_clone(loaded), basis));
        };
        let wanted = self.composed(registry, &loaded, occasion, workshop, before).await?;
        if occasion == ReloadTrigger::File {
            self.file.store(loaded);
        }
        Ok(wanted)
    }

    async fn read_file(self: &Arc<Self>) -> Result<LoadedConfig, Problems> {
        let origin = Arc::clone(self);
        let read = move || origin.source.again(Telemetry::dry_run).map(|(loaded, _)| loaded);
        // A file system may hang.
        joined(tokio::task::spawn_blocking(read)).await
    }

    /// Writes the file's own objects to the registry, and returns `loaded` with all objects of the registry.
    async fn composed(
        &self,
        registry: &Arc<Registry>,
        loaded: &LoadedConfig,
        occasion: ReloadTrigger,
        workshop: &Arc<RuntimeBuilder>,
        before: &[Arc<Generation>],
    ) -> Result<(LoadedConfig, ConfigBasis), LoadError> {
        let unread = |error| match error {
            RegistryError::Invalid(problems) => LoadError::Refused(problems),
            error @ (RegistryError::Store(StoreError::Unavailable(_)) | RegistryError::Busy) => {
                LoadError::Later(error.to_string())
            }
            error => LoadError::Refused(loaded.render(&[Problem::new("/store", error.to_string())])),
        };
        if occasion == ReloadTrigger::File && applies(loaded) {
            let check = check(loaded.clone(), Arc::clone(workshop), before.to_vec());
            registry.apply(loaded, &self.source.shown(), check).await.map_err(unread)?;
        }
        let contents = registry.catch_up().await.map_err(unread)?;
        let (loaded, objects) = (loaded.clone(), Arc::clone(&contents));
        // There may be tens of thousands of objects.
        let whole = joined(tokio::task::spawn_blocking(move || loaded.with(objects.objects()))).await;
        Ok((whole, ConfigBasis::Registry(contents)))
    }

    /// Follows the registry until `ended`. Notifies `moved` when the registry should be read again.
    pub(crate) fn follow(&self, moved: &Arc<Notify>, ended: &CancellationToken) {
        let Some(registry) = self.registry.clone() else { return };
        let moved = Arc::clone(moved);
        tokio::spawn(Arc::clone(&registry).keep_last_good(ended.clone()));
        let ended = ended.clone();
        tokio::spawn(async move { registry.follow(moved, ended).await });
    }

    /// Closes the store, at the end.
    pub(crate) async fn close(&self) {
        if let Some(registry) = &self.registry {
            registry.close().await;
        }
    }
}

/// Whether the file's objects should be written to the registry.
pub(crate) fn applies(loaded: &LoadedConfig) -> bool {
    loaded.config.store.as_ref().is_some_and(|store| store.apply_file)
}

/// Checks the file by itself, because its mistakes have lines.
pub(crate) fn file_alone(loaded: &LoadedConfig) -> Result<(), Problems> {
    RouteTable::build(&loaded.config, &[], 0).map(drop).map_err(|problems| loaded.render(&problems))
}

/// Builds the configuration that a write would lead to. The file is checked by itself first, because its mistakes have
/// lines.
fn check(
    loaded: LoadedConfig,
    workshop: Arc<RuntimeBuilder>,
    before: Vec<Arc<Generation>>,
) -> Arc<ContentsCheck> {
    Arc::new(move |contents: &Contents| {
        file_alone(&loaded)?;
        let whole = loaded.with(contents.objects());
        workshop.build(whole, ConfigBasis::Registry(Arc::new(contents.clone())), &before).map(drop)
    })
}

/// The manifest that a plugin would have with `entry`: its current one, unless `entry` consents to another.
/// In that case it is the described manifest that matches the consent, if there is one.
fn manifest(
    entry: &config::Plugin,
    active: &config::Plugin,
    client: &PluginClient,
    reach: &config::ApiPluginPolicy,
) -> Option<Arc<Manifest>> {
    if !reach.needs_consent(entry) || entry.accepted == active.accepted {
        return client.status().manifest;
    }
    let consent = entry.accepted.as_ref()?;
    let mut wants = client.wants().into_iter();
    wants.find(|wants| wants.accepted == *consent).map(|wants| Arc::clone(&wants.manifest))
}

/// Why calls to a plugin with `entry` would fail now. `None` if they wouldn't, or if that is unknown.
/// `active` is the plugin's current entry and client; `has_manifest` tells whether its future manifest is
/// known.
fn trouble(
    entry: &config::Plugin,
    active: Option<(&config::Plugin, &PluginClient)>,
    has_manifest: bool,
    reach: &config::ApiPluginPolicy,
) -> Option<Failure> {
    let not_ready = |detail: &str| Some(Failure::new(Reason::NotReady, detail));
    if reach.needs_consent(entry) && entry.accepted.is_none() {
        return not_ready("the plugin is waiting for approval of its manifest");
    }
    let (known, client) = active?;
    if entry == known {
        return client.trouble();
    }
    if !entry.addresses().eq(known.addresses()) {
        return not_ready("the plugin has not been reached at its new address yet");
    }
    let is_met = client.status().manifest.is_some() || !client.wants().is_empty();
    if reach.needs_consent(entry) && is_met && !has_manifest {
        return not_ready("the plugin's manifest differs from the one to be accepted");
    }
    None
}

/// Computes dry runs from this process's state: its part of the configuration, and what it knows of the
/// plugins.
pub(crate) struct ConfigDryRunner {
    pub(crate) origin: Arc<DesiredConfig>,
    pub(crate) workshop: Arc<RuntimeBuilder>,
    pub(crate) snapshots: Arc<SnapshotCell>,
    /// The active generation, whose parts are reused.
    pub(crate) current: Arc<ArcSwap<Generation>>,
}

impl DryRunner for ConfigDryRunner {
    fn dry_run(&self, contents: &Contents) -> Result<DryRunState, Problems> {
        let mut whole = self.origin.file.load().with(contents.objects());
        whole.config.bypasses = self.workshop.bypasses.active(contents).bypasses;
        let snapshot = self.snapshots.current();
        let is_same = |(a, b): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(a, b);
        let (old, new) = (&snapshot.config.plugins, &whole.config.plugins);
        let is_rebuilt = old.len() != new.len() || !old.iter().zip(new).all(is_same);
        if is_rebuilt || snapshot.config.llm != whole.config.llm {
            let basis = ConfigBasis::Registry(Arc::new(contents.clone()));
            self.workshop.build(whole.clone(), basis, &[self.current.load_full()])?;
        }
        let reach = whole.config.reach();
        let entry = |client: &PluginClient| new.iter().find(|plugin| plugin.name == client.name());
        let known = |name: &str| old.iter().find(|plugin| plugin.name == name);
        let clients = snapshot.invoker.routes().clients.iter();
        let manifests: BTreeMap<_, _> = clients
            .clone()
            .filter_map(|client| {
                let manifest = manifest(entry(client)?, known(client.name())?, client, &reach)?;
                Some((client.name().to_owned(), manifest))
            })
            .collect();
        let trouble = |entry: &Arc<config::Plugin>| {
            let now = old.iter().zip(clients.clone()).find(|(old, _)| old.name == entry.name);
            let now = now.map(|(old, client)| (&**old, &**client));
            let why = trouble(entry, now, manifests.contains_key(&entry.name), &reach)?;
            Some((entry.name.clone(), why))
        };
        let troubles = new.iter().filter(|entry| entry.enabled).filter_map(trouble).collect();
        let in_order: Vec<_> = new.iter().map(|plugin| manifests.get(&plugin.name).cloned()).collect();
        let snapshot = &snapshot.invoker.routes().table;
        let table = snapshot.after(&whole.config, &in_order, contents.revision());
        let table = table.map_err(|problems| whole.render(&problems))?;
        let refused = match table.config_problems() {
            [] => Vec::new(),
            problems => operations::invalid(&whole.render(problems)),
        };
        Ok(DryRunState { config: Arc::new(whole.config), table, manifests, troubles, refused })
    }
}
