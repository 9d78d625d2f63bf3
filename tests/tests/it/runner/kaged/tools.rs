//! Tools of kaged's plugins.

use hookgate_tests::token::token;
use http::Method;
use serde_json::{Value, json};

use super::support::KagedPlugin;
use crate::edge::support::send;

#[tokio::test]
async fn a_tool_is_listed_with_its_schema_and_run_with_its_arguments() {
    let main = r#"
def handle(message):
    params = message["params"]
    context = params.pop("_context")
    result(message, {"args": params, "agent": context.get("agent_path"), "n": 9007199254740993})

serve(handle)
"#;
    let served = KagedPlugin::with_manifest("", main).serve_tools().await;
    let listed = send(served.gateway.http(&token("acme")).request(Method::GET, "/v1/tools")).await;
    let expected = json!({
        "name": "program.echo", "description": "Answers with its arguments.", "input_schema": { "type": "object" },
        "plugin": "program", "binding": "program",
    });
    assert_eq!(listed.body["tools"], json!([expected]), "{listed:?}");
    let args =
        json!({ "x": 9_007_199_254_740_993_u64, "_context": { "operator_id": "root", "agent_path": "y" } });
    let payload = json!({ "tool_name": "program.echo", "args": args });
    let context = json!({ "agent_id": "research" });
    let body = json!({ "payload": payload, "context": context, "takes_results": true });
    let answer = served.run_tool_with("acme", &body).await;
    assert_eq!(answer.body["decision"], "answer", "{answer:?}");
    let expected = json!({
        "args": { "x": 9_007_199_254_740_993_u64 }, "agent": "primary.subagents.research",
        "n": 9_007_199_254_740_993_u64,
    });
    assert_eq!(answer.body["result"], expected);
}

#[tokio::test]
async fn what_a_tool_refuses_is_a_block_and_a_fault_of_the_plugin_is_an_error() {
    let main = r#"
serve(lambda message: refuse(message, message["params"]["code"], "Not this one."))
"#;
    let served = KagedPlugin::with_manifest("", main).serve_tools().await;
    for (code, block) in [(-32602, "TOOL_ARGS_INVALID"), (-32000, "TOOL_FAILED"), (-32099, "TOOL_FAILED")] {
        let answer = served.run_tool("acme", json!({ "code": code })).await;
        let got = (&answer.body["decision"], &answer.body["code"], &answer.body["detail"]);
        assert_eq!(got, (&json!("block"), &json!(block), &json!("Not this one.")), "{answer:?}");
    }
    for (code, status) in [(-32601, "Unimplemented"), (-32603, "Internal")] {
        let answer = served.run_tool("acme", json!({ "code": code })).await;
        let expected = (502, status.to_owned(), format!("the plugin answered: Not this one. ({code})"));
        let (code, error) = served.fault(&answer).await;
        assert_eq!((answer.status, code, error), expected);
    }
}

#[tokio::test]
async fn concurrent_calls_of_a_tenant_are_answered_in_any_order_by_one_process() {
    let main = r#"
waiting = []

def handle(message):
    waiting.append(message)
    if len(waiting) == 4:
        for one in reversed(waiting):
            result(one, [one["params"]["n"], os.getpid()])

serve(handle)
"#;
    let served = KagedPlugin::with_manifest("", main).serve_tools().await;
    let calls = (0..4).map(|n| served.run_tool("acme", json!({ "n": n })));
    let answers = futures::future::join_all(calls).await;
    let pid = &answers[0].body["result"][1];
    let expected: Vec<Value> = (0..4).map(|n| json!([n, pid])).collect();
    let got: Vec<_> = answers.iter().map(|answer| answer.body["result"].clone()).collect();
    assert_eq!(got, expected);
}
