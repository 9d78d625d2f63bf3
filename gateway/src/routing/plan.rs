//! The ordered, compiled steps of one chain, and the digest that tells two chains apart.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Conditions, Manifest, Offer, binding::Binding};
use crate::{
    config::{self, Config, Match, Object},
    digest::digest,
    point::Point,
    step::{Mode, OnError},
};

/// The steps of one tenant at one point, in the order in which they run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Ascending priority, observers among them. Empty: the payload passes as it is.
    pub steps: Vec<Step>,
    /// Changes with the steps: [`crate::digest`] of a JSON array with an object for each, observers included,
    /// in order, whose members are
    ///
    /// - `binding`, `plugin`: their names
    /// - `version`: the accepted manifest's, null before there is one
    /// - `priority`: as written
    /// - `points`: the points at which the binding stands, in the order of an agent's loop
    /// - `mode`, `on_error`: with their defaults filled in; `skip` for an observer
    /// - `timeout_ms`: the step's time-out
    /// - `config`: digest of the plugin-level config with its references unresolved
    /// - `tenant_config`: digest of the step's tenant-level config
    /// - `match`: the conditions as written, null without any
    pub digest: Arc<str>,
}

/// One binding in one plan.
#[derive(Debug, Clone)]
pub struct Step {
    /// Index in `Config.plugins`.
    pub plugin: usize,
    /// The plugin's registered name.
    pub plugin_name: Arc<str>,
    /// The binding's name.
    pub binding: Arc<str>,
    /// What the plugin may do.
    pub mode: Mode,
    /// What a failure does; [`OnError::Skip`] for an observer, whose failure is only counted.
    pub on_error: OnError,
    /// Time-out of the step, queue and connect included.
    pub timeout: Duration,
    /// Tenant-level config as JSON text, always an object.
    pub tenant_config: Bytes,
    /// Digest of `tenant_config`.
    pub tenant_config_digest: Arc<str>,
    /// Why the plugin's schema refuses `tenant_config`, where it does: one sentence for operators. Such a step
    /// fails as `not_ready` without a call. The plugin never sees a config that its schema refuses, and the
    /// step keeps its place, so that a mistake in a tenant's config closes an enforcing chain instead of
    /// taking a rule out of it.
    pub config_refused: Option<Arc<str>>,
    /// What the accepted manifest offers at this point. None: no manifest is accepted yet, and the call fails
    /// as `not_ready`, or see `not_offered`.
    pub offer: Option<Offer>,
    /// The binding names this point and the accepted manifest doesn't offer it: the step fails as
    /// `point_not_offered`.
    pub not_offered: bool,
    /// The only payload fields the plugin may patch; none: all that the point and the offer allow.
    pub writable: Option<Arc<[String]>>,
    /// When the step runs.
    pub conditions: Conditions,
    /// What else its binding says, for people.
    pub written: Arc<Written>,
    /// What a step that may be skipped leaves of the budget: the time-outs of the later enforce and advise
    /// steps of this plan with `on_error: fail`, conditions ignored. Not capped.
    pub reserve: Duration,
}

/// What a binding says beside what its steps need to run; one for all of them.
#[derive(Debug, Default)]
pub struct Written {
    /// Its place in a chain.
    pub priority: i64,
    /// Whether it stands for more than one tenant, so that a tenant only adds to it.
    pub is_floor: bool,
    /// The conditions as written, absent keys left out; null without any.
    pub conditions: Value,
    /// The accepted manifest's version; none before there is one.
    pub version: Option<String>,
    /// Digest of the plugin-level config with its references unresolved.
    pub config_digest: String,
}

/// The tenant-level config of one step.
#[derive(Debug, Clone)]
pub(super) struct StepConfig {
    pub(super) json: Bytes,
    pub(super) digest: Arc<str>,
    pub(super) refused: Option<Arc<str>>,
}

impl StepConfig {
    /// The config of a binding with its top-level keys replaced by the tenant's, checked against the plugin's
    /// schema where a manifest is accepted and has one.
    pub(super) fn merge(binding: &Object, tenant: Option<&Object>, manifest: Option<&Manifest>) -> Self {
        let mut merged = binding.clone();
        merged.extend(tenant.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        let merged = Value::Object(merged);
        let schema = manifest.and_then(|manifest| manifest.tenant_config_schema.as_deref());
        let refused = schema.and_then(|schema| schema.validate(&merged).err()).map(|error| {
            // Masked: the values are the tenant's, the sentence is for logs.
            let at = Some(error.instance_path().as_str()).filter(|at| !at.is_empty()).unwrap_or("/");
            format!("tenant-level config: {} at `{at}`", error.masked()).into()
        });
        StepConfig { json: merged.to_string().into(), digest: digest(&merged).into(), refused }
    }
}

/// What plans are made from.
pub(super) struct Planner<'c> {
    config: &'c Config,
    manifests: Vec<Option<&'c Manifest>>,
    names: Vec<Arc<str>>,
    writable: HashMap<usize, Arc<[String]>>,
    /// By index in `Config.bindings`.
    written: Vec<Arc<Written>>,
}

impl<'c> Planner<'c> {
    /// For the compiled `bindings` of `config`, all of them.
    pub(super) fn new(
        config: &'c Config,
        manifests: &'c [Option<Arc<Manifest>>],
        bindings: &[Binding<'_>],
    ) -> Self {
        let manifest = |plugin: usize| manifests.get(plugin).and_then(Option::as_deref);
        // Digests of the plugin-level configs, by plugin.
        let configs = config.plugins.iter().map(|plugin| digest(&Value::Object(plugin.config.clone())));
        let configs: Vec<_> = configs.collect();
        let written = bindings.iter().map(|binding| {
            Arc::new(Written {
                priority: binding.written.priority,
                is_floor: binding.written.is_floor(),
                conditions: conditions(binding.written),
                version: manifest(binding.plugin).map(|manifest| manifest.version.to_string()),
                config_digest: configs[binding.plugin].clone(),
            })
        });
        let plugins = config.plugins.iter();
        let writable = config.bindings.iter().enumerate();
        Planner {
            config,
            manifests: (0..config.plugins.len()).map(manifest).collect(),
            names: plugins.map(|plugin| plugin.name.as_str().into()).collect(),
            written: written.collect(),
            writable: writable
                .filter_map(|(at, binding)| Some((at, binding.writable.as_deref()?.into())))
                .collect(),
        }
    }

    pub(super) fn manifest(&self, plugin: usize) -> Option<&'c Manifest> {
        self.manifests[plugin]
    }

    /// The plans of a chain whose steps have these configs, by [`Point::index`].
    pub(super) fn plans(&self, chain: &[(&Binding<'_>, Arc<StepConfig>)]) -> [Plan; 4] {
        Point::ALL.map(|point| {
            let stands = |binding: &Binding<'_>| binding.stands_at(point, self.manifest(binding.plugin));
            let here: Vec<_> = chain.iter().filter(|(binding, _)| stands(binding)).collect();
            let facts = here.iter().map(|(binding, config)| self.facts(binding, config)).collect();
            let mut steps: Vec<_> =
                here.iter().map(|(binding, config)| self.step(point, binding, config)).collect();
            let mut reserve = Duration::ZERO;
            for step in steps.iter_mut().rev() {
                step.reserve = reserve;
                if step.on_error == OnError::Fail {
                    reserve = reserve.saturating_add(step.timeout);
                }
            }
            Plan { steps, digest: digest(&Value::Array(facts)).into() }
        })
    }

    fn step(&self, point: Point, binding: &Binding<'_>, config: &StepConfig) -> Step {
        let manifest = self.manifest(binding.plugin);
        let offer = manifest.and_then(|manifest| manifest.offers(point));
        Step {
            plugin: binding.plugin,
            plugin_name: self.names[binding.plugin].clone(),
            binding: binding.name.clone(),
            mode: binding.written.mode(),
            on_error: binding.written.on_error(),
            timeout: self.timeout(binding),
            tenant_config: config.json.clone(),
            tenant_config_digest: config.digest.clone(),
            config_refused: config.refused.clone(),
            offer,
            not_offered: manifest.is_some() && offer.is_none(),
            writable: self.writable.get(&binding.index).cloned(),
            conditions: binding.conditions.clone(),
            written: self.written[binding.index].clone(),
            reserve: Duration::ZERO,
        }
    }

    /// A binding's time-out stands over its plugin's.
    fn timeout(&self, binding: &Binding<'_>) -> Duration {
        binding.written.timeout.unwrap_or(self.config.plugins[binding.plugin].limits.timeout).0
    }

    /// What a plan's digest covers of one step; see [`Plan::digest`].
    fn facts(&self, binding: &Binding<'_>, config: &StepConfig) -> Value {
        let manifest = self.manifest(binding.plugin);
        let written = &self.written[binding.index];
        let points: Vec<_> =
            Point::ALL.into_iter().filter(|point| binding.stands_at(*point, manifest)).collect();
        json!({
            "binding": &*binding.name,
            "plugin": &*self.names[binding.plugin],
            "version": written.version,
            "priority": written.priority,
            "points": points,
            "mode": binding.written.mode(),
            "on_error": binding.written.on_error(),
            "timeout_ms": u64::try_from(self.timeout(binding).as_millis()).unwrap_or(u64::MAX),
            "config": written.config_digest,
            "tenant_config": &*config.digest,
            "match": written.conditions,
        })
    }
}

/// The conditions as written, absent keys left out; null without any.
fn conditions(binding: &config::Binding) -> Value {
    let written = &binding.conditions;
    if *written == Match::default() {
        return Value::Null;
    }
    let mut members = Object::new();
    for (name, list) in [("tools", &written.tools), ("agents", &written.agents), ("models", &written.models)]
    {
        members.extend(list.as_ref().map(|list| (name.to_owned(), json!(list))));
    }
    if !written.labels.is_empty() {
        members.insert("labels".to_owned(), json!(written.labels));
    }
    members.extend(
        written
            .text
            .as_ref()
            .map(|text| ("text".to_owned(), json!({ "contains": text.contains, "regex": text.regex }))),
    );
    Value::Object(members)
}
