//! What the calls of a tenant without plugins wait for while another tenant has 1 MiB of text judged by a built-in plugin. Calls with
//! and without the neighbour alternate, so that other load on the machine affects both.

use clap::ValueEnum;
use serde_json::json;

use crate::{
    BenchError,
    caller::{Protocol, Target},
    closed_loop::{self, RunDurations, histogram},
    gateway_config,
    llm_provider::StreamShape,
    open_loop,
    payload::{Payload, TENANT},
    process::RoleProcess,
    rig::Rig,
};

/// The tenant with the built-in plugin.
const NEIGHBOUR: &str = "neighbour";
/// What it has in flight.
const CALLERS: usize = 4;
/// Connections of the measured tenant.
pub(crate) const CONNECTIONS: usize = 16;
/// The measured tenant makes calls at this part of the rate that the gateway can take.
const PART_OF_CAPACITY: f64 = 0.2;
/// In which order calls with and without the neighbour alternate: what drifts affects both.
const TURNS: [bool; 4] = [false, true, true, false];

/// What the neighbour sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NeighbourLoad {
    /// Answers of 1 MiB at `before_response`.
    Texts,
    /// Requests to a model whose streamed answer has 1 MiB in one event.
    Events,
}

impl NeighbourLoad {
    const fn payload(self) -> (Protocol, Payload) {
        match self {
            NeighbourLoad::Texts => (Protocol::Grpc, Payload::HugeContent),
            NeighbourLoad::Events => (Protocol::Http, Payload::Stream(StreamShape::Huge)),
        }
    }
}

/// Measures the 99th percentile of calls beside the neighbour over that of calls without one.
pub(crate) async fn measure(
    rig: &Rig,
    load: NeighbourLoad,
    durations: RunDurations,
) -> Result<f64, BenchError> {
    let provider = RoleProcess::start_at_low_priority(&["llm-provider"])?;
    let mut config = gateway_config::llm(&provider.address, ("", ""), &[]);
    config["tenants"]["list"] = json!([{ "id": TENANT }, { "id": NEIGHBOUR }]);
    config["plugins"] = json!([{ "name": "redact", "builtin": "redact" }]);
    config["bindings"] = json!([{
        "plugin": "redact", "tenant": NEIGHBOUR, "priority": 10, "points": ["before_response"],
    }]);
    let gateway = rig.start_gateway(&config)?;
    let target = Target::tool_calls(&gateway.data_addr, Protocol::Grpc)?;
    let pid = gateway.id();
    let capacity = closed_loop::measure(target.callers(CONNECTIONS).await?, durations, pid).await?;
    let rate = PART_OF_CAPACITY * capacity.micros.len() as f64 / capacity.took.as_secs_f64();
    let name = load.to_possible_value().ok_or("a load has no name")?;
    let (mut beside, mut alone) = (histogram()?, histogram()?);
    for has_neighbour in TURNS {
        let role = ["neighbour", &gateway.data_addr, name.get_name()];
        let start = || RoleProcess::start_at_low_priority(&role);
        let _neighbour = has_neighbour.then(start).transpose()?;
        let measured = open_loop::measure(&target, CONNECTIONS, rate, durations, pid).await?;
        if has_neighbour { &mut beside } else { &mut alone }.add(measured.micros)?;
    }
    Ok(beside.value_at_quantile(0.99) as f64 / alone.value_at_quantile(0.99).max(1) as f64)
}

/// Makes the neighbour's calls until the process is killed. `ready` is called once, after the first.
pub(crate) async fn call(
    address: &str,
    load: NeighbourLoad,
    ready: impl FnOnce(&str),
) -> Result<(), BenchError> {
    let (protocol, payload) = load.payload();
    let tokens = vec![gateway_config::token(NEIGHBOUR)?];
    let target = Target { address: address.to_owned(), protocol, payload, tokens, ca: None };
    let mut callers = target.callers(CALLERS).await?;
    callers[0].call().await?;
    ready(address);
    let running = callers.into_iter().map(|mut caller| {
        tokio::spawn(async move {
            loop {
                caller.call().await?;
            }
        })
    });
    let running: Vec<tokio::task::JoinHandle<Result<(), BenchError>>> = running.collect();
    for ended in running {
        ended.await??;
    }
    Ok(())
}
