//! Answers whose text goes out before they are whole.

use std::time::Duration;

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    fake::{Act, FakePlugin, Payload},
    provider::{FakeProvider, ProviderAct, StreamEnd, chunk, event},
};
use serde_json::{Value, json};

use super::{
    support,
    window_support::{ANSWER, APIS, Api, PAUSE, gateway, redact, redactor},
};

const CALL: ExtensionPoint = ExtensionPoint::BeforeToolCall;

#[tokio::test]
async fn text_that_nobody_judges_comes_at_once_though_tool_calls_are_held() {
    for api in APIS {
        let act = api.says("Hello there").paced(PAUSE);
        let provider = FakeProvider::always(act).await;
        let plugin = FakePlugin::named("tools").only(&[CALL]).start().await;
        let gateway = gateway(api, &provider, &plugin).await;
        let (read, answer) = api.read_until(&gateway, "Hel").await;
        assert!(!read.contains("lo "), "{api:?} {read}");
        let rest = answer.text().await.expect("a whole body");
        let all = api.got(&gateway).await;
        assert_eq!((all.text.as_str(), &all.error), ("Hello there", &Value::Null), "{api:?} {read}{rest}");
    }
}

#[tokio::test]
async fn a_pattern_that_is_cut_in_two_is_redacted_and_what_is_before_it_comes_early() {
    for api in APIS {
        let provider =
            FakeProvider::always(api.says("Please call 555-0100 now, or never").paced(PAUSE)).await;
        let plugin = redactor().start().await;
        let gateway = gateway(api, &provider, &plugin).await;
        let (read, answer) = api.read_until(&gateway, "Please").await;
        assert!(!read.contains("never"), "{api:?} {read}");
        drop(answer);
        let got = api.got(&gateway).await;
        assert_eq!(got.text, "Please call [PHONE] now, or never", "{api:?} {got:?}");
        assert!(!got.all.replace(&got.id, "").contains("555"), "{api:?} {got:?}");
        assert!(got.all.matches("delta").count() > 3, "{api:?} {got:?}");
        let windows: Vec<_> = plugin.seen().into_iter().filter_map(|seen| seen.call.window).collect();
        assert!(windows.len() > 3 && windows.last().is_some_and(|window| window.last), "{api:?} {windows:?}");
    }
}

#[tokio::test]
async fn a_blocked_window_ends_the_answer_with_the_message_and_the_providers_work() {
    for api in APIS {
        let text = "one two three BOMB four five";
        let act = api.says(text).paced(PAUSE);
        let ProviderAct::Stream(pieces, _) = &act else { panic!("a stream") };
        let until_bomb = pieces.len() - 5;
        let provider = FakeProvider::always(act.clone().hangs_after(until_bomb)).await;
        let plugin = redactor().at_with(ANSWER, |seen| match &seen.payload {
            Payload::BeforeResponse(answer) if answer.content.contains("BOMB") => {
                Act::cancel("POLICY", "Not that.")
            }
            _ => redact(seen),
        });
        let plugin = plugin.start().await;
        let gateway = gateway(api, &provider, &plugin).await;
        let got = api.got(&gateway).await;
        let before = got.text.strip_suffix("\nNot that.").expect("the message is on a line of its own");
        assert!(before.starts_with("one ") && "one two three ".starts_with(before), "{api:?} {got:?}");
        assert_eq!(got.error, Value::Null, "{api:?} {got:?}");
        let end = match api {
            Api::Chat => "data: [DONE]\n\n",
            Api::Messages => "data: {\"type\":\"message_stop\"}\n\n",
            Api::Responses => "\n\n",
        };
        assert!(got.all.ends_with(end) && !got.all.contains("BOMB"), "{api:?} {got:?}");
        provider.wait_until_idle().await;
        let line = gateway.log().wait_for(|line| line.field("outcome") == Some(&json!("block"))).await;
        assert_eq!(line.field("streamed"), Some(&json!(true)));
    }
}

#[tokio::test]
async fn what_came_of_an_answer_that_breaks_off_is_judged_as_its_last_window() {
    for api in APIS {
        let ProviderAct::Stream(mut pieces, _) = api.says("Please call 555-0100").paced(PAUSE) else {
            panic!("a stream")
        };
        pieces.truncate(pieces.len() - if matches!(api, Api::Responses) { 4 } else { 3 });
        let provider = FakeProvider::always(ProviderAct::Stream(pieces, StreamEnd::Cut)).await;
        let plugin = redactor().start().await;
        let gateway = gateway(api, &provider, &plugin).await;
        let got = api.got(&gateway).await;
        assert!(got.text.starts_with("Please call"), "{api:?} {got:?}");
        assert!(!got.all.replace(&got.id, "").contains("555-0100"), "{api:?} {got:?}");
        assert!(got.all.contains("UPSTREAM_UNAVAILABLE"), "{api:?} {got:?}");
    }
}

#[tokio::test]
async fn an_answer_is_held_whole_if_any_plugin_takes_no_windows_or_a_message_could_not_follow_its_text() {
    let provider = FakeProvider::always(Api::Chat.says("Please call 555-0100 now").paced(PAUSE)).await;
    let plugin = redactor().start().await;
    let other = FakePlugin::named("other").only(&[ANSWER]).start().await;
    let setup = Api::Chat.setup(&provider).plugin(&plugin).binding("redactor", 10).plugin(&other);
    let gateway = setup.binding("other", 20).start().await;
    gateway.wait_until_ready().await;
    assert_eq!(Api::Chat.got(&gateway).await.text, "Please call [PHONE] now");
    assert!(plugin.seen().iter().chain(&other.seen()).all(|seen| seen.call.window.is_none()));
    for (member, value) in [("response_format", json!({ "type": "json_object" })), ("n", json!(2))] {
        let plugin = redactor().start().await;
        let gateway = self::gateway(Api::Chat, &provider, &plugin).await;
        let mut body = support::ask(&json!([support::user("x")]));
        body[member] = value;
        assert_eq!(support::stream(&gateway, body).await.text(0), "Please call [PHONE] now");
        assert!(plugin.seen().iter().all(|seen| seen.call.window.is_none()), "{member}");
    }
}

#[tokio::test]
async fn the_windows_of_an_answer_are_one_call_and_observers_get_the_whole() {
    let provider = FakeProvider::always(Api::Chat.says("Please call 555-0100 now").paced(PAUSE)).await;
    let plugin = redactor().start().await;
    let observer = FakePlugin::named("audit").only(&[ANSWER]).start().await;
    let setup = Api::Chat.setup(&provider).plugin(&plugin).binding("redactor", 10).plugin(&observer);
    let observed = json!({ "mode": "observe" });
    let gateway = setup.binding_with("audit", 20, &observed).start().await;
    gateway.wait_until_ready().await;
    Api::Chat.got(&gateway).await;
    let ids: std::collections::BTreeSet<_> =
        plugin.seen().into_iter().map(|seen| seen.call.context.unwrap_or_default().request_id).collect();
    assert_eq!(ids.len(), 1, "all windows have one id");
    while observer.seen().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [seen] = <[_; 1]>::try_from(observer.seen()).expect("one call");
    let Payload::BeforeResponse(answer) = &seen.payload else { panic!("{seen:?}") };
    assert_eq!((&*answer.content, seen.call.window), ("Please call [PHONE] now", None));
    assert!(answer.token_usage.is_some());
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_windows_and_the_providers_answer() {
    let act =
        ProviderAct::pieces([event(&chunk(0, &json!({ "content": "hello you" }), None))], StreamEnd::Hang);
    let provider = FakeProvider::always(act).await;
    let plugin = redactor().start().await;
    let gateway = gateway(Api::Chat, &provider, &plugin).await;
    let (_, answer) = Api::Chat.read_until(&gateway, "hello").await;
    drop(answer);
    provider.wait_until_idle().await;
}
