//! Which plugin a command tests, with which settings: its endpoint, TLS and configurations from the command line, and
//! the host services that it gets.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;
use serde_json::Value;

use crate::{Exit, document, new::plugin_name, output::printable};
use hookgate::{
    config::{self, Capability, ClientTls, Span, endpoint_flaw, resolve_references},
    host::TrialHost,
    records::{host_refusal, plugin_output},
    telemetry::{self, Telemetry},
    upstream::SharedResources,
};

/// A plugin and its configurations.
#[derive(Debug, Args)]
pub(crate) struct PluginArgs {
    /// Address of the plugin: `unix:///path`, `http://host:port`, `https://host:port` or `dns:///name:port`.
    pub(crate) endpoint: String,
    /// Name of the plugin, if the endpoint serves several.
    #[arg(long, value_name = "NAME", value_parser = plugin_name)]
    name: Option<String>,
    /// The plugin-level config, written like `plugins[].config`; may contain references.
    #[arg(long, value_name = "FILE|JSON")]
    config: Option<String>,
    /// The tenant-level config, written like `bindings[].config`.
    #[arg(long, value_name = "FILE|JSON")]
    tenant_config: Option<String>,
    /// Offers storage, log and events to the plugin, at this address of this machine. Default: a free port of 127.0.0.1.
    ///
    /// Data is deleted at the end. Lines and events are written to standard error. Not for a plugin that a gateway uses
    /// at the same time: it may write the gateway's data here.
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    host_services: Option<SocketAddr>,
}

/// TLS settings, as in `plugins[].tls`.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// PEM file of CAs to trust for the plugin. Default: the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file with the client certificate.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM file with the client certificate's private key.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name that the plugin's certificate must have. Default: the endpoint's host.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// SPIFFE ID that the plugin's certificate must have.
    #[arg(long, value_name = "URI")]
    spiffe_id: Option<String>,
}

impl PluginArgs {
    /// The plugin's entry, as a configuration would have it, with every capability granted.
    pub(crate) fn entry(&self, tls: &TlsArgs, timeout: Span) -> Result<config::Plugin, String> {
        // Without an expected name, the manifest gives it.
        let name = self.name.as_deref().unwrap_or_default();
        let written = serde_json::json!({ "name": name, "endpoint": self.endpoint });
        let mut plugin: config::Plugin =
            serde_json::from_value(written).map_err(|error| error.to_string())?;
        plugin.config = document::parse("--config", self.config.as_ref())?;
        plugin.grants =
            vec![Capability::StorageRead, Capability::StorageWrite, Capability::Log, Capability::Emit];
        plugin.limits.timeout = timeout;
        plugin.tls = tls.client_tls();
        if plugin.tls.is_some() && !["https://", "dns:///"].iter().any(|tls| self.endpoint.starts_with(tls)) {
            return Err(
                "--ca, --cert, --key, --server-name and --spiffe-id need a TLS endpoint: https://host:port, or \
                 dns:///name:port"
                    .into(),
            );
        }
        match endpoint_flaw(&plugin) {
            Some(flaw) => Err(printable(&flaw)),
            None => Ok(plugin),
        }
    }

    /// Whether the plugin gets host services.
    pub(crate) fn offers_services(&self) -> bool {
        self.host_services.is_some()
    }

    /// Starts the host services for `plugin` if they were asked for, and shows what it writes to them.
    ///
    /// # Errors
    /// They can't be started.
    pub(crate) async fn start_host(&self, plugin: &config::Plugin) -> Result<Option<TrialHost>, Exit> {
        let Some(address) = self.host_services else { return Ok(None) };
        if address.ip().is_unspecified() {
            return Err(Exit::usage(format!(
                "--host-services={address}: the plugin can't connect to that address; name one of this machine's, such \
                 as 127.0.0.1:{}",
                address.port()
            )));
        }
        telemetry::start_log_of(&[plugin_output::TARGET, host_refusal::TARGET]);
        let started = TrialHost::start(address, plugin).await;
        started.map(Some).map_err(|error| Exit::failure(format!("--host-services: {error}")))
    }

    /// The tenant-level configuration, a JSON object.
    pub(crate) fn tenant_config(&self) -> Result<Value, String> {
        document::parse("--tenant-config", self.tenant_config.as_ref()).map(Value::Object)
    }
}

impl TlsArgs {
    fn client_tls(&self) -> Option<ClientTls> {
        let tls = ClientTls {
            ca_file: self.ca.clone(),
            cert_file: self.cert.clone(),
            key_file: self.key.clone(),
            server_name: self.server_name.clone(),
            spiffe_id: self.spiffe_id.clone(),
        };
        let given = self.ca.is_some() || self.cert.is_some();
        (given || self.server_name.is_some() || self.spiffe_id.is_some()).then_some(tls)
    }
}

/// An error of a plugin's entry without the name that it begins with: the command line has only one plugin.
pub(crate) fn without_name<'e>(error: &'e str, name: &str) -> &'e str {
    error.strip_prefix(&format!("plugin `{name}`: ")).unwrap_or(error)
}

/// What a gateway process shares between plugins, for a command that acts as the gateway `instance_id`.
pub(crate) fn shared_resources(
    instance_id: &str,
    limits: config::Limits,
    host: Option<&TrialHost>,
) -> SharedResources {
    let resolve = |config: &_, scope: config::ReferenceScope<'_>| {
        resolve_references(config, config::environment_variables(), scope)
    };
    let observers = config::Observers::default();
    let shared = SharedResources::new(instance_id, Telemetry::unseen(), limits, observers, resolve);
    match host {
        Some(host) => shared.offering(host.offer()),
        None => shared,
    }
}
