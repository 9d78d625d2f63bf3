//! Tests errors that are caused by a step of the chain: they name the plugin, binding, point and reason,
//! and report the steps so far. Over both transports, and not with `answer.detail: minimal`.

use std::{collections::HashMap, time::Duration};

use hookgate::core::error::Code;
use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, ChainReport, RequestContext, Step, StepOutcome},
    types::v1::BeforeToolCallPatch,
};
use hookgate_sdk::{
    Point,
    agent::{Agent, AgentError, Token},
};
use hookgate_tests::{
    agent::{HttpAnswer, chain_report},
    fake::{Act, FakePlugin, Seen},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

use crate::edge::support::{
    METHOD, POINT, assert_grpc_error, assert_http_error, frame, good_request, grpc_request, payload, request,
    send, send_grpc,
};

/// The members that an error has only if a step caused it.
const MEMBERS: [&str; 5] = ["plugin", "binding", "point", "reason", "steps"];

/// The session id says what the plugin does; without one it continues.
fn by_session(seen: &Seen) -> Act {
    match seen.call.context.as_ref().and_then(|context| context.session_id.as_deref()) {
        Some("error") => Act::status(tonic::Code::PermissionDenied, "no"),
        Some("unavailable") => Act::status(tonic::Code::Unavailable, "no"),
        Some("reply") => Act::no_verdict(),
        Some("hang") => Act::hang(),
        _ => Act::pass(),
    }
}

/// Five steps: one changes the payload, one would block, one fails and is skipped, one does what the
/// session id says, and one observes.
async fn setup(timeout: &str) -> (Vec<FakePlugin>, Setup) {
    let changes = BeforeToolCallPatch { extra: Some(r#"{"k":1}"#.into()), ..Default::default() };
    let plugins = [
        FakePlugin::named("changes").at(POINT, Act::patch(changes)),
        FakePlugin::named("advises").at(POINT, Act::cancel("TOO_DEAR", "no")),
        FakePlugin::named("skipped").at(POINT, Act::status(tonic::Code::Internal, "no")),
        FakePlugin::named("fails").at_with(POINT, by_session),
        FakePlugin::named("watches").at(POINT, Act::cancel("SEEN", "no")),
    ];
    let members = [
        json!({}),
        json!({ "mode": "advise" }),
        json!({ "on_error": "skip", "mode": "enforce" }),
        json!({ "timeout": timeout }),
        json!({ "mode": "observe" }),
    ];
    let quiet = json!({ "answer": { "detail": "minimal" } });
    let mut setup = Gateway::with().tenant("acme").tenant_with("quiet", &quiet);
    let mut started = Vec::new();
    for (place, (plugin, mut members)) in plugins.into_iter().zip(members).enumerate() {
        let plugin = plugin.start().await;
        members["name"] = json!(format!("{}-rule", plugin.name()));
        let priority = i64::try_from(place).unwrap();
        // A start waits for plugins that may be skipped only if they are required.
        let entry = json!({ "required": true, "breaker": { "failures": 1_000_000 } });
        setup = setup.plugin_with(&plugin, &entry).binding_with(plugin.name(), priority, &members);
        started.push(plugin);
    }
    (started, setup)
}

async fn over_http(gateway: &Gateway, tenant: &str, session: &str, millis: &str) -> HttpAnswer {
    let body = json!({ "payload": payload(), "context": { "session_id": session }, "trace": true });
    let request = good_request(&gateway.http(&token(tenant))).header("hookgate-timeout-ms", millis);
    send(request.body(body.to_string())).await
}

async fn over_grpc(gateway: &Gateway, tenant: &str, session: &str, millis: &str) -> Status {
    let context = RequestContext { session_id: Some(session.into()), ..Default::default() };
    let message = BeforeToolCallRequest { context: Some(context), trace: true, ..request() };
    let mut message = Request::new(message);
    message.metadata_mut().insert("hookgate-timeout-ms", millis.parse().unwrap());
    gateway.grpc(&token(tenant)).await.client.before_tool_call(message).await.expect_err("it fails")
}

/// The expected steps of [`setup`] over both transports, without durations.
fn expected_steps(reason: &str) -> Value {
    json!([
        { "plugin": "changes", "binding": "changes-rule", "outcome": "modified" },
        { "plugin": "advises", "binding": "advises-rule", "outcome": "would_block", "code": "TOO_DEAR" },
        { "plugin": "skipped", "binding": "skipped-rule", "outcome": "failed_open", "reason": "rpc_error" },
        { "plugin": "fails", "binding": "fails-rule", "outcome": "failed", "reason": reason },
        { "plugin": "watches", "binding": "watches-rule", "outcome": "observed" },
    ])
}

/// The steps of an HTTP answer without their durations, after checking that called steps have one.
fn without_durations(steps: &Value) -> Value {
    let mut steps = steps.clone();
    for step in steps.as_array_mut().expect("there are steps") {
        let micros = step.as_object_mut().unwrap().remove("duration_us").expect("each step has one");
        assert_eq!(micros.as_u64() > Some(0), step["outcome"] != json!("observed"), "{step}");
    }
    steps
}

/// The same for a gRPC status.
fn of_report(report: &ChainReport) -> Value {
    let name = |name: &str, prefix: &str| name.trim_start_matches(prefix).to_lowercase();
    let step = |step: &Step| {
        let mut members = json!({
            "plugin": step.plugin,
            "binding": step.binding,
            "outcome": name(step.outcome().as_str_name(), "STEP_OUTCOME_"),
            "duration_us": step.duration_us,
        });
        if step.reason != 0 {
            members["reason"] = json!(name(step.reason().as_str_name(), "STEP_REASON_"));
        }
        if let Some(code) = &step.code {
            members["code"] = json!(code);
        }
        assert!(step.changes.is_empty(), "headers have no room for payloads: {step:?}");
        members
    };
    without_durations(&report.steps.iter().map(step).collect())
}

/// Checks over both transports that the step `fails` ended the chain with `code`, because of `reason`.
async fn assert_told(gateway: &Gateway, session: &str, millis: &str, code: Code, reason: &str) {
    let answer = over_http(gateway, "acme", session, millis).await;
    assert_http_error(&answer, code);
    let told = MEMBERS[..4].iter().map(|member| answer.body[member].as_str()).collect::<Vec<_>>();
    let expected = ["fails", "fails-rule", "before_tool_call", reason].map(Some);
    assert_eq!(told, expected, "{answer:?}");
    assert_eq!(without_durations(&answer.body["steps"]), expected_steps(reason), "{answer:?}");

    let status = over_grpc(gateway, "acme", session, millis).await;
    assert_grpc_error(&status, code);
    let metadata = status.get_details_error_info().unwrap().metadata;
    let keys = ["plugin", "binding", "point", "step_reason"].into_iter().zip(expected.into_iter().flatten());
    let expected: HashMap<_, _> = keys.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert_eq!(metadata, expected, "{status:?}");
    let report = chain_report(&status).expect("a step led to it");
    assert_eq!((of_report(&report), report.omitted_steps), (expected_steps(reason), 0), "{status:?}");
}

#[tokio::test]
async fn an_error_says_which_step_failed_and_what_the_steps_did_until_then() {
    let (mut plugins, setup) = setup("30s").await;
    let gateway = setup.start().await;
    for (session, code, reason) in [
        ("error", Code::PluginError, "rpc_error"),
        ("unavailable", Code::PluginUnavailable, "rpc_error"),
        ("reply", Code::PluginBadReply, "bad_reply"),
    ] {
        assert_told(&gateway, session, "30000", code, reason).await;
    }
    // Its own timeout is far longer than the caller's.
    assert_told(&gateway, "hang", "4000", Code::BudgetExhausted, "budget").await;
    plugins[3].stop().await;
    assert_told(&gateway, "pass", "30000", Code::PluginUnavailable, "unreachable").await;
}

#[tokio::test]
async fn a_step_that_took_too_long_is_told_as_one() {
    let (_plugins, setup) = setup("1s").await;
    let gateway = setup.start().await;
    assert_told(&gateway, "hang", "30000", Code::PluginTimeout, "timeout").await;
}

#[tokio::test]
async fn with_less_detail_an_error_names_no_plugin_and_has_no_steps() {
    let (_plugins, setup) = setup("30s").await;
    let gateway = setup.start().await;
    for (session, millis, code) in
        [("error", "30000", Code::PluginError), ("hang", "4000", Code::BudgetExhausted)]
    {
        let answer = over_http(&gateway, "quiet", session, millis).await;
        assert_http_error(&answer, code);
        assert!(MEMBERS.iter().all(|member| answer.body.get(member).is_none()), "{answer:?}");
        let status = over_grpc(&gateway, "quiet", session, millis).await;
        assert_grpc_error(&status, code);
        assert_eq!(status.get_details_error_info().unwrap().metadata, HashMap::new(), "{status:?}");
        assert_eq!(chain_report(&status), None, "{status:?}");
        let all = format!("{:?} {} {status:?}", answer.headers, answer.text);
        let all = all + &String::from_utf8_lossy(status.details());
        for secret in ["fails", "-rule", "rpc_error", "TOO_DEAR"] {
            assert!(!all.contains(secret), "{secret}: {all}");
        }
    }
}

#[tokio::test]
async fn an_error_that_no_step_led_to_has_none() {
    let (_plugins, setup) = setup("30s").await;
    let gateway = setup.start().await;
    let answer = gateway.http(&token("acme")).call(POINT, json!({ "args": {} })).await;
    assert_http_error(&answer, Code::PayloadInvalid);
    assert!(MEMBERS.iter().all(|member| answer.body.get(member).is_none()), "{answer:?}");
    let mut client = gateway.grpc(&token("acme")).await.client;
    let message = BeforeToolCallRequest { expect_plan_digest: Some("0".repeat(64)), ..request() };
    let status = client.before_tool_call(message).await.expect_err("it is another chain");
    assert_grpc_error(&status, Code::PlanChanged);
    assert_eq!(status.get_details_error_info().unwrap().metadata, HashMap::new(), "{status:?}");
    assert_eq!(chain_report(&status), None, "{status:?}");
}

#[tokio::test]
async fn the_rust_client_gives_the_failed_step_and_the_steps_until_then() {
    let (plugins, setup) = setup("30s").await;
    let gateway = setup.start().await;
    plugins[3].set(POINT, Act::no_verdict());
    let outage = async |tenant: &str| {
        let address = format!("http://{}", gateway.data_addr());
        let agent = Agent::new(&address, Token::fixed(&token(tenant)).unwrap()).unwrap();
        match agent.with_timeout(Duration::from_secs(30)).before_tool_call(request().payload.unwrap()).await {
            Err(AgentError::NoDecision(outage)) => (outage.point, outage.error),
            other => panic!("{other:?}"),
        }
    };
    let (point, told) = outage("acme").await;
    assert_eq!((point, told.code.as_deref()), (Point::BeforeToolCall, Some("PLUGIN_BAD_REPLY")));
    let named = (told.plugin.as_deref(), told.binding.as_deref(), told.reason.as_deref());
    assert_eq!(named, (Some("fails"), Some("fails-rule"), Some("bad_reply")));
    let report = ChainReport { steps: told.steps, omitted_steps: told.omitted_steps };
    assert_eq!((of_report(&report), report.omitted_steps), (expected_steps("bad_reply"), 0));

    let (_, told) = outage("quiet").await;
    assert_eq!((told.plugin, told.binding, told.reason), (None, None, None));
    assert_eq!((told.steps, told.code.as_deref()), (Vec::new(), Some("PLUGIN_BAD_REPLY")));
}

#[tokio::test]
async fn a_step_that_would_block_says_with_which_code() {
    let (_plugins, setup) = setup("30s").await;
    let gateway = setup.start().await;
    let mut expected = expected_steps("");
    expected[3] = json!({ "plugin": "fails", "binding": "fails-rule", "outcome": "continued" });
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_eq!((answer.status, without_durations(&answer.body["steps"])), (200, expected), "{answer:?}");
    let steps = gateway.grpc(&token("acme")).await.client.before_tool_call(request()).await;
    let steps = steps.expect("it continues").into_inner().steps;
    let codes: Vec<_> = steps.iter().map(|step| (step.outcome(), step.code.as_deref())).collect();
    let expected = [
        (StepOutcome::Modified, None),
        (StepOutcome::WouldBlock, Some("TOO_DEAR")),
        (StepOutcome::FailedOpen, None),
        (StepOutcome::Continued, None),
        (StepOutcome::Observed, None),
    ];
    assert_eq!(codes, expected);
}

/// gRPC clients accept 8 KiB of headers by default, and an error consists of headers only.
#[tokio::test]
async fn a_long_chain_leaves_steps_out_of_a_grpc_error_and_counts_them() {
    const STEPS: usize = 150;
    let name = format!("long-{}", "x".repeat(59));
    let script = |seen: &Seen| match &*seen.call.tenant_config {
        br#"{"fail":true}"# => Act::status(tonic::Code::Internal, &"ü".repeat(2000)),
        _ => Act::pass(),
    };
    let plugin = FakePlugin::named(&name).at_with(POINT, script).start().await;
    let mut setup = Gateway::with().tenant("acme").plugin_without_breaker(&plugin);
    for place in 1..=STEPS {
        let mut members = json!({ "name": format!("rule-{place:03}-{}", "y".repeat(55)) });
        if place == STEPS {
            members["tenant"] = json!("acme");
            members["config"] = json!({ "fail": true });
        }
        setup = setup.binding_with(&name, i64::try_from(place).unwrap(), &members);
    }
    let gateway = setup.start().await;
    let answer = gateway.http(&token("acme")).call(POINT, payload()).await;
    assert_http_error(&answer, Code::PluginError);
    assert_eq!(answer.body["steps"].as_array().map(Vec::len), Some(STEPS), "over HTTP nothing is left out");

    let call = grpc_request(gateway.data_addr(), METHOD, &token("acme"), frame(&request()));
    let answer = send_grpc(call).await;
    let size: usize = answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
    assert!(size < 7 << 10, "{size} bytes of headers");
    let status = answer.status();
    assert_grpc_error(&status, Code::PluginError);
    let report = chain_report(&status).expect("a step led to it");
    let last = report.steps.last().expect("the nearest steps are kept");
    assert_eq!(last.outcome(), StepOutcome::Failed, "{report:?}");
    assert!(report.steps.len() >= 8, "{report:?}");
    assert_eq!(report.steps.len() + usize::try_from(report.omitted_steps).unwrap(), STEPS);
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["binding"], last.binding);
}
