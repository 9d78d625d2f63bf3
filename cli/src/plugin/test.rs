//! `hookgate plugin test`: connects to a plugin with the gateway's own client, and makes one call.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use hookgate_proto::gateway::v1::RequestContext;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Exit, client,
    output::Output,
    payload::{self, ContextArgs, Payload, RequestOptions},
    plugin::{
        render::{CallFailure, CallReport, Report},
        target::{self, PluginArgs, TlsArgs},
    },
    signals,
};
use hookgate::{
    config::{self, Span, is_name},
    core::{
        context::{CallContext, Identity},
        digest::digest,
        failure::Failure,
        manifest::{Access, Manifest},
        point::Point,
        schema_violation,
        step::Reason,
    },
    host::TrialHost,
    invoke::{
        AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, ExtensionPoint, ReplyLimits,
        reply::{self, Grant},
    },
    transcode,
    upstream::{CallMeta, PluginClient, SharedResources, State, Status},
};

/// Longest wait for the answer to Shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The plugin and the call.
#[derive(Debug, Args)]
pub(crate) struct Test {
    #[command(flatten)]
    plugin: PluginArgs,
    /// Extension point of the call.
    #[arg(value_parser = payload::points())]
    point: Point,
    /// Tenant of the call.
    #[arg(long, default_value = "test")]
    tenant: String,
    /// Operator who acts for the tenant.
    #[arg(long, default_value = "hookgate-plugin-test")]
    operator: String,
    /// Timeout of the call; 1ms to 60s.
    #[arg(long, default_value = "5s", value_parser = client::patience)]
    timeout: Span,
    /// Has the plugin run its own tool, which --tool names, as a gateway does after all steps; only at before_tool_call.
    #[arg(long)]
    run_tool: bool,
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

pub(super) async fn run(test: &Test) -> Exit {
    if test.run_tool && test.point != Point::BeforeToolCall {
        return Exit::usage("--run-tool is for before_tool_call only");
    }
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
    let request = match payload::request(P::POINT, &test.payload, &test.context, RequestOptions::default()) {
        Ok(request) => request,
        Err(wrong) => return Exit::usage(wrong),
    };
    let entry = test.plugin.entry(&test.tls, test.timeout);
    let (entry, tenant_config) = match entry.and_then(|entry| Ok((entry, test.plugin.tenant_config()?))) {
        Ok(given) => given,
        Err(wrong) => return Exit::usage(wrong),
    };
    let host = match test.plugin.start_host(&entry).await {
        Ok(host) => host,
        Err(exit) => return exit,
    };
    let exit = test_with_host::<P>(test, &entry, &tenant_config, &request, host.as_ref()).await;
    if let Some(host) = host {
        host.close().await;
    }
    exit
}

async fn test_with_host<P: ExtensionPoint>(
    test: &Test,
    entry: &config::Plugin,
    tenant_config: &Value,
    request: &payload::Request,
    host: Option<&TrialHost>,
) -> Exit
where
    P::Request: transcode::HttpRequestMessage,
    P::Payload: transcode::Changes,
{
    // Its own for each test: a plugin keeps apart what it has from each gateway.
    let instance = format!("hookgate-plugin-test-{}", Uuid::now_v7());
    let shared = target::shared_resources(&instance, config::Limits::default(), host);
    let client = match PluginClient::new(entry, &shared, None) {
        Ok(client) => client,
        Err(error) => return Exit::usage(target::without_name(&error, &entry.name)),
    };
    let end = CancellationToken::new();
    let tested = tokio::select! {
        tested = handshake_and_call::<P>(test, &client, &shared, tenant_config, request, &end) => Some(tested),
        () = signals::terminated() => None,
    };
    client.shutdown(SHUTDOWN_TIMEOUT).await;
    end.cancel();
    match tested {
        Some(report) => report.print(test.output, &request.payload),
        None => Exit::failure("interrupted"),
    }
}

async fn handshake_and_call<P: ExtensionPoint>(
    test: &Test,
    client: &Arc<PluginClient>,
    shared: &SharedResources,
    tenant_config: &Value,
    request: &payload::Request,
    end: &CancellationToken,
) -> Report
where
    P::Request: transcode::HttpRequestMessage,
    P::Payload: transcode::Changes,
{
    let began = Instant::now();
    client.start(end.clone());
    let status = wait_until_settled(client, shared).await;
    let mut report = Report::new(&test.plugin, status.manifest.as_deref(), began.elapsed());
    let call = match (&status.manifest, status.state) {
        (Some(manifest), State::Ready) => call::<P>(test, client, manifest, tenant_config, request).await,
        _ => Err(CallFailure::handshake(&status)),
    };
    match call {
        Ok(called) => report.call = Some(called),
        Err(failed) => report.failure = Some(failed),
    }
    report
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
    let decoded = payload::decode::<P>(&request.body).map_err(CallFailure::internal)?;
    let parts = P::request_parts(decoded);
    let payload = Arc::new(parts.payload.unwrap_or_default());
    let grant = grant::<P>(test, manifest, &payload)?;
    if let Some(schema) = &manifest.tenant_config_schema
        && let Err(error) = schema.validate(tenant_config)
    {
        let at = schema_violation::place(&error);
        return Err(CallFailure::tenant_config(&format!("{} at `{at}`", schema_violation::rule(&error))));
    }
    let context = context(test, P::POINT, parts.context);
    let wire_call = hookgate_proto::plugin::v1::Call {
        context: Some(context.for_plugins()),
        config_digest: String::new(), // the client knows it
        tenant_config: tenant_config.to_string().into(),
        tenant_config_digest: digest(tenant_config),
        chain_result: None,
        host_token: String::new(),
        run_tool: test.run_tool,
        window: None,
    };
    let began = Instant::now();
    let meta = CallMeta { tenant: Arc::clone(&context.identity.tenant), depth: 1, whole: true, trial: true };
    let replied = client.call(P::POINT, wire_call, Arc::clone(&payload), meta, test.timeout.0).await;
    let took = began.elapsed();
    let replied = replied.map_err(|failure| CallFailure::call(&failure))?;
    // The gateway's defaults.
    let limits = ReplyLimits::from_limits(&config::Limits::default());
    let said = reply::read::<P>(replied.bytes, &P::POINT.into(), &payload, grant, &limits);
    let said = said.map_err(|flaw| CallFailure::call(&Failure::new(flaw.reason, flaw.detail)))?;
    if test.run_tool && said.cancel.is_none() {
        let detail =
            "it was to run its tool, and its reply holds continue in place of a cancel with the result";
        return Err(CallFailure::call(&Failure::new(Reason::BadReply, detail)));
    }
    let after = said.payload.as_ref().unwrap_or(&payload);
    let changes = transcode::changes(&*payload, &**after);
    let report = CallReport::new(P::POINT, said.cancel, &changes, &said.notices, said.sanitised, took);
    Ok(if test.run_tool { report.of_tool() } else { report })
}

/// What the plugin's reply may do.
fn grant<P: ExtensionPoint>(
    test: &Test,
    manifest: &Manifest,
    payload: &P::Payload,
) -> Result<Grant<'static>, CallFailure> {
    if !test.run_tool {
        let offer = manifest.offers(P::POINT).ok_or_else(|| CallFailure::not_offered(P::POINT, manifest))?;
        return Ok(Grant { access: offer.access, writable: None });
    }
    let tool = P::subject(payload).tool.unwrap_or_default();
    let mut tools = manifest.tools.iter().flat_map(|tools| tools.iter());
    if !tools.any(|provided| provided.name == tool) {
        return Err(CallFailure::not_provided(tool, manifest));
    }
    // It may give a result, but not change the call.
    Ok(Grant { access: Access::Modify, writable: Some(&[]) })
}

/// Who calls.
fn context(test: &Test, point: Point, request: RequestContext) -> CallContext {
    CallContext {
        site: point.into(),
        identity: Arc::new(Identity {
            tenant: test.tenant.as_str().into(),
            operator: test.operator.as_str().into(),
            user_id: None,
            claims: std::collections::BTreeMap::new(),
        }),
        request_id: Uuid::now_v7(),
        correlation_id: None,
        request,
        received: tokio::time::Instant::now(),
        deadline: None,
        depth: 0,
        trace: false,
        takes_results: false,
        exchange: None,
    }
}
