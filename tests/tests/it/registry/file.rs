//! Tests the file and the registry: what the file owns, what the API owns, and which revision is active
//! (protocol.md, section 7).

use hookgate::core::object::ObjectKind;
use hookgate_tests::{gateway::Setup, metrics::Scrape};
use serde_json::json;
use tempfile::TempDir;

use crate::registry::support::{Writer, call, file_with, serves_by, status, status_is, tenant};

fn folder() -> TempDir {
    tempfile::tempdir().expect("there is room")
}

fn url(folder: &TempDir) -> String {
    format!("sqlite:{}", folder.path().join("hookgate.db").display())
}

fn stored(setup: Setup, folder: &TempDir) -> Setup {
    setup.store(&url(folder), folder.path())
}

#[tokio::test]
async fn a_file_is_written_to_the_registry_once_and_its_revision_outlives_the_process() {
    let folder = folder();
    for _ in 0..2 {
        let gateway = stored(file_with("acme"), &folder).start().await;
        assert_eq!(call(&gateway, "acme").await.body["revision"], 1);
        let store = status(&gateway).await["store"].clone();
        assert_eq!(
            (&store["revision"], &store["reachable"], &store["stale"]),
            (&json!(1), &json!(true), &json!(false))
        );
        gateway.stop().await;
    }
    let gateway = stored(file_with("globex"), &folder).start().await;
    assert_eq!(call(&gateway, "globex").await.body["revision"], 2);
    assert_eq!(call(&gateway, "acme").await.body["code"], "TENANT_UNKNOWN", "what left the file is gone");
}

#[tokio::test]
async fn a_changed_file_is_one_revision_more() {
    let folder = folder();
    let gateway = stored(file_with("acme"), &folder).start().await;
    gateway.reload(&stored(file_with("acme").tenant("globex").tenant("initech"), &folder));
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway, "initech").await.body["revision"], 2);
    assert_eq!(Writer::open(&url(&folder)).await.head().await, 2);
}

#[tokio::test]
async fn a_start_that_cannot_listen_writes_nothing_to_the_registry() {
    let folder = folder();
    let gateway = stored(file_with("acme"), &folder).start().await;
    let (taken, no_folder) = (gateway.data_addr().to_string(), folder.path().join("none/host.sock"));
    for (key, address) in [
        ("/server/data_addr", taken.clone()),
        ("/server/ops_addr", taken),
        ("/server/host_socket", no_folder.display().to_string()),
    ] {
        let exit = stored(file_with("globex"), &folder).set(key, address).run_to_the_end().await;
        assert_eq!(exit.code, Some(1), "{key}: {exit:?}");
    }
    assert_eq!(Writer::open(&url(&folder)).await.head().await, 1);
    assert_eq!(call(&gateway, "acme").await.status, 200);
}

#[tokio::test]
async fn what_the_api_owns_is_served_beside_what_the_file_owns_and_survives_a_change_of_the_file() {
    let folder = folder();
    let gateway = stored(file_with("acme"), &folder).start().await;
    let written = Writer::open(&url(&folder)).await.write(&[tenant("of-the-api", 1)]).await.expect("it runs");
    serves_by(&gateway, written).await;
    assert_eq!(call(&gateway, "of-the-api").await.status, 200);
    gateway.reload(&stored(file_with("globex"), &folder));
    gateway.wait_for_revision(written + 1).await;
    assert_eq!(call(&gateway, "of-the-api").await.status, 200);
    assert_eq!(call(&gateway, "acme").await.status, 403);
}

#[tokio::test]
async fn an_object_that_both_own_ends_the_start_and_both_are_named() {
    let folder = folder();
    let written = Writer::open(&url(&folder)).await.write(&[tenant("acme", 1)]).await.expect("it runs");
    let exit = stored(file_with("acme"), &folder).run_to_the_end().await;
    assert_eq!(exit.code, Some(2), "{exit:?}");
    let said = format!("{exit:?}");
    for part in
        ["tenant `acme` of the file", &format!("through the API (revision {written})"), "/tenants/list/0"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(Writer::open(&url(&folder)).await.head().await, written, "nothing was written");
}

#[tokio::test]
async fn a_file_that_makes_the_whole_wrong_is_refused_with_the_object_of_the_other_owner() {
    let folder = folder();
    let gateway = stored(file_with("acme"), &folder).start().await;
    let binding = json!({ "plugin": "content-policy", "tenant": "acme", "priority": 20, "name": "mine" });
    let written =
        Writer::open(&url(&folder)).await.write(&[(ObjectKind::Binding, "mine", Some(binding))]).await;
    let written = written.expect("it runs");
    serves_by(&gateway, written).await;
    let clash = file_with("acme").builtin("response-sanitizer", &json!({})).binding("response-sanitizer", 20);
    gateway.reload(&stored(clash, &folder));
    let status = status_is(&gateway, |status| !status["configuration"]["rejected"].is_null()).await;
    let problems = status["configuration"]["rejected"]["problems"].to_string();
    assert!(problems.contains("`mine`") && problems.contains("`response-sanitizer`"), "{problems}");
    assert_eq!(call(&gateway, "acme").await.body["revision"], written);
    assert_eq!(Writer::open(&url(&folder)).await.head().await, written, "nothing was written");
}

#[tokio::test]
async fn without_apply_file_the_registry_alone_says_who_is_served() {
    let folder = folder();
    let gateway = stored(file_with("acme"), &folder).set("/store/apply_file", false).start().await;
    assert_eq!(call(&gateway, "acme").await.body["code"], "TENANT_UNKNOWN");
    let written = Writer::open(&url(&folder)).await.write(&[tenant("globex", 1)]).await.expect("it runs");
    serves_by(&gateway, written).await;
    assert_eq!(call(&gateway, "globex").await.status, 200);
}

#[tokio::test]
async fn objects_of_a_newer_version_keep_the_active_table_and_show_in_the_status() {
    let folder = folder();
    let gateway = stored(file_with("acme"), &folder).start().await;
    let newer = json!({ "id": "newer", "colour": "blue" });
    let writer = Writer::open(&url(&folder)).await;
    let written = writer.write(&[(ObjectKind::Tenant, "newer", Some(newer))]).await.expect("it runs");
    let status = status_is(&gateway, |status| !status["configuration"]["rejected"].is_null()).await;
    assert!(status["configuration"]["rejected"]["problems"].to_string().contains("`newer`"), "{status:#}");
    assert_eq!((&status["revision"], &status["store"]["revision"]), (&json!(1), &json!(written)));
    let scrape = Scrape::of(&gateway).await;
    let gauges = ["hookgate_table_revision", "hookgate_store_revision"].map(|name| scrape.sum(name, &[]));
    assert_eq!(gauges, [1.0, written as f64], "{}", scrape.text);
    assert_eq!(call(&gateway, "acme").await.body["revision"], 1);
    // Once it is deleted, updates continue.
    let gone = writer.write(&[(ObjectKind::Tenant, "newer", None)]).await.expect("it runs");
    serves_by(&gateway, gone).await;
}
