//! A scripted plugin on a real socket, raw HTTP/2 fakes, and clients for them.

use std::{
    collections::HashSet,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use hookgate_proto::{
    plugin::v1::{self as plugin, plugin_service_server::PluginServiceServer},
    types::v1::{BeforeToolCallPayload, ExtensionPoint},
};
use tokio::{
    net::{TcpListener, UnixListener},
    runtime::Runtime,
};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, metadata::MetadataMap};

pub(crate) use super::raw::*;
use crate::{
    config::{self, Span},
    core::{failure::Failure, point::Point},
    telemetry::Telemetry,
    upstream::{CallMeta, InProcess, PluginClient, PluginReply, SharedResources, State},
};

/// Longest time that a test waits for an expected event.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A call as the plugin saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) metadata: MetadataMap,
    pub(crate) call: plugin::Call,
    pub(crate) payload: Option<BeforeToolCallPayload>,
}

type Behaviour =
    dyn Fn(Seen) -> BoxFuture<'static, Result<plugin::BeforeToolCallResponse, Status>> + Send + Sync;
type Answer<T> = dyn Fn() -> BoxFuture<'static, Result<T, Status>> + Send + Sync;

/// The behaviour of a plugin process; tests may share it between restarts.
pub(crate) struct Script {
    pub(crate) describe: Box<Answer<plugin::DescribeResponse>>,
    pub(crate) initialize: Box<Answer<plugin::InitializeResponse>>,
    pub(crate) call: Box<Behaviour>,
    /// How the plugin reports an unknown digest. If `None`, it doesn't check.
    pub(crate) not_initialized: Option<fn() -> Status>,
    /// Whether the plugin leaves Shutdown unanswered.
    pub(crate) slow_shutdown: bool,
    pub(crate) described: AtomicUsize,
    pub(crate) initialized: Mutex<Vec<plugin::InitializeRequest>>,
    pub(crate) shut_down: Mutex<Vec<String>>,
    pub(crate) seen: Mutex<Vec<Seen>>,
}

pub(crate) fn manifest() -> plugin::DescribeResponse {
    plugin::DescribeResponse {
        name: "guard".into(),
        version: "1.2.0".into(),
        protocol_versions: vec![1],
        points: vec![offer(ExtensionPoint::BeforeToolCall)],
        ..Default::default()
    }
}

pub(crate) fn offer(point: ExtensionPoint) -> plugin::PointOffer {
    plugin::PointOffer {
        point: point.into(),
        access: plugin::Access::Modify.into(),
        side_effects: plugin::SideEffects::None.into(),
        reads: None,
        windows: false,
    }
}

pub(crate) fn go_on() -> plugin::BeforeToolCallResponse {
    let verdict = plugin::before_tool_call_response::Verdict::Continue(plugin::Continue {});
    plugin::BeforeToolCallResponse { verdict: Some(verdict), ..Default::default() }
}

pub(crate) fn by_metadata() -> Status {
    let mut status = Status::failed_precondition("who are you");
    status.metadata_mut().insert("hookgate-reason", "NOT_INITIALIZED".parse().expect("ASCII"));
    status
}

impl Default for Script {
    fn default() -> Self {
        Script {
            describe: Box::new(|| Box::pin(async { Ok(manifest()) })),
            initialize: Box::new(|| Box::pin(async { Ok(plugin::InitializeResponse::default()) })),
            call: Box::new(|_| Box::pin(async { Ok(go_on()) })),
            not_initialized: Some(by_metadata),
            slow_shutdown: false,
            described: AtomicUsize::new(0),
            initialized: Mutex::default(),
            shut_down: Mutex::default(),
            seen: Mutex::default(),
        }
    }
}

impl Script {
    pub(crate) fn describing(manifest: plugin::DescribeResponse) -> Self {
        let describe = move || {
            let manifest = manifest.clone();
            Box::pin(async { Ok(manifest) }) as BoxFuture<'static, _>
        };
        Script { describe: Box::new(describe), ..Script::default() }
    }

    pub(crate) fn calling<F>(call: impl Fn(Seen) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<plugin::BeforeToolCallResponse, Status>> + Send + 'static,
    {
        Script { call: Box::new(move |seen| Box::pin(call(seen))), ..Script::default() }
    }

    pub(crate) fn initializing<F>(initialize: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<plugin::InitializeResponse, Status>> + Send + 'static,
    {
        Script { initialize: Box::new(move || Box::pin(initialize())), ..Script::default() }
    }

    pub(crate) fn executions(&self) -> usize {
        self.seen.lock().expect("unpoisoned").len()
    }

    pub(crate) fn initializes(&self) -> usize {
        self.initialized.lock().expect("unpoisoned").len()
    }
}

/// One run of the plugin's process, which stores the configurations that it receives.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) script: Arc<Script>,
    digests: Arc<Mutex<HashSet<String>>>,
}

impl Process {
    pub(crate) fn new(script: &Arc<Script>) -> Self {
        Process { script: Arc::clone(script), digests: Arc::default() }
    }

    pub(crate) fn in_process(&self) -> InProcess {
        InProcess::new(PluginServiceServer::new(self.clone()))
    }
}

#[tonic::async_trait]
impl plugin::plugin_service_server::PluginService for Process {
    async fn on_hook(
        &self,
        _: Request<plugin::OnHookRequest>,
    ) -> Result<Response<plugin::OnHookResponse>, Status> {
        Err(Status::unimplemented("no hooks"))
    }

    async fn describe(
        &self,
        _: Request<plugin::DescribeRequest>,
    ) -> Result<Response<plugin::DescribeResponse>, Status> {
        self.script.described.fetch_add(1, Ordering::SeqCst);
        (self.script.describe)().await.map(Response::new)
    }

    async fn initialize(
        &self,
        request: Request<plugin::InitializeRequest>,
    ) -> Result<Response<plugin::InitializeResponse>, Status> {
        let request = request.into_inner();
        let digest = request.config_digest.clone();
        self.script.initialized.lock().expect("unpoisoned").push(request);
        let answer = (self.script.initialize)().await?;
        self.digests.lock().expect("unpoisoned").insert(digest);
        Ok(Response::new(answer))
    }

    async fn before_tool_call(
        &self,
        request: Request<plugin::BeforeToolCallRequest>,
    ) -> Result<Response<plugin::BeforeToolCallResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let call = message.call.unwrap_or_default();
        if let Some(status) = self.script.not_initialized
            && !self.digests.lock().expect("unpoisoned").contains(&call.config_digest)
        {
            return Err(status());
        }
        let seen = Seen { metadata, call, payload: message.payload };
        self.script.seen.lock().expect("unpoisoned").push(seen.clone());
        (self.script.call)(seen).await.map(Response::new)
    }

    async fn before_llm_request(
        &self,
        _: Request<plugin::BeforeLlmRequestRequest>,
    ) -> Result<Response<plugin::BeforeLlmRequestResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn after_tool_result(
        &self,
        _: Request<plugin::AfterToolResultRequest>,
    ) -> Result<Response<plugin::AfterToolResultResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn before_response(
        &self,
        _: Request<plugin::BeforeResponseRequest>,
    ) -> Result<Response<plugin::BeforeResponseResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn release(
        &self,
        _: Request<plugin::ReleaseRequest>,
    ) -> Result<Response<plugin::ReleaseResponse>, Status> {
        Err(Status::unimplemented("it keeps them all"))
    }

    async fn shutdown(
        &self,
        request: Request<plugin::ShutdownRequest>,
    ) -> Result<Response<plugin::ShutdownResponse>, Status> {
        let instance = request.into_inner().gateway_instance_id;
        self.script.shut_down.lock().expect("unpoisoned").push(instance);
        if self.script.slow_shutdown {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(plugin::ShutdownResponse {}))
    }
}

/// The two kinds of socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire {
    Tcp,
    Unix,
}

pub(crate) const WIRES: [Wire; 2] = [Wire::Tcp, Wire::Unix];

/// Where a plugin listens, across restarts. The port stays bound the whole time, so that nothing else gets
/// it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    _reserved: tokio::net::TcpSocket,
    wire: Wire,
}

impl Place {
    pub(crate) fn new(wire: Wire) -> Self {
        Place::at(wire, ([127, 0, 0, 1], 0).into())
    }

    pub(crate) fn at(wire: Wire, address: SocketAddr) -> Self {
        let reserved = socket(address);
        let address = reserved.local_addr().expect("bound");
        let directory = tempfile::tempdir().expect("a temporary directory");
        Place { directory, address, _reserved: reserved, wire }
    }

    /// This many places with the same port, on different addresses of this machine.
    pub(crate) fn of_one_port(count: u8) -> Vec<Self> {
        let first = Place::new(Wire::Tcp);
        let port = first.address.port();
        let others = (2..=count).map(|last| Place::at(Wire::Tcp, ([127, 0, 0, last], port).into()));
        let others: Vec<_> = others.collect();
        std::iter::once(first).chain(others).collect()
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("plugin.sock")
    }

    pub(crate) fn endpoint(&self) -> String {
        match self.wire {
            Wire::Tcp => format!("http://{}", self.address),
            Wire::Unix => format!("unix://{}", self.socket().display()),
        }
    }

    /// Starts the plugin's process. It has its own runtime, so that ending the process closes every socket at
    /// once.
    pub(crate) fn start(&self, process: Process) -> Running {
        self.serve(tonic::transport::Server::builder().add_service(PluginServiceServer::new(process)))
    }

    pub(crate) fn serve(&self, server: tonic::transport::server::Router) -> Running {
        let runtime = runtime();
        let guard = runtime.enter();
        match self.wire {
            Wire::Tcp => {
                let listener = self.listen();
                runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
            }
            Wire::Unix => {
                let _ = std::fs::remove_file(self.socket());
                let listener = UnixListener::bind(self.socket()).expect("a free path");
                runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
            }
        }
        drop(guard);
        Running(Some(runtime))
    }

    /// Serves every stream of raw HTTP/2 with `answer`, which gets the path. Describe and Initialize are
    /// answered correctly. TCP only.
    pub(crate) fn start_raw(&self, answer: RawAnswer) -> Running {
        let runtime = runtime();
        let guard = runtime.enter();
        let listener = self.listen();
        drop(guard);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_raw(stream, Arc::clone(&answer)));
            }
        });
        Running(Some(runtime))
    }

    fn listen(&self) -> TcpListener {
        socket(self.address).listen(64).expect("bound")
    }
}

/// A socket bound to `address`, shared with others that don't listen.
fn socket(address: SocketAddr) -> tokio::net::TcpSocket {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("a socket");
    socket.bind(address).expect("the port is free");
    socket
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// A running plugin process; killed on drop.
pub(crate) struct Running(Option<Runtime>);

impl Running {
    /// No process.
    pub(crate) fn none() -> Self {
        Running(None)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // On another thread, because a runtime can't be dropped inside another one. Joined, so that its
            // sockets are closed.
            let ending = std::thread::spawn(move || runtime.shutdown_timeout(SOON));
            ending.join().expect("the runtime ends");
        }
    }
}

/// The registration of the scripted plugin.
pub(crate) fn registered(endpoint: String) -> config::Plugin {
    let mut plugin: config::Plugin =
        serde_json::from_value(serde_json::json!({ "name": "guard" })).expect("a plugin");
    plugin.endpoint = Some(endpoint);
    plugin.limits.initialize = Span(Duration::from_secs(10));
    plugin
}

/// Also allows plugins of the admin API on this machine.
pub(crate) fn shared() -> SharedResources {
    let shared = SharedResources::new(
        "gateway-1",
        Telemetry::unseen(),
        config::Limits::default(),
        config::Observers::default(),
        |config, scope| {
            let known = ["KEY", "HOOKGATE_SECRET_KEY"].map(|name| (name.into(), "s3cr3t".into()));
            config::resolve_references(config, known, scope)
        },
    );
    let egress = config::Egress {
        cidrs: vec!["127.0.0.0/8".parse().expect("a network")],
        socket_dirs: vec![std::env::temp_dir()],
        ..config::Egress::default()
    };
    SharedResources {
        reach: Arc::new(config::ApiPluginPolicy { egress, ..config::ApiPluginPolicy::default() }),
        ..shared
    }
}

/// A client with its supervisor, which stops with the test.
pub(crate) struct Client {
    pub(crate) plugin: Arc<PluginClient>,
    pub(crate) shared: SharedResources,
    _cancel: tokio_util::sync::DropGuard,
}

impl std::ops::Deref for Client {
    type Target = Arc<PluginClient>;

    fn deref(&self) -> &Arc<PluginClient> {
        &self.plugin
    }
}

impl Client {
    pub(crate) fn new(plugin: &config::Plugin) -> Self {
        Client::with(plugin, shared(), None)
    }

    pub(crate) fn with(plugin: &config::Plugin, shared: SharedResources, builtin: Option<InProcess>) -> Self {
        let plugin = PluginClient::new(plugin, &shared, builtin).expect("a good endpoint");
        let cancel = CancellationToken::new();
        plugin.start(cancel.clone());
        Client { plugin, shared, _cancel: cancel.drop_guard() }
    }

    /// A client of `script` in this process.
    pub(crate) fn built_in(script: &Arc<Script>, change: impl FnOnce(&mut config::Plugin)) -> Self {
        let mut plugin = registered(String::new());
        (plugin.endpoint, plugin.builtin) = (None, Some("guard".into()));
        change(&mut plugin);
        Client::with(&plugin, shared(), Some(Process::new(script).in_process()))
    }

    /// Waits until the plugin's status satisfies `wanted`.
    pub(crate) async fn until(&self, wanted: impl Fn(&crate::upstream::Status) -> bool) {
        let mut changes = self.shared.changes();
        let seen = async {
            while !wanted(&self.plugin.status()) {
                changes.changed().await.expect("the sender lives");
            }
        };
        let waited = tokio::time::timeout(SOON, seen).await;
        assert!(waited.is_ok(), "the status stays {:?}", self.plugin.status());
    }

    pub(crate) async fn until_ready(&self) {
        self.until(|status| status.state == State::Ready).await;
    }

    /// A call whose reply is judged as usable.
    pub(crate) async fn tool_call(&self, limit: Duration) -> Result<PluginReply, Failure> {
        call(&self.plugin, limit).await
    }

    /// A call whose `limit` is shorter than its step's timeout.
    pub(crate) async fn shortened_call(&self, limit: Duration) -> Result<PluginReply, Failure> {
        call_with(
            &self.plugin,
            CallMeta { tenant: Arc::default(), depth: 1, whole: false, trial: false },
            limit,
        )
        .await
    }
}

/// A call whose reply is judged as usable.
pub(crate) async fn call(plugin: &PluginClient, limit: Duration) -> Result<PluginReply, Failure> {
    call_with(plugin, CallMeta { tenant: Arc::default(), depth: 1, whole: true, trial: false }, limit).await
}

async fn call_with(plugin: &PluginClient, meta: CallMeta, limit: Duration) -> Result<PluginReply, Failure> {
    let payload = BeforeToolCallPayload { tool_name: "fs.read".into(), ..Default::default() };
    let call = plugin::Call::default();
    let mut replied = plugin.call(Point::BeforeToolCall, call, Arc::new(payload), meta, limit).await?;
    std::mem::take(&mut replied.served).judge(None);
    Ok(replied)
}

/// Waits until `condition` is true, for changes that no event announces.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}
