//! `hookgate plugin test`: connects to a plugin with the gateway's own client, and makes one call.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Exit, client, document,
    output::{Output, printable},
    payload::{self, ContextArgs, Payload},
    plugin::render::{CallFailure, CallReport, Report},
};
use hookgate::{
    config::{self, Capability, ClientTls, Span, endpoint_flaw, is_name, resolve_references},
    core::{
        context::{CallContext, Identity},
        digest::digest,
        failure::Failure,
        manifest::Manifest,
        point::Point,
    },
    invoke::{
        AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, ExtensionPoint, ReplyLimits,
        reply::{self, Grant},
    },
    telemetry::Telemetry,
    transcode,
    upstream::{CallMeta, PluginClient, SharedResources, State, Status},
};

/// Longest wait for the answer to Shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The plugin and the call.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Address of the plugin: `unix:///path`, `http://host:port`, `https://host:port` or `dns:///name:port`.
    endpoint: String,
    /// Extension point of the call.
    #[arg(value_parser = payload::points())]
    point: Point,
    /// The plugin-level config, written like `plugins[].config`; may contain references.
    #[arg(long, value_name = "FILE|JSON")]
    config: Option<String>,
    /// The tenant-level config, written like `bindings[].config`.
    #[arg(long, value_name = "FILE|JSON")]
    tenant_config: Option<String>,
    /// Tenant of the call.
    #[arg(long, default_value = "test")]
    tenant: String,
    /// Operator who acts for the tenant.
    #[arg(long, default_value = "hookgate-plugin-test")]
    operator: String,
    /// Timeout of the call; 1ms to 60s.
    #[arg(long, default_value = "5s", value_parser = client::patience)]
    timeout: Span,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    payload: Payload,
    #[command(flatten)]
    context: ContextArgs,
}

/// TLS settings, as in `plugins[].tls`.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
struct TlsArgs {
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

impl Test {
    fn plugin(&self) -> Result<config::Plugin, String> {
        // No expected name: the manifest gives it.
        let written = serde_json::json!({ "name": "", "endpoint": self.endpoint });
        let mut plugin: config::Plugin =
            serde_json::from_value(written).map_err(|error| error.to_string())?;
        plugin.config = document::parse("--config", self.config.as_ref())?;
        plugin.grants =
            vec![Capability::StorageRead, Capability::StorageWrite, Capability::Log, Capability::Emit];
        plugin.limits.timeout = self.timeout;
        plugin.tls = self.tls.client_tls();
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

pub(super) async fn run(test: &Test) -> Exit {
    match test.point {
        Point::BeforeLlmRequest => try_out::<BeforeLlmRequest>(test).await,
        Point::BeforeToolCall => try_out::<BeforeToolCall>(test).await,
        Point::AfterToolResult => try_out::<AfterToolResult>(test).await,
        Point::BeforeResponse => try_out::<BeforeResponse>(test).await,
    }
}

async fn try_out<P: ExtensionPoint>(test: &Test) -> Exit
where
    P::Request: transcode::HttpRequestMessage,
    P::Payload: transcode::Changes,
{
    let request = match payload::request(P::POINT, &test.payload, &test.context, false) {
        Ok(request) => request,
        Err(wrong) => return Exit::usage(wrong),
    };
    let made = test.plugin().and_then(|plugin| {
        let tenant_config = document::parse("--tenant-config", test.tenant_config.as_ref())?;
        let limits = config::Limits::default();
        let resolve = |config: &_, scope: config::ReferenceScope<'_>| {
            resolve_references(config, config::environment_variables(), scope)
        };
        let observers = config::Observers::default();
        let shared =
            SharedResources::new("hookgate-plugin-test", Telemetry::unseen(), limits, observers, resolve);
        let client = PluginClient::new(&plugin, &shared, None);
        let client = client.map_err(|error| error.trim_start_matches("plugin ``: ").to_owned())?;
        Ok((client, shared, Value::Object(tenant_config)))
    });
    let (client, shared, tenant_config) = match made {
        Ok(made) => made,
        Err(wrong) => return Exit::usage(wrong),
    };
    let end = CancellationToken::new();
    let began = Instant::now();
    client.start(end.clone());
    let status = wait_until_settled(&client, &shared).await;
    let mut report = Report::new(&test.endpoint, status.manifest.as_deref(), began.elapsed());
    let call = match (&status.manifest, status.state) {
        (Some(manifest), State::Ready) => call::<P>(test, &client, manifest, &tenant_config, &request).await,
        _ => Err(CallFailure::handshake(&status)),
    };
    client.shutdown(SHUTDOWN_TIMEOUT).await;
    end.cancel();
    match call {
        Ok(called) => report.call = Some(called),
        Err(failed) => report.failure = Some(failed),
    }
    report.print(test.output, &request.payload)
}

/// Waits for the plugin's state after the handshake. Describe, Initialize and the connection have limits of
/// their own.
async fn wait_until_settled(client: &PluginClient, shared: &SharedResources) -> Status {
    let mut changes = shared.changes();
    loop {
        changes.mark_unchanged();
        let status = client.status();
        if status.state != State::Connecting || changes.changed().await.is_err() {
            return status;
        }
    }
}

async fn call<P: ExtensionPoint>(
    test: &Test,
    client: &PluginClient,
    manifest: &Manifest,
    tenant_config: &Value,
    request: &payload::Request,
) -> Result<CallReport, CallFailure>
where
    P::Request: transcode::HttpRequestMessage,
    P::Payload: transcode::Changes,
{
    if !is_name(&manifest.name) {
        return Err(CallFailure::misnamed(&manifest.name));
    }
    let Some(offer) = manifest.offers(P::POINT) else {
        return Err(CallFailure::not_offered(P::POINT, manifest));
    };
    if let Some(schema) = &manifest.tenant_config_schema
        && let Err(error) = schema.validate(tenant_config)
    {
        let at = Some(error.instance_path().as_str()).filter(|at| !at.is_empty()).unwrap_or("/");
        return Err(CallFailure::tenant_config(&format!("{} at `{at}`", error.masked())));
    }
    let decoded = payload::decode::<P>(&request.body).map_err(CallFailure::internal)?;
    let parts = P::request_parts(decoded);
    let payload = Arc::new(parts.payload.unwrap_or_default());
    let context = CallContext {
        identity: Arc::new(Identity {
            tenant: test.tenant.as_str().into(),
            operator: test.operator.as_str().into(),
            user_id: None,
            claims: std::collections::BTreeMap::new(),
        }),
        request_id: Uuid::now_v7(),
        correlation_id: None,
        request: parts.context,
        received: tokio::time::Instant::now(),
        deadline: None,
        depth: 0,
        trace: false,
    };
    let wire_call = hookgate_proto::plugin::v1::Call {
        context: Some(context.for_plugins()),
        config_digest: String::new(), // the client knows it
        tenant_config: tenant_config.to_string().into(),
        tenant_config_digest: digest(tenant_config),
        chain_result: None,
    };
    let began = Instant::now();
    let meta = CallMeta { tenant: Arc::clone(&context.identity.tenant), depth: 1, whole: true, trial: true };
    let replied = client.call(P::POINT, wire_call, Arc::clone(&payload), meta, test.timeout.0).await;
    let took = began.elapsed();
    let replied = replied.map_err(|failure| CallFailure::call(&failure))?;
    let grant = Grant { access: offer.access, writable: None };
    // The gateway's defaults.
    let limits = ReplyLimits::from_limits(&config::Limits::default());
    let said = reply::read::<P>(replied.bytes, &payload, grant, &limits);
    let said = said.map_err(|flaw| CallFailure::call(&Failure::new(flaw.reason, flaw.detail)))?;
    let after = said.payload.as_ref().unwrap_or(&payload);
    let changes = transcode::changes(&*payload, &**after);
    Ok(CallReport::new(P::POINT, said.cancel, &changes, &said.notices, said.sanitised, took))
}
