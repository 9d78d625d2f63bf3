//! Where a gateway is asked: which of its ports, and under which address, as it is written and as it is shown.

use std::path::{Path, PathBuf};

use reqwest::Url;

use hookgate::config::socket_flaw;

pub(super) const DEFAULT_ADDR: &str = "http://127.0.0.1:8080";
/// What an address of a Unix socket begins with.
const SOCKET_SCHEME: &str = "unix://";

/// What may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    Data,
    Admin,
    Ops,
}

impl Port {
    /// How its address is written.
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
    /// What is wrong with it, in one sentence that doesn't repeat it: somebody may have written a password into it.
    pub(crate) fn parse(port: Port, name: &str, text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{name} {what}: write it as {}", port.example());
        if let (Port::Admin, Some(path)) = (port, text.strip_prefix(SOCKET_SCHEME)) {
            return match socket_flaw(path) {
                None => Ok(Place::Socket(PathBuf::from(path))),
                Some(flaw) => Err(wrong(&format!("is no socket: {flaw}"))),
            };
        }
        let url = Url::parse(text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| wrong("is no address of a gateway"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("holds a user or a password, and a gateway takes tokens alone"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("ends behind the port"));
        }
        Ok(Place::Net(url))
    }

    /// Its file, if it is a socket.
    pub(super) fn socket(&self) -> Option<&Path> {
        match self {
            Place::Net(_) => None,
            Place::Socket(path) => Some(path),
        }
    }

    /// What paths are joined to. Whoever a socket leads to has no other name.
    pub(super) fn base(&self) -> Url {
        match self {
            Place::Net(url) => url.clone(),
            Place::Socket(_) => Url::parse("http://localhost/").expect("it is one"),
        }
    }

    /// As it is shown.
    pub(super) fn display(&self) -> String {
        match self {
            Place::Net(url) => url.as_str().trim_end_matches('/').to_owned(),
            Place::Socket(path) => format!("{SOCKET_SCHEME}{}", path.display()),
        }
    }

    /// Whether somebody has to be vouched for there.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Place::Net(url) if url.scheme() == "https")
    }

    /// What to look at where it was no such port, or only perhaps.
    pub(super) fn remedy(&self, port: Port) -> &'static str {
        match (port, self.is_tls()) {
            (Port::Data, false) => {
                "--addr is the gateway's `server.data_addr`, at `https://` where it has `server.tls`"
            }
            (Port::Data, true) => {
                "--addr is the gateway's `server.data_addr`, and --ca the CA of its certificate"
            }
            (Port::Admin, false) if self.socket().is_some() => {
                "--addr is the gateway's `server.admin_socket`, which its user and root alone may open"
            }
            (Port::Admin, false) => {
                "--addr is the gateway's `server.admin_addr`, open where an issuer has an `admin_audience`, at \
                 `https://` where it has `server.tls`"
            }
            (Port::Admin, true) => {
                "--addr is the gateway's `server.admin_addr`, open where an issuer has an `admin_audience`, and --ca \
                 the CA of its certificate"
            }
            (Port::Ops, _) => "--addr is the gateway's `server.ops_addr`",
        }
    }
}
