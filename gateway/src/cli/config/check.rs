//! `hookgate config check`: a start that ends before it begins.

use std::path::Path;

use serde::Serialize;

use super::{
    super::output::{self, Output},
    Exit,
};
use crate::{
    app::App,
    config::{Config, Located, Problems},
    telemetry::Telemetry,
};

/// A mistake, for programs.
#[derive(Serialize)]
pub(super) struct Mistake<'p> {
    /// From 1; null for what isn't in the file.
    line: Option<usize>,
    /// From 1, in characters; likewise.
    column: Option<usize>,
    /// The environment variable that it is in; null for what is in the file.
    variable: Option<&'p str>,
    /// JSON pointer (RFC 6901) to the value.
    pointer: &'p str,
    message: &'p str,
    remedy: Option<&'p str>,
}

impl<'p> From<&'p Located> for Mistake<'p> {
    fn from(located: &'p Located) -> Self {
        let (line, column) = located.position.unzip();
        let problem = &located.problem;
        let (pointer, message, remedy) = (&problem.pointer, &problem.message, problem.remedy.as_deref());
        Mistake { line, column, variable: located.variable.as_deref(), pointer, message, remedy }
    }
}

pub(super) fn run(file: &Path, output: Output) -> Exit {
    match (App::load(file, Telemetry::rehearse), output) {
        (Ok((app, _)), Output::Table) => output::print(&fine(file, app.config()), Exit::ok()),
        (Ok(_), _) => mistakes(None, output, Exit::ok()),
        // As a start says it.
        (Err(problems), Output::Table) => Exit::problems(&problems),
        (Err(problems), _) => mistakes(Some(&problems), output, Exit::told(2)),
    }
}

fn mistakes(problems: Option<&Problems>, output: Output, exit: Exit) -> Exit {
    let list: Vec<Mistake<'_>> = problems.into_iter().flat_map(Problems::iter).map(Mistake::from).collect();
    output::data(output, &list, String::new, exit)
}

/// What is said of a file without mistakes.
pub(super) fn fine(file: &Path, config: &Config) -> String {
    let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (tenants, plugins) =
        (some(config.tenants.list.len(), "tenant"), some(config.plugins.len(), "plugin"));
    let bindings = some(config.bindings.len(), "binding");
    format!("{}: no mistakes: {tenants}, {plugins}, {bindings}\n", file.display())
}
