//! Tests `hookgate plugin add` and `plugin approve`: nobody approves anything that they were not shown.

use hookgate_proto::{
    plugin::v1::{Access, PayloadFields, SideEffects},
    types::v1::ExtensionPoint,
};
use hookgate_tests::{fake::FakePlugin, gateway::Gateway};
use serde_json::json;

use crate::{cli::registry::support::Desk, registry::support::call};

async fn desk() -> Desk {
    Desk::of(Gateway::with().tenant("acme").admin().set("/server/host_addr", "127.0.0.1:0")).await
}

async fn guard() -> FakePlugin {
    FakePlugin::named("guard").only(&[ExtensionPoint::BeforeToolCall]).access(Access::Read).start().await
}

/// How a new plugin is shown.
const NEW: &str = "guard 1.0.0\n\nPOINT             ACCESS  SIDE EFFECTS  CHANGE\nbefore_tool_call  read    none          new\n\n\
                   asks for  no capability\n\n";

#[tokio::test]
async fn a_plugin_added_without_a_terminal_waits_for_its_approval() {
    let (desk, plugin) = (desk().await, guard().await);
    let add = ["plugin", "add", "guard", "--endpoint", &plugin.endpoint()];
    let added = desk.run(&add).await;
    assert_eq!(added.code, Some(1), "{added:?}");
    assert!(added.stdout.starts_with("+ plugin guard\n") && added.stdout.contains(NEW), "{added:?}");
    let said = "hookgate: `guard` was added, and is pending: approval: version 1.0.0 is waiting for approval: it \
                adds before_tool_call (read, side effects: none)\n  = approve it with `hookgate plugin approve guard`\n";
    assert!(added.stderr.starts_with(said), "{added:?}");
    desk.does(&["binding", "set", "g", "--plugin", "guard", "--all", "--priority", "5"]).await;
    assert_eq!(call(&desk.gateway, "acme").await.status, 503);

    desk.fails(&["plugin", "approve", "guard"], 2, "there is no terminal to ask on; give --yes").await;
    let tried = desk.does(&["plugin", "approve", "guard", "--dry-run"]).await;
    assert!(
        tried.starts_with("~ plugin guard\n") && tried.ends_with("Dry run: nothing was written.\n"),
        "{tried}"
    );
    assert_eq!((desk.head().await, plugin.counts().initializes), (3, 0));
    let approved = desk.does(&["plugin", "approve", "guard", "--yes", "--reason", "seen"]).await;
    assert!(approved.starts_with(NEW), "{approved}");
    assert!(approved.contains("Approved guard in revision 4.\n\nstate     ready\n"), "{approved}");
    assert_eq!(call(&desk.gateway, "acme").await.status, 200);
    assert_eq!(desk.does(&["plugin", "approve", "guard", "--yes"]).await, "Nothing to approve.\n");
    assert_eq!(desk.json(&["plugin", "approve", "guard"]).await["pending_manifests"], json!([]));
    desk.fails(&["plugin", "approve", "nobody"], 1, "there is no plugin `nobody`").await;
    desk.fails(
        &["plugin", "approve", "guard", "--version", "3.0.0"],
        1,
        "with version 3.0.0 has anything to approve",
    )
    .await;
}

#[tokio::test]
async fn a_person_sees_what_another_build_wants_and_is_asked() {
    let (desk, mut plugin) = (desk().await, guard().await);
    let mut terminal =
        desk.terminal(&format!("hookgate plugin add guard --endpoint {}", plugin.endpoint())).await;
    terminal.shows("Allow guard 1.0.0 to do this? [y/N] ").await;
    assert_eq!(plugin.counts().initializes, 0);
    terminal.types("n\n").await;
    terminal.shows("`guard` was added, and is pending").await;
    let mut terminal = desk.terminal("hookgate plugin approve guard").await;
    terminal.shows("Allow guard 1.0.0 to do this? [y/N] ").await;
    terminal.types("y\n").await;
    terminal.shows("state     ready").await;

    plugin.stop().await;
    plugin.change_manifest(|manifest| {
        manifest.version = "2.0.0".into();
        manifest.points[0].access = Access::Modify.into();
        manifest.capabilities = vec!["log".into()];
    });
    plugin.start().await;
    let end = tokio::time::Instant::now() + crate::registry::support::SOON;
    while desk.json(&["plugin", "show", "guard"]).await["reason"] != "upgrade_pending" {
        assert!(tokio::time::Instant::now() < end, "{}", desk.gateway.log());
    }
    let shown = desk.does(&["plugin", "approve", "guard", "--yes"]).await;
    let wants = "guard 2.0.0\n\nPOINT             ACCESS  SIDE EFFECTS  CHANGE\nbefore_tool_call  modify  none          was \
                 read, none\n\nasks for  log (new): writes lines to the gateway's log, up to 1,000 per second at each gateway\n\n";
    assert!(shown.starts_with(wants), "{shown}");
    assert!(shown.contains("\nstate     ready\n") && shown.contains("\nasks for  log\n"), "{shown}");
    let spec = &desk.json(&["plugin", "show", "guard"]).await["spec"];
    assert_eq!((&spec["grants"], &spec["accepted"]["capabilities"]), (&json!(["log"]), &json!(["log"])));
}

#[tokio::test]
async fn each_capability_is_shown_with_what_it_gives() {
    let desk = desk().await;
    let wants = ["storage:read", "storage:write", "log", "emit"].map(str::to_owned);
    let plugin = FakePlugin::named("busy").manifest(move |manifest| manifest.capabilities = wants.into());
    let plugin = plugin.only(&[ExtensionPoint::BeforeToolCall]).start().await;
    let added = desk.run(&["plugin", "add", "busy", "--endpoint", &plugin.endpoint()]).await;
    assert_eq!((added.code, plugin.counts().initializes), (Some(1), 0), "{added:?}");
    let shown = desk.does(&["plugin", "approve", "busy", "--yes"]).await;
    let asks = "\
asks for  storage:read (new): reads its own data, which the gateway's database keeps for each tenant
          storage:write (new): writes its own data in the gateway's database, for each tenant
          log (new): writes lines to the gateway's log, up to 1,000 per second at each gateway
          emit (new): emits events for operators, up to 100 per second at each gateway

";
    assert!(added.stdout.contains(asks), "{added:?}");
    assert!(shown.contains(asks), "{shown}");
    assert!(shown.contains("\nasks for  storage:read, storage:write, log, emit\n"), "{shown}");
    let spec = &desk.json(&["plugin", "show", "busy"]).await["spec"];
    assert_eq!(spec["grants"], json!(["storage:read", "storage:write", "log", "emit"]));
}

#[tokio::test]
async fn a_plugin_that_asks_for_more_than_the_named_grants_is_not_approved() {
    let desk = desk().await;
    let wants = ["storage:read", "storage:write"].map(str::to_owned);
    let plugin = FakePlugin::named("quota").manifest(move |manifest| manifest.capabilities = wants.into());
    let plugin = plugin.only(&[ExtensionPoint::BeforeToolCall]).start().await;
    let add = ["plugin", "add", "quota", "--endpoint", &plugin.endpoint(), "--yes"];
    let refused = desk.run(&[&add[..], &["--grant", "storage:read"]].concat()).await;
    let said = "hookgate: `quota` was added, and is pending: it asks for storage:write, and you grant only storage:read\n  = \
                allow all that it asks for with `hookgate plugin approve quota`, or remove it with `hookgate plugin \
                remove quota`\n";
    assert_eq!((refused.code, &*refused.stderr), (Some(1), said), "{refused:?}");
    let spec = &desk.json(&["plugin", "show", "quota"]).await["spec"];
    assert_eq!((&spec["grants"], &spec["accepted"]), (&json!(["storage:read"]), &json!(null)));
    assert_eq!(plugin.counts().initializes, 0);
    desk.does(&["plugin", "approve", "quota", "--yes"]).await;

    for grants in [&[][..], &["--grant", "log,storage:write,storage:read"]] {
        desk.does(&["plugin", "remove", "quota"]).await;
        desk.does(&[&add[..], grants].concat()).await;
        let spec = &desk.json(&["plugin", "show", "quota"]).await["spec"];
        assert_eq!(spec["grants"].as_array().map(Vec::len), Some(if grants.is_empty() { 2 } else { 3 }));
    }
}

#[tokio::test]
async fn the_hooks_of_a_plugin_are_approved_like_its_points() {
    let desk = desk().await;
    let mut plugin = FakePlugin::named("notes").only(&[]).hooks(&["recall", "turn_end"]).start().await;
    let add = ["plugin", "add", "notes", "--endpoint", &plugin.endpoint(), "--yes"];
    let added = desk.does(&add).await;
    let shown = "notes 1.0.0\n\nPOINT     ACCESS  SIDE EFFECTS  CHANGE\nrecall    -       none          new\n\
                 turn_end  -       none          new\n\n";
    assert!(added.contains(shown), "{added}");
    assert!(added.contains("\nat        recall: contributes, no side effects\n"), "{added}");

    plugin.stop().await;
    plugin.change_manifest(|manifest| {
        manifest.version = "2.0.0".into();
        manifest.hooks[0].set_side_effects(SideEffects::Some);
        manifest.hooks[1].hook = "agent_end".into();
    });
    plugin.start().await;
    let end = tokio::time::Instant::now() + crate::registry::support::SOON;
    while desk.json(&["plugin", "show", "notes"]).await["pending_manifests"] == json!([]) {
        assert!(tokio::time::Instant::now() < end, "{}", desk.gateway.log());
    }
    let shown = desk.does(&["plugin", "approve", "notes", "--yes"]).await;
    let wants = "notes 2.0.0\n\nPOINT      ACCESS  SIDE EFFECTS  CHANGE\nagent_end  -       none          new\n\
                 recall     -       some          was none\nturn_end   -       -             no longer\n\n";
    assert!(shown.starts_with(wants), "{shown}");
    assert!(shown.contains("recall: contributes, with side effects\n"), "{shown}");
}

#[tokio::test]
async fn a_plugin_that_reads_more_than_was_approved_waits_and_shows_it() {
    let (desk, mut plugin) = (desk().await, guard().await);
    let reads =
        |names: &[&str]| Some(PayloadFields { names: names.iter().map(|name| (*name).to_owned()).collect() });
    plugin.change_manifest(|manifest| manifest.points[0].reads = reads(&[]));
    let added = desk.does(&["plugin", "add", "guard", "--endpoint", &plugin.endpoint(), "--yes"]).await;
    let shown = "POINT             ACCESS  SIDE EFFECTS  READS    CHANGE\nbefore_tool_call  read    none          nothing  new\n";
    assert!(added.contains(shown), "{added}");
    assert!(
        added.contains("\nat        before_tool_call: reads no large field, no side effects\n"),
        "{added}"
    );

    plugin.stop().await;
    plugin.change_manifest(|manifest| {
        manifest.version = "2.0.0".into();
        manifest.points[0].reads = reads(&["extra", "args"]);
    });
    plugin.start().await;
    let end = tokio::time::Instant::now() + crate::registry::support::SOON;
    while desk.json(&["plugin", "show", "guard"]).await["pending_manifests"] == json!([]) {
        assert!(tokio::time::Instant::now() < end, "{}", desk.gateway.log());
    }
    let shown = desk.does(&["plugin", "approve", "guard", "--yes"]).await;
    let wants = "guard 2.0.0\n\nPOINT             ACCESS  SIDE EFFECTS  READS        CHANGE\n\
                 before_tool_call  read    none          args, extra  was read, none, reads nothing\n\n";
    assert!(shown.starts_with(wants), "{shown}");
    assert!(shown.contains("\nat        before_tool_call: reads args, extra, no side effects\n"), "{shown}");
    let manifest = &desk.json(&["plugin", "show", "guard"]).await["manifest"];
    assert_eq!(manifest["points"][0]["reads"], json!(["args", "extra"]));
}
