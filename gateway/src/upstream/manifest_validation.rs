//! Describe, and the checks that decide whether a manifest is accepted (docs/protocol.md, section 2, in that
//! order). Each refusal says what to change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use hookgate_proto::{
    HookName, PayloadFields,
    plugin::v1::{self as plugin, DescribeRequest, DescribeResponse},
};
use prost::Message as _;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    config::{self, Capability, Consent},
    core::{
        digest::digest,
        manifest::{Access, Manifest, PointAccess, SideEffects},
        point::Point,
        tool::{ToolNames, Tools},
    },
    grpc::framing,
    upstream::{
        client::SharedResources,
        codec::{self, ExchangeError},
        connection::{Connection, Rpc},
        consent::{Wants, consented},
        control_call,
        dial_error::DialErrorKind,
        host_access::HostOffer,
        initialize::PreparedConfig,
        refusal::{Refusal, RefusalDetail},
        state::Why,
    },
};

const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Most hooks in a manifest.
const MAX_HOOKS: usize = 64;
/// Largest manifest: two schemas and room for the rest.
const MAX_MANIFEST_BYTES: usize = 256 << 10;
/// Longest version, in bytes: the version appears in the log, the status and each plan.
const MAX_VERSION_BYTES: usize = 256;
/// Protocol majors that the gateway speaks.
const PROTOCOL_VERSIONS: [u32; 1] = [1];

/// An accepted manifest, with the form that later ones are compared to.
pub(super) struct AcceptedManifest {
    pub(super) manifest: Arc<Manifest>,
    /// Everything that must not change between connections.
    pub(super) shape: Consent,
}

/// Why a connection is not used after Describe.
#[derive(Debug)]
pub(super) enum DescribeError {
    /// Retried soon.
    Away(Why, String),
    /// Retried on a new connection, and periodically.
    Out {
        why: Why,
        detail: String,
        /// What an operator would have to consent to.
        wants: Option<Arc<Wants>>,
    },
}

impl AcceptedManifest {
    pub(super) fn version(&self) -> &semver::Version {
        &self.manifest.version
    }

    /// This manifest with `tools`, if they are known.
    pub(super) fn with_tools(self: &Arc<Self>, tools: Option<Tools>) -> Arc<Self> {
        if tools.is_none() || tools == self.manifest.tools {
            return Arc::clone(self);
        }
        let manifest = Arc::new(Manifest { tools, ..(*self.manifest).clone() });
        Arc::new(AcceptedManifest { manifest, shape: self.shape.clone() })
    }

    /// Whether this manifest equals `other` in everything but the version and the tools.
    pub(super) fn has_shape_of(&self, other: &AcceptedManifest) -> bool {
        self.shape == other.shape
    }
}

impl From<RefusalDetail> for DescribeError {
    fn from(refused: RefusalDetail) -> Self {
        DescribeError::Out { why: Why::Refused(refused.refusal), detail: refused.advice, wants: None }
    }
}

fn bad_manifest(advice: impl Into<String>) -> RefusalDetail {
    RefusalDetail::new(Refusal::BadManifest, advice)
}

/// The request that asks the plugin `registered` to describe itself.
pub(super) fn describe_request(registered: &config::Plugin) -> DescribeRequest {
    DescribeRequest {
        gateway_version: env!("CARGO_PKG_VERSION").into(),
        protocol_versions: PROTOCOL_VERSIONS.into(),
        plugin: registered.name.clone(),
    }
}

/// Describes the plugin `registered` behind `connection`. `before` is the configuration that the last connection
/// delivered; its secrets are redacted from errors.
pub(super) async fn describe(
    connection: &Connection,
    registered: &config::Plugin,
    before: Option<&PreparedConfig>,
) -> Result<DescribeResponse, DescribeError> {
    let frame = framing::frame(&describe_request(registered));
    let deadline = Instant::now() + DESCRIBE_TIMEOUT;
    let reply = control_call::call(connection, Rpc::Describe, frame, deadline, MAX_MANIFEST_BYTES).await;
    let described = DescribeResponse::decode(reply.map_err(|error| undescribed(&error, registered, before))?).map_err(|error| {
        bad_manifest(format!(
            "the answer to Describe can't be decoded ({error}): generate the plugin's code from our .proto"
        ))
    })?;
    Ok(described)
}

/// Classifies a failed Describe.
fn undescribed(
    error: &ExchangeError,
    registered: &config::Plugin,
    before: Option<&PreparedConfig>,
) -> DescribeError {
    let shown =
        |text: &str| before.map_or_else(|| codec::display_text(text), |before| before.display_text(text));
    match error {
        ExchangeError::Status(status) if status.code() == tonic::Code::Unimplemented => bad_manifest(
            "there is no hookgate.plugin.v1.PluginService/Describe: implement it, or correct `endpoint`",
        )
        .into(),
        ExchangeError::Status(status) if status.code() == tonic::Code::NotFound => {
            let said = shown(status.message());
            RefusalDetail::new(Refusal::NameMismatch, match &*registered.name {
                "" => format!("Describe without a plugin's name was answered with NOT_FOUND ({said}): say which plugin is meant"),
                name => format!(
                    "Describe of `{name}` was answered with NOT_FOUND ({said}): register the plugin under its own name, \
                     or correct `endpoint`"
                ),
            })
            .into()
        }
        ExchangeError::BadReply(detail) | ExchangeError::TooLarge(detail) => bad_manifest(format!(
            "the answer to Describe is unusable ({}): serve gRPC over HTTP/2, or correct `endpoint`",
            shown(detail)
        ))
        .into(),
        ExchangeError::TimedOut => {
            DescribeError::Away(Why::DescribeTimeout, "Describe was not answered within 5 s".into())
        }
        ExchangeError::Status(status) => {
            let (code, words) = (status.code(), shown(status.message()));
            let detail = format!("Describe was answered with {code:?}: {words}");
            DescribeError::Away(Why::DescribeFailed, detail)
        }
        ExchangeError::Lost(_) | ExchangeError::Unsent(_) | ExchangeError::StreamRefused => {
            DescribeError::Away(
                Why::Unreachable(DialErrorKind::Closed),
                format!("Describe: {}", shown(&error.to_string())),
            )
        }
    }
}

/// Checks a manifest against the plugin's registration. Parts that are unchanged from `before`, the accepted
/// manifest, are reused.
pub(super) fn judge(
    registered: &config::Plugin,
    described: DescribeResponse,
    before: Option<&AcceptedManifest>,
    shared: &SharedResources,
) -> Result<AcceptedManifest, DescribeError> {
    let asks = shared.reach.needs_consent(registered);
    let version = identity(registered, &described)?;
    let offers = offers(&described.points)?;
    let hooks = hooks(&described.hooks)?;
    let tool_names = tool_names(&described.tools)?;
    if hooks.is_empty() && described.points.is_empty() && tool_names.is_empty() {
        return Err(RefusalDetail::new(
            Refusal::NoExtensionPoint,
            "the plugin offers no extension point, no hook and no tool: name at least one in `points`, `hooks` or \
             `tools` of the answer to Describe",
        )
        .into());
    }
    let capabilities = capabilities(registered, asks, &described.capabilities, before, &shared.host)?;
    let config_schema = schema("config_schema", &described.config_schema)?;
    let tenant_config_schema = schema("tenant_config_schema", &described.tenant_config_schema)?;
    let shape = Consent {
        points: offers.into(),
        hooks: hooks.clone(),
        tools: tool_names.globs().clone(),
        capabilities,
        config_schema: config_schema.as_ref().map(digest),
        tenant_config_schema: tenant_config_schema.as_ref().map(digest),
    };
    let name: Arc<str> = match registered.name.as_str() {
        "" => codec::display_text(&described.name).into(),
        name => name.into(),
    };
    let before = before.filter(|before| before.shape == shape);
    // Those of the same configuration, until this process gives its own.
    let tools = before.and_then(|before| before.manifest.tools.clone());
    let (config_schema, tenant_config_schema) = match before {
        // An identical manifest: reuse it.
        Some(before) if before.manifest.version == version => {
            return Ok(AcceptedManifest { manifest: Arc::clone(&before.manifest), shape });
        }
        // The schemas are compiled already.
        Some(before) => (before.manifest.config_schema.clone(), before.manifest.tenant_config_schema.clone()),
        None => {
            disjoint(config_schema.as_ref(), tenant_config_schema.as_ref())?;
            (
                compile("config_schema", config_schema.as_ref())?,
                compile("tenant_config_schema", tenant_config_schema.as_ref())?,
            )
        }
    };
    let capabilities = shape.capabilities.iter().map(|capability| capability.as_str().to_owned()).collect();
    let manifest = Arc::new(Manifest {
        name,
        version,
        offers,
        hooks,
        tool_names: Arc::new(tool_names),
        tools,
        capabilities,
        config_schema,
        tenant_config_schema,
    });
    // Last, so that no operator is asked to approve a plugin that can't be used.
    if asks {
        consented(registered, &manifest, &shape)?;
    }
    Ok(AcceptedManifest { manifest, shape })
}

/// The capabilities to grant. If the gateway `asks` for consent, it covers capabilities too, unless the gateway doesn't
/// know some of them.
fn capabilities(
    registered: &config::Plugin,
    asks: bool,
    wanted: &[String],
    before: Option<&AcceptedManifest>,
    host: &HostOffer,
) -> Result<BTreeSet<Capability>, DescribeError> {
    let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let may_have = |name: &str| {
        Capability::from_name(name)
            .filter(|capability| asks || registered.granted().any(|granted| granted == *capability))
    };
    let surplus: Vec<_> = wanted.iter().filter(|name| may_have(name).is_none()).collect();
    if surplus.is_empty() {
        return match (wanted.first(), host.lacks(registered.builtin.is_some())) {
            (Some(name), Some(lack)) => overreach(before, format!("the plugin wants `{name}`, and {lack}")),
            _ => Ok(wanted.into_iter().filter_map(may_have).collect()),
        };
    }
    let surplus = codec::display_text(&format!("{surplus:?}"));
    if asks {
        let advice = format!(
            "the plugin wants {surplus}, which this gateway can't grant: make it request less, or run a gateway that \
             can"
        );
        return Err(RefusalDetail::new(Refusal::CapabilityOverreach, advice).into());
    }
    let advice = format!(
        "the plugin wants {surplus} beyond its grants: add them to `grants`, or make it request less"
    );
    overreach(before, advice)
}

/// More is wanted than can be had. An endpoint waits while others have an accepted manifest.
fn overreach<T>(before: Option<&AcceptedManifest>, advice: String) -> Result<T, DescribeError> {
    match before {
        Some(_) => Err(DescribeError::Out { why: Why::UpgradePending, detail: advice, wants: None }),
        None => Err(RefusalDetail::new(Refusal::CapabilityOverreach, advice).into()),
    }
}

/// Checks name, version and protocol.
fn identity(
    registered: &config::Plugin,
    described: &DescribeResponse,
) -> Result<semver::Version, RefusalDetail> {
    // An empty registered name, which no configuration can contain, means a trial of the plugin: any name
    // will do.
    if described.name != registered.name && !registered.name.is_empty() {
        let (named, name) = (codec::display_text(&described.name), &registered.name);
        let remedy = match &registered.builtin {
            Some(_) => format!("name the entry `{named}`, as the built-in plugin is called"),
            None => "register it under its own name, or correct `endpoint`".to_owned(),
        };
        return Err(RefusalDetail::new(
            Refusal::NameMismatch,
            format!("the plugin's name is `{named}`, but it is registered as `{name}`: {remedy}"),
        ));
    }
    if described.version.len() > MAX_VERSION_BYTES {
        let bytes = described.version.len();
        return Err(bad_manifest(format!("`version` has {bytes} bytes: keep it within {MAX_VERSION_BYTES}")));
    }
    let version: semver::Version = described.version.parse().map_err(|_| {
        let version = codec::display_text(&described.version);
        bad_manifest(format!("`version` is `{version}`: make it a semantic version, such as 1.2.0"))
    })?;
    if let Some(range) = registered.version.as_ref().filter(|range| !range.matches(&version)) {
        return Err(RefusalDetail::new(
            Refusal::VersionMismatch,
            format!(
                "the plugin has version {version} and is registered with `version: {range}`: run a version \
                 within the range, or change the range"
            ),
        ));
    }
    if !described.protocol_versions.iter().any(|version| PROTOCOL_VERSIONS.contains(version)) {
        let spoken = codec::display_text(&format!("{:?}", described.protocol_versions));
        return Err(RefusalDetail::new(
            Refusal::ProtocolMismatch,
            format!(
                "the plugin speaks protocol versions {spoken} and the gateway {PROTOCOL_VERSIONS:?}: update \
                 whichever is older"
            ),
        ));
    }
    Ok(version)
}

fn offers(points: &[plugin::PointOffer]) -> Result<[Option<PointAccess>; 4], RefusalDetail> {
    let mut offers = [None; 4];
    for offer in points {
        let Some(point) = Point::from_wire(offer.point()) else {
            return Err(bad_manifest("an entry of `points` has no known `point`: name one of the four"));
        };
        let access = match offer.access() {
            plugin::Access::Unspecified => {
                return Err(bad_manifest(format!(
                    "`points` gives no `access` for {point}: set READ or MODIFY"
                )));
            }
            plugin::Access::Read => Access::Read,
            plugin::Access::Modify => Access::Modify,
        };
        let Some(side_effects) = SideEffects::from_wire(offer.side_effects()) else {
            return Err(bad_manifest(format!(
                "`points` gives no `side_effects` for {point}: set NONE or SOME"
            )));
        };
        let reads =
            offer.reads.as_ref().map(|reads| PayloadFields::from_names(point, &reads.names)).transpose();
        let reads = reads.map_err(|error| bad_manifest(codec::display_text(&error.to_string())))?;
        let windows = offer.windows;
        if windows {
            point.check_windows(reads).map_err(bad_manifest)?;
        }
        if offers[point.index()].replace(PointAccess { access, side_effects, reads, windows }).is_some() {
            return Err(bad_manifest(format!("`points` names {point} twice: name each point once")));
        }
    }
    Ok(offers)
}

/// The hooks with the side effects at each.
fn hooks(hooks: &[plugin::HookOffer]) -> Result<BTreeMap<HookName, SideEffects>, RefusalDetail> {
    if hooks.len() > MAX_HOOKS {
        let named = hooks.len();
        return Err(bad_manifest(format!("`hooks` names {named} hooks: name at most {MAX_HOOKS}")));
    }
    let mut offers = BTreeMap::new();
    for offer in hooks {
        let hook = HookName::new(&offer.hook).map_err(|error| {
            let named = codec::display_text(&offer.hook);
            bad_manifest(format!("`hooks` names `{named}`: {error}"))
        })?;
        let Some(side_effects) = SideEffects::from_wire(offer.side_effects()) else {
            return Err(bad_manifest(format!(
                "`hooks` gives no `side_effects` for {hook}: set NONE or SOME"
            )));
        };
        if offers.insert(hook, side_effects).is_some() {
            let hook = &offer.hook;
            return Err(bad_manifest(format!("`hooks` names {hook} twice: name each hook once")));
        }
    }
    Ok(offers)
}

/// The names that the plugin's tools may have.
fn tool_names(globs: &[String]) -> Result<ToolNames, RefusalDetail> {
    if globs.len() > ToolNames::MAX_GLOBS {
        let named = globs.len();
        return Err(bad_manifest(format!(
            "`tools` has {named} globs: keep it within {}",
            ToolNames::MAX_GLOBS
        )));
    }
    if let Some(glob) = globs.iter().find(|glob| !hookgate_glob::has_literal(glob)) {
        return Err(bad_manifest(format!(
            "`tools` has the glob `{glob}`, which covers every plugin's tools: begin it with a prefix of your own"
        )));
    }
    if let Some(long) = globs.iter().find(|glob| glob.len() > ToolNames::MAX_GLOB_BYTES) {
        let bytes = long.len();
        return Err(bad_manifest(format!(
            "`tools` has a glob of {bytes} bytes: keep each within {}",
            ToolNames::MAX_GLOB_BYTES
        )));
    }
    ToolNames::new("tools", globs).map_err(|error| bad_manifest(codec::display_text(&error.to_string())))
}

fn schema(member: &str, json: &[u8]) -> Result<Option<Value>, RefusalDetail> {
    if json.is_empty() {
        return Ok(None);
    }
    if json.len() > MAX_SCHEMA_BYTES {
        let bytes = json.len();
        return Err(bad_manifest(format!("`{member}` has {bytes} bytes: keep it within 64 KiB")));
    }
    let schema = serde_json::from_slice(json)
        .map_err(|error| bad_manifest(format!("`{member}` is not JSON ({error}): send a JSON Schema")))?;
    Ok(Some(schema))
}

fn compile(
    member: &str,
    schema: Option<&Value>,
) -> Result<Option<Arc<jsonschema::Validator>>, RefusalDetail> {
    let Some(schema) = schema else { return Ok(None) };
    // No resolver is compiled in: a reference to another document is an error here, never a request.
    let validator = jsonschema::validator_for(schema).map_err(|error| {
        let error = codec::display_text(&error.to_string());
        bad_manifest(format!(
            "`{member}` does not compile ({error}): send a JSON Schema that refers to itself alone"
        ))
    })?;
    Ok(Some(Arc::new(validator)))
}

/// Checks that plugin-level and tenant-level config don't name the same property: it would be ambiguous which
/// one applies.
fn disjoint(config: Option<&Value>, tenant: Option<&Value>) -> Result<(), RefusalDetail> {
    let names = |schema: Option<&Value>| -> BTreeSet<String> {
        let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect()
    };
    match names(config).intersection(&names(tenant)).next() {
        Some(shared) => {
            let shared = codec::display_text(shared);
            Err(bad_manifest(format!(
                "`config_schema` and `tenant_config_schema` both name `{shared}`: keep it in one of them"
            )))
        }
        None => Ok(()),
    }
}
