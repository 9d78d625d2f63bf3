//! Where one plugin or upstream may be dialled: anywhere if the file has it, otherwise where `egress` allows it
//! (docs/protocol.md, section 5).

use std::{
    error, fmt, io,
    net::{IpAddr, SocketAddr},
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
    egress,
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

    /// Those of a name's addresses that may be dialled.
    ///
    /// # Errors
    /// None of them may.
    pub(crate) fn permitted(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, AddressRefusal> {
        let (mut permitted, mut refusal) = (Vec::new(), None);
        for address in addresses {
            match self.refusal(address.ip()) {
                None => permitted.push(address),
                // Only an unlisted address can be permitted by an operator, so that one is named.
                Some(unlisted @ AddressRefusal::Unlisted(_)) => {
                    refusal = refusal.filter(AddressRefusal::is_unlisted).or(Some(unlisted));
                }
                Some(denied @ AddressRefusal::Denied(_)) => refusal = refusal.or(Some(denied)),
            }
        }
        match refusal {
            Some(refusal) if permitted.is_empty() => Err(refusal),
            _ => Ok(permitted),
        }
    }

    fn refusal(&self, address: IpAddr) -> Option<AddressRefusal> {
        if !egress::allows(address) {
            return Some(AddressRefusal::Denied(address));
        }
        self.is_unlisted(address).then_some(AddressRefusal::Unlisted(address))
    }

    fn is_unlisted(&self, address: IpAddr) -> bool {
        matches!(self, DialPolicy::Listed(egress) if !egress.lists(address))
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
        // As HTTP clients read it, for whom a number is an address too.
        let url = reqwest::Url::parse(url.as_deref().unwrap_or(endpoint)).ok()?;
        let host = url.host_str()?;
        if let Some(address) = egress::literal_address(host) {
            return self.is_unlisted(address).then(|| AddressRefusal::Unlisted(address).to_string());
        }
        (!egress.names(host) && egress.cidrs.is_empty()).then(|| {
            format!(
                "`egress` doesn't permit objects of the API at `{host}`: list the name in `egress.names`, or its \
                 network in `egress.cidrs`"
            )
        })
    }
}

/// Why an address may not be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressRefusal {
    /// It is in no network that `egress` permits.
    Unlisted(IpAddr),
    /// It is never dialled.
    Denied(IpAddr),
}

impl AddressRefusal {
    const fn is_unlisted(&self) -> bool {
        matches!(self, AddressRefusal::Unlisted(_))
    }
}

impl fmt::Display for AddressRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressRefusal::Unlisted(address) => write!(f, "{address} {UNLISTED_ADDRESS}"),
            AddressRefusal::Denied(address) => write!(f, "{address} {}", egress::DENIED_MESSAGE),
        }
    }
}

impl error::Error for AddressRefusal {}

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
        let loopback = SocketAddr::from(([127, 0, 0, 1], 1));
        let unlisted = AddressRefusal::Unlisted(loopback.ip());
        assert_eq!(listed(&[], &[], &[]).permitted([loopback]), Err(unlisted));
        assert_eq!(DialPolicy::Any.permitted([loopback]), Ok(vec![loopback]));
    }

    #[test]
    fn the_permitted_addresses_of_a_name_are_those_that_are_listed_and_not_denied() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 443);
        let [inside, outside, other, metadata] =
            ["10.1.0.1", "10.2.0.1", "10.2.0.2", "169.254.169.254"].map(at);
        let policy = listed(&["10.1.0.0/16", "169.254.0.0/16"], &[], &[]);
        let (unlisted, denied) =
            (AddressRefusal::Unlisted(outside.ip()), AddressRefusal::Denied(metadata.ip()));
        for (addresses, expected) in [
            (&[metadata, outside, inside][..], Ok(vec![inside])),
            (&[metadata], Err(denied)),
            (&[outside, other], Err(unlisted)),
            (&[metadata, outside, other], Err(unlisted)),
            (&[outside, metadata], Err(unlisted)),
            (&[], Ok(Vec::new())),
        ] {
            assert_eq!(policy.permitted(addresses.iter().copied()), expected, "{addresses:?}");
        }
        assert_eq!(DialPolicy::Any.permitted([metadata, outside]), Ok(vec![outside]));
        assert_eq!(DialPolicy::Any.permitted([metadata]), Err(denied));
        assert!(unlisted.to_string().starts_with("10.2.0.1 is in no network"), "{unlisted}");
        assert!(denied.to_string().contains("169.254.169.254 is a link-local"), "{denied}");
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
            // Addresses, as clients read them.
            ("http://2130706434:1", "egress.cidrs"),
            ("http://0x7f000002:1", "egress.cidrs"),
            ("http://0177.0.0.2:1", "egress.cidrs"),
            ("http://127.2:1", "egress.cidrs"),
            ("https://127.0.0.2.:1", "egress.cidrs"),
            ("dns:///2130706434:1", "egress.cidrs"),
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
