//! Tests `hookgate plugin test`: a handshake and one call without a gateway, and the reasons for failures.

use hookgate_proto::{
    plugin::v1::Access,
    types::v1::{BeforeToolCallPatch, ExtensionPoint, NoticeKind},
};
use hookgate_tests::{
    ca::{self, Ca},
    fake::{Act, Builder, FakePlugin, Handshake, notice},
};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    cli::support::{CommandOutput, Folder},
    edge::support::POINT,
};

const ARGS: &str = r#"{"z":9007199254740993,"a":null}"#;

async fn test(plugin: &FakePlugin, args: &[&str]) -> CommandOutput {
    let endpoint = plugin.endpoint();
    let env = [("SECRET_OF_TEST", "hunter2hunter2")];
    let all = [&["plugin", "test", endpoint.as_str(), "before_tool_call", "--tool", "t"][..], args].concat();
    let ran = Folder::new().run_with(&all, &env, "").await;
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!said.contains('\u{1b}') && !said.contains("panicked") && !said.contains("hunter2"), "{said}");
    ran
}

#[tokio::test]
async fn a_plugin_is_described_initialised_called_and_let_go() {
    let patch = BeforeToolCallPatch { args: Some("null".into()), ..Default::default() };
    let said = notice(NoticeKind::Info, "TOLD", "look", &json!({ "n": 1 }));
    let plugin = FakePlugin::named("own-name").at(POINT, Act::patch(patch).with_notice(said));
    let plugin = plugin.manifest(|manifest| manifest.capabilities = vec!["log".into()]).start().await;
    let args = [
        "--args",
        ARGS,
        "--config",
        r#"{"key":"${SECRET_OF_TEST}"}"#,
        "--tenant-config",
        r#"{"k":9007199254740993}"#,
        "--tenant",
        "acme",
        "--label",
        "env=prod",
    ];
    let ran = test(&plugin, &args).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    for part in [
        "plugin     own-name 1.0.0\n",
        "asks for   log (not offered; see --host-services)\n",
        "before_tool_call    modify  none\n",
        "before_tool_call CONTINUE  after ",
        &format!("patch\n      - args  {ARGS}\n      + args  null\n"),
        "info    TOLD  look\n",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    let counts = plugin.counts();
    assert_eq!(
        (counts.describes, counts.initializes, counts.calls, counts.shutdowns),
        (1, 1, 1, 1),
        "{counts:?}"
    );
    let handed_over = plugin.initialized().pop().unwrap();
    assert_eq!(handed_over.config, r#"{"key":"hunter2hunter2"}"#.as_bytes(), "references are resolved");
    let call = plugin.seen().pop().unwrap().call;
    assert_eq!(call.tenant_config, r#"{"k":9007199254740993}"#.as_bytes());
    let context = call.context.unwrap();
    assert_eq!((context.tenant.as_str(), context.labels["env"].as_str()), ("acme", "prod"));

    let json = test(&plugin, &[&args[..], &["--output", "json"]].concat()).await.json();
    assert_eq!((&json["plugin"]["name"], &json["call"]["verdict"]), (&json!("own-name"), &json!("continue")));
    assert_eq!((&json["call"]["changes"], &json["failure"]), (&json!({ "args": null }), &Value::Null));
    assert_eq!(json["call"]["notices"][0]["details"], json!({ "n": 1 }));
}

#[tokio::test]
async fn a_cancel_is_exit_code_3() {
    let plugin = FakePlugin::named("guard").at(POINT, Act::cancel("NO_WAY", "not that")).start().await;
    let ran = test(&plugin, &[]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "{ran:?}");
    assert!(ran.stdout.contains("before_tool_call CANCEL  NO_WAY: not that  after "), "{ran:?}");
    let json = test(&plugin, &["--output", "json"]).await;
    assert_eq!((json.code, json.json()["call"]["cancel"]["code"].as_str()), (Some(3), Some("NO_WAY")));
    assert_eq!(plugin.counts().shutdowns, 2);
}

#[tokio::test]
async fn the_hooks_of_a_plugin_are_shown_and_a_plugin_with_hooks_only_is_told_how_to_be_called() {
    let plugin = FakePlugin::named("notes").only(&[POINT]).hooks(&["recall"]).start().await;
    let ran = test(&plugin, &[]).await;
    assert!(ran.code == Some(0) && ran.stdout.contains("\nrecall            -       none\n"), "{ran:?}");
    let json = test(&plugin, &["--output", "json"]).await.json();
    assert_eq!(json["plugin"]["hooks"], json!([{ "hook": "recall", "side_effects": false }]));
    plugin.change_manifest(|manifest| manifest.points.clear());
    let ran = test(&plugin, &[]).await;
    let said = "the plugin doesn't offer before_tool_call; it offers only the hooks recall; bind it there in a gateway, \
                and use `hookgate call-hook`\n";
    assert!(ran.code == Some(1) && ran.stderr.ends_with(said), "{ran:?}");
}

fn named() -> Builder {
    FakePlugin::named("guard")
}

/// Cases that a gateway would reject or fail, with its error code.
#[tokio::test]
async fn what_a_gateway_would_not_take_is_exit_code_1_with_the_reason() {
    let patch = BeforeToolCallPatch { tool_name: Some("x".into()), ..Default::default() };
    let patches = || Act::patch(patch.clone());
    let schema = json!({ "type": "object", "required": ["needed"] });
    let fails = || Handshake::Fails(Status::invalid_argument("mind the hunter2hunter2"));
    let secret = ["--config", r#"{"needed":"${SECRET_OF_TEST}"}"#];
    let cases: [(Builder, &[&str], &str); 9] = [
        (
            named().only(&[ExtensionPoint::BeforeResponse]),
            &[],
            "the plugin doesn't offer before_tool_call; it offers before_response",
        ),
        (named().config_schema(schema.clone()), &[], "the plugin is refused: CONFIG_REFUSED: "),
        (named().on_initialize(fails()), &secret, "the plugin is refused: "),
        (named().tenant_config_schema(schema), &[], "--tenant-config violates the plugin's schema: "),
        (named().manifest(|m| m.name = "no name".into()), &[], "`no name` is not valid: use a letter"),
        (
            named().manifest(|m| m.protocol_versions = vec![9]),
            &[],
            "the plugin is refused: PROTOCOL_MISMATCH: ",
        ),
        (named().at(POINT, Act::no_verdict()), &[], "the call failed: bad_reply: "),
        (named().at(POINT, patches()).access(Access::Read), &[], "the call failed: forbidden_patch: "),
        (named().at(POINT, Act::hang()), &["--timeout", "300ms"], "the call failed: timeout: "),
    ];
    for (plugin, args, said) in cases {
        let plugin = plugin.start().await;
        let ran = test(&plugin, args).await;
        assert_eq!(ran.code, Some(1), "{said}: {ran:?}");
        assert!(ran.stderr.starts_with("hookgate: ") && ran.stderr.contains(said), "{said}: {ran:?}");
        let json = test(&plugin, &[args, &["--output", "json"]].concat()).await;
        assert!(json.code == Some(1) && json.json()["failure"]["reason"].is_string(), "{json:?}");
    }
}

#[tokio::test]
async fn a_plugin_that_is_not_there_is_named_by_its_cause() {
    let folder = Folder::new();
    folder.write("file", "");
    let path = |name: &str| format!("unix://{}/{name}", folder.0.path().display());
    for (endpoint, said) in [
        (path("none.sock"), "the plugin is unhealthy: no_socket: "),
        (path("file"), "the plugin is unhealthy: not_a_socket: "),
        ("http://127.0.0.1:1".into(), "the plugin is unhealthy: connection_refused: "),
    ] {
        let ran = folder.run(&["plugin", "test", &endpoint, "before_tool_call", "--tool", "t"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
        assert!(
            ran.stderr.ends_with(
                "\n  = check that the plugin runs and listens at that address, and check its log\n"
            ),
            "{ran:?}"
        );
    }
}

#[tokio::test]
async fn over_tls_the_plugin_has_to_be_who_it_says() {
    let ca = Ca::new();
    let plugin = named().start_tls_as(ca::server(&ca.pair(&["127.0.0.1"]), None)).await;
    let file = ca.file().display().to_string();
    assert_eq!(test(&plugin, &["--ca", &file]).await.code, Some(0));
    let ran = test(&plugin, &["--ca", &file, "--server-name", "guard.example.org"]).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("certificate_name"), "{ran:?}");
    let other = Ca::new().file().display().to_string();
    let ran = test(&plugin, &["--ca", &other]).await;
    assert!(ran.code == Some(1) || ran.code == Some(2), "{ran:?}");
}

#[tokio::test]
async fn what_is_typed_wrongly_reaches_no_plugin() {
    let plugin = named().start().await;
    let folder = Folder::new();
    folder.write("list.yaml", "- hunter2\n");
    let list = folder.0.path().join("list.yaml").display().to_string();
    for (args, said) in [
        (&["--config", "{\"key\":hunter2}"][..], "is not valid JSON: "),
        (&["--config", "none.yaml"], "the file of --config can't be read"),
        (&["--tenant-config", &list], "the file of --tenant-config is not a YAML mapping"),
        (&["--args", "{"], "--args is not valid JSON"),
        (&["--text", "x"], "--text doesn't belong to before_tool_call"),
        (&["--cert", "a.pem"], "--key"),
        (&["--timeout", "2h"], "a timeout must be from 1ms to 60s"),
    ] {
        let ran = test(&plugin, args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
    }
    let remote = [
        "plugin",
        "test",
        "http://192.0.2.1:1",
        "before_response",
        "--content",
        "x",
        "--config",
        r#"{"k":"${A}"}"#,
    ];
    for (args, said) in [
        (
            &["plugin", "test", "ftp://x", "before_response", "--content", "x"][..],
            "an endpoint begins with `unix:///`",
        ),
        (&remote, "references, which would go over the network in plaintext"),
    ] {
        let ran = folder.run(args).await;
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{said}: {ran:?}");
    }
    assert_eq!(plugin.counts().describes, 0);
}
