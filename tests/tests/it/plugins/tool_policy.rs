//! Tests the built-in plugin `tool-policy` through the gateway, with the configuration of its page.

use hookgate_proto::types::v1::ExtensionPoint::BeforeToolCall;
use hookgate_tests::{
    agent::HttpAnswer,
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::{Value, json};

use super::reference_page::{example, section};

/// A gateway with the plugin, the tenants and the bindings of the page.
fn documented() -> Setup {
    let file = example("tool-policy");
    let setup = Gateway::with().builtin("tool-policy", &file["plugins"][0]["config"]);
    setup.set("/tenants", file["tenants"].clone()).set("/bindings", file["bindings"].clone())
}

async fn call(gateway: &Gateway, tenant: &str, tool: &str, args: Value) -> HttpAnswer {
    gateway.http(&token(tenant)).call(BeforeToolCall, json!({ "tool_name": tool, "args": args })).await
}

#[tokio::test]
async fn shell_commands_are_allowed_and_denied_by_pattern() {
    let gateway = documented().start().await;
    for (args, status) in [
        (json!({ "command": "ls -la src" }), 200),
        (json!({ "command": "git status" }), 200),
        (json!({ "command": "curl https://example.com" }), 403),
        (json!({ "command": "CURL https://example.com" }), 403),
        (json!({ "command": "ls; rm -rf /" }), 403),
        (json!({ "command": "git status\nrm -rf /" }), 403),
        (json!({ "command": ["curl", "x"] }), 403),
        (json!({ "command": ["ls"] }), 200),
        (json!({ "command": { "text": "ls" } }), 403),
        (json!({ "Command": "ls" }), 403),
        (json!({ "command": "ls", "COMMAND": "curl x" }), 403),
        (json!({}), 403),
    ] {
        let answer = call(&gateway, "acme", "shell.exec", args).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
}

#[tokio::test]
async fn files_are_written_only_below_the_listed_directories() {
    let gateway = documented().start().await;
    for (path, status) in [
        (json!("/workspace/src/main.rs"), 200),
        (json!("src/../notes.md"), 200),
        (json!("/tmp/agent/x/"), 200),
        (json!("/workspace/../etc/passwd"), 403),
        (json!("../etc/passwd"), 403),
        (json!("/workspace2/x"), 403),
        (json!("~/.ssh/authorized_keys"), 403),
        (json!("/workspace\\..\\x"), 403),
        (json!("/workspace/x\u{0}/../../etc/passwd"), 403),
        (json!(["/workspace/x", "/etc/passwd"]), 403),
        (json!(null), 403),
    ] {
        let answer = call(&gateway, "acme", "fs.write", json!({ "path": path })).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let read = call(&gateway, "acme", "fs.read", json!({ "path": "/etc/hosts" })).await;
    assert_eq!((read.status, &read.body["modified"]), (200, &json!(false)), "{read:?}");
}

#[tokio::test]
async fn a_denied_call_names_the_rule_and_reaches_no_later_plugin() {
    let later = FakePlugin::named("later").start().await;
    let gateway = documented().plugin(&later).binding("later", 200).start().await;
    let answer = call(&gateway, "acme", "shell.exec", json!({ "command": "wget s3cret" })).await;
    let message = "Commands may not download anything.";
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(
        answer.body["block"],
        json!({
            "plugin": "tool-policy",
            "binding": "tool-policy",
            "code": "TOOL_NOT_ALLOWED",
            "message": message,
            "scope": "step",
        })
    );
    assert_eq!(
        answer.body["notices"],
        json!([{
            "plugin": "tool-policy",
            "kind": "block",
            "code": "TOOL_NOT_ALLOWED",
            "message": message,
            "details": { "tool_name": "shell.exec", "rule": "no-downloads" },
        }])
    );
    assert_eq!(later.counts().calls, 0, "the chain has ended");
    let allowed = call(&gateway, "acme", "fs.read", json!({})).await;
    assert_eq!((allowed.status, later.counts().calls), (200, 1), "{allowed:?}");
}

#[tokio::test]
async fn the_details_of_the_page_are_those_of_the_gateway() {
    let gateway = documented().start().await;
    let answer = call(&gateway, "acme", "fs.write", json!({ "path": "~/x" })).await;
    let shown = section("tool-policy").1;
    assert!(shown.contains(&answer.body["notices"][0]["details"]), "{answer:?}\n{shown:?}");
}

#[tokio::test]
async fn a_tenants_rules_add_to_those_of_the_plugin() {
    let gateway = documented().start().await;
    let write = json!({ "path": "/workspace/x" });
    for (tenant, tool, args, status) in [
        ("acme", "web.search", json!({}), 403),
        ("globex", "web.search", json!({}), 200),
        ("acme", "fs.write", write.clone(), 200),
        ("globex", "fs.write", write.clone(), 403),
        ("globex", "fs.mkdir", write, 200),
        ("globex", "shell.exec", json!({ "command": "curl x" }), 403),
        ("globex", "mail.send", json!({}), 403),
    ] {
        let answer = call(&gateway, tenant, tool, args).await;
        assert_eq!(answer.status, status, "{tenant} {tool}: {answer:?}");
    }
}

#[tokio::test]
async fn an_argument_that_is_there_twice_never_reaches_the_rules() {
    let gateway = documented().start().await;
    let agent = gateway.http(&token("acme"));
    for key in ["command", "comm\\u0061nd"] {
        let args = format!(r#"{{"command":"ls","{key}":"curl x"}}"#);
        let body = format!(r#"{{"payload":{{"tool_name":"shell.exec","args":{args}}}}}"#);
        let answer = agent.post_text(BeforeToolCall, body).await;
        assert_eq!((answer.status, &answer.body["code"]), (400, &json!("PAYLOAD_INVALID")), "{answer:?}");
    }
}

#[tokio::test]
async fn a_mistake_in_a_rule_ends_the_start_with_its_setting() {
    for (rule, says) in [
        (
            json!({ "name": "a", "action": "deny", "when": [{ "pointer": "/a", "pattern": "(" }] }),
            "rules[0].when[0].pattern",
        ),
        (json!({ "name": "a", "action": "deny", "tools": ["[a"] }), "rules[0].tools[0]"),
        (json!({ "name": "a", "action": "deny", "wen": [] }), "wen"),
    ] {
        let config = json!({ "rules": [rule] });
        let setup = Gateway::with().tenant("acme").builtin("tool-policy", &config).binding("tool-policy", 10);
        let exit = setup.run_to_the_end().await;
        assert_eq!(exit.code, Some(4), "{}", exit.log);
        assert!(exit.log.to_string().contains(says), "{says}: {}", exit.log);
    }
}

#[tokio::test]
async fn a_mistake_in_a_tenants_rule_fails_its_calls_alone() {
    let broken = json!([{ "name": "a", "action": "deny", "tools": ["[a"] }]);
    let setup = Gateway::with()
        .tenant_with("acme", &json!({ "config": { "tool-policy": { "tenant_rules": broken } } }))
        .tenant("globex")
        .builtin("tool-policy", &json!({ "default": "allow" }))
        .binding("tool-policy", 10);
    let gateway = setup.start().await;
    let answer = call(&gateway, "acme", "fs.read", json!({})).await;
    assert_eq!((answer.status, &answer.body["code"]), (502, &json!("PLUGIN_ERROR")), "{answer:?}");
    assert!(answer.body["detail"].to_string().contains("tenant_rules[0].tools[0]"), "{answer:?}");
    assert_eq!(call(&gateway, "globex", "fs.read", json!({})).await.status, 200);
}
