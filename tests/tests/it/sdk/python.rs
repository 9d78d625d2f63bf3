//! The SDK for Python: its plugins keep the protocol's rules.

use hookgate_tests::{
    gateway,
    python::{sdk, serve_fixture},
};
use tokio::process::Command;

use crate::cli::support::Folder;

/// Runs every check on the fixture that uses the whole API.
async fn check(config: &str, tenant_config: &str) -> String {
    tokio::task::spawn_blocking(sdk).await.unwrap();
    let folder = Folder::new();
    let endpoint = format!("unix://{}", folder.0.path().join("s").display());
    let command = serve_fixture("everything.py", &endpoint);
    let mut args = vec!["conformance", &endpoint, "--host-services"];
    args.extend(["--config", config, "--tenant-config", tenant_config, "--"]);
    args.extend(command.iter().map(String::as_str));
    let ran = folder.run(&args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout
}

#[tokio::test]
async fn plugins_keep_every_rule() {
    for tenant_config in [r#"{"dry_run":false}"#, r#"{"dry_run":true}"#] {
        let report = check(r#"{"refused_tools":["shell.exec"]}"#, tenant_config).await;
        let expected = "\neverything 1.2.3: 26 checks, 25 ok, 0 failed, 1 skipped\n";
        assert!(report.ends_with(expected), "{report}");
        assert!(report.contains("skip  other-points"), "it offers all points: {report}");
    }
}

#[tokio::test]
async fn agents_plugins_and_registrations_work_with_a_real_gateway() {
    let folder = tokio::task::spawn_blocking(sdk).await.unwrap();
    let binary = tokio::task::spawn_blocking(gateway::binary).await.unwrap();
    let mut pytest = Command::new(".venv/bin/python");
    pytest.args(["-m", "pytest", "--quiet", "tests/gateway"]).current_dir(folder).env("HOOKGATE_BIN", binary);
    let ran = pytest.output().await.unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{printed}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(printed.contains(" passed"), "{printed}");
}
