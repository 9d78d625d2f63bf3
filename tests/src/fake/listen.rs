//! Sockets and connections of a scripted plugin: they open, and they close for good.

use std::{
    convert::Infallible,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::LazyLock,
};

use hookgate_proto::plugin::v1::plugin_service_server::PluginServiceServer;
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    runtime::Runtime,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::Service as _;

use super::{
    flood::{self, Trigger},
    service::Service,
    wire::{Instead, Misconduct},
};

/// Largest message taken, as every SDK sets it: request limit (at most 16 MiB) and 1 MiB around it.
const MAX_MESSAGE: usize = 17 << 20;

/// More calls at once than any limit of the gateway's lets through: the fake is never what holds them back.
const MAX_STREAMS: u32 = 4096;

/// Serves every plugin of the process.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("fake-plugins")
        .build()
        .expect("threads can be started")
});

/// Where a plugin listens, and whether it does.
pub(super) struct Listening {
    address: Address,
    /// Holds the Unix socket and lives as long as the plugin.
    _directory: Option<TempDir>,
    flooding: bool,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Clone)]
enum Address {
    /// Port 0 until the first start.
    Tcp(SocketAddr),
    /// At most 107 bytes.
    Unix(PathBuf),
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listening {
    pub(super) fn tcp() -> Self {
        Listening::at(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), None)
    }

    pub(super) fn unix() -> Self {
        let directory =
            tempfile::Builder::new().prefix("hg").tempdir().expect("a temporary directory can be made");
        Listening::at(Address::Unix(directory.path().join("s")), Some(directory))
    }

    fn at(address: Address, directory: Option<TempDir>) -> Self {
        Listening { address, _directory: directory, flooding: false, accepting: None }
    }

    pub(super) fn set_flooding(&mut self, flooding: bool) {
        self.flooding = flooding;
    }

    pub(super) fn endpoint(&self) -> String {
        match &self.address {
            Address::Tcp(address) => format!("http://{address}"),
            Address::Unix(path) => format!("unix://{}", path.display()),
        }
    }

    pub(super) async fn start(&mut self, service: Service) {
        assert!(self.accepting.is_none(), "the plugin runs already");
        let bound = RUNTIME.spawn(bind(self.address.clone())).await;
        let socket = bound.expect("binding does not panic").expect("the address is free");
        if let (Address::Tcp(address), Socket::Tcp(listener)) = (&mut self.address, &socket) {
            *address = listener.local_addr().expect("a bound socket has an address");
        }
        self.accepting = Some(RUNTIME.spawn(accept(socket, service, self.flooding)));
    }

    /// Returns when the socket and every connection are closed.
    pub(super) async fn stop(&mut self) {
        let accepting = self.accepting.take().expect("the plugin runs");
        accepting.abort();
        let _ = accepting.await; // aborted, as asked for
        if let Address::Unix(path) = &self.address {
            fs::remove_file(path).expect("the socket is there");
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
    }
}

async fn bind(address: Address) -> io::Result<Socket> {
    Ok(match address {
        Address::Tcp(address) => Socket::Tcp(TcpListener::bind(address).await?),
        Address::Unix(path) => Socket::Unix(UnixListener::bind(path)?),
    })
}

/// Dropped, it takes its connections with it.
async fn accept(socket: Socket, service: Service, flooding: bool) {
    let mut connections = JoinSet::new();
    loop {
        let Ok(stream) = socket.accept().await else {
            continue; // a peer that went away before it was accepted
        };
        service.state.record.count(|counts| counts.connections += 1);
        connections.spawn(converse(stream, service.clone(), flooding));
        while connections.try_join_next().is_some() {}
    }
}

impl Socket {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Socket::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// Serves one connection until the peer, the script or the plugin's end closes it.
async fn converse(stream: Box<dyn Stream>, service: Service, flooding: bool) {
    let cut = CancellationToken::new();
    let trigger = Trigger::default();
    let stream: Box<dyn Stream> =
        if flooding { Box::new(flood::relay(stream, trigger.clone())) } else { stream };
    let server = PluginServiceServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(usize::MAX); // a reply over the limit is a thing to test
    let answer = service_fn(|request| respond(server.clone(), request, trigger.clone(), cut.clone()));
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MAX_STREAMS)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        () = cut.cancelled() => {}
        _ = connection => {} // how a connection ended is the peer's business
    }
}

/// An error resets the stream.
async fn respond(
    mut server: PluginServiceServer<Service>,
    request: Request<Incoming>,
    trigger: Trigger,
    cut: CancellationToken,
) -> Result<Response<Body>, io::Error> {
    let result: Result<_, Infallible> = server.call(request).await;
    let Ok(mut response) = result;
    let Some(misconduct) = response.extensions_mut().remove::<Misconduct>() else {
        return Ok(response);
    };
    match misconduct.respond(&trigger) {
        Instead::Respond(response) => Ok(response),
        Instead::ResetStream => Err(io::Error::other("the script resets the stream")),
        Instead::Disconnect => {
            cut.cancel();
            std::future::pending().await
        }
    }
}
