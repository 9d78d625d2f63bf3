//! `examples/mastermind-agent`: what Master Mind's sessions get of a gateway, and what happens without one.

use hookgate_proto::types::v1::{
    BeforeLlmRequestPatch,
    ExtensionPoint::{AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall},
    Media, MediaList, media,
};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload},
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::{Value, json};

use super::{
    stand_in::{LARGE, Run, args_patch, content_patch, name_patch, nobody, result_patch, run, text_patch},
    support::url,
};

const WITHHELD: &str = "This result is withheld, because Hookgate gave no decision about it.";
const BLOCKED: &str = "Tool execution blocked by plugin for tool: mail.read";

/// A message with one call of a tool.
fn message() -> Value {
    let content = format!(r#"{{"id":{LARGE}}}"#);
    json!({
        "text": "Read my mail.", "answer": "It is from Bob.",
        "tools": [{ "name": "mail.read", "input": { "id": LARGE }, "result": { "content": content } }],
    })
}

/// Master Mind in one of its forms, as a user of `tenant` runs it.
async fn master_mind(form: &str, url: &str, token: &str, options: Value, messages: &Value) -> Run {
    let mut options = options;
    options["url"] = json!(url);
    options["token"] = json!(token);
    run("mastermind", &json!({ "form": form, "options": options, "messages": messages }), &[token]).await
}

/// What came of a message in the older form, where a plugin decides.
async fn older(gateway: &Gateway, tenant: &str, options: Value, message: &Value) -> Value {
    let mut run = master_mind("older", &url(gateway), &token(tenant), options, &json!([message])).await;
    run.outcome["outcomes"][0].take()
}

async fn outcome(gateway: &Gateway, tenant: &str) -> Value {
    older(gateway, tenant, json!({ "context": { "userId": "ada" } }), &message()).await
}

async fn asking(plugin: &FakePlugin) -> Gateway {
    let gateway = Gateway::with().tenant("acme").tenant("globex").plugin_without_breaker(plugin);
    gateway.binding(plugin.name(), 10).start().await
}

fn runs(outcome: &Value) -> usize {
    outcome["ran"].as_array().expect("a list").len()
}

#[tokio::test]
async fn the_gateways_plugins_see_master_minds_messages_and_tools_as_they_are() {
    let plugin = FakePlugin::named("reader").start().await;
    let gateway = asking(&plugin).await;
    let content = format!(r#"{{"id":{LARGE}}}"#);
    for tenant in ["acme", "globex"] {
        plugin.forget();
        let outcome = outcome(&gateway, tenant).await;
        assert_eq!(outcome["model"], json!(["Read my mail.", { "content": content }]));
        assert_eq!(outcome["ran"], json!([{ "name": "mail.read", "input": { "id": LARGE } }]));
        assert_eq!(outcome["shown"], json!(["It is from Bob."]));
        let seen = plugin.seen();
        let sessions: Vec<_> = seen.iter().rev().take(4).map(|seen| seen.call.context.clone()).collect();
        for context in sessions.iter().flatten() {
            assert_eq!((&*context.tenant, context.user_id.as_deref()), (tenant, Some("ada")));
            assert!(context.session_id.is_some());
            assert_eq!(context.session_id, sessions[0].as_ref().expect("it has one").session_id);
        }
    }
    let payloads: Vec<_> = plugin.seen().into_iter().rev().take(4).map(|seen| seen.payload).collect();
    let [
        Payload::BeforeResponse(response),
        Payload::AfterToolResult(result),
        Payload::BeforeToolCall(call),
        Payload::BeforeLlmRequest(request),
    ] = &payloads[..]
    else {
        panic!("{payloads:?}")
    };
    assert_eq!((&*request.text, &*response.content), ("Read my mail.", "It is from Bob."));
    assert_eq!(&call.args[..], format!(r#"{{"id":{LARGE}}}"#).as_bytes());
    assert_eq!((&result.args, result.success), (&call.args, Some(true)));
    assert_eq!(serde_json::from_slice::<Value>(&result.result).expect("JSON"), json!({ "content": content }));
}

#[tokio::test]
async fn what_the_gateways_plugins_change_reaches_master_mind() {
    let plugin = FakePlugin::named("rewriter")
        .at(BeforeLlmRequest, Act::patch(text_patch("Read my post.")))
        .at(BeforeToolCall, Act::patch(args_patch(&json!({ "id": LARGE, "limit": 1 }))))
        .at(AfterToolResult, Act::patch(result_patch(&json!({ "content": "from [NAME]" }))))
        .at(BeforeResponse, Act::patch(content_patch("It is from [NAME].")))
        .start()
        .await;
    let gateway = asking(&plugin).await;
    let rewritten = outcome(&gateway, "acme").await;
    assert_eq!(rewritten["model"], json!(["Read my post.", { "content": "from [NAME]" }]));
    assert_eq!(rewritten["ran"], json!([{ "name": "mail.read", "input": { "id": LARGE, "limit": 1 } }]));
    assert_eq!(rewritten["shown"], json!(["It is from Bob."]), "Master Mind has shown it already");

    plugin.set(BeforeToolCall, Act::patch(name_patch("mail.peek")));
    let renamed = outcome(&gateway, "acme").await;
    let error = json!({ "content": "Unknown tool: mail.peek", "isError": true });
    assert_eq!((&renamed["model"][1], runs(&renamed)), (&error, 0));
}

#[tokio::test]
async fn a_master_mind_message_stops_where_master_mind_cannot_apply_a_change() {
    let plugin = FakePlugin::named("rewriter").start().await;
    let gateway = asking(&plugin).await;
    let empty = BeforeLlmRequestPatch::default;
    let medium = Media {
        source: Some(media::Source::Url("https://example.com/a".into())),
        mime_type: "image/png".into(),
        ..Media::default()
    };
    let list = MediaList { items: vec![medium] };
    for patch in [
        BeforeLlmRequestPatch { system_prompt: Some("Be brief.".into()), ..empty() },
        BeforeLlmRequestPatch { messages: Some("[]".into()), ..empty() },
        BeforeLlmRequestPatch { tools: Some("[]".into()), ..empty() },
        BeforeLlmRequestPatch { images: Some(list.clone()), ..empty() },
        BeforeLlmRequestPatch { files: Some(list), ..empty() },
    ] {
        plugin.set(BeforeLlmRequest, Act::patch(patch));
        let outcome = outcome(&gateway, "acme").await;
        let thrown = outcome["thrown"].as_str().unwrap_or_default();
        assert!(thrown.contains("Master Mind can't apply that"), "{outcome}");
        assert_eq!((&outcome["model"], runs(&outcome)), (&json!([]), 0));
    }
}

#[tokio::test]
async fn a_changed_error_of_master_minds_tool_stays_an_error() {
    let plugin = FakePlugin::named("rewriter").start().await;
    let gateway = asking(&plugin).await;
    let mut message = message();
    message["tools"][0]["result"] = json!({ "content": "no mail", "isError": true });
    for (patch, seen) in [
        (json!({ "content": "try later" }), json!({ "content": "try later", "isError": true })),
        (json!("try later"), json!({ "content": "try later", "isError": true })),
        (json!({ "content": "x", "isError": false }), json!({ "content": "x", "isError": false })),
    ] {
        plugin.set(AfterToolResult, Act::patch(result_patch(&patch)));
        let outcome = older(&gateway, "acme", json!({}), &message).await;
        assert_eq!(outcome["model"][1], seen, "{patch}");
    }
}

#[tokio::test]
async fn a_block_stops_master_mind_at_each_hook() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = asking(&plugin).await;
    let block = Act::cancel("CONTENT_BLOCKED", "Not on your plan.");
    let at = async |point, act: Act| {
        plugin.set(point, act);
        let outcome = outcome(&gateway, "acme").await;
        plugin.set(point, Act::pass());
        outcome
    };
    let message = at(BeforeLlmRequest, block.clone()).await;
    assert_eq!((&message["thrown"], runs(&message)), (&json!("Not on your plan."), 0));
    let call = at(BeforeToolCall, block.clone()).await;
    assert_eq!(call["model"][1], json!({ "content": BLOCKED, "isError": true }));
    assert_eq!((runs(&call), &call["shown"]), (0, &json!(["It is from Bob."])));
    let result = at(AfterToolResult, block.clone()).await;
    assert_eq!(result["model"][1], json!({ "content": "Not on your plan.", "isError": true }));
    assert_eq!(runs(&result), 1);
    let response = at(BeforeResponse, block).await;
    assert_eq!(response["shown"], json!(["It is from Bob.", { "error": "Not on your plan." }]));
}

#[tokio::test]
async fn no_tool_of_master_mind_runs_without_a_decision_and_no_result_passes() {
    let (_port, nobody) = nobody();
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = asking(&plugin).await;
    let expired = Token::for_tenant("acme").expiring_in(-100).mint();
    for (url, token) in [(nobody, token("acme")), (url(&gateway), expired)] {
        let run = master_mind("older", &url, &token, json!({}), &json!([message()])).await;
        let outcome = &run.outcome["outcomes"][0];
        assert_eq!((&outcome["thrown"], runs(outcome)), (&json!("Hookgate gave no decision."), 0));
        assert!(run.log.contains("hookgate: no decision at beforeLlmRequest: "), "{}", run.log);
    }
    for act in [Act::status(tonic::Code::Internal, "broken"), Act::hang()] {
        let options = json!({ "timeoutMs": 500 });
        plugin.set(BeforeToolCall, act.clone());
        let outcome = older(&gateway, "acme", options.clone(), &message()).await;
        assert_eq!(outcome["model"][1], json!({ "content": BLOCKED, "isError": true }));
        assert_eq!(runs(&outcome), 0);
        plugin.set(BeforeToolCall, Act::pass());
        plugin.set(AfterToolResult, act);
        let outcome = older(&gateway, "acme", options, &message()).await;
        assert_eq!(outcome["model"][1], json!({ "content": WITHHELD, "isError": true }));
        assert_eq!(runs(&outcome), 1);
        plugin.set(AfterToolResult, Act::pass());
    }
}

#[tokio::test]
async fn master_minds_model_gets_the_tools_of_the_gateways_plugins() {
    let answer = Act::cancel("", "").with_result(r#"{"content":"Bob likes tea."}"#);
    let memory = FakePlugin::named("memory").only(&[]).tools(&["memory.find"]).at(BeforeToolCall, answer);
    let memory = memory.start().await;
    let guard = FakePlugin::named("guard").start().await;
    let gateway =
        Gateway::with().tenant("acme").plugin_without_breaker(&guard).plugin_without_breaker(&memory);
    let gateway = gateway.binding("guard", 10).binding("memory", 20).start().await;
    let mut message = message();
    message["tools"] = json!([{ "name": "memory.find", "input": { "about": "Bob" } }]);
    let offering = json!({ "tools": true });
    let outcome = older(&gateway, "acme", offering.clone(), &message).await;
    assert_eq!(outcome["model"][1], json!({ "content": "Bob likes tea." }));
    let asked = guard.seen().iter().filter(|seen| seen.point == BeforeToolCall).count();
    assert_eq!(asked, 1, "policy sees the call once");
    let judged = guard.seen().iter().filter(|seen| seen.point == AfterToolResult).count();
    assert_eq!(judged, 1, "and its result");
    guard.set(BeforeToolCall, Act::cancel("TOOL_NOT_ALLOWED", "Not on your plan."));
    let blocked = older(&gateway, "acme", offering.clone(), &message).await;
    let error = json!({ "content": "Tool execution error: Not on your plan.", "isError": true });
    assert_eq!(blocked["model"][1], error);
    guard.set(BeforeToolCall, Act::pass());
    let mut taken = message.clone();
    taken["tools"][0]["result"] = json!({ "content": "unguarded" });
    let taken = older(&gateway, "acme", offering, &taken).await;
    assert_eq!((&taken["model"][1]["isError"], runs(&taken)), (&json!(true), 0), "another took its name");
    let unknown = older(&gateway, "acme", json!({}), &message).await;
    assert_eq!(unknown["model"][1]["isError"], true, "without the option there are none: {unknown}");
}

/// The form whose agent shows what a plugin returns, and whose library runs the tools: the README says what that means.
#[tokio::test]
async fn in_its_newer_form_master_minds_turn_ends_where_the_gateway_stops_a_tool() {
    let plugin = FakePlugin::named("guard").start().await;
    let gateway = asking(&plugin).await;
    let ask = async |options: Value| {
        master_mind("newer", &url(&gateway), &token("acme"), options, &json!([message()])).await.outcome
    };
    let refused = ask(json!({})).await;
    let refused = refused["startFailed"].as_str().expect("the start fails");
    assert!(refused.contains("acceptUnguardedTools"), "{refused}");
    let accept = json!({ "acceptUnguardedTools": true });
    let passed = ask(accept.clone()).await;
    assert_eq!(passed["outcomes"][0]["shown"], json!(["It is from Bob."]));
    let seen = plugin.seen();
    let Payload::AfterToolResult(result) = &seen[2].payload else { panic!("{seen:?}") };
    assert_eq!((result.call_id.as_deref(), result.duration_ms), (Some("call-1"), Some(3)));
    let changed = |what: &str| format!("a plugin of the gateway changed the {what} of a tool");
    for (point, act, shown) in [
        (BeforeToolCall, Act::cancel("TOOL_NOT_ALLOWED", "Not on your plan."), "Not on your plan.".into()),
        (BeforeToolCall, Act::patch(args_patch(&json!({}))), changed("call")),
        (AfterToolResult, Act::patch(result_patch(&json!({ "content": "x" }))), changed("result")),
        (AfterToolResult, Act::status(tonic::Code::Internal, "broken"), WITHHELD.to_owned()),
    ] {
        plugin.set(point, act);
        let outcome = &ask(accept.clone()).await["outcomes"][0];
        assert_eq!(outcome["shown"], json!([{ "error": shown }]));
        assert_eq!(runs(outcome), 1, "Master Mind doesn't wait for the plugin");
        plugin.set(point, Act::pass());
    }
}
