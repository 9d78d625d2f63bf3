//! A plugin gives a tool's result instead of the tool.

use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, StepOutcome},
    plugin::v1::Access,
    types::v1::{Decision, ExtensionPoint},
};
use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host, InitError, NoConfig, Offer, Plugin,
    Point, Reply,
    agent::{Agent, AgentError, Token, ToolCallDecision},
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer, path},
    fake::{Act, FakePlugin},
    gateway::Gateway,
    token::token,
};
use serde_json::{Value, json};

use crate::edge::support::{gateway_with, payload, request, send};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
/// With a number that a JSON library may round.
const RESULT: &str = r#"{"id": 9007199254740993, "rate": 1.0}"#;

async fn call(agent: &HttpAgent, point: ExtensionPoint, body: &Value) -> HttpAnswer {
    let request = agent.request(http::Method::POST, path(point));
    send(request.header("content-type", "application/json").body(body.to_string())).await
}

async fn taking(agent: &HttpAgent) -> HttpAnswer {
    call(agent, POINT, &json!({ "payload": payload(), "takes_results": true })).await
}

/// A gateway with `cache`, which acts so, between two others.
async fn gateway(cache: &FakePlugin, mode: &str) -> (Gateway, [FakePlugin; 2]) {
    let (first, last) = (FakePlugin::named("first").start().await, FakePlugin::named("last").start().await);
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&first)
        .plugin(cache)
        .plugin(&last)
        .binding("first", 1)
        .binding_with("cache", 2, &json!({ "mode": mode }))
        .binding("last", 3)
        .start()
        .await;
    (gateway, [first, last])
}

#[tokio::test]
async fn an_agent_that_takes_results_gets_the_bytes_and_the_chain_ends() {
    let patch = BeforeToolCallPatch { args: Some(r#"{"seen":1}"#.into()), ..BeforeToolCallPatch::default() };
    let act = Act::cancel("CACHED", "From the cache.").with_result(RESULT).with_patch(patch);
    let cache = FakePlugin::named("cache").at(POINT, act).start().await;
    let (gateway, [_first, last]) = gateway(&cache, "enforce").await;
    let answer = taking(&gateway.http(&token("acme"))).await;
    assert_eq!((answer.status, answer.header("hookgate-decision")), (200, Some("answer")), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.text.contains(&format!("\"result\":{RESULT}")), "{}", answer.text);
    let outcomes: Vec<_> = answer.body["steps"].as_array().expect("a list").iter().collect();
    let outcomes: Vec<_> = outcomes.iter().map(|step| &step["outcome"]).collect();
    assert_eq!(outcomes, ["continued", "answered"]);
    assert!(answer.body["block"].is_null());
    assert_eq!(
        (&answer.body["modified"], &answer.body["payload"]["args"]),
        (&json!(true), &json!({ "seen": 1 }))
    );

    let mut grpc = gateway.grpc(&token("acme")).await;
    let asked = BeforeToolCallRequest { takes_results: true, ..request() };
    let answer = grpc.client.before_tool_call(asked).await.expect("a result is a decision").into_inner();
    assert_eq!((answer.decision(), &*answer.result), (Decision::Answer, RESULT.as_bytes()));
    assert_eq!(answer.steps.last().expect("two").outcome(), StepOutcome::Answered);
    let answer = grpc.client.before_tool_call(request()).await.expect("a block is a decision").into_inner();
    assert_eq!((answer.decision(), answer.result.is_empty()), (Decision::Block, true));
    assert_eq!(answer.block.expect("a block says why").code, "TOOL_ANSWERED");
    assert_eq!(last.counts().calls, 0, "the chain ended before it");

    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("decision.answer"))).await;
    assert_eq!((line.field("plugin"), line.field("status")), (Some(&json!("cache")), Some(&json!(200))));
}

#[tokio::test]
async fn an_agent_that_takes_none_is_blocked_and_never_runs_the_tool() {
    for (message, expected) in [
        ("From the cache.", "From the cache."),
        ("", "A plugin gave the tool's result, and the agent takes none"),
    ] {
        let act = Act::cancel("CACHED", message).with_result("null");
        let cache = FakePlugin::named("cache").at(POINT, act).start().await;
        let (gateway, _others) = gateway(&cache, "enforce").await;
        let agent = gateway.http(&token("acme"));
        let answer = agent.call(POINT, payload()).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        let block = &answer.body["block"];
        assert_eq!(
            (&block["code"], &block["message"], &block["scope"]),
            (&json!("TOOL_ANSWERED"), &json!(expected), &json!("step"))
        );
        assert!(answer.body.get("result").is_none());
        // `null` is a result.
        assert!(taking(&agent).await.text.contains("\"result\":null"));
    }
}

#[tokio::test]
async fn an_advising_plugin_gives_no_result() {
    let act = Act::cancel("", "").with_result(RESULT);
    let cache = FakePlugin::named("cache").at(POINT, act).start().await;
    let (gateway, [_first, last]) = gateway(&cache, "advise").await;
    let answer = taking(&gateway.http(&token("acme"))).await;
    assert_eq!((answer.status, &answer.body["decision"]), (200, &json!("continue")));
    let step = &answer.body["steps"][1];
    assert_eq!((&step["outcome"], &step["code"]), (&json!("would_block"), &json!("TOOL_ANSWERED")));
    assert_eq!(last.counts().calls, 1);
}

#[tokio::test]
async fn what_is_no_result_is_a_block_with_the_plugins_own_code() {
    let deep = "[".repeat(65) + &"]".repeat(65);
    let large = format!("\"{}\"", "x".repeat(4 << 20));
    for result in ["{", "1 2", "\"\u{0}\"", &deep, &large] {
        let act = Act::cancel("CACHED", "m").with_result(result);
        let cache = FakePlugin::named("cache").at(POINT, act).start().await;
        let (gateway, _others) = gateway(&cache, "enforce").await;
        let answer = taking(&gateway.http(&token("acme"))).await;
        assert_eq!((answer.status, &answer.body["block"]["code"]), (403, &json!("CACHED")), "{result:.40}");
    }
    // Content for the model is for plugins that may change it.
    let act = Act::cancel("CACHED", "m").with_result(RESULT);
    let cache = FakePlugin::named("cache").at(POINT, act).access(Access::Read).start().await;
    let (reading, _others) = gateway(&cache, "enforce").await;
    let answer = taking(&reading.http(&token("acme"))).await;
    assert_eq!((answer.status, &answer.body["block"]["code"]), (403, &json!("CACHED")));
    // Where there is no tool, there is no result, and nobody can take one.
    let act = Act::cancel("CACHED", "m").with_result(RESULT);
    let point = ExtensionPoint::BeforeResponse;
    let cache = FakePlugin::named("cache").at(point, act).start().await;
    let (gateway, _others) = gateway(&cache, "enforce").await;
    let agent = gateway.http(&token("acme"));
    let answer = agent.call(point, json!({ "content": "hello" })).await;
    assert_eq!((answer.status, &answer.body["block"]["code"]), (403, &json!("CACHED")));
    let asked = json!({ "payload": { "content": "hello" }, "takes_results": true });
    let refused = call(&agent, point, &asked).await;
    assert_eq!((refused.status, &refused.body["errors"][0]["pointer"]), (400, &json!("/takes_results")));
}

#[tokio::test]
async fn observers_learn_that_a_plugin_answered() {
    let watch = FakePlugin::named("watch").start().await;
    let cache = FakePlugin::named("cache").at(POINT, Act::cancel("", "").with_result("7")).start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&cache)
        .plugin(&watch)
        .binding("cache", 1)
        .binding_with("watch", 2, &json!({ "mode": "observe" }))
        .start()
        .await;
    assert_eq!(taking(&gateway.http(&token("acme"))).await.status, 200);
    watch.wait_until(|counts| counts.finished == 1).await;
    let result = watch.seen().remove(0).call.chain_result.expect("observers get it");
    assert_eq!((result.decision(), result.plugin.as_deref()), (Decision::Answer, Some("cache")));
}

/// Gives the result of `clock`.
struct Cache;

impl Plugin for Cache {
    const NAME: &'static str = "cache";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.modify()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Cache)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        payload: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        match &*payload.tool_name {
            "clock" => Reply::answer(&json!({ "time": "12:00" }), "It is 12:00."),
            "forbidden" => Ok(Reply::cancel("TOOL_NOT_ALLOWED", "No.")),
            _ => Ok(Reply::proceed()),
        }
    }
}

#[tokio::test]
async fn an_agent_of_our_sdk_gets_the_result_of_a_plugin_of_our_sdk() {
    let (gateway, serving) = gateway_with::<Cache>().await;
    let token = Token::fixed(&token("acme")).expect("a token is ASCII");
    let agent = Agent::new(&format!("http://{}", gateway.data_addr()), token).expect("it is a URL");
    let of = |tool: &str| BeforeToolCallPayload {
        tool_name: tool.into(),
        args: "{}".into(),
        ..BeforeToolCallPayload::default()
    };
    match agent.before_tool_call_or_result(of("clock")).await {
        Ok(ToolCallDecision::Answered(answer)) => assert_eq!(&*answer.result, br#"{"time":"12:00"}"#),
        other => panic!("{other:?}"),
    }
    assert!(matches!(agent.before_tool_call_or_result(of("other")).await, Ok(ToolCallDecision::Run(_))));
    let refused = agent.before_tool_call_or_result(of("forbidden")).await;
    assert!(
        matches!(&refused, Err(AgentError::Blocked(block)) if block.code == "TOOL_NOT_ALLOWED"),
        "{refused:?}"
    );
    let refused = agent.before_tool_call(of("clock")).await;
    assert!(
        matches!(&refused, Err(AgentError::Blocked(block)) if block.code == "TOOL_ANSWERED"),
        "{refused:?}"
    );
    serving.abort();
}
