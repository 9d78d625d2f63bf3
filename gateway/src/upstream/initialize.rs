//! Initialize: the plugin-level configuration, its digest, and what the plugin's response means
//! (docs/protocol.md, section 2). Holds secrets, and never prints them.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use hookgate_proto::plugin::v1::{InitializeRequest, InitializeResponse, Limits};
use jsonschema::error::ValidationErrorKind;
use prost::Message as _;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    client::SharedResources,
    codec::{self, ExchangeError},
    connection::Rpc,
    control_call,
    ready_connection::ReadyConnection,
    redaction::Redaction,
    refusal::{Refusal, RefusalDetail},
    registration::Registration,
    tools,
};
use crate::{
    config,
    core::{digest::digest, manifest::Manifest, schema_violation, tool::Tools},
    grpc::framing,
};

/// Most schema violations that one refusal lists.
const MAX_LISTED_VIOLATIONS: usize = 5;

/// A plugin-level configuration with its references resolved.
pub(super) struct PreparedConfig {
    json: Bytes,
    /// Sent with every call; shown to the plugin alone.
    pub(super) digest: Arc<str>,
    /// The capabilities that the plugin asks for, all of which are granted.
    pub(super) capabilities: Vec<String>,
    redaction: Redaction,
}

impl fmt::Debug for PreparedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared(***)")
    }
}

impl PreparedConfig {
    /// Resolves and checks a plugin's configuration for a connection that is `private` or not.
    pub(super) fn new(
        plugin: &config::Plugin,
        shared: &SharedResources,
        manifest: &Manifest,
        private: bool,
    ) -> Result<Self, RefusalDetail> {
        let refused = |advice: String| RefusalDetail::new(Refusal::ConfigRefused, advice);
        let raw = Value::Object(plugin.config.clone());
        if holds_reference(&raw) && !private && !plugin.allow_plaintext {
            let advice = "`config` holds references and the endpoint is plaintext beyond loopback: use `https://`, a \
                          Unix socket or loopback, or set `allow_plaintext: true`";
            return Err(refused(advice.into()));
        }
        let resolved = (shared.resolve)(&plugin.config, shared.reach.within(plugin)).map_err(refused)?;
        let (resolved, secrets) = resolved.into_exposed();
        let resolved = Value::Object(resolved);
        if let Some(schema) = &manifest.config_schema {
            let listed: Vec<_> = schema
                .iter_errors(&resolved)
                .take(MAX_LISTED_VIOLATIONS)
                .map(|error| violation(&error))
                .collect();
            if !listed.is_empty() {
                let listed = listed.join("; ");
                return Err(refused(format!("`config` does not fit the plugin's schema: {listed}")));
            }
        }
        let json = serde_json::to_vec(&resolved).expect("a JSON value has text keys").into();
        Ok(PreparedConfig {
            json,
            digest: digest(&resolved).into(),
            capabilities: manifest.capabilities.clone(),
            redaction: Redaction::new(secrets),
        })
    }

    /// The request that delivers it to the endpoint at `address`.
    pub(super) fn request(
        &self,
        plugin: &config::Plugin,
        shared: &SharedResources,
        address: &str,
    ) -> InitializeRequest {
        let host = shared.host.services(&self.capabilities);
        let is_local = address.starts_with("unix:");
        InitializeRequest {
            config: self.json.clone(),
            config_digest: self.digest.as_ref().into(),
            capabilities: self.granted(plugin),
            gateway_instance_id: shared.instance_id.as_ref().into(),
            host_endpoint: host.and_then(|host| host.endpoint(is_local)).unwrap_or_default().into(),
            host_token: host
                .map(|host| host.plugin_token(&plugin.name, &self.capabilities))
                .unwrap_or_default(),
            limits: Some(limits(shared)),
        }
    }

    /// The grants of the entry, and for a built-in plugin those that it asks for.
    fn granted(&self, plugin: &config::Plugin) -> Vec<String> {
        let mut granted: Vec<String> = plugin.grants.iter().map(|grant| grant.as_str().into()).collect();
        granted.extend(
            self.capabilities.iter().filter(|name| !granted.contains(name)).cloned().collect::<Vec<_>>(),
        );
        granted
    }

    /// A plugin's text as shown to people, without resolved secrets.
    pub(super) fn display_text(&self, text: &str) -> String {
        codec::display_text(&self.redaction.apply_to_beginning(text))
    }

    /// A plugin's status as shown to people, without resolved secrets.
    pub(super) fn shown_status(&self, status: &tonic::Status) -> String {
        format!("{:?}: {}", status.code(), self.display_text(status.message()))
    }

    /// A failed exchange as shown to people, without resolved secrets.
    pub(super) fn shown_error(&self, error: &ExchangeError) -> String {
        match error {
            ExchangeError::Status(status) => {
                format!("the plugin answered with {}", self.shown_status(status))
            }
            error => self.display_text(&error.to_string()),
        }
    }
}

/// Names the member and the rule, never the value.
fn violation(error: &jsonschema::ValidationError<'_>) -> String {
    let error = schema_violation::specific(error);
    let at = schema_violation::place(error);
    match error.kind() {
        ValidationErrorKind::Required { property } => format!("`{at}` lacks {property}"),
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!("`{at}` has unknown members {}", codec::display_text(&format!("{unexpected:?}")))
        }
        ValidationErrorKind::FalseSchema => format!("`{at}`: the plugin takes nothing there"),
        _ => format!("`{at}`: {}", codec::display_text(&schema_violation::rule(error))),
    }
}

/// Whether any scalar contains `${...}`; `$$` is an escaped dollar.
fn holds_reference(value: &Value) -> bool {
    match value {
        Value::String(text) => text.replace("$$", "").contains("${"),
        Value::Array(items) => items.iter().any(holds_reference),
        Value::Object(members) => members.values().any(holds_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Why a plugin is not initialised.
#[derive(Debug)]
pub(super) enum InitializeError {
    Refused(RefusalDetail),
    /// Possibly temporary: UNAVAILABLE, or a lost connection.
    Unavailable(String),
    /// The connection was gone before anything was sent.
    Unsent(String),
}

/// Delivers the configuration of `live` to its endpoint at `address` and awaits the response, within the plugin's
/// `limits.initialize`. Returns the plugin's tools.
pub(super) async fn initialize(
    live: &ReadyConnection,
    Registration { plugin, shared, .. }: &Registration,
    address: &str,
) -> Result<Tools, InitializeError> {
    let ReadyConnection { connection, config: prepared, .. } = live;
    let request = prepared.request(plugin, shared, address);
    let limit = plugin.limits.initialize.0;
    let (frame, deadline) = (framing::frame(&request), Instant::now() + limit);
    let reply =
        control_call::call(connection, Rpc::Initialize, frame, deadline, tools::MAX_ANSWER_BYTES).await;
    let refused = |refusal, advice| Err(InitializeError::Refused(RefusalDetail::new(refusal, advice)));
    match reply {
        Ok(reply) => match InitializeResponse::decode(reply) {
            Ok(InitializeResponse { tools }) => {
                let tools = tools::check(&live.accepted.manifest.tool_names, tools);
                tools.or_else(|fault| {
                    let advice =
                        format!("the answer to Initialize is wrong: {}", prepared.display_text(&fault));
                    refused(Refusal::InitializeFailed, advice)
                })
            }
            Err(error) => refused(
                Refusal::InitializeFailed,
                format!(
                    "the answer to Initialize can't be decoded ({error}): generate the plugin's code from \
                     the gateway's .proto files"
                ),
            ),
        },
        Err(ExchangeError::TimedOut) => refused(
            Refusal::InitializeTimeout,
            format!(
                "Initialize was not answered within {limit:?}: make the plugin answer faster, or raise \
                 `limits.initialize`"
            ),
        ),
        Err(ExchangeError::Status(status)) => Err(classify_status(&status, prepared)),
        Err(ExchangeError::BadReply(detail) | ExchangeError::TooLarge(detail)) => refused(
            Refusal::InitializeFailed,
            format!(
                "the answer to Initialize is unusable ({}): answer with one InitializeResponse",
                prepared.display_text(&detail)
            ),
        ),
        Err(ExchangeError::Unsent(detail)) => Err(InitializeError::Unsent(prepared.display_text(&detail))),
        Err(ExchangeError::Lost(detail)) => {
            let detail = prepared.display_text(&detail);
            Err(InitializeError::Unavailable(format!("the connection ended during Initialize: {detail}")))
        }
        Err(ExchangeError::StreamRefused) => {
            Err(InitializeError::Unavailable("the plugin refused the stream of Initialize".into()))
        }
    }
}

/// Classifies a plugin's own status (docs/protocol.md, section 2).
fn classify_status(status: &tonic::Status, prepared: &PreparedConfig) -> InitializeError {
    let shown = prepared.shown_status(status);
    let refused = |refusal, advice| InitializeError::Refused(RefusalDetail::new(refusal, advice));
    match status.code() {
        tonic::Code::InvalidArgument => refused(
            Refusal::ConfigRefused,
            format!("the plugin refused `config` with {shown}: correct `config`"),
        ),
        tonic::Code::Unavailable => {
            InitializeError::Unavailable(format!("Initialize was answered with {shown}"))
        }
        _ => refused(
            Refusal::InitializeFailed,
            format!("Initialize was answered with {shown}: see the plugin's own log"),
        ),
    }
}

fn limits(shared: &SharedResources) -> Limits {
    Limits {
        max_call_bytes: shared.max_call() as u64,
        max_reply_bytes: shared.max_reply() as u64,
        max_notices: u32::try_from(shared.limits.notices).unwrap_or(u32::MAX),
        max_notice_bytes: shared.limits.notice_bytes.0,
        max_details_bytes: shared.limits.details_bytes.0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn escaped_dollars_are_no_references() {
        for (value, expected) in [
            (json!({"a": ["x", {"b": "pre ${KEY}"}]}), true),
            (json!("$${KEY}"), false),
            (json!("$$${KEY}"), true),
            (json!({"a": 1, "b": null, "c": "$KEY {}"}), false),
        ] {
            assert_eq!(holds_reference(&value), expected, "{value}");
        }
    }

    #[test]
    fn references_do_not_travel_over_plaintext_beyond_loopback() {
        let mut plugin: config::Plugin =
            serde_json::from_value(json!({"name": "guard", "config": {"key": "${KEY}"}})).expect("a plugin");
        let shared = SharedResources::new(
            "g",
            Telemetry::unseen(),
            config::Limits::default(),
            config::Observers::default(),
            |config, scope| config::resolve_references(config, [("KEY".into(), "s3cr3t".into())], scope),
        );
        let manifest = Manifest {
            name: "guard".into(),
            version: semver::Version::new(1, 0, 0),
            offers: [None; 4],
            hooks: std::collections::BTreeMap::new(),
            tool_names: Arc::default(),
            tools: None,
            capabilities: Vec::new(),
            config_schema: None,
            tenant_config_schema: None,
        };
        let refused = PreparedConfig::new(&plugin, &shared, &manifest, false).expect_err("plaintext");
        assert_eq!(refused.refusal, Refusal::ConfigRefused);
        assert!(refused.advice.contains("allow_plaintext"));
        assert!(PreparedConfig::new(&plugin, &shared, &manifest, true).is_ok());
        plugin.allow_plaintext = true;
        assert!(PreparedConfig::new(&plugin, &shared, &manifest, false).is_ok());
        plugin.allow_plaintext = false;
        plugin.config.clear();
        assert!(PreparedConfig::new(&plugin, &shared, &manifest, false).is_ok(), "no references, no secrets");
    }

    #[test]
    fn violations_name_the_member_and_never_the_value() {
        let schema = json!({"type": "object", "required": ["url"], "additionalProperties": false,
            "properties": {"url": {}, "key": {"type": "string", "maxLength": 3}, "n": {"enum": [1]},
                "least": {"minimum": 1}, "none": false, "text": {"type": "string"}}});
        let validator = jsonschema::validator_for(&schema).expect("compiles");
        let config = json!({"key": "s3cr3t", "n": "s3cr3t", "surplus": "s3cr3t", "least": -77, "none": "s3cr3t",
            "text": ["s3cr3t"]});
        let mut listed: Vec<_> = validator.iter_errors(&config).map(|error| violation(&error)).collect();
        listed.sort();
        assert_eq!(
            listed,
            [
                "`/` has unknown members [\"surplus\"]",
                "`/` lacks \"url\"",
                "`/key`: value is longer than 3 characters",
                "`/least`: value is less than the minimum of 1",
                "`/n`: value is not one of 1",
                "`/none`: the plugin takes nothing there",
                "`/text`: value is not of type \"string\"",
            ]
        );
    }
}
