//! The failure matrix of groups: the step under test and a neighbour, both with access READ and without side
//! effects, are called at the same time. The agent's answer is what it would be in order, so it is expected
//! from what each of the two does alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
};

use futures::{StreamExt as _, stream};
use hookgate::core::{
    point::Point,
    step::{Mode, Reason},
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::FakePlugin,
};
use serde_json::Value;

use crate::failure_matrix::{
    cells::{Case, Cell, KINDS, Kind, Seen, tenant},
    matrix::{AT_ONCE, Later, call, payload_text, trip},
    rig::{Rig, SHORT_MS, Transport},
};

/// 4 points, 4 kinds of binding, 15 cases, 2 places, 2 neighbours.
const CELLS: usize = 4 * 4 * 15 * 2 * 2;

/// Where the step under test is in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    First,
    Second,
}

/// What the neighbour does, whose binding enforces and fails closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Neighbour {
    Continues,
    Cancels,
}

impl Neighbour {
    pub(crate) fn plugin(self) -> &'static str {
        match self {
            Neighbour::Continues => "neighbour",
            Neighbour::Cancels => "refusing-neighbour",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Neighbour::Continues => "continues",
            Neighbour::Cancels => "cancels",
        }
    }
}

/// One cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupCell {
    point: Point,
    pub(crate) kind: Kind,
    pub(crate) case: Case,
    pub(crate) place: Place,
    pub(crate) neighbour: Neighbour,
}

/// A cell, and what its answer says.
pub(super) type GroupRow = (GroupCell, GroupAnswer);

impl GroupCell {
    fn all() -> Vec<GroupCell> {
        Point::ALL.into_iter().flat_map(GroupCell::at).collect()
    }

    /// A cell for each tenant.
    pub(crate) fn tenants() -> Vec<GroupCell> {
        GroupCell::at(Point::BeforeToolCall)
    }

    fn at(point: Point) -> Vec<GroupCell> {
        let mut cells = Vec::new();
        for kind in KINDS.into_iter().filter(|kind| kind.mode != Mode::Observe) {
            for case in cases() {
                for place in [Place::First, Place::Second] {
                    let neighbours = [Neighbour::Continues, Neighbour::Cancels];
                    cells.extend(neighbours.map(|neighbour| GroupCell {
                        point,
                        kind,
                        case,
                        place,
                        neighbour,
                    }));
                }
            }
        }
        cells
    }

    /// The tenant whose chain contains the group.
    pub(crate) fn tenant(&self) -> String {
        format!("{}.{:?}.{}", tenant(self.kind, self.case), self.place, self.neighbour.what()).to_lowercase()
    }

    /// The expected answer: the second of the two counts only if the chain goes on after the first.
    fn expected(&self) -> GroupAnswer {
        let GroupCell { point, kind, case, .. } = *self;
        let own = GroupAnswer::of_step(&Cell { point, kind, case }.expected());
        let neighbour = GroupAnswer::of_neighbour(self.neighbour);
        let (first, second) = match self.place {
            Place::First => (own, neighbour),
            Place::Second => (neighbour, own),
        };
        if !first.later {
            return first;
        }
        // Errors carry no notices.
        let notices = second.decision.as_ref().map(|_| [first.notices, second.notices].concat());
        GroupAnswer {
            steps: [first.steps, second.steps].concat(),
            notices: notices.unwrap_or_default(),
            ..second
        }
    }
}

/// What a READ plugin with an accepted manifest can do. `not_ready` and `point_not_offered` are missing,
/// because without an offer at the point a step runs alone.
fn cases() -> impl Iterator<Item = Case> {
    Case::all().into_iter().filter(|case| match case {
        Case::Continues { patches } | Case::Cancels { patches } => !patches,
        Case::ConditionFalse => true,
        // A group's steps start together, so no step uses up another one's time.
        Case::BudgetShort => false,
        Case::Fails(failure) => {
            failure.plugin != "grower"
                && !matches!(failure.reason, Reason::NotReady | Reason::PointNotOffered)
        }
    })
}

/// Everything in the answer that the group affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupAnswer {
    status: u16,
    decision: Option<String>,
    code: Option<String>,
    /// Role, outcome and reason of each step of the group, in order.
    steps: Vec<[String; 3]>,
    /// Role, kind and code of each notice, in order.
    notices: Vec<[String; 3]>,
    /// Whether the answer has the payload from before the group.
    payload: bool,
    /// Whether the plugin after the group was called.
    later: bool,
}

impl GroupAnswer {
    /// The answer if the step under test were alone.
    fn of_step(seen: &Seen) -> Self {
        let role = "step";
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let notice = seen.notice.as_ref().and_then(|notice| notice.split_once(' '));
        let notices = notice.map(|(kind, code)| [role.to_owned(), kind.to_owned(), code.to_owned()]);
        GroupAnswer {
            status: seen.status,
            decision: seen.decision.clone(),
            code: seen.code.clone(),
            steps: vec![[role.to_owned(), part(&seen.outcome), part(&seen.reason)]],
            notices: notices.into_iter().collect(),
            payload: seen.payload.is_some(),
            later: seen.later,
        }
    }

    /// The answer if the neighbour were alone.
    fn of_neighbour(neighbour: Neighbour) -> Self {
        let (status, decision, outcome, code) = match neighbour {
            Neighbour::Continues => (200, "continue", "continued", None),
            Neighbour::Cancels => (403, "block", "cancelled", Some("FORBIDDEN".to_owned())),
        };
        GroupAnswer {
            status,
            decision: Some(decision.into()),
            code,
            steps: vec![["neighbour".into(), outcome.into(), String::new()]],
            notices: vec![["neighbour".into(), "info".into(), "NEIGHBOUR".into()]],
            payload: true,
            later: neighbour == Neighbour::Continues,
        }
    }
}

/// Calls every cell and compares.
pub(super) async fn run() -> Vec<GroupRow> {
    let rig = Rig::start_groups(Transport::Tcp).await;
    let agent = HttpAgent::new(rig.gateway.data_addr());
    trip(&agent).await;
    let mut texts = BTreeMap::new();
    for point in Point::ALL {
        let answer = call(agent.clone(), point, "baseline".into(), None).await;
        texts.insert(point, payload_text(&answer).expect("the chain continues").to_owned());
    }
    let (busy, others) = GroupCell::all().into_iter().partition(|cell| cell.case.plugin() == "busy");
    let mut answers = ask(&agent, others).await;
    // At the end, because nobody keeps a permit for longer than 60 s.
    let holder = tokio::spawn(call(agent.clone(), Point::BeforeToolCall, "holder".into(), None));
    rig.plugin("busy").wait_until(|counts| counts.calls == 1).await;
    answers.extend(ask(&agent, busy).await);
    holder.abort();

    let later = Later::of(&rig.plugin("witness").seen());
    let neighbours =
        [Neighbour::Continues, Neighbour::Cancels].map(|neighbour| rig.plugin(neighbour.plugin()));
    let beside = Later::of(&neighbours.map(FakePlugin::seen).concat());
    let hanging = answers.iter().filter(|(cell, _)| cell.case.name() == "hangs-long");
    for (cell, _) in hanging {
        assert!(beside.payload(&cell.tenant(), cell.point).is_some(), "{cell:?} ran alone");
    }
    assert_eq!(answers.len(), CELLS);
    let compare = |(cell, answer): (GroupCell, HttpAnswer)| {
        let read = read(&cell, &answer, &texts[&cell.point], &later);
        assert_eq!(read, cell.expected(), "{cell:?}: {answer:?}");
        (cell, read)
    };
    answers.into_iter().map(compare).collect()
}

async fn ask(agent: &HttpAgent, cells: Vec<GroupCell>) -> Vec<(GroupCell, HttpAnswer)> {
    let answers = stream::iter(cells).map(|cell| {
        let deadline = (cell.case.name() == "hangs-long").then_some(SHORT_MS);
        let answer = call(agent.clone(), cell.point, cell.tenant(), deadline);
        async move { (cell, answer.await) }
    });
    answers.buffer_unordered(AT_ONCE).collect().await
}

/// What an answer says about the group.
fn read(cell: &GroupCell, answer: &HttpAnswer, before: &str, later: &Later) -> GroupAnswer {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let role = |entry: &Value| match entry["plugin"].as_str() {
        Some(plugin) if plugin == cell.case.plugin() => Some("step"),
        Some(plugin) if plugin == cell.neighbour.plugin() => Some("neighbour"),
        _ => None,
    };
    let list = |name: &str, [first, second]: [&str; 2]| {
        let entries = answer.body[name].as_array().into_iter().flatten();
        let of_group = entries.filter_map(|entry| Some((role(entry)?, entry)));
        of_group.map(|(role, entry)| [role.to_owned(), text(&entry[first]), text(&entry[second])]).collect()
    };
    let payload = payload_text(answer);
    assert!(payload.is_none_or(|payload| payload == before), "{cell:?}: {answer:?}");
    let (called, baseline) =
        (later.payload(&cell.tenant(), cell.point), later.payload("baseline", cell.point));
    assert!(called.is_none() || called == baseline, "{cell:?}: {called:?}");
    let code = [&answer.body["block"]["code"], &answer.body["code"]].map(text);
    GroupAnswer {
        status: answer.status,
        decision: answer.header("hookgate-decision").map(str::to_owned),
        code: code.into_iter().find(|code| !code.is_empty()),
        steps: list("steps", ["outcome", "reason"]),
        notices: list("notices", ["kind", "code"]),
        payload: payload.is_some(),
        later: called.is_some(),
    }
}

/// An answer in a table.
impl fmt::Display for GroupAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.as_ref().map(|code| format!(" `{code}`")).unwrap_or_default();
        write!(f, "{} {}{code}:", self.status, self.decision.as_deref().unwrap_or("no decision"))?;
        for (number, [_, outcome, reason]) in self.steps.iter().enumerate() {
            let reason = if reason.is_empty() { String::new() } else { format!(" `{reason}`") };
            write!(f, "{} `{outcome}`{reason}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

const HEAD: &str = "
## Groups

READ neighbours run at the same time ([protocol.md](protocol.md#order)), and the answer is as if they had run in order. Here the plugin is the
first or the second of a group of two. Its neighbour's binding has `enforce` and `fail`. Every row was observed at all four extension points over
TCP. After the answer come the reported steps of the group. Notices were in order, errors have none, and the payload was as before the group. A
plugin without an offer at the point runs alone, so `not_ready` and `point_not_offered` are missing.
";

/// The observed cells as tables.
pub(super) fn tables(rows: &[GroupRow]) -> String {
    let mut seen: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (cell, answer) in rows {
        let key = (cell.kind.name, cell.case.what(), cell.neighbour, cell.place);
        seen.entry(key).or_default().insert(answer.to_string());
    }
    let mut text = HEAD.to_owned();
    for kind in KINDS.into_iter().filter(|kind| kind.mode != Mode::Observe) {
        let title = kind.name.replace('-', ", on_error: ");
        write!(text, "\n### In a group, mode: {title}\n\n| the plugin | its neighbour | it is first | it is second |\n|---|---|---|---|\n")
            .expect("a string takes everything");
        for (case, neighbour) in cases()
            .flat_map(|case| [Neighbour::Continues, Neighbour::Cancels].map(|neighbour| (case, neighbour)))
        {
            let answers = [Place::First, Place::Second].map(|place| {
                let seen = &seen[&(kind.name, case.what(), neighbour, place)];
                let [only] = Vec::from_iter(seen)[..] else {
                    panic!("{}, {}: {seen:?}", kind.name, case.what())
                };
                only.clone()
            });
            writeln!(text, "| {} | {} | {} |", case.what(), neighbour.what(), answers.join(" | "))
                .expect("a string takes everything");
        }
    }
    text
}
