use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media, media::Source};
use serde_json::{Value, json};

use super::{ChatRequest, RequestDraft};
use crate::llm::{
    format::{FormatDraft as _, FormatRequest as _, PatchError},
    request_view::RequestView as _,
};

fn request(body: &Value) -> ChatRequest {
    ChatRequest::parse(body.to_string().into()).expect("a valid request")
}

fn conversation(messages: &Value) -> ChatRequest {
    request(&json!({ "model": "m", "messages": messages }))
}

/// The body after a change of the main payload.
fn patched(
    request: &ChatRequest,
    patch: impl FnOnce(&mut BeforeLlmRequestPayload),
) -> Result<Value, PatchError> {
    let mut draft = RequestDraft::new(request);
    let before = draft.main_payload();
    let mut after = before.clone();
    patch(&mut after);
    draft.apply_main(&before, &after)?;
    assert_eq!(draft.is_changed(), before != after);
    Ok(serde_json::from_slice(&draft.render()).expect("JSON"))
}

/// The messages after a change of the main payload.
fn messages(messages: &Value, patch: impl FnOnce(&mut BeforeLlmRequestPayload)) -> Value {
    patched(&conversation(messages), patch).expect("it can be written back")["messages"].take()
}

fn refused(request: &ChatRequest, patch: impl FnOnce(&mut BeforeLlmRequestPayload)) -> String {
    patched(request, patch).expect_err("it can't be written back").to_string()
}

fn text(json: &Value) -> Bytes {
    json.to_string().into()
}

fn image(url: &str) -> Media {
    Media { mime_type: "image/*".to_owned(), filename: None, source: Some(Source::Url(url.to_owned())) }
}

fn image_part(url: &str) -> Value {
    json!({ "type": "image_url", "image_url": { "url": url } })
}

#[test]
fn the_main_payload_has_each_part_of_the_request_once() {
    let request = ChatRequest::parse(Bytes::from_static(
        br#"{"model":"m","temperature": 1.50,"stream":false,"tools":[ {"type":"function"} ],"n":2,"messages":[
            {"role":"system","content":"one"},{"role":"developer","content":[{"type":"text","text":"two"}]},
            {"role":"user","content":"old"},{"role":"assistant","content":"said"},
            {"role":"user","content":[{"type":"text","text":"a"},
              {"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}},{"type":"text","text":"b"},
              {"type":"file","file":{"file_data":"aGk=","filename":"f.txt"}},
              {"type":"input_audio","input_audio":{"data":"aGk=","format":"wav"}}]},
            {"role":"system","content":"late"}]}"#,
    ))
    .expect("a valid request");
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!(payload.text, "a\nb");
    assert_eq!(payload.system_prompt.as_deref(), Some("one\n\ntwo"));
    assert_eq!(
        payload.messages,
        r#"[{"role":"user","content":"old"},{"role":"assistant","content":"said"},{"role":"system","content":"late"}]"#
    );
    assert_eq!(payload.tools, r#"[ {"type":"function"} ]"#);
    assert_eq!(payload.extra, r#"{"request":{"temperature":1.50,"n":2}}"#);
    let data = |mime_type: &str, filename: Option<&str>| Media {
        mime_type: mime_type.to_owned(),
        filename: filename.map(str::to_owned),
        source: Some(Source::Data(Bytes::from_static(b"hi"))),
    };
    assert_eq!(payload.images, [data("image/png", None)]);
    assert_eq!(payload.files, [data("application/octet-stream", Some("f.txt")), data("audio/wav", None)]);
}

#[test]
fn without_a_user_message_in_the_current_turn_there_is_no_text_to_change() {
    let request = conversation(&json!([
        { "role": "user", "content": "old" },
        { "role": "assistant", "function_call": { "name": "f", "arguments": "{}" } },
        { "role": "function", "name": "f", "content": "r" },
    ]));
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!((payload.text.as_str(), payload.system_prompt), ("", None));
    assert!(refused(&request, |payload| payload.text = "new".into()).contains("no message of the user"));
    assert!(
        refused(&request, |payload| payload.images.push(image("https://a.test/"))).contains("no message")
    );
}

#[test]
fn the_first_text_part_takes_the_text_and_the_mark_of_the_others() {
    let mark = json!({ "type": "ephemeral" });
    let parts = json!([{ "role": "user", "content": [
        image_part("https://a.test/"), { "type": "text", "text": "a" },
        { "type": "text", "text": "b", "cache_control": mark }] }]);
    let expected = json!([{ "role": "user", "content": [
        image_part("https://a.test/"), { "type": "text", "text": "new", "cache_control": mark }] }]);
    assert_eq!(messages(&parts, |payload| payload.text = "new".into()), expected);
    let only_image = json!([{ "role": "user", "content": [image_part("https://a.test/")] }]);
    let expected = json!([{ "role": "user", "content": [
        { "type": "text", "text": "new" }, image_part("https://a.test/")] }]);
    assert_eq!(messages(&only_image, |payload| payload.text = "new".into()), expected);
}

#[test]
fn the_system_prompt_goes_to_the_first_message_or_to_a_new_one() {
    let user = json!({ "role": "user", "content": "hi" });
    let two =
        json!([{ "role": "developer", "content": "a", "n": 1 }, { "role": "system", "content": "b" }, user]);
    let expected = json!([{ "role": "developer", "content": "new", "n": 1 }, user]);
    assert_eq!(messages(&two, |payload| payload.system_prompt = Some("new".into())), expected);
    assert_eq!(messages(&two, |payload| payload.system_prompt = Some(String::new())), json!([user]));
    let named = json!({ "role": "system", "content": "a", "name": "x" });
    let expected = json!([{ "role": "system", "content": "new" }, named, user]);
    assert_eq!(
        messages(&json!([named, user]), |payload| payload.system_prompt = Some("new".into())),
        expected
    );
    let expected = json!([{ "role": "system", "content": "new" }, user]);
    assert_eq!(messages(&json!([user]), |payload| payload.system_prompt = Some("new".into())), expected);
}

#[test]
fn the_message_of_the_text_goes_back_before_those_that_followed_it() {
    let system = json!({ "role": "system", "content": "s" });
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let given = json!([
        system,
        message("user", "1"),
        message("assistant", "2"),
        message("user", "3"),
        message("assistant", "prefill")
    ]);
    let patch = |payload: &mut BeforeLlmRequestPayload| {
        payload.messages = text(&json!([message("user", "summary"), message("assistant", "other prefill")]));
        payload.text = "new".into();
        payload.system_prompt = Some("t".into());
    };
    let expected = json!([
        message("system", "t"),
        message("user", "summary"),
        message("user", "new"),
        message("assistant", "other prefill")
    ]);
    assert_eq!(messages(&given, patch), expected);
    let none = |payload: &mut BeforeLlmRequestPayload| payload.messages = text(&json!([]));
    assert!(refused(&conversation(&given), none).contains("1 must follow"));
    assert!(
        refused(&conversation(&json!([system])), |payload| payload.system_prompt = Some(String::new()))
            .contains("No message is left")
    );
}

#[test]
fn messages_of_a_plugin_must_have_the_shape_of_a_requests() {
    let request = conversation(&json!([{ "role": "user", "content": "hi" }]));
    for (list, flaw) in [
        (json!({}), "must be an array"),
        (json!([1]), "`messages/0`"),
        (json!([{ "role": "root", "content": "" }]), "`messages/0/role`"),
        (json!([{ "role": "user" }]), "`messages/0/content`"),
    ] {
        let sentence = refused(&request, |payload| payload.messages = text(&list));
        assert!(sentence.contains(flaw), "{sentence}");
    }
}

#[test]
fn media_are_removed_replaced_and_added() {
    let user = |content: Value| json!([{ "role": "user", "content": content }]);
    let (a, b, c) = ("https://a.test/", "https://b.test/", "https://c.test/");
    let low = json!({ "type": "image_url", "image_url": { "url": b, "detail": "low" } });
    let given = user(json!([image_part(a), { "type": "text", "text": "t" }, low, image_part(c)]));
    let left = messages(&given, |payload| drop(payload.images.remove(0)));
    assert_eq!(left, user(json!([{ "type": "text", "text": "t" }, low, image_part(c)])));
    let replaced = messages(&given, |payload| payload.images[1] = image("https://new.test/"));
    let new = json!({ "type": "image_url", "image_url": { "url": "https://new.test/", "detail": "low" } });
    assert_eq!(replaced, user(json!([image_part(a), { "type": "text", "text": "t" }, new, image_part(c)])));
    let plain = messages(&user(json!("t")), |payload| payload.images.push(image(a)));
    assert_eq!(plain, user(json!([{ "type": "text", "text": "t" }, image_part(a)])));
    let only = messages(&user(json!([image_part(a)])), |payload| payload.images.clear());
    assert_eq!(only, user(json!("")));
    let file = Media { mime_type: "text/plain".into(), filename: None, source: Some(Source::Url(a.into())) };
    let request = conversation(&user(json!("t")));
    assert!(refused(&request, |payload| payload.files.push(file.clone())).contains("no URLs"));
    assert!(refused(&request, |payload| payload.images.push(file.clone())).contains("`text/plain`"));
}

#[test]
fn without_tools_the_options_for_tools_go_too() {
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let body = json!({
        "model": "m", "messages": [{ "role": "user", "content": "hi" }], "tools": [tool("a"), tool("b")],
        "tool_choice": { "type": "function", "function": { "name": "b" } }, "parallel_tool_calls": true,
    });
    let emptied = patched(&request(&body), |payload| payload.tools = text(&json!([]))).expect("written back");
    assert_eq!(emptied, json!({ "model": "m", "messages": body["messages"] }));
    let without_choice =
        patched(&request(&body), |payload| payload.tools = text(&json!([tool("a")]))).expect("ok");
    assert_eq!((&without_choice["tools"], without_choice.get("tool_choice")), (&json!([tool("a")]), None));
    let kept = patched(&request(&body), |payload| payload.tools = text(&json!([tool("b")]))).expect("ok");
    assert_eq!(kept["tool_choice"], body["tool_choice"]);
    let auto =
        json!({ "model": "m", "messages": body["messages"], "tools": [tool("a")], "tool_choice": "auto" });
    let kept = patched(&request(&auto), |payload| payload.tools = text(&json!([tool("c")]))).expect("ok");
    assert_eq!(kept["tool_choice"], "auto");
    assert!(refused(&request(&body), |payload| payload.tools = text(&json!([1]))).contains("Tool 0"));
}

#[test]
fn members_are_changed_added_and_removed_through_extra() {
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }], "seed": 1, "top_p": 1, "n": 2 });
    let extra = |members: Value| text(&json!({ "request": members }));
    let changed =
        patched(&request(&body), |payload| payload.extra = extra(json!({ "seed": 2, "user": "u", "n": 2 })));
    let expected = json!({ "model": "m", "messages": body["messages"], "seed": 2, "user": "u", "n": 2 });
    assert_eq!(changed.expect("written back"), expected);
    for (extra, flaw) in [
        (extra(json!({ "n": 3 })), "`extra.request.n`"),
        (extra(json!({})), "`extra.request.n`"),
        (extra(json!({ "n": 2, "model": "other" })), "`model`"),
        (extra(json!({ "n": 2, "stream": true })), "`stream`"),
        (text(&json!({})), "an object `request`"),
        (text(&json!({ "request": {}, "note": 1 })), "only these members in a model call: `request`"),
    ] {
        let sentence = refused(&request(&body), |payload| payload.extra = extra);
        assert!(sentence.contains(flaw), "{sentence}");
    }
    let request = request(&body);
    let mut draft = RequestDraft::new(&request);
    let before = draft.main_payload();
    let json_format = json!({ "n": 2, "response_format": { "type": "json_object" } });
    let after = BeforeLlmRequestPayload { extra: extra(json_format), ..before.clone() };
    draft.apply_main(&before, &after).expect("written back");
    let changed = ChatRequest::parse(draft.render()).expect("still valid");
    assert!(changed.expects_json());
}

#[test]
fn text_parts_reach_the_model_on_lines_of_their_own() {
    let texts = |role: &str, texts: &[&str]| {
        let mut parts: Vec<Value> =
            texts.iter().map(|text| json!({ "type": "text", "text": text })).collect();
        parts.insert(1, image_part("https://a.test/"));
        json!({ "role": role, "content": parts })
    };
    let split = ["project mer", "cury", "a \u{2028}", "b\n", "c", "\n\"", "", "d"];
    let broken = ["project mer\n", "cury\n", "a \u{2028}\n", "b\n", "c", "\n\"\n", "\n", "d"];
    let request = conversation(&json!([
        texts("system", &split),
        texts("user", &split),
        texts("assistant", &split),
        texts("tool", &split),
        texts("developer", &split),
        texts("user", &["a", "b"]),
    ]));
    let rendered = |draft: &RequestDraft<'_>| -> Value {
        let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
        body["messages"].clone()
    };
    let mut draft = RequestDraft::new(&request);
    assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
    draft.break_lines();
    let expected = json!([
        texts("system", &broken),
        texts("user", &broken),
        texts("assistant", &split),
        texts("tool", &split),
        texts("developer", &broken),
        texts("user", &["a\n", "b"]),
    ]);
    assert!(!draft.is_changed());
    assert_eq!(rendered(&draft), expected);
    let last = draft.main_payload();
    let mut patched = last.clone();
    patched.messages = text(&json!([texts("user", &["c", "d"])]));
    draft.apply_main(&last, &patched).expect("written back");
    let left = json!([texts("system", &broken), texts("user", &["c\n", "d"]), texts("user", &["a\n", "b"])]);
    assert_eq!(rendered(&draft), left, "also where plugins changed the messages");
    let unit = request.older_units().first().expect("the first user message");
    let mut draft = RequestDraft::new(&request);
    draft.break_lines();
    draft.replace_unit(unit, &text(&texts("user", &["e", "f"])));
    assert_eq!(rendered(&draft)[1], texts("user", &["e\n", "f"]));
}

#[test]
fn tens_of_thousands_of_members_and_tools_are_changed_in_one_walk() {
    let members = |value: u32| -> serde_json::Map<String, Value> {
        (0..30_000).map(|index| (format!("member-{index}"), json!(value))).collect()
    };
    let tool = |index: usize| json!({ "type": "function", "function": { "name": format!("f{index}") } });
    let tools: Vec<Value> = (0..10_000).map(tool).collect();
    let mut body = members(1);
    body.insert("model".into(), json!("m"));
    body.insert("messages".into(), json!([{ "role": "user", "content": "hi" }]));
    body.insert("tools".into(), json!(tools));
    let allowed = json!({ "mode": "auto", "tools": tools });
    body.insert("tool_choice".into(), json!({ "type": "allowed_tools", "allowed_tools": allowed }));
    let mut left = members(2);
    left.insert("tool_choice".into(), body["tool_choice"].clone());
    let changed = patched(&request(&Value::Object(body)), |payload| {
        payload.extra = text(&json!({ "request": left }));
        payload.tools = text(&tools.iter().rev().cloned().collect());
    });
    let changed = changed.expect("written back");
    assert_eq!(
        (&changed["member-29999"], changed["tools"].as_array().map(Vec::len)),
        (&json!(2), Some(10_000))
    );
    assert!(changed.get("tool_choice").is_some());
}

#[test]
fn plugins_see_the_name_of_the_user_and_leave_it() {
    let user = json!({ "role": "user", "content": "hi", "name": "ann" });
    let request = request(
        &json!({ "model": "m", "seed": 1, "messages": [{ "role": "user", "content": "a", "name": "bob" }, user] }),
    );
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!(payload.extra, r#"{"request":{"seed":1},"name":"ann"}"#);
    let changed = patched(&request, |payload| {
        payload.extra = text(&json!({ "request": { "seed": 2 }, "name": "ann" }));
        payload.text = "new".into();
    });
    let changed = changed.expect("written back");
    assert_eq!((&changed["seed"], changed.get("name")), (&json!(2), None));
    assert_eq!(changed["messages"][1], json!({ "role": "user", "content": "new", "name": "ann" }));
    for extra in [json!({ "request": {} }), json!({ "request": {}, "name": "eve" })] {
        let sentence = refused(&request, |payload| payload.extra = text(&extra));
        assert!(sentence.contains("`extra.name`"), "{sentence}");
    }
}

#[test]
fn a_result_that_no_plugin_changes_keeps_its_bytes() {
    let image = json!([{ "type": "image", "data": "x" }]);
    let request = ChatRequest::parse(Bytes::from(format!(
        r#"{{"model":"m","messages":[{{ "role":"tool", "content" : "caf\u00e9" }},{{"role":"tool","content":{image}}}]}}"#
    )))
    .expect("valid");
    let draft = RequestDraft::new(&request);
    let units: Vec<_> = request.current_units().iter().collect();
    for (unit, same) in [
        (units[0], r#""caf\u00e9""#.to_owned()),
        (units[0], "\"caf\u{e9}\"".to_owned()),
        (units[1], image.to_string()),
        (units[1], format!(" {image}\n")),
    ] {
        assert_eq!(draft.patched_result(unit, &Bytes::from(same)), request.unit_json(unit));
    }
}

#[test]
fn results_and_earlier_messages_are_replaced_in_their_places() {
    let body = Bytes::from_static(
        br#"{ "model":"m" , "messages": [ {"role":"user", "content":"old"},
        {"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]},
        { "role":"tool", "content" : "secret", "tool_call_id":"1" } , {"role":"user","content":"new"} ] }"#,
    );
    let request = ChatRequest::parse(body.clone()).expect("valid");
    let mut draft = RequestDraft::new(&request);
    let old = request.older_units().first().expect("the first message");
    let result = request.current_units().first().expect("the result");
    for (value, content) in [
        (r#""r""#, json!("r")),
        (r#"{"a": 1}"#, json!("{\"a\": 1}")),
        (r#"[{"type":"text","text":"r"}]"#, json!([{ "type": "text", "text": "r" }])),
        ("[]", json!("[]")),
        (r#"[{"type":"image"}]"#, json!("[{\"type\":\"image\"}]")),
    ] {
        let message = draft.patched_result(result, &Bytes::from_static(value.as_bytes()));
        let message: Value = serde_json::from_slice(&message).expect("JSON");
        assert_eq!(message["content"], content);
    }
    let before = draft.unit_payload(old);
    let same = draft.patched_unit(old, &before, &before).expect("nothing to do");
    assert_eq!(same, request.unit_json(old), "without a change it keeps its bytes");
    let with_tools = BeforeLlmRequestPayload { tools: "[]".into(), ..before.clone() };
    let same = draft.patched_unit(old, &before, &with_tools).expect("nothing to do");
    assert_eq!(same, request.unit_json(old), "other changes are none of the message");
    assert_eq!(
        (before.text.as_str(), &before.messages, &before.extra),
        ("old", &Bytes::new(), &Bytes::new())
    );
    // A plugin that always sets a system prompt does so in the main call.
    let after =
        BeforeLlmRequestPayload { text: "o".into(), system_prompt: Some("s".into()), ..before.clone() };
    let message = draft.patched_unit(old, &before, &after).expect("a text");
    draft.replace_unit(old, &message);
    draft.remove_content(result, "removed");
    draft.set_model("other");
    let changed =
        str::from_utf8(&body).expect("UTF-8").replace("\"old\"", "\"o\"").replace("secret", "removed");
    assert_eq!(draft.render(), changed.replace(r#""model":"m""#, r#""model":"other""#));
    assert!(draft.is_changed());
    let messages: Value = serde_json::from_slice(&draft.main_payload().messages).expect("JSON");
    assert_eq!((&messages[0]["content"], &messages[2]["content"]), (&json!("o"), &json!("removed")));
}

#[test]
fn another_model_is_no_change_of_a_plugin() {
    let request = conversation(&json!([{ "role": "user", "content": "hi" }]));
    let mut draft = RequestDraft::new(&request);
    draft.set_model("m");
    assert_eq!(draft.render().as_ptr(), request.body().as_ptr(), "the same model is no edit");
    draft.set_model("o\"ther");
    assert!(!draft.is_changed());
    let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    assert_eq!(body["model"], "o\"ther");
}
