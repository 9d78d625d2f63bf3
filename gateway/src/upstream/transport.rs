//! How a plugin is reached: a Unix socket, `http://`, or this process. Makes connections; knows nothing of
//! what is said over them.

use std::{fmt, io, net::SocketAddr, os::unix::fs::FileTypeExt as _, path::PathBuf};

use futures::future::BoxFuture;
use http::uri::Authority;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tower::{
    BoxError, Service,
    util::{BoxCloneSyncService, MapErrLayer},
};

use super::{
    cause::{Cause, DialError},
    connection::Connection,
};
use crate::config;

/// Makes connections to one address.
pub(super) trait Transport: Send + Sync + 'static {
    /// A new connection. The caller sets the time limit.
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>>;

    /// The address, for people and logs.
    fn address(&self) -> &str;
}

type BoxedService =
    BoxCloneSyncService<http::Request<tonic::body::Body>, http::Response<tonic::body::Body>, BoxError>;

/// A plugin in this process: the service that a server would serve over a socket.
#[derive(Clone)]
pub struct InProcess(pub(super) BoxedService);

impl InProcess {
    /// `service`, such as a generated `PluginServiceServer` or tonic's `Routes`.
    pub fn new<S>(service: S) -> Self
    where
        S: Service<http::Request<tonic::body::Body>, Response = http::Response<tonic::body::Body>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        let layer = MapErrLayer::new(Into::into as fn(S::Error) -> BoxError);
        InProcess(BoxCloneSyncService::new(tower::Layer::layer(&layer, service)))
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

/// What an endpoint of the configuration stands for.
pub(super) enum Target {
    /// One address.
    One(Box<dyn Transport>),
    /// Every address of a name.
    Names(Names),
}

/// A name that stands for several addresses.
#[derive(Debug, Clone)]
pub(super) struct Names {
    address: String,
    authority: Authority,
    host: String,
    port: u16,
}

impl Names {
    /// As it was written.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

/// The transport to one of the addresses that `names` stands for.
pub(super) fn of_address(names: &Names, address: SocketAddr) -> Box<dyn Transport> {
    Box::new(Tcp {
        address: format!("http://{address}"),
        authority: names.authority.clone(),
        host: address.ip().to_string(),
        port: address.port(),
    })
}

/// Where a registered plugin is; `builtin` is its service, if it is built in.
///
/// # Errors
/// One sentence that names the member and what would be right.
pub(super) fn of_plugin(plugin: &config::Plugin, builtin: Option<InProcess>) -> Result<Vec<Target>, String> {
    let name = &plugin.name;
    let endpoints: Vec<_> = plugin.addresses().collect();
    match (&*endpoints, &plugin.builtin, builtin) {
        ([_, ..], None, None) => {
            let parsed = endpoints.iter().map(|endpoint| {
                parse(endpoint).map_err(|error| {
                    format!(
                        "plugin `{name}`: `{endpoint}` is {error}: write `unix:///path`, `http://host:port` or \
                         `dns:///name:port`"
                    )
                })
            });
            parsed.collect()
        }
        ([], Some(builtin), Some(service)) => {
            Ok(vec![Target::One(Box::new(BuiltIn { address: format!("builtin:{builtin}"), service }))])
        }
        ([], Some(builtin), None) => Err(format!("plugin `{name}`: there is no built-in `{builtin}`")),
        _ => Err(format!("plugin `{name}`: set exactly one of `endpoint`, `endpoints` and `builtin`")),
    }
}

fn parse(endpoint: &str) -> Result<Target, &'static str> {
    if let Some(path) = endpoint.strip_prefix("unix://") {
        if !path.starts_with('/') {
            return Err("not an absolute path");
        }
        return Ok(Target::One(Box::new(Unix { address: endpoint.to_owned(), path: path.into() })));
    }
    let named = endpoint.strip_prefix("dns:///").map(|name| format!("http://{name}"));
    let uri: http::Uri = named.as_deref().unwrap_or(endpoint).parse().map_err(|_| "not a URL")?;
    let authority = match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(authority)) if matches!(uri.path(), "" | "/") && uri.query().is_none() => {
            authority
        }
        (Some("http"), Some(_)) => return Err("a URL with a path"),
        _ => return Err("not of a known scheme"),
    };
    let port = authority.port_u16().ok_or("without a port")?;
    if authority.as_str().contains('@') {
        return Err("a URL with a user");
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let (address, authority) = (endpoint.to_owned(), authority.clone());
    Ok(match named {
        Some(_) => Target::Names(Names { address, authority, host, port }),
        None => Target::One(Box::new(Tcp { address, authority, host, port })),
    })
}

struct Tcp {
    address: String,
    authority: Authority,
    host: String,
    port: u16,
}

impl Tcp {
    /// Connects with small writes sent at once: waiting to fill packets costs 40 ms a call.
    async fn dial(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Transport for Tcp {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(async {
            let stream = self.dial().await.map_err(|error| DialError::of_socket(&error))?;
            let peer = stream.peer_addr().map_err(|error| DialError::of_socket(&error))?;
            let private = peer.ip().to_canonical().is_loopback();
            http2(stream, self.authority.clone(), private).await
        })
    }

    fn address(&self) -> &str {
        &self.address
    }
}

struct Unix {
    address: String,
    path: PathBuf,
}

impl Unix {
    /// What it means that the socket can't be connected to. The system says "connection refused" both of a socket that
    /// nobody listens on and of a path that is no socket.
    fn failed(&self, error: &io::Error) -> DialError {
        let is_socket = || std::fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_socket());
        let path = self.path.display();
        match error.kind() {
            io::ErrorKind::NotFound => DialError::new(Cause::NoSocket, error.to_string()),
            io::ErrorKind::PermissionDenied => DialError::new(
                Cause::SocketPermission,
                format!("{error}: let the gateway's user or group write to {path}"),
            ),
            io::ErrorKind::ConnectionRefused if !is_socket() => {
                DialError::new(Cause::NotASocket, format!("{path} is no socket: correct `endpoint`"))
            }
            _ => DialError::of_socket(error),
        }
    }
}

async fn http2<S>(stream: S, authority: Authority, private: bool) -> Result<Connection, DialError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connected = Connection::http2(stream, authority, private).await;
    connected.map_err(|error| DialError::new(Cause::Closed, error.to_string()))
}

impl Transport for Unix {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(async {
            let stream = UnixStream::connect(&self.path).await.map_err(|error| self.failed(&error))?;
            http2(stream, Authority::from_static("localhost"), true).await
        })
    }

    fn address(&self) -> &str {
        &self.address
    }
}

struct BuiltIn {
    address: String,
    service: InProcess,
}

impl Transport for BuiltIn {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(std::future::ready(Ok(Connection::in_process(self.service.clone()))))
    }

    fn address(&self) -> &str {
        &self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dialled_socket_sends_small_writes_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let authority = Authority::from_static("plugin");
        let tcp = Tcp { address: String::new(), authority, host: "127.0.0.1".into(), port };
        assert!(tcp.dial().await.expect("listening").nodelay().expect("a socket"));
    }

    #[test]
    fn endpoints_that_cannot_be_dialled_are_refused() {
        for (endpoint, what) in [
            ("unix://relative.sock", "not an absolute path"),
            ("http://plugin", "without a port"),
            ("http://plugin:70000", "without a port"),
            ("http://plugin:7000/path", "a URL with a path"),
            ("http://user@plugin:7000", "a URL with a user"),
            ("https://plugin:7000", "not of a known scheme"),
            ("plugin:7000", "not of a known scheme"),
        ] {
            assert_eq!(parse(endpoint).err(), Some(what), "{endpoint}");
        }
        for endpoint in ["unix:///run/a.sock", "http://plugin:7000", "http://[::1]:7000/"] {
            let Ok(Target::One(transport)) = parse(endpoint) else { panic!("{endpoint}") };
            assert_eq!(transport.address(), endpoint);
        }
        let Ok(Target::Names(names)) = parse("dns:///plugin:7000") else { panic!("it is a name") };
        assert_eq!((names.address(), names.host(), names.port()), ("dns:///plugin:7000", "plugin", 7000));
    }
}
