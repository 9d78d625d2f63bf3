//! Everything that is built from one configuration: authentication, plugin clients, the table. The next
//! configuration makes another generation, which reuses all unchanged parts: connections, keys, counters of
//! plugins.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    auth::{Authenticator, MAX_KEY_FILE},
    builtin,
    config::{self, Config, LoadedConfig, Problem, Problems, environment_variables, resolve_references},
    control::{
        active_bypasses::Bypasses,
        publisher::FIRST_REVISION,
        rejected_entries::{self, EntryRejection, PluginRejections},
    },
    core::{block_status::BlockStatuses, digest::digest, manifest::Manifest, object::Owner},
    fs::read_limited,
    host::HostServices,
    invoke::{Invoker, ReplyLimits, Routes},
    llm::{Llm, memory::VerdictMemory},
    registry::Contents,
    routing::RouteTable,
    snapshot::{ConfigSnapshot, EdgeLimits},
    telemetry::Telemetry,
    tls,
    upstream::{self, HostAccess, HostOffer, PluginClient, SharedResources},
};

/// The manifests accepted at one moment, by index in `Config.plugins`.
pub(crate) type AcceptedManifests = Vec<Option<Arc<Manifest>>>;

/// Shared by all generations of one process.
pub(crate) struct RuntimeBuilder {
    pub(crate) shared: SharedResources,
    pub(crate) telemetry: Telemetry,
    pub(crate) certificates: tls::CertificateWatch,
    /// Cancelled when the remaining calls are given up.
    pub(crate) abort: CancellationToken,
    pub(crate) refusals: PluginRejections,
    pub(crate) bypasses: Bypasses,
    /// Services for plugins; `None` without a store.
    pub(crate) host: Option<Arc<HostServices>>,
    /// What plugins decided about parts of conversations, across generations.
    verdicts: Arc<VerdictMemory>,
}

/// A generation, together with the listeners' TLS that only a starting process uses.
pub(crate) struct InitialGeneration {
    pub(crate) generation: Generation,
    /// The listeners' TLS.
    pub(crate) tls: Option<tls::Server>,
}

pub(crate) struct Generation {
    pub(crate) config: Arc<Config>,
    pub(crate) basis: ConfigBasis,
    keys: CallerKeys,
    /// In the order of `Config.plugins`.
    plugins: Vec<ClientEntry>,
    statuses: Arc<BlockStatuses>,
    /// `None` if the LLM proxy is not served.
    llm: Option<Arc<Llm>>,
    /// The last table built from this generation, including tables with newer manifests. The next generation
    /// builds on it.
    pub(crate) table: ArcSwap<RouteTable>,
    /// Names of the plugins without which a start fails.
    required: BTreeSet<String>,
    /// Rejected entries, whose predecessors are used.
    pub(crate) held_back: Vec<EntryRejection>,
}

/// The origin of a generation's objects.
#[derive(Debug, Clone)]
pub(crate) enum ConfigBasis {
    /// The file lists them; this process counts revisions.
    File(Arc<Contents>),
    /// The registry, which has its own revisions.
    Registry(Arc<Contents>),
    /// The registry was never read: there are no objects, and the tenants are unknown.
    Nothing,
}

impl ConfigBasis {
    /// The objects of the file `loaded`.
    pub(crate) fn from_file(loaded: &LoadedConfig) -> Self {
        ConfigBasis::File(Arc::new(Contents::from_file(loaded)))
    }

    /// The objects.
    pub(crate) fn contents(&self) -> Arc<Contents> {
        match self {
            ConfigBasis::File(contents) | ConfigBasis::Registry(contents) => Arc::clone(contents),
            ConfigBasis::Nothing => Arc::default(),
        }
    }

    /// The registry's revision.
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            ConfigBasis::File(_) => None,
            ConfigBasis::Registry(contents) => Some(contents.revision()),
            ConfigBasis::Nothing => Some(0),
        }
    }
}

/// The keys of callers.
#[derive(Clone)]
struct CallerKeys {
    auth: Arc<Authenticator>,
    /// A digest of the key files' contents.
    contents: [u8; 32],
    /// Stops fetching published keys. Cancelled when the last generation that uses them is dropped.
    stop: CancellationToken,
    _stops: Arc<DropGuard>,
}

/// A plugin's client and its inputs. The client is reused while the inputs are equal.
#[derive(Clone)]
pub(crate) struct ClientEntry {
    pub(crate) client: Arc<PluginClient>,
    pub(crate) from: Arc<ClientInputs>,
}

#[derive(PartialEq)]
pub(crate) struct ClientInputs {
    plugin: config::Plugin,
    /// The plugin's `config` with resolved references, or why they can't be resolved.
    resolved: Result<String, String>,
    observers: config::Observers,
    request: config::Size,
    notices: (usize, config::Size, config::Size),
    /// What a plugin of the admin API, or one that registers itself, may reach. `None` for other plugins of the file.
    reach: Option<config::ApiPluginPolicy>,
}

impl RuntimeBuilder {
    /// A builder for a process that starts with `config`.
    pub(crate) fn new(config: &Config, telemetry: Telemetry) -> Self {
        let resolve = |config: &_, scope: config::ReferenceScope<'_>| {
            resolve_references(config, environment_variables(), scope)
        };
        let (limits, observers) = (config.limits.clone(), config.observers.clone());
        let certificates = tls::CertificateWatch::default();
        let shared =
            SharedResources::new(telemetry.instance(), telemetry.clone(), limits, observers, resolve)
                .following(certificates.clone())
                .offering(HostOffer::untested(config));
        let (abort, refusals, bypasses, verdicts) = Default::default();
        RuntimeBuilder { shared, telemetry, certificates, abort, refusals, bypasses, host: None, verdicts }
    }

    /// The same, and plugins may use `host`.
    pub(crate) fn with_host(self, host: Option<Arc<HostServices>>) -> Self {
        let shared = match &host {
            Some(host) => self.shared.offering(HostOffer::Services(Arc::clone(host) as Arc<dyn HostAccess>)),
            None => self.shared,
        };
        RuntimeBuilder { shared, host, ..self }
    }

    /// Builds `loaded`, and reuses the unchanged parts of `before`. Nothing is dialled or fetched before
    /// [`Generation::start`].
    ///
    /// # Errors
    /// Every mistake that a part finds, with the lines.
    pub(crate) fn build(
        &self,
        mut loaded: LoadedConfig,
        basis: ConfigBasis,
        before: &[Arc<Generation>],
    ) -> Result<InitialGeneration, Problems> {
        let held_back = self.keep_previous_entries(&mut loaded.config, before.first());
        let config = &loaded.config;
        let mut problems = Vec::new();
        let keys = keep(keys(config, before), &mut problems);
        let tls = config.server.tls.as_ref().map(|tls| tls::Server::new(tls, &self.certificates)).transpose();
        let tls = keep(tls.map_err(|wrong| vec![Problem::new("/server/tls", wrong)]), &mut problems);
        let plugins = keep(self.plugins(config, before), &mut problems);
        let llm = keep(self.llm(config, before), &mut problems);
        let revision = basis.revision().unwrap_or(FIRST_REVISION);
        let table = match (before.first(), &plugins) {
            // Uses the known manifests, so that as little as possible is rebuilt.
            (Some(before), Some(plugins)) => before.table.load().after(config, &manifests(plugins), revision),
            _ => RouteTable::build(config, &[], revision),
        };
        let table = keep(table, &mut problems);
        let (Some(keys), Some(plugins), Some(llm), Some(table), Some(tls)) = (keys, plugins, llm, table, tls)
        else {
            return Err(loaded.render(&problems));
        };
        let statuses = Arc::new(block_statuses(config));
        let required = config.required().into_iter().map(str::to_owned).collect();
        let (config, table) = (Arc::new(loaded.config), ArcSwap::from_pointee(table));
        let generation =
            Generation { config, basis, keys, plugins, statuses, llm, table, required, held_back };
        Ok(InitialGeneration { generation, tls })
    }

    /// Replaces entries that their plugins reject with the active ones.
    fn keep_previous_entries(
        &self,
        config: &mut Config,
        snapshot: Option<&Arc<Generation>>,
    ) -> Vec<EntryRejection> {
        let Some(snapshot) = snapshot.filter(|_| !self.refusals.is_empty()) else { return Vec::new() };
        let refused = |plugin: &config::Plugin| {
            let held = self.refusals.find(&ClientInputs::from_config(plugin, config))?;
            Some((held, rejected_entries::entry(&snapshot.config, &plugin.name)?))
        };
        let refused: Vec<_> = config.plugins.iter().map(|plugin| refused(plugin)).collect();
        let mut held_back = Vec::new();
        for (plugin, refused) in config.plugins.iter_mut().zip(refused) {
            if let Some((held, entry)) = refused {
                *plugin = entry;
                held_back.push(held);
            }
        }
        held_back
    }

    fn plugins(&self, config: &Config, before: &[Arc<Generation>]) -> Result<Vec<ClientEntry>, Vec<Problem>> {
        let shared = self.shared.by(config);
        let mut problems = Vec::new();
        let mut made = Vec::with_capacity(config.plugins.len());
        let takes_registrations = config.store.is_some() && config.server.has_host_listener();
        for (index, plugin) in config.plugins.iter().enumerate() {
            // An entry of the registry is for other replicas too.
            if plugin.self_registration && plugin.owner == Owner::File && !takes_registrations {
                let lack = "plugins have nowhere to register: set `store` and `server.host_addr` or `server.host_socket`";
                problems.push(Problem::new(format!("/plugins/{index}/self_registration"), lack));
                continue;
            }
            let from = ClientInputs::from_config(plugin, config);
            let mut made_before = before.iter().filter_map(|before| before.client_entry(&plugin.name));
            if let Some(same) = made_before.find(|old| *old.from == from) {
                made.push(same.clone());
                continue;
            }
            let service = |name| builtin::service(name, self.host.as_ref());
            let builtin = plugin.builtin.as_deref().and_then(service);
            match PluginClient::new(plugin, &shared, builtin) {
                Ok(client) => made.push(ClientEntry { client, from: Arc::new(from) }),
                Err(message) => problems.push(Problem::new(format!("/plugins/{index}"), message)),
            }
        }
        if problems.is_empty() { Ok(made) } else { Err(problems) }
    }

    /// The LLM proxy: that of `before` if its section is unchanged, or else with the clients of unchanged upstreams.
    fn llm(&self, config: &Config, before: &[Arc<Generation>]) -> Result<Option<Arc<Llm>>, Vec<Problem>> {
        let Some(llm) = &config.llm else { return Ok(None) };
        if let Some(same) = before.iter().find(|before| before.config.llm.as_ref() == Some(llm)) {
            return Ok(same.llm.clone());
        }
        let earlier: Vec<_> = before.iter().filter_map(|before| before.llm.as_deref()).collect();
        Ok(Some(Arc::new(Llm::build(llm, &earlier, &self.verdicts)?)))
    }

    /// The snapshot of `generation` with `table`. `config` is the generation's own, apart from bypasses.
    pub(crate) fn to_snapshot(
        &self,
        generation: &Generation,
        config: Arc<Config>,
        table: RouteTable,
    ) -> ConfigSnapshot {
        let Generation { basis, keys, statuses, llm, .. } = generation;
        if let Some(host) = &self.host {
            host.apply(&config);
        }
        let routes = Routes {
            table,
            clients: generation.clients().cloned().collect(),
            replies: ReplyLimits::from_limits(&config.limits),
            observed: Arc::new(self.telemetry.clone()),
            abort: self.abort.clone(),
        };
        ConfigSnapshot {
            auth: Arc::clone(&keys.auth),
            invoker: Invoker::new(routes, config.limits.budget.0),
            limits: EdgeLimits {
                request: config.limits.request.in_memory(),
                in_flight: config.limits.in_flight,
                bytes_in_flight: config.limits.bytes_in_flight.in_memory(),
                detail: config.answer.detail,
            },
            statuses: Arc::clone(statuses),
            llm: llm.clone(),
            is_absent: matches!(basis, ConfigBasis::Nothing),
            rejected: generation.held_back.iter().map(|held| held.told.clone()).collect(),
            config,
        }
    }
}

impl Generation {
    /// In the order of the configuration.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &Arc<PluginClient>> {
        self.plugins.iter().map(|made| &made.client)
    }

    /// The plugins whose clients are not in `before`.
    pub(crate) fn fresh<'a>(
        &'a self,
        before: &'a [Arc<Generation>],
    ) -> impl Iterator<Item = (&'a config::Plugin, &'a Arc<PluginClient>)> {
        let is_fresh = |made: &&ClientEntry| !before.iter().any(|before| before.has(&made.client));
        self.plugins.iter().filter(is_fresh).map(|made| (&made.from.plugin, &made.client))
    }

    /// The same, with the clients' inputs.
    pub(crate) fn new_client_entries<'a>(
        &'a self,
        before: &'a Generation,
    ) -> impl Iterator<Item = &'a ClientEntry> {
        self.plugins.iter().filter(|made| !before.has(&made.client))
    }

    /// The client of the plugin `name`.
    pub(crate) fn client(&self, name: &str) -> Option<&Arc<PluginClient>> {
        self.client_entry(name).map(|made| &made.client)
    }

    /// Whether a start fails without the plugin `name`.
    pub(crate) fn requires(&self, name: &str) -> bool {
        self.required.contains(name)
    }

    fn has(&self, client: &Arc<PluginClient>) -> bool {
        self.client(client.name()).is_some_and(|own| Arc::ptr_eq(own, client))
    }

    pub(crate) fn client_entry(&self, name: &str) -> Option<&ClientEntry> {
        self.plugins.iter().find(|made| made.client.name() == name)
    }

    /// The plugins that must be ready before this generation replaces `before`: the new ones, and those that
    /// become required.
    pub(crate) fn awaited_clients<'a>(
        &'a self,
        before: &'a Arc<Generation>,
    ) -> impl Iterator<Item = (&'a config::Plugin, &'a Arc<PluginClient>)> {
        let kept = self.plugins.iter().filter(|made| {
            // The entry is the same in both, but a plugin can also become required by a binding.
            before.has(&made.client)
                && self.requires(&made.from.plugin.name)
                && !before.requires(&made.from.plugin.name)
        });
        let kept = kept.map(|made| (&made.from.plugin, &made.client));
        self.fresh(std::slice::from_ref(before)).filter(|(plugin, _)| plugin.enabled).chain(kept)
    }

    /// Whether this is the same as `other` in everything.
    pub(crate) fn is(&self, other: &Arc<Self>) -> bool {
        let has_its_clients = self.fresh(std::slice::from_ref(other)).next().is_none();
        let is_of_revision = self.basis.revision() == other.basis.revision();
        is_of_revision && self.config == other.config && self.has_keys_of(other) && has_its_clients
    }

    pub(crate) fn has_keys_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys.auth, &other.keys.auth)
    }

    /// Whether every issuer has keys, or shares its fetch with `before`.
    pub(crate) fn has_keys_after(&self, before: &Self) -> bool {
        self.keys.auth.ready_after(&before.keys.auth)
    }

    /// The enabled plugins, each with each of its endpoints as it is written.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (&str, &str)> {
        let enabled = self.config.plugins.iter().filter(|plugin| plugin.enabled);
        enabled.flat_map(|plugin| plugin.addresses().map(|address| (&*plugin.name, address)))
    }

    /// The clients that are not in `before`: first those with bindings, by the priority of their first
    /// binding and then by name; last those without a binding.
    fn in_order_of_initialisation(&self, before: &[Arc<Generation>]) -> Vec<Arc<PluginClient>> {
        let mut first: BTreeMap<&str, i64> = BTreeMap::new();
        for binding in self.config.bindings.iter().filter(|binding| binding.enabled) {
            let priority = first.entry(&binding.plugin).or_insert(binding.priority);
            *priority = binding.priority.min(*priority);
        }
        let mut fresh: Vec<_> = self.fresh(before).map(|(_, client)| client).collect();
        fresh.sort_by_key(|client| {
            let priority = first.get(client.name());
            (priority.is_none(), priority.copied(), client.name())
        });
        fresh.into_iter().cloned().collect()
    }

    /// Dials and fetches what `before` doesn't, until `ended`.
    pub(crate) fn start(&self, before: &[Arc<Generation>], ended: &CancellationToken) {
        let patience = self.config.startup.wait.0 / 2;
        upstream::start_in_order(self.in_order_of_initialisation(before), patience, ended);
        if !before.iter().any(|before| self.has_keys_of(before)) {
            let CallerKeys { auth, stop, .. } = self.keys.clone();
            let ended = ended.clone();
            tokio::spawn(async move { ended.run_until_cancelled(auth.refresh(stop)).await });
        }
    }

    /// The currently accepted manifests.
    pub(crate) fn manifests(&self) -> AcceptedManifests {
        manifests(&self.plugins)
    }
}

fn manifests(plugins: &[ClientEntry]) -> AcceptedManifests {
    plugins.iter().map(|made| made.client.status().manifest).collect()
}

impl ClientEntry {
    /// The plugin's entry.
    pub(crate) fn entry(&self) -> &config::Plugin {
        &self.from.plugin
    }
}

impl ClientInputs {
    /// The plugin's name.
    pub(crate) fn name(&self) -> &str {
        &self.plugin.name
    }

    fn from_config(plugin: &config::Plugin, config: &Config) -> Self {
        let limits = &config.limits;
        let reach = config.reach();
        let resolved = resolve_references(&plugin.config, environment_variables(), reach.within(plugin));
        ClientInputs {
            // Labels don't affect calls, so a change of labels keeps the client.
            plugin: config::Plugin { labels: Default::default(), ..plugin.clone() },
            resolved: resolved.map(|resolved| digest(&resolved.into_exposed().0.into())),
            observers: config.observers.clone(),
            request: limits.request,
            notices: (limits.notices, limits.notice_bytes, limits.details_bytes),
            reach: (plugin.owner == Owner::Api || plugin.self_registration).then_some(reach),
        }
    }
}

/// Reuses the keys of `before` if neither the configuration nor a key file has changed.
fn keys(config: &Config, before: &[Arc<Generation>]) -> Result<CallerKeys, Vec<Problem>> {
    let contents = contents(&config.auth);
    let is_same =
        |before: &&Arc<Generation>| before.config.auth == config.auth && before.keys.contents == contents;
    if let Some(before) = before.iter().find(is_same) {
        return Ok(before.keys.clone());
    }
    let published = before.iter().map(|before| &*before.keys.auth);
    let auth = Arc::new(Authenticator::after(published, &config.auth).map_err(Problem::all)?);
    let stop = CancellationToken::new();
    Ok(CallerKeys { auth, contents, stop: stop.clone(), _stops: Arc::new(stop.drop_guard()) })
}

/// Returns the value, or adds its problems to `problems`.
fn keep<T>(result: Result<T, Vec<Problem>>, problems: &mut Vec<Problem>) -> Option<T> {
    result.map_err(|found| problems.extend(found)).ok()
}

/// A digest of the key files' contents. The authenticator reports unreadable files.
fn contents(auth: &config::Auth) -> [u8; 32] {
    let keys = auth.issuers.iter().flat_map(|issuer| &issuer.keys);
    let files = keys.flat_map(|key| key.pem_file.iter().chain(&key.jwk_file));
    let mut all = Sha256::new();
    for file in files {
        all.update(Sha256::digest(read_limited::file(file, MAX_KEY_FILE).ok().flatten().unwrap_or_default()));
    }
    all.finalize().into()
}

fn block_statuses(config: &Config) -> BlockStatuses {
    let of_plugin = config.plugins.iter().map(|plugin| (plugin.name.clone(), plugin.block_status.clone()));
    BlockStatuses { of_all: config.block_status.clone(), of_plugin: of_plugin.collect() }
}
