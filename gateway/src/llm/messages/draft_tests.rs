use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media, media::Source};
use serde_json::{Value, json};

use super::{MessagesRequest, RequestDraft};
use crate::llm::{
    format::{FormatDraft as _, FormatRequest as _},
    request_view::RequestView as _,
    unit::{Unit, UnitKind},
};

pub(super) fn parse(body: &str) -> MessagesRequest {
    MessagesRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect("a valid request")
}

pub(super) fn request(body: &Value) -> MessagesRequest {
    parse(&body.to_string())
}

pub(super) fn conversation(messages: &Value) -> MessagesRequest {
    request(&json!({ "model": "m", "max_tokens": 1, "messages": messages }))
}

pub(super) fn text(json: &Value) -> Bytes {
    json.to_string().into()
}

pub(super) fn image_block(url: &str) -> Value {
    json!({ "type": "image", "source": { "type": "url", "url": url } })
}

pub(super) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub(super) fn message(role: &str, content: impl Into<Value>) -> Value {
    json!({ "role": role, "content": content.into() })
}

pub(super) fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "f", "input": { "a": 1 } })
}

pub(super) fn result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": format!("result {id}") })
}

fn unit(request: &MessagesRequest, index: usize) -> &Unit {
    request.older_units().iter().chain(request.current_units()).nth(index).expect("a unit")
}

#[test]
fn the_main_payload_has_each_part_of_the_request_once() {
    let request = parse(
        r#"{"model":"m","temperature": 1.50,"stream":false,"tools":[ {"name":"f"} ],"max_tokens":2,
            "system":[{"type":"text","text":"one"},{"type":"text","text":"two"}],"messages":[
            {"role":"system","content":"three"},{"role":"user","content":"old"},
            {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"1" , "content":"r"},{"type":"text","text":"a"},
              {"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},{"type":"text","text":"b"},
              {"type":"document","title":"f.txt","source":{"type":"text","media_type":"text/plain","data":"hi"}},
              {"type":"document","source":{"type":"content","content":"unseen"}}]},
            {"role":"system","content":"late"},{"role":"assistant","content":"prefill"}]}"#,
    );
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!(payload.text, "a\nb");
    assert_eq!(payload.system_prompt.as_deref(), Some("one\n\ntwo\n\nthree"));
    assert_eq!(
        payload.messages,
        r#"[{"role":"user","content":"old"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1" , "content":"r"}]},{"role":"system","content":"late"},{"role":"assistant","content":"prefill"}]"#
    );
    assert_eq!(payload.tools, r#"[ {"name":"f"} ]"#);
    assert_eq!(payload.extra, r#"{"request":{"temperature":1.50,"max_tokens":2}}"#);
    let data = |mime_type: &str, filename: Option<&str>| Media {
        mime_type: mime_type.to_owned(),
        filename: filename.map(str::to_owned),
        source: Some(Source::Data(Bytes::from_static(b"hi"))),
    };
    assert_eq!(payload.images, [data("image/png", None)]);
    assert_eq!(payload.files, [data("text/plain", Some("f.txt"))]);
}

#[test]
fn text_blocks_reach_the_model_on_lines_of_their_own() {
    let texts = |texts: &[&str]| {
        let mut blocks: Vec<Value> = texts.iter().map(|text| text_block(text)).collect();
        blocks.insert(1, image_block("https://a.test/"));
        Value::Array(blocks)
    };
    let split = ["project mer", "cury", "a \u{2028}", "b\n", "c", "\n\"", "", "d"];
    let broken = ["project mer\n", "cury\n", "a \u{2028}\n", "b\n", "c", "\n\"\n", "\n", "d"];
    let system = json!([text_block("a"), text_block("b")]);
    let said = json!([text_block("a"), text_block("b")]);
    let tool = json!({ "type": "tool_result", "tool_use_id": "1", "content": said });
    let request = request(&json!({ "model": "m", "system": system, "messages": [
        message("system", texts(&split)), message("user", texts(&split)), message("assistant", said.clone()),
        message("user", json!([tool])), message("user", texts(&["a", "b"])),
    ] }));
    let rendered =
        |draft: &RequestDraft<'_>| -> Value { serde_json::from_slice(&draft.render()).expect("JSON") };
    let mut draft = RequestDraft::new(&request);
    assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
    draft.break_lines();
    assert!(!draft.is_changed());
    let body = rendered(&draft);
    assert_eq!(body["system"], json!([text_block("a\n"), text_block("b")]));
    let expected = json!([
        message("system", texts(&broken)),
        message("user", texts(&broken)),
        message("assistant", said),
        message("user", json!([tool])),
        message("user", texts(&["a\n", "b"])),
    ]);
    assert_eq!(body["messages"], expected);
    draft.replace_unit(unit(&request, 0), &text(&message("user", texts(&["e", "f"]))));
    assert_eq!(rendered(&draft)["messages"][1], message("user", texts(&["e\n", "f"])));
    let last = draft.main_payload();
    let mut patched = last.clone();
    patched.messages = text(&json!([message("user", texts(&["c", "d"])), expected[2]]));
    draft.apply_main(&last, &patched).expect("written back");
    let left = json!([expected[0], message("user", texts(&["c\n", "d"])), expected[2], expected[4]]);
    assert_eq!(rendered(&draft)["messages"], left, "also where plugins changed the messages");
}

#[test]
fn results_and_texts_are_replaced_in_their_places() {
    let body = r#"{ "model":"m" , "messages": [ {"role":"user", "content":"old"},
        {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{ "a":1}},{"type":"tool_use","id":"2","name":"g","input":{}}]},
        { "role":"user", "content" : [ {"type":"tool_result","tool_use_id":"1", "content" : "secret"} ,{"tool_use_id":"2","type":"tool_result","is_error":true}, {"type":"text","text":"new"},
        {"type":"search_result","content":[]} ] } ] }"#;
    let request = parse(body);
    let (old, first, second, main) =
        (unit(&request, 0), unit(&request, 1), unit(&request, 2), unit(&request, 3));
    assert_eq!((first.kind(), main.kind()), (UnitKind::Result, UnitKind::User));
    let mut draft = RequestDraft::new(&request);
    let payload = draft.result_payload(first).expect("it has its call");
    assert_eq!((payload.tool_name.as_str(), payload.success), ("f", Some(true)));
    assert_eq!((&payload.args[..], &payload.result[..]), (&br#"{ "a":1}"#[..], &br#""secret""#[..]));
    let payload = draft.result_payload(second).expect("it has its call");
    assert_eq!((payload.success, &payload.result[..]), (Some(false), &b"null"[..]));
    let before = draft.unit_payload(main);
    assert_eq!(
        (before.text.as_str(), &before.messages, &before.extra),
        ("new", &Bytes::new(), &Bytes::new())
    );
    let same = draft.patched_unit(main, &before, &before).expect("nothing to do");
    assert_eq!(same, request.unit_json(main), "without a change it keeps its bytes");
    let tools =
        BeforeLlmRequestPayload { tools: "[]".into(), system_prompt: Some("s".into()), ..before.clone() };
    let same = draft.patched_unit(main, &before, &tools).expect("nothing to do");
    assert_eq!(same, request.unit_json(main), "other changes are none of the message");
    let after = BeforeLlmRequestPayload { text: "other".into(), ..before.clone() };
    let changed = draft.patched_unit(main, &before, &after).expect("a text");
    assert!(!str::from_utf8(&changed).expect("UTF-8").contains("tool_result"));
    let redacted = draft.patched_result(first, &Bytes::from_static(br#""open""#));
    draft.replace_unit(first, &redacted);
    draft.replace_unit(main, &changed);
    draft.remove_content(second, "blocked");
    draft.remove_content(old, "[removed: X]");
    draft.set_model("n");
    assert!(draft.is_changed());
    let expected = body
        .replace(r#""model":"m""#, r#""model":"n""#)
        .replace(r#""old""#, r#""[removed: X]""#)
        .replace("secret", "open")
        .replace(r#""is_error":true}"#, r#""is_error":true,"content":"blocked"}"#)
        .replace(r#""text":"new""#, r#""text":"other""#);
    assert_eq!(draft.render(), expected);
    let before = draft.main_payload();
    assert_eq!(before.text, "other");
    let seen: Value = serde_json::from_slice(&before.messages).expect("JSON");
    assert_eq!(
        (&seen[2]["content"][0]["content"], seen[2]["content"].as_array().map(Vec::len)),
        (&json!("open"), Some(2))
    );
    let after = BeforeLlmRequestPayload { text: "third".into(), ..before.clone() };
    draft.apply_main(&before, &after).expect("written back");
    assert_eq!(draft.render(), expected.replace(r#""text":"other""#, r#""text":"third""#));
}

#[test]
fn removed_content_leaves_a_note_and_the_results() {
    let given = json!([
        message("user", json!([text_block("a"), image_block("https://a.test/")])),
        message("assistant", json!([call("1")])),
        message("user", json!([result("1"), image_block("https://a.test/"), text_block("b")])),
        message("system", "late"),
    ]);
    let request = conversation(&given);
    let mut draft = RequestDraft::new(&request);
    for index in [0, 2, 3] {
        draft.remove_content(unit(&request, index), "note");
    }
    let expected = json!([
        message("user", json!([text_block("note")])),
        given[1],
        message("user", json!([result("1"), text_block("note")])),
        message("system", "note"),
    ]);
    let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    assert_eq!(body["messages"], expected);
    draft.remove_content(unit(&request, 1), "blocked");
    let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    let blocked =
        json!({ "type": "tool_result", "tool_use_id": "1", "content": "blocked", "is_error": true });
    assert_eq!(body["messages"][2], message("user", json!([blocked, text_block("note")])));
}

#[test]
fn a_remembered_unit_without_text_leaves_no_block_beside_results() {
    let blocks = json!([result("1"), text_block("a")]);
    let request = conversation(&json!([message("assistant", json!([call("1")])), message("user", blocks)]));
    let mut draft = RequestDraft::new(&request);
    let main = unit(&request, 1);
    let before = draft.unit_payload(main);
    let emptied = BeforeLlmRequestPayload { text: String::new(), ..before.clone() };
    let remembered =
        MessagesRequest::lasting_json(draft.patched_unit(main, &before, &emptied).expect("a text"));
    assert_eq!(remembered, r#"{"content":[],"role":"user"}"#);
    draft.replace_unit(main, &remembered);
    let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    assert_eq!(body["messages"][1], message("user", json!([result("1")])));
}

#[test]
fn removed_content_keeps_the_mark_for_the_providers_cache() {
    let marked =
        |text: &str, ttl: &str| json!({ "type": "text", "text": text, "cache_control": { "ttl": ttl } });
    let beside = message("user", json!([result("1"), marked("c", "1h"), image_block("https://a.test/")]));
    let request = conversation(&json!([
        message("user", json!([marked("a", "5m"), marked("b", "1h")])),
        message("assistant", json!([call("1")])),
        beside,
    ]));
    let mut draft = RequestDraft::new(&request);
    for index in [0, 2] {
        draft.remove_content(unit(&request, index), "note");
    }
    let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    assert_eq!(body["messages"][0], message("user", json!([marked("note", "1h")])));
    assert_eq!(body["messages"][2], message("user", json!([result("1"), marked("note", "1h")])));
}

#[test]
fn a_patched_result_is_text_or_content_blocks() {
    let photo = image_block("https://a.test/");
    let blocks = json!([text_block("r"), photo]);
    let request = parse(&format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{ "type":"tool_result", "content" : "caf\u00e9" }},{{"type":"tool_result","content":{blocks}}},{{"type":"tool_result"}}]}}]}}"#
    ));
    let draft = RequestDraft::new(&request);
    let patched = |index: usize, result: &str| {
        draft.patched_result(unit(&request, index), &Bytes::copy_from_slice(result.as_bytes()))
    };
    for (index, same) in [
        (0, r#""caf\u00e9""#.to_owned()),
        (0, "\"caf\u{e9}\"".to_owned()),
        (1, blocks.to_string()),
        (1, format!(" {blocks}\n")),
        (2, "null".to_owned()),
    ] {
        assert_eq!(patched(index, &same), request.unit_json(unit(&request, index)), "it keeps its bytes");
    }
    for (value, content) in [
        (r#""r""#, json!("r")),
        (r#"{"a": 1}"#, json!("{\"a\": 1}")),
        (r#"[{"type":"text","text":"r"}]"#, json!([text_block("r")])),
        (&json!([photo]).to_string(), json!([photo])),
        ("[]", json!("[]")),
        ("null", json!("null")),
        (r#"[{"type":"image"}]"#, json!("[{\"type\":\"image\"}]")),
        (r#"[{"type":"text"}]"#, json!("[{\"type\":\"text\"}]")),
    ] {
        let block: Value = serde_json::from_slice(&patched(0, value)).expect("JSON");
        assert_eq!(block, json!({ "type": "tool_result", "content": content }));
    }
}

#[test]
fn a_result_without_its_call_has_no_payload() {
    let request = conversation(&json!([message("user", json!([result("1")]))]));
    assert!(RequestDraft::new(&request).result_payload(unit(&request, 0)).is_err());
}

#[test]
fn another_model_is_no_change_of_a_plugin() {
    let request = conversation(&json!([message("user", "hi")]));
    let mut draft = RequestDraft::new(&request);
    draft.set_model("m");
    draft.ask_for_usage();
    assert_eq!(draft.render().as_ptr(), request.body().as_ptr(), "the same model is no edit");
    draft.set_model("o\"ther");
    assert!(!draft.is_changed());
    let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    assert_eq!(body["model"], "o\"ther");
}

#[test]
fn tens_of_thousands_of_members_and_results_are_changed_in_one_walk() {
    let members = |value: u32| -> serde_json::Map<String, Value> {
        (0..30_000).map(|index| (format!("member-{index}"), json!(value))).collect()
    };
    let ids: Vec<String> = (0..9_999).map(|index| index.to_string()).collect();
    let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
    let mut blocks: Vec<Value> = ids.iter().map(|id| result(id)).collect();
    blocks.push(text_block("hi"));
    let mut body = members(1);
    body.insert("model".into(), json!("m"));
    body.insert("messages".into(), json!([message("assistant", calls), message("user", blocks)]));
    let request = request(&Value::Object(body));
    let mut draft = RequestDraft::new(&request);
    for unit in request.current_units() {
        match unit.kind() {
            UnitKind::Result => draft.remove_content(unit, "no"),
            _ => draft.replace_unit(unit, &request.unit_json(unit)),
        }
    }
    let before = draft.main_payload();
    let extra = text(&json!({ "request": members(2) }));
    let after = BeforeLlmRequestPayload { extra, text: "new".into(), ..before.clone() };
    draft.apply_main(&before, &after).expect("written back");
    let changed: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    let blocks = &changed["messages"][1]["content"];
    assert_eq!(
        (&changed["member-29999"], &blocks[9_998]["content"], &blocks[9_999]),
        (&json!(2), &json!("no"), &text_block("new"))
    );
}
