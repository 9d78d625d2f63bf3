//! Tests `hookgate tools`, and how other commands show the tools of plugins.

use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::{Value, json};

use crate::{
    cli::{
        registry::support::Desk,
        support::{CommandOutput, Folder},
    },
    edge::support::POINT,
    registry::support::file_with,
};

/// Gives a result, refuses, or lets the agent run the tool.
fn act(seen: &Seen) -> Act {
    let Payload::BeforeToolCall(payload) = &seen.payload else { return Act::pass() };
    match (seen.call.run_tool, payload.tool_name.as_str()) {
        (true, "memory.find") => Act::cancel("", "").with_result(r#"["Ada"]"#),
        (true, "memory.drop") => Act::cancel("TOOL_FAILED", "There is nothing to drop."),
        _ => Act::pass(),
    }
}

/// A plugin that provides three tools and offers no point. `memory.wait` is not run.
async fn memory() -> FakePlugin {
    let plugin = FakePlugin::named("memory").only(&[]).tools(&["memory.find", "memory.drop", "memory.wait"]);
    plugin.at_with(POINT, act).start().await
}

/// A gateway with these plugins, each bound for every tenant.
async fn gateway(plugins: &[&FakePlugin]) -> Gateway {
    let setup =
        Gateway::with().tenant("acme").tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }));
    let setup = plugins
        .iter()
        .zip(10..)
        .fold(setup, |setup, (plugin, priority)| setup.plugin(plugin).binding(plugin.name(), priority));
    setup.admin().start().await
}

async fn tools(gateway: &Gateway, token: &str, args: &[&str]) -> CommandOutput {
    let address = format!("http://{}", gateway.data_addr());
    let env = [("HOOKGATE_ADDR", address.as_str()), ("HOOKGATE_TOKEN", token)];
    Folder::new().run_with(&[&["tools"], args].concat(), &env, "").await
}

#[tokio::test]
async fn tools_are_listed_by_name_with_their_plugins() {
    let (memory, clock) =
        (memory().await, FakePlugin::named("clock").only(&[]).tools(&["clock"]).start().await);
    let gateway = gateway(&[&memory, &clock]).await;
    let ran = tools(&gateway, &token("acme"), &[]).await;
    let expected = "NAME         PLUGIN  DESCRIPTION\n\
                    clock        clock   Does clock\n\
                    memory.drop  memory  Does memory.drop\n\
                    memory.find  memory  Does memory.find\n\
                    memory.wait  memory  Does memory.wait\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), expected, ""), "{ran:?}");

    let json = tools(&gateway, &token("acme"), &["--output", "json"]).await;
    let answer = gateway.http(&token("acme")).get("/v1/tools").await.unwrap();
    assert_eq!((json.code, json.stdout.trim_end()), (Some(0), answer.text.as_str()), "as it came");
    let yaml = tools(&gateway, &token("acme"), &["--output", "yaml"]).await;
    assert!(yaml.stdout.contains("name: clock\n"), "{yaml:?}");
    let quiet = tools(&gateway, &token("quiet"), &[]).await;
    assert!(quiet.stdout.contains("\nclock        not told  Does clock\n"), "{quiet:?}");
}

#[tokio::test]
async fn a_tenant_without_tools_and_a_token_that_is_refused_are_told() {
    let guard = FakePlugin::named("guard").start().await;
    let gateway = gateway(&[&guard]).await;
    let ran = tools(&gateway, &token("acme"), &[]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "The tenant's plugins provide no tools.\n"));
    let ran = tools(&gateway, &Token::for_tenant("acme").expiring_in(-120).mint(), &[]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.starts_with("hookgate: TOKEN_EXPIRED (the caller failed): "), "{ran:?}");
    let address = format!("http://{}", gateway.ops_addr());
    let ran = tools(&gateway, &token("acme"), &["--addr", &address]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "another server: {ran:?}");
}

async fn plugin_test(plugin: &FakePlugin, args: &[&str]) -> CommandOutput {
    let endpoint = plugin.endpoint();
    Folder::new().run(&[&["plugin", "test", endpoint.as_str(), "before_tool_call"][..], args].concat()).await
}

#[tokio::test]
async fn plugin_test_shows_the_tools_and_runs_one() {
    let plugin = memory().await;
    let ran = plugin_test(&plugin, &["--tool", "memory.find", "--run-tool"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let shown = "\n\nTOOL         DESCRIPTION\nmemory.drop  Does memory.drop\nmemory.find  Does memory.find\n\
                 memory.wait  Does memory.wait\n\nbefore_tool_call RESULT  after ";
    assert!(ran.stdout.contains(shown) && ran.stdout.ends_with("\nresult [\"Ada\"]\n"), "{ran:?}");
    let json =
        plugin_test(&plugin, &["--tool", "memory.find", "--run-tool", "--output", "json"]).await.json();
    assert_eq!(
        json["plugin"]["tools"][1],
        json!({ "name": "memory.find", "description": "Does memory.find" })
    );
    assert_eq!((&json["call"]["run_tool"], &json["call"]["result"]), (&json!(true), &json!(["Ada"])));

    let ran = plugin_test(&plugin, &["--tool", "memory.drop", "--run-tool"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout.contains("before_tool_call CANCEL  TOOL_FAILED: There is nothing to drop."),
        "{ran:?}"
    );
    for (args, said) in [
        (&["--tool", "memory.wait", "--run-tool"][..], "the call failed: bad_reply: it was to run its tool"),
        (
            &["--tool", "clock", "--run-tool"],
            "the plugin doesn't provide the tool `clock`; it provides memory.drop, memory.find, memory.wait\n",
        ),
        (
            &["--tool", "memory.find"],
            "the plugin doesn't offer before_tool_call; it offers only tools; run one with",
        ),
    ] {
        let ran = plugin_test(&plugin, args).await;
        assert!(ran.code == Some(1) && ran.stderr.contains(said), "{said}: {ran:?}");
    }
    let endpoint = plugin.endpoint();
    let ran = Folder::new().run(&["plugin", "test", &endpoint, "before_response", "--run-tool"]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("--run-tool is for before_tool_call only"), "{ran:?}");
}

#[tokio::test]
async fn the_names_of_tools_are_approved_like_points() {
    let desk = Desk::of(Gateway::with().tenant("acme").admin()).await;
    let mut plugin =
        FakePlugin::named("memory").only(&[]).tools(&["memory.find", "memory.drop"]).start().await;
    let added = desk.does(&["plugin", "add", "memory", "--endpoint", &plugin.endpoint(), "--yes"]).await;
    let shown = "memory 1.0.0\n\nprovides  tools named memory.drop (new)\n          tools named memory.find (new)\n\
                 asks for  no capability\n\n";
    assert!(added.contains(shown), "{added}");
    assert!(added.contains("\ntools     memory.drop, memory.find\n"), "{added}");

    plugin.stop().await;
    plugin.change_manifest(|manifest| {
        manifest.version = "2.0.0".into();
        manifest.tools = vec!["memory.find".into(), "memory.k*".into()];
    });
    plugin.set_tools(&["memory.find", "memory.keep"]);
    plugin.start().await;
    let end = tokio::time::Instant::now() + crate::registry::support::SOON;
    while desk.json(&["plugin", "show", "memory"]).await["pending_manifests"] == json!([]) {
        assert!(tokio::time::Instant::now() < end, "{}", desk.gateway.log());
    }
    let shown = desk.does(&["plugin", "approve", "memory", "--yes"]).await;
    let wants = "memory 2.0.0\n\nprovides  tools named memory.find\n          tools named memory.k* (new)\n          \
                 tools named memory.drop (no longer)\nasks for  no capability\n\n";
    assert!(shown.starts_with(wants), "{shown}");
    assert!(shown.contains("\ntools     memory.find, memory.keep\n"), "{shown}");
}

#[tokio::test]
async fn a_binding_denies_tools() {
    let plugin =
        FakePlugin::named("memory").only(&[]).tools(&["memory.find", "memory.drop"]).start_unix().await;
    let desk = Desk::of(file_with("acme").plugin(&plugin)).await;
    let set = ["binding", "set", "m", "--plugin", "memory", "--all", "--priority", "30"];
    let done = desk.does(&[&set[..], &["--deny-tools", "*.drop,*.keep"]].concat()).await;
    assert!(done.contains("    deny_tools  [\"*.drop\",\"*.keep\"]\n"), "{done}");
    let ran = tools(&desk.gateway, &token("acme"), &[]).await;
    assert_eq!(ran.stdout, "NAME         PLUGIN  DESCRIPTION\nmemory.find  memory  Does memory.find\n");
    desk.does(&["binding", "set", "m", "--deny-tools", "*.find"]).await;
    let spec = &desk.json(&["binding", "show", "m"]).await["spec"];
    assert_eq!(spec["deny_tools"], json!(["*.find"]), "one list replaces the other");
    desk.fails(&["binding", "set", "m", "--deny-tools", "[a"], 2, "\n  /deny_tools/0: ").await;
}

#[tokio::test]
async fn explain_marks_the_step_that_runs_the_tool() {
    let (memory, guard) = (memory().await, FakePlugin::named("guard").start().await);
    let gateway = gateway(&[&memory, &guard]).await;
    let address = format!("http://{}", gateway.admin_addr().expect("the admin port is open"));
    let operator = Token::for_operators().mint();
    let explain = async |tool: &str| {
        let args = [
            "explain",
            "--addr",
            &address,
            "--tenant",
            "acme",
            "--point",
            "before_tool_call",
            "--tool",
            tool,
        ];
        Folder::new().run_with(&args, &[("HOOKGATE_TOKEN", operator.as_str())], "").await
    };
    let ran = explain("memory.find").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<_> = ran.stdout.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| *line == "runs the call's tool, after all other steps");
    let step = lines[at.unwrap_or_else(|| panic!("no step is marked: {ran:?}")) - 2];
    assert_eq!(step.split_whitespace().take(3).collect::<Vec<_>>(), ["2", "memory", "memory"], "{ran:?}");
    assert!(!explain("fs.read").await.stdout.contains("runs the call's tool"));
}

#[tokio::test]
async fn config_check_counts_the_tools_of_each_plugin() {
    let (memory, clock) =
        (memory().await, FakePlugin::named("clock").only(&[POINT]).tools(&["clock"]).start().await);
    let mut file = crate::cli::support::smallest();
    let of = |plugin: &FakePlugin| json!({ "name": plugin.name(), "endpoint": plugin.endpoint() });
    file["plugins"] = json!([of(&memory), of(&clock)]);
    file["bindings"] = json!([{ "plugin": "memory", "tenant": "*", "priority": 1 }]);
    let folder = Folder::new();
    folder.write("f.yaml", &file.to_string());
    let ran = folder.run(&["config", "check", "f.yaml", "--connect"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for row in ["1.0.0    3 tools\n", "1.0.0    before_tool_call, 1 tool\n"] {
        assert!(ran.stdout.contains(row), "{row}: {ran:?}");
    }
    let rows: Value =
        folder.run(&["config", "check", "f.yaml", "--connect", "--output", "json"]).await.json();
    assert_eq!(rows["plugins"][0]["tools"], json!(["memory.drop", "memory.find", "memory.wait"]));
}
