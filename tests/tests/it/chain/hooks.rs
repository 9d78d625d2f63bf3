//! Lifecycle hooks over real sockets: what agents get, and when plugins are called.

use std::time::Duration;

use hookgate::core::error::Code;
use hookgate_proto::{
    gateway::v1::{RunHookRequest, hook_service_client::HookServiceClient},
    plugin::v1::ChainResult,
    types::v1::{ExtensionPoint, NoticeKind},
};
use hookgate_sdk::{
    Context, HookOffer, HookPayload, HookReply, Host, InitError, NoConfig, Offer, Plugin, PluginError,
    Server,
    agent::{Agent, StepOutcome, Token},
    json as sdk_json,
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Act, FakePlugin, HOOKS, Payload, notice},
    gateway::{Gateway, Setup},
    token::token,
};
use http::Method;
use serde_json::{Value, json};
use tonic::Request;
use tonic_types::StatusExt as _;

use crate::edge::support::{assert_grpc_error, assert_http_error, send};

/// With a number that a JSON library may round.
const MEMORY: &str = r#"{"content":"Ada","id": 9007199254740993}"#;

async fn run(agent: &HttpAgent, hook: &str, request: &Value) -> HttpAnswer {
    let asked = agent.request(Method::POST, &format!("/v1/hooks/{hook}"));
    send(asked.header("content-type", "application/json").body(request.to_string())).await
}

async fn recall(gateway: &Gateway, tenant: &str) -> HttpAnswer {
    run(&gateway.http(&token(tenant)), "recall", &json!({ "body": { "message": "hi" } })).await
}

fn outcomes(answer: &HttpAnswer) -> Vec<(&str, &str)> {
    let steps = answer.body["steps"].as_array().expect("a list");
    steps.iter().filter_map(|step| Some((step["plugin"].as_str()?, step["outcome"].as_str()?))).collect()
}

fn values(answer: &HttpAnswer) -> Vec<&str> {
    let contributions = answer.body["contributions"].as_array().expect("a list");
    contributions.iter().map(|one| one["value"]["content"].as_str().unwrap_or_default()).collect()
}

/// A plugin that answers at `recall` only, like this.
async fn plugin(name: &str, act: Act) -> FakePlugin {
    FakePlugin::named(name).only(&[]).hooks(&["recall"]).at(HOOKS, act).start().await
}

fn memory(content: &str) -> Act {
    Act::contribute("memory", &json!({ "content": content }).to_string())
}

fn at_recall(mode: &str) -> Value {
    json!({ "hooks": ["recall"], "mode": mode })
}

#[tokio::test]
async fn an_agent_gets_contributions_in_priority_order_with_every_byte_of_their_values() {
    let slow = plugin("slow", memory("first").after(Duration::from_millis(100))).await;
    let remark = notice(NoticeKind::Info, "FOUND", "One is known.", &Value::Null);
    let quick = plugin("quick", Act::contribute("memory", MEMORY).with_notice(remark)).await;
    let silent = plugin("silent", Act::pass()).await;
    let watcher = plugin("watcher", memory("of an observer")).await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&slow)
        .plugin(&quick)
        .plugin(&silent)
        .plugin(&watcher)
        .binding_with("slow", 1, &json!({ "hooks": ["recall"] }))
        .binding_with("quick", 2, &at_recall("advise"))
        .binding_with("silent", 3, &at_recall("advise"))
        .binding_with("watcher", 4, &at_recall("observe"))
        .start()
        .await;
    let answer = recall(&gateway, "acme").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!(answer.header("hookgate-decision"), None, "a hook decides nothing");
    assert_eq!(values(&answer), ["first", "Ada"]);
    assert!(answer.text.contains(&format!("\"value\":{MEMORY}")), "{}", answer.text);
    let expected =
        [("slow", "contributed"), ("quick", "contributed"), ("silent", "continued"), ("watcher", "observed")];
    assert_eq!(outcomes(&answer), expected);
    assert_eq!(answer.body["notices"][0]["code"], json!("FOUND"));

    watcher.wait_until(|counts| counts.finished == 1).await;
    let [seen] = &watcher.seen()[..] else { panic!("one call") };
    assert_eq!(seen.call.chain_result, Some(ChainResult::default()), "nothing was decided");
    let Payload::Hook(payload) = &seen.payload else { panic!("{seen:?}") };
    assert_eq!((payload.hook.as_str(), &*payload.body), ("recall", &br#"{"message":"hi"}"#[..]));
    assert_eq!(seen.call.context.as_ref().map(|caller| caller.tenant.as_str()), Some("acme"));
}

#[tokio::test]
async fn a_hook_is_answered_over_grpc_as_over_http() {
    let plugin = plugin("memory", Act::contribute("memory", MEMORY)).await;
    let gateway = Gateway::with().tenant("acme").plugin(&plugin);
    let gateway = gateway.binding_with("memory", 1, &at_recall("advise")).start().await;
    let mut client = HookServiceClient::new(gateway.grpc_without_token().await.channel);
    let answer = client.run_hook(asked("recall", r#"{"message":"hi"}"#)).await.expect("it is answered");
    let answer = answer.into_inner();
    let [contribution] = &answer.contributions[..] else { panic!("{answer:?}") };
    assert_eq!((contribution.plugin.as_deref(), &*contribution.value), (Some("memory"), MEMORY.as_bytes()));
    assert_eq!(answer.steps[0].outcome(), StepOutcome::Contributed);
    let over_http = recall(&gateway, "acme").await;
    assert_eq!(over_http.body["plan_digest"], json!(answer.plan_digest));

    let refused = client.run_hook(asked("recall", "{}")).await.expect_err("no message");
    assert_grpc_error(&refused, Code::PayloadInvalid);
    let refused = client.run_hook(asked("Recall", "{}")).await.expect_err("no name of a hook");
    assert_grpc_error(&refused, Code::PayloadInvalid);
    let refused = client.run_hook(asked("before_response", "{}")).await.expect_err("a point");
    assert_grpc_error(&refused, Code::PayloadInvalid);
}

#[tokio::test]
async fn a_hook_without_a_binding_is_answered_with_nothing() {
    let plugin = plugin("memory", memory("x")).await;
    let gateway = Gateway::with().tenant("acme").tenant("globex").plugin(&plugin);
    let binding = json!({ "hooks": ["recall"], "tenant": "acme" });
    let gateway = gateway.binding_with("memory", 1, &binding).start().await;
    let elsewhere = run(&gateway.http(&token("acme")), "my_own_hook", &json!({ "body": { "any": 1 } })).await;
    let other_tenant = recall(&gateway, "globex").await;
    for answer in [elsewhere, other_tenant] {
        assert_eq!((answer.status, &answer.body["contributions"]), (200, &json!([])), "{answer:?}");
        assert_eq!(answer.body["steps"], json!([]));
    }
    assert_eq!(plugin.counts().calls, 0);
    assert_eq!(values(&recall(&gateway, "acme").await), ["x"]);
}

#[tokio::test]
async fn a_plugin_at_a_hook_is_not_called_at_points_and_the_other_way_round() {
    let both = FakePlugin::named("both").hooks(&["recall"]).start().await;
    let setup = Gateway::with().tenant("acme").plugin(&both);
    let at_hooks = setup.binding_with("both", 1, &json!({ "hooks": ["recall"] })).start().await;
    let agent = at_hooks.http(&token("acme"));
    let answer = agent.call(ExtensionPoint::BeforeResponse, json!({ "content": "x" })).await;
    assert_eq!((answer.status, &answer.body["steps"]), (200, &json!([])));
    let setup = Gateway::with().tenant("acme").plugin(&both);
    let at_points = setup.binding("both", 1).start().await;
    assert_eq!(recall(&at_points, "acme").await.body["steps"], json!([]));
    assert_eq!(both.counts().calls, 0);
}

#[tokio::test]
async fn what_an_agent_sends_wrongly_is_named_with_its_place() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let agent = gateway.http(&token("acme"));
    let valid = json!({ "message": "hi" });
    for (hook, request, pointer) in [
        ("recall", json!({}), "/body"),
        ("recall", json!({ "body": null }), "/body"),
        ("recall", json!({ "body": [valid] }), "/body"),
        ("recall", json!({ "body": { "text": "hi" } }), "/body/message"),
        ("recall", json!({ "body": { "message": 1 } }), "/body/message"),
        ("recall", json!({ "body": valid, "hook": "recall" }), "/hook"),
        ("recall", json!({ "body": valid, "trace": true }), "/trace"),
        ("recall", json!({ "body": valid, "context": { "tenant": "x" } }), "/context/tenant"),
        ("Recall", json!({ "body": valid }), "/hook"),
        ("before_tool_call", json!({ "body": valid }), "/hook"),
        ("%72ecall", json!({ "body": valid }), "/hook"),
    ] {
        let answer = run(&agent, hook, &request).await;
        assert_http_error(&answer, Code::PayloadInvalid);
        assert_eq!(answer.body["errors"][0]["pointer"], json!(pointer), "{hook} {request}: {}", answer.text);
    }
    let got = agent.get("/v1/hooks/recall").await.expect("an answer");
    assert_http_error(&got, Code::MethodNotAllowed);
    let answer = run(&agent, "recall/more", &json!({ "body": valid })).await;
    assert_http_error(&answer, Code::NotFound);
    let answer = run(&gateway.http_without_token(), "recall", &json!({ "body": valid })).await;
    assert_http_error(&answer, Code::TokenMissing);
}

/// The failures of a plugin at a hook: the plugin's reaction, the step's reason, and the error where the binding has
/// `on_error: fail`.
fn failures() -> [(Act, &'static str, Code); 6] {
    let many = (0..65).fold(Act::pass(), |act, _| act.with_contribution("memory", r#"{"content":"x"}"#));
    [
        (Act::hang(), "timeout", Code::PluginTimeout),
        (Act::status(tonic::Code::Internal, "no"), "rpc_error", Code::PluginError),
        (Act::contribute("memory", "{"), "bad_reply", Code::PluginBadReply),
        (Act::contribute("memory", r#"{"text":"x"}"#), "bad_reply", Code::PluginBadReply),
        (Act::contribute("messages", "[]"), "bad_reply", Code::PluginBadReply),
        (many, "bad_reply", Code::PluginBadReply),
    ]
}

/// A gateway with `fails` between two plugins that contribute.
async fn around(fails: &FakePlugin, members: &Value) -> (Gateway, [FakePlugin; 2]) {
    let (first, last) = (plugin("first", memory("first")).await, plugin("last", memory("last")).await);
    let setup: Setup = Gateway::with()
        .tenant("acme")
        .plugin(&first)
        .plugin_without_breaker(fails)
        .plugin(&last)
        .binding_with("first", 1, &at_recall("advise"))
        .binding_with("fails", 2, members)
        .binding_with("last", 3, &at_recall("advise"));
    (setup.start().await, [first, last])
}

#[tokio::test]
async fn a_failed_plugin_is_skipped_with_a_notice_and_the_others_contribute() {
    let fails = plugin("fails", Act::pass()).await;
    let (gateway, _others) = around(&fails, &json!({ "hooks": ["recall"], "timeout": "100ms" })).await;
    for (act, reason, _) in failures() {
        fails.set(HOOKS, act);
        let answer = recall(&gateway, "acme").await;
        assert_eq!((answer.status, values(&answer)), (200, vec!["first", "last"]), "{answer:?}");
        let step = &answer.body["steps"][1];
        assert_eq!((&step["outcome"], &step["reason"]), (&json!("failed_open"), &json!(reason)));
        assert_eq!(answer.body["notices"][0]["plugin"], json!("fails"), "{reason}");
    }
}

#[tokio::test]
async fn a_failed_plugin_ends_a_hook_where_its_binding_says_so() {
    let fails = plugin("fails", Act::pass()).await;
    let members = json!({ "hooks": ["recall"], "on_error": "fail", "timeout": "100ms" });
    let (gateway, _others) = around(&fails, &members).await;
    for (act, reason, code) in failures() {
        fails.set(HOOKS, act);
        let answer = recall(&gateway, "acme").await;
        assert_http_error(&answer, code);
        let body = &answer.body;
        assert_eq!((&body["hook"], &body["plugin"]), (&json!("recall"), &json!("fails")), "{body}");
        assert_eq!((&body["reason"], body.get("point")), (&json!(reason), None));
    }
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("hook.error"))).await;
    assert_eq!((line.field("hook"), line.field("point")), (Some(&json!("recall")), None));
}

#[tokio::test]
async fn a_failed_observer_changes_no_answer_and_leaves_a_line() {
    let fails = plugin("fails", Act::status(tonic::Code::Internal, "no")).await;
    let (gateway, _others) = around(&fails, &at_recall("observe")).await;
    let answer = recall(&gateway, "acme").await;
    assert_eq!((answer.status, values(&answer)), (200, vec!["first", "last"]));
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("step.failed"))).await;
    assert_eq!((line.field("hook"), line.field("plugin")), (Some(&json!("recall")), Some(&json!("fails"))));
}

#[tokio::test]
async fn a_plugin_that_is_away_or_does_not_offer_the_hook_is_skipped() {
    let other = FakePlugin::named("fails").hooks(&["turn_end"]).start().await;
    let (gateway, _others) = around(&other, &at_recall("advise")).await;
    let answer = recall(&gateway, "acme").await;
    assert_eq!(values(&answer), ["first", "last"]);
    assert_eq!(answer.body["steps"][1]["reason"], json!("point_not_offered"), "{answer:?}");

    let mut away = plugin("fails", Act::pass()).await;
    let (gateway, _others) = around(&away, &at_recall("advise")).await;
    away.stop().await;
    let answer = recall(&gateway, "acme").await;
    assert_eq!(values(&answer), ["first", "last"]);
    assert_eq!(answer.body["steps"][1]["outcome"], json!("failed_open"));
}

#[tokio::test]
async fn conditions_and_the_expected_plan_hold_at_hooks() {
    let plugin = plugin("memory", memory("x")).await;
    let members =
        json!({ "hooks": ["recall"], "match": { "agents": ["coder*"], "labels": { "tier": ["gold"] } } });
    let setup = ready(Gateway::with().tenant("acme"), &plugin);
    let gateway = setup.binding_with("memory", 1, &members).start().await;
    let agent = gateway.http(&token("acme"));
    let of = |agent_id: &str, tier: &str| json!({ "body": { "message": "hi" }, "context": { "agent_id": agent_id, "labels": { "tier": tier } } });
    let met = run(&agent, "recall", &of("coder-1", "gold")).await;
    assert_eq!(values(&met), ["x"]);
    let other = run(&agent, "recall", &of("writer", "gold")).await;
    assert_eq!(outcomes(&other), [("memory", "skipped_condition")]);

    let mut expecting = of("coder-1", "gold");
    expecting["expect_plan_digest"] = met.body["plan_digest"].clone();
    assert_eq!(run(&agent, "recall", &expecting).await.status, 200);
    expecting["expect_plan_digest"] = json!("0".repeat(64));
    assert_http_error(&run(&agent, "recall", &expecting).await, Code::PlanChanged);
}

/// With the plugin required, so that the gateway serves only once it is ready.
fn ready(setup: Setup, plugin: &FakePlugin) -> Setup {
    setup.plugin_with(plugin, &json!({ "required": true }))
}

#[tokio::test]
async fn an_answer_with_little_detail_names_no_plugin() {
    let plugin = plugin("memory", memory("x")).await;
    let setup = Gateway::with().tenant_with("acme", &json!({ "answer": { "detail": "minimal" } }));
    let gateway = ready(setup, &plugin).binding_with("memory", 1, &at_recall("advise")).start().await;
    let answer = recall(&gateway, "acme").await;
    assert_eq!(answer.body["contributions"], json!([{ "kind": "memory", "value": { "content": "x" } }]));
    assert!(!answer.text.contains("\"plugin\"") && answer.body["steps"] == json!([]), "{}", answer.text);
}

/// A plugin with the SDK that remembers one thing.
struct Remembers;

impl Plugin for Remembers {
    const NAME: &'static str = "remembers";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        Vec::new()
    }

    fn hooks() -> Vec<HookOffer> {
        vec![HookOffer::new("recall"), HookOffer::new("turn_end").with_side_effects()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Remembers)
    }

    async fn on_hook(
        &self,
        ctx: &Context,
        _: &NoConfig,
        payload: HookPayload,
    ) -> Result<HookReply, PluginError> {
        let body: Value = sdk_json::parse(&payload.body)?;
        let content = format!("{} asked {}", ctx.caller().tenant, body["message"]);
        HookReply::none().contribute("memory", &json!({ "content": content }))
    }
}

#[tokio::test]
async fn a_plugin_and_an_agent_of_the_sdk_meet_at_a_hook() {
    let server = Server::bind("http://127.0.0.1:0").await.expect("a port is free").with_plugin::<Remembers>();
    // Required, so that the gateway serves only once the plugin is ready.
    let plugin = json!({ "name": "remembers", "endpoint": server.address().to_string(), "required": true });
    let serving = tokio::spawn(server.run(std::future::pending()));
    let setup = Gateway::with().tenant("acme").set("/plugins", json!([plugin]));
    let gateway =
        setup.binding_with("remembers", 1, &json!({ "hooks": ["recall", "turn_end"] })).start().await;

    let answer =
        agent(&gateway).run_hook("recall", &json!({ "message": "why" })).await.expect("it is answered");
    let contribution = answer.first("memory").unwrap_or_else(|| panic!("no memory: {answer:?}"));
    let contribution: Value = contribution.parse().expect("JSON");
    assert_eq!(contribution, json!({ "content": "acme asked \"why\"" }));
    assert_eq!(answer.answered.steps[0].outcome(), StepOutcome::Contributed);
    serving.abort();
}

#[tokio::test]
async fn an_error_over_grpc_names_the_hook() {
    let fails = plugin("fails", Act::status(tonic::Code::Internal, "no")).await;
    let members = json!({ "hooks": ["recall"], "on_error": "fail" });
    let (gateway, _others) = around(&fails, &members).await;
    let refused =
        agent(&gateway).run_hook("recall", &json!({ "message": "hi" })).await.expect_err("it failed");
    assert_eq!((refused.hook.as_str(), refused.error.code.as_deref()), ("recall", Some("PLUGIN_ERROR")));
    let mut client = HookServiceClient::new(gateway.grpc_without_token().await.channel);
    let refused = client.run_hook(asked("recall", r#"{"message":"hi"}"#)).await.expect_err("it failed");
    let info = refused.get_details_error_info().expect("every error has it");
    assert_eq!((info.metadata["hook"].as_str(), info.metadata.get("point")), ("recall", None));
}

fn agent(gateway: &Gateway) -> Agent {
    let token = Token::fixed(&token("acme")).expect("a token is ASCII");
    Agent::new(&format!("http://{}", gateway.data_addr()), token).expect("it is a URL")
}

/// A call of a hook over gRPC.
fn asked(hook: &str, body: &'static str) -> Request<RunHookRequest> {
    let message = RunHookRequest { hook: hook.into(), body: body.into(), ..RunHookRequest::default() };
    let mut request = Request::new(message);
    let bearer = format!("Bearer {}", token("acme")).parse().expect("ASCII");
    request.metadata_mut().insert("authorization", bearer);
    request
}
