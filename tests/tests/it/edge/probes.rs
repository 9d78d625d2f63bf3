//! Tests health, readiness and reflection, which need no token and pass no chain.

use std::time::Duration;

use hookgate_tests::{
    fake::{Act, FakePlugin},
    gateway::Gateway,
    token::token,
};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::edge::support::{POINT, payload};

const PATIENCE: Duration = Duration::from_secs(20);

fn everything() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

async fn check(channel: &Channel) -> ServingStatus {
    let answer = HealthClient::new(channel.clone()).check(everything()).await;
    answer.expect("health answers without a token").into_inner().status()
}

async fn ops_channel(gateway: &Gateway) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", gateway.ops_addr())).unwrap();
    endpoint.connect().await.expect("the operators' port listens")
}

async fn readyz(gateway: &Gateway) -> (u16, String) {
    let answer = gateway.ops().get("/readyz").await.expect("the operators' port answers");
    (answer.status, answer.text)
}

#[tokio::test]
async fn readiness_follows_start_and_drain_on_every_probe() {
    let mut plugin = FakePlugin::named("needed").start().await;
    plugin.stop().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&plugin)
        .binding("needed", 10)
        .set("/drain/grace", "60s")
        .start_unready()
        .await;
    let data = gateway.grpc_without_token().await.channel;
    let ops = ops_channel(&gateway).await;
    let mut watch = HealthClient::new(data.clone()).watch(everything()).await.unwrap().into_inner();
    let mut next = async || {
        let message = timeout(PATIENCE, watch.message()).await.expect("in time");
        message.expect("the stream continues").expect("it does not end").status()
    };

    assert_eq!(next().await, ServingStatus::NotServing);
    assert_eq!(readyz(&gateway).await, (503, "not ready: the start is not finished\n".into()));
    assert_eq!(gateway.ops().get("/livez").await.unwrap().status, 200);
    assert_eq!(
        (check(&data).await, check(&ops).await),
        (ServingStatus::NotServing, ServingStatus::NotServing)
    );

    plugin.start().await;
    assert_eq!(next().await, ServingStatus::Serving);
    gateway.wait_until_ready().await;
    assert_eq!((check(&data).await, check(&ops).await), (ServingStatus::Serving, ServingStatus::Serving));

    gateway.terminate();
    assert_eq!(next().await, ServingStatus::NotServing);
    assert_eq!(readyz(&gateway).await, (503, "not ready: draining\n".into()));
    assert_eq!(gateway.ops().get("/livez").await.unwrap().status, 200);
    assert_eq!(
        (check(&data).await, check(&ops).await),
        (ServingStatus::NotServing, ServingStatus::NotServing)
    );
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_eq!(answer.status, 200, "calls are served during the grace period: {answer:?}");

    let exit = gateway.stop().await; // the second SIGTERM skips the wait
    assert_eq!(exit.code, Some(0), "{}", exit.log);
}

#[tokio::test]
async fn health_never_passes_a_chain() {
    let plugin = FakePlugin::named("hanging").start().await;
    for point in hookgate_tests::fake::POINTS {
        plugin.set(point, Act::hang());
    }
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("hanging", 10).start().await;
    let data = gateway.grpc_without_token().await.channel;
    assert_eq!(check(&data).await, ServingStatus::Serving);
    assert_eq!(check(&ops_channel(&gateway).await).await, ServingStatus::Serving);
    assert_eq!(readyz(&gateway).await, (200, "ok\n".into()));
    assert_eq!(plugin.counts().calls, 0);

    let unknown = HealthCheckRequest { service: "no.such.Service".into() };
    let status = HealthClient::new(data).check(unknown).await.expect_err("there is no such service");
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn reflection_lists_the_services_without_a_token() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let channel = gateway.grpc_without_token().await.channel;
    let ask = async |question| {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        let answers = ServerReflectionClient::new(channel.clone())
            .server_reflection_info(tokio_stream::iter([request]))
            .await
            .expect("reflection answers without a token");
        let answer = answers.into_inner().message().await.expect("an answer").expect("one answer");
        answer.message_response.expect("it holds something")
    };
    let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("not a list of services");
    };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    let point_service = "hookgate.gateway.v1.ExtensionPointService";
    let hook_service = "hookgate.gateway.v1.HookService";
    let tool_service = "hookgate.gateway.v1.ToolService";
    for expected in [point_service, hook_service, tool_service, "grpc.health.v1.Health"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not among {names:?}");
    }
    for name in &names {
        let own = [point_service, hook_service, tool_service];
        let served = own.contains(&name.as_str()) || name.starts_with("grpc.");
        assert!(served, "{name} is listed, but this port does not serve it");
    }
    let symbol = ask(MessageRequest::FileContainingSymbol(point_service.into())).await;
    assert!(matches!(symbol, MessageResponse::FileDescriptorResponse(_)), "{symbol:?}");
}

#[tokio::test]
async fn the_operators_port_serves_no_extension_point() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let ops = gateway.ops().with_token(&token("acme"));
    assert_eq!(ops.call(POINT, payload()).await.status, 404);
    let call = crate::edge::support::grpc_request(
        gateway.ops_addr(),
        crate::edge::support::METHOD,
        &token("acme"),
        crate::edge::support::frame(&crate::edge::support::request()),
    );
    assert_eq!(crate::edge::support::send_grpc(call).await.status().code(), tonic::Code::Unimplemented);
}
