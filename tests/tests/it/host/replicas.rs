//! Gateways that share a database: one quota, and tokens that each accepts from the others.

use std::collections::BTreeSet;

use hookgate_tests::{fake::FakePlugin, gateway::Gateway, postgres};
use serde_json::json;
use tempfile::TempDir;

use super::support::{add_concurrently, dial, endpoint, get, of_tenant, put, stored_at, storing, with_token};

const LIMIT: i64 = 1000;
const CALLS: usize = 2000;

async fn replica(url: &str, plugin: &FakePlugin) -> (Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let setup = stored_at(url, folder.path(), &[plugin]).set("/server/host_addr", "127.0.0.1:0");
    // A call's token must last for all additions, however busy the machine is.
    let setup = setup.set("/limits/budget", "60s").set("/plugins/0/limits", json!({ "timeout": "60s" }));
    (setup.start().await, folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_enforce_one_limit_exactly() {
    let (url, plugin) = (postgres::database().await, storing("quota").start().await);
    let (first, _first_folder) = replica(&url, &plugin).await;
    let at_first = of_tenant(&first, &plugin, "acme").await;
    let (second, _second_folder) = replica(&url, &plugin).await;
    let at_second = of_tenant(&second, &plugin, "acme").await;
    let ports: BTreeSet<_> = plugin.initialized().into_iter().map(|sent| sent.host_endpoint).collect();
    assert_eq!(ports.len(), 2, "each replica tells its own port");
    assert_eq!(add_concurrently(&[at_first, at_second], CALLS, LIMIT).await, 1000);
}

#[tokio::test]
async fn a_token_of_one_replica_is_accepted_by_another() {
    let url = postgres::database().await;
    let plugin = storing("quota").start().await;
    let (first, _first_folder) = replica(&url, &plugin).await;
    let mut client = of_tenant(&first, &plugin, "acme").await;
    let token = plugin.seen().pop().unwrap().call.host_token;
    put(&mut client, "k", "v").await.unwrap();
    let (_second, _second_folder) = replica(&url, &plugin).await;
    let mut elsewhere = with_token(dial(&endpoint(&plugin)).await, &token);
    assert_eq!(get(&mut elsewhere, "k").await.unwrap().as_deref(), Some("v"));
}
