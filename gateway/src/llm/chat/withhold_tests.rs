use serde_json::{Value, json};

use super::{ChatAnswer, ChoiceEdit};

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
    let changed = ChoiceEdit { text: Some("b".to_owned()), ..ChoiceEdit::default() };
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
    let changed = ChoiceEdit { reasoning: Some("new".to_owned()), ..ChoiceEdit::default() };
    let (message, _) = guarded(&given, changed);
    assert_eq!(message, json!({ "content": "a", "reasoning_content": "new" }));
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
    assert_eq!(answer.payload(0).content, "ta", "plugins see the thought");
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
fn a_blocked_answer_keeps_no_unknown_object() {
    let edit = ChoiceEdit::replaced("no".to_owned());
    let (message, withheld) = guarded(&json!({ "content": "a", "new": { "a": "x" } }), edit);
    assert_eq!((message, withheld), (json!({ "content": "no" }), vec!["new".to_owned()]));
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
