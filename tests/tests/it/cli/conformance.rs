//! Tests `hookgate conformance`: plugins that keep the rules pass, and a plugin that breaks one rule fails the check of
//! that rule alone.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use clap::ValueEnum as _;
use hookgate_tests::{
    ca::{self, Ca},
    conforming_plugin::{BrokenRule, ConformingPlugin},
    fake::{FakePlugin, Handshake},
    gateway::binary,
    repository,
};
use serde_json::Value;
use tonic::Status;

use crate::cli::support::{CommandOutput, Folder};

/// Checks that only pass or are skipped for a plugin that somebody else started.
const NEED_A_COMMAND: [&str; 2] = ["stop", "restart"];

async fn conformance(endpoint: &str, args: &[&str]) -> CommandOutput {
    Folder::new().run(&[&["conformance", endpoint][..], args].concat()).await
}

/// The names of the checks with this outcome.
fn with_outcome<'a>(report: &'a Value, outcome: &str) -> Vec<&'a str> {
    let checks = report["checks"].as_array().expect("it lists checks").iter();
    checks.filter(|check| check["outcome"] == outcome).filter_map(|check| check["name"].as_str()).collect()
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut checks = report["checks"].as_array().expect("it lists checks").iter();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name} is not in {report}"))
}

#[tokio::test]
async fn plugin_that_keeps_every_rule_passes() {
    let plugin = ConformingPlugin::start(BrokenRule::Nothing).await;
    let ran = conformance(&plugin.endpoint(), &[]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(
        ran.stdout.starts_with("ok    describe           docs/protocol.md#2-what-a-plugin-implements\n"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("skip  restart"), "{ran:?}");
    assert!(ran.stdout.ends_with("\nconforming 1.0.0: 26 checks, 24 ok, 0 failed, 2 skipped\n"), "{ran:?}");

    let report = conformance(&plugin.endpoint(), &["--output", "json"]).await.json();
    assert_eq!(with_outcome(&report, "skipped"), NEED_A_COMMAND, "{report}");
    assert_eq!((&report["failed"], &report["plugin"]["name"]), (&0.into(), &"conforming".into()));
}

/// The broken rule, its check, what came instead, and whether the other checks could be made.
const BROKEN: [(BrokenRule, &str, &str, bool); 23] = [
    (BrokenRule::OddVersion, "manifest", "BAD_MANIFEST: `version` is `one`", false),
    (BrokenRule::AnyDigest, "unknown-digest", "a reply with the status OK", true),
    (
        BrokenRule::OneConfiguration,
        "several-digests",
        "NOT_INITIALIZED, after Initialize with three digests",
        true,
    ),
    (BrokenRule::InitializeOnce, "initialize-again", "status ALREADY_EXISTS: initialised already", true),
    (BrokenRule::ReleaseForAll, "release", "NOT_INITIALIZED, after Release", true),
    (BrokenRule::ShutdownForAll, "shutdown", "NOT_INITIALIZED, after Shutdown by another gateway", true),
    (BrokenRule::EndsOnShutdown, "shutdown", "after Shutdown by another gateway", true),
    (BrokenRule::PoisonedByCancel, "cancelled-calls", "a lock is poisoned, after cancelled calls", true),
    (
        BrokenRule::PoisonedByDeadline,
        "expired-calls",
        "a lock is poisoned, after calls whose time ran out",
        true,
    ),
    (BrokenRule::SharedState, "parallel-calls", "the reply to another call", true),
    (BrokenRule::NoVerdict, "call", "neither continue nor cancel", false),
    (BrokenRule::NoReply, "call", "no reply within 500ms", false),
    (BrokenRule::SurplusPoint, "other-points", "a reply with the status OK", true),
    (BrokenRule::SurplusHook, "hooks", "a reply with the status OK", true),
    (BrokenRule::StrictDescribe, "unknown-fields", "status INVALID_ARGUMENT: a field is unknown", true),
    (
        BrokenRule::StrictCalls,
        "unknown-fields",
        "status INVALID_ARGUMENT: a field is unknown, after unknown fields",
        true,
    ),
    (BrokenRule::ChangingManifest, "connections", "a manifest with another `version`", true),
    (BrokenRule::NullFails, "payload-empty", "status INTERNAL: no attribute `get` of null", true),
    (BrokenRule::ShallowJson, "payload-nested", "limit exceeded, after JSON of 64 levels", true),
    (BrokenRule::NulFails, "payload-unicode", "must not contain NUL, after text with unusual", true),
    (BrokenRule::RoundedNumbers, "payload-numbers", "a patch with 9007199254740992", true),
    (BrokenRule::SmallReceiveLimit, "payload-large", "after a request of 16 MiB", true),
    (BrokenRule::NotServing, "health", "NOT_SERVING", true),
];

#[tokio::test]
async fn broken_rule_fails_its_own_check_and_no_other() {
    for (rule, name, got, others) in BROKEN {
        let plugin = ConformingPlugin::start(rule).await;
        let timeout = if rule == BrokenRule::NoReply { "500ms" } else { "5s" };
        let ran = conformance(&plugin.endpoint(), &["--output", "json", "--timeout", timeout]).await;
        let report = ran.json();
        assert_eq!(
            (ran.code, with_outcome(&report, "failed")),
            (Some(1), vec![name]),
            "{rule:?}: {report:#}"
        );
        let failed = check(&report, name);
        assert!(failed["got"].as_str().is_some_and(|text| text.contains(got)), "{rule:?}: {failed:#}");
        for member in ["expected", "fix", "section"] {
            assert!(failed[member].as_str().is_some_and(|text| !text.is_empty()), "{rule:?}: {failed:#}");
        }
        if others {
            // The second Initialize is what these rules are about.
            let allowed: &[&str] = match rule {
                BrokenRule::InitializeOnce => &["release", "shutdown", "stop", "restart"],
                _ => &NEED_A_COMMAND,
            };
            assert_eq!(with_outcome(&report, "skipped"), allowed, "{rule:?}: {report:#}");
        }
    }
}

#[tokio::test]
async fn plugin_with_hooks_only_passes() {
    let plugin = ConformingPlugin::start_at_hooks(BrokenRule::Nothing).await;
    let report = conformance(&plugin.endpoint(), &["--output", "json"]).await.json();
    assert_eq!(with_outcome(&report, "failed"), Vec::<&str>::new(), "{report:#}");
    // It has no point to call.
    assert_eq!(with_outcome(&report, "skipped"), ["call", "stop", "restart"], "{report:#}");
    assert_eq!(check(&report, "hooks")["section"], "docs/protocol.md#9-lifecycle-hooks");
}

#[tokio::test]
async fn broken_rule_at_a_hook_fails_the_check_of_hooks() {
    for (rule, got) in [
        (
            BrokenRule::ForeignKind,
            "bad_reply: /contributions/0/kind is `memories`, but recall takes only memory",
        ),
        (BrokenRule::NoReply, "no reply within 500ms"),
        (BrokenRule::SurplusHook, "a reply with the status OK"),
    ] {
        let plugin = ConformingPlugin::start_at_hooks(rule).await;
        let timeout = if rule == BrokenRule::NoReply { "500ms" } else { "5s" };
        let report =
            conformance(&plugin.endpoint(), &["--output", "json", "--timeout", timeout]).await.json();
        assert_eq!(with_outcome(&report, "failed"), ["hooks"], "{rule:?}: {report:#}");
        let failed = check(&report, "hooks");
        assert!(failed["got"].as_str().is_some_and(|text| text.contains(got)), "{rule:?}: {failed:#}");
        assert!(failed["fix"].as_str().is_some_and(|text| !text.is_empty()), "{rule:?}: {failed:#}");
    }
    // The other checks make calls at hooks too.
    for (rule, name) in
        [(BrokenRule::AnyDigest, "unknown-digest"), (BrokenRule::SharedState, "parallel-calls")]
    {
        let plugin = ConformingPlugin::start_at_hooks(rule).await;
        let report = conformance(&plugin.endpoint(), &["--output", "json"]).await.json();
        assert_eq!(with_outcome(&report, "failed"), [name], "{rule:?}: {report:#}");
    }
}

#[tokio::test]
async fn broken_rule_of_windows_fails_the_check_of_windows() {
    for (rule, got) in [
        (BrokenRule::Nothing, None),
        (BrokenRule::HalfAddress, Some("where the windows' new text ends with")),
        (BrokenRule::CountedBytes, Some("`consumed: ")),
        (BrokenRule::RestOfLast, Some("for a last window of")),
    ] {
        let plugin = ConformingPlugin::start_in_windows(rule).await;
        let report = conformance(&plugin.endpoint(), &["--output", "json"]).await.json();
        let failed = if got.is_some() { vec!["windows"] } else { Vec::new() };
        assert_eq!(with_outcome(&report, "failed"), failed, "{rule:?}: {report:#}");
        let check = check(&report, "windows");
        assert_eq!(check["section"], "docs/protocol.md#answers-in-windows");
        let text = check["got"].as_str();
        assert!(got.is_none_or(|got| text.is_some_and(|text| text.contains(got))), "{rule:?}: {check:#}");
    }
}

#[tokio::test]
async fn plugin_with_tools_only_passes_and_its_tool_with_effects_is_not_called() {
    let plugin = ConformingPlugin::start_with_tools(BrokenRule::Nothing).await;
    let report = conformance(&plugin.endpoint(), &["--output", "json"]).await.json();
    assert_eq!(with_outcome(&report, "failed"), Vec::<&str>::new(), "{report:#}");
    assert_eq!(check(&report, "tools")["section"], "docs/protocol.md#10-tools-of-plugins");
    // Its instances are seen through calls of tools. The other checks need an ordinary call.
    let made = with_outcome(&report, "ok");
    for name in ["unknown-digest", "initialize-again", "several-digests", "release", "shutdown"] {
        assert!(made.contains(&name), "{name}: {report:#}");
    }
    assert_eq!(check(&report, "call")["reason"], "the plugin offers no points, only tools");
    let reason = &check(&report, "parallel-calls")["reason"];
    assert_eq!(reason, "the plugin offers no points or hooks, only tools");
}

#[tokio::test]
async fn broken_rule_of_tools_fails_the_check_of_tools() {
    for (rule, name, got) in [
        (
            BrokenRule::UncoveredTool,
            "tools",
            "no glob in `tools` of the answer to Describe covers `notes.find`",
        ),
        (BrokenRule::ChangingTools, "tools", "an answer without `memory.drop`"),
        (BrokenRule::SurplusTool, "tools", "a cancel"),
        (BrokenRule::ToolNotRun, "tools", "continue"),
        (BrokenRule::OddResult, "tools", "a cancel with an invalid result"),
        (BrokenRule::AnyDigest, "unknown-digest", "status NOT_FOUND: no such tool, after a call of a tool"),
        (BrokenRule::OneConfiguration, "several-digests", "NOT_INITIALIZED"),
        (BrokenRule::ReleaseForAll, "release", "NOT_INITIALIZED"),
        (BrokenRule::ShutdownForAll, "shutdown", "NOT_INITIALIZED"),
    ] {
        let plugin = ConformingPlugin::start_with_tools(rule).await;
        let report = conformance(&plugin.endpoint(), &["--output", "json"]).await.json();
        assert_eq!(with_outcome(&report, "failed"), [name], "{rule:?}: {report:#}");
        let failed = check(&report, name);
        assert!(failed["got"].as_str().is_some_and(|text| text.contains(got)), "{rule:?}: {failed:#}");
        assert!(failed["fix"].as_str().is_some_and(|text| !text.is_empty()), "{rule:?}: {failed:#}");
    }
}

#[tokio::test]
async fn fault_is_shown_with_its_section_and_its_fix() {
    let plugin = ConformingPlugin::start(BrokenRule::AnyDigest).await;
    let ran = conformance(&plugin.endpoint(), &[]).await;
    let expected = "\
FAIL  unknown-digest     docs/protocol.md#configuration-digests
      expected  FAILED_PRECONDITION with the trailing metadata `hookgate-reason: NOT_INITIALIZED`
      got       a reply with the status OK, after a call before any Initialize
      fix       look up the instance by the call's `config_digest`, and never use another configuration instead
";
    assert!(ran.stdout.contains(expected), "{ran:?}");
    let junit = conformance(&plugin.endpoint(), &["--output", "junit"]).await;
    assert_eq!(junit.code, Some(1));
    assert!(junit.stdout.contains(r#"tests="26" failures="1" errors="0" skipped="2""#), "{junit:?}");
    let failure = "<testcase name=\"unknown-digest\" classname=\"docs/protocol.md#configuration-digests\"";
    assert!(junit.stdout.contains(failure), "{junit:?}");
}

/// The command line that starts a reference plugin.
fn reference_plugin(name: &str, endpoint: &str) -> Vec<String> {
    let program = binary().display().to_string();
    [&program, "plugin", "run", name, "--listen", endpoint].map(str::to_owned).into()
}

async fn conformance_of_command(endpoint: &str, args: &[&str], command: &[String]) -> CommandOutput {
    let command: Vec<_> = command.iter().map(String::as_str).collect();
    conformance(endpoint, &[args, &["--output", "json", "--"], &command].concat()).await
}

#[tokio::test]
async fn reference_plugins_pass_with_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let log = format!(r#"{{"path":"{}"}}"#, directory.path().join("audit.jsonl").display());
    tokio::task::spawn_blocking(binary).await.expect("the gateway builds");
    for (name, args) in [
        ("audit-log", &["--config", log.as_str()][..]),
        ("tenant-auth", &["--tenant-config", r#"{"allowed_tools":["fs.*"]}"#]),
    ] {
        let endpoint = format!("unix://{}", directory.path().join(name).display());
        let ran = conformance_of_command(&endpoint, args, &reference_plugin(name, &endpoint)).await;
        let report = ran.json();
        assert_eq!((ran.code, with_outcome(&report, "failed")), (Some(0), vec![]), "{name}: {report:#}");
        // audit-log offers all points. The host of a plugin's SDK has a health service.
        let skipped: &[&str] = if name == "audit-log" { &["other-points"] } else { &[] };
        assert_eq!(with_outcome(&report, "skipped"), skipped, "{name}: {report:#}");
    }
}

/// The command line that starts the conforming plugin as a process.
fn conforming_command(socket: &Path, rule: BrokenRule) -> [String; 3] {
    let rule = rule.to_possible_value().expect("no rule is hidden");
    let program = env!("CARGO_BIN_EXE_conforming-plugin");
    [program.to_owned(), socket.display().to_string(), rule.get_name().to_owned()]
}

#[tokio::test]
async fn process_that_breaks_a_rule_of_restarts_fails_the_restart() {
    for (rule, got) in [
        (BrokenRule::Nothing, None),
        (BrokenRule::StaleSocket, Some("the command ended before it listened: exit status: 1")),
        (BrokenRule::KeptInstances, Some("a reply with the status OK, after a restart")),
    ] {
        let folder = Folder::new();
        let socket = folder.0.path().join("s");
        let endpoint = format!("unix://{}", socket.display());
        let ran = conformance_of_command(&endpoint, &[], &conforming_command(&socket, rule)).await;
        let report = ran.json();
        let failed = if got.is_some() { vec!["restart"] } else { Vec::new() };
        assert_eq!(with_outcome(&report, "failed"), failed, "{rule:?}: {report:#}");
        assert_eq!(with_outcome(&report, "skipped"), Vec::<&str>::new(), "{rule:?}: {report:#}");
        let text = check(&report, "restart")["got"].as_str();
        assert!(got.is_none_or(|got| text.is_some_and(|text| text.contains(got))), "{rule:?}: {report:#}");
    }
}

#[tokio::test]
async fn the_example_in_python_passes_with_a_restart() {
    let example = repository::root().join("examples/python-raw");
    let generate = example.join("generate.sh");
    let generated =
        tokio::task::spawn_blocking(move || Command::new(generate).output().expect("it is a script"));
    let generated = generated.await.expect("it does not panic");
    assert!(generated.status.success(), "{}", String::from_utf8_lossy(&generated.stderr));
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let endpoint = format!("unix://{}", directory.path().join("s").display());
    let python = example.join(".venv/bin/python").display().to_string();
    let command = [python, example.join("plugin.py").display().to_string(), endpoint.clone()];
    let config = ["--config", r#"{"refused_tools":["fs.read_3"]}"#];
    let ran = conformance_of_command(&endpoint, &config, &command).await;
    let report = ran.json();
    assert_eq!((ran.code, with_outcome(&report, "failed")), (Some(0), vec![]), "{report:#}");
    // Both are optional.
    assert_eq!(with_outcome(&report, "skipped"), ["release", "health"], "{report:#}");
}

fn script(path: &Path, text: &str) -> String {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("the directory is new");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    path.display().to_string()
}

#[tokio::test]
async fn command_that_ends_before_it_listens_is_said() {
    let folder = Folder::new();
    let ended = script(&folder.0.path().join("ended"), "echo no luck; exit 7");
    let endpoint = format!("unix://{}", folder.0.path().join("s").display());
    let ran = folder.run(&["conformance", &endpoint, "--", &ended]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), "no luck\n"), "{ran:?}");
    assert!(
        ran.stdout.contains("got       the command ended before it listened: exit status: 7\n"),
        "{ran:?}"
    );
    assert!(ran.stdout.ends_with("\n26 checks, 0 ok, 1 failed, 25 skipped\n"), "{ran:?}");
}

#[tokio::test]
async fn command_that_leaves_the_plugin_behind_fails_the_stop() {
    let folder = Folder::new();
    let plugin = ConformingPlugin::start(BrokenRule::Nothing).await;
    let socket = folder.0.path().join("s");
    // What the command starts is a link to a plugin that SIGTERM doesn't reach.
    let target = plugin.endpoint().replace("unix://", "");
    let wrapper = script(
        &folder.0.path().join("wrapper"),
        &format!("ln -s {target} {}\ntrap 'exit 0' TERM\nwhile :; do sleep 0.1; done", socket.display()),
    );
    let ran = folder.run(&["conformance", &format!("unix://{}", socket.display()), "--", &wrapper]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("got       the command ended, but something still listens"), "{ran:?}");
    assert!(
        ran.stdout.ends_with("26 checks, 24 ok, 1 failed, 1 skipped\n"),
        "the restart is skipped: {ran:?}"
    );
}

#[tokio::test]
async fn nothing_that_a_launcher_started_is_left_running() {
    let folder = Folder::new();
    let socket = folder.0.path().join("s");
    let endpoint = format!("unix://{}", socket.display());
    let plugin = reference_plugin("tenant-auth", &endpoint).join(" ");
    let forward = "trap 'kill $plugin; wait $plugin; exit 0' TERM";
    let launcher =
        script(&folder.0.path().join("launcher"), &format!("{plugin} &\nplugin=$!\n{forward}\nwait $plugin"));
    let ran = conformance_of_command(&endpoint, &[], &[launcher]).await;
    assert_eq!(with_outcome(&ran.json(), "failed"), Vec::<&str>::new(), "{ran:?}");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_err(), "the plugin still listens");
}

#[tokio::test]
async fn over_tls_it_checks_the_certificate_as_a_gateway_does() {
    let ca = Ca::new();
    let plugin = FakePlugin::named("guard").start_tls_as(ca::server(&ca.pair(&["127.0.0.1"]), None)).await;
    let file = ca.file().display().to_string();
    let report = conformance(&plugin.endpoint(), &["--ca", &file, "--output", "json"]).await.json();
    assert_eq!(check(&report, "describe")["outcome"], "ok", "{report:#}");
    let wrong = ["--ca", &file, "--server-name", "guard.example.org"];
    let ran = conformance(&plugin.endpoint(), &wrong).await;
    assert!(ran.code == Some(1) && ran.stdout.contains("got       certificate_name: "), "{ran:?}");
}

#[tokio::test]
async fn config_that_the_schema_rejects_is_wrong_usage() {
    let schema = serde_json::json!({ "type": "object", "required": ["needed"] });
    let plugin = FakePlugin::named("guard").config_schema(schema.clone()).start().await;
    let ran = conformance(&plugin.endpoint(), &[]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("pass a valid one with --config"), "{ran:?}");
    let plugin = FakePlugin::named("guard").tenant_config_schema(schema).start().await;
    let ran = conformance(&plugin.endpoint(), &[]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("pass a valid one with --tenant-config"), "{ran:?}");
    let ran = conformance("ftp://x", &[]).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("an endpoint begins with `unix:///`"), "{ran:?}");
    let ran = conformance(&plugin.endpoint(), &["--", "sleep", "60"]).await;
    assert!(
        ran.code == Some(2) && ran.stderr.contains("something listens at the endpoint already"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn secret_that_a_plugin_repeats_is_never_shown() {
    let fails = Handshake::Fails(Status::invalid_argument("mind the hunter2hunter2"));
    let plugin = FakePlugin::named("guard").on_initialize(fails).start().await;
    let args = ["conformance", &plugin.endpoint(), "--config", r#"{"key":"${SECRET_OF_TEST}"}"#];
    let ran = Folder::new().run_with(&args, &[("SECRET_OF_TEST", "hunter2hunter2")], "").await;
    assert!(
        ran.code == Some(1) && ran.stdout.contains("got       status INVALID_ARGUMENT: mind the "),
        "{ran:?}"
    );
    assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
}
