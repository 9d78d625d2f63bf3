//! Tests that a hostile tenant which shares a plugin can't harm another tenant: it gets the same answers as
//! without the hostile tenant, and waits for none of its calls (docs/operations.md, "What tenants share").

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{
    future::join_all,
    stream::{FuturesUnordered, StreamExt as _},
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    fake::{Act, FakePlugin, Gate, Payload, Seen, WireBehaviour},
    gateway::Gateway,
    token::token,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use tokio::{
    runtime::Runtime,
    time::{Instant, sleep, timeout},
};
use tonic::Code;

use crate::edge::support::{POINT, assert_no_panic};

/// The number of attacks, each by its own tenant, because an attack may open the tenant's breaker.
const ATTACKS: usize = 10;
const QUIET: &str = "quiet";
/// Makes calls that the plugin doesn't answer before the gate is open.
const GREEDY: &str = "greedy";
/// How long the plugin takes for a call of the quiet tenant, so that attacks meet calls in flight.
const LATENCY: Duration = Duration::from_millis(500);
/// The pause of a hostile caller between two calls. The test is about what tenants share, not about the two
/// cores of the machine.
const PAUSE: Duration = Duration::from_millis(500);
/// The quiet tenant's concurrent calls, and how often they are made.
const AT_ONCE: usize = 3;
const ROUNDS: usize = 3;
/// The plugin's permits. Relative to them, the hostile callers are as many as a tenant's 128 calls are
/// relative to the default.
const PLACES: usize = 16;

/// What a hostile call makes the plugin do.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Status(Code),
    /// A status with a message of this many bytes, each of which takes three on the wire.
    LongStatus(usize),
    Garbage,
    Reset,
    Slow,
    /// Longer than the step's timeout.
    Hang,
}

impl Harm {
    fn act(self) -> Act {
        let brief = Duration::from_millis(20);
        match self {
            Harm::Status(code) => Act::status(code, "no").after(brief),
            Harm::LongStatus(length) => Act::status(Code::Unknown, &"é".repeat(length / 2)).after(brief),
            Harm::Garbage => Act::pass().sent(WireBehaviour::Garbage).after(brief),
            Harm::Reset => Act::pass().sent(WireBehaviour::Reset).after(brief),
            Harm::Slow => Act::pass().after(Duration::from_millis(800)),
            Harm::Hang => Act::hang(),
        }
    }
}

/// A hostile tenant: its attacks in turn, its concurrent calls, their size, and whether its callers hang
/// up.
#[derive(Debug, Clone)]
struct Attack {
    harms: Vec<Harm>,
    at_once: usize,
    bytes: usize,
    hangs_up: bool,
}

fn attacks() -> impl Strategy<Value = Attack> {
    let code = prop_oneof![Just(Code::Internal), Just(Code::Unknown), Just(Code::Unavailable)];
    let harm = prop_oneof![
        code.prop_map(Harm::Status),
        prop_oneof![Just(10_000_usize), Just(40_000), Just(200_000)].prop_map(Harm::LongStatus),
        Just(Harm::Garbage),
        Just(Harm::Reset),
        Just(Harm::Slow),
        Just(Harm::Hang),
    ];
    let harms = prop::collection::vec(harm, 1..4);
    let at_once = prop_oneof![Just(1_usize), Just(10), Just(4 * PLACES)];
    let bytes = prop_oneof![Just(10_usize), Just(60 << 10)];
    (harms, at_once, bytes, any::<bool>()).prop_map(|(harms, at_once, bytes, hangs_up)| Attack {
        harms,
        at_once,
        bytes,
        hangs_up,
    })
}

/// Blocks the quiet tenant's calls and holds the greedy tenant's. For hostile calls, the tool says what to do.
fn script(seen: &Seen, gate: &Gate) -> Act {
    let context = seen.call.context.clone().unwrap_or_default();
    match context.tenant.as_str() {
        QUIET => return Act::cancel("FORBIDDEN", "not this one").after(LATENCY),
        GREEDY => return Act::pass().behind(gate),
        _ => {}
    }
    let Payload::BeforeToolCall(payload) = &seen.payload else { return Act::pass() };
    let harm = payload.tool_name.split_once(' ');
    match harm.map_or((payload.tool_name.as_str(), 0), |(name, number)| (name, number.parse().unwrap())) {
        ("internal", _) => Harm::Status(Code::Internal).act(),
        ("unknown", _) => Harm::Status(Code::Unknown).act(),
        ("unavailable", _) => Harm::Status(Code::Unavailable).act(),
        ("long", length) => Harm::LongStatus(length).act(),
        ("garbage", _) => Harm::Garbage.act(),
        ("reset", _) => Harm::Reset.act(),
        ("slow", _) => Harm::Slow.act(),
        _ => Harm::Hang.act(),
    }
}

fn tool(harm: Harm) -> String {
    match harm {
        Harm::Status(Code::Internal) => "internal".into(),
        Harm::Status(Code::Unknown) => "unknown".into(),
        Harm::Status(_) => "unavailable".into(),
        Harm::LongStatus(length) => format!("long {length}"),
        Harm::Garbage => "garbage".into(),
        Harm::Reset => "reset".into(),
        Harm::Slow => "slow".into(),
        Harm::Hang => "hang".into(),
    }
}

/// The tenant of an attack.
fn hostile(attack: usize) -> String {
    format!("hostile-{attack}")
}

struct World {
    gateway: Gateway,
    plugin: FakePlugin,
    /// Holds the greedy tenant's calls at the plugin.
    gate: Gate,
    quiet: HttpAgent,
}

/// The quiet tenant's rule is skipped if it fails, so that a failure shows as a call that continues.
async fn world() -> World {
    let gate = Gate::closed();
    let held = gate.clone();
    let plugin = FakePlugin::named("shared").at_with(POINT, move |seen| script(seen, &held)).start().await;
    let skip = |tenant: &str, timeout: &str| json!({ "name": tenant, "tenant": tenant, "mode": "enforce", "on_error": "skip", "timeout": timeout });
    let limits = json!({ "limits": { "in_flight": PLACES, "queue": PLACES } });
    let mut setup = Gateway::with().tenant(QUIET).plugin_with(&plugin, &limits);
    // Long, because machines are busy.
    setup = setup.binding_with("shared", 10, &skip(QUIET, "20s"));
    setup = setup.tenant(GREEDY).binding_with("shared", 10, &skip(GREEDY, "60s"));
    for attack in 0..ATTACKS {
        setup = setup.tenant(&hostile(attack)).binding_with("shared", 10, &skip(&hostile(attack), "1s"));
    }
    let gateway = setup
        // Fewer than the hostile tenant's calls of the largest size.
        .set("/limits/request", "64KiB")
        .set("/limits/bytes_in_flight", "2MiB")
        .set("/limits/budget", "60s")
        .start()
        .await;
    let quiet = gateway.http(&token(QUIET));
    World { gateway, plugin, gate, quiet }
}

/// The result of a call.
#[derive(Debug, PartialEq)]
struct Decision {
    status: u16,
    decision: Option<String>,
    code: Value,
    steps: Vec<(Value, Value)>,
}

impl Decision {
    /// The plugin's decision about every call of the quiet tenant.
    fn blocked() -> Self {
        Decision {
            status: 403,
            decision: Some("block".into()),
            code: json!("FORBIDDEN"),
            steps: vec![(json!("cancelled"), Value::Null)],
        }
    }

    fn of(answer: &HttpAnswer) -> Self {
        let steps = answer.body["steps"].as_array().cloned().unwrap_or_default();
        Decision {
            status: answer.status,
            decision: answer.header("hookgate-decision").map(str::to_owned),
            code: answer.body["code"].clone(),
            steps: steps.iter().map(|step| (step["outcome"].clone(), step["reason"].clone())).collect(),
        }
    }
}

impl World {
    /// The results of the quiet tenant's calls.
    async fn quiet_calls(&self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for _ in 0..ROUNDS {
            let calls = (0..AT_ONCE).map(|_| async {
                let args = json!({ "tool_name": "t", "args": { "text": "x".repeat(16 << 10) } });
                Decision::of(&self.quiet.call(POINT, args).await)
            });
            decisions.extend(join_all(calls).await);
        }
        decisions
    }

    /// The quiet tenant's results during the attack `number`.
    async fn under(&self, number: usize, attack: &Attack) -> Vec<Decision> {
        let agent = self.gateway.http(&token(&hostile(number)));
        let (ends, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let callers: Vec<_> = (0..attack.at_once)
            .map(|caller| {
                let (agent, attack) = (agent.clone(), attack.clone());
                let (ends, ended) = (Arc::clone(&ends), Arc::clone(&ended));
                tokio::spawn(async move {
                    for turn in caller.. {
                        if ends.load(Ordering::Relaxed) {
                            return;
                        }
                        let harm = attack.harms[turn % attack.harms.len()];
                        let payload =
                            json!({ "tool_name": tool(harm), "args": { "text": "x".repeat(attack.bytes) } });
                        let patience = Duration::from_millis(if attack.hangs_up { 50 } else { 10_000 });
                        let _ = timeout(patience, agent.call(POINT, payload)).await;
                        ended.fetch_add(1, Ordering::Relaxed);
                        sleep(PAUSE).await;
                    }
                })
            })
            .collect();
        // Long enough to open every breaker and to take every permit.
        let began = Instant::now();
        while ended.load(Ordering::Relaxed) < attack.at_once + 10 {
            assert!(began.elapsed() < Duration::from_secs(60), "the hostile tenant is answered: {attack:?}");
            sleep(Duration::from_millis(5)).await;
        }
        let seen = self.quiet_calls().await;
        ends.store(true, Ordering::Relaxed);
        join_all(callers).await.into_iter().for_each(|caller| caller.unwrap());
        for harm in &attack.harms {
            let is_it = |seen: &Seen| matches!(&seen.payload, Payload::BeforeToolCall(call) if call.tool_name == tool(*harm));
            let tenant = |seen: &Seen| seen.call.context.as_ref().map(|context| context.tenant.clone());
            let reached =
                self.plugin.seen().iter().any(|seen| tenant(seen) == Some(hostile(number)) && is_it(seen));
            assert!(reached, "{harm:?} of {attack:?} reached the plugin");
        }
        seen
    }
}

#[test]
fn what_one_tenant_does_changes_no_decision_of_another() {
    let runtime = Runtime::new().expect("a runtime needs nothing but threads");
    let world = runtime.block_on(world());
    let next = AtomicUsize::new(0);
    let config =
        Config { cases: ATTACKS as u32, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    TestRunner::new(config)
        .run(&attacks(), |attack| {
            let decisions = runtime.block_on(world.under(next.fetch_add(1, Ordering::Relaxed), &attack));
            prop_assert!(decisions.iter().all(|decision| *decision == Decision::blocked()), "{decisions:?}");
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    assert_no_panic(&world.gateway);
    runtime.block_on(async { drop(world) });
}

/// The plugin answers no call of the greedy tenant before the quiet tenant is answered. However busy the
/// machine is, a quiet call that waited for a greedy one would fail by its timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_of_a_tenant_waits_for_another_tenants_call_to_end() {
    let world = world().await;
    let greedy = world.gateway.http(&token(GREEDY));
    // One more than all permits and the whole queue take.
    let most = 2 * PLACES + 1;
    let payload = json!({ "tool_name": "t", "args": {} });
    let mut held: FuturesUnordered<_> = (0..most).map(|_| greedy.call(POINT, payload.clone())).collect();
    let refused = held.next().await.expect("it is one of them");
    assert_eq!(refused.body["steps"][0]["outcome"], json!("failed_open"), "no room is left: {refused:?}");

    let decisions = world.quiet_calls().await;
    assert!(decisions.iter().all(|decision| *decision == Decision::blocked()), "{decisions:?}");
    let counts = world.plugin.counts();
    let quiet = (AT_ONCE * ROUNDS) as u64;
    assert_eq!((counts.finished, counts.cancelled), (quiet, 0), "the greedy calls were held all that while");

    world.gate.open();
    let answers: Vec<_> = held.collect().await;
    let outcomes = answers.iter().map(|answer| answer.body["steps"][0]["outcome"].clone());
    assert!(outcomes.clone().any(|outcome| outcome == "continued"), "{:?}", outcomes.collect::<Vec<_>>());
}

#[tokio::test]
async fn a_built_in_that_works_for_long_delays_no_call_of_another_tenant() {
    let first = FakePlugin::named("first").start().await;
    // Looks from each `a` to the end of the text for a `z`: with this text, for minutes.
    let config = json!({ "detectors": [], "patterns": [{ "name": "slow", "regex": "a.*z|a" }] });
    let gateway = Gateway::with()
        .set("/server/workers", 1)
        .set("/limits/budget", "60s")
        .plugin(&first)
        .builtin("redact", &config)
        .tenant(GREEDY)
        .tenant(QUIET)
        .binding_with("first", 10, &json!({ "tenant": GREEDY }))
        .binding_with("redact", 20, &json!({ "tenant": GREEDY, "timeout": "60s" }))
        .binding_with("redact", 20, &json!({ "name": "small", "tenant": QUIET }))
        .start()
        .await;
    let long = json!({ "tool_name": "t", "args": "a ".repeat(256 << 10) });
    let greedy = gateway.http(&token(GREEDY));
    let greedy = tokio::spawn(async move { greedy.call(POINT, long).await });
    first.wait_until(|counts| counts.calls == 1).await;
    let quiet = gateway.http(&token(QUIET));
    for _ in 0..10 {
        let answer = quiet.call(POINT, json!({ "tool_name": "t", "args": 1 })).await;
        assert_eq!(answer.status, 200);
    }
    assert!(!greedy.is_finished());
    greedy.abort();
}
