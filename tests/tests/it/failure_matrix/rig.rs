//! The plugins and the gateway of the failure matrix: a plugin for each behaviour, and a tenant for each
//! kind of binding and case. Every chain is a plugin that patches, the step under test, and a witness.

use std::{collections::BTreeSet, sync::LazyLock};

use hookgate::core::{
    point::Point,
    step::{Mode, OnError},
};
use hookgate_proto::{
    plugin::v1::Access,
    types::v1::{
        AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch,
        ExtensionPoint, Notice, NoticeKind,
    },
};
use hookgate_tests::{
    ca::Ca,
    fake::{Act, Builder, FakePlugin, Handshake, POINTS, Patch, WireBehaviour, notice},
    gateway::{Gateway, Setup},
};
use serde_json::{Value, json};
use tonic::Code as Grpc;

use crate::failure_matrix::{
    cells::{Case, FAILURES, KINDS, Kind, tenant},
    groups::{GroupCell, Place},
};

/// Contains a number above 2^53, a null, spaces and escapes: parsing and serializing it would change it.
pub(crate) const RAW: &str = r#"{"z": 9007199254740993,  "a": {"n": null}, "u": "Zo\u00eb ✓"}"#;
/// The patch of the step under test.
pub(crate) const EXTRA: &str = r#"{"by": "the step"}"#;
/// The caller's timeout if the budget must be exhausted at the step under test and not earlier. Half of it
/// must be more than the previous step ever takes.
pub(crate) const SHORT_MS: &str = "10000";
/// The timeout of steps: for plugins that answer, more than they ever take while other tests run; for those
/// that hang, more than the caller's timeout leaves.
const TIMEOUT: &str = "20s";

/// Nobody listens on port 1.
const NOBODY: &str = "http://127.0.0.1:1";
const REQUEST_LIMIT: usize = 64 << 10;
const NOTICES_LIMIT: usize = 8 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Unix,
    Tls,
    /// Over TCP and a Unix socket at once, with a third endpoint where nobody listens.
    Several,
}

/// All of them.
pub(crate) const TRANSPORTS: [Transport; 4] =
    [Transport::Tcp, Transport::Unix, Transport::Tls, Transport::Several];

/// The CA of every plugin over TLS.
static AUTHORITY: LazyLock<Ca> = LazyLock::new(Ca::new);

/// A plugin, and if it has several endpoints its other one.
pub(crate) struct PluginSet {
    plugin: FakePlugin,
    twin: Option<FakePlugin>,
}

impl Transport {
    /// Starts `plugin`; with several endpoints, the first.
    pub(crate) async fn start(self, plugin: Builder) -> FakePlugin {
        match self {
            Transport::Tcp | Transport::Several => plugin.start().await,
            Transport::Unix => plugin.start_unix().await,
            Transport::Tls => plugin.start_tls(&AUTHORITY).await,
        }
    }

    async fn start_all(self, plugin: Builder) -> PluginSet {
        let plugin = self.start(plugin).await;
        let twin = if self == Transport::Several { Some(plugin.twin_unix().await) } else { None };
        PluginSet { plugin, twin }
    }
}

impl PluginSet {
    /// Registers it with these further members.
    fn registered(&self, setup: Setup, members: &Value) -> Setup {
        let mut members = members.clone();
        if let Some(twin) = &self.twin {
            members["endpoint"] = Value::Null;
            members["endpoints"] = json!([self.plugin.endpoint(), twin.endpoint(), NOBODY]);
        }
        if members["limits"].get("timeout").is_none() {
            members["limits"]["timeout"] = TIMEOUT.into();
        }
        // Most of them fail on purpose, again and again.
        if members.get("breaker").is_none() {
            members["breaker"] = json!({ "failures": 1_000_000 });
        }
        setup.plugin_with(&self.plugin, &members)
    }

    async fn stop(&mut self) {
        self.plugin.stop().await;
        if let Some(twin) = &mut self.twin {
            twin.stop().await;
        }
    }
}

pub(crate) fn on_the_wire(point: Point) -> ExtensionPoint {
    match point {
        Point::BeforeLlmRequest => ExtensionPoint::BeforeLlmRequest,
        Point::BeforeToolCall => ExtensionPoint::BeforeToolCall,
        Point::AfterToolResult => ExtensionPoint::AfterToolResult,
        Point::BeforeResponse => ExtensionPoint::BeforeResponse,
    }
}

/// A payload of the point.
pub(crate) fn payload(point: Point) -> Value {
    match point {
        Point::BeforeLlmRequest => json!({ "text": "hello" }),
        Point::BeforeToolCall => json!({ "tool_name": "fs.read", "args": 1, "call_id": "c1" }),
        Point::AfterToolResult => json!({ "tool_name": "fs.read", "result": 1, "success": false }),
        Point::BeforeResponse => json!({ "content": "hello", "reasoning": "because" }),
    }
}

/// The patch of the plugin before the step.
fn first_patch(point: ExtensionPoint, raw: &str) -> Patch {
    match point {
        ExtensionPoint::BeforeLlmRequest => {
            BeforeLlmRequestPatch { messages: Some(format!("[{raw}]").into()), ..Default::default() }.into()
        }
        ExtensionPoint::BeforeToolCall => {
            BeforeToolCallPatch { args: Some(raw.to_owned().into()), ..Default::default() }.into()
        }
        ExtensionPoint::AfterToolResult => {
            AfterToolResultPatch { result: Some(raw.to_owned().into()), ..Default::default() }.into()
        }
        ExtensionPoint::BeforeResponse => {
            BeforeResponsePatch { content: Some(raw.into()), ..Default::default() }.into()
        }
        ExtensionPoint::Unspecified => panic!("no point, no patch"),
    }
}

/// A patch of `extra`, which every point has.
fn extra(point: ExtensionPoint, extra: &str) -> Patch {
    let extra = Some(extra.to_owned().into());
    match point {
        ExtensionPoint::BeforeLlmRequest => BeforeLlmRequestPatch { extra, ..Default::default() }.into(),
        ExtensionPoint::BeforeToolCall => BeforeToolCallPatch { extra, ..Default::default() }.into(),
        ExtensionPoint::AfterToolResult => AfterToolResultPatch { extra, ..Default::default() }.into(),
        ExtensionPoint::BeforeResponse => BeforeResponsePatch { extra, ..Default::default() }.into(),
        ExtensionPoint::Unspecified => panic!("no point, no patch"),
    }
}

fn large(bytes: usize) -> String {
    json!({ "x": "x".repeat(bytes) }).to_string()
}

fn cancel() -> Act {
    let remark = notice(NoticeKind::Block, "REMARK", "this is why", &Value::Null);
    Act::cancel("TOOL_NOT_ALLOWED", "No.").with_notice(remark)
}

fn neighbours_remark() -> Notice {
    notice(NoticeKind::Info, "NEIGHBOUR", "I was asked too", &Value::Null)
}

/// A plugin that acts the same way at every point.
fn plugin(name: &str, act: impl Fn(ExtensionPoint) -> Act) -> Builder {
    POINTS.iter().fold(FakePlugin::named(name), |plugin, &point| plugin.at(point, act(point)))
}

/// The plugin before the step, whose patch brings this JSON.
pub(crate) fn first(raw: &str) -> Builder {
    plugin("first", |point| Act::patch(first_patch(point, raw)))
}

/// A plugin that fails as `name` says, or decides.
fn behaving(name: &str) -> Builder {
    let folded_limit = REQUEST_LIMIT + (64 << 10);
    match name {
        "continues" | "gone" | "tripped" => FakePlugin::named(name),
        "continues-patching" => plugin(name, |point| Act::patch(extra(point, EXTRA))),
        "cancels" => plugin(name, |_| cancel()),
        "cancels-patching" => plugin(name, |point| cancel().with_patch(extra(point, EXTRA))),
        "hangs" | "hangs-long" | "busy" => plugin(name, |_| Act::hang()),
        "silent" => FakePlugin::named(name).on_describe(Handshake::Hangs),
        "internal" => plugin(name, |_| Act::status(Grpc::Internal, "no")),
        "unavailable" => plugin(name, |_| Act::status(Grpc::Unavailable, "no")),
        "late" => plugin(name, |_| Act::status(Grpc::DeadlineExceeded, "no")),
        "undecided" => plugin(name, |_| Act::no_verdict()),
        "garbled" => plugin(name, |_| Act::pass().sent(WireBehaviour::Garbage)),
        "reader" => plugin(name, |point| Act::patch(extra(point, EXTRA))).access(Access::Read),
        "verbose" => plugin(name, |point| Act::patch(extra(point, &large(folded_limit + NOTICES_LIMIT)))),
        "grower" => plugin(name, |point| Act::patch(extra(point, &large(folded_limit)))),
        // Offers one point, so that it can be bound at the others; the second binding covers that one.
        "elsewhere" => FakePlugin::named(name).only(&[ExtensionPoint::BeforeLlmRequest]),
        "neighbour" => plugin(name, |_| Act::pass().with_notice(neighbours_remark())),
        "refusing-neighbour" => {
            plugin(name, |_| Act::cancel("FORBIDDEN", "No.").with_notice(neighbours_remark()))
        }
        "elsewhere-too" => FakePlugin::named(name).only(&[ExtensionPoint::BeforeToolCall]),
        other => panic!("no plugin behaves like {other}"),
    }
}

/// The plugin with this access, if that is less than its own.
fn with_access(plugin: Builder, access: Access) -> Builder {
    if access == Access::Read { plugin.access(access) } else { plugin }
}

fn members(case: Case) -> Value {
    match case.plugin() {
        // An observer that gets this permit at the end waits for the drain.
        "busy" => json!({ "limits": { "timeout": "60s", "in_flight": 1, "queue": 1, "queue_wait": "50ms" } }),
        "silent" => json!({ "required": false }),
        "tripped" => json!({ "breaker": { "failures": 1, "open": "1h", "max_open": "1h" } }),
        _ => json!({}),
    }
}

pub(crate) fn of(kind: Kind, case: Case, tenant: &str) -> Value {
    let mut binding = json!({ "tenant": tenant });
    binding["mode"] = match kind.mode {
        Mode::Enforce => "enforce".into(),
        Mode::Advise => "advise".into(),
        Mode::Observe => "observe".into(),
    };
    if let Some(on_error) = kind.on_error {
        binding["on_error"] = match on_error {
            OnError::Fail => "fail".into(),
            OnError::Skip => "skip".into(),
        };
    }
    match case {
        Case::ConditionFalse => binding["match"] = json!({ "labels": { "lane": ["fast"] } }),
        Case::Fails(failure) if failure.plugin == "hangs" => binding["timeout"] = "1s".into(),
        Case::Fails(failure) if failure.plugin == "elsewhere" => {
            binding["points"] = json!(["before_tool_call", "after_tool_result", "before_response"]);
        }
        _ => {}
    }
    binding
}

fn bind(setup: Setup, kind: Kind, case: Case) -> Setup {
    let tenant = tenant(kind, case);
    let binding = of(kind, case, &tenant);
    let mut setup = setup.tenant(&tenant).binding_with(case.plugin(), 10, &binding);
    if case.plugin() == "elsewhere" {
        let mut other = binding;
        other["points"] = json!(["before_llm_request"]);
        setup = setup.binding_with("elsewhere-too", 11, &other);
    }
    if case == Case::BudgetShort {
        // Uses up all the time that a later mandatory step doesn't need.
        let hog = json!({ "tenant": tenant, "blocking": false, "timeout": "30s" });
        setup = setup.binding_with("hangs-long", 5, &hog);
    }
    setup
}

/// Binds the step under test and its neighbour, which the group's place puts before or behind it.
fn bind_group(setup: Setup, group: &GroupCell) -> Setup {
    let tenant = group.tenant();
    let neighbour = match group.place {
        Place::First => 15,
        Place::Second => 5,
    };
    setup
        .tenant(&tenant)
        .binding_with(group.case.plugin(), 10, &of(group.kind, group.case, &tenant))
        .binding_with(group.neighbour.plugin(), neighbour, &json!({ "tenant": tenant }))
}

/// The gateway with all plugins, of which some are then stopped, busy or tripped.
pub(crate) struct Rig {
    pub(crate) gateway: Gateway,
    plugins: Vec<PluginSet>,
}

impl Rig {
    /// The plugins of the matrix, each alone in its tenant's chains.
    pub(crate) async fn start(transport: Transport) -> Self {
        let bind_all = |mut setup: Setup| {
            for kind in KINDS {
                for case in Case::all().into_iter().filter(|case| case.arises(kind)) {
                    setup = bind(setup, kind, case);
                }
            }
            setup
        };
        Rig::start_with(transport, Access::Modify, bind_all).await
    }

    /// The same plugins, but with access READ, each beside a neighbour.
    pub(crate) async fn start_groups(transport: Transport) -> Self {
        let bind_all = |setup| GroupCell::tenants().iter().fold(setup, bind_group);
        Rig::start_with(transport, Access::Read, bind_all).await
    }

    async fn start_with(transport: Transport, access: Access, bind: impl FnOnce(Setup) -> Setup) -> Self {
        let mut setup = Gateway::with()
            .set("/limits/request", format!("{}KiB", REQUEST_LIMIT >> 10))
            .set("/limits/notice_bytes", format!("{}KiB", NOTICES_LIMIT >> 10))
            .set("/limits/budget", "60s")
            .binding("first", -10)
            .binding("witness", 100)
            .tenant("baseline")
            .tenant("holder")
            .tenant("tripper");
        let decided = Case::all().into_iter().take(4);
        let cases = decided.chain(FAILURES.map(Case::Fails));
        let mut plugins = Vec::new();
        for (plugin, members) in [
            (first(RAW), json!({})),
            (FakePlugin::named("witness"), json!({})),
            (behaving("elsewhere-too"), json!({})),
            (behaving("neighbour").access(Access::Read), json!({})),
            (behaving("refusing-neighbour").access(Access::Read), json!({})),
        ]
        .into_iter()
        .chain(cases.map(|case| (with_access(behaving(case.plugin()), access), members(case))))
        {
            let plugin = transport.start_all(plugin).await;
            setup = plugin.registered(setup, &members);
            plugins.push(plugin);
        }
        let setup = bind(setup);
        let holder = json!({ "tenant": "holder" });
        let tripper = json!({ "tenant": "tripper", "blocking": false });
        let setup = setup.binding_with("busy", 10, &holder).binding_with("tripped", 10, &tripper);
        let mut rig = Rig { gateway: setup.start().await, plugins };
        // Breakers that are open for all tenants belong to unreachable endpoints.
        for name in ["gone", "tripped"] {
            let gone = rig.plugins.iter_mut().find(|started| started.plugin.name() == name);
            let gone = gone.expect("it is one of them");
            gone.stop().await;
            let (wanted, mut endpoints) = (1 + usize::from(gone.twin.is_some()), BTreeSet::new());
            let is_last = |line: &_| is_gone(line, name, &mut endpoints) && endpoints.len() == wanted;
            rig.gateway.log().wait_for(is_last).await;
        }
        rig
    }

    /// The plugin by this name.
    pub(crate) fn plugin(&self, name: &str) -> &FakePlugin {
        let started = self.plugins.iter().find(|started| started.plugin.name() == name);
        &started.expect("there is one").plugin
    }
}

/// Whether a line reports that an endpoint of the plugin went away; collects the endpoints.
fn is_gone(line: &hookgate_tests::gateway::Line, plugin: &str, endpoints: &mut BTreeSet<String>) -> bool {
    let text = |name| line.field(name).and_then(Value::as_str);
    if text("event") != Some("plugin.disconnected") || text("plugin") != Some(plugin) {
        return false;
    }
    endpoints.insert(text("address").unwrap_or_default().to_owned())
}
