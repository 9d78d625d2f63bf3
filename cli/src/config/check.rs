//! `hookgate config check`: everything that a start does before it listens.

use std::path::Path;

use serde::Serialize;

use super::{
    super::output::{self, Output, printable},
    Exit, unread,
};
use hookgate::{
    app::App,
    config::{self, Config, LoadedConfig, LocatedProblem, Problems},
    llm::allowed_names,
};

/// A mistake, for programs.
#[derive(Serialize)]
pub(super) struct MistakeView<'p> {
    /// From 1; null if the mistake isn't in the file.
    line: Option<usize>,
    /// From 1, in characters; null if the mistake isn't in the file.
    column: Option<usize>,
    /// The environment variable with the mistake; null if it is in the file.
    variable: Option<&'p str>,
    /// JSON pointer (RFC 6901) to the value.
    pointer: &'p str,
    message: &'p str,
    remedy: Option<&'p str>,
}

impl<'p> From<&'p LocatedProblem> for MistakeView<'p> {
    fn from(located: &'p LocatedProblem) -> Self {
        let (line, column) = located.position.unzip();
        let problem = &located.problem;
        let (pointer, message, remedy) = (&problem.pointer, &problem.message, problem.remedy.as_deref());
        MistakeView { line, column, variable: located.variable.as_deref(), pointer, message, remedy }
    }
}

pub(super) async fn run(file: &Path, output: Output) -> Exit {
    match (checked(file).await, output) {
        (Ok(loaded), Output::Table) => {
            let config = &loaded.config;
            note_hints(file, config);
            let unread = unread(config).map(|unread| format!("{unread}; use --connect to read it\n"));
            output::print(&(fine(file, config) + &unread.unwrap_or_default()), Exit::ok())
        }
        (Ok(loaded), _) => {
            note_hints(file, &loaded.config);
            mistakes(None, output, Exit::ok())
        }
        // In the words of a start.
        (Err(problems), Output::Table) => Exit::problems(&problems),
        (Err(problems), _) => mistakes(Some(&problems), output, Exit::already_reported(2)),
    }
}

/// A configuration that is valid as far as can be known without connecting.
async fn checked(file: &Path) -> Result<LoadedConfig, Problems> {
    let (loaded, app) = put_together(file)?;
    let found = Box::pin(app.ask_builtins()).await.problems;
    if found.is_empty() { Ok(loaded) } else { Err(loaded.render(&found)) }
}

pub(super) fn put_together(file: &Path) -> Result<(LoadedConfig, App), Problems> {
    let loaded = config::load(file, config::environment_variables())?;
    let app = App::dry_run(loaded.clone())?;
    Ok((loaded, app))
}

fn mistakes(problems: Option<&Problems>, output: Output, exit: Exit) -> Exit {
    let list: Vec<MistakeView<'_>> =
        problems.into_iter().flat_map(Problems::iter).map(MistakeView::from).collect();
    output::data(output, &list, String::new, exit)
}

/// Notes what is valid, but probably isn't what was meant.
pub(super) fn note_hints(file: &Path, config: &Config) {
    for hint in config.llm.iter().flat_map(|llm| allowed_names::hints(&llm.allow)) {
        output::note(&format!("{}: {}", printable(&file.display().to_string()), printable(&hint)));
    }
}

/// The summary of a valid file.
pub(super) fn fine(file: &Path, config: &Config) -> String {
    let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let (tenants, plugins) =
        (some(config.tenants.list.len(), "tenant"), some(config.plugins.len(), "plugin"));
    let bindings = some(config.bindings.len(), "binding");
    format!("{}: no mistakes: {tenants}, {plugins}, {bindings}\n", file.display())
}
