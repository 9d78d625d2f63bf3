//! `hookgate config check --connect`: what a check can't know, asked of the plugins themselves.

use std::{path::Path, time::Duration};

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    super::output::{self, Output, columns, printable},
    Exit, check,
    check::Mistake,
};
use crate::{
    app::{Connected, Found, Place},
    config::Problems,
    point::Point,
    upstream::{Refusal, State, Why},
};

/// All that was found, for programs.
#[derive(Serialize)]
struct Report<'r> {
    mistakes: Vec<Mistake<'r>>,
    plugins: Vec<Row<'r>>,
}

impl<'r> Report<'r> {
    fn new(connected: Option<&'r Connected>, mistakes: Option<&'r Problems>) -> Self {
        let of_plugin = |found: &'r Found| found.places.iter().map(move |place| Row::new(found, place));
        Report {
            mistakes: mistakes.into_iter().flat_map(Problems::iter).map(Mistake::from).collect(),
            plugins: connected.into_iter().flat_map(|all| &all.plugins).flat_map(of_plugin).collect(),
        }
    }
}

/// One address of a plugin.
#[derive(Serialize)]
struct Row<'r> {
    plugin: &'r str,
    required: bool,
    address: &'r str,
    state: &'static str,
    reason: &'static str,
    /// Null where it wasn't described and accepted.
    version: Option<&'r str>,
    /// Those that the plugin offers.
    points: Vec<Point>,
    detail: &'r str,
    remedy: Option<&'static str>,
}

impl<'r> Row<'r> {
    fn new(found: &'r Found, place: &'r Place) -> Self {
        let manifest = found.manifest.as_deref().filter(|_| place.version.is_some());
        let offers = |point: &Point| manifest.is_some_and(|manifest| manifest.offers(*point).is_some());
        Row {
            plugin: &found.plugin,
            required: found.required,
            address: &place.address,
            state: place.why.state().as_str(),
            reason: place.why.as_str(),
            version: place.version.as_deref(),
            points: Point::ALL.into_iter().filter(offers).collect(),
            detail: &place.detail,
            remedy: place.why.remedy(),
        }
    }

    /// What is wrong, and what to do about it.
    fn sentence(&self) -> String {
        let what = if self.required { "required plugin" } else { "plugin" };
        let Row { plugin, address, state, reason, detail, .. } = self;
        let sentence = match *detail {
            "" => format!("{what} `{plugin}` at {address} is {state}: {reason}"),
            _ => format!("{what} `{plugin}` at {address} is {state}: {reason}: {detail}"),
        };
        printable(&self.remedy.map_or_else(|| sentence.clone(), |remedy| format!("{sentence}: {remedy}")))
    }
}

pub(super) async fn run(file: &Path, wait: Duration, output: Output) -> Exit {
    let (loaded, app) = match check::put_together(file) {
        Ok(read) => read,
        Err(problems) => return refused(&problems, output),
    };
    let connected = Box::pin(app.connect(enough(wait))).await;
    let mistakes = (!connected.problems.is_empty()).then(|| loaded.render(&connected.problems));
    let report = Report::new(Some(&connected), mistakes.as_ref());
    let code = code(&connected);
    if output != Output::Table {
        return output::data(output, &report, String::new, Exit::told(code));
    }
    let right = if mistakes.is_none() { check::fine(file, &loaded.config) } else { String::new() };
    // What it doesn't take of its config is said below, with the line.
    let refused = Refusal::ConfigRefused.as_str();
    let is_fine = |row: &&Row<'_>| {
        [State::Ready.as_str(), State::Disabled.as_str()].contains(&row.state) || row.reason == refused
    };
    let mut said: Vec<_> = report.plugins.iter().filter(|row| !is_fine(row)).map(Row::sentence).collect();
    said.extend(mistakes.as_ref().map(ToString::to_string));
    let exit = if said.is_empty() { Exit::ok() } else { Exit::listed(code, said.join("\n")) };
    output::print(&(right + &table(&report.plugins)), exit)
}

/// `wait` is over, or whoever asks wants no more: what is known is told then, and plugins that were told of us are told of
/// the end.
async fn enough(wait: Duration) {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut asked) => drop(asked.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}

/// Mistakes that keep it from calling anybody.
fn refused(problems: &Problems, output: Output) -> Exit {
    match output {
        Output::Table => Exit::problems(problems),
        _ => output::data(output, &Report::new(None, Some(problems)), String::new, Exit::told(2)),
    }
}

fn table(rows: &[Row<'_>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut lines = vec![["PLUGIN", "ADDRESS", "RESULT", "VERSION", "POINTS"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let points = row.points.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let result = if row.reason == Why::Serving.as_str() { row.state } else { row.reason };
        [row.plugin, row.address, result, row.version.unwrap_or_default(), &points].map(str::to_owned)
    }));
    columns(&lines)
}

/// As a start would end: 4 without a required plugin; 2 where the file says what plugins don't take, which a start only
/// logs; 1 where calls would do without a plugin, or without one of its addresses.
fn code(connected: &Connected) -> u8 {
    let plugins = &connected.plugins;
    let is_fine = |place: &Place| matches!(place.why, Why::Serving | Why::SwitchedOff);
    if plugins.iter().any(|found| found.required && !found.is_ready()) {
        4
    } else if !connected.problems.is_empty() {
        2
    } else if !plugins.iter().flat_map(|found| &found.places).all(is_fine) {
        1
    } else {
        0
    }
}
