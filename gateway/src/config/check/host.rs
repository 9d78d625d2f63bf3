//! Checks of where plugins reach the gateway's storage.

use super::{ConfigChecker, plugins::socket_flaw};
use crate::config::server::Server;

impl ConfigChecker<'_> {
    pub(super) fn host(&mut self, server: &Server) {
        let flaw = server.host_socket.as_ref().and_then(|path| socket_flaw(&path.to_string_lossy()));
        if let Some(flaw) = flaw {
            self.report("/server/host_socket", flaw, "write it as /run/hookgate/host.sock");
        }
        let listeners =
            [("host_addr", server.host_addr.is_some()), ("host_socket", server.host_socket.is_some())];
        for (key, _) in listeners.into_iter().filter(|(_, is_set)| *is_set && self.draft.store.is_none()) {
            self.report(
                format!("/server/{key}"),
                format!("`{key}` has nothing to serve: plugins' data is in the database of `store`"),
                "set `store`, or remove the key",
            );
        }
        match (&server.host_endpoint, server.host_addr) {
            (Some(_), None) => self.report(
                "/server/host_endpoint",
                "`host_endpoint` is the URL of a port that isn't open",
                "set `host_addr`, or remove the key",
            ),
            (Some(endpoint), Some(_)) if !is_http_url(endpoint) => self.report(
                "/server/host_endpoint",
                format!("`{endpoint}` is not a URL of a gRPC server"),
                "write `http://host:port` or `https://host:port`",
            ),
            (None, Some(address)) if address.ip().is_unspecified() => self.report(
                "/server/host_addr",
                format!("plugins can't be told to connect to {address}"),
                "set `host_endpoint` to the URL by which they reach the port",
            ),
            _ => {}
        }
    }
}

/// Whether `text` has a scheme, a host and a port, and no path.
fn is_http_url(text: &str) -> bool {
    let has_scheme = text.starts_with("http://") || text.starts_with("https://");
    let url = text.parse::<http::Uri>().ok().filter(|_| has_scheme);
    url.is_some_and(|url| {
        let is_root = url.path() == "/" && url.query().is_none() && !text.ends_with('/');
        url.port_u16().is_some() && url.host().is_some_and(|host| !host.is_empty()) && is_root
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{
        fixtures::{AUTH, problems, served},
        load::from_text,
    };

    #[test]
    fn a_host_port_needs_a_database_and_an_address_that_plugins_can_reach() {
        let store = "store: { url: \"sqlite:x.db\" }\n";
        for (server, store, at) in [
            ("host_socket: host.sock", store, "/server/host_socket"),
            ("host_socket: /run/host.sock", "", "/server/host_socket"),
            ("host_addr: \"127.0.0.1:9092\"", "", "/server/host_addr"),
            ("host_addr: \"0.0.0.0:9092\"", store, "/server/host_addr"),
            ("host_endpoint: \"http://a:1\"", store, "/server/host_endpoint"),
            ("host_addr: \"127.0.0.1:9092\", host_endpoint: \"a:1\"", store, "/server/host_endpoint"),
            (
                "host_addr: \"127.0.0.1:9092\", host_endpoint: \"http://a:1/b\"",
                store,
                "/server/host_endpoint",
            ),
        ] {
            let text = format!("{AUTH}server: {{ {server} }}\n{store}");
            let found = problems(&text);
            let pointers: Vec<_> = found.iter().map(|located| &*located.problem.pointer).collect();
            assert_eq!(pointers, [at], "{text}");
        }
        for server in [
            "host_addr: \"127.0.0.1:9092\"",
            "host_addr: \"0.0.0.0:9092\", host_endpoint: \"https://hookgate.agents:9092\"",
            "host_socket: /run/hookgate/host.sock",
        ] {
            let text = format!("{AUTH}server: {{ {server} }}\n{store}");
            assert!(from_text("f.yaml".into(), &served(&text), []).is_ok(), "{text}");
        }
    }
}
