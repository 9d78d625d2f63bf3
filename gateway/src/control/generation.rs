//! What is made from one configuration: who may call, the plugins' clients, the table. Another configuration makes
//! another generation, which takes over whatever it leaves as it was: connections, keys, what a plugin is counted by.

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
    invoke::{Invoker, ReplyLimits, Routes},
    registry::Contents,
    routing::RouteTable,
    snapshot::{ConfigSnapshot, EdgeLimits},
    telemetry::Telemetry,
    tls,
    upstream::{self, PluginClient, SharedResources},
};

/// The manifests accepted at one moment, by index in `Config.plugins`.
pub(crate) type AcceptedManifests = Vec<Option<Arc<Manifest>>>;

/// What the generations of one process have in common.
pub(crate) struct RuntimeBuilder {
    pub(crate) shared: SharedResources,
    pub(crate) telemetry: Telemetry,
    pub(crate) certificates: tls::CertificateWatch,
    /// Cancelled when the calls still under way are given up.
    pub(crate) abort: CancellationToken,
    pub(crate) refusals: PluginRejections,
    pub(crate) bypasses: Bypasses,
}

/// A generation, and what a process begins with that starts with it.
pub(crate) struct InitialGeneration {
    pub(crate) generation: Generation,
    /// Of the listeners.
    pub(crate) tls: Option<tls::Server>,
}

pub(crate) struct Generation {
    pub(crate) config: Arc<Config>,
    pub(crate) basis: ConfigBasis,
    keys: CallerKeys,
    /// In the order of `Config.plugins`.
    plugins: Vec<ClientEntry>,
    statuses: Arc<BlockStatuses>,
    /// The last that was made of it: the next one takes over what it can, manifests of the moment among it.
    pub(crate) table: ArcSwap<RouteTable>,
    /// Names of the plugins without which a start fails.
    required: BTreeSet<String>,
    /// Entries in whose place are those before.
    pub(crate) held_back: Vec<EntryRejection>,
}

/// Where the plugins, tenants and bindings of a generation are from.
#[derive(Debug, Clone)]
pub(crate) enum ConfigBasis {
    /// The file, which says them; revisions are counted by this process.
    File(Arc<Contents>),
    /// The registry, which has a revision.
    Registry(Arc<Contents>),
    /// The registry was never read: there are none, and it is unknown who may be served.
    Nothing,
}

impl ConfigBasis {
    /// The file `loaded`.
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

    /// Of the registry.
    pub(crate) fn revision(&self) -> Option<u64> {
        match self {
            ConfigBasis::File(_) => None,
            ConfigBasis::Registry(contents) => Some(contents.revision()),
            ConfigBasis::Nothing => Some(0),
        }
    }
}

/// Who may call.
#[derive(Clone)]
struct CallerKeys {
    auth: Arc<Authenticator>,
    /// Of the files with keys.
    contents: [u8; 32],
    /// Ends the fetching of published keys: cancelled when the last generation is gone that has them.
    stop: CancellationToken,
    _stops: Arc<DropGuard>,
}

/// A plugin's client, and what it was made from: it stays as long as that does.
#[derive(Clone)]
pub(crate) struct ClientEntry {
    pub(crate) client: Arc<PluginClient>,
    pub(crate) from: Arc<ClientInputs>,
}

#[derive(PartialEq)]
pub(crate) struct ClientInputs {
    plugin: config::Plugin,
    /// Of its `config` with the references resolved as they were then, or why they can't be.
    resolved: Result<String, String>,
    observers: config::Observers,
    request: config::Size,
    notices: (usize, config::Size, config::Size),
    /// What a plugin of the admin API may reach; none: it is the file's.
    reach: Option<config::ApiPluginPolicy>,
}

impl RuntimeBuilder {
    /// For a process that starts with `config`.
    pub(crate) fn new(config: &Config, telemetry: Telemetry) -> Self {
        let resolve = |config: &_, scope: config::ReferenceScope<'_>| {
            resolve_references(config, environment_variables(), scope)
        };
        let (limits, observers) = (config.limits.clone(), config.observers.clone());
        let certificates = tls::CertificateWatch::default();
        let shared =
            SharedResources::new(telemetry.instance(), telemetry.clone(), limits, observers, resolve)
                .following(certificates.clone());
        let (abort, refusals, bypasses) = Default::default();
        RuntimeBuilder { shared, telemetry, certificates, abort, refusals, bypasses }
    }

    /// What `loaded` makes with whatever it leaves as it is in one of `before`. Nothing is dialled or fetched before [`Generation::start`].
    ///
    /// # Errors
    /// Every mistake that the parts find, with the lines.
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
        let revision = basis.revision().unwrap_or(FIRST_REVISION);
        let table = match (before.first(), &plugins) {
            // With what is known of the plugins, so that as little as possible is made anew.
            (Some(before), Some(plugins)) => before.table.load().after(config, &manifests(plugins), revision),
            _ => RouteTable::build(config, &[], revision),
        };
        let table = keep(table, &mut problems);
        let (Some(keys), Some(plugins), Some(table), Some(tls)) = (keys, plugins, table, tls) else {
            return Err(loaded.render(&problems));
        };
        let statuses = Arc::new(block_statuses(config));
        let required = config.required().into_iter().map(str::to_owned).collect();
        let (config, table) = (Arc::new(loaded.config), ArcSwap::from_pointee(table));
        let generation = Generation { config, basis, keys, plugins, statuses, table, required, held_back };
        Ok(InitialGeneration { generation, tls })
    }

    /// Puts the entries in force in the place of those that their plugins refuse.
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
        for (index, plugin) in config.plugins.iter().enumerate() {
            let from = ClientInputs::from_config(plugin, config);
            let mut made_before = before.iter().filter_map(|before| before.client_entry(&plugin.name));
            if let Some(same) = made_before.find(|old| *old.from == from) {
                made.push(same.clone());
                continue;
            }
            let builtin = plugin.builtin.as_deref().and_then(builtin::service);
            match PluginClient::new(plugin, &shared, builtin) {
                Ok(client) => made.push(ClientEntry { client, from: Arc::new(from) }),
                Err(message) => problems.push(Problem::new(format!("/plugins/{index}"), message)),
            }
        }
        if problems.is_empty() { Ok(made) } else { Err(problems) }
    }

    /// What calls go by when `generation` is in force with `table`, which is of `config`: its own, but for the bypasses.
    pub(crate) fn to_snapshot(
        &self,
        generation: &Generation,
        config: Arc<Config>,
        table: RouteTable,
    ) -> ConfigSnapshot {
        let Generation { basis, keys, statuses, .. } = generation;
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

    /// The plugins whose clients nobody of `before` has.
    pub(crate) fn fresh<'a>(
        &'a self,
        before: &'a [Arc<Generation>],
    ) -> impl Iterator<Item = (&'a config::Plugin, &'a Arc<PluginClient>)> {
        let is_fresh = |made: &&ClientEntry| !before.iter().any(|before| before.has(&made.client));
        self.plugins.iter().filter(is_fresh).map(|made| (&made.from.plugin, &made.client))
    }

    /// The same with what they were made from.
    pub(crate) fn new_client_entries<'a>(
        &'a self,
        before: &'a Generation,
    ) -> impl Iterator<Item = &'a ClientEntry> {
        self.plugins.iter().filter(|made| !before.has(&made.client))
    }

    /// Its client of the plugin `name`.
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

    /// The plugins that have to be there before this one takes the place of `before`: the fresh ones, and those that
    /// are required from then on.
    pub(crate) fn awaited_clients<'a>(
        &'a self,
        before: &'a Arc<Generation>,
    ) -> impl Iterator<Item = (&'a config::Plugin, &'a Arc<PluginClient>)> {
        let kept = self.plugins.iter().filter(|made| {
            // Its entry is the same in both; whether it is required also hangs on bindings.
            before.has(&made.client)
                && self.requires(&made.from.plugin.name)
                && !before.requires(&made.from.plugin.name)
        });
        let kept = kept.map(|made| (&made.from.plugin, &made.client));
        self.fresh(std::slice::from_ref(before)).filter(|(plugin, _)| plugin.enabled).chain(kept)
    }

    /// Whether nothing at all differs from `other`.
    pub(crate) fn is(&self, other: &Arc<Self>) -> bool {
        let has_its_clients = self.fresh(std::slice::from_ref(other)).next().is_none();
        let is_of_revision = self.basis.revision() == other.basis.revision();
        is_of_revision && self.config == other.config && self.has_keys_of(other) && has_its_clients
    }

    pub(crate) fn has_keys_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.keys.auth, &other.keys.auth)
    }

    /// Whether there are keys for the callers that `before` doesn't admit.
    pub(crate) fn has_keys_after(&self, before: &Self) -> bool {
        self.keys.auth.ready_after(&before.keys.auth)
    }

    /// Endpoints of the plugins in use, as they are written.
    pub(crate) fn endpoints(&self) -> BTreeSet<String> {
        let enabled = self.config.plugins.iter().filter(|plugin| plugin.enabled);
        enabled.flat_map(|plugin| plugin.addresses()).map(str::to_owned).collect()
    }

    /// The clients that nobody of `before` has: first the plugin whose binding is first in a chain, then by name; at last
    /// those without a binding.
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

    /// Dials and fetches what `before` didn't, until `ended`.
    pub(crate) fn start(&self, before: &[Arc<Generation>], ended: &CancellationToken) {
        let patience = self.config.startup.wait.0 / 2;
        upstream::start_in_order(self.in_order_of_initialisation(before), patience, ended);
        if !before.iter().any(|before| self.has_keys_of(before)) {
            let CallerKeys { auth, stop, .. } = self.keys.clone();
            let ended = ended.clone();
            tokio::spawn(async move { ended.run_until_cancelled(auth.refresh(stop)).await });
        }
    }

    /// The manifests of this moment.
    pub(crate) fn manifests(&self) -> AcceptedManifests {
        manifests(&self.plugins)
    }
}

fn manifests(plugins: &[ClientEntry]) -> AcceptedManifests {
    plugins.iter().map(|made| made.client.status().manifest).collect()
}

impl ClientEntry {
    /// What says what it is.
    pub(crate) fn entry(&self) -> &config::Plugin {
        &self.from.plugin
    }
}

impl ClientInputs {
    /// Of the plugin.
    pub(crate) fn name(&self) -> &str {
        &self.plugin.name
    }

    fn from_config(plugin: &config::Plugin, config: &Config) -> Self {
        let limits = &config.limits;
        let reach = config.reach();
        let resolved = resolve_references(&plugin.config, environment_variables(), reach.within(plugin));
        ClientInputs {
            // No call sees its labels: the client stays the same with others.
            plugin: config::Plugin { labels: Default::default(), ..plugin.clone() },
            resolved: resolved.map(|resolved| digest(&resolved.into_exposed().0.into())),
            observers: config.observers.clone(),
            request: limits.request,
            notices: (limits.notices, limits.notice_bytes, limits.details_bytes),
            reach: (plugin.owner == Owner::Api).then_some(reach),
        }
    }
}

/// Those of `before` where neither the configuration nor a file says anything else.
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

/// The value, or its problems added to `problems`.
fn keep<T>(result: Result<T, Vec<Problem>>, problems: &mut Vec<Problem>) -> Option<T> {
    result.map_err(|found| problems.extend(found)).ok()
}

/// Tells apart what the files with keys hold. One that can't be read is the authenticator's to report.
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
