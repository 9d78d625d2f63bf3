//! What holds for every request.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::request::{MessagesRequest, Role};
use crate::llm::{
    format::FormatRequest,
    request_view::RequestView as _,
    unit::{Unit, UnitKind},
};

/// Any JSON, with the names that requests have.
fn any_json() -> impl Strategy<Value = Value> {
    let names = [
        "role",
        "content",
        "type",
        "text",
        "id",
        "name",
        "input",
        "tool_use_id",
        "is_error",
        "model",
        "messages",
        "system",
        "metadata",
        "user_id",
        "stream",
        "tools",
        "cache_control",
        "output_config",
        "format",
    ];
    let words = [
        "user",
        "assistant",
        "system",
        "text",
        "tool_result",
        "tool_use",
        "server_tool_use",
        "1",
        "_session_",
        "{\"session_id\":\"s\"}",
        "json_schema",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        prop::sample::select(words.to_vec()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let name = prop_oneof![9 => prop::sample::select(names.to_vec()).prop_map(str::to_owned), 1 => any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map(name, inner, 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn block() -> impl Strategy<Value = Value> {
    let id = prop::sample::select(vec!["1", "2", "é\"\\"]);
    let kind = prop::sample::select(vec![
        "tool_result",
        "tool_result",
        "tool_use",
        "server_tool_use",
        "text",
        "image",
    ]);
    (kind, id, any::<String>(), any_json()).prop_map(|(kind, id, text, json)| {
        json!({ "json": json, "type": kind, "id": id, "tool_use_id": id, "name": "f", "input": json, "text": text })
    })
}

fn message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        any::<String>().prop_map(Value::from),
        prop::collection::vec(block(), 0..5).prop_map(Value::Array),
    ];
    let role = prop::sample::select(vec!["user", "user", "assistant", "system"]);
    (role, content, any::<i8>())
        .prop_map(|(role, content, other)| json!({ "role": role, "content": content, "a": other }))
}

/// A request, and the same with white space between all tokens.
fn body() -> impl Strategy<Value = (Value, String)> {
    (prop::collection::vec(message(), 1..6), any::<bool>()).prop_map(|(messages, is_pretty)| {
        let body = json!({ "model": "m", "messages": messages });
        let text = if is_pretty { format!("{body:#}") } else { body.to_string() };
        (body, text)
    })
}

fn units(request: &MessagesRequest) -> impl Iterator<Item = &Unit> {
    request.older_units().iter().chain(request.current_units())
}

fn is_result(block: &Value) -> bool {
    block["type"] == "tool_result"
}

/// The units that a message should be: the block and the JSON of each.
fn expected_units(message: &Value) -> Vec<(Option<usize>, UnitKind, Value)> {
    let whole = |kind| vec![(None, kind, message.clone())];
    match (&message["role"], &message["content"]) {
        (role, _) if role == "assistant" => vec![],
        (role, _) if role == "system" => whole(UnitKind::System),
        (_, Value::Array(blocks)) => {
            let results = blocks.iter().enumerate().filter(|(_, block)| is_result(block));
            let mut units: Vec<_> =
                results.map(|(place, block)| (Some(place), UnitKind::Result, block.clone())).collect();
            let others: Vec<Value> = blocks.iter().filter(|block| !is_result(block)).cloned().collect();
            if !others.is_empty() {
                let mut rest = message.clone();
                rest["content"] = others.into();
                units.push((None, UnitKind::User, rest));
            }
            units
        }
        _ => whole(UnitKind::User),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_units_are_the_request_without_its_prompt_and_the_models_messages((value, text) in body()) {
        let request = MessagesRequest::parse(text.clone().into()).expect("valid");
        let messages = value["messages"].as_array().expect("an array");
        let leading = messages.iter().take_while(|message| message["role"] == "system").count();
        prop_assert_eq!(request.leading(), leading);
        let mut expected = Vec::new();
        for (index, message) in messages.iter().enumerate().skip(leading) {
            expected.extend(expected_units(message).into_iter().map(|(block, kind, json)| (index, block, kind, json)));
        }
        let seen: Vec<_> = units(&request)
            .map(|unit| {
                let json = serde_json::from_slice::<Value>(&request.unit_json(unit)).expect("JSON");
                (unit.message(), unit.block(), unit.kind(), json)
            })
            .collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn the_turns_are_cut_between_messages((_, text) in body()) {
        let request = MessagesRequest::parse(text.into()).expect("valid");
        let roles: Vec<_> = (0..request.message_count()).map(|message| request.role(message)).collect();
        let is_answered = |unit: &Unit| {
            let mut after = roles[unit.message()..].iter().map(|role| *role == Some(Role::Assistant));
            // A message of the model, and anything else behind it.
            after.any(|is_model| is_model) && after.any(|is_model| !is_model)
        };
        prop_assert!(request.older_units().iter().all(is_answered));
        prop_assert!(!request.current_units().iter().any(is_answered));
    }

    #[test]
    fn any_json_is_answered_without_a_panic(
        mut json in any_json(), messages in prop::collection::vec(any_json(), 0..4), is_whole in any::<bool>(),
    ) {
        if let (Some(members), true) = (json.as_object_mut(), is_whole) {
            members.insert("model".to_owned(), json!("m"));
            members.insert("messages".to_owned(), messages.into());
        }
        if let Ok(request) = MessagesRequest::parse(json.to_string().into()) {
            units(&request).for_each(|unit| drop(request.unit_json(unit)));
            let _ = (request.conversation(), request.expects_json(), request.results_have_calls());
        }
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = MessagesRequest::parse(bytes.into());
    }
}
