//! Where one plugin or upstream may be dialled: anywhere if the file has it, otherwise where `egress` allows it
//! (docs/protocol.md, section 5).

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{
        egress_policy::{ApiPluginPolicy, Egress},
        llm::ModelUpstream,
        plugin::Plugin,
    },
    core::object::Owner,
    fs::contained_path,
};

/// The error for a name that resolves to addresses outside the listed networks.
const UNLISTED_ADDRESS: &str =
    "is in no network that `egress` permits for objects of the API: list it in `egress.cidrs`";

/// Where a plugin or an upstream may be dialled. Link-local and metadata addresses are always excluded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DialPolicy {
    Any,
    /// Where `egress` allows it.
    Listed(Arc<Egress>),
}

impl DialPolicy {
    /// The policy for `plugin`.
    pub(crate) fn for_plugin(plugin: &Plugin, reach: &ApiPluginPolicy) -> Self {
        match plugin.owner {
            Owner::File if !plugin.self_registration => DialPolicy::Any,
            Owner::File | Owner::Api => DialPolicy::for_registered(reach),
        }
    }

    /// The policy for `upstream`.
    pub(crate) fn for_upstream(upstream: &ModelUpstream) -> Self {
        upstream.egress.as_ref().map_or(DialPolicy::Any, |egress| DialPolicy::Listed(Arc::clone(egress)))
    }

    /// The policy for endpoints that plugins register.
    pub(crate) fn for_registered(reach: &ApiPluginPolicy) -> Self {
        DialPolicy::Listed(Arc::new(reach.egress.clone()))
    }

    /// The policy for the addresses of `host`: any, if its name is listed.
    pub(crate) fn at_host(&self, host: &str) -> Self {
        match self {
            DialPolicy::Listed(egress) if is_name(host) && egress.names(host) => DialPolicy::Any,
            other => other.clone(),
        }
    }

    /// Checks that `address` may be dialled.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn permit(&self, address: IpAddr) -> Result<(), String> {
        match self {
            DialPolicy::Listed(egress) if !egress.lists(address) => {
                Err(format!("{address} {UNLISTED_ADDRESS}"))
            }
            _ => Ok(()),
        }
    }

    /// The path for dialling the socket at `path`: without links, unless any path is allowed. Accesses the
    /// file system. Returns `None` if it is in none of the directories.
    ///
    /// # Errors
    /// The path doesn't exist, or can't be accessed.
    pub(crate) fn socket(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        match self {
            DialPolicy::Any => Ok(Some(path.to_owned())),
            DialPolicy::Listed(egress) => {
                contained_path::real(path, egress.socket_dirs.iter().map(PathBuf::as_path))
            }
        }
    }

    /// Why nothing at `endpoint` may be dialled, if that is certain without a lookup.
    pub(crate) fn flaw(&self, endpoint: &str) -> Option<String> {
        let DialPolicy::Listed(egress) = self else { return None };
        if let Some(path) = endpoint.strip_prefix("unix://") {
            let is_below = |dir: &PathBuf| contained_path::is_written_below(Path::new(path), dir);
            let is_listed = egress.socket_dirs.iter().any(is_below);
            return (!is_listed).then(|| {
                format!(
                    "{path} is in no directory that `egress` permits for sockets of the API's plugins: list it in \
                     `egress.socket_dirs`"
                )
            });
        }
        let url = endpoint.strip_prefix("dns:///").map(|name| format!("http://{name}"));
        let uri = url.as_deref().unwrap_or(endpoint).parse::<http::Uri>().ok()?;
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse() {
            return self.permit(address).err();
        }
        (!egress.names(host) && egress.cidrs.is_empty()).then(|| {
            format!(
                "`egress` doesn't permit objects of the API at `{host}`: list the name in `egress.names`, or its \
                 network in `egress.cidrs`"
            )
        })
    }
}

/// Whether `host` is a name rather than an address.
fn is_name(host: &str) -> bool {
    host.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(cidrs: &[&str], names: &[&str], socket_dirs: &[&str]) -> DialPolicy {
        DialPolicy::Listed(Arc::new(Egress {
            cidrs: cidrs.iter().map(|text| text.parse().unwrap()).collect(),
            names: names.iter().map(|&text| text.to_owned()).collect(),
            socket_dirs: socket_dirs.iter().map(Into::into).collect(),
        }))
    }

    #[test]
    fn nothing_listed_is_nowhere_and_the_file_s_is_anywhere() {
        for endpoint in [
            "unix:///run/a.sock",
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "https://guard:1",
            "dns:///guard:1",
            "http://localhost:1",
        ] {
            let flaw = listed(&[], &[], &[]).flaw(endpoint).expect(endpoint);
            assert!(flaw.contains("`egress."), "{flaw}");
            assert_eq!(DialPolicy::Any.flaw(endpoint), None);
        }
        assert!(listed(&[], &[], &[]).permit([127, 0, 0, 1].into()).is_err());
        assert!(DialPolicy::Any.permit([127, 0, 0, 1].into()).is_ok());
    }

    #[test]
    fn what_can_be_known_of_an_endpoint_without_a_lookup_is() {
        let policy =
            listed(&["10.1.0.0/16"], &["guard.example.com", "*.pods.example.com"], &["/run/plugins"]);
        for fine in [
            "http://10.1.2.3:1",
            "http://[::ffff:10.1.2.3]:1",
            "https://guard.example.com:1",
            "https://GUARD.example.com.:1",
            "dns:///a.b.pods.example.com:1",
            "unix:///run/plugins/a/b.sock",
            // The name may resolve to an address in the network.
            "http://elsewhere:1",
        ] {
            assert_eq!(policy.flaw(fine), None, "{fine}");
        }
        for (wrong, key) in [
            ("http://10.2.2.3:1", "egress.cidrs"),
            ("http://[::1]:1", "egress.cidrs"),
            ("unix:///run/other.sock", "egress.socket_dirs"),
            ("unix:///run/plugins/../other.sock", "egress.socket_dirs"),
        ] {
            assert!(policy.flaw(wrong).expect(wrong).contains(key), "{wrong}");
        }
    }

    #[test]
    fn a_listed_name_may_have_any_address_and_nothing_that_looks_like_it() {
        let policy = listed(&[], &["guard.example.com", "*.pods.example.com"], &[]);
        let is_any = |host: &str| matches!(policy.at_host(host), DialPolicy::Any);
        for host in ["guard.example.com", "Guard.Example.COM.", "a.pods.example.com", "a.b.pods.example.com"]
        {
            assert!(is_any(host), "{host}");
        }
        for host in [
            "xguard.example.com",
            "guard.example.com.evil.org",
            "a.guard.example.com",
            "pods.example.com",
            ".pods.example.com",
            "xpods.example.com",
            "10.0.0.1",
            "",
        ] {
            assert!(!is_any(host), "{host}");
        }
    }
}
