//! A plugin for tests: a real gRPC server that describes itself, accepts configurations, and follows a
//! script at each extension point, well-behaved or not. It records everything that reaches it.
//!
//! It runs on its own threads, like a process: a blocked test doesn't stop it.

mod accepted;
mod act;
mod flood;
mod health;
mod listen;
mod record;
mod service;
mod wire;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::{Access, DescribeResponse, HookOffer, PointOffer, SideEffects},
    types::v1::{ExtensionPoint, Tool},
};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tonic::Status;

pub use self::{
    act::{Act, Answer, Gate, Patch, Verdict, notice},
    health::Health,
    record::{Counts, Payload, Seen},
    wire::WireBehaviour,
};
use self::{
    listen::{PluginListener, Tls},
    record::Record,
    service::Service,
};
use crate::ca::{self, Ca};

/// The four extension points, in the order of an agent's loop.
pub const POINTS: [ExtensionPoint; 4] = [
    ExtensionPoint::BeforeLlmRequest,
    ExtensionPoint::BeforeToolCall,
    ExtensionPoint::AfterToolResult,
    ExtensionPoint::BeforeResponse,
];

/// Stands for all hooks where a script is for a point.
pub const HOOKS: ExtensionPoint = ExtensionPoint::Unspecified;

/// A tool that takes any object.
fn tool(name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: format!("Does {name}"),
        input_schema: Bytes::from_static(br#"{ "type": "object" }"#),
        annotations: None,
    }
}

/// A plugin's reaction at one point, depending on what it sees.
type Script = Arc<dyn Fn(&Seen) -> Act + Send + Sync>;

/// How Describe or Initialize is answered.
#[derive(Debug, Clone, Default)]
pub enum Handshake {
    /// According to the contract.
    #[default]
    Proper,
    /// According to the contract, after this time.
    Slow(Duration),
    /// With this status.
    Fails(Status),
    /// Never.
    Hangs,
}

/// Everything about a plugin that a test may change while it runs.
struct Behaviour {
    manifest: DescribeResponse,
    scripts: BTreeMap<i32, Script>,
    describe: Handshake,
    initialize: Handshake,
    /// Answered to Initialize.
    tools: Vec<Tool>,
    health: Health,
    /// The digests of initialised configurations. A call with another one is rejected as NOT_INITIALIZED.
    known_digests: BTreeSet<String>,
}

/// Shared by the plugin's server and the test.
struct State {
    behaviour: Mutex<Behaviour>,
    record: Record,
}

impl State {
    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().expect("no holder of this lock panics")
    }
}

/// A plugin that is not started yet. It offers all four points with access MODIFY and no side effects, asks
/// for no capability, and continues every call.
#[must_use = "a plugin does nothing before it is started"]
pub struct Builder {
    behaviour: Behaviour,
    flooding: bool,
}

impl Builder {
    /// Offers only these points.
    pub fn only(mut self, points: &[ExtensionPoint]) -> Self {
        let offers = &mut self.behaviour.manifest.points;
        offers.retain(|offer| points.contains(&offer.point()));
        self
    }

    /// Offers these hooks too, without side effects.
    pub fn hooks(self, hooks: &[&str]) -> Self {
        let side_effects = SideEffects::None.into();
        let offers = hooks.iter().map(|&hook| HookOffer { hook: hook.into(), side_effects });
        self.manifest(|manifest| manifest.hooks.extend(offers))
    }

    /// Takes answers in windows.
    pub fn in_windows(mut self) -> Self {
        let answers = |offer: &&mut PointOffer| offer.point() == ExtensionPoint::BeforeResponse;
        self.behaviour.manifest.points.iter_mut().filter(answers).for_each(|offer| offer.windows = true);
        self
    }

    /// Provides these tools too.
    pub fn tools(mut self, names: &[&str]) -> Self {
        self.behaviour.manifest.tools.extend(names.iter().map(|&name| name.to_owned()));
        self.behaviour.tools.extend(names.iter().map(|name| tool(name)));
        self
    }

    /// Declares this access at every point offered.
    pub fn access(mut self, access: Access) -> Self {
        self.behaviour.manifest.points.iter_mut().for_each(|offer| offer.set_access(access));
        self
    }

    /// Changes the rest of its manifest: version, protocol versions, schemas, capabilities.
    pub fn manifest(mut self, change: impl FnOnce(&mut DescribeResponse)) -> Self {
        change(&mut self.behaviour.manifest);
        self
    }

    /// Sets the JSON Schema of the plugin-level config.
    pub fn config_schema(self, schema: serde_json::Value) -> Self {
        self.manifest(|manifest| manifest.config_schema = Bytes::from(schema.to_string()))
    }

    /// Sets the JSON Schema of the tenant-level config.
    pub fn tenant_config_schema(self, schema: serde_json::Value) -> Self {
        self.manifest(|manifest| manifest.tenant_config_schema = Bytes::from(schema.to_string()))
    }

    /// Reacts like this at a point.
    pub fn at(self, point: ExtensionPoint, act: Act) -> Self {
        self.at_with(point, move |_| act.clone())
    }

    /// Reacts at a point depending on what it sees.
    pub fn at_with(
        mut self,
        point: ExtensionPoint,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        self.behaviour.scripts.insert(point.into(), Arc::new(script));
        self
    }

    /// Answers Describe like this.
    pub fn on_describe(mut self, handshake: Handshake) -> Self {
        self.behaviour.describe = handshake;
        self
    }

    /// Answers Initialize like this.
    pub fn on_initialize(mut self, handshake: Handshake) -> Self {
        self.behaviour.initialize = handshake;
        self
    }

    /// Answers health checks like this.
    pub fn health(mut self, health: Health) -> Self {
        self.behaviour.health = health;
        self
    }

    /// Allows [`WireBehaviour::EndlessTrailers`] on its connections.
    pub fn flooding(mut self) -> Self {
        self.flooding = true;
        self
    }

    /// Serves on a free TCP port of 127.0.0.1.
    pub async fn start(self) -> FakePlugin {
        FakePlugin::serve(self, PluginListener::tcp()).await
    }

    /// Serves at this TCP address.
    pub async fn start_at(self, address: SocketAddr) -> FakePlugin {
        FakePlugin::serve(self, PluginListener::tcp_at(address)).await
    }

    /// Serves on a Unix socket in a new temporary directory.
    pub async fn start_unix(self) -> FakePlugin {
        FakePlugin::serve(self, PluginListener::unix()).await
    }

    /// Serves over TLS on a free TCP port of 127.0.0.1, with a certificate of `ca` for that address;
    /// [`crate::gateway::Setup::plugin`] tells the gateway of the CA.
    pub async fn start_tls(self, ca: &Ca) -> FakePlugin {
        let config = ca::server(&ca.pair(&["127.0.0.1"]), None);
        let mut plugin = self.start_tls_as(config).await;
        plugin.ca = Some(ca.clone());
        plugin
    }

    /// Serves over TLS with `config`. The gateway must be configured to match.
    pub async fn start_tls_as(self, config: ServerConfig) -> FakePlugin {
        FakePlugin::serve(self, PluginListener::tls(config)).await
    }
}

/// A running plugin. It stops on drop.
pub struct FakePlugin {
    state: Arc<State>,
    listening: PluginListener,
    name: String,
    /// The CA of its certificate.
    ca: Option<Ca>,
}

impl FakePlugin {
    /// A plugin with this name, not started yet.
    pub fn named(name: &str) -> Builder {
        let points = POINTS.map(|point| PointOffer {
            point: point.into(),
            access: Access::Modify.into(),
            side_effects: SideEffects::None.into(),
            reads: None,
            windows: false,
        });
        let manifest = DescribeResponse {
            name: name.into(),
            version: "1.0.0".into(),
            protocol_versions: vec![1],
            points: points.into(),
            ..DescribeResponse::default()
        };
        let behaviour = Behaviour {
            manifest,
            scripts: BTreeMap::new(),
            describe: Handshake::Proper,
            initialize: Handshake::Proper,
            tools: Vec::new(),
            health: Health::default(),
            known_digests: BTreeSet::new(),
        };
        Builder { behaviour, flooding: false }
    }

    async fn serve(builder: Builder, listening: PluginListener) -> Self {
        let name = builder.behaviour.manifest.name.clone();
        let state = Arc::new(State { behaviour: Mutex::new(builder.behaviour), record: Record::default() });
        let mut plugin = FakePlugin { state, listening, name, ca: None };
        plugin.listening.set_flooding(builder.flooding);
        plugin.start().await;
        plugin
    }

    /// The same plugin on an additional Unix socket. Both share scripts and records.
    pub async fn twin_unix(&self) -> FakePlugin {
        let (state, listening) = (Arc::clone(&self.state), PluginListener::unix());
        let mut twin = FakePlugin { state, listening, name: self.name.clone(), ca: None };
        twin.start().await;
        twin
    }

    /// The name that it is registered with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address: `http://127.0.0.1:PORT`, `https://127.0.0.1:PORT` or `unix:///PATH`.
    pub fn endpoint(&self) -> String {
        self.listening.endpoint()
    }

    /// The CA of its certificate, if it was started with one.
    pub fn ca(&self) -> Option<&Ca> {
        self.ca.as_ref()
    }

    /// Uses this TLS configuration for new connections.
    pub fn set_tls(&self, config: ServerConfig) {
        self.tls().set(config);
    }

    /// The client certificates of all connections so far, in the order of their handshakes.
    pub fn peers(&self) -> Vec<Option<CertificateDer<'static>>> {
        self.tls().peers()
    }

    /// Asks all current connections to close once their calls are answered.
    pub fn go_away(&self) {
        self.listening.go_away();
    }

    /// Ends like a process that is told to stop: accepts no more connections, asks the current ones to
    /// close, answers the calls in flight, and closes. It forgets its configurations.
    pub async fn leave(&mut self) {
        self.listening.leave().await;
        self.forget();
    }

    fn tls(&self) -> &Tls {
        self.listening.security().expect("the plugin was started over TLS")
    }

    /// Closes the port and all connections, like a process that dies. It forgets its configurations.
    pub async fn stop(&mut self) {
        self.listening.stop().await;
        self.forget();
    }

    /// Listens again at the same address.
    pub async fn start(&mut self) {
        let service = Service::new(Arc::clone(&self.state));
        self.listening.start(service).await;
    }

    /// Forgets all configurations but keeps its connections. Calls fail with NOT_INITIALIZED until it is
    /// initialised again.
    pub fn forget(&self) {
        self.state.behaviour().known_digests.clear();
    }

    /// From now on, reacts like this at a point.
    pub fn set(&self, point: ExtensionPoint, act: Act) {
        self.set_with(point, move |_| act.clone());
    }

    /// From now on, reacts at a point depending on what it sees.
    pub fn set_with(&self, point: ExtensionPoint, script: impl Fn(&Seen) -> Act + Send + Sync + 'static) {
        self.state.behaviour().scripts.insert(point.into(), Arc::new(script));
    }

    /// From now on, answers Describe like this.
    pub fn set_describe(&self, handshake: Handshake) {
        self.state.behaviour().describe = handshake;
    }

    /// From now on, answers Initialize like this.
    pub fn set_initialize(&self, handshake: Handshake) {
        self.state.behaviour().initialize = handshake;
    }

    /// From now on, answers Initialize with these tools.
    pub fn set_tools(&self, names: &[&str]) {
        self.state.behaviour().tools = names.iter().map(|name| tool(name)).collect();
    }

    /// From now on, answers health checks like this.
    pub fn set_health(&self, health: Health) {
        self.state.behaviour().health = health;
    }

    /// Changes its manifest.
    pub fn change_manifest(&self, change: impl FnOnce(&mut DescribeResponse)) {
        change(&mut self.state.behaviour().manifest);
    }

    /// The `accepted` of its entry if an operator consents to its current manifest.
    pub fn accepted(&self) -> serde_json::Value {
        accepted::accepted(&self.state.behaviour().manifest)
    }

    /// All calls at points so far, in the order of arrival, except those rejected as NOT_INITIALIZED.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.record.seen()
    }

    /// All configurations so far.
    pub fn initialized(&self) -> Vec<hookgate_proto::plugin::v1::InitializeRequest> {
        self.state.record.initialized()
    }

    /// The digests of the released configurations, in order.
    pub fn released(&self) -> Vec<String> {
        self.state.record.released()
    }

    /// The positions of its Initialize calls in the order of all requests to plugins of this process.
    pub fn initialized_at(&self) -> Vec<u64> {
        self.state.record.initialized_at()
    }

    /// The positions of its Shutdown calls in the same order.
    pub fn shut_down_at(&self) -> Vec<u64> {
        self.state.record.shut_down_at()
    }

    /// Counts of what happened so far.
    pub fn counts(&self) -> Counts {
        self.state.record.counts()
    }

    /// Waits until `condition` holds for the counts.
    ///
    /// # Panics
    /// After 35 s, with the counts.
    pub async fn wait_until(&self, condition: impl FnMut(&Counts) -> bool) -> Counts {
        self.state.record.wait_until(condition).await
    }
}

impl fmt::Debug for FakePlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakePlugin {{ {} at {}: {:?} }}", self.name, self.endpoint(), self.counts())
    }
}
