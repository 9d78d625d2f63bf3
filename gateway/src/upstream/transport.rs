//! How a plugin is reached: over a Unix socket, `http://`, `https://`, every address of a name, or in this
//! process.

mod answer_probe;
mod tcp;

use std::{
    cell::OnceCell,
    fmt, io,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use http::uri::{Authority, Scheme};
use tokio::net::UnixStream;
use tower::{
    BoxError, Service,
    util::{BoxCloneSyncService, MapErrLayer},
};

pub(super) use self::tcp::DnsTarget;
use self::tcp::{Destination, Tcp};
use crate::{
    config::{self, DialPolicy},
    fairness::compute_pool::ComputePool,
    task::join::joined,
    tls,
    upstream::{
        client::SharedResources,
        connection::Connection,
        dial_error::{DialError, DialErrorKind},
    },
};

/// Makes connections to one address.
pub(super) trait Transport: Send + Sync + 'static {
    /// Makes a new connection. The caller sets the time limit.
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
    /// Wraps `service`, such as a generated `PluginServiceServer` or tonic's `Routes`.
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

/// The targets of a registered plugin; `builtin` is its service if it is built in. TLS files are read here,
/// and watched from then on.
///
/// # Errors
/// One sentence that names the member and what would be right.
pub(super) fn targets_of_plugin(
    plugin: &config::Plugin,
    builtin: Option<InProcess>,
    shared: &SharedResources,
) -> Result<Vec<Target>, String> {
    let (reach, watch) = (&*shared.reach, &shared.certificates);
    let (name, endpoints) = (&plugin.name, plugin.addresses().collect::<Vec<_>>());
    if let Some(flaw) = reach.flaws(plugin).into_iter().next() {
        let builtin = plugin.builtin.iter().map(|builtin| format!("builtin:{builtin}"));
        let addresses = endpoints.iter().map(|&endpoint| endpoint.to_owned()).chain(builtin);
        let said = flaw.sentence();
        let barred = |address| Target::One(Box::new(DeniedTransport { address, said: said.clone() }));
        return Ok(addresses.map(barred).collect());
    }
    match (&*endpoints, &plugin.builtin, builtin) {
        ([], None, None) if plugin.self_registration => Ok(Vec::new()),
        ([_, ..], None, None) => {
            let security = TransportSecurity::new(plugin, reach, watch);
            let parsed = endpoints.iter().map(|endpoint| parse(endpoint, &security));
            parsed.collect::<Result<_, _>>().map_err(|error| format!("plugin `{name}`: {error}"))
        }
        ([], Some(builtin), Some(service)) => Ok(vec![Target::One(Box::new(BuiltinTransport {
            address: format!("builtin:{builtin}"),
            service,
            compute: shared.compute.clone(),
        }))]),
        ([], Some(builtin), None) => Err(format!("plugin `{name}`: there is no built-in `{builtin}`")),
        _ => Err(format!(
            "plugin `{name}`: set exactly one of `endpoint`, `endpoints`, `self_registration` and `builtin`"
        )),
    }
}

/// A plugin's allowed addresses and its `tls`: made when an endpoint first needs it, and shared by all of
/// them.
pub(super) struct TransportSecurity<'a> {
    plugin: &'a str,
    policy: DialPolicy,
    tls: Option<&'a config::ClientTls>,
    /// The directory that the files of `tls` must be in. `None` allows any.
    within: Option<&'a Path>,
    watch: &'a tls::CertificateWatch,
    made: OnceCell<Arc<tls::Client>>,
}

impl<'a> TransportSecurity<'a> {
    pub(super) fn new(
        plugin: &'a config::Plugin,
        reach: &'a config::ApiPluginPolicy,
        watch: &'a tls::CertificateWatch,
    ) -> Self {
        let within = match reach.within(plugin) {
            config::ReferenceScope::Anywhere => None,
            config::ReferenceScope::Dir(dir) => Some(dir),
        };
        let (policy, made) = (DialPolicy::for_plugin(plugin, reach), OnceCell::new());
        TransportSecurity { plugin: &plugin.name, policy, tls: plugin.tls.as_ref(), within, watch, made }
    }

    /// The same, with a client for TLS that was made before.
    fn with_client(self, client: Option<Arc<tls::Client>>) -> Self {
        TransportSecurity { made: client.map_or_else(OnceCell::new, OnceCell::from), ..self }
    }

    fn client(&self) -> Result<Arc<tls::Client>, String> {
        if let Some(made) = self.made.get() {
            return Ok(Arc::clone(made));
        }
        let client = Arc::new(tls::Client::new(self.plugin, self.tls, self.within, self.watch)?);
        Ok(Arc::clone(self.made.get_or_init(|| client)))
    }
}

pub(super) enum Target {
    /// One address.
    One(Box<dyn Transport>),
    /// Every address of a name (`dns:///host:port`); see [`of_address`].
    Names(DnsTarget),
}

/// Parses an endpoint of the configuration.
///
/// # Errors
/// One sentence that names the problem with the endpoint or with the files of `security`.
pub(super) fn parse(endpoint: &str, security: &TransportSecurity<'_>) -> Result<Target, String> {
    let wrong = |what| {
        format!(
            "`{endpoint}` is {what}: write `unix:///path`, `http://host:port`, `https://host:port` or \
             `dns:///name:port`"
        )
    };
    if let Some(path) = endpoint.strip_prefix("unix://") {
        if !path.starts_with('/') {
            return Err(wrong("not an absolute path"));
        }
        return Ok(Target::One(Box::new(UnixTransport {
            address: endpoint.to_owned(),
            path: path.into(),
            policy: security.policy.clone(),
        })));
    }
    if let Some(authority) = endpoint.strip_prefix("dns:///") {
        let secure = security.tls.is_some();
        return Ok(Target::Names(names(endpoint, authority, secure, security, wrong)?));
    }
    let uri: http::Uri = endpoint.parse().map_err(|_| wrong("not a URL"))?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("not of a known scheme")),
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong("a URL with a path"));
    }
    let authority = uri.authority().map_or("", Authority::as_str);
    Ok(Target::One(transport_by_name(names(endpoint, authority, secure, security, wrong)?)))
}

/// The transport for whichever of `target`'s addresses answers first.
pub(super) fn transport_by_name(target: DnsTarget) -> Box<dyn Transport> {
    let DnsTarget { address, host, port, authority, policy, tls } = target;
    Box::new(Tcp { address, authority, to: Destination::Name { host, port }, policy, tls })
}

/// The transport for one of `target`'s addresses. Requests and certificates name the host, not the address.
pub(super) fn transport_to(target: &DnsTarget, address: std::net::SocketAddr) -> Box<dyn Transport> {
    let scheme = if target.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    Box::new(Tcp {
        address: format!("{scheme}://{address}"),
        authority: target.authority.clone(),
        to: Destination::Address(address),
        policy: target.policy.clone(),
        tls: target.tls.clone(),
    })
}

fn names(
    endpoint: &str,
    authority: &str,
    secure: bool,
    security: &TransportSecurity<'_>,
    wrong: impl Fn(&'static str) -> String,
) -> Result<DnsTarget, String> {
    let authority: Authority = authority.parse().map_err(|_| wrong("not a URL"))?;
    let port = authority.port_u16().ok_or_else(|| wrong("without a port"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("a URL with a user"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let tls = match secure {
        true => {
            let name = tls::server_name(&host).ok_or_else(|| wrong("of a host that no certificate names"))?;
            Some((security.client()?, name))
        }
        false => None,
    };
    let policy = security.policy.at_host(&host);
    Ok(DnsTarget { address: endpoint.to_owned(), host, port, authority, policy, tls })
}

/// Makes transports to endpoints that a plugin's processes registered. All share one client for TLS.
#[derive(Default)]
pub(super) struct RegisteredTransports(OnceLock<Arc<tls::Client>>);

impl RegisteredTransports {
    /// The transport to `endpoint`. One that can't be dialled says why whenever it is.
    pub(super) fn transport(
        &self,
        endpoint: &str,
        plugin: &config::Plugin,
        reach: &config::ApiPluginPolicy,
        watch: &tls::CertificateWatch,
    ) -> Box<dyn Transport> {
        let security = TransportSecurity::new(plugin, reach, watch).with_client(self.0.get().cloned());
        let flaw = security.policy.flaw(endpoint);
        let parsed = match flaw.or_else(|| config::unverified(plugin, endpoint).map(str::to_owned)) {
            Some(flaw) => Err(flaw),
            None => parse(endpoint, &security),
        };
        if let Some(made) = security.made.into_inner() {
            let _ = self.0.set(made);
        }
        match parsed {
            Ok(Target::One(transport)) => transport,
            Ok(Target::Names(target)) => transport_by_name(target),
            Err(said) => Box::new(DeniedTransport { address: endpoint.to_owned(), said }),
        }
    }
}

struct UnixTransport {
    address: String,
    path: PathBuf,
    policy: DialPolicy,
}

impl UnixTransport {
    /// The real path of the socket, checked against the egress policy.
    async fn real_path(&self) -> Result<PathBuf, DialError> {
        let (policy, path) = (self.policy.clone(), self.path.clone());
        // A file system may hang; the caller's time limit applies.
        let real = joined(tokio::task::spawn_blocking(move || policy.socket(&path))).await;
        real.map_err(|error| self.failed(&error))?.ok_or_else(|| {
            let path = self.path.display();
            let detail = format!(
                "{path} leads out of the directories of `egress.socket_dirs`: list the one that the socket is in"
            );
            DialError::new(DialErrorKind::NotPermitted, detail)
        })
    }

    /// Classifies a failure to connect to the socket. The system reports "connection refused" both for a
    /// socket that nothing listens on and for a path that isn't a socket.
    fn failed(&self, error: &io::Error) -> DialError {
        let is_socket = || std::fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_socket());
        let path = self.path.display();
        match error.kind() {
            io::ErrorKind::NotFound => DialError::new(DialErrorKind::NoSocket, error.to_string()),
            io::ErrorKind::PermissionDenied => DialError::new(
                DialErrorKind::SocketPermission,
                format!("{error}: let the gateway's user or group write to {path}"),
            ),
            io::ErrorKind::ConnectionRefused if !is_socket() => DialError::new(
                DialErrorKind::NotASocket,
                format!("{path} is not a socket: correct `endpoint`"),
            ),
            _ => DialError::from_socket(error),
        }
    }
}

impl Transport for UnixTransport {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(async {
            let path = self.real_path().await?;
            let stream = UnixStream::connect(path).await.map_err(|error| self.failed(&error))?;
            let authority = Authority::from_static("localhost");
            let connected = Connection::http2(stream, Scheme::HTTP, authority, true).await;
            connected.map_err(|error| DialError::new(DialErrorKind::Closed, error.to_string()))
        })
    }

    fn address(&self) -> &str {
        &self.address
    }
}

/// An address whose spelling alone shows that it may not be reached.
struct DeniedTransport {
    address: String,
    said: String,
}

impl Transport for DeniedTransport {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        let error = DialError::new(DialErrorKind::NotPermitted, &*self.said);
        Box::pin(std::future::ready(Err(error)))
    }

    fn address(&self) -> &str {
        &self.address
    }
}

struct BuiltinTransport {
    address: String,
    service: InProcess,
    compute: ComputePool,
}

impl Transport for BuiltinTransport {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, DialError>> {
        Box::pin(std::future::ready(Ok(Connection::in_process(self.service.clone(), self.compute.clone()))))
    }

    fn address(&self) -> &str {
        &self.address
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
