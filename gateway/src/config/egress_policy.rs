//! What objects of the admin API may reach on this machine and in its network (docs/protocol.md, sections 5
//! and 7): `egress` and `secrets` as in the file, and the parts of a plugin's entry that violate them. The
//! file's own plugins may reach whatever its author can.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    cidr::Cidr,
    model::Config,
    plugin::{ClientTls, Plugin},
    policy::DialPolicy,
    problem::{Problem, item},
    reference,
};
use crate::{core::object::Owner, fs::contained_path, json::pointer::child};

/// Where plugins and providers of models of the admin API, and plugins that register themselves, may be; by default
/// nowhere. Others of the file may be anywhere except at link-local and metadata addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Egress {
    /// Networks such as `10.1.0.0/16` or `fd00::/8`, and single addresses. Checked against the resolved address, not
    /// the name.
    pub cidrs: Vec<Cidr>,
    /// Host names, exact or `*.suffix` for every name below it, regardless of their addresses.
    pub names: Vec<String>,
    /// Directories that may contain plugins' Unix sockets, at any depth; links out of them are not followed.
    pub socket_dirs: Vec<PathBuf>,
}

/// What plugins and providers of models of the admin API may be given.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Secrets {
    /// Directory of files that references and `tls` of the API's objects may name; references may also name variables
    /// that begin with `HOOKGATE_SECRET_`. Links out of the directory are not followed.
    pub dir: PathBuf,
}

impl Default for Secrets {
    fn default() -> Self {
        Secrets { dir: "/run/secrets".into() }
    }
}

/// Plugins whose processes register themselves.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SelfRegistration {
    /// What happens if a process registers a plugin that is not configured. With `allow`, no entry of the API with
    /// `self_registration` needs approval; one with `accepted` still runs with that manifest only.
    pub unknown_plugins: UnknownPlugins,
}

/// What becomes of a plugin that is not configured when a process registers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownPlugins {
    /// It is added to the registry and runs with any manifest, without capabilities.
    Allow,
    /// It is added to the registry and waits for an operator's approval.
    #[default]
    Approve,
    /// The registration is refused.
    Deny,
}

/// `egress`, `secrets` and `self_registration` together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApiPluginPolicy {
    pub egress: Egress,
    pub secrets: Secrets,
    pub self_registration: SelfRegistration,
}

/// What references may name.
#[derive(Debug, Clone, Copy)]
pub enum ReferenceScope<'s> {
    /// Any variable and any file that this process can read.
    Anywhere,
    /// Variables `HOOKGATE_SECRET_*`, and files below this directory.
    Dir(&'s Path),
}

impl Egress {
    /// Whether `cidrs` contains an address.
    pub(crate) fn lists(&self, address: IpAddr) -> bool {
        self.cidrs.iter().any(|cidr| cidr.contains(address))
    }

    /// Whether `names` lists a host's name.
    pub(crate) fn names(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        self.names.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            match name.strip_prefix('*') {
                Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
                None => host == name,
            }
        })
    }
}

impl Config {
    /// What objects of the admin API may reach.
    pub fn reach(&self) -> ApiPluginPolicy {
        let (egress, secrets) = (self.egress.clone(), self.secrets.clone());
        ApiPluginPolicy { egress, secrets, self_registration: self.self_registration.clone() }
    }
}

impl ApiPluginPolicy {
    /// What references in the config of `plugin` may name.
    pub fn within(&self, plugin: &Plugin) -> ReferenceScope<'_> {
        match plugin.owner {
            Owner::File => ReferenceScope::Anywhere,
            Owner::Api => ReferenceScope::Dir(&self.secrets.dir),
        }
    }

    /// Whether `plugin` runs only with a manifest that an operator consented to. A built-in plugin comes with the
    /// gateway, and the author of the file consents by writing it.
    pub fn needs_consent(&self, plugin: &Plugin) -> bool {
        let is_trusted = plugin.builtin.is_some()
            || (plugin.self_registration && self.self_registration.unknown_plugins == UnknownPlugins::Allow);
        plugin.accepted.is_some() || (plugin.owner == Owner::Api && !is_trusted)
    }

    /// The parts of the entry of `plugin` that the policy forbids, judged by their text; pointers begin at
    /// the entry. Looks up no names and reads no files: the targets of names and links are checked when they
    /// are used.
    pub(crate) fn flaws(&self, plugin: &Plugin) -> Vec<Problem> {
        if plugin.owner == Owner::File {
            return Vec::new();
        }
        let mut problems = Vec::new();
        let policy = DialPolicy::for_plugin(plugin, self);
        for (pointer, endpoint) in endpoints(plugin) {
            problems.extend(policy.flaw(endpoint).map(|flaw| Problem::new(pointer, flaw)));
        }
        for (key, file) in plugin.tls.iter().flat_map(ClientTls::files) {
            if !contained_path::is_written_below(file, &self.secrets.dir) {
                let message = format!("the API may not name the file {}", file.display());
                problems.push(Problem::new(format!("/tls/{key}"), message).remedy(self.files()));
            }
        }
        problems.extend(judged(plugin, |text| reference::within(text, self.within(plugin))));
        problems
    }

    /// The files and sockets in the entry of `plugin` whose links lead outside the policy, if they exist.
    pub(crate) fn strays(&self, plugin: &Plugin) -> Vec<Problem> {
        if plugin.owner == Owner::File {
            return Vec::new();
        }
        let mut problems = Vec::new();
        let leads_out = |path: &Path| format!("{} links to outside of its directory", path.display());
        let policy = DialPolicy::for_plugin(plugin, self);
        for (pointer, endpoint) in endpoints(plugin) {
            if let Some(path) = endpoint.strip_prefix("unix://").map(Path::new)
                && matches!(policy.socket(path), Ok(None))
            {
                let remedy = "list the directory that it leads to in `egress.socket_dirs`";
                problems.push(Problem::new(pointer, leads_out(path)).remedy(remedy));
            }
        }
        for (key, file) in plugin.tls.iter().flat_map(ClientTls::files) {
            if matches!(contained_path::real(file, [&*self.secrets.dir]), Ok(None)) {
                problems.push(Problem::new(format!("/tls/{key}"), leads_out(file)).remedy(self.files()));
            }
        }
        problems.extend(judged(plugin, |text| reference::stays_within(text, self.within(plugin))));
        problems
    }

    fn files(&self) -> String {
        format!("name one below {} (`secrets.dir`)", self.secrets.dir.display())
    }
}

/// The endpoints of `plugin` with their pointers.
fn endpoints(plugin: &Plugin) -> impl Iterator<Item = (String, &str)> {
    let one = plugin.endpoint.iter().map(|endpoint| ("/endpoint".to_owned(), endpoint.as_str()));
    let several = plugin.endpoints.iter().flatten().enumerate();
    one.chain(several.map(|(index, endpoint)| (item("/endpoints", index), endpoint.as_str())))
}

/// Applies `judge` to each text in the config of `plugin`, and collects the errors.
fn judged(plugin: &Plugin, judge: impl Fn(&str) -> Result<(), String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, value) in &plugin.config {
        texts(value, &child("/config", key), &mut |pointer, text| {
            problems.extend(judge(text).err().map(|message| Problem::new(pointer, message)));
        });
    }
    problems
}

/// Visits every text in `value` with its pointer.
fn texts(value: &Value, pointer: &str, visit: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => visit(pointer, text),
        Value::Array(items) => {
            for (index, entry) in items.iter().enumerate() {
                texts(entry, &item(pointer, index), visit);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                texts(member, &child(pointer, key), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
#[path = "egress_policy_tests.rs"]
mod tests;
