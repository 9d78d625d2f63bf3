//! `hookgate plugin`: runs the reference plugins, each as a process of its own, tries plugins out, and writes those of a
//! registry, which is [`registry::plugin`]'s.

use clap::{Subcommand, ValueEnum};

use hookgate_audit_log::AuditLog;
use hookgate_sdk::{Plugin, ServeError};
use hookgate_tenant_auth::TenantAuth;

use crate::{Exit, process_ops, registry};
use hookgate::telemetry;

mod render;
pub(super) mod test;

#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Serves a reference plugin until SIGTERM or Ctrl-C.
    ///
    /// It takes its configuration from the gateway that calls it: `plugins[].config` and the tenants' `config` of the
    /// gateway's file. If OTEL_EXPORTER_OTLP_ENDPOINT is set, spans and log lines are exported to that collector;
    /// OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf (the default) or grpc.
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
    /// Lists the plugins that a gateway has, and how they are.
    #[command(after_help = "Example: hookgate plugin list\n\n\
                            Exit codes: 0 listed, 1 no gateway answers, or it refuses, 2 wrong usage.")]
    List(Box<registry::plugin::ListPluginsArgs>),
    /// Shows one plugin: how it is, what it says of itself, and how it is written down.
    ///
    /// Of its config only references are shown.
    #[command(after_help = "Example: hookgate plugin show content-policy\n\n\
                            Exit codes: 0 shown, 1 there is no such plugin, or no gateway answers, 2 wrong usage.")]
    Show(Box<registry::ShowArgs>),
    /// Adds a plugin to the registry, shows what it says of itself and wants, and asks whether it may.
    ///
    /// The gateway connects to it, not this command. Before it is approved of it is sent nothing, its configuration
    /// neither; no call passes it before a binding names it. A built-in plugin needs no approval.
    #[command(
        after_help = "Example: hookgate plugin add guard --endpoint unix:///run/plugins/guard.sock --version '>=1.2, <2'\n\n\
                            Exit codes: 0 added and ready, 1 refused, or it was added and isn't ready: it waits for \
                            approval, too, where you said no or nobody could be asked, 2 wrong usage, or what would \
                            come of it is wrong."
    )]
    Add(Box<registry::plugin::Add>),
    /// Lets a plugin do what it wants, once it was shown: a new one, or one that wants something else than before.
    ///
    /// What was approved of before is replaced. Endpoints that describe themselves otherwise get no calls from then on.
    #[command(after_help = "Example: hookgate plugin approve guard --reason 'reviewed 2.0.0'\n\n\
                            Exit codes: 0 approved of and ready, or nothing waits for it, 1 it isn't ready, it wants \
                            something else by now, refused, or you said no, 2 wrong usage, or nobody can be asked.")]
    Approve(Box<registry::approve::Approve>),
    /// Changes what is named of a plugin, or creates it without waiting for it.
    #[command(
        after_help = "Example: hookgate plugin set guard --config @guard.yaml --reason 'a longer list'\n\n\
                            Exit codes: 0 written, or it was so already, 1 refused, or it has another version by now, 2 \
                            wrong usage, or what would come of it is wrong."
    )]
    Set(Box<registry::plugin::SetPluginArgs>),
    /// Has a plugin dialled and its bindings stand in plans again.
    #[command(after_help = "Example: hookgate plugin enable guard\n\n\
                            Exit codes: 0 written, or it was so already, 1 there is no such plugin, or refused, 2 wrong \
                            usage, or what would come of it is wrong.")]
    Enable(Box<registry::SwitchArgs>),
    /// Takes a plugin and its bindings out of all plans, and keeps them.
    #[command(after_help = "Example: hookgate plugin disable guard --reason 'it answers too late'\n\n\
                            Exit codes: 0 written, or it was so already, 1 there is no such plugin, or refused, 2 wrong \
                            usage, or what would come of it is wrong.")]
    Disable(Box<registry::SwitchArgs>),
    /// Removes a plugin that no binding names, or with --force the bindings too.
    #[command(after_help = "Example: hookgate plugin remove guard --force --dry-run\n\n\
                            Exit codes: 0 removed, 1 there is no such plugin, bindings name it, or it may not go, 2 \
                            wrong usage, or what would be left is wrong.")]
    Remove(Box<registry::plugin::PluginRemoveArgs>),
    #[command(flatten)]
    Registered(process_ops::ProcessCommand),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Name {
    /// Which tools a tenant may use, by its `allowed_tools` and `blocked_tools`; at before_tool_call.
    TenantAuth,
    /// Writes who did what and what came of it as JSON lines to `path`, or to standard output; at all four points.
    AuditLog,
}

pub(super) async fn run(command: PluginCommand) -> Exit {
    let (name, listen) = match command {
        PluginCommand::Run { name, listen } => (name, listen),
        PluginCommand::Test(test) => return test::run(&test).await,
        PluginCommand::List(list) => return registry::plugin::list(*list).await,
        PluginCommand::Show(show) => return registry::plugin::show(*show).await,
        PluginCommand::Add(add) => return registry::plugin::add(*add).await,
        PluginCommand::Approve(approve) => return registry::approve::approve(*approve).await,
        PluginCommand::Set(set) => return registry::plugin::set(*set).await,
        PluginCommand::Enable(switch) => return registry::plugin::switch(*switch, true).await,
        PluginCommand::Disable(switch) => return registry::plugin::switch(*switch, false).await,
        PluginCommand::Remove(remove) => return registry::plugin::remove(*remove).await,
        PluginCommand::Registered(command) => return process_ops::run(command).await,
    };
    match name {
        Name::TenantAuth => serve::<TenantAuth>(&listen).await,
        Name::AuditLog => serve::<AuditLog>(&listen).await,
    }
}

/// Serves a reference plugin, and exports its spans and log lines as OpenTelemetry's variables say.
async fn serve<P: Plugin>(listen: &str) -> Exit {
    let _telemetry = match telemetry::start_plugin_log::<P>() {
        Ok(telemetry) => telemetry,
        Err(error) => return Exit::usage(error.to_string()),
    };
    match hookgate_sdk::serve::<P>(listen).await {
        Ok(()) => Exit::ok(),
        Err(error @ ServeError::Address(_)) => Exit::usage(error.to_string()),
        Err(error @ ServeError::Listen { .. }) => Exit::failure(format!(
            "{error}; give a port that is free, or a socket in a folder that is yours to write"
        )),
        Err(error) => Exit::failure(error.to_string()),
    }
}
