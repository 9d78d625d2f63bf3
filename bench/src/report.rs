//! Reports the results as a table and as JSON.

use std::time::Duration;

use serde::Serialize;

use crate::{BenchError, load::Measurement};

/// The measurement that others are compared with.
const BASELINE_NAME: &str = "raw tonic call, tcp";

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    name: String,
    workers: usize,
    calls: u64,
    seconds: f64,
    calls_per_second: f64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    /// The called process's CPU time per call, in microseconds.
    cpu_us_per_call: f64,
    /// Relative to the raw call with the same number of workers; absent if that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ratio: Option<f64>,
}

impl Row {
    pub(crate) fn new(name: &str, workers: usize, measured: &Measurement, cpu: Duration) -> Self {
        let (calls, seconds) = (measured.micros.len(), measured.took.as_secs_f64());
        Row {
            name: name.to_owned(),
            workers,
            calls,
            seconds,
            calls_per_second: calls as f64 / seconds,
            p50_us: measured.micros.value_at_quantile(0.5),
            p99_us: measured.micros.value_at_quantile(0.99),
            max_us: measured.micros.max(),
            cpu_us_per_call: cpu.as_secs_f64() * 1e6 / calls.max(1) as f64,
            p50_ratio: None,
            cpu_ratio: None,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Whether the code was optimised. Results without optimisation mean little.
    optimised: bool,
    quick: bool,
    cores: usize,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(mut rows: Vec<Row>, quick: bool) -> Self {
        let bases: Vec<_> = rows
            .iter()
            .filter(|row| row.name == BASELINE_NAME)
            .map(|row| (row.workers, row.p50_us, row.cpu_us_per_call))
            .collect();
        for row in &mut rows {
            if let Some((_, p50, cpu)) = bases.iter().find(|(workers, ..)| *workers == row.workers) {
                row.p50_ratio = Some(row.p50_us as f64 / (*p50).max(1) as f64);
                row.cpu_ratio = (*cpu > 0.0).then(|| row.cpu_us_per_call / cpu);
            }
        }
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Report { optimised: !cfg!(debug_assertions), quick, cores, rows }
    }

    #[allow(clippy::print_stdout)] // standard output is where a command shows what it found
    pub(crate) fn print(&self) {
        let kind = if self.optimised { "release" } else { "debug build: says little about cost" };
        let quick = if self.quick { ", quick: too short to trust" } else { "" };
        println!("{} cores, {kind}{quick}\n", self.cores);
        println!(
            "{:<26}{:>7}{:>10}{:>9}{:>9}{:>12}{:>10}{:>10}",
            "", "workers", "calls/s", "p50 us", "p99 us", "CPU us/call", "p50/raw", "CPU/raw"
        );
        let ratio = |ratio: Option<f64>| ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        for row in &self.rows {
            let Row { name, workers, calls_per_second, p50_us, p99_us, cpu_us_per_call, .. } = row;
            println!(
                "{name:<26}{workers:>7}{calls_per_second:>10.0}{p50_us:>9}{p99_us:>9}{cpu_us_per_call:>12.1}{:>10}{:>10}",
                ratio(row.p50_ratio),
                ratio(row.cpu_ratio)
            );
        }
    }

    pub(crate) fn to_json(&self) -> Result<String, BenchError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}
