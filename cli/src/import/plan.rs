//! Decides what an import writes: the plugins in the order of the agent's file, with what is not the same. A plugin
//! that can't be carried over is a problem, unless the person who imports leaves it out by name: a rule never
//! disappears unasked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use hookgate::{
    config::{JsonObject, Problem, did_you_mean, is_name},
    json::pointer,
};

use super::{
    agent_file::{AgentFile, CustomPlugin, PluginSection, RegistryPlugin},
    builtins,
    references::{self, ConfigReferences},
    report::{Finding, FindingKind},
};

const CONTENT_POLICY: &str = "/plugins/contentPolicy";
const RESPONSE_SANITIZER: &str = "/plugins/responseSanitizer";
const CUSTOM: &str = "/plugins/custom";
const REGISTRY: &str = "/plugins/registry";
const HOOKS: &str = "/hooks";

/// Where a plugin runs.
pub(super) enum PluginSource {
    /// In the gateway.
    Builtin(&'static str),
    /// In the runner, from this module.
    Module(String),
}

/// A plugin to write.
pub(super) struct PlannedPlugin {
    pub(super) name: String,
    pub(super) pointer: String,
    pub(super) source: PluginSource,
    pub(super) priority: i64,
    pub(super) blocking: bool,
    pub(super) enabled: bool,
    /// With the gateway's references.
    pub(super) config: JsonObject,
}

/// What to write, and what to tell.
#[derive(Default)]
pub(super) struct ImportPlan {
    pub(super) plugins: Vec<PlannedPlugin>,
    pub(super) findings: Vec<Finding>,
    pub(super) problems: Vec<Problem>,
    /// Variables in the config of enabled plugins.
    pub(super) variables: BTreeSet<String>,
    /// Names to leave out, and whether a plugin has the name.
    skipped: BTreeMap<String, bool>,
}

impl ImportPlan {
    /// A plan for `file` without the plugins that `skipped` names.
    pub(super) fn new(file: &AgentFile, skipped: &[String]) -> Self {
        let mut plan = ImportPlan {
            skipped: skipped.iter().map(|name| (name.clone(), false)).collect(),
            ..ImportPlan::default()
        };
        match &file.plugins {
            Some(section) if !section.is_empty() => plan.section(section),
            found => plan.problems.push(nothing_to_import(file, found.is_some())),
        }
        plan.other_sections(file);
        plan.check_names();
        plan.check_priorities();
        plan
    }

    /// Names to leave out that no plugin has.
    pub(super) fn unknown_skips(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().filter(|(_, is_known)| !**is_known).map(|(name, _)| name.as_str())
    }

    fn section(&mut self, section: &PluginSection) {
        if let Some(policy) = &section.content_policy
            && !self.skips("contentPolicy", CONTENT_POLICY, policy.enabled)
        {
            let (config, findings) = builtins::content_policy(policy, CONTENT_POLICY);
            self.findings.extend(findings);
            self.plugins.push(PlannedPlugin {
                name: "content-policy".to_owned(),
                pointer: CONTENT_POLICY.to_owned(),
                source: PluginSource::Builtin("content-policy"),
                priority: policy.priority,
                blocking: policy.blocking.unwrap_or(true),
                enabled: policy.enabled,
                config,
            });
        }
        if let Some(sanitizer) = &section.response_sanitizer
            && !self.skips("responseSanitizer", RESPONSE_SANITIZER, sanitizer.enabled)
        {
            let (config, findings) = builtins::response_sanitizer(sanitizer, RESPONSE_SANITIZER);
            self.findings.extend(findings);
            self.plugins.push(PlannedPlugin {
                name: "response-sanitizer".to_owned(),
                pointer: RESPONSE_SANITIZER.to_owned(),
                source: PluginSource::Builtin("response-sanitizer"),
                priority: sanitizer.priority,
                blocking: sanitizer.blocking.unwrap_or(false),
                enabled: sanitizer.enabled,
                config,
            });
        }
        for (index, plugin) in section.custom.iter().enumerate() {
            self.custom(plugin, pointer::child(CUSTOM, &index.to_string()));
        }
        for (index, plugin) in section.registry.iter().enumerate() {
            self.registry(plugin, &pointer::child(REGISTRY, &index.to_string()));
        }
    }

    fn custom(&mut self, plugin: &CustomPlugin, at: String) {
        if self.skips(&plugin.name, &at, plugin.enabled) {
            return;
        }
        if !is_name(&plugin.name) {
            let right = "`name` must be a letter and up to 63 letters, digits, `_` and `-`";
            self.problems.push(
                Problem::new(pointer::child(&at, "name"), right)
                    .remedy("rename the plugin: Dexto uses the name in logs only"),
            );
        }
        self.problems.extend(module_problem(&plugin.module, &pointer::child(&at, "module")));
        let (config, found) = references::translated(&plugin.config);
        self.config_findings(&found, &pointer::child(&at, "config"), plugin.enabled);
        self.plugins.push(PlannedPlugin {
            name: plugin.name.clone(),
            pointer: at,
            source: PluginSource::Module(plugin.module.clone()),
            priority: plugin.priority,
            blocking: plugin.blocking,
            enabled: plugin.enabled,
            config,
        });
    }

    /// Such a plugin is in the application's code: there is no module to run. A disabled one is only told of.
    fn registry(&mut self, plugin: &RegistryPlugin, at: &str) {
        let name = &plugin.provider;
        if self.skips(name, at, plugin.enabled) {
            return;
        }
        let kind = if plugin.blocking { "blocking" } else { "non-blocking" };
        let message = format!(
            "the {kind} plugin `{name}` is registered by the application's code and has no module to run"
        );
        let remedy = "export its class from a module and list it under `custom`";
        if plugin.enabled {
            self.problems.push(
                Problem::new(at, message).remedy(format!("{remedy}, or leave it out with `--skip {name}`")),
            );
        } else {
            self.findings.push(Finding::new(
                FindingKind::NotCarriedOver,
                at,
                message + "; it is disabled",
                remedy,
            ));
        }
    }

    /// Whether the plugin is left out, which is told.
    fn skips(&mut self, name: &str, at: &str, enabled: bool) -> bool {
        let rules = if enabled { "its rules no longer apply" } else { "it is disabled" };
        self.leaves_out(name, at, &format!("this plugin out: {rules}"))
    }

    /// Whether `name` is left out, which is told.
    fn leaves_out(&mut self, name: &str, at: &str, what: &str) -> bool {
        let Some(is_known) = self.skipped.get_mut(name) else { return false };
        *is_known = true;
        let message = format!("`--skip {name}` leaves {what}");
        let remedy = "nothing, or import again without `--skip`";
        self.findings.push(Finding::new(FindingKind::NotCarriedOver, at, message, remedy));
        true
    }

    fn config_findings(&mut self, found: &ConfigReferences, at: &str, enabled: bool) {
        for below in &found.project_dirs {
            let message = "`${{dexto.project_dir}}` is known to Dexto only";
            self.problems.push(Problem::new(format!("{at}{below}"), message).remedy("write the path itself"));
        }
        for (below, names) in &found.variables {
            let list = names.iter().map(|name| format!("`${{{name}}}`")).collect::<Vec<_>>().join(", ");
            self.findings.push(Finding::new(
                FindingKind::Different,
                format!("{at}{below}"),
                format!(
                    "the gateway resolves {list} when it reads its file, and an unset variable is an error"
                ),
                "set the variable where the gateway runs; write `$$` for a `$` that is text",
            ));
            if enabled {
                self.variables.extend(names.iter().cloned());
            }
        }
        for below in &found.plain_secrets {
            self.findings.push(Finding::new(
                FindingKind::ToCheck,
                format!("{at}{below}"),
                "this looks like a secret, and is in clear in the written hookgate.yaml",
                "put it into an environment variable of the gateway and write `${NAME}`",
            ));
        }
    }

    fn other_sections(&mut self, file: &AgentFile) {
        if let Some(hooks) = file.others.get("hooks") {
            self.hooks(hooks);
        }
        let others: Vec<_> =
            file.others.keys().filter(|key| *key != "hooks").map(|key| format!("`{key}`")).collect();
        if !others.is_empty() {
            self.findings.push(Finding::new(
                FindingKind::NotCarriedOver,
                "",
                format!("other sections are the agent's own: {}", others.join(", ")),
                "leave them in the agent's file",
            ));
        }
    }

    /// Plugins of newer versions of Dexto. As in `registry`, disabled ones are only told of.
    fn hooks(&mut self, hooks: &Value) {
        let has_rules = has_enabled_hook(hooks);
        let rules = if has_rules { "their rules no longer apply" } else { "none is enabled" };
        if self.leaves_out("hooks", HOOKS, &format!("the hooks out: {rules}")) {
            return;
        }
        let message = "`hooks` name code of the application; there is no module to run";
        let remedy = "export the class of each hook from a module and list it under `plugins.custom`";
        if has_rules {
            let remedy = format!("{remedy}, or leave them out with `--skip hooks`");
            self.problems.push(Problem::new(HOOKS, message).remedy(remedy));
        } else {
            let message = format!("{message}; none is enabled");
            self.findings.push(Finding::new(FindingKind::NotCarriedOver, HOOKS, message, remedy));
        }
    }

    /// The gateway knows plugins by their names. Dexto runs the last one of a name only.
    fn check_names(&mut self) {
        let mut seen = BTreeSet::new();
        for plugin in &self.plugins {
            if !seen.insert(plugin.name.as_str()) {
                let message = format!("another plugin is called `{}`", plugin.name);
                let at = pointer::child(&plugin.pointer, "name");
                self.problems.push(Problem::new(at, message).remedy("give each plugin a name of its own"));
            }
        }
    }

    /// As in Dexto, only enabled plugins count.
    fn check_priorities(&mut self) {
        let mut seen = BTreeMap::new();
        for plugin in self.plugins.iter().filter(|plugin| plugin.enabled) {
            if let Some(other) = seen.insert(plugin.priority, plugin.name.as_str()) {
                let message = format!("`priority` {} is also that of `{other}`", plugin.priority);
                let remedy = "give each enabled plugin a priority of its own; the lowest runs first";
                let at = pointer::child(&plugin.pointer, "priority");
                self.problems.push(Problem::new(at, message).remedy(remedy));
            }
        }
    }
}

/// Whether one of `hooks` may run. What Dexto wouldn't accept counts, so that nothing disappears.
fn has_enabled_hook(hooks: &Value) -> bool {
    match hooks {
        Value::Null => false,
        Value::Array(entries) => {
            entries.iter().any(|entry| entry.get("enabled") != Some(&Value::Bool(false)))
        }
        _ => true,
    }
}

fn nothing_to_import(file: &AgentFile, has_section: bool) -> Problem {
    let keys = "`contentPolicy`, `responseSanitizer`, `custom` and `registry`";
    if has_section {
        return Problem::new("/plugins", "`plugins` has no plugin, so there is nothing to import")
            .remedy(format!("list plugins under {keys}"));
    }
    let misspelt = file.others.keys().find_map(|key| Some((key, did_you_mean(key, ["plugins"])?)));
    match misspelt {
        Some((key, remedy)) => Problem::new(
            pointer::child("", key),
            format!("`{key}` is not a section of Dexto, and `plugins` is missing"),
        )
        .remedy(remedy),
        None => Problem::new("", "`plugins` is missing, so there is nothing to import")
            .remedy(format!("give a Dexto agent's file that lists plugins under {keys}")),
    }
}

fn module_problem(module: &str, at: &str) -> Option<Problem> {
    if references::has_project_dir(module) {
        let problem = Problem::new(at, "`${{dexto.project_dir}}` is known to Dexto only");
        return Some(problem.remedy("write an absolute path, or `${{dexto.agent_dir}}/...`"));
    }
    if references::below_agent_dir(module).unwrap_or(module).contains('$') {
        return Some(Problem::new(at, "`module` has a variable").remedy("write the path itself"));
    }
    let is_absolute = module.starts_with('/') || references::below_agent_dir(module).is_some();
    (!is_absolute).then(|| {
        let below = module.trim_start_matches("./");
        Problem::new(at, "`module` must be an absolute path, as in Dexto")
            .remedy(format!("write `${{{{dexto.agent_dir}}}}/{below}`"))
    })
}
