//! What holds for every request and its draft.

use bytes::Bytes;
use hookgate_proto::types::v1::BeforeLlmRequestPayload;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{RequestDraft, ResponsesRequest};
use crate::llm::{
    format::{FormatDraft as _, FormatRequest as _},
    request_view::RequestView as _,
    unit::{Unit, UnitKind},
};

/// White space that may stand between the tokens of JSON.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "  \t"])
}

fn part() -> impl Strategy<Value = Value> {
    let image = |host: String| json!({ "image_url": format!("https://{host}.test"), "type": "input_image" });
    let file = |host: String| json!({ "type": "input_file", "file_url": format!("https://{host}.test"), "filename": "f" });
    prop_oneof![
        any::<String>().prop_map(|text| json!({ "type": "input_text", "text": text })),
        any::<String>().prop_map(
            |text| json!({ "text": text, "prompt_cache_breakpoint": { "mode": "explicit" }, "type": "input_text" })
        ),
        "[a-c]".prop_map(image),
        "[a-c]".prop_map(file),
        Just(json!({ "type": "input_image", "file_id": "unseen" })),
    ]
}

fn content() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::String),
        prop::collection::vec(part(), 0..5).prop_map(Value::Array)
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["system", "developer", "user", "user"]);
    (role, content(), any::<bool>()).prop_map(|(role, content, is_typed)| match is_typed {
        true => json!({ "type": "message", "content": content, "role": role }),
        false => json!({ "role": role, "content": content }),
    })
}

fn model_item() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(|text| json!({ "role": "assistant", "content": text })),
        (any::<String>(), any::<String>()).prop_map(|(text, title)| json!({
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "final_answer",
            "content": [{ "type": "output_text", "text": text, "annotations": [{ "title": title, "start_index": 0 }] }, { "type": "refusal", "refusal": title }],
        })),
        (any::<String>(), "[ab]{1,2}").prop_map(|(text, sealed)| json!({
            "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }], "id": "rs_1", "encrypted_content": sealed,
        })),
        any::<String>().prop_map(
            |args| json!({ "type": "function_call", "call_id": "1", "name": "f", "arguments": args })
        ),
        any::<String>().prop_map(
            |input| json!({ "type": "custom_tool_call", "call_id": "2", "name": "g", "input": input })
        ),
        any::<String>().prop_map(
            |command| json!({ "type": "shell_call", "call_id": "3", "action": { "commands": [command], "timeout_ms": 1.5 } })
        ),
        any::<String>()
            .prop_map(|query| json!({ "type": "web_search_call", "id": "w", "action": { "query": query } })),
    ]
}

fn result() -> impl Strategy<Value = Value> {
    prop_oneof![
        content().prop_map(
            |output| json!({ "type": "function_call_output", "call_id": "1", "output": output })
        ),
        any::<String>().prop_map(
            |output| json!({ "type": "custom_tool_call_output", "call_id": "2", "output": output })
        ),
        any::<String>().prop_map(
            |stdout| json!({ "type": "shell_call_output", "call_id": "3", "output": [{ "stdout": stdout, "stderr": "", "outcome": { "type": "timeout" } }] })
        ),
    ]
}

/// An item with white space between its members.
fn item() -> impl Strategy<Value = String> {
    let item = prop_oneof![3 => message(), 3 => model_item(), 1 => result()];
    (item, space()).prop_map(|(item, space)| {
        let members = item.as_object().expect("an object").iter();
        let members: Vec<String> = members
            .map(|(name, value)| format!("{space}{}{space}:{space}{value}", Value::from(name.as_str())))
            .collect();
        format!("{{{}{space}}}", members.join(","))
    })
}

fn member() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!([1, {}])),
        Just(Value::Null)
    ]
}

/// A string or a list of items.
fn input() -> impl Strategy<Value = String> {
    let list = (prop::collection::vec(item(), 1..8), space()).prop_map(|(items, space)| {
        let items: Vec<String> = items.iter().map(|item| format!("{space}{item}{space}")).collect();
        format!("[{}]", items.join(","))
    });
    prop_oneof![1 => any::<String>().prop_map(|text| Value::from(text).to_string()), 6 => list]
}

/// A request whose JSON has white space everywhere.
fn body_with(store: impl Strategy<Value = Option<Value>>) -> impl Strategy<Value = String> {
    let members = prop::collection::btree_map("[a-e]\\PC{0,4}", member(), 0..4);
    let instructions =
        prop::option::of(prop_oneof![any::<String>().prop_map(Value::String), Just(Value::Null)]);
    (input(), instructions, store, members, space(), any::<bool>()).prop_map(
        |(input, instructions, store, members, space, model_first)| {
            let mut written: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}{space}:{space}{value}", Value::from(name.as_str())))
                .collect();
            written.extend(instructions.map(|text| format!("\"instructions\":{space}{text}")));
            written.extend(store.map(|store| format!("\"store\":{space}{store}")));
            written.insert(written.len() / 2, format!("\"input\"{space}:{space}{input}"));
            let place = if model_first { 0 } else { written.len() };
            written.insert(place, format!("\"model\":{space}\"m\""));
            format!("{space}{{{space}{}{space}}}{space}", written.join(&format!("{space},{space}")))
        },
    )
}

/// A request that has the provider keep nothing.
fn body() -> impl Strategy<Value = String> {
    body_with(Just(Some(json!(false))))
}

/// Also with thoughts that the provider would have to have kept.
fn any_body() -> impl Strategy<Value = String> {
    let store = prop::option::of(prop_oneof![any::<bool>().prop_map(Value::Bool), Just(Value::Null)]);
    body_with(store)
        .prop_map(|body| body.replace(r#""encrypted_content":"a""#, r#""encrypted_content":null"#))
}

fn parse(body: &[u8]) -> ResponsesRequest {
    ResponsesRequest::parse(Bytes::copy_from_slice(body)).expect("a valid request")
}

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("JSON")
}

/// The items of a body; a string is the message of a user.
fn items(json: &[u8]) -> Vec<Value> {
    match value(json)["input"].take() {
        Value::Array(items) => items,
        text => vec![json!({ "role": "user", "content": text })],
    }
}

/// What plugins see of the request that a draft renders.
fn seen_after(draft: &RequestDraft<'_>) -> BeforeLlmRequestPayload {
    RequestDraft::new(&parse(&draft.render())).main_payload()
}

/// The members that only a change of members may touch.
fn settings(json: &[u8]) -> Map<String, Value> {
    let Value::Object(mut members) = value(json) else { panic!("an object") };
    members.remove("input");
    members.remove("instructions");
    members
}

fn units(request: &ResponsesRequest) -> impl Iterator<Item = &Unit> {
    request.older_units().iter().chain(request.current_units())
}

/// A value with another text in place of all its texts, but for those of the format.
fn masked(value: &Value, name: &str) -> Value {
    let is_format =
        matches!(name, "encrypted_content" | "id" | "name" | "role" | "type" | "status" | "phase");
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), masked(value, name))).collect()
        }
        Value::Array(values) => values.iter().map(|value| masked(value, name)).collect(),
        Value::String(_) if !is_format && !name.ends_with("_id") => json!("[MASK]"),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn without_a_change_the_body_is_the_same_memory(body in body()) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let payload = draft.main_payload();
        draft.apply_main(&payload, &payload).expect("nothing to do");
        prop_assert!(!draft.is_changed());
        prop_assert_eq!(draft.render().as_ptr(), request.original().as_ptr());
    }

    #[test]
    fn nothing_is_kept_and_nothing_else_changes(body in any_body()) {
        let request = parse(body.as_bytes());
        let sent = RequestDraft::new(&request).render();
        let mut expected = settings(body.as_bytes());
        expected.insert("store".to_owned(), json!(false));
        prop_assert_eq!(settings(&sent), expected);
        prop_assert_eq!(&value(&sent)["instructions"], &value(body.as_bytes())["instructions"]);
        let is_kept = |item: &Value| {
            let is_sealed = item["encrypted_content"].as_str().is_some_and(|sealed| !sealed.is_empty());
            item["type"] != "reasoning" || is_sealed
        };
        let all = items(body.as_bytes());
        let kept: Vec<Value> = all.iter().filter(|item| is_kept(item)).cloned().collect();
        prop_assert_eq!(items(&sent), kept);
        prop_assert_eq!(value(&sent)["input"].is_string(), value(body.as_bytes())["input"].is_string());
    }

    #[test]
    fn units_in_place_of_themselves_change_no_byte(body in body()) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        for unit in units(&request) {
            draft.replace_unit(unit, &request.unit_json(unit));
        }
        prop_assert_eq!(draft.render(), body);
        prop_assert_eq!(draft.main_payload(), RequestDraft::new(&request).main_payload());
    }

    #[test]
    fn a_replaced_unit_is_exactly_that_of_the_request(body in body(), other in content(), index in any::<prop::sample::Index>()) {
        let request = parse(body.as_bytes());
        let all: Vec<&Unit> = units(&request).filter(|unit| unit.kind() == UnitKind::User).collect();
        if all.is_empty() {
            return Ok(());
        }
        let unit = all[index.index(all.len())];
        let mut draft = RequestDraft::new(&request);
        let json: Bytes = json!({ "role": "user", "content": other }).to_string().into();
        draft.replace_unit(unit, &json);
        let (old, new) = (items(body.as_bytes()), items(&draft.render()));
        prop_assert_eq!(old.len(), new.len());
        for (place, item) in new.iter().enumerate() {
            if place == unit.message() {
                // Only the mark for the provider's cache is that of the old one.
                let lasting = |json: String| ResponsesRequest::lasting_json(json.into());
                prop_assert_eq!(value(&lasting(item.to_string())), value(&ResponsesRequest::lasting_json(json.clone())));
            } else {
                prop_assert_eq!(item, &old[place]);
            }
        }
    }

    #[test]
    fn a_changed_text_is_exactly_the_text_of_the_request(body in body(), text in any::<String>()) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        after.text.clone_from(&text);
        let Some(main) = request.main_unit().map(Unit::message) else {
            prop_assert_eq!(draft.apply_main(&before, &after).is_ok(), text.is_empty());
            return Ok(());
        };
        draft.apply_main(&before, &after).expect("written back");
        let rendered = draft.render();
        prop_assert_eq!(seen_after(&draft), after);
        if !request.has_string_input() {
            let old = request.message_text(main);
            let place = old.as_ptr().addr() - request.body().as_ptr().addr();
            // The bytes before and after the message stay the same.
            prop_assert!(rendered.starts_with(&body.as_bytes()[..place]));
            prop_assert!(rendered.ends_with(&body.as_bytes()[place + old.len()..]));
        }
    }

    #[test]
    fn a_changed_system_prompt_is_exactly_that_of_the_request(body in body(), text in any::<String>()) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        after.system_prompt = Some(text).filter(|text| !text.is_empty());
        if draft.apply_main(&before, &after).is_err() {
            prop_assert_eq!(request.leading(), request.message_count());
            return Ok(());
        }
        prop_assert_eq!(settings(&draft.render()), settings(body.as_bytes()));
        prop_assert_eq!(seen_after(&draft), after);
    }

    #[test]
    fn removed_media_are_gone_and_the_others_stay(body in body(), keeps in prop::collection::vec(any::<bool>(), 5)) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        for list in [&mut after.images, &mut after.files] {
            let mut keeps = keeps.iter().copied();
            list.retain(|_| keeps.next().unwrap_or(true));
        }
        draft.apply_main(&before, &after).expect("written back");
        prop_assert_eq!(seen_after(&draft), after);
        prop_assert_eq!(settings(&draft.render()), settings(body.as_bytes()));
    }

    #[test]
    fn changed_messages_are_put_together_again(body in body(), added in prop::collection::vec(content(), 0..3)) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        let Value::Array(mut messages) = value(&before.messages) else { panic!("an array") };
        for content in added {
            messages.insert(0, json!({ "role": "user", "content": content }));
        }
        after.messages = Value::Array(messages).to_string().into();
        draft.apply_main(&before, &after).expect("written back");
        let rendered = draft.render();
        let seen = seen_after(&draft);
        if request.main_unit().is_some() {
            prop_assert_eq!(&seen.text, &before.text);
            prop_assert_eq!(value(&seen.messages), value(&after.messages));
        }
        prop_assert_eq!(&seen.system_prompt, &before.system_prompt);
        prop_assert_eq!(settings(&rendered), settings(body.as_bytes()));
    }

    #[test]
    fn no_text_of_the_history_is_out_of_reach(body in any_body()) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let list = masked(&value(&before.messages), "");
        let after = BeforeLlmRequestPayload { messages: list.to_string().into(), ..before.clone() };
        draft.apply_main(&before, &after).expect("written back");
        let keeps_all = !before.messages.windows(9).any(|text| text == b"reasoning");
        if request.main_unit().is_none() || !keeps_all {
            return Ok(());
        }
        // What quotes a text is gone with it.
        let without_quotes = |mut list: Value| {
            for part in list.as_array_mut().into_iter().flatten().filter_map(|item| item["content"].as_array_mut()).flatten() {
                part.as_object_mut().map(|part| part.remove("annotations"));
            }
            list
        };
        prop_assert_eq!(without_quotes(value(&seen_after(&draft).messages)), without_quotes(list));
    }

    #[test]
    fn members_change_through_extra_and_nothing_else_does(
        body in any_body(), changes in prop::collection::btree_map("[a-e]\\PC{0,4}", member(), 0..4),
    ) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let unchanged = draft.render();
        let before = draft.main_payload();
        let mut after = before.clone();
        after.extra = json!({ "request": changes }).to_string().into();
        draft.apply_main(&before, &after).expect("written back");
        let rendered = draft.render();
        let mut expected: Map<String, Value> = changes.into_iter().collect();
        expected.insert("model".to_owned(), json!("m"));
        expected.insert("store".to_owned(), json!(false));
        prop_assert_eq!(settings(&rendered), expected);
        for name in ["input", "instructions"] {
            prop_assert_eq!(&value(&rendered)[name], &value(&unchanged)[name]);
        }
    }
}
