use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media, media::Source};
use serde_json::{Value, json};

use super::{RequestDraft, ResponsesRequest};
use crate::llm::{
    format::{FormatDraft as _, FormatRequest as _},
    request_view::RequestView as _,
    unit::{Unit, UnitKind},
};

pub(super) fn parse(body: &str) -> ResponsesRequest {
    ResponsesRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect("a valid request")
}

pub(super) fn request(body: &Value) -> ResponsesRequest {
    parse(&body.to_string())
}

pub(super) fn conversation(input: &Value) -> ResponsesRequest {
    request(&json!({ "model": "m", "store": false, "input": input }))
}

pub(super) fn text(json: &Value) -> Bytes {
    json.to_string().into()
}

pub(super) fn image_part(url: &str) -> Value {
    json!({ "type": "input_image", "image_url": url, "detail": "auto" })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

pub(super) fn message(role: &str, content: impl Into<Value>) -> Value {
    json!({ "role": role, "content": content.into() })
}

pub(super) fn answer(text: &str) -> Value {
    let part = json!({ "type": "output_text", "text": text, "annotations": [] });
    json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part] })
}

pub(super) fn call(id: &str) -> Value {
    json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "f", "arguments": r#"{"a":1}"# })
}

pub(super) fn result(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": format!("result {id}") })
}

pub(super) fn reasoning(summary: &str, sealed: Option<&str>) -> Value {
    let summary = json!([{ "type": "summary_text", "text": summary }]);
    json!({ "type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": sealed })
}

pub(super) fn rendered(draft: &RequestDraft<'_>) -> Value {
    serde_json::from_slice(&draft.render()).expect("JSON")
}

fn unit(request: &ResponsesRequest, index: usize) -> &Unit {
    request.older_units().iter().chain(request.current_units()).nth(index).expect("a unit")
}

#[test]
fn the_main_payload_has_each_part_of_the_request_once() {
    let request = parse(
        r#"{"model":"m","temperature": 1.50,"stream":false,"store":true,"stream_options":{},"tools":[ {"type":"function","name":"f"} ],"max_output_tokens":2,
            "instructions":"one","input":[
            {"role":"system","content":"two"},{"type":"message","role":"developer","content":[{"type":"input_text","text":"three"}]},
            {"role":"user","content":"old"},{"type":"reasoning","summary":[]},
            {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
            {"type":"function_call_output","call_id":"1" , "output":"r"},
            {"role":"user","content":[{"type":"input_text","text":"a"},
              {"type":"input_image","image_url":"data:image/png;base64,aGk="},{"type":"input_text","text":"b"},
              {"type":"input_file","filename":"f.pdf","file_data":"data:application/pdf;base64,aGk="}]},
            {"role":"developer","content":"late"},{"role":"assistant","content":"prefill"}]}"#,
    );
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!(payload.text, "a\nb");
    assert_eq!(payload.system_prompt.as_deref(), Some("one\n\ntwo\n\nthree"));
    assert_eq!(
        payload.messages,
        r#"[{"role":"user","content":"old"},{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1" , "output":"r"},{"role":"developer","content":"late"},{"role":"assistant","content":"prefill"}]"#
    );
    assert_eq!(payload.tools, r#"[ {"type":"function","name":"f"} ]"#);
    assert_eq!(payload.extra, r#"{"request":{"temperature":1.50,"max_output_tokens":2}}"#);
    let data = |mime_type: &str, filename: Option<&str>| Media {
        mime_type: mime_type.to_owned(),
        filename: filename.map(str::to_owned),
        source: Some(Source::Data(Bytes::from_static(b"hi"))),
    };
    assert_eq!(payload.images, [data("image/png", None)]);
    assert_eq!(payload.files, [data("application/pdf", Some("f.pdf"))]);
}

#[test]
fn a_string_is_shown_as_the_message_of_a_user() {
    let request = parse(r#"{"model":"m","input":"caf\u00e9"}"#);
    let payload = RequestDraft::new(&request).main_payload();
    assert_eq!((payload.text.as_str(), payload.system_prompt), ("caf\u{e9}", None));
    assert_eq!((payload.messages, payload.extra), (Bytes::from("[]"), Bytes::from(r#"{"request":{}}"#)));
}

#[test]
fn the_provider_is_always_told_to_keep_nothing() {
    for (members, expected) in [
        (r#""input":"hi""#, r#""input":"hi","store":false"#),
        (r#""store" : true, "input":"hi""#, r#""store" : false, "input":"hi""#),
        (r#""store":null,"input":[{"role":"user","content":"hi"}]"#, ""),
        (r#""store":"no","input": "h\u0069""#, ""),
        (r#""input":"hi", "store": false"#, "same"),
        (r#""input":[{"role":"user","content":"hi"}],"store":false"#, "same"),
    ] {
        let body = format!(r#"{{ "model":"m",{members} }}"#);
        let request = parse(&body);
        let draft = RequestDraft::new(&request);
        assert!(!draft.is_changed(), "{body}");
        let sent = draft.render();
        match expected {
            "same" => assert_eq!(sent.as_ptr(), request.original().as_ptr(), "{body}"),
            "" => {
                assert_eq!(sent, body.replace("null", "false").replace("\"no\"", "false"));
            }
            expected => assert_eq!(sent, body.replace(members, expected)),
        }
    }
}

#[test]
fn a_string_stays_a_string_unless_more_than_it_is_left() {
    let body = r#"{ "model":"m" , "input" : "old", "store":false}"#;
    let request = parse(body);
    let main = unit(&request, 0);
    let changed = |change: &dyn Fn(&mut RequestDraft<'_>)| {
        let mut draft = RequestDraft::new(&request);
        draft.break_lines();
        change(&mut draft);
        draft.render()
    };
    let patched = |patch: &dyn Fn(&mut BeforeLlmRequestPayload)| {
        changed(&|draft| {
            let before = draft.main_payload();
            let mut after = before.clone();
            patch(&mut after);
            draft.apply_main(&before, &after).expect("written back");
        })
    };
    assert_eq!(changed(&|draft| draft.set_model("n")), body.replace("\"m\"", "\"n\""));
    assert_eq!(changed(&|draft| draft.remove_content(main, "note")), body.replace("\"old\"", "\"note\""));
    assert_eq!(changed(&|draft| draft.replace_unit(main, &request.unit_json(main))), body);
    assert_eq!(patched(&|payload| payload.text = "a\"b".into()), body.replace("\"old\"", r#""a\"b""#));
    let image = Media { mime_type: "image/*".into(), filename: None, source: Some(Source::Url("u:".into())) };
    let with_image = patched(&|payload| payload.images = vec![image.clone()]);
    let parts = r#"[{"role":"user","content":[{"type":"input_text","text":"old"},{"type":"input_image","image_url":"u:","detail":"auto"}]}]"#;
    assert_eq!(with_image, body.replace("\"old\"", parts));
    let more = patched(&|payload| payload.messages = text(&json!([message("user", "more")])));
    let list = r#"[{"content":"more","role":"user"},{"role":"user","content":"old"}]"#;
    assert_eq!(more, body.replace("\"old\"", list));
    let named = r#"{"role":"user","content":"old","id":"i"}"#;
    let replaced = changed(&|draft| draft.replace_unit(main, &Bytes::from_static(named.as_bytes())));
    assert_eq!(replaced, body.replace("\"old\"", &format!("[{named}]")));
    let prompt = patched(&|payload| payload.system_prompt = Some("s".into()));
    assert_eq!(prompt, body.replace("false}", r#"false,"instructions":"s"}"#));
}

#[test]
fn thoughts_that_the_provider_would_have_to_have_kept_are_left_out() {
    let with_content =
        json!({ "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "t" }] });
    let items = json!([
        message("user", "a"),
        reasoning("kept by id", None),
        call("1"),
        result("1"),
        reasoning("sealed", Some("c2VhbGVk")),
        with_content,
        { "type": "reasoning", "id": "rs_2", "summary": [], "content": [], "encrypted_content": "" },
        answer("b"),
        message("user", "c"),
    ]);
    let kept = |items: &Value| -> Vec<Value> {
        let items = items.as_array().expect("items").iter().enumerate();
        items.filter(|(index, _)| !matches!(index, 1 | 6)).map(|(_, item)| item.clone()).collect()
    };
    for store in [json!(null), json!(true), json!(false)] {
        let request = request(&json!({ "model": "m", "store": store, "input": items }));
        let mut draft = RequestDraft::new(&request);
        assert_eq!(rendered(&draft)["input"], Value::Array(kept(&items)));
        let before = draft.main_payload();
        assert!(String::from_utf8_lossy(&before.messages).contains("kept by id"), "plugins see them");
        let mut list: Value = serde_json::from_slice(&before.messages).expect("JSON");
        list[0] = message("user", "other");
        let after = BeforeLlmRequestPayload { messages: text(&list), ..before.clone() };
        draft.apply_main(&before, &after).expect("written back");
        let mut expected = kept(&items);
        expected[0] = message("user", "other");
        assert_eq!(rendered(&draft)["input"], Value::Array(expected));
    }
    let only = conversation(&json!([reasoning("kept by id", None)]));
    let sent = rendered(&RequestDraft::new(&only))["input"].take();
    assert_eq!(sent, json!([]), "an id of something that is kept never goes out");
    let with_system = conversation(&json!([message("system", "s"), reasoning("kept by id", None)]));
    let sent = rendered(&RequestDraft::new(&with_system))["input"].take();
    assert_eq!(sent, json!([message("system", "s")]));
}

#[test]
fn text_parts_reach_the_model_on_lines_of_their_own() {
    let texts = |texts: &[&str]| {
        let mut parts: Vec<Value> = texts.iter().map(|text| text_part(text)).collect();
        parts.insert(1, image_part("https://a.test/"));
        Value::Array(parts)
    };
    let split = ["project mer", "cury", "a \u{2028}", "b\n", "c", "\n\"", "", "d"];
    let broken = ["project mer\n", "cury\n", "a \u{2028}\n", "b\n", "c", "\n\"\n", "\n", "d"];
    let output = |text: &str| json!({ "type": "output_text", "text": text });
    let said = message("assistant", json!([output("a"), output("b")]));
    let tool =
        json!({ "type": "function_call_output", "call_id": "1", "output": [text_part("a"), text_part("b")] });
    let request = conversation(&json!([
        message("developer", texts(&split)),
        message("user", texts(&split)),
        said,
        tool,
        message("system", texts(&["a", "b"])),
        message("user", texts(&["a", "b"])),
    ]));
    let mut draft = RequestDraft::new(&request);
    assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
    draft.break_lines();
    assert!(!draft.is_changed());
    let expected = json!([
        message("developer", texts(&broken)),
        message("user", texts(&broken)),
        said,
        tool,
        message("system", texts(&["a\n", "b"])),
        message("user", texts(&["a\n", "b"])),
    ]);
    assert_eq!(rendered(&draft)["input"], expected);
    draft.replace_unit(unit(&request, 0), &text(&message("user", texts(&["e", "f"]))));
    assert_eq!(rendered(&draft)["input"][1], message("user", texts(&["e\n", "f"])));
    let last = draft.main_payload();
    let mut patched = last.clone();
    patched.messages =
        text(&json!([message("user", texts(&["c", "d"])), said, tool, message("system", "s")]));
    draft.apply_main(&last, &patched).expect("written back");
    let left = json!([
        expected[0],
        message("user", texts(&["c\n", "d"])),
        said,
        tool,
        message("system", "s"),
        expected[5]
    ]);
    assert_eq!(rendered(&draft)["input"], left, "also where plugins changed the messages");
}

#[test]
fn results_and_texts_are_replaced_in_their_places() {
    let body = r#"{ "store":false,"model":"m" , "input": [ {"role":"user", "content":"old"},
        {"type":"function_call","call_id":"1","name":"f","namespace":"n","arguments":"{ \"a\":1}"} , {"type":"custom_tool_call","call_id":"2","name":"g","input":"raw"},
        { "type":"function_call_output","call_id":"1", "output" : "secret"} ,{"call_id":"2","type":"custom_tool_call_output","status":"incomplete","output":""}, {"role":"user","content": [ {"type":"input_text","text":"new"} ] } ] }"#;
    let request = parse(body);
    let (old, first, second, main) =
        (unit(&request, 0), unit(&request, 1), unit(&request, 2), unit(&request, 3));
    assert_eq!((first.kind(), main.kind()), (UnitKind::Result, UnitKind::User));
    let mut draft = RequestDraft::new(&request);
    let payload = draft.result_payload(first).expect("it has its call");
    assert_eq!((payload.tool_name.as_str(), payload.success), ("n.f", Some(true)));
    assert_eq!((&payload.args[..], &payload.result[..]), (&br#"{ "a":1}"#[..], &br#""secret""#[..]));
    let payload = draft.result_payload(second).expect("it has its call");
    assert_eq!((payload.success, &payload.args[..]), (Some(false), &br#""raw""#[..]));
    let before = draft.unit_payload(main);
    let only = (before.text.as_str(), &before.messages, &before.extra);
    assert_eq!(only, ("new", &Bytes::new(), &Bytes::new()));
    let tools =
        BeforeLlmRequestPayload { tools: "[]".into(), system_prompt: Some("s".into()), ..before.clone() };
    for after in [&before, &tools] {
        let same = draft.patched_unit(main, &before, after).expect("nothing to do");
        assert_eq!(same, request.unit_json(main), "other changes are none of the message");
    }
    let after = BeforeLlmRequestPayload { text: "other".into(), ..before.clone() };
    let changed = draft.patched_unit(main, &before, &after).expect("a text");
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
        .replace(r#""output":"""#, r#""output":"blocked""#)
        .replace(r#""text":"new""#, r#""text":"other""#);
    assert_eq!(draft.render(), expected);
    let before = draft.main_payload();
    assert_eq!(before.text, "other");
    let seen: Value = serde_json::from_slice(&before.messages).expect("JSON");
    assert_eq!((&seen[3]["output"], &seen[4]["output"]), (&json!("open"), &json!("blocked")));
    let after = BeforeLlmRequestPayload { text: "third".into(), ..before.clone() };
    draft.apply_main(&before, &after).expect("written back");
    assert_eq!(draft.render(), expected.replace(r#""text":"other""#, r#""text":"third""#));
}

#[test]
fn removed_content_leaves_a_note_in_the_form_of_its_item() {
    let mark = json!({ "mode": "explicit" });
    let marked = |text: &str| json!({ "type": "input_text", "text": text, "prompt_cache_breakpoint": mark });
    let form = |kind: &str, output: Value| json!({ "type": kind, "call_id": "1", "output": output });
    let shell = |stdout: &str, stderr: &str, code: u8| json!([{ "stdout": stdout, "stderr": stderr, "outcome": { "type": "exit", "exit_code": code } }]);
    let patch = json!({ "type": "apply_patch_call_output", "call_id": "1", "status": "completed" });
    let blocked_patch =
        json!({ "type": "apply_patch_call_output", "call_id": "1", "status": "failed", "output": "note" });
    let search = |tools: Value, status: &str| json!({ "type": "tool_search_output", "call_id": "1", "execution": "client", "tools": tools, "status": status });
    for (item, expected) in [
        (
            message("user", json!([text_part("a"), image_part("https://a.test/")])),
            message("user", json!([text_part("note")])),
        ),
        (message("user", json!([marked("a"), text_part("b")])), message("user", json!([marked("note")]))),
        (message("user", "a"), message("user", "note")),
        (form("function_call_output", json!("a")), form("function_call_output", json!("note"))),
        (form("function_call_output", json!([text_part("a")])), form("function_call_output", json!("note"))),
        (form("custom_tool_call_output", json!("a")), form("custom_tool_call_output", json!("note"))),
        (form("local_shell_call_output", json!("a")), form("local_shell_call_output", json!("note"))),
        (form("shell_call_output", shell("a", "", 0)), form("shell_call_output", shell("", "note", 1))),
        (patch, blocked_patch),
        (search(json!([{ "type": "custom", "name": "f" }]), "completed"), search(json!([]), "incomplete")),
    ] {
        let request = conversation(&json!([item]));
        let mut draft = RequestDraft::new(&request);
        draft.remove_content(unit(&request, 0), "note");
        assert_eq!(rendered(&draft)["input"], json!([expected]), "{item}");
        ResponsesRequest::parse(draft.render()).expect("still a request");
    }
}

#[test]
fn a_remembered_unit_gets_the_mark_for_the_providers_cache_back() {
    let marked = |text: &str, mark: u8| json!({ "type": "input_text", "text": text, "prompt_cache_breakpoint": { "n": mark } });
    let request = conversation(&json!([message("user", json!([marked("a", 1), marked("b", 2)]))]));
    let mut draft = RequestDraft::new(&request);
    let main = unit(&request, 0);
    let before = draft.unit_payload(main);
    let after = BeforeLlmRequestPayload { text: "new".into(), ..before.clone() };
    let remembered =
        ResponsesRequest::lasting_json(draft.patched_unit(main, &before, &after).expect("a text"));
    assert!(!String::from_utf8_lossy(&remembered).contains("prompt_cache_breakpoint"));
    draft.replace_unit(main, &remembered);
    assert_eq!(rendered(&draft)["input"], json!([message("user", json!([marked("new", 2)]))]));
}

#[test]
fn a_patched_result_has_the_form_of_its_item() {
    let output =
        |kind: &str, output: &str| format!(r#"{{ "type":"{kind}","call_id":"1", "output" : {output} }}"#);
    let wrote = r#"{"stdout":"a","stderr":"b","outcome":{"type":"timeout"},"x":1}"#;
    let wrapped =
        |text: &str| json!([{ "stdout": text, "stderr": "", "outcome": { "type": "exit", "exit_code": 0 } }]);
    let parts = json!([text_part("r"), image_part("https://a.test/"), { "type": "input_file", "file_url": "https://a.test/" }]);
    let (function, custom, local) =
        ("function_call_output", "custom_tool_call_output", "local_shell_call_output");
    let (shell, patch) = ("shell_call_output", "apply_patch_call_output");
    for (kind, result, expected) in [
        (function, r#""r""#.to_owned(), json!("r")),
        (custom, format!(" {parts}\n"), parts.clone()),
        (function, r#"{"a": 1}"#.to_owned(), json!("{\"a\": 1}")),
        (function, "[]".to_owned(), json!("[]")),
        (custom, "null".to_owned(), json!("null")),
        (function, r#"[{"type":"input_text"}]"#.to_owned(), json!("[{\"type\":\"input_text\"}]")),
        (
            function,
            r#"[{"type":"output_text","text":""}]"#.to_owned(),
            json!("[{\"type\":\"output_text\",\"text\":\"\"}]"),
        ),
        (function, r#"[{"type":"input_image"}]"#.to_owned(), json!("[{\"type\":\"input_image\"}]")),
        (local, r#""r""#.to_owned(), json!("r")),
        (local, parts.to_string(), json!(parts.to_string())),
        (patch, "[1]".to_owned(), json!("[1]")),
        (shell, r#""r""#.to_owned(), wrapped("r")),
        (shell, r#"{"a": 1}"#.to_owned(), wrapped("{\"a\": 1}")),
        (shell, r#"[{"stdout":"a"}]"#.to_owned(), wrapped("[{\"stdout\":\"a\"}]")),
        (shell, format!("[{wrote}]"), serde_json::from_str(&format!("[{wrote}]")).expect("JSON")),
        (shell, "[]".to_owned(), json!([])),
    ] {
        let old = if kind == shell { r#"[ {"stdout":"old"} ]"# } else { r#""caf\u00e9""# };
        let body = format!(r#"{{"model":"m","store":false,"input":[{}]}}"#, output(kind, old));
        let request = parse(&body);
        let draft = RequestDraft::new(&request);
        let patched = draft.patched_result(unit(&request, 0), &Bytes::from(result.clone()));
        let item: Value = serde_json::from_slice(&patched).expect("JSON");
        assert_eq!(item, json!({ "type": kind, "call_id": "1", "output": expected }), "{kind} {result}");
        let same: &[&str] = if kind == shell { &[old] } else { &[old, "\"caf\u{e9}\""] };
        for same in same {
            let patched = draft.patched_result(unit(&request, 0), &Bytes::copy_from_slice(same.as_bytes()));
            assert_eq!(patched, request.unit_json(unit(&request, 0)), "it keeps its bytes");
        }
    }
}

#[test]
fn a_patched_result_of_a_search_is_a_list_of_tools_or_no_request() {
    let found = |tools: Value| json!({ "type": "tool_search_output", "call_id": "1", "execution": "client", "tools": tools });
    let request = conversation(&json!([found(json!([{ "type": "custom", "name": "f" }]))]));
    let mut draft = RequestDraft::new(&request);
    let only = unit(&request, 0);
    assert_eq!(
        draft.patched_result(only, &text(&json!([{ "type": "custom", "name": "f" }]))),
        request.unit_json(only)
    );
    let fewer = draft.patched_result(only, &Bytes::from_static(b"[]"));
    draft.replace_unit(only, &fewer);
    assert_eq!(rendered(&draft)["input"], json!([found(json!([]))]));
    let said = draft.patched_result(only, &Bytes::from_static(br#""none""#));
    draft.replace_unit(only, &said);
    ResponsesRequest::parse(draft.render()).expect_err("no tools");
}

#[test]
fn a_result_without_a_value_stays_without_one() {
    let request =
        conversation(&json!([{ "type": "apply_patch_call_output", "call_id": "1", "status": "completed" }]));
    let draft = RequestDraft::new(&request);
    let same = draft.patched_result(unit(&request, 0), &Bytes::from_static(b"null"));
    assert_eq!(same, request.unit_json(unit(&request, 0)));
}

#[test]
fn a_result_without_its_call_has_no_payload() {
    let request = conversation(&json!([result("1")]));
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
    assert_eq!(rendered(&draft)["model"], "o\"ther");
}

#[test]
fn tens_of_thousands_of_members_and_results_are_changed_in_one_walk() {
    let members = |value: u32| -> serde_json::Map<String, Value> {
        (0..30_000).map(|index| (format!("member-{index}"), json!(value))).collect()
    };
    let ids: Vec<String> = (0..9_999).map(|index| index.to_string()).collect();
    let mut items: Vec<Value> = ids.iter().map(|id| call(id)).collect();
    items.extend(ids.iter().map(|id| result(id)));
    items.push(message("user", "hi"));
    let last = items.len() - 1;
    let mut body = members(1);
    body.insert("model".into(), json!("m"));
    body.insert("input".into(), json!(items));
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
    let changed = rendered(&draft);
    assert_eq!(
        (&changed["member-29999"], &changed["input"][last - 1]["output"], &changed["input"][last]),
        (&json!(2), &json!("no"), &message("user", "new"))
    );
}
