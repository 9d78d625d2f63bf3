//! Tests that the other replicas take over when one of three falls silent, reports NOT_SERVING or changes
//! its address, and that it comes back.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use futures::future::join_all;
use hookgate_tests::{
    fake::{FakePlugin, Health},
    gateway::Gateway,
    proxy::{Flow, Proxy},
    token::{Token, token},
};
use serde_json::{Value, json};

use crate::replicas::support::{POINT, Rig, TIMEOUT, echo, replica, states};

/// What a call may take beyond its timeout while other tests run; less than another timeout.
const SLACK: Duration = Duration::from_secs(2);

async fn three() -> Vec<FakePlugin> {
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(replica("1.0.0").start().await);
    }
    replicas
}

/// Waits until a replica has received this many more calls.
async fn works(plugin: &FakePlugin, calls: u64) {
    let before = plugin.counts().calls;
    plugin.wait_until(|counts| counts.calls > before + calls).await;
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Silence {
    /// Connections are accepted, but nothing is read, on new ones either.
    BlackHole,
    /// The far end of the connections has vanished; new ones work.
    HalfOpen,
}

async fn one_falls(silence: Silence) {
    let replicas = three().await;
    let proxy = Proxy::before(&replicas[0].endpoint()).await;
    let front = proxy.endpoint("http");
    let place = |index, endpoint| if index == 0 { front.clone() } else { endpoint };
    let health = json!({ "health": { "interval": "200ms", "timeout": "1s", "misses": 2 } });
    let rig = Rig::before(replicas, place, health).await;
    let load = rig.load().await;
    join_all(rig.replicas.iter().map(|plugin| works(plugin, 20))).await;

    let silent = Instant::now();
    match silence {
        Silence::BlackHole => proxy.both(Flow::Stop),
        Silence::HalfOpen => proxy.lose(),
    }
    rig.told("plugin.health_failed", "health_unanswered", &front).await;
    let out = Instant::now();
    if silence == Silence::BlackHole {
        let before = rig.replicas[0].counts();
        join_all(rig.replicas[1..].iter().map(|plugin| works(plugin, 100))).await;
        assert_eq!(rig.replicas[0].counts(), before, "nothing reaches it");
        assert_ne!(states(&rig.status().await)[0], "serving");
        proxy.both(Flow::Pass);
    }
    works(&rig.replicas[0], 20).await;
    rig.wait_for("it is back", |guard| states(guard) == ["serving"; 3]).await;

    let (made, executions) = (load.end().await, rig.executions());
    let mut failed = 0;
    for made in made.iter().flatten() {
        assert!(made.took < TIMEOUT + SLACK, "{made:?}");
        let executed = executions.get(&made.id).copied().unwrap_or_default();
        match &made.result {
            Ok(_) => assert_eq!(executed, 1, "{made:?}"),
            Err((code, _)) => {
                failed += 1;
                assert!(executed <= 1 && code == "PLUGIN_TIMEOUT", "{executed} times: {made:?}");
                assert!(made.began < out && made.began + made.took > silent, "{made:?}");
            }
        }
    }
    assert!(failed > 0, "it was never silent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_and_never_reads_is_found_by_its_health_and_the_others_take_over() {
    one_falls(Silence::BlackHole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_connections_are_half_open_is_found_by_its_health_and_connected_anew() {
    one_falls(Silence::HalfOpen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_says_it_does_not_serve_gets_no_calls_until_it_does_and_none_fails() {
    let rig = Rig::over_all_transports("1.0.0").await;
    let load = rig.load().await;
    // over TCP, a Unix socket and TLS in turn
    for (index, leaving) in rig.replicas.iter().enumerate() {
        works(leaving, 20).await;
        leaving.set_health(Health::NotServing);
        rig.told("plugin.health_failed", "not_serving", &leaving.endpoint()).await;
        let others = || rig.replicas.iter().enumerate().filter(move |(other, _)| *other != index);
        // Wait for calls that were assigned earlier.
        load.turn().await;
        let calls = leaving.counts().calls;
        join_all(others().map(|(_, plugin)| works(plugin, 100))).await;
        assert_eq!(leaving.counts().calls, calls, "it gets no calls");
        let guard = rig.status().await;
        assert_eq!((states(&guard)[index], &guard["state"]), ("not_serving", &json!("ready")));
        leaving.set_health(Health::Serving);
        works(leaving, 20).await;
        // A worker may have made a connection of its own meanwhile, but none was made anew.
        let address = json!(leaving.endpoint());
        let connected = rig.events("plugin.connected");
        let of_it = connected.iter().filter(|line| line.field("address") == Some(&address));
        // The event of a handshake has the version, that of a recovery has none.
        let handshakes = of_it.filter(|line| line.field("version").is_some()).count();
        assert_eq!(handshakes, 1, "it kept its connection");
    }
    let (made, executions) = (load.end().await, rig.executions());
    for made in made.iter().flatten() {
        assert!(made.result.is_ok(), "{made:?}");
        assert_eq!(executions.get(&made.id), Some(&1), "{made:?}");
    }
}

#[tokio::test]
async fn a_name_stands_for_all_its_addresses() {
    let mut plugin = replica("1.0.0").start().await;
    echo(&plugin, "1.0.0");
    let port = plugin.endpoint().rsplit(':').next().unwrap().parse().unwrap();
    let mut addresses: Vec<SocketAddr> = ("localhost", port).to_socket_addrs().unwrap().collect();
    addresses.sort();
    addresses.dedup();
    // If the host name also has an IPv6 address, a replica listens there too.
    let mut further = Vec::new();
    for address in addresses.iter().filter(|address| address.is_ipv6()) {
        further.push(replica("1.0.0").start_at(*address).await);
    }
    let name = format!("dns:///localhost:{port}");
    let members = json!({ "endpoint": name });
    let setup = Gateway::with().tenant("acme").admin().plugin_with(&plugin, &members).binding("guard", 1);
    let gateway = setup.start().await;
    let operator = gateway.admin(&Token::for_operators().mint());
    let endpoints = async || {
        let guard = operator.get("/admin/v1/plugins/guard").await.unwrap().body;
        let address = |endpoint: &Value| endpoint["address"].as_str().unwrap().to_owned();
        let mut found: Vec<_> = guard["endpoints"].as_array().unwrap().iter().map(address).collect();
        found.sort();
        found
    };
    let mut expected: Vec<_> = addresses.iter().map(|address| format!("http://{address}")).collect();
    expected.sort();
    assert_eq!(endpoints().await, expected);

    let agent = gateway.http(&token("acme"));
    let payload = || json!({ "tool_name": "fs.read", "args": {} });
    for _ in 0..20 {
        assert_eq!(agent.call(POINT, payload()).await.status, 200);
    }
    let answered: u64 = further.iter().chain([&plugin]).map(|plugin| plugin.counts().calls).sum();
    assert_eq!(answered, 20);
    plugin.leave().await;
    plugin.start().await;
    let calls = plugin.counts().calls;
    while plugin.counts().calls == calls {
        assert_eq!(agent.call(POINT, payload()).await.status, 200, "{}", gateway.log());
    }
}
