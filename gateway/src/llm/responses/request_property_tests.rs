//! What holds for every request.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    echoes::{echoes, event_with_echoes},
    marks::with_marks_of,
    request::{ResponsesRequest, Role},
};
use crate::llm::{
    format::FormatRequest,
    request_view::RequestView as _,
    unit::{Unit, UnitKind},
};

const NAMES: &[&str] = &[
    "role",
    "content",
    "type",
    "text",
    "id",
    "name",
    "arguments",
    "input",
    "call_id",
    "output",
    "status",
    "model",
    "instructions",
    "stream",
    "tools",
    "summary",
    "action",
    "operation",
    "execution",
    "stdout",
    "refusal",
    "namespace",
    "format",
    "prompt_cache_breakpoint",
    "response",
    "metadata",
    "user",
];

const WORDS: &[&str] = &[
    "user",
    "assistant",
    "developer",
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "tool_search_call",
    "tool_search_output",
    "client",
    "web_search_call",
    "input_text",
    "output_text",
    "refusal",
    "1",
    "completed",
    "failed",
    "json_schema",
    "response.created",
];

/// Any JSON, with the names that requests have.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        let name =
            prop_oneof![9 => prop::sample::select(NAMES).prop_map(str::to_owned), 1 => any::<String>()];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::btree_map(name, inner, 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn part() -> impl Strategy<Value = Value> {
    let kind =
        prop::sample::select(vec!["input_text", "output_text", "refusal", "input_image", "input_file"]);
    (kind, any::<String>(), prop::option::of(Just(json!({ "mode": "explicit" })))).prop_map(
        |(kind, text, mark)| {
            let mut part = json!({ "type": kind, "text": text, "refusal": text });
            if let Some(mark) = mark {
                part["prompt_cache_breakpoint"] = mark;
            }
            part
        },
    )
}

fn content() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::from),
        prop::collection::vec(part(), 0..4).prop_map(Value::Array),
    ]
}

/// An item, and the kind of the unit that it is behind the system prompt.
fn item() -> impl Strategy<Value = (Value, Option<UnitKind>)> {
    let message = (prop::sample::select(vec!["user", "user", "assistant", "system", "developer"]), content())
        .prop_map(|(role, content)| {
            let kind = match role {
                "user" => Some(UnitKind::User),
                "assistant" => None,
                _ => Some(UnitKind::System),
            };
            (json!({ "role": role, "content": content, "id": "m" }), kind)
        });
    let id = || prop::sample::select(vec!["1", "2", "é\"\\"]);
    let call = (prop::sample::select(vec!["function_call", "custom_tool_call"]), id(), any::<String>())
        .prop_map(|(kind, id, text)| {
            (json!({ "type": kind, "call_id": id, "name": "f", "arguments": text, "input": text }), None)
        });
    let result =
        (prop::sample::select(vec!["function_call_output", "custom_tool_call_output"]), id(), content())
            .prop_map(|(kind, id, output)| {
                (json!({ "type": kind, "call_id": id, "output": output }), Some(UnitKind::Result))
            });
    let other = (prop::sample::select(vec!["reasoning", "web_search_call", "x"]), any::<i8>())
        .prop_map(|(kind, other)| (json!({ "type": kind, "a": other }), None));
    prop_oneof![4 => message, 2 => call, 2 => result, 1 => other]
}

type Items = Vec<(Value, Option<UnitKind>)>;

/// A request, and the same with white space between all tokens.
fn body() -> impl Strategy<Value = (Items, String)> {
    (prop::collection::vec(item(), 1..8), any::<bool>()).prop_map(|(items, is_pretty)| {
        let list: Vec<&Value> = items.iter().map(|(item, _)| item).collect();
        let body = json!({ "model": "m", "input": list });
        let text = if is_pretty { format!("{body:#}") } else { body.to_string() };
        (items, text)
    })
}

fn units(request: &ResponsesRequest) -> impl Iterator<Item = &Unit> {
    request.older_units().iter().chain(request.current_units())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_units_are_the_request_without_its_prompt_and_the_models_items((items, text) in body()) {
        let request = ResponsesRequest::parse(text.into()).expect("valid");
        let leading = items.iter().take_while(|(_, kind)| *kind == Some(UnitKind::System)).count();
        prop_assert_eq!(request.leading(), leading);
        let behind = items.into_iter().enumerate().skip(leading);
        let expected: Vec<_> =
            behind.filter_map(|(index, (item, kind))| Some((index, None, kind?, item))).collect();
        let seen: Vec<_> = units(&request)
            .map(|unit| {
                let json = serde_json::from_slice::<Value>(&request.unit_json(unit)).expect("JSON");
                (unit.message(), unit.block(), unit.kind(), json)
            })
            .collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn the_turns_are_cut_between_items((_, text) in body()) {
        let request = ResponsesRequest::parse(text.into()).expect("valid");
        let roles: Vec<_> = (0..request.message_count()).map(|item| request.role(item)).collect();
        let is_answered = |unit: &Unit| {
            let mut after = roles[unit.message()..].iter().map(|role| *role == Some(Role::Assistant));
            // An item of the model, and anything else behind it.
            after.any(|is_model| is_model) && after.any(|is_model| !is_model)
        };
        prop_assert!(request.older_units().iter().all(is_answered));
        prop_assert!(!request.current_units().iter().any(is_answered));
    }

    #[test]
    fn a_string_means_the_same_as_the_message_of_a_user(said in any::<String>(), is_pretty in any::<bool>()) {
        let body = |input: Value| {
            let body = json!({ "instructions": "i", "input": input, "model": "m" });
            ResponsesRequest::parse(if is_pretty { format!("{body:#}") } else { body.to_string() }.into()).expect("valid")
        };
        let (short, long) = (body(json!(said)), body(json!([{ "role": "user", "content": said }])));
        let value = |request: &ResponsesRequest| serde_json::from_str::<Value>(request.body()).expect("JSON");
        prop_assert_eq!(value(&short), value(&long));
        prop_assert_eq!(short.first_user_message(), long.first_user_message());
        prop_assert!(short.has_string_input() && !long.has_string_input());
        prop_assert_eq!(&serde_json::from_str::<Value>(short.original()).expect("JSON")["input"], &json!(said));
    }

    #[test]
    fn marks_never_count_in_memory_and_the_rest_is_a_unit_again((_, text) in body()) {
        let request = ResponsesRequest::parse(text.into()).expect("valid");
        for unit in units(&request) {
            let json = request.unit_json(unit);
            let lasting = ResponsesRequest::lasting_json(json.clone());
            prop_assert_eq!(&ResponsesRequest::lasting_json(lasting.clone()), &lasting);
            let (json, lasting) = (String::from_utf8_lossy(&json), String::from_utf8_lossy(&lasting));
            prop_assert!(!lasting.contains("prompt_cache_breakpoint"));
            let marked = with_marks_of(&json, &lasting);
            let again = ResponsesRequest::lasting_json(marked.clone().into());
            prop_assert_eq!(String::from_utf8_lossy(&again), lasting);
            let body = format!(r#"{{"model":"m","input":[{marked}]}}"#);
            prop_assert!(ResponsesRequest::parse(body.into()).is_ok());
        }
    }

    #[test]
    fn what_is_put_back_is_what_the_client_wrote(client in any_json(), sent in any_json(), answer in any_json()) {
        let request = |members: &Value| {
            let names = ["instructions", "tools", "metadata", "user"];
            let mut body = json!({ "model": "m", "input": "" });
            for name in names.into_iter().filter(|name| members.get(name).is_some()) {
                body[name] = members[name].clone();
            }
            ResponsesRequest::parse(body.to_string().into())
        };
        if let (Ok(request), Ok(sent)) = (request(&client), request(&sent)) {
            let echoes = echoes(&request, &sent, false);
            let answer = json!({ "type": "response.created", "response": answer });
            let put_back = |data: &str| event_with_echoes(data, &echoes).expect("an object");
            let changed = put_back(&answer.to_string());
            let read: Value = changed.as_deref().map_or(answer.clone(), |json| serde_json::from_str(json).expect("JSON"));
            for (name, value) in echoes.iter().filter(|(name, _)| answer["response"].get(name).is_some()) {
                let written: Option<Value> = value.map(|value| serde_json::from_str(value).expect("JSON"));
                prop_assert!(written.is_none_or(|written| read["response"][name] == written));
            }
            prop_assert!(changed.is_none_or(|changed| put_back(&changed).is_none()));
        }
    }

    #[test]
    fn any_json_is_answered_without_a_panic(
        mut json in any_json(), items in prop::collection::vec(any_json(), 0..4), is_whole in any::<bool>(),
    ) {
        if let (Some(members), true) = (json.as_object_mut(), is_whole) {
            members.insert("model".to_owned(), json!("m"));
            members.insert("input".to_owned(), items.into());
        }
        if let Ok(request) = ResponsesRequest::parse(json.to_string().into()) {
            units(&request).for_each(|unit| drop(ResponsesRequest::lasting_json(request.unit_json(unit))));
            let _ = (request.conversation(), request.expects_json(), request.results_have_calls());
            let _ = (request.first_user_message(), request.keeps_nothing(), request.has_string_input());
        }
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = ResponsesRequest::parse(bytes.into());
    }
}
