//! What plugins are told of the gateway's services, and which plugins may use them.

use hookgate_tests::{fake::FakePlugin, gateway::Gateway, metrics::Scrape, token::token};
use serde_json::json;

use super::support::{self, POINT, STORAGE, get, of_plugin, of_tenant, put, setup, storing};

#[tokio::test]
async fn a_plugin_stores_data_for_the_tenant_of_a_call() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    let mut acme = of_tenant(&gateway, &plugin, "acme").await;
    put(&mut acme, "plan", "pro").await.unwrap();
    assert_eq!(get(&mut acme, "plan").await.unwrap().as_deref(), Some("pro"));
    // It is in the database, so a later call finds it, after a restart too.
    drop(gateway);
    let gateway = setup(&folder, &[&plugin]).start().await;
    let mut later = of_tenant(&gateway, &plugin, "acme").await;
    assert_eq!(get(&mut later, "plan").await.unwrap().as_deref(), Some("pro"));
}

#[tokio::test]
async fn no_tenant_and_no_plugin_sees_data_of_another() {
    let (folder, one, two) =
        (tempfile::tempdir().unwrap(), storing("one").start().await, storing("two").start().await);
    let gateway = setup(&folder, &[&one, &two]).start().await;
    let mut clients = Vec::new();
    for plugin in [&one, &two] {
        clients.push((format!("{} own", plugin.name()), of_plugin(plugin).await));
        for tenant in ["acme", "globex"] {
            clients.push((format!("{} {tenant}", plugin.name()), of_tenant(&gateway, plugin, tenant).await));
        }
    }
    for (name, client) in &mut clients {
        put(client, "whose", name).await.unwrap();
        put(client, &format!("only {name}"), name).await.unwrap();
    }
    for (name, client) in &mut clients {
        assert_eq!(get(client, "whose").await.unwrap().as_ref(), Some(&*name));
        let listed =
            client.list(hookgate_proto::host::v1::ListRequest::default()).await.unwrap().into_inner();
        let keys: Vec<_> = listed.entries.into_iter().map(|entry| entry.key).collect();
        assert_eq!(keys, [format!("only {name}"), "whose".to_owned()]);
    }
}

#[tokio::test]
async fn a_plugin_without_storage_gets_no_token() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("plain").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    assert_eq!(support::call_token(&gateway, &plugin, "acme").await, "");
    let initialized = plugin.initialized().pop().unwrap();
    assert_eq!((&*initialized.host_endpoint, &*initialized.host_token), ("", ""));
}

#[tokio::test]
async fn a_restarted_plugin_gets_its_token_again_without_a_call() {
    let (folder, mut plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    plugin.stop().await;
    gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.disconnected"))).await;
    plugin.start().await;
    plugin.wait_until(|counts| counts.initializes == 2).await;
    put(&mut of_plugin(&plugin).await, "k", "v").await.unwrap();
}

#[tokio::test]
async fn a_plugin_on_a_unix_socket_is_told_the_socket() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start_unix().await);
    let socket = folder.path().join("host.sock");
    let gateway =
        setup(&folder, &[&plugin]).set("/server/host_socket", socket.display().to_string()).start().await;
    assert_eq!(support::endpoint(&plugin), format!("unix://{}", socket.display()));
    let mut client = of_tenant(&gateway, &plugin, "acme").await;
    put(&mut client, "k", "v").await.unwrap();
    assert_eq!(get(&mut client, "k").await.unwrap().as_deref(), Some("v"));
}

#[tokio::test]
async fn storage_without_a_database_is_refused_with_the_key_to_set() {
    let plugin = storing("quota").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_with(&plugin, &json!({ "grants": STORAGE, "required": false }))
        .binding("quota", 1)
        .start()
        .await;
    let refused = gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.refused"))).await;
    let said = format!("{refused:?}");
    assert!(said.contains("set `store`"), "{said}");
    let answer = gateway.http(&token("acme")).call(POINT, json!({ "tool_name": "t", "args": {} })).await;
    assert_eq!(answer.status, 503);
}

#[tokio::test]
async fn storage_without_a_listener_is_refused_with_the_keys_to_set() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    let setup = support::stored_at(&url, folder.path(), &[]);
    let members = json!({ "grants": STORAGE, "required": false });
    let gateway = setup.plugin_with(&plugin, &members).binding("quota", 1).start().await;
    let refused = gateway.log().wait_for(|line| line.field("event") == Some(&json!("plugin.refused"))).await;
    let said = format!("{refused:?}");
    assert!(said.contains("set `server.host_addr` or `server.host_socket`"), "{said}");
}

#[tokio::test]
async fn the_host_port_serves_nothing_to_agents_and_its_calls_are_measured() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let gateway = setup(&folder, &[&plugin]).start().await;
    put(&mut of_plugin(&plugin).await, "k", "v").await.unwrap();
    let metrics = Scrape::of(&gateway).await;
    let labels = [("rpc_method", "hookgate.host.v1.StorageService/Put"), ("rpc_response_status_code", "OK")];
    assert_eq!(metrics.sum("rpc_server_call_duration_seconds_count", &labels), 1.0);
    let port = support::endpoint(&plugin);
    let agent =
        reqwest::Client::new().post(format!("{port}/v1/before-tool-call")).body("{}").send().await.unwrap();
    assert_ne!(agent.headers().get("grpc-status").map(|status| status.as_bytes()), Some(&b"0"[..]));
    assert!(agent.headers().get("hookgate-decision").is_none());
}
