use serde_json::{Value, json};

use super::ChatAnswer;
use crate::llm::{
    answer_parts::part_payload,
    format::{ChoiceEdit, FormatAnswer as _},
};

/// A rendered answer under a guard, and what was withheld from it.
fn rendered(body: &Value, edit: ChoiceEdit) -> (Value, Vec<String>) {
    let answer = ChatAnswer::parse(body.to_string().into(), 1).expect("a valid answer");
    let rendered = answer.render(&[edit], false, true);
    (serde_json::from_slice(&rendered.body).expect("JSON"), rendered.withheld)
}

/// The only message of a rendered answer, and what was withheld from it.
fn guarded(message: &Value, edit: ChoiceEdit) -> (Value, Vec<String>) {
    let (mut body, withheld) = rendered(&json!({ "choices": [{ "message": message }] }), edit);
    (body["choices"][0]["message"].take(), withheld)
}

#[track_caller]
fn assert_passes(body: &Value) {
    let answer = ChatAnswer::parse(body.to_string().into(), 1).expect("a valid answer");
    let rendered = answer.render(&[], false, true);
    assert_eq!(rendered.withheld, [""; 0]);
    assert_eq!(rendered.body.as_ptr(), answer.body().as_ptr(), "it keeps its bytes");
}

#[test]
fn annotations_are_short_citations_and_nothing_else() {
    let citation =
        json!({ "url": "https://a.test/", "title": "x".repeat(2048), "start_index": 0, "end_index": 9 });
    let kept = json!({ "type": "url_citation", "url_citation": citation });
    let mut more = kept.clone();
    more["note"] = json!("short");
    more["url_citation"]["content"] = json!("secret");
    let mut long = kept.clone();
    long["url_citation"]["url"] = json!("x".repeat(2049));
    let mut without_url = kept.clone();
    without_url["url_citation"].as_object_mut().expect("an object").remove("url");
    let file = json!({ "type": "file", "file": { "text": "secret" } });
    let given = json!([kept, more, long, "secret", file, { "url_citation": "secret" }]);
    let left = json!([kept, kept, without_url, { "type": "file" }, {}]);
    let names = ["annotations", "content", "file", "note", "url", "url_citation"];
    let (message, withheld) =
        guarded(&json!({ "content": "a", "annotations": given }), ChoiceEdit::default());
    assert_eq!((&message["annotations"], withheld.as_slice()), (&left, names.map(str::to_owned).as_slice()));
    let part = |annotations: &Value| json!([{ "type": "text", "text": "a", "annotations": annotations }]);
    let (message, withheld) = guarded(&json!({ "content": part(&given) }), ChoiceEdit::default());
    assert_eq!(
        (&message["content"], withheld.as_slice()),
        (&part(&left), names.map(str::to_owned).as_slice())
    );
    let changed = ChoiceEdit { texts: vec![Some("b".to_owned())], ..ChoiceEdit::default() };
    let (message, _) = guarded(&json!({ "content": "a", "annotations": given }), changed);
    assert_eq!(message, json!({ "content": "b" }), "they go with the old text");
    let (message, withheld) =
        guarded(&json!({ "content": "a", "annotations": { "a": "x".repeat(65) } }), ChoiceEdit::default());
    assert_eq!((message, withheld), (json!({ "content": "a" }), vec!["annotations".to_owned()]));
    assert_passes(&json!({ "choices": [{ "message": { "content": "a", "annotations": [kept] } }] }));
}

#[test]
fn reasoning_has_what_plugins_see_and_what_the_provider_wants_back() {
    let signed = "x".repeat(16 << 10);
    let detail = json!({ "type": "reasoning.text", "id": "i".repeat(100), "index": 0, "format": "f", "signature": signed,
                         "text": "t", "summary": [{ "type": "summary_text", "text": "s" }], "data": null });
    assert_passes(&json!({ "choices": [{ "message": { "content": "a", "reasoning_details": [detail] } }] }));
    let mut more = detail.clone();
    more["note"] = json!("short");
    more["summary"][0]["hidden"] = json!(["secret"]);
    let encrypted = json!({ "type": "reasoning.encrypted", "data": signed + "x" });
    let given = json!({ "content": "a", "reasoning": { "text": "t", "signature": "short", "new": {} },
                        "reasoning_details": [more, encrypted] });
    let left = json!({ "content": "a", "reasoning": { "text": "t" },
                       "reasoning_details": [detail, { "type": "reasoning.encrypted" }] });
    let (message, withheld) = guarded(&given, ChoiceEdit::default());
    assert_eq!(message, left);
    assert_eq!(withheld, ["data", "hidden", "new", "note", "signature"]);
    let changed = ChoiceEdit { thoughts: vec![Some("new".to_owned())], ..ChoiceEdit::default() };
    let (message, _) = guarded(&given, changed);
    let mut left = left;
    left["reasoning"]["text"] = json!("new");
    assert_eq!(message, left);
}

#[test]
fn ordinary_answers_pass() {
    let filter = json!({ "filtered": false, "severity": "safe" });
    let mut filters =
        json!({ "custom_blocklists": { "filtered": false, "details": [{ "id": "b", "filtered": true }] } });
    for index in 0..40 {
        filters[format!("filter-{index}")] = filter.clone();
    }
    let thinking =
        json!({ "type": "thinking", "closed": true, "thinking": [{ "type": "text", "text": "t" }] });
    let body = json!({
        "choices": [{ "message": { "content": [thinking, { "type": "text", "text": "a" }] }, "content_filter_results": filters }],
        "timings": { "prompt_ms": 1.5, "nested": { "n": 1 } }, "x_groq": { "id": "req_1" },
    });
    assert!(filters.to_string().len() > 1024, "it is longer than other settings");
    assert_passes(&body);
    let answer = ChatAnswer::parse(body.to_string().into(), 1).expect("a valid answer");
    let payload = part_payload(&answer, 0, 0);
    assert_eq!(
        (payload.content.as_str(), payload.reasoning.as_deref()),
        ("a", Some("t")),
        "plugins see the thought"
    );
}

#[test]
fn objects_with_text_and_known_names_in_another_case_are_withheld() {
    let long = "x".repeat(65);
    let many: Value = (0..200).map(|index| (format!("member-{index}"), json!(1))).collect();
    let body = json!({
        "choices": [{
            "message": { "content": "a", "Function_Call": { "name": "f" }, "new": { "a": { "b": long } } },
            "content_filter_results": { "a": long }, "Message": { "content": "x" },
        }],
        "many": many, "keys": { long.as_str(): 1 }, "list": [1],
    });
    let (left, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!(left, json!({ "choices": [{ "message": { "content": "a" } }] }));
    let names = ["Function_Call", "Message", "content_filter_results", "keys", "list", "many", "new"];
    assert_eq!(withheld, names);
}

#[test]
fn a_short_text_under_a_known_name_in_another_case_is_withheld() {
    for edit in [ChoiceEdit::default(), ChoiceEdit::replaced("a".to_owned())] {
        let message = json!({ "content": "a", "Content": "secret", "REFUSAL": "secret", "short": "x" });
        let (left, withheld) = guarded(&message, edit);
        assert_eq!(left, json!({ "content": "a", "short": "x" }));
        assert_eq!(withheld, ["Content", "REFUSAL"]);
    }
}

#[test]
fn a_blocked_answer_keeps_no_unknown_object() {
    let edit = ChoiceEdit::replaced("no".to_owned());
    let (message, withheld) = guarded(&json!({ "content": "a", "new": { "a": "x" } }), edit);
    assert_eq!((message, withheld), (json!({ "content": "no" }), vec!["new".to_owned()]));
    let odd = json!({ "choices": [{ "finish_reason": { "a": 1 }, "message": { "content": "a" } }] });
    let (left, _) = rendered(&odd, ChoiceEdit::replaced("no".to_owned()));
    assert_eq!(left, json!({ "choices": [{ "finish_reason": "stop", "message": { "content": "no" } }] }));
}

#[test]
fn thoughts_in_parts_have_nothing_that_plugins_do_not_see() {
    let part = json!({ "type": "thinking", "thinking": [{ "type": "text", "text": "t", "new": "short" }], "signature": "x".repeat(65) });
    let (message, withheld) =
        guarded(&json!({ "content": [part, { "type": "thinking" }] }), ChoiceEdit::default());
    assert_eq!(
        message["content"],
        json!([{ "type": "thinking", "thinking": [{ "type": "text", "text": "t" }] }])
    );
    assert_eq!(withheld, ["new", "signature", "thinking"]);
}

#[test]
fn log_probabilities_pass_only_if_they_spell_what_plugins_saw() {
    let token = |token: &str| json!({ "token": token, "logprob": -0.1, "bytes": token.as_bytes() });
    let choice = |message: Value, logprobs: Value| json!({ "choices": [{ "message": message, "logprobs": logprobs }] });
    let said = json!({ "content": "caf\u{e9}", "refusal": "no" });
    let spelled = json!({ "content": [token("ca"), token("f\u{e9}")], "refusal": [token("no")] });
    assert_passes(&choice(said.clone(), spelled.clone()));
    assert_passes(&choice(said.clone(), json!({ "content": null, "refusal": [token("n"), token("o")] })));
    assert_passes(&choice(said.clone(), json!({ "content": [], "refusal": null })));
    let mut others = spelled.clone();
    others["content"][0]["top_logprobs"] = json!([{ "token": "secret", "logprob": -1 }]);
    let mut emptied = spelled.clone();
    emptied["content"][0]["top_logprobs"] = json!([]);
    let (left, withheld) = rendered(&choice(said.clone(), others), ChoiceEdit::default());
    assert_eq!((left, withheld), (choice(said.clone(), emptied), vec!["top_logprobs".to_owned()]));
    let with = |member: &str, value: Value| {
        let mut changed = spelled.clone();
        changed["content"][0][member] = value;
        changed
    };
    for hidden in [
        json!({ "content": [token("thought"), token("ca"), token("f\u{e9}")] }),
        json!({ "content": [token("ca")] }),
        json!({ "content": [token("ca"), token("f\u{e9}")], "refusal": [token("yes")] }),
        json!({ "content": "caf\u{e9}" }),
        json!({ "content": ["caf\u{e9}"] }),
        json!({ "tokens": ["thought"] }),
        json!(["thought"]),
        json!("thought"),
        with("bytes", json!([1, 2, 3])),
        with("bytes", json!([99])),
        with("logprob", json!("thought")),
        with("text", json!("thought")),
        with("top_logprobs", json!("thought")),
    ] {
        let (left, withheld) = rendered(&choice(said.clone(), hidden.clone()), ChoiceEdit::default());
        assert_eq!(
            (left, withheld),
            (choice(said.clone(), Value::Null), vec!["logprobs".to_owned()]),
            "{hidden}"
        );
    }
    let changed = ChoiceEdit { texts: vec![Some("b".to_owned())], ..ChoiceEdit::default() };
    let (left, _) = rendered(&choice(json!({ "content": "a" }), json!({ "content": [token("x")] })), changed);
    assert_eq!(left, choice(json!({ "content": "b" }), Value::Null));
}

#[test]
fn long_names_and_long_numbers_are_withheld() {
    let (name, digits) = ("n".repeat(65), "1".repeat(65));
    let body = format!(
        r#"{{"{name}":0,"created":0.{digits},"choices":[{{"{name}":null,"index":0.{digits},
        "message":{{"{name}":true,"content":"a","reasoning":0.{digits},
        "reasoning_content":{{"text":0.{digits},"index":0.{digits},"{name}":0}},"reasoning_details":[0.{digits}],
        "annotations":[{{"url_citation":{{"url":"u","start_index":0.{digits}}}}}]}}}}]}}"#
    );
    let answer = ChatAnswer::parse(body.into(), 1).expect("a valid answer");
    let rendered = answer.render(&[], false, true);
    let left: Value = serde_json::from_slice(&rendered.body).expect("JSON");
    let message = json!({ "content": "a", "reasoning_content": {}, "reasoning_details": [],
                          "annotations": [{ "url_citation": { "url": "u" } }] });
    assert_eq!(left, json!({ "choices": [{ "message": message }] }));
    assert_eq!(rendered.withheld, ["created", "index", name.as_str(), "reasoning", "start_index", "text"]);
}

#[test]
fn known_members_of_another_shape_are_withheld() {
    let long = "x".repeat(65);
    let body = json!({
        "id": long, "object": long, "service_tier": [1], "system_fingerprint": { "a": 1 }, "created": long,
        "model": "x".repeat(257), "usage": { "note": long }, "prompt_filter_results": [{ "text": long }],
        "choices": [{ "index": {}, "finish_reason": { "a": 1 }, "message": { "role": long, "content": "a", "audio": long } }],
    });
    let (left, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!(left, json!({ "choices": [{ "message": { "content": "a" } }] }));
    let names = [
        "audio",
        "created",
        "finish_reason",
        "id",
        "index",
        "model",
        "object",
        "prompt_filter_results",
        "role",
        "service_tier",
        "system_fingerprint",
        "usage",
    ];
    assert_eq!(withheld, names);
    let spoken =
        json!({ "id": "audio_1", "data": "x".repeat(1000), "expires_at": 1, "transcript": "x".repeat(1000) });
    let usage: Value = (0..100).map(|index| (format!("details-{index}"), json!({ "tokens": 1 }))).collect();
    assert_passes(&json!({
        "id": "x".repeat(64), "object": "chat.completion", "created": 1, "model": "x".repeat(256), "usage": usage,
        "system_fingerprint": null, "prompt_filter_results": [{ "prompt_index": 0, "content_filter_results": {} }],
        "choices": [{ "index": 0, "finish_reason": "stop",
                      "message": { "role": "assistant", "content": null, "refusal": null, "audio": spoken } }],
    }));
    let mut more = spoken.clone();
    more["note"] = json!("short");
    let (message, withheld) = guarded(&json!({ "content": null, "audio": more }), ChoiceEdit::default());
    assert_eq!((message, withheld), (json!({ "content": null, "audio": spoken }), vec!["note".to_owned()]));
    let odd = json!({ "data": [1], "transcript": null, "id": long });
    let (message, withheld) = guarded(&json!({ "content": null, "audio": odd }), ChoiceEdit::default());
    assert_eq!(message, json!({ "content": null, "audio": { "transcript": null } }));
    assert_eq!(withheld, ["data", "id"]);
}

#[test]
fn all_annotations_of_an_answer_have_at_most_sixteen_kibibytes() {
    let citation = json!({ "url_citation": { "url": "u".repeat(1000) } });
    let part =
        |citations: usize| json!({ "type": "text", "text": "a", "annotations": vec![&citation; citations] });
    let given = json!({ "content": [part(5), part(5), part(10)], "annotations": vec![&citation; 20] });
    let (message, withheld) = guarded(&given, ChoiceEdit::default());
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    let parts = message["content"].as_array().expect("parts");
    let left =
        count(&message["annotations"]) + parts.iter().map(|part| count(&part["annotations"])).sum::<usize>();
    assert_eq!((left, withheld), ((16 << 10) / citation.to_string().len(), vec!["annotations".to_owned()]));
}

#[test]
fn tens_of_thousands_of_members_are_judged_in_one_walk() {
    let mut body: Value = (0..50_000).map(|index| (format!("member-{index}"), json!([]))).collect();
    body["choices"] = json!([{ "message": { "content": "a" } }]);
    let (left, withheld) = rendered(&body, ChoiceEdit::default());
    assert_eq!((left, withheld.len()), (json!({ "choices": [{ "message": { "content": "a" } }] }), 32));
}
