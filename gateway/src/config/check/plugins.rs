//! Checks of plugins: names, endpoints, and the statuses of their blocks (docs/protocol.md, sections 2, 4 and
//! 7).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{ConfigChecker, is_name};
use crate::{
    config::{
        partial_config::PartialEntry, plugin::Plugin, problem::did_you_mean, reference, schema::alternatives,
    },
    core::{block_status::FIXED_BLOCK_STATUSES, error::Code},
    egress,
    json::pointer::child,
};

/// The plugins built into the gateway.
const BUILTINS: &[&str] = &[
    "circuit-breaker",
    "content-policy",
    "loop-detect",
    "output-validate",
    "rate-limit",
    "redact",
    "response-sanitizer",
    "secrets",
    "tool-policy",
];

/// Longest path of a Unix socket, in bytes (`sun_path` without its NUL).
const MAX_SOCKET_PATH: usize = 107;

const NAME_RULE: &str = "a name is a letter and up to 63 letters, digits, `_` and `-`";

impl ConfigChecker<'_> {
    pub(super) fn plugins(&mut self) {
        self.block_status("/block_status", &self.draft.block_status);
        let plugins = &self.draft.plugins;
        self.unique(
            "a plugin",
            plugins.iter().filter_map(|item| Some((child(&item.pointer, "name"), item.id.clone()?))),
        );
        for item in plugins {
            if let Some(plugin) = &item.value {
                self.plugin(item, plugin);
            }
        }
    }

    fn plugin(&mut self, entry: &PartialEntry<Plugin>, plugin: &Plugin) {
        let pointer = entry.pointer.as_str();
        self.name(&child(pointer, "name"), &plugin.name);
        self.exactly_one(
            entry,
            &[
                ("endpoint", plugin.endpoint.is_some()),
                ("endpoints", plugin.endpoints.is_some()),
                ("self_registration", plugin.self_registration),
                ("builtin", plugin.builtin.is_some()),
            ],
        );
        if let Some(builtin) = plugin.builtin.as_deref()
            && !BUILTINS.contains(&builtin)
        {
            let remedy = did_you_mean(builtin, BUILTINS.iter().copied());
            let remedy = remedy.unwrap_or_else(|| format!("write {}", alternatives(BUILTINS)));
            self.report(child(pointer, "builtin"), format!("`{builtin}` is not built in"), remedy);
        }
        if let Some(endpoint) = plugin.endpoint.as_deref() {
            self.endpoint(pointer, &child(pointer, "endpoint"), endpoint, plugin);
        }
        let several = child(pointer, "endpoints");
        let mut before = BTreeSet::new();
        for (index, endpoint) in plugin.endpoints.iter().flatten().enumerate() {
            let at = child(&several, &index.to_string());
            if before.insert(endpoint) {
                self.endpoint(pointer, &at, endpoint, plugin);
            } else {
                self.report(at, format!("`{endpoint}` is listed twice"), "name each endpoint once");
            }
        }
        if plugin.self_registration && plugin.required == Some(true) {
            self.report(
                child(pointer, "required"),
                "no gateway can wait for a plugin that registers itself: plugins register with ready gateways",
                "remove `required`, or name the plugin's endpoints",
            );
        }
        if let Some(tls) = &plugin.tls {
            let speaks_it =
                |address: &str| ["https://", "dns:///"].iter().any(|scheme| address.starts_with(scheme));
            let secure = plugin.addresses().any(speaks_it);
            let is_unknown = plugin.self_registration || entry.tainted;
            self.client_tls(&child(pointer, "tls"), tls, secure || is_unknown);
        }
        self.accepted(&child(pointer, "accepted"), plugin);
        self.plugin_limits(&child(pointer, "limits"), &plugin.limits);
        self.breaker(&child(pointer, "breaker"), &plugin.breaker);
        self.health(&child(pointer, "health"), &plugin.health);
        self.block_status(&child(pointer, "block_status"), &plugin.block_status);
    }

    fn accepted(&mut self, pointer: &str, plugin: &Plugin) {
        let Some(accepted) = &plugin.accepted else { return };
        if accepted.points.offers().is_empty() && accepted.hooks.is_empty() && accepted.tools.is_empty() {
            self.report(
                child(pointer, "points"),
                "a manifest needs at least one point, hook or tool",
                "name what the plugin offers in `points`, `hooks` or `tools`, or leave `accepted` out",
            );
        }
        let globs: Vec<_> = accepted.tools.iter().cloned().collect();
        self.tool_globs(&child(pointer, "tools"), &globs);
        for capability in &accepted.capabilities {
            if !plugin.grants.contains(capability) {
                self.report(
                    child(pointer, "capabilities"),
                    format!("`{}` is accepted but not granted", capability.as_str()),
                    "add it to `grants`, or remove `accepted`, so that the plugin's manifest is reviewed again",
                );
            }
        }
    }

    pub(super) fn name(&mut self, pointer: &str, name: &str) {
        if !is_name(name) {
            self.report(pointer, format!("`{name}` is not a name"), NAME_RULE);
        }
    }

    fn endpoint(&mut self, pointer: &str, at: &str, endpoint: &str, plugin: &Plugin) {
        match EndpointLocality::from_endpoint(endpoint, plugin.tls.is_some()) {
            Ok(EndpointLocality::Remote)
                if !plugin.allow_plaintext && reference::holds_references(&plugin.config) =>
            {
                self.report(
                    child(pointer, "config"),
                    "`config` holds references, which would go over the network in plaintext",
                    "use `https://`, a Unix socket or a loopback address, or set `allow_plaintext: true`",
                );
            }
            Ok(EndpointLocality::Remote | EndpointLocality::Private) => {}
            Err(message) => self.report(
                at,
                message,
                "write `unix:///path/of.sock`, `http://host:port`, `https://host:port` or `dns:///name:port`",
            ),
        }
    }

    fn block_status(&mut self, pointer: &str, statuses: &BTreeMap<String, u16>) {
        for code in statuses.keys() {
            let pointer = child(pointer, code);
            if FIXED_BLOCK_STATUSES.iter().any(|(fixed, _)| fixed == code) {
                self.report_key(
                    pointer,
                    format!("`{code}` has a fixed status"),
                    "leave it out, or choose another code",
                );
            } else if Code::is_reserved(code) {
                self.report_key(
                    pointer,
                    format!("`{code}` is an error code of the gateway"),
                    "choose another code",
                );
            } else if !is_block_code(code) {
                let rule = "a code is a letter and up to 63 letters, digits, `_`, `.`, `:` and `-`";
                self.report_key(pointer, format!("`{code}` is not a code"), rule);
            }
        }
    }
}

/// `[A-Za-z][A-Za-z0-9_.:-]{0,63}`
fn is_block_code(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b))
}

/// What is wrong with the endpoints of a plugin that is not in a file: an invalid address, or secrets that
/// would be sent in plaintext.
pub fn endpoint_flaw(plugin: &Plugin) -> Option<String> {
    plugin.addresses().find_map(|endpoint| match EndpointLocality::from_endpoint(endpoint, plugin.tls.is_some()) {
        Ok(EndpointLocality::Private) => None,
        Ok(EndpointLocality::Remote) => (!plugin.allow_plaintext && reference::holds_references(&plugin.config)).then(|| {
            "the config holds references, which would go over the network in plaintext: use `https://`, a Unix \
             socket or a loopback address"
                .to_owned()
        }),
        Err(message) => Some(format!(
            "{message}: write `unix:///path/of.sock`, `http://host:port`, `https://host:port` or `dns:///name:port`"
        )),
    })
}

/// Why a registered endpoint is not used although it may be dialled: nobody would verify who answers there.
pub fn unverified(plugin: &Plugin, endpoint: &str) -> Option<&'static str> {
    (plugin.tls.is_some() && endpoint.starts_with("http://"))
        .then_some("the plugin's entry has `tls`, so its processes register `https://` endpoints")
}

/// What is wrong with an endpoint that a process registers.
pub fn registered_endpoint_flaw(endpoint: &str) -> Option<String> {
    let remedy = "write `unix:///path/of.sock`, `http://host:port` or `https://host:port`";
    if endpoint.chars().any(char::is_control) {
        return Some(format!("has a control character: {remedy}"));
    }
    if endpoint.starts_with("dns:") {
        return Some(format!("must be one process's: {remedy}"));
    }
    EndpointLocality::from_endpoint(endpoint, false)
        .err()
        .map(|message| format!("is wrong: {message}: {remedy}"))
}

/// What is wrong with the path of a Unix socket.
pub fn socket_flaw(path: &str) -> Option<String> {
    if !path.starts_with('/') || path.ends_with('/') {
        return Some("the path of a Unix socket must be absolute".into());
    }
    let fits = path.len() <= MAX_SOCKET_PATH;
    (!fits).then(|| format!("the path of a Unix socket has at most {MAX_SOCKET_PATH} bytes"))
}

/// Whether secrets are safe on the way to an endpoint.
enum EndpointLocality {
    /// A Unix socket, loopback, or TLS.
    Private,
    Remote,
}

impl EndpointLocality {
    /// `over_tls` tells whether the addresses of a name are dialled over TLS.
    fn from_endpoint(endpoint: &str, over_tls: bool) -> Result<EndpointLocality, String> {
        if let Some(path) = endpoint.strip_prefix("unix://") {
            return socket_flaw(path).map_or(Ok(EndpointLocality::Private), Err);
        }
        // In a `dns:` URL the name to look up is the path, after an empty authority for the name server.
        let named = endpoint.strip_prefix("dns:///").map(|name| format!("http://{name}"));
        let secure = endpoint.starts_with("https://") || (named.is_some() && over_tls);
        let url = named.as_deref().unwrap_or(endpoint);
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err("an endpoint begins with `unix:///`, `http://`, `https://` or `dns:///`".into());
        }
        let uri = url.parse::<http::Uri>().map_err(|_| "this endpoint is not a URL".to_owned())?;
        let Some(authority) = uri.authority().filter(|authority| !authority.as_str().contains('@')) else {
            return Err("an endpoint must be a host and a port, and nothing else".into());
        };
        if authority.port_u16().is_none_or(|port| port == 0) {
            return Err("this endpoint has no port".into());
        }
        if uri.path() != "/" || uri.query().is_some() || url.contains('#') {
            return Err("an endpoint must end after the port".into());
        }
        if egress::denies_literal(authority.host()) {
            return Err(format!("`{}` {}", authority.host(), egress::DENIED_MESSAGE));
        }
        Ok(if secure || is_loopback(authority.host()) {
            EndpointLocality::Private
        } else {
            EndpointLocality::Remote
        })
    }
}

/// Whether a URL's host is this machine regardless of any name server.
pub(in crate::config) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixtures::plugin;

    #[test]
    fn a_plugin_that_registers_itself_has_no_endpoint_and_nobody_waits_for_it() {
        plugin(
            "name: p, endpoint: \"http://a:1\", self_registration: true",
            "`endpoint` and `self_registration` exclude each other",
            "give exactly one of `endpoint`, `endpoints`, `self_registration`, `builtin`",
        );
        plugin(
            "name: p, self_registration: true, required: true",
            "no gateway can wait for a plugin that registers itself: plugins register with ready gateways",
            "remove `required`, or name the plugin's endpoints",
        );
    }

    #[test]
    fn a_registered_endpoint_is_one_processs() {
        for right in ["unix:///run/a.sock", "http://10.0.0.1:1", "https://[::1]:443"] {
            assert_eq!(registered_endpoint_flaw(right), None);
        }
        for wrong in [
            "",
            "dns:///a:1",
            "http://a",
            "http://u@a:1",
            "unix://a",
            "unix:///a\0b",
            "http://169.254.169.254:1",
        ] {
            assert!(
                registered_endpoint_flaw(wrong).is_some_and(|said| said.contains("write `unix:///")),
                "{wrong}"
            );
        }
    }
}
