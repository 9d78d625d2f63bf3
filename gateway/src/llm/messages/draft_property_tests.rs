//! What holds for every request and its draft.

use bytes::Bytes;
use hookgate_proto::types::v1::BeforeLlmRequestPayload;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{MessagesRequest, RequestDraft};
use crate::llm::{
    format::{FormatDraft as _, FormatRequest as _},
    request_view::RequestView as _,
    unit::{Unit, UnitKind},
};

/// White space that may stand between the tokens of JSON.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "  \t"])
}

fn text_block() -> impl Strategy<Value = Value> {
    (any::<String>(), any::<bool>()).prop_map(|(text, is_marked)| match is_marked {
        true => json!({ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } }),
        false => json!({ "text": text, "type": "text" }),
    })
}

fn block() -> impl Strategy<Value = Value> {
    let url = |host: String| json!({ "type": "url", "url": format!("https://{host}.test") });
    prop_oneof![
        text_block(),
        "[a-c]".prop_map(move |host| json!({ "type": "image", "source": url(host) })),
        "[a-c]".prop_map(move |host| json!({ "type": "document", "title": "t", "source": url(host) })),
        Just(
            json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "hi" } })
        ),
        Just(json!({ "type": "search_result", "title": "t", "content": [] })),
        any::<String>()
            .prop_map(|content| json!({ "type": "tool_result", "tool_use_id": "1", "content": content })),
        Just(json!({ "tool_use_id": "2", "type": "tool_result" })),
    ]
}

fn content() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::String),
        prop::collection::vec(block(), 0..6).prop_map(Value::Array)
    ]
}

/// A message whose content has white space everywhere.
fn message() -> impl Strategy<Value = String> {
    let role = prop::sample::select(vec!["system", "user", "user", "assistant"]);
    let text = prop_oneof![
        any::<String>().prop_map(Value::String),
        prop::collection::vec(text_block(), 0..3).prop_map(Value::Array)
    ];
    (role, content(), text, space()).prop_map(|(role, content, text, space)| {
        let content = if role == "user" { content } else { text };
        let content = match content {
            Value::Array(blocks) => {
                let blocks: Vec<String> =
                    blocks.iter().map(|block| format!("{space}{block}{space}")).collect();
                format!("[{}]", blocks.join(","))
            }
            other => other.to_string(),
        };
        format!("{{{space}\"content\"{space}:{space}{content},{space}\"role\":\"{role}\"{space}}}")
    })
}

fn system() -> impl Strategy<Value = Option<Value>> {
    prop::option::of(prop_oneof![
        any::<String>().prop_map(Value::String),
        prop::collection::vec(text_block(), 0..3).prop_map(Value::Array),
        Just(Value::Null),
    ])
}

fn member() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!([1, {}])),
        Just(Value::Null)
    ]
}

/// A request whose JSON has white space everywhere.
fn body() -> impl Strategy<Value = String> {
    let members = prop::collection::btree_map("[a-e]\\PC{0,4}", member(), 0..4);
    (prop::collection::vec(message(), 1..7), system(), members, space(), any::<bool>()).prop_map(
        |(messages, system, members, space, model_first)| {
            let mut written: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}{space}:{space}{value}", Value::from(name.as_str())))
                .collect();
            written.extend(system.map(|system| format!("\"system\":{space}{system}")));
            let messages: Vec<String> =
                messages.iter().map(|message| format!("{space}{message}{space}")).collect();
            written.insert(written.len() / 2, format!("\"messages\"{space}:[{}]", messages.join(",")));
            let place = if model_first { 0 } else { written.len() };
            written.insert(place, format!("\"model\":{space}\"m\""));
            format!("{space}{{{space}{}{space}}}{space}", written.join(&format!("{space},{space}")))
        },
    )
}

fn parse(body: &[u8]) -> MessagesRequest {
    MessagesRequest::parse(Bytes::copy_from_slice(body)).expect("a valid request")
}

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("JSON")
}

/// What plugins see of the request that a draft renders.
fn seen_after(draft: &RequestDraft<'_>) -> BeforeLlmRequestPayload {
    RequestDraft::new(&parse(&draft.render())).main_payload()
}

/// The members that only a change of members may touch.
fn settings(json: &[u8]) -> Map<String, Value> {
    let Value::Object(mut members) = value(json) else { panic!("an object") };
    members.remove("messages");
    members.remove("system");
    members
}

fn units(request: &MessagesRequest) -> impl Iterator<Item = &Unit> {
    request.older_units().iter().chain(request.current_units())
}

/// What plugins see after a change. A message of which nothing is left says so, because providers refuse it otherwise.
fn seen_without_note(draft: &RequestDraft<'_>, after: &BeforeLlmRequestPayload) -> BeforeLlmRequestPayload {
    let mut seen = seen_after(draft);
    if after.text.is_empty() && after.images.is_empty() && after.files.is_empty() && seen.text == "[removed]"
    {
        seen.text.clear();
    }
    seen
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
        prop_assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
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
        let is_result = |block: &Value| block["type"] == "tool_result";
        let other = match other {
            Value::Array(blocks) => Value::Array(blocks.into_iter().filter(|block| !is_result(block)).collect()),
            other => other,
        };
        let mut draft = RequestDraft::new(&request);
        let json = json!({ "role": "user", "content": other });
        draft.replace_unit(unit, &json.to_string().into());
        let rendered = draft.render();
        let (old, new) = (value(body.as_bytes()), value(&rendered));
        // The mark for the provider's cache goes to the last block.
        let unmarked = |mut block: Value| {
            block.as_object_mut().into_iter().for_each(|block| drop(block.remove("cache_control")));
            block
        };
        let content = |body: &Value| body["messages"][unit.message()]["content"].clone();
        let split = |content: Value| -> (Vec<Value>, Vec<Value>) {
            let Value::Array(blocks) = content else { return (Vec::new(), vec![json!({ "type": "text", "text": content })]) };
            blocks.into_iter().partition(is_result)
        };
        let (results, _) = split(content(&old));
        prop_assert_eq!(&split(content(&new)).0, &results);
        let (_, mut expected) = split(other.clone());
        let is_empty = |content: &Value| content == &json!("") || content == &json!([]);
        match (is_empty(&other), results.is_empty()) {
            (true, false) => expected.clear(),
            (true, true) if !is_empty(&content(&old)) => {
                expected = vec![json!({ "type": "text", "text": "[removed]" })];
            }
            _ => {}
        }
        let replaced = split(content(&new)).1.into_iter().map(unmarked).collect::<Vec<_>>();
        prop_assert_eq!(replaced, expected.into_iter().map(unmarked).collect::<Vec<_>>());
        for (place, message) in new["messages"].as_array().expect("messages").iter().enumerate() {
            prop_assert!(place == unit.message() || *message == old["messages"][place]);
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
        let old = request.message_text(main);
        let place = old.as_ptr().addr() - request.body().as_ptr().addr();
        // The bytes before and after the message stay the same.
        prop_assert!(rendered.starts_with(&body.as_bytes()[..place]));
        prop_assert!(rendered.ends_with(&body.as_bytes()[place + old.len()..]));
        let changed = parse(&rendered);
        let is_left = changed.main_unit().is_some_and(|left| left.message() == main);
        // An emptied message of results is one of nothing but results.
        prop_assert!(is_left || text.is_empty());
        if is_left {
            prop_assert_eq!(seen_without_note(&draft, &after), after);
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
        let rendered = draft.render();
        let changed = parse(&rendered);
        if changed.main_unit().map(Unit::message) == request.main_unit().map(Unit::message) {
            prop_assert_eq!(seen_without_note(&draft, &after), after);
        }
        prop_assert_eq!(settings(&rendered), settings(body.as_bytes()));
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
        prop_assert_eq!(&value(&rendered)["system"], &value(body.as_bytes())["system"]);
    }

    #[test]
    fn members_change_through_extra_and_nothing_else_does(
        body in body(), changes in prop::collection::btree_map("[a-e]\\PC{0,4}", member(), 0..4),
    ) {
        let request = parse(body.as_bytes());
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        after.extra = json!({ "request": changes }).to_string().into();
        draft.apply_main(&before, &after).expect("written back");
        let rendered = draft.render();
        let mut expected: Map<String, Value> = changes.into_iter().collect();
        expected.insert("model".to_owned(), json!("m"));
        prop_assert_eq!(settings(&rendered), expected);
        for name in ["messages", "system"] {
            prop_assert_eq!(&value(&rendered)[name], &value(body.as_bytes())[name]);
        }
    }
}
