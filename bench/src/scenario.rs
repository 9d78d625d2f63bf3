//! The scenarios: processes, configurations and load.

use std::{cell::Cell, path::Path, time::Duration};

use hookgate_sdk::agent::{Claims, Signer};
use serde_json::{Value, json};

use crate::{BenchError, RunDurations, load::Target, process::RoleProcess, report::Row, role::PLUGIN_NAMES};

const SIGNING_SECRET: &str = "a secret of the benchmark, 32 bytes or more";
/// One worker measures the latency, several measure the throughput.
const WORKER_COUNTS: [usize; 2] = [1, 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketKind {
    Unix,
    Tcp,
}

impl SocketKind {
    const fn name(self) -> &'static str {
        match self {
            SocketKind::Unix => "unix",
            SocketKind::Tcp => "tcp",
        }
    }

    /// A free address for `name`.
    fn address(self, name: &str, directory: &Path) -> String {
        match self {
            SocketKind::Unix => format!("unix://{}/{name}.sock", directory.display()),
            SocketKind::Tcp => "http://127.0.0.1:0".to_owned(),
        }
    }
}

/// Runs the scenarios with `only` in their names, one after another.
pub(crate) async fn run_all(pace: RunDurations, only: &str) -> Result<Vec<Row>, BenchError> {
    let directory = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
    let token = token()?;
    let mut rows = Vec::new();
    for socket in [SocketKind::Tcp, SocketKind::Unix] {
        let name = format!("raw tonic call, {}", socket.name());
        if name.contains(only) {
            let address = socket.address("raw", directory.path());
            let raw = RoleProcess::start(&["raw", &address]).await?;
            rows.extend(measure(&name, &raw, &token, pace).await?);
        }
    }
    for (plugins, socket) in [
        (0, SocketKind::Unix),
        (1, SocketKind::Unix),
        (3, SocketKind::Unix),
        (1, SocketKind::Tcp),
        (3, SocketKind::Tcp),
    ] {
        let name = match plugins {
            0 => "gateway, no plugin".to_owned(),
            1 => format!("gateway, 1 plugin, {}", socket.name()),
            many => format!("gateway, {many} plugins, {}", socket.name()),
        };
        if name.contains(only) {
            rows.extend(through_gateway(&name, plugins, socket, directory.path(), &token, pace).await?);
        }
    }
    Ok(rows)
}

async fn through_gateway(
    name: &str,
    plugins: usize,
    socket: SocketKind,
    directory: &Path,
    token: &str,
    pace: RunDurations,
) -> Result<Vec<Row>, BenchError> {
    let mut running = Vec::with_capacity(plugins);
    for (number, plugin) in PLUGIN_NAMES.iter().enumerate().take(plugins) {
        let address = socket.address(plugin, directory);
        running.push(RoleProcess::start(&["plugin", &number.to_string(), &address]).await?);
    }
    let file = directory.join("hookgate.yaml");
    std::fs::write(&file, config(&running).to_string())?; // JSON is YAML
    let gateway = RoleProcess::start(&["gateway", &file.display().to_string()]).await?;
    measure(name, &gateway, token, pace).await
}

/// The configuration of a gateway with these plugins.
pub(crate) fn config(plugins: &[RoleProcess]) -> Value {
    let entries = plugins.iter().zip(PLUGIN_NAMES);
    let listed: Vec<_> =
        entries.map(|(plugin, name)| json!({ "name": name, "endpoint": plugin.address })).collect();
    let bindings = PLUGIN_NAMES.iter().take(plugins.len()).enumerate();
    let bindings: Vec<_> = bindings
        .map(|(number, name)| json!({ "plugin": name, "tenant": "*", "priority": 10 * (number + 1) }))
        .collect();
    let issuer = json!({
        "issuer": "https://id.example.com",
        "audience": "hookgate",
        "keys": [{ "alg": "HS256", "secret": SIGNING_SECRET }],
        "tenants": ["acme"],
    });
    json!({
        "server": { "data_addr": "127.0.0.1:0", "ops_addr": "127.0.0.1:0" },
        "auth": { "issuers": [issuer] },
        "tenants": { "list": [{ "id": "acme" }] },
        "plugins": listed,
        "bindings": bindings,
    })
}

pub(crate) fn token() -> Result<String, BenchError> {
    let claims = Claims {
        issuer: "https://id.example.com".into(),
        audience: "hookgate".into(),
        tenant: "acme".into(),
        operator: "bench".into(),
    };
    Ok(Signer::hs256(SIGNING_SECRET.as_bytes(), claims)?.with_ttl(Duration::from_secs(3600)).token())
}

/// Measures with each number of workers, one row each.
async fn measure(
    name: &str,
    called: &RoleProcess,
    token: &str,
    pace: RunDurations,
) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::with_capacity(WORKER_COUNTS.len());
    for workers in WORKER_COUNTS {
        let target = Target { address: &called.address, token, workers };
        let before = Cell::new(Duration::ZERO);
        let started = || called.cpu().map(|cpu| before.set(cpu));
        let measured = target.measure(pace, started).await?;
        let cpu = called.cpu()? - before.get();
        rows.push(Row::new(name, workers, &measured, cpu));
    }
    Ok(rows)
}
