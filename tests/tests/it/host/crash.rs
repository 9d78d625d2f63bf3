//! Gateways and plugins that are killed while plugins write.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{gateway::Gateway, token::token};
use serde_json::json;

use super::support::{STORAGE, add, get, of_tenant, setup, storing};
use crate::plugins::process::PluginProcess;

const KILLS: i64 = 4;
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_add_is_lost_when_the_gateway_is_killed() {
    let (folder, plugin) = (tempfile::tempdir().unwrap(), storing("quota").start().await);
    let acknowledged = Arc::new(AtomicI64::new(0));
    let mut unanswered = 0;
    for round in 1..=KILLS {
        let gateway = setup(&folder, &[&plugin]).start().await;
        let client = of_tenant(&gateway, &plugin, "acme").await;
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (mut client, acknowledged) = (client.clone(), Arc::clone(&acknowledged));
                tokio::spawn(async move {
                    while add(&mut client, "counter", None).await.is_ok() {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while acknowledged.load(Ordering::Relaxed) < round * 200 {
            tokio::task::yield_now().await;
        }
        gateway.kill().await;
        for writer in writers {
            writer.await.unwrap();
            // Each writer's last add may or may not have happened.
            unanswered += 1;
        }
        let gateway = setup(&folder, &[&plugin]).start().await;
        let mut client = of_tenant(&gateway, &plugin, "acme").await;
        let counter: i64 = get(&mut client, "counter").await.unwrap().unwrap().parse().unwrap();
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        assert!((acknowledged..=acknowledged + unanswered).contains(&counter), "{acknowledged} {counter}");
    }
}

/// Each answer means that the plugin's add was acknowledged: without it, the call fails.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_add_is_lost_when_the_plugin_is_killed() {
    wait_past_midnight().await;
    let folder = tempfile::tempdir().unwrap();
    let socket = |name: &str| format!("unix://{}", folder.path().join(format!("{name}.sock")).display());
    let host_socket = folder.path().join("host.sock").display().to_string();
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    let mut plugin = PluginProcess::reference("tenant-quota", &socket("tenant-quota"), &[]).await;
    let entry = json!({ "name": "tenant-quota", "endpoint": socket("tenant-quota"), "grants": STORAGE });
    let gateway = Gateway::with()
        .tenant("acme")
        .store(&url, folder.path())
        .set("/server/host_socket", host_socket)
        .set("/plugins", json!([entry]))
        .set("/tenants/list/0/config", json!({ "tenant-quota": { "daily_tokens": 1 } }))
        .binding("tenant-quota", 1)
        .start()
        .await;
    let (counted, sent) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let agents: Vec<_> = (0..WRITERS)
        .map(|_| {
            let agent = gateway.http(&token("acme"));
            let (counted, sent) = (Arc::clone(&counted), Arc::clone(&sent));
            tokio::spawn(async move {
                while counted.load(Ordering::Relaxed) < KILLS * 200 {
                    sent.fetch_add(1, Ordering::Relaxed);
                    let answer = json!({ "content": "ho", "token_usage": { "input": 1, "output": 0 } });
                    let answer = agent.call(ExtensionPoint::BeforeResponse, answer).await;
                    if answer.status == 200 {
                        counted.fetch_add(1, Ordering::Relaxed);
                    } else {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
            })
        })
        .collect();
    for round in 1..KILLS {
        while counted.load(Ordering::Relaxed) < round * 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        plugin.kill().await;
        plugin = PluginProcess::reference("tenant-quota", &socket("tenant-quota"), &[]).await;
    }
    for agent in agents {
        agent.await.unwrap();
    }
    let refused =
        gateway.http(&token("acme")).call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "hi" })).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    let used = refused.body["notices"][0]["details"]["used"].as_i64().unwrap();
    let (counted, sent) = (counted.load(Ordering::Relaxed), sent.load(Ordering::Relaxed));
    assert!((counted..=sent).contains(&used), "{counted} {used} {sent}");
}

/// The counter starts again at midnight UTC: if that is near, waits for it.
async fn wait_past_midnight() {
    const DAY: u64 = 24 * 60 * 60;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let left = DAY - now % DAY;
    if left < 60 {
        tokio::time::sleep(Duration::from_secs(left + 1)).await;
    }
}
