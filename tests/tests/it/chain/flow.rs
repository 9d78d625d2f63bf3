//! Tests what chains of well-behaved and failing plugins do to a payload: order, patches, blocks, notices.

use hookgate_proto::{
    plugin::v1::Access,
    types::v1::{
        AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch,
        ExtensionPoint, Media, MediaList, NoticeKind, media::Source,
    },
};
use hookgate_tests::{
    agent::HttpAnswer,
    fake::{Act, Builder, FakePlugin, POINTS, Patch, Payload, Seen, WireBehaviour, notice},
    gateway::Gateway,
    token::token,
};
use serde_json::{Value, json};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;

fn payload(point: ExtensionPoint) -> Value {
    match point {
        ExtensionPoint::BeforeLlmRequest => json!({ "text": "hello" }),
        ExtensionPoint::BeforeToolCall => json!({ "tool_name": "hello", "args": null }),
        ExtensionPoint::AfterToolResult => {
            json!({ "tool_name": "bash", "result": "hello", "success": false, "args": { "x": 1 } })
        }
        ExtensionPoint::BeforeResponse => json!({ "content": "hello" }),
        ExtensionPoint::Unspecified => panic!("no point, no payload"),
    }
}

/// Appends `mark` to the payload's main text.
fn append(payload: &Payload, mark: &str) -> Patch {
    match payload {
        Payload::BeforeLlmRequest(payload) => {
            let text = Some(format!("{}{mark}", payload.text));
            BeforeLlmRequestPatch { text, ..Default::default() }.into()
        }
        Payload::BeforeToolCall(payload) => {
            let tool_name = Some(format!("{}{mark}", payload.tool_name));
            BeforeToolCallPatch { tool_name, ..Default::default() }.into()
        }
        Payload::AfterToolResult(payload) => {
            let result: String = serde_json::from_slice(&payload.result).expect("it is a string");
            let result = Some(json!(format!("{result}{mark}")).to_string().into());
            AfterToolResultPatch { result, ..Default::default() }.into()
        }
        Payload::BeforeResponse(payload) => {
            let content = Some(format!("{}{mark}", payload.content));
            BeforeResponsePatch { content, ..Default::default() }.into()
        }
        Payload::Hook(_) => panic!("no point, no patch"),
    }
}

fn appending(name: &str) -> Builder {
    let mark = format!(" [{name}]");
    POINTS.iter().fold(FakePlugin::named(name), |plugin, &point| {
        let mark = mark.clone();
        plugin.at_with(point, move |seen: &Seen| Act::patch(append(&seen.payload, &mark)))
    })
}

fn outcomes(answer: &HttpAnswer) -> Vec<(&str, &str)> {
    let steps = answer.body["steps"].as_array().expect("there are steps");
    steps
        .iter()
        .map(|step| {
            (step["plugin"].as_str().unwrap_or_default(), step["outcome"].as_str().unwrap_or_default())
        })
        .collect()
}

#[tokio::test]
async fn plugins_run_by_ascending_priority_at_all_points_and_see_what_came_before() {
    let (a, b, c) =
        (appending("A").start().await, appending("B").start_unix().await, appending("C").start().await);
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&c)
        .plugin(&b)
        .plugin(&a)
        .binding("C", 7)
        .binding("A", -20)
        .binding("B", 0)
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    for (point, member) in POINTS.into_iter().zip(["text", "tool_name", "result", "content"]) {
        let answer = agent.call(point, payload(point)).await;
        assert_eq!(answer.body["payload"][member], json!("hello [A] [B] [C]"), "{answer:?}");
        let expected = [("A", "modified"), ("B", "modified"), ("C", "modified")];
        assert_eq!(outcomes(&answer), expected, "{answer:?}");
    }
    let last = c.seen();
    let Payload::AfterToolResult(result) = &last[2].payload else { panic!("{last:?}") };
    assert_eq!(
        (result.success, &result.args[..]),
        (Some(false), &br#"{"x":1}"#[..]),
        "it failed, as executed"
    );
}

#[tokio::test]
async fn a_plugin_is_called_only_at_the_points_that_it_offers_and_not_at_all_when_switched_off() {
    let picky = FakePlugin::named("picky").only(&[POINT]).start().await;
    let off = FakePlugin::named("off").start().await;
    let unbound = FakePlugin::named("unbound").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&picky)
        .plugin_with(&off, &json!({ "enabled": false }))
        .plugin(&unbound)
        .binding("picky", 1)
        .binding("off", 2)
        .binding_with("unbound", 3, &json!({ "enabled": false }))
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    for point in POINTS {
        let answer = agent.call(point, payload(point)).await;
        assert_eq!((answer.status, &answer.body["payload"]), (200, &payload(point)), "{answer:?}");
        let expected: &[_] = if point == POINT { &[("picky", "continued")] } else { &[] };
        assert_eq!(outcomes(&answer), expected, "{answer:?}");
    }
    assert_eq!((picky.counts().calls, unbound.counts().calls), (1, 0));
    assert_eq!(off.counts().connections, 0, "it is not even dialled");
}

#[tokio::test]
async fn a_patch_replaces_whole_top_level_values_and_leaves_the_others() {
    let patch = BeforeToolCallPatch { args: Some(r#"{"a":1}"#.into()), ..BeforeToolCallPatch::default() };
    let patching = FakePlugin::named("patching").at(POINT, Act::patch(patch)).start().await;
    let watching = FakePlugin::named("watching").start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&patching)
        .plugin(&watching)
        .binding("patching", 2)
        .binding_with("watching", 1, &json!({ "mode": "observe" }))
        .start()
        .await;
    let body = r#"{"payload":{"tool_name":"t","args":{"a":{"deep":1},"b":2},"extra":{"x": null}}}"#;
    let answer = gateway.http(&token("acme")).post_text(POINT, body).await;
    let expected = r#""payload":{"tool_name":"t","args":{"a":1},"extra":{"x": null}},"modified":true"#;
    assert!(answer.text.contains(expected), "{answer:?}");

    watching.wait_until(|counts| counts.calls == 1).await;
    let seen = watching.seen();
    let Payload::BeforeToolCall(before) = &seen[0].payload else { panic!("{seen:?}") };
    assert_eq!(before.args, r#"{"a":{"deep":1},"b":2}"#, "what others hold is not changed in place");
}

#[tokio::test]
async fn the_first_block_ends_the_chain_with_a_message_even_where_the_plugin_has_none() {
    let remark = |text: &str| notice(NoticeKind::Info, "", text, &Value::Null);
    let first = FakePlugin::named("first")
        .at(POINT, Act::pass().with_notice(remark("one")).with_notice(remark("two")))
        .start()
        .await;
    let wordless = Act::cancel("", "").with_notice(remark("three"));
    let wordless = FakePlugin::named("wordless").at(POINT, wordless).start().await;
    let later = FakePlugin::named("later").at(POINT, Act::cancel("FORBIDDEN", "No.")).start().await;
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&first)
        .plugin(&wordless)
        .plugin(&later)
        .binding("first", 1)
        .binding("wordless", 2)
        .binding("later", 3)
        .start()
        .await;
    let answer = gateway.http(&token("acme")).call(POINT, payload(POINT)).await;
    let block = &answer.body["block"];
    assert_eq!((answer.status, &block["code"]), (403, &json!("BLOCKED")), "{answer:?}");
    assert_eq!(block["message"], json!("Operation blocked by plugin"));
    let notices = answer.body["notices"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said =
        notices.iter().map(|notice| format!("{}: {}", text(&notice["plugin"]), text(&notice["message"])));
    assert_eq!(said.collect::<Vec<_>>(), ["first: one", "first: two", "wordless: three"]);
    assert_eq!(outcomes(&answer), [("first", "continued"), ("wordless", "cancelled")]);
    assert_eq!(later.counts().calls, 0);
}

#[tokio::test]
async fn a_plugin_that_dies_in_a_call_stops_only_the_chains_that_need_it() {
    let dying = FakePlugin::named("dying");
    let dying = POINTS
        .iter()
        .fold(dying, |plugin, &point| plugin.at(point, Act::pass().sent(WireBehaviour::Disconnect)));
    let dying = dying.start().await;
    let marking = appending("marking").start().await;
    let gateway = Gateway::with()
        .tenant("strict")
        .tenant("lenient")
        .plugin(&dying)
        .plugin(&marking)
        .binding_with("dying", 1, &json!({ "tenant": "strict" }))
        .binding_with("dying", 1, &json!({ "tenant": "lenient", "blocking": false }))
        .binding("marking", 2)
        .start()
        .await;
    for point in POINTS {
        let answer = gateway.http(&token("strict")).call(point, payload(point)).await;
        assert_eq!((answer.status, answer.header("hookgate-decision")), (503, None), "{answer:?}");
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert!(detail.starts_with("Plugin 'dying' failed: "), "{answer:?}");

        let answer = gateway.http(&token("lenient")).call(point, payload(point)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let message = answer.body["notices"][0]["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("Plugin 'dying' was skipped: "), "{answer:?}");
        assert_eq!(outcomes(&answer), [("dying", "failed_open"), ("marking", "modified")], "{answer:?}");
    }
    assert_eq!(marking.counts().calls, 4, "only after a step that was skipped");
}

#[tokio::test]
async fn the_patched_result_of_a_failed_tool_comes_back() {
    let patch = AfterToolResultPatch { result: Some(r#""redacted""#.into()), ..Default::default() };
    let point = ExtensionPoint::AfterToolResult;
    let patching = FakePlugin::named("patching").at(point, Act::patch(patch)).start().await;
    let gateway = Gateway::with().tenant("acme").plugin(&patching).binding("patching", 1).start().await;
    let answer = gateway.http(&token("acme")).call(point, payload(point)).await;
    let payload = &answer.body["payload"];
    assert_eq!(payload["result"], json!("redacted"), "{answer:?}");
    assert_eq!((&payload["success"], &payload["tool_name"]), (&json!(false), &json!("bash")), "{answer:?}");
}

fn media(mime_type: &str, filename: Option<&str>) -> Option<MediaList> {
    let source = Some(Source::Data(vec![0xfb, 0xff].into()));
    let item = Media { source, mime_type: mime_type.into(), filename: filename.map(str::to_owned) };
    Some(MediaList { items: vec![item] })
}

#[tokio::test]
async fn every_field_of_a_model_request_reaches_plugins_and_can_be_patched() {
    let point = ExtensionPoint::BeforeLlmRequest;
    let patch = BeforeLlmRequestPatch {
        text: Some("new text".into()),
        images: media("image/webp", None),
        files: media("text/plain", Some("new.txt")),
        system_prompt: Some("new prompt".into()),
        messages: Some(r#"[{"name":"new"}]"#.into()),
        tools: Some(r#"[{"name":"new"}]"#.into()),
        extra: Some(r#"{"new":1}"#.into()),
    };
    let first = FakePlugin::named("first").at(point, Act::patch(patch)).start().await;
    let second = FakePlugin::named("second").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&first).plugin(&second);
    let gateway = setup.binding("first", 1).binding("second", 2).start().await;
    let sent = json!({
        "text": "old text",
        "images": [{ "mime_type": "image/png", "url": "https://example.com/a.png" }],
        "files": [{ "data": "AQID", "mime_type": "application/pdf", "filename": "old.pdf" }],
        "system_prompt": "old prompt", "messages": [{ "name": "old" }], "tools": [{ "name": "old" }], "extra": { "old": 1 },
    });
    let body = json!({ "payload": sent, "context": { "session_id": "session-1" } });
    let answer = gateway.http(&token("acme")).post(point, &body).await;
    let patched = json!({
        "text": "new text",
        "images": [{ "data": "+/8=", "mime_type": "image/webp" }],
        "files": [{ "data": "+/8=", "mime_type": "text/plain", "filename": "new.txt" }],
        "system_prompt": "new prompt", "messages": [{ "name": "new" }], "tools": [{ "name": "new" }], "extra": { "new": 1 },
    });
    assert_eq!((answer.status, &answer.body["payload"]), (200, &patched), "{answer:?}");

    let seen = first.seen();
    let Payload::BeforeLlmRequest(request) = &seen[0].payload else { panic!("{seen:?}") };
    assert_eq!((&request.text[..], request.system_prompt.as_deref()), ("old text", Some("old prompt")));
    assert_eq!(request.images[0].source, Some(Source::Url("https://example.com/a.png".into())));
    assert_eq!(request.files[0].source, Some(Source::Data(vec![1, 2, 3].into())));
    assert_eq!(request.files[0].filename.as_deref(), Some("old.pdf"));
    let json = [&request.messages, &request.tools, &request.extra];
    assert_eq!(json, [r#"[{"name":"old"}]"#, r#"[{"name":"old"}]"#, r#"{"old":1}"#]);
    let context = seen[0].call.context.as_ref().expect("every call has one");
    assert_eq!(context.session_id.as_deref(), Some("session-1"));
    let seen = second.seen();
    let Payload::BeforeLlmRequest(request) = &seen[0].payload else { panic!("{seen:?}") };
    assert_eq!((&request.text[..], &request.files[0].mime_type[..]), ("new text", "text/plain"));
}

#[tokio::test]
async fn a_plugin_bound_to_a_label_of_a_run_runs_for_that_run_alone_in_its_place() {
    let (always, nightly) = (appending("always").start().await, appending("nightly").start().await);
    let setup = Gateway::with().tenant("acme").plugin(&always).plugin(&nightly);
    let labelled = json!({ "match": { "labels": { "run.kind": ["nightly"] } } });
    let gateway = setup.binding("always", 2).binding_with("nightly", 1, &labelled).start().await;
    let agent = gateway.http(&token("acme"));
    for (kind, expected) in [("nightly", "hello [nightly] [always]"), ("manual", "hello [always]")] {
        let context = json!({ "labels": { "run.kind": kind } });
        let answer = agent.post(POINT, &json!({ "payload": payload(POINT), "context": context })).await;
        assert_eq!(answer.body["payload"]["tool_name"], expected, "{answer:?}");
    }
    assert_eq!((always.counts().calls, nightly.counts().calls), (2, 1));
}

#[tokio::test]
async fn agents_of_a_tenant_have_their_own_configuration_of_one_plugin() {
    let plugin = appending("guard").start().await;
    let setup = Gateway::with().tenant("acme").plugin(&plugin);
    let bound = |name: &str, agents: &str, level: u64| json!({ "name": name, "match": { "agents": [agents] }, "config": { "level": level } });
    let gateway = setup
        .binding_with("guard", 1, &bound("strict", "buyer-*", 9))
        .binding_with("guard", 2, &bound("lax", "reader", 1))
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    for (id, level) in [("buyer-7", 9), ("reader", 1)] {
        let context = json!({ "agent_id": id });
        let answer = agent.post(POINT, &json!({ "payload": payload(POINT), "context": context })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let call = plugin.seen().pop().expect("it was called").call;
        let config: Value = serde_json::from_slice(&call.tenant_config).expect("JSON");
        assert_eq!(config, json!({ "level": level }));
    }
    assert_eq!(plugin.counts().calls, 2);
}

/// A call's `project_id` is no condition, so an agent also names its project in a label.
#[tokio::test]
async fn projects_of_a_tenant_have_their_own_configuration_of_one_plugin_by_label() {
    let plugin = appending("guard").start().await;
    let bound = |name: &str, project: &str, level: u64| {
        let conditions = json!({ "labels": { "project": [project] } });
        json!({ "name": name, "match": conditions, "config": { "level": level } })
    };
    let gateway = Gateway::with()
        .tenant("acme")
        .plugin(&plugin)
        .binding_with("guard", 1, &bound("strict", "shop-*", 9))
        .binding_with("guard", 2, &bound("lax", "wiki", 1))
        .start()
        .await;
    let agent = gateway.http(&token("acme"));
    for (project, level) in [("shop-eu", Some(9)), ("wiki", Some(1)), ("other", None)] {
        let before = plugin.counts().calls;
        let context = json!({ "project_id": project, "labels": { "project": project } });
        let answer = agent.post(POINT, &json!({ "payload": payload(POINT), "context": context })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let calls = plugin.seen().split_off(usize::try_from(before).expect("they are few"));
        let levels: Vec<Value> = calls
            .iter()
            .map(|seen| serde_json::from_slice(&seen.call.tenant_config).expect("it is JSON"))
            .collect();
        assert_eq!(levels, level.map(|level| json!({ "level": level })).into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_plugin_that_only_reads_a_response_sees_it_and_cannot_change_it() {
    let point = ExtensionPoint::BeforeResponse;
    let reader = FakePlugin::named("reader").access(Access::Read).start().await;
    let setup = Gateway::with().tenant("acme").plugin(&reader).binding("reader", 1);
    let gateway = setup.start().await;
    let agent = gateway.http(&token("acme"));
    let sent = json!({ "content": "hello", "stop_reason": "end_turn" });
    let answer = agent.call(point, sent.clone()).await;
    assert_eq!((answer.status, &answer.body["payload"]), (200, &sent), "{answer:?}");
    let seen = reader.seen();
    let Payload::BeforeResponse(response) = &seen[0].payload else { panic!("{seen:?}") };
    assert_eq!((&response.content[..], response.stop_reason.as_deref()), ("hello", Some("end_turn")));

    reader.set_with(point, |seen| Act::patch(append(&seen.payload, " changed")));
    let answer = agent.call(point, sent).await;
    assert_eq!((answer.status, &answer.body["code"]), (502, &json!("PLUGIN_BAD_REPLY")), "{answer:?}");
}
