//! The failure matrix of built-in plugins that work longer than they may. They share the gateway's process, and still fail as a
//! plugin that doesn't answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use hookgate::core::{point::Point, step::Reason};
use hookgate_tests::{agent::HttpAgent, fake::FakePlugin, gateway::Gateway};
use serde_json::json;

use crate::failure_matrix::{
    cells::{Case, Cell, Failure, KINDS, Seen},
    matrix::{Later, ask, call, payload_text, read},
    rig::{Transport, first, of},
};

const OVERDUE: Case = Case::Fails(Failure {
    plugin: "redact",
    reason: Reason::Timeout,
    status: None,
    what: "is built in, and works longer than the step's time-out",
});

/// Looks from each `a` to the end of the text for a `z`: with this text, for minutes.
const PATTERN: &str = "a.*z|a";
const TEXT_BYTES: usize = 512 << 10;

/// Calls every cell and compares.
pub(super) async fn run() -> Vec<(Cell, Seen)> {
    let text = json!({ "text": "a ".repeat(TEXT_BYTES / 2) }).to_string();
    let first = Transport::Tcp.start(first(&text)).await;
    let witness = FakePlugin::named("witness").start().await;
    let config = json!({ "detectors": [], "patterns": [{ "name": "slow", "regex": PATTERN }] });
    let mut setup = Gateway::with()
        // The call of another tenant comes on another connection to the same worker.
        .set("/server/workers", 1)
        .plugin(&first)
        .plugin(&witness)
        .builtin("redact", &config)
        .binding("first", -10)
        .binding("witness", 100)
        .tenant("baseline");
    let cells: Vec<_> = Point::ALL
        .into_iter()
        .flat_map(|point| KINDS.map(|kind| Cell { point, kind, case: OVERDUE }))
        .collect();
    for kind in KINDS {
        let tenant = Cell { point: Point::BeforeToolCall, kind, case: OVERDUE }.tenant();
        let mut binding = of(kind, OVERDUE, &tenant);
        binding["timeout"] = "1s".into();
        setup = setup.tenant(&tenant).binding_with("redact", 10, &binding);
    }
    let gateway = setup.start().await;
    let agent = HttpAgent::new(gateway.data_addr());
    let answers = tokio::spawn({
        let agent = agent.clone();
        async move { ask(&agent, cells).await }
    });
    let mut texts = BTreeMap::new();
    for point in Point::ALL {
        let answer = call(agent.clone(), point, "baseline".into(), None).await;
        texts.insert(point, payload_text(&answer).expect("the chain continues").to_owned());
    }
    let answers = answers.await.expect("they are answered");
    let later = Later::of(&witness.seen());
    let compare = |(cell, answer)| {
        let seen = read(&cell, &answer, &texts[&cell.point], &later);
        assert_eq!(seen, cell.expected(), "{cell:?}: {:?}", answer.status);
        (cell, seen)
    };
    answers.into_iter().map(compare).collect()
}

const HEAD: &str = "
## Built-in plugins

They share the gateway's process. One that works longer than its step may fails as a plugin that doesn't answer. Observed at all four points
with `redact`, a pattern of its own that takes minutes, and one worker.

| mode | the plugin | answer | step | notice | payload | later plugins |
|---|---|---|---|---|---|---|
";

/// The observed cells as a table.
pub(super) fn table(cells: &[(Cell, Seen)]) -> String {
    let mut text = HEAD.to_owned();
    for kind in KINDS {
        let of_kind = cells.iter().filter(|(cell, _)| cell.kind == kind);
        let seen: BTreeSet<_> = of_kind.map(|(_, seen)| seen.to_string()).collect();
        let [only] = Vec::from_iter(seen).try_into().unwrap_or_else(|seen| panic!("{}: {seen:?}", kind.name));
        let mode = kind.name.replace('-', ", on_error: ");
        writeln!(text, "| {mode} | {} | {only} |", OVERDUE.what()).expect("a string takes everything");
    }
    text
}
