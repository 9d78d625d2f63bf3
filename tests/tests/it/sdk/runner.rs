//! The runner for JavaScript: plugins of other systems keep the protocol's rules, under Node and under Bun.

use hookgate_tests::typescript::{JsRuntime, runner};

use crate::cli::support::Folder;

/// Runs every check on a plugin of a dialect, and returns the report's last line.
async fn check(runtime: JsRuntime, dialect: &str, fixture: &str, more: &[&str]) -> String {
    let package = tokio::task::spawn_blocking(runner).await.unwrap();
    let folder = Folder::new();
    let endpoint = format!("unix://{}", folder.0.path().join("s").display());
    let (node, program) = (runtime.command(), package.join("dist/main.js").display().to_string());
    let module = package.join("test/fixtures").join(fixture).display().to_string();
    let mut args = vec!["conformance", &endpoint, "--host-services", "--", &node, &program];
    args.extend(["--dialect", dialect, &module, "--listen", &endpoint]);
    args.extend(more);
    let ran = folder.run(&args).await;
    assert_eq!(ran.code, Some(0), "{runtime:?}, {dialect}: {ran:?}");
    ran.stdout.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_plugin_of_dexto_keeps_every_rule_under_node_and_bun() {
    for runtime in [JsRuntime::Node, JsRuntime::Bun] {
        let more = ["--capabilities", "storage:read,storage:write,log"];
        let report = check(runtime, "dexto", "tenant-auth.ts", &more).await;
        assert!(report.starts_with("tenant-auth 0.0.0: ") && report.contains(" 0 failed"), "{report}");
    }
}

#[tokio::test]
async fn a_plugin_of_master_mind_keeps_every_rule() {
    let report = check(JsRuntime::Node, "mastermind", "master-mind/audit-logger.ts", &[]).await;
    assert!(report.starts_with("audit-logger ") && report.contains(" 0 failed"), "{report}");
}

#[tokio::test]
async fn a_plugin_of_drover_keeps_every_rule() {
    let report = check(JsRuntime::Node, "drover", "drover/loop-detect.ts", &[]).await;
    assert!(report.starts_with("loop-detect ") && report.contains(" 0 failed"), "{report}");
}
