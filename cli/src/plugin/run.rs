//! `hookgate plugin run`: serves reference plugins as a process of their own.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use hookgate_audit_log::AuditLog;
use hookgate_sdk::{Plugin, Registration, RegistrationError, ServeError, Server, stop_signal};
use hookgate_tenant_auth::{TenantAuth, TenantQuota};
use hookgate_webhook::Webhook;

use crate::Exit;
use hookgate::telemetry;

/// The plugins, and where they are served.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Names of the reference plugins. A gateway has an entry for each, with the same endpoint.
    #[arg(required = true)]
    names: Vec<Name>,
    /// Address to listen on: `unix:///path` or `http://host:port`.
    ///
    /// A stale socket file is replaced; a new one has mode 0660.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    #[command(flatten)]
    registration: RegistrationArgs,
}

/// How the process registers itself.
#[derive(Debug, Args)]
#[command(next_help_heading = "Registration")]
pub(crate) struct RegistrationArgs {
    /// Registers each plugin with the gateway that has this host endpoint (`server.host_addr` or `server.host_socket`):
    /// `unix:///path`, `http://host:port` or `https://host:port`.
    ///
    /// The plugin's entry needs `self_registration: true`. The registration is renewed while the plugin runs, and ends
    /// with it. HOOKGATE_HOST_CA_FILE names the CAs to trust at https://. Default: the machine's.
    /// HOOKGATE_HOST_CERT_FILE and HOOKGATE_HOST_KEY_FILE name the client certificate and its key.
    #[arg(long, value_name = "GATEWAY", requires = "token_file")]
    register: Option<String>,
    /// File with the token for --register (`hookgate token mint --plugin`), which names each plugin. It is read again for
    /// every registration.
    #[arg(long, value_name = "FILE", requires = "register")]
    token_file: Option<PathBuf>,
    /// Where gateways reach the plugin. Default: the address of --listen.
    #[arg(long, value_name = "URL", requires = "register")]
    advertise: Option<String>,
}

/// `service.name` of a process with several plugins. OTEL_SERVICE_NAME overrides it.
const SEVERAL_PLUGINS: &str = "hookgate-plugins";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
    /// Which operators and tools a tenant may use; at before_llm_request and before_tool_call.
    TenantAuth,
    /// How many tokens and requests a tenant may use, counted in the gateway's storage; at before_llm_request,
    /// after_tool_result and before_response.
    TenantQuota,
    /// Writes who did what, with which result, as JSON lines to `path` or standard output; at all four points.
    AuditLog,
    /// Lets an HTTP service decide about calls, or learn of them, by signed requests; at all four points.
    Webhook,
}

pub(super) async fn run(run: Run) -> Exit {
    let service = match &*run.names {
        [name] => name.plugin_name(),
        _ => SEVERAL_PLUGINS,
    };
    let _telemetry = match telemetry::start_plugin_log(service, env!("CARGO_PKG_VERSION")) {
        Ok(telemetry) => telemetry,
        Err(error) => return Exit::usage(error.to_string()),
    };
    match serve_until_signal(run).await {
        Ok(()) => Exit::ok(),
        Err(error) => unserved(error),
    }
}

/// How a command ends that couldn't serve its plugins.
pub(crate) fn unserved(error: ServeError) -> Exit {
    match error {
        ServeError::Registration(RegistrationError::Wildcard(endpoint)) => Exit::usage(format!(
            "can't register the endpoint `{endpoint}`, which is no address that gateways can reach: say where they \
             reach the plugin with --advertise, for example http://10.1.2.3:7000"
        )),
        ServeError::DuplicatePlugin(name) => Exit::usage(format!("`{name}` is given twice")),
        error @ (ServeError::Address(_) | ServeError::Registration(_)) => Exit::usage(error.to_string()),
        error @ ServeError::Listen { .. } => Exit::failure(format!(
            "{error}; choose a free port, or a socket in a folder that you may write to"
        )),
        error => Exit::failure(error.to_string()),
    }
}

impl RegistrationArgs {
    pub(crate) fn into_registration(self) -> Option<Registration> {
        let registration = Registration::new(self.register?, self.token_file?);
        Some(match self.advertise {
            Some(endpoint) => registration.at(endpoint),
            None => registration,
        })
    }
}

impl Name {
    fn plugin_name(self) -> &'static str {
        match self {
            Name::TenantAuth => TenantAuth::NAME,
            Name::TenantQuota => TenantQuota::NAME,
            Name::AuditLog => AuditLog::NAME,
            Name::Webhook => Webhook::NAME,
        }
    }

    fn add_to(self, server: Server) -> Server {
        match self {
            Name::TenantAuth => server.with_plugin::<TenantAuth>(),
            Name::TenantQuota => server.with_plugin::<TenantQuota>(),
            Name::AuditLog => server.with_plugin::<AuditLog>(),
            Name::Webhook => server.with_plugin::<Webhook>(),
        }
    }
}

async fn serve_until_signal(run: Run) -> Result<(), ServeError> {
    let Run { names, listen, registration } = run;
    let stop = stop_signal()?;
    let server = names.into_iter().fold(Server::bind(&listen).await?, |server, name| name.add_to(server));
    match registration.into_registration() {
        Some(registration) => server.with_registration(registration).run(stop).await,
        None => server.run(stop).await,
    }
}
