//! Tests limits with a stuck plugin, a noisy tenant and a flood (G7 to G10): which calls are rejected with
//! which code, and which aren't affected.

use std::time::Duration;

use futures::{
    StreamExt as _,
    future::{join_all, select_all},
    stream,
};
use hookgate::core::error::Code;
use hookgate_tests::{
    agent::HttpAnswer,
    fake::{Act, FakePlugin, Gate},
    gateway::Gateway,
    metrics::Scrape,
    token::token,
};
use serde_json::json;

use crate::{
    edge::support::{
        METHOD, POINT, assert_grpc_error, assert_http_error, code, frame, good_request, grpc_request,
        in_pieces, payload, request, send, send_grpc,
    },
    proxy::support::TRANSPORTS,
};

fn reason(answer: &HttpAnswer) -> &str {
    answer.body["steps"][0]["reason"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_stuck_plugin_fills_its_own_queue_and_calls_that_do_not_need_it_all_finish() {
    // With more than three, some would be reserved for other tenants.
    const PLACES: usize = 3;
    const QUEUE: usize = 3;
    join_all(TRANSPORTS.map(|transport| async move {
        let gate = Gate::closed();
        let stuck = FakePlugin::named("stuck").at(POINT, Act::pass().behind(&gate));
        let stuck = transport.start(stuck).await;
        let other = transport.start(FakePlugin::named("other")).await;
        let limits = json!({ "limits": { "in_flight": PLACES, "queue": QUEUE, "queue_wait": "50s" } });
        let step = json!({ "tenant": "needs", "timeout": "60s", "mode": "enforce", "on_error": "skip" });
        let gateway = Gateway::with()
            .tenant("needs")
            .tenant("free")
            .plugin_with(&stuck, &limits)
            .plugin(&other)
            .binding_with("stuck", 1, &step)
            .binding_with("other", 2, &json!({ "tenant": "free" }))
            .set("/limits/budget", "60s")
            .start()
            .await;
        let (needs, free) = (gateway.http(&token("needs")), gateway.http(&token("free")));
        // One more than there is room for: once it is rejected, all the others have their permits.
        let calls = (0..=PLACES + QUEUE).map(|_| {
            let needs = needs.clone();
            tokio::spawn(async move { needs.call(POINT, payload()).await })
        });
        let (refused, _, held) = select_all(calls).await;
        let refused = refused.unwrap();
        assert_eq!(reason(&refused), "bulkhead_full", "{refused:?}");
        stuck.wait_until(|counts| counts.calls == PLACES as u64).await;
        for _ in 0..20 {
            let (surplus, answer) = tokio::join!(needs.call(POINT, payload()), free.call(POINT, payload()));
            assert_eq!((reason(&surplus), surplus.status), ("bulkhead_full", 200), "{surplus:?}");
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        let counts = stuck.counts();
        assert_eq!((counts.calls, counts.finished), (PLACES as u64, 0), "all that while it was stuck");
        gate.open();
        for answer in join_all(held).await {
            assert_eq!(answer.unwrap().body["steps"][0]["outcome"], json!("continued"));
        }
        assert_eq!(stuck.counts().calls, (PLACES + QUEUE) as u64, "those turned away never reached it");
    }))
    .await;
}

#[tokio::test]
async fn a_tenant_far_over_its_limits_is_refused_over_both_protocols_and_another_notices_nothing() {
    let gate = Gate::closed();
    let slow = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let gateway = Gateway::with()
        .tenant_with("noisy", &json!({ "limits": { "in_flight": 5 } }))
        .tenant("quiet")
        .plugin(&slow)
        .binding_with("slow", 1, &json!({ "tenant": "noisy", "timeout": "60s" }))
        .set("/limits/budget", "60s")
        .start()
        .await;
    let (noisy, quiet) = (token("noisy"), token("quiet"));
    let held: Vec<_> = (0..5)
        .map(|_| {
            let noisy = gateway.http(&noisy);
            tokio::spawn(async move { noisy.call(POINT, payload()).await })
        })
        .collect();
    slow.wait_until(|counts| counts.calls == 5).await;
    let (address, noise, calm) = (gateway.data_addr(), gateway.http(&noisy), gateway.http(&quiet));
    let (noise, calm, noisy, quiet) = (&noise, &calm, &noisy, &quiet);
    stream::iter(0..100)
        .for_each_concurrent(20, |_| async move {
            assert_http_error(&noise.call(POINT, payload()).await, Code::TenantLimited);
            assert_eq!(calm.call(POINT, payload()).await.status, 200);
        })
        .await;
    let refused = send_grpc(grpc_request(address, METHOD, noisy, frame(&request()))).await;
    assert_grpc_error(&refused.status(), Code::TenantLimited);
    let answer = send_grpc(grpc_request(address, METHOD, quiet, frame(&request()))).await;
    assert!(!answer.headers.contains_key("grpc-status"), "{answer:?}");
    assert_eq!(slow.counts().finished, 0, "the five were held all that while");
    gate.open();
    for answer in join_all(held).await {
        assert_eq!(answer.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_rate_is_limited_for_its_tenant_alone_and_says_whole_seconds_rounded_up() {
    let gateway = Gateway::with()
        .tenant_with("noisy", &json!({ "limits": { "rate": "2/m" } }))
        .tenant("quiet")
        .start()
        .await;
    let (noisy, quiet) = (gateway.http(&token("noisy")), gateway.http(&token("quiet")));
    let began = std::time::Instant::now();
    for _ in 0..2 {
        assert_eq!(noisy.call(POINT, payload()).await.status, 200);
    }
    let first = noisy.call(POINT, payload()).await;
    assert_http_error(&first, Code::TenantLimited);
    // A permit is free 30 s after the first call, which is a little less from now. Rounded down, it would
    // be too early.
    let wait: f64 = first.header("retry-after").unwrap().parse().unwrap();
    let left = 30.0 - began.elapsed().as_secs_f64();
    assert!(wait >= left && wait <= 30.0, "{wait} of {left}");
    for _ in 0..20 {
        assert_http_error(&noisy.call(POINT, payload()).await, Code::TenantLimited);
        assert_eq!(quiet.call(POINT, payload()).await.status, 200);
    }
}

#[tokio::test]
async fn a_flood_over_capacity_is_refused_before_any_held_call_ends_and_takes_no_payload_bytes() {
    const PLACES: usize = 8;
    let gate = Gate::closed();
    let slow = FakePlugin::named("slow").at(POINT, Act::pass().behind(&gate)).start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&slow)
        .binding_with("slow", 1, &json!({ "timeout": "60s" }))
        .set("/limits/budget", "60s")
        .set("/limits/in_flight", PLACES)
        .start()
        .await;
    let (address, token) = (gateway.data_addr(), token("acme"));
    let held: Vec<_> = (0..PLACES)
        .map(|_| good_request(&gateway.http(&token)).timeout(Duration::from_secs(60)))
        .map(|held| tokio::spawn(send(held)))
        .collect();
    slow.wait_until(|counts| counts.calls == PLACES as u64).await;

    let (agent, gateway) = (&gateway.http(&token), &gateway);
    // Created before the first one connects: creating a client takes a while, and idle connections are
    // closed.
    let over_grpc: Vec<_> =
        (0..50).map(|_| grpc_request(address, METHOD, &token, frame(&request()))).collect();
    // All at once, however many there are: none waits for another.
    let flood = async {
        let over_grpc = join_all(over_grpc.into_iter().map(send_grpc));
        let over_http = join_all((0..150).map(|_| send(good_request(agent))));
        let (over_grpc, over_http) = tokio::join!(over_grpc, over_http);
        over_grpc.iter().for_each(|refused| assert_grpc_error(&refused.status(), Code::Overloaded));
        over_http.iter().for_each(|refused| assert_http_error(refused, Code::Overloaded));
    };
    let alive = async {
        for _ in 0..20 {
            assert_eq!(gateway.ops().get("/livez").await.unwrap().status, 200);
        }
    };
    tokio::join!(flood, alive);
    // A rejection reads no body, so it comes although the body never does.
    let never = in_pieces(stream::once(async { b"{".to_vec() }).chain(stream::pending()));
    assert_http_error(&send(good_request(agent).body(never)).await, Code::Overloaded);
    assert_eq!(Scrape::of(gateway).await.sum("hookgate_in_flight", &[]), PLACES as f64);
    assert_eq!(slow.counts().finished, 0, "every refusal came while the first calls were held");
    gate.open();
    for answer in join_all(held).await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(slow.counts().calls, PLACES as u64);
}

#[tokio::test]
async fn a_plugins_refusal_is_never_taken_for_the_gateways_own() {
    let gate = Gate::closed();
    let busy = Act::status(tonic::Code::ResourceExhausted, "too many requests");
    let busy = FakePlugin::named("busy").at(POINT, busy).start().await;
    let full = FakePlugin::named("full").at(POINT, Act::pass().behind(&gate)).start().await;
    let one = json!({ "limits": { "in_flight": 1, "queue": 1, "queue_wait": "10ms" } });
    let gateway = Gateway::with()
        .tenant("busy")
        .tenant("full")
        .plugin(&busy)
        .plugin_with(&full, &one)
        .binding_with("busy", 1, &json!({ "tenant": "busy" }))
        .binding_with("full", 1, &json!({ "tenant": "full", "timeout": "60s" }))
        .set("/limits/budget", "60s")
        .start()
        .await;
    let answer = gateway.http(&token("busy")).call(POINT, payload()).await;
    assert_eq!((answer.status, code(&answer)), (502, "PLUGIN_ERROR"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), None, "it is not for us to say: {answer:?}");

    let agent = gateway.http(&token("full"));
    let held = tokio::spawn({
        let agent = agent.clone();
        async move { agent.call(POINT, payload()).await }
    });
    full.wait_until(|counts| counts.calls == 1).await;
    let answer = agent.call(POINT, payload()).await;
    assert_eq!((answer.status, code(&answer)), (503, "PLUGIN_UNAVAILABLE"), "{answer:?}");
    let scrape = Scrape::of(&gateway).await;
    gate.open();
    assert_eq!(held.await.unwrap().status, 200);
    assert!(scrape.text.contains("bulkhead_full"), "{}", scrape.text);
}
