//! Renders the explanation of the LLM proxy for a tenant.

use std::fmt::Write;

use super::{
    super::output::{columns, indented},
    table::{tenant, wrapped},
};
use hookgate::{
    core::{point::Point, step::Mode},
    invoke::explain::{LlmExplanation, PointReport, StepReport},
    llm::explain::{
        AllowSwitch, FormatReport, ModelReport, ProxyReport, RefusalReport, RefusalStatus, StreamWay,
    },
};

/// Renders the explanation that came from `source`, a file or a gateway.
pub(super) fn render(said: &LlmExplanation, source: &str) -> String {
    let revision = said.revision.map(|revision| format!(", revision {revision}")).unwrap_or_default();
    let mut rows = vec![
        ["from".to_owned(), format!("{source}{revision}")],
        ["tenant".to_owned(), tenant(&said.tenant)],
        ["surface".to_owned(), "llm".to_owned()],
    ];
    rows.extend(said.tenant.hint.iter().map(|hint| ["hint".to_owned(), hint.clone()]));
    let mut steps = said.points.iter().flat_map(|report| &report.steps);
    if !said.manifests_known && steps.any(|step| step.version.is_none()) {
        let open = "points of plugins that aren't built in are unknown";
        rows.push(["open".to_owned(), open.to_owned()]);
    }
    let head = columns(&rows);
    match &said.proxy {
        Some(proxy) => head + &points(said) + &streams(said, proxy) + &models(proxy) + &surface(proxy),
        None if said.tenant.code.is_none() => head + "\nThe configuration has no `llm`.\n",
        None => head,
    }
}

fn points(said: &LlmExplanation) -> String {
    let row = |report: &PointReport| {
        let power = match report {
            PointReport { lacks_steps: true, .. } => "refuses: STEPS_REQUIRED",
            PointReport { is_guarded: true, .. } => "may block or change",
            PointReport { steps, .. } if steps.is_empty() => "nobody is asked",
            PointReport { .. } => "observes",
        };
        [report.point.as_str().to_owned(), power.to_owned(), bindings(report)]
    };
    let rows: Vec<_> = said.points.iter().map(row).collect();
    format!("\nWHO IS ASKED\n{}", indented(2, &columns(&rows)))
}

/// Names the bindings at a point.
fn bindings(report: &PointReport) -> String {
    let step = |step: &StepReport| match step.mode {
        Mode::Observe => format!("{} (observes)", step.binding),
        Mode::Enforce | Mode::Advise => step.binding.clone(),
    };
    let bypassed = report.bypassed.iter().map(|binding| format!("{binding} (bypassed)"));
    report.steps.iter().map(step).chain(bypassed).collect::<Vec<_>>().join(", ")
}

fn streams(said: &LlmExplanation, proxy: &ProxyReport) -> String {
    let way = |report: &FormatReport| match report.streams {
        StreamWay::Pass => "pass: nobody is asked about answers".to_owned(),
        StreamWay::Never => "never streamed".to_owned(),
        StreamWay::Text => {
            format!("text as it comes, the rest held for {}", names(&report.held_for, " and "))
        }
        StreamWay::Windows => format!("in windows, the rest held for {}", names(&report.held_for, " and ")),
        StreamWay::Whole => format!("whole: held for {}", names(&report.held_for, " and ")),
    };
    let rows: Vec<_> = proxy.formats.iter().map(|format| [format.path.clone(), way(format)]).collect();
    let mut text = format!("\nSTREAMED ANSWERS\n{}", indented(2, &columns(&rows)));
    let held_for = proxy.formats.iter().flat_map(|format| &format.held_for);
    let held: Vec<_> = held_for.collect();
    for report in said.points.iter().filter(|report| held.contains(&&report.point)) {
        let by = match bindings(report) {
            by if by.is_empty() => "`require_steps`".to_owned(),
            by => by,
        };
        text.push_str(&wrapped("  - ", &format!("held for {} by {by}", report.point.as_str())));
    }
    text
}

fn models(proxy: &ProxyReport) -> String {
    let row = |model: &ModelReport| {
        [
            model.name.clone(),
            model.api.as_str().to_owned(),
            model.upstream.clone(),
            model.upstream_model.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let titles = ["MODEL", "API", "UPSTREAM", "AS"].map(str::to_owned);
    let rows: Vec<_> = [titles].into_iter().chain(proxy.models.iter().map(row)).collect();
    let mut text = match proxy.models.is_empty() {
        true => "\nThe tenant may use no model.\n".to_owned(),
        false => format!("\n{}", columns(&rows)),
    };
    if let Some(limit) = &proxy.limited_to {
        let limit = if limit.is_empty() { "[]".to_owned() } else { limit.join(", ") };
        text.push_str(&wrapped("", &format!("The tenant's `llm.models` allows only: {limit}")));
    }
    text
}

fn surface(proxy: &ProxyReport) -> String {
    let allow = match proxy.allow.is_empty() {
        true => "`llm.allow` has no entry".to_owned(),
        false => format!("`llm.allow` has {}", proxy.allow.join(", ")),
    };
    let mut text = format!("\n{}", wrapped("", &format!("{allow}. It is for all tenants.")));
    text.push_str(&refusals("IN ALL FORMATS", &proxy.refused));
    for (index, format) in proxy.formats.iter().enumerate() {
        // The endpoints of Messages refuse the same.
        let is_same = |other: &&FormatReport| other.refused == format.refused;
        match proxy.formats[..index].iter().find(is_same) {
            Some(same) => {
                let _ = writeln!(text, "\nREFUSED BY DEFAULT AT {}: as at {}", format.path, same.path);
            }
            None => text.push_str(&refusals(&format!("AT {}", format.path), &format.refused)),
        }
    }
    text
}

/// The rows of a table, under their reasons.
fn refusals(place: &str, refused: &[RefusalReport]) -> String {
    let mut text = format!("\nREFUSED BY DEFAULT {place}\n");
    let reason = |row: &RefusalReport| (row.points.clone(), row.why.clone());
    for group in grouped(refused.iter(), reason) {
        let RefusalReport { points, why, .. } = group[0];
        let who = match points.is_empty() {
            true => "for every tenant".to_owned(),
            false => format!("while a step at {} may block or change", names(points, " or ")),
        };
        text.push_str(&wrapped("  ", &format!("{why} ({who})")));
        for rows in grouped(group.into_iter(), |row| row.status) {
            let status = match rows[0].status {
                RefusalStatus::Refused => "refused",
                RefusalStatus::Allowed => "allowed",
                RefusalStatus::Passes => "passes ",
            };
            let rows: Vec<_> = rows.into_iter().map(row).collect();
            text.push_str(&wrapped(&format!("    {status}  "), &rows.join("; ")));
        }
    }
    text
}

/// The rows in groups with the same key, in the order of their first rows.
fn grouped<'r, K: PartialEq>(
    rows: impl Iterator<Item = &'r RefusalReport>,
    key: impl Fn(&RefusalReport) -> K,
) -> Vec<Vec<&'r RefusalReport>> {
    let mut groups: Vec<Vec<&RefusalReport>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// What is refused, with what opens it, unless that is the same name.
fn row(refused: &RefusalReport) -> String {
    let RefusalReport { what, opened_by, .. } = refused;
    match opened_by {
        AllowSwitch::Entry(entry) if *what == format!("`{entry}`") => what.clone(),
        AllowSwitch::Entry(entry) => format!("{what} (allow: {entry})"),
        AllowSwitch::ItsName => format!("{what} (allow: its name)"),
        AllowSwitch::Nothing => format!("{what} (nothing allows it)"),
    }
}

fn names(points: &[Point], last: &str) -> String {
    points.iter().map(|point| point.as_str()).collect::<Vec<_>>().join(last)
}
