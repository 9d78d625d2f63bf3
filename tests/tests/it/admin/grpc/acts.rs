//! Tests consent, bypasses and process operations over gRPC, compared with HTTP, with real plugins.

use std::time::Duration;

use hookgate::core::error::Code;
use hookgate_proto::{
    admin::v1::{self as wire, Kind, ReloadOutcome},
    plugin::v1::Access,
    types::v1::ExtensionPoint,
};
use hookgate_tests::{
    fake::{Act, FakePlugin, Gate, Handshake},
    gateway::Gateway,
    token::token,
};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::{
    admin::{
        grpc::{
            rpcs::assert_code,
            same::{of_grpc, of_http},
            support::{Client, bypass, cursor, dial, object, parsed, text, violations, written as told},
        },
        registry::support::{Stored, administrator, apply, ask, get, head, put, stored, stored_as, written},
    },
    edge::support::{POINT, payload},
    registry::support::{SOON, call, file_with},
};

fn place(status: &Status) -> Value {
    violations(status)[0]["pointer"].clone()
}

/// The answer of HTTP.
async fn over_http(it: &Stored, method: Method, path: &str, body: Option<&Value>) -> Value {
    of_http(ask(&it.operator, method, path, body).await)
}

/// The first manifest that waits for consent to `guard`.
async fn wanted(it: &Stored) -> Value {
    let end = Instant::now() + SOON;
    loop {
        let plugin = get(&it.operator, "plugins/guard").await.body;
        if plugin["pending_manifests"][0].is_object() {
            return plugin["pending_manifests"][0]["accepted"].clone();
        }
        assert!(Instant::now() < end, "it wants nothing: {plugin:#}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn consent_over_grpc_is_consent_over_http() {
    let plugin = FakePlugin::named("guard").only(&[POINT]).access(Access::Read).start().await;
    let it = stored().await;
    let mut client = dial(&it.gateway, &administrator()).await;
    let document = json!({
        "plugins": [{ "name": "guard", "endpoint": plugin.endpoint() }],
        "bindings": [{ "plugin": "guard", "tenant": "*", "priority": 20 }],
    });
    let added = written(&apply(&it.operator, "", document).await);
    let accepted = wanted(&it).await;
    let right = json!({ "accepted": accepted });
    let more = json!({ "accepted": { "points": accepted["points"], "capabilities": ["log"] } });
    for (name, approval, expected_version) in [
        ("guard", &right, Some(added)),
        ("guard", &right, None),
        ("guard", &right, Some(99)),
        ("guard", &more, None),
        ("guard", &json!({}), None),
        ("guard", &json!({ "accepted": accepted, "more": 1 }), None),
        ("nobody", &right, None),
        ("content-policy", &right, None),
        ("", &right, None),
    ] {
        let request = wire::ApprovePluginRequest {
            name: name.into(),
            approval_json: text(approval),
            expected_version,
            reason: "seen".into(),
            dry_run: true,
        };
        let over_grpc = of_grpc(client.approve_plugin(request).await, |said| told(said.written));
        let upon = expected_version.map_or(String::new(), |version| format!("&expected_version={version}"));
        let path = format!("plugins/{name}/approve?dry_run=true&reason=seen{upon}");
        assert_eq!(
            over_grpc,
            over_http(&it, Method::POST, &path, Some(approval)).await,
            "{name}: {approval}"
        );
    }
    assert_eq!((head(&it.operator).await, plugin.counts().initializes), (added, 0), "it was only tried out");

    let request = wire::ApprovePluginRequest {
        name: "guard".into(),
        approval_json: text(&right),
        expected_version: Some(added),
        reason: "seen".into(),
        ..wire::ApprovePluginRequest::default()
    };
    let said = client.approve_plugin(request).await.unwrap().into_inner().written.unwrap();
    assert_eq!((said.revision, said.active), (Some(added + 1), true));
    assert_eq!(call(&it.gateway, "acme").await.status, 200);
    assert_eq!(plugin.counts().calls, 1, "it runs now");
    let revision = get(&it.operator, &format!("revisions/{}", added + 1)).await.body;
    assert_eq!((&revision["reason"], revision["author"].is_string()), (&json!("seen"), true));
}

/// Removes the end time, which differs between two bypasses.
fn timeless(mut value: Value) -> Value {
    if let Some(spec) = value.pointer_mut("/changes/0/after/spec") {
        assert!(spec["until"].is_string(), "{spec}");
        spec["until"] = Value::Null;
    }
    value
}

fn for_a_while(binding: &str, tenant: &str, dry_run: bool) -> wire::PutBypassRequest {
    wire::PutBypassRequest {
        binding: binding.into(),
        tenant: tenant.into(),
        for_ms: 60_000,
        reason: "INC-7".into(),
        dry_run,
    }
}

async fn bypasses(client: &mut Client, request: wire::ListObjectsRequest) -> Value {
    let request = wire::ListObjectsRequest { kind: Kind::Bypass.into(), ..request };
    of_grpc(client.list_objects(request).await, |list| {
        let all: Vec<_> = list.objects.iter().map(bypass).collect();
        json!({ "bypasses": all, "next_cursor": cursor(&list.next_page_token), "revision": list.revision })
    })
}

#[tokio::test]
async fn a_bypass_that_is_tried_out_or_refused_over_grpc_is_so_over_http() {
    let it = stored().await;
    let mut client = dial(&it.gateway, &administrator()).await;
    for (binding, tenant) in [
        ("content-policy", "acme"),
        ("nobody", "acme"),
        ("content-policy", "nobody"),
        ("content-policy", "*"),
    ] {
        let request = for_a_while(binding, tenant, true);
        let over_grpc = of_grpc(client.put_bypass(request).await, |said| told(said.written));
        let path = format!("bindings/{binding}/bypass/{tenant}");
        let tried = format!("{path}?for=60s&reason=INC-7&dry_run=true");
        let same = over_http(&it, Method::PUT, &tried, None).await;
        assert_eq!(timeless(over_grpc), timeless(same), "{path}");
        let request = wire::DeleteBypassRequest {
            binding: binding.into(),
            tenant: tenant.into(),
            ..Default::default()
        };
        let over_grpc = of_grpc(client.delete_bypass(request).await, |said| told(said.written));
        assert_eq!(over_grpc, over_http(&it, Method::DELETE, &path, None).await, "{path}");
    }
    for (change, wrong) in [
        (wire::PutBypassRequest { for_ms: 999, ..for_a_while("content-policy", "acme", false) }, "/for_ms"),
        (
            wire::PutBypassRequest { for_ms: 86_400_001, ..for_a_while("content-policy", "acme", false) },
            "/for_ms",
        ),
        (
            wire::PutBypassRequest { reason: " ".into(), ..for_a_while("content-policy", "acme", false) },
            "/reason",
        ),
        (
            wire::PutBypassRequest { reason: "a\nb".into(), ..for_a_while("content-policy", "acme", false) },
            "/reason",
        ),
    ] {
        assert_eq!(place(&assert_code(client.put_bypass(change).await, Code::PayloadInvalid)), wrong);
    }
    assert_eq!(head(&it.operator).await, 1);
}

#[tokio::test]
async fn a_glass_broken_over_grpc_is_one_broken_over_http() {
    let it = stored().await;
    let mut client = dial(&it.gateway, &administrator()).await;
    let done = client.put_bypass(for_a_while("content-policy", "acme", false)).await.unwrap().into_inner();
    assert_eq!(done.written.as_ref().map(|said| (said.revision, said.active)), Some((Some(2), true)));
    let all = bypasses(&mut client, wire::ListObjectsRequest::default()).await;
    assert_eq!((&all["bypasses"][0]["active"], &all["revision"]), (&json!(true), &json!(2)));
    assert_eq!(all, over_http(&it, Method::GET, "bypasses", None).await);
    let other = |binding: Option<&str>, tenant: Option<&str>| wire::ListObjectsRequest {
        binding: binding.map(str::to_owned),
        tenant: tenant.map(str::to_owned),
        ..wire::ListObjectsRequest::default()
    };
    for (binding, tenant, count) in [
        (Some("content-policy"), Some("acme"), 1),
        (Some("nobody"), None, 0),
        (None, Some("globex"), 0),
        (None, Some("acme"), 1),
    ] {
        let some = bypasses(&mut client, other(binding, tenant)).await;
        assert_eq!(some["bypasses"].as_array().map(Vec::len), Some(count), "{binding:?} {tenant:?}");
    }
    let of_file = wire::ListObjectsRequest { owner: 1, ..wire::ListObjectsRequest::default() };
    assert_eq!(bypasses(&mut client, of_file).await["errors"][0]["pointer"], "/owner");

    let back = wire::DeleteBypassRequest {
        binding: "content-policy".into(),
        tenant: "acme".into(),
        reason: "mended".into(),
        dry_run: false,
    };
    let done = client.delete_bypass(back).await.unwrap().into_inner().written.unwrap();
    assert_eq!((done.revision, done.changes[0].after.is_none()), (Some(3), true));
    assert_eq!(bypasses(&mut client, other(None, None)).await["bypasses"], json!([]));
}

#[tokio::test]
async fn a_reload_over_grpc_says_what_one_over_http_says() {
    let mut late = FakePlugin::named("late").start_unix().await;
    late.stop().await;
    let gateway = file_with("acme").start().await;
    let mut client = dial(&gateway, &administrator()).await;
    let request = || wire::ReloadRequest { reason: "just looking".into() };
    let same = client.reload(request()).await.unwrap().into_inner();
    assert_eq!((same.outcome(), same.revision), (ReloadOutcome::Unchanged, 1));
    let said = gateway.log().wait_for(|line| line.field("operation") == Some(&json!("reload"))).await;
    assert_eq!(said.field("reason"), Some(&json!("just looking")));

    std::fs::write(gateway.file(), file_with("globex").text()).expect("there is room");
    let taken = client.reload(request()).await.unwrap().into_inner();
    assert_eq!((taken.outcome(), taken.revision, taken.waiting_for), (ReloadOutcome::Applied, 2, None));
    assert_eq!(call(&gateway, "globex").await.status, 200);

    std::fs::write(gateway.file(), file_with("globex").set("/limits/budget", "soon").text())
        .expect("there is room");
    let refused = client.reload(request()).await;
    let operator = gateway.admin(&administrator());
    let over_http = of_http(ask(&operator, Method::POST, "reload", None).await);
    assert_eq!(over_http["code"], "CONFIG_INVALID", "{over_http}");
    assert_eq!(of_grpc(refused, |_| Value::Null), over_http);

    let wanted = file_with("globex").plugin(&late).binding("late", 20);
    std::fs::write(gateway.file(), wanted.text()).expect("there is room");
    let waiting = client.reload(request()).await.unwrap().into_inner();
    assert_eq!(waiting.outcome(), ReloadOutcome::Waiting);
    assert!(waiting.waiting_for.as_ref().is_some_and(|what| what.contains("late")), "{waiting:?}");
    let long = wire::ReloadRequest { reason: "x".repeat(501) };
    assert_eq!(place(&assert_code(client.reload(long).await, Code::PayloadInvalid)), "/reason");
}

#[tokio::test]
async fn a_plugin_described_again_over_grpc_is_shown_as_over_http() {
    let plugin = FakePlugin::named("guard").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin).binding("guard", 10).admin();
    let gateway = setup.start().await;
    let (operator, mut client) = (gateway.admin(&administrator()), dial(&gateway, &administrator()).await);
    let request = |name: &str| wire::DescribePluginRequest { name: name.into(), reason: "mended".into() };
    let endpoints = |said: &wire::DescribePluginResponse| -> Value {
        let one = |one: &wire::DescribedEndpoint| json!({ "address": one.address, "described": one.described, "detail": one.detail });
        said.endpoints.iter().map(one).collect()
    };
    for fails in [false, true] {
        if fails {
            plugin.set_describe(Handshake::Fails(Status::internal("not today")));
        }
        let before = plugin.counts().describes;
        let said = client.describe_plugin(request("guard")).await.unwrap().into_inner();
        assert!(plugin.counts().describes > before);
        assert_eq!(said.endpoints[0].described, !fails);
        let same = ask(&operator, Method::POST, "plugins/guard/describe", None).await.body;
        assert_eq!(endpoints(&said), same["endpoints"]);
        let shown = object(said.plugin.as_ref().expect("it is there"));
        for member in ["name", "owner", "version", "spec", "state", "manifest"] {
            assert_eq!(shown[member], same["plugin"][member], "{member}");
        }
    }
    for name in ["nobody", ""] {
        let over_grpc = of_grpc(client.describe_plugin(request(name)).await, |_| Value::Null);
        let path = format!("plugins/{name}/describe");
        assert_eq!(over_grpc, of_http(ask(&operator, Method::POST, &path, None).await), "{name}");
    }
}

#[tokio::test]
async fn a_drain_over_grpc_waits_for_the_call_in_flight_and_not_for_itself() {
    let (gate, plugin) = (Gate::closed(), FakePlugin::named("guard").start().await);
    // The call is held back for as long as the drain waits.
    let it = stored_as(file_with("acme").set("/limits/budget", "60s")).await;
    let mut client = dial(&it.gateway, &administrator()).await;
    let limits = json!({ "timeout": "60s" });
    let entry = json!({ "endpoint": plugin.endpoint(), "accepted": plugin.accepted(), "limits": limits });
    written(&put(&it.operator, "plugins/guard?expected_version=0", entry).await);
    let binding = json!({ "plugin": "guard", "tenant": "*", "priority": 20 });
    written(&put(&it.operator, "bindings/guard?expected_version=0", binding).await);
    let drain = |name: &str, timeout_ms: Option<u64>, expected_version: Option<u64>| {
        let reason = "new disk".to_owned();
        wire::DrainPluginRequest { name: name.into(), expected_version, timeout_ms, reason }
    };
    for (name, expected, path) in [
        ("content-policy", None, "plugins/content-policy/drain"),
        ("nobody", None, "plugins/nobody/drain"),
        ("guard", Some(1), "plugins/guard/drain?expected_version=1"),
    ] {
        let over_grpc = of_grpc(client.drain_plugin(drain(name, None, expected)).await, |_| Value::Null);
        assert_eq!(over_grpc, over_http(&it, Method::POST, path, None).await, "{path}");
    }
    let long = client.drain_plugin(drain("guard", Some(120_001), None)).await;
    assert_eq!(place(&assert_code(long, Code::PayloadInvalid)), "/timeout_ms");

    plugin.set(POINT, Act::pass().behind(&gate));
    let agent = it.gateway.http(&token("acme"));
    let calling = tokio::spawn(async move { agent.call(POINT, payload()).await });
    plugin.wait_until(|counts| counts.calls == 1).await;
    let held = client.drain_plugin(drain("guard", Some(3000), None)).await.unwrap().into_inner();
    assert_eq!((held.revision.is_some(), held.active, held.in_flight, held.drained), (true, true, 1, false));
    assert_eq!(plugin.counts().shutdowns, 0);
    gate.open();
    assert_eq!(calling.await.expect("it ends").status, 200);
    let done = client.drain_plugin(drain("guard", None, None)).await.unwrap().into_inner();
    let wanted = wire::DrainPluginResponse { revision: None, active: true, in_flight: 0, drained: true };
    assert_eq!(done, wanted);
    assert_eq!(plugin.counts().shutdowns, 1);
}

/// A test call over gRPC, in the form for HTTP.
fn trial(asked: &Value) -> wire::CallPluginRequest {
    let part = |name: &str| asked.get(name).map(text).unwrap_or_default();
    let point = ExtensionPoint::from_str_name(&format!(
        "EXTENSION_POINT_{}",
        asked["point"].as_str().unwrap_or_default().to_uppercase()
    ));
    wire::CallPluginRequest {
        name: "guard".into(),
        point: point.unwrap_or_default().into(),
        payload_json: part("payload"),
        context_json: part("context"),
        tenant: asked["tenant"].as_str().map(str::to_owned),
        tenant_config_json: part("tenant_config"),
        reason: "trying".into(),
    }
}

#[tokio::test]
async fn a_trial_over_grpc_says_at_every_point_what_one_over_http_says() {
    let schema = json!({ "properties": { "strict": { "type": "boolean" } }, "additionalProperties": false });
    let plugin = FakePlugin::named("guard").tenant_config_schema(schema).start().await;
    let members = json!({ "tenant": "acme", "config": { "strict": true } });
    let setup = Gateway::with().tenant("acme").admin().plugin_without_breaker(&plugin);
    let gateway = setup.binding_with("guard", 10, &members).start().await;
    let (operator, mut client) = (gateway.admin(&administrator()), dial(&gateway, &administrator()).await);
    let long = json!({ "tool_name": "fs.read", "args": { "n": 9_007_199_254_740_993_u64 } });
    let after = json!({ "tool_name": "fs.read", "args": {}, "result": { "text": "ok" }, "success": true });
    for (asked, verdict) in [
        (json!({ "point": "before_llm_request", "payload": { "text": "hello" } }), "continue"),
        (json!({ "point": "before_tool_call", "payload": long, "tenant": "acme" }), "continue"),
        (
            json!({ "point": "after_tool_result", "payload": after, "context": { "agent_id": "a" } }),
            "continue",
        ),
        (
            json!({ "point": "before_response", "payload": { "content": "bye" }, "tenant_config": { "strict": false } }),
            "cancel",
        ),
    ] {
        let point: ExtensionPoint = trial(&asked).point();
        if verdict == "cancel" {
            plugin.set(point, Act::cancel("NO_WAY", "not this one"));
        }
        let without = |mut result: Value| {
            for member in ["request_id", "duration_us"] {
                assert!(result.as_object_mut().expect("an object").remove(member).is_some(), "{result}");
            }
            result
        };
        let said = client.call_plugin(trial(&asked)).await;
        let said = said.unwrap_or_else(|status| panic!("{asked}: {status:?}")).into_inner();
        let over_grpc = plugin.seen().pop().expect("it was called");
        let same = ask(&operator, Method::POST, "plugins/guard/call", Some(&asked)).await;
        assert_eq!(same.status, 200, "{same:?}");
        let over_http = plugin.seen().pop().expect("it was called");
        let said = without(parsed(&said.result_json));
        assert_eq!((&said, &said["verdict"]), (&without(same.body), &json!(verdict)));
        assert_eq!(over_grpc.payload, over_http.payload, "to the byte");
        assert_eq!(over_grpc.call.tenant_config, over_http.call.tenant_config);
        assert_eq!(over_grpc.metadata.get("hookgate-test").map(String::as_str), Some("true"));
    }
}

#[tokio::test]
async fn a_trial_that_is_asked_wrongly_over_grpc_never_reaches_the_plugin() {
    let schema = json!({ "properties": { "strict": { "type": "boolean" } }, "additionalProperties": false });
    let plugin = FakePlugin::named("guard").tenant_config_schema(schema).start().await;
    let setup = Gateway::with().tenant("acme").admin().plugin(&plugin).binding("guard", 10);
    let gateway = setup.start().await;
    let (operator, mut client) = (gateway.admin(&administrator()), dial(&gateway, &administrator()).await);
    let with = |member: &str, value: Value| {
        let mut asked = json!({ "point": "before_tool_call", "payload": payload() });
        asked[member] = value;
        asked
    };
    for asked in [
        with("payload", json!({ "tool_name": 1, "args": null })),
        with("payload", json!({})),
        with("tenant", json!("*")),
        with("tenant", json!("nobody")),
        with("tenant_config", json!({ "strict": "hush" })),
        with("context", json!({ "labels": [] })),
        json!({ "point": "before_tool_call" }),
    ] {
        let over_grpc = of_grpc(client.call_plugin(trial(&asked)).await, |_| Value::Null);
        let same = of_http(ask(&operator, Method::POST, "plugins/guard/call", Some(&asked)).await);
        assert!(same["code"].is_string(), "{asked}: {same}");
        assert_eq!(over_grpc, same, "{asked}");
    }
    let good = trial(&with("tenant", json!("acme")));
    for (request, wrong) in [
        (wire::CallPluginRequest { point: 0, ..good.clone() }, "/point"),
        (wire::CallPluginRequest { point: 9, ..good.clone() }, "/point"),
        (
            wire::CallPluginRequest { payload_json: r#"{"args":{"a":1,"a":2}}"#.into(), ..good.clone() },
            "/payload/args/a",
        ),
        // Would become another member if it were pasted into JSON.
        (
            wire::CallPluginRequest { payload_json: r#"{},"tenant":"globex""#.into(), ..good.clone() },
            "/payload",
        ),
        (wire::CallPluginRequest { context_json: "[]".into(), ..good.clone() }, "/context"),
        (wire::CallPluginRequest { tenant_config_json: "[1]".into(), ..good.clone() }, "/tenant_config"),
        (wire::CallPluginRequest { payload_json: vec![0xff].into(), ..good.clone() }, "/payload"),
    ] {
        let refused = assert_code(client.call_plugin(request.clone()).await, Code::PayloadInvalid);
        assert_eq!(place(&refused), wrong, "{request:?}");
    }
    let large = json!({ "text": "x".repeat(5 << 20) });
    let large = wire::CallPluginRequest { payload_json: text(&large), ..good.clone() };
    assert_code(client.call_plugin(large).await, Code::PayloadTooLarge);
    // Larger than an object may be, and smaller than a call may be.
    let args = json!({ "tool_name": "fs.read", "args": { "text": "x".repeat(2 << 20) } });
    let fits = wire::CallPluginRequest { payload_json: text(&args), ..good.clone() };
    assert_eq!(plugin.counts().calls, 0);
    assert!(client.call_plugin(fits).await.is_ok());
    let nobody = wire::CallPluginRequest { name: "nobody".into(), ..good };
    assert_code(client.call_plugin(nobody).await, Code::NotFound);
    assert_eq!(plugin.counts().calls, 1);
}
