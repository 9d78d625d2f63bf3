//! Checks of TLS to plugins: keys that only make sense together (docs/protocol.md, section 7). The files'
//! contents are checked when they are read.

use std::path::Path;

use rustls::pki_types::ServerName;

use super::ConfigChecker;

use crate::{config::plugin::ClientTls, json::pointer::child};

/// Longest SPIFFE id, in bytes (SPIFFE-ID, section 2.3).
const MAX_SPIFFE_ID: usize = 2048;

impl ConfigChecker<'_> {
    /// `secure` tells whether an endpoint uses TLS.
    pub(super) fn client_tls(&mut self, pointer: &str, tls: &ClientTls, secure: bool) {
        if !secure {
            self.report_key(
                pointer,
                "`tls` has no effect here: no endpoint speaks TLS",
                "write `https://` or `dns:///` in the endpoint, or leave `tls` out",
            );
        }
        match (&tls.cert_file, &tls.key_file) {
            (Some(_), None) => self.half_a_pair(pointer, "key_file"),
            (None, Some(_)) => self.half_a_pair(pointer, "cert_file"),
            _ => {}
        }
        if let Some(name) = tls.server_name.as_deref()
            && ServerName::try_from(name).is_err()
        {
            self.report(
                child(pointer, "server_name"),
                format!("`{name}` is not a host name"),
                "write a name or an address as the plugin's certificate has it, without scheme and port",
            );
        }
        if let Some(id) = tls.spiffe_id.as_deref()
            && !is_spiffe_id(id)
        {
            self.report(
                child(pointer, "spiffe_id"),
                format!("`{id}` is not a SPIFFE ID"),
                "write `spiffe://trust-domain/path`, as the plugin's certificate has it",
            );
        }
        let files = [("ca_file", &tls.ca_file), ("cert_file", &tls.cert_file), ("key_file", &tls.key_file)];
        for (key, path) in files {
            if let Some(path) = path {
                self.path(&child(pointer, key), path);
            }
        }
    }

    pub(super) fn server_tls(&mut self) {
        let Some(tls) = self.draft.server.as_ref().and_then(|server| server.tls.as_ref()) else { return };
        let files = [("cert_file", Some(&tls.cert_file)), ("key_file", Some(&tls.key_file))];
        for (key, path) in files.into_iter().chain([("client_ca_file", tls.client_ca_file.as_ref())]) {
            if let Some(path) = path {
                self.path(&child("/server/tls", key), path);
            }
        }
    }

    fn half_a_pair(&mut self, pointer: &str, missing: &str) {
        self.report(
            pointer,
            format!("`{missing}` is missing: a certificate needs its key"),
            "give both of `cert_file` and `key_file`, or none",
        );
    }

    fn path(&mut self, pointer: &str, path: &Path) {
        if path.as_os_str().is_empty() {
            self.report(pointer, "the path is empty", "write the path of a PEM file");
        }
    }
}

/// Whether `id` is a trust domain and a path, in the form that a certificate can contain (SPIFFE-ID, section
/// 2).
fn is_spiffe_id(id: &str) -> bool {
    let Some((domain, path)) =
        id.strip_prefix("spiffe://").map(|rest| rest.split_once('/').unwrap_or((rest, "x")))
    else {
        return false;
    };
    let in_domain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
    let in_path = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    let is_segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(in_path);
    id.len() <= MAX_SPIFFE_ID
        && !domain.is_empty()
        && domain.bytes().all(in_domain)
        && path.split('/').all(is_segment)
}

#[cfg(test)]
mod tests {
    use super::is_spiffe_id;
    use crate::config::{fixtures::*, load::from_text};

    #[test]
    fn spiffe_ids_have_a_trust_domain_and_a_clean_path() {
        for good in ["spiffe://example.org", "spiffe://example.org/guard", "spiffe://a-b_c.1/ns/x/sa/Y.z"] {
            assert!(is_spiffe_id(good), "{good}");
        }
        for bad in [
            "",
            "guard",
            "https://example.org/guard",
            "spiffe://",
            "spiffe:///guard",
            "spiffe://Example.org/guard",
            "spiffe://example.org/",
            "spiffe://example.org/a//b",
            "spiffe://example.org/../b",
            "spiffe://example.org:80/b",
            "spiffe://example.org/b?c",
        ] {
            assert!(!is_spiffe_id(bad), "{bad}");
        }
    }

    #[test]
    fn tls_to_a_plugin_needs_an_endpoint_that_speaks_it() {
        let remedy = "write `https://` or `dns:///` in the endpoint, or leave `tls` out";
        for place in ["endpoint: \"http://a:1\"", "endpoint: \"unix:///a\"", "builtin: content-policy"] {
            let text = format!("name: p, {place}, tls: {{ ca_file: /ca }}");
            plugin(&text, "`tls` has no effect here: no endpoint speaks TLS", remedy);
        }
    }

    #[test]
    fn keys_of_tls_to_a_plugin_fit_together() {
        let tls = |text: &str| format!("name: p, endpoint: \"https://a:1\", tls: {{ {text} }}");
        let both = "give both of `cert_file` and `key_file`, or none";
        let missing = |key| format!("`{key}` is missing: a certificate needs its key");
        plugin(&tls("cert_file: /c"), &missing("key_file"), both);
        plugin(&tls("key_file: /k"), &missing("cert_file"), both);
        plugin(&tls("ca_file: \"\""), "the path is empty", "write the path of a PEM file");
        plugin(
            &tls("server_name: \"https://a\""),
            "`https://a` is not a host name",
            "write a name or an address as the plugin's certificate has it, without scheme and port",
        );
        plugin(
            &tls("spiffe_id: guard"),
            "`guard` is not a SPIFFE ID",
            "write `spiffe://trust-domain/path`, as the plugin's certificate has it",
        );
    }

    #[test]
    fn a_listener_s_certificate_has_its_key() {
        rest("server: { tls: { cert_file: /c } }\n", 2, "`key_file` is missing here", "add `key_file`: text");
        let empty = "server: { tls: { cert_file: /c, key_file: \"\" } }\n";
        rest(empty, 2, "the path is empty", "write the path of a PEM file");
    }

    #[test]
    fn references_may_go_over_tls() {
        let text = "plugins: [{ name: p, endpoint: \"https://a:1\", config: { key: \"${SECRET}\" } }]\n";
        from_text(String::new(), &served(&format!("{AUTH}{text}")), []).map(drop).unwrap_err();
        let env = [("SECRET".to_owned(), "x".to_owned())];
        from_text(String::new(), &served(&format!("{AUTH}{text}")), env).unwrap();
    }

    #[test]
    fn addresses_that_are_never_dialled_are_refused_when_read() {
        for host in ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.1.1]", "100.100.100.200"] {
            plugin(
                &format!("name: p, endpoint: \"https://{host}:1\""),
                &format!(
                    "`{host}` is a link-local or cloud metadata address, to which the gateway never connects"
                ),
                "write `unix:///path/of.sock`, `http://host:port`, `https://host:port` or `dns:///name:port`",
            );
        }
        for url in ["https://169.254.169.254/keys", "https://2852039166/keys", "https://0xa9fea9fe/keys"] {
            issuer(
                &format!("jwks_url: \"{url}\""),
                "`169.254.169.254` is a link-local or cloud metadata address, to which the gateway never connects",
                "write the host that publishes the issuer's keys",
            );
        }
    }
}
