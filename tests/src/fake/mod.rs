//! A plugin for tests: a real gRPC server that describes itself, takes configurations, and does at each
//! extension point what its script says, well-behaved or not. It records whatever reaches it.
//!
//! It runs on threads of its own, as a process would: a test that blocks does not stop it.

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
    plugin::v1::{Access, DescribeResponse, PointOffer, SideEffects},
    types::v1::ExtensionPoint,
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

/// What a plugin does at one point: from what it sees to how it acts.
type Script = Arc<dyn Fn(&Seen) -> Act + Send + Sync>;

/// How Describe or Initialize goes.
#[derive(Debug, Clone, Default)]
pub enum Handshake {
    /// As the contract says.
    #[default]
    Proper,
    /// After this time as the contract says.
    Slow(Duration),
    /// Answers this status.
    Fails(Status),
    /// Never answers.
    Hangs,
}

/// Everything about a plugin that a test may change while it runs.
struct Behaviour {
    manifest: DescribeResponse,
    scripts: BTreeMap<i32, Script>,
    describe: Handshake,
    initialize: Handshake,
    health: Health,
    /// Digests that were handed over; a call that names another one is refused as NOT_INITIALIZED.
    known_digests: BTreeSet<String>,
}

/// What the plugin's server and the test share.
struct State {
    behaviour: Mutex<Behaviour>,
    record: Record,
}

impl State {
    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().expect("no holder of this lock panics")
    }
}

/// A plugin that has yet to start. It offers all four points with access MODIFY and no side effects, wants no
/// capability, and lets everything pass.
#[must_use = "a plugin does nothing before it is started"]
pub struct Builder {
    behaviour: Behaviour,
    flooding: bool,
}

impl Builder {
    /// Offers these points alone.
    pub fn only(mut self, points: &[ExtensionPoint]) -> Self {
        let offers = &mut self.behaviour.manifest.points;
        offers.retain(|offer| points.contains(&offer.point()));
        self
    }

    /// Declares this access at every point offered.
    pub fn access(mut self, access: Access) -> Self {
        self.behaviour.manifest.points.iter_mut().for_each(|offer| offer.set_access(access));
        self
    }

    /// Changes whatever else the plugin says of itself: version, protocol versions, schemas, capabilities.
    pub fn manifest(mut self, change: impl FnOnce(&mut DescribeResponse)) -> Self {
        change(&mut self.behaviour.manifest);
        self
    }

    /// Declares the JSON Schema of the plugin-level config.
    pub fn config_schema(self, schema: serde_json::Value) -> Self {
        self.manifest(|manifest| manifest.config_schema = Bytes::from(schema.to_string()))
    }

    /// Declares the JSON Schema of the tenant-level config.
    pub fn tenant_config_schema(self, schema: serde_json::Value) -> Self {
        self.manifest(|manifest| manifest.tenant_config_schema = Bytes::from(schema.to_string()))
    }

    /// Acts like this at a point.
    pub fn at(self, point: ExtensionPoint, act: Act) -> Self {
        self.at_with(point, move |_| act.clone())
    }

    /// Acts at a point by what it sees.
    pub fn at_with(
        mut self,
        point: ExtensionPoint,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        self.behaviour.scripts.insert(point.into(), Arc::new(script));
        self
    }

    /// Describes itself like this.
    pub fn on_describe(mut self, handshake: Handshake) -> Self {
        self.behaviour.describe = handshake;
        self
    }

    /// Takes configurations like this.
    pub fn on_initialize(mut self, handshake: Handshake) -> Self {
        self.behaviour.initialize = handshake;
        self
    }

    /// Answers health checks like this.
    pub fn health(mut self, health: Health) -> Self {
        self.behaviour.health = health;
        self
    }

    /// Makes [`WireBehaviour::EndlessTrailers`] possible on its connections.
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

    /// Serves on a Unix socket in a temporary directory of its own.
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

    /// Serves over TLS as `config` says; the gateway has to be told what to expect.
    pub async fn start_tls_as(self, config: ServerConfig) -> FakePlugin {
        FakePlugin::serve(self, PluginListener::tls(config)).await
    }
}

/// A plugin that runs. It stops when it is dropped.
pub struct FakePlugin {
    state: Arc<State>,
    listening: PluginListener,
    name: String,
    /// Who vouches for it.
    ca: Option<Ca>,
}

impl FakePlugin {
    /// A plugin by this name, yet to be started.
    pub fn named(name: &str) -> Builder {
        let points = POINTS.map(|point| PointOffer {
            point: point.into(),
            access: Access::Modify.into(),
            side_effects: SideEffects::None.into(),
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

    /// The same plugin on a Unix socket beside: what one is told or sees, the other was told and saw.
    pub async fn twin_unix(&self) -> FakePlugin {
        let (state, listening) = (Arc::clone(&self.state), PluginListener::unix());
        let mut twin = FakePlugin { state, listening, name: self.name.clone(), ca: None };
        twin.start().await;
        twin
    }

    /// The name that it is registered by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is reached: `http://127.0.0.1:PORT`, `https://127.0.0.1:PORT` or `unix:///PATH`.
    pub fn endpoint(&self) -> String {
        self.listening.endpoint()
    }

    /// Who vouches for it, where it was started with a CA.
    pub fn ca(&self) -> Option<&Ca> {
        self.ca.as_ref()
    }

    /// Speaks TLS like this to connections that are made from now on.
    pub fn set_tls(&self, config: ServerConfig) {
        self.tls().set(config);
    }

    /// The certificates that connections were made with so far, in the order of their handshakes.
    pub fn peers(&self) -> Vec<Option<CertificateDer<'static>>> {
        self.tls().peers()
    }

    /// Asks every connection there is to go, once its calls are answered.
    pub fn go_away(&self) {
        self.listening.go_away();
    }

    /// Ends as a process does that is told to stop: takes no more connections, asks those there are to go, answers
    /// the calls under way, closes. What it was told is forgotten.
    pub async fn leave(&mut self) {
        self.listening.leave().await;
        self.forget();
    }

    fn tls(&self) -> &Tls {
        self.listening.security().expect("the plugin was started over TLS")
    }

    /// Closes the port and every connection, as a process that dies does. What it was told is forgotten.
    pub async fn stop(&mut self) {
        self.listening.stop().await;
        self.forget();
    }

    /// Listens again at the same address.
    pub async fn start(&mut self) {
        let service = Service::new(Arc::clone(&self.state));
        self.listening.start(service).await;
    }

    /// Forgets every configuration but keeps its connections: calls answer NOT_INITIALIZED until it is told again.
    pub fn forget(&self) {
        self.state.behaviour().known_digests.clear();
    }

    /// Acts like this at a point from now on.
    pub fn set(&self, point: ExtensionPoint, act: Act) {
        self.set_with(point, move |_| act.clone());
    }

    /// Acts at a point by what it sees from now on.
    pub fn set_with(&self, point: ExtensionPoint, script: impl Fn(&Seen) -> Act + Send + Sync + 'static) {
        self.state.behaviour().scripts.insert(point.into(), Arc::new(script));
    }

    /// Describes itself like this from now on.
    pub fn set_describe(&self, handshake: Handshake) {
        self.state.behaviour().describe = handshake;
    }

    /// Takes configurations like this from now on.
    pub fn set_initialize(&self, handshake: Handshake) {
        self.state.behaviour().initialize = handshake;
    }

    /// Answers health checks like this from now on.
    pub fn set_health(&self, health: Health) {
        self.state.behaviour().health = health;
    }

    /// Changes what it says of itself from now on.
    pub fn change_manifest(&self, change: impl FnOnce(&mut DescribeResponse)) {
        change(&mut self.state.behaviour().manifest);
    }

    /// What an operator consents to who consents to it as it is now: `accepted` of its entry.
    pub fn accepted(&self) -> serde_json::Value {
        accepted::accepted(&self.state.behaviour().manifest)
    }

    /// Every call at a point so far, in the order of arrival. Those refused as NOT_INITIALIZED are not among them.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.record.seen()
    }

    /// Every configuration handed over so far.
    pub fn initialized(&self) -> Vec<hookgate_proto::plugin::v1::InitializeRequest> {
        self.state.record.initialized()
    }

    /// The digests of the configurations that were released, in order.
    pub fn released(&self) -> Vec<String> {
        self.state.record.released()
    }

    /// The places of its Initialize calls in the order of what reached all plugins of this process.
    pub fn initialized_at(&self) -> Vec<u64> {
        self.state.record.initialized_at()
    }

    /// The places of its Shutdown calls in the same order.
    pub fn shut_down_at(&self) -> Vec<u64> {
        self.state.record.shut_down_at()
    }

    /// How often what happened.
    pub fn counts(&self) -> Counts {
        self.state.record.counts()
    }

    /// Waits until the counts are as asked for.
    ///
    /// # Panics
    /// After 35 s, naming the counts there are.
    pub async fn wait_until(&self, condition: impl FnMut(&Counts) -> bool) -> Counts {
        self.state.record.wait_until(condition).await
    }
}

impl fmt::Debug for FakePlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakePlugin {{ {} at {}: {:?} }}", self.name, self.endpoint(), self.counts())
    }
}
