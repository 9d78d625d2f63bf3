use serde_json::{Value, json};

use super::*;
use crate::llm::format::FormatRequest as _;

fn request(members: &str) -> ResponsesRequest {
    let body = format!(r#"{{"model":"m","input":"hi"{members}}}"#);
    ResponsesRequest::parse(body.into()).expect("a valid request")
}

fn of(client: &str, sent: &str) -> Echoes {
    echoes(&request(client), &request(sent), false)
}

/// Echoes of all members with words, none of which the client wrote.
fn of_nothing() -> Echoes {
    let sent = r#","instructions":"i","tools":[{}],"tool_choice":"none","metadata":{"a":"b"},"text":{"a":1},
        "reasoning":{"effort":"low"},"user":"u","safety_identifier":"s","prompt_cache_key":"k""#;
    of("", sent)
}

fn in_event(data: &str, echoes: &Echoes) -> Option<String> {
    event_with_echoes(data, echoes).expect("an object")
}

#[test]
fn what_plugins_changed_is_put_back_as_the_client_wrote_it() {
    let client = r#","instructions":"he\u0072e","tools":[ {"type":"function"} ],"user":"ann","metadata":{"a":"b"},
        "temperature":1,"text":null"#;
    let sent = r#","instructions":"secret","tools":[],"user":"ann","temperature":0,"text":{"format":{"type":"text"}},
        "metadata":{"a":"b"}"#;
    let echoes = of(client, sent);
    let expected = [
        ("instructions", Some(r#""he\u0072e""#)),
        ("temperature", Some("1")),
        ("text", None),
        ("tools", Some(r#"[ {"type":"function"} ]"#)),
    ];
    assert_eq!(echoes.iter().collect::<Vec<_>>(), expected);
    let answer = r#"{ "object":"response", "instructions":"secret","tools" : [],"user":"ann","temperature":0, "text":{} }"#;
    let put_back = r#"{ "object":"response", "instructions":"he\u0072e","tools" : [ {"type":"function"} ],"user":"ann","temperature":1, "text":null }"#;
    assert_eq!(with_echoes(answer, &echoes).as_deref(), Some(put_back));
    let event =
        |answer: &str| format!(r#"{{"type":"response.created", "response": {answer} ,"sequence_number":0}}"#);
    assert_eq!(in_event(&event(answer), &echoes), Some(event(put_back)));
    assert_eq!((with_echoes(put_back, &echoes), in_event(&event(put_back), &echoes)), (None, None));
}

#[test]
fn what_plugins_added_is_what_answers_have_without_it() {
    let echoes = of_nothing();
    assert!(echoes.iter().all(|(_, value)| value.is_none()));
    assert_eq!(echoes.iter().count(), REPEATED.len());
    let answer = json!({ "instructions": "i", "tools": [{}], "tool_choice": "none", "metadata": { "a": "b" },
                         "text": { "a": 1 }, "reasoning": { "effort": "low" }, "user": "u",
                         "safety_identifier": "s", "prompt_cache_key": "k", "output": [] });
    let put_back: Value =
        serde_json::from_str(&with_echoes(&answer.to_string(), &echoes).expect("changed")).expect("JSON");
    let expected = json!({ "instructions": null, "tools": [], "tool_choice": "auto", "metadata": {},
                           "text": null, "reasoning": null, "user": null, "safety_identifier": null,
                           "prompt_cache_key": null, "output": [] });
    assert_eq!(put_back, expected);
}

#[test]
fn without_changes_nothing_is_put_back() {
    for (client, sent) in [
        ("", ""),
        (r#","instructions":null"#, ""),
        ("", r#","tools":null"#),
        (r#","instructions":"a""#, r#", "instructions" :  "a""#),
        (r#","stream":true"#, r#","stream":false,"store":false"#),
    ] {
        let echoes = of(client, sent);
        assert!(echoes.is_empty(), "{client} {sent}");
        let answer = r#"{"instructions":"provider's","tools":[1],"store":false}"#;
        assert_eq!(with_echoes(answer, &echoes), None);
        assert_eq!(in_event(&format!(r#"{{"response":{answer}}}"#), &echoes), None);
    }
}

#[test]
fn members_that_no_api_has_are_put_back_where_plugins_changed_them() {
    let echoes = of(r#","new":["client's"]"#, r#","new":["plugin's"],"top_p":1,"parallel_tool_calls":false"#);
    let answer = r#"{"new":["plugin's"],"top_p":1,"parallel_tool_calls":false,"other":1}"#;
    let put_back = r#"{"new":["client's"],"top_p":null,"parallel_tool_calls":true,"other":1}"#;
    assert_eq!(with_echoes(answer, &echoes).as_deref(), Some(put_back));
}

#[test]
fn what_an_answer_says_of_itself_is_never_put_back() {
    let client = r#","output":"a","status":"b","id":"c","usage":1,"error":2,"object":3,"output_text":"d""#;
    let sent = r#","incomplete_details":1,"created_at":2,"completed_at":3,"background":false"#;
    assert!(of(client, sent).is_empty());
    let body = |model: &str| format!(r#"{{"model":"{model}","input":"hi"}}"#);
    let request = |model| ResponsesRequest::parse(body(model).into()).expect("a valid request");
    let echoes = echoes(&request("alias"), &request("model"), true);
    assert!(!echoes.iter().any(|(name, _)| name == "model"));
}

#[test]
fn under_a_guard_the_clients_words_stand_where_the_provider_repeats_them() {
    let words = r#","instructions":"client's","tools":[{"a":1}],"temperature":1"#;
    let echoes = echoes(&request(words), &request(words), true);
    let answer = r#"{"instructions":"provider's","tools":null,"temperature":2,"text":{"verbosity":"low"}}"#;
    let put_back =
        r#"{"instructions":"client's","tools":[{"a":1}],"temperature":2,"text":{"verbosity":"low"}}"#;
    assert_eq!(with_echoes(answer, &echoes).as_deref(), Some(put_back));
}

#[test]
fn under_a_guard_a_provider_has_no_words_where_the_client_wrote_nothing() {
    let echoes = echoes(&request(""), &request(""), true);
    let answer = r#"{"instructions":"a","metadata":{"d":"e"},"user":"f","tool_choice":"auto"}"#;
    let put_back = r#"{"instructions":null,"metadata":{},"user":null,"tool_choice":"auto"}"#;
    assert_eq!(with_echoes(answer, &echoes).as_deref(), Some(put_back));
}

#[test]
fn a_whole_answer_repeats_the_request_whatever_its_type_says() {
    let echoes = of_nothing();
    let answer = r#"{"type":"response.created","instructions":"i","response":{"instructions":"j"}}"#;
    let put_back = r#"{"type":"response.created","instructions":null,"response":{"instructions":"j"}}"#;
    assert_eq!(with_echoes(answer, &echoes).as_deref(), Some(put_back));
    for json in ["{}", r#"{"output":[{"instructions":"i"}],"id":"r"}"#, r#"[{"instructions":"i"}]"#, ""] {
        assert_eq!(with_echoes(json, &echoes), None, "{json}");
    }
}

#[test]
fn an_event_repeats_the_request_only_in_its_answer() {
    let echoes = of_nothing();
    for data in [
        "{}",
        r#"{"instructions":"i","tools":[1]}"#,
        r#"{"type":"response.output_text.done","text":"said","user":"u"}"#,
        r#"{"type":"response.created","response":null,"tools":[1]}"#,
        r#"{"type":"response.created","response":{"id":"r"},"tools":[1]}"#,
        r#"{"response":[{"instructions":"i"}]}"#,
        "[DONE]",
        "[DONE] ",
    ] {
        assert_eq!(event_with_echoes(data, &echoes), Ok(None), "{data}");
    }
    let both = r#"{"instructions":"i","response":{"instructions":"j"}}"#;
    let expected = r#"{"instructions":"i","response":{"instructions":null}}"#;
    assert_eq!(in_event(both, &echoes).as_deref(), Some(expected));
}

#[test]
fn an_event_that_readers_could_read_otherwise_is_refused() {
    let deep = |depth: usize| format!(r#"{{"response":{}1{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let too_deep = deep(MAX_DEPTH + 1);
    let echoes = of_nothing();
    for data in [
        "",
        " [DONE]",
        r#"[{"response":{"instructions":"i"}}]"#,
        r#"{"response":{"instructions":"i"}"#,
        r#"{"response":{"instructions":"a","instructions":"b"}}"#,
        r#"{"response":{},"\u0072esponse":{"instructions":"i"}}"#,
        &too_deep,
    ] {
        assert!(event_with_echoes(data, &echoes).is_err(), "{data}");
        assert!(event_with_echoes(data, &Echoes::default()).is_err(), "{data}");
    }
    assert_eq!(event_with_echoes(&deep(MAX_DEPTH), &echoes), Ok(None));
    let error = event_with_echoes("[]", &echoes).expect_err("no object");
    assert_eq!(error.to_string(), "an event is an array");
}
