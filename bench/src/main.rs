//! Measures what a call through the gateway costs: CPU time and latency beside a floor and a bare path of the
//! same run, memory, and starts. Every figure is a ratio to something that was measured in the same round,
//! because absolute figures mean nothing on a shared machine.
//!
//! This process generates the load. Everything that is called runs in its own process, so that its CPU time
//! can be measured separately: the gateway as `hookgate serve`, everything else as this binary ([`role`]). It
//! measures and prints; the only thing that it judges is a row's target.
// The layers of a call are one future: rustc computes its layout deeper than the default limit.
#![recursion_limit = "256"]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::{closed_loop::RunDurations, rig::Binaries, rounds::RunSize};

mod bare;
mod caller;
mod callgrind;
mod certificates;
mod closed_loop;
mod cost_check;
mod envoy_config;
mod envoy_process;
mod ext_proc;
mod footprint;
mod formula;
mod gateway_config;
mod gateway_process;
mod host_add;
mod host_traffic;
mod http_probe;
mod json_scan;
mod litellm_process;
mod llm_floor;
mod llm_provider;
mod llm_rows;
mod llm_streams;
mod machine;
mod memory;
mod neighbour;
mod open_loop;
mod payload;
mod plugin_conversation;
mod plugins;
mod proc_fs;
mod process;
mod published;
mod raw;
mod redaction;
mod report;
mod rig;
mod role;
mod rounds;
mod rows;
mod scale;
mod scenario;
mod stdio_runner;
mod whole;

/// Measures what a call through the gateway costs.
#[derive(Debug, Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// A few seconds in place of minutes: shows that it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Writes the figures as JSON, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures only the rows with this in their names.
    #[arg(long, value_name = "TEXT", default_value = "", overrides_with = "only")]
    only: String,
    /// How many rounds; the table shows the medians.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// The gateway's binary. Absent: `hookgate` beside this binary.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// Envoy's binary: adds the rows that compare the gateway with it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["memory", "scale", "check_costs", "record_costs"])]
    envoy: Option<PathBuf>,
    /// LiteLLM's command: adds the rows that compare the LLM proxy with it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["memory", "scale", "check_costs", "record_costs"])]
    litellm: Option<PathBuf>,
    /// Measures memory under the largest payloads instead.
    #[arg(long)]
    memory: bool,
    /// Measures the routing tables and the registry of 10 to 10,000 tenants instead.
    #[arg(long, conflicts_with = "memory")]
    scale: bool,
    /// Compares instructions and allocations per call with FILE instead. Needs valgrind.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["memory", "scale"])]
    check_costs: Option<PathBuf>,
    /// Writes them to FILE instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["memory", "scale", "check_costs"])]
    record_costs: Option<PathBuf>,
    #[command(subcommand)]
    role: Option<Command>,
}

/// What this binary is when it measures nothing.
#[derive(Debug, Subcommand)]
enum Command {
    /// The process that is measured.
    #[command(hide = true, subcommand)]
    Role(role::Role),
}

const FULL_DURATIONS: RunDurations =
    RunDurations { warm_up: Duration::from_millis(250), measured: Duration::from_millis(850) };
const QUICK_DURATIONS: RunDurations =
    RunDurations { warm_up: Duration::from_millis(10), measured: Duration::from_millis(50) };
/// Tenants of the setup with many, full and quick.
const TENANT_COUNTS: [usize; 2] = [1_000, 10];
/// Streams that are open at the same time, full and quick.
const STREAM_COUNTS: [usize; 2] = [2_000, 20];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.role {
        Some(Command::Role(role)) => role.run().await,
        None => bench(&arguments).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr)] // standard error is where a command says why it failed
            {
                eprintln!("hookgate-bench: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Errors are only printed, never handled.
type BenchError = Box<dyn std::error::Error + Send + Sync>;

async fn bench(arguments: &Arguments) -> Result<(), BenchError> {
    if let Some(file) = arguments.check_costs.as_ref().or(arguments.record_costs.as_ref()) {
        let binary = gateway_process::binary(arguments.gateway.as_deref())?;
        return cost_check::run(&binary, file, arguments.record_costs.is_some()).await;
    }
    let json = match arguments {
        Arguments { memory: true, .. } => memory(arguments).await?,
        Arguments { scale: true, .. } => scale(arguments)?,
        _ => cost(arguments).await?,
    };
    if let Some(file) = &arguments.json {
        std::fs::write(file, json)
            .map_err(|error| format!("{} can't be written: {error}", file.display()))?;
    }
    Ok(())
}

async fn memory(arguments: &Arguments) -> Result<String, BenchError> {
    let binary = gateway_process::binary(arguments.gateway.as_deref())?;
    let soaks = memory::run_all(&binary, arguments.quick).await?;
    memory::print(&soaks);
    Ok(serde_json::to_string_pretty(&soaks)? + "\n")
}

fn scale(arguments: &Arguments) -> Result<String, BenchError> {
    let tables = scale::run_all(arguments.quick)?;
    scale::print(&tables);
    let whole = whole::run_all(arguments.quick)?;
    whole::print(&whole);
    Ok(serde_json::to_string_pretty(&json!({ "tables": tables, "whole": whole }))? + "\n")
}

async fn cost(arguments: &Arguments) -> Result<String, BenchError> {
    let peers = rows::Peers { envoy: arguments.envoy.is_some(), litellm: arguments.litellm.is_some() };
    let rows = rows::all(&arguments.only, peers);
    if rows.is_empty() {
        return Err(format!("no row has `{}` in its name", arguments.only).into());
    }
    let ([tenants, few_tenants], [streams, few_streams]) = (TENANT_COUNTS, STREAM_COUNTS);
    let size = if arguments.quick {
        RunSize { rounds: 1, durations: QUICK_DURATIONS, tenants: few_tenants, streams: few_streams }
    } else {
        RunSize { rounds: arguments.rounds.into(), durations: FULL_DURATIONS, tenants, streams }
    };
    let gateway = gateway_process::binary(arguments.gateway.as_deref())?;
    let (envoy, litellm) = (arguments.envoy.clone(), arguments.litellm.clone());
    let binaries = Binaries { gateway, envoy, litellm };
    let results = rounds::run(&rows, size, binaries).await?;
    let report = report::Report::new(&rows, results, arguments.quick)?;
    report.print();
    report.to_json()
}
