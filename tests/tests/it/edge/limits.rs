//! Tests limits of sizes and concurrent calls at the edge: what is admitted, what is rejected, and that
//! other callers aren't affected.

use std::time::Duration;

use hookgate::core::error::Code;
use hookgate_proto::gateway::v1::BeforeToolCallRequest;
use hookgate_tests::{
    agent::{HttpAgent, path},
    fake::{Act, FakePlugin, Gate},
    gateway::Gateway,
    token::token,
};
use prost::Message;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpSocket, sync::mpsc};
use tokio_stream::wrappers::ReceiverStream;

use crate::edge::support::{
    METHOD, POINT, assert_grpc_error, assert_http_error, assert_no_panic, frame, good_request, grpc_request,
    in_pieces, payload, request, send, send_grpc,
};

const LIMIT: usize = 4 << 20;

/// A valid body of exactly this size.
fn body_of(size: usize) -> String {
    let around = r#"{"payload":{"tool_name":"t","args":""}}"#.len();
    format!(r#"{{"payload":{{"tool_name":"t","args":"{}"}}}}"#, "a".repeat(size - around))
}

/// A valid message of exactly this size.
fn message_of(size: usize) -> BeforeToolCallRequest {
    let mut message = request();
    let payload = message.payload.as_mut().unwrap();
    let mut length = size - 64;
    loop {
        payload.args = format!("\"{}\"", "a".repeat(length)).into();
        let mut copy = request();
        copy.payload = Some(payload.clone());
        match size.checked_sub(copy.encoded_len()) {
            Some(0) => return copy,
            missing => length += missing.expect("the start is too small"),
        }
    }
}

/// A binding with these members whose calls last until the test releases them, however busy the machine is.
fn held(mut members: Value) -> Value {
    members["timeout"] = "60s".into();
    members
}

#[tokio::test]
async fn a_request_of_the_limit_is_taken_and_one_byte_more_refused() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let token = token("acme");
    let http = gateway.http(&token);
    let exact = http.post_text(POINT, body_of(LIMIT)).await;
    assert_eq!(exact.status, 200, "{:?}", exact.headers);
    assert_http_error(&http.post_text(POINT, body_of(LIMIT + 1)).await, Code::PayloadTooLarge);

    let grpc = |size| send_grpc(grpc_request(gateway.data_addr(), METHOD, &token, frame(&message_of(size))));
    let exact = grpc(LIMIT).await;
    assert!(exact.http_status == 200 && exact.body.len() > LIMIT / 2, "{:?}", exact.headers);
    assert_grpc_error(&grpc(LIMIT + 1).await.status(), Code::PayloadTooLarge);
}

#[tokio::test]
async fn a_body_of_unknown_length_has_the_same_limit() {
    let plugin = FakePlugin::named("witness").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin);
    let setup = setup.binding_with("witness", 10, &json!({ "mode": "advise" }));
    let gateway = setup.set("/limits/request", "64KiB").start().await;
    let chunked = |size| {
        let chunks: Vec<_> = body_of(size).into_bytes().chunks(1000).map(<[u8]>::to_vec).collect();
        send(good_request(&gateway.http(&token("acme"))).body(in_pieces(tokio_stream::iter(chunks))))
    };
    assert_eq!(chunked(64 << 10).await.status, 200);
    assert_http_error(&chunked((64 << 10) + 1).await, Code::PayloadTooLarge);
    assert_eq!(plugin.counts().calls, 1, "refused in every mode, never cut");
}

#[tokio::test]
async fn a_client_that_sends_far_too_much_still_reads_why_it_was_refused() {
    let gateway = Gateway::with().tenant("acme").set("/limits/request", "64KiB").start().await;
    for size in [1 << 20, 8 << 20, 15 << 20] {
        let answer = gateway.http(&token("acme")).post_text(POINT, body_of(size)).await;
        assert_http_error(&answer, Code::PayloadTooLarge);
    }
    assert_no_panic(&gateway);
}

#[tokio::test]
async fn payload_bytes_in_flight_are_bounded_and_given_back() {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let setup = Gateway::with().tenant("acme").tenant("globex").plugin(&plugin);
    let setup = setup.binding_with("slow", 10, &held(json!({}))).set("/limits/budget", "60s");
    let setup = setup.set("/limits/request", "64KiB").set("/limits/bytes_in_flight", "100KiB");
    let gateway = setup.start().await;
    let agent = gateway.http(&token("acme"));
    let first = tokio::spawn({
        let agent = agent.clone();
        async move { agent.post_text(POINT, body_of(60 << 10)).await }
    });
    plugin.wait_until(|counts| counts.calls == 1).await;
    // The rest is reserved for tenants with fewer calls in flight, and is too small for a call of this
    // size.
    for (tenant, code) in [("acme", Code::TenantLimited), ("globex", Code::Overloaded)] {
        assert_http_error(&gateway.http(&token(tenant)).post_text(POINT, body_of(60 << 10)).await, code);
        let message = frame(&message_of(60 << 10));
        let refused = send_grpc(grpc_request(gateway.data_addr(), METHOD, &token(tenant), message)).await;
        assert_grpc_error(&refused.status(), code);
    }
    let small = tokio::spawn({
        let globex = gateway.http(&token("globex"));
        async move { globex.post_text(POINT, body_of(20 << 10)).await }
    });
    plugin.wait_until(|counts| counts.calls == 2).await;
    gate.open();
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(small.await.unwrap().status, 200);
    for _ in 0..3 {
        assert_eq!(agent.post_text(POINT, body_of(60 << 10)).await.status, 200, "the room is given back");
    }
}

#[tokio::test]
async fn a_tenant_with_too_many_calls_in_flight_is_refused_and_others_are_unaffected() {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let gateway = Gateway::with()
        .tenant_with("acme", &json!({ "limits": { "in_flight": 2 } }))
        .tenant("globex")
        .plugin(&plugin)
        .binding_with("slow", 10, &held(json!({ "tenant": "acme" })))
        .set("/limits/budget", "60s")
        .start()
        .await;
    let (acme, globex) = (gateway.http(&token("acme")), gateway.http(&token("globex")));
    let call = || {
        let acme = acme.clone();
        tokio::spawn(async move { acme.call(POINT, payload()).await })
    };
    let under_way = [call(), call()];
    plugin.wait_until(|counts| counts.calls == 2).await;
    for _ in 0..10 {
        assert_http_error(&acme.call(POINT, payload()).await, Code::TenantLimited);
        assert_eq!(globex.call(POINT, payload()).await.status, 200);
    }
    gate.open();
    for call in under_way {
        assert_eq!(call.await.unwrap().status, 200);
    }
    assert_eq!(acme.call(POINT, payload()).await.status, 200, "the places are given back");
    assert_eq!(plugin.counts().calls, 3, "the refused calls reached no plugin");
}

#[tokio::test]
async fn an_answer_that_its_client_does_not_read_holds_the_tenants_place() {
    const LARGE: usize = 16 << 20; // more than sockets buffer
    let setup = Gateway::with().tenant_with("acme", &json!({ "limits": { "in_flight": 1 } }));
    // Reading this much takes a while, which is part of the budget.
    let gateway = setup.set("/limits/request", "16MiB").set("/limits/budget", "60s").start().await;
    let (agent, token) = (gateway.http(&token("acme")), token("acme"));

    let body = body_of(LARGE);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {LARGE}\r\n\r\n",
        path(POINT)
    );
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut http = socket.connect(gateway.data_addr()).await.unwrap();
    http.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    http.readable().await.unwrap(); // the answer has begun
    assert_http_error(&agent.call(POINT, payload()).await, Code::TenantLimited);
    drop(http);
    until_taken(&agent).await;

    let message = frame(&message_of(LARGE));
    let grpc = grpc_request(gateway.data_addr(), METHOD, &token, message).send().await.unwrap();
    assert_eq!(grpc.status(), 200); // its headers have arrived, but nobody reads its body
    assert_http_error(&agent.call(POINT, payload()).await, Code::TenantLimited);
    drop(grpc);
    until_taken(&agent).await;
}

/// Waits until the tenant's permit is free, which only a call shows.
async fn until_taken(agent: &HttpAgent) {
    for _ in 0..500 {
        if agent.call(POINT, payload()).await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the place is never given back");
}

#[tokio::test]
async fn a_tenant_that_calls_too_often_is_told_when_to_come_back() {
    let gateway = Gateway::with()
        .tenant("acme")
        .tenant_with("own", &json!({ "limits": { "rate": "1/h" } }))
        .tenant_with("free", &json!({ "limits": { "rate": "1000/s" } }))
        .set("/limits/tenant_rate", "3/h")
        .start()
        .await;
    for (tenant, allowed, wait) in [("acme", 3, 1200), ("own", 1, 3600)] {
        let agent = gateway.http(&token(tenant));
        for _ in 0..allowed {
            assert_eq!(agent.call(POINT, payload()).await.status, 200, "{tenant}");
        }
        let refused = agent.call(POINT, payload()).await;
        assert_http_error(&refused, Code::TenantLimited);
        let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((wait - 60..=wait).contains(&after), "{tenant}: {after} s");
    }
    for _ in 0..20 {
        assert_eq!(gateway.http(&token("free")).call(POINT, payload()).await.status, 200);
    }
}

#[tokio::test]
async fn calls_over_the_limit_of_the_process_are_refused_while_it_stays_alive() {
    let gate = Gate::closed();
    let plugin = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let setup = Gateway::with().tenant("acme").tenant("globex").plugin(&plugin);
    let setup = setup.binding_with("slow", 10, &held(json!({}))).set("/limits/budget", "60s");
    let gateway = setup.set("/limits/in_flight", 2).start().await;
    let call = |tenant| {
        let agent = gateway.http(&token(tenant));
        tokio::spawn(async move { agent.call(POINT, payload()).await })
    };
    let under_way = [call("acme"), call("globex")];
    plugin.wait_until(|counts| counts.calls == 2).await;
    // the two calls in flight wait for the gate, so all rejections come before they end
    let (globex, ops) = (gateway.http(&token("globex")), gateway.ops());
    for _ in 0..20 {
        assert_http_error(&globex.call(POINT, payload()).await, Code::Overloaded);
        assert_eq!(ops.get("/livez").await.unwrap().status, 200);
    }
    gate.open();
    for call in under_way {
        assert_eq!(call.await.unwrap().status, 200);
    }
    assert_eq!(plugin.counts().calls, 2);
}

#[tokio::test]
async fn a_slow_body_is_bounded_by_the_invocations_time() {
    let gateway = Gateway::with().tenant("acme").set("/limits/budget", "300ms").start().await;
    let token = token("acme");
    let drip = |first: Vec<u8>| {
        let (pieces, body) = mpsc::channel(1);
        let body = in_pieces(ReceiverStream::new(body));
        let sending = tokio::spawn(async move {
            let _ = pieces.send(first).await;
            pieces.closed().await; // the rest is never sent
        });
        (body, sending)
    };
    let (body, http_sending) = drip(body_of(100).into_bytes()[..50].to_vec());
    let http = gateway.http(&token).request(http::Method::POST, path(POINT));
    let http = http.header("content-type", "application/json").body(body);
    let (body, grpc_sending) = drip(frame(&request())[..10].to_vec());
    let grpc = grpc_request(gateway.data_addr(), METHOD, &token, body);
    let both = async { tokio::join!(send(http), send_grpc(grpc)) };
    let (http, grpc) = tokio::time::timeout(Duration::from_secs(10), both)
        .await
        .expect("far less than the client's patience");
    assert_http_error(&http, Code::BudgetExhausted);
    assert_grpc_error(&grpc.status(), Code::BudgetExhausted);
    http_sending.abort();
    grpc_sending.abort();
}
