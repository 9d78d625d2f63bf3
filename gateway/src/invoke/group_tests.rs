//! Tests groups of steps whose plugins are called at the same time, under a paused clock.

use std::{collections::BTreeSet, time::Duration};

use hookgate_proto::{
    plugin::v1::{self as wire, BeforeToolCallResponse},
    types::v1::{BeforeToolCallPayload, Notice, NoticeKind},
};
use proptest::{prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};
use tokio::time::Instant;

use super::{
    scripted::{
        FAIL, LIMITS, SKIP, Script, ScriptedPlugins, Setup, cancels, context, continues, outcomes, payload,
        rename,
    },
    *,
};
use crate::{
    config::Match,
    core::{
        manifest::{Access, PointAccess, SideEffects},
        point::{PayloadField, PayloadFields},
        step::{Mode, OnError, Reason, StepOutcome},
    },
    routing::{Conditions, Plan, groups},
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The plugins that were called, in order.
fn called(plugins: &ScriptedPlugins) -> Vec<usize> {
    plugins.called.lock().expect("no panic").iter().map(|call| call.0).collect()
}

#[tokio::test(start_paused = true)]
async fn three_readers_take_as_long_as_the_slowest_of_them() {
    let setup = Setup::default()
        .step(Mode::Enforce, FAIL, continues())
        .reads(ms(5))
        .step(Mode::Advise, SKIP, continues())
        .reads(ms(3))
        .step(Mode::Enforce, SKIP, continues())
        .reads(ms(5));
    let started = Instant::now();
    let (ended, _) = setup.run().await;
    assert_eq!(started.elapsed(), ms(5));
    assert_eq!(outcomes(&ended), [StepOutcome::Continued; 3]);
    let times: Vec<_> = ended.steps.iter().map(|step| (step.duration, step.added)).collect();
    assert_eq!(times, [(ms(5), ms(5)), (ms(3), ms(0)), (ms(5), ms(0))]);
}

#[tokio::test(start_paused = true)]
async fn the_first_cancel_decides_without_waiting_for_the_steps_behind_it() {
    let setup = Setup::default()
        .step(Mode::Enforce, FAIL, Script::Say(cancels("NO")))
        .reads(ms(5))
        .step(Mode::Enforce, FAIL, Script::Hang(Reason::Timeout))
        .reads(ms(0))
        .step(Mode::Observe, SKIP, continues());
    let started = Instant::now();
    let (ended, plugins) = setup.run().await;
    assert_eq!(started.elapsed(), ms(5));
    assert_eq!(called(&plugins), [0, 1], "the one behind it was called");
    assert_eq!(outcomes(&ended), [StepOutcome::Cancelled, StepOutcome::Observed], "and is not reported");
    assert!(plugins.busy.into_inner().expect("no panic").is_empty(), "its call was dropped");
}

#[tokio::test(start_paused = true)]
async fn an_earlier_step_decides_though_a_later_one_cancelled_sooner() {
    let setup = Setup::default()
        .step(Mode::Enforce, FAIL, Script::Fail(Reason::Unreachable))
        .reads(ms(50))
        .step(Mode::Enforce, FAIL, Script::Say(cancels("SOONER")))
        .reads(ms(1));
    let (ended, _) = setup.run().await;
    let error = ended.result.as_ref().expect_err("no decision");
    assert_eq!(error.step.as_ref().map(|step| &*step.plugin), Some("p0"));
    assert_eq!(outcomes(&ended), [StepOutcome::Failed]);
}

#[tokio::test(start_paused = true)]
async fn each_step_of_a_group_gets_the_time_that_is_left_when_the_group_starts() {
    let secs = Duration::from_secs;
    let mut setup = Setup::default();
    for _ in 0..3 {
        setup = setup.step(Mode::Advise, SKIP, Script::Hang(Reason::Timeout)).reads(ms(0));
    }
    let (ended, plugins) = setup.timeouts(&[secs(10), secs(20), secs(10)]).run().await;
    let limits: Vec<_> = plugins.called.lock().expect("no panic").iter().map(|call| call.2).collect();
    assert_eq!(limits, [secs(10), secs(15), secs(10)]);
    let reasons: Vec<_> = ended.steps.iter().filter_map(|step| step.reason).collect();
    assert_eq!(reasons, [Reason::Timeout, Reason::Budget, Reason::Timeout]);
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_large_payload_run_one_after_the_other() {
    let args = PayloadFields::new(&[PayloadField::Args]);
    for (bytes, reads, took) in [
        (300 << 10, None, ms(5)),
        (400 << 10, None, ms(15)),
        (400 << 10, Some(args), ms(15)),
        (400 << 10, Some(PayloadFields::default()), ms(5)),
    ] {
        let reader = |setup: Setup| {
            let mut setup = setup.step(Mode::Enforce, FAIL, continues()).reads(ms(5));
            let offer = setup.steps.last_mut().and_then(|step| step.offer.as_mut());
            offer.expect("it reads").reads = reads;
            setup
        };
        let setup = reader(reader(reader(Setup::default())));
        let (plan, ctx, mut broken_off) = (setup.plan(), context(), Vec::new());
        let payload = BeforeToolCallPayload { args: vec![b' '; bytes].into(), ..payload() };
        let (budget, gone) = (Budget::new(Duration::from_secs(15), ctx.received, None), &mut broken_off);
        let chain =
            Chain::<BeforeToolCall, _>::new(&ctx, &plan, &setup.plugins, &LIMITS, budget, payload, gone);
        let started = Instant::now();
        let ended = chain.run(1).await;
        assert_eq!(started.elapsed(), took, "{bytes} bytes, of which each of three reads {reads:?}");
        assert_eq!(outcomes(&ended), [StepOutcome::Continued; 3]);
    }
}

/// Runs `setup` for a caller that goes away after `patience`. Returns the reports, or the outcome if the
/// chain ended before.
async fn run_for(setup: &Setup, patience: Duration) -> Result<ChainOutcome<BeforeToolCall>, Vec<StepReport>> {
    let (plan, ctx) = (setup.plan(), context());
    let budget = Budget::new(Duration::from_secs(15), ctx.received, None);
    let mut broken_off = Vec::new();
    let (plugins, gone) = (&setup.plugins, &mut broken_off);
    let chain = Chain::<BeforeToolCall, _>::new(&ctx, &plan, plugins, &LIMITS, budget, payload(), gone);
    tokio::time::timeout(patience, chain.run(1)).await.map_err(|_| broken_off)
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_within_a_group_is_reported_at_its_first_unfinished_step() {
    let setup = Setup::default()
        .step(Mode::Enforce, FAIL, continues())
        .reads(ms(10))
        .step(Mode::Observe, SKIP, continues())
        .step(Mode::Enforce, FAIL, continues())
        .reads(ms(200))
        .step(Mode::Enforce, FAIL, continues())
        .reads(ms(20))
        .step(Mode::Observe, SKIP, continues());
    let reports = run_for(&setup, ms(100)).await.err().expect("the caller goes away first");
    let outcomes: Vec<_> = reports.iter().map(|step| (&*step.binding, step.outcome.as_str())).collect();
    let expected =
        [("b0", "continued"), ("b1", "observed"), ("b2", "cancelled_by_caller"), ("b4", "observed")];
    assert_eq!(outcomes, expected);
    let times: Vec<_> = reports.iter().map(|step| (step.duration, step.added)).collect();
    assert_eq!(times, [(ms(10), ms(10)), (ms(0), ms(0)), (ms(100), ms(90)), (ms(0), ms(0))]);
    let observed = setup.plugins.observed.lock().expect("no panic");
    assert_eq!(observed.iter().map(|call| call.0).collect::<Vec<_>>(), [1, 4]);
    assert!(observed.iter().all(|(_, _, end)| end.code.as_deref() == Some("CANCELLED")));
    assert!(setup.plugins.busy.lock().expect("no panic").is_empty(), "no call goes on");
}

const PLUGINS: usize = 5;
const READS: PointAccess = PointAccess::new(Access::Read, SideEffects::None);

/// A plugin, and what it does with each call.
#[derive(Debug, Clone)]
struct RandomPlugin {
    offer: Option<PointAccess>,
    delay: u64,
    reply: RandomReply,
}

#[derive(Debug, Clone)]
enum RandomReply {
    Continues { patches: bool, notices: usize },
    Cancels { patches: bool, notices: usize },
    Fails(Reason),
    Hangs(Reason),
}

impl RandomPlugin {
    fn script(&self, plugin: usize) -> Script {
        let notice = |number| Notice {
            kind: NoticeKind::Warn.into(),
            message: format!("p{plugin}, {number}"),
            ..Notice::default()
        };
        let says = |reply: BeforeToolCallResponse, patches: bool, notices: usize| {
            let modify = rename(&format!("by.p{plugin}")).filter(|_| patches);
            Script::Say(BeforeToolCallResponse {
                modify,
                notices: (0..notices).map(notice).collect(),
                ..reply
            })
        };
        let Script::Say(continued) = continues() else { unreachable!("it says that it continues") };
        match self.reply {
            RandomReply::Continues { patches, notices } => says(continued, patches, notices),
            RandomReply::Cancels { patches, notices } => {
                says(cancels(&format!("P{plugin}")), patches, notices)
            }
            RandomReply::Fails(reason) => Script::Fail(reason),
            RandomReply::Hangs(reason) => Script::Hang(reason),
        }
    }
}

#[derive(Debug, Clone)]
struct RandomStep {
    plugin: usize,
    mode: Mode,
    on_error: OnError,
    /// A pattern for the tool's name.
    tool: Option<&'static str>,
    config_refused: bool,
}

fn plugin() -> impl Strategy<Value = RandomPlugin> {
    let offer = |access, side_effects| Some(PointAccess::new(access, side_effects));
    let offer = prop_oneof![
        6 => Just(Some(READS)),
        1 => Just(offer(Access::Read, SideEffects::Some)),
        1 => Just(offer(Access::Modify, SideEffects::None)),
        1 => Just(offer(Access::Modify, SideEffects::Some)),
        1 => Just(None),
    ];
    let patches = || prop::bool::weighted(0.3);
    let reply = prop_oneof![
        8 => (patches(), 0..3_usize).prop_map(|(patches, notices)| RandomReply::Continues { patches, notices }),
        2 => (patches(), 0..3_usize).prop_map(|(patches, notices)| RandomReply::Cancels { patches, notices }),
        2 => select(Reason::ALL).prop_map(RandomReply::Fails),
        1 => select(Reason::ALL).prop_map(RandomReply::Hangs),
    ];
    (offer, 0..40_u64, reply).prop_map(|(offer, delay, reply)| RandomPlugin { offer, delay, reply })
}

fn step() -> impl Strategy<Value = RandomStep> {
    let mode = prop_oneof![4 => Just(Mode::Enforce), 4 => Just(Mode::Advise), 1 => Just(Mode::Observe)];
    let tool = prop_oneof![8 => Just(None), 1 => Just(Some("fs.*")), 1 => Just(Some("by.*"))];
    let on_error = prop_oneof![1 => Just(FAIL), 2 => Just(SKIP)];
    (0..PLUGINS, mode, on_error, tool, prop::bool::weighted(0.05)).prop_map(
        |(plugin, mode, on_error, tool, config_refused)| {
            let on_error = if mode == Mode::Observe { SKIP } else { on_error };
            RandomStep { plugin, mode, on_error, tool, config_refused }
        },
    )
}

/// The timeout of each step. All steps together take less than a chain's budget.
const TIMEOUT: Duration = ms(300);

fn setup(plugins: &[RandomPlugin], steps: &[RandomStep]) -> Setup {
    let mut setup = Setup::default();
    for random in steps {
        setup = setup.step(random.mode, random.on_error, continues());
        let step = setup.steps.last_mut().expect("one was added");
        step.offer = plugins[random.plugin].offer;
        let template = Arc::make_mut(&mut step.template);
        template.plugin = random.plugin;
        template.plugin_name = format!("p{}", random.plugin).into();
        template.config_refused = random.config_refused.then(|| "its config is refused".into());
        let tools = random.tool.map(|glob| vec![glob.to_owned()]);
        template.conditions =
            Conditions::compile(&Match { tools, ..Match::default() }, "").expect("the patterns are valid");
    }
    setup.plugins.scripts = plugins.iter().enumerate().map(|(at, plugin)| (at, plugin.script(at))).collect();
    setup.plugins.delays = plugins.iter().enumerate().map(|(at, plugin)| (at, ms(plugin.delay))).collect();
    let timeouts = vec![TIMEOUT; steps.len()];
    setup.timeouts(&timeouts)
}

/// All that anybody can see of a chain, but for its times.
#[derive(Debug, PartialEq)]
struct VisibleOutcome {
    result: String,
    payload: BeforeToolCallPayload,
    modified: bool,
    notices: Vec<Remark>,
    steps: Vec<StepReport>,
    changes: Vec<(usize, BeforeToolCallPayload, BeforeToolCallPayload)>,
    observed: Vec<(usize, BeforeToolCallPayload, wire::ChainResult)>,
    /// The calls of plugins that must not be called at the same time as others.
    ordered_calls: Vec<(usize, BeforeToolCallPayload)>,
}

struct Run {
    visible: VisibleOutcome,
    called: BTreeSet<(usize, String)>,
    took: Duration,
}

fn without_times(steps: Vec<StepReport>) -> Vec<StepReport> {
    let zero = Duration::ZERO;
    steps.into_iter().map(|step| StepReport { duration: zero, added: zero, ..step }).collect()
}

async fn run(setup: Setup, plan: Plan) -> Run {
    let mut ctx = context();
    ctx.trace = true;
    let budget = Budget::new(Duration::from_secs(15), ctx.received, None);
    let (plugins, started, mut broken_off) = (setup.plugins, Instant::now(), Vec::new());
    let chain =
        Chain::<BeforeToolCall, _>::new(&ctx, &plan, &plugins, &LIMITS, budget, payload(), &mut broken_off);
    let ended = chain.run(1).await;
    let took = started.elapsed();
    assert_eq!(ended.steps.iter().map(|step| step.added).sum::<Duration>(), took, "all time is in steps");
    assert!(plugins.busy.lock().expect("no panic").is_empty(), "no call goes on");
    let calls = plugins.called.into_inner().expect("no panic");
    let may_overlap =
        |plugin| plan.steps.iter().any(|step| step.plugin == plugin && step.offer == Some(READS));
    let visible = VisibleOutcome {
        result: format!("{:?}", ended.result),
        payload: BeforeToolCallPayload::clone(&ended.payload),
        modified: ended.modified,
        notices: ended.notices,
        steps: without_times(ended.steps),
        changes: ended
            .changes
            .iter()
            .map(|change| (change.step, (*change.before).clone(), (*change.after).clone()))
            .collect(),
        observed: plugins.observed.into_inner().expect("no panic"),
        ordered_calls: calls
            .iter()
            .filter(|call| !may_overlap(call.0))
            .map(|call| (call.0, call.1.clone()))
            .collect(),
    };
    let called = calls.into_iter().map(|(plugin, payload, _)| (plugin, payload.tool_name)).collect();
    Run { visible, called, took }
}

fn paused() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime")
}

/// The same plan without groups.
fn in_order(mut plan: Plan) -> Plan {
    plan.steps.iter_mut().for_each(|step| step.group_len = 1);
    plan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_chain_with_groups_ends_as_if_its_steps_had_run_in_order(
        plugins in prop::collection::vec(plugin(), PLUGINS),
        steps in prop::collection::vec(step(), 0..12),
    ) {
        paused().block_on(async {
            let plan = setup(&plugins, &steps).plan();
            let together = run(setup(&plugins, &steps), plan.clone()).await;
            let ordered = run(setup(&plugins, &steps), in_order(plan)).await;
            prop_assert_eq!(together.visible, ordered.visible);
            prop_assert!(together.called.is_superset(&ordered.called));
            prop_assert!(together.took <= ordered.took);
            Ok(())
        })?;
    }

    #[test]
    fn a_caller_that_goes_away_is_reported_as_if_the_steps_had_run_in_order(
        plugins in prop::collection::vec(plugin(), PLUGINS),
        steps in prop::collection::vec(step(), 0..12),
        patience in 0..200_u64,
    ) {
        paused().block_on(async {
            let plan = in_order(setup(&plugins, &steps).plan());
            let ordered = run(setup(&plugins, &steps), plan.clone()).await.visible.steps;
            let setup = setup(&plugins, &steps);
            let Err(reports) = run_for(&setup, ms(patience)).await else { return Ok(()) };
            let reports = without_times(reports);
            let is_current = |step: &StepReport| step.outcome == StepOutcome::CancelledByCaller;
            let current = reports.iter().position(is_current).expect("a step was running");
            prop_assert_eq!(&reports[..current], &ordered[..current]);
            prop_assert_eq!(&reports[current].binding, &plan.steps[current].binding);
            let later = plan.steps[current + 1..].iter().filter(|step| step.mode == Mode::Observe);
            let later: Vec<_> = later.map(|step| &step.binding).collect();
            prop_assert_eq!(reports[current + 1..].iter().map(|step| &step.binding).collect::<Vec<_>>(), later);
            prop_assert!(setup.plugins.busy.lock().expect("no panic").is_empty());
            Ok(())
        })?;
    }
}

#[test]
fn random_plans_have_groups() {
    let mut runner = TestRunner::deterministic();
    let (mut longest, mut with_groups) = (0, 0);
    let drawn = (prop::collection::vec(plugin(), PLUGINS), prop::collection::vec(step(), 0..12));
    for _ in 0..200 {
        let (plugins, steps) = drawn.new_tree(&mut runner).expect("a plan").current();
        let plan = setup(&plugins, &steps).plan();
        let most = groups(&plan.steps).map(<[_]>::len).max().unwrap_or_default();
        longest = longest.max(most);
        with_groups += usize::from(most > 1);
    }
    assert!(longest > 4 && with_groups > 60, "{longest} {with_groups}");
}
