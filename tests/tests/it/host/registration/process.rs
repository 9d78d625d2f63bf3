//! A shipped plugin, as a process that registers itself with a minted token.

use std::path::Path;

use hookgate_tests::fake::FakePlugin;
use serde_json::json;
use tokio::{fs, process::Command};

use super::support::{SOON, call, call_until, event, setup};
use crate::cli::support::{Folder, pasted};

/// `hookgate plugin run tenant-auth`, registered with the gateway whose host socket is in `folder`.
fn plugin(folder: &Path) -> tokio::process::Child {
    let register = format!("unix://{}", folder.join("host.sock").display());
    let token = folder.join("token");
    Command::new(hookgate_tests::gateway::binary())
        .args(["plugin", "run", "tenant-auth", "--listen", "http://127.0.0.1:0", "--register", &register])
        .arg("--token-file")
        .arg(token)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn a_shipped_plugin_registers_itself_with_a_minted_token_and_leaves_when_it_is_stopped() {
    let Folder(folder) = Folder::new();
    // Only its name is used: the plugin is a process.
    let configured = FakePlugin::named("tenant-auth").start().await;
    let members = json!({ "endpoint": null, "self_registration": true });
    let allowed = json!({ "config": { "allowed_tools": ["read"] } });
    let setup = setup(&folder).plugin_with(&configured, &members).binding_with("tenant-auth", 10, &allowed);
    let gateway = setup.start().await;
    let mint = format!(
        "{} token mint --config {} --plugin tenant-auth --ttl 1h > {}",
        hookgate_tests::gateway::binary().display(),
        gateway.file().display(),
        folder.path().join("token").display()
    );
    let minted = pasted(&mint).await;
    assert_eq!(minted.code, Some(0), "{minted:?}");

    let mut process = plugin(folder.path());
    let blocked = call_until(&gateway, 403, SOON).await;
    assert_eq!(blocked.body["code"], "TOOL_NOT_ALLOWED");
    let id = process.id().expect("it runs");
    assert!(Command::new("kill").arg(id.to_string()).status().await.unwrap().success());
    assert!(process.wait().await.unwrap().success());
    assert_eq!(event(&gateway, "endpoint.removed").await["reason"], "closed");
    assert_eq!(call_until(&gateway, 503, SOON).await.body["code"], "PLUGIN_UNAVAILABLE");

    // A token that doesn't fit keeps it out until there is another one.
    let right = fs::read(folder.path().join("token")).await.unwrap();
    fs::write(folder.path().join("token"), "no token").await.unwrap();
    let _process = plugin(folder.path());
    event(&gateway, "auth.refused").await;
    assert_eq!(call(&gateway).await.status, 503);
    fs::write(folder.path().join("token"), right).await.unwrap();
    call_until(&gateway, 403, std::time::Duration::from_secs(60)).await;
}
