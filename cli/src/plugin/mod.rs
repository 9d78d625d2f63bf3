//! `hookgate plugin`: runs reference plugins as a process, tests plugins, and manages those of a registry (in
//! [`registry::plugin`]).

use clap::Subcommand;

use crate::{Exit, process_ops, registry};

mod render;
pub(super) mod run;
pub(super) mod target;
pub(super) mod test;

#[derive(Debug, Subcommand)]
pub(super) enum PluginCommand {
    /// Serves reference plugins until SIGTERM or Ctrl-C.
    ///
    /// A plugin takes its configuration from the gateway that calls it: `plugins[].config` and the tenants' `config` of the
    /// gateway's file. If OTEL_EXPORTER_OTLP_ENDPOINT is set, spans and log lines are exported to that collector;
    /// OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf (the default) or grpc.
    #[command(
        after_help = "Example: hookgate plugin run tenant-auth --listen unix:///run/plugins/tenant-auth.sock\n\n\
                      Exit codes: 0 ended by a signal, 1 it can't listen there, 2 invalid usage."
    )]
    Run(Box<run::Run>),
    /// Tests a plugin without a gateway: handshake, one call, shutdown.
    ///
    /// Runs the same checks as a gateway, with the same code: manifest, configuration, reply, patch. Every capability
    /// that the plugin requests is granted; --host-services offers what they give access to.
    #[command(
        after_help = "Example: hookgate plugin test unix:///run/plugins/tenant-auth.sock before_tool_call --tool \
                            fs.read --tenant-config '{\"allowed_tools\": [\"fs.*\"]}'\n\n\
                            Exit codes: 0 the plugin continues, or runs its tool, 1 the handshake or the call failed, \
                            2 invalid usage, 3 the plugin cancels."
    )]
    Test(Box<test::Test>),
    /// Lists the plugins of a gateway and their states.
    #[command(after_help = "Example: hookgate plugin list\n\n\
                            Exit codes: 0 listed, 1 the gateway can't be reached or refuses, 2 invalid usage.")]
    List(Box<registry::plugin::ListPluginsArgs>),
    /// Shows one plugin: its state, its manifest and its definition.
    ///
    /// Values in its config are hidden, except references.
    #[command(after_help = "Example: hookgate plugin show content-policy\n\n\
                            Exit codes: 0 shown, 1 there is no such plugin, or the gateway can't be reached, 2 \
                            invalid usage.")]
    Show(Box<registry::ShowArgs>),
    /// Adds a plugin to the registry, shows its manifest, and asks for approval.
    ///
    /// The gateway connects to the plugin, not this command. Until the plugin is approved it receives nothing, not
    /// even its configuration, and it gets no calls until a binding uses it. A built-in plugin needs no approval.
    #[command(alias = "create")]
    #[command(
        after_help = "Example: hookgate plugin add guard --endpoint unix:///run/plugins/guard.sock --version '>=1.2, <2'\n\n\
                            Exit codes: 0 added and ready, or added with --self-registration and not registered \
                            yet, 1 refused, or added but not ready, for example because you declined the approval \
                            or there was no terminal to ask on, 2 invalid usage, or the result would be invalid."
    )]
    Add(Box<registry::plugin::Add>),
    /// Shows and approves the manifest of a new plugin, or a changed manifest.
    ///
    /// It replaces the manifest approved before. Endpoints with a different manifest get no more calls.
    #[command(after_help = "Example: hookgate plugin approve guard --reason 'reviewed 2.0.0'\n\n\
                            Exit codes: 0 approved and ready, or nothing to approve, 1 not ready, the manifest has \
                            changed, refused, or you declined, 2 invalid usage, or no terminal to ask on.")]
    Approve(Box<registry::approve::Approve>),
    /// Changes the given members of a plugin, or creates it without waiting for it.
    #[command(
        after_help = "Example: hookgate plugin set guard --config @guard.yaml --reason 'a longer list'\n\n\
                            Exit codes: 0 written or unchanged, 1 refused, or the version has changed, 2 invalid \
                            usage, or the result would be invalid."
    )]
    Set(Box<registry::plugin::SetPluginArgs>),
    /// Enables a plugin: the gateway connects to it, and its bindings run again.
    #[command(after_help = "Example: hookgate plugin enable guard\n\n\
                            Exit codes: 0 written or unchanged, 1 there is no such plugin, or refused, 2 invalid \
                            usage, or the result would be invalid.")]
    Enable(Box<registry::SwitchArgs>),
    /// Disables a plugin: it and its bindings stay in the registry, but run in no plan.
    #[command(after_help = "Example: hookgate plugin disable guard --reason 'it answers too late'\n\n\
                            Exit codes: 0 written or unchanged, 1 there is no such plugin, or refused, 2 invalid \
                            usage, or the result would be invalid.")]
    Disable(Box<registry::SwitchArgs>),
    /// Removes a plugin that no binding uses, or with --force together with its bindings.
    ///
    /// What the plugin stored in the gateway's database stays, unless --delete-data is given.
    #[command(alias = "delete")]
    #[command(after_help = "Example: hookgate plugin remove guard --force --delete-data\n\n\
                            Exit codes: 0 removed, 1 there is no such plugin, a binding uses it, or it can't be \
                            removed, 2 invalid usage, or the result would be invalid.")]
    Remove(Box<registry::plugin::PluginRemoveArgs>),
    #[command(flatten)]
    Registered(process_ops::ProcessCommand),
}

pub(super) async fn run(command: PluginCommand) -> Exit {
    match command {
        PluginCommand::Run(run) => run::run(*run).await,
        PluginCommand::Test(test) => test::run(&test).await,
        PluginCommand::List(list) => registry::plugin::list(*list).await,
        PluginCommand::Show(show) => registry::plugin::show(*show).await,
        PluginCommand::Add(add) => registry::plugin::add(*add).await,
        PluginCommand::Approve(approve) => registry::approve::approve(*approve).await,
        PluginCommand::Set(set) => registry::plugin::set(*set).await,
        PluginCommand::Enable(switch) => registry::plugin::switch(*switch, true).await,
        PluginCommand::Disable(switch) => registry::plugin::switch(*switch, false).await,
        PluginCommand::Remove(remove) => registry::plugin::remove(*remove).await,
        PluginCommand::Registered(command) => process_ops::run(command).await,
    }
}
