//! Tests replicas written with the SDK that are restarted one by one under load.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Context, Host, InitError, NoConfig, Offer, Plugin,
    Point, Reply, ServeError, Server,
};
use hookgate_tests::{
    gateway::{Gateway, Line},
    token::token,
};
use serde_json::json;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

use crate::replicas::support::POINT;

/// The number of calls answered so far.
static ANSWERED: AtomicUsize = AtomicUsize::new(0);

struct Worker;

impl Plugin for Worker {
    const NAME: &'static str = "worker";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Worker)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        _: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        tokio::time::sleep(Duration::from_millis(3)).await;
        ANSWERED.fetch_add(1, SeqCst);
        Ok(Reply::proceed())
    }
}

struct Process {
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Process {
    async fn start(address: &str) -> Self {
        let server = Server::bind(address).await.unwrap().with_plugin::<Worker>();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Process { stop, served }
    }

    /// Stops it like SIGTERM.
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }
}

async fn until_answered(more: usize) {
    let wanted = ANSWERED.load(SeqCst) + more;
    let answered = async {
        while ANSWERED.load(SeqCst) < wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(35), answered).await.expect("calls go on");
}

/// Waits until the gateway has connected to the replica this many times.
async fn connected(gateway: &Gateway, address: &str, times: usize) {
    let mut seen = 0;
    let nth = |line: &Line| {
        let is_it = line.field("event") == Some(&json!("plugin.connected"))
            && line.field("address") == Some(&json!(address));
        seen += usize::from(is_it);
        is_it && seen == times
    };
    gateway.log().wait_for(nth).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_of_our_sdk_are_restarted_one_by_one_without_one_failed_call() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = ["a", "b"].map(|name| format!("unix://{}/{name}", folder.path().display()));
    let mut processes = Vec::new();
    for address in &addresses {
        processes.push(Process::start(address).await);
    }
    let plugin = json!({ "name": "worker", "endpoints": addresses });
    let gateway = Gateway::with().tenant("acme").set("/plugins", vec![plugin]).binding("worker", 1);
    let gateway = gateway.start().await;
    for address in &addresses {
        connected(&gateway, address, 1).await;
    }
    let stop = watch::Sender::new(false);
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (agent, stop) = (gateway.http(&token("acme")), stop.subscribe());
            tokio::spawn(async move {
                let mut calls = 0;
                while !*stop.borrow() {
                    let answer = agent.call(POINT, json!({ "tool_name": "fs.read", "args": {} })).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for round in 1..=3 {
        for (index, address) in addresses.iter().enumerate() {
            until_answered(50).await;
            processes.remove(index).stop().await;
            processes.insert(index, Process::start(address).await);
            connected(&gateway, address, 1 + round).await;
        }
    }
    stop.send_replace(true);
    for worker in workers {
        assert!(worker.await.unwrap() > 0);
    }
}
