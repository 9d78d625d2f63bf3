//! Measures the cost of many tenants. It builds routing tables for 10 to 10,000 tenants, either with five
//! global bindings or with five bindings for each tenant. It measures building, changing, memory and
//! lookups, and how calls are affected by publishing tables.
//!
//! Each size is measured in its own process, so that its memory can be measured separately.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use hookgate::{
    config::{Binding, Config, Tenant},
    core::{
        manifest::{Access, Manifest, PointAccess, SideEffects},
        point::Point,
    },
    routing::{RouteTable, TenantRoute},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{BenchError, gateway_config, proc_fs, process, published, published::LatencyComparison};

pub(crate) const TENANT_COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
/// Bindings in each tenant's chain.
const STEPS_PER_TENANT: usize = 5;
/// How many tables are built from their predecessor.
const TABLE_CHANGES: usize = 60;
const LOOKUPS: usize = 1_000_000;

/// The owner of the bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Five for all tenants.
    Floor,
    /// Five for each tenant, each with a config.
    Own,
}

/// The results of one process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Scale {
    kind: Kind,
    tenants: usize,
    bindings: usize,
    /// A full build.
    built_ms: f64,
    /// Its CPU time.
    built_cpu_ms: f64,
    /// One tenant's change: the next configuration and its table.
    changed_p50_ms: f64,
    changed_max_ms: f64,
    /// Dropping the previous table and configuration.
    dropped_max_ms: f64,
    /// Resident memory of configuration and table.
    memory_mib: f64,
    /// The table's part of it.
    table_mib: f64,
    /// Looking up one tenant's plan, with all tenants in turn.
    look_up_ns: f64,
    /// Looking up the same tenant's plan again and again.
    same_look_up_ns: f64,
    /// Calls while tables are published, compared with calls while none are. Only for the largest size.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<LatencyComparison>,
}

/// Measures each size and kind in its own process. `quick` measures only the small ones.
pub(crate) fn run_all(quick: bool) -> Result<Vec<Scale>, BenchError> {
    let sizes = if quick { &TENANT_COUNTS[..2] } else { &TENANT_COUNTS[..] };
    let mut found = Vec::new();
    for kind in [Kind::Floor, Kind::Own] {
        for tenants in sizes {
            let name = serde_json::to_value(kind)?;
            let arguments = ["scale", name.as_str().unwrap_or_default(), &tenants.to_string()];
            let calls = tenants == sizes.last().unwrap_or(&0);
            let calls = calls.then_some(if quick { "0.2" } else { "20" }).map(|seconds| ["--calls", seconds]);
            let arguments: Vec<_> = arguments.into_iter().chain(calls.into_iter().flatten()).collect();
            found.push(serde_json::from_str(&process::output_of(&arguments)?)?);
        }
    }
    Ok(found)
}

/// Measures one size in this process and returns the results as JSON.
pub(crate) async fn measure(kind: Kind, tenants: usize, calls: Option<f64>) -> Result<String, BenchError> {
    let before = proc_fs::own_memory()?;
    let config = config(kind, tenants)?;
    let of_config = proc_fs::own_memory()?;
    let manifests = manifests();
    let (begun, cpu) = (Instant::now(), proc_fs::thread_cpu()?);
    let table = RouteTable::build(&config, &manifests, 1).map_err(|problems| format!("{problems:?}"))?;
    let (built, built_cpu) = (begun.elapsed(), proc_fs::thread_cpu()? - cpu);
    let after = proc_fs::own_memory()?;
    let look_up_ns = look_up(&table, tenants, tenants)?;
    let same_look_up_ns = look_up(&table, tenants, 1)?;
    let bindings = config.bindings.len();
    let mut registry = Registry { config: Arc::new(config), manifests, table };
    let mut changes = registry.change(TABLE_CHANGES)?;
    changes.sort();
    let (took, dropped): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
    let calls = match calls {
        Some(seconds) => Some(published::run(registry, Duration::from_secs_f64(seconds)).await?),
        None => None,
    };
    let found = Scale {
        kind,
        tenants,
        bindings,
        built_ms: ms(built),
        built_cpu_ms: ms(built_cpu),
        changed_p50_ms: ms(took[took.len() / 2]),
        changed_max_ms: took.last().copied().map_or(0.0, ms),
        dropped_max_ms: dropped.into_iter().max().map_or(0.0, ms),
        memory_mib: mib(after.saturating_sub(before)),
        table_mib: mib(after.saturating_sub(of_config)),
        look_up_ns,
        same_look_up_ns,
        calls,
    };
    Ok(serde_json::to_string(&found)?)
}

pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The configuration and its table, which change one tenant at a time.
pub(crate) struct Registry {
    pub(crate) config: Arc<Config>,
    pub(crate) manifests: Vec<Option<Arc<Manifest>>>,
    pub(crate) table: RouteTable,
}

impl Registry {
    /// Builds tables from their predecessors. Returns for each how long building it took, and dropping the
    /// previous one.
    fn change(&mut self, changes: usize) -> Result<Vec<(Duration, Duration)>, BenchError> {
        let mut took = Vec::with_capacity(changes);
        for number in 0..changes {
            let begun = Instant::now();
            let before = self.next(number)?;
            let made = begun.elapsed();
            let begun = Instant::now();
            drop(before);
            took.push((made, begun.elapsed()));
        }
        Ok(took)
    }

    /// Applies the next change: a tenant's entry, or a binding that is added, changed or removed. Returns
    /// the previous state.
    pub(crate) fn next(&mut self, number: usize) -> Result<(Arc<Config>, RouteTable), BenchError> {
        let mut config = Config::clone(&self.config);
        let tenant = (number / 4 * 7919) % config.tenants.list.len();
        let id = config.tenants.list[tenant].id.clone();
        let name = format!("{id}-added");
        let place = config.bindings.binary_search_by(|binding| binding.name.as_deref().cmp(&Some(&name)));
        let added = |priority: usize| binding(&name, "p0", &id, 100 + priority);
        match (number % 4, place) {
            (0, _) => {
                let labels = json!({ "plan": "pro", "change": number.to_string() });
                let changed = json!({ "id": id, "labels": labels, "config": { "p0": { "limit": number } } });
                config.tenants.list[tenant] = entry(&changed)?;
            }
            (1, Err(at)) => config.bindings.insert(at, added(0)?),
            (2, Ok(at)) => config.bindings[at] = added(1)?,
            (_, Ok(at)) => _ = config.bindings.remove(at),
            (_, Err(_)) => return Err("the added binding is not there".into()),
        }
        let revision = self.table.revision() + 1;
        let table = self.table.after(&config, &self.manifests, revision);
        let table = table.map_err(|problems| format!("{problems:?}"))?;
        Ok((std::mem::replace(&mut self.config, Arc::new(config)), std::mem::replace(&mut self.table, table)))
    }
}

fn entry(value: &Value) -> Result<Arc<Tenant>, BenchError> {
    Ok(Arc::new(Tenant::deserialize(value)?))
}

fn binding(name: &str, plugin: &str, tenant: &str, priority: usize) -> Result<Arc<Binding>, BenchError> {
    let value = json!({ "name": name, "plugin": plugin, "tenant": tenant, "priority": priority,
                        "config": { "limit": priority, "owner": tenant } });
    Ok(Arc::new(Binding::deserialize(value)?))
}

fn id(tenant: usize) -> String {
    format!("tenant-{tenant:05}")
}

/// Sorted by name, as a database returns them.
fn config(kind: Kind, tenants: usize) -> Result<Config, BenchError> {
    let mut file = gateway_config::empty();
    let plugins =
        (0..STEPS_PER_TENANT).map(|n| json!({ "name": format!("p{n}"), "builtin": "content-policy" }));
    file["plugins"] = plugins.collect();
    file["limits"] = json!({ "tenant_in_flight": 1024 });
    let mut config: Config = serde_json::from_value(file)?;
    // The tenant that calls, with an empty chain.
    let called = std::mem::take(&mut config.tenants.list);
    for n in 0..tenants {
        let own = json!({ "id": id(n), "labels": { "plan": "pro" }, "config": { "p0": { "limit": n } } });
        config.tenants.list.push(entry(&own)?);
        if kind == Kind::Own {
            for step in 0..STEPS_PER_TENANT {
                let (id, plugin) = (id(n), format!("p{step}"));
                config.bindings.push(binding(&format!("{id}-{step}"), &plugin, &id, 10 + step)?);
            }
        }
    }
    if kind == Kind::Floor {
        for step in 0..STEPS_PER_TENANT {
            let labels = json!({ "plan": "pro" });
            let value = json!({ "name": format!("floor-{step}"), "plugin": format!("p{step}"), "selector": labels,
                                "priority": step, "config": { "limit": step } });
            config.bindings.push(Arc::new(Binding::deserialize(value)?));
        }
    }
    config.tenants.list.extend(called);
    Ok(config)
}

/// Every plugin has a manifest and offers every point.
fn manifests() -> Vec<Option<Arc<Manifest>>> {
    let offer = PointAccess::new(Access::Modify, SideEffects::None);
    let manifest = |n: usize| Manifest {
        name: format!("p{n}").into(),
        version: semver::Version::new(1, 0, 0),
        offers: [Some(offer); 4],
        hooks: std::collections::BTreeMap::new(),
        tool_names: Arc::default(),
        tools: None,
        capabilities: Vec::new(),
        config_schema: None,
        tenant_config_schema: None,
    };
    (0..STEPS_PER_TENANT).map(|n| Some(Arc::new(manifest(n)))).collect()
}

/// Nanoseconds for one lookup, with `of` tenants in turn that are far apart.
fn look_up(table: &RouteTable, tenants: usize, of: usize) -> Result<f64, BenchError> {
    let ids: Vec<_> = (0..of).map(|n| id(n * 7919 % tenants)).collect();
    let begun = Instant::now();
    for id in ids.iter().cycle().take(LOOKUPS) {
        match table.tenant(black_box(id)) {
            TenantRoute::Known(plans) => _ = black_box(plans.plan(Point::BeforeToolCall).steps.len()),
            TenantRoute::Disabled | TenantRoute::Unknown => return Err(format!("{id} is not served").into()),
        }
    }
    Ok(begun.elapsed().as_nanos() as f64 / LOOKUPS as f64)
}

#[allow(clippy::print_stdout)] // standard output is where a command shows what it found
pub(crate) fn print(found: &[Scale]) {
    println!(
        "{:<7}{:>8}{:>10}{:>16}{:>16}{:>10}{:>14}{:>15}",
        "",
        "tenants",
        "bindings",
        "built ms (CPU)",
        "changed p50/max",
        "freed max",
        "MiB (table)",
        "look-up ns"
    );
    for scale in found {
        let Scale { kind, tenants, bindings, changed_p50_ms, changed_max_ms, dropped_max_ms, .. } = scale;
        let built = format!("{:.1} ({:.1})", scale.built_ms, scale.built_cpu_ms);
        let kind = if *kind == Kind::Own { "own" } else { "floor" };
        let changed = format!("{changed_p50_ms:.2}/{changed_max_ms:.2}");
        let memory = format!("{:.1} ({:.1})", scale.memory_mib, scale.table_mib);
        let look_up = format!("{:.0} ({:.0})", scale.look_up_ns, scale.same_look_up_ns);
        println!(
            "{kind:<7}{tenants:>8}{bindings:>10}{built:>16}{changed:>16}{dropped_max_ms:>10.2}{memory:>14}{look_up:>15}"
        );
    }
    for scale in found {
        if let Some(calls) = &scale.calls {
            println!("\ncalls, {} tenants, {:?}: {calls}", scale.tenants, scale.kind);
        }
    }
}
