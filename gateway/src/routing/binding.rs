//! Bindings as routing needs them: names and plugins looked up, settings with their defaults, conditions
//! compiled, and whom each stands for. Every mistake that would leave a binding without effect is a problem.

use std::{collections::HashMap, sync::Arc};

use super::{conditions::Conditions, standing};
use crate::{
    config::{self, Config, Problem},
    point::Point,
};

/// Whom a binding stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'c> {
    /// `*`: every tenant. Part of the floor.
    All,
    /// Tenants with the labels of its selector, at least one. Part of the floor.
    Labels,
    /// One tenant.
    Tenant(&'c str),
}

/// One binding, looked up and compiled.
#[derive(Debug)]
pub(super) struct Binding<'c> {
    /// Place in `Config.bindings`.
    pub(super) index: usize,
    pub(super) written: &'c config::Binding,
    pub(super) name: Arc<str>,
    /// Place in `Config.plugins`.
    pub(super) plugin: usize,
    pub(super) scope: Scope<'c>,
    pub(super) conditions: Conditions,
    /// Whether it and its plugin are enabled.
    pub(super) enabled: bool,
}

impl Binding<'_> {
    /// Whether it stands at `point`.
    pub(super) fn stands_at(&self, point: Point, manifest: Option<&super::Manifest>) -> bool {
        standing::at(self.written, point, manifest).is_ok()
    }
}

/// Looks up and compiles every binding, disabled ones too: switching one on must bring no surprise.
pub(super) fn compile<'c>(config: &'c Config, problems: &mut Vec<Problem>) -> Vec<Binding<'c>> {
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
    let one = |(index, written): (usize, &'c Arc<config::Binding>)| {
        let before = problems.len();
        let mut problem = |key: &str, message: String| {
            problems.push(Problem::new(format!("/bindings/{index}{key}"), message));
        };
        let plugin = plugins.get(written.plugin.as_str()).copied();
        if plugin.is_none() {
            problem("/plugin", format!("there is no plugin `{}`; name one of `plugins`", written.plugin));
        }
        if written.points.as_ref().is_some_and(Vec::is_empty) {
            problem(
                "/points",
                "an empty list stands at no point; leave it out for all the plugin offers".into(),
            );
        }
        if written.conditions.text.is_some() && written.points.iter().flatten().any(|p| p.names_a_tool()) {
            problem("/match/text", "there is no text at the tool points; leave them out of `points`".into());
        }
        let scope = scope(written, &tenants).map_err(|(key, message)| problem(key, message)).ok();
        let conditions = Conditions::compile(&written.conditions, &format!("/bindings/{index}/match"))
            .map_err(|errors| problems.extend(errors))
            .ok();
        if problems.len() > before {
            return None;
        }
        let (plugin, scope, conditions) = (plugin?, scope?, conditions?);
        let enabled = standing::enabled(written, &config.plugins[plugin]).is_ok();
        let name = (&*names[index]).into();
        Some(Binding { index, written, name, plugin, scope, conditions, enabled })
    };
    config.bindings.iter().enumerate().filter_map(one).collect()
}

/// Whom `binding` stands for, or the key that is wrong and why.
fn scope<'c>(
    binding: &'c config::Binding,
    tenants: &HashMap<&str, usize>,
) -> Result<Scope<'c>, (&'static str, String)> {
    match (&binding.tenant, &binding.selector) {
        (Some(_), Some(_)) => Err(("", "has both `tenant` and `selector`; keep one of them".to_owned())),
        (None, None) => Err((
            "",
            "has neither `tenant` nor `selector`; write `tenant: \"*\"` for every tenant".to_owned(),
        )),
        (Some(tenant), None) if tenant == "*" => Ok(Scope::All),
        (Some(tenant), None) if tenants.contains_key(tenant.as_str()) => Ok(Scope::Tenant(tenant)),
        (Some(tenant), None) => Err((
            "/tenant",
            format!("there is no tenant `{tenant}`; name one of `tenants.list`, or `*` for all"),
        )),
        (None, Some(labels)) if labels.is_empty() => Err((
            "/selector",
            "an empty selector selects nothing; name a label, or write `tenant: \"*\"`".into(),
        )),
        (None, Some(_)) => Ok(Scope::Labels),
    }
}

/// Names and their places; a name that comes again is a problem where it does.
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
                format!("{kind} `{name}` is there already, at {}; names are unique", pointer(first)),
            ));
        }
    }
    places
}
