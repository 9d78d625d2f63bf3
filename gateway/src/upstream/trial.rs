//! One plugin under test: the gateway's own transport, handshake rules and reply reader, one call at a time. Without
//! the pool, retries and breakers that [`super::PluginClient`] puts around a call, because they would hide what the
//! plugin did.

use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use hookgate_proto::{
    plugin::v1::{Call, CallContext, DescribeRequest, DescribeResponse, InitializeRequest},
    types::v1::Tool,
};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::{
    config,
    core::{error::grpc_name, manifest::Manifest, tool::Tools},
    grpc::framing,
    upstream::{
        CallTokenRequest, HostOffer,
        client::SharedResources,
        codec::{self, ExchangeError},
        connection::{Connection, Rpc},
        health::{self, HealthCheckOutcome},
        initialize::PreparedConfig,
        manifest_validation::{self, DescribeError},
        tools,
        transport::{self, InProcess, Target, Transport},
    },
};

/// A plugin under test. An empty name accepts whatever name its manifest has.
pub struct PluginTrial {
    plugin: config::Plugin,
    shared: SharedResources,
    transport: Box<dyn Transport>,
}

/// A connection to a plugin under test.
pub struct TrialConnection {
    connection: Connection,
    max_reply: usize,
}

/// A plugin-level configuration that fits the plugin's schema, with its references resolved.
pub struct TrialConfig(PreparedConfig);

/// Why a call brought no message. Texts are the plugin's, unredacted: show them with [`TrialConfig::redact`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// FAILED_PRECONDITION for the reason NOT_INITIALIZED.
    #[error("NOT_INITIALIZED")]
    NotInitialized,
    /// Any other status.
    #[error("status {}: {detail}", grpc_name(*code))]
    Status { code: tonic::Code, detail: String },
    /// The connection ended, or the plugin refused the stream.
    #[error("{0}")]
    Lost(String),
    /// The reply isn't one gRPC message within the limit.
    #[error("a bad reply: {0}")]
    BadReply(String),
    /// No reply in time.
    #[error("no reply within {0:?}")]
    TimedOut(Duration),
}

impl PluginTrial {
    /// # Errors
    /// One sentence that names the member and what would be right.
    pub fn new(plugin: config::Plugin, shared: SharedResources) -> Result<Self, String> {
        Self::with(plugin, None, shared)
    }

    /// A trial of a plugin that is built in, as `service`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_builtin(
        plugin: config::Plugin,
        service: InProcess,
        shared: SharedResources,
    ) -> Result<Self, String> {
        Self::with(plugin, Some(service), shared)
    }

    fn with(
        plugin: config::Plugin,
        builtin: Option<InProcess>,
        shared: SharedResources,
    ) -> Result<Self, String> {
        let targets = transport::targets_of_plugin(&plugin, builtin, &shared)?;
        let transport = match targets.into_iter().next() {
            Some(Target::One(transport)) => transport,
            Some(Target::Names(target)) => transport::transport_by_name(target),
            None => return Err("`endpoint` is missing".into()),
        };
        Ok(PluginTrial { plugin, shared, transport })
    }

    /// # Errors
    /// One sentence that says why there is no connection.
    pub async fn connect(&self) -> Result<TrialConnection, String> {
        let limit = self.plugin.limits.connect.0;
        match tokio::time::timeout(limit, self.transport.connect()).await {
            Ok(Ok(connection)) => {
                let connection = connection.naming(&self.plugin.name);
                Ok(TrialConnection { connection, max_reply: self.shared.max_reply() })
            }
            Ok(Err(error)) => Err(format!("{}: {error}", error.cause.as_str())),
            Err(_) => Err(format!("no connection within {limit:?}")),
        }
    }

    /// The Describe that the gateway sends.
    pub fn describe_request(&self) -> DescribeRequest {
        manifest_validation::describe_request(&self.plugin)
    }

    /// The plugin's answer to Describe, not yet checked.
    ///
    /// # Errors
    /// One sentence that says why there is none.
    pub async fn describe(&self, connection: &TrialConnection) -> Result<DescribeResponse, String> {
        let described = manifest_validation::describe(&connection.connection, &self.plugin, None).await;
        described.map_err(sentence)
    }

    /// Checks a manifest as the gateway does.
    ///
    /// # Errors
    /// The stable reason, and a sentence that says what to change.
    pub fn accept(&self, described: DescribeResponse) -> Result<Manifest, String> {
        let accepted = manifest_validation::judge(&self.plugin, described, None, &self.shared);
        let accepted = accepted.map_err(sentence)?;
        Ok((*accepted.manifest).clone())
    }

    /// Checks the tools in the answer to Initialize as the gateway does.
    ///
    /// # Errors
    /// One sentence that says what to change.
    pub fn accept_tools(&self, manifest: &Manifest, tools: Vec<Tool>) -> Result<Tools, String> {
        tools::check(&manifest.tool_names, tools)
    }

    /// The plugin-level configuration, resolved and checked.
    ///
    /// # Errors
    /// One sentence that names the member.
    pub fn prepare(&self, manifest: &Manifest, connection: &TrialConnection) -> Result<TrialConfig, String> {
        let private = connection.connection.private;
        let prepared = PreparedConfig::new(&self.plugin, &self.shared, manifest, private);
        prepared.map(TrialConfig).map_err(|refused| refused.advice)
    }

    /// The Initialize that delivers `config`.
    pub fn initialize_request(&self, config: &TrialConfig) -> InitializeRequest {
        config.0.request(&self.plugin, &self.shared, self.transport.address())
    }

    /// Whether the plugin gets host services.
    pub fn offers_services(&self) -> bool {
        matches!(self.shared.host, HostOffer::Services(_))
    }

    /// The token for the host services that `call` carries. Empty for a plugin without capabilities.
    pub fn call_token(&self, config: &TrialConfig, call: &Call, left: Duration) -> String {
        let capabilities = &config.0.capabilities;
        let context = call.context.as_ref();
        let services = self.shared.host.services(capabilities).zip(context);
        let token = services.map(|(host, CallContext { tenant, request_id, .. })| {
            let plugin = &self.plugin.name;
            host.call_token(&CallTokenRequest { plugin, tenant, request_id, capabilities, left })
        });
        token.unwrap_or_default()
    }

    /// How long Initialize and Shutdown may take.
    pub fn control_limit(&self, rpc: Rpc) -> Duration {
        let limits = &self.plugin.limits;
        if rpc == Rpc::Initialize { limits.initialize.0 } else { limits.shutdown.0 }
    }
}

impl TrialConfig {
    /// The plugin's text without secrets, cut and without control characters.
    pub fn redact(&self, text: &str) -> String {
        self.0.display_text(text)
    }
}

impl TrialConnection {
    /// Whether it takes no more calls.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// One call with an encoded `message`. Dropping the future cancels the call at the plugin.
    pub async fn call(&self, rpc: Rpc, message: &[u8], limit: Duration) -> Result<Bytes, TrialError> {
        let mut headers = HeaderMap::new();
        if matches!(rpc, Rpc::At(_)) {
            headers.insert("hookgate-depth", HeaderValue::from_static("1"));
            headers.insert("hookgate-test", HeaderValue::from_static("true"));
        }
        let frame = framing::frame_with(message.len(), |buffer| buffer.put_slice(message));
        let deadline = Instant::now() + limit;
        let reply = self.connection.unary(rpc, frame, &headers, deadline, self.max_reply, None).await;
        reply.map_err(|error| match error {
            ExchangeError::Status(status) if codec::says_not_initialized(&status) => {
                TrialError::NotInitialized
            }
            ExchangeError::Status(status) => {
                TrialError::Status { code: status.code(), detail: status.message().to_owned() }
            }
            ExchangeError::TimedOut => TrialError::TimedOut(limit),
            ExchangeError::BadReply(detail) | ExchangeError::TooLarge(detail) => TrialError::BadReply(detail),
            error @ (ExchangeError::Unsent(_) | ExchangeError::Lost(_) | ExchangeError::StreamRefused) => {
                TrialError::Lost(error.to_string())
            }
        })
    }

    /// One health check.
    pub async fn check_health(&self) -> HealthCheckOutcome {
        health::check(&self.connection, &config::Health::default()).await
    }
}

/// The reason and what to change.
fn sentence(error: DescribeError) -> String {
    match error {
        DescribeError::Away(_, detail) => detail,
        DescribeError::Out { why, detail, .. } => format!("{}: {detail}", why.as_str()),
    }
}
