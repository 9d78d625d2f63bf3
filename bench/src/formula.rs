//! How a row's figure follows from what one round measured.

use std::collections::HashMap;

use serde::Serialize;

use crate::scenario::{Latency, Sample, Scenario};

/// A figure that is no ratio of two scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SingleFigure {
    /// Gigabytes per second.
    JsonScan,
    RedactClean,
    RedactDense,
    /// Mebibytes.
    IdleMemory,
    /// Mebibytes.
    BusyMemory,
    /// Seconds.
    StartTime,
    /// A ratio of times that a plugin took.
    HostAdd,
    /// A ratio of medians.
    HostTraffic,
    StdioRunner,
    /// A ratio of 99th percentiles.
    NeighbourTexts,
    /// The same.
    NeighbourEvents,
    /// Mebibytes.
    StreamsMemory,
    /// Kibibytes of one stream.
    StreamMemory,
    /// Kibibytes of one stream that is judged in windows.
    WindowsStreamMemory,
}

/// What one round found.
#[derive(Debug, Default)]
pub(crate) struct RoundResults {
    pub(crate) samples: HashMap<Scenario, Sample>,
    pub(crate) figures: HashMap<SingleFigure, f64>,
}

/// A latency quantile.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Quantile {
    P50,
    P99,
}

/// The scenarios of one comparison with the floor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloorScenarios {
    pub(crate) server: Scenario,
    pub(crate) client: Scenario,
    pub(crate) clients: usize,
}

/// How to compute a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Formula {
    /// CPU per call of the first over that of the second.
    Cpu(Scenario, Scenario),
    /// Microseconds of CPU per part of a call that has this many.
    CpuPerPart(Scenario, usize),
    /// Calls per second of the first over those of the second.
    Rate(Scenario, Scenario),
    /// CPU per call over that of a server and some clients.
    CpuOverFloor(Scenario, FloorScenarios),
    /// How much CPU per call grows between two payloads, over how much the floor grows.
    CpuGrowth {
        small: (Scenario, FloorScenarios),
        large: (Scenario, FloorScenarios),
    },
    /// A latency of the first over that of the second.
    LatencyRatio(Quantile, Scenario, Scenario),
    /// By how many milliseconds a latency of the first is above that of the second.
    LatencyDifference(Quantile, Scenario, Scenario),
    /// Median latency that a plugin adds, over the median of a raw call.
    AddedLatency {
        without: Scenario,
        with: Scenario,
        plugins: usize,
        raw: Scenario,
    },
    Single(SingleFigure),
}

impl Formula {
    /// What has to be measured, in this order.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let of_floor = |floor: &FloorScenarios| [floor.server, floor.client];
        match self {
            Formula::Cpu(first, second)
            | Formula::Rate(first, second)
            | Formula::LatencyRatio(_, first, second)
            | Formula::LatencyDifference(_, first, second) => vec![*first, *second],
            Formula::CpuPerPart(scenario, _) => vec![*scenario],
            Formula::CpuOverFloor(scenario, floor) => [of_floor(floor).to_vec(), vec![*scenario]].concat(),
            Formula::CpuGrowth { small, large } => {
                [of_floor(&small.1), [small.0, large.0], of_floor(&large.1)].concat()
            }
            Formula::AddedLatency { without, with, raw, .. } => vec![*raw, *without, *with],
            Formula::Single(_) => Vec::new(),
        }
    }

    /// The row's figure in one round. `None` if something was not measured, or is zero below the line.
    pub(crate) fn value(&self, round: &RoundResults) -> Option<f64> {
        let value = match self {
            Formula::Cpu(first, second) => round.cpu(first)? / round.cpu(second)?,
            Formula::CpuPerPart(scenario, parts) => round.cpu(scenario)? / *parts as f64,
            Formula::Rate(first, second) => round.rate(first)? / round.rate(second)?,
            Formula::CpuOverFloor(scenario, floor) => round.cpu(scenario)? / round.floor(floor)?,
            Formula::CpuGrowth { small, large } => {
                let grown = round.cpu(&large.0)? - round.cpu(&small.0)?;
                grown / (round.floor(&large.1)? - round.floor(&small.1)?)
            }
            Formula::LatencyRatio(quantile, first, second) => {
                round.latency(*quantile, first)? / round.latency(*quantile, second)?
            }
            Formula::LatencyDifference(quantile, first, second) => {
                (round.latency(*quantile, first)? - round.latency(*quantile, second)?) / 1e3
            }
            Formula::AddedLatency { without, with, plugins, raw } => {
                let [without, with, raw] =
                    [without, with, raw].map(|scenario| round.latency(Quantile::P50, scenario));
                (with? - without?) / *plugins as f64 / raw?
            }
            Formula::Single(figure) => *round.figures.get(figure)?,
        };
        value.is_finite().then_some(value)
    }
}

impl RoundResults {
    fn cpu(&self, scenario: &Scenario) -> Option<f64> {
        Some(self.samples.get(scenario)?.cpu_us_per_call)
    }

    fn rate(&self, scenario: &Scenario) -> Option<f64> {
        Some(self.samples.get(scenario)?.calls_per_second)
    }

    fn floor(&self, floor: &FloorScenarios) -> Option<f64> {
        Some(self.cpu(&floor.server)? + floor.clients as f64 * self.cpu(&floor.client)?)
    }

    fn latency(&self, quantile: Quantile, scenario: &Scenario) -> Option<f64> {
        let Latency { p50_us, p99_us, .. } = self.samples.get(scenario)?.latency?;
        Some(match quantile {
            Quantile::P50 => p50_us as f64,
            Quantile::P99 => p99_us as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        payload::Payload,
        scenario::{GatewaySetup, Subject},
    };

    const GATEWAY: Scenario = Scenario::gateway(GatewaySetup::Echo(3), 1);
    const SERVER: Scenario = Scenario::new(Subject::RawServer, 1);
    const CLIENT: Scenario = Scenario::new(Subject::RawClient, 1);

    fn round(samples: &[(Scenario, f64, u64)]) -> RoundResults {
        let sample = |cpu_us_per_call: f64, p50_us: u64| Sample {
            calls: 1,
            refused: 0,
            seconds: 1.0,
            calls_per_second: 1.0,
            cpu_us_per_call,
            latency: Some(Latency { p50_us, p99_us: 2 * p50_us, max_us: 0 }),
        };
        let samples = samples.iter().map(|(scenario, cpu, p50)| (*scenario, sample(*cpu, *p50)));
        RoundResults { samples: samples.collect(), figures: HashMap::new() }
    }

    #[test]
    fn the_floor_is_a_server_and_a_client_for_each_plugin() {
        let round = round(&[(GATEWAY, 160.0, 0), (SERVER, 20.0, 0), (CLIENT, 20.0, 0)]);
        let floor = FloorScenarios { server: SERVER, client: CLIENT, clients: 3 };
        assert_eq!(Formula::CpuOverFloor(GATEWAY, floor).value(&round), Some(2.0));
    }

    #[test]
    fn a_rate_is_that_of_the_first_over_that_of_the_second() {
        let mut round = round(&[(GATEWAY, 0.0, 0), (SERVER, 0.0, 0)]);
        round.samples.get_mut(&GATEWAY).expect("it is measured").calls_per_second = 3.0;
        assert_eq!(Formula::Rate(GATEWAY, SERVER).value(&round), Some(3.0));
    }

    #[test]
    fn added_latency_is_per_plugin_and_in_raw_calls() {
        let none = Scenario::gateway(GatewaySetup::Echo(0), 1);
        let round = round(&[(GATEWAY, 0.0, 750), (none, 0.0, 150), (SERVER, 0.0, 100)]);
        let formula = Formula::AddedLatency { without: none, with: GATEWAY, plugins: 3, raw: SERVER };
        assert_eq!(formula.value(&round), Some(2.0));
    }

    #[test]
    fn a_difference_of_latencies_is_in_milliseconds_and_may_be_negative() {
        let round = round(&[(GATEWAY, 0.0, 1_500), (SERVER, 0.0, 500)]);
        let difference =
            |quantile, first, second| Formula::LatencyDifference(quantile, first, second).value(&round);
        assert_eq!(difference(Quantile::P50, GATEWAY, SERVER), Some(1.0));
        assert_eq!(difference(Quantile::P99, SERVER, GATEWAY), Some(-2.0));
    }

    #[test]
    fn parts_of_a_call_share_its_cpu() {
        assert_eq!(Formula::CpuPerPart(GATEWAY, 500).value(&round(&[(GATEWAY, 2_000.0, 0)])), Some(4.0));
    }

    #[test]
    fn growth_is_compared_with_the_growth_of_the_floor() {
        let large = |scenario: Scenario| scenario.with_payload(Payload::LargeContent);
        let round = round(&[
            (GATEWAY, 100.0, 0),
            (large(GATEWAY), 400.0, 0),
            (SERVER, 20.0, 0),
            (large(SERVER), 90.0, 0),
            (CLIENT, 10.0, 0),
            (large(CLIENT), 90.0, 0),
        ]);
        let floor = |server, client| FloorScenarios { server, client, clients: 1 };
        let formula = Formula::CpuGrowth {
            small: (GATEWAY, floor(SERVER, CLIENT)),
            large: (large(GATEWAY), floor(large(SERVER), large(CLIENT))),
        };
        assert_eq!(formula.value(&round), Some(2.0));
    }

    #[test]
    fn what_was_not_measured_or_took_no_time_has_no_figure() {
        let formula = Formula::Cpu(GATEWAY, SERVER);
        assert_eq!(formula.value(&round(&[(GATEWAY, 1.0, 0)])), None);
        assert_eq!(formula.value(&round(&[(GATEWAY, 1.0, 0), (SERVER, 0.0, 0)])), None);
    }
}
