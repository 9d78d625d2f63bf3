//! Tests `trace` in a request: each step of the answer says what it changed, byte for byte. Without it,
//! none does.

use std::collections::BTreeMap;

use hookgate_proto::{
    gateway::v1::BeforeToolCallRequest,
    types::v1::{
        BeforeLlmRequestPatch, BeforeToolCallPatch, BeforeToolCallPayload, ExtensionPoint, Media, MediaList,
        media::Source,
    },
};
use hookgate_tests::{
    agent::{HttpAnswer, path},
    fake::{Act, FakePlugin, Payload, Seen},
    gateway::Gateway,
    token::token,
};
use serde_json::{Value, json, value::RawValue};

use crate::edge::support::{POINT, code};

/// Parsing it with rounding, sorting or dropping would change it.
const SENT: &str = r#"{"z":9007199254740993,"a":null,"m":{"b":1.10,"a":1}}"#;

fn patch_args(args: &'static str) -> Act {
    Act::patch(BeforeToolCallPatch { args: Some(args.into()), ..Default::default() })
}

/// Replaces the tool's name by `renamed`, even if it already is.
fn rename(seen: &Seen) -> Act {
    match &seen.payload {
        Payload::BeforeToolCall(_) => {
            Act::patch(BeforeToolCallPatch { tool_name: Some("renamed".into()), ..Default::default() })
        }
        other => panic!("no tool call: {other:?}"),
    }
}

/// Five plugins in this order: one only reads, two rename, one sets args to null and cancels in advisory
/// mode, one restores args.
async fn gateway() -> (Vec<FakePlugin>, Gateway) {
    let cancels = Act::cancel("NO", "no").with_patch(BeforeToolCallPatch {
        args: Some("null".into()),
        extra: Some(r#"{"k":9007199254740993}"#.into()),
        ..Default::default()
    });
    let plugins = [
        FakePlugin::named("look"),
        FakePlugin::named("rename").at_with(POINT, rename),
        FakePlugin::named("again").at_with(POINT, rename),
        FakePlugin::named("advise").at(POINT, cancels),
        FakePlugin::named("back").at(POINT, patch_args(SENT)),
    ];
    let mut setup =
        Gateway::with().tenant("acme").tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }));
    let mut started = Vec::new();
    for (place, plugin) in plugins.into_iter().enumerate() {
        let plugin = plugin.start().await;
        let mode = if plugin.name() == "advise" { "advise" } else { "enforce" };
        let priority = i64::try_from(place).unwrap();
        setup = setup.plugin(&plugin).binding_with(plugin.name(), priority, &json!({ "mode": mode }));
        started.push(plugin);
    }
    let gateway = setup.start().await;
    (started, gateway)
}

fn body(trace: &str) -> String {
    format!(r#"{{"payload":{{"tool_name":"fs.read","args":{SENT}}}{trace}}}"#)
}

/// The raw `changes` of each step.
fn changes(answer: &HttpAnswer) -> Vec<Option<String>> {
    type Raw = BTreeMap<String, Box<RawValue>>;
    let body: Raw = serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    let steps: Vec<Raw> = serde_json::from_str(body["steps"].get()).unwrap();
    steps.iter().map(|step| step.get("changes").map(|changes| changes.get().to_owned())).collect()
}

fn expected() -> Vec<Option<String>> {
    let changed = [
        None,
        Some(r#"{"tool_name":"renamed"}"#.to_owned()),
        None, // it set the value that was already there
        Some(r#"{"args":null,"extra":{"k":9007199254740993}}"#.to_owned()),
        Some(format!(r#"{{"args":{SENT}}}"#)),
    ];
    changed.to_vec()
}

#[tokio::test]
async fn each_step_says_what_it_changed_to_the_byte() {
    let (_plugins, gateway) = gateway().await;
    let agent = gateway.http(&token("acme"));
    let answer = agent.post_text(POINT, body(r#","trace":true"#)).await;
    assert_eq!((answer.status, changes(&answer)), (200, expected()), "{answer:?}");
    let outcomes: Vec<_> =
        answer.body["steps"].as_array().unwrap().iter().map(|step| &step["outcome"]).collect();
    assert_eq!(outcomes, ["continued", "modified", "modified", "would_block", "modified"]);

    let payload =
        BeforeToolCallPayload { tool_name: "fs.read".into(), args: SENT.into(), ..Default::default() };
    let request = BeforeToolCallRequest { payload: Some(payload), trace: true, ..Default::default() };
    let mut client = gateway.grpc(&token("acme")).await.client;
    let answer = client.before_tool_call(request).await.expect("it continues").into_inner();
    let over_grpc = answer.steps.iter().map(|step| String::from_utf8(step.changes.to_vec()).unwrap());
    let expected: Vec<_> = expected().into_iter().map(Option::unwrap_or_default).collect();
    assert_eq!(over_grpc.collect::<Vec<_>>(), expected);
}

/// Applying the changes one after another to the request gives the payload of the answer.
#[tokio::test]
async fn the_changes_add_up_to_the_returned_payload() {
    let (_plugins, gateway) = gateway().await;
    let answer = gateway.http(&token("acme")).post_text(POINT, body(r#","trace":true"#)).await;
    let sent: Value = serde_json::from_str(&body("")).unwrap();
    let mut payload = sent["payload"].clone();
    for changed in changes(&answer).into_iter().flatten() {
        let changed: Value = serde_json::from_str(&changed).unwrap();
        payload.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
    }
    assert_eq!(payload, answer.body["payload"]);
}

#[tokio::test]
async fn nobody_is_told_who_did_not_ask_or_may_not_know() {
    let (_plugins, gateway) = gateway().await;
    for (tenant, trace) in [("acme", ""), ("acme", r#","trace":false"#), ("acme", r#","trace":null"#)] {
        let answer = gateway.http(&token(tenant)).post_text(POINT, body(trace)).await;
        assert_eq!((answer.status, changes(&answer)), (200, vec![None; 5]), "{trace}: {answer:?}");
    }
    let answer = gateway.http(&token("quiet")).post_text(POINT, body(r#","trace":true"#)).await;
    assert_eq!((answer.status, &answer.body["steps"]), (200, &json!([])), "{answer:?}");
    assert!(!answer.text.contains("changes"), "{answer:?}");

    let answer = gateway.http(&token("acme")).post_text(POINT, body(r#","trace":"yes""#)).await;
    assert_eq!((answer.status, code(&answer)), (400, "PAYLOAD_INVALID"), "{answer:?}");
    assert_eq!(answer.body["errors"][0]["pointer"], "/trace", "{answer:?}");
}

/// A block is traced up to the step that blocked. An emptied list is an empty list, not an absent one.
#[tokio::test]
async fn a_block_and_an_emptied_list_are_traced() {
    let point = ExtensionPoint::BeforeLlmRequest;
    let emptied = BeforeLlmRequestPatch { images: Some(MediaList::default()), ..Default::default() };
    let file = Media {
        source: Some(Source::Data(vec![0xfb, 0xff].into())),
        mime_type: "text/plain".into(),
        filename: None,
    };
    let filled = BeforeLlmRequestPatch { files: Some(MediaList { items: vec![file] }), ..Default::default() };
    let empties = FakePlugin::named("empties").at(point, Act::patch(emptied)).start().await;
    let blocks =
        FakePlugin::named("blocks").at(point, Act::cancel("NO", "no").with_patch(filled)).start().await;
    let setup = Gateway::with().tenant("acme").plugin(&empties).plugin(&blocks);
    let gateway = setup.binding("empties", 1).binding("blocks", 2).start().await;
    let image = json!({ "mime_type": "image/png", "url": "https://example.com/a.png" });
    let body = json!({ "payload": { "text": "hi", "images": [image] }, "trace": true });
    let answer = gateway.http(&token("acme")).post(point, &body).await;
    assert_eq!((answer.status, answer.header("hookgate-decision")), (403, Some("block")), "{}", path(point));
    let files = r#"{"files":[{"data":"+/8=","mime_type":"text/plain"}]}"#;
    assert_eq!(changes(&answer), [Some(r#"{"images":[]}"#.to_owned()), Some(files.to_owned())], "{answer:?}");
}
