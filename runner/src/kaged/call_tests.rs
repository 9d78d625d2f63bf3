use hookgate_proto::{Point, plugin::v1::Call, types::v1::BeforeToolCallPayload};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::kaged::test_plugin;

fn context(members: CallContext) -> CallContext {
    CallContext { tenant: "acme".into(), operator: "ada".into(), request_id: "r-1".into(), ..members }
}

/// The parameters of a tool's call.
fn tool_params(args: &str, context: CallContext) -> Result<Value, Status> {
    let call = Call { context: Some(context), run_tool: true, ..Call::default() };
    let payload = BeforeToolCallPayload {
        tool_name: "notes.retain".into(),
        args: args.to_owned().into(),
        ..BeforeToolCallPayload::default()
    };
    let site = Point::BeforeToolCall.into();
    let parts = CallParts { site: &site, call: &call, payload: &payload };
    let call = KagedCall::new(&test_plugin(""), &parts)?;
    let KagedRequest { kind, method, params } = &*call.request;
    assert_eq!((*kind, &**method), (CallKind::Tool, "notes.retain"));
    Ok(serde_json::from_slice(params).expect("it is JSON"))
}

fn hook_call(plugin: &KagedPlugin, hook: &str, body: &Value) -> KagedCall {
    let site = hookgate_proto::HookName::new(hook).expect("it is a name").into();
    let payload = crate::call_messages::HookBody(body.to_string().into());
    let call = Call { context: Some(context(CallContext::default())), ..Call::default() };
    let parts = CallParts { site: &site, call: &call, payload: &payload };
    KagedCall::new(plugin, &parts).expect("the plugin has the hook")
}

fn hook_params(plugin: &KagedPlugin, hook: &str, body: &Value) -> Value {
    let mut params: Value =
        serde_json::from_slice(&hook_call(plugin, hook, body).request.params).expect("it is JSON");
    let context = params["_context"].take();
    assert_eq!(context, json!({ "operator_id": "ada", "request_id": "r-1" }));
    params.as_object_mut().expect("it is an object").remove("_context");
    params
}

/// The reply for a result at a hook.
fn reply(plugin: &KagedPlugin, hook: &str, result: &Value) -> Result<Value, String> {
    let call = hook_call(plugin, hook, &json!({ "messages": [{ "id": "a" }, { "id": "b" }] }));
    let reply = call.reply(plugin, &Ok(result.to_string().into()));
    let reply = reply.map_err(|status| status.message().to_owned())?;
    Ok(serde_json::from_slice::<Value>(&reply).expect("it is JSON")["contributions"].take())
}

fn refusal(code: i64) -> Result<Value, tonic::Code> {
    let call = KagedCall { request: KagedRequest::for_test(), message_ids: Vec::new() };
    let error = RpcError { code, message: "No.".into() };
    let reply = call.reply(&test_plugin(""), &Err(error)).map_err(|status| status.code())?;
    Ok(serde_json::from_slice::<Value>(&reply).expect("it is JSON")["cancel"].take())
}

impl KagedRequest {
    /// A call of a tool.
    pub(in crate::kaged) fn for_test() -> Arc<Self> {
        Arc::new(KagedRequest { kind: CallKind::Tool, method: "notes.retain".into(), params: b"{}".to_vec() })
    }
}

#[test]
fn a_tool_gets_its_arguments_and_no_context_of_the_agents() {
    let agent = CallContext { agent_id: Some("a".into()), ..CallContext::default() };
    let params = tool_params(
        r#"{"n": 9007199254740993, "_context": {"operator_id": "root"}}"#,
        context(CallContext { session_id: Some("s-1".into()), ..agent }),
    );
    let expected_context = json!({
        "operator_id": "ada", "project_id": "acme", "agent_path": "primary.subagents.a", "session_id": "s-1", "request_id": "r-1",
    });
    let expected = json!({ "n": 9_007_199_254_740_993_u64, "_context": expected_context });
    assert_eq!(params.expect("it is a call"), expected);
    let refused = tool_params("[1]", context(CallContext::default())).expect_err("no object");
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

proptest! {
    #[test]
    fn no_id_of_an_agent_leads_out_of_a_folder(
        path in r#"([./\\%a]|\PC){0,40}"#,
        session in r#"([./\\%a]|\PC){0,40}"#,
        project in r#"([./\\%a]|\PC){0,40}"#,
    ) {
        let members = CallContext {
            agent_path: Some(path),
            session_id: Some(session),
            project_id: Some(project),
            ..CallContext::default()
        };
        let params = tool_params("{}", context(members)).expect("it is a call");
        for member in ["agent_path", "session_id", "project_id"] {
            let value = params["_context"][member].as_str().expect("a text");
            prop_assert!(!value.contains(['/', '\\']) && value != "." && value != "..", "{}: {}", member, value);
        }
    }
}

#[test]
fn an_agents_path_keeps_its_form() {
    for (written, path) in [
        ("primary", "primary"),
        ("primary.subagents.research-1.subagents.b", "primary.subagents.research-1.subagents.b"),
        ("research", "primary.subagents.research"),
        ("primary.research", "primary.subagents.primary%2Eresearch"),
        ("primary.subagents.", "primary.subagents.primary%2Esubagents%2E"),
        ("primary.subagents../x", "primary.subagents.primary%2Esubagents%2E%2E%2Fx"),
        ("../../escape", "primary.subagents.%2E%2E%2F%2E%2E%2Fescape"),
    ] {
        assert_eq!(agent_path(written), path);
    }
}

#[test]
fn each_hook_gets_its_parameters_as_text() {
    let plugin = test_plugin("");
    let messages = json!([
        { "role": "user", "content": "fix it" },
        { "role": "assistant", "content": [{ "type": "text", "text": "done" }, { "type": "image" }] },
        { "role": "tool", "content": { "n": 1 } },
    ]);
    let text = "**Operator:** fix it\n**Agent:** done\n**tool:** {\"n\":1}";
    let body = json!({ "messages": messages, "x": 1 });
    assert_eq!(hook_params(&plugin, "session_start", &body), json!({ "x": 1 }));
    assert_eq!(hook_params(&plugin, "session_idle", &body), json!({ "transcript": text, "x": 1 }));
    let own = json!({ "messages": messages, "transcript": "mine" });
    assert_eq!(hook_params(&plugin, "session_idle", &own), json!({ "transcript": "mine" }));
    let body = json!({ "messages": messages, "strategy": "drop", "trigger": "tokens" });
    for hook in ["before_compact", "after_compact"] {
        let expected = json!({
            "messages_being_compacted": text, "messages_remaining": "", "strategy": "drop", "trigger": "tokens",
            "role": "observer",
        });
        assert_eq!(hook_params(&plugin, hook, &body), expected);
    }
    let expected = json!({
        "messages_being_compacted": messages, "messages_remaining": [], "strategy": "drop", "trigger": "tokens",
        "role": "compactor",
    });
    let body = json!({ "messages": messages, "strategy": "drop", "trigger": "tokens", "role": "observer" });
    assert_eq!(hook_params(&test_plugin("roles: [compactor]\n"), "before_compact", &body), expected);
}

#[test]
fn results_become_contributions() {
    let (observer, compactor) = (test_plugin(""), test_plugin("roles: [compactor]\n"));
    let inject = json!({ "kind": "inject", "value": { "content": "hi" } });
    let retain = json!({ "kind": "retain", "value": ["a"] });
    let messages = json!([{ "id": "new", "n": 1 }]);
    let compacted = json!({ "role": "compactor", "messages": messages, "superseded": ["a", "b"] });
    for (plugin, hook, result, expected) in [
        (&observer, "session_start", json!({ "inject": "hi", "retain": ["a"] }), json!([inject])),
        (&observer, "session_start", json!({ "inject": "" }), json!([])),
        (&observer, "session_start", json!(null), json!([])),
        (&observer, "before_compact", json!({ "retain": ["a"], "inject": "hi" }), json!([inject, retain])),
        (&observer, "after_compact", json!({ "retain": [], "inject": null }), json!([])),
        (&compactor, "before_compact", compacted, json!([{ "kind": "messages", "value": messages }])),
    ] {
        assert_eq!(reply(plugin, hook, &result), Ok(expected), "{hook}: {result}");
    }
}

#[test]
fn a_result_that_the_role_or_the_messages_do_not_allow_is_refused() {
    let (observer, compactor) = (test_plugin(""), test_plugin("roles: [compactor]\n"));
    let compacted = |messages: Value, superseded: Value| json!({ "role": "compactor", "messages": messages, "superseded": superseded });
    for (plugin, hook, result, reason) in [
        (&observer, "session_start", json!("hi"), "must be an object or null"),
        (&observer, "session_start", json!({ "inject": 1 }), "`inject` must be a string"),
        (&observer, "after_compact", json!({ "retain": [1] }), "`retain` must be a list of strings"),
        (&observer, "before_compact", compacted(json!([{}]), json!([])), "isn't its role"),
        (&compactor, "after_compact", compacted(json!([{}]), json!([])), "isn't its role"),
        (&compactor, "before_compact", compacted(json!([]), json!([])), "at least one message"),
        (&compactor, "before_compact", compacted(json!([{}]), json!(["z"])), "`superseded` names `z`"),
    ] {
        let error = reply(plugin, hook, &result).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn an_error_of_a_hook_counts_against_the_plugin_only_if_it_is_the_plugins() {
    let call = hook_call(&test_plugin(""), "session_start", &json!({}));
    let code = |code| {
        let error = RpcError { code, message: "No.".into() };
        call.reply(&test_plugin(""), &Err(error)).expect_err("it is an error").code()
    };
    let expected = [tonic::Code::InvalidArgument, tonic::Code::Aborted, tonic::Code::Internal];
    assert_eq!([-32602, -32000, -32603].map(code), expected);
}

#[test]
fn an_error_of_a_tool_is_a_block_unless_the_plugin_itself_is_faulty() {
    assert_eq!(refusal(-32602), Ok(json!({ "code": "TOOL_ARGS_INVALID", "message": "No." })));
    for code in [-32000, -32099, -32003, 1] {
        assert_eq!(refusal(code), Ok(json!({ "code": "TOOL_FAILED", "message": "No." })), "{code}");
    }
    assert_eq!(refusal(-32601), Err(tonic::Code::Unimplemented));
    for code in [-32603, -32700, -32600] {
        assert_eq!(refusal(code), Err(tonic::Code::Internal), "{code}");
    }
}
