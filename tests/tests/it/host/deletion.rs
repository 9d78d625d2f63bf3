//! An operator deletes what a removed plugin stored.

use std::time::Duration;

use hookgate_proto::admin::v1 as wire;
use hookgate_tests::{
    fake::FakePlugin,
    gateway::{Gateway, Setup},
};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::support::{STORAGE, get, of_plugin, of_tenant, put, storing};
use crate::{
    admin::{
        grpc::support::dial,
        registry::support::{administrator, ask, delete, post, put as put_object, stored_as, written},
    },
    cli::registry::support::Desk,
    registry::support::{SOON, file_with},
};

fn setup() -> Setup {
    file_with("acme").set("/egress/cidrs", json!(["127.0.0.0/8"])).set("/server/host_addr", "127.0.0.1:0")
}

fn entry(plugin: &FakePlugin) -> serde_json::Value {
    json!({ "endpoint": plugin.endpoint(), "accepted": plugin.accepted(), "grants": STORAGE })
}

/// Lets the plugin store an entry for `acme` and one of its own.
async fn store(gateway: &Gateway, plugin: &FakePlugin) {
    put(&mut of_tenant(gateway, plugin, "acme").await, "k", "v").await.unwrap();
    put(&mut of_plugin(plugin).await, "own", "v").await.unwrap();
}

#[tokio::test]
async fn data_is_deleted_once_the_plugin_is_removed_and_others_keep_theirs() {
    let (gone, other) = (storing("gone").start().await, storing("other").start().await);
    let stored = stored_as(setup()).await;
    let operator = &stored.operator;
    let mut versions = Vec::new();
    for (plugin, priority) in [(&gone, 20), (&other, 30)] {
        let name = plugin.name();
        versions.push(written(
            &put_object(operator, &format!("plugins/{name}?expected_version=0"), entry(plugin)).await,
        ));
        let binding = json!({ "plugin": name, "tenant": "*", "priority": priority });
        written(&put_object(operator, &format!("bindings/{name}?expected_version=0"), binding).await);
    }
    for plugin in [&gone, &other] {
        store(&stored.gateway, plugin).await;
    }
    let early = post(operator, "plugins/gone/delete-data").await;
    assert_eq!((early.status, &early.body["code"]), (409, &json!("CONFLICT")));
    assert_eq!(early.body["detail"], "Plugin `gone` is registered: remove it first");

    written(&delete(operator, &format!("plugins/gone?expected_version={}&force=true", versions[0])).await);
    let delete_data = "plugins/gone/delete-data?reason=no+longer+used";
    let deleted = timeout(SOON, async {
        loop {
            let answer = post(operator, delete_data).await;
            if answer.status != 409 {
                return answer;
            }
            assert_eq!(answer.body["detail"], "Plugin `gone` is still in use by this process: try again");
            sleep(Duration::from_millis(20)).await;
        }
    });
    let deleted = deleted.await.expect("the gateway lets the plugin go");
    assert_eq!((deleted.status, &deleted.body), (200, &json!({ "entries": 2 })));
    let line =
        stored.gateway.log().wait_for(|line| line.field("operation") == Some(&json!("delete_data"))).await;
    assert_eq!(
        (line.field("plugin"), line.field("reason")),
        (Some(&json!("gone")), Some(&json!("no longer used")))
    );
    assert_eq!(
        get(&mut of_tenant(&stored.gateway, &other, "acme").await, "k").await.unwrap().as_deref(),
        Some("v")
    );

    let mut client = dial(&stored.gateway, &administrator()).await;
    let request = |name: &str| wire::DeletePluginDataRequest { name: name.into(), reason: String::new() };
    let again = client.delete_plugin_data(request("gone")).await.unwrap().into_inner();
    assert_eq!(again, wire::DeletePluginDataResponse { entries: 0 });
    let early = client.delete_plugin_data(request("other")).await.unwrap_err();
    assert_eq!(
        (early.code(), early.message()),
        (Code::Aborted, "Plugin `other` is registered: remove it first")
    );
}

#[tokio::test]
async fn a_file_without_a_registry_has_no_data_to_delete() {
    let gateway = Gateway::with().tenant("acme").admin().start().await;
    let operator = gateway.admin(&administrator());
    let refused = ask(&operator, http::Method::POST, "plugins/gone/delete-data", None).await;
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("CONFLICT")), "{refused:?}");
}

#[tokio::test]
async fn the_command_removes_a_plugin_with_its_data_and_what_is_left_later() {
    let plugin = storing("gone").start().await;
    let desk = Desk::of(setup()).await;
    let document = json!({
        "plugins": [{ "name": "gone", "endpoint": plugin.endpoint(), "accepted": plugin.accepted(), "grants": STORAGE }],
        "bindings": [{ "plugin": "gone", "tenant": "*", "priority": 20 }],
    });
    desk.folder.write("gone.json", &document.to_string());
    desk.does(&["apply", "-f", "gone.json", "--yes"]).await;
    store(&desk.gateway, &plugin).await;
    let remove = ["plugin", "remove", "gone", "--force", "--delete-data"];
    let preview = desk.does(&[&remove[..], &["--dry-run"]].concat()).await;
    assert!(preview.ends_with("The data of `gone` would be deleted.\n"), "{preview}");
    let removed = desk.does(&remove).await;
    assert!(removed.contains("- plugin gone"), "{removed}");
    assert!(removed.ends_with("Deleted 2 entries of the data of `gone`.\n"), "{removed}");
    desk.fails(&remove, 1, "there is no plugin `gone`, and no data of it").await;
    let without = desk.run(&remove[..4]).await;
    assert_eq!(without.code, Some(1), "{without:?}");
}
