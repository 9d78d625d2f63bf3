use std::{collections::HashMap, sync::Mutex};

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::{self as wire, BeforeResponseResponse, Cancel, Continue, before_response_response::Verdict},
    types::v1::{BeforeResponsePatch, Decision},
};
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::{
    core::{call_site::CallSite, failure::Failure, point::Point, step::OnError},
    invoke::{
        AgentCall,
        scripted::{FAIL, LIMITS, SKIP, Setup, continues},
    },
    upstream::{PluginReply, ServingEndpoint},
};

type Judge =
    Box<dyn Fn(&wire::ResponseWindow, &BeforeResponsePayload) -> BeforeResponseResponse + Send + Sync>;

/// Plugins that are closures over windows.
#[derive(Default)]
struct WindowPlugins {
    judges: HashMap<usize, Judge>,
    shown: Mutex<Vec<(usize, wire::ResponseWindow, BeforeResponsePayload)>>,
    observed: Mutex<Vec<(BeforeResponsePayload, wire::ChainResult)>>,
}

fn answer<P: AgentCall>(payload: &P::Payload) -> BeforeResponsePayload {
    BeforeResponsePayload::decode(payload.encode_to_vec().as_slice()).expect("the tests use one point")
}

impl Plugins for WindowPlugins {
    async fn call<P: AgentCall>(
        &self,
        step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        _ctx: &CallContext,
        _limit: Duration,
    ) -> Result<PluginReply, Failure> {
        let (window, payload) = (call.window.expect("a window"), answer::<P>(&payload));
        let reply = self.judges[&step.plugin](&window, &payload);
        self.shown.lock().expect("no panic").push((step.plugin, window, payload));
        tokio::task::yield_now().await;
        Ok(PluginReply {
            bytes: reply.encode_to_vec().into(),
            queue: Duration::ZERO,
            served: ServingEndpoint::default(),
        })
    }

    fn observe<P: AgentCall>(
        &self,
        _step: &Step,
        call: wire::Call,
        payload: Arc<P::Payload>,
        _ctx: &CallContext,
    ) {
        let told = call.chain_result.expect("observers are told");
        self.observed.lock().expect("no panic").push((answer::<P>(&payload), told));
    }

    fn is_abandoned(&self) -> bool {
        false
    }
}

fn said(content: Option<String>, consumed: Option<u32>) -> BeforeResponseResponse {
    BeforeResponseResponse {
        verdict: Some(Verdict::Continue(Continue {})),
        modify: content.map(|content| BeforeResponsePatch { content: Some(content), ..Default::default() }),
        consumed,
        ..Default::default()
    }
}

/// Replaces a word, and consumes up to the last place where none may have begun.
fn replaces(word: &'static str, by: &'static str) -> Judge {
    Box::new(move |window, payload| {
        let content = &payload.content;
        let begun = |at: &usize| content.is_char_boundary(*at) && word.starts_with(&content[*at..]);
        let end = match window.last {
            true => content.len(),
            false => (0..content.len()).find(begun).unwrap_or(content.len()),
        };
        let consumed = u32::try_from(content[..end].chars().count()).expect("a short text");
        said(Some(content[..end].replace(word, by)), Some(consumed))
    })
}

fn consumes(count: u32) -> Judge {
    Box::new(move |_, _| said(None, Some(count)))
}

fn cancels() -> Judge {
    Box::new(|_, _| BeforeResponseResponse {
        verdict: Some(Verdict::Cancel(Cancel {
            code: "NO".into(),
            message: "No.".into(),
            ..Default::default()
        })),
        ..Default::default()
    })
}

/// Steps in order: the mode, what a failure causes, and the plugin.
fn set_up(steps: Vec<(Mode, OnError, Judge)>) -> (Plan, WindowPlugins) {
    let (mut setup, mut plugins) = (Setup::default(), WindowPlugins::default());
    for (place, (mode, on_error, judge)) in steps.into_iter().enumerate() {
        setup = setup.step(mode, on_error, continues());
        plugins.judges.insert(place, judge);
    }
    (setup.plan(), plugins)
}

fn chain<'a>(plan: &'a Plan, plugins: &'a WindowPlugins) -> WindowChain<'a, WindowPlugins> {
    let site = CallSite::Point(Point::BeforeResponse);
    let ctx = CallContext { site, ..crate::invoke::scripted::context() };
    WindowChain::new(ctx, plan, plugins, &WIDE, Duration::from_secs(15))
}

const WIDE: ReplyLimits = ReplyLimits { request: 1 << 20, ..LIMITS };

fn part(content: &str) -> BeforeResponsePayload {
    BeforeResponsePayload { content: content.into(), ..Default::default() }
}

fn enforce(judge: Judge) -> (Mode, OnError, Judge) {
    (Mode::Enforce, FAIL, judge)
}

/// All that passes of a text in these parts.
async fn passed(chain: &mut WindowChain<'_, WindowPlugins>, parts: &[&str]) -> String {
    let mut text = String::new();
    for (place, content) in parts.iter().enumerate() {
        let judged = chain.judge(part(content), place + 1 == parts.len()).await;
        text.push_str(&judged.expect("a decision").expect("no block").text);
    }
    text
}

fn cut(text: &str, places: &[prop::sample::Index]) -> Vec<String> {
    let ends: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
    let mut cuts: Vec<usize> = places.iter().map(|place| ends[place.index(ends.len())]).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| text[ends[0]..ends[1]].to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// S2 of the streaming guard: the text doesn't depend on how it was cut.
    #[test]
    fn a_text_is_the_same_however_it_was_cut(
        words in prop::collection::vec(prop::sample::select(vec!["sec", "secret", "ret", "é", "😀", " ", "s", "key"]), 0..12),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let text = words.concat();
        let (plan, plugins) =
            set_up(vec![enforce(replaces("secret", "key")), enforce(replaces("key", "secret"))]);
        let parts = cut(&text, &places);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut chain = chain(&plan, &plugins);
        let got = runtime.block_on(passed(&mut chain, &parts));
        prop_assert_eq!(got, text.replace("secret", "key").replace("key", "secret"));
        // S1: what went on had been consumed by each step, and nothing was shown twice as new.
        for plugin in 0..2 {
            let shown = plugins.shown.lock().expect("no panic");
            let windows = shown.iter().filter(|(called, ..)| *called == plugin);
            for (seq, (_, window, _)) in (0..).zip(windows) {
                prop_assert_eq!(window.seq, seq);
                prop_assert!(window.offset >= window.before.chars().count() as u64);
            }
        }
    }
}

#[tokio::test]
async fn a_step_sees_what_it_has_not_consumed_again_with_more_behind_it() {
    let judge: Judge = Box::new(|window, _| said(None, (!window.last).then_some(2)));
    let (plan, plugins) = set_up(vec![enforce(judge)]);
    assert_eq!(passed(&mut chain(&plan, &plugins), &["añb", "cd", "e"]).await, "añbcde");
    let shown = plugins.shown.lock().expect("no panic");
    let shown = shown.iter().map(|(_, window, payload)| {
        (window.seq, &*window.before, window.offset, window.last, &*payload.content)
    });
    let expected = [(0, "", 0, false, "añb"), (1, "añ", 2, false, "bcd"), (2, "añbc", 4, true, "de")];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn at_most_1024_characters_in_front_of_a_window_are_shown() {
    let (plan, plugins) = set_up(vec![enforce(Box::new(|_, _| said(None, None)))]);
    let long = "é".repeat(2000);
    passed(&mut chain(&plan, &plugins), &[&long, "a", "b"]).await;
    let shown = plugins.shown.lock().expect("no panic");
    assert_eq!(shown[1].1.before, "é".repeat(1024));
    assert_eq!(shown[2].1.before, "é".repeat(1023) + "a");
    assert_eq!(shown[2].1.offset, 2001);
}

#[tokio::test]
async fn reasoning_is_shown_once_and_to_all_steps_even_if_the_first_consumes_no_text() {
    let judge = || -> Judge {
        Box::new(|window, payload| {
            let reasoning = payload.reasoning.as_ref().map(|reasoning| format!("{reasoning}!"));
            let modify =
                reasoning.map(|it| BeforeResponsePatch { reasoning: Some(it), ..Default::default() });
            BeforeResponseResponse { modify, ..said(None, (!window.last).then_some(0)) }
        })
    };
    let (plan, plugins) = set_up(vec![enforce(judge()), enforce(judge())]);
    let mut chain = chain(&plan, &plugins);
    let first = BeforeResponsePayload { reasoning: Some("hm".into()), ..part("a") };
    let judged = chain.judge(first, false).await.expect("a decision").expect("no block");
    assert_eq!(judged, PassedText { text: String::new(), reasoning: Some("hm!!".into()) });
    let judged = chain.judge(part("b"), true).await.expect("a decision").expect("no block");
    assert_eq!(judged, PassedText { text: "ab".into(), reasoning: None });
}

#[tokio::test]
async fn a_reply_that_consumes_what_it_may_not_is_a_bad_one() {
    let long = "a".repeat((64 << 10) + 1);
    let cases: [(Judge, &str, bool, &str); 3] = [
        (consumes(3), "ab", false, "`consumed` is 3, and `content` has 2 characters"),
        (consumes(1), "ab", true, "`consumed` is 1: nothing follows, so it must be all characters"),
        (consumes(0), &long, false, "`consumed` is 0: it leaves 65537 bytes, 65536 are allowed"),
    ];
    for (judge, content, is_last, detail) in cases {
        let (plan, plugins) = set_up(vec![enforce(judge)]);
        let error = chain(&plan, &plugins).judge(part(content), is_last).await.expect_err("a bad reply");
        assert_eq!(error.code, Code::PluginBadReply);
        assert!(error.detail.contains(detail), "{}", error.detail);
    }
}

#[tokio::test]
async fn a_step_that_may_be_skipped_lets_its_window_through_as_it_was() {
    let (plan, plugins) =
        set_up(vec![(Mode::Enforce, SKIP, consumes(9)), enforce(replaces("secret", "[x]"))]);
    let mut chain = chain(&plan, &plugins);
    assert_eq!(passed(&mut chain, &["a sec", "ret"]).await, "a [x]");
    assert_eq!(chain.reports()[0].outcome, StepOutcome::FailedOpen);
    assert!(chain.reports()[0].failed_open);
}

#[tokio::test]
async fn a_block_ends_the_chain_and_advice_does_not() {
    let (plan, plugins) = set_up(vec![
        (Mode::Advise, FAIL, cancels()),
        enforce(Box::new(|_, _| said(None, None))),
        enforce(cancels()),
        enforce(Box::new(|_, _| said(None, None))),
    ]);
    let block =
        chain(&plan, &plugins).judge(part("a"), false).await.expect("a decision").expect_err("a block");
    assert_eq!((&*block.plugin, &*block.code, &*block.message), ("p2", "NO", "No."));
    assert_eq!(plugins.shown.lock().expect("no panic").len(), 3);
}

#[tokio::test]
async fn observers_get_the_whole_answer_at_their_place_in_the_end() {
    let observer = || (Mode::Observe, SKIP, consumes(0));
    let (plan, plugins) = set_up(vec![observer(), enforce(replaces("secret", "[x]")), observer()]);
    let mut chain = chain(&plan, &plugins);
    passed(&mut chain, &["a sec", "ret b"]).await;
    assert!(plugins.observed.lock().expect("no panic").is_empty());
    let ended = chain.end(Ok(ChainDecision::Continue), 7).await;
    let observed = plugins.observed.lock().expect("no panic");
    let texts: Vec<_> = observed.iter().map(|(payload, told)| (&*payload.content, told.decision())).collect();
    assert_eq!(texts, [("a secret b", Decision::Continue), ("a [x] b", Decision::Continue)]);
    let outcomes: Vec<_> = ended.steps.iter().map(|step| step.outcome).collect();
    assert_eq!(outcomes, [StepOutcome::Observed, StepOutcome::Modified, StepOutcome::Observed]);
    assert!(ended.modified);
}

/// S9 of the streaming guard.
#[tokio::test]
async fn observers_are_told_when_the_caller_goes_away() {
    let (plan, plugins) =
        set_up(vec![enforce(Box::new(|_, _| said(None, None))), (Mode::Observe, SKIP, consumes(0))]);
    let mut chain = chain(&plan, &plugins);
    passed(&mut chain, &["a"]).await;
    {
        let mut asked = std::pin::pin!(chain.judge(part("b"), false));
        assert!(futures::poll!(asked.as_mut()).is_pending());
    }
    assert_eq!(chain.reports().last().map(|report| report.outcome), Some(StepOutcome::CancelledByCaller));
    drop(chain);
    let observed = plugins.observed.lock().expect("no panic");
    assert_eq!(observed[0].0.content, "a");
    assert_eq!(observed[0].1.code.as_deref(), Some("CANCELLED"));
}

#[test]
fn before_response_alone_reads_what_was_consumed() {
    let reply = Bytes::from(said(None, Some(3)).encode_to_vec());
    let parts = BeforeResponse::reply_parts(BeforeResponseResponse::decode(reply).expect("a reply"));
    assert_eq!(parts.consumed, Some(3));
}
