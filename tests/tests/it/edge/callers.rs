//! Tests callers: known, unknown and disabled tenants, claims, and what a body may not claim.

use std::collections::BTreeMap;

use hookgate::core::error::Code;
use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, RequestContext},
    plugin::v1::CallContext,
};
use hookgate_tests::{
    fake::FakePlugin,
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::json;

use crate::edge::support::{
    METHOD, POINT, assert_grpc_error, assert_http_error, frame, grpc_request, payload, request, send_grpc,
};

fn last_context(plugin: &FakePlugin) -> CallContext {
    plugin.seen().pop().and_then(|seen| seen.call.context).expect("every call has a context")
}

#[tokio::test]
async fn tenant_and_operator_come_from_the_token_alone() {
    let plugin = FakePlugin::named("witness").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("witness", 10).start().await;
    let agent = gateway.http(&token("acme"));
    for member in ["tenant", "tenant_id", "operator", "request_id"] {
        for (body, pointer) in [
            (json!({ "payload": payload(), "context": { member: "globex" } }), format!("/context/{member}")),
            (json!({ "payload": payload(), member: "globex" }), format!("/{member}")),
        ] {
            let answer = agent.post(POINT, &body).await;
            assert_http_error(&answer, Code::PayloadInvalid);
            assert_eq!(answer.body["errors"][0]["pointer"], json!(pointer), "{answer:?}");
        }
    }
    assert_eq!(plugin.counts().calls, 0);
    assert_eq!(agent.call(POINT, payload()).await.status, 200);
    let context = last_context(&plugin);
    assert_eq!((context.tenant.as_str(), context.operator.as_str()), ("acme", "operator-of-acme"));
    assert_eq!((context.session_id, context.user_id), (None, None), "absent is legal");
}

#[tokio::test]
async fn an_unlisted_tenant_gets_the_bindings_for_all_where_that_is_configured() {
    let (all, own) = (FakePlugin::named("all").start().await, FakePlugin::named("own").start().await);
    let gateway = Gateway::with()
        .tenant("acme")
        .tenant_with("off", &json!({ "enabled": false }))
        .set("/tenants/unknown", "accept")
        .plugin(&all)
        .plugin(&own)
        .binding("all", 10)
        .binding_with("own", 20, &json!({ "tenant": "acme" }))
        .start()
        .await;
    assert_eq!(gateway.http(&token("stranger")).call(POINT, payload()).await.status, 200);
    assert_eq!((all.counts().calls, own.counts().calls), (1, 0));
    assert_eq!(last_context(&all).tenant, "stranger");
    let off = gateway.http(&token("off")).call(POINT, payload()).await;
    assert_http_error(&off, Code::TenantDisabled);
}

#[tokio::test]
async fn a_user_mapped_from_a_claim_is_not_the_requests_to_say() {
    let plugin = FakePlugin::named("witness").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin).binding("witness", 10);
    let claims = json!({ "user_id": "/user/id", "labels": ["plan", "region"] });
    let gateway = setup.set("/auth/issuers/0/claims", claims).start().await;
    let with_user = Token::for_tenant("acme").claim("user", json!({ "id": "u-7" })).claim("plan", "pro");
    let minted = with_user.mint();
    let agent = gateway.http(&minted);
    let labels = json!({ "payload": payload(), "context": { "labels": { "team": "red" } } });
    assert_eq!(agent.post(POINT, &labels).await.status, 200);
    let context = last_context(&plugin);
    assert_eq!(context.user_id.as_deref(), Some("u-7"));
    let expected = [("claim.plan", "pro"), ("team", "red")];
    let expected: BTreeMap<_, _> = expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(context.labels, expected);

    let own_user = json!({ "payload": payload(), "context": { "user_id": "admin" } });
    let answer = agent.post(POINT, &own_user).await;
    assert_http_error(&answer, Code::PayloadInvalid);
    assert_eq!(answer.body["errors"][0]["pointer"], json!("/context/user_id"));
    let context = RequestContext { user_id: Some("admin".into()), ..RequestContext::default() };
    let message = BeforeToolCallRequest { context: Some(context), ..request() };
    let refused = send_grpc(grpc_request(gateway.data_addr(), METHOD, &minted, frame(&message))).await;
    assert_grpc_error(&refused.status(), Code::PayloadInvalid);

    // it is mapped to a claim that the token lacks, and the request still can't set it
    let without = gateway.http(&token("acme"));
    assert_http_error(&without.post(POINT, &own_user).await, Code::PayloadInvalid);
    assert_eq!(without.call(POINT, payload()).await.status, 200);
    assert_eq!(last_context(&plugin).user_id, None);
}

#[tokio::test]
async fn labels_from_claims_cannot_be_forged() {
    let plugin = FakePlugin::named("witness").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin).binding("witness", 10);
    let gateway = setup.set("/auth/issuers/0/claims", json!({ "labels": ["plan"] })).start().await;
    for key in ["claim.plan", "claim.", "claim.other"] {
        let body = json!({ "payload": payload(), "context": { "labels": { key: "pro" } } });
        let answer = gateway.http(&token("acme")).post(POINT, &body).await;
        assert_http_error(&answer, Code::PayloadInvalid);
        let context =
            RequestContext { labels: [(key.into(), "pro".into())].into(), ..RequestContext::default() };
        let message = BeforeToolCallRequest { context: Some(context), ..request() };
        let call = grpc_request(gateway.data_addr(), METHOD, &token("acme"), frame(&message));
        assert_grpc_error(&send_grpc(call).await.status(), Code::PayloadInvalid);
    }
    assert_eq!(plugin.counts().calls, 0);
}

#[tokio::test]
async fn a_run_resumed_on_the_same_plan_goes_on() {
    let plugin = FakePlugin::named("witness").start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin).binding("witness", 10).start().await;
    let agent = gateway.http(&token("acme"));
    let digest = agent.call(POINT, payload()).await.body["plan_digest"].clone();
    let same = json!({ "payload": payload(), "expect_plan_digest": digest });
    assert_eq!(agent.post(POINT, &same).await.status, 200);
    let changed = json!({ "payload": payload(), "expect_plan_digest": "" });
    assert_http_error(&agent.post(POINT, &changed).await, Code::PlanChanged);
    assert_eq!(plugin.counts().calls, 2, "a changed plan runs no step");
}

#[tokio::test]
async fn parallel_calls_of_two_tenants_keep_their_contexts_apart() {
    let plugin = FakePlugin::named("witness").start().await;
    let setup = Gateway::with().tenant("acme").tenant("globex").plugin(&plugin);
    let gateway = setup.binding("witness", 10).start().await;
    let agents = ["acme", "globex"].map(|tenant| (tenant, gateway.http(&token(tenant))));
    let calls = (0..40).map(|n| {
        let (tenant, agent) = agents[n % 2].clone();
        async move {
            let context =
                json!({ "session_id": format!("{tenant}-{n}"), "user_id": format!("user-of-{tenant}") });
            agent.post(POINT, &json!({ "payload": payload(), "context": context })).await.status
        }
    });
    let statuses = futures::future::join_all(calls).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let seen = plugin.seen();
    assert_eq!(seen.len(), 40);
    for context in seen.into_iter().filter_map(|seen| seen.call.context) {
        assert!(context.session_id.unwrap().starts_with(&format!("{}-", context.tenant)));
        assert_eq!(context.user_id, Some(format!("user-of-{}", context.tenant)));
        assert_eq!(context.operator, format!("operator-of-{}", context.tenant));
    }
}
