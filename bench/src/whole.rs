//! Measures the time from a write to the registry until its table is active. A gateway with a SQLite
//! registry, plugins and an operator run in one process. It also measures how calls are affected. Calls
//! with and without writes alternate, so that other load on the machine affects both.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use hookgate::{
    app::App,
    config,
    control::file_source::Source,
    core::object::{ObjectKind as Of, Owner},
    store::{self, Change, ObjectContent, RevisionDraft},
    telemetry::{
        Telemetry,
        events::{EventCursor, Events, micros},
    },
};
use hookgate_proto::admin::v1::{
    Kind as WireKind, PutObjectRequest, admin_service_client::AdminServiceClient,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::{sync::oneshot, time::sleep};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::{
    BenchError,
    caller::{Protocol, Target},
    closed_loop::{self, histogram},
    gateway_config::{self, token},
    payload::{Payload, TENANT},
    plugins::{self, ECHO_NAMES},
    proc_fs, process,
    published::LatencyComparison,
    scale::{TENANT_COUNTS, mib, ms},
};

/// For each tenant, each with a config and a condition.
const STEPS_PER_TENANT: usize = 5;
/// Writes one after another, without calls.
const SEQUENTIAL_WRITES: usize = 40;
/// The time between two writes while there are calls: at most 20 a second.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);
/// How long each side of the comparison runs before the other one's turn.
const PHASE_DURATION: Duration = Duration::from_secs(2);
/// The maximum time until a revision is active.
const ACTIVATION_TIMEOUT: Duration = Duration::from_secs(60);

/// The results of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Whole {
    tenants: usize,
    bindings: usize,
    /// A start, from the database until the gateway serves.
    started_ms: f64,
    /// The first write after the plugins' manifests have arrived since the start: from the commit until it
    /// is active.
    first_ms: f64,
    /// What the operator waits for: validation, commit and reading it back.
    written_p50_ms: f64,
    written_max_ms: f64,
    /// From the commit until the revision is active.
    active_p50_ms: f64,
    active_max_ms: f64,
    /// The CPU time of the whole process for one write, user and system, from the request until the
    /// previous table is freed.
    cpu_ms: f64,
    /// The resident memory of the process, including plugins and operator: after the start, at the end, and
    /// the peak.
    started_mib: f64,
    resident_mib: f64,
    peak_mib: f64,
    /// Calls while tables are published, compared with calls while none are.
    pub(crate) calls: LatencyComparison,
}

/// Measures each size in its own process. `quick` measures only the small ones.
pub(crate) fn run_all(quick: bool) -> Result<Vec<Whole>, BenchError> {
    let (sizes, seconds) = if quick { (&TENANT_COUNTS[..2], "0.4") } else { (&TENANT_COUNTS[..], "20") };
    let measure = |tenants: &usize| {
        Ok(serde_json::from_str(&process::output_of(&["whole", &tenants.to_string(), seconds])?)?)
    };
    sizes.iter().map(measure).collect()
}

/// Measures one size in this process, with calls for this long, and returns the results as JSON.
pub(crate) async fn measure(tenants: usize, calls: f64) -> Result<String, BenchError> {
    let directory = tempfile::Builder::new().prefix("hookgate-bench-").tempdir()?;
    let mut plugins = Vec::new();
    for name in &ECHO_NAMES[..STEPS_PER_TENANT] {
        let address = format!("unix://{}/{name}.sock", directory.path().display());
        plugins.push(json!({ "name": name, "endpoint": address }));
        tokio::spawn(async move { plugins::serve(name, &address, |_| ()).await });
    }
    fill(directory.path(), tenants, plugins).await?;
    let file = directory.path().join("hookgate.yaml");
    std::fs::write(&file, own(directory.path()).to_string())?; // JSON is YAML
    let source = Source::new(None, move || config::load(&file, []));
    let begun = Instant::now();
    let started = App::start(source, Telemetry::start).await;
    let (app, telemetry) = started.map_err(|problems| problems.to_string())?;
    let (serves, served) = oneshot::channel();
    let socket = directory.path().join("admin.sock");
    let operator = tokio::spawn(async move {
        let address = served.await?;
        let started_ms = ms(begun.elapsed());
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect().await?;
        let (client, events) = (AdminServiceClient::new(channel), Arc::clone(telemetry.events()));
        let mut operator = BenchOperator {
            client,
            place: events.end(),
            events,
            tenants,
            number: 0,
            versions: HashMap::new(),
        };
        operator.measure(started_ms, address, calls).await
    });
    // On the initial thread, where the gateway's task runs in production.
    tokio::select! {
        found = operator => Ok(serde_json::to_string(&found??)?),
        ended = app.run(|running| drop(serves.send(running.data_addr().to_string()))) => {
            ended?;
            Err("the gateway ended".into())
        }
    }
}

/// The process's own part of the configuration.
fn own(directory: &Path) -> Value {
    let mut file = gateway_config::empty();
    for list in ["plugins", "bindings", "tenants"] {
        file.as_object_mut().map(|file| file.remove(list));
    }
    file["server"]["admin_socket"] = directory.join("admin.sock").display().to_string().into();
    file["log"] = json!({ "level": "error" });
    file["store"] = json!({
        "url": format!("sqlite:{}", directory.join("registry.db").display()),
        "last_good": directory.join("last-good.json"),
        "apply_file": false,
    });
    file
}

/// Writes all objects in one revision.
async fn fill(directory: &Path, tenants: usize, plugins: Vec<Value>) -> Result<(), BenchError> {
    let store = store::open(&format!("sqlite:{}", directory.join("registry.db").display()))?;
    store.prepare().await?;
    // The file's plugins may be anywhere and need no consent.
    let named = |kind, name: &str, spec: Value| Change {
        kind,
        name: name.into(),
        before: None,
        after: Some(ObjectContent {
            owner: if kind == Of::Plugin { Owner::File } else { Owner::Api },
            spec: spec.into(),
        }),
    };
    let mut changes: Vec<_> =
        plugins.into_iter().zip(ECHO_NAMES).map(|(spec, name)| named(Of::Plugin, name, spec)).collect();
    // The calling tenant's chain is empty.
    changes.push(named(Of::Tenant, TENANT, json!({ "id": TENANT })));
    for n in 0..tenants {
        let id = id(n);
        changes.push(named(Of::Tenant, &id, tenant(&id, n)));
        for (step, plugin) in ECHO_NAMES.iter().take(STEPS_PER_TENANT).enumerate() {
            let name = format!("{id}-{step}");
            let spec = json!({
                "name": name, "plugin": plugin, "tenant": id, "priority": 10 + step,
                "points": ["before_tool_call"], "match": { "tools": ["fs.*"] }, "config": { "limit": step, "owner": id },
            });
            changes.push(named(Of::Binding, &name, spec));
        }
    }
    changes.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let (id, at) = (Uuid::now_v7(), OffsetDateTime::now_utc());
    let draft = RevisionDraft { id, base: 0, at, author: "bench".into(), reason: String::new(), changes };
    store.commit(&draft).await?;
    store.close().await;
    Ok(())
}

fn id(tenant: usize) -> String {
    format!("tenant-{tenant:05}")
}

fn tenant(id: &str, limit: usize) -> Value {
    json!({ "id": id, "labels": { "plan": "pro" }, "config": { ECHO_NAMES[0]: { "limit": limit } } })
}

/// The operator that writes.
struct BenchOperator {
    client: AdminServiceClient<Channel>,
    events: Arc<Events>,
    place: EventCursor,
    tenants: usize,
    number: usize,
    /// Of the tenants that were written.
    versions: HashMap<String, u64>,
}

/// The times of one write.
struct WriteTiming {
    written: Duration,
    snapshot: Duration,
}

impl BenchOperator {
    async fn measure(&mut self, started_ms: f64, address: String, calls: f64) -> Result<Whole, BenchError> {
        // Wait for the plugins' manifests and for the last good table.
        sleep(Duration::from_secs(3)).await;
        let started_mib = mib(proc_fs::own_memory()?);
        let first = self.put().await?;
        let (mut written, mut snapshot) = (Vec::new(), Vec::new());
        let before = proc_fs::own_cpu()?;
        for _ in 0..SEQUENTIAL_WRITES {
            let put = self.put().await?;
            written.push(put.written);
            snapshot.push(put.snapshot);
        }
        // The previous snapshot is freed by then.
        sleep(Duration::from_millis(300)).await;
        let cpu = proc_fs::own_cpu()? - before;
        written.sort();
        snapshot.sort();
        let calls = self.calls(address, Duration::from_secs_f64(calls)).await?;
        let last = SEQUENTIAL_WRITES - 1;
        Ok(Whole {
            tenants: self.tenants,
            bindings: self.tenants * STEPS_PER_TENANT,
            started_ms,
            first_ms: ms(first.snapshot),
            written_p50_ms: ms(written[SEQUENTIAL_WRITES / 2]),
            written_max_ms: ms(written[last]),
            active_p50_ms: ms(snapshot[SEQUENTIAL_WRITES / 2]),
            active_max_ms: ms(snapshot[last]),
            cpu_ms: ms(cpu) / SEQUENTIAL_WRITES as f64,
            started_mib,
            resident_mib: mib(proc_fs::own_memory()?),
            peak_mib: mib(proc_fs::own_peak()?),
            calls,
        })
    }

    /// Writes one tenant's entry and waits until it is active.
    async fn put(&mut self) -> Result<WriteTiming, BenchError> {
        let number = self.number;
        self.number += 1;
        let id = id(number * 7919 % self.tenants);
        let spec = tenant(&id, number + self.tenants);
        let request = PutObjectRequest {
            kind: WireKind::Tenant.into(),
            name: id.clone(),
            spec_json: spec.to_string().into(),
            expected_version: Some(self.versions.get(&id).copied().unwrap_or(1)),
            ..PutObjectRequest::default()
        };
        let begun = Instant::now();
        let answer = self.client.put_object(request).await?.into_inner();
        let written = begun.elapsed();
        let revision = answer.written.and_then(|written| written.revision).ok_or("nothing was written")?;
        self.versions.insert(id, revision);
        let [committed, published] = self.snapshot(revision).await?;
        Ok(WriteTiming { written, snapshot: Duration::from_micros(published.saturating_sub(committed)) })
    }

    /// When `revision` was committed and when it became active, in microseconds since 1970.
    async fn snapshot(&mut self, revision: u64) -> Result<[u64; 2], BenchError> {
        let (mut committed, until) = (None, micros(SystemTime::now() + ACTIVATION_TIMEOUT));
        let is_of = format!("\"revision\":{revision}");
        loop {
            for event in self.events.read(&mut self.place, usize::MAX).events {
                let is_it = event.members().any(|(_, member)| member == is_of);
                match (&*event.name, committed) {
                    ("registry.written", None) if is_it => committed = Some(event.id),
                    ("table.published", Some(committed)) if is_it => return Ok([committed, event.id]),
                    _ => {}
                }
            }
            if micros(SystemTime::now()) > until {
                return Err(format!("revision {revision} isn't active").into());
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn calls(&mut self, address: String, time: Duration) -> Result<LatencyComparison, BenchError> {
        let target = Target {
            address,
            protocol: Protocol::Grpc,
            payload: Payload::ToolCall,
            tokens: vec![token(TENANT)?],
            ca: None,
        };
        let mut callers = target.callers(1).await?;
        let turn = PHASE_DURATION.min(time / 2);
        (callers, _) = closed_loop::run(callers, turn / 10).await?;
        let (mut alone, mut beside) = (histogram()?, histogram()?);
        let (first, begun) = (self.number, Instant::now());
        while begun.elapsed() < time {
            let micros;
            (callers, micros) = closed_loop::run(callers, turn).await?;
            alone.add(micros)?;
            let stop = AtomicBool::new(false);
            let called = async {
                let called = closed_loop::run(callers, turn).await;
                stop.store(true, Ordering::Relaxed);
                called
            };
            let (called, written) = tokio::join!(called, self.write(&stop));
            written?;
            let micros;
            (callers, micros) = called?;
            beside.add(micros)?;
        }
        Ok(LatencyComparison::new(self.number - first, &beside, &alone))
    }

    async fn write(&mut self, stop: &AtomicBool) -> Result<(), BenchError> {
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            self.put().await?;
            sleep(WRITE_INTERVAL.saturating_sub(begun.elapsed())).await;
        }
        Ok(())
    }
}

#[allow(clippy::print_stdout)] // standard output is where a command shows what it found
pub(crate) fn print(found: &[Whole]) {
    println!(
        "\n{:>8}{:>10}{:>12}{:>10}{:>17}{:>19}{:>9}{:>26}",
        "tenants",
        "bindings",
        "started ms",
        "first ms",
        "written p50/max",
        "active p50/max",
        "CPU ms",
        "MiB started/end/peak"
    );
    for whole in found {
        let Whole { tenants, bindings, started_ms, first_ms, cpu_ms, .. } = whole;
        let written = format!("{:.1}/{:.1}", whole.written_p50_ms, whole.written_max_ms);
        let snapshot = format!("{:.1}/{:.1}", whole.active_p50_ms, whole.active_max_ms);
        let memory = format!("{:.0}/{:.0}/{:.0}", whole.started_mib, whole.resident_mib, whole.peak_mib);
        println!(
            "{tenants:>8}{bindings:>10}{started_ms:>12.0}{first_ms:>10.1}{written:>17}{snapshot:>19}{cpu_ms:>9.1}{memory:>26}"
        );
    }
    for whole in found {
        println!("\ncalls, {} tenants in a registry: {}", whole.tenants, whole.calls);
    }
}
