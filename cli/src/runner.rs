//! `hookgate runner`: serves programs that speak JSON lines as plugins.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{Exit, plugin::run::RegistrationArgs};

#[derive(Debug, Subcommand)]
pub(super) enum RunnerCommand {
    /// Runs programs as plugins until SIGTERM or Ctrl-C.
    ///
    /// A program reads each call as a line of JSON from standard input, and writes its reply as a line to standard output.
    /// The file lists the plugins, each with its command, points, hooks and limits, or with the folder of a plugin of LibreFang
    /// or kaged. Linux only.
    #[command(
        after_help = "Example: hookgate runner stdio runner.yaml --listen unix:///run/plugins/runner.sock\n\n\
                      Exit codes: 0 ended by a signal, 1 it can't listen there, 2 the file or the usage is wrong."
    )]
    Stdio(Box<StdioArgs>),
}

/// The programs, and where they are served.
#[derive(Debug, Args)]
pub(super) struct StdioArgs {
    /// The runner's file, in YAML.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Address to listen on: `unix:///path`, or `http://host:port` with `sandbox: false`.
    ///
    /// A stale socket file is replaced; a new one has mode 0660.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    #[command(flatten)]
    registration: RegistrationArgs,
}

#[cfg(not(target_os = "linux"))]
pub(super) async fn run(_: RunnerCommand) -> Exit {
    Exit::failure(
        "the runner needs Linux: it limits programs and ends them with what Linux has for that".to_owned(),
    )
}

#[cfg(target_os = "linux")]
pub(super) async fn run(command: RunnerCommand) -> Exit {
    let RunnerCommand::Stdio(args) = command;
    stdio(*args).await
}

/// Becomes a program, or a plugin's storage, if the runner started this process for that. Before the command line is
/// parsed and a runtime starts, because a program may be started for each call.
#[cfg(target_os = "linux")]
pub fn become_program() -> Option<Exit> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != hookgate_runner::LAUNCH {
        return None;
    }
    let spec = arguments.next().unwrap_or_default();
    let launched = hookgate_runner::launch(&spec.to_string_lossy());
    Some(launched.map_or_else(|error| Exit::failure(error.to_string()), |()| Exit::ok()))
}

#[cfg(target_os = "linux")]
async fn stdio(args: StdioArgs) -> Exit {
    use hookgate::telemetry;
    use hookgate_runner::{RunError, Runner, RunnerFile};

    use crate::plugin::run::unserved;

    /// `service.name` of a runner. OTEL_SERVICE_NAME overrides it.
    const SERVICE: &str = "hookgate-runner";

    let StdioArgs { file, listen, registration } = args;
    let file = match RunnerFile::read(&file) {
        Ok(file) => file,
        Err(error) => return Exit::usage(error.to_string()),
    };
    let _telemetry = match telemetry::start_plugin_log(SERVICE, env!("CARGO_PKG_VERSION")) {
        Ok(telemetry) => telemetry,
        Err(error) => return Exit::usage(error.to_string()),
    };
    let unused = |error: RunError| match error {
        RunError::Serve(error) => unserved(error),
        RunError::DataDir { .. } | RunError::Address(_) => Exit::usage(error.to_string()),
        error => Exit::failure(error.to_string()),
    };
    let runner = match Runner::new(file) {
        Ok(runner) => runner,
        Err(error) => return unused(error),
    };
    let stop = match hookgate_sdk::stop_signal() {
        Ok(stop) => stop,
        Err(error) => return unserved(error),
    };
    match runner.run(&listen, registration.into_registration(), stop).await {
        Ok(()) => Exit::ok(),
        Err(error) => unused(error),
    }
}
