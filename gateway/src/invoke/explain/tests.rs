//! Property tests with random configurations and calls: an explanation agrees step by step with a real
//! chain, both if plugins answer at once and if they take all their time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use hookgate_proto::{
    plugin::v1::{self as wire, BeforeToolCallResponse, Continue, before_tool_call_response::Verdict},
    types::v1 as types,
};
use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use prost::Message;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{
    core::{
        context::{CallContext, Identity},
        failure::Failure,
        manifest::{Access, Manifest, PointAccess, SideEffects},
        point::Point,
        step::{Mode, OnError, Reason, StepOutcome},
    },
    invoke::{
        AfterToolResult, AgentCall, BeforeLlmRequest, BeforeResponse, BeforeToolCall, Chain, Plugins,
        ReplyLimits, StepReport,
    },
    upstream::{PluginReply, ServingEndpoint},
};

const PLUGINS: usize = 3;
const TENANTS: usize = 3;
const LIMITS: ReplyLimits =
    ReplyLimits { request: 4096, notices: 16, notice_bytes: 8192, details_bytes: 4096 };

/// A configuration, the manifests so far, and a call.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) members: Value,
    /// Whether each plugin only reads, and its offered points; `None` if it has no manifest yet.
    offers: Vec<Option<(bool, [bool; 4])>>,
    pub(crate) question: ExplainQuery,
}

impl Case {
    fn config(&self) -> Config {
        serde_json::from_value(self.members.clone()).expect("the generator writes configurations")
    }

    pub(crate) fn manifests(&self) -> Vec<Option<Arc<Manifest>>> {
        let schema = jsonschema::validator_for(&json!({ "properties": { "bad": false } })).expect("a schema");
        let schema = Arc::new(schema);
        let manifest = |(reads, offers): (bool, [bool; 4])| {
            let access = if reads { Access::Read } else { Access::Modify };
            let offer = |offered: bool| offered.then_some(PointAccess::new(access, SideEffects::None));
            Arc::new(Manifest {
                name: "p".into(),
                version: semver::Version::new(1, 0, 0),
                offers: offers.map(offer),
                hooks: BTreeMap::new(),
                tool_names: Arc::default(),
                tools: None,
                capabilities: Vec::new(),
                config_schema: None,
                tenant_config_schema: Some(Arc::clone(&schema)),
            })
        };
        self.offers.iter().map(|offers| offers.map(manifest)).collect()
    }
}

/// Plugins that continue, at once or when their time is over.
struct Continuing {
    takes: Takes,
    /// The time that each binding was given.
    given: Mutex<BTreeMap<String, Duration>>,
}

impl Plugins for Continuing {
    async fn call<P: AgentCall>(
        &self,
        step: &Step,
        _call: wire::Call,
        _payload: Arc<P::Payload>,
        _ctx: &CallContext,
        limit: Duration,
    ) -> Result<PluginReply, Failure> {
        self.given.lock().expect("no panic").insert(step.binding.to_string(), limit);
        if self.takes == Takes::AllItGets {
            tokio::time::sleep(limit).await;
            // The chain goes on after this, so the reason is visible.
            if step.on_error == OnError::Skip {
                return Err(Failure::ran_out(Reason::Timeout, "it did not answer in time"));
            }
        }
        // `continue` is the same field in the replies of all points.
        let reply =
            BeforeToolCallResponse { verdict: Some(Verdict::Continue(Continue {})), ..Default::default() };
        Ok(PluginReply {
            bytes: reply.encode_to_vec().into(),
            queue: Duration::ZERO,
            served: ServingEndpoint::default(),
        })
    }

    fn observe<P: AgentCall>(&self, _: &Step, _: wire::Call, _: Arc<P::Payload>, _: &CallContext) {}

    fn is_abandoned(&self) -> bool {
        false
    }
}

/// The context of `question`, as the edge builds it.
fn context(question: &ExplainQuery) -> CallContext {
    let received = Instant::now();
    let mut ctx = CallContext {
        site: question.site.clone(),
        identity: Arc::new(Identity {
            tenant: question.tenant.as_str().into(),
            operator: "ops".into(),
            user_id: None,
            claims: Default::default(),
        }),
        request_id: uuid::Uuid::now_v7(),
        correlation_id: None,
        request: Default::default(),
        received,
        deadline: question.call.timeout_ms.map(|millis| received + Duration::from_millis(millis)),
        depth: 0,
        trace: false,
        takes_results: false,
        exchange: None,
    };
    ctx.request.agent_id.clone_from(&question.call.agent);
    ctx.request.agent_path.clone_from(&question.call.agent_path);
    ctx.request.model.clone_from(&question.call.model);
    ctx.request.labels = question.call.labels.clone().into_iter().collect();
    ctx
}

async fn run<P: AgentCall>(
    config: &Config,
    plan: &Plan,
    plugins: &Continuing,
    question: &ExplainQuery,
    payload: P::Payload,
) -> Vec<StepReport> {
    let ctx = context(question);
    let budget = crate::invoke::Budget::new(config.limits.budget.0, ctx.received, ctx.deadline);
    let mut broken_off = Vec::new();
    let chain = Chain::<P, _>::new(&ctx, plan, plugins, &LIMITS, budget, payload, &mut broken_off);
    chain.run(1).await.steps
}

/// Runs a real chain under a clock that only the plugins advance.
fn real(
    config: &Config,
    plan: &Plan,
    takes: Takes,
    question: &ExplainQuery,
) -> (Vec<StepReport>, BTreeMap<String, Duration>) {
    let plugins = Continuing { takes, given: Mutex::default() };
    let tool = || question.call.tool.clone().unwrap_or_default();
    let text = || question.text.clone().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let steps = runtime.expect("a runtime").block_on(async {
        match question.site.point().expect("tests ask for points") {
            Point::BeforeLlmRequest => {
                let payload = types::BeforeLlmRequestPayload { text: text(), ..Default::default() };
                run::<BeforeLlmRequest>(config, plan, &plugins, question, payload).await
            }
            Point::BeforeToolCall => {
                let payload = types::BeforeToolCallPayload { tool_name: tool(), ..Default::default() };
                run::<BeforeToolCall>(config, plan, &plugins, question, payload).await
            }
            Point::AfterToolResult => {
                let payload = types::AfterToolResultPayload { tool_name: tool(), ..Default::default() };
                run::<AfterToolResult>(config, plan, &plugins, question, payload).await
            }
            Point::BeforeResponse => {
                let payload = types::BeforeResponsePayload { content: text(), ..Default::default() };
                run::<BeforeResponse>(config, plan, &plugins, question, payload).await
            }
        }
    });
    (steps, plugins.given.into_inner().expect("no panic"))
}

/// A step as reported in answers: binding, outcome, reason.
type Reported = (String, StepOutcome, Option<String>);

fn reported(steps: &[StepReport]) -> Vec<Reported> {
    let one = |step: &StepReport| {
        (step.binding.to_string(), step.outcome, step.reason.map(|reason| reason.as_str().to_owned()))
    };
    steps.iter().map(one).collect()
}

/// The report that `comes` predicts; `None` if the step isn't in answers. `asked` is the outcome of steps
/// whose plugin is called.
fn predicted(
    step: &StepExplanation,
    comes: &StepForecast,
    asked: (StepOutcome, Option<Reason>),
) -> Option<Reported> {
    let outcome = match comes.outcome {
        ExpectedOutcome::NotReached => return None,
        ExpectedOutcome::Called => {
            let reason = asked.1.map(|reason| reason.as_str().to_owned());
            return Some((step.binding.clone(), asked.0, reason));
        }
        // Why an observer's call fails is known only after the answer.
        ExpectedOutcome::Observed => return Some((step.binding.clone(), StepOutcome::Observed, None)),
        ExpectedOutcome::SkippedCondition => StepOutcome::SkippedCondition,
        ExpectedOutcome::SkippedBudget => StepOutcome::SkippedBudget,
        ExpectedOutcome::Failed => StepOutcome::Failed,
        ExpectedOutcome::FailedOpen => StepOutcome::FailedOpen,
    };
    Some((step.binding.clone(), outcome, comes.reason.clone()))
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.6, select(values))
}

fn conditions() -> impl Strategy<Value = Value> {
    let list = |patterns: &'static [&'static str]| {
        prop::option::weighted(0.2, prop::collection::vec(select(patterns), 1..3))
    };
    let tools = list(&["fs.*", "fs.read", "shell?", "*"]);
    let agents = list(&["coder", "c*", "other"]);
    let models = list(&["m-1", "m-?"]);
    let labels = prop::collection::btree_map(select(&["team", "claim.role"][..]), Just(["a"]), 0..2);
    let text = list(&["secret", "x"]);
    (tools, agents, models, labels, text).prop_map(|(tools, agents, models, labels, text)| {
        let mut members = json!({ "tools": tools, "agents": agents, "agent_paths": agents, "models": models, "labels": labels });
        if let Some(words) = text {
            members["text"] = json!({ "contains": words });
        }
        members
    })
}

/// A random binding: plugin, tenant, mode, points, half its timeout in ms, enabled, overridable,
/// conditions, priority.
type Drawn = (usize, Value, Value, Option<Vec<Point>>, Option<u64>, bool, bool, Value, i64);

fn bindings() -> impl Strategy<Value = Vec<Value>> {
    let whom = prop_oneof![
        5 => Just(json!({ "tenant": "*" })),
        2 => select(&["x", "y"][..]).prop_map(|plan| json!({ "selector": { "plan": plan } })),
        1 => (0..TENANTS).prop_map(|n| json!({ "tenant": format!("t{n}") })),
    ];
    let how = prop_oneof![
        Just(json!({})),
        Just(json!({ "blocking": false })),
        Just(json!({ "mode": "observe" })),
        Just(json!({ "mode": "enforce", "on_error": "skip" })),
        Just(json!({ "mode": "advise", "on_error": "fail" })),
    ];
    let points = prop::option::weighted(0.4, prop::sample::subsequence(Point::ALL.to_vec(), 1..=4));
    let timeout = prop::option::weighted(0.5, 5_u64..15_000);
    let enabled = prop::bool::weighted(0.9);
    let binding = (0..PLUGINS, whom, how, points, timeout, enabled, any::<bool>(), conditions(), -9_i64..9);
    prop::collection::vec(binding, 0..12).prop_map(|list| {
        let one = |(at, drawn): (usize, Drawn)| {
            let (plugin, whom, how, points, timeout, enabled, overridable, conditions, place) = drawn;
            let mut binding = json!({
                "name": format!("b{at}"), "plugin": format!("p{plugin}"), "enabled": enabled,
                "overridable": overridable, "priority": place * 100 + at as i64, "match": conditions,
            });
            let members = binding.as_object_mut().expect("an object");
            for more in [whom, how] {
                members.extend(more.as_object().expect("an object").clone());
            }
            if let Some(points) = points {
                if points.iter().any(|point| point.names_a_tool()) {
                    members["match"].as_object_mut().expect("an object").remove("text");
                }
                members.insert("points".into(), json!(points));
            }
            members.extend(timeout.map(|half| ("timeout".to_owned(), json!(format!("{}ms", 2 * half)))));
            binding
        };
        list.into_iter().enumerate().map(one).collect()
    })
}

fn tenant(at: usize, bindings: &[Value]) -> impl Strategy<Value = Value> + use<> {
    let id = format!("t{at}");
    let own = |binding: &&Value| binding.get("tenant").is_none_or(|t| *t == json!("*") || *t == json!(id));
    let overridable = bindings.iter().filter(|binding| binding["overridable"] == json!(true)).filter(own);
    let names: Vec<_> = overridable.map(|binding| binding["name"].clone()).collect();
    let some = 0..=names.len();
    let config = prop::option::weighted(0.3, (0..PLUGINS, select(&["good", "bad"][..])));
    let labels = prop::collection::btree_map(Just("plan"), select(&["x", "y"][..]), 0..2);
    (prop::bool::weighted(0.85), labels, prop::sample::subsequence(names, some), config).prop_map(
        move |(enabled, labels, disable, config)| {
            let config: BTreeMap<_, _> =
                config.map(|(plugin, key)| (format!("p{plugin}"), json!({ key: 1 }))).into_iter().collect();
            json!({ "id": id, "enabled": enabled, "labels": labels, "disable": disable, "config": config })
        },
    )
}

fn members() -> impl Strategy<Value = Value> {
    bindings().prop_flat_map(|bindings| {
        let tenants: Vec<_> = (0..TENANTS).map(|at| tenant(at, &bindings)).collect();
        let plugin = (prop::bool::weighted(0.95), prop::option::of(5_u64..10_000));
        let plugins = prop::collection::vec(plugin, PLUGINS).prop_map(|plugins| {
            let one = |(at, (enabled, half)): (usize, (bool, Option<u64>))| {
                let limits = half.map_or(json!({}), |half| json!({ "timeout": format!("{}ms", 2 * half) }));
                json!({ "name": format!("p{at}"), "builtin": "x", "enabled": enabled, "limits": limits })
            };
            plugins.into_iter().enumerate().map(one).collect::<Vec<_>>()
        });
        (Just(bindings), tenants, plugins, any::<bool>(), 5_u64..30_000).prop_map(
            |(bindings, tenants, plugins, accept, half)| {
                json!({
                    "auth": { "issuers": [] }, "plugins": plugins, "bindings": bindings,
                    "tenants": { "unknown": if accept { "accept" } else { "refuse" }, "list": tenants },
                    "limits": { "budget": format!("{}ms", 2 * half) },
                })
            },
        )
    })
}

fn question() -> impl Strategy<Value = ExplainQuery> {
    let whose = select(&["t0", "t1", "t2", "stranger"][..]);
    let tool = maybe(&["fs.read", "fs.write", "shell1", "", "web"]);
    let labels = prop::collection::btree_map("team|claim[.]role", "|a|b", 0..3);
    // Multiples of 20, so that no limit has a fraction of a millisecond, which timers round up. 10 ms is
    // too little for any step that may be skipped.
    let waits = prop_oneof![1 => Just(10), 3 => (1_u64..30).prop_map(|n| 20 * n), 3 => (1_u64..3_000).prop_map(|n| 20 * n)];
    let waits = prop::option::weighted(0.5, waits);
    let (agent, agent_path) = (maybe(&["coder", "", "x"]), maybe(&["coder", "", "x"]));
    let carried = (tool, agent, agent_path, maybe(&["m-1", "m-22"]), maybe(&["a secret", "", "y"]));
    (whose, select(&Point::ALL[..]), carried, labels, waits).prop_map(
        |(tenant, point, (tool, agent, agent_path, model, text), labels, waits)| {
            let own = |value: Option<&str>| value.map(str::to_owned);
            let (tool, agent, model) = (own(tool), own(agent), own(model));
            let agent_path = own(agent_path);
            let call = ExplainCall { tool, agent, agent_path, model, labels, timeout_ms: waits };
            ExplainQuery { tenant: tenant.into(), site: point.into(), call, text: own(text) }
        },
    )
}

pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let offers = (any::<bool>(), prop::array::uniform4(prop::bool::weighted(0.85)));
    let offers = prop::option::weighted(0.85, offers);
    let offers = prop::collection::vec(offers, PLUGINS);
    (members(), offers, question()).prop_map(|(members, offers, question)| Case { members, offers, question })
}

/// Compares the explanation of `question` with real chains. Returns the outcomes of its steps, both at once
/// and in the worst case.
pub(crate) fn compare(
    config: &Config,
    table: &RouteTable,
    question: &ExplainQuery,
) -> Result<Vec<[ExpectedOutcome; 2]>, TestCaseError> {
    let said = explain(config, table, true, question);
    let TenantRoute::Known(plans) = table.tenant(&question.tenant) else {
        prop_assert!(said.tenant.code.is_some() && said.plan_digest.is_none() && said.steps.is_empty());
        return Ok(Vec::new());
    };
    let plan = plans.plan_at(&question.site);
    prop_assert_eq!(said.plan_digest.as_deref(), Some(&*plan.digest));
    prop_assert_eq!(said.tenant.code, None);

    let (steps, given) = real(config, plan, Takes::Nothing, question);
    let continued = (StepOutcome::Continued, None);
    let at_once = said.steps.iter().filter_map(|step| predicted(step, &step.comes, continued));
    prop_assert_eq!(at_once.collect::<Vec<_>>(), reported(&steps));
    for step in &said.steps {
        prop_assert_eq!(step.comes.outcome == ExpectedOutcome::Called, given.contains_key(&step.binding));
        let unmet = step.conditions.iter().any(|tried| tried.result == routing::ConditionOutcome::NotMatched);
        let reached = step.comes.outcome != ExpectedOutcome::NotReached;
        prop_assert_eq!(step.comes.outcome == ExpectedOutcome::SkippedCondition, unmet && reached);
    }

    let (steps, given) = real(config, plan, Takes::AllItGets, question);
    let worst = said.steps.iter().filter_map(|step| {
        let ran_out = if step.worst_case.budget_limited { Reason::Budget } else { Reason::Timeout };
        let asked = match step.on_error {
            OnError::Fail => (StepOutcome::Continued, None),
            OnError::Skip => (StepOutcome::FailedOpen, Some(ran_out)),
        };
        predicted(step, &step.worst_case.comes, asked)
    });
    prop_assert_eq!(worst.collect::<Vec<_>>(), reported(&steps));
    for step in said.steps.iter().filter(|step| step.mode != Mode::Observe) {
        let gets = step
            .worst_case
            .allowance_ms
            .map(|gets| gets.0)
            .filter(|_| step.worst_case.comes.outcome == ExpectedOutcome::Called);
        prop_assert_eq!(gets, given.get(&step.binding).copied());
    }
    Ok(said.steps.iter().map(|step| [step.comes.outcome, step.worst_case.comes.outcome]).collect())
}

#[test]
fn what_is_explained_is_what_a_real_chain_does() {
    let mut runner =
        TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) });
    let seen = Mutex::new([BTreeSet::new(), BTreeSet::new()]);
    let compared = runner.run(&cases(), |case| {
        let config = case.config();
        let table = RouteTable::build(&config, &case.manifests(), 1).expect("the configuration is valid");
        let fates = compare(&config, &table, &case.question)?;
        let mut seen = seen.lock().expect("no panic");
        for [at_once, worst] in fates {
            seen[0].insert(at_once.as_str());
            seen[1].insert(worst.as_str());
        }
        Ok(())
    });
    compared.unwrap_or_else(|wrong| panic!("{wrong}"));
    let all = [
        ExpectedOutcome::Called,
        ExpectedOutcome::Observed,
        ExpectedOutcome::SkippedCondition,
        ExpectedOutcome::SkippedBudget,
        ExpectedOutcome::Failed,
        ExpectedOutcome::FailedOpen,
        ExpectedOutcome::NotReached,
    ];
    for seen in seen.into_inner().expect("no panic") {
        assert_eq!(
            seen,
            all.into_iter().map(ExpectedOutcome::as_str).collect(),
            "the cases reach every outcome"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Every binding that could apply is either a step or absent with a reason.
    #[test]
    fn every_binding_that_concerns_a_tenant_is_explained_once(case in cases()) {
        let config = case.config();
        let table = RouteTable::build(&config, &case.manifests(), 1).expect("the configuration is valid");
        let said = explain(&config, &table, true, &case.question);
        prop_assume!(said.tenant.code.is_none());
        let concerned = config.bindings.iter().filter(|binding| {
            binding.tenant.as_deref().is_none_or(|whose| whose == "*" || whose == case.question.tenant)
        });
        let concerned: BTreeSet<_> = concerned.map(|binding| binding.effective_name().into_owned()).collect();
        let absent = said.absent.iter().map(|absent| absent.binding.clone());
        let explained: Vec<_> = said.steps.iter().map(|step| step.binding.clone()).chain(absent).collect();
        prop_assert_eq!(explained.len(), concerned.len());
        prop_assert_eq!(explained.into_iter().collect::<BTreeSet<_>>(), concerned);
    }

    /// The command line reads what the admin API answers.
    #[test]
    fn an_explanation_survives_json(case in cases()) {
        let config = case.config();
        let table = RouteTable::build(&config, &case.manifests(), 1).expect("the configuration is valid");
        let said = explain(&config, &table, true, &case.question);
        let json = serde_json::to_string(&said).expect("it is JSON");
        prop_assert_eq!(serde_json::from_str::<Explanation>(&json).expect("it is read"), said);
    }
}
