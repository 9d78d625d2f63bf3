//! Makes one test call to a plugin, as a chain would: through the plugin's client, within its limits and
//! with its access. The call is part of no chain, counts for no tenant, and is not passed to observers.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use hookgate_proto::plugin::v1 as wire;
use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::{OperationReason, plugin::find};
use crate::{
    config,
    core::{
        context::{CallContext, Identity},
        digest::digest,
        error::{Code, Error, Violation},
        failure::Failure,
        manifest::Manifest,
        schema_violation, step,
    },
    invoke::{
        ExtensionPoint,
        reply::{self, Grant, VerifiedReply},
    },
    routing::{Step, TenantRoute},
    snapshot::ConfigSnapshot,
    upstream::{CallMeta, PluginReply},
};

/// The tenant of a test call that names none.
const DEFAULT_TENANT: &str = "test";

#[derive(Debug, Clone, Default)]
pub struct TestCallOptions {
    /// The tenant whose config, timeout and `writable` for the plugin at this point apply; `None` uses the
    /// plugin's entry.
    pub tenant: Option<String>,
    /// Replaces the tenant's config. If `None`, the tenant's config is used, or an empty one.
    pub tenant_config: Option<config::JsonObject>,
}

/// The result of a test call.
pub struct TestCallResult<P: ExtensionPoint> {
    /// The payload as it was sent.
    pub payload: Arc<P::Payload>,
    /// The plugin's reply, or why there is no usable one.
    pub result: Result<VerifiedReply<P>, Failure>,
    /// From waiting for a permit to the verified reply.
    pub took: Duration,
}

/// The parameters of a call.
struct TestCallParams<'a> {
    tenant: Arc<str>,
    config: Bytes,
    config_digest: String,
    limit: Duration,
    writable: Option<&'a [String]>,
}

/// Calls the plugin `name` at `P` with `request`. If the future is dropped, the call is cancelled.
///
/// # Errors
/// If the plugin isn't called: NOT_FOUND; CONFLICT if it is switched off; PAYLOAD_INVALID if the tenant
/// isn't served; CONFIG_INVALID if the plugin's schema rejects the tenant's config.
pub async fn trial<P: ExtensionPoint>(
    snapshot: &ConfigSnapshot,
    who: &OperationReason,
    name: &str,
    question: &TestCallOptions,
    request: P::Request,
) -> Result<TestCallResult<P>, Error> {
    let (plugin, client) = find(snapshot, name)?;
    let terms = terms(snapshot, plugin, question, P::POINT)?;
    let parts = P::request_parts(request);
    let payload = parts.payload.ok_or_else(|| Error::new(Code::Internal, "an unchecked request"))?;
    let payload = Arc::new(payload);
    let manifest = client.status().manifest;
    if let Some(manifest) = &manifest {
        check_config(manifest, &terms.config)?;
    }
    super::log(who, "call", Some(name));
    let context = context(who, P::POINT, &terms, parts.context);
    let call = wire::Call {
        context: Some(context.for_plugins()),
        config_digest: String::new(), // the client knows it
        tenant_config: terms.config.clone(),
        tenant_config_digest: terms.config_digest.clone(),
        chain_result: None,
        run_tool: false,
        window: None,
        host_token: String::new(),
    };
    let began = Instant::now();
    let result = match offered(manifest.as_deref(), P::POINT, &terms) {
        Err(failure) => Err(failure),
        Ok(grant) => {
            let meta =
                CallMeta { tenant: Arc::clone(&context.identity.tenant), depth: 1, whole: true, trial: true };
            let replied = client.call(P::POINT, call, Arc::clone(&payload), meta, terms.limit).await;
            let limits = &snapshot.invoker.routes().replies;
            replied.and_then(|PluginReply { bytes, served, .. }| {
                let read = reply::read::<P>(bytes, &P::POINT.into(), &payload, grant, limits);
                served.judge(read.as_ref().err().map(|flaw| flaw.reason));
                read.map_err(|flaw| Failure::new(flaw.reason, flaw.detail))
            })
        }
    };
    Ok(TestCallResult { payload, result, took: began.elapsed() })
}

/// The parameters from the tenant's step, or else from the plugin's entry.
fn terms<'a>(
    snapshot: &'a ConfigSnapshot,
    plugin: &config::Plugin,
    question: &TestCallOptions,
    point: crate::core::point::Point,
) -> Result<TestCallParams<'a>, Error> {
    let step = match &question.tenant {
        None => None,
        Some(id) => match snapshot.invoker.routes().table.tenant(id) {
            TenantRoute::Known(plans) => {
                plans.plan_at(&point.into()).steps.iter().find(|step| *step.plugin_name == *plugin.name)
            }
            TenantRoute::Disabled | TenantRoute::Unknown => {
                let violation = Violation::new("/tenant", "No tenant with this id is served: omit `tenant`");
                return Err(Error::invalid(vec![violation]));
            }
        },
    };
    let (config, config_digest) = match (&question.tenant_config, step) {
        (Some(config), _) => encode_config(&Value::Object(config.clone())),
        (None, Some(step)) => (step.tenant_config.clone(), step.tenant_config_digest.to_string()),
        (None, None) => encode_config(&Value::Object(config::JsonObject::new())),
    };
    Ok(TestCallParams {
        tenant: question.tenant.as_deref().unwrap_or(DEFAULT_TENANT).into(),
        config,
        config_digest,
        limit: step.map_or(plugin.limits.timeout.0, |step: &Step| step.timeout),
        writable: step.and_then(|step| step.writable.as_deref()),
    })
}

fn encode_config(config: &Value) -> (Bytes, String) {
    (config.to_string().into(), digest(config))
}

/// Checks the tenant's config first: a plugin never sees a config that its schema rejects.
fn check_config(manifest: &Manifest, config: &[u8]) -> Result<(), Error> {
    let Some(schema) = &manifest.tenant_config_schema else { return Ok(()) };
    let config: Value = serde_json::from_slice(config)
        .map_err(|_| Error::new(Code::Internal, "a tenant's config that is no JSON"))?;
    let violations: Vec<_> = schema
        .iter_errors(&config)
        .map(|error| {
            let message = format!("It violates the plugin's schema: {}", schema_violation::rule(&error));
            Violation::new(format!("/tenant_config{}", error.instance_path()), message)
        })
        .collect();
    if violations.is_empty() {
        return Ok(());
    }
    let detail = "The plugin's schema refuses the tenant's config";
    Err(Error { violations, ..Error::new(Code::ConfigInvalid, detail) })
}

/// What the plugin may do there, as before a step.
fn offered<'a>(
    manifest: Option<&Manifest>,
    point: crate::core::point::Point,
    terms: &TestCallParams<'a>,
) -> Result<Grant<'a>, Failure> {
    let Some(manifest) = manifest else {
        return Err(Failure::new(step::Reason::NotReady, "it has not finished its handshake yet"));
    };
    match manifest.offers(point) {
        Some(offer) => Ok(Grant { access: offer.access, writable: terms.writable }),
        None => {
            let detail = format!("the plugin's manifest does not offer {point}");
            Err(Failure::new(step::Reason::PointNotOffered, detail))
        }
    }
}

fn context(
    who: &OperationReason,
    point: crate::core::point::Point,
    terms: &TestCallParams<'_>,
    request: hookgate_proto::gateway::v1::RequestContext,
) -> CallContext {
    CallContext {
        site: point.into(),
        identity: Arc::new(Identity {
            tenant: Arc::clone(&terms.tenant),
            operator: who.author.as_str().into(),
            user_id: None,
            claims: BTreeMap::new(),
        }),
        request_id: who.request_id,
        correlation_id: None,
        request,
        received: Instant::now(),
        deadline: None,
        depth: 0,
        trace: false,
        takes_results: false,
        exchange: None,
    }
}
