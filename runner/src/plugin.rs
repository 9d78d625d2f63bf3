//! A plugin whose calls programs answer: the plugin contract on one side, lines of JSON on the other.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use hookgate::upstream::Redaction;
use hookgate_proto::plugin::v1::{self as wire, plugin_service_server::PluginService};
use hookgate_sdk::host::not_initialized;
use serde_json::Value;
use tonic::{Code, Request, Response, Status, async_trait};

use crate::{
    call_log::{CallLog, CallProgress, caller},
    call_messages::{
        self, AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, CallMessages, OnHook,
    },
    digest_file, executable, home,
    instances::{Instance, Instances},
    launch::{self, LaunchSpec, Sandbox},
    output::OutputLog,
    plugin_entry::{PluginEntry, ProcessMode, ProgramLimits, beside_remedy, secret_lines},
    pool::{PoolLimits, ProgramPool, ProgramSlot},
    processes::{Processes, TreeLimits},
    program::{Program, ProgramFault, ProgramState},
    reply,
};

/// What every program has in its environment, besides its own folders and variables.
const ENVIRONMENT: [(&str, &str); 2] = [("PATH", executable::PATH), ("LANG", "C.UTF-8")];

/// One plugin of the runner. Clones are the same plugin.
#[derive(Clone)]
pub(crate) struct RunnerPlugin(Arc<ProgramHost>);

/// A plugin's programs and configurations.
struct ProgramHost {
    entry: PluginEntry,
    name: Arc<str>,
    data_dir: PathBuf,
    sandbox: bool,
    instances: Instances,
    pool: Arc<ProgramPool>,
    processes: Arc<Processes>,
}

impl RunnerPlugin {
    pub(crate) fn new(
        entry: PluginEntry,
        data_dir: PathBuf,
        sandbox: bool,
        processes: Arc<Processes>,
    ) -> Self {
        let limits = PoolLimits { parallel: entry.limits.parallel, programs: entry.limits.programs };
        RunnerPlugin(Arc::new(ProgramHost {
            pool: Arc::new(ProgramPool::new(limits)),
            name: Arc::from(&*entry.name),
            instances: Instances::default(),
            entry,
            data_dir,
            sandbox,
            processes,
        }))
    }

    pub(crate) fn entry(&self) -> &PluginEntry {
        &self.0.entry
    }

    /// Ends programs that aren't needed.
    pub(crate) fn sweep(&self) {
        self.0.pool.sweep(self.0.entry.limits.idle.0);
    }

    /// Ends all programs that wait for a call.
    pub(crate) fn close(&self) {
        self.0.pool.close();
    }

    async fn answer<P: CallMessages>(
        &self,
        request: Request<P::Request>,
    ) -> Result<Response<P::Reply>, Status> {
        let plugin = &*self.0;
        let (site, call, payload) = P::open(request.into_inner())?;
        if !plugin.entry.offers(&site) {
            return Err(Status::unimplemented(format!("{} does not answer at {site}", plugin.name)));
        }
        let instance = plugin.instances.get(&call.config_digest).ok_or_else(not_initialized)?;
        let (tenant, request_id) = caller(&call);
        if tenant.is_empty() {
            // Its folder would be the one with all tenants' folders.
            return Err(Status::invalid_argument("`call.context.tenant` is missing"));
        }
        let mut log = CallLog::new(&plugin.name, &call, &instance, plugin.entry.process);
        let Some(slot) = plugin.pool.acquire(tenant, request_id, &instance).await else {
            log.answered();
            return Err(Status::unavailable("the runner stops"));
        };
        log.replying();
        // Not before: a call that waits is held once.
        let line = call_messages::line(&site, &call, &instance.config, &payload);
        let answered = plugin.exchange(slot, &line, &mut log.progress).await.and_then(|reply| {
            let message = reply::read(&reply.bytes, request_id, plugin.entry.process)?;
            // Only now: a program that writes something else may be out of step.
            reply.keep_program();
            Ok(Response::new(message))
        });
        log.answered();
        answered.inspect_err(|status| log.fault(status))
    }
}

/// A program's reply, and the program if it takes another call.
struct ProgramReply {
    bytes: Bytes,
    program: Option<(ProgramSlot, Program)>,
}

impl ProgramReply {
    fn keep_program(self) {
        if let Some((slot, program)) = self.program {
            slot.keep(program);
        }
    }
}

impl ProgramHost {
    async fn exchange(
        &self,
        mut slot: ProgramSlot,
        line: &[u8],
        progress: &mut CallProgress,
    ) -> Result<ProgramReply, Status> {
        let limits = self.entry.limits;
        let (output, time) = (limits.output.0, limits.time.0);
        if self.entry.process == ProcessMode::PerCall {
            let program = self.start(&mut slot).await?;
            let bytes = program.exchange_all(line, output, time, progress).await;
            let bytes = bytes.map_err(|fault| self.status(&fault))?;
            return Ok(ProgramReply { bytes, program: None });
        }
        // With half of its CPU time left, a program can answer any call that a fresh one could.
        let cpu = limits.cpu.0 / 2;
        if let Some(mut program) = slot.take() {
            if self.is_ready(&mut program, &slot.tenant, cpu).await {
                match program.exchange_line(line, output, time, progress).await {
                    // It ended by itself after its last call. It did not crash, so a fresh one gets the call.
                    Err(fault) if fault.is_clean_end() => {}
                    replied => return self.finish(slot, program, replied),
                }
            }
            // Its place is for the fresh one.
            if let Some(ending) = program.end() {
                slot.put_place(ending.await.map_err(|error| Status::internal(error.to_string()))?);
            }
        }
        let mut program = self.start(&mut slot).await?;
        let replied = program.exchange_line(line, output, time, progress).await;
        self.finish(slot, program, replied)
    }

    async fn is_ready(&self, program: &mut Program, tenant: &str, cpu: Duration) -> bool {
        let state = program.state(cpu).await;
        if state == ProgramState::OutOfStep {
            let plugin = &*self.name;
            tracing::warn!(
                plugin,
                tenant,
                "the program wrote something that no call asked for, so it is started again"
            );
        }
        state == ProgramState::Ready
    }

    async fn start(&self, slot: &mut ProgramSlot) -> Result<Program, Status> {
        let unavailable = |error| Status::unavailable(format!("the program can't be started: {error}"));
        let command = self.prepare(&slot.tenant).await.map_err(unavailable)?;
        let ProgramLimits { cpu, memory, processes, .. } = self.entry.limits;
        let limits = TreeLimits { cpu: Duration::from_secs(cpu.0.as_secs()), memory: memory.0, processes };
        let place = slot.take_place().ok_or_else(|| Status::internal("the call has had its program"))?;
        let log =
            OutputLog::new(Arc::clone(&self.name), Arc::clone(&slot.tenant), Arc::clone(&slot.instance));
        Program::start(command, limits, &self.processes, place, log).map_err(unavailable)
    }

    /// The command that starts a program for `tenant`. Checks that it can be executed, and the digests of files.
    async fn prepare(&self, tenant: &str) -> io::Result<tokio::process::Command> {
        let (digests, data_dir, name) =
            (self.entry.sha256.clone(), self.data_dir.clone(), self.entry.name.clone());
        let (owner, program) = (tenant.to_owned(), self.entry.command.first().cloned().unwrap_or_default());
        let path = self.entry.path().to_owned();
        let home = tokio::task::spawn_blocking(move || {
            executable::check(&program, &path).map_err(io::Error::other)?;
            digest_file::check(&digests).map_err(io::Error::other)?;
            home::create(&data_dir, &name, &owner)
        });
        let home = home.await.map_err(io::Error::other)??;
        let spec = LaunchSpec {
            command: self.entry.command.clone(),
            memory: self.entry.limits.memory.0,
            cpu_seconds: self.entry.limits.cpu.0.as_secs(),
            sandbox: self
                .sandbox
                .then(|| Sandbox { readable: self.entry.readable().collect(), home: home.clone() }),
        };
        let mut command = launch::command(&spec)?;
        command
            .env_clear()
            .envs(ENVIRONMENT)
            .env("HOME", &home)
            .env("TMPDIR", home::temporary(&home))
            .env("HOOKGATE_PLUGIN", &self.entry.name)
            .env("HOOKGATE_TENANT", tenant)
            .envs(&self.entry.variables)
            .current_dir(&home);
        Ok(command)
    }

    fn finish(
        &self,
        slot: ProgramSlot,
        program: Program,
        replied: Result<Bytes, ProgramFault>,
    ) -> Result<ProgramReply, Status> {
        let bytes = replied.map_err(|fault| self.status(&fault))?;
        Ok(ProgramReply { bytes, program: Some((slot, program)) })
    }

    /// A fault as a status. Those that a call causes don't count against the plugin (docs/protocol.md, breakers), so no
    /// tenant's calls can keep it from others.
    fn status(&self, fault: &ProgramFault) -> Status {
        let code = match fault {
            ProgramFault::TimedOut { .. } => Code::DeadlineExceeded,
            ProgramFault::TooLong(_) | ProgramFault::Excess(_) => Code::ResourceExhausted,
            ProgramFault::Ended { .. } => Code::Aborted,
        };
        // An interpreter that doesn't find its script ends with a code of its own.
        let unresolved = self.entry.unresolved.as_deref().filter(|_| fault.is_failure());
        Status::new(code, format!("{fault}{}", unresolved.map(beside_remedy).unwrap_or_default()))
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
        let instance = Instance::new(config_digest, config, Redaction::new(secrets));
        self.0.instances.hold(&gateway_instance_id, instance);
        Ok(Response::new(wire::InitializeResponse::default()))
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
        Ok(Response::new(wire::ReleaseResponse {}))
    }

    async fn shutdown(
        &self,
        request: Request<wire::ShutdownRequest>,
    ) -> Result<Response<wire::ShutdownResponse>, Status> {
        self.0.instances.release(&request.into_inner().gateway_instance_id, None);
        self.sweep();
        Ok(Response::new(wire::ShutdownResponse {}))
    }
}
