//! The inputs shared by all tenants' plans: plugins, their manifests, global bindings, and tenant defaults.
//! While they are unchanged, a change affects only the tenants it names.

use std::{
    borrow::Borrow,
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::{
    config::{self, Config, Detail, JsonObject, Rate, UnknownTenant},
    core::{digest::digest, manifest::Manifest, point::Point, schema_violation, tool::ToolNames},
    routing::{
        applicability::PluginOffers,
        binding::{CompiledBinding, NameIndex},
        pattern_pool::PatternPool,
        plan::{BindingDetails, ChainElement, StepTemplate},
        plan_tools::BindingTools,
    },
};

#[derive(Debug)]
pub(super) struct TableInputs {
    written: Vec<Arc<config::Plugin>>,
    /// As many as there are plugins.
    manifests: Vec<Option<Arc<Manifest>>>,
    /// In the order of `written`.
    plugins: Vec<PluginInputs>,
    /// The global bindings in the order of the configuration, disabled ones included.
    pub(super) floor: Vec<PreparedBinding>,
    pub(super) defaults: TenantDefaults,
    unknown: UnknownTenant,
    pub(super) pool: Arc<PatternPool>,
}

/// The settings of a tenant that sets none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TenantDefaults {
    pub(super) detail: Detail,
    pub(super) in_flight: usize,
    pub(super) rate: Option<Rate>,
    /// By [`Point::index`], whether all tenants require a step there.
    pub(super) required: [bool; 4],
}

/// What all steps of a plugin share.
#[derive(Debug)]
struct PluginInputs {
    name: Arc<str>,
    version: Option<Arc<str>>,
    config_digest: Arc<str>,
    /// The names that its tools may have, by its manifest or else its consent. `None` without any.
    tool_names: Option<Arc<ToolNames>>,
}

impl PluginInputs {
    fn new(plugin: &config::Plugin, manifest: Option<&Manifest>) -> Self {
        let names = match (manifest, &plugin.accepted) {
            (Some(manifest), _) => Arc::clone(&manifest.tool_names),
            // Without the globs, which were checked, a step that isn't offered fails.
            (None, Some(consent)) => Arc::new(ToolNames::new("tools", &consent.tools).unwrap_or_default()),
            (None, None) => Arc::default(),
        };
        PluginInputs {
            name: plugin.name.as_str().into(),
            version: manifest.map(|manifest| manifest.version.to_string().into()),
            config_digest: digest(&Value::Object(plugin.config.clone())).into(),
            tool_names: Some(names).filter(|names| !names.is_empty()),
        }
    }
}

/// A binding with what all its steps share.
#[derive(Debug)]
pub(super) struct PreparedBinding {
    pub(super) binding: CompiledBinding,
    written: Arc<BindingDetails>,
    writable: Option<Arc<[String]>>,
    /// The element without a tenant's config. Created on first use.
    base: OnceLock<Arc<ChainElement>>,
}

impl Borrow<CompiledBinding> for PreparedBinding {
    fn borrow(&self) -> &CompiledBinding {
        &self.binding
    }
}

impl TenantDefaults {
    fn from_config(config: &Config) -> Self {
        let limits = &config.limits;
        let require_steps = &config.tenants.require_steps;
        TenantDefaults {
            detail: config.answer.detail,
            in_flight: limits.tenant_in_flight,
            rate: limits.tenant_rate,
            required: Point::ALL.map(|point| require_steps.contains(&point)),
        }
    }
}

impl TableInputs {
    /// The inputs of `config`, whose global bindings are `floor`.
    pub(super) fn new(
        config: &Config,
        manifests: &[Option<Arc<Manifest>>],
        floor: Vec<CompiledBinding>,
        pool: Arc<PatternPool>,
    ) -> Self {
        let manifests: Vec<_> = padded(config, manifests).map(|manifest| manifest.cloned()).collect();
        let plugins = config.plugins.iter().zip(&manifests);
        let plugins =
            plugins.map(|(plugin, manifest)| PluginInputs::new(plugin, manifest.as_deref())).collect();
        let mut ground = TableInputs {
            written: config.plugins.clone(),
            manifests,
            plugins,
            floor: Vec::new(),
            defaults: TenantDefaults::from_config(config),
            unknown: config.tenants.unknown,
            pool,
        };
        ground.floor = floor.into_iter().map(|binding| ground.prepare(binding)).collect();
        ground
    }

    /// Whether these are the inputs of `config` with `manifests`, ignoring global bindings.
    pub(super) fn is_of(&self, config: &Config, manifests: &[Option<Arc<Manifest>>]) -> bool {
        let same_manifest = |(now, then): (Option<&Arc<Manifest>>, &Option<Arc<Manifest>>)| {
            now.map(Arc::as_ptr) == then.as_ref().map(Arc::as_ptr)
        };
        self.written.len() == config.plugins.len()
            && self.written.iter().zip(&config.plugins).all(|(then, now)| Arc::ptr_eq(then, now))
            && padded(config, manifests).zip(&self.manifests).all(same_manifest)
            && self.defaults == TenantDefaults::from_config(config)
            && self.unknown == config.tenants.unknown
    }

    pub(super) fn manifest(&self, plugin: usize) -> Option<&Manifest> {
        self.manifests.get(plugin).and_then(Option::as_deref)
    }

    /// The points that a plugin offers, as far as they are known.
    pub(super) fn offers(&self, plugin: usize) -> PluginOffers<'_> {
        PluginOffers::applies(&self.written[plugin], self.manifest(plugin))
    }

    pub(super) fn serves_others(&self) -> bool {
        self.unknown == UnknownTenant::Accept
    }

    pub(super) fn has_plugin(&self, name: &str) -> bool {
        self.plugins.iter().any(|plugin| &*plugin.name == name)
    }

    /// The names that a listed tenant's binding may refer to.
    pub(super) fn name_index(&self) -> NameIndex<'_, impl Fn(&str) -> bool> {
        let plugins: HashMap<_, _> =
            self.plugins.iter().enumerate().map(|(at, plugin)| (&*plugin.name, at)).collect();
        NameIndex { plugins, of: &self.written, is_listed: |_: &str| true, pool: &self.pool }
    }

    pub(super) fn prepare(&self, binding: CompiledBinding) -> PreparedBinding {
        let PluginInputs { version, config_digest, .. } = &self.plugins[binding.plugin];
        let written = BindingDetails {
            priority: binding.written.priority,
            is_floor: binding.written.is_floor(),
            is_at_hooks: binding.written.hooks.is_some(),
            denied_tools: binding.denied_tools.clone(),
            version: version.clone(),
            config_digest: config_digest.clone(),
        };
        let writable = binding.written.writable.as_deref().map(Into::into);
        PreparedBinding { binding, written: Arc::new(written), writable, base: OnceLock::new() }
    }

    /// The chain element of `prepared`, with the top-level keys of its config overridden by the tenant's.
    pub(super) fn element(
        &self,
        prepared: &PreparedBinding,
        tenant: Option<&JsonObject>,
    ) -> Arc<ChainElement> {
        match tenant {
            None => prepared.base.get_or_init(|| Arc::new(self.with(prepared, None))).clone(),
            Some(tenant) => Arc::new(self.with(prepared, Some(tenant))),
        }
    }

    fn with(&self, prepared: &PreparedBinding, tenant: Option<&JsonObject>) -> ChainElement {
        let PreparedBinding { binding, written, writable, .. } = prepared;
        let offers = self.offers(binding.plugin);
        let merged = MergedConfig::new(&binding.written.config, tenant, offers.manifest());
        // A binding's timeout overrides its plugin's.
        let timeout = binding.written.timeout.unwrap_or(self.written[binding.plugin].limits.timeout).0;
        let fixed = StepTemplate {
            plugin: binding.plugin,
            plugin_name: self.plugins[binding.plugin].name.clone(),
            binding: binding.name.clone(),
            mode: binding.written.mode(),
            on_error: binding.written.on_error(),
            timeout,
            tenant_config: merged.json.into(),
            tenant_config_digest: merged.digest.into(),
            config_refused: merged.refused,
            writable: writable.clone(),
            conditions: binding.conditions.clone(),
            written: Arc::clone(written),
        };
        let tools = self.plugins[binding.plugin].tool_names.as_ref().map(|names| BindingTools {
            names: Arc::clone(names),
            tools: offers.manifest().and_then(|manifest| manifest.tools.clone()),
            denied: binding.denied_tools.clone(),
        });
        ChainElement::new(fixed, binding, offers, tools)
    }
}

/// The tenant-level config of one step.
struct MergedConfig {
    json: Vec<u8>,
    digest: String,
    refused: Option<Arc<str>>,
}

impl MergedConfig {
    /// The config of a binding with its top-level keys overridden by the tenant's. Checked against the
    /// plugin's schema if a manifest is accepted and has one.
    fn new(binding: &JsonObject, tenant: Option<&JsonObject>, manifest: Option<&Manifest>) -> Self {
        let mut merged = binding.clone();
        merged.extend(tenant.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        let merged = Value::Object(merged);
        let schema = manifest.and_then(|manifest| manifest.tenant_config_schema.as_deref());
        let refused = schema.and_then(|schema| schema.validate(&merged).err()).map(|error| {
            // Without the values, which are the tenant's: the sentence goes to logs.
            let at = schema_violation::place(&error);
            let wrong = match error.kind() {
                ValidationErrorKind::FalseSchema => "the plugin takes nothing".to_owned(),
                _ => schema_violation::rule(&error),
            };
            format!("tenant-level config: {wrong} at `{at}`").into()
        });
        MergedConfig { json: merged.to_string().into(), digest: digest(&merged), refused }
    }
}

/// Extends `manifests` to one for each plugin of `config`.
fn padded<'m>(
    config: &Config,
    manifests: &'m [Option<Arc<Manifest>>],
) -> impl Iterator<Item = Option<&'m Arc<Manifest>>> {
    (0..config.plugins.len()).map(|at| manifests.get(at).and_then(Option::as_ref))
}
