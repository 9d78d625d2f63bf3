//! Tools of plugins over real sockets: what agents see, who runs a tool, and what happens if nobody can.

use std::time::Duration;

use hookgate::core::error::Code;
use hookgate_proto::{
    gateway::v1::{
        BeforeToolCallRequest, ListToolsRequest, StepOutcome, tool_service_client::ToolServiceClient,
    },
    types::v1::{BeforeToolCallPatch, Decision, ExtensionPoint},
};
use hookgate_sdk::{
    BeforeToolCallPayload, Host, InitError, NoConfig, Offer, Plugin, Tool, ToolCall, ToolError,
    agent::{Agent, AgentError, Token as AgentToken, ToolCallDecision},
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer, path},
    fake::{Act, Builder, FakePlugin, Handshake, Seen},
    gateway::{Gateway, Setup},
    token::{Token, token},
};
use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tonic::{Code as Grpc, Status};

use crate::edge::support::{assert_http_error, gateway_with, send};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
/// With a number that a JSON library may round.
const RESULT: &str = r#"{"id": 9007199254740993}"#;

/// A plugin that provides these tools and offers no point; each answers with [`RESULT`].
fn provider(name: &str, tools: &[&str]) -> Builder {
    let act = Act::cancel("", "").with_result(RESULT);
    FakePlugin::named(name).only(&[]).tools(tools).at(POINT, act)
}

async fn call(agent: &HttpAgent, body: &Value) -> HttpAnswer {
    let request = agent.request(Method::POST, path(POINT));
    send(request.header("content-type", "application/json").body(body.to_string())).await
}

/// Calls a tool as an agent that takes results.
async fn run(gateway: &Gateway, tool: &str) -> HttpAnswer {
    let payload = json!({ "tool_name": tool, "args": { "n": 1 } });
    call(&gateway.http(&token("acme")), &json!({ "payload": payload, "takes_results": true })).await
}

async fn list(gateway: &Gateway) -> Vec<(String, String)> {
    let answer = gateway.http(&token("acme")).get("/v1/tools").await.expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let tools = answer.body["tools"].as_array().expect("a list").iter();
    tools.map(|tool| (text(&tool["name"]), text(&tool["binding"]))).collect()
}

async fn names(gateway: &Gateway) -> Vec<String> {
    list(gateway).await.into_iter().map(|(name, _)| name).collect()
}

fn outcomes(answer: &HttpAnswer) -> Vec<(&str, &str)> {
    let steps = answer.body["steps"].as_array().expect("a list");
    steps.iter().filter_map(|step| Some((step["plugin"].as_str()?, step["outcome"].as_str()?))).collect()
}

fn has_run(plugin: &FakePlugin) -> usize {
    plugin.seen().iter().filter(|seen| seen.call.run_tool).count()
}

fn setup(plugins: &[&FakePlugin]) -> Setup {
    let with = |setup: Setup, (priority, plugin): (i64, &&FakePlugin)| {
        setup.plugin(plugin).binding(plugin.name(), priority)
    };
    (1..).zip(plugins).fold(Gateway::with().tenant("acme"), with)
}

#[tokio::test]
async fn an_agent_gets_its_tenants_tools_over_http_as_over_grpc() {
    let memory = provider("memory", &["memory.retain", "memory.find"]).start().await;
    let shell = provider("shell", &["shell"]).start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .tenant("globex")
        .tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }))
        .plugin(&memory)
        .plugin(&shell)
        .binding("memory", 1)
        .binding_with("shell", 2, &json!({ "tenant": "globex" }))
        .start()
        .await;
    let answer = gateway.http(&token("acme")).get("/v1/tools").await.expect("an answer");
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let tool = |name: &str| {
        json!({
            "name": name, "description": format!("Does {name}"), "input_schema": { "type": "object" },
            "plugin": "memory", "binding": "memory",
        })
    };
    assert_eq!(answer.body["tools"], json!([tool("memory.find"), tool("memory.retain")]));
    assert!(answer.text.contains(r#""input_schema":{ "type": "object" }"#), "as the plugin wrote it");

    let globex = gateway.http(&token("globex")).get("/v1/tools").await.expect("an answer");
    assert_eq!(globex.body["tools"].as_array().map(Vec::len), Some(3));
    let quiet = gateway.http(&token("quiet")).get("/v1/tools").await.expect("an answer");
    assert_eq!(quiet.body["tools"][0].get("plugin"), None);

    let mut client = ToolServiceClient::new(gateway.grpc_without_token().await.channel);
    let denied = client.list_tools(ListToolsRequest {}).await.expect_err("no token");
    assert_eq!(denied.code(), Grpc::Unauthenticated);
    let mut request = tonic::Request::new(ListToolsRequest {});
    let header = format!("Bearer {}", token("acme")).parse().expect("a header");
    request.metadata_mut().insert("authorization", header);
    let over_grpc = client.list_tools(request).await.expect("it is answered").into_inner();
    assert_eq!(json!(over_grpc.plan_digest), answer.body["plan_digest"]);
    assert_eq!(
        over_grpc.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
        ["memory.find", "memory.retain"]
    );
    assert_eq!((over_grpc.tools[0].plugin(), over_grpc.tools[0].binding()), ("memory", "memory"));
    assert_eq!(memory.counts().calls + shell.counts().calls, 0, "no plugin is asked");
}

#[tokio::test]
async fn the_list_is_for_agents_of_known_tenants() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let get = async |agent: HttpAgent| agent.get("/v1/tools").await.expect("an answer");
    assert_http_error(&get(gateway.http_without_token()).await, Code::TokenMissing);
    assert_http_error(&get(gateway.http(&token("nobody"))).await, Code::TenantUnknown);
    let reader = Token::for_tenant("acme").scopes("hookgate:read").mint();
    assert_http_error(&get(gateway.http(&reader)).await, Code::ScopeMissing);
    let posted = send(gateway.http(&token("acme")).request(Method::POST, "/v1/tools")).await;
    assert_http_error(&posted, Code::MethodNotAllowed);
    assert_eq!(posted.header("allow"), Some("GET"));
    assert_eq!(names(&gateway).await, [""; 0]);
}

#[tokio::test]
async fn a_tool_is_run_by_its_plugin_after_every_other_plugin_let_the_call_pass() {
    let patch = BeforeToolCallPatch { args: Some(r#"{"n":2}"#.into()), ..Default::default() };
    let memory = provider("memory", &["memory.retain"]).start().await;
    let policy = FakePlugin::named("policy").at(POINT, Act::patch(patch)).start().await;
    let watcher = FakePlugin::named("watcher").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&memory)
        .plugin(&policy)
        .plugin(&watcher)
        .binding("memory", 1)
        .binding("policy", 2)
        .binding_with("watcher", 3, &json!({ "mode": "observe" }))
        .start()
        .await;
    let answer = run(&gateway, "memory.retain").await;
    assert_eq!((answer.status, answer.header("hookgate-decision")), (200, Some("answer")), "{answer:?}");
    assert!(answer.text.contains(&format!("\"result\":{RESULT}")), "{}", answer.text);
    let expected = [("policy", "modified"), ("watcher", "observed"), ("memory", "answered")];
    assert_eq!(outcomes(&answer), expected);
    let [seen] = &memory.seen()[..] else { panic!("one call") };
    assert!(seen.call.run_tool && format!("{:?}", seen.payload).contains(r#"{\"n\":2}"#), "{seen:?}");
    assert!(policy.seen().iter().all(|seen| !seen.call.run_tool));
    watcher.wait_until(|counts| counts.finished == 1).await;
    let told = watcher.seen()[0].call.chain_result.clone().expect("an observer is told");
    assert_eq!((told.decision(), told.plugin()), (Decision::Answer, "memory"));

    let other = run(&gateway, "fs.read").await;
    assert_eq!((&other.body["decision"], outcomes(&other).len()), (&json!("continue"), 2));
    assert_eq!(memory.counts().calls, 1, "another tool is no business of a plugin that offers no point");

    let asked = json!({ "payload": { "tool_name": "memory.retain", "args": {} }, "takes_results": true, "trace": true });
    let traced = call(&gateway.http(&token("acme")), &asked).await;
    assert_eq!(traced.body["steps"][0]["changes"], json!({ "args": { "n": 2 } }));

    let mut grpc = gateway.grpc(&token("acme")).await;
    let payload =
        BeforeToolCallPayload { tool_name: "memory.retain".into(), args: "{}".into(), ..Default::default() };
    let asked = BeforeToolCallRequest { payload: Some(payload), takes_results: true, ..Default::default() };
    let answer = grpc.client.before_tool_call(asked).await.expect("a decision").into_inner();
    assert_eq!((answer.decision(), &*answer.result), (Decision::Answer, RESULT.as_bytes()));
    assert_eq!(answer.steps.last().map(|step| step.outcome()), Some(StepOutcome::Answered));
}

#[tokio::test]
async fn a_plugin_with_a_rule_and_tools_is_asked_for_every_call_and_runs_its_own() {
    let react = |seen: &Seen| match seen.call.run_tool {
        true => Act::cancel("", "").with_result("\"done\""),
        false => Act::pass(),
    };
    let both = FakePlugin::named("both").tools(&["both.x"]).at_with(POINT, react).start().await;
    let gateway = setup(&[&both]).start().await;
    assert_eq!(outcomes(&run(&gateway, "other").await), [("both", "continued")]);
    let own = run(&gateway, "both.x").await;
    assert_eq!(
        (outcomes(&own), &own.body["result"]),
        (vec![("both", "continued"), ("both", "answered")], &json!("done"))
    );
}

#[tokio::test]
async fn a_blocked_call_runs_no_tool() {
    let memory = provider("memory", &["memory.retain"]).start().await;
    let policy = FakePlugin::named("policy").at(POINT, Act::cancel("TOOL_NOT_ALLOWED", "No.")).start().await;
    let gateway = setup(&[&memory, &policy]).start().await;
    let answer = run(&gateway, "memory.retain").await;
    assert_eq!((answer.status, &answer.body["code"]), (403, &json!("TOOL_NOT_ALLOWED")));
    assert_eq!(memory.counts().calls, 0);
}

#[tokio::test]
async fn an_agent_that_takes_no_results_is_blocked_and_no_tool_runs() {
    let memory = provider("memory", &["memory.retain"]).start().await;
    let gateway = setup(&[&memory]).start().await;
    let body = json!({ "payload": { "tool_name": "memory.retain", "args": {} } });
    let answer = call(&gateway.http(&token("acme")), &body).await;
    assert_eq!((answer.status, &answer.body["code"]), (403, &json!("TOOL_ANSWERED")), "{answer:?}");
    let message = "Plugin 'memory' runs the tool 'memory.retain', and the agent takes no results";
    assert_eq!(answer.body["detail"], json!(message));
    assert_eq!(memory.counts().calls, 0);
}

#[tokio::test]
async fn a_tool_that_gives_no_result_never_lets_the_call_pass() {
    let memory = provider("memory", &["memory.retain"]).start().await;
    let lenient = json!({ "on_error": "skip", "timeout": "300ms" });
    let gateway = Gateway::with().tenant("acme").plugin_without_breaker(&memory);
    let gateway = gateway.binding_with("memory", 1, &lenient).start().await;
    for (act, status, code) in [
        (Act::cancel("TOOL_FAILED", "There is no such fact."), 403, "TOOL_FAILED"),
        (Act::pass(), 502, "PLUGIN_BAD_REPLY"),
        (Act::no_verdict(), 502, "PLUGIN_BAD_REPLY"),
        (Act::cancel("", "").with_result("{"), 502, "PLUGIN_BAD_REPLY"),
        (Act::status(Grpc::Internal, "broken"), 502, "PLUGIN_ERROR"),
        (Act::hang(), 504, "PLUGIN_TIMEOUT"),
    ] {
        memory.set(POINT, act);
        let answer = run(&gateway, "memory.retain").await;
        assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{answer:?}");
        let failed = if status == 403 { "cancelled" } else { "failed" };
        assert_eq!(outcomes(&answer), [("memory", failed)], "whatever `on_error` says: {answer:?}");
    }
}

#[tokio::test]
async fn a_renamed_call_is_run_by_who_provides_the_new_name() {
    let rename = |seen: &Seen| {
        let is_alias = format!("{:?}", seen.payload).contains("alias");
        let name = if is_alias { "memory.retain" } else { "local" };
        Act::patch(BeforeToolCallPatch { tool_name: Some(name.into()), ..Default::default() })
    };
    let memory = provider("memory", &["memory.retain"]).start().await;
    let names = FakePlugin::named("names").at_with(POINT, rename).start().await;
    let gateway = setup(&[&names, &memory]).start().await;
    assert_eq!(run(&gateway, "alias").await.body["decision"], json!("answer"));
    let local = run(&gateway, "memory.retain").await;
    assert_eq!(
        (&local.body["decision"], &local.body["payload"]["tool_name"]),
        (&json!("continue"), &json!("local"))
    );
    assert_eq!(has_run(&memory), 1);
}

#[tokio::test]
async fn a_denied_tool_does_not_exist_for_the_tenant() {
    let memory = provider("memory", &["memory.retain", "memory.forget", "memory.forget_all"]).start().await;
    let denied = json!({ "deny_tools": ["memory.forget*"] });
    let gateway = Gateway::with().tenant("acme").plugin(&memory);
    let gateway = gateway.binding_with("memory", 1, &denied).start().await;
    assert_eq!(names(&gateway).await, ["memory.retain"]);
    assert_eq!(run(&gateway, "memory.forget").await.body["decision"], json!("continue"));
    assert_eq!(memory.counts().calls, 0);
}

#[tokio::test]
async fn only_an_enforcing_binding_provides_tools() {
    for mode in ["advise", "observe"] {
        let memory = provider("memory", &["memory.retain"]).start().await;
        let gateway = Gateway::with().tenant("acme").plugin(&memory);
        let gateway = gateway.binding_with("memory", 1, &json!({ "mode": mode })).start().await;
        assert_eq!(names(&gateway).await, [""; 0], "{mode}");
        let answer = run(&gateway, "memory.retain").await;
        assert_eq!((&answer.body["decision"], outcomes(&answer)), (&json!("continue"), vec![]), "{mode}");
    }
}

#[tokio::test]
async fn a_call_that_the_bindings_conditions_exclude_is_refused() {
    let memory = provider("memory", &["memory.retain"]).start().await;
    let conditions = json!({ "match": { "agents": ["writer"] } });
    let gateway = Gateway::with().tenant("acme").plugin(&memory);
    let gateway = gateway.binding_with("memory", 1, &conditions).start().await;
    let asked = |agent: &str| {
        let payload = json!({ "tool_name": "memory.retain", "args": {} });
        json!({ "context": { "agent_id": agent }, "payload": payload, "takes_results": true })
    };
    let agent = gateway.http(&token("acme"));
    assert_eq!(call(&agent, &asked("writer")).await.body["decision"], json!("answer"));
    let refused = call(&agent, &asked("reader")).await;
    assert_eq!((refused.status, &refused.body["code"]), (403, &json!("TOOL_NOT_ALLOWED")));
    assert_eq!(has_run(&memory), 1);
}

#[tokio::test]
async fn two_plugins_with_one_tools_name_are_refused_until_one_is_denied_it() {
    let (one, two) = (provider("one", &["x", "one.y"]).start().await, provider("two", &["x"]).start().await);
    let gateway = setup(&[&one, &two]).start().await;
    let answer = run(&gateway, "x").await;
    assert_http_error(&answer, Code::PluginUnavailable);
    assert!(answer.text.contains("both provide the tool `x`"), "{}", answer.text);
    assert_eq!(names(&gateway).await, ["one.y"]);
    assert_eq!(has_run(&one) + has_run(&two), 0);
    let clash = "bindings `one` and `two` both provide the tool `x`, so its calls fail";
    gateway.log().wait_for(|line| line.text.contains(clash)).await;

    let denied = json!({ "deny_tools": ["x"] });
    let setup = Gateway::with().tenant("acme").plugin(&one).plugin(&two).binding("one", 1);
    gateway.reload(&setup.binding_with("two", 2, &denied));
    gateway.wait_for_revision(2).await;
    assert_eq!(list(&gateway).await, [("one.y".into(), "one".into()), ("x".into(), "one".into())]);
    assert_eq!(run(&gateway, "x").await.body["decision"], json!("answer"));
}

#[tokio::test]
async fn tools_are_unknown_before_initialize_and_calls_of_them_fail() {
    let unavailable = Handshake::Fails(Status::unavailable("not yet"));
    let memory = provider("memory", &["memory.retain"]).on_initialize(unavailable).start().await;
    let setup = Gateway::with().tenant("acme").plugin_with(&memory, &json!({ "required": false }));
    let gateway = setup.binding("memory", 1).start().await;
    memory.wait_until(|counts| counts.connections > 0).await;
    assert_http_error(&run(&gateway, "memory.retain").await, Code::PluginUnavailable);
    assert_eq!(names(&gateway).await, [""; 0]);
    memory.set_initialize(Handshake::Proper);
    for attempt in 0.. {
        if run(&gateway, "memory.retain").await.status == 200 {
            break;
        }
        assert!(attempt < 300, "it is initialised after a while");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(names(&gateway).await, ["memory.retain"]);
}

#[tokio::test]
async fn a_restarted_plugin_may_provide_other_tools() {
    let mut memory = provider("memory", &["memory.retain", "memory.find"]).start().await;
    let gateway = setup(&[&memory]).start().await;
    assert_eq!(names(&gateway).await, ["memory.find", "memory.retain"]);
    let before = gateway.http(&token("acme")).get("/v1/tools").await.expect("an answer");
    memory.stop().await;
    memory.set_tools(&["memory.retain"]);
    memory.start().await;
    for attempt in 0.. {
        // A call makes the plugin say that it lost its configuration.
        run(&gateway, "memory.retain").await;
        if names(&gateway).await == ["memory.retain"] {
            break;
        }
        assert!(attempt < 300, "the new list is there after a while");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = gateway.http(&token("acme")).get("/v1/tools").await.expect("an answer");
    assert_ne!(before.body["plan_digest"], after.body["plan_digest"]);
    assert_eq!(run(&gateway, "memory.find").await.body["decision"], json!("continue"));
}

#[tokio::test]
async fn a_tool_that_the_manifest_does_not_cover_refuses_the_plugin() {
    let memory = provider("memory", &["memory.*"]).start().await;
    memory.set_tools(&["shell.exec"]);
    let exit = setup(&[&memory]).run_to_the_end().await;
    let log = exit.log.to_string();
    assert_eq!(exit.code, Some(4), "{log}");
    assert!(log.contains("INITIALIZE_FAILED") && log.contains("covers `shell.exec`"), "{log}");
}

#[tokio::test]
async fn consent_covers_the_names_of_tools() {
    let memory = provider("memory", &["memory.retain"]).start().await;
    let accepted = json!({ "accepted": memory.accepted() });
    memory.change_manifest(|manifest| manifest.tools.push("shell.*".into()));
    let setup = Gateway::with().tenant("acme").plugin_with(&memory, &accepted).binding("memory", 1);
    let exit = setup.run_to_the_end().await;
    let log = exit.log.to_string();
    assert!(log.contains("provides tools named `shell.*`"), "{log}");
    memory.change_manifest(|manifest| manifest.tools.truncate(1));
    let setup = Gateway::with().tenant("acme").plugin_with(&memory, &accepted).binding("memory", 1);
    assert_eq!(names(&setup.start().await).await, ["memory.retain"]);
}

#[tokio::test]
async fn a_caller_that_leaves_while_its_tool_runs_cancels_the_plugins_call() {
    let memory = provider("memory", &["memory.retain"]).at(POINT, Act::hang()).start().await;
    let gateway = setup(&[&memory]).start().await;
    let agent = gateway.http(&token("acme"));
    let body = json!({ "payload": { "tool_name": "memory.retain", "args": {} }, "takes_results": true });
    let request = agent.request(Method::POST, path(POINT)).header("content-type", "application/json");
    let gone = request.body(body.to_string()).timeout(Duration::from_millis(500)).send().await;
    assert!(gone.is_err_and(|error| error.is_timeout()));
    memory.wait_until(|counts| counts.cancelled == 1).await;
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!("decision.cancelled"))).await;
    assert!(line.text.contains("cancelled_by_caller"), "{}", line.text);
}

/// A plugin of typed tools and nothing else.
struct Calculator;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Division {
    /// What is divided.
    dividend: i64,
    divisor: i64,
}

#[derive(Serialize)]
struct Quotient {
    quotient: i64,
    operator: String,
}

async fn divide(call: ToolCall<Calculator, Division>) -> Result<Quotient, ToolError> {
    let Division { dividend, divisor } = call.args;
    let quotient = dividend.checked_div(divisor).ok_or_else(|| ToolError::failed("Nothing divides by 0."))?;
    Ok(Quotient { quotient, operator: call.context.operator().to_owned() })
}

impl Plugin for Calculator {
    const NAME: &'static str = "calculator";
    const VERSION: &'static str = "1.0.0";
    const TOOL_NAMES: &'static [&'static str] = &["calculator.*"];
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        Vec::new()
    }

    fn tools(&self) -> Vec<Tool<Self>> {
        vec![Tool::new("calculator.divide", "Divides whole numbers.", divide).read_only(true)]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Calculator)
    }
}

#[tokio::test]
async fn a_typed_function_is_a_tool_with_the_schema_of_its_arguments() {
    let (gateway, plugin) = gateway_with::<Calculator>().await;
    let address = format!("http://{}", gateway.data_addr());
    let agent =
        Agent::new(&address, AgentToken::fixed(&token("acme")).expect("a token")).expect("an address");
    let listed = agent.list_tools().await.expect("the list");
    let [tool] = &listed.tools[..] else { panic!("{listed:?}") };
    assert_eq!(
        (&*tool.name, &*tool.description, tool.plugin()),
        ("calculator.divide", "Divides whole numbers.", "calculator")
    );
    let schema: Value = serde_json::from_slice(&tool.input_schema).expect("JSON");
    assert_eq!(schema["properties"]["dividend"]["description"], json!("What is divided."));
    assert_eq!(schema["required"], json!(["dividend", "divisor"]));
    assert_eq!(tool.annotations.as_ref().and_then(|annotations| annotations.read_only_hint), Some(true));

    let call = async |args: &str| {
        let (tool_name, args) = ("calculator.divide".to_owned(), args.to_owned().into());
        agent
            .before_tool_call_or_result(BeforeToolCallPayload { tool_name, args, ..Default::default() })
            .await
    };
    let Ok(ToolCallDecision::Answered(answer)) = call(r#"{"dividend":7,"divisor":2}"#).await else {
        panic!("a result")
    };
    assert_eq!(answer.result, r#"{"quotient":3,"operator":"operator-of-acme"}"#);
    for (args, code, message) in [
        (r#"{"dividend":7,"divisor":0}"#, "TOOL_FAILED", "Nothing divides by 0."),
        (r#"{"dividend":7}"#, "TOOL_ARGS_INVALID", "The arguments are wrong: missing field `divisor`"),
        ("[7, 2]", "TOOL_ARGS_INVALID", "The arguments are wrong: expected a JSON object"),
    ] {
        let Err(AgentError::Blocked(block)) = call(args).await else { panic!("{args} is refused") };
        assert_eq!((&*block.code, &*block.message), (code, message));
    }
    plugin.abort();
}
