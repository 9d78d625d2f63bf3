//! The plugin under test: its connection, what it said of itself, and the calls that every check makes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use hookgate_proto::{
    PayloadFields,
    plugin::v1::{
        self as wire, Call, CallContext, DescribeResponse, InitializeRequest, InitializeResponse,
        ShutdownRequest,
    },
    types::v1::Tool,
};
use prost::Message;
use serde_json::Value;
use tonic::Code;
use uuid::Uuid;

use crate::{
    conformance::{
        check::{CheckStage, Fault},
        process::CommandProcess,
        sample::{SampleCall, SampleContent},
        tools,
    },
    output::printable,
};
use hookgate::{
    core::{
        call_site::CallSite,
        digest::digest,
        manifest::{Access, Manifest},
        point::Point,
    },
    upstream::{PluginTrial, Rpc, TrialConfig, TrialConnection, TrialError},
};

/// How long a started program may take until it listens.
const MAX_START: Duration = Duration::from_secs(30);
/// How long a plugin may take to come back after a check that it did not survive.
const MAX_RECOVERY: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct Session {
    pub(super) trial: PluginTrial,
    /// `None` if somebody else runs the plugin.
    pub(super) process: Option<CommandProcess>,
    pub(super) tenant_config: Value,
    /// The limit of an ordinary call.
    pub(super) timeout: Duration,
    pub(super) connection: Option<Arc<TrialConnection>>,
    pub(super) described: Option<DescribeResponse>,
    pub(super) manifest: Option<Manifest>,
    pub(super) config: Option<TrialConfig>,
    /// The Initialize that the plugin accepted.
    pub(super) initialize: Option<InitializeRequest>,
    /// The tools in the answer to it.
    pub(super) tools: Vec<Tool>,
    /// The answer to a call before any Initialize.
    pub(super) early: Option<Result<(), TrialError>>,
    /// The points and hooks at which it answers an ordinary call.
    pub(super) sites: Vec<CallSite>,
    /// Whether it provides tools, and answers calls of tools as it should.
    pub(super) answers_tools: bool,
}

impl Session {
    pub(super) fn new(
        trial: PluginTrial,
        process: Option<CommandProcess>,
        tenant_config: Value,
        timeout: Duration,
    ) -> Self {
        Session {
            trial,
            process,
            tenant_config,
            timeout,
            connection: None,
            described: None,
            manifest: None,
            config: None,
            initialize: None,
            tools: Vec::new(),
            early: None,
            sites: Vec::new(),
            answers_tools: false,
        }
    }

    /// How far the plugin got.
    pub(super) fn stage(&self) -> CheckStage {
        match (&self.described, &self.manifest, &self.initialize) {
            (None, ..) => CheckStage::Start,
            (Some(_), None, _) => CheckStage::Described,
            (Some(_), Some(_), None) => CheckStage::Accepted,
            (Some(_), Some(_), Some(_)) if !self.sites.is_empty() => CheckStage::Answering,
            (Some(_), Some(_), Some(_)) if self.has_only_tools() && self.answers_tools => CheckStage::Usable,
            (Some(_), Some(_), Some(_)) => CheckStage::Initialized,
        }
    }

    /// Starts the program of the command line, if there is one, and connects.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn start(&mut self) -> Result<Arc<TrialConnection>, String> {
        let Some(process) = &mut self.process else { return self.trial.connect().await.map(Arc::new) };
        process.start().map_err(|error| format!("the command can't be started: {error}"))?;
        self.connect_within(MAX_START).await
    }

    /// Connects as soon as the plugin listens.
    async fn connect_within(&mut self, limit: Duration) -> Result<Arc<TrialConnection>, String> {
        let began = Instant::now();
        loop {
            if let Some(ended) = self.process.as_mut().and_then(CommandProcess::ended) {
                return Err(format!("the command ended before it listened: {ended}"));
            }
            match self.trial.connect().await {
                Ok(connection) => return Ok(Arc::new(connection)),
                Err(error) if began.elapsed() >= limit => return Err(error),
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Makes sure that there is a connection, as a gateway would: after a lost one it connects, describes, and
    /// initialises if it is told to.
    ///
    /// # Errors
    /// Why the plugin can't be used any more.
    pub(super) async fn recover(&mut self) -> Result<(), String> {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_closed()) {
            return Ok(());
        }
        let ended = self.process.as_mut().is_some_and(|process| !process.is_running());
        let connection = if ended { self.start().await? } else { self.connect_within(MAX_RECOVERY).await? };
        self.trial.describe(&connection).await?;
        self.connection = Some(Arc::clone(&connection));
        let Some(request) = self.initialize.clone() else { return Ok(()) };
        let reply = match self.sites.first() {
            Some(site) => {
                let sample = SampleCall::new(site, &SampleContent::ordinary());
                self.reply(&connection, &sample, &request.config_digest).await
            }
            None if self.provides_tools() => {
                tools::run_other(self, &connection, &request.config_digest).await
            }
            None => return Ok(()),
        };
        if reply == Err(TrialError::NotInitialized) {
            self.initialize(&connection, &request).await.map_err(|error| self.shown(&error.to_string()))?;
        }
        Ok(())
    }

    /// Whether the plugin offers no point.
    pub(super) fn has_no_points(&self) -> bool {
        self.offered_sites().iter().all(|site| site.hook().is_some())
    }

    /// Whether the plugin offers neither points nor hooks.
    pub(super) fn has_only_tools(&self) -> bool {
        self.offered_sites().is_empty()
    }

    /// Whether the plugin may have tools.
    pub(super) fn provides_tools(&self) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| !manifest.tool_names.is_empty())
    }

    /// The points and hooks of the manifest, points first.
    pub(super) fn offered_sites(&self) -> Vec<CallSite> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        let points = Point::ALL.into_iter().filter(|&point| manifest.offers(point).is_some());
        let hooks = manifest.hooks.keys().cloned().map(CallSite::Hook);
        points.map(CallSite::Point).chain(hooks).collect()
    }

    /// The current connection.
    ///
    /// # Errors
    /// There is none, which the run prevents.
    pub(super) fn connection(&self) -> Result<Arc<TrialConnection>, Fault> {
        let lost = || Fault::new("a connection", "none", "see the plugin's log");
        self.connection.clone().ok_or_else(lost)
    }

    /// The digest of the plugin-level configuration.
    pub(super) fn digest(&self) -> String {
        self.initialize.as_ref().map(|request| request.config_digest.clone()).unwrap_or_default()
    }

    /// The plugin's text without secrets and control characters.
    pub(super) fn shown(&self, text: &str) -> String {
        match &self.config {
            Some(config) => config.redact(text),
            None => printable(text),
        }
    }

    pub(super) async fn initialize(
        &self,
        connection: &TrialConnection,
        request: &InitializeRequest,
    ) -> Result<InitializeResponse, TrialError> {
        let limit = self.trial.control_limit(Rpc::Initialize);
        let reply = connection.call(Rpc::Initialize, &request.encode_to_vec(), limit).await?;
        InitializeResponse::decode(reply).map_err(undecodable)
    }

    /// Tells the plugin that the gateway process `instance` no longer uses it.
    pub(super) async fn shut_down(
        &self,
        connection: &TrialConnection,
        instance: &str,
    ) -> Result<(), TrialError> {
        let request = ShutdownRequest { gateway_instance_id: instance.to_owned() };
        let limit = self.trial.control_limit(Rpc::Shutdown);
        let reply = connection.call(Rpc::Shutdown, &request.encode_to_vec(), limit).await?;
        wire::ShutdownResponse::decode(reply).map(drop).map_err(undecodable)
    }

    /// Who calls, with the plugin-level configuration of `config_digest`, in a call that may take `limit`.
    pub(super) fn call(&self, config_digest: &str, limit: Duration) -> Call {
        let mut call = Call {
            context: Some(CallContext {
                tenant: "conformance".into(),
                operator: "hookgate-conformance".into(),
                request_id: Uuid::now_v7().to_string(),
                ..Default::default()
            }),
            config_digest: config_digest.to_owned(),
            tenant_config: self.tenant_config.to_string().into(),
            tenant_config_digest: digest(&self.tenant_config),
            chain_result: None,
            run_tool: false,
            window: None,
            host_token: String::new(),
        };
        if let Some(config) = &self.config {
            call.host_token = self.trial.call_token(config, &call, limit);
        }
        call
    }

    /// The large fields that the plugin gets at `site`; `None` for all.
    pub(super) fn reads(&self, site: &CallSite) -> Option<PayloadFields> {
        self.manifest.as_ref()?.offers_at(site)?.reads
    }

    /// Makes a call and returns the bytes of the reply, unread.
    pub(super) async fn reply(
        &self,
        connection: &TrialConnection,
        sample: &SampleCall,
        config_digest: &str,
    ) -> Result<Bytes, TrialError> {
        let message = sample.request(&self.call(config_digest, self.timeout), self.reads(&sample.site));
        connection.call(Rpc::at(&sample.site), &message, self.timeout).await
    }

    /// Makes a call that must be answered with a verdict, or at a hook with contributions.
    ///
    /// # Errors
    /// The rule that the reply breaks.
    pub(super) async fn decision(
        &self,
        connection: &TrialConnection,
        sample: &SampleCall,
        config_digest: &str,
    ) -> Result<Bytes, Fault> {
        let reply = self.reply(connection, sample, config_digest).await;
        self.judged(sample, reply)
    }

    /// The reply to `sample`, if it is valid.
    ///
    /// # Errors
    /// The rule that the reply breaks.
    pub(super) fn judged(
        &self,
        sample: &SampleCall,
        reply: Result<Bytes, TrialError>,
    ) -> Result<Bytes, Fault> {
        let SampleCall { site, .. } = sample;
        let (expected, fix) = match site {
            CallSite::Point(point) => (
                format!("a valid reply with a verdict at {point}"),
                "build the reply as section 3 says: one verdict, and only patches and notices that are allowed",
            ),
            CallSite::Hook(hook) => (
                format!("a valid reply at the hook {hook}"),
                "build the reply as section 9 says: only contributions and notices that are allowed, or an empty one",
            ),
        };
        let reply = reply.map_err(|error| Fault::new(&*expected, error.to_string(), remedy(&error, site)))?;
        let offer = self.manifest.as_ref().and_then(|manifest| manifest.offers_at(site));
        let access = offer.map_or(Access::Read, |offer| offer.access);
        sample
            .check(reply.clone(), access)
            .map(|()| reply)
            .map_err(|flaw| Fault::new(expected, format!("a reply that a gateway refuses: {flaw}"), fix))
    }

    /// An ordinary call at each point and hook, which must be answered, and one of a tool.
    pub(super) async fn still_answers(&self) -> Result<(), Fault> {
        self.answers_with(&self.digest()).await
    }

    /// As [`Self::still_answers`], with the configuration of `digest`.
    pub(super) async fn answers_with(&self, digest: &str) -> Result<(), Fault> {
        let connection = self.connection()?;
        for site in &self.sites {
            let sample = SampleCall::new(site, &SampleContent::ordinary());
            self.decision(&connection, &sample, digest).await?;
        }
        if self.answers_tools { tools::runs_no_other(self, digest).await } else { Ok(()) }
    }
}

/// A digest that no configuration has.
pub(super) fn unknown_digest() -> String {
    digest(&Value::from(Uuid::now_v7().to_string()))
}

fn undecodable(error: prost::DecodeError) -> TrialError {
    TrialError::BadReply(format!("it can't be decoded: {error}"))
}

/// What the plugin's author can do about a call without a reply.
fn remedy(error: &TrialError, site: &CallSite) -> &'static str {
    match error {
        TrialError::NotInitialized => {
            "keep the instance of a digest until each gateway that initialised it sends Release or Shutdown"
        }
        TrialError::Status { code: Code::Unimplemented, .. } if site.hook().is_some() => {
            "implement OnHook for each hook in the manifest, or remove the hook"
        }
        TrialError::Status { code: Code::Unimplemented, .. } => {
            "implement the rpc of each point in the manifest, or remove the point"
        }
        TrialError::Status { code: Code::InvalidArgument, .. } => {
            "decide about any valid payload; pass the settings that the plugin needs with --config and --tenant-config"
        }
        TrialError::Status { .. } if site.hook().is_some() => {
            "see the plugin's log; a plugin that has nothing to contribute answers with an empty reply"
        }
        TrialError::Status { .. } => "see the plugin's log; a plugin that decides answers continue or cancel",
        TrialError::Lost(_) => {
            "see the plugin's log for a crash; no call may end the process or the connection"
        }
        TrialError::BadReply(_) => "answer with one uncompressed message and the status OK",
        TrialError::TimedOut(_) => "answer faster, or raise --timeout and the binding's `timeout`",
    }
}
