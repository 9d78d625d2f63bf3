//! A search for tools that the agent runs: plugins judge its call and what it found.

use hookgate_proto::types::v1::{AfterToolResultPatch, ExtensionPoint};
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload},
    provider::responses::{answer, response, says},
};
use serde_json::{Value, json};

use super::{
    responses_support::{always, ask, outline, say, stream},
    support::{gateway, user},
};

const CALL: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const RESULT: ExtensionPoint = ExtensionPoint::AfterToolResult;

fn search_call() -> Value {
    json!({
        "id": "tsc_1", "type": "tool_search_call", "status": "completed", "call_id": "call_1", "execution": "client",
        "arguments": { "goal": "the weather" },
    })
}

fn tools() -> Value {
    let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let weather = json!({
        "type": "function", "name": "get_weather", "description": "Says what the weather is.", "defer_loading": true,
        "parameters": parameters,
    });
    json!([weather, { "type": "custom", "name": "ask_anybody" }])
}

fn question() -> Value {
    let search = json!({ "type": "tool_search", "execution": "client", "parameters": { "type": "object" } });
    let mut body = ask(&json!([user("What is the weather?")]));
    body["tools"] = json!([search]);
    body
}

/// What the client asks that has run the search.
fn next_question() -> Value {
    let mut body = question();
    body["input"] = json!([user("What is the weather?"), search_call(), found(&tools(), "completed")]);
    body
}

fn found(tools: &Value, status: &str) -> Value {
    json!({ "type": "tool_search_output", "call_id": "call_1", "execution": "client", "status": status, "tools": tools })
}

#[tokio::test]
async fn a_search_that_the_agent_runs_passes_as_a_call_and_its_result() {
    let provider = always(answer(&response(&json!([search_call()])))).await;
    let plugin = FakePlugin::named("watcher").only(&[CALL, RESULT]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    assert_eq!(say(&gateway, &question()).await.output(), json!([search_call()]));
    assert_eq!(stream(&gateway, question()).await.output(), json!([search_call()]));
    let calls = plugin.seen();
    assert_eq!(calls.len(), 2, "one for each answer");
    for seen in calls {
        let Payload::BeforeToolCall(call) = seen.payload else { panic!("{seen:?}") };
        assert_eq!((call.tool_name.as_str(), call.call_id.as_deref()), ("tool_search", Some("call_1")));
        assert_eq!(call.args, r#"{"goal":"the weather"}"#);
    }
    say(&gateway, &next_question()).await.output();
    let sent = provider.requests().pop().expect("a request").json();
    assert_eq!(sent, next_question());
    let results: Vec<_> = plugin.seen().into_iter().filter(|seen| seen.point == RESULT).collect();
    let [seen] = <[_; 1]>::try_from(results).expect("one result");
    let Payload::AfterToolResult(result) = seen.payload else { panic!("{seen:?}") };
    assert_eq!((result.tool_name.as_str(), result.success), ("tool_search", Some(true)));
    assert_eq!(serde_json::from_slice::<Value>(&result.result).expect("JSON"), tools());
}

#[tokio::test]
async fn a_search_may_be_refused() {
    let provider = always(answer(&response(&json!([search_call()])))).await;
    let plugin =
        FakePlugin::named("policy").only(&[CALL]).at(CALL, Act::cancel("NO", "Not here.")).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let got = say(&gateway, &question()).await;
    assert_eq!(outline(&got.output()), json!(["Tool call tool_search was refused: Not here."]));
}

#[tokio::test]
async fn what_a_search_found_may_be_blocked_or_replaced_by_other_tools() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("policy").only(&[CALL, RESULT]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    plugin.set(RESULT, Act::cancel("NO", "Not these."));
    say(&gateway, &next_question()).await.output();
    let sent = provider.requests().pop().expect("a request").json();
    assert_eq!(sent["input"][2], found(&json!([]), "incomplete"));
    let patch_to = |tools: Value| {
        let patch = AfterToolResultPatch {
            result: Some(tools.to_string().into()),
            ..AfterToolResultPatch::default()
        };
        plugin.set(RESULT, Act::patch(patch));
    };
    let fewer = json!([{ "type": "custom", "name": "ask_anybody" }]);
    patch_to(fewer.clone());
    say(&gateway, &next_question()).await.output();
    let sent = provider.requests().pop().expect("a request").json();
    assert_eq!(sent["input"][2], found(&fewer, "completed"));
    let asked = provider.requests().len();
    for no_tools in [json!("none"), json!([{ "type": "web_search" }])] {
        patch_to(no_tools);
        say(&gateway, &next_question()).await.assert_error(502, "PLUGIN_BAD_REPLY");
    }
    assert_eq!(provider.requests().len(), asked);
}

#[tokio::test]
async fn a_search_finds_no_tools_that_the_provider_runs() {
    let provider = always(says("hi")).await;
    let plugin = FakePlugin::named("watcher").only(&[CALL]).start().await;
    let gateway = gateway(&provider, &plugin).await;
    let mut body = next_question();
    body["input"][2]["tools"] = json!([{ "type": "web_search" }]);
    let got = say(&gateway, &body).await;
    got.assert_error(400, "UNSUPPORTED");
    assert!(got.text.contains("`llm.allow: [web_search]` allows it"), "{}", got.text);
    assert!(provider.requests().is_empty());
}
