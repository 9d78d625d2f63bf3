//! Tests hooks, with plugins that are closures, under a paused clock.

use std::{sync::Mutex, time::Duration};

use bytes::Bytes;
use hookgate_proto::{
    HookName,
    plugin::v1::OnHookResponse,
    types::v1::{Contribution, HookPayload, Notice, NoticeKind},
};
use prost::Message;

use super::{
    scripted::{FAIL, LIMITS, SKIP, Setup, context, continues},
    *,
};
use crate::{
    core::{
        call_site::CallSite,
        error::Code,
        step::{Mode, OnError, Reason, StepOutcome},
    },
    routing::{Plan, form_one_group},
    upstream::ServingEndpoint,
};

/// What a plugin does: after a delay it answers, or fails.
type Scripted = (Duration, Result<OnHookResponse, Reason>);

struct HookPlugins {
    scripts: Vec<Scripted>,
    /// The plugins of observers that were called, with the decision that they were told.
    observed: Mutex<Vec<(usize, wire::ChainResult)>>,
}

impl Plugins for HookPlugins {
    async fn call<P: AgentCall>(
        &self,
        step: &Step,
        _: wire::Call,
        _: Arc<P::Payload>,
        _: &CallContext,
        _: Duration,
    ) -> Result<PluginReply, Failure> {
        let (delay, reply) = self.scripts[step.plugin].clone();
        tokio::time::sleep(delay).await;
        let bytes = reply.map_err(|reason| Failure::new(reason, "it was told to"))?.encode_to_vec().into();
        Ok(PluginReply { bytes, queue: Duration::ZERO, served: ServingEndpoint::default() })
    }

    fn observe<P: AgentCall>(&self, step: &Step, call: wire::Call, _: Arc<P::Payload>, _: &CallContext) {
        let result = call.chain_result.expect("observers are told");
        self.observed.lock().expect("no panic").push((step.plugin, result));
    }

    fn is_abandoned(&self) -> bool {
        false
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn contributes(value: &str) -> Result<OnHookResponse, Reason> {
    let contribution = Contribution { kind: "note".into(), value: Bytes::copy_from_slice(value.as_bytes()) };
    Ok(OnHookResponse { contributions: vec![contribution], notices: Vec::new() })
}

/// Runs a hook with a body of `bytes` bytes and these steps. Returns the outcome, the time and the plugins.
async fn run(
    bytes: usize,
    steps: Vec<(Mode, OnError, Scripted)>,
) -> (ChainOutcome<Hook>, Duration, HookPlugins) {
    let mut setup = Setup::default();
    for (mode, on_error, _) in &steps {
        setup = setup.step(*mode, *on_error, continues());
    }
    let mut steps_of_plan = setup.steps;
    form_one_group(&mut steps_of_plan);
    let plan = Plan { steps: steps_of_plan, tools: None, digest: "digest".into() };
    let plugins = HookPlugins {
        scripts: steps.into_iter().map(|(.., script)| script).collect(),
        observed: Mutex::default(),
    };
    let payload = HookPayload { hook: "my_hook".into(), body: vec![b' '; bytes].into() };
    let site = CallSite::Hook(HookName::new("my_hook").expect("a name"));
    let (ctx, mut broken_off) = (CallContext { site, ..context() }, Vec::new());
    let budget = Budget::new(Duration::from_secs(15), ctx.received, None);
    let chain = Chain::<Hook, _>::new(&ctx, &plan, &plugins, &LIMITS, budget, payload, &mut broken_off);
    let started = Instant::now();
    let ended = chain.run(1).await;
    (ended, started.elapsed(), plugins)
}

fn values(ended: &ChainOutcome<Hook>) -> Vec<String> {
    let value = |one: &PluginContribution| {
        format!("{}: {}", one.plugin, String::from_utf8_lossy(&one.contribution.value))
    };
    ended.contributions.iter().map(value).collect()
}

#[tokio::test(start_paused = true)]
async fn ten_plugins_take_as_long_as_the_slowest_and_contribute_in_the_order_of_the_steps() {
    let steps = (0..10).map(|number: u64| {
        let delay = ms(100 - 10 * number);
        (Mode::Advise, SKIP, (delay, contributes(&number.to_string())))
    });
    let (ended, took, _) = run(10, steps.collect()).await;
    assert_eq!(took, ms(100));
    let expected: Vec<_> = (0..10).map(|number| format!("p{number}: {number}")).collect();
    assert_eq!(values(&ended), expected);
    assert!(ended.result.is_ok() && !ended.modified);
    assert!(ended.steps.iter().all(|step| step.outcome == StepOutcome::Contributed));
}

#[tokio::test(start_paused = true)]
async fn a_failed_plugin_is_skipped_with_a_notice_and_the_others_contribute() {
    let remark =
        Notice { kind: NoticeKind::Info.into(), message: "nothing known".into(), ..Notice::default() };
    let silent = OnHookResponse { contributions: Vec::new(), notices: vec![remark] };
    let steps = vec![
        (Mode::Advise, SKIP, (ms(5), Err(Reason::Timeout))),
        (Mode::Advise, SKIP, (ms(1), contributes("1"))),
        (Mode::Advise, SKIP, (ms(1), Ok(silent))),
    ];
    let (ended, ..) = run(10, steps).await;
    assert_eq!(values(&ended), ["p1: 1"]);
    let outcomes: Vec<_> = ended.steps.iter().map(|step| step.outcome).collect();
    assert_eq!(outcomes, [StepOutcome::FailedOpen, StepOutcome::Contributed, StepOutcome::Continued]);
    let notices: Vec<_> = ended.notices.iter().map(|remark| (&*remark.plugin, remark.by_gateway)).collect();
    assert_eq!(notices, [("p0", true), ("p2", false)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_hook_only_where_on_error_is_fail() {
    let steps = vec![
        (Mode::Advise, SKIP, (ms(1), contributes("0"))),
        (Mode::Advise, FAIL, (ms(2), Err(Reason::Unreachable))),
        (Mode::Advise, SKIP, (ms(90), contributes("2"))),
    ];
    let (ended, took, _) = run(10, steps).await;
    let error = ended.result.expect_err("it failed");
    assert_eq!((error.code, took), (Code::PluginUnavailable, ms(2)));
    assert_eq!(error.step.map(|step| step.site.to_string()).as_deref(), Some("my_hook"));
}

#[tokio::test(start_paused = true)]
async fn plugins_wait_for_each_other_only_where_their_copies_of_a_large_body_need_more_memory() {
    for (bytes, expected) in [(100 << 10, ms(5)), (300 << 10, ms(10)), (900 << 10, ms(30))] {
        let steps = (0..6).map(|_| (Mode::Advise, SKIP, (ms(5), contributes("1"))));
        let (ended, took, _) = run(bytes, steps.collect()).await;
        assert_eq!((took, ended.contributions.len()), (expected, 6), "{bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_sixteen_plugins_are_asked_at_a_time_whatever_observes_between_them() {
    for (calls, expected) in [(16, ms(5)), (17, ms(10))] {
        let pair = |_| {
            let observer = (Mode::Observe, SKIP, (ms(0), contributes("0")));
            [observer, (Mode::Advise, SKIP, (ms(5), contributes("1")))]
        };
        let (ended, took, _) = run(10, (0..calls).flat_map(pair).collect()).await;
        assert_eq!((took, ended.contributions.len()), (expected, calls), "{calls} plugins");
    }
}

#[tokio::test(start_paused = true)]
async fn contributions_that_make_the_answer_too_large_fail_their_step() {
    let long = format!("\"{}\"", "x".repeat(2500));
    let steps = ["1", &long, &long, "2"].map(|value| (Mode::Advise, SKIP, (ms(1), contributes(value))));
    let (ended, ..) = run(10, steps.into()).await;
    let outcomes: Vec<_> = ended.steps.iter().map(|step| (step.outcome, step.reason)).collect();
    let contributed = (StepOutcome::Contributed, None);
    let failed = (StepOutcome::FailedOpen, Some(Reason::TooLarge));
    assert_eq!(outcomes, [contributed, contributed, failed, contributed]);
    assert_eq!(ended.contributions.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn observers_get_their_calls_after_the_others_and_learn_of_no_decision() {
    let steps = vec![
        (Mode::Observe, SKIP, (ms(0), contributes("0"))),
        (Mode::Advise, SKIP, (ms(5), contributes("1"))),
        (Mode::Observe, SKIP, (ms(0), contributes("2"))),
    ];
    let (ended, took, plugins) = run(10, steps).await;
    assert_eq!((values(&ended), took), (vec!["p1: 1".to_owned()], ms(5)));
    let observed = plugins.observed.lock().expect("no panic").clone();
    assert_eq!(observed, [(0, wire::ChainResult::default()), (2, wire::ChainResult::default())]);
}
