//! A plugin whose calls programs answer: the plugin contract on one side, lines of JSON on the other.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use hookgate::{transcode::ReplyMessage, upstream::Redaction};
use hookgate_proto::plugin::v1::{self as wire, plugin_service_server::PluginService};
use hookgate_sdk::host::not_initialized;
use serde_json::Value;
use tokio::time::timeout_at;
use tonic::{Request, Response, Status, async_trait};

use crate::{
    call_log::{CallLog, caller},
    call_messages::{
        AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, CallMessages, OnHook,
    },
    dialect::{CallParts, CallRouting, ProgramRoute},
    digest_file,
    instances::Instance,
    kaged::{self, KagedPlugin},
    plugin_entry::{PluginEntry, ProcessMode, ProgramLimits, secret_lines},
    pool::ProgramSlot,
    processes::Processes,
    program_host::ProgramHost,
    reply,
};

/// One plugin of the runner. Clones are the same plugin.
#[derive(Clone)]
pub(crate) struct RunnerPlugin(Arc<ProgramHost>);

impl RunnerPlugin {
    pub(crate) fn new(
        entry: PluginEntry,
        data_dir: PathBuf,
        sandbox: bool,
        processes: Arc<Processes>,
    ) -> Self {
        RunnerPlugin(Arc::new(ProgramHost::new(entry, data_dir, sandbox, processes)))
    }

    pub(crate) fn entry(&self) -> &PluginEntry {
        &self.0.entry
    }

    /// Ends programs that aren't needed.
    pub(crate) fn sweep(&self) {
        let ProgramLimits { idle, cpu, .. } = self.0.entry.limits;
        self.0.pool.sweep(idle.0);
        // With half of its CPU time left, a program can answer any call that a fresh one could.
        self.0.sessions.sweep(idle.0, cpu.0 / 2);
    }

    /// Ends all programs that wait for a call.
    pub(crate) fn close(&self) {
        self.0.pool.close();
        self.0.sessions.close();
    }

    /// Removes the files of configurations.
    pub(crate) fn remove_configs(&self) {
        self.0.remove_configs();
    }

    async fn answer<P: CallMessages>(
        &self,
        request: Request<P::Request>,
    ) -> Result<Response<P::Reply>, Status> {
        let plugin = &*self.0;
        let (site, call, payload) = P::open(request.into_inner())?;
        let runs_tool = call.run_tool && plugin.entry.has_tools();
        if !(runs_tool || plugin.entry.offers(&site)) {
            return Err(Status::unimplemented(format!("{} does not answer at {site}", plugin.name)));
        }
        let instance = plugin.instances.get(&call.config_digest).ok_or_else(not_initialized)?;
        let (tenant, request_id) = caller(&call);
        if tenant.is_empty() {
            // Its folder would be the one with all tenants' folders.
            return Err(Status::invalid_argument("`call.context.tenant` is missing"));
        }
        let parts = CallParts { site: &site, call: &call, payload: &payload };
        let overrides = plugin.overrides_for(&parts).await?;
        let route = match plugin.entry.dialect.route(&plugin.entry, &parts, &overrides).await? {
            CallRouting::Program(route) => route,
            CallRouting::Session(kaged) => {
                return self.answer_in_session(kaged, &parts, &instance).await.map(Response::new);
            }
            CallRouting::Ignore(text) => {
                let message = reply::read(&text, request_id, ProcessMode::PerCall)?;
                return Ok(Response::new(message));
            }
        };
        let mut log = CallLog::new(&plugin.name, &call, &instance, route.process);
        let (mut attempts, mut deadline, mut last) = (0, None::<Instant>, None);
        let answered = loop {
            let acquired = plugin.pool.acquire(tenant, request_id, &route.key, &instance);
            let acquired = match (deadline, last.take()) {
                (Some(deadline), Some(status)) => match timeout_at(deadline.into(), acquired).await {
                    Ok(acquired) => acquired,
                    Err(_) => break Err(status),
                },
                _ => acquired.await,
            };
            let Some(slot) = acquired else {
                log.answered();
                return Err(Status::unavailable("the runner stops"));
            };
            log.replying();
            // Not before: a call that waits for a place has not begun.
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + route.time);
            let time = match attempts {
                0 => route.time,
                _ => deadline.saturating_duration_since(Instant::now()),
            };
            let answered = self.attempt(slot, &parts, &route, time, &mut log).await;
            attempts += 1;
            let Err(status) = &answered else { break answered };
            let Some(delay) = plugin.retry_delay(&route, attempts, deadline, status) else { break answered };
            log.fault(status);
            last = Some(status.clone());
            tokio::time::sleep(delay).await;
        };
        log.answered();
        answered.map(Response::new).inspect_err(|status| log.fault(status))
    }

    /// Has the session of a kaged plugin answer a call.
    async fn answer_in_session<R: ReplyMessage>(
        &self,
        kaged: &Arc<KagedPlugin>,
        parts: &CallParts<'_>,
        instance: &Arc<Instance>,
    ) -> Result<R, Status> {
        let mut log = CallLog::new(&self.0.name, parts.call, instance, ProcessMode::Persistent);
        let answered = kaged::answer(&self.0, kaged, parts, instance, &mut log).await;
        // The session knows which answer is whose.
        let request_id = caller(parts.call).1;
        let answered = answered.and_then(|text| reply::read(&text, request_id, ProcessMode::PerCall));
        log.answered();
        answered.inspect_err(|status| log.fault(status))
    }

    /// Has a program answer a call.
    async fn attempt<R: ReplyMessage>(
        &self,
        slot: ProgramSlot,
        parts: &CallParts<'_>,
        route: &ProgramRoute<'_>,
        time: Duration,
        log: &mut CallLog<'_>,
    ) -> Result<R, Status> {
        let (plugin, instance) = (&*self.0, Arc::clone(&slot.instance));
        // Not before: a call that waits is held once.
        let line = route.format.line(parts, route, &instance.config)?;
        let program = plugin.exchange(slot, route, &line, time, &mut log.progress).await?;
        let mut reply = route.format.reply(parts, route, &program.bytes)?;
        let message = reply::read(&reply.text, caller(parts.call).1, route.format.id_rule(route.process))?;
        plugin.note(parts, &instance, &mut reply).await?;
        // Only now: a program that writes something else may be out of step.
        program.keep_program();
        Ok(message)
    }
}

/// The texts in a configuration that may be secrets. Programs log line by line, so each line of a text is one too.
fn texts(config: &Value) -> Vec<String> {
    match config {
        Value::String(text) => secret_lines(text).collect(),
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[async_trait]
impl PluginService for RunnerPlugin {
    async fn describe(
        &self,
        _: Request<wire::DescribeRequest>,
    ) -> Result<Response<wire::DescribeResponse>, Status> {
        Ok(Response::new(self.0.entry.manifest()))
    }

    async fn initialize(
        &self,
        request: Request<wire::InitializeRequest>,
    ) -> Result<Response<wire::InitializeResponse>, Status> {
        let wire::InitializeRequest { config, config_digest, gateway_instance_id, .. } = request.into_inner();
        if config_digest.is_empty() {
            return Err(Status::invalid_argument("`config_digest` is missing"));
        }
        let parsed: Value = serde_json::from_slice(&config).map_err(|error| {
            Status::invalid_argument(format!("`config` is not JSON at line {}", error.line()))
        })?;
        let digests = self.0.entry.sha256.clone();
        let checked = tokio::task::spawn_blocking(move || digest_file::check(&digests)).await;
        let checked = checked.map_err(|error| Status::internal(error.to_string()))?;
        checked.map_err(|error| {
            tracing::warn!(plugin = &*self.0.name, error, "the plugin can't be used");
            Status::unavailable(error)
        })?;
        let secrets = texts(&parsed).into_iter().chain(self.0.entry.secrets.iter().cloned()).collect();
        let instance = Instance::new(config_digest.clone(), config, Redaction::new(secrets));
        self.0.instances.hold(&gateway_instance_id, instance);
        // Only now: Release removes the files of configurations that nobody holds.
        let written = self.0.write_config(&config_digest, &parsed).await;
        written
            .map_err(|error| Status::unavailable(format!("the configuration can't be written: {error}")))?;
        Ok(Response::new(wire::InitializeResponse { tools: self.0.entry.tools().to_vec() }))
    }

    async fn before_llm_request(
        &self,
        request: Request<wire::BeforeLlmRequestRequest>,
    ) -> Result<Response<wire::BeforeLlmRequestResponse>, Status> {
        self.answer::<BeforeLlmRequest>(request).await
    }

    async fn before_tool_call(
        &self,
        request: Request<wire::BeforeToolCallRequest>,
    ) -> Result<Response<wire::BeforeToolCallResponse>, Status> {
        self.answer::<BeforeToolCall>(request).await
    }

    async fn after_tool_result(
        &self,
        request: Request<wire::AfterToolResultRequest>,
    ) -> Result<Response<wire::AfterToolResultResponse>, Status> {
        self.answer::<AfterToolResult>(request).await
    }

    async fn before_response(
        &self,
        request: Request<wire::BeforeResponseRequest>,
    ) -> Result<Response<wire::BeforeResponseResponse>, Status> {
        self.answer::<BeforeResponse>(request).await
    }

    async fn on_hook(
        &self,
        request: Request<wire::OnHookRequest>,
    ) -> Result<Response<wire::OnHookResponse>, Status> {
        self.answer::<OnHook>(request).await
    }

    async fn release(
        &self,
        request: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseResponse>, Status> {
        let wire::ReleaseRequest { gateway_instance_id, config_digest } = request.into_inner();
        self.0.instances.release(&gateway_instance_id, Some(&config_digest));
        self.sweep();
        self.0.remove_unused_configs();
        Ok(Response::new(wire::ReleaseResponse {}))
    }

    async fn shutdown(
        &self,
        request: Request<wire::ShutdownRequest>,
    ) -> Result<Response<wire::ShutdownResponse>, Status> {
        self.0.instances.release(&request.into_inner().gateway_instance_id, None);
        self.sweep();
        self.0.remove_unused_configs();
        Ok(Response::new(wire::ShutdownResponse {}))
    }
}
