//! A scripted plugin's sockets and connections.

use std::{
    convert::Infallible,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use hookgate_proto::plugin::v1::plugin_service_server::PluginServiceServer;
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    runtime::Runtime,
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic_health::pb::health_server::HealthServer;
use tower::Service as _;

use super::{
    flood,
    service::Service,
    wire::{ResponseAction, WireFault},
};
use crate::port::{ReservedPort, ShutdownListener};

/// The maximum message size, as every SDK sets it: the request limit of at most 16 MiB plus 1 MiB.
const MAX_MESSAGE: usize = 17 << 20;

/// More concurrent calls than any limit of the gateway admits, so the fake never holds them back.
const MAX_STREAMS: u32 = 4096;

/// The timeout of [`PluginListener::leave`].
const PATIENCE: Duration = Duration::from_secs(35);

/// Serves all plugins of the process.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("fake-plugins")
        .build()
        .expect("threads can be started")
});

/// A plugin's address and listener.
pub(super) struct PluginListener {
    address: Address,
    /// Holds the Unix socket as long as the plugin lives.
    _directory: Option<TempDir>,
    /// Reserves the TCP port from the first start on.
    reserved: Option<ReservedPort>,
    flooding: bool,
    tls: Option<Arc<Tls>>,
    /// Tells connections to go away.
    farewell: watch::Sender<u64>,
    /// Tells the listener to accept no more connections, and to end when the last one has.
    leaving: CancellationToken,
    accepting: Option<JoinHandle<()>>,
}

/// A plugin's TLS configuration, and the clients that connected.
pub(super) struct Tls {
    config: Mutex<Arc<ServerConfig>>,
    peers: Mutex<Vec<Option<CertificateDer<'static>>>>,
}

impl Tls {
    /// Applies from the next connection on.
    pub(super) fn set(&self, config: ServerConfig) {
        *self.config.lock().expect("no holder of this lock panics") = Arc::new(config);
    }

    pub(super) fn peers(&self) -> Vec<Option<CertificateDer<'static>>> {
        self.peers.lock().expect("no holder of this lock panics").clone()
    }

    async fn accept(&self, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        let config = Arc::clone(&self.config.lock().expect("no holder of this lock panics"));
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let shown = shown.map(|certificate| certificate.clone().into_owned());
        self.peers.lock().expect("no holder of this lock panics").push(shown);
        Ok(Box::new(stream))
    }
}

#[derive(Clone)]
enum Address {
    /// Port 0 until the first start.
    Tcp(SocketAddr),
    /// At most 107 bytes.
    Unix(PathBuf),
}

enum ListenerSocket {
    Tcp(ShutdownListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl PluginListener {
    pub(super) fn tcp() -> Self {
        PluginListener::tcp_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    pub(super) fn tcp_at(address: SocketAddr) -> Self {
        PluginListener::at(Address::Tcp(address), None)
    }

    pub(super) fn tls(config: ServerConfig) -> Self {
        let tls = Tls { config: Mutex::new(Arc::new(config)), peers: Mutex::default() };
        let mut listening = PluginListener::tcp();
        listening.tls = Some(Arc::new(tls));
        listening
    }

    pub(super) fn unix() -> Self {
        let directory =
            tempfile::Builder::new().prefix("hg").tempdir().expect("a temporary directory can be made");
        PluginListener::at(Address::Unix(directory.path().join("s")), Some(directory))
    }

    fn at(address: Address, directory: Option<TempDir>) -> Self {
        let (farewell, leaving) = (watch::Sender::new(0), CancellationToken::new());
        let (reserved, flooding, tls, accepting) = (None, false, None, None);
        PluginListener {
            address,
            _directory: directory,
            reserved,
            flooding,
            tls,
            farewell,
            leaving,
            accepting,
        }
    }

    pub(super) fn set_flooding(&mut self, flooding: bool) {
        self.flooding = flooding;
    }

    pub(super) fn security(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    pub(super) fn endpoint(&self) -> String {
        match &self.address {
            Address::Tcp(address) if self.tls.is_some() => format!("https://{address}"),
            Address::Tcp(address) => format!("http://{address}"),
            Address::Unix(path) => format!("unix://{}", path.display()),
        }
    }

    pub(super) async fn start(&mut self, service: Service) {
        assert!(self.accepting.is_none(), "the plugin runs already");
        if let (Address::Tcp(address), None) = (&mut self.address, &self.reserved) {
            let reserved = ReservedPort::at(*address).expect("the address is free");
            *address = reserved.address();
            self.reserved = Some(reserved);
        }
        let bound = RUNTIME.spawn(bind(self.address.clone())).await;
        let socket = bound.expect("binding does not panic").expect("the address is free");
        self.leaving = CancellationToken::new();
        let manner = ServeOptions {
            tls: self.tls.clone(),
            flooding: self.flooding,
            farewell: self.farewell.clone(),
            leaving: self.leaving.clone(),
        };
        self.accepting = Some(RUNTIME.spawn(accept(socket, service, manner)));
    }

    pub(super) fn go_away(&self) {
        self.farewell.send_modify(|farewells| *farewells += 1);
    }

    /// Returns when the socket is closed and all connections have ended by themselves.
    pub(super) async fn leave(&mut self) {
        self.leaving.cancel();
        let accepting = self.accepting.take().expect("the plugin runs");
        let left = timeout(PATIENCE, accepting).await;
        left.expect("calls end, and a task that is told to leave does").expect("serving does not panic");
        self.clean_up();
    }

    /// Closes the socket and all connections.
    pub(super) async fn stop(&mut self) {
        let accepting = self.accepting.take().expect("the plugin runs");
        accepting.abort();
        let _ = accepting.await; // aborted on purpose
        self.clean_up();
    }

    fn clean_up(&self) {
        if let Address::Unix(path) = &self.address {
            fs::remove_file(path).expect("the socket is there");
        }
    }
}

impl Drop for PluginListener {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

async fn bind(address: Address) -> io::Result<ListenerSocket> {
    Ok(match address {
        Address::Tcp(address) => ListenerSocket::Tcp(ShutdownListener::bind(address).await?),
        Address::Unix(path) => ListenerSocket::Unix(UnixListener::bind(path)?),
    })
}

/// How to serve connections.
#[derive(Clone)]
struct ServeOptions {
    tls: Option<Arc<Tls>>,
    flooding: bool,
    farewell: watch::Sender<u64>,
    leaving: CancellationToken,
}

/// If it is dropped, it drops its connections; if it is told to leave, it lets them finish.
async fn accept(socket: ListenerSocket, service: Service, manner: ServeOptions) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = manner.leaving.cancelled() => break,
            accepted = socket.accept() => accepted,
        };
        let Ok(stream) = accepted else {
            continue; // a peer that went away before it was accepted
        };
        service.state.record.count(|counts| counts.connections += 1);
        // Subscribe now, so that a farewell before the connection is served reaches it too.
        let farewell = manner.farewell.subscribe();
        connections.spawn(converse(stream, service.clone(), manner.clone(), farewell));
        while connections.try_join_next().is_some() {}
    }
    drop(socket);
    manner.farewell.send_modify(|farewells| *farewells += 1);
    while connections.join_next().await.is_some() {}
}

impl ListenerSocket {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            ListenerSocket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            ListenerSocket::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// Serves one connection until the peer, the script or the plugin's end closes it.
async fn converse(
    mut stream: Box<dyn Stream>,
    service: Service,
    ServeOptions { tls, flooding, .. }: ServeOptions,
    mut farewell: watch::Receiver<u64>,
) {
    if let Some(tls) = &tls {
        match tls.accept(stream).await {
            Ok(decrypted) => stream = decrypted,
            Err(_) => return, // the peer gets the error
        }
    }
    let cut = CancellationToken::new();
    let stream: Box<dyn Stream> = if flooding { Box::new(flood::relay(stream)) } else { stream };
    let health = HealthServer::new(service.clone());
    let server = PluginServiceServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(usize::MAX); // tests need replies over the limit
    let scheme = if tls.is_some() { "https" } else { "http" };
    let answer = service_fn(|request: Request<Incoming>| {
        assert_eq!(request.uri().scheme_str(), Some(scheme), "a strict server refuses another");
        respond(server.clone(), health.clone(), request, cut.clone())
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MAX_STREAMS)
        // By default, 20 calls that were given up before a busy fake took them end the connection.
        .max_pending_accept_reset_streams(MAX_STREAMS as usize)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        () = cut.cancelled() => return,
        _ = connection.as_mut() => return, // the peer deals with the connection's end
        told = farewell.changed() => {
            told.expect("the accepting task has the sender");
            connection.as_mut().graceful_shutdown();
        }
    }
    tokio::select! {
        () = cut.cancelled() => {}
        _ = connection => {}
    }
}

/// An error resets the stream.
async fn respond(
    mut server: PluginServiceServer<Service>,
    mut health: HealthServer<Service>,
    request: Request<Incoming>,
    cut: CancellationToken,
) -> Result<Response<Body>, io::Error> {
    let is_check = request.uri().path().starts_with("/grpc.health.v1.Health/");
    let result: Result<_, Infallible> =
        if is_check { health.call(request).await } else { server.call(request).await };
    let Ok(mut response) = result;
    let Some(misconduct) = response.extensions_mut().remove::<WireFault>() else {
        return Ok(response);
    };
    match misconduct.respond() {
        ResponseAction::Respond(response) => Ok(response),
        ResponseAction::ResetStream => Err(io::Error::other("the script resets the stream")),
        ResponseAction::Disconnect => {
            cut.cancel();
            std::future::pending().await
        }
    }
}
