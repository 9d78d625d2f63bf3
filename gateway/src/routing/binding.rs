//! Bindings as routing needs them: names and plugins resolved, defaults filled in, conditions compiled, scope
//! checked. Every mistake that would leave a binding without effect is a problem.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::{self, Config, Problem},
    core::{call_site::CallSite, tool::ToolNames},
    routing::{
        applicability::{self, PluginOffers},
        conditions::Conditions,
        pattern_pool::PatternPool,
    },
};

/// A binding, resolved and compiled.
#[derive(Debug)]
pub(super) struct CompiledBinding {
    /// Its index in `Config.bindings` when it was compiled.
    pub(super) index: usize,
    pub(super) written: Arc<config::Binding>,
    pub(super) name: Arc<str>,
    /// Index in `Config.plugins`.
    pub(super) plugin: usize,
    pub(super) conditions: Conditions,
    /// The names of its plugin's tools that it doesn't provide.
    pub(super) denied_tools: Option<Arc<ToolNames>>,
    /// Whether both the binding and its plugin are enabled.
    pub(super) enabled: bool,
}

impl CompiledBinding {
    /// Whether the binding applies at `site`.
    pub(super) fn stands_at(&self, site: &CallSite, offers: PluginOffers<'_>) -> bool {
        applicability::at(&self.written, site, offers).is_ok()
    }
}

/// Compiles every binding, also disabled ones, so that enabling one can't reveal a mistake.
pub(super) fn compile(
    config: &Config,
    pool: &PatternPool,
    problems: &mut Vec<Problem>,
) -> Vec<CompiledBinding> {
    let plugins =
        unique(config.plugins.iter().map(|plugin| plugin.name.as_str()), "plugin", problems, |at| {
            format!("/plugins/{at}/name")
        });
    let tenants =
        unique(config.tenants.list.iter().map(|tenant| tenant.id.as_str()), "tenant", problems, |at| {
            format!("/tenants/list/{at}/id")
        });
    let names: Vec<_> = config.bindings.iter().map(|binding| binding.effective_name()).collect();
    unique(names.iter().map(|name| &**name), "binding", problems, |at| format!("/bindings/{at}/name"));
    let is_listed = |id: &str| tenants.contains_key(id);
    let known = NameIndex { plugins, of: &config.plugins, is_listed, pool };
    let one = |(index, written)| known.compile(index, written, problems);
    config.bindings.iter().enumerate().filter_map(one).collect()
}

/// The names that bindings may refer to.
pub(super) struct NameIndex<'c, F> {
    /// Indexes into `of`, by name.
    pub(super) plugins: HashMap<&'c str, usize>,
    pub(super) of: &'c [Arc<config::Plugin>],
    /// Whether a tenant with this id is listed.
    pub(super) is_listed: F,
    pub(super) pool: &'c PatternPool,
}

impl<F: Fn(&str) -> bool> NameIndex<'_, F> {
    /// Compiles the binding at this index of `Config.bindings`. Returns `None` if the binding has a problem,
    /// which is added to `problems`.
    pub(super) fn compile(
        &self,
        index: usize,
        written: &Arc<config::Binding>,
        problems: &mut Vec<Problem>,
    ) -> Option<CompiledBinding> {
        let before = problems.len();
        let mut problem = |key: &str, message: String| {
            problems.push(Problem::new(format!("/bindings/{index}{key}"), message));
        };
        let plugin = self.plugins.get(written.plugin.as_str()).copied();
        if plugin.is_none() {
            problem("/plugin", format!("there is no plugin `{}`; name one of `plugins`", written.plugin));
        }
        if written.points.as_ref().is_some_and(Vec::is_empty) {
            problem(
                "/points",
                "an empty list means no point; omit it for all points that the plugin offers".into(),
            );
        }
        if written.hooks.as_ref().is_some_and(Vec::is_empty) {
            problem("/hooks", "an empty list means no hook; name one, or omit it for points".into());
        }
        if written.hooks.is_some() && written.points.is_some() {
            problem("/points", "`points` and `hooks` can't be combined; split the binding in two".into());
        }
        if written.conditions.text.is_some() && written.points.iter().flatten().any(|p| p.names_a_tool()) {
            problem("/match/text", "there is no text at the tool points; remove them from `points`".into());
        }
        let denied_tools = match &written.deny_tools[..] {
            [] => None,
            globs => ToolNames::new("deny_tools", globs)
                .map_err(|error| problem("/deny_tools", error.to_string()))
                .ok()
                .map(Arc::new),
        };
        if let Err((key, message)) = scope(written, &self.is_listed) {
            problem(key, message);
        }
        let pointer = format!("/bindings/{index}/match");
        let conditions =
            self.pool.compile(&written.conditions, &pointer).map_err(|errors| problems.extend(errors)).ok();
        if problems.len() > before {
            return None;
        }
        let (plugin, conditions) = (plugin?, conditions?);
        let enabled = applicability::enabled(written, &self.of[plugin]).is_ok();
        let name = (&*written.effective_name()).into();
        Some(CompiledBinding {
            index,
            written: Arc::clone(written),
            name,
            plugin,
            conditions,
            denied_tools,
            enabled,
        })
    }
}

/// Checks that the scope of `binding` is clear. Otherwise returns the key that is wrong, and why.
fn scope(binding: &config::Binding, is_listed: impl Fn(&str) -> bool) -> Result<(), (&'static str, String)> {
    match (&binding.tenant, &binding.selector) {
        (Some(_), Some(_)) => Err(("", "has both `tenant` and `selector`; keep one of them".to_owned())),
        (None, None) => Err((
            "",
            "has neither `tenant` nor `selector`; write `tenant: \"*\"` for every tenant".to_owned(),
        )),
        (Some(tenant), None) if tenant == "*" || is_listed(tenant) => Ok(()),
        (Some(tenant), None) => Err((
            "/tenant",
            format!("there is no tenant `{tenant}`; name one of `tenants.list`, or `*` for all"),
        )),
        (None, Some(labels)) if labels.is_empty() => Err((
            "/selector",
            "an empty selector selects nothing; name a label, or write `tenant: \"*\"`".into(),
        )),
        (None, Some(_)) => Ok(()),
    }
}

/// Maps names to their indexes. Reports a problem for each repeated name.
fn unique<'c>(
    names: impl Iterator<Item = &'c str>,
    kind: &str,
    problems: &mut Vec<Problem>,
    pointer: impl Fn(usize) -> String,
) -> HashMap<&'c str, usize> {
    let mut places = HashMap::new();
    for (at, name) in names.enumerate() {
        let first = *places.entry(name).or_insert(at);
        if first != at {
            problems.push(Problem::new(
                pointer(at),
                format!("{kind} `{name}` is already defined, at {}; names must be unique", pointer(first)),
            ));
        }
    }
    places
}
