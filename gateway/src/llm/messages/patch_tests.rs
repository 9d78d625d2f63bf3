use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media, media::Source};
use serde_json::{Value, json};

use super::{
    MessagesRequest, RequestDraft,
    draft_tests::{call, conversation, image_block, message, parse, request, result, text, text_block},
};
use crate::llm::format::{FormatDraft as _, FormatRequest as _, PatchError};

/// The body after a change of the main payload.
fn patched(
    request: &MessagesRequest,
    patch: impl FnOnce(&mut BeforeLlmRequestPayload),
) -> Result<Value, PatchError> {
    let mut draft = RequestDraft::new(request);
    let before = draft.main_payload();
    let mut after = before.clone();
    patch(&mut after);
    draft.apply_main(&before, &after)?;
    assert_eq!(draft.is_changed(), before != after);
    MessagesRequest::parse(draft.render()).expect("still a request");
    Ok(serde_json::from_slice(&draft.render()).expect("JSON"))
}

/// The messages after a change of the main payload.
fn messages(messages: &Value, patch: impl FnOnce(&mut BeforeLlmRequestPayload)) -> Value {
    patched(&conversation(messages), patch).expect("it can be written back")["messages"].take()
}

fn refused(request: &MessagesRequest, patch: impl FnOnce(&mut BeforeLlmRequestPayload)) -> String {
    patched(request, patch).expect_err("it can't be written back").to_string()
}

fn image(url: &str) -> Media {
    Media { mime_type: "image/*".to_owned(), filename: None, source: Some(Source::Url(url.to_owned())) }
}

#[test]
fn without_a_user_message_in_the_current_turn_there_is_no_text_to_change() {
    let given = json!([
        message("user", "old"),
        message("assistant", json!([call("1")])),
        message("user", json!([result("1")])),
    ]);
    let request = conversation(&given);
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!((payload.text.as_str(), payload.system_prompt), ("", None));
    assert_eq!(payload.messages, given.to_string());
    assert!(refused(&request, |payload| payload.text = "new".into()).contains("no message of the user"));
    assert!(
        refused(&request, |payload| payload.images.push(image("https://a.test/"))).contains("no message")
    );
}

#[test]
fn the_first_text_block_takes_the_text_and_the_mark_of_the_others() {
    let mark = |ttl: &str| json!({ "type": "ephemeral", "ttl": ttl });
    let marked = |text: &str, ttl: &str| json!({ "type": "text", "text": text, "cache_control": mark(ttl) });
    let cited = json!({ "type": "text", "text": "a", "citations": [{ "cited_text": "a" }] });
    let photo = image_block("https://a.test/");
    let user = |content: Value| json!([message("user", content)]);
    for (given, new, expected) in [
        (
            json!([photo, cited, marked("b", "5m"), marked("c", "1h")]),
            "new",
            json!([photo, marked("new", "1h")]),
        ),
        (json!([marked("a", "5m"), marked("b", "1h")]), "new", json!([marked("new", "5m")])),
        (json!([photo]), "new", json!([text_block("new"), photo])),
        (json!([text_block("a"), photo, text_block("b")]), "", json!([photo])),
        (json!([text_block("a")]), "", json!("[removed]")),
        (json!("a"), "new", json!("new")),
    ] {
        assert_eq!(messages(&user(given), |payload| payload.text = new.into()), user(expected));
    }
}

#[test]
fn a_changed_text_keeps_the_results_of_its_message_in_their_places() {
    let old = r#"{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}},{"type":"tool_use","id":"2","name":"f","input":{}}]},
        {"role":"user", "content":[ {"type":"text","text":"a"} , {"type":"tool_result","tool_use_id":"1"} , {"type":"text","text":"b"}, {"tool_use_id":"2", "type":"tool_result"} ]}]}"#;
    let request = parse(old);
    for (new, from, to) in [
        (
            "new",
            r#"{"type":"text","text":"a"} , {"type":"tool_result","tool_use_id":"1"} , {"type":"text","text":"b"},"#,
            r#"{"type":"text","text":"new"} , {"type":"tool_result","tool_use_id":"1"},"#,
        ),
        (
            "",
            r#" {"type":"text","text":"a"} , {"type":"tool_result","tool_use_id":"1"} , {"type":"text","text":"b"},"#,
            r#" {"type":"tool_result","tool_use_id":"1"},"#,
        ),
    ] {
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let after = BeforeLlmRequestPayload { text: new.into(), ..before.clone() };
        draft.apply_main(&before, &after).expect("written back");
        assert_eq!(draft.render(), old.replace(from, to));
    }
    let changed =
        patched(&request, |payload| payload.images.push(image("https://a.test/"))).expect("written back");
    let kinds: Vec<&Value> = changed["messages"][1]["content"]
        .as_array()
        .expect("blocks")
        .iter()
        .map(|block| &block["type"])
        .collect();
    assert_eq!(kinds, ["text", "tool_result", "text", "image", "tool_result"]);
    let photo = image_block("https://a.test/");
    let calls = message("assistant", json!([call("1")]));
    let given = json!([calls, message("user", json!([photo, result("1"), text_block("a")]))]);
    let expected = json!([calls, message("user", json!([result("1"), text_block("a")]))]);
    assert_eq!(messages(&given, |payload| payload.images.clear()), expected);
}

#[test]
fn the_system_prompt_goes_to_the_member_system() {
    let mark = json!({ "type": "ephemeral" });
    let user = message("user", "hi");
    let with = |system: Option<Value>, leading: &[Value]| {
        let messages: Vec<&Value> = leading.iter().chain([&user]).collect();
        let mut body = json!({ "model": "m", "messages": messages });
        if let Some(system) = system {
            body["system"] = system;
        }
        body
    };
    let blocks = json!([text_block("a"), { "type": "text", "text": "b", "cache_control": mark }]);
    let one = json!([{ "type": "text", "text": "new", "cache_control": mark }]);
    let leading = [message("system", "c"), message("system", "d")];
    for (system, leading, expected) in [
        (None, &[][..], json!("new")),
        (None, &leading, json!("new")),
        (Some(json!(null)), &[], json!("new")),
        (Some(json!("a")), &leading, json!("new")),
        (Some(blocks), &leading, one),
        (Some(json!([])), &[], json!([text_block("new")])),
    ] {
        let request = request(&with(system, leading));
        let changed = patched(&request, |payload| payload.system_prompt = Some("new".into()));
        assert_eq!(changed.expect("written back"), with(Some(expected), &[]));
        let prompt = RequestDraft::new(&request).main_payload().system_prompt;
        if prompt.is_some_and(|prompt| !prompt.is_empty()) {
            let removed = patched(&request, |payload| payload.system_prompt = Some(String::new()));
            assert_eq!(removed.expect("written back"), with(None, &[]));
        }
    }
}

#[test]
fn a_changed_system_prompt_is_sent_as_it_is() {
    let texts = json!([text_block("a"), text_block("b")]);
    let list = [message("system", texts.clone()), message("user", texts.clone())];
    let request = request(&json!({ "model": "m", "system": texts, "messages": list }));
    let mut draft = RequestDraft::new(&request);
    draft.break_lines();
    let before = draft.main_payload();
    let after = BeforeLlmRequestPayload { system_prompt: Some("new".into()), ..before.clone() };
    draft.apply_main(&before, &after).expect("written back");
    let broken = message("user", json!([text_block("a\n"), text_block("b")]));
    let expected = json!({ "model": "m", "system": [text_block("new")], "messages": [broken] });
    let body: Value = serde_json::from_slice(&draft.render()).expect("JSON");
    assert_eq!(body, expected);
}

#[test]
fn the_message_of_the_text_goes_back_before_those_that_followed_it() {
    let given = json!([
        message("system", "s"),
        message("user", "1"),
        message("assistant", "2"),
        message("user", "3"),
        message("system", "4"),
        message("assistant", "prefill"),
    ]);
    let rest = [message("assistant", "2"), message("system", "5"), message("assistant", "prefill")];
    let patch = |payload: &mut BeforeLlmRequestPayload| {
        payload.messages = text(&json!([message("user", "summary"), rest[0], rest[1], rest[2]]));
        payload.text = "new".into();
        payload.system_prompt = Some("t".into());
    };
    let expected = json!([message("user", "summary"), rest[0], message("user", "new"), rest[1], rest[2]]);
    assert_eq!(messages(&given, patch), expected);
    let short = |payload: &mut BeforeLlmRequestPayload| payload.messages = text(&json!([]));
    let only_user = json!([message("user", "1"), message("system", "2")]);
    assert!(refused(&conversation(&only_user), short).contains("has 0 messages, and 1 must"));
    let request = conversation(&json!([message("system", "s")]));
    let more = |payload: &mut BeforeLlmRequestPayload| {
        payload.system_prompt = Some("t".into());
        payload.messages = text(&json!([message("user", "hi")]));
    };
    let expected = json!([message("system", "t"), message("user", "hi")]);
    assert_eq!(patched(&request, more).expect("written back")["messages"], expected);
    assert!(refused(&request, |payload| payload.system_prompt = None).contains("No message is left"));
}

#[test]
fn the_message_of_the_text_keeps_its_place_among_the_models_messages() {
    let (old, answer, prefill) =
        (message("user", "1"), message("assistant", "2"), message("assistant", "prefill"));
    let (main, late) = (message("user", "3"), message("system", "4"));
    let flaw = "its place among the model's messages";
    for (given, list) in [
        (json!([old, answer, main, late]), json!([old, answer])),
        (json!([old, answer, main, late, prefill]), json!([old, answer, prefill])),
        (json!([old, answer, main, prefill]), json!([old, answer, prefill, late])),
    ] {
        let sentence = refused(&conversation(&given), |payload| payload.messages = text(&list));
        assert!(sentence.contains(flaw), "{sentence}");
    }
    let given = json!([old, answer, main, late, prefill]);
    let left = messages(&given, |payload| payload.messages = text(&json!([answer, late, prefill])));
    assert_eq!(left, json!([answer, main, late, prefill]));
}

#[test]
fn the_message_of_the_text_keeps_its_results_where_plugins_change_messages() {
    let given = json!([
        message("user", "old"),
        message("assistant", json!([call("1")])),
        message("user", json!([text_block("a"), result("1"), text_block("b")])),
    ]);
    let redacted = json!({ "type": "tool_result", "tool_use_id": "1", "content": "redacted" });
    let with = |first: &str, last: Value| json!([message("user", first), given[1], last]);
    for (left, expected) in [
        (message("user", json!([result("1")])), given[2].clone()),
        (
            message("user", json!([redacted])),
            message("user", json!([redacted, text_block("a"), text_block("b")])),
        ),
        (message("user", json!([])), message("user", json!([text_block("a"), text_block("b")]))),
    ] {
        let changed = messages(&given, |payload| payload.messages = text(&with("o", left)));
        assert_eq!(changed, with("o", expected));
    }
    for left in [
        message("user", "text"),
        message("user", json!([result("1"), text_block("more")])),
        message("system", json!([result("1")])),
    ] {
        let sentence = refused(&conversation(&given), |payload| payload.messages = text(&with("o", left)));
        assert!(sentence.contains("`messages/2` must have the results"), "{sentence}");
    }
}

#[test]
fn thoughts_of_the_model_stay_and_its_texts_change() {
    let thinking =
        r#"{ "role":"assistant","content":[{"type":"thinking","thinking":"caf\u00e9","signature":"c2ln"}]}"#;
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"old"}},{thinking},{{"role":"user","content":"hi"}}]}}"#
    );
    let request = parse(&body);
    let mut draft = RequestDraft::new(&request);
    let before = draft.main_payload();
    let written_anew: Value = serde_json::from_slice(&before.messages).expect("JSON");
    let list = json!([message("user", "o"), written_anew[1]]);
    let after = BeforeLlmRequestPayload { messages: text(&list), ..before.clone() };
    draft.apply_main(&before, &after).expect("other white space is no change");
    assert!(str::from_utf8(&draft.render()).expect("UTF-8").contains(thinking), "it keeps its bytes");
    let answer = &written_anew[1];
    let mut other = answer.clone();
    other["content"][0]["thinking"] = json!("cafe");
    for (list, flaw) in [
        (json!([message("user", "o"), other]), "`messages/1` is the model's"),
        (json!([answer, answer]), "`messages/1` is the model's"),
        (json!([message("user", "o")]), "lacks a message"),
    ] {
        let sentence = refused(&request, |payload| payload.messages = text(&list));
        assert!(sentence.contains(flaw), "{sentence}");
    }
}

#[test]
fn messages_of_a_plugin_must_have_the_shape_of_a_requests() {
    let request = conversation(&json!([message("user", "hi")]));
    for (list, flaw) in [
        (json!({}), "must be an array"),
        (json!([1]), "`messages/0`"),
        (json!([message("root", "")]), "`messages/0/role`"),
        (json!([{ "role": "user" }]), "`messages/0/content`"),
    ] {
        let sentence = refused(&request, |payload| payload.messages = text(&list));
        assert!(sentence.contains(flaw), "{sentence}");
    }
}

#[test]
fn media_are_removed_replaced_and_added() {
    let user = |content: Value| json!([message("user", content)]);
    let (a, b, c) = ("https://a.test/", "https://b.test/", "https://c.test/");
    let marked = |url: &str| {
        let mut block = image_block(url);
        block["cache_control"] = json!({ "type": "ephemeral" });
        block
    };
    let unseen = json!({ "type": "image", "source": { "type": "file", "file_id": "f" } });
    let given = user(json!([image_block(a), text_block("t"), unseen, marked(b), image_block(c)]));
    let left = messages(&given, |payload| drop(payload.images.remove(0)));
    assert_eq!(left, user(json!([text_block("t"), unseen, marked(b), image_block(c)])));
    let new = "https://new.test/";
    let replaced = messages(&given, |payload| payload.images[1] = image(new));
    assert_eq!(replaced, user(json!([image_block(a), text_block("t"), unseen, marked(new), image_block(c)])));
    let plain = messages(&user(json!("t")), |payload| payload.images.push(image(a)));
    assert_eq!(plain, user(json!([text_block("t"), image_block(a)])));
    let only = messages(&user(json!([image_block(a)])), |payload| payload.images.clear());
    assert_eq!(only, user(json!("[removed]")));
    let file =
        Media { mime_type: "application/pdf".into(), filename: None, source: Some(Source::Url(a.into())) };
    let added = messages(&user(json!("")), |payload| payload.files.push(file.clone()));
    assert_eq!(added, user(json!([{ "type": "document", "source": { "type": "url", "url": a } }])));
    let request = conversation(&user(json!("t")));
    assert!(refused(&request, |payload| payload.images.push(file.clone())).contains("`application/pdf`"));
}

#[test]
fn without_tools_the_choice_of_a_tool_goes_too() {
    let tool = |name: &str| json!({ "name": name, "input_schema": {} });
    let body = |tools: Value, choice: Value| json!({ "model": "m", "messages": [message("user", "hi")], "tools": tools, "tool_choice": choice });
    let both = json!([tool("a"), tool("b")]);
    let named = json!({ "type": "tool", "name": "b" });
    for (choice, left, keeps_choice) in [
        (&named, json!([]), false),
        (&named, json!([tool("a")]), false),
        (&named, json!([tool("b")]), true),
        (&json!({ "type": "any" }), json!([tool("c")]), true),
    ] {
        let changed =
            patched(&request(&body(both.clone(), choice.clone())), |payload| payload.tools = text(&left));
        let mut expected = body(left.clone(), choice.clone());
        let members = expected.as_object_mut().expect("an object");
        members.retain(|name, _| {
            (name != "tool_choice" || keeps_choice) && (name != "tools" || left != json!([]))
        });
        assert_eq!(changed.expect("written back"), expected);
    }
    let request = request(&body(both, named));
    assert!(refused(&request, |payload| payload.tools = text(&json!([1]))).contains("Tool 0"));
}

#[test]
fn members_are_changed_added_and_removed_through_extra() {
    let messages = json!([message("user", "hi")]);
    let body = json!({ "model": "m", "messages": messages, "system": "s", "max_tokens": 1, "top_p": 1 });
    let extra = |members: Value| text(&json!({ "request": members }));
    let changed =
        patched(&request(&body), |payload| payload.extra = extra(json!({ "max_tokens": 2, "top_k": 3 })));
    let expected = json!({ "model": "m", "messages": messages, "system": "s", "max_tokens": 2, "top_k": 3 });
    assert_eq!(changed.expect("written back"), expected);
    for (extra, flaw) in [
        (extra(json!({ "model": "other" })), "`model`"),
        (extra(json!({ "messages": [] })), "`messages`"),
        (extra(json!({ "system": "other" })), "`system`"),
        (extra(json!({ "tools": [] })), "`tools`"),
        (extra(json!({ "stream": true })), "`stream`"),
        (text(&json!({})), "an object `request`"),
        (text(&json!({ "request": {}, "name": "n" })), "only these members in a model call: `request`"),
    ] {
        let sentence = refused(&request(&body), |payload| payload.extra = extra);
        assert!(sentence.contains(flaw), "{sentence}");
    }
}

#[test]
fn the_first_message_takes_the_system_prompt_where_no_other_messages_are() {
    let leading = [message("system", json!([text_block("a"), text_block("b")])), message("system", "c")];
    for system in [json!(null), json!("secret")] {
        let body = json!({ "model": "m", "system": system, "messages": leading });
        let changed = patched(&request(&body), |payload| payload.system_prompt = Some("new".into()));
        let changed = changed.expect("written back");
        assert_eq!(changed["messages"], json!([message("system", json!([text_block("new")]))]));
        assert_eq!(
            changed.get("system"),
            system.is_null().then_some(&json!(null)),
            "it was in the old prompt"
        );
    }
}
