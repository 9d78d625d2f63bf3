//! Tests certificates that change during calls: no call fails, new connections see the new certificates,
//! and an incomplete pair changes nothing.

use std::{
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hookgate_tests::{
    agent::{GrpcAgent, HttpAgent},
    ca::{self, Ca, Pair},
    fake::FakePlugin,
    gateway::{Gateway, Line},
    token::token,
};
use rustls::ClientConfig;
use serde_json::json;
use tokio::task::JoinSet;

use crate::edge::support::{POINT, payload, request};

const LOCAL: &str = "127.0.0.1";
/// The limit in the protocol.
const RELOADED_WITHIN: Duration = Duration::from_secs(10);

/// A line of this event about a plugin's certificates or the listener's.
fn event(name: &'static str, plugin: Option<&'static str>) -> impl Fn(&Line) -> bool {
    move |line| {
        line.field("event") == Some(&json!(name))
            && line.field("plugin").and_then(|plugin| plugin.as_str()) == plugin
    }
}

/// Agents that call repeatedly, each in its own way, until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    agents: JoinSet<()>,
}

impl Load {
    fn start(gateway: &Gateway, tls: &ClientConfig) -> Self {
        let mut load = Load { stop: Arc::default(), answered: Arc::default(), agents: JoinSet::new() };
        let address = gateway.data_addr();
        let new_agent = {
            let tls = tls.clone();
            move || HttpAgent::over_tls(address, tls.clone()).with_token(&token("acme"))
        };
        for keeps_its_connection in [true, true, false] {
            let (stop, answered, new_agent) = (load.stop.clone(), load.answered.clone(), new_agent.clone());
            load.agents.spawn(async move {
                let mut agent = new_agent();
                while !stop.load(Ordering::Relaxed) {
                    let answer = agent.call(POINT, payload()).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                    if !keeps_its_connection {
                        agent = new_agent();
                    }
                }
            });
        }
        let (stop, answered, tls) = (load.stop.clone(), load.answered.clone(), tls.clone());
        load.agents.spawn(async move {
            let mut agent = GrpcAgent::dial_tls(address, tls, Some(&token("acme"))).await.unwrap();
            while !stop.load(Ordering::Relaxed) {
                agent.client.before_tool_call(request()).await.unwrap();
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        load
    }

    /// Waits until this many further calls were answered.
    async fn goes_on(&mut self, calls: u64) {
        let enough = self.answered.load(Ordering::Relaxed) + calls;
        while self.answered.load(Ordering::Relaxed) < enough {
            if let Some(ended) = self.agents.try_join_next() {
                ended.expect("no call fails");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Stops, and checks that no call failed.
    async fn ends(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.agents.join_next().await {
            ended.expect("no call fails");
        }
    }
}

#[tokio::test]
async fn certificates_that_change_under_load_on_both_sides_fail_no_call() {
    let ca = Ca::new();
    let plugin_server = |pair: &Pair| ca::server(pair, Some(&ca));
    let guard = FakePlugin::named("guard").start_tls_as(plugin_server(&ca.pair(&[LOCAL]))).await;
    let (listens, dials) = (ca.pair(&[LOCAL]).files(), ca.pair(&["gateway"]).files());
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_with(&guard, &json!({ "tls": dials.members(&json!({ "ca_file": ca.file() })) }))
        .binding("guard", 1)
        .set("/server/tls", listens.members(&json!({ "client_ca_file": ca.file() })))
        .set("/server/workers", json!(1))
        .start()
        .await;
    let agent = ca.client(Some(&ca.pair(&["agent"])));
    let mut load = Load::start(&gateway, &agent);
    load.goes_on(50).await;
    guard.wait_until(|counts| counts.connections == 2).await;

    let (to_callers, to_plugin, changed) = (ca.pair(&[LOCAL]), ca.pair(&["gateway"]), Instant::now());
    listens.replace(&to_callers);
    dials.replace(&to_plugin);
    let line = gateway.log().wait_for(event("certificate.reloaded", None)).await;
    assert_eq!((line.level(), line.field("names")), (Some("INFO"), Some(&json!(LOCAL))), "{line:?}");
    gateway.log().wait_for(event("certificate.reloaded", Some("guard"))).await;
    assert!(changed.elapsed() < RELOADED_WITHIN, "{:?}", changed.elapsed());
    assert_eq!(ca::shown_by(gateway.data_addr(), agent.clone()).await, to_callers.certificate());
    load.goes_on(50).await;
    assert_eq!(guard.counts().connections, 2, "open connections stay open");

    // The plugin's own certificate changes, and its connections are asked to close.
    guard.set_tls(plugin_server(&ca.pair(&[LOCAL])));
    guard.go_away();
    guard.wait_until(|counts| counts.connections > 2).await;
    load.goes_on(50).await;
    load.ends().await;
    assert_eq!(guard.peers().last(), Some(&Some(to_plugin.certificate())));
}

#[tokio::test]
async fn a_pair_that_is_not_whole_keeps_the_old_one_and_is_reported_once() {
    let ca = Ca::new();
    let guard = FakePlugin::named("guard").start_tls_as(ca::server(&ca.pair(&[LOCAL]), None)).await;
    let old = ca.pair(&[LOCAL]);
    let (listens, dials) = (old.files(), ca.pair(&["gateway"]).files());
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_with(&guard, &json!({ "tls": dials.members(&json!({ "ca_file": ca.file() })) }))
        .binding("guard", 1)
        .set("/server/tls", listens.members(&json!({})))
        .start()
        .await;
    let shown = async || ca::shown_by(gateway.data_addr(), ca.client(None)).await;

    let new = ca.pair(&[LOCAL]);
    listens.write(&listens.chain(), &new.chain[..new.chain.len() / 2]);
    let line = gateway.log().wait_for(event("certificate.refused", None)).await;
    assert_eq!(line.level(), Some("WARN"), "{line:?}");
    let file = listens.chain().display().to_string();
    assert!(line.text.contains("`cert_file`") && line.text.contains(&file), "{line:?}");
    assert_eq!(shown().await, old.certificate());

    // All files are checked together: once a second, later change is noticed, this one was checked again.
    for name in ["gateway-2", "gateway-3"] {
        dials.replace(&ca.pair(&[name]));
        let is_new = |line: &Line| line.field("names") == Some(&json!(name));
        gateway
            .log()
            .wait_for(|line| event("certificate.reloaded", Some("guard"))(line) && is_new(line))
            .await;
    }
    let refused = gateway.log().lines().into_iter().filter(event("certificate.refused", None)).count();
    assert_eq!(refused, 1, "{}", gateway.log());

    // Valid files, but not a matching pair.
    listens.write(&listens.chain(), &new.chain);
    let is_torn = |line: &Line| line.text.contains("is not the key of the certificate");
    gateway.log().wait_for(|line| event("certificate.refused", None)(line) && is_torn(line)).await;
    assert_eq!(shown().await, old.certificate());

    listens.write(&listens.key(), &new.key);
    gateway.log().wait_for(event("certificate.reloaded", None)).await;
    assert_eq!(shown().await, new.certificate());
    let answer = HttpAgent::over_tls(gateway.data_addr(), ca.client(None)).with_token(&token("acme"));
    assert_eq!(answer.call(POINT, payload()).await.status, 200);
}

#[tokio::test]
async fn a_file_that_hangs_holds_up_neither_another_nor_the_end() {
    let ca = Ca::new();
    let guard = FakePlugin::named("guard").start_tls(&ca).await;
    let (listens, dials) = (ca.pair(&[LOCAL]).files(), ca.pair(&["gateway"]).files());
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin_with(&guard, &json!({ "tls": dials.members(&json!({ "ca_file": ca.file() })) }))
        .binding("guard", 1)
        .set("/server/tls", listens.members(&json!({})))
        .start()
        .await;
    // Opening a pipe without a writer blocks.
    std::fs::remove_file(dials.key()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(dials.key()).status().unwrap().success());
    for times in 1..=2 {
        listens.replace(&ca.pair(&[LOCAL]));
        let mut reloaded = 0;
        let is_reloaded = |line: &Line| {
            reloaded += usize::from(event("certificate.reloaded", None)(line));
            reloaded == times
        };
        gateway.log().wait_for(is_reloaded).await;
    }
    let asked = Instant::now();
    assert_eq!(gateway.stop().await.code, Some(0));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_folder_that_is_swapped_as_kubernetes_does_is_taken_into_use() {
    let (ca, mount) = (Ca::new(), tempfile::tempdir().unwrap());
    let (old, new) = (ca.pair(&[LOCAL]), ca.pair(&[LOCAL]));
    let (old_files, new_files) = (old.files(), new.files());
    let folder = |file: &Path| file.parent().unwrap().to_owned();
    symlink(folder(&old_files.chain()), mount.path().join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), mount.path().join(name)).unwrap();
    }
    let file = |name: &str| mount.path().join(name);
    let tls = json!({ "cert_file": file("tls.crt"), "key_file": file("tls.key") });
    let gateway = Gateway::with().tenant("acme").set("/server/tls", tls).start().await;
    assert_eq!(ca::shown_by(gateway.data_addr(), ca.client(None)).await, old.certificate());

    symlink(folder(&new_files.chain()), file("..data_tmp")).unwrap();
    std::fs::rename(file("..data_tmp"), file("..data")).unwrap();
    gateway.log().wait_for(event("certificate.reloaded", None)).await;
    assert_eq!(ca::shown_by(gateway.data_addr(), ca.client(None)).await, new.certificate());
}
