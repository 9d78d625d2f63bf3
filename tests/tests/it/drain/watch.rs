//! Tests that clients which watch health or use reflection don't delay the drain: their streams end with
//! the last status.

use std::{net::SocketAddr, time::Duration};

use hookgate_tests::{
    agent::Bearer,
    fake::{Act, FakePlugin, Gate},
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::json;
use tokio::time::timeout;
use tonic::{
    Code, Streaming,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, ServerReflectionResponse, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use crate::edge::support::{POINT, in_pieces, payload};

const PATIENCE: Duration = Duration::from_secs(20);

/// A client of one port that watches health and keeps a reflection stream open, both answered once.
struct Follower {
    health: Streaming<HealthCheckResponse>,
    reflection: Streaming<ServerReflectionResponse>,
}

impl Follower {
    async fn at(address: SocketAddr, token: Option<&str>) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = InterceptedService::new(endpoint.connect().await.unwrap(), Bearer::new(token));
        Follower { health: health(channel.clone()).await, reflection: reflection(channel).await }
    }

    /// Receives NOT_SERVING, and then the end.
    async fn hears_the_end(mut self) {
        assert_eq!(next(&mut self.health).await.unwrap().status(), ServingStatus::NotServing);
        for end in [next(&mut self.health).await.map(drop), next(&mut self.reflection).await.map(drop)] {
            let status = end.expect_err("it has an end");
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        }
    }
}

type To = InterceptedService<Channel, Bearer>;

async fn health(channel: To) -> Streaming<HealthCheckResponse> {
    let asked = HealthClient::new(channel).watch(HealthCheckRequest { service: String::new() }).await;
    let mut watch = asked.unwrap().into_inner();
    assert_eq!(next(&mut watch).await.unwrap().status(), ServingStatus::Serving);
    watch
}

async fn reflection(channel: To) -> Streaming<ServerReflectionResponse> {
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let questions = futures::StreamExt::chain(tokio_stream::iter([question]), tokio_stream::pending());
    let asked = ServerReflectionClient::new(channel).server_reflection_info(questions).await;
    let mut answers = asked.unwrap().into_inner();
    next(&mut answers).await.unwrap();
    answers
}

async fn next<M>(stream: &mut Streaming<M>) -> Result<M, tonic::Status> {
    let next = timeout(PATIENCE, stream.message()).await.expect("in time");
    next.map(|message| message.expect("an end has a status"))
}

#[tokio::test]
async fn streams_of_health_and_reflection_end_while_calls_finish() {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&plugin)
        .binding_with("slow", 10, &json!({ "timeout": "60s" }))
        .set("/limits/budget", "60s")
        .set("/drain/finish", "60s")
        .start()
        .await;
    let follower = Follower::at(gateway.data_addr(), None).await;
    let agent = gateway.http(&token("acme"));
    let call = tokio::spawn(async move { agent.call(POINT, payload()).await });
    plugin.wait_until(|counts| counts.calls == 1).await;

    gateway.terminate();
    follower.hears_the_end().await;
    assert!(!call.is_finished(), "the call is in flight");
    gate.open();
    assert_eq!(call.await.unwrap().status, 200);
    let exit = gateway.exited().await; // far sooner than drain.finish
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert!(!exit.log.to_string().contains("given up"), "{}", exit.log);
}

#[tokio::test]
async fn question_that_is_never_asked_does_not_keep_the_process() {
    let gateway = Gateway::with().tenant("acme").set("/drain/finish", "60s").start().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/grpc.health.v1.Health/Watch", gateway.data_addr());
    let request = client.post(url).header("content-type", "application/grpc");
    // The head of a message that never comes. An answer to a later call shows that the request was read.
    let half = in_pieces(futures::StreamExt::chain(tokio_stream::iter([vec![0]]), tokio_stream::pending()));
    let half = tokio::spawn(request.body(half).send());
    let url = format!("http://{}/nowhere", gateway.data_addr());
    assert_eq!(client.get(url).send().await.unwrap().status(), 404);
    let exit = gateway.stop().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    let answer = timeout(PATIENCE, half).await.expect("it is answered").unwrap().unwrap();
    assert_eq!(answer.headers()["grpc-status"], "14", "{answer:?}");
}

#[tokio::test]
async fn streams_at_the_operators_ports_end_as_well() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let operator = Token::for_operators().scopes("hookgate:read").mint();
    let ops = {
        let endpoint = Endpoint::from_shared(format!("http://{}", gateway.ops_addr())).unwrap();
        health(InterceptedService::new(endpoint.connect().await.unwrap(), Bearer::new(None))).await
    };
    let admin = Follower::at(gateway.admin_addr().unwrap(), Some(&operator)).await;
    gateway.terminate();
    admin.hears_the_end().await;
    drop(ops);
    let exit = gateway.exited().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
}
