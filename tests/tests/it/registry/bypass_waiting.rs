//! Tests bypasses while a newer table is pending because of a required plugin: they apply at once, in every
//! gateway, and only to the intended binding and tenant (docs/decisions/0034-break-glass.md).

use std::path::Path;

use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Act, FakePlugin},
    gateway::{Gateway, Setup},
    metrics::Scrape,
    postgres::Cluster,
};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    admin::registry::support::{Stored, administrator, ask, delete, get, patch, put, stored_as, written},
    cli::registry::support::Desk,
    edge::support::POINT,
    registry::support::{SOON, Writer, call, status, status_is, tenant},
};

const RULE: &str = "bindings/rule/bypass/acme";

/// A gateway whose registry has the binding `rule`, by which `guard` blocks every call of `acme`. It serves
/// revision 2.
async fn blocking(guard: &FakePlugin) -> Stored {
    let stored = stored_as(file(guard)).await;
    rule(&stored.operator).await;
    assert_eq!(call(&stored.gateway, "acme").await.status, 403);
    stored
}

async fn rule(operator: &HttpAgent) {
    let rule = json!({ "plugin": "guard", "tenant": "acme", "priority": 10 });
    assert_eq!(written(&put(operator, "bindings/rule?expected_version=0", rule).await), 2);
}

async fn guard() -> FakePlugin {
    FakePlugin::named("guard").at(POINT, Act::cancel("BLOCKED", "not now")).start().await
}

fn file(guard: &FakePlugin) -> Setup {
    Gateway::with().tenant("acme").tenant("globex").plugin(guard).admin()
}

/// A gateway on the registry at `url`, with its own last good table in `folder`.
fn over(url: &str, guard: &FakePlugin, folder: &Path) -> Setup {
    let sockets = std::env::temp_dir().display().to_string();
    file(guard).store(url, folder).set("/egress", json!({ "socket_dirs": [sockets] }))
}

/// The URL of the registry of `stored`.
fn url(stored: &Stored) -> String {
    format!("sqlite:{}", stored.folder.path().join("hookgate.db").display())
}

/// Writes a required plugin that is down, so that all later tables are pending.
async fn hold(operator: &HttpAgent) -> FakePlugin {
    let mut req = FakePlugin::named("req").start_unix().await;
    let entry = json!({ "endpoint": req.endpoint(), "accepted": req.accepted(), "required": true });
    req.stop().await;
    let held = put(operator, "plugins/req?expected_version=0", entry).await;
    assert_eq!((held.status, &held.body["active"]), (201, &json!(false)), "{held:?}");
    req
}

async fn bypass(operator: &HttpAgent) -> HttpAnswer {
    ask(operator, Method::PUT, &format!("{RULE}?for=1h&reason=INC-7"), None).await
}

/// Waits until the tenant's calls have this status.
async fn answered(gateway: &Gateway, tenant: &str, status: u16) -> HttpAnswer {
    let end = Instant::now() + SOON;
    loop {
        let answer = call(gateway, tenant).await;
        if answer.status == status {
            return answer;
        }
        assert!(Instant::now() < end, "{tenant}: {answer:?}\n{}", gateway.log());
        sleep(Duration::from_millis(20)).await;
    }
}

async fn bypasses(agent: &HttpAgent) -> Vec<Value> {
    get(agent, "bypasses").await.body["bypasses"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_bypass_begins_and_ends_in_every_gateway_though_the_table_waits_for_a_plugin() {
    let (plugin, folder) = (guard().await, tempfile::tempdir().expect("there is room"));
    let it = blocking(&plugin).await;
    let other = over(&url(&it), &plugin, folder.path()).start().await;
    let mut req = hold(&it.operator).await;
    for gateway in [&it.gateway, &other] {
        let status = status_is(gateway, |status| !status["configuration"]["waiting_for"].is_null()).await;
        let what = status["configuration"]["waiting_for"].as_str().expect("a sentence").to_owned();
        assert!(what.starts_with("required plugin 'req', which is unhealthy: no_socket"), "{what}");
        assert_eq!((&status["configuration"]["rejected"], &status["revision"]), (&Value::Null, &json!(2)));
    }

    let broken = bypass(&it.operator).await;
    assert_eq!((broken.status, written(&broken)), (201, 4), "{broken:?}");
    for gateway in [&it.gateway, &other] {
        let passed = answered(gateway, "acme", 200).await;
        assert_eq!(passed.body["revision"], 2, "the table is the one before");
        let operator = gateway.admin(&administrator());
        let explained = get(&operator, "tenants/acme/explain?point=before_tool_call").await.body;
        assert_eq!(
            (&explained["absent"][0]["cause"], &explained["revision"]),
            (&json!("bypassed"), &json!(2))
        );
        assert_eq!(bypasses(&operator).await[0]["active"], true);
        let scrape = Scrape::of(gateway).await;
        assert_eq!(scrape.sum("hookgate_bypasses", &[]), 1.0);
        assert!(scrape.sum("hookgate_bypassed_total", &[("hookgate_binding_name", "rule")]) >= 1.0);
    }

    let mended = delete(&it.operator, RULE).await;
    assert_eq!(written(&mended), 5);
    for gateway in [&it.gateway, &other] {
        assert_eq!(answered(gateway, "acme", 403).await.body["revision"], 2);
    }
    req.start().await;
    for gateway in [&it.gateway, &other] {
        // The table is published first, and then the status says that nothing is waited for.
        let is_done =
            |status: &Value| status["revision"] == 5 && status["configuration"]["waiting_for"].is_null();
        status_is(gateway, is_done).await;
        assert_eq!(call(gateway, "acme").await.status, 403);
    }
}

#[tokio::test]
async fn a_rule_with_a_pending_change_is_bypassed_in_its_active_form() {
    let plugin = guard().await;
    let it = blocking(&plugin).await;
    let _req = hold(&it.operator).await;
    for change in [json!({ "priority": 20 }), json!({ "enabled": false })] {
        let version = get(&it.operator, "bindings/rule").await.body["version"].clone();
        let path = format!("bindings/rule?expected_version={version}");
        assert_eq!(patch(&it.operator, &path, change).await.body["active"], false);
        assert_eq!(call(&it.gateway, "acme").await.status, 403);
        written(&bypass(&it.operator).await);
        assert_eq!(call(&it.gateway, "acme").await.status, 200);
        written(&delete(&it.operator, RULE).await);
        assert_eq!(call(&it.gateway, "acme").await.status, 403);
    }
}

#[tokio::test]
async fn a_bypass_affects_only_its_own_rule_and_ends_with_it() {
    let plugin = guard().await;
    let it = blocking(&plugin).await;
    written(&bypass(&it.operator).await);
    assert_eq!(call(&it.gateway, "acme").await.status, 200);
    let mut req = hold(&it.operator).await;
    // The rule and its bypass are deleted, but both are still active.
    assert_eq!(delete(&it.operator, "bindings/rule?expected_version=2").await.body["active"], false);
    assert!(bypasses(&it.operator).await.is_empty());
    assert_eq!(call(&it.gateway, "acme").await.status, 200);
    req.start().await;
    status_is(&it.gateway, |status| status["revision"] == 5).await;
    req.stop().await;

    let rule = |priority: u64| json!({ "plugin": "guard", "tenant": "acme", "priority": priority });
    written(&put(&it.operator, "bindings/rule?expected_version=0", rule(10)).await);
    let endless = json!({ "endpoint": "http://127.0.0.1:9" });
    let version = get(&it.operator, "plugins/req").await.body["version"].clone();
    let held = patch(&it.operator, &format!("plugins/req?expected_version={version}"), endless).await;
    assert_eq!(held.body["active"], false, "{held:?}");
    delete(&it.operator, "bindings/rule?expected_version=6").await;
    put(&it.operator, "bindings/rule?expected_version=0", rule(11)).await;
    // Another rule with this name, which is not active.
    let broken = bypass(&it.operator).await;
    assert_eq!((broken.status, &broken.body["active"]), (201, &json!(false)), "{broken:?}");
    assert_eq!(call(&it.gateway, "acme").await.status, 403);
    assert_eq!(bypasses(&it.operator).await[0]["active"], false);
    let version = get(&it.operator, "plugins/req").await.body["version"].clone();
    let mend = json!({ "required": false });
    written(&patch(&it.operator, &format!("plugins/req?expected_version={version}"), mend).await);
    assert_eq!(call(&it.gateway, "acme").await.status, 200);
}

/// Sets whether `req` is required, whatever its version.
async fn require(operator: &HttpAgent, is_required: bool) -> HttpAnswer {
    let version = get(operator, "plugins/req").await.body["version"].clone();
    let path = format!("plugins/req?expected_version={version}");
    patch(operator, &path, json!({ "required": is_required })).await
}

#[tokio::test]
async fn a_start_by_the_last_good_table_keeps_to_bypasses_that_came_and_went_while_the_next_one_waited() {
    let plugin = guard().await;
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.expect("it starts");
    let url = cluster.database().await;
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("there is room"));
    let writer = over(&url, &plugin, folders[0].path()).start().await;
    let operator = writer.admin(&administrator());
    rule(&operator).await;
    let _req = hold(&operator).await;
    for is_there in [true, false] {
        // Started while nothing is pending, it has the earlier table.
        written(&require(&operator, false).await);
        let gateway = over(&url, &plugin, folders[1].path()).start().await;
        assert_eq!(require(&operator, true).await.body["active"], false);
        let wanted = if is_there { 200 } else { 403 };
        if is_there {
            written(&bypass(&operator).await);
        } else {
            written(&delete(&operator, RULE).await);
        }
        answered(&gateway, "acme", wanted).await;
        gateway.stop().await;

        cluster.stop();
        let gateway = over(&url, &plugin, folders[1].path()).start().await;
        assert_eq!(status(&gateway).await["store"]["stale"], true);
        assert_eq!(call(&gateway, "acme").await.status, wanted);
        gateway.stop().await;
        cluster.start_again();
        status_is(&writer, |status| status["store"]["reachable"] == true).await;
    }
}

#[tokio::test]
async fn further_writes_do_not_delay_the_report_of_what_is_waited_for() {
    let plugin = guard().await;
    let it = stored_as(file(&plugin).set("/startup/wait", "4s")).await;
    let _req = hold(&it.operator).await;
    let (writer, end) = (Writer::open(&url(&it)).await, Instant::now() + SOON);
    let mut writes = 0;
    let write = async |plan: u64| {
        writer.write(&[tenant("later", plan)]).await.expect("it runs");
        sleep(Duration::from_millis(400)).await; // far less than `startup.wait`
    };
    while status(&it.gateway).await["configuration"]["rejected"].is_null() {
        assert!(Instant::now() < end, "no message after {writes} writes\n{}", it.gateway.log());
        writes += 1;
        write(writes).await;
    }
    for more in 1..=5 {
        write(writes + more).await;
    }
    let refused =
        |line: &&hookgate_tests::gateway::Line| line.field("event") == Some(&json!("config.rejected"));
    let lines = it.gateway.log().lines();
    assert_eq!(lines.iter().filter(refused).count(), 1, "{}", it.gateway.log());
}

#[tokio::test]
async fn the_command_line_shows_what_is_waited_for_and_which_bypass_is_not_active_here() {
    let plugin = guard().await;
    let desk = Desk::of(file(&plugin)).await;
    let operator = desk.gateway.admin(&administrator());
    let rule = json!({ "plugin": "guard", "tenant": "acme", "priority": 10 });
    let _req = hold(&operator).await;
    let _ = put(&operator, "bindings/rule?expected_version=0", rule).await;
    let said = desk.does(&["tenant", "set", "later"]).await;
    assert!(
        said.contains(
            "is not yet active on this gateway: waiting for required plugin 'req', which is unhealthy: no_socket"
        ),
        "{said}"
    );
    let reloaded = desk.run(&["reload"]).await;
    assert_eq!(reloaded.code, Some(1), "{reloaded:?}");
    assert!(
        reloaded.stderr.contains("waiting for required plugin 'req', which is unhealthy: no_socket: cannot"),
        "{reloaded:?}"
    );
    let broken = ["binding", "bypass", "rule", "--tenant", "acme", "--for", "15m", "--reason", "INC-7"];
    let said = desk.does(&broken).await;
    assert!(said.contains("is not yet active on this gateway: waiting for required plugin 'req'"), "{said}");
    let list = desk.does(&["binding", "list"]).await;
    let row = list.lines().find(|line| line.contains("INC-7")).unwrap_or_else(|| panic!("{list}"));
    assert!(row.contains("  no           INC-7"), "{list}");
    assert_eq!(desk.json(&["binding", "list"]).await["bypasses"][0]["active"], false);
}
