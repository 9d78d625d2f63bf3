//! The failure matrix: at every extension point, for every kind of binding and over every transport, a
//! plugin does everything that it can do. The agent's complete answer is compared with the guarantee of
//! docs/protocol.md, section 3.
//!
//! The result is docs/failure-matrix.md, which `HOOKGATE_REGENERATE=1` rewrites.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use futures::{StreamExt as _, future, stream};
use hookgate::core::{
    point::Point,
    step::{Mode, Reason},
};
use hookgate_tests::{
    agent::{self, HttpAgent, HttpAnswer},
    fake,
    gateway::{Line, Log, ProcessExit},
    repository,
    token::token,
};
use http::Method;
use serde_json::{Value, json};

use crate::failure_matrix::{
    builtins,
    cells::{Case, Cell, FAILURES, KINDS, Kind, NEVER, Payload, Seen, tenant},
    groups::{self, GroupRow},
    rig::{EXTRA, RAW, Rig, SHORT_MS, TRANSPORTS, Transport, on_the_wire, payload},
};

/// Cells over one transport: 4 points, 5 kinds of binding, 20 cases, and one more case for the two kinds
/// that skip.
const CELLS: usize = 4 * (5 * 20 + 2);
/// Concurrent calls; each plugin has 64 permits.
pub(super) const AT_ONCE: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_outcome_has_the_promised_answer_at_every_point_over_every_transport() {
    let runs = TRANSPORTS.map(run);
    let (cells, groups, builtins) =
        future::join3(future::join_all(runs), groups::run(), builtins::run()).await;
    for (transport, cells) in TRANSPORTS.iter().zip(&cells) {
        println!("failure matrix: {} cells over {transport:?}", cells.len());
        assert_eq!(cells.len(), CELLS, "{transport:?}");
    }
    compare_with_the_document(&document(cells.iter().flatten(), &groups, &builtins));
}

#[test]
fn every_reason_is_provoked_or_listed_as_one_that_cannot_arise() {
    for reason in Reason::ALL {
        let provoked = FAILURES.iter().any(|failure| failure.reason == *reason);
        let listed = NEVER.iter().any(|(never, kinds, _)| never == reason && kinds.is_empty());
        assert!(provoked != listed, "{reason}: provoked {provoked}, listed {listed}");
    }
}

/// Calls every cell and compares.
async fn run(transport: Transport) -> Vec<(Cell, Seen)> {
    let rig = Rig::start(transport).await;
    let agent = HttpAgent::new(rig.gateway.data_addr());
    trip(&agent).await;

    let mut texts = BTreeMap::new();
    for point in Point::ALL {
        let answer = call(agent.clone(), point, "baseline".into(), None).await;
        let text = payload_text(&answer).expect("the chain continues").to_owned();
        let raw = if point == Point::BeforeResponse { "9007199254740993" } else { RAW };
        assert!(text.contains(raw), "{text}");
        texts.insert(point, text);
    }
    let (busy, others) = Cell::all().into_iter().partition(|cell| cell.case.plugin() == "busy");
    let mut answers = ask(&agent, others).await;
    until_heard(rig.gateway.log()).await;
    // At the end, because nobody keeps a permit for longer than 60 s.
    let holder = tokio::spawn(call(agent.clone(), Point::BeforeToolCall, "holder".into(), None));
    rig.plugin("busy").wait_until(|counts| counts.calls == 1).await;
    answers.extend(ask(&agent, busy).await);
    holder.abort();

    let later = Later::of(&rig.plugin("witness").seen());
    let Rig { gateway, .. } = &rig;
    observers_were_heard(&gateway.stop().await);
    let mut cells = Vec::new();
    for (cell, answer) in answers {
        let seen = read(&cell, &answer, &texts[&cell.point], &later);
        assert_eq!(seen, cell.expected(), "{transport:?} {cell:?}: {answer:?}");
        cells.push((cell, seen));
    }
    cells
}

/// The answers of the cells.
pub(super) async fn ask(agent: &HttpAgent, cells: Vec<Cell>) -> Vec<(Cell, HttpAnswer)> {
    let answers = stream::iter(cells).map(|cell| {
        let deadline = matches!(cell.case.name(), "hangs-long" | "budget-short").then_some(SHORT_MS);
        let answer = call(agent.clone(), cell.point, cell.tenant(), deadline);
        async move { (cell, answer.await) }
    });
    answers.buffer_unordered(AT_ONCE).collect().await
}

/// Calls the failing plugin until its breakers are open.
pub(super) async fn trip(agent: &HttpAgent) {
    for _ in 0..20 {
        let answer = call(agent.clone(), Point::BeforeToolCall, "tripper".into(), None).await;
        let steps = answer.body["steps"].as_array().expect("the chain continues");
        if steps.iter().any(|step| step["reason"] == json!("breaker_open")) {
            return;
        }
    }
    panic!("the breaker stays closed");
}

pub(super) async fn call(
    agent: HttpAgent,
    point: Point,
    tenant: String,
    deadline: Option<&str>,
) -> HttpAnswer {
    let body = json!({ "context": { "labels": { "lane": "slow" } }, "payload": payload(point) });
    let mut request = agent
        .request(Method::POST, agent::path(on_the_wire(point)))
        .bearer_auth(token(&tenant))
        .header("content-type", "application/json")
        .body(body.to_string());
    if let Some(deadline) = deadline {
        request = request.header("hookgate-timeout-ms", deadline);
    }
    HttpAgent::send(request).await.expect("the gateway answers")
}

/// The text of the payload in an answer.
pub(super) fn payload_text(answer: &HttpAnswer) -> Option<&str> {
    let (_, behind) = answer.text.split_once(r#""payload":"#)?;
    behind.split_once(r#","modified":"#).map(|(payload, _)| payload)
}

/// The calls that reached the plugin after the step.
pub(super) struct Later(BTreeMap<(String, Point), fake::Payload>);

impl Later {
    pub(super) fn of(seen: &[fake::Seen]) -> Self {
        let entry = |seen: &fake::Seen| {
            let tenant = seen.call.context.as_ref().map(|context| context.tenant.clone());
            let point = Point::ALL.into_iter().find(|point| on_the_wire(*point) == seen.point);
            ((tenant.expect("there is one"), point.expect("there is one")), seen.payload.clone())
        };
        Later(seen.iter().map(entry).collect())
    }

    /// What it was sent for the tenant.
    pub(super) fn payload(&self, tenant: &str, point: Point) -> Option<&fake::Payload> {
        self.0.get(&(tenant.to_owned(), point))
    }

    /// Whether it was called; if so, checks that it got the payload of the answer.
    fn called(&self, cell: &Cell, answered: Option<Payload>) -> bool {
        let Some(payload) = self.payload(&cell.tenant(), cell.point) else { return false };
        let mut expected = self.0[&("baseline".to_owned(), cell.point)].clone();
        if answered == Some(Payload::Patched) {
            *extra_of(&mut expected) = EXTRA.into();
        }
        assert_eq!(payload, &expected, "{cell:?}");
        true
    }
}

fn extra_of(payload: &mut fake::Payload) -> &mut bytes::Bytes {
    match payload {
        fake::Payload::BeforeLlmRequest(payload) => &mut payload.extra,
        fake::Payload::BeforeToolCall(payload) => &mut payload.extra,
        fake::Payload::AfterToolResult(payload) => &mut payload.extra,
        fake::Payload::BeforeResponse(payload) => &mut payload.extra,
        fake::Payload::Hook(_) => panic!("the matrix has points only"),
    }
}

/// What an answer says about the step.
pub(super) fn read(cell: &Cell, answer: &HttpAnswer, before: &str, later: &Later) -> Seen {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let plugins = [cell.case.plugin(), if cell.case.plugin() == "elsewhere" { "elsewhere-too" } else { "" }];
    let is_its = |entry: &&Value| {
        let is_hog = cell.case == Case::BudgetShort && entry["plugin"] == json!("hangs-long");
        !is_hog && plugins.iter().any(|plugin| entry["plugin"] == json!(plugin))
    };
    let list = |name: &str| answer.body[name].as_array().cloned().unwrap_or_default();
    let (steps, notices) = (list("steps"), list("notices"));
    let notices: Vec<_> = notices.iter().filter(is_its).collect();
    assert!(notices.len() < 2, "{cell:?}: {answer:?}");
    let step = steps.iter().find(is_its);
    let payload = payload_text(answer).map(|payload| {
        let patched = format!(r#"{},"extra":{EXTRA}}}"#, before.strip_suffix('}').expect("it is an object"));
        match payload {
            payload if payload == before => Payload::AsBefore,
            payload if payload == patched => Payload::Patched,
            other => panic!("{cell:?}: neither {before} nor {patched}: {other}"),
        }
    });
    let decision = answer.header("hookgate-decision").map(str::to_owned);
    assert_eq!(decision, text(&answer.body["decision"]), "{cell:?}: {answer:?}");
    if decision.is_none() {
        // The problem document names the step that is in its list, and no other step failed.
        let step = step.expect("a step led to it");
        for member in ["plugin", "binding", "reason"] {
            assert_eq!(answer.body[member], step[member], "{cell:?}: {answer:?}");
        }
        assert_eq!(answer.body["point"], json!(cell.point.as_str()), "{cell:?}: {answer:?}");
    }
    let notice = notices.first().map(|notice| {
        let part = |name: &str| notice[name].as_str().unwrap_or_default();
        format!("{} {}", part("kind"), part("code"))
    });
    Seen {
        status: answer.status,
        decision,
        code: text(&answer.body["block"]["code"]).or_else(|| text(&answer.body["code"])),
        outcome: step.and_then(|step| text(&step["outcome"])),
        reason: step.and_then(|step| text(&step["reason"])),
        would_block: step.and_then(|step| text(&step["code"])),
        notice,
        payload,
        later: later.called(cell, payload),
    }
}

/// The lines that observers log, one of these for each of four calls. Empty if nothing went wrong, or if
/// nobody checks it.
fn said_by_observers(case: Case) -> &'static [&'static str] {
    match case {
        // Patches of observers are ignored.
        Case::Fails(failure) if failure.plugin == "grower" => &[],
        Case::Fails(failure) => match failure.reason {
            Reason::ForbiddenPatch => &[],
            Reason::Timeout => &["step.timeout"],
            // Observers have no budget: they exceed their own timeout or the drain's.
            Reason::Budget => &["step.timeout", "step.failed"],
            _ => &["step.failed"],
        },
        Case::Cancels { .. } => &["decision.would_block"],
        Case::Continues { .. } | Case::ConditionFalse | Case::BudgetShort => &[],
    }
}

fn observed() -> Kind {
    KINDS.into_iter().find(|kind| kind.mode == Mode::Observe).expect("it is a kind")
}

/// The binding in a line about an observer's call.
fn binding_of(line: &Line) -> Option<&str> {
    let field = |name| line.field(name).and_then(Value::as_str);
    ["step.failed", "step.timeout", "decision.would_block"]
        .contains(&field("event")?)
        .then(|| field("binding"))?
}

/// Waits until all observers have logged their results. Calls that are held back or hang end only with the
/// drain.
async fn until_heard(log: &Log) {
    let ends_with_the_drain = |case: &Case| ["tripped", "hangs-long", "busy"].contains(&case.plugin());
    let cases = Case::all().into_iter().filter(|case| case.arises(observed()) && !ends_with_the_drain(case));
    let talkative = cases.filter(|case| !said_by_observers(*case).is_empty());
    let mut missing: BTreeMap<_, _> = talkative.map(|case| (tenant(observed(), case), 4)).collect();
    log.wait_for(|line| {
        let tenant = binding_of(line).and_then(|binding| binding.split_once('@')).map(|(_, tenant)| tenant);
        if let Some(lines) = tenant.and_then(|tenant| missing.get_mut(tenant)) {
            *lines -= 1;
        }
        missing.values().all(|lines| *lines <= 0)
    })
    .await;
}

/// Checks the observers' results, which only the log shows: a line for each of the four calls that failed
/// or would have blocked.
fn observers_were_heard(exit: &ProcessExit) {
    let lines = exit.log.lines();
    let told = |event: &str, tenant: &str| {
        let is_its = |line: &&Line| {
            let binding = binding_of(line).filter(|_| line.field("event") == Some(&json!(event)));
            binding.is_some_and(|binding| binding.ends_with(&format!("@{tenant}")))
        };
        lines.iter().filter(is_its).count()
    };
    for case in Case::all().into_iter().filter(|case| case.arises(observed())) {
        let (expected, tenant) = (said_by_observers(case), tenant(observed(), case));
        let (mut lines, mut others) = (0, 0);
        for event in ["step.failed", "step.timeout", "decision.would_block"] {
            *(if expected.contains(&event) { &mut lines } else { &mut others }) += told(event, &tenant);
        }
        let all = if expected.is_empty() { 0 } else { 4 };
        assert_eq!((lines, others), (all, 0), "{tenant}, {expected:?}:\n{}", exit.log);
    }
}

const HEAD: &str = "# Failure matrix

Written by `tests/tests/it/failure_matrix/matrix.rs` from the answers of a running gateway; `HOOKGATE_REGENERATE=1 cargo test -p
hookgate-tests failure_matrix` writes it anew. Every row was observed at all four extension points, over TCP, over Unix
sockets, over TLS, and with several endpoints of which one is dead, and was the same each time; payloads were compared byte for byte. The step in question stands between a plugin that
patches the payload and one that is called later, or is not. Answers are HTTP's; over gRPC a block is an OK answer and an error
is the status of [errors.md](errors.md). The column `step` has the step's outcome, then its reason or the code that it would have blocked with.
";

/// The observed cells as tables. Points and transports share a row because they agree.
fn document<'a>(
    cells: impl Iterator<Item = &'a (Cell, Seen)>,
    groups: &[GroupRow],
    builtins: &[(Cell, Seen)],
) -> String {
    let mut rows: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (cell, seen) in cells {
        rows.entry((cell.kind.name, cell.case.what())).or_default().insert(seen.to_string());
    }
    let mut text = HEAD.to_owned();
    for kind in KINDS {
        let title = kind.name.replace('-', ", on_error: ");
        write!(text, "\n## mode: {title}\n\n| the plugin | answer | step | notice | payload | later plugins |\n|---|---|---|---|---|---|\n")
            .expect("a string takes everything");
        for case in Case::all().into_iter().filter(|case| case.arises(kind)) {
            let seen = &rows[&(kind.name, case.what())];
            let [only] = Vec::from_iter(seen)[..] else { panic!("{}, {}: {seen:?}", kind.name, case.what()) };
            writeln!(text, "| {} | {only} |", case.what()).expect("a string takes everything");
        }
    }
    text.push_str(&groups::tables(groups));
    text.push_str(&builtins::table(builtins));
    text.push_str("\n## What can't arise\n\n| reason | where | why |\n|---|---|---|\n");
    for (reason, kinds, why) in NEVER {
        let kinds = if kinds.is_empty() { "anywhere".into() } else { kinds.join(", ") };
        writeln!(text, "| `{reason}` | {kinds} | {why} |").expect("a string takes everything");
    }
    text.push_str(
        "\nThe outcome `cancelled_by_caller` is in no answer: nobody is there to take it. A step that must not be \
         skipped is never `skipped_budget`: it is asked with whatever is left.\n",
    );
    text
}

fn compare_with_the_document(text: &str) {
    let path = repository::root().join("docs/failure-matrix.md");
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        fs::write(&path, text).expect("docs is writable");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/failure-matrix.md is out of date: run this test with HOOKGATE_REGENERATE=1"
    );
}
