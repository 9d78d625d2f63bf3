//! Tests `hookgate config check --connect` with real plugins in every state: its reports and exit codes,
//! and that it leaves nothing behind.

use std::time::Duration;

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::{FakePlugin, Handshake, Health},
    gateway::{Gateway, binary},
};
use serde_json::{Value, json};
use tonic::Status;

use crate::cli::support::{CommandOutput, Folder, Serving, smallest};

/// A file with these plugins, each with a binding for all tenants that has these further members.
fn file(plugins: &[(Value, Value)]) -> Value {
    let mut file = smallest();
    file["plugins"] = plugins.iter().map(|(plugin, _)| plugin.clone()).collect();
    let binding = |(at, (plugin, members)): (usize, &(Value, Value))| {
        let mut binding = json!({ "plugin": plugin["name"], "tenant": "*", "priority": at });
        binding.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        binding
    };
    file["bindings"] = plugins.iter().enumerate().map(binding).collect();
    file
}

fn entry(plugin: &FakePlugin, members: Value) -> Value {
    let mut entry = json!({ "name": plugin.name(), "endpoint": plugin.endpoint() });
    entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    entry
}

async fn connect(file: &Value, more: &[&str]) -> CommandOutput {
    let folder = Folder::new();
    folder.write("f.yaml", &format!("{file:#}"));
    let args = [&["config", "check", "f.yaml", "--connect"], more].concat();
    folder.run_with(&args, &[("CANARY", "a secret of the plugin")], "").await
}

/// The exit code, reason, detail and remedy of the only plugin. Checks that the table shows the same.
async fn only(plugin: Value) -> (Option<i32>, String, String) {
    let file = file(&[(plugin, json!({}))]);
    let ran = connect(&file, &["--output", "json"]).await;
    let report = ran.json();
    assert_eq!((report["plugins"].as_array().unwrap().len(), ran.stderr.as_str()), (1, ""));
    let row = &report["plugins"][0];
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let said = format!("{} {}", text("detail"), text("remedy"));
    let table = connect(&file, &[]).await;
    assert_eq!(table.code, ran.code, "{table:?}");
    let (address, reason) = (text("address"), text("reason"));
    let result = if reason == "serving" { "ready" } else { &reason };
    let line = table.stdout.lines().find(|line| line.contains(&address)).unwrap_or_default();
    assert!(line.split_whitespace().any(|word| word == result), "{table:?}");
    for text in [text("detail"), text("remedy")] {
        assert!(ran.code == Some(0) || table.stderr.contains(&text), "{text}: {table:?}");
    }
    (ran.code, reason, said)
}

#[tokio::test]
async fn ready_plugins_are_shown_with_their_manifests_and_shut_down() {
    let tcp = FakePlugin::named("one").start().await;
    let unix = FakePlugin::named("two").only(&[ExtensionPoint::BeforeToolCall]).health(Health::Lacking);
    let unix = unix.start_unix().await;
    let builtin = json!({ "name": "content-policy", "builtin": "content-policy" });
    let off = json!({ "name": "off", "endpoint": "http://127.0.0.1:1", "enabled": false });
    let config = json!({ "config": { "key": "${CANARY}" } });
    let file = file(&[
        (entry(&tcp, config), json!({})),
        (entry(&unix, json!({})), json!({})),
        (builtin, json!({})),
        (off, json!({})),
    ]);
    // A gateway that uses the ports doesn't disturb it.
    let gateway = Gateway::with().tenant("acme").plugin(&tcp).binding("one", 1).start().await;
    let mut beside = file.clone();
    beside["server"] = json!({ "data_addr": gateway.data_addr(), "ops_addr": gateway.ops_addr() });
    let before = (tcp.counts(), tcp.initialized().len());
    let ran = connect(&beside, &[]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let lines: Vec<Vec<_>> = ran.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "f.yaml: no mistakes: 2 tenants, 4 plugins, 4 bindings");
    let all = "before_llm_request, before_tool_call, after_tool_result, before_response";
    assert_eq!(lines[2].join(" "), format!("one {} ready 1.0.0 {all}", tcp.endpoint()));
    assert_eq!(lines[3].join(" "), format!("two {} ready 1.0.0 before_tool_call", unix.endpoint()));
    assert_eq!(lines[4][..3], ["content-policy", "builtin:content-policy", "ready"]);
    assert_eq!(lines[5].join(" "), "off http://127.0.0.1:1 disabled");
    assert!(!ran.stdout.contains("a secret"), "{ran:?}");

    // Like another gateway: the plugin is initialised with resolved references, checked, and released.
    let after = tcp.counts();
    assert_eq!(after.shutdowns, before.0.shutdowns + 1);
    assert!(after.checks > before.0.checks);
    let initialized = &tcp.initialized()[before.1..];
    assert_eq!(initialized.len(), 1);
    assert!(initialized[0].config.windows(8).any(|part| part == b"a secret"), "resolved");
    assert_eq!(unix.counts().shutdowns, 1);
}

#[tokio::test]
async fn hooks_are_listed_after_points() {
    let plugin =
        FakePlugin::named("one").only(&[ExtensionPoint::BeforeToolCall]).hooks(&["turn_end", "recall"]);
    let plugin = plugin.start().await;
    let file = file(&[(entry(&plugin, json!({})), json!({ "hooks": ["recall"] }))]);
    let ran = connect(&file, &[]).await;
    assert!(
        ran.code == Some(0) && ran.stdout.contains("1.0.0    before_tool_call, recall, turn_end\n"),
        "{ran:?}"
    );
    let row = &connect(&file, &["--output", "json"]).await.json()["plugins"][0];
    assert_eq!(
        (&row["points"], &row["hooks"]),
        (&json!(["before_tool_call"]), &json!(["recall", "turn_end"]))
    );
}

#[tokio::test]
async fn a_plugin_that_is_refused_is_shown_with_the_reason_and_what_to_change() {
    let plugin = FakePlugin::named("one").start().await;
    let granted = json!({});
    assert_eq!(only(entry(&plugin, granted.clone())).await.1, "serving");
    plugin.change_manifest(|manifest| manifest.capabilities = vec!["log".into()]);
    for (members, advice) in
        [(json!({}), "add them to `grants`"), (json!({ "grants": ["log"] }), "no database: set `store`")]
    {
        let (code, reason, said) = only(entry(&plugin, members)).await;
        assert_eq!((code, reason.as_str()), (Some(4), "CAPABILITY_OVERREACH"), "{said}");
        assert!(said.contains(advice), "{said}");
    }
    plugin.change_manifest(|manifest| manifest.capabilities.clear());
    for (members, expected) in [
        (json!({ "name": "other" }), ("NAME_MISMATCH", "register it under its own name")),
        (json!({ "version": ">=2" }), ("VERSION_MISMATCH", "run a version within the range")),
    ] {
        let mut entry = entry(&plugin, granted.clone());
        entry.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let (code, reason, said) = only(entry).await;
        assert_eq!((code, reason.as_str()), (Some(4), expected.0), "{said}");
        assert!(said.contains(expected.1), "{said}");
    }
    plugin.change_manifest(|manifest| manifest.protocol_versions = vec![7]);
    assert_eq!(only(entry(&plugin, granted.clone())).await.1, "PROTOCOL_MISMATCH");
    plugin.change_manifest(|manifest| manifest.points.clear());
    plugin.change_manifest(|manifest| manifest.protocol_versions = vec![1]);
    assert_eq!(only(entry(&plugin, granted.clone())).await.1, "NO_EXTENSION_POINT");
    plugin.set_describe(Handshake::Fails(Status::unimplemented("no")));
    let (code, reason, _) = only(entry(&plugin, granted)).await;
    assert_eq!((code, reason.as_str()), (Some(4), "BAD_MANIFEST"));
}

#[tokio::test]
async fn config_that_a_plugin_does_not_take_is_a_mistake_with_its_line() {
    let schema = json!({ "type": "object", "properties": { "size": { "type": "integer" } } });
    let tenant = json!({ "type": "object", "properties": { "limit": { "type": "integer" } } });
    let plugin = FakePlugin::named("one").config_schema(schema).tenant_config_schema(tenant).start().await;
    let said = |ran: &CommandOutput, place: &str, text: &str| {
        let mistake = ran.stderr.lines().find(|line| line.contains(place)).unwrap_or_default();
        assert!(mistake.starts_with("f.yaml:") && mistake.contains(text), "{ran:?}");
    };

    let wrong = file(&[(entry(&plugin, json!({ "config": { "size": "CANARY" } })), json!({}))]);
    let ran = connect(&wrong, &[]).await;
    assert_eq!(ran.code, Some(4), "no start without it: {ran:?}");
    said(&ran, "/plugins/0/config: ", "`/size`");
    assert!(ran.stderr.ends_with("\n1 problem in the configuration\n") && !ran.stderr.contains("CANARY"));

    // A tenant's and a binding's config: a start would only log the errors.
    let mut wrong = file(&[(entry(&plugin, json!({})), json!({ "config": { "limit": "much" } }))]);
    wrong["tenants"]["list"][0]["config"] = json!({ "one": { "limit": "CANARY" } });
    wrong["tenants"]["unknown"] = json!("accept");
    let ran = connect(&wrong, &[]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    said(&ran, "/tenants/list/0/config/one: ", "for tenant `acme`");
    said(&ran, "/bindings/0/config: ", "plugin `one` rejects the config");
    assert!(!ran.stderr.contains("CANARY") && ran.stdout.contains(" ready "), "{ran:?}");
    let listed = connect(&wrong, &["--output", "yaml"]).await;
    let listed: Value = serde_saphyr::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["mistakes"].as_array().unwrap().len(), 2, "{listed}");

    plugin.set_initialize(Handshake::Fails(Status::invalid_argument("size is odd")));
    let (code, reason, text) = only(entry(&plugin, json!({}))).await;
    assert_eq!((code, reason.as_str()), (Some(4), "CONFIG_REFUSED"));
    assert!(text.contains("size is odd"), "{text}");
    // Built-in plugins are checked like all others.
    let builtin =
        json!({ "name": "content-policy", "builtin": "content-policy", "config": { "no_such": 1 } });
    let (code, reason, text) = only(builtin).await;
    assert_eq!((code, reason.as_str()), (Some(4), "CONFIG_REFUSED"), "{text}");
}

#[tokio::test]
async fn a_binding_at_a_point_that_its_plugin_does_not_offer_is_a_mistake() {
    let plugin = FakePlugin::named("one").only(&[ExtensionPoint::BeforeToolCall]).start().await;
    let points = json!({ "points": ["before_tool_call", "before_response"] });
    let right = file(&[(entry(&plugin, json!({})), json!({ "points": ["before_tool_call"] }))]);
    assert_eq!(connect(&right, &[]).await.code, Some(0));
    let off = json!({ "points": ["before_response"], "enabled": false });
    assert_eq!(connect(&file(&[(entry(&plugin, json!({})), off)]), &[]).await.code, Some(0));
    let ran = connect(&file(&[(entry(&plugin, json!({})), points)]), &[]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for said in [
        "/bindings/0/points/1: plugin `one` doesn't offer `before_response`",
        "  = it offers `before_tool_call`: name some of these",
        "1 problem in the configuration",
    ] {
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
    }
}

#[tokio::test]
async fn a_plugin_that_is_not_reached_or_not_well_is_shown_with_what_to_do() {
    let mut gone = FakePlugin::named("one").start().await;
    let hasty = |plugin: &FakePlugin| entry(plugin, json!({ "limits": { "initialize": "200ms" } }));
    let entry = |plugin: &FakePlugin| entry(plugin, json!({}));
    gone.set_health(Health::NotServing);
    let (code, reason, _) = only(entry(&gone)).await;
    assert_eq!((code, reason.as_str()), (Some(4), "not_serving"));
    gone.set_health(Health::Hangs);
    let (code, reason, said) = only(entry(&gone)).await;
    assert_eq!((code, reason.as_str()), (Some(4), "health_unanswered"), "{said}");
    gone.set_health(Health::Serving);
    gone.set_initialize(Handshake::Fails(Status::unavailable("later")));
    assert_eq!(only(entry(&gone)).await.1, "initialize_unavailable");
    gone.set_initialize(Handshake::Fails(Status::internal("no")));
    assert_eq!(only(entry(&gone)).await.1, "INITIALIZE_FAILED");
    gone.set_initialize(Handshake::Hangs);
    assert_eq!(only(hasty(&gone)).await.1, "INITIALIZE_TIMEOUT");
    gone.set_describe(Handshake::Fails(Status::internal("no")));
    assert_eq!(only(entry(&gone)).await.1, "describe_failed");
    gone.stop().await;
    let (code, reason, said) = only(entry(&gone)).await;
    assert_eq!((code, reason.as_str()), (Some(4), "connection_refused"));
    assert!(said.contains("start the plugin there, or correct `endpoint`"), "{said}");
    for (endpoint, expected) in [
        ("unix:///nowhere/at.sock", "no_socket"),
        ("dns:///no-such-name.invalid:7000", "name_unresolved"),
        ("http://no-such-name.invalid:7000", "name_unresolved"),
    ] {
        let (code, reason, _) = only(json!({ "name": "one", "endpoint": endpoint })).await;
        assert_eq!((code, reason.as_str()), (Some(4), expected), "{endpoint}");
    }
}

#[tokio::test]
async fn each_endpoint_is_shown_by_itself_and_a_start_needs_one_of_them() {
    let first = FakePlugin::named("one").start().await;
    let second = FakePlugin::named("one").only(&[ExtensionPoint::BeforeToolCall]).start().await;
    let one =
        json!({ "name": "one", "endpoints": [first.endpoint(), second.endpoint(), "http://127.0.0.1:1"] });
    let ran = connect(&file(&[(one, json!({}))]), &["--output", "json"]).await;
    let reasons: Vec<_> =
        ran.json()["plugins"].as_array().unwrap().iter().map(|row| row["reason"].clone()).collect();
    assert_eq!(ran.code, Some(1), "{reasons:?}");
    // Which of the two is accepted depends on which was described first.
    let mut two = [reasons[0].as_str().unwrap(), reasons[1].as_str().unwrap()];
    two.sort_unstable();
    assert_eq!((two, &reasons[2]), (["manifest_mismatch", "serving"], &json!("connection_refused")));

    // Every address of a host name is checked.
    let port = first.endpoint().rsplit_once(':').unwrap().1.to_owned();
    let names = ["dns:///localhost:".to_owned() + &port, "dns:///no-such-name.invalid:1".into()];
    let ran =
        connect(&file(&[(json!({ "name": "one", "endpoints": names }), json!({}))]), &["--output", "json"])
            .await;
    let report = ran.json();
    let found = |address: &str, reason: &str| {
        let mut rows = report["plugins"].as_array().unwrap().iter();
        rows.any(|row| row["address"] == address && row["reason"] == reason)
    };
    assert!(found(&first.endpoint(), "serving") && found(&names[1], "name_unresolved"), "{report}");
    assert_eq!(ran.code, Some(1));
}

#[tokio::test]
async fn a_plugin_without_which_calls_would_go_on_is_only_a_failure() {
    let ready = FakePlugin::named("one").start().await;
    let gone = json!({ "name": "gone", "endpoint": "http://127.0.0.1:1" });
    let plugins = [(entry(&ready, json!({})), json!({})), (gone, json!({ "mode": "advise" }))];
    let ran = connect(&file(&plugins), &[]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with("plugin `gone` at http://127.0.0.1:1 is unhealthy: "), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1);
}

/// A plugin that doesn't answer doesn't delay the command beyond its timeout.
#[tokio::test]
async fn an_answer_that_does_not_come_ends_with_the_wait() {
    let plugin = FakePlugin::named("one").on_initialize(Handshake::Hangs).start().await;
    let file = file(&[(entry(&plugin, json!({})), json!({}))]);
    let started = std::time::Instant::now();
    let ran = connect(&file, &["--wait", "3s"]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("is connecting: initializing: wait longer (`--wait`)"), "{ran:?}");
    assert!(started.elapsed() < Duration::from_secs(9), "the default wait: {:?}", started.elapsed());
}

#[tokio::test]
async fn a_file_with_mistakes_makes_no_connection() {
    let plugin = FakePlugin::named("one").start().await;
    let mut wrong = file(&[(entry(&plugin, json!({})), json!({}))]);
    wrong["log"]["level"] = json!("loud");
    let ran = connect(&wrong, &[]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    let listed = connect(&wrong, &["--output", "json"]).await;
    assert_eq!((listed.code, listed.json()["plugins"].clone()), (Some(2), json!([])));
    assert_eq!(listed.json()["mistakes"][0]["pointer"], "/log/level");
    assert_eq!(plugin.counts().connections, 0);
}

/// The command can be interrupted, and plugins are released even then.
#[tokio::test]
async fn an_interrupt_reports_what_is_known_and_shuts_the_plugins_down() {
    let silent = FakePlugin::named("silent").on_describe(Handshake::Hangs).start().await;
    let well = FakePlugin::named("well").start().await;
    let folder = Folder::new();
    let file = file(&[(entry(&silent, json!({})), json!({})), (entry(&well, json!({})), json!({}))]);
    folder.write("f.yaml", &file.to_string());
    let line = format!("{} config check f.yaml --connect --wait 60s", binary().display());
    let asking = Serving::pasted(folder.0.path(), &line, &[]).await;
    silent.wait_until(|counts| counts.describes == 1).await;
    well.wait_until(|counts| counts.initializes == 1).await;
    let ran = asking.stop().await;
    assert_eq!((ran.code, well.counts().shutdowns), (Some(4), 1), "{ran:?}");
    assert!(ran.stderr.contains("required plugin `silent`"), "{ran:?}");
    assert!(ran.stdout.lines().any(|line| line.starts_with("well")), "{ran:?}");
}
