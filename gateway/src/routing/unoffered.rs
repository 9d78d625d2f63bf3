//! Points and hooks that bindings name and their plugins don't offer. Plans keep the steps there, and the steps fail.

use std::{collections::HashMap, sync::Arc};

use crate::{
    config::{Config, Problem},
    core::{call_site::CallSite, manifest::Manifest, point::Point},
};

/// A point or hook that an enabled binding names and its plugin doesn't offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnofferedSite {
    pub plugin: String,
    /// The binding's name.
    pub binding: String,
    pub site: CallSite,
    /// What to write instead.
    pub remedy: String,
    /// To the site in the configuration.
    pointer: String,
}

impl UnofferedSite {
    /// The mistake in the configuration.
    pub fn problem(&self) -> Problem {
        let what = if self.site.hook().is_some() { "the hook " } else { "" };
        let message = format!(
            "plugin `{}` doesn't offer {what}`{}`: its step there would fail",
            self.plugin, self.site
        );
        Problem::new(&self.pointer, message).remedy(&self.remedy)
    }
}

/// The sites in the order of the bindings. `manifests` has a manifest, if one was accepted, for each plugin of `config`.
/// Without one it is unknown what a plugin offers.
pub fn unoffered_sites(config: &Config, manifests: &[Option<Arc<Manifest>>]) -> Vec<UnofferedSite> {
    let known: HashMap<_, _> = config
        .plugins
        .iter()
        .zip(manifests)
        .filter(|(plugin, _)| plugin.enabled)
        .filter_map(|(plugin, manifest)| Some((&*plugin.name, manifest.as_deref()?)))
        .collect();
    let mut unoffered = Vec::new();
    for (index, binding) in config.bindings.iter().enumerate().filter(|(_, binding)| binding.enabled) {
        let Some(manifest) = known.get(&*binding.plugin) else { continue };
        let points = binding.points.iter().flatten().enumerate();
        let points = points.map(|(at, point)| (format!("points/{at}"), CallSite::Point(*point)));
        let hooks = binding.hooks.iter().flatten().enumerate();
        let hooks = hooks.map(|(at, hook)| (format!("hooks/{at}"), CallSite::Hook(hook.clone())));
        let missing = points.chain(hooks).filter(|(_, site)| manifest.offers_at(site).is_none());
        unoffered.extend(missing.map(|(member, site)| UnofferedSite {
            plugin: binding.plugin.clone(),
            binding: binding.effective_name().into_owned(),
            remedy: remedy(manifest, &site),
            pointer: format!("/bindings/{index}/{member}"),
            site,
        }));
    }
    unoffered
}

fn remedy(manifest: &Manifest, missing: &CallSite) -> String {
    let points = Point::ALL.into_iter().filter(|point| manifest.offers(*point).is_some());
    let points = listed(points.map(|point| point.as_str()));
    let hooks = listed(manifest.hooks.keys().map(|hook| hook.as_str()));
    match (missing, &*points, &*hooks) {
        (CallSite::Point(_), "", "") => "it offers only tools: omit `points`".to_owned(),
        (CallSite::Point(_), "", _) => {
            "it offers no points: name `hooks` instead, or remove the binding".to_owned()
        }
        (CallSite::Point(_), points, _) => {
            format!("it offers {points}: name some of these, or omit `points` for all")
        }
        (CallSite::Hook(_), _, "") => {
            "it offers no hooks: name `points` instead, or remove the binding".to_owned()
        }
        (CallSite::Hook(_), _, hooks) => format!("it offers {hooks}: name some of these"),
    }
}

fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
