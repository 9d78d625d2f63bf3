//! Compares the instructions and allocations of a call with the committed ones (`costs.json`), so that a change which
//! makes calls more expensive is seen on the day it comes.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::{
    BenchError,
    caller::{Protocol, Target},
    callgrind::{CountedGateway, ThreadCosts},
    llm_provider::StreamShape,
    payload::Payload,
    rig::{Binaries, Rig},
    scenario::GatewaySetup,
};

/// Calls before counting. They connect the worker to the plugins.
const WARM_UP: usize = 100;
const COUNTED: usize = 200;
/// How many percent more instructions a call may take than committed. Runs differ by up to three.
const TOLERANCE_PERCENT: u64 = 5;

/// Costs of a call by the name of its setup.
type Costs = BTreeMap<&'static str, ThreadCosts>;

/// Each setup: its gateway, and how it is called with what.
const SETUPS: [(&str, GatewaySetup, Protocol, Payload); 8] = [
    ("grpc-0-plugins", GatewaySetup::Echo(0), Protocol::Grpc, Payload::ToolCall),
    ("grpc-1-plugin", GatewaySetup::Echo(1), Protocol::Grpc, Payload::ToolCall),
    ("grpc-3-plugins", GatewaySetup::Echo(3), Protocol::Grpc, Payload::ToolCall),
    ("http-1-plugin", GatewaySetup::Echo(1), Protocol::Http, Payload::ToolCall),
    ("llm-0-points", GatewaySetup::Llm { points: 0 }, Protocol::Http, Payload::Completion),
    ("llm-1-point", GatewaySetup::Llm { points: 1 }, Protocol::Http, Payload::Completion),
    ("llm-4-points", GatewaySetup::Llm { points: 4 }, Protocol::Http, Payload::Completion),
    ("llm-stream", GatewaySetup::Llm { points: 0 }, Protocol::Http, Payload::Stream(StreamShape::Long)),
];

/// Counts each setup, and compares it with `file`, or writes it there.
///
/// # Errors
/// If a call costs more than committed.
pub(crate) async fn run(binary: &Path, file: &Path, records: bool) -> Result<(), BenchError> {
    let mut rig = Rig::start(Binaries { gateway: binary.to_owned(), envoy: None, litellm: None }, 1, &[])?;
    let mut costs = Costs::new();
    for (name, setup, protocol, payload) in SETUPS {
        costs.insert(name, count(binary, rig.config(setup)?, protocol, payload).await?);
    }
    if records {
        return Ok(fs::write(file, serde_json::to_string_pretty(&costs)? + "\n")?);
    }
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    compare(&costs, &serde_json::from_str(&text)?)
}

/// What one call costs the worker that serves it.
async fn count(
    binary: &Path,
    mut config: Value,
    protocol: Protocol,
    payload: Payload,
) -> Result<ThreadCosts, BenchError> {
    config["server"]["workers"] = 1.into();
    let gateway = CountedGateway::start(binary, &config)?;
    let target = Target { payload, ..Target::tool_calls(&gateway.process.data_addr, protocol)? };
    let mut caller = target.callers(1).await?.pop().ok_or("there is no caller")?;
    for _ in 0..WARM_UP {
        caller.call().await?;
    }
    gateway.begin()?;
    for _ in 0..COUNTED {
        caller.call().await?;
    }
    let all = gateway.end()?;
    let per_call = |count: u64| (count + COUNTED as u64 / 2) / COUNTED as u64;
    Ok(ThreadCosts { instructions: per_call(all.instructions), allocations: per_call(all.allocations) })
}

fn compare(costs: &Costs, committed: &BTreeMap<String, ThreadCosts>) -> Result<(), BenchError> {
    let mut dearer = Vec::new();
    for (&name, now) in costs {
        let before = committed.get(name).ok_or_else(|| format!("no costs of `{name}` are committed"))?;
        #[allow(clippy::print_stdout)] // the result
        {
            println!(
                "{name:<16} {:>8} instructions ({} committed), {:>4} allocations ({} committed)",
                now.instructions, before.instructions, now.allocations, before.allocations
            );
        }
        let limit = before.instructions + before.instructions * TOLERANCE_PERCENT / 100;
        if now.instructions > limit || now.allocations > before.allocations {
            dearer.push(name);
        }
    }
    if dearer.is_empty() {
        return Ok(());
    }
    let dearer = dearer.join(", ");
    Err(format!(
        "calls cost more than committed: {dearer}. Find the cause, or commit the new costs: `--record-costs`"
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(instructions: u64, allocations: u64) -> ThreadCosts {
        ThreadCosts { instructions, allocations }
    }

    #[test]
    fn a_call_may_take_a_few_instructions_more_and_no_allocation() {
        let committed = BTreeMap::from([("grpc-1-plugin".to_owned(), costs(1000, 10))]);
        let check = |now| compare(&Costs::from([("grpc-1-plugin", now)]), &committed);
        assert!(check(costs(1050, 10)).is_ok());
        assert!(check(costs(1051, 10)).is_err());
        assert!(check(costs(900, 11)).is_err());
        let unknown = compare(&Costs::from([("grpc-9-plugins", costs(1, 1))]), &committed);
        assert!(unknown.is_err(), "a setup without committed costs is not passed over");
    }
}
