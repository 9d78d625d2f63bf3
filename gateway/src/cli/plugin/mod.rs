//! `hookgate plugin`: runs the reference plugins, each as a process of its own, and tries plugins out; those of a running
//! gateway too.

use clap::{Subcommand, ValueEnum};

use hookgate_sdk::ServeError;

use super::{Exit, upkeep};
use crate::{config::Log, telemetry};

mod shown;
pub(super) mod test;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serves a reference plugin until SIGTERM or Ctrl-C.
    ///
    /// It takes its configuration from the gateway that calls it: `plugins[].config` and the tenants' `config` of the
    /// gateway's file.
    #[command(
        after_help = "Example: hookgate plugin run tenant-auth --listen unix:///run/plugins/tenant-auth.sock\n\n\
                      Exit codes: 0 ended by a signal, 1 it can't listen there, 2 wrong usage."
    )]
    Run {
        /// Which one.
        name: Name,
        /// Where: `unix:///path` or `http://host:port`.
        ///
        /// A socket file at which nobody listens is replaced; a new one has the mode 0660.
        #[arg(long, value_name = "ADDR")]
        listen: String,
    },
    /// Tries a plugin out without a gateway: shakes hands, makes one call, lets go.
    ///
    /// What a gateway checks is checked here, with the same code: manifest, configuration, reply, patch. Every
    /// capability that the plugin asks for is granted.
    #[command(
        after_help = "Example: hookgate plugin test unix:///run/plugins/tenant-auth.sock before_tool_call --tool \
                            fs.read --tenant-config '{\"allowed_tools\": [\"fs.*\"]}'\n\n\
                            Exit codes: 0 the plugin continues, 1 the handshake or the call failed, 2 wrong usage, 3 \
                            it cancels."
    )]
    Test(Box<test::Test>),
    #[command(flatten)]
    Registered(upkeep::Command),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Name {
    /// Which tools a tenant may use, by its `allowed_tools` and `blocked_tools`; at before_tool_call.
    TenantAuth,
    /// Writes who did what and what came of it as JSON lines to `path`, or to standard output; at all four points.
    AuditLog,
}

pub(super) async fn run(command: Command) -> Exit {
    let (name, listen) = match command {
        Command::Run { name, listen } => (name, listen),
        Command::Test(test) => return test::run(&test).await,
        Command::Registered(command) => return upkeep::run(command).await,
    };
    telemetry::start_log(&Log::default());
    let served = match name {
        Name::TenantAuth => hookgate_tenant_auth::serve(&listen).await,
        Name::AuditLog => hookgate_audit_log::serve(&listen).await,
    };
    match served {
        Ok(()) => Exit::ok(),
        Err(error @ ServeError::Address(_)) => Exit::usage(error.to_string()),
        Err(error @ ServeError::Listen { .. }) => Exit::failure(format!(
            "{error}; give a port that is free, or a socket in a folder that is yours to write"
        )),
        Err(error) => Exit::failure(error.to_string()),
    }
}
