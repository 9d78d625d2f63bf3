//! Tests that a plugin gets only the large fields of a payload that it reads (G44).

use hookgate_proto::{
    plugin::v1::{Access, PayloadFields},
    types::v1::{BeforeLlmRequestPatch, BeforeLlmRequestPayload, ExtensionPoint},
};
use hookgate_tests::{
    fake::{Act, Builder, FakePlugin, Payload},
    gateway::Gateway,
    token::token,
};
use http::Method;
use serde_json::{Value, json};

use crate::admin::registry::support::{administrator, ask};

const POINT: ExtensionPoint = ExtensionPoint::BeforeLlmRequest;

/// A plugin that reads the fields of these names at each of its points that has them.
fn reading(name: &str, names: &[&str]) -> Builder {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    FakePlugin::named(name).manifest(move |manifest| {
        manifest.points.retain(|offer| offer.point() == POINT);
        manifest.points[0].reads = Some(PayloadFields { names });
    })
}

fn request() -> Value {
    json!({
        "text": "hello",
        "system_prompt": "be brief",
        "messages": [{ "role": "user", "content": "x".repeat(1 << 20) }],
        "tools": [{ "name": "fs.read" }],
        "extra": { "n": 9_007_199_254_740_993_u64 },
    })
}

/// The one payload that `plugin` was sent.
fn sent(plugin: &FakePlugin) -> BeforeLlmRequestPayload {
    let seen = plugin.seen();
    let [seen] = &seen[..] else { panic!("{} calls", seen.len()) };
    let Payload::BeforeLlmRequest(payload) = &seen.payload else { panic!("{:?}", seen.payload) };
    payload.clone()
}

#[tokio::test]
async fn a_plugin_gets_what_it_reads_in_every_mode_and_a_patch_keeps_the_rest() {
    let patch = BeforeLlmRequestPatch { text: Some("patched".into()), ..Default::default() };
    let blind = reading("blind", &[]).at(POINT, Act::patch(patch)).start().await;
    let texts = reading("texts", &["text"]).access(Access::Read).start_unix().await;
    let observer = reading("observer", &["text", "extra"]).start().await;
    let whole = FakePlugin::named("whole").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&blind)
        .plugin(&texts)
        .plugin(&observer)
        .plugin(&whole)
        .binding("blind", 1)
        .binding_with(
            "texts",
            2,
            &json!({ "mode": "advise", "match": { "text": { "contains": ["patched"] } } }),
        )
        .binding_with("observer", 3, &json!({ "mode": "observe" }))
        .binding("whole", 4)
        .start()
        .await;
    let answer = gateway.http(&token("acme")).call(POINT, request()).await;
    let mut expected = request();
    expected["text"] = json!("patched");
    assert_eq!((answer.status, &answer.body["payload"]), (200, &expected), "only the text was patched");

    observer.wait_until(|counts| counts.finished == 1).await;
    let text = "patched".to_owned();
    let extra = json!({ "n": 9_007_199_254_740_993_u64 }).to_string();
    assert_eq!(sent(&blind), BeforeLlmRequestPayload::default());
    assert_eq!(sent(&texts), BeforeLlmRequestPayload { text: text.clone(), ..Default::default() });
    let observed = BeforeLlmRequestPayload { text, extra: extra.into(), ..Default::default() };
    assert_eq!(sent(&observer), observed);
    assert!(sent(&whole).messages.len() > 1 << 20, "a plugin that names no fields gets all");
}

#[tokio::test]
async fn an_operators_test_call_sends_what_the_plugin_reads() {
    let plugin = reading("texts", &["text"]).start().await;
    let gateway = Gateway::with().tenant("acme").admin().plugin(&plugin).binding("texts", 1).start().await;
    let operator = gateway.admin(&administrator());
    let body = json!({ "point": "before_llm_request", "payload": request() });
    let answer = ask(&operator, Method::POST, "plugins/texts/call", Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(sent(&plugin), BeforeLlmRequestPayload { text: "hello".into(), ..Default::default() });
}

#[tokio::test]
async fn a_plugin_that_names_a_field_of_another_point_is_refused_with_the_names_to_choose_from() {
    let plugin = reading("texts", &["text", "args"]).start().await;
    let exit = Gateway::with().tenant("acme").plugin(&plugin).binding("texts", 1).run_to_the_end().await;
    let sentence = "`reads` of before_llm_request names `args`: choose from text, images, files, system_prompt, \
                    messages, tools, extra";
    let log = exit.log.to_string();
    assert!(exit.code == Some(4) && log.contains("BAD_MANIFEST") && log.contains(sentence), "{log}");
}
