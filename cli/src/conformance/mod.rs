//! `hookgate conformance`: checks a plugin in any language against docs/protocol.md, over the wire and with the gateway's own
//! client. A broken rule fails its own check: the plugin gets a new connection before the next one.

use std::time::{Duration, Instant};

use clap::Args;
use futures::FutureExt as _;
use uuid::Uuid;

use crate::{
    Exit, client,
    conformance::{
        check::{
            Check, CheckResult,
            CheckStage::{Accepted, Answering, Described, Initialized, Start, Usable},
            Fault, Halt, Outcome,
            section::{CALLS, DIGESTS, HEALTH, HOOKS, LIMITS, MANIFEST, PLUGIN, REPLIES, TOOLS, WINDOWS},
        },
        process::CommandProcess,
        report::ReportFormat,
        session::Session,
    },
    output,
    plugin::target::{self, PluginArgs, TlsArgs},
    signals,
};
use hookgate::{config::Span, upstream::PluginTrial};

mod calls;
mod check;
mod digests;
mod handshake;
mod hooks;
mod lifecycle;
mod payloads;
mod process;
mod report;
mod sample;
mod session;
mod tools;
mod windows;

/// A check ends after this many timeouts of a call. None makes as many calls one after another, each of which has its
/// own timeout.
const MAX_TIMEOUTS_OF_CHECK: u32 = 256;
/// A check may take this long, however short the timeout of a call is.
const MIN_CHECK_LIMIT: Duration = Duration::from_secs(600);
/// How long the plugin may take to end when the checks are over.
const MAX_END: Duration = Duration::from_secs(10);

/// The plugin, and how to start it.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    #[command(flatten)]
    plugin: PluginArgs,
    /// Timeout of an ordinary call; 1ms to 60s.
    #[arg(long, default_value = "5s", value_parser = client::patience)]
    timeout: Span,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: ReportFormat,
    /// Starts the plugin, which must not be running yet. Without a command, the checks of a restart are skipped.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The checks, in order. The first ones lead to the stages that the others need.
const CHECKS: &[Check] = &[
    Check::new("describe", PLUGIN, Start, |session| handshake::describe(session).boxed()),
    Check::new("manifest", MANIFEST, Described, |session| handshake::manifest(session).boxed()),
    Check::new("initialize", PLUGIN, Accepted, |session| handshake::initialize(session).boxed()),
    Check::new("call", REPLIES, Initialized, |session| calls::call(session).boxed()),
    Check::new("hooks", HOOKS, Initialized, |session| hooks::hooks(session).boxed()),
    Check::new("tools", TOOLS, Initialized, |session| tools::tools(session).boxed()),
    Check::new("unknown-digest", DIGESTS, Initialized, |session| digests::unknown(session).boxed()),
    Check::new("other-points", CALLS, Initialized, |session| calls::other_points(session).boxed()),
    Check::new("unknown-fields", CALLS, Answering, |session| calls::unknown_fields(session).boxed()),
    Check::new("connections", CALLS, Answering, |session| calls::connections(session).boxed()),
    Check::new("initialize-again", DIGESTS, Usable, |session| digests::again(session).boxed()),
    Check::new("several-digests", DIGESTS, Usable, |session| digests::several(session).boxed()),
    Check::new("release", DIGESTS, Usable, |session| digests::released(session).boxed()),
    Check::new("parallel-calls", CALLS, Answering, |session| calls::parallel(session).boxed()),
    Check::new("cancelled-calls", CALLS, Answering, |session| calls::cancelled(session).boxed()),
    Check::new("expired-calls", CALLS, Answering, |session| calls::expired(session).boxed()),
    Check::new("payload-empty", CALLS, Answering, |session| payloads::empty(session).boxed()),
    Check::new("payload-nested", CALLS, Answering, |session| payloads::nested(session).boxed()),
    Check::new("payload-unicode", CALLS, Answering, |session| payloads::unicode(session).boxed()),
    Check::new("payload-numbers", CALLS, Answering, |session| payloads::numbers(session).boxed()),
    Check::new("payload-large", LIMITS, Answering, |session| payloads::large(session).boxed()),
    Check::new("windows", WINDOWS, Usable, |session| windows::windows(session).boxed()),
    Check::new("health", HEALTH, Initialized, |session| lifecycle::health(session).boxed()),
    Check::new("shutdown", PLUGIN, Usable, |session| lifecycle::shutdown(session).boxed()),
    Check::new("stop", CALLS, Described, |session| lifecycle::stop(session).boxed()),
    Check::new("restart", DIGESTS, Usable, |session| lifecycle::restart(session).boxed()),
];

pub(crate) async fn run(asked: Conformance) -> Exit {
    let Conformance { plugin, timeout, output, tls, command } = asked;
    let entry = plugin.entry(&tls, timeout);
    let (entry, tenant_config) = match entry.and_then(|entry| Ok((entry, plugin.tenant_config()?))) {
        Ok(given) => given,
        Err(wrong) => return Exit::usage(wrong),
    };
    let host = match plugin.start_host(&entry).await {
        Ok(host) => host,
        Err(exit) => return exit,
    };
    let instance = format!("hookgate-conformance-{}", Uuid::now_v7());
    let shared = target::shared_resources(&instance, sample::limits(), host.as_ref());
    let name = entry.name.clone();
    let exit = match PluginTrial::new(entry, shared) {
        Ok(trial) => {
            let process = (!command.is_empty()).then(|| CommandProcess::new(command));
            let session = Session::new(trial, process, tenant_config, timeout.0);
            report_on(session, output, &plugin.endpoint).await
        }
        Err(error) => Exit::usage(target::without_name(&error, &name)),
    };
    if let Some(host) = host {
        host.close().await;
    }
    exit
}

/// Makes the checks, ends the session, and prints the results.
async fn report_on(mut session: Session, output: ReportFormat, endpoint: &str) -> Exit {
    let results = tokio::select! {
        results = check_all(&mut session, output) => Some(results),
        () = signals::terminated() => None,
    };
    end(&mut session).await;
    match results {
        Some(Ok(results)) => report::finish(output, endpoint, session.described.as_ref(), &results),
        Some(Err(wrong)) => Exit::usage(session.shown(&wrong)),
        None => Exit::failure("interrupted"),
    }
}

/// Leaves the plugin as it was found.
async fn end(session: &mut Session) {
    if let (Some(connection), Some(request)) = (&session.connection, &session.initialize) {
        for instance in
            [request, &digests::of_other_gateway(request)].map(|request| &request.gateway_instance_id)
        {
            // Courtesy: the check of Shutdown has its own.
            let _ = session.shut_down(connection, instance).await;
        }
    }
    if let Some(process) = &mut session.process {
        // If it can't be stopped, it is killed with the session.
        let _ = process.stop(MAX_END).await;
    }
}

/// Makes the checks.
///
/// # Errors
/// The command line is wrong.
async fn check_all(session: &mut Session, format: ReportFormat) -> Result<Vec<CheckResult>, String> {
    let (mut results, mut gone) = (Vec::new(), None);
    for check in CHECKS {
        let began = Instant::now();
        let verdict = match &gone {
            Some(gone) => Err(Halt::Skipped(String::clone(gone))),
            None => run_one(session, check).await,
        };
        let outcome = match verdict {
            Ok(()) => Outcome::Passed,
            Err(Halt::Skipped(reason)) => Outcome::Skipped(reason),
            Err(Halt::Usage(wrong)) => return Err(wrong),
            Err(Halt::Failed(fault)) => {
                // The next check starts afresh.
                session.connection = None;
                Outcome::Failed(Fault { got: session.shown(&fault.got), ..fault })
            }
        };
        let result = CheckResult { name: check.name, section: check.section, outcome, took: began.elapsed() };
        if format == ReportFormat::Text {
            output::show(&report::line(&result), Exit::ok());
        }
        let must_recover = session.described.is_some() && check.name != "stop" && gone.is_none();
        results.push(result);
        if must_recover && let Err(why) = session.recover().await {
            gone =
                Some(format!("the plugin can't be reached since `{}`: {}", check.name, session.shown(&why)));
        }
    }
    Ok(results)
}

/// Makes a check, unless an earlier one that it needs failed.
async fn run_one(session: &mut Session, check: &Check) -> Result<(), Halt> {
    let stage = session.stage();
    if stage < check.needs {
        let only_tools = session.has_only_tools();
        if stage >= Initialized && check.needs == Answering && only_tools {
            return Err(Halt::Skipped("the plugin offers no points or hooks, only tools".into()));
        }
        let missing = [Described, Accepted, Initialized, Usable].into_iter().find(|needed| *needed > stage);
        let missing = missing.map_or("", |stage| stage.check(session.has_no_points(), only_tools));
        return Err(Halt::Skipped(format!("needs `{missing}`")));
    }
    let limit = MIN_CHECK_LIMIT.max(session.timeout * MAX_TIMEOUTS_OF_CHECK);
    tokio::time::timeout(limit, (check.run)(session)).await.unwrap_or_else(|_| {
        let got = format!("no end of the check within {limit:?}");
        Err(Fault::new("an answer to each call in time", got, "see the plugin's log, and answer faster")
            .into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::check::section;

    #[test]
    fn every_check_has_a_name_of_its_own_and_cites_a_section_of_the_protocol() {
        let page = include_str!("../../../docs/protocol.md");
        let heading = |line: &str| {
            let text = line.trim_start_matches('#').trim().to_lowercase();
            text.replace(' ', "-").replace(|c: char| !c.is_alphanumeric() && c != '-', "")
        };
        let anchors: Vec<_> = page.lines().filter(|line| line.starts_with("##")).map(heading).collect();
        for section in section::ALL {
            assert!(anchors.iter().any(|anchor| anchor == section), "{section} is not in {anchors:?}");
            assert!(CHECKS.iter().any(|check| check.section == section), "{section} is cited");
        }
        let mut names: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }
}
