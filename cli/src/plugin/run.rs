//! `hookgate plugin run`: serves a reference plugin as a process of its own.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use hookgate_audit_log::AuditLog;
use hookgate_sdk::{Plugin, Registration, RegistrationError, ServeError, Server, stop_signal};
use hookgate_tenant_auth::{TenantAuth, TenantQuota};
use hookgate_webhook::Webhook;

use crate::Exit;
use hookgate::telemetry;

/// The plugin, and where it is served.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Name of the reference plugin.
    name: Name,
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
struct RegistrationArgs {
    /// Registers the plugin with the gateway that has this host endpoint (`server.host_addr` or `server.host_socket`):
    /// `unix:///path`, `http://host:port` or `https://host:port`.
    ///
    /// The plugin's entry needs `self_registration: true`. The registration is renewed while the plugin runs, and ends
    /// with it. HOOKGATE_HOST_CA_FILE names the CAs to trust at https://. Default: the machine's.
    /// HOOKGATE_HOST_CERT_FILE and HOOKGATE_HOST_KEY_FILE name the client certificate and its key.
    #[arg(long, value_name = "GATEWAY", requires = "token_file")]
    register: Option<String>,
    /// File with the token for --register (`hookgate token mint --plugin`). It is read again for every registration.
    #[arg(long, value_name = "FILE", requires = "register")]
    token_file: Option<PathBuf>,
    /// Where gateways reach the plugin. Default: the address of --listen.
    #[arg(long, value_name = "URL", requires = "register")]
    advertise: Option<String>,
}

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
    let Run { name, listen, registration } = run;
    let registration = registration.into_registration();
    match name {
        Name::TenantAuth => serve::<TenantAuth>(&listen, registration).await,
        Name::TenantQuota => serve::<TenantQuota>(&listen, registration).await,
        Name::AuditLog => serve::<AuditLog>(&listen, registration).await,
        Name::Webhook => serve::<Webhook>(&listen, registration).await,
    }
}

impl RegistrationArgs {
    fn into_registration(self) -> Option<Registration> {
        let registration = Registration::new(self.register?, self.token_file?);
        Some(match self.advertise {
            Some(endpoint) => registration.at(endpoint),
            None => registration,
        })
    }
}

/// Serves a reference plugin. OpenTelemetry's variables say where its spans and log lines go.
async fn serve<P: Plugin>(listen: &str, registration: Option<Registration>) -> Exit {
    let _telemetry = match telemetry::start_plugin_log::<P>() {
        Ok(telemetry) => telemetry,
        Err(error) => return Exit::usage(error.to_string()),
    };
    match serve_until_signal::<P>(listen, registration).await {
        Ok(()) => Exit::ok(),
        Err(ServeError::Registration(RegistrationError::Wildcard(endpoint))) => Exit::usage(format!(
            "can't register the endpoint `{endpoint}`, which is no address that gateways can reach: say where they \
             reach the plugin with --advertise, for example http://10.1.2.3:7000"
        )),
        Err(error @ (ServeError::Address(_) | ServeError::Registration(_))) => Exit::usage(error.to_string()),
        Err(error @ ServeError::Listen { .. }) => Exit::failure(format!(
            "{error}; choose a free port, or a socket in a folder that you may write to"
        )),
        Err(error) => Exit::failure(error.to_string()),
    }
}

async fn serve_until_signal<P: Plugin>(
    listen: &str,
    registration: Option<Registration>,
) -> Result<(), ServeError> {
    let stop = stop_signal()?;
    let server = Server::<P>::bind(listen).await?;
    match registration {
        Some(registration) => server.with_registration(registration).run(stop).await,
        None => server.run(stop).await,
    }
}
