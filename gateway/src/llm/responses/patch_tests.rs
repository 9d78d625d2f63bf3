use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media, media::Source};
use serde_json::{Value, json};

use super::{
    RequestDraft, ResponsesRequest,
    draft_tests::{
        answer, call, conversation, image_part, message, parse, reasoning, rendered, request, result, text,
        text_part,
    },
};
use crate::llm::format::{FormatDraft as _, FormatRequest as _, PatchError};

/// The body after a change of the main payload.
fn patched(
    request: &ResponsesRequest,
    patch: impl FnOnce(&mut BeforeLlmRequestPayload),
) -> Result<Value, PatchError> {
    let mut draft = RequestDraft::new(request);
    let before = draft.main_payload();
    let mut after = before.clone();
    patch(&mut after);
    draft.apply_main(&before, &after)?;
    assert_eq!(draft.is_changed(), before != after);
    ResponsesRequest::parse(draft.render()).expect("still a request");
    Ok(rendered(&draft))
}

/// The items after a change of the main payload.
fn items(items: &Value, patch: impl FnOnce(&mut BeforeLlmRequestPayload)) -> Value {
    patched(&conversation(items), patch).expect("it can be written back")["input"].take()
}

fn refused(request: &ResponsesRequest, patch: impl FnOnce(&mut BeforeLlmRequestPayload)) -> String {
    patched(request, patch).expect_err("it can't be written back").to_string()
}

fn image(url: &str) -> Media {
    Media { mime_type: "image/*".to_owned(), filename: None, source: Some(Source::Url(url.to_owned())) }
}

#[test]
fn without_a_user_message_in_the_current_turn_there_is_no_text_to_change() {
    let given = json!([message("user", "old"), call("1"), result("1")]);
    let request = conversation(&given);
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!((payload.text.as_str(), payload.system_prompt), ("", None));
    assert_eq!(payload.messages, given.to_string());
    assert!(refused(&request, |payload| payload.text = "new".into()).contains("no message of the user"));
    let added = |payload: &mut BeforeLlmRequestPayload| payload.images.push(image("https://a.test/"));
    assert!(refused(&request, added).contains("no message"));
}

#[test]
fn the_first_text_part_takes_the_text_and_the_mark_of_the_others() {
    let marked = |text: &str, mark: u8| json!({ "type": "input_text", "text": text, "prompt_cache_breakpoint": { "n": mark } });
    let photo = image_part("https://a.test/");
    let user = |content: Value| json!([message("user", content)]);
    for (given, new, expected) in [
        (
            json!([photo, text_part("a"), marked("b", 1), marked("c", 2)]),
            "new",
            json!([photo, marked("new", 2)]),
        ),
        (json!([marked("a", 1), text_part("b")]), "new", json!([marked("new", 1)])),
        (json!([photo]), "new", json!([text_part("new"), photo])),
        (json!([text_part("a"), photo, text_part("b")]), "", json!([text_part(""), photo])),
        (json!("a"), "new", json!("new")),
    ] {
        assert_eq!(items(&user(given), |payload| payload.text = new.into()), user(expected));
    }
}

#[test]
fn the_system_prompt_goes_to_the_instructions() {
    let user = message("user", "hi");
    let with = |instructions: Option<Value>, leading: &[Value]| {
        let items: Vec<&Value> = leading.iter().chain([&user]).collect();
        let mut body = json!({ "model": "m", "store": false, "input": items });
        if let Some(instructions) = instructions {
            body["instructions"] = instructions;
        }
        body
    };
    let leading = [message("system", "c"), message("developer", json!([text_part("d"), text_part("e")]))];
    for (instructions, leading) in [
        (None, &[][..]),
        (None, &leading),
        (Some(json!(null)), &[]),
        (Some(json!("a")), &leading),
        (Some(json!("a")), &[]),
    ] {
        let request = request(&with(instructions, leading));
        let changed = patched(&request, |payload| payload.system_prompt = Some("new".into()));
        assert_eq!(changed.expect("written back"), with(Some(json!("new")), &[]));
        let prompt = RequestDraft::new(&request).main_payload().system_prompt;
        if prompt.is_some() {
            let removed = patched(&request, |payload| payload.system_prompt = None);
            assert_eq!(removed.expect("written back"), with(None, &[]));
        }
    }
}

#[test]
fn the_message_of_the_text_goes_back_before_those_that_followed_it() {
    let given = json!([
        message("system", "s"),
        message("user", "1"),
        answer("2"),
        message("user", "3"),
        message("developer", "4"),
        message("assistant", "prefill"),
    ]);
    let rest = [answer("2"), message("system", "5"), message("assistant", "prefill")];
    let patch = |payload: &mut BeforeLlmRequestPayload| {
        payload.messages = text(&json!([message("user", "summary"), rest[0], rest[1], rest[2]]));
        payload.text = "new".into();
        payload.system_prompt = Some("t".into());
    };
    let expected = json!([message("user", "summary"), rest[0], message("user", "new"), rest[1], rest[2]]);
    assert_eq!(items(&given, patch), expected);
    let short = |payload: &mut BeforeLlmRequestPayload| payload.messages = text(&json!([]));
    let only_user = json!([message("user", "1"), message("system", "2")]);
    assert!(refused(&conversation(&only_user), short).contains("has 0 items, and 1 must"));
    let request = conversation(&json!([message("system", "s")]));
    let more = |payload: &mut BeforeLlmRequestPayload| {
        payload.system_prompt = Some("t".into());
        payload.messages = text(&json!([message("user", "hi")]));
    };
    let expected = json!([message("system", "t"), message("user", "hi")]);
    assert_eq!(patched(&request, more).expect("written back")["input"], expected);
    assert!(refused(&request, |payload| payload.system_prompt = None).contains("No message is left"));
}

#[test]
fn the_message_of_the_text_keeps_its_place_among_the_models_items() {
    let (old, said, prefill) = (message("user", "1"), call("2"), message("assistant", "prefill"));
    let (main, late) = (message("user", "3"), message("system", "4"));
    for (given, list) in [
        (json!([old, said, main, late]), json!([old, said])),
        (json!([old, said, main, late, prefill]), json!([old, said, prefill])),
        (json!([old, said, main, prefill]), json!([old, said, prefill, late])),
    ] {
        let sentence = refused(&conversation(&given), |payload| payload.messages = text(&list));
        assert!(sentence.contains("its place among the model's items"), "{sentence}");
    }
    let given = json!([old, said, main, late, prefill]);
    let left = items(&given, |payload| payload.messages = text(&json!([said, late, prefill])));
    assert_eq!(left, json!([said, main, late, prefill]));
}

#[test]
fn items_of_the_model_stay_and_their_texts_and_arguments_change() {
    let thoughts = r#"{ "type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"caf\u00e9"}],"encrypted_content":"c2Vh" }"#;
    let body = format!(
        r#"{{"model":"m","store":false,"input":[{{"role":"user","content":"old"}},{thoughts},{},{},{{"role":"user","content":"hi"}}]}}"#,
        call("1"),
        result("1")
    );
    let request = parse(&body);
    let mut draft = RequestDraft::new(&request);
    let before = draft.main_payload();
    let written_anew: Value = serde_json::from_slice(&before.messages).expect("JSON");
    let (thoughts_anew, call) = (&written_anew[1], &written_anew[2]);
    let mut other_call = call.clone();
    other_call["arguments"] = json!("{}");
    let list = json!([message("user", "o"), thoughts_anew, other_call, result("2")]);
    let after = BeforeLlmRequestPayload { messages: text(&list), ..before.clone() };
    draft.apply_main(&before, &after).expect("other white space is no change");
    let sent = draft.render();
    assert!(str::from_utf8(&sent).expect("UTF-8").contains(thoughts), "they keep their bytes");
    let left = rendered(&draft)["input"].take();
    assert_eq!((&left[0], &left[2], &left[3]), (&list[0], &list[2], &list[3]));
    let mut sealed = thoughts_anew.clone();
    sealed["encrypted_content"] = json!("other");
    for (list, flaw) in [
        (json!([sealed, call]), "`messages/0` is the model's"),
        (json!([call, thoughts_anew]), "`messages/0` is the model's"),
        (json!([thoughts_anew, call, call]), "`messages/2` is the model's"),
        (json!([thoughts_anew, result("1")]), "lacks an item"),
        (json!([thoughts_anew, call, answer("more")]), "`messages/2` is the model's"),
    ] {
        let sentence = refused(&request, |payload| payload.messages = text(&list));
        assert!(sentence.contains(flaw), "{sentence}");
    }
}

#[test]
fn items_of_a_plugin_must_have_the_shape_of_a_requests() {
    let request = conversation(&json!([message("user", "hi")]));
    for (list, flaw) in [
        (json!({}), "must be an array"),
        (json!([1]), "`messages/0`"),
        (json!([message("root", "")]), "`messages/0/role`"),
        (json!([message("tool", "")]), "`messages/0/role`"),
        (json!([{ "role": "user" }]), "`messages/0/content`"),
        (json!([{ "type": 1, "role": "user", "content": "" }]), "`messages/0/type`"),
    ] {
        let sentence = refused(&request, |payload| payload.messages = text(&list));
        assert!(sentence.contains(flaw), "{sentence}");
    }
}

#[test]
fn media_are_removed_replaced_and_added() {
    let user = |content: Value| json!([message("user", content)]);
    let (a, b, c) = ("https://a.test/", "https://b.test/", "https://c.test/");
    let detailed = |url: &str| json!({ "type": "input_image", "image_url": url, "detail": "high" });
    let unseen = json!({ "type": "input_image", "file_id": "f" });
    let given = user(json!([image_part(a), text_part("t"), unseen, detailed(b), image_part(c)]));
    let left = items(&given, |payload| drop(payload.images.remove(0)));
    assert_eq!(left, user(json!([text_part("t"), unseen, detailed(b), image_part(c)])));
    let new = "https://new.test/";
    let replaced = items(&given, |payload| payload.images[1] = image(new));
    assert_eq!(replaced, user(json!([image_part(a), text_part("t"), unseen, detailed(new), image_part(c)])));
    let plain = items(&user(json!("t")), |payload| payload.images.push(image(a)));
    assert_eq!(plain, user(json!([text_part("t"), image_part(a)])));
    let only = items(&user(json!([image_part(a)])), |payload| payload.images.clear());
    assert_eq!(only, user(json!("")));
    let file =
        Media { mime_type: "application/pdf".into(), filename: None, source: Some(Source::Url(a.into())) };
    let added = items(&user(json!("")), |payload| payload.files.push(file.clone()));
    assert_eq!(added, user(json!([{ "type": "input_file", "file_url": a }])));
    let request = conversation(&user(json!("t")));
    assert!(refused(&request, |payload| payload.images.push(file.clone())).contains("`application/pdf`"));
}

#[test]
fn the_choice_of_a_tool_goes_with_its_tool() {
    let function = |name: &str| json!({ "type": "function", "name": name, "parameters": {} });
    let named = |kind: &str, name: &str| json!({ "type": kind, "name": name });
    let allowed = |tools: Value| json!({ "type": "allowed_tools", "mode": "auto", "tools": tools });
    let (a, b, c) = (function("a"), function("b"), named("custom", "c"));
    let shell = json!({ "type": "shell", "environment": { "type": "local" } });
    let space = json!({ "type": "namespace", "name": "s", "tools": [function("d"), function("e")] });
    let less = json!({ "type": "namespace", "name": "s", "tools": [function("e")] });
    let mcp = json!({ "type": "mcp", "server_label": "l", "server_url": "https://a.test/" });
    let all = json!([a, b, c, shell, space, mcp]);
    for (choice, left, keeps_choice) in [
        (named("function", "b"), json!([]), false),
        (json!("required"), json!([]), false),
        (json!("required"), json!([a]), true),
        (named("function", "b"), json!([a]), false),
        (named("function", "b"), json!([b]), true),
        (named("custom", "c"), json!([a, b]), false),
        (named("custom", "c"), json!([c]), true),
        (named("function", "c"), json!([a]), true),
        (json!({ "type": "shell" }), json!([a]), false),
        (json!({ "type": "shell" }), json!([shell]), true),
        (named("function", "d"), json!([space]), true),
        (named("function", "d"), json!([less]), false),
        (json!({ "type": "mcp", "server_label": "l", "name": "x" }), json!([a]), false),
        (json!({ "type": "mcp", "server_label": "l", "name": "x" }), json!([mcp]), true),
        (allowed(json!([named("function", "a"), named("custom", "c")])), json!([a, b, c]), true),
        (allowed(json!([named("function", "a"), named("custom", "c")])), json!([a, b]), false),
        (json!({ "type": "unknown" }), json!([a]), true),
    ] {
        let with = |tools: &Value| json!({ "model": "m", "store": false, "input": "hi", "tools": tools, "tool_choice": choice });
        let changed = patched(&request(&with(&all)), |payload| payload.tools = text(&left));
        let mut expected = with(&left);
        let members = expected.as_object_mut().expect("an object");
        members.retain(|name, _| {
            (name != "tool_choice" || keeps_choice) && (name != "tools" || left != json!([]))
        });
        assert_eq!(changed.expect("written back"), expected);
    }
    let request = request(&json!({ "model": "m", "input": "hi", "tools": all }));
    assert!(refused(&request, |payload| payload.tools = text(&json!([1]))).contains("Tool 0"));
    let changed = patched(&request, |payload| payload.tools = text(&json!([a]))).expect("written back");
    assert_eq!((&changed["tools"], changed.get("tool_choice")), (&json!([a]), None));
}

#[test]
fn members_are_changed_added_and_removed_through_extra() {
    let input = json!([message("user", "hi")]);
    let body = json!({ "model": "m", "input": input, "instructions": "s", "max_output_tokens": 1, "top_p": 1, "store": true });
    let extra = |members: Value| text(&json!({ "request": members }));
    let new = json!({ "max_output_tokens": 2, "metadata": {} });
    let changed = patched(&request(&body), |payload| payload.extra = extra(new));
    let expected = json!({ "model": "m", "input": input, "instructions": "s", "max_output_tokens": 2, "metadata": {}, "store": false });
    assert_eq!(changed.expect("written back"), expected);
    for (extra, flaw) in [
        (extra(json!({ "model": "other" })), "`model`"),
        (extra(json!({ "input": [] })), "`input`"),
        (extra(json!({ "instructions": "other" })), "`instructions`"),
        (extra(json!({ "tools": [] })), "`tools`"),
        (extra(json!({ "stream": true })), "`stream`"),
        (extra(json!({ "stream_options": {} })), "`stream_options`"),
        (extra(json!({ "store": true })), "`store`"),
        (text(&json!({})), "an object `request`"),
        (text(&json!({ "request": {}, "name": "n" })), "only these members in a model call: `request`"),
    ] {
        let sentence = refused(&request(&body), |payload| payload.extra = extra);
        assert!(sentence.contains(flaw), "{sentence}");
    }
}

/// What the shipped plugin `redact` makes of a conversation: texts, but for members of the formats.
fn masked(value: &Value, name: &str) -> Value {
    const FORMAT: [&str; 6] = ["data", "encrypted_content", "id", "name", "role", "type"];
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), masked(value, name))).collect()
        }
        Value::Array(values) => values.iter().map(|value| masked(value, name)).collect(),
        Value::String(text) if !FORMAT.contains(&name) && !name.ends_with("_id") => {
            json!(text.replace("ada@example.com", "[EMAIL]"))
        }
        other => other.clone(),
    }
}

#[test]
fn personal_data_anywhere_in_the_history_can_be_redacted() {
    let mail = "ada@example.com";
    let json_text = json!({ "to": mail }).to_string();
    let cited = json!({ "type": "output_text", "text": mail, "annotations": [{ "type": "url_citation", "title": mail, "url": "https://a.test/" }], "logprobs": [{ "token": mail, "bytes": [97], "top_logprobs": [] }] });
    let title = json!({ "type": "output_text", "text": "", "annotations": [{ "type": "url_citation", "title": mail }] });
    let refusal = json!({ "type": "refusal", "refusal": mail });
    let outcome = json!({ "type": "exit", "exit_code": 0 });
    let history = json!([
        { "type": "message", "role": "user", "content": [text_part(mail), image_part("https://a.test/?ada@example.com"), { "type": "input_file", "filename": mail, "file_data": "aGk=" }] },
        { "type": "reasoning", "id": "rs_1", "encrypted_content": "c2Vh", "summary": [{ "type": "summary_text", "text": mail }], "content": [{ "type": "reasoning_text", "text": mail }] },
        reasoning(mail, None),
        { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [cited, title, refusal] },
        message("assistant", mail),
        { "type": "function_call", "call_id": "1", "name": "f", "arguments": json_text },
        { "type": "custom_tool_call", "call_id": "2", "name": "g", "input": mail },
        { "type": "local_shell_call", "id": "l", "call_id": "3", "status": "completed", "action": { "type": "exec", "command": ["mail", mail], "env": { "TO": mail } } },
        { "type": "shell_call", "call_id": "4", "action": { "commands": [mail] }, "environment": { "type": "local", "skills": [{ "name": "s", "description": mail, "path": mail }] } },
        { "type": "apply_patch_call", "call_id": "5", "status": "completed", "operation": { "type": "create_file", "path": mail, "diff": mail } },
        { "type": "web_search_call", "id": "w", "status": "completed", "action": { "type": "search", "query": mail, "sources": [{ "url": mail }] } },
        { "type": "mcp_call", "id": "m", "name": "n", "server_label": "l", "arguments": json_text, "output": mail, "error": null },
        { "type": "function_call_output", "call_id": "1", "output": mail },
        { "type": "custom_tool_call_output", "call_id": "2", "output": [text_part(mail)] },
        { "type": "local_shell_call_output", "id": "3", "call_id": "3", "output": json_text },
        { "type": "shell_call_output", "call_id": "4", "output": [{ "stdout": mail, "stderr": mail, "outcome": outcome }] },
        { "type": "apply_patch_call_output", "call_id": "5", "status": "failed", "output": mail },
        message("developer", mail),
        message("user", "now"),
    ]);
    for store in [false, true] {
        let request = request(&json!({ "model": "m", "store": store, "input": history }));
        let redacted = |payload: &mut BeforeLlmRequestPayload| {
            let messages: Value = serde_json::from_slice(&payload.messages).expect("JSON");
            payload.messages = text(&masked(&messages, ""));
        };
        let sent = patched(&request, redacted).expect("written back");
        assert!(!sent.to_string().contains(mail), "{sent}");
        assert!(sent.to_string().contains("rs_1"), "sealed thoughts stay");
        let expected = history.as_array().expect("items").len() - 1;
        assert_eq!(sent["input"].as_array().map(Vec::len), Some(expected));
    }
}

#[test]
fn the_first_message_takes_the_system_prompt_where_no_other_messages_are() {
    let parts = |text: &str| json!([text_part(text), image_part("https://a.test/")]);
    let leading = [message("developer", parts("a")), message("system", "b")];
    for instructions in [json!(null), json!("secret")] {
        let body = json!({ "model": "m", "store": false, "instructions": instructions, "input": leading });
        let changed = patched(&request(&body), |payload| payload.system_prompt = Some("new".into()));
        let changed = changed.expect("written back");
        assert_eq!(changed["input"], json!([message("developer", parts("new"))]));
        assert_eq!(
            changed.get("instructions"),
            instructions.is_null().then_some(&json!(null)),
            "it was in the old prompt"
        );
    }
}
