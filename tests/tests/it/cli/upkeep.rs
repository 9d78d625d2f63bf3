//! Tests `hookgate status`, `reload`, `plugin describe`, `drain` and `call` with a running gateway, and
//! their exit codes.

use hookgate_tests::{
    fake::{Act, FakePlugin, Handshake},
    gateway::Gateway,
};
use serde_json::json;
use tonic::Status;

use crate::{
    admin::registry::support::administrator,
    cli::support::{CommandOutput, Folder},
    edge::support::POINT,
};

async fn ask(gateway: &Gateway, args: &[&str]) -> CommandOutput {
    let address = format!("http://{}", gateway.admin_addr().expect("the admin port is open"));
    let args = [args, &["--addr", &address]].concat();
    Folder::new().run_with(&args, &[("HOOKGATE_TOKEN", &administrator())], "").await
}

#[tokio::test]
async fn the_result_has_a_text_and_an_exit_code() {
    let plugin = FakePlugin::named("guard").start().await;
    let setup = Gateway::with().tenant("acme").admin().plugin(&plugin).binding("guard", 10);
    let gateway = setup.start().await;

    let same = ask(&gateway, &["reload", "--reason", "just looking"]).await;
    assert_eq!((same.code, &*same.stdout), (Some(0), "unchanged, revision 1\n"), "{same:?}");
    std::fs::write(gateway.file(), "plugins: 7").expect("there is room");
    let refused = ask(&gateway, &["reload"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("CONFIG_INVALID"), "{refused:?}");
    assert!(refused.stderr.contains("/plugins"), "{refused:?}");

    let described = ask(&gateway, &["plugin", "describe", "guard"]).await;
    assert_eq!(described.code, Some(0), "{described:?}");
    assert!(described.stdout.starts_with("guard is ready, version 1.0.0\n"), "{described:?}");
    plugin.set_describe(Handshake::Fails(Status::internal("not today")));
    let described = ask(&gateway, &["plugin", "describe", "guard"]).await;
    assert!(described.code == Some(1) && described.stdout.contains("not today"), "{described:?}");
    assert!(described.stderr.contains("1 of 1 endpoints"), "{described:?}");
    let missing = ask(&gateway, &["plugin", "describe", "nobody"]).await;
    assert!(missing.code == Some(1) && missing.stderr.contains("no active plugin `nobody`"), "{missing:?}");

    let of_file = ask(&gateway, &["plugin", "drain", "guard"]).await;
    let said = "hookgate: CONFLICT (the caller failed): Without a `store`, the configuration file is the only source of objects: ";
    assert!(of_file.code == Some(1) && of_file.stderr.starts_with(said), "{of_file:?}");
    assert_eq!(of_file.stderr.lines().count(), 2, "{of_file:?}");

    let call = ["plugin", "call", "guard", "before_tool_call", "--tool", "fs.read"];
    let passed = ask(&gateway, &call).await;
    assert!(passed.code == Some(0) && passed.stdout.starts_with("CONTINUE"), "{passed:?}");
    plugin.set(POINT, Act::cancel("NO_WAY", "not this one"));
    let cancelled = ask(&gateway, &[&call[..], &["--tenant", "acme", "--output", "json"]].concat()).await;
    assert_eq!(
        (cancelled.code, &cancelled.json()["cancel"]["code"]),
        (Some(3), &json!("NO_WAY")),
        "{cancelled:?}"
    );
    plugin.set(POINT, Act::no_verdict());
    let failed = ask(&gateway, &call).await;
    assert!(failed.code == Some(1) && failed.stderr.contains("bad_reply"), "{failed:?}");
    let wrong = ask(&gateway, &["plugin", "call", "guard", "before_tool_call"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[tokio::test]
async fn a_reload_says_once_where_the_mistake_is() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let file = gateway.file().display().to_string();
    let good = std::fs::read_to_string(gateway.file()).unwrap();
    let start = "hookgate: CONFIG_INVALID (the caller failed): The configuration was rejected, and the previous one stays \
                 active: ";
    for (text, said) in [
        (good.clone() + "\nnonsense: [", format!("{start}{file}:")),
        (good + "\nnonsense: 1", format!("{start}{file}:")),
        (String::new(), format!("{start}{file}: the file is empty: at least `auth` is required\n")),
    ] {
        std::fs::write(gateway.file(), text).unwrap();
        let refused = ask(&gateway, &["reload"]).await;
        assert!(refused.code == Some(1) && refused.stderr.starts_with(&said), "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 2, "the mistake and what to do: {refused:?}");
    }
    std::fs::write(gateway.file(), "plugins: 7\nbindings: 7").unwrap();
    let several = ask(&gateway, &["reload"]).await;
    assert!(several.stderr.contains(&format!(" mistakes, the first at {file}:1:")), "{several:?}");
    assert!(several.stderr.contains("\n  /bindings: "), "{several:?}");
    std::fs::write(gateway.file(), b"# \xff").unwrap();
    let bytes = ask(&gateway, &["reload"]).await;
    let said = format!("{start}{file}: is not UTF-8 text: save it as UTF-8\n");
    assert!(bytes.code == Some(1) && bytes.stderr.starts_with(&said), "{bytes:?}");
    std::fs::remove_file(gateway.file()).unwrap();
    let missing = ask(&gateway, &["reload"]).await;
    assert!(missing.stderr.starts_with(&format!("{start}{file}: ")), "{missing:?}");
    assert_eq!(missing.stderr.lines().count(), 2, "{missing:?}");
}

#[tokio::test]
async fn a_gateways_state_fits_in_a_few_lines() {
    let plugin = FakePlugin::named("guard").start().await;
    let folder = tempfile::tempdir().unwrap();
    let setup = Gateway::with().tenant("acme").admin().plugin(&plugin).binding("guard", 10);
    let setup = setup.store(&format!("sqlite:{}", folder.path().join("rules.db").display()), folder.path());
    let gateway = setup.start().await;
    let shown = ask(&gateway, &["status"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let lines: Vec<_> = shown.stdout.lines().collect();
    let starts = [
        concat!("version   ", env!("CARGO_PKG_VERSION"), ", up for "),
        "instance  ",
        "ready     yes",
        "revision  1, active for ",
        "store     revision 1, reachable for ",
        "tenants   1 listed, 0 of them disabled; unlisted tenants are refused",
        "plugins   1 ready",
    ];
    assert_eq!(lines.len(), starts.len(), "{shown:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line} is not {start}");
    }
    std::fs::write(gateway.file(), "plugins: 7").unwrap();
    ask(&gateway, &["reload"]).await;
    let shown = ask(&gateway, &["status"]).await;
    assert!(shown.stdout.contains("\nrejected  "), "{shown:?}");
    assert!(shown.stdout.contains("`plugins` must be a list"), "{shown:?}");
    assert!(!shown.stdout.contains('^'), "the lines of the file don't fit: {shown:?}");
    let data = ask(&gateway, &["status", "--output", "json"]).await;
    assert_eq!(data.json()["revision"], 1, "{data:?}");
}
