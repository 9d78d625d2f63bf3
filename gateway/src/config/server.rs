//! Where the gateway listens: the keys of `server`.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, thread};

use schemars::JsonSchema;
use serde::Deserialize;

/// Where the gateway listens.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// API for agents: HTTP and gRPC on one port.
    #[schemars(with = "String", extend("format" = "socket-address"))]
    pub data_addr: SocketAddr,
    /// Ops port: /livez, /readyz, /metrics, /openapi.json, a page at / and gRPC health, in plaintext and without a
    /// token.
    #[schemars(with = "String", extend("format" = "socket-address"))]
    pub ops_addr: SocketAddr,
    /// Admin API for operators with a token. Opens only if an issuer has an `admin_audience`.
    #[schemars(with = "String", extend("format" = "socket-address"))]
    pub admin_addr: SocketAddr,
    /// Unix socket for the admin API without a token, which only the gateway's user and root may open (mode 0600).
    /// Absent: no socket.
    pub admin_socket: Option<PathBuf>,
    /// Port for plugins that use the gateway's storage; needs `store`. Absent: none.
    #[schemars(with = "Option<String>", extend("format" = "socket-address"))]
    pub host_addr: Option<SocketAddr>,
    /// URL of `host_addr` for plugins on other machines, such as `http://hookgate.agents:9092`. Absent: `host_addr`
    /// itself.
    pub host_endpoint: Option<String>,
    /// Unix socket for plugins that use the gateway's storage; needs `store`. Every user may connect (mode 0666), and a
    /// token decides what a plugin may do. Absent: none.
    pub host_socket: Option<PathBuf>,
    /// TLS on the data, the admin and the host port; absent: plaintext.
    pub tls: Option<ServerTls>,
    /// Threads that serve the data port. Each makes its own connections to plugins. Absent: one for each core that the
    /// process may use.
    #[schemars(range(min = 1, max = 1024))]
    pub workers: Option<NonZeroUsize>,
}

impl Server {
    /// The number of workers.
    pub fn workers(&self) -> NonZeroUsize {
        let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        self.workers.unwrap_or_else(cores)
    }

    /// Whether plugins can reach the host services.
    pub fn has_host_listener(&self) -> bool {
        self.host_addr.is_some() || self.host_socket.is_some()
    }
}

/// Certificate of a listener, and whom it lets in. Changed files are taken into use within 10 s.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// PEM file with the certificate, followed by its intermediate certificates.
    pub cert_file: PathBuf,
    /// PEM file with the private key.
    pub key_file: PathBuf,
    /// PEM file of CAs: callers must present a certificate of one of them. Absent: no client certificates.
    pub client_ca_file: Option<PathBuf>,
}

impl Default for Server {
    fn default() -> Self {
        Server {
            data_addr: SocketAddr::from(([127, 0, 0, 1], 8080)),
            ops_addr: SocketAddr::from(([127, 0, 0, 1], 9090)),
            admin_addr: SocketAddr::from(([127, 0, 0, 1], 9091)),
            admin_socket: None,
            host_addr: None,
            host_endpoint: None,
            host_socket: None,
            tls: None,
            workers: None,
        }
    }
}
