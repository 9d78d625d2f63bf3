//! Tests the gateway under a pod's constraints: a read-only root, the user 65532, no capabilities, a memory
//! limit, and a sidecar that starts later, dies and comes back. The gateway starts, serves, fails closed
//! meanwhile and drains in time.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Act, FakePlugin},
    gateway::Line,
    openapi::Port,
    token::{AUDIENCE, ISSUER, SECRET, token},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::deploy::support::{Container, Machine, PATIENCE, Running, USER, of_image};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const GRACE: Duration = Duration::from_millis(300);
const FINISH: Duration = Duration::from_millis(700);
/// After the calls are given up: observers, Shutdown, telemetry (as in `drain/end.rs`), and the tolerance
/// of the guarantee.
const LAST: Duration = Duration::from_millis(4500);

fn config(slow: &FakePlugin) -> Value {
    json!({
        "server": { "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0" },
        "auth": { "issuers": [{
            "issuer": ISSUER, "audience": AUDIENCE, "keys": [{ "alg": "HS256", "secret": SECRET }], "tenants": "*",
        }] },
        "tenants": { "list": [
            { "id": "acme", "config": { "tenant-auth": { "allowed_tools": ["fs.*"] } } },
            { "id": "patient", "config": { "tenant-auth": { "allowed_tools": ["*"] } } },
        ] },
        "plugins": [
            { "name": "tenant-auth", "endpoint": "unix:///run/plugins/tenant-auth.sock" },
            { "name": "slow", "endpoint": slow.endpoint() },
        ],
        "bindings": [
            { "plugin": "tenant-auth", "tenant": "*", "priority": 100 },
            { "plugin": "slow", "tenant": "patient", "priority": 200, "timeout": "60s" },
        ],
        "store": { "url": "sqlite:/var/lib/hookgate/registry.db", "last_good": "/var/lib/hookgate/last-good.json" },
        "limits": { "budget": "60s" },
        "drain": { "grace": "300ms", "finish": "700ms" },
        "log": { "format": "json" },
    })
}

/// A pod: a gateway, and the volume with its sidecar's socket.
struct Pod {
    machine: Machine,
    config: PathBuf,
}

impl Pod {
    async fn new(config: &Value) -> Self {
        let machine = Machine::new().await;
        let config = machine.file("hookgate.yaml", &config.to_string());
        Pod { machine, config }
    }

    fn gateway(&self) -> Container {
        let (sockets, state) = (self.machine.volume("plugins"), self.machine.volume("state"));
        self.machine.container(&[
            (self.config.as_path(), "/etc/hookgate/hookgate.yaml"),
            (&sockets, "/run/plugins"),
            (&state, "/var/lib/hookgate"),
        ])
    }

    async fn sidecar(&self) -> Running {
        let container = self.machine.container(&[(&self.machine.volume("plugins"), "/run/plugins")]);
        let words = [of_image("tenant-auth", "ENTRYPOINT"), of_image("tenant-auth", "CMD")].concat();
        let mut sidecar = container.start(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
        sidecar.logged("plugin listens").await;
        sidecar
    }

    /// Starts the gateway like its image. Returns also its data and ops addresses.
    async fn start(&self) -> (Running, SocketAddr, SocketAddr) {
        let words = [of_image("gateway", "ENTRYPOINT"), of_image("gateway", "CMD")].concat();
        let mut gateway = self.gateway().start(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let line = gateway.logged("listening").await;
        let address = |name| line.field(name).unwrap().as_str().unwrap().parse().unwrap();
        let (data, ops) = (address("data_addr"), address("ops_addr"));
        (gateway, data, ops)
    }
}

async fn tool(data: SocketAddr, tenant: &str, name: &str) -> HttpAnswer {
    let agent = HttpAgent::new(data).of(Port::Data).with_token(&token(tenant));
    agent.call(POINT, json!({ "tool_name": name, "args": {} })).await
}

async fn readiness(ops: SocketAddr) -> u16 {
    HttpAgent::new(ops).of(Port::Ops).get("/readyz").await.unwrap().status
}

fn connected(line: &Line) -> bool {
    let is = |name, value: &str| line.field(name).is_some_and(|field| field == value);
    is("event", "plugin.connected") && is("plugin", "tenant-auth")
}

/// Checks with the kernel that the process is restricted like a pod.
fn assert_contained(gateway: &Running) {
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", gateway.id())).unwrap();
    let status = of("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}")).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let user = USER.to_string();
    assert_eq!((field("Uid:"), field("Gid:")), (vec![user.clone(); 4], vec![user; 4]));
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(u64::from_str_radix(&field(set)[0], 16), Ok(0), "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    let mounts = of("mountinfo");
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).expect("it has a root");
    assert!(root.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{root}");
    let group = format!("hookgate-{}", gateway.id());
    let limits = of("limits");
    let by_address_space =
        limits.lines().any(|line| line.starts_with("Max address space") && !line.contains("unlimited"));
    assert!(of("cgroup").contains(&group) || by_address_space, "no limit of memory: {limits}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_in_a_restricted_pod_waits_for_its_sidecar_fails_closed_without_it_and_drains() {
    let slow = FakePlugin::named("slow").at(POINT, Act::hang()).start().await;
    let pod = Pod::new(&config(&slow)).await;

    // The sidecar is not up yet: alive, not ready, and no call passes.
    let (mut gateway, data, ops) = pod.start().await;
    assert_contained(&gateway);
    assert_eq!(HttpAgent::new(ops).of(Port::Ops).get("/livez").await.unwrap().status, 200);
    assert_eq!(readiness(ops).await, 503);
    assert_eq!(tool(data, "acme", "fs.read").await.status, 503);

    // The sidecar starts.
    let sidecar = pod.sidecar().await;
    gateway.logged("started").await;
    assert_eq!(readiness(ops).await, 200);
    assert_eq!(tool(data, "acme", "fs.read").await.status, 200);
    let blocked = tool(data, "acme", "shell.exec").await;
    assert_eq!((blocked.status, &blocked.body["block"]["code"]), (403, &json!("TOOL_NOT_ALLOWED")));

    // It is killed, but the socket's file stays: no call passes, and none is blocked.
    sidecar.signal("KILL");
    drop(sidecar);
    for name in ["fs.read", "shell.exec"] {
        let answer = tool(data, "acme", name).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (503, &json!("PLUGIN_UNAVAILABLE")),
            "{name}: {answer:?}"
        );
        assert!(answer.body["detail"].as_str().unwrap().contains("'tenant-auth'"), "{answer:?}");
    }

    // It starts again at the same address.
    let _sidecar = pod.sidecar().await;
    gateway.line(connected).await;
    let allowed = async {
        // The breaker admits a trial call when its time has come, which only calls show.
        while tool(data, "acme", "fs.read").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, allowed).await.expect("calls pass again");
    assert_eq!(tool(data, "acme", "shell.exec").await.status, 403);

    // It exits in time although a call hangs.
    let stuck = tokio::spawn(async move { tool(data, "patient", "fs.read").await });
    slow.wait_until(|counts| counts.calls == 1).await;
    let began = Instant::now();
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await, Some(0));
    let took = began.elapsed();
    assert!(took <= GRACE + FINISH + LAST, "{took:?}");
    let answer = stuck.await.unwrap();
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("DRAINING")), "{answer:?}");
    assert!(pod.machine.volume("state").join("last-good.json").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_restricted_pod_nothing_but_volumes_can_be_written() {
    let pod = Pod::new(&json!({})).await;
    for (folder, code) in
        [("/run/plugins/new", 0), ("/etc/new", 1), ("/tmp/new", 1), ("/usr/local/bin/new", 1)]
    {
        let ended = pod.gateway().run(&["/usr/local/bin/hookgate", "init", folder]).await;
        assert_eq!(ended.code, Some(code), "{folder}: {ended:?}");
        assert_eq!(code == 1, ended.said.contains("Read-only file system"), "{folder}: {ended:?}");
    }
}
