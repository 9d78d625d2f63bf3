//! The SDK for TypeScript: its plugins keep the protocol's rules, under Node and under Bun.

use hookgate_tests::typescript::{JsRuntime, sdk, serve_fixture};

use crate::cli::support::Folder;

/// Runs every check on the fixture that uses the whole API.
async fn check(runtime: JsRuntime, config: &str, tenant_config: &str) -> String {
    tokio::task::spawn_blocking(sdk).await.unwrap();
    let folder = Folder::new();
    let endpoint = format!("unix://{}", folder.0.path().join("s").display());
    let command = serve_fixture(runtime, "everything.ts", &endpoint);
    let mut args = vec!["conformance", &endpoint, "--host-services"];
    args.extend(["--config", config, "--tenant-config", tenant_config, "--"]);
    args.extend(command.iter().map(String::as_str));
    let ran = folder.run(&args).await;
    assert_eq!(ran.code, Some(0), "{runtime:?}: {ran:?}");
    ran.stdout
}

#[tokio::test]
async fn plugins_keep_every_rule_under_node_and_bun() {
    for runtime in [JsRuntime::Node, JsRuntime::Bun] {
        for tenant_config in [r#"{"dry_run":false}"#, r#"{"dry_run":true}"#] {
            let report = check(runtime, r#"{"refused_tools":["shell.exec"]}"#, tenant_config).await;
            let expected = "\neverything 1.2.3: 26 checks, 25 ok, 0 failed, 1 skipped\n";
            assert!(report.ends_with(expected), "{runtime:?}: {report}");
            assert!(report.contains("skip  other-points"), "it offers all points: {report}");
        }
    }
}
