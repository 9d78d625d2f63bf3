//! Addresses of a gateway's ports: parsing, display, and what to check if one doesn't work.

use std::path::{Path, PathBuf};

use reqwest::Url;

use hookgate::config::socket_flaw;

pub(super) const DEFAULT_ADDR: &str = "http://127.0.0.1:8080";
/// Prefix of a Unix socket's address.
const SOCKET_SCHEME: &str = "unix://";

/// A port of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Data,
    Admin,
    Ops,
}

impl Port {
    /// Example of its address.
    const fn example(self) -> &'static str {
        match self {
            Port::Data => DEFAULT_ADDR,
            Port::Admin => "http://127.0.0.1:9091 or unix:///run/hookgate/admin.sock",
            Port::Ops => "127.0.0.1:9090",
        }
    }
}

/// An address of a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `http://` or `https://`, a host and a port.
    Net(Url),
    /// The admin socket.
    Socket(PathBuf),
}

impl Place {
    /// The address of `port` that was read from `name`.
    ///
    /// # Errors
    /// One sentence that doesn't repeat the address, because it may contain a password.
    pub(crate) fn parse(port: Port, name: &str, text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{name} {what}: write it as {}", port.example());
        if let (Port::Admin, Some(path)) = (port, text.strip_prefix(SOCKET_SCHEME)) {
            return match socket_flaw(path) {
                None => Ok(Place::Socket(PathBuf::from(path))),
                Some(flaw) => Err(wrong(&format!("is not a socket: {flaw}"))),
            };
        }
        let url = Url::parse(text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| wrong("is not a gateway's address"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("contains a user or a password, but a gateway accepts only tokens"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("must end after the port"));
        }
        Ok(Place::Net(url))
    }

    /// The socket's path, if it is a socket.
    pub(super) fn socket(&self) -> Option<&Path> {
        match self {
            Place::Net(_) => None,
            Place::Socket(path) => Some(path),
        }
    }

    /// The URL to join paths to; `localhost` for a socket.
    pub(super) fn base(&self) -> Url {
        match self {
            Place::Net(url) => url.clone(),
            Place::Socket(_) => Url::parse("http://localhost/").expect("it is one"),
        }
    }

    /// The address for display.
    pub(crate) fn display(&self) -> String {
        match self {
            Place::Net(url) => url.as_str().trim_end_matches('/').to_owned(),
            Place::Socket(path) => format!("{SOCKET_SCHEME}{}", path.display()),
        }
    }

    /// Whether the address uses TLS.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Place::Net(url) if url.scheme() == "https")
    }

    /// What to check if this may not be the right port.
    pub(super) fn remedy(&self, port: Port) -> &'static str {
        match (port, self.is_tls()) {
            (Port::Data, false) => {
                "--addr must be the gateway's `server.data_addr`, with `https://` if it has `server.tls`"
            }
            (Port::Data, true) => {
                "--addr must be the gateway's `server.data_addr`, and --ca the CA of its certificate"
            }
            (Port::Admin, false) if self.socket().is_some() => {
                "--addr must be the gateway's `server.admin_socket`, which only its user and root may open"
            }
            (Port::Admin, false) => {
                "--addr must be the gateway's `server.admin_addr`, which is open if an issuer has an \
                 `admin_audience`, with `https://` if it has `server.tls`"
            }
            (Port::Admin, true) => {
                "--addr must be the gateway's `server.admin_addr`, which is open if an issuer has an \
                 `admin_audience`, and --ca the CA of its certificate"
            }
            (Port::Ops, _) => "--addr must be the gateway's `server.ops_addr`",
        }
    }
}
