use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate_proto::host::v1::{
    RegisterRequest, RegisterResponse,
    registration_service_server::{RegistrationService, RegistrationServiceServer},
};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream, UnixListenerStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Endpoint, server::Router},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{
    Registration, RegistrationError,
    registrar::{Registrar, RunningRegistrar, Timeouts},
};
use crate::{Answer, BeforeToolCallPatch, Reply, ServeError, Server, tool_rule::ToolRule};

/// The plugin that registers itself.
#[derive(Default)]
struct Guard;

impl ToolRule for Guard {
    const NAME: &'static str = "guard";

    async fn answer(&self, _: &str) -> Answer<BeforeToolCallPatch> {
        Ok(Reply::proceed())
    }
}

/// What the gateway saw.
#[derive(Debug, PartialEq)]
enum GatewayEvent {
    /// A stream, with this `authorization`.
    Stream(String),
    Message(RegisterRequest),
    /// The client closed its side.
    Closed,
    /// The stream broke.
    Broken,
}

/// What the gateway does with the next messages.
#[derive(Clone)]
enum Behaviour {
    Answer,
    Refuse(Status),
    StaySilent,
}

/// A gateway that does what a test tells it.
#[derive(Clone)]
struct FakeGateway {
    seen: mpsc::UnboundedSender<GatewayEvent>,
    behaviour: Arc<Mutex<Behaviour>>,
    /// Ends the open stream with `end_status`.
    break_stream: Arc<Notify>,
    end_status: Arc<Mutex<Status>>,
    /// Permits the end of a stream that the client closed.
    end_stream: Arc<Notify>,
}

#[tonic::async_trait]
impl RegistrationService for FakeGateway {
    type RegisterStream = UnboundedReceiverStream<Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap();
        self.seen.send(GatewayEvent::Stream(token.to_owned())).unwrap();
        if let Behaviour::Refuse(status) = self.behaviour() {
            return Err(status);
        }
        let (answers, receiver) = mpsc::unbounded_channel();
        tokio::spawn(self.clone().answer(request.into_inner(), answers));
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }
}

impl FakeGateway {
    fn behaviour(&self) -> Behaviour {
        self.behaviour.lock().unwrap().clone()
    }

    async fn answer(
        self,
        mut messages: Streaming<RegisterRequest>,
        answers: mpsc::UnboundedSender<Result<RegisterResponse, Status>>,
    ) {
        loop {
            let message = tokio::select! {
                message = messages.message() => message,
                () = self.break_stream.notified() => {
                    let status = self.end_status.lock().unwrap().clone();
                    let _ = answers.send(Err(status));
                    return;
                }
            };
            let seen = match message {
                Ok(Some(message)) => GatewayEvent::Message(message),
                Ok(None) => GatewayEvent::Closed,
                Err(_) => GatewayEvent::Broken,
            };
            let is_message = matches!(seen, GatewayEvent::Message(_));
            // The test may be over.
            let _ = self.seen.send(seen);
            if !is_message {
                self.end_stream.notified().await;
                return;
            }
            if matches!(self.behaviour(), Behaviour::Answer) {
                let _ = answers.send(Ok(RegisterResponse { lease_ms: 300, approval_pending: false }));
            }
        }
    }
}

/// A fake gateway, and what it has seen.
struct Gateway {
    service: FakeGateway,
    seen: mpsc::UnboundedReceiver<GatewayEvent>,
}

impl Gateway {
    fn new() -> Gateway {
        let (sender, seen) = mpsc::unbounded_channel();
        let service = FakeGateway {
            seen: sender,
            behaviour: Arc::new(Mutex::new(Behaviour::Answer)),
            break_stream: Arc::default(),
            end_status: Arc::new(Mutex::new(Status::unavailable(""))),
            end_stream: Arc::default(),
        };
        Gateway { service, seen }
    }

    /// A gateway that listens, and its endpoint.
    async fn start() -> (Gateway, String) {
        let gateway = Gateway::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(gateway.router().serve_with_incoming(TcpListenerStream::new(listener)));
        (gateway, endpoint)
    }

    fn listen_at(&self, socket: &Path) {
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        tokio::spawn(self.router().serve_with_incoming(incoming));
    }

    fn router(&self) -> Router {
        tonic::transport::Server::builder().add_service(RegistrationServiceServer::new(self.service.clone()))
    }

    fn set_behaviour(&self, behaviour: Behaviour) {
        *self.service.behaviour.lock().unwrap() = behaviour;
    }

    async fn next(&mut self) -> GatewayEvent {
        timeout(Duration::from_secs(10), self.seen.recv()).await.expect("the gateway saw nothing").unwrap()
    }

    /// Expects a stream with this token, and the registration of this endpoint.
    async fn expect_registration(&mut self, token: &str, endpoint: &str) {
        assert_eq!(self.next().await, GatewayEvent::Stream(format!("Bearer {token}")));
        let registration = RegisterRequest { plugin: "guard".to_owned(), endpoint: endpoint.to_owned() };
        assert_eq!(self.next().await, GatewayEvent::Message(registration));
    }

    async fn expect_renewal(&mut self) {
        assert_eq!(self.next().await, GatewayEvent::Message(RegisterRequest::default()));
    }

    /// Expects that the client closes its side, and ends the stream.
    async fn expect_close(&mut self) {
        while self.next().await != GatewayEvent::Closed {}
        self.service.end_stream.notify_one();
    }
}

/// A token that can be replaced.
struct TokenFile(tempfile::TempDir);

impl TokenFile {
    fn new(token: &str) -> TokenFile {
        let file = TokenFile(tempfile::tempdir().unwrap());
        file.write(token);
        file
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("token")
    }

    fn write(&self, token: &str) {
        std::fs::write(self.path(), format!("{token}\n")).unwrap();
    }
}

/// A plugin that is served and registers itself.
struct PluginProcess {
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
    address: String,
}

impl PluginProcess {
    async fn start(registration: Registration) -> PluginProcess {
        let server = Server::bind("http://127.0.0.1:0").await.unwrap().with_plugin::<Guard>();
        let address = server.address().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(server.with_registration(registration).run(async {
            let _ = stopped.await;
        }));
        PluginProcess { stop, served, address }
    }

    async fn health_client(&self) -> HealthClient<Channel> {
        let endpoint = Endpoint::from_shared(self.address.clone()).unwrap();
        HealthClient::new(endpoint.connect().await.unwrap())
    }

    async fn stopped(served: JoinHandle<Result<(), ServeError>>) {
        timeout(Duration::from_secs(10), served).await.expect("the plugin doesn't stop").unwrap().unwrap();
    }
}

async fn health_of(client: &mut HealthClient<Channel>) -> ServingStatus {
    client.check(HealthCheckRequest::default()).await.unwrap().into_inner().status()
}

fn registrar(gateway: &str, token: &TokenFile, timeouts: Timeouts) -> RunningRegistrar {
    let endpoint = "http://10.1.2.3:7000".to_owned();
    let mut registrar = Registrar::new("guard".to_owned(), endpoint, gateway.to_owned(), token.path());
    registrar.timeouts = timeouts;
    registrar.start()
}

#[tokio::test]
async fn a_plugin_registers_where_it_listens_renews_and_ends_the_registration_before_it_stops() {
    let (mut gateway, endpoint) = Gateway::start().await;
    let token = TokenFile::new("t1");
    let plugin = PluginProcess::start(Registration::new(endpoint, token.path())).await;
    gateway.expect_registration("t1", &plugin.address).await;
    gateway.expect_renewal().await;
    gateway.expect_renewal().await;

    let mut health = plugin.health_client().await;
    plugin.stop.send(()).unwrap();
    while gateway.next().await != GatewayEvent::Closed {}
    let status = health_of(&mut health).await;
    assert_eq!(status, ServingStatus::Serving, "the gateway has not removed the endpoint yet");
    drop(health);
    gateway.service.end_stream.notify_one();
    PluginProcess::stopped(plugin.served).await;
}

#[tokio::test]
async fn a_gateway_that_never_ends_the_stream_does_not_keep_the_plugin() {
    let (mut gateway, endpoint) = Gateway::start().await;
    let token = TokenFile::new("t1");
    let plugin =
        PluginProcess::start(Registration::new(endpoint, token.path()).at("https://guard.example:443")).await;
    gateway.expect_registration("t1", "https://guard.example:443").await;
    plugin.stop.send(()).unwrap();
    PluginProcess::stopped(plugin.served).await;
}

#[tokio::test]
async fn a_stream_that_ends_is_followed_at_once_by_a_registration_with_the_current_token() {
    let (mut gateway, endpoint) = Gateway::start().await;
    let token = TokenFile::new("t1");
    let plugin = PluginProcess::start(Registration::new(endpoint, token.path())).await;
    gateway.expect_registration("t1", &plugin.address).await;
    // An expired token, and a gateway that is full, are no refusals.
    let ends = [
        Status::unavailable("shutting down"),
        Status::unauthenticated("the token has expired"),
        Status::resource_exhausted("too many streams"),
    ];
    for (number, end) in (2..).zip(ends) {
        let current = format!("t{number}");
        token.write(&current);
        *gateway.service.end_status.lock().unwrap() = end;
        gateway.service.break_stream.notify_one();
        loop {
            // A renewal may have been under way.
            match gateway.next().await {
                GatewayEvent::Stream(token) => break assert_eq!(token, format!("Bearer {current}")),
                GatewayEvent::Message(message) => assert_eq!(message, RegisterRequest::default()),
                other => panic!("{other:?}"),
            }
        }
        let registration = GatewayEvent::Message(RegisterRequest {
            plugin: "guard".to_owned(),
            endpoint: plugin.address.clone(),
        });
        assert_eq!(gateway.next().await, registration);
    }
    assert_eq!(health_of(&mut plugin.health_client().await).await, ServingStatus::Serving);
    plugin.stop.send(()).unwrap();
    gateway.expect_close().await;
    PluginProcess::stopped(plugin.served).await;
}

#[tokio::test]
async fn a_plugin_registers_as_soon_as_there_are_a_token_and_a_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("host.sock");
    let token = TokenFile::new("");
    let endpoint = format!("unix://{}", socket.display());
    let plugin = PluginProcess::start(Registration::new(endpoint, token.path())).await;
    assert_eq!(health_of(&mut plugin.health_client().await).await, ServingStatus::Serving);
    token.write("t1");
    let mut gateway = Gateway::new();
    gateway.listen_at(&socket);
    gateway.expect_registration("t1", &plugin.address).await;
    plugin.stop.send(()).unwrap();
    gateway.expect_close().await;
    PluginProcess::stopped(plugin.served).await;
}

#[tokio::test]
async fn a_plugin_keeps_trying_after_a_refusal() {
    let (mut gateway, endpoint) = Gateway::start().await;
    let token = TokenFile::new("t1");
    let refusal = Status::permission_denied("The token's claim with plugins doesn't have `guard`");
    gateway.set_behaviour(Behaviour::Refuse(refusal));
    let timeouts = Timeouts { refusal_retry: Duration::from_millis(50), ..Timeouts::default() };
    let registrar = registrar(&endpoint, &token, timeouts);
    for _ in 0..2 {
        assert_eq!(gateway.next().await, GatewayEvent::Stream("Bearer t1".to_owned()));
    }
    token.write("t2");
    gateway.set_behaviour(Behaviour::Answer);
    loop {
        match gateway.next().await {
            GatewayEvent::Message(message) => break assert_eq!(message.plugin, "guard"),
            other => assert!(matches!(other, GatewayEvent::Stream(_)), "{other:?}"),
        }
    }
    gateway.expect_renewal().await;
    let stopped = tokio::spawn(registrar.stop());
    gateway.expect_close().await;
    stopped.await.unwrap();
}

#[tokio::test]
async fn a_registration_without_an_answer_counts_as_broken() {
    let (mut gateway, endpoint) = Gateway::start().await;
    let token = TokenFile::new("t1");
    gateway.set_behaviour(Behaviour::StaySilent);
    let timeouts = Timeouts { answer: Duration::from_millis(50), ..Timeouts::default() };
    let _registrar = registrar(&endpoint, &token, timeouts);
    gateway.expect_registration("t1", "http://10.1.2.3:7000").await;
    assert_eq!(gateway.next().await, GatewayEvent::Broken);
    gateway.expect_registration("t1", "http://10.1.2.3:7000").await;
}

#[tokio::test]
async fn an_address_that_no_gateway_can_reach_is_not_registered() {
    for (listen, at) in [
        ("http://0.0.0.0:0", None),
        ("http://[::]:0", None),
        ("http://127.0.0.1:0", Some("http://0.0.0.0:7000")),
        ("http://127.0.0.1:0", Some("https://[::]:7000")),
    ] {
        let registration = Registration::new("http://127.0.0.1:1", "/no/such/token");
        let registration = at.map_or(registration.clone(), |at| registration.at(at));
        let Ok(server) = Server::bind(listen).await else { continue }; // without IPv6
        let server = server.with_plugin::<Guard>().with_registration(registration);
        let error = server.run(std::future::pending()).await.unwrap_err();
        let wildcard = matches!(error, ServeError::Registration(RegistrationError::Wildcard(_)));
        assert!(wildcard && error.to_string().contains("`Registration::at`"), "{error}");
    }
}

#[tokio::test]
async fn a_gateway_or_an_endpoint_that_cannot_be_used_is_named_with_the_remedy() {
    let too_long = format!("unix:///{}", "a".repeat(400));
    for (gateway, endpoint, expected) in [
        (
            "hookgate:9092",
            "http://10.1.2.3:7000",
            "gateway `hookgate:9092`: write unix:///path, http://host:port or",
        ),
        ("http://a b", "http://10.1.2.3:7000", "gateway `http://a b`: write"),
        ("http://hookgate:9092", "10.1.2.3:7000", "endpoint `10.1.2.3:7000`: write unix:///absolute/path"),
        ("http://hookgate:9092", "http://10.1.2.3:0", "endpoint `http://10.1.2.3:0`: write"),
        ("http://hookgate:9092", too_long.as_str(), "at most 400 bytes"),
    ] {
        let server = Server::bind("http://127.0.0.1:0").await.unwrap().with_plugin::<Guard>();
        let registration = Registration::new(gateway, "/no/such/token").at(endpoint);
        let error = server.with_registration(registration).run(std::future::pending()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
