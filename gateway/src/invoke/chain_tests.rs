//! Tests chains of plugins that are closures, under a paused clock.

use std::time::Duration;

use futures::FutureExt;
use hookgate_proto::{
    plugin::v1::BeforeToolCallResponse,
    types::v1::{Decision, Notice, NoticeKind},
};
use proptest::prelude::*;
use tokio::time::Instant;

use super::{
    scripted::{
        FAIL, LIMITS, SKIP, Script, Setup, cancels, context, continues, outcomes, patches, payload, rename,
    },
    *,
};
use crate::core::{
    error::Code,
    step::{Mode, Reason, StepOutcome},
};

#[tokio::test(start_paused = true)]
async fn each_plugin_sees_what_the_one_before_it_left() {
    let setup = Setup::default()
        .step(Mode::Enforce, FAIL, patches("a"))
        .step(Mode::Advise, SKIP, patches("b"))
        .step(Mode::Enforce, FAIL, continues());
    let (ended, plugins) = setup.run().await;
    let seen: Vec<_> =
        plugins.called.lock().expect("no panic").iter().map(|call| call.1.tool_name.clone()).collect();
    assert_eq!(seen, ["fs.read", "a", "b"]);
    assert_eq!(ended.payload.tool_name, "b");
    assert_eq!(ended.payload.args, payload().args, "what no plugin patched stays byte for byte");
    assert!(ended.modified);
    assert_eq!(outcomes(&ended), [StepOutcome::Modified, StepOutcome::Modified, StepOutcome::Continued]);
}

#[tokio::test(start_paused = true)]
async fn cancel_in_enforce_stops_the_chain_and_keeps_its_patch() {
    let reply = BeforeToolCallResponse { modify: rename("safe"), ..cancels("TOOL_NOT_ALLOWED") };
    let setup =
        Setup::default().step(Mode::Enforce, SKIP, Script::Say(reply)).step(Mode::Enforce, FAIL, continues());
    let (ended, plugins) = setup.run().await;
    let Ok(ChainDecision::Block(block)) = &ended.result else { panic!("not blocked: {:?}", ended.result) };
    assert_eq!((&*block.plugin, &*block.binding, &*block.code), ("p0", "b0", "TOOL_NOT_ALLOWED"));
    assert_eq!(ended.payload.tool_name, "safe");
    assert_eq!(plugins.called.lock().expect("no panic").len(), 1, "the plugin behind it is not called");
    assert_eq!(outcomes(&ended), [StepOutcome::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn cancel_from_advisory_plugin_is_ignored_but_its_patch_and_notices_stay() {
    let notice =
        Notice { kind: NoticeKind::Block.into(), message: "I would not".into(), ..Default::default() };
    let reply = BeforeToolCallResponse { modify: rename("safe"), notices: vec![notice], ..cancels("NO") };
    let setup =
        Setup::default().step(Mode::Advise, SKIP, Script::Say(reply)).step(Mode::Enforce, FAIL, continues());
    let (ended, plugins) = setup.run().await;
    assert_eq!(ended.result.as_ref().ok(), Some(&ChainDecision::Continue));
    assert_eq!(outcomes(&ended), [StepOutcome::WouldBlock, StepOutcome::Continued]);
    assert_eq!(ended.notices.len(), 1);
    assert_eq!(plugins.called.lock().expect("no panic")[1].1.tool_name, "safe");
}

#[tokio::test(start_paused = true)]
async fn a_skipped_failure_leaves_the_payload_as_it_was_and_says_so() {
    let setup = Setup::default()
        .step(Mode::Enforce, FAIL, patches("a"))
        .step(Mode::Enforce, SKIP, Script::Fail(Reason::BadReply))
        .step(Mode::Enforce, FAIL, continues());
    let (ended, plugins) = setup.run().await;
    assert_eq!(ended.result.as_ref().ok(), Some(&ChainDecision::Continue));
    assert_eq!(outcomes(&ended)[1], StepOutcome::FailedOpen);
    assert!(ended.steps[1].failed_open);
    assert_eq!(plugins.called.lock().expect("no panic")[2].1.tool_name, "a");
    assert_eq!(ended.notices[0].notice.code.as_deref(), Some("PLUGIN_BAD_REPLY"));
    assert!(ended.notices[0].by_gateway);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_may_not_be_skipped_ends_without_a_decision_and_names_the_plugin() {
    let setup = Setup::default().step(Mode::Advise, FAIL, Script::Fail(Reason::Unreachable)).step(
        Mode::Enforce,
        FAIL,
        continues(),
    );
    let (ended, plugins) = setup.run().await;
    let error = ended.result.as_ref().expect_err("no decision");
    assert_eq!(error.code, Code::PluginUnavailable);
    assert_eq!(error.detail, "Plugin 'p0' failed: it was told to");
    assert_eq!(outcomes(&ended), [StepOutcome::Failed]);
    assert_eq!(plugins.called.lock().expect("no panic").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn observers_get_the_payload_of_their_place_and_how_the_chain_ended() {
    let setup = Setup::default()
        .step(Mode::Observe, SKIP, continues())
        .step(Mode::Enforce, FAIL, patches("a"))
        .step(Mode::Observe, SKIP, continues())
        .step(Mode::Enforce, FAIL, Script::Say(cancels("NO")))
        .step(Mode::Enforce, FAIL, patches("never"))
        .step(Mode::Observe, SKIP, continues());
    let (ended, plugins) = setup.run().await;
    let observed = plugins.observed.into_inner().expect("no panic");
    let seen: Vec<_> =
        observed.iter().map(|(plugin, payload, _)| (*plugin, payload.tool_name.as_str())).collect();
    assert_eq!(seen, [(0, "fs.read"), (2, "a"), (5, "a")]);
    for (_, _, end) in &observed {
        assert_eq!(
            (end.decision(), end.plugin.as_deref(), end.code.as_deref()),
            (Decision::Block, Some("p3"), Some("NO"))
        );
    }
    assert_eq!(
        outcomes(&ended),
        [
            StepOutcome::Observed,
            StepOutcome::Modified,
            StepOutcome::Observed,
            StepOutcome::Cancelled,
            StepOutcome::Observed
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn observers_are_told_of_an_error_too() {
    let setup = Setup::default().step(Mode::Enforce, FAIL, Script::Fail(Reason::Timeout)).step(
        Mode::Observe,
        SKIP,
        continues(),
    );
    let (_, plugins) = setup.run().await;
    let observed = plugins.observed.into_inner().expect("no panic");
    assert_eq!(observed.len(), 1);
    assert_eq!(observed[0].2.decision(), Decision::Unspecified);
    assert_eq!(observed[0].2.code.as_deref(), Some("PLUGIN_TIMEOUT"));
}

#[tokio::test(start_paused = true)]
async fn observers_are_told_when_the_caller_goes_away() {
    let setup = Setup::default()
        .step(Mode::Observe, SKIP, continues())
        .step(Mode::Enforce, FAIL, patches("a"))
        .step(Mode::Enforce, FAIL, Script::Hang(Reason::Timeout))
        .step(Mode::Observe, SKIP, continues());
    let plan = setup.plan();
    let ctx = context();
    let budget = Budget::new(Duration::from_secs(15), ctx.received, None);
    let (plugins, mut broken_off) = (&setup.plugins, Vec::new());
    let chain =
        Chain::<BeforeToolCall, _>::new(&ctx, &plan, plugins, &LIMITS, budget, payload(), &mut broken_off);
    tokio::time::timeout(Duration::from_millis(100), chain.run(1)).await.err().expect("it hangs for 5 s");
    let outcomes: Vec<_> = broken_off.iter().map(|step| step.outcome.as_str()).collect();
    assert_eq!(outcomes, ["observed", "modified", "cancelled_by_caller", "observed"]);
    assert_eq!(broken_off[2].duration, Duration::from_millis(100));
    let observed = setup.plugins.observed.lock().expect("no panic");
    let seen: Vec<_> =
        observed.iter().map(|(plugin, payload, _)| (*plugin, payload.tool_name.as_str())).collect();
    assert_eq!(seen, [(0, "fs.read"), (3, "a")]);
    assert!(observed.iter().all(|(_, _, end)| end.code.as_deref() == Some("CANCELLED")));
}

#[tokio::test(start_paused = true)]
async fn observers_are_told_when_it_is_the_gateway_that_breaks_off() {
    for (given_up, panics, expected) in [(true, false, "DRAINING"), (false, true, "INTERNAL")] {
        let mut setup = Setup::default().step(Mode::Enforce, FAIL, Script::Hang(Reason::Timeout)).step(
            Mode::Observe,
            SKIP,
            continues(),
        );
        setup.plugins.given_up = given_up;
        if panics {
            setup.plugins.scripts.clear();
        }
        let plan = setup.plan();
        let ctx = context();
        let budget = Budget::new(Duration::from_secs(15), ctx.received, None);
        let (plugins, mut broken_off) = (&setup.plugins, Vec::new());
        let chain = Chain::<BeforeToolCall, _>::new(
            &ctx,
            &plan,
            plugins,
            &LIMITS,
            budget,
            payload(),
            &mut broken_off,
        );
        let run = std::panic::AssertUnwindSafe(chain.run(1)).catch_unwind();
        let ended = tokio::time::timeout(Duration::from_millis(100), run).await;
        assert_eq!(ended.is_ok_and(|ended| ended.is_err()), panics);
        let observed = setup.plugins.observed.lock().expect("no panic");
        let codes: Vec<_> = observed.iter().map(|(_, _, end)| end.code.as_deref()).collect();
        assert_eq!(codes, [Some(expected)]);
    }
}

#[tokio::test(start_paused = true)]
async fn dead_advisory_steps_leave_a_later_enforcing_step_its_time() {
    let secs = Duration::from_secs;
    let mut setup = Setup::default();
    for _ in 0..4 {
        setup = setup.step(Mode::Advise, SKIP, Script::Hang(Reason::Timeout));
    }
    let setup = setup.step(Mode::Enforce, FAIL, continues()).timeouts(&[
        secs(10),
        secs(10),
        secs(10),
        secs(10),
        secs(5),
    ]);
    let (ended, plugins) = setup.run().await;
    assert_eq!(ended.result.as_ref().ok(), Some(&ChainDecision::Continue));
    let called = plugins.called.lock().expect("no panic");
    assert_eq!(called.last().map(|call| (call.0, call.2)), Some((4, secs(5))), "it has its own 5 s");
    assert_eq!(called.len(), 2, "the first takes 10 s, nothing is left for the other three");
    assert_eq!(ended.steps[1].outcome, StepOutcome::SkippedBudget);
    assert_eq!(ended.steps[1].reason, Some(Reason::Budget));
}

#[tokio::test(start_paused = true)]
async fn dead_advisory_steps_alone_end_in_continue() {
    let mut setup = Setup::default();
    for _ in 0..4 {
        setup = setup.step(Mode::Advise, SKIP, Script::Hang(Reason::Timeout));
    }
    let (ended, _) = setup.timeouts(&[Duration::from_secs(10); 4]).run().await;
    assert_eq!(ended.result.as_ref().ok(), Some(&ChainDecision::Continue));
    // 10 s of its own, then the remaining 5 s of 15, then nothing.
    let reasons: Vec<_> = ended.steps.iter().map(|step| (step.outcome, step.reason)).collect();
    assert_eq!(
        reasons,
        [
            (StepOutcome::FailedOpen, Some(Reason::Timeout)),
            (StepOutcome::FailedOpen, Some(Reason::Budget)),
            (StepOutcome::SkippedBudget, Some(Reason::Budget)),
            (StepOutcome::SkippedBudget, Some(Reason::Budget)),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_enforcing_step_without_any_time_left_is_budget_exhausted() {
    let secs = Duration::from_secs;
    let setup = Setup::default()
        .step(Mode::Enforce, SKIP, Script::Hang(Reason::Timeout))
        .step(Mode::Enforce, FAIL, Script::Hang(Reason::Timeout))
        .timeouts(&[secs(15), secs(15)]);
    let (ended, _) = setup.run().await;
    let error = ended.result.as_ref().expect_err("no decision");
    assert_eq!(error.code, Code::BudgetExhausted);
    assert_eq!(ended.steps[1].reason, Some(Reason::Budget));
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_the_steps_own_time_out_is_the_budgets_whatever_the_step_waited_for() {
    let secs = Duration::from_secs;
    for reason in [Reason::Timeout, Reason::Unreachable, Reason::NotReady, Reason::BulkheadFull] {
        for (time_out, expected) in [(secs(20), Reason::Budget), (secs(5), reason)] {
            let setup = Setup::default().step(Mode::Enforce, FAIL, Script::Hang(reason));
            let (ended, _) = setup.timeouts(&[time_out]).run().await;
            assert_eq!(ended.steps[0].reason, Some(expected), "{time_out:?}");
        }
        let setup = Setup::default().step(Mode::Enforce, FAIL, Script::Fail(reason)).timeouts(&[secs(20)]);
        let (ended, _) = setup.run().await;
        assert_eq!(ended.steps[0].reason, Some(reason), "no limit elapsed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_without_a_manifest_or_with_a_point_not_offered_fails_uncalled() {
    for (not_offered, reason) in [(false, Reason::NotReady), (true, Reason::PointNotOffered)] {
        let mut setup = Setup::default().step(Mode::Enforce, FAIL, continues());
        setup.steps[0].offer = None;
        setup.steps[0].not_offered = not_offered;
        let (ended, plugins) = setup.run().await;
        assert_eq!(ended.result.as_ref().expect_err("no decision").code, Code::PluginUnavailable);
        assert_eq!(ended.steps[0].reason, Some(reason));
        assert!(plugins.called.lock().expect("no panic").is_empty());
    }
}

proptest! {
    #[test]
    fn no_chain_takes_longer_than_its_budget(
        steps in proptest::collection::vec((0..3usize, any::<bool>(), 10..60_000u64, any::<bool>()), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut setup = Setup::default();
            for (mode, fail, _, hangs) in &steps {
                let mode = [Mode::Enforce, Mode::Advise, Mode::Observe][*mode];
                let on_error = if *fail { FAIL } else { SKIP };
                setup = setup.step(mode, on_error, if *hangs { Script::Hang(Reason::Timeout) } else { continues() });
            }
            let timeouts: Vec<_> = steps.iter().map(|step| Duration::from_millis(step.2)).collect();
            let started = Instant::now();
            let (ended, plugins) = setup.timeouts(&timeouts).run().await;
            // tokio's timers round up to the next millisecond, once per step.
            let slack = Duration::from_millis(steps.len() as u64);
            prop_assert!(started.elapsed() <= Duration::from_secs(15) + slack);
            for call in plugins.called.lock().expect("no panic").iter() {
                prop_assert!(call.2 <= timeouts[call.0], "a step never gets more than its own time-out");
            }
            let stopped = ended.result.is_err();
            prop_assert!(!stopped || ended.steps.iter().any(|step| step.outcome == StepOutcome::Failed));
            Ok(())
        })?;
    }
}
