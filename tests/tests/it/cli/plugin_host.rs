//! Commands that try a plugin offer it storage, log and events in place of a gateway.

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Cancel, Capability, Context, Event, Host, InitError,
    LogRecord, NoConfig, Offer, Plugin, Point, Reply, Server,
};
use tempfile::TempDir;

use crate::cli::support::{CommandOutput, Folder};

const SERVICES: &str = "--host-services";

/// Counts a tenant's calls and blocks the second one.
struct CountingPlugin;

impl Plugin for CountingPlugin {
    const NAME: &'static str = "counting";
    const VERSION: &'static str = "1.0.0";
    const CAPABILITIES: &'static [Capability] =
        &[Capability::StorageWrite, Capability::Log, Capability::Emit];
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read().with_side_effects()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(CountingPlugin)
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        _: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let calls = ctx.storage().add("calls", 1).limit(1).await?;
        ctx.log().record(LogRecord::info("the call was counted").attribute("left", 0));
        ctx.emit(Event::warn("calls.used").message("No call is left.")).await?;
        if calls.is_added() {
            return Ok(Reply::proceed());
        }
        Ok(Cancel::new("QUOTA_EXCEEDED", "Enough.").into())
    }
}

/// The plugin's endpoint. It is served until the end of the test.
async fn counting() -> (TempDir, String) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let endpoint = format!("unix://{}", directory.path().join("s").display());
    let server = Server::bind(&endpoint).await.expect("the socket is new").with_plugin::<CountingPlugin>();
    tokio::spawn(server.run(std::future::pending()));
    (directory, endpoint)
}

/// Runs the command with its temporary files in `folder`, where none is left behind.
async fn run(folder: &Folder, args: &[&str]) -> CommandOutput {
    let temporary = folder.0.path().join("tmp");
    std::fs::create_dir(&temporary).expect("the folder is new");
    let ran = folder.run_with(args, &[("TMPDIR", &temporary.display().to_string())], "").await;
    let left = temporary.read_dir().expect("it is a folder").count();
    assert_eq!(left, 0, "data is deleted at the end");
    ran
}

#[tokio::test]
async fn tried_plugin_stores_data_and_what_it_writes_is_shown() {
    let (_served, endpoint) = counting().await;
    let call = ["plugin", "test", &endpoint, "before_tool_call", "--tool", "t", "--tenant", "acme", SERVICES];
    // The data of a call is deleted with the command.
    for _ in 0..2 {
        let ran = run(&Folder::new(), &call).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("asks for   storage:write log emit\n"), "{ran:?}");
        let lines: Vec<_> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{ran:?}");
        for parts in [["INFO", "the call was counted"], ["WARN", "No call is left."]] {
            let is_it = |line: &&&str| parts.iter().all(|part| line.contains(part));
            let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("{parts:?} is not in {lines:?}"));
            assert!(line.contains("plugin=\"under-test\"") && line.contains("tenant=\"acme\""), "{line}");
        }
    }
}

#[tokio::test]
async fn plugin_with_storage_is_checked_with_it() {
    let (_served, endpoint) = counting().await;
    let ran = run(&Folder::new(), &["conformance", &endpoint, "--output", "json", SERVICES]).await;
    let report = ran.json();
    assert_eq!((ran.code, &report["failed"]), (Some(0), &0.into()), "{report:#}");
    assert!(ran.stderr.contains("the call was counted"), "{ran:?}");
}

#[tokio::test]
async fn services_are_offered_on_request_alone() {
    let (_served, endpoint) = counting().await;
    let ran = run(&Folder::new(), &["plugin", "test", &endpoint, "before_tool_call", "--tool", "t"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let wants = "asks for   storage:write log emit (not offered; see --host-services)\n";
    assert!(ran.stdout.contains(wants), "{ran:?}");
    let ran = run(&Folder::new(), &["conformance", &endpoint]).await;
    let said = "the plugin asks for storage:write log emit: pass --host-services";
    assert!(ran.code == Some(2) && ran.stderr.contains(said), "{ran:?}");
}

#[tokio::test]
async fn address_that_no_plugin_can_use_is_refused() {
    let (_served, endpoint) = counting().await;
    for (address, code, said) in [
        ("0.0.0.0:0", 2, "--host-services=0.0.0.0:0: the plugin can't connect to that address"),
        ("192.0.2.1:0", 1, "--host-services: can't listen on 192.0.2.1:0: "),
        ("localhost", 2, "invalid value 'localhost' for '--host-services"),
    ] {
        let flag = format!("{SERVICES}={address}");
        let ran = run(&Folder::new(), &["conformance", &endpoint, &flag]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
}
