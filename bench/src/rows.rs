//! The rows of the table: what each compares, and its targets.

use serde::Serialize;

use crate::{
    formula::{FloorScenarios, Formula, Quantile, SingleFigure},
    llm_rows, neighbour,
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
    GigabytesPerSecond,
    Mebibytes,
    Kibibytes,
    Seconds,
    Milliseconds,
    Microseconds,
}

impl Unit {
    /// A figure with its unit.
    pub(crate) fn show(self, figure: f64) -> String {
        match self {
            Unit::Ratio => format!("{figure:.2}"),
            Unit::GigabytesPerSecond => format!("{figure:.2} GB/s"),
            Unit::Mebibytes => format!("{figure:.1} MiB"),
            Unit::Kibibytes => format!("{figure:.1} KiB"),
            Unit::Seconds => format!("{figure:.2} s"),
            Unit::Milliseconds => format!("{figure:.2} ms"),
            Unit::Microseconds => format!("{figure:.2} us"),
        }
    }
}

/// What a row has to reach, and what it should.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct RowTarget {
    pub(crate) better: Better,
    pub(crate) must: f64,
    pub(crate) aim: f64,
}

/// Which of two figures is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Better {
    Less,
    More,
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
    pub(crate) fn verdict(self, figure: f64) -> Verdict {
        let reaches = |bound| match self.better {
            Better::Less => figure <= bound,
            Better::More => figure >= bound,
        };
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
    pub(crate) fn ratio(
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

    pub(crate) fn single(
        name: &'static str,
        measured: &'static str,
        unit: Unit,
        figure: SingleFigure,
    ) -> Self {
        let formula = Formula::Single(figure);
        Row { name, concurrency: None, measured, compared_with: "-", unit, target: None, formula }
    }

    pub(crate) fn in_unit(self, unit: Unit) -> Self {
        Row { unit, ..self }
    }

    /// With a target of which less is better.
    pub(crate) fn must(mut self, must: f64, aim: f64) -> Self {
        self.target = Some(RowTarget { better: Better::Less, must, aim });
        self
    }

    /// With a target of which more is better.
    pub(crate) fn must_at_least(mut self, must: f64, aim: f64) -> Self {
        self.target = Some(RowTarget { better: Better::More, must, aim });
        self
    }
}

/// The other proxies that can be started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peers {
    pub(crate) envoy: bool,
    pub(crate) litellm: bool,
}

/// The rows with `only` in their names, in the table's order, and those that compare with `peers`.
pub(crate) fn all(only: &str, peers: Peers) -> Vec<Row> {
    let mut rows: Vec<Row> = CONCURRENCIES.into_iter().flat_map(cpu_of_plugins).collect();
    rows.push(added_latency());
    rows.extend(CONCURRENCIES.into_iter().flat_map(cpu_of_calls));
    rows.extend([1, 4].map(waiting_plugins));
    rows.push(advising_plugins());
    rows.extend(CONCURRENCIES.map(many_tenants));
    rows.extend(CONCURRENCIES.map(large_content));
    rows.extend(absolute());
    rows.extend(open_loop());
    rows.extend(neighbours());
    rows.extend(transports());
    rows.extend(one_connection());
    rows.extend(CONCURRENCIES.into_iter().flat_map(llm_rows::cpu));
    rows.extend(llm_rows::first_text());
    rows.extend(llm_rows::memory());
    if peers.envoy {
        rows.extend(CONCURRENCIES.into_iter().flat_map(envoy));
    }
    if peers.litellm {
        rows.extend(CONCURRENCIES.map(llm_rows::litellm));
    }
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

/// One caller: with more, ten plugins' own work on few cores would be what is measured.
fn advising_plugins() -> Row {
    let c = 1;
    let scenario = |plugins| {
        let payload = Payload::Hook { contributions: plugins };
        Scenario::gateway(GatewaySetup::Hook(plugins), c).with_payload(payload)
    };
    let formula = Formula::LatencyRatio(Quantile::P50, scenario(10), scenario(1));
    let texts = ["p50 of a hook, 10 plugins that wait 5 ms", "1 such plugin"];
    Row::ratio("hook-advise", c, texts, formula).must(1.5, 1.2)
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

fn absolute() -> [Row; 9] {
    [
        Row::single("json-scan", "scan of JSON text", Unit::GigabytesPerSecond, SingleFigure::JsonScan)
            .must_at_least(0.7, 1.5),
        Row::single(
            "redact-clean",
            "`redact`, clean text",
            Unit::GigabytesPerSecond,
            SingleFigure::RedactClean,
        )
        .must_at_least(0.15, 0.3),
        Row::single(
            "redact-dense",
            "`redact`, a find in every line",
            Unit::GigabytesPerSecond,
            SingleFigure::RedactDense,
        ),
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
        Row {
            concurrency: Some(1),
            compared_with: "p50 of a raw call",
            ..Row::single("host-add", "p50 of `add` by a plugin, SQLite", Unit::Ratio, SingleFigure::HostAdd)
        }
        .must(2.0, 1.5),
        Row {
            concurrency: Some(1),
            compared_with: "p50 of a call",
            ..Row::single(
                "host-traffic",
                "p50 of a call, 200 `add` a second beside",
                Unit::Ratio,
                SingleFigure::HostTraffic,
            )
        }
        .must(1.1, 1.05),
        Row {
            concurrency: Some(1),
            compared_with: "p50 with a gRPC plugin",
            ..Row::single(
                "stdio-runner",
                "p50 of a call, program in the runner",
                Unit::Ratio,
                SingleFigure::StdioRunner,
            )
        }
        .must(3.0, 2.0),
        Row::single("start", "start to ready, 10,000 bindings", Unit::Seconds, SingleFigure::StartTime)
            .must(2.0, 1.0),
    ]
}

/// What another tenant's large texts do to small calls.
fn neighbours() -> [Row; 2] {
    let row = |name, measured, figure| Row {
        concurrency: Some(neighbour::CONNECTIONS),
        compared_with: "p99 without them",
        ..Row::single(name, measured, Unit::Ratio, figure).must(1.5, 1.2)
    };
    [
        row("neighbour-texts", "p99 of a call, 1 MiB texts beside", SingleFigure::NeighbourTexts),
        row("neighbour-events", "p99 of a call, 1 MiB events beside", SingleFigure::NeighbourEvents),
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

fn one_connection() -> [Row; 3] {
    let many = Scenario::gateway(GatewaySetup::Echo(1), 64);
    let one = many.over_one_connection();
    let texts = |measured| [measured, "64 connections"];
    let p99 = Formula::LatencyRatio(Quantile::P99, one, many);
    [
        Row::ratio(
            "one-connection-rate",
            64,
            texts("calls per second, one connection"),
            Formula::Rate(one, many),
        ),
        Row::ratio("one-connection-cpu", 64, texts("CPU per call, one connection"), Formula::Cpu(one, many)),
        Row::ratio("one-connection-p99", 64, texts("p99, one connection"), p99),
    ]
}

fn envoy(c: usize) -> [Row; 4] {
    let gateway = |plugins| Scenario::gateway(GatewaySetup::Echo(plugins), c);
    let cpu = |plugins| Formula::Cpu(gateway(plugins), Scenario::envoy(plugins, c));
    let rate = |plugins| Formula::Rate(gateway(plugins), Scenario::envoy(plugins, c));
    let [one, three] = ["Envoy, 1 plugin", "Envoy, 3 plugins"];
    [
        Row::ratio("envoy-cpu-1-plugin", c, ["CPU per call, 1 plugin", one], cpu(1)).must(0.45, 0.35),
        Row::ratio("envoy-cpu-3-plugins", c, ["CPU per call, 3 plugins", three], cpu(3)).must(0.45, 0.35),
        Row::ratio("envoy-rate-1-plugin", c, ["calls per second, 1 plugin", one], rate(1))
            .must_at_least(1.7, 2.2),
        Row::ratio("envoy-rate-3-plugins", c, ["calls per second, 3 plugins", three], rate(3))
            .must_at_least(1.7, 2.2),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_PEERS: Peers = Peers { envoy: true, litellm: true };

    #[test]
    fn a_verdict_is_the_best_bound_that_is_reached() {
        let target = RowTarget { better: Better::Less, must: 1.45, aim: 1.2 };
        let verdicts = [1.2, 1.21, 1.46].map(|figure| target.verdict(figure));
        assert_eq!(verdicts, [Verdict::Aim, Verdict::Must, Verdict::Missed]);
    }

    #[test]
    fn more_may_be_better() {
        let target = RowTarget { better: Better::More, must: 0.7, aim: 1.5 };
        let verdicts = [1.5, 0.7, 0.6].map(|figure| target.verdict(figure));
        assert_eq!(verdicts, [Verdict::Aim, Verdict::Must, Verdict::Missed]);
    }

    #[test]
    fn rows_of_one_name_are_neighbours() {
        let names: Vec<_> = all("", ALL_PEERS).iter().map(|row| row.name).collect();
        let mut blocks = names.clone();
        blocks.dedup();
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(blocks.len(), distinct.len(), "{names:?}");
    }

    #[test]
    fn rows_of_peers_need_their_binaries() {
        let none = Peers { envoy: false, litellm: false };
        assert!(all("envoy", none).is_empty() && all("litellm", none).is_empty());
        assert_eq!(all("litellm", ALL_PEERS).len(), 2);
        let rows = all("envoy", ALL_PEERS);
        let of_envoy = |scenario: &Scenario| matches!(scenario.subject, Subject::Envoy(_));
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| row.formula.scenarios().iter().any(of_envoy)));
    }

    #[test]
    fn less_cpu_than_envoy_and_more_calls_are_better() {
        let better =
            |only| all(only, ALL_PEERS).iter().map(|row| row.target.map(|t| t.better)).collect::<Vec<_>>();
        assert_eq!(better("envoy-cpu"), [Some(Better::Less); 4]);
        assert_eq!(better("envoy-rate"), [Some(Better::More); 4]);
    }
}
