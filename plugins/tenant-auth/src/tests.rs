use hookgate_sdk::{Verdict, harness::TestPlugin};

use super::*;

async fn ask(tenant_config: Value, tool: &str) -> Reply<BeforeToolCallPatch> {
    let plugin = TestPlugin::<TenantAuth>::start(&NoConfig {}).await.unwrap();
    let plugin = plugin.with_tenant_config(&tenant_config).unwrap();
    let call =
        BeforeToolCallPayload { tool_name: tool.to_owned(), args: "null".into(), ..Default::default() };
    plugin.before_tool_call(call).await.unwrap()
}

async fn allows(tenant_config: Value, tool: &str) -> bool {
    ask(tenant_config, tool).await.verdict() == &Verdict::Continue
}

#[tokio::test]
async fn no_allowed_tools_allow_no_tool() {
    assert!(!allows(json!({}), "fs.read").await);
    assert!(!allows(json!({ "allowed_tools": [] }), "fs.read").await);
}

#[tokio::test]
async fn a_star_allows_every_tool() {
    assert!(allows(json!({ "allowed_tools": ["*"] }), "fs.read").await);
    assert!(allows(json!({ "allowed_tools": ["*"] }), "a/b\\c\nd").await);
}

#[tokio::test]
async fn globs_allow_what_they_match_and_nothing_else() {
    let config = json!({ "allowed_tools": ["fs.*", "web.get?", "db[12]"] });
    for (tool, expected) in [
        ("fs.read", true),
        ("fs.", true),
        ("FS.read", false),
        ("xfs.read", false),
        ("web.gets", true),
        ("web.get", false),
        ("db2", true),
        ("db3", false),
    ] {
        assert_eq!(allows(config.clone(), tool).await, expected, "{tool}");
    }
}

#[tokio::test]
async fn braces_and_backslashes_are_ordinary_characters() {
    assert!(allows(json!({ "allowed_tools": ["{a,b}"] }), "{a,b}").await);
    assert!(!allows(json!({ "allowed_tools": ["{a,b}"] }), "a").await);
    assert!(allows(json!({ "allowed_tools": ["\\*"] }), "\\x").await);
}

#[tokio::test]
async fn a_blocked_tool_is_refused_even_when_allowed() {
    let config = json!({ "allowed_tools": ["*"], "blocked_tools": ["shell.*"] });
    assert!(!allows(config.clone(), "shell.exec").await);
    assert!(allows(config, "fs.read").await);
}

#[tokio::test]
async fn a_refusal_says_which_tool_and_what_is_allowed() {
    let reply = ask(json!({ "allowed_tools": ["fs.*"] }), "shell.exec").await;
    let cancel = reply.cancelled().unwrap();
    assert_eq!(cancel.code(), "TOOL_NOT_ALLOWED");
    assert_eq!(cancel.message(), "Tool 'shell.exec' is not available on your plan.");
    let details: Value = serde_json::from_slice(reply.notices()[0].details_json()).unwrap();
    assert_eq!(details, json!({ "tool_name": "shell.exec", "allowed": ["fs.*"] }));
    assert_eq!(reply.notices()[0].code(), Some("TOOL_NOT_ALLOWED"));
}

#[tokio::test]
async fn the_details_of_a_refusal_fit_into_a_notice() {
    let many: Vec<String> = (0..1000).map(|n| format!("\"tool\"{n}")).collect();
    let reply = ask(json!({ "allowed_tools": many }), &"\"".repeat(256)).await;
    assert!(reply.notices()[0].details_json().len() <= 4096);
    assert!(reply.notices()[0].details_json().len() > 1024);
}

#[tokio::test]
async fn a_wrong_tenant_configuration_is_an_error_and_no_pass() {
    let plugin = TestPlugin::<TenantAuth>::start(&NoConfig {}).await.unwrap();
    for (config, says) in [
        (json!({ "allowed_tools": ["[a"] }), "`allowed_tools[0]` isn't a valid glob"),
        (json!({ "allowed_tools": "fs.*" }), "`allowed_tools`"),
        (json!({ "allowed_tool": [] }), "allowed_tool"),
    ] {
        let plugin = plugin.with_tenant_config(&config).unwrap();
        let status = plugin.before_tool_call(BeforeToolCallPayload::default()).await.unwrap_err();
        assert_eq!(status.code(), hookgate_sdk::StatusCode::InvalidArgument, "{config}");
        assert!(status.message().contains(says), "{}", status.message());
    }
}

#[tokio::test]
async fn only_listed_operators_may_act() {
    let plugin = TestPlugin::<TenantAuth>::start(&NoConfig {}).await.unwrap();
    for (config, operator, admitted) in [
        (json!({ "allowed_tools": ["*"] }), "anyone", true),
        (json!({ "allowed_tools": ["*"], "operators": [] }), "anyone", false),
        (json!({ "allowed_tools": ["*"], "operators": ["bot-*", "ada"] }), "bot-7", true),
        (json!({ "allowed_tools": ["*"], "operators": ["bot-*", "ada"] }), "ada", true),
        (json!({ "allowed_tools": ["*"], "operators": ["bot-*", "ada"] }), "Ada", false),
    ] {
        let plugin = plugin.with_tenant_config(&config).unwrap();
        let plugin = plugin.with_context(|context| operator.clone_into(&mut context.operator));
        let call = BeforeToolCallPayload { tool_name: "fs.read".to_owned(), ..Default::default() };
        let call = plugin.before_tool_call(call).await.unwrap();
        let request = plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
        for (cancel, notices) in
            [(call.cancelled(), call.notices()), (request.cancelled(), request.notices())]
        {
            assert_eq!(cancel.is_none(), admitted, "{operator} with {config}");
            let Some(cancel) = cancel else { continue };
            assert_eq!(cancel.code(), "UNAUTHORIZED");
            assert_eq!(cancel.message(), format!("Operator '{operator}' may not act for this tenant."));
            let details: Value = serde_json::from_slice(notices[0].details_json()).unwrap();
            assert_eq!(details, json!({ "operator": operator }));
        }
    }
}

#[tokio::test]
async fn allowed_tools_have_no_say_at_a_request_to_a_model() {
    let plugin = TestPlugin::<TenantAuth>::start(&NoConfig {}).await.unwrap();
    let reply = plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
    assert_eq!(reply.verdict(), &Verdict::Continue);
}
