//! Tests isolation of two tenants with concurrent calls in any order: no byte of one tenant reaches a call
//! or an answer of the other.

use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, RequestContext},
    types::v1::{BeforeToolCallPatch, BeforeToolCallPayload, ExtensionPoint, NoticeKind},
};
use hookgate_tests::{
    agent::{GrpcClient, HttpAgent},
    fake::{Act, FakePlugin, Seen, notice},
    gateway::Gateway,
    token::token,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::edge::support::{POINT, assert_no_panic};

const TENANTS: [&str; 2] = ["acme", "globex"];
/// Part of everything about one tenant, and of nothing about the other.
const OWN: [&str; 2] = ["of-the-first", "of-the-second"];
/// The prefix of everything that no log may contain: payloads, labels, configuration.
const SECRET: &str = "secret";

/// A value of a tenant that is never logged.
fn secret(what: &str, tenant: usize) -> String {
    format!("{SECRET}-{what}-{}", OWN[tenant])
}

/// A fact about a call that may be logged (G28): its user or its tool.
fn fact(what: &str, tenant: usize) -> String {
    format!("{what}-{}", OWN[tenant])
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Http,
    Grpc,
    /// Over HTTP, at another point.
    Response,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    tenant: usize,
    way: Way,
    blocks: bool,
}

struct World {
    gateway: Gateway,
    shared: FakePlugin,
    own: FakePlugin,
    http: [HttpAgent; 2],
    grpc: [GrpcClient; 2],
}

/// Returns all it knows: the tenant's config and its context come back in the details of notices and in a
/// patch. Its messages are logged, so they contain only the user.
fn talkative(seen: &Seen) -> Act {
    let context = seen.call.context.clone().unwrap_or_default();
    let config = String::from_utf8_lossy(&seen.call.tenant_config).into_owned();
    let user = context.user_id.unwrap_or_default();
    let details = json!({ "labels": context.labels, "config": config });
    let said = notice(NoticeKind::Info, "SEEN", &user, &details);
    let act = match context.session_id.as_deref() {
        Some("block") => Act::cancel("NO", &user),
        _ => Act::pass(),
    };
    let act = act.with_notice(said);
    if seen.point == POINT {
        let extra = json!({ "config": config }).to_string();
        act.with_patch(BeforeToolCallPatch { extra: Some(extra.into()), ..BeforeToolCallPatch::default() })
    } else {
        act
    }
}

async fn world() -> World {
    let mut shared = FakePlugin::named("shared");
    for point in [POINT, ExtensionPoint::BeforeResponse] {
        shared = shared.at_with(point, talkative);
    }
    let shared = shared.start().await;
    let own = FakePlugin::named("own").start_unix().await;
    let mut setup = Gateway::with().plugin(&shared).plugin(&own).binding("shared", 10).binding_with(
        "own",
        20,
        &json!({ "tenant": TENANTS[0], "config": { "note": secret("config", 0) } }),
    );
    for (index, tenant) in TENANTS.iter().enumerate() {
        let config = json!({ "shared": { "note": secret("config", index) } });
        let members = json!({ "labels": { "l": secret("plan", index) }, "config": config });
        setup = setup.tenant_with(tenant, &members);
    }
    let gateway = setup.start().await;
    let http = TENANTS.map(|tenant| gateway.http(&token(tenant)));
    let grpc = [gateway.grpc(&token(TENANTS[0])).await.client, gateway.grpc(&token(TENANTS[1])).await.client];
    World { gateway, shared, own, http, grpc }
}

impl World {
    /// The complete answer as text.
    async fn act(&self, act: Turn) -> String {
        let user = fact("user", act.tenant);
        let (label, text) = (secret("label", act.tenant), secret("payload", act.tenant));
        let session = if act.blocks { "block" } else { "pass" };
        let context = json!({ "session_id": session, "labels": { "l": label }, "user_id": user });
        let http = async |point, payload| {
            let body = json!({ "context": context, "payload": payload });
            let answer = self.http[act.tenant].post(point, &body).await;
            format!("{:?}{}", answer.headers, answer.text)
        };
        match act.way {
            Way::Http => http(POINT, json!({ "tool_name": "t", "args": { "a": text } })).await,
            Way::Response => http(ExtensionPoint::BeforeResponse, json!({ "content": text })).await,
            Way::Grpc => {
                let request = BeforeToolCallRequest {
                    context: Some(RequestContext {
                        session_id: Some(session.into()),
                        labels: [("l".into(), label)].into(),
                        user_id: Some(user),
                        ..RequestContext::default()
                    }),
                    payload: Some(BeforeToolCallPayload {
                        tool_name: fact("tool", act.tenant),
                        args: json!([text]).to_string().into(),
                        ..BeforeToolCallPayload::default()
                    }),
                    ..BeforeToolCallRequest::default()
                };
                format!("{:?}", self.grpc[act.tenant].clone().before_tool_call(request).await)
            }
        }
    }

    async fn run(&self, acts: &[Turn]) {
        let answers = futures::future::join_all(acts.iter().map(|act| self.act(*act))).await;
        for (act, answer) in acts.iter().zip(answers) {
            assert_own(act.tenant, &answer);
        }
    }

    fn assert_calls(&self) {
        for seen in self.shared.seen().iter().chain(&self.own.seen()) {
            let tenant = seen.call.context.as_ref().map(|context| context.tenant.as_str());
            let tenant = TENANTS.iter().position(|id| Some(*id) == tenant).expect("it is one of the two");
            assert_own(tenant, &format!("{seen:?}"));
        }
        let foreign = self.own.seen().iter().any(|seen| format!("{seen:?}").contains(TENANTS[1]));
        assert!(!foreign, "the first tenant's own plugin sees the first tenant alone");
    }
}

/// Checks that the text contains something of the tenant, which shows that the check works, and nothing of
/// the other.
fn assert_own(tenant: usize, text: &str) {
    assert!(text.contains(OWN[tenant]), "nothing of its own: {text}");
    assert!(!text.contains(OWN[1 - tenant]), "{} sees the other: {text}", TENANTS[tenant]);
}

fn acts() -> impl Strategy<Value = Vec<Turn>> {
    let way = prop_oneof![Just(Way::Http), Just(Way::Grpc), Just(Way::Response)];
    let act = (0..2_usize, way, any::<bool>()).prop_map(|(tenant, way, blocks)| Turn { tenant, way, blocks });
    prop::collection::vec(act, 1..16)
}

#[test]
fn no_byte_of_one_tenant_is_in_a_call_or_an_answer_of_the_other() {
    let runtime = Runtime::new().expect("a runtime needs nothing but threads");
    let world = runtime.block_on(world());
    let config = Config { cases: 32, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&acts(), |acts| {
            runtime.block_on(world.run(&acts));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    world.assert_calls();
    let own = world.own.counts().calls;
    assert!(own > 0 && own < world.shared.counts().calls, "both plugins were called: {own}");
    assert_no_panic(&world.gateway);
    let log = world.gateway.log().to_string();
    assert!(!log.contains(SECRET), "payloads, labels and config are never logged: {log}");
    assert!((0..2).all(|tenant| log.contains(&fact("user", tenant))), "the calls are in the log: {log}");
    runtime.block_on(async { drop(world) });
}
