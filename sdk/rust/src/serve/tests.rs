use std::{
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use hookgate_proto::plugin::v1::{
    BeforeToolCallResponse, DescribeRequest, InitializeRequest, OnHookRequest, ShutdownRequest,
    before_tool_call_response::Verdict, plugin_service_client::PluginServiceClient,
};
use serde::Deserialize;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tonic::{Code, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::*;
use crate::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Cancel, Context, HookPayload, Host, InitError,
    NoConfig, Notice, Offer, Point, Reply,
    tool_rule::{self, ToolRule},
};

#[derive(Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Label {
    label: String,
}

/// Answers with its label.
struct Labelled(String);

impl Plugin for Labelled {
    const NAME: &'static str = "labelled";
    const VERSION: &'static str = "1.2.3";
    type Config = Label;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(config: Label, _: Host) -> Result<Self, InitError> {
        Ok(Labelled(config.label))
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        _: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        Ok(Reply::proceed().notice(Notice::info("LABEL", self.0.as_str())))
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
    address: String,
}

impl Running {
    async fn start<P: Plugin>(address: &str) -> Running {
        Self::serve(Server::bind(address).await.unwrap().with_plugin::<P>())
    }

    fn serve(server: Server) -> Running {
        let address = server.address().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Running { stop, served, address }
    }

    async fn channel(&self) -> Channel {
        tonic::transport::Endpoint::from_shared(self.address.clone()).unwrap().connect().await.unwrap()
    }

    async fn client(&self) -> PluginServiceClient<Channel> {
        PluginServiceClient::new(self.channel().await)
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }
}

fn socket() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix://{}/plugin.sock", folder.path().display());
    (folder, address)
}

fn path(address: &str) -> &str {
    address.strip_prefix("unix://").unwrap()
}

async fn initialize(client: &mut PluginServiceClient<Channel>, label: &str) {
    let request = InitializeRequest {
        config: format!(r#"{{"label":"{label}"}}"#).into(),
        config_digest: label.to_owned(),
        gateway_instance_id: "gateway".to_owned(),
        ..Default::default()
    };
    client.initialize(request).await.unwrap();
}

async fn call(
    client: &mut PluginServiceClient<Channel>,
    digest: &str,
) -> Result<BeforeToolCallResponse, Status> {
    client.before_tool_call(tool_rule::request(digest, "tool")).await.map(tonic::Response::into_inner)
}

async fn describes_initialises_and_answers(address: &str) {
    let plugin = Running::start::<Labelled>(address).await;
    let mut client = plugin.client().await;
    let manifest = client.describe(DescribeRequest::default()).await.unwrap().into_inner();
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("labelled", "1.2.3"));
    assert_eq!(manifest.protocol_versions, [1]);
    assert_eq!(manifest.points.len(), 1);
    initialize(&mut client, "one").await;
    assert_eq!(call(&mut client, "one").await.unwrap().notices[0].message, "one");
    client.shutdown(ShutdownRequest { gateway_instance_id: "gateway".to_owned() }).await.unwrap();
    assert_eq!(call(&mut client, "one").await.unwrap_err().code(), Code::FailedPrecondition);
    plugin.stop().await;
}

#[tokio::test]
async fn serves_over_a_unix_socket() {
    let (_folder, address) = socket();
    describes_initialises_and_answers(&address).await;
    assert!(!std::path::Path::new(path(&address)).exists(), "the socket file stays behind");
}

#[tokio::test]
async fn serves_over_tcp() {
    describes_initialises_and_answers("http://127.0.0.1:0").await;
}

#[tokio::test]
async fn answers_not_initialized_after_a_restart_and_works_once_initialised_again() {
    let (_folder, address) = socket();
    let first = Running::start::<Labelled>(&address).await;
    initialize(&mut first.client().await, "one").await;
    first.stop().await;

    let second = Running::start::<Labelled>(&address).await;
    let mut client = second.client().await;
    let status = call(&mut client, "one").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.metadata().get("hookgate-reason").unwrap(), "NOT_INITIALIZED");
    initialize(&mut client, "one").await;
    assert_eq!(call(&mut client, "one").await.unwrap().notices[0].message, "one");
    second.stop().await;
}

#[tokio::test]
async fn the_health_service_says_serving() {
    let plugin = Running::start::<Labelled>("http://127.0.0.1:0").await;
    let mut health = HealthClient::new(plugin.channel().await);
    let answer = health.check(HealthCheckRequest { service: String::new() }).await.unwrap();
    assert_eq!(answer.into_inner().status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    plugin.stop().await;
}

#[tokio::test]
async fn the_health_service_says_not_serving_once_the_stop_is_asked_for_and_not_at_a_gateways_shutdown() {
    use tonic_health::pb::health_check_response::ServingStatus::{NotServing, Serving};
    let plugin = Running::start::<Labelled>("http://127.0.0.1:0").await;
    let mut health = HealthClient::new(plugin.channel().await);
    let mut watched = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), Serving);
    let request = ShutdownRequest { gateway_instance_id: "gateway".to_owned() };
    plugin.client().await.shutdown(request).await.unwrap();
    let answer = health.check(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.status(), Serving);
    plugin.stop.send(()).unwrap();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), NotServing);
    drop(watched);
    plugin.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn reflection_lists_the_contract_and_health() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let plugin = Running::start::<Labelled>("http://127.0.0.1:0").await;
    let mut reflection = ServerReflectionClient::new(plugin.channel().await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = reflection.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(list)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list of services")
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.iter().any(|name| name == "hookgate.plugin.v1.PluginService"), "{names:?}");
    assert!(names.iter().any(|name| name == "grpc.health.v1.Health"), "{names:?}");
    drop(answers);
    plugin.stop().await;
}

#[tokio::test]
async fn the_socket_is_for_owner_and_group() {
    let (_folder, address) = socket();
    let _server = Server::bind(&address).await.unwrap().with_plugin::<Labelled>();
    assert_eq!(std::fs::metadata(path(&address)).unwrap().permissions().mode() & 0o777, 0o660);
}

#[tokio::test]
async fn a_socket_at_which_nobody_listens_is_replaced() {
    let (_folder, address) = socket();
    // The standard library's listener leaves its file behind, like a killed process.
    drop(std::os::unix::net::UnixListener::bind(path(&address)).unwrap());
    describes_initialises_and_answers(&address).await;
}

#[tokio::test]
async fn a_socket_at_which_somebody_listens_is_left_alone() {
    let (_folder, address) = socket();
    let plugin = Running::start::<Labelled>(&address).await;
    let refused = Server::bind(&address).await.err().unwrap();
    assert!(refused.to_string().contains("another process listens there"), "{refused}");
    plugin.client().await.describe(DescribeRequest::default()).await.unwrap();
    plugin.stop().await;
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let (_folder, address) = socket();
    std::fs::write(path(&address), "precious").unwrap();
    let refused = Server::bind(&address).await.err().unwrap();
    assert!(refused.to_string().contains("not a socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(path(&address)).unwrap(), "precious");
}

static FLUSHED: AtomicBool = AtomicBool::new(false);
static ENTERED: Notify = Notify::const_new();
static RELEASED: Notify = Notify::const_new();

/// Answers when it is released.
#[derive(Default)]
struct Slow;

impl ToolRule for Slow {
    const NAME: &'static str = "slow";

    async fn answer(&self, _: &str) -> Answer<BeforeToolCallPatch> {
        ENTERED.notify_one();
        RELEASED.notified().await;
        Ok(Reply::proceed())
    }

    fn flush(&self) {
        FLUSHED.store(true, SeqCst);
    }
}

#[tokio::test]
async fn a_stop_finishes_the_call_in_flight_and_takes_no_more() {
    let (_folder, address) = socket();
    let plugin = Running::start::<Slow>(&address).await;
    let mut client = plugin.client().await;
    let request = InitializeRequest { config_digest: "d".to_owned(), ..Default::default() };
    client.initialize(request).await.unwrap();
    let under_way = tokio::spawn(async move { call(&mut client, "d").await });
    ENTERED.notified().await;

    plugin.stop.send(()).unwrap();
    // The successor can bind once the socket file is gone, which is before the drain ends.
    for _ in 0..1000 {
        if !std::path::Path::new(path(&address)).exists() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(tokio::net::UnixStream::connect(path(&address)).await.is_err());
    assert!(!under_way.is_finished() && !plugin.served.is_finished());
    RELEASED.notify_one();
    assert!(under_way.await.unwrap().unwrap().verdict.is_some());
    plugin.served.await.unwrap().unwrap();
    assert!(FLUSHED.load(SeqCst), "the instance was not asked to flush");
}

/// Passes all tools.
#[derive(Default)]
struct Pass;

impl ToolRule for Pass {
    const NAME: &'static str = "pass";

    async fn answer(&self, _: &str) -> Answer<BeforeToolCallPatch> {
        Ok(Reply::proceed())
    }
}

/// Refuses all tools.
#[derive(Default)]
struct Refuse;

impl ToolRule for Refuse {
    const NAME: &'static str = "refuse";

    async fn answer(&self, _: &str) -> Answer<BeforeToolCallPatch> {
        Ok(Cancel::new("NO", "No.").into())
    }
}

fn for_plugin<M>(plugin: &str, message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("hookgate-plugin", plugin.parse().unwrap());
    request
}

#[tokio::test]
async fn plugins_of_one_process_get_the_calls_that_name_them() {
    let server = Server::bind("http://127.0.0.1:0").await.unwrap();
    let process = Running::serve(server.with_plugin::<Pass>().with_plugin::<Refuse>());
    let mut client = process.client().await;
    for plugin in ["pass", "refuse"] {
        let described = client.describe(for_plugin(plugin, DescribeRequest::default())).await.unwrap();
        assert_eq!(described.into_inner().name, plugin);
        let early = client.before_tool_call(for_plugin(plugin, tool_rule::request("d", "t"))).await;
        assert_eq!(
            early.unwrap_err().code(),
            Code::FailedPrecondition,
            "the other one's instance is not its own"
        );
        let request = InitializeRequest {
            config_digest: "d".to_owned(),
            gateway_instance_id: "gateway".to_owned(),
            ..Default::default()
        };
        client.initialize(for_plugin(plugin, request)).await.unwrap();
    }
    for plugin in ["pass", "refuse"] {
        let request = OnHookRequest { payload: Some(HookPayload::default()), ..Default::default() };
        let unoffered = client.on_hook(for_plugin(plugin, request)).await.unwrap_err();
        assert!(unoffered.message().starts_with(plugin), "{unoffered}");
    }
    let shutdown = ShutdownRequest { gateway_instance_id: "gateway".to_owned() };
    client.shutdown(for_plugin("pass", shutdown)).await.unwrap();
    let call = || tool_rule::request("d", "t");
    let gone = client.before_tool_call(for_plugin("pass", call())).await.unwrap_err();
    assert_eq!(gone.code(), Code::FailedPrecondition);
    let refused = client.before_tool_call(for_plugin("refuse", call())).await.unwrap().into_inner();
    assert!(matches!(refused.verdict, Some(Verdict::Cancel(_))), "{refused:?}");

    let unknown = client.describe(for_plugin("other", DescribeRequest::default())).await.unwrap_err();
    assert_eq!(
        (unknown.code(), unknown.message()),
        (Code::NotFound, "no plugin `other` is served here, only `pass`, `refuse`")
    );
    let unnamed = client.before_tool_call(call()).await.unwrap_err();
    assert_eq!(unnamed.code(), Code::NotFound);
    assert!(unnamed.message().contains("`hookgate-plugin` must name one"), "{unnamed}");
    process.stop().await;
}

#[tokio::test]
async fn a_plugin_that_is_alone_answers_calls_that_name_it_or_none() {
    let process = Running::start::<Pass>("http://127.0.0.1:0").await;
    let mut client = process.client().await;
    for request in
        [tonic::Request::new(DescribeRequest::default()), for_plugin("pass", DescribeRequest::default())]
    {
        assert_eq!(client.describe(request).await.unwrap().into_inner().name, "pass");
    }
    let other = client.describe(for_plugin("other", DescribeRequest::default())).await.unwrap_err();
    assert_eq!(other.code(), Code::NotFound, "it would get the other one's secrets");
    process.stop().await;
}

#[tokio::test]
async fn a_process_that_cannot_serve_leaves_no_socket() {
    let (_folder, address) = socket();
    let without = Server::bind(&address).await.unwrap().run(std::future::pending()).await;
    assert!(without.is_err() && !std::path::Path::new(path(&address)).exists());
}

#[tokio::test]
async fn a_process_needs_a_plugin_and_each_plugin_a_name_of_its_own() {
    let bind = async || Server::bind("http://127.0.0.1:0").await.unwrap();
    let without = bind().await.run(std::future::pending()).await;
    assert!(matches!(without, Err(ServeError::NoPlugin)), "{without:?}");
    let twice = bind().await.with_plugin::<Pass>().with_plugin::<Refuse>().with_plugin::<Pass>();
    let twice = twice.run(std::future::pending()).await;
    assert!(matches!(twice, Err(ServeError::DuplicatePlugin(ref name)) if name == "pass"), "{twice:?}");
}

/// Never answers.
#[derive(Default)]
struct Stuck;

static STUCK: Notify = Notify::const_new();

impl ToolRule for Stuck {
    const NAME: &'static str = "stuck";

    async fn answer(&self, _: &str) -> Answer<BeforeToolCallPatch> {
        STUCK.notify_one();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let server = Server::bind("http://127.0.0.1:0").await.unwrap().with_plugin::<Stuck>();
    let address = server.address().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.with_drain(Duration::from_millis(50)).run(async {
        let _ = stopped.await;
    }));
    let mut client = PluginServiceClient::connect(address).await.unwrap();
    let request = InitializeRequest { config_digest: "d".to_owned(), ..Default::default() };
    client.initialize(request).await.unwrap();
    let stuck = tokio::spawn(async move { call(&mut client, "d").await });
    STUCK.notified().await;
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), served).await.unwrap().unwrap().unwrap();
    stuck.abort();
}
