//! Tests test calls of one plugin (G42).

use std::time::Duration;

use hookgate_proto::{
    plugin::v1::Access,
    types::v1::{BeforeToolCallPatch, NoticeKind},
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Act, FakePlugin, notice},
    gateway::Gateway,
};
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Code;

use crate::{
    admin::registry::support::{administrator, ask, get, pointers},
    edge::support::{POINT, payload},
    registry::support::{SOON, call},
};

struct Rig {
    gateway: Gateway,
    operator: HttpAgent,
    plugin: FakePlugin,
}

/// A gateway whose tenant `acme` has the plugin `guard` with a config and one writable field, and `globex`
/// with a short timeout.
async fn rig() -> Rig {
    let schema = json!({ "properties": { "strict": { "type": "boolean" } }, "additionalProperties": false });
    let plugin = FakePlugin::named("guard").tenant_config_schema(schema).start().await;
    let members = json!({ "tenant": "acme", "config": { "strict": true }, "writable": ["args"] });
    let hasty = json!({ "tenant": "globex", "timeout": "300ms" });
    let setup = Gateway::with().tenant("acme").tenant("globex").admin().plugin_without_breaker(&plugin);
    let setup = setup.binding_with("guard", 10, &members).binding_with("guard", 10, &hasty);
    let gateway = setup.start().await;
    let operator = gateway.admin(&administrator());
    Rig { gateway, operator, plugin }
}

impl Rig {
    async fn call(&self, body: Value) -> HttpAnswer {
        ask(&self.operator, Method::POST, "plugins/guard/call?reason=trying", Some(&body)).await
    }

    async fn tried(&self, body: Value) -> Value {
        let answer = timeout(SOON, self.call(body)).await.expect("it answers");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }
}

fn question() -> Value {
    json!({ "point": "before_tool_call", "payload": payload() })
}

fn of_acme() -> Value {
    json!({ "point": "before_tool_call", "payload": payload(), "tenant": "acme" })
}

#[tokio::test]
async fn a_trial_shows_what_the_plugin_says_and_the_plugin_sees_that_it_is_one() {
    let rig = rig().await;
    let patch = BeforeToolCallPatch {
        args: Some(r#"{"path":"/b","n":12345678901234567890123}"#.into()),
        ..Default::default()
    };
    let act = Act::patch(patch).with_notice(notice(
        NoticeKind::Warn,
        "CHANGED",
        "another path",
        &json!({ "n": 1 }),
    ));
    rig.plugin.set(POINT, act);
    let said = rig.tried(of_acme()).await;
    assert_eq!(said["verdict"], json!("continue"));
    assert_eq!(said["changes"]["args"]["path"], json!("/b"));
    assert_eq!(
        said["notices"],
        json!([{ "kind": "warn", "code": "CHANGED", "message": "another path", "details": { "n": 1 } }])
    );
    let seen = rig.plugin.seen().pop().expect("it was called");
    assert_eq!(seen.metadata.get("hookgate-test").map(String::as_str), Some("true"));
    let context = seen.call.context.expect("every call has one");
    assert_eq!((context.tenant.as_str(), json!(context.request_id)), ("acme", said["request_id"].clone()));
    assert_eq!(&seen.call.tenant_config[..], br#"{"strict":true}"#, "the tenant's");

    rig.plugin.set(POINT, Act::cancel("NO_WAY", "not this one").retry_after_ms(1500));
    let said = rig.tried(question()).await;
    let cancel =
        json!({ "code": "NO_WAY", "message": "not this one", "retry_after_ms": 1500, "scope": "step" });
    assert_eq!((&said["verdict"], &said["cancel"]), (&json!("cancel"), &cancel));
    let seen = rig.plugin.seen().pop().expect("it was called");
    assert_eq!(
        (&*seen.call.context.expect("one").tenant, &seen.call.tenant_config[..]),
        ("test", &b"{}"[..])
    );

    let line = rig.gateway.log().wait_for(|line| line.field("operation") == Some(&json!("call"))).await;
    assert_eq!((line.field("reason"), line.field("plugin")), (Some(&json!("trying")), Some(&json!("guard"))));
    assert!(line.field("author").is_some_and(|author| author.to_string().contains('(')), "{line:?}");
    let text = rig.gateway.log().lines().iter().map(|line| format!("{line:?}")).collect::<String>();
    assert!(!text.contains("fs.read"), "no payload in the log");
}

#[tokio::test]
async fn a_failed_test_call_has_a_reason_and_a_remedy() {
    let rig = rig().await;
    let cases = [
        ("globex", Act::hang(), "timeout"),
        ("acme", Act::status(Code::Internal, "out of order"), "rpc_error"),
        ("acme", Act::no_verdict(), "bad_reply"),
        (
            "acme",
            Act::patch(BeforeToolCallPatch { tool_name: Some("fs.write".into()), ..Default::default() }),
            "forbidden_patch",
        ),
    ];
    for (tenant, act, reason) in cases {
        rig.plugin.set(POINT, act);
        let mut question = question();
        question["tenant"] = json!(tenant);
        let said = rig.tried(question).await;
        assert_eq!(
            (&said["verdict"], &said["failure"]["reason"]),
            (&json!("failed"), &json!(reason)),
            "{said}"
        );
        assert!(!said["failure"]["remedy"].to_string().is_empty());
    }
    // A binding's limits don't apply to a call without that binding.
    assert_eq!(rig.tried(question()).await["changes"]["tool_name"], json!("fs.write"));
}

#[tokio::test]
async fn a_test_call_counts_for_no_tenant_and_reaches_no_observer() {
    let (guard, observer) =
        (FakePlugin::named("guard").start().await, FakePlugin::named("watcher").start().await);
    let setup = Gateway::with().tenant_with("acme", &json!({ "limits": { "rate": "1/m" } })).admin();
    let setup = setup.plugin(&guard).plugin(&observer).binding("guard", 10);
    let gateway = setup.binding_with("watcher", 20, &json!({ "mode": "observe" })).start().await;
    let operator = gateway.admin(&administrator());
    for _ in 0..5 {
        let answer = ask(&operator, Method::POST, "plugins/guard/call", Some(&of_acme())).await;
        assert_eq!((answer.status, &answer.body["verdict"]), (200, &json!("continue")), "{answer:?}");
    }
    assert_eq!((guard.counts().calls, observer.counts().calls), (5, 0));
    let points = get(&operator, "plugins/guard").await.body["points"].clone();
    assert_eq!(points["before_tool_call"]["calls"], json!(0), "no step was made");
    assert_eq!(call(&gateway, "acme").await.status, 200, "the tenant's rate is whole");
    assert_eq!(call(&gateway, "acme").await.status, 429, "and it is one");
    observer.wait_until(|counts| counts.calls == 1).await;
}

#[tokio::test]
async fn a_trial_that_is_asked_wrongly_never_reaches_the_plugin() {
    let rig = rig().await;
    let cases = [
        (json!({ "payload": payload() }), 400, vec!["/point"]),
        (json!({ "point": "nowhere", "payload": payload(), "more": 1 }), 400, vec!["/more", "/point"]),
        (json!({ "point": "before_tool_call" }), 400, vec!["/payload"]),
        (
            json!({ "point": "before_tool_call", "payload": { "tool_name": 1, "args": null } }),
            400,
            vec!["/payload/tool_name"],
        ),
        (json!({ "point": "before_tool_call", "payload": payload(), "tenant": "*" }), 400, vec!["/tenant"]),
        (
            json!({ "point": "before_tool_call", "payload": payload(), "tenant": "nobody" }),
            400,
            vec!["/tenant"],
        ),
        (
            json!({ "point": "before_tool_call", "payload": payload(), "tenant_config": [1] }),
            400,
            vec!["/tenant_config"],
        ),
        (
            json!({ "point": "before_tool_call", "payload": payload(), "tenant_config": { "strict": "hush" } }),
            422,
            vec!["/tenant_config/strict"],
        ),
    ];
    for (body, status, wanted) in cases {
        let answer = rig.call(body.clone()).await;
        assert_eq!((answer.status, pointers(&answer)), (status, wanted), "{body}: {answer:?}");
        assert!(!answer.body.to_string().contains("hush"), "{answer:?}");
    }
    let large = "x".repeat(5 << 20);
    let answer = rig.call(json!({ "point": "before_llm_request", "payload": { "text": large } })).await;
    assert_eq!(
        (answer.status, &answer.body["code"]),
        (413, &json!("PAYLOAD_TOO_LARGE")),
        "as on the data port"
    );
    let answer = ask(&rig.operator, Method::POST, "plugins/nobody/call", Some(&question())).await;
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(rig.plugin.counts().calls, 0);
}

#[tokio::test]
async fn a_trial_at_a_point_that_the_plugin_lacks_or_with_a_reader_that_patches_is_told() {
    let only = FakePlugin::named("guard").only(&[POINT]).access(Access::Read).start().await;
    let gateway = Gateway::with().tenant("acme").admin().plugin(&only).binding("guard", 10).start().await;
    let operator = gateway.admin(&administrator());
    let body = json!({ "point": "before_response", "payload": { "content": "hello" } });
    let answer = ask(&operator, Method::POST, "plugins/guard/call", Some(&body)).await;
    assert_eq!(answer.body["failure"]["reason"], json!("point_not_offered"), "{answer:?}");
    only.set(POINT, Act::patch(BeforeToolCallPatch { args: Some("{}".into()), ..Default::default() }));
    let answer = ask(&operator, Method::POST, "plugins/guard/call", Some(&question())).await;
    assert_eq!(answer.body["failure"]["reason"], json!("forbidden_patch"), "{answer:?}");
    only.set(POINT, Act::pass().after(Duration::from_millis(1)));
    let answer = ask(&operator, Method::POST, "plugins/guard/call", Some(&question())).await;
    assert_eq!(answer.body["verdict"], json!("continue"), "{answer:?}");
}
