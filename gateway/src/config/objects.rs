//! Plugins, tenants, bindings, upstreams and models as single objects: those of the file, as JSON, and a configuration with
//! other objects than the file's (docs/protocol.md, section 7). Doesn't know where they are stored.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    config::{
        check::check_objects,
        llm::{ModelRule, ModelUpstream, file_priority},
        load::LoadedConfig,
        model::{Config, Tenant},
        partial_config::PartialConfig,
        plugin::{Binding, Plugin},
        problem::{Problem, RegistryPlace, item},
        schema::Schema,
        tree::NodeFinder,
        validate::{SchemaViolations, validate},
    },
    core::object::{ObjectKind, Owner},
};

/// Objects that replace the file's. Pass the same `Arc` again for an unchanged object.
#[derive(Debug, Clone, Default)]
pub struct ObjectSet {
    /// See [`Config::plugins`].
    pub plugins: Vec<Arc<Plugin>>,
    /// See [`super::Tenants::list`].
    pub tenants: Vec<Arc<Tenant>>,
    /// See [`Config::bindings`].
    pub bindings: Vec<Arc<Binding>>,
    /// See [`super::LlmProxy::upstreams`].
    pub upstreams: Vec<Arc<ModelUpstream>>,
    /// See [`super::LlmProxy::models`].
    pub models: Vec<Arc<ModelRule>>,
}

/// Pointers to the lists in a file.
pub(crate) const PLUGINS: &str = "/plugins";
pub(crate) const TENANTS: &str = "/tenants/list";
pub(crate) const BINDINGS: &str = "/bindings";
pub(crate) const UPSTREAMS: &str = "/llm/upstreams";
pub(crate) const MODELS: &str = "/llm/models";

impl LoadedConfig {
    /// The entries of the list at `pointer` as JSON, in their order. References in plugins' `config` are kept
    /// as written, all others are resolved. Providers' keys are left out. Rules for models have their priorities.
    pub fn written_values(&self, pointer: &str) -> Vec<Value> {
        let list = self.source.root().and_then(|root| NodeFinder::new(root).find(pointer));
        match list.map(|(list, _)| list.to_json()) {
            Some(Value::Array(entries)) => {
                entries.into_iter().enumerate().map(|(at, entry)| shared(pointer, at, entry)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the file has any objects.
    pub fn has_objects(&self) -> bool {
        let Config { plugins, tenants, bindings, llm, .. } = &self.config;
        let has_models = llm.as_ref().is_some_and(|llm| !(llm.upstreams.is_empty() && llm.models.is_empty()));
        has_models || !(plugins.is_empty() && tenants.list.is_empty() && bindings.is_empty())
    }

    /// This file's configuration with `objects` instead of its own. Problems of objects that the file applies and has refer
    /// to its lines, others to the object's name. Reads the files that hold the keys of the API's upstreams.
    #[must_use]
    pub fn with(&self, objects: ObjectSet) -> Self {
        let ObjectSet { plugins, tenants, bindings, upstreams, models } = objects;
        let mut config = Config { plugins, bindings, ..self.config.without_objects() };
        config.tenants.list = tenants;
        // Without them, the file's tenants don't count, nor does what they have.
        let counts = self.config.store.as_ref().is_none_or(|store| store.apply_file);
        if let Some(llm) = &mut config.llm {
            llm.upstreams = upstreams.into_iter().map(|upstream| self.on_this_machine(upstream)).collect();
            llm.models = models;
            if !counts {
                llm.tenant_credentials.clear();
            }
        }
        let of_file = if counts { self.config.objects() } else { ObjectSet::default() };
        LoadedConfig { config, source: Arc::clone(&self.source), of_file: Some(Arc::new(of_file)) }
    }

    /// The same upstream with what is this machine's: the provider's key, which is the file's or what its reference names
    /// here, and where it may be.
    fn on_this_machine(&self, upstream: Arc<ModelUpstream>) -> Arc<ModelUpstream> {
        let (credential, credential_error) = match (upstream.owner, &upstream.credential) {
            (Owner::File, _) => {
                let of_file = self.config.llm.iter().flat_map(|llm| &llm.upstreams);
                let same =
                    of_file.filter(|own| own.name == upstream.name).find_map(|own| own.credential.clone());
                (same, None)
            }
            (Owner::Api, None) => (None, None),
            (Owner::Api, Some(written)) => match written.resolve(&self.config.secrets) {
                Ok(key) => (Some(key), None),
                Err(why) => (None, Some(why)),
            },
        };
        let egress = (upstream.owner == Owner::Api).then(|| Arc::new(self.config.egress.clone()));
        Arc::new(ModelUpstream { credential, credential_error, egress, ..ModelUpstream::clone(&upstream) })
    }

    /// Finds places in objects of the registry, if the objects are a registry's.
    pub(super) fn registry_places(&self) -> Option<RegistryPlaces<'_>> {
        let of_file = self.of_file.as_ref()?;
        let plugins = of_file.plugins.iter().map(|plugin| (ObjectKind::Plugin, (&*plugin.name).into()));
        let tenants = of_file.tenants.iter().map(|tenant| (ObjectKind::Tenant, (&*tenant.id).into()));
        let bindings = of_file.bindings.iter().map(|own| (ObjectKind::Binding, own.effective_name()));
        let upstreams = of_file.upstreams.iter().map(|own| (ObjectKind::Upstream, (&*own.name).into()));
        let models = of_file.models.iter().map(|rule| (ObjectKind::Model, rule.effective_name()));
        let named = plugins.enumerate().chain(tenants.enumerate()).chain(bindings.enumerate());
        let named = named.chain(upstreams.enumerate()).chain(models.enumerate());
        let in_file = named.map(|(at, name)| (name, at)).collect();
        Some(RegistryPlaces { config: &self.config, of_file, in_file })
    }
}

/// The kind and name of an object.
type ObjectName<'c> = (ObjectKind, Cow<'c, str>);

/// Finds places in objects of a registry.
pub(super) struct RegistryPlaces<'c> {
    config: &'c Config,
    of_file: &'c ObjectSet,
    /// The indices of `of_file`: there may be tens of thousands of objects, and as many problems.
    in_file: HashMap<ObjectName<'c>, usize>,
}

impl RegistryPlaces<'_> {
    /// The place that a pointer leads to, if it is in an object of the registry.
    pub(super) fn find(&self, pointer: &str) -> Option<RegistryPlace> {
        let RegistryPlaces { config: Config { plugins, tenants, bindings, llm, .. }, of_file, .. } = self;
        let (upstreams, models) = llm.as_ref().map(|llm| (&*llm.upstreams, &*llm.models)).unwrap_or_default();
        None.or_else(|| {
            let entry = Entry::find(pointer, PLUGINS, plugins)?;
            Some(self.place(&entry, (ObjectKind::Plugin, (&*entry.object.name).into()), &of_file.plugins))
        })
        .or_else(|| {
            let entry = Entry::find(pointer, TENANTS, &tenants.list)?;
            Some(self.place(&entry, (ObjectKind::Tenant, (&*entry.object.id).into()), &of_file.tenants))
        })
        .or_else(|| {
            let entry = Entry::find(pointer, BINDINGS, bindings)?;
            let name = (ObjectKind::Binding, entry.object.effective_name());
            Some(self.place(&entry, name, &of_file.bindings))
        })
        .or_else(|| {
            let entry = Entry::find(pointer, UPSTREAMS, upstreams)?;
            Some(self.place(&entry, (ObjectKind::Upstream, (&*entry.object.name).into()), &of_file.upstreams))
        })
        .or_else(|| {
            let entry = Entry::find(pointer, MODELS, models)?;
            let name = (ObjectKind::Model, entry.object.effective_name());
            Some(self.place(&entry, name, &of_file.models))
        })
    }

    /// `of_file` are the objects of the file's list. One with other content is not the same: another process may have
    /// applied another version of the file.
    fn place<T: PartialEq>(
        &self,
        entry: &Entry<'_, T>,
        (kind, name): ObjectName<'_>,
        of_file: &[Arc<T>],
    ) -> RegistryPlace {
        let Entry { list, object, rest } = entry;
        let name = name.into_owned();
        let at = self.in_file.get(&(kind, Cow::Borrowed(&*name)));
        let at = at.filter(|at| of_file.get(**at).is_some_and(|own| **own == **object));
        let in_file = at.map(|at| item(list, *at) + rest);
        RegistryPlace { kind, name, pointer: (*rest).to_owned(), in_file }
    }
}

/// The object of a list that a pointer leads to.
struct Entry<'p, T> {
    list: &'p str,
    object: &'p T,
    /// The rest of the pointer.
    rest: &'p str,
}

impl<'p, T> Entry<'p, T> {
    /// The object among `objects`, which are the list at `list`.
    fn find(pointer: &'p str, list: &'p str, objects: &'p [Arc<T>]) -> Option<Self> {
        let rest = pointer.strip_prefix(list)?.strip_prefix('/')?;
        let (index, rest) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let object = objects.get(index.parse::<usize>().ok()?)?;
        Some(Entry { list, object, rest })
    }
}

/// The entry `at` of the file's list at `list` as registries and readers of the admin API get it: without providers' keys,
/// and with what follows from its place in the list.
fn shared(list: &str, at: usize, mut entry: Value) -> Value {
    let holder = if list == TENANTS { entry.get_mut("llm") } else { Some(&mut entry) };
    let members = holder.and_then(Value::as_object_mut);
    match (list, members) {
        (TENANTS, Some(llm)) => drop(llm.remove("credentials")),
        (UPSTREAMS, Some(upstream)) => drop(upstream.remove("credential")),
        (MODELS, Some(rule)) => drop(rule.entry("priority").or_insert_with(|| file_priority(at).into())),
        _ => {}
    }
    entry
}

/// Parses an object from its JSON, which was checked when it was written.
///
/// # Errors
/// One sentence without any value, for an object from a version with other keys.
pub fn read<T: DeserializeOwned>(spec: &str) -> Result<T, String> {
    serde_json::from_str(spec).map_err(|error| {
        let words = error.to_string();
        // Line and column mean nothing to the reader, who never sees this text.
        let words = words.split_once(" at line ").map_or(&*words, |(words, _)| words);
        // Any other message may quote a value.
        let why = if words.starts_with("unknown field") { words } else { "a value doesn't fit its type" };
        format!("can't be read by this version: {why}")
    })
}

/// The problems of one entry of the list at `list` on its own, by the rules of the file; pointers begin at
/// the entry. References to other objects aren't checked.
pub fn check(list: &str, spec: &Value) -> Vec<Problem> {
    let root = match list {
        TENANTS => json!({ "tenants": { "list": [spec] } }),
        UPSTREAMS => json!({ "llm": { "upstreams": [spec] } }),
        MODELS => json!({ "llm": { "models": [spec] } }),
        list => json!({ list.trim_start_matches('/'): [spec] }),
    };
    let schema = Schema::shared();
    let SchemaViolations { mut problems, pointers } = validate(&root, schema, &BTreeSet::new());
    problems.extend(check_objects(&PartialConfig::new(&root, &pointers, schema)));
    let place = item(list, 0);
    problems
        .into_iter()
        .filter_map(|mut problem| {
            // The missing rest of a configuration is not a problem here.
            problem.pointer = problem.pointer.strip_prefix(&place)?.to_owned();
            Some(problem)
        })
        .collect()
}

impl Config {
    fn objects(&self) -> ObjectSet {
        let llm = self.llm.as_ref();
        ObjectSet {
            plugins: self.plugins.clone(),
            tenants: self.tenants.list.clone(),
            bindings: self.bindings.clone(),
            upstreams: llm.map(|llm| llm.upstreams.clone()).unwrap_or_default(),
            models: llm.map(|llm| llm.models.clone()).unwrap_or_default(),
        }
    }

    /// Moves the credentials of the file's tenants to the LLM proxy.
    pub(super) fn take_tenant_credentials(&mut self) {
        // Without it there is no upstream that they could be for.
        let Some(llm) = &mut self.llm else { return };
        for tenant in self.tenants.list.iter_mut().filter(|tenant| !tenant.llm.credentials.is_empty()) {
            let tenant = Arc::make_mut(tenant);
            llm.tenant_credentials.insert(tenant.id.clone(), std::mem::take(&mut tenant.llm.credentials));
        }
    }

    /// Gives each rule for models of the file the priority that follows from its place.
    pub(super) fn number_models(&mut self) {
        let rules = self.llm.iter_mut().flat_map(|llm| &mut llm.models);
        for (index, rule) in rules.enumerate().filter(|(_, rule)| rule.priority.is_none()) {
            Arc::make_mut(rule).priority = Some(file_priority(index));
        }
    }

    /// Everything but the objects.
    fn without_objects(&self) -> Self {
        let tenants = super::Tenants { list: Vec::new(), ..self.tenants.clone() };
        Config {
            server: self.server.clone(),
            auth: self.auth.clone(),
            tenants,
            plugins: Vec::new(),
            bindings: Vec::new(),
            limits: self.limits.clone(),
            drain: self.drain.clone(),
            observers: self.observers.clone(),
            startup: self.startup.clone(),
            block_status: self.block_status.clone(),
            answer: self.answer.clone(),
            telemetry: self.telemetry.clone(),
            log: self.log.clone(),
            store: self.store.clone(),
            egress: self.egress.clone(),
            secrets: self.secrets.clone(),
            self_registration: self.self_registration.clone(),
            llm: self.llm.clone(),
            bypasses: Vec::new(),
        }
    }
}
