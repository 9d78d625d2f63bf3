//! Runs the rounds. Each round measures every scenario once, one after another, so that what the machine does
//! beside affects all of them alike.

use std::collections::HashMap;

use serde::Serialize;

use crate::{
    BenchError,
    closed_loop::{self, RunDurations},
    footprint,
    formula::{Formula, RoundResults, SingleFigure},
    host_add, host_traffic, json_scan, llm_streams,
    neighbour::{self, NeighbourLoad},
    open_loop,
    proc_fs::ThreadTimes,
    process::RoleProcess,
    redaction,
    rig::{Binaries, Rig},
    rows::Row,
    scenario::{GatewaySetup, LoadModel, Sample, Scenario, Subject},
    stdio_runner,
};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunSize {
    pub(crate) rounds: usize,
    pub(crate) durations: RunDurations,
    /// Of the setup with many tenants.
    pub(crate) tenants: usize,
    /// Streams that are open at the same time.
    pub(crate) streams: usize,
}

/// One sample, as the report shows it.
#[derive(Debug, Serialize)]
pub(crate) struct RawFigure {
    round: usize,
    scenario: Scenario,
    concurrency: usize,
    #[serde(flatten)]
    sample: Sample,
}

/// All rounds.
pub(crate) struct RunResults {
    pub(crate) rounds: Vec<RoundResults>,
    pub(crate) figures: Vec<RawFigure>,
}

/// Measures what `rows` need.
pub(crate) async fn run(rows: &[Row], size: RunSize, binaries: Binaries) -> Result<RunResults, BenchError> {
    let plan = MeasurementPlan::new(rows);
    llm_streams::allow_files(size.streams)?;
    let mut rig = Rig::start(binaries, size.tenants, &plan.scenarios)?;
    let mut results = RunResults { rounds: Vec::with_capacity(size.rounds), figures: Vec::new() };
    for number in 1..=size.rounds {
        progress(number, size.rounds);
        let mut round = RoundResults::default();
        for scenario in &plan.scenarios {
            let sample = measure(&rig, scenario, size.durations, &round)
                .await
                .map_err(|error| format!("{scenario}, concurrency {}: {error}", scenario.concurrency))?;
            results.figures.push(RawFigure {
                round: number,
                scenario: *scenario,
                concurrency: scenario.concurrency,
                sample: sample.clone(),
            });
            round.samples.insert(*scenario, sample);
        }
        round.figures = measure_figures(&mut rig, &plan, size).await?;
        results.rounds.push(round);
    }
    Ok(results)
}

/// Measures what is no comparison of scenarios.
async fn measure_figures(
    rig: &mut Rig,
    plan: &MeasurementPlan,
    size: RunSize,
) -> Result<HashMap<SingleFigure, f64>, BenchError> {
    let mut figures = HashMap::new();
    if plan.needs(&[SingleFigure::JsonScan]) {
        figures.insert(SingleFigure::JsonScan, json_scan::measure(size.durations.measured)?);
    }
    if plan.needs(&[SingleFigure::RedactClean, SingleFigure::RedactDense]) {
        figures.insert(SingleFigure::RedactClean, redaction::clean(size.durations.measured)?);
        figures.insert(SingleFigure::RedactDense, redaction::dense(size.durations.measured)?);
    }
    if plan.needs(&[SingleFigure::IdleMemory, SingleFigure::BusyMemory]) {
        figures.extend(footprint::memory(rig, size.durations).await?);
    }
    if plan.needs(&[SingleFigure::StartTime]) {
        let start_time = footprint::start_time(rig, size.tenants)?;
        figures.insert(SingleFigure::StartTime, start_time);
    }
    if plan.needs(&[SingleFigure::HostAdd]) {
        let ratio = host_add::measure(rig, size.durations).await?;
        figures.insert(SingleFigure::HostAdd, ratio);
    }
    if plan.needs(&[SingleFigure::HostTraffic]) {
        let ratio = host_traffic::measure(rig, size.durations).await?;
        figures.insert(SingleFigure::HostTraffic, ratio);
    }
    if plan.needs(&[SingleFigure::StdioRunner]) {
        let ratio = stdio_runner::measure(rig, size.durations).await?;
        figures.insert(SingleFigure::StdioRunner, ratio);
    }
    let neighbours = [
        (SingleFigure::NeighbourTexts, NeighbourLoad::Texts),
        (SingleFigure::NeighbourEvents, NeighbourLoad::Events),
    ];
    for (figure, load) in neighbours {
        if plan.needs(&[figure]) {
            figures.insert(figure, neighbour::measure(rig, load, size.durations).await?);
        }
    }
    if plan.needs(&[SingleFigure::StreamsMemory, SingleFigure::StreamMemory]) {
        let setup = GatewaySetup::Llm { points: 0 };
        let memory = llm_streams::measure(rig, setup, size.streams).await?;
        figures.insert(SingleFigure::StreamsMemory, memory.resident_mib);
        figures.insert(SingleFigure::StreamMemory, memory.per_stream_kib);
    }
    if plan.needs(&[SingleFigure::WindowsStreamMemory]) {
        let memory = llm_streams::measure(rig, GatewaySetup::LlmWindows, size.streams).await?;
        figures.insert(SingleFigure::WindowsStreamMemory, memory.per_stream_kib);
    }
    Ok(figures)
}

/// What every round measures.
struct MeasurementPlan {
    /// Each once, those that compare side by side.
    scenarios: Vec<Scenario>,
    figures: Vec<SingleFigure>,
}

impl MeasurementPlan {
    fn new(rows: &[Row]) -> Self {
        let (mut scenarios, mut figures) = (Vec::new(), Vec::new());
        for row in rows {
            if let Formula::Single(figure) = row.formula {
                figures.push(figure);
            }
            for scenario in row.formula.scenarios() {
                // The rate of an open loop follows from what was measured before it.
                let is_open = scenario.load == LoadModel::HalfOfCapacity;
                for needed in is_open.then_some(Scenario::CAPACITY).into_iter().chain([scenario]) {
                    if !scenarios.contains(&needed) {
                        scenarios.push(needed);
                    }
                }
            }
        }
        MeasurementPlan { scenarios, figures }
    }

    fn needs(&self, figures: &[SingleFigure]) -> bool {
        self.figures.iter().any(|figure| figures.contains(figure))
    }
}

async fn measure(
    rig: &Rig,
    scenario: &Scenario,
    durations: RunDurations,
    round: &RoundResults,
) -> Result<Sample, BenchError> {
    if scenario.subject == Subject::RawClient {
        return raw_client(rig, scenario, durations).await;
    }
    let (target, pid) = (rig.target(scenario)?, rig.pid(scenario)?);
    let measured = match scenario.load {
        LoadModel::Closed => {
            closed_loop::measure(target.callers(scenario.concurrency).await?, durations, pid).await?
        }
        LoadModel::OneConnection => {
            let callers = target.callers_of_one_connection(scenario.concurrency).await?;
            closed_loop::measure(callers, durations, pid).await?
        }
        LoadModel::HalfOfCapacity => {
            let capacity = round.samples.get(&Scenario::CAPACITY).ok_or("the capacity is unknown")?;
            let rate = capacity.calls_per_second / 2.0;
            open_loop::measure(&target, scenario.concurrency, rate, durations, pid).await?
        }
    };
    Ok(Sample::new(&measured))
}

/// Measures a process that calls the raw server.
async fn raw_client(rig: &Rig, scenario: &Scenario, durations: RunDurations) -> Result<Sample, BenchError> {
    let payload = clap::ValueEnum::to_possible_value(&scenario.payload).ok_or("a payload has no name")?;
    let concurrency = scenario.concurrency.to_string();
    let mut client =
        RoleProcess::start(&["raw-client", rig.raw_address()?, payload.get_name(), &concurrency])?;
    tokio::time::sleep(durations.warm_up).await;
    let begun = std::time::Instant::now();
    let (calls_before, cpu_before) = (client.ask()?.parse::<u64>()?, ThreadTimes::of_process(client.id())?);
    // On a very busy machine the first call may take longer than that.
    let mut calls = 0;
    while calls == 0 {
        tokio::time::sleep(durations.measured).await;
        calls = client.ask()?.parse::<u64>()? - calls_before;
    }
    let cpu = ThreadTimes::of_process(client.id())?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Sample {
        calls,
        refused: 0,
        seconds,
        calls_per_second: calls as f64 / seconds,
        cpu_us_per_call: cpu.since(&cpu_before).as_secs_f64() * 1e6 / calls.max(1) as f64,
        latency: None,
    })
}

#[allow(clippy::print_stderr)] // standard error is where a command says how far it is
fn progress(round: usize, rounds: usize) {
    eprintln!("round {round} of {rounds}");
}
