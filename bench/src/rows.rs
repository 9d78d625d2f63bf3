//! The rows of the table: what each compares, and its targets.

use serde::Serialize;

use crate::{
    formula::{FloorScenarios, Formula, Quantile, SingleFigure},
    payload::Payload,
    scenario::{GatewaySetup, Scenario, Subject},
};

/// Calls in flight, for rows that don't say otherwise.
const CONCURRENCIES: [usize; 2] = [16, 64];

/// The unit of a row's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Ratio,
    /// More is better, unlike everywhere else.
    GigabytesPerSecond,
    Mebibytes,
    Seconds,
}

impl Unit {
    /// A figure with its unit.
    pub(crate) fn show(self, figure: f64) -> String {
        match self {
            Unit::Ratio => format!("{figure:.2}"),
            Unit::GigabytesPerSecond => format!("{figure:.2} GB/s"),
            Unit::Mebibytes => format!("{figure:.1} MiB"),
            Unit::Seconds => format!("{figure:.2} s"),
        }
    }
}

/// What a row has to reach, and what it should.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct RowTarget {
    pub(crate) must: f64,
    pub(crate) aim: f64,
}

/// What a row reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Aim,
    Must,
    Missed,
}

impl RowTarget {
    pub(crate) fn verdict(self, unit: Unit, figure: f64) -> Verdict {
        let reaches =
            |bound| if unit == Unit::GigabytesPerSecond { figure >= bound } else { figure <= bound };
        match () {
            () if reaches(self.aim) => Verdict::Aim,
            () if reaches(self.must) => Verdict::Must,
            () => Verdict::Missed,
        }
    }
}

/// A row.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Calls in flight, or connections in an open loop.
    pub(crate) concurrency: Option<usize>,
    pub(crate) measured: &'static str,
    pub(crate) compared_with: &'static str,
    pub(crate) unit: Unit,
    /// Absent for a row that only informs.
    pub(crate) target: Option<RowTarget>,
    pub(crate) formula: Formula,
}

impl Row {
    fn ratio(
        name: &'static str,
        concurrency: usize,
        [measured, compared_with]: [&'static str; 2],
        formula: Formula,
    ) -> Self {
        Row {
            name,
            concurrency: Some(concurrency),
            measured,
            compared_with,
            unit: Unit::Ratio,
            target: None,
            formula,
        }
    }

    fn single(name: &'static str, measured: &'static str, unit: Unit, figure: SingleFigure) -> Self {
        let formula = Formula::Single(figure);
        Row { name, concurrency: None, measured, compared_with: "-", unit, target: None, formula }
    }

    fn must(mut self, must: f64, aim: f64) -> Self {
        self.target = Some(RowTarget { must, aim });
        self
    }
}

/// The rows with `only` in their names, in the table's order.
pub(crate) fn all(only: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = CONCURRENCIES.into_iter().flat_map(cpu_of_plugins).collect();
    rows.push(added_latency());
    rows.extend(CONCURRENCIES.into_iter().flat_map(cpu_of_calls));
    rows.extend([1, 4].map(waiting_plugins));
    rows.extend(CONCURRENCIES.map(many_tenants));
    rows.extend(CONCURRENCIES.map(large_content));
    rows.extend(absolute());
    rows.extend(open_loop());
    rows.extend(transports());
    // Equal names side by side.
    let names: Vec<_> = rows.iter().map(|row| row.name).collect();
    rows.sort_by_key(|row| names.iter().position(|name| *name == row.name));
    rows.retain(|row| row.name.contains(only));
    rows
}

const fn floor(payload: Payload, concurrency: usize, clients: usize) -> FloorScenarios {
    FloorScenarios {
        server: Scenario::new(Subject::RawServer, concurrency).with_payload(payload),
        client: Scenario::new(Subject::RawClient, concurrency).with_payload(payload),
        clients,
    }
}

fn cpu_of_plugins(c: usize) -> [Row; 4] {
    let gateway = |plugins| Scenario::gateway(GatewaySetup::Echo(plugins), c);
    let bare = |plugins| Scenario::new(Subject::Bare(plugins), c);
    let over_floor = |plugins| Formula::CpuOverFloor(gateway(plugins), floor(Payload::ToolCall, c, plugins));
    [
        Row::ratio("cpu-1-plugin", c, ["CPU per call, 1 plugin", "raw server + 1 raw client"], over_floor(1))
            .must(1.45, 1.2),
        Row::ratio(
            "cpu-3-plugins",
            c,
            ["CPU per call, 3 plugins", "raw server + 3 raw clients"],
            over_floor(3),
        )
        .must(1.45, 1.2),
        Row::ratio(
            "bare-1-plugin",
            c,
            ["CPU per call, 1 plugin", "bare path, 1 plugin"],
            Formula::Cpu(gateway(1), bare(1)),
        ),
        Row::ratio(
            "bare-3-plugins",
            c,
            ["CPU per call, 3 plugins", "bare path, 3 plugins"],
            Formula::Cpu(gateway(3), bare(3)),
        ),
    ]
}

fn added_latency() -> Row {
    let formula = Formula::AddedLatency {
        without: Scenario::gateway(GatewaySetup::Echo(0), 1),
        with: Scenario::gateway(GatewaySetup::Echo(3), 1),
        plugins: 3,
        raw: Scenario::new(Subject::RawServer, 1),
    };
    Row::ratio("latency-per-plugin", 1, ["p50 that a plugin adds", "p50 of a raw call"], formula)
        .must(1.5, 1.2)
}

fn cpu_of_calls(c: usize) -> [Row; 3] {
    let grpc = Scenario::gateway(GatewaySetup::Echo(1), c);
    let patch = Scenario::gateway(GatewaySetup::Patch, c);
    [
        Row::ratio(
            "http-over-grpc",
            c,
            ["CPU per call, HTTP/JSON", "CPU per call, gRPC"],
            Formula::Cpu(grpc.over_http(), grpc),
        )
        .must(1.3, 1.15),
        Row::ratio(
            "grpc-over-http",
            c,
            ["CPU per call, gRPC", "CPU per call, HTTP/JSON"],
            Formula::Cpu(grpc, grpc.over_http()),
        )
        .must(1.3, 1.15),
        Row::ratio("patch", c, ["CPU per call, patching plugin", "echo plugin"], Formula::Cpu(patch, grpc))
            .must(1.25, 1.15),
    ]
}

fn waiting_plugins(c: usize) -> Row {
    let [three, one] = [3, 1].map(|plugins| Scenario::gateway(GatewaySetup::Wait(plugins), c));
    let formula = Formula::LatencyRatio(Quantile::P50, three, one);
    Row::ratio("read-plugins", c, ["p50, 3 READ plugins that wait 5 ms", "1 such plugin"], formula)
        .must(1.3, 1.1)
}

fn many_tenants(c: usize) -> Row {
    let scenario = |setup| Scenario::gateway(setup, c).with_payload(Payload::EveryPoint);
    let formula = Formula::Cpu(scenario(GatewaySetup::ManyTenants), scenario(GatewaySetup::OneTenant));
    let texts = ["CPU per step, 1,000 tenants, 10 plugins", "1 tenant, 1 plugin"];
    Row::ratio("many-tenants", c, texts, formula).must(1.15, 1.05)
}

fn large_content(c: usize) -> Row {
    let measured = |payload| {
        let gateway = Scenario::gateway(GatewaySetup::Echo(1), c).with_payload(payload);
        (gateway, floor(payload, c, 1))
    };
    let formula =
        Formula::CpuGrowth { small: measured(Payload::SmallContent), large: measured(Payload::LargeContent) };
    let texts = ["growth of CPU, content of 1 to 256 KiB", "growth of raw server + 1 raw client"];
    Row::ratio("large-content", c, texts, formula).must(1.5, 1.2)
}

fn absolute() -> [Row; 4] {
    [
        Row::single("json-scan", "scan of JSON text", Unit::GigabytesPerSecond, SingleFigure::JsonScan)
            .must(0.7, 1.5),
        Row::single("memory-idle", "resident memory, idle", Unit::Mebibytes, SingleFigure::IdleMemory)
            .must(28.0, 16.0),
        Row {
            concurrency: Some(64),
            ..Row::single(
                "memory-in-flight",
                "resident memory, 64 calls in flight",
                Unit::Mebibytes,
                SingleFigure::BusyMemory,
            )
        }
        .must(40.0, 28.0),
        Row::single("start", "start to ready, 10,000 bindings", Unit::Seconds, SingleFigure::StartTime)
            .must(2.0, 1.0),
    ]
}

fn open_loop() -> [Row; 2] {
    let [gateway, bare] = [Subject::Gateway(GatewaySetup::Echo(1)), Subject::Bare(1)]
        .map(|subject| Scenario::new(subject, 16).at_half_of_capacity());
    let row = |name, text, quantile| {
        Row::ratio(name, 16, [text, "bare path"], Formula::LatencyRatio(quantile, gateway, bare))
    };
    [
        row("open-loop-p50", "p50, 1 plugin, open loop at half of capacity", Quantile::P50),
        row("open-loop-p99", "p99, 1 plugin, open loop at half of capacity", Quantile::P99),
    ]
}

fn transports() -> [Row; 4] {
    let [tcp, unix, tls] = [GatewaySetup::Echo(1), GatewaySetup::UnixPlugin, GatewaySetup::Tls]
        .map(|setup| Scenario::gateway(setup, 16));
    let p50 = |first, second| Formula::LatencyRatio(Quantile::P50, first, second);
    let texts = |measured| [measured, "the same over TCP"];
    [
        Row::ratio("unix-cpu", 16, texts("CPU per call, plugin on a Unix socket"), Formula::Cpu(unix, tcp)),
        Row::ratio("unix-p50", 16, texts("p50, plugin on a Unix socket"), p50(unix, tcp)),
        Row::ratio("tls-cpu", 16, texts("CPU per call, TLS in and out"), Formula::Cpu(tls, tcp)),
        Row::ratio("tls-p50", 16, texts("p50, TLS in and out"), p50(tls, tcp)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_the_best_bound_that_is_reached() {
        let target = RowTarget { must: 1.45, aim: 1.2 };
        let verdicts = [1.2, 1.21, 1.46].map(|figure| target.verdict(Unit::Ratio, figure));
        assert_eq!(verdicts, [Verdict::Aim, Verdict::Must, Verdict::Missed]);
    }

    #[test]
    fn more_is_better_for_throughput() {
        let target = RowTarget { must: 0.7, aim: 1.5 };
        let verdicts = [1.5, 0.7, 0.6].map(|figure| target.verdict(Unit::GigabytesPerSecond, figure));
        assert_eq!(verdicts, [Verdict::Aim, Verdict::Must, Verdict::Missed]);
    }

    #[test]
    fn rows_of_one_name_are_neighbours() {
        let names: Vec<_> = all("").iter().map(|row| row.name).collect();
        let mut blocks = names.clone();
        blocks.dedup();
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(blocks.len(), distinct.len(), "{names:?}");
    }
}
