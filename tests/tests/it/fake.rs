//! Tests that the scripted plugin follows its script, with an ordinary gRPC client.

use std::time::Duration;

use hookgate_proto::{
    plugin::v1::{
        BeforeToolCallRequest, BeforeToolCallResponse, Call, DescribeRequest, InitializeRequest,
        before_tool_call_response::Verdict, plugin_service_client::PluginServiceClient,
    },
    types::v1::{BeforeToolCallPatch, BeforeToolCallPayload, ExtensionPoint, NoticeKind},
};
use hookgate_tests::fake::{Act, FakePlugin, Gate, Handshake, Payload, WireBehaviour, notice};
use tokio::time::timeout;
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const DIGEST: &str = "d1";

type Client = PluginServiceClient<Channel>;

async fn dial(plugin: &FakePlugin) -> Result<Client, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(plugin.endpoint()).expect("the endpoint is well-formed");
    Ok(PluginServiceClient::new(endpoint.connect().await?))
}

/// A client that has initialised the plugin.
async fn client(plugin: &FakePlugin) -> Client {
    let mut client = dial(plugin).await.expect("the plugin listens");
    client.initialize(initialize()).await.expect("the plugin takes the configuration");
    client
}

fn initialize() -> InitializeRequest {
    InitializeRequest { config_digest: DIGEST.into(), ..InitializeRequest::default() }
}

fn request() -> BeforeToolCallRequest {
    BeforeToolCallRequest {
        call: Some(Call { config_digest: DIGEST.into(), ..Call::default() }),
        payload: Some(BeforeToolCallPayload {
            tool_name: "fs.read".into(),
            args: "{}".into(),
            ..BeforeToolCallPayload::default()
        }),
    }
}

async fn call(client: &mut Client) -> Result<BeforeToolCallResponse, Status> {
    let reply = timeout(Duration::from_secs(10), client.before_tool_call(request())).await;
    reply.expect("the plugin answers or fails in time").map(tonic::Response::into_inner)
}

/// What the client gets if a good answer is sent in this way.
async fn sent(wire: WireBehaviour) -> Result<BeforeToolCallResponse, Status> {
    let plugin =
        FakePlugin::named("liar").flooding().at(POINT, Act::cancel("X", "no").sent(wire)).start().await;
    let mut client = client(&plugin).await;
    call(&mut client).await
}

#[tokio::test]
async fn answers_as_scripted_over_tcp_and_unix_sockets() {
    let patch = BeforeToolCallPatch { args: Some("{\"a\":1}".into()), ..BeforeToolCallPatch::default() };
    let remark = notice(NoticeKind::Warn, "W", "look", &serde_json::json!({"n": 1}));
    let act = Act::cancel("X", "no").retry_after_ms(10).with_patch(patch.clone()).with_notice(remark.clone());
    let builder = || FakePlugin::named("guard").at(POINT, act.clone());
    for plugin in [builder().start().await, builder().start_unix().await] {
        let mut client = client(&plugin).await;
        let reply = call(&mut client).await.expect("the plugin answers");
        assert!(matches!(&reply.verdict, Some(Verdict::Cancel(cancel)) if cancel.code == "X"), "{reply:?}");
        assert_eq!((reply.modify.as_ref(), reply.notices.as_slice()), (Some(&patch), &[remark.clone()][..]));
    }
}

#[tokio::test]
async fn scripts_see_the_call_and_metadata_is_recorded() {
    let plugin = FakePlugin::named("guard")
        .at_with(POINT, |seen| if seen.number == 1 { Act::pass() } else { Act::no_verdict() })
        .start()
        .await;
    let mut client = client(&plugin).await;
    let mut first = Request::new(request());
    first.set_timeout(Duration::from_secs(9));
    first.metadata_mut().insert("traceparent", "00-aa-bb-01".parse().expect("it is ASCII"));
    let reply = client.before_tool_call(first).await.expect("the plugin answers").into_inner();
    assert!(matches!(reply.verdict, Some(Verdict::Continue(_))), "{reply:?}");
    assert_eq!(call(&mut client).await.expect("the plugin answers").verdict, None);

    let seen = plugin.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].payload, Payload::BeforeToolCall(request().payload.expect("it has one")));
    assert_eq!(seen[0].metadata.get("traceparent").map(String::as_str), Some("00-aa-bb-01"));
    assert_eq!(seen[0].metadata.get("grpc-timeout").map(String::as_str), Some("9000000u"));
}

#[tokio::test]
async fn describes_itself_and_refuses_as_scripted() {
    let refusal = Status::invalid_argument("`limit` is missing");
    let plugin = FakePlugin::named("guard")
        .only(&[POINT])
        .manifest(|manifest| manifest.version = "2.1.0".into())
        .on_initialize(Handshake::Fails(refusal))
        .start()
        .await;
    let mut client = dial(&plugin).await.expect("the plugin listens");
    let manifest =
        client.describe(DescribeRequest::default()).await.expect("it describes itself").into_inner();
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("guard", "2.1.0"));
    assert_eq!(manifest.points.iter().map(|offer| offer.point()).collect::<Vec<_>>(), [POINT]);

    let refused = client.initialize(initialize()).await.expect_err("it is scripted to refuse");
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "`limit` is missing"));
    assert_eq!(
        call(&mut client).await.expect_err("it was never initialised").code(),
        Code::FailedPrecondition
    );

    plugin.set_initialize(Handshake::Proper);
    client.initialize(initialize()).await.expect("it takes the configuration now");
    call(&mut client).await.expect("it answers now");
    assert_eq!((plugin.counts().describes, plugin.counts().initializes), (1, 2));
}

#[tokio::test]
async fn calls_before_initialize_answer_not_initialized() {
    let plugin = FakePlugin::named("guard").start().await;
    let mut client = client(&plugin).await;
    plugin.forget();
    let status = call(&mut client).await.expect_err("the configuration is forgotten");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(
        status.metadata().get("hookgate-reason").map(|value| value.as_bytes()),
        Some(&b"NOT_INITIALIZED"[..])
    );
    assert_eq!((plugin.counts().uninitialized, plugin.counts().calls), (1, 0));
}

#[tokio::test]
async fn a_stopped_plugin_is_unreachable_until_it_starts_again_at_the_same_address() {
    for mut plugin in
        [FakePlugin::named("guard").start().await, FakePlugin::named("guard").start_unix().await]
    {
        let endpoint = plugin.endpoint();
        let mut client = client(&plugin).await;
        plugin.stop().await;
        call(&mut client).await.expect_err("its connection is cut");
        dial(&plugin).await.expect_err("nobody listens");

        plugin.start().await;
        assert_eq!(plugin.endpoint(), endpoint);
        let mut client = dial(&plugin).await.expect("it listens again");
        let status = call(&mut client).await.expect_err("a new process knows no configuration");
        assert_eq!(status.code(), Code::FailedPrecondition);
    }
}

#[tokio::test]
async fn the_callers_going_away_is_observed() {
    let plugin = FakePlugin::named("guard").at(POINT, Act::hang()).start().await;
    let mut client = client(&plugin).await;
    let under_way = tokio::spawn(async move { call(&mut client).await });
    plugin.wait_until(|counts| counts.calls == 1).await;
    under_way.abort();
    let counts = plugin.wait_until(|counts| counts.cancelled == 1).await;
    assert_eq!(counts.finished, 0);
}

#[tokio::test]
async fn a_gate_holds_calls_until_it_is_opened() {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("guard").at(POINT, Act::pass().behind(&gate)).start().await;
    let mut client = client(&plugin).await;
    let under_way = tokio::spawn(async move { call(&mut client).await });
    plugin.wait_until(|counts| counts.calls == 1).await;
    assert!(!under_way.is_finished() && plugin.counts().finished == 0);
    gate.open();
    under_way.await.expect("the call does not panic").expect("the plugin answers");
}

#[tokio::test]
async fn a_dripped_answer_arrives_whole() {
    let reply =
        sent(WireBehaviour::Drip(Duration::from_millis(1))).await.expect("it is slow and nothing else");
    assert!(matches!(reply.verdict, Some(Verdict::Cancel(_))), "{reply:?}");
}

#[tokio::test]
async fn every_misconduct_reaches_the_client_as_an_error() {
    let cases = [
        (WireBehaviour::Garbage, Code::Internal),
        (WireBehaviour::HalfThenReset, Code::Internal),
        (WireBehaviour::HalfThenOk, Code::Internal),
        (WireBehaviour::NoStatus, Code::Unknown),
        (WireBehaviour::ThenStatus(Code::DataLoss), Code::DataLoss),
        (WireBehaviour::HugeLength, Code::OutOfRange),
        (WireBehaviour::EndlessTrailers, Code::ResourceExhausted),
        (WireBehaviour::Json, Code::Internal),
        (WireBehaviour::Reset, Code::Internal),
        (WireBehaviour::Disconnect, Code::Unknown),
    ];
    for (wire, code) in cases {
        let name = format!("{wire:?}");
        let status = sent(wire).await.expect_err(&name);
        assert_eq!(status.code(), code, "{name}: {status:?}");
    }
}
