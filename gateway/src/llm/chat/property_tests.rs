//! What holds for every request and answer.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{ChatAnswer, ChatRequest, RequestDraft};
use crate::llm::{
    answer_parts::part_payload,
    format::{CallEdit, ChoiceEdit, FormatAnswer as _, FormatDraft as _, FormatRequest as _},
    request_view::RequestView as _,
    unit::Unit,
};

/// White space that may stand between the tokens of JSON.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "  \t"])
}

fn content() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        any::<String>().prop_map(|text| json!({ "type": "text", "text": text })),
        "[a-c]".prop_map(
            |host| json!({ "type": "image_url", "image_url": { "url": format!("https://{host}.test") } })
        ),
        Just(json!({ "type": "file", "file": { "file_data": "aGk=", "filename": "f" } })),
    ];
    prop_oneof![
        any::<String>().prop_map(Value::String),
        prop::collection::vec(part, 0..5).prop_map(Value::Array)
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["system", "developer", "user", "user", "assistant"]);
    (role, content()).prop_map(|(role, content)| json!({ "role": role, "content": content }))
}

fn member() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i32>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!([1, {}])),
        Just(json!({ "a": null })),
        Just(Value::Null),
    ]
}

/// A request whose JSON has white space everywhere, and its members.
fn body() -> impl Strategy<Value = String> {
    let members = prop::collection::btree_map("[a-e]\\PC{0,4}", member(), 0..4);
    (prop::collection::vec(message(), 1..7), members, space(), any::<bool>()).prop_map(
        |(messages, members, space, model_first)| {
            let mut written: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{}{space}:{space}{value}", Value::from(name.as_str())))
                .collect();
            let messages: Vec<String> =
                messages.iter().map(|message| format!("{space}{message}{space}")).collect();
            written.insert(written.len() / 2, format!("\"messages\"{space}:[{}]", messages.join(",")));
            let place = if model_first { 0 } else { written.len() };
            written.insert(place, format!("\"model\":{space}\"m\""));
            format!("{space}{{{space}{}{space}}}{space}", written.join(&format!("{space},{space}")))
        },
    )
}

fn parse(body: &str) -> ChatRequest {
    ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect("a valid request")
}

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("JSON")
}

fn members_without_messages(json: &[u8]) -> Map<String, Value> {
    let Value::Object(mut members) = value(json) else { panic!("an object") };
    members.remove("messages");
    members
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn without_a_change_the_body_is_the_same_memory(body in body()) {
        let request = parse(&body);
        let mut draft = RequestDraft::new(&request);
        let payload = draft.main_payload();
        draft.apply_main(&payload, &payload).expect("nothing to do");
        prop_assert!(!draft.is_changed());
        prop_assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
    }

    #[test]
    fn a_changed_text_is_exactly_the_text_of_the_request(body in body(), text in any::<String>()) {
        let request = parse(&body);
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
        let changed = ChatRequest::parse(rendered.clone()).expect("still valid");
        prop_assert_eq!(RequestDraft::new(&changed).main_payload(), after);
        // The bytes before and after the message stay the same.
        let old = request.message_text(main);
        let place = old.as_ptr().addr() - request.body().as_ptr().addr();
        prop_assert!(rendered.starts_with(&body.as_bytes()[..place]));
        prop_assert!(rendered.ends_with(&body.as_bytes()[place + old.len()..]));
    }

    #[test]
    fn a_changed_system_prompt_is_exactly_that_of_the_request(body in body(), text in any::<String>()) {
        let request = parse(&body);
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        after.system_prompt = Some(text.clone()).filter(|text| !text.is_empty());
        if draft.apply_main(&before, &after).is_err() {
            prop_assert_eq!(request.leading(), request.message_count());
            return Ok(());
        }
        let rendered = draft.render();
        let changed = ChatRequest::parse(rendered.clone()).expect("still valid");
        prop_assert_eq!(RequestDraft::new(&changed).main_payload(), after);
        prop_assert_eq!(members_without_messages(&rendered), members_without_messages(body.as_bytes()));
    }

    #[test]
    fn removed_media_are_gone_and_the_others_stay(body in body(), keeps in prop::collection::vec(any::<bool>(), 5)) {
        let request = parse(&body);
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        for list in [&mut after.images, &mut after.files] {
            let mut keeps = keeps.iter().copied();
            list.retain(|_| keeps.next().unwrap_or(true));
        }
        draft.apply_main(&before, &after).expect("written back");
        let rendered = draft.render();
        let changed = ChatRequest::parse(rendered).expect("still valid");
        prop_assert_eq!(RequestDraft::new(&changed).main_payload(), after);
    }

    #[test]
    fn changed_messages_are_put_together_again(body in body(), added in prop::collection::vec(content(), 0..3)) {
        let request = parse(&body);
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        let Value::Array(mut messages) = value(&before.messages) else { panic!("an array") };
        // An answered turn in front: it changes neither the system prompt nor the current turn.
        for content in added {
            messages.splice(0..0, [json!({ "role": "user", "content": content }), json!({ "role": "assistant" })]);
        }
        after.messages = Value::Array(messages).to_string().into();
        draft.apply_main(&before, &after).expect("written back");
        let rendered = draft.render();
        let changed = ChatRequest::parse(rendered.clone()).expect("still valid");
        let seen = RequestDraft::new(&changed).main_payload();
        if request.main_unit().is_some() {
            prop_assert_eq!(&seen.text, &before.text);
            prop_assert_eq!(value(&seen.messages), value(&after.messages));
        }
        prop_assert_eq!(&seen.system_prompt, &before.system_prompt);
        prop_assert_eq!(members_without_messages(&rendered), members_without_messages(body.as_bytes()));
    }

    #[test]
    fn members_change_through_extra_and_nothing_else_does(
        body in body(), changes in prop::collection::btree_map("[a-e]\\PC{0,4}", member(), 0..4),
    ) {
        let request = parse(&body);
        let mut draft = RequestDraft::new(&request);
        let before = draft.main_payload();
        let mut after = before.clone();
        let extra = json!({ "request": changes });
        after.extra = extra.to_string().into();
        draft.apply_main(&before, &after).expect("written back");
        let rendered = draft.render();
        let mut expected: Map<String, Value> = changes.into_iter().collect();
        expected.insert("model".to_owned(), json!("m"));
        prop_assert_eq!(members_without_messages(&rendered), expected);
        prop_assert_eq!(&value(&rendered)["messages"], &value(body.as_bytes())["messages"]);
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = ChatRequest::parse(bytes.clone().into());
        let _ = ChatAnswer::parse(bytes.into(), 1);
    }

    #[test]
    fn calls_are_kept_changed_or_taken_out_one_by_one(
        fates in prop::collection::vec(0_u8..3, 0..6), content in prop::option::of("[a-z]{0,4}"), space in space(),
        unknown in prop::sample::select(vec!["", "\"new\":[],"]),
    ) {
        let call = |index: usize| json!({ "id": index.to_string(), "type": "function",
                                          "function": { "name": "f", "arguments": format!("[{index}]") } });
        let calls: Vec<String> = (0..fates.len()).map(|index| format!("{space}{}{space}", call(index))).collect();
        let body = format!(
            "{space}{{{space}{unknown}\"choices\":[{space}{{\"message\":{{\"content\":{},{space}\"tool_calls\":[{}]}},\"finish_reason\":\"tool_calls\"}}]}}{space}",
            json!(content), calls.join(",")
        );
        let answer = ChatAnswer::parse(body.clone().into(), 1).expect("valid");
        let edits = fates.iter().enumerate().map(|(index, fate)| match fate {
            0 => CallEdit::Keep,
            1 => CallEdit::Patch { name: "g".into(), args: format!("[\"{index}\"]").into() },
            _ => CallEdit::Note(format!("no {index}")),
        });
        let edit = ChoiceEdit { calls: edits.collect(), ..ChoiceEdit::default() };
        let rendered = answer.render(&[edit], false, true).body;
        if fates.iter().all(|fate| *fate == 0) {
            prop_assert!(value(&rendered).get("new").is_none());
            if unknown.is_empty() {
                prop_assert_eq!(&rendered[..], body.as_bytes());
            }
            return Ok(());
        }
        let changed = ChatAnswer::parse(rendered, 1).expect("still valid");
        let notes = fates.iter().enumerate().filter(|(_, fate)| **fate == 2).map(|(index, _)| format!("no {index}"));
        let lines: Vec<String> = content.into_iter().filter(|text| !text.is_empty()).chain(notes).collect();
        prop_assert_eq!(part_payload(&changed, 0, 0).content, lines.join("\n"));
        let left: Vec<_> = fates.iter().enumerate().filter(|(_, fate)| **fate < 2).collect();
        prop_assert_eq!(changed.calls(0), left.len());
        for (place, (index, fate)) in left.iter().enumerate() {
            let call = changed.call_payload(0, place).expect("JSON");
            let expected = if **fate == 0 { ("f", format!("[{index}]")) } else { ("g", format!("[\"{index}\"]")) };
            prop_assert_eq!((call.tool_name.as_str(), &call.args[..]), (expected.0, expected.1.as_bytes()));
        }
        let stop = if left.is_empty() { "stop" } else { "tool_calls" };
        prop_assert_eq!(part_payload(&changed, 0, 0).stop_reason, Some(stop.to_owned()));
    }
}
