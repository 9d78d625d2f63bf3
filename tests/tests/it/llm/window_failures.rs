//! What becomes of an answer in windows when its plugin fails: nothing that it hasn't let pass goes out, unless its binding says so.

use std::time::Duration;

use futures::future::join_all;
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload, Seen},
    gateway::{Gateway, Line},
    metrics::Scrape,
    provider::{FakeProvider, ProviderAct},
};
use serde_json::{Value, json};
use tonic::Code;

use super::window_support::{ANSWER, APIS, Api, Got, PAUSE, redact, redactor};

/// The window in which the plugin fails; seven have gone out by then.
const FAILING: u32 = 7;

/// The answer, in which bytes and characters are counted differently.
fn text() -> String {
    (0..26).map(|number| format!("wörd{} ", number % 10)).collect()
}

/// How the plugin fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum PluginFailure {
    ConsumesTooMuch,
    CountsBytes,
    AnswersNothing,
    IsLate,
    FailsItself,
    Dies,
}

impl PluginFailure {
    fn act(self, content: &str) -> Act {
        match self {
            PluginFailure::ConsumesTooMuch => Act::pass().consuming(999),
            PluginFailure::CountsBytes => Act::pass().consuming(content.len()),
            PluginFailure::AnswersNothing => Act::no_verdict(),
            PluginFailure::FailsItself => Act::status(Code::Internal, "it broke"),
            PluginFailure::IsLate | PluginFailure::Dies => Act::hang(),
        }
    }

    /// The code for the client, and the reason in the record.
    fn code(self) -> (&'static str, &'static str) {
        match self {
            PluginFailure::ConsumesTooMuch | PluginFailure::CountsBytes | PluginFailure::AnswersNothing => {
                ("PLUGIN_BAD_REPLY", "bad_reply")
            }
            PluginFailure::IsLate => ("PLUGIN_TIMEOUT", "timeout"),
            PluginFailure::FailsItself => ("PLUGIN_ERROR", "rpc_error"),
            PluginFailure::Dies => ("PLUGIN_UNAVAILABLE", "rpc_error"),
        }
    }
}

/// A provider that says `act`, and a plugin for its answers.
struct Rig {
    api: Api,
    provider: FakeProvider,
    plugin: FakePlugin,
    gateway: Gateway,
}

impl Rig {
    async fn start(
        api: Api,
        act: ProviderAct,
        on_error: &str,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let provider = FakeProvider::always(act).await;
        let plugin = redactor().at_with(ANSWER, script).start().await;
        let binding = json!({ "mode": "enforce", "on_error": on_error, "timeout": "2s" });
        let setup = api.setup(&provider).plugin_without_breaker(&plugin);
        let gateway = setup.binding_with(plugin.name(), 10, &binding).start().await;
        gateway.wait_until_ready().await;
        Rig { api, provider, plugin, gateway }
    }

    /// A plugin that redacts, and fails at one window.
    async fn failing(api: Api, failure: PluginFailure, on_error: &str) -> Self {
        let act = api.says(&text()).paced(PAUSE);
        let script = move |seen: &Seen| match (&seen.payload, &seen.call.window) {
            (Payload::BeforeResponse(answer), Some(window)) if window.seq == FAILING => {
                failure.act(&answer.content)
            }
            _ => redact(seen),
        };
        Self::start(api, act, on_error, script).await
    }

    /// Asks, and has the plugin die in the window that it doesn't answer.
    async fn got_from_dying(&mut self) -> Got {
        let Rig { api, plugin, gateway, .. } = self;
        let death = async {
            while plugin.seen().iter().all(|seen| seq(seen) != Some(FAILING)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            plugin.stop().await;
        };
        futures::join!(api.got(gateway), death).0
    }

    async fn got(&mut self, failure: PluginFailure) -> Got {
        match failure {
            PluginFailure::Dies => self.got_from_dying().await,
            _ => self.api.got(&self.gateway).await,
        }
    }

    /// How much of the text the plugin had consumed before the window in which it failed.
    fn consumed(&self) -> String {
        let windows = self.plugin.seen().into_iter().filter_map(|seen| seen.call.window);
        let failing = windows.filter(|window| window.seq == FAILING).map(|window| window.offset);
        let [offset] = <[u64; 1]>::try_from(failing.collect::<Vec<_>>()).expect("it failed once");
        text().chars().take(usize::try_from(offset).expect("a short text")).collect()
    }

    /// Checks that the client got this and then an error, and that record and metrics name the plugin.
    async fn assert_failed(&self, got: &Got, text: &str, code: &str, reason: &str) {
        let api = self.api;
        assert_eq!((&*got.text, &got.error), (text, &json!(code)), "{api:?} {got:?}");
        let last = got.all.trim_end().split("\n\n").last().unwrap_or_default();
        let begin = match api {
            Api::Chat => "data: {\"error\":{",
            Api::Messages | Api::Responses => "event: error\ndata: {\"type\":\"error\"",
        };
        assert!(last.starts_with(begin), "{api:?} {got:?}");
        assert!(!got.all.contains("[DONE]") && !got.all.contains("message_stop"), "{api:?} {got:?}");
        assert!(!got.all.contains("response.completed"), "{api:?} {got:?}");
        self.provider.wait_until_idle().await;
        let line = self.line("decision.error").await;
        assert_eq!(line.field("code"), Some(&json!(code)), "{line:?}");
        assert_eq!(line.field("plugin"), Some(&json!("redactor")), "{line:?}");
        let step = &line.field("steps").expect("the steps")[0];
        assert_eq!((&step["plugin"], &step["outcome"]), (&json!("redactor"), &json!("failed")), "{line:?}");
        assert_eq!(step["reason"], reason, "{line:?}");
        self.assert_counted(
            "hookgate_steps_total",
            &[("hookgate_outcome", "failed"), ("hookgate_reason", reason)],
        )
        .await;
    }

    /// The line of the plugins' decision about the answer.
    async fn line(&self, event: &str) -> Line {
        let point = Some(json!("before_response"));
        let is_wanted =
            |line: &Line| line.field("event") == Some(&json!(event)) && line.field("point").cloned() == point;
        self.gateway.log().wait_for(is_wanted).await
    }

    /// Checks that the metric counts the plugin's step once, however many windows the answer had.
    async fn assert_counted(&self, metric: &str, labels: &[(&str, &str)]) {
        let plugin = ("hookgate_plugin_name", "redactor");
        let labels: Vec<_> = labels.iter().copied().chain([plugin]).collect();
        let scrape = Scrape::of(&self.gateway).await;
        assert!((scrape.sum(metric, &labels) - 1.0).abs() < f64::EPSILON, "{labels:?} {}", scrape.text);
    }
}

/// The number of the window that a call is about.
fn seq(seen: &Seen) -> Option<u32> {
    seen.call.window.as_ref().map(|window| window.seq)
}

/// Checks in each format that an answer ends where its plugin fails.
async fn assert_ends(failure: PluginFailure) {
    let (code, reason) = failure.code();
    join_all(APIS.map(async |api| {
        let mut rig = Rig::failing(api, failure, "fail").await;
        let got = rig.got(failure).await;
        let consumed = rig.consumed();
        assert!(!consumed.is_empty() && consumed.len() < text().len(), "{consumed}");
        rig.assert_failed(&got, &consumed, code, reason).await;
    }))
    .await;
}

#[tokio::test]
async fn a_plugin_that_consumes_more_than_the_window_ends_the_answer() {
    assert_ends(PluginFailure::ConsumesTooMuch).await;
}

#[tokio::test]
async fn a_plugin_that_counts_bytes_and_not_characters_ends_the_answer() {
    assert_ends(PluginFailure::CountsBytes).await;
}

#[tokio::test]
async fn a_plugin_that_decides_nothing_about_a_window_ends_the_answer() {
    assert_ends(PluginFailure::AnswersNothing).await;
}

#[tokio::test]
async fn a_plugin_that_is_late_with_a_window_ends_the_answer() {
    assert_ends(PluginFailure::IsLate).await;
}

#[tokio::test]
async fn a_plugin_that_fails_at_a_window_ends_the_answer() {
    assert_ends(PluginFailure::FailsItself).await;
}

#[tokio::test]
async fn a_plugin_that_dies_at_its_eighth_window_ends_the_answer() {
    assert_ends(PluginFailure::Dies).await;
}

#[tokio::test]
async fn a_plugin_that_is_gone_before_the_first_window_lets_nothing_out() {
    join_all(APIS.map(async |api| {
        let mut rig = Rig::start(api, api.says(&text()).paced(PAUSE), "fail", redact).await;
        rig.plugin.stop().await;
        let got = api.got(&rig.gateway).await;
        rig.assert_failed(&got, "", "PLUGIN_UNAVAILABLE", "unreachable").await;
    }))
    .await;
}

#[tokio::test]
async fn of_a_plugin_that_never_consumes_nothing_goes_out_and_the_last_window_fails() {
    join_all(APIS.map(async |api| {
        let act = api.says("one two three four").paced(PAUSE);
        let rig = Rig::start(api, act, "fail", |_| Act::pass().consuming(0)).await;
        let got = api.got(&rig.gateway).await;
        rig.assert_failed(&got, "", "PLUGIN_BAD_REPLY", "bad_reply").await;
        let windows: Vec<_> = rig.plugin.seen().into_iter().filter_map(|seen| seen.call.window).collect();
        assert!(windows.len() > 1 && windows.iter().all(|window| window.offset == 0), "{api:?} {windows:?}");
        assert!(windows.last().is_some_and(|window| window.last), "{api:?} {windows:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_plugin_may_keep_back_64_kib_and_no_more() {
    let piece = "x".repeat(33 << 10);
    // The role and the two pieces; the provider goes on.
    let act = ProviderAct::streams(&[&piece, &piece]).paced(PAUSE).hangs_after(3);
    let rig = Rig::start(Api::Chat, act, "fail", |_| Act::pass().consuming(0)).await;
    let got = Api::Chat.got(&rig.gateway).await;
    rig.assert_failed(&got, "", "PLUGIN_BAD_REPLY", "bad_reply").await;
    let line = rig.line("decision.error").await;
    let detail = line.field("detail").and_then(Value::as_str).unwrap_or_default();
    assert!(detail.contains("it leaves 67584 bytes, 65536 are allowed"), "{detail}");
}

#[tokio::test]
async fn with_on_error_skip_a_failed_window_goes_out_as_it_was_and_the_record_says_so() {
    let failures = [PluginFailure::ConsumesTooMuch, PluginFailure::IsLate, PluginFailure::Dies];
    let cases = failures.iter().flat_map(|&failure| APIS.map(|api| (api, failure)));
    join_all(cases.map(async |(api, failure)| {
        let mut rig = Rig::failing(api, failure, "skip").await;
        let got = rig.got(failure).await;
        assert_eq!((got.text, got.error), (text(), Value::Null), "{api:?} {failure:?} {}", got.all);
        let line = rig.line("decision.continue").await;
        assert_eq!(line.level(), Some("WARN"), "{line:?}");
        let step = &line.field("steps").expect("the steps")[0];
        let reason = match failure {
            // All windows after the death find nobody.
            PluginFailure::Dies => "unreachable",
            other => other.code().1,
        };
        assert_eq!(
            (&step["plugin"], &step["outcome"]),
            (&json!("redactor"), &json!("failed_open")),
            "{line:?}"
        );
        assert_eq!(step["reason"], reason, "{line:?}");
        rig.assert_counted("hookgate_failed_open_total", &[("hookgate_reason", reason)]).await;
    }))
    .await;
}

#[tokio::test]
async fn a_cut_within_an_emoji_or_an_accent_loses_nothing() {
    let text = &*"a👩‍👩‍👧e\u{301}👍🏽b".repeat(2);
    join_all(APIS.map(async |api| {
        let script = |seen: &Seen| match &seen.call.window {
            Some(window) if !window.last => Act::pass().consuming(1),
            _ => Act::pass(),
        };
        let rig = Rig::start(api, api.says(text).paced(PAUSE * 3), "fail", script).await;
        let got = api.got(&rig.gateway).await;
        assert_eq!((&*got.text, &got.error), (text, &Value::Null), "{api:?} {got:?}");
        let seen = rig.plugin.seen();
        let cuts = seen.iter().filter(|seen| match &seen.payload {
            Payload::BeforeResponse(answer) => answer.content.starts_with('\u{200d}'),
            _ => false,
        });
        assert!(cuts.count() > 0, "{api:?} {seen:?}");
    }))
    .await;
}
