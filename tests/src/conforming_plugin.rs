//! A plugin that keeps every rule of docs/protocol.md but one, on a real socket. It offers `before_tool_call` and adds a
//! notice with the tool's name to each reply, or it offers hooks and remembers the message of `recall`, or it provides tools, or it
//! masks addresses in windows of an answer.

use std::{
    collections::{HashMap, HashSet},
    fs,
    future::pending,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use hookgate_proto::{
    plugin::v1::{
        Access, AfterToolResultRequest, AfterToolResultResponse, BeforeLlmRequestRequest,
        BeforeLlmRequestResponse, BeforeResponseRequest, BeforeResponseResponse, BeforeToolCallRequest,
        BeforeToolCallResponse, Cancel, Continue, DescribeRequest, DescribeResponse, HookOffer,
        InitializeRequest, InitializeResponse, OnHookRequest, OnHookResponse, PointOffer, ReleaseRequest,
        ReleaseResponse, ShutdownRequest, ShutdownResponse, SideEffects,
        before_response_response::Verdict as ResponseVerdict,
        before_tool_call_response::Verdict,
        plugin_service_server::{PluginService, PluginServiceServer},
    },
    types::v1::{
        BeforeToolCallPatch, Contribution, ExtensionPoint, HookPayload, Notice, NoticeKind, Tool,
        ToolAnnotations,
    },
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::UnixListener, task::JoinHandle, time::sleep};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, async_trait, metadata::MetadataMap, transport::Server};
use tower::layer::layer_fn;

pub use crate::broken_rule::BrokenRule;
use crate::{
    masked_window::masked_window,
    strict_fields::{StrictFields, StrictRpcs},
};

const MAX_CALL_BYTES: usize = 17 << 20;
const TOOLS: [&str; 2] = ["memory.find", "memory.drop"];

/// A running plugin. It ends when this is dropped.
#[derive(Debug)]
pub struct ConformingPlugin {
    directory: TempDir,
    serving: JoinHandle<()>,
}

impl ConformingPlugin {
    /// Starts a plugin at a point that breaks `rule` alone.
    pub async fn start(rule: BrokenRule) -> Self {
        Self::start_service(Service::new(rule)).await
    }

    /// Starts a plugin at hooks only that breaks `rule` alone.
    pub async fn start_at_hooks(rule: BrokenRule) -> Self {
        let hooks = &["recall", "session_start", "my_hook"];
        Self::start_service(Service { hooks, ..Service::new(rule) }).await
    }

    /// Starts a plugin with tools only that breaks `rule` alone.
    pub async fn start_with_tools(rule: BrokenRule) -> Self {
        Self::start_service(Service { has_tools: true, ..Service::new(rule) }).await
    }

    /// Starts a plugin that judges answers in windows and breaks `rule` alone.
    pub async fn start_in_windows(rule: BrokenRule) -> Self {
        Self::start_service(Service { in_windows: true, ..Service::new(rule) }).await
    }

    async fn start_service(service: Service) -> Self {
        let directory =
            tempfile::Builder::new().prefix("hg").tempdir().expect("a temporary directory can be made");
        let socket = UnixListener::bind(directory.path().join("s")).expect("the socket is new");
        let serving = tokio::spawn(serve(service, socket));
        ConformingPlugin { directory, serving }
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.directory.path().join("s").display())
    }
}

impl Drop for ConformingPlugin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Runs a plugin at a point that breaks `rule` alone at this socket, until the process ends.
///
/// # Errors
/// The plugin can't listen there.
pub async fn run_at(path: &Path, rule: BrokenRule) -> io::Result<()> {
    if rule != BrokenRule::StaleSocket && path.exists() {
        fs::remove_file(path)?;
    }
    let mut service = Service::new(rule);
    if rule == BrokenRule::KeptInstances {
        let file = path.with_extension("instances");
        let kept = if file.exists() { fs::read_to_string(&file)? } else { String::new() };
        let holders = |digest: &str| (digest.to_owned(), HashSet::from(["the last process".to_owned()]));
        service.state().instances = kept.lines().map(holders).collect();
        service.instances_file = Some(file);
    }
    serve(service, UnixListener::bind(path)?).await;
    Ok(())
}

async fn serve(service: Service, socket: UnixListener) {
    let (rule, ended) = (service.rule, service.ended.clone());
    let limit = if rule == BrokenRule::SmallReceiveLimit { 4 << 20 } else { MAX_CALL_BYTES };
    let service = PluginServiceServer::new(service).max_decoding_message_size(limit);
    let (reporter, health) = tonic_health::server::health_reporter();
    if rule == BrokenRule::NotServing {
        reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
    }
    let strict = match rule {
        BrokenRule::StrictDescribe => StrictRpcs::Describe,
        BrokenRule::StrictCalls => StrictRpcs::Calls,
        _ => StrictRpcs::None,
    };
    let layer = layer_fn(move |inner| StrictFields::new(inner, strict));
    let server = Server::builder().layer(layer).add_service(service).add_service(health);
    // It ends with the test.
    let _ =
        server.serve_with_incoming_shutdown(UnixListenerStream::new(socket), ended.cancelled_owned()).await;
}

struct Service {
    rule: BrokenRule,
    /// The hooks that are offered, in place of a point.
    hooks: &'static [&'static str],
    /// Whether tools are provided, in place of a point.
    has_tools: bool,
    /// Whether answers are judged in windows, in place of tool calls.
    in_windows: bool,
    /// Where the digests are kept for the next process.
    instances_file: Option<PathBuf>,
    state: Mutex<State>,
    ended: CancellationToken,
}

#[derive(Default)]
struct State {
    /// The gateways that initialised each digest.
    instances: HashMap<String, HashSet<String>>,
    describes: u64,
    latest_text: String,
    is_poisoned: bool,
}

/// A call that poisons the state if it is dropped before its end.
struct UnfinishedCall<'a> {
    service: &'a Service,
    poisons: bool,
}

impl Drop for UnfinishedCall<'_> {
    fn drop(&mut self) {
        if self.poisons {
            self.service.state().is_poisoned = true;
        }
    }
}

impl Service {
    fn new(rule: BrokenRule) -> Self {
        Service {
            rule,
            hooks: &[],
            has_tools: false,
            in_windows: false,
            instances_file: None,
            state: Mutex::default(),
            ended: CancellationToken::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Its tools: one only reads, and nobody may call the other to see what it does. `again`: in the answer to a repeated
    /// Initialize.
    fn tools(&self, again: bool) -> Vec<Tool> {
        let names = if self.breaks(BrokenRule::UncoveredTool) { ["notes.find", "notes.drop"] } else { TOOLS };
        let tool = |(name, reads): (&str, bool)| Tool {
            name: name.into(),
            description: "Does something with facts.".into(),
            input_schema: r#"{"type":"object"}"#.into(),
            annotations: Some(ToolAnnotations { read_only_hint: Some(reads), ..Default::default() }),
        };
        let most = if again && self.breaks(BrokenRule::ChangingTools) { 1 } else { names.len() };
        let tools = names.into_iter().zip([true, false]).take(most).map(tool);
        if self.has_tools { tools.collect() } else { Vec::new() }
    }

    /// Runs a tool.
    fn run_tool(&self, name: &str) -> Result<Verdict, Status> {
        let is_ours = TOOLS.contains(&name) || self.breaks(BrokenRule::SurplusTool);
        match name {
            _ if !is_ours => Err(Status::not_found("no such tool")),
            "memory.drop" => Err(Status::internal("all facts are lost")),
            _ if self.breaks(BrokenRule::ToolNotRun) => Ok(Verdict::Continue(Continue {})),
            _ => {
                let result = if self.breaks(BrokenRule::OddResult) { "no facts" } else { "[]" };
                Ok(Verdict::Cancel(Cancel { result: result.into(), ..Default::default() }))
            }
        }
    }

    fn breaks(&self, rule: BrokenRule) -> bool {
        self.rule == rule
    }

    fn check_digest(&self, digest: &str) -> Result<(), Status> {
        if self.breaks(BrokenRule::AnyDigest) || self.state().instances.contains_key(digest) {
            return Ok(());
        }
        let mut status = Status::failed_precondition("no instance for this config digest");
        status.metadata_mut().insert("hookgate-reason", "NOT_INITIALIZED".parse().expect("it is ASCII"));
        Err(status)
    }

    /// Does what takes time. A call that is given up meanwhile may poison the state.
    async fn work(&self, time_left: Duration) -> Result<(), Status> {
        let is_short = time_left < Duration::from_secs(1);
        let poisons = match self.rule {
            BrokenRule::PoisonedByCancel => !is_short,
            BrokenRule::PoisonedByDeadline => is_short,
            _ => return Ok(()),
        };
        let mut call = UnfinishedCall { service: self, poisons };
        sleep(Duration::from_millis(100)).await;
        call.poisons = false;
        if std::mem::take(&mut self.state().is_poisoned) {
            return Err(Status::internal("a lock is poisoned"));
        }
        Ok(())
    }

    /// `text`, or that of the latest call.
    async fn mixed_up(&self, text: String) -> String {
        if !self.breaks(BrokenRule::SharedState) {
            return text;
        }
        self.state().latest_text = text;
        // Other calls come meanwhile.
        sleep(Duration::from_millis(5)).await;
        self.state().latest_text.clone()
    }

    /// The patch of the reply.
    fn patch(&self, args: &[u8]) -> Result<Option<BeforeToolCallPatch>, Status> {
        if self.breaks(BrokenRule::NullFails) && args == b"null" {
            return Err(Status::internal("no attribute `get` of null"));
        }
        if self.breaks(BrokenRule::ShallowJson) && args.starts_with(&[b'['; 33]) {
            return Err(Status::internal("recursion limit exceeded"));
        }
        if self.breaks(BrokenRule::NulFails) && args.windows(6).any(|text| text == br"\u0000") {
            return Err(Status::internal("a text must not contain NUL"));
        }
        if !self.breaks(BrokenRule::RoundedNumbers) {
            return Ok(None);
        }
        let mut args: Value = serde_json::from_slice(args).expect("the arguments are JSON");
        round(&mut args);
        Ok(Some(BeforeToolCallPatch { args: Some(args.to_string().into()), ..Default::default() }))
    }
}

/// The time left of a call, as gRPC writes it.
fn time_left(metadata: &MetadataMap) -> Duration {
    let value =
        metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).expect("a gateway sends it");
    let (number, unit) = value.split_at(value.len() - 1);
    let number = number.parse().expect("it is a number");
    match unit {
        "n" => Duration::from_nanos(number),
        "u" => Duration::from_micros(number),
        "m" => Duration::from_millis(number),
        _ => Duration::from_secs(number),
    }
}

/// Numbers as JavaScript's `JSON.parse` reads them.
fn round(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let double = number.as_f64().unwrap_or_default();
            let is_integer = double.fract() == 0.0 && double.abs() < 1e16;
            *value = if is_integer { Value::from(double as i64) } else { Value::from(double) };
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(members) => members.values_mut().for_each(round),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[async_trait]
impl PluginService for Service {
    async fn on_hook(&self, request: Request<OnHookRequest>) -> Result<Response<OnHookResponse>, Status> {
        let time_left = time_left(request.metadata());
        let OnHookRequest { call, payload } = request.into_inner();
        let (call, HookPayload { hook, body }) = (call.unwrap_or_default(), payload.unwrap_or_default());
        if !self.hooks.contains(&hook.as_str()) && !self.breaks(BrokenRule::SurplusHook) {
            return Err(Status::unimplemented(format!("{hook} is not offered")));
        }
        self.check_digest(&call.config_digest)?;
        if self.breaks(BrokenRule::NoReply) {
            pending::<()>().await;
        }
        self.work(time_left).await?;
        let body: Value = serde_json::from_slice(&body).expect("the body is JSON");
        let message = body["message"].as_str().unwrap_or_default().to_owned();
        let message = self.mixed_up(message).await;
        let kind = if self.breaks(BrokenRule::ForeignKind) { "memories" } else { "memory" };
        let memory = json!({ "content": message }).to_string();
        // Only `recall` has a message, and takes a memory that is not empty.
        let contributions =
            (!message.is_empty()).then(|| Contribution { kind: kind.into(), value: memory.into() });
        Ok(Response::new(OnHookResponse {
            contributions: contributions.into_iter().collect(),
            notices: Vec::new(),
        }))
    }

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        let describes = {
            let mut state = self.state();
            state.describes += 1;
            state.describes
        };
        let version = match self.rule {
            BrokenRule::OddVersion => "one".into(),
            BrokenRule::ChangingManifest => format!("1.0.{describes}"),
            _ => "1.0.0".into(),
        };
        let point = match self.in_windows {
            true => ExtensionPoint::BeforeResponse,
            false => ExtensionPoint::BeforeToolCall,
        };
        let offer = PointOffer {
            point: point.into(),
            access: Access::Modify.into(),
            side_effects: SideEffects::None.into(),
            reads: None,
            windows: self.in_windows,
        };
        let side_effects = SideEffects::None.into();
        let hooks: Vec<_> =
            self.hooks.iter().map(|&hook| HookOffer { hook: hook.into(), side_effects }).collect();
        Ok(Response::new(DescribeResponse {
            name: "conforming".into(),
            version,
            protocol_versions: vec![1],
            points: if hooks.is_empty() && !self.has_tools { vec![offer] } else { Vec::new() },
            hooks,
            tools: if self.has_tools { vec!["memory.*".into()] } else { Vec::new() },
            ..Default::default()
        }))
    }

    async fn initialize(
        &self,
        request: Request<InitializeRequest>,
    ) -> Result<Response<InitializeResponse>, Status> {
        let InitializeRequest { config_digest, gateway_instance_id, .. } = request.into_inner();
        let mut state = self.state();
        if self.breaks(BrokenRule::InitializeOnce) && state.instances.contains_key(&config_digest) {
            return Err(Status::already_exists("initialised already"));
        }
        if self.breaks(BrokenRule::OneConfiguration) {
            state.instances.retain(|digest, _| *digest == config_digest);
        }
        let again = state.instances.contains_key(&config_digest);
        state.instances.entry(config_digest).or_default().insert(gateway_instance_id);
        if let Some(file) = &self.instances_file {
            let digests = state.instances.keys().fold(String::new(), |list, digest| list + digest + "\n");
            fs::write(file, digests)?;
        }
        Ok(Response::new(InitializeResponse { tools: self.tools(again) }))
    }

    async fn before_tool_call(
        &self,
        request: Request<BeforeToolCallRequest>,
    ) -> Result<Response<BeforeToolCallResponse>, Status> {
        let time_left = time_left(request.metadata());
        let BeforeToolCallRequest { call, payload } = request.into_inner();
        let (call, payload) = (call.unwrap_or_default(), payload.unwrap_or_default());
        if !self.hooks.is_empty() || self.in_windows || self.has_tools != call.run_tool {
            return Err(Status::unimplemented("not offered"));
        }
        self.check_digest(&call.config_digest)?;
        if call.run_tool {
            let verdict = Some(self.run_tool(&payload.tool_name)?);
            return Ok(Response::new(BeforeToolCallResponse { verdict, ..Default::default() }));
        }
        if self.breaks(BrokenRule::NoReply) {
            pending::<()>().await;
        }
        self.work(time_left).await?;
        let modify = self.patch(&payload.args)?;
        let tool = self.mixed_up(payload.tool_name).await;
        let notice = Notice {
            kind: NoticeKind::Info.into(),
            code: Some("TOOL".into()),
            message: tool,
            ..Default::default()
        };
        let verdict = (!self.breaks(BrokenRule::NoVerdict)).then_some(Verdict::Continue(Continue {}));
        Ok(Response::new(BeforeToolCallResponse { verdict, modify, notices: vec![notice] }))
    }

    async fn before_response(
        &self,
        request: Request<BeforeResponseRequest>,
    ) -> Result<Response<BeforeResponseResponse>, Status> {
        if self.in_windows {
            let BeforeResponseRequest { call, payload } = request.into_inner();
            let (call, payload) = (call.unwrap_or_default(), payload.unwrap_or_default());
            self.check_digest(&call.config_digest)?;
            return Ok(Response::new(masked_window(self.rule, call.window.as_ref(), &payload.content)));
        }
        if !self.breaks(BrokenRule::SurplusPoint) {
            return Err(Status::unimplemented("not offered"));
        }
        let verdict = Some(ResponseVerdict::Continue(Continue {}));
        Ok(Response::new(BeforeResponseResponse { verdict, ..Default::default() }))
    }

    async fn before_llm_request(
        &self,
        _: Request<BeforeLlmRequestRequest>,
    ) -> Result<Response<BeforeLlmRequestResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn after_tool_result(
        &self,
        _: Request<AfterToolResultRequest>,
    ) -> Result<Response<AfterToolResultResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let ReleaseRequest { gateway_instance_id, config_digest } = request.into_inner();
        let (mut state, for_all) = (self.state(), self.breaks(BrokenRule::ReleaseForAll));
        state.instances.retain(|digest, holders| {
            let is_meant = *digest == config_digest;
            let held = !is_meant || (holders.remove(&gateway_instance_id), !holders.is_empty()).1;
            held && !(is_meant && for_all)
        });
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn shutdown(
        &self,
        request: Request<ShutdownRequest>,
    ) -> Result<Response<ShutdownResponse>, Status> {
        if self.breaks(BrokenRule::EndsOnShutdown) {
            self.ended.cancel();
            // The reply comes after GOAWAY.
            sleep(Duration::from_millis(100)).await;
        }
        let (gateway, for_all) =
            (request.into_inner().gateway_instance_id, self.breaks(BrokenRule::ShutdownForAll));
        self.state().instances.retain(|_, holders| {
            holders.remove(&gateway);
            !holders.is_empty() && !for_all
        });
        Ok(Response::new(ShutdownResponse {}))
    }
}
