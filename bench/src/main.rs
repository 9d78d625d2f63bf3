//! Measures what a call through the gateway costs: closed-loop load over gRPC with 0, 1 and 3 no-op
//! plugins, over Unix sockets and TCP, compared with a raw tonic call in the same run.
//!
//! This process generates the load. Everything that is called runs in its own process of this binary
//! ([`role`]), so that its CPU time can be measured separately. It measures and prints; it doesn't judge.
// The layers of a call are one future: rustc computes its layout deeper than the default limit.
#![recursion_limit = "256"]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use serde_json::json;

mod load;
mod memory;
mod process;
mod published;
mod report;
mod role;
mod scale;
mod scenario;
mod whole;

/// Measures what a call through the gateway costs.
#[derive(Debug, Parser)]
#[command(about, max_term_width = 100)]
struct Arguments {
    /// A few seconds in place of about a minute: shows that it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Writes the numbers as JSON, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures only what has this in its name.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Measures memory under the largest payloads instead.
    #[arg(long)]
    memory: bool,
    /// Measures the routing tables and the registry of 10 to 10,000 tenants instead.
    #[arg(long, conflicts_with = "memory")]
    scale: bool,
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

/// How long each measurement runs.
#[derive(Debug, Clone, Copy)]
struct RunDurations {
    warm_up: Duration,
    measured: Duration,
}

const FULL_DURATIONS: RunDurations =
    RunDurations { warm_up: Duration::from_millis(500), measured: Duration::from_millis(3500) };
const QUICK_DURATIONS: RunDurations =
    RunDurations { warm_up: Duration::from_millis(20), measured: Duration::from_millis(100) };

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
    let soaks = memory::run_all(arguments.quick).await?;
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
    let pace = if arguments.quick { QUICK_DURATIONS } else { FULL_DURATIONS };
    let rows = scenario::run_all(pace, &arguments.only).await?;
    let report = report::Report::new(rows, arguments.quick);
    report.print();
    report.to_json()
}
