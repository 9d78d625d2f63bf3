//! How long a registered endpoint stays, and which replicas know it.

use std::time::Duration;

use hookgate_tests::{fake::FakePlugin, postgres};

use super::support::{SOON, call_until, event, register, setup, stored_at, with_plugin};

#[tokio::test]
async fn an_endpoint_goes_when_its_lease_ends_and_not_when_its_stream_breaks() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let gateway = with_plugin(setup(&folder), &plugin).start().await;
    // The connection goes without a word, as if the process was killed.
    drop(register(&folder, &plugin).await);
    call_until(&gateway, 200, SOON).await;
    call_until(&gateway, 503, Duration::from_secs(60)).await;
    assert_eq!(event(&gateway, "endpoint.removed").await["reason"], "lease_ended");
}

#[tokio::test]
async fn a_restarted_gateway_knows_the_endpoints_before_anybody_registers_again() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let before = with_plugin(setup(&folder), &plugin).start().await;
    let _registration = register(&folder, &plugin).await;
    call_until(&before, 200, SOON).await;
    before.kill().await;
    let after = with_plugin(setup(&folder), &plugin).start().await;
    assert_eq!(super::call(&after).await.status, 200, "it was ready with the plugin");
}

#[tokio::test]
async fn one_registration_is_enough_for_all_replicas() {
    let (url, plugin) = (postgres::database().await, FakePlugin::named("guard").start().await);
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let first = with_plugin(stored_at(&url, &folders[0]), &plugin).start().await;
    let second = with_plugin(stored_at(&url, &folders[1]), &plugin).start().await;
    let mut registration = register(&folders[0], &plugin).await;
    call_until(&first, 200, SOON).await;
    call_until(&second, 200, SOON).await;

    // The replica goes, and the plugin registers with the other one.
    first.kill().await;
    assert!(registration.answer().await.is_err());
    let again = register(&folders[1], &plugin).await;
    call_until(&second, 200, SOON).await;
    again.close().await;
    call_until(&second, 503, SOON).await;
}

#[tokio::test]
async fn a_successor_at_the_same_address_keeps_the_endpoint_when_its_predecessor_leaves() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), FakePlugin::named("guard").start().await);
    let gateway = with_plugin(setup(&folder), &plugin).start().await;
    let predecessor = register(&folder, &plugin).await;
    let mut successor = register(&folder, &plugin).await;
    call_until(&gateway, 200, SOON).await;
    predecessor.close().await;
    successor.renew().await.unwrap();
    for _ in 0..20 {
        assert_eq!(super::call(&gateway).await.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
