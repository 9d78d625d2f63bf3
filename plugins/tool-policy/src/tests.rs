use hookgate_sdk::{BeforeToolCallPayload, Status, StatusCode, harness::TestPlugin};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

async fn plugin(config: &Value) -> Result<TestPlugin<ToolPolicy>, Status> {
    TestPlugin::<ToolPolicy>::start(config).await
}

async fn call(plugin: &TestPlugin<ToolPolicy>, tool: &str, args: &Value) -> Reply<BeforeToolCallPatch> {
    let args = args.to_string().into();
    let payload = BeforeToolCallPayload { tool_name: tool.to_owned(), args, ..Default::default() };
    plugin.before_tool_call(payload).await.unwrap()
}

async fn allows(config: &Value, tool: &str, args: Value) -> bool {
    call(&plugin(config).await.unwrap(), tool, &args).await.cancelled().is_none()
}

fn details(reply: &Reply<BeforeToolCallPatch>) -> Value {
    serde_json::from_slice(reply.notices()[0].details_json()).unwrap()
}

#[tokio::test]
async fn without_rules_the_default_decides_and_is_deny() {
    assert!(!allows(&json!({}), "fs.read", json!({})).await);
    assert!(!allows(&json!({ "default": "deny" }), "fs.read", json!({})).await);
    assert!(allows(&json!({ "default": "allow" }), "fs.read", json!({})).await);
}

#[tokio::test]
async fn the_first_rule_that_applies_decides() {
    let config = json!({ "rules": [
        { "name": "no-keys", "tools": ["fs.*"], "action": "deny",
          "when": [{ "pointer": "/path", "pattern": r"\.pem$" }] },
        { "name": "files", "tools": ["fs.*"], "action": "allow" },
        { "name": "nothing-else", "action": "deny", "message": "Only files, please." },
        { "name": "never", "tools": ["web.get"], "action": "allow" },
    ] });
    assert!(allows(&config, "fs.read", json!({ "path": "/a" })).await);
    assert!(!allows(&config, "fs.read", json!({ "path": "/a.pem" })).await);
    let reply = call(&plugin(&config).await.unwrap(), "web.get", &json!({})).await;
    assert_eq!(reply.cancelled().unwrap().message(), "Only files, please.");
}

#[tokio::test]
async fn what_a_rule_cannot_judge_never_passes_because_of_it() {
    let condition = json!([{ "pointer": "/command", "pattern": "ls|curl" }]);
    let deny =
        json!({ "default": "allow", "rules": [{ "name": "no-curl", "when": condition, "action": "deny" }] });
    let allow = json!({ "rules": [{ "name": "only-ls", "when": condition, "action": "allow" }] });
    for args in [
        json!({}),
        json!({ "Command": "curl" }),
        json!({ "command": { "text": "curl" } }),
        json!({ "command": ["cu", "rl", "curl x"] }),
        json!("curl"),
        json!(null),
    ] {
        assert!(!allows(&deny, "shell.exec", args.clone()).await, "{args}");
        assert!(!allows(&allow, "shell.exec", args.clone()).await, "{args}");
    }
    assert!(allows(&deny, "shell.exec", json!({ "command": "pwd" })).await);
    assert!(allows(&allow, "shell.exec", json!({ "command": "ls" })).await);
}

#[tokio::test]
async fn one_false_condition_is_enough_for_a_rule_not_to_apply() {
    let config = json!({ "default": "allow", "rules": [{ "name": "no-local-urls", "action": "deny", "when": [
        { "pointer": "/url", "pattern": "//localhost" },
        { "pointer": "/url", "absent": false },
    ] }] });
    assert!(allows(&config, "web.get", json!({})).await);
    assert!(!allows(&config, "web.get", json!({ "url": "http://localhost" })).await);
    assert!(!allows(&config, "web.get", json!({ "url": 1 })).await);
}

#[tokio::test]
async fn arguments_over_1_mib_are_not_judged() {
    let config = json!({ "default": "allow", "rules": [
        { "name": "size", "tools": ["fs.*"], "action": "deny", "when": [{ "pointer": "/path", "pattern": "x" }] },
    ] });
    let args = |bytes: usize| json!({ "path": "/a", "content": "c".repeat(bytes - 26) });
    assert_eq!(args(MAX_ARGUMENTS_BYTES).to_string().len(), MAX_ARGUMENTS_BYTES);
    assert!(allows(&config, "fs.write", args(MAX_ARGUMENTS_BYTES)).await);
    assert!(!allows(&config, "fs.write", args(MAX_ARGUMENTS_BYTES + 1)).await);
    assert!(
        allows(&config, "web.put", args(MAX_ARGUMENTS_BYTES + 1)).await,
        "no rule asks for its arguments"
    );
}

#[tokio::test]
async fn a_tenants_rules_cannot_undo_a_plugin_level_deny() {
    let rule =
        |name: &str, tool: &str, action: &str| json!({ "name": name, "tools": [tool], "action": action });
    let config = json!({ "rules": [rule("no-shell", "shell.*", "deny"), rule("files", "fs.*", "allow")] });
    let plugin = plugin(&config).await.unwrap();
    let tenant = json!({ "tenant_rules": [
        rule("shell", "shell.*", "allow"),
        rule("web", "web.*", "allow"),
        rule("no-writes", "fs.write", "deny"),
    ] });
    let tenant = plugin.with_tenant_config(&tenant).unwrap();
    for (tool, of_all, of_tenant) in [
        ("shell.exec", false, false),
        ("fs.read", true, true),
        ("fs.write", true, false),
        ("web.get", false, true),
        ("mail.send", false, false),
    ] {
        let allowed = call(&plugin, tool, &json!({})).await.cancelled().is_none();
        assert_eq!(allowed, of_all, "{tool}");
        let allowed = call(&tenant, tool, &json!({})).await.cancelled().is_none();
        assert_eq!(allowed, of_tenant, "{tool} of the tenant");
    }
}

#[tokio::test]
async fn a_block_names_the_rule_and_what_it_could_not_judge() {
    let config = json!({ "rules": [
        { "name": "work", "tools": ["fs.write"], "action": "allow",
          "when": [{ "pointer": "/path", "path_under": ["/work"] }] },
        { "name": "no-curl", "tools": ["shell.*"], "action": "deny",
          "when": [{ "pointer": "/command", "pattern": "curl" }] },
    ] });
    let plugin = plugin(&config).await.unwrap();
    let not_judged = |rule: &str, pointer: &str, reason: &str| json!([{ "rule": rule, "pointer": pointer, "reason": reason }]);
    for (tool, args, message, expected) in [
        (
            "fs.write",
            json!({ "path": "secret.txt" }),
            "No rule allows this call of tool 'fs.write'.",
            json!({ "tool_name": "fs.write", "not_judged": not_judged("work", "/path", "the path is relative") }),
        ),
        (
            "shell.exec",
            json!({ "cmd": "ls" }),
            "Rule 'no-curl' can't judge `/command` of tool 'shell.exec': there is no such argument.",
            json!({ "tool_name": "shell.exec", "rule": "no-curl",
                    "not_judged": not_judged("no-curl", "/command", "there is no such argument") }),
        ),
        (
            "shell.exec",
            json!({ "command": "curl secret" }),
            "Rule 'no-curl' denies this call of tool 'shell.exec'.",
            json!({ "tool_name": "shell.exec", "rule": "no-curl" }),
        ),
    ] {
        let reply = call(&plugin, tool, &args).await;
        let cancel = reply.cancelled().unwrap();
        assert_eq!((cancel.code(), cancel.message()), ("TOOL_NOT_ALLOWED", message));
        assert_eq!(details(&reply), expected);
        assert_eq!(
            (reply.notices()[0].code(), reply.notices()[0].message()),
            (Some("TOOL_NOT_ALLOWED"), message)
        );
    }
}

#[tokio::test]
async fn a_rules_own_message_does_not_hide_that_the_call_was_not_judged() {
    let config = json!({ "rules": [
        { "name": "no-curl", "action": "deny", "message": "No downloads.",
          "when": [{ "pointer": "/command", "pattern": "curl" }] },
    ] });
    let plugin = plugin(&config).await.unwrap();
    let unclear = |reason: &str| {
        format!("No downloads. (Rule 'no-curl' can't judge `/command` of tool 'shell.exec': {reason}.)")
    };
    for (args, expected) in [
        (json!({ "command": "curl x" }), "No downloads.".to_owned()),
        (json!({}), unclear("there is no such argument")),
        (json!({ "command": null }), unclear("the argument isn't text")),
        (json!({ "command": "x".repeat(2 << 20) }), unclear("the arguments exceed 1 MiB")),
    ] {
        let reply = call(&plugin, "shell.exec", &args).await;
        let shown = (reply.cancelled().unwrap().message(), reply.notices()[0].message());
        assert_eq!(shown, (expected.as_str(), expected.as_str()));
    }
}

#[tokio::test]
async fn the_details_of_a_block_fit_into_a_notice() {
    let name = |index: usize| format!("{index:_>64}");
    let pointer = format!("/{}", "\"".repeat(127));
    let rule = |index: usize| json!({ "name": name(index), "action": "allow", "when": [{ "pointer": pointer, "pattern": "x" }] });
    let config = json!({ "rules": (0..20).map(rule).collect::<Vec<_>>() });
    let reply = call(&plugin(&config).await.unwrap(), &"\"".repeat(256), &json!({})).await;
    assert!(reply.notices()[0].details_json().len() <= 4096);
    let shown = details(&reply)["not_judged"].as_array().unwrap().clone();
    assert_eq!(shown.iter().map(|one| one["rule"].clone()).collect::<Vec<_>>(), [16, 17, 18, 19].map(name));
}

#[tokio::test]
async fn a_mistake_in_the_settings_is_refused_by_field() {
    let rule = |member: &str, value: Value| {
        let mut rule = json!({ "name": "a", "action": "deny" });
        rule[member] = value;
        rule
    };
    for (rules, says) in [
        (json!([rule("name", json!(""))]), "`rules[0].name`: expected 1 to 64 letters"),
        (json!([rule("name", json!("a b"))]), "`rules[0].name`: expected 1 to 64 letters"),
        (json!([rule("action", json!("block"))]), "`rules[0].action`: expected `allow` or `deny`"),
        (json!([rule("tools", json!([]))]), "`rules[0].tools`: expected at least one entry"),
        (json!([rule("tools", json!(["fs.*", "[a"]))]), "`rules[0].tools[1]`: isn't a valid glob"),
        (json!([rule("message", json!(""))]), "`rules[0].message`: expected 1 to 1024 bytes"),
        (json!([rule("wen", json!([]))]), "unknown field `wen`"),
        (
            json!([rule("when", json!([{ "pointer": "/a", "pattern": "(" }]))]),
            "`rules[0].when[0].pattern`: not a",
        ),
        (
            json!([rule("when", json!(vec![json!({ "pointer": "/a", "absent": true }); 17]))]),
            "`rules[0].when`: expected at most 16",
        ),
        (
            json!([{ "name": "a", "action": "allow", "message": "x" }]),
            "`rules[0].message`: only a rule that denies",
        ),
        (json!([{ "name": "a" }]), "missing field `action`"),
        (
            json!([rule("name", json!("a")), rule("name", json!("a"))]),
            "`rules[1].name`: an earlier rule has this name",
        ),
        (
            json!((0..257).map(|n| rule("name", json!(format!("r{n}")))).collect::<Vec<_>>()),
            "`rules`: expected at most 256",
        ),
    ] {
        let status = plugin(&json!({ "rules": rules })).await.err().unwrap();
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
        assert!(status.message().contains(says), "{says}: {}", status.message());
    }
}

#[tokio::test]
async fn a_wrong_tenant_configuration_is_an_error_and_no_pass() {
    let plugin = plugin(&json!({ "default": "allow" })).await.unwrap();
    for (config, says) in [
        (
            json!({ "tenant_rules": [{ "name": "a", "action": "deny", "tools": ["["] }] }),
            "`tenant_rules[0].tools[0]`",
        ),
        (json!({ "tenant_rules": {} }), "`tenant_rules`"),
        (json!({ "rules": [] }), "unknown field `rules`"),
    ] {
        let plugin = plugin.with_tenant_config(&config).unwrap();
        let payload = BeforeToolCallPayload { args: "{}".into(), ..Default::default() };
        let status = plugin.before_tool_call(payload).await.unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{config}");
        assert!(status.message().contains(says), "{}", status.message());
    }
}

/// A rule of the model below: the tool that it is about, the text that its argument has to have, its action.
type ModelRule = (char, Option<char>, bool);

/// What a list of rules decides, spelt out.
fn model(rules: &[ModelRule], tool: char, argument: Option<char>) -> Option<bool> {
    let (first, rest) = rules.split_first()?;
    let (about, wanted, allow) = *first;
    let applies = about == tool
        && match (wanted, argument) {
            (None, _) => true,
            (Some(wanted), Some(argument)) => wanted == argument,
            (Some(_), None) => !allow,
        };
    if applies { Some(allow) } else { model(rest, tool, argument) }
}

fn list(rules: &[ModelRule], field: &str) -> RuleList {
    let spec = |(index, (tool, wanted, allow)): (usize, &ModelRule)| {
        let when = wanted.map(|wanted| json!({ "pointer": "/a", "pattern": wanted.to_string() }));
        json!({
            "name": format!("r{index}"),
            "tools": [tool.to_string()],
            "when": when.into_iter().collect::<Vec<_>>(),
            "action": if *allow { "allow" } else { "deny" },
        })
    };
    let specs = rules.iter().enumerate().map(spec).collect::<Vec<_>>();
    RuleList::compile(serde_json::from_value(json!(specs)).unwrap(), field).unwrap()
}

fn any_rules() -> impl Strategy<Value = Vec<ModelRule>> {
    let letter = || prop::sample::select(vec!['x', 'y']);
    prop::collection::vec((letter(), prop::option::of(letter()), any::<bool>()), 0..6)
}

proptest! {
    #[test]
    fn rules_decide_in_order_and_a_deny_of_the_plugin_holds(
        of_plugin in any_rules(),
        of_tenant in any_rules(),
        default in any::<bool>(),
        argument in prop::option::of(prop::sample::select(vec!['x', 'y'])),
    ) {
        let default_action = if default { Action::Allow } else { Action::Deny };
        let policy = ToolPolicy { default: default_action, rules: list(&of_plugin, "rules") };
        let tenant = TenantRules(list(&of_tenant, "tenant_rules"));
        let arguments = argument.map_or(json!({}), |text| json!({ "a": text.to_string() }));
        let call = ToolCall { tool: "x", arguments: Some(&arguments) };
        let plugin_level = model(&of_plugin, 'x', argument);
        let expected = plugin_level != Some(false)
            && model(&of_tenant, 'x', argument).or(plugin_level).unwrap_or(default);
        prop_assert_eq!(policy.decide(&tenant, call).action == Action::Allow, expected);
    }
}
