//! `hookgate config check --connect`: connects to the plugins and the store, for checks that the file alone doesn't
//! allow.

use std::{path::Path, time::Duration};

use hookgate_proto::HookName;
use serde::Serialize;

use super::{
    super::output::{self, Output, columns, printable},
    Exit, check,
    check::MistakeView,
};
use crate::signals;
use hookgate::{
    app::{App, ConnectReport, EndpointReport, PluginReport, StartDryRun, StoreReport},
    config::{self, Config, Problems},
    core::point::Point,
    store::Tables,
    upstream::{DialErrorKind, Refusal, State, Why},
};

/// The report for programs.
#[derive(Serialize)]
struct ConnectCheckOutput<'r> {
    mistakes: Vec<MistakeView<'r>>,
    /// Null if the file names no store, or it was not read.
    store: Option<StoreRow<'r>>,
    plugins: Vec<EndpointRow<'r>>,
}

impl<'r> ConnectCheckOutput<'r> {
    fn new(
        connected: Option<&'r ConnectReport>,
        store: Option<StoreRow<'r>>,
        mistakes: Option<&'r Problems>,
    ) -> Self {
        let of_plugin = |found: &'r PluginReport| {
            let self_registered = found.places.is_empty().then(|| EndpointRow::self_registered(found));
            found.places.iter().map(move |place| EndpointRow::new(found, place)).chain(self_registered)
        };
        ConnectCheckOutput {
            mistakes: mistakes.into_iter().flat_map(Problems::iter).map(MistakeView::from).collect(),
            store,
            plugins: connected.into_iter().flat_map(|all| &all.plugins).flat_map(of_plugin).collect(),
        }
    }
}

/// The store's state.
#[derive(Serialize)]
struct StoreRow<'r> {
    /// Without user, password and parameters.
    url: String,
    /// Why the store can't be reached; if null, the fields below are set.
    unreachable: Option<&'r str>,
    revision: Option<u64>,
    tables: Option<Tables>,
    /// How many objects the API owns.
    of_api: Option<usize>,
    /// How many objects of the file a start would write there.
    to_write: Option<usize>,
    #[serde(skip)]
    applies: bool,
}

impl<'r> StoreRow<'r> {
    fn new(config: &Config, stored: &'r StoreReport) -> Option<Self> {
        let settings = config.store.as_ref()?;
        let store = StoreRow {
            url: settings.url.display(),
            unreachable: None,
            revision: None,
            tables: None,
            of_api: None,
            to_write: None,
            applies: settings.apply_file,
        };
        Some(match stored {
            StoreReport::None => return None,
            StoreReport::Unreachable(why) => StoreRow { unreachable: Some(why), ..store },
            StoreReport::Read { revision, tables, of_api, to_write } => StoreRow {
                revision: Some(*revision),
                tables: Some(*tables),
                of_api: Some(*of_api),
                to_write: Some(*to_write),
                ..store
            },
        })
    }

    /// What a start would do with the store; empty if it can't be reached.
    fn line(&self) -> String {
        let (Some(revision), Some(tables), Some(of_api), Some(to_write)) =
            (self.revision, self.tables, self.of_api, self.to_write)
        else {
            return String::new();
        };
        let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let tables = match tables {
            Tables::Absent => "; a start creates its tables",
            Tables::Older => "; a start migrates its tables to this version",
            Tables::Newer => "; its tables are of a later version, which is compatible",
            Tables::Current => "",
        };
        let writes = match to_write {
            _ if !self.applies => "; the file's objects are ignored (`store.apply_file: false`)".to_owned(),
            0 => "; a start writes nothing".to_owned(),
            n => format!("; a start writes {} from the file", some(n, "object")),
        };
        let of_api = some(of_api, "object");
        format!("registry at {}: revision {revision}, {of_api} owned by the API{tables}{writes}\n", self.url)
    }

    /// Why the store can't be reached, and what a start would do.
    fn sentence(&self) -> Option<String> {
        let why = self.unreachable?;
        Some(printable(&format!(
            "the store can't be reached: {why}; a start would use the last good table (`store.last_good`), or wait"
        )))
    }
}

/// One address of a plugin.
#[derive(Serialize)]
struct EndpointRow<'r> {
    plugin: &'r str,
    required: bool,
    address: &'r str,
    state: &'static str,
    reason: &'static str,
    /// Null if the plugin's manifest was not accepted.
    version: Option<&'r str>,
    /// The points that the plugin offers.
    points: Vec<Point>,
    /// The hooks that it offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<&'r HookName>,
    /// The names of its tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<&'r str>,
    detail: &'r str,
    remedy: Option<&'static str>,
    #[serde(skip)]
    holds_readiness: bool,
}

impl<'r> EndpointRow<'r> {
    fn new(found: &'r PluginReport, place: &'r EndpointReport) -> Self {
        let manifest = found.manifest.as_deref().filter(|_| place.version.is_some());
        let tools = manifest.and_then(|manifest| manifest.tools.as_deref()).into_iter().flatten();
        let offers = |point: &Point| manifest.is_some_and(|manifest| manifest.offers(*point).is_some());
        EndpointRow {
            plugin: &found.plugin,
            required: found.required,
            address: &place.address,
            state: place.why.state().as_str(),
            reason: place.why.as_str(),
            version: place.version.as_deref(),
            points: Point::ALL.into_iter().filter(offers).collect(),
            hooks: manifest.into_iter().flat_map(|manifest| manifest.hooks.keys()).collect(),
            tools: tools.map(|tool| &*tool.name).collect(),
            detail: &place.detail,
            remedy: place.why.remedy(found.owner),
            holds_readiness: found.holds_readiness,
        }
    }

    /// A plugin whose processes register their endpoints. They do that with gateways that run, so nothing is wrong.
    fn self_registered(found: &'r PluginReport) -> Self {
        let why = Why::Unreachable(DialErrorKind::NotRegistered);
        EndpointRow {
            plugin: &found.plugin,
            required: found.required,
            address: "self-registered",
            state: why.state().as_str(),
            reason: why.as_str(),
            version: None,
            points: Vec::new(),
            hooks: Vec::new(),
            tools: Vec::new(),
            detail: "its processes register with running gateways only",
            remedy: None,
            holds_readiness: false,
        }
    }

    /// The problem and the remedy.
    fn sentence(&self) -> String {
        let what = if self.required { "required plugin" } else { "plugin" };
        let EndpointRow { plugin, address, state, reason, detail, .. } = self;
        let mut sentence = format!("{what} `{plugin}` at {address} is {state}: {reason}");
        if !detail.is_empty() {
            sentence = format!("{sentence}: {detail}");
        }
        if self.holds_readiness {
            sentence += "; a gateway is not ready without it";
        }
        printable(&self.remedy.map_or_else(|| sentence.clone(), |remedy| format!("{sentence}: {remedy}")))
    }
}

pub(super) async fn run(file: &Path, wait: Duration, output: Output) -> Exit {
    let read = async { App::dry_run_with_store(config::load(file, config::environment_variables())?).await };
    let StartDryRun { app, loaded, of_file, stored } = match Box::pin(read).await {
        Ok(dry_run) => dry_run,
        Err(problems) => return problems_exit(&problems, output),
    };
    check::note_hints(file, &of_file);
    let connected = Box::pin(app.connect(enough(wait))).await;
    let mistakes = (!connected.problems.is_empty()).then(|| loaded.render(&connected.problems));
    let store = StoreRow::new(&loaded.config, &stored);
    let code = code(&connected, &stored);
    let (line, unreachable) =
        store.as_ref().map_or_else(Default::default, |store| (store.line(), store.sentence()));
    let report = ConnectCheckOutput::new(Some(&connected), store, mistakes.as_ref());
    if output != Output::Table {
        return output::data(output, &report, String::new, Exit::already_reported(code));
    }
    let right = if mistakes.is_none() { check::fine(file, &of_file) } else { String::new() } + &line;
    // Mistakes in its config are reported below, with the line.
    let other_reasons =
        [Refusal::ConfigRefused.as_str(), Why::Unreachable(DialErrorKind::NotRegistered).as_str()];
    let is_fine = |row: &&EndpointRow<'_>| {
        [State::Ready.as_str(), State::Disabled.as_str()].contains(&row.state)
            || other_reasons.contains(&row.reason)
    };
    let mut said: Vec<_> =
        report.plugins.iter().filter(|row| !is_fine(row)).map(EndpointRow::sentence).collect();
    said.extend(unreachable);
    said.extend(mistakes.as_ref().map(ToString::to_string));
    let exit = if said.is_empty() { Exit::ok() } else { Exit::listed(code, said.join("\n")) };
    output::print(&(right + &table(&report.plugins)), exit)
}

/// Waits until `wait` is over or Ctrl-C. Then reports what is known, and sends Shutdown to the plugins that were
/// reached.
async fn enough(wait: Duration) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        () = signals::terminated() => {}
    }
}

/// Mistakes that prevent connecting.
fn problems_exit(problems: &Problems, output: Output) -> Exit {
    match output {
        Output::Table => Exit::problems(problems),
        _ => output::data(
            output,
            &ConnectCheckOutput::new(None, None, Some(problems)),
            String::new,
            Exit::already_reported(2),
        ),
    }
}

fn table(rows: &[EndpointRow<'_>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut lines = vec![["PLUGIN", "ADDRESS", "RESULT", "VERSION", "POINTS"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let points = row.points.iter().map(|point| point.as_str());
        let tools = match row.tools.len() {
            0 => None,
            1 => Some("1 tool".to_owned()),
            several => Some(format!("{several} tools")),
        };
        let sites = points.chain(row.hooks.iter().map(|hook| hook.as_str())).chain(tools.as_deref());
        let sites = sites.collect::<Vec<_>>().join(", ");
        let result = if row.reason == Why::Serving.as_str() { row.state } else { row.reason };
        [row.plugin, row.address, result, row.version.unwrap_or_default(), &sites].map(str::to_owned)
    }));
    columns(&lines)
}

/// The exit code of a start: 4 without a plugin that the file requires; 2 if a plugin rejects its config, which a
/// start only logs; 1 if it would serve without a plugin (not ready, if the registry requires it), one of its
/// addresses, or the store.
fn code(connected: &ConnectReport, stored: &StoreReport) -> u8 {
    let plugins = &connected.plugins;
    let is_fine = |place: &EndpointReport| matches!(place.why, Why::Serving | Why::Disabled);
    if plugins.iter().any(|found| found.required && !found.is_ready()) {
        4
    } else if !connected.problems.is_empty() {
        2
    } else if matches!(stored, StoreReport::Unreachable(_))
        || !plugins.iter().flat_map(|found| &found.places).all(is_fine)
    {
        1
    } else {
        0
    }
}
