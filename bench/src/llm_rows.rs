//! The rows of the LLM proxy.

use crate::{
    formula::{Formula, Quantile, SingleFigure},
    llm_provider::StreamShape,
    payload::Payload,
    rows::{Row, Unit},
    scenario::{GatewaySetup, Scenario, Subject},
};

const FLOOR: &str = "pass-through proxy";
/// A stream in windows is measured with a few callers, because each takes a third of a second. They leave the machine idle.
const WINDOWS_CALLERS: usize = 4;

fn gateway(setup: GatewaySetup, payload: Payload, c: usize) -> Scenario {
    Scenario::llm(Subject::Gateway(setup), payload, c)
}

fn floor(payload: Payload, c: usize) -> Scenario {
    Scenario::llm(Subject::LlmFloor, payload, c)
}

/// What an exchange costs. Some ask a plugin about a part of it, or about everything.
pub(crate) fn cpu(c: usize) -> [Row; 7] {
    let stream = Payload::Stream(StreamShape::Long);
    let over_floor =
        |payload| Formula::Cpu(gateway(GatewaySetup::Llm { points: 0 }, payload, c), floor(payload, c));
    let per_part = |setup, payload, parts| Formula::CpuPerPart(gateway(setup, payload, c), parts);
    let completion = |points| per_part(GatewaySetup::Llm { points }, Payload::Completion, 1);
    let chunks = StreamShape::Long.pieces();
    let row = |name, measured, formula| Row::ratio(name, c, [measured, FLOOR], formula);
    let micros =
        |name, measured, formula| Row::ratio(name, c, [measured, "-"], formula).in_unit(Unit::Microseconds);
    [
        row("llm-cpu", "CPU per model call, no plugin", over_floor(Payload::Completion)).must(1.35, 1.2),
        micros("llm-1-point", "CPU per model call, a plugin at one point", completion(1)).must(110.0, 90.0),
        micros("llm-4-points", "the same at all four", completion(4)).must(260.0, 210.0),
        row("llm-stream", "CPU per streamed model call, no plugin", over_floor(stream)).must(1.35, 1.2),
        micros(
            "llm-stream-chunk",
            "CPU per chunk of a stream, no plugin",
            per_part(GatewaySetup::Llm { points: 0 }, stream, chunks),
        )
        .must(4.0, 3.0),
        micros(
            "llm-stream-windows",
            "the same, a plugin that judges windows",
            per_part(GatewaySetup::LlmWindows, stream, chunks),
        )
        .must(8.0, 6.0),
        micros(
            "llm-history",
            "CPU per model call, 200 KiB of known results",
            per_part(GatewaySetup::LlmResults, Payload::History, 1),
        )
        .must(2_000.0, 1_000.0),
    ]
}

/// What the gateway adds to the time until a stream's first text.
pub(crate) fn first_text() -> [Row; 3] {
    let added = |quantile, setup, shape, c| {
        let payload = Payload::Stream(shape);
        Formula::LatencyDifference(quantile, gateway(setup, payload, c), floor(payload, c))
    };
    let pass = |quantile| added(quantile, GatewaySetup::Llm { points: 0 }, StreamShape::Short, 1);
    let windows = added(Quantile::P50, GatewaySetup::LlmWindows, StreamShape::Slow, WINDOWS_CALLERS);
    let row = |name, c, measured, formula| {
        Row::ratio(name, c, [measured, FLOOR], formula).in_unit(Unit::Milliseconds)
    };
    [
        row("llm-first-text-p50", 1, "p50 added to the first text, no plugin", pass(Quantile::P50))
            .must(0.5, 0.25),
        row("llm-first-text-p99", 1, "p99 added to the first text, no plugin", pass(Quantile::P99))
            .must(3.0, 1.0),
        // The text waits 200 ms for its window, and then for the plugin.
        row("llm-first-text-windows", WINDOWS_CALLERS, "p50 added to the first text, windows", windows)
            .must(203.0, 202.0),
    ]
}

/// What streams take that the provider and the caller keep open, and of which nothing is held.
pub(crate) fn memory() -> [Row; 3] {
    let row = Row::single;
    [
        row(
            "llm-streams-memory",
            "resident memory, 2,000 open streams",
            Unit::Mebibytes,
            SingleFigure::StreamsMemory,
        )
        .must(240.0, 160.0),
        row(
            "llm-stream-memory",
            "memory of an open stream, no plugin",
            Unit::Kibibytes,
            SingleFigure::StreamMemory,
        )
        .must(96.0, 64.0),
        row(
            "llm-stream-memory-windows",
            "the same, a plugin that judges windows",
            Unit::Kibibytes,
            SingleFigure::WindowsStreamMemory,
        )
        .must(96.0, 64.0),
    ]
}

/// The same guard on both sides: one that lets the request pass.
pub(crate) fn litellm(c: usize) -> Row {
    let llm = |subject| Scenario::llm(subject, Payload::Completion, c);
    let gateway = llm(Subject::Gateway(GatewaySetup::Llm { points: 1 }));
    let texts = ["CPU per model call, LiteLLM, one guard", "LLM proxy, a plugin at one point"];
    Row::ratio("litellm-cpu", c, texts, Formula::Cpu(llm(Subject::LiteLlm), gateway))
        .must_at_least(40.0, 60.0)
}
