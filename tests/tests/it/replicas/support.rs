//! Replicas of one plugin under load: each answer says which configuration produced it, and every call of
//! every agent is recorded with its result.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use hookgate_proto::{
    gateway::v1::BeforeToolCallRequest,
    types::v1::{BeforeToolCallPayload, ExtensionPoint, NoticeKind},
};
use hookgate_tests::{
    agent::{GrpcClient, HttpAgent, reason},
    ca::Ca,
    fake::{Act, Builder, FakePlugin, Health, Payload, notice},
    gateway::{Gateway, Line, Setup},
    token::{Token, token},
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

pub(crate) const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
pub(crate) const TENANTS: [&str; 2] = ["acme", "globex"];
/// The step's timeout: longer than anything here takes, except what never answers, however busy the machine
/// is.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);
const AGENTS: usize = 12;
/// How long a replica works on a call.
const WORK: Duration = Duration::from_millis(3);

/// A replica of `guard` that is not started yet.
pub(crate) fn replica(version: &str) -> Builder {
    let tenants = json!({ "type": "object", "properties": { "who": {} } });
    FakePlugin::named("guard")
        .config_schema(json!({ "type": "object", "properties": { "secret": {} } }))
        .tenant_config_schema(tenants)
        .health(Health::Serving)
        .manifest(|manifest| manifest.version = version.into())
}

/// Lets the plugin's answers say what produced them.
pub(crate) fn echo(plugin: &FakePlugin, version: &str) {
    let (place, version) = (plugin.endpoint(), version.to_owned());
    plugin.set_with(POINT, move |seen| {
        let config: Value = serde_json::from_slice(&seen.call.tenant_config).unwrap_or_default();
        let made_with = json!({
            "place": place, "version": version, "digest": seen.call.config_digest, "config": config,
        });
        Act::pass().after(WORK).with_notice(notice(NoticeKind::Info, "", "made with", &made_with))
    });
}

/// What produced an answer.
#[derive(Debug, Clone)]
pub(crate) struct CallAnswer {
    pub(crate) place: String,
    pub(crate) version: String,
    pub(crate) digest: String,
    /// The tenant's config.
    config: Value,
    pub(crate) plan: String,
}

impl CallAnswer {
    fn new(details: &Value, plan: &str) -> Self {
        let text = |name: &str| details[name].as_str().unwrap_or_default().to_owned();
        CallAnswer {
            place: text("place"),
            version: text("version"),
            digest: text("digest"),
            config: details["config"].clone(),
            plan: plan.to_owned(),
        }
    }
}

/// A call of an agent.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) id: String,
    tenant: &'static str,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    /// If it failed, the code and all details.
    pub(crate) result: Result<CallAnswer, (String, String)>,
}

/// Replicas and a gateway in front of them.
pub(crate) struct Rig {
    pub(crate) gateway: Gateway,
    pub(crate) replicas: Vec<FakePlugin>,
    /// Part of the plugin's configuration. It is read anew for every handshake.
    secret: NamedTempFile,
}

impl Rig {
    /// Replicas over TCP, a Unix socket and TLS.
    pub(crate) async fn over_all_transports(version: &str) -> Self {
        let (ca, new) = (Ca::new(), || replica(version));
        let replicas = vec![new().start().await, new().start_unix().await, new().start_tls(&ca).await];
        let tls = json!({ "tls": { "ca_file": ca.file() } });
        // Everything except the endpoints is only in the file, so the CA can be dropped once it is read.
        let rig = Rig::before(replicas, |_, endpoint| endpoint, tls).await;
        drop(ca);
        rig
    }

    /// `place` maps a replica's endpoint to the one that the gateway uses. `members` are added to the
    /// plugin's entry.
    pub(crate) async fn before(
        replicas: Vec<FakePlugin>,
        mut place: impl FnMut(usize, String) -> String,
        mut members: Value,
    ) -> Self {
        let endpoints = replicas.iter().enumerate().map(|(index, plugin)| place(index, plugin.endpoint()));
        members["endpoints"] = endpoints.collect();
        Rig::with(replicas, members, |setup| setup).await
    }

    pub(crate) async fn with(
        replicas: Vec<FakePlugin>,
        mut members: Value,
        more: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let secret = NamedTempFile::new().unwrap();
        fs::write(secret.path(), "secret-0").unwrap();
        replicas.iter().for_each(|plugin| echo(plugin, "1.0.0"));
        members["endpoint"] = Value::Null;
        members["config"] = json!({ "secret": format!("${{file:{}}}", secret.path().display()) });
        if members.get("health").is_none() {
            // No replica may be taken for silent, because none is.
            members["health"] = json!({ "interval": "100ms", "timeout": "5s", "misses": 2 });
        }
        let mut setup = Gateway::with().admin().plugin_with(&replicas[0], &members);
        for tenant in TENANTS {
            setup = setup.tenant_with(tenant, &json!({ "config": { "guard": { "who": tenant } } }));
        }
        setup = setup.binding_with("guard", 1, &json!({ "timeout": format!("{}ms", TIMEOUT.as_millis()) }));
        let rig = Rig { gateway: more(setup).start().await, replicas, secret };
        rig.wait_for("all are ready", |guard| states(guard).iter().all(|state| *state == "serving")).await;
        // Tests that count events count after those of the start.
        rig.gateway.wait_for_revision(1).await;
        rig
    }

    /// Sets a new secret, and so a new configuration.
    pub(crate) fn rotate(&self, secret: &str) {
        fs::write(self.secret.path(), secret).unwrap();
    }

    /// The plugin's status in the admin API.
    pub(crate) async fn status(&self) -> Value {
        let operator = self.gateway.admin(&Token::for_operators().mint());
        operator.get("/admin/v1/plugins/guard").await.unwrap().body
    }

    /// Polls until the status is as wanted.
    pub(crate) async fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let status = self.status().await;
            if wanted(&status) {
                return status;
            }
            assert!(began.elapsed() < Duration::from_secs(35), "not within 35 s: {what}\n{status:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The lines of this event so far.
    pub(crate) fn events(&self, event: &str) -> Vec<Line> {
        let lines = self.gateway.log().lines();
        lines.into_iter().filter(|line| line.field("event") == Some(&json!(event))).collect()
    }

    /// Waits until there are this many lines of this event.
    pub(crate) async fn wait_for_events(&self, event: &str, count: usize) {
        let mut seen = 0;
        let nth = |line: &Line| {
            seen += usize::from(line.field("event") == Some(&json!(event)));
            seen == count
        };
        self.gateway.log().wait_for(nth).await;
    }

    /// Waits until the gateway has logged this about a replica.
    pub(crate) async fn told(&self, event: &str, reason: &str, address: &str) {
        let is_it = |line: &Line| {
            line.field("event") == Some(&json!(event))
                && line.field("reason") == Some(&json!(reason))
                && line.field("address") == Some(&json!(address))
        };
        self.gateway.log().wait_for(is_it).await;
    }

    /// How often each call was executed, by its id.
    pub(crate) fn executions(&self) -> BTreeMap<String, usize> {
        let mut executions = BTreeMap::new();
        for seen in self.replicas.iter().flat_map(FakePlugin::seen) {
            let Payload::BeforeToolCall(payload) = seen.payload else { panic!("{seen:?}") };
            *executions.entry(payload.call_id.unwrap_or_default()).or_default() += 1;
        }
        executions
    }

    /// Starts agents of every tenant over both protocols, each of which calls one after another.
    pub(crate) async fn load(&self) -> Load {
        let (stop, ended) = (watch::Sender::new(false), watch::Sender::new([0; AGENTS]));
        let mut workers = Vec::new();
        for worker in 0..AGENTS {
            let (tenant, stop) = (TENANTS[worker % 2], stop.subscribe());
            let agent = if worker % 3 == 0 {
                Agent::Grpc(self.gateway.grpc(&token(tenant)).await.client)
            } else {
                Agent::Http(self.gateway.http(&token(tenant)))
            };
            workers.push(tokio::spawn(work(worker, tenant, agent, stop, ended.clone())));
        }
        Load { stop, ended, workers }
    }
}

/// The reason of each endpoint.
pub(crate) fn states(guard: &Value) -> Vec<&str> {
    let endpoints = guard["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    endpoints.iter().map(|endpoint| endpoint["reason"].as_str().unwrap_or_default()).collect()
}

enum Agent {
    Http(HttpAgent),
    Grpc(GrpcClient),
}

impl Agent {
    async fn call(&self, id: &str) -> Result<CallAnswer, (String, String)> {
        match self {
            Agent::Http(agent) => {
                let payload = json!({ "tool_name": "fs.read", "args": {}, "call_id": id });
                let answer = agent.call(POINT, payload).await;
                if answer.status == 200 {
                    let plan = answer.body["plan_digest"].as_str().unwrap_or_default();
                    return Ok(CallAnswer::new(&answer.body["notices"][0]["details"], plan));
                }
                Err((answer.body["code"].as_str().unwrap_or_default().to_owned(), format!("{answer:?}")))
            }
            Agent::Grpc(client) => {
                let payload = BeforeToolCallPayload {
                    tool_name: "fs.read".into(),
                    args: "{}".into(),
                    call_id: Some(id.into()),
                    ..BeforeToolCallPayload::default()
                };
                let request =
                    BeforeToolCallRequest { payload: Some(payload), ..BeforeToolCallRequest::default() };
                match client.clone().before_tool_call(request).await {
                    Ok(answer) => {
                        let answer = answer.into_inner();
                        let details = serde_json::from_slice(&answer.notices[0].details).unwrap();
                        Ok(CallAnswer::new(&details, &answer.plan_digest))
                    }
                    Err(status) => Err((reason(&status).1.unwrap_or_default(), format!("{status:?}"))),
                }
            }
        }
    }
}

async fn work(
    worker: usize,
    tenant: &'static str,
    agent: Agent,
    stop: watch::Receiver<bool>,
    ended: watch::Sender<[u64; AGENTS]>,
) -> Vec<Made> {
    let mut made = Vec::new();
    // After a failure the test drops the sender, and every call fails at once.
    while !*stop.borrow() && stop.has_changed().is_ok() {
        let (id, began) = (format!("{worker}-{}", made.len()), Instant::now());
        let result = agent.call(&id).await;
        made.push(Made { id, tenant, began, took: began.elapsed(), result });
        ended.send_modify(|ended| ended[worker] += 1);
    }
    made
}

pub(crate) struct Load {
    stop: watch::Sender<bool>,
    /// The number of finished calls of each agent.
    ended: watch::Sender<[u64; AGENTS]>,
    workers: Vec<JoinHandle<Vec<Made>>>,
}

impl Load {
    /// Waits until the calls in flight have finished, and every agent has finished a call that began later.
    pub(crate) async fn turn(&self) {
        let before = *self.ended.borrow();
        let is_over = |now: &[u64; AGENTS]| now.iter().zip(before).all(|(now, before)| *now >= before + 2);
        let over = timeout(Duration::from_secs(35), self.ended.subscribe().wait_for(is_over)).await.is_ok();
        assert!(over, "agents don't go on: {before:?}, {:?}", self.ended.borrow());
    }

    /// All calls of each worker, in order.
    pub(crate) async fn end(self) -> Vec<Vec<Made>> {
        self.stop.send_replace(true);
        let mut made = Vec::new();
        for worker in self.workers {
            made.push(worker.await.unwrap());
        }
        made
    }
}

/// Checks that every answer was produced with its own tenant's configuration and with one that was handed
/// to its process. `told` maps address and version to those.
pub(crate) fn assert_own_configuration(made: &[Vec<Made>], told: &BTreeMap<(String, String), Vec<String>>) {
    for made in made.iter().flatten() {
        let Ok(answered) = &made.result else { continue };
        assert_eq!(answered.config, json!({ "who": made.tenant }), "{made:?}");
        let process = (answered.place.clone(), answered.version.clone());
        let digests = told.get(&process).unwrap_or_else(|| panic!("no such process: {made:?}"));
        assert!(digests.contains(&answered.digest), "it was told {digests:?}: {made:?}");
    }
}

/// Checks that the plan's digest changed once for every agent, from and to the same values.
pub(crate) fn assert_one_change_of_plan(made: &[Vec<Made>]) {
    let mut seen = Vec::new();
    for worker in made {
        let mut plans: Vec<_> = worker
            .iter()
            .filter_map(|made| made.result.as_ref().ok())
            .map(|made| made.plan.clone())
            .collect();
        plans.dedup();
        assert_eq!(plans.len(), 2, "to and fro, or not at all: {plans:?}");
        seen.push((worker[0].tenant, plans));
    }
    for tenant in TENANTS {
        let mut of_tenant: Vec<_> = seen.iter().filter(|(of, _)| *of == tenant).collect();
        of_tenant.dedup();
        assert_eq!(of_tenant.len(), 1, "{seen:?}");
    }
}
