use bytes::Bytes;
use hookgate_proto::types::v1::{BeforeLlmRequestPayload, Media};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Embeddings, EmbeddingsDraft, EmbeddingsRequest};
use crate::{
    core::error::Code,
    llm::{
        format::{Conversation, Format, FormatDraft as _, FormatRequest as _},
        guarded_points::GuardedPoints,
    },
};

const NONE: GuardedPoints = GuardedPoints { request: false, calls: false, results: false, answer: false };
const REQUESTS: GuardedPoints = GuardedPoints { request: true, ..NONE };
const OTHERS: GuardedPoints = GuardedPoints { request: false, calls: true, results: true, answer: true };

fn parse(body: &str) -> EmbeddingsRequest {
    EmbeddingsRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect("a valid request")
}

fn with(member: &str, value: Value) -> EmbeddingsRequest {
    let mut body = json!({ "model": "m", "input": "hi" });
    body[member] = value;
    parse(&body.to_string())
}

fn mistakes(body: &str) -> Vec<(String, String)> {
    let error = EmbeddingsRequest::parse(Bytes::copy_from_slice(body.as_bytes())).expect_err(body);
    assert_eq!(error.code, Code::PayloadInvalid);
    error.violations.into_iter().map(|violation| (violation.pointer, violation.message)).collect()
}

fn refused(request: &EmbeddingsRequest, guarded: GuardedPoints, allowed: &[&str]) -> Option<String> {
    let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
    let error = Embeddings::check_request(request, guarded, &allowed).err()?;
    assert_eq!(error.code, Code::Unsupported);
    Some(error.violations.first().expect("a violation").pointer.clone())
}

/// What each unit says.
fn texts(request: &EmbeddingsRequest) -> Vec<String> {
    let draft = EmbeddingsDraft::new(request);
    request.current_units().iter().map(|unit| draft.unit_payload(unit).text).collect()
}

/// The sentence about a change of the main payload that can't be written back.
fn patch_error(request: &EmbeddingsRequest, change: impl FnOnce(&mut BeforeLlmRequestPayload)) -> String {
    let mut draft = EmbeddingsDraft::new(request);
    let before = draft.main_payload();
    let mut after = before.clone();
    change(&mut after);
    draft.apply_main(&before, &after).expect_err("a change that can't be written").to_string()
}

#[test]
fn each_string_is_a_unit_of_the_current_turn_and_the_last_is_the_main_one() {
    let one = with("input", json!("é\n"));
    assert_eq!(texts(&one), ["é\n"]);
    let many = with("input", json!(["a", "", "c"]));
    assert_eq!(texts(&many), ["a", "", "c"]);
    assert!(many.older_units().is_empty());
    assert_eq!(many.main_unit(), many.current_units().last());
    let main = EmbeddingsDraft::new(&many).main_payload();
    assert_eq!((main.text.as_str(), &main.messages[..], &main.tools[..]), ("c", &b""[..], &b""[..]));
    assert_eq!(many.unit_json(&many.current_units()[0]), r#""a""#);
    assert_eq!(many.first_user_message(), r#""a""#);
    many.results_have_calls().expect("there are no results");
}

#[test]
fn tokens_are_no_units() {
    for tokens in [json!([1, 2]), json!([[1], [0, 4_294_967_296_u64]])] {
        let request = with("input", tokens);
        assert!(request.current_units().is_empty() && request.main_unit().is_none());
        assert_eq!(request.first_user_message(), "");
        assert_eq!(EmbeddingsDraft::new(&request).main_payload().text, "");
    }
}

#[test]
fn a_request_is_whole_and_names_its_user() {
    let request = parse(r#"{ "model": "m", "input": "hi", "user": "ann", "stream": true }"#);
    assert_eq!(request.model(), "m");
    assert_eq!(request.conversation(), Conversation { session: None, user: Some("ann") });
    assert!(!Embeddings::is_streamed(&request) && !request.is_streamed());
    assert!(request.shows_usage() && !request.expects_json());
    assert_eq!(request.choices(), 1);
    assert_eq!(with("user", json!(1)).conversation(), Conversation::default());
    assert_eq!((Embeddings::PATH, Embeddings::HAS_CHOICES), ("embeddings", false));
}

#[test]
fn mistakes_are_named_by_their_place() {
    let cases = [
        ("[]", "", "The body must be an object, is an array"),
        ("{\"model\":\"m\"}", "/input", "`input` is required"),
        ("{\"input\":\"\"}", "/model", "`model` is required"),
        ("{\"model\":\"\",\"input\":\"\"}", "/model", "must be a string of 1 to 256 bytes, is empty"),
        ("{\"model\":\"m\",\"input\":[]}", "/input", "`input` must not be empty"),
        ("{\"model\":\"m\",\"input\":null}", "/input", "a list of strings, a list of tokens"),
        ("{\"model\":\"m\",\"input\":{\"text\":\"a\"}}", "/input", "must be a string, a list"),
        ("{\"model\":\"m\",\"input\":[{\"text\":\"a\"}]}", "/input", "must be a string, a list"),
        (
            "{\"model\":\"m\",\"input\":[\"a\",1]}",
            "/input/1",
            "must be a string, like the first element, is 1",
        ),
        ("{\"model\":\"m\",\"input\":[\"a\",null]}", "/input/1", "must be a string, like the first element"),
        ("{\"model\":\"m\",\"input\":[1,\"a\"]}", "/input/1", "must be the number of a token, is a string"),
        ("{\"model\":\"m\",\"input\":[1.5]}", "/input/0", "must be the number of a token, is 1.5"),
        ("{\"model\":\"m\",\"input\":[-1]}", "/input/0", "must be the number of a token, is -1"),
        (
            "{\"model\":\"m\",\"input\":[[1],\"a\"]}",
            "/input/1",
            "must be a list of at least one token, is a string",
        ),
        ("{\"model\":\"m\",\"input\":[[1],[]]}", "/input/1", "must be a list of at least one token"),
        (
            "{\"model\":\"m\",\"input\":[[1,\"a\"]]}",
            "/input/0/1",
            "must be the number of a token, is a string",
        ),
        (
            "{\"model\":\"m\",\"input\":[[[\"a\"]]]}",
            "/input/0/0",
            "must be the number of a token, is an array",
        ),
        ("{\"model\":\"m\",\"model\":\"n\",\"input\":\"a\"}", "/model", "The object already has this key"),
    ];
    for (body, pointer, message) in cases {
        let found = mistakes(body);
        assert_eq!(found.len(), 1, "{body}: {found:?}");
        assert_eq!(found[0].0, pointer, "{body}");
        assert!(found[0].1.contains(message), "{body}: {}", found[0].1);
    }
    assert!(!mistakes("{").is_empty());
}

#[test]
fn there_may_be_2048_texts() {
    let body = |element: &str, count: usize| {
        format!(r#"{{"model":"m","input":[{}]}}"#, vec![element; count].join(","))
    };
    assert_eq!(parse(&body("\"a\"", 2048)).current_units().len(), 2048);
    parse(&body("[1]", 2048));
    parse(&body("1", 8192));
    for element in ["\"a\"", "[1]"] {
        let expected = ("/input".to_owned(), "`input` has 2049 elements, more than 2048".to_owned());
        assert_eq!(mistakes(&body(element, 2049)), [expected]);
    }
}

#[test]
fn tokens_are_refused_where_requests_are_judged() {
    for tokens in [json!([1, 2]), json!([[1], [2]])] {
        let request = with("input", tokens);
        assert_eq!(refused(&request, REQUESTS, &[]).as_deref(), Some("/input"));
        assert_eq!(refused(&request, OTHERS, &[]), None);
        assert_eq!(refused(&request, REQUESTS, &["tokens"]), None);
    }
    let error = Embeddings::check_request(&with("input", json!([1])), REQUESTS, &[]).expect_err("tokens");
    assert_eq!(
        error.detail,
        "`tokens` is refused: plugins can't read tokens; send texts (in LangChain: \
         check_embedding_ctx_length=False); `llm.allow: [tokens]` allows it for all tenants"
    );
}

#[test]
fn members_with_text_that_plugins_do_not_see_are_refused() {
    let long = "x".repeat(65);
    for member in ["dimensions", "encoding_format", "instruction", "new", "messages"] {
        let request = with(member, json!(long));
        let pointer = format!("/{member}");
        assert_eq!(refused(&request, REQUESTS, &[]), Some(pointer), "{member}");
        assert_eq!(refused(&request, OTHERS, &[]), None, "{member}");
        assert_eq!(refused(&request, REQUESTS, &[member]), None, "{member}");
    }
    for (member, value) in [
        ("user", json!(long)),
        ("metadata", json!({ "a": long })),
        ("dimensions", json!(256)),
        ("encoding_format", json!("base64")),
        ("input_type", json!("query")),
        ("new", json!({ "on": true })),
        ("input", json!([long, long])),
    ] {
        assert_eq!(refused(&with(member, value), REQUESTS, &[]), None, "{member}");
    }
}

#[test]
fn state_of_a_provider_and_other_models_are_refused_for_every_tenant() {
    for (member, value, pointer) in [
        ("fallbacks", json!(["other"]), "/fallbacks"),
        ("models", json!(["other"]), "/models"),
        ("conversation", json!("c"), "/conversation"),
        ("extra_body", json!({ "model": "other" }), "/extra_body"),
        ("new", json!({ "models": ["other"] }), "/new/models"),
    ] {
        assert_eq!(refused(&with(member, value), NONE, &[]).as_deref(), Some(pointer), "{member}");
    }
}

#[test]
fn a_name_that_some_servers_take_for_a_known_one_is_refused_for_every_tenant() {
    for name in ["Model", "INPUT", "\u{17f}tream", "Extra_Body", "Messages"] {
        let pointer = format!("/{name}");
        assert_eq!(refused(&with(name, json!("x")), NONE, &[name]), Some(pointer), "{name}");
    }
    assert_eq!(refused(&with("X", json!(1)), REQUESTS, &[]), None);
}

#[test]
fn plugins_see_and_change_the_other_members() {
    let request = parse(r#"{ "model": "m", "dimensions": 3, "input": ["a"], "user": "ann" }"#);
    let mut draft = EmbeddingsDraft::new(&request);
    let before = draft.main_payload();
    assert_eq!(before.extra, r#"{"request":{"dimensions":3,"user":"ann"}}"#);
    let after = BeforeLlmRequestPayload {
        extra: r#"{"request":{"user":"bob","encoding_format":"float"}}"#.into(),
        ..before.clone()
    };
    draft.apply_main(&before, &after).expect("written back");
    assert!(draft.is_changed());
    let expected = r#"{ "model": "m", "input": ["a"], "user": "bob","encoding_format":"float" }"#;
    assert_eq!(draft.render(), expected);
}

#[test]
fn another_model_alone_is_no_change_of_a_plugin() {
    let request = parse(r#"{"input":"a","model":"m"}"#);
    let mut draft = EmbeddingsDraft::new(&request);
    draft.ask_for_usage();
    draft.break_lines();
    draft.set_model("m");
    assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
    draft.set_model("é\"");
    assert!(!draft.is_changed());
    assert_eq!(draft.render(), r#"{"input":"a","model":"é\""}"#);
}

#[test]
fn the_main_payload_has_the_text_as_plugins_left_it() {
    let request = with("input", json!(["a", "b"]));
    let mut draft = EmbeddingsDraft::new(&request);
    let [first, main] = request.current_units() else { panic!("two units") };
    draft.replace_unit(main, &Bytes::from_static(b"\"c\""));
    draft.remove_content(first, "[removed: \"x\"]");
    assert!(draft.is_changed());
    assert_eq!(draft.main_payload().text, "c");
    assert_eq!(draft.unit_payload(first).text, "[removed: \"x\"]");
    assert_eq!(texts(&parse(str::from_utf8(&draft.render()).expect("UTF-8"))), ["[removed: \"x\"]", "c"]);
}

#[test]
fn what_embeddings_do_not_have_is_a_bad_patch() {
    let request = with("input", json!("a"));
    let image = || Media { mime_type: "image/png".to_owned(), ..Media::default() };
    let sentences = [
        patch_error(&request, |payload| payload.images.push(image())),
        patch_error(&request, |payload| payload.files.push(image())),
        patch_error(&request, |payload| payload.system_prompt = Some("x".to_owned())),
        patch_error(&request, |payload| payload.messages = "[]".into()),
        patch_error(&request, |payload| payload.tools = "[{}]".into()),
        patch_error(&request, |payload| payload.extra = "{}".into()),
        patch_error(&request, |payload| payload.extra = r#"{"request":{"input":"b"}}"#.into()),
        patch_error(&request, |payload| payload.extra = r#"{"request":{"model":"b"}}"#.into()),
        patch_error(&with("input", json!([1])), |payload| payload.text = "x".to_owned()),
    ];
    let expected = [
        "Embeddings have no media",
        "Embeddings have no media",
        "Embeddings have no system prompt",
        "Embeddings have no messages",
        "Embeddings have no tools",
        "`extra` must have an object `request`",
        "`extra.request` must not have the member `input`",
        "`extra.request` must not have the member `model`",
        "`input` has no text that could be changed",
    ];
    assert_eq!(sentences, expected);
    let draft = EmbeddingsDraft::new(&request);
    let main = request.main_unit().expect("a unit");
    let before = draft.unit_payload(main);
    let after = BeforeLlmRequestPayload { images: vec![image()], ..before.clone() };
    draft.patched_unit(main, &before, &after).expect_err("a medium");
    draft.result_payload(main).expect_err("it is no result");
    assert_eq!(draft.patched_result(main, &Bytes::from_static(b"1")), r#""a""#);
}

#[test]
fn errors_are_those_of_openai() {
    let body = Bytes::from_static(
        br#"{"error":{"message":"no org-1234567890abcdefghijklmn","type":"t"},"x":"secret"}"#,
    );
    let shown = Embeddings::error_without_details(&body, 400);
    let shown: Value = serde_json::from_slice(&shown).expect("JSON");
    assert_eq!(shown["error"]["type"], "t");
    assert_eq!(shown.get("x"), None);
    assert!(!String::from_utf8_lossy(&Embeddings::error_without_ids(&body)).contains("1234567890"));
}

/// White space that may stand between the tokens of JSON.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "  \t"])
}

/// A JSON string in one of its spellings, and what it says.
fn spelled() -> impl Strategy<Value = (String, String)> {
    (any::<String>(), any::<bool>()).prop_map(|(text, escapes)| {
        let plain = Value::from(text.as_str()).to_string();
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        (if escapes { format!("\"{}\"", units.collect::<String>()) } else { plain }, text)
    })
}

/// A request, and the texts in it.
fn body() -> impl Strategy<Value = (String, Vec<String>)> {
    let member = prop_oneof![any::<i32>().prop_map(Value::from), any::<String>().prop_map(Value::from)];
    let members = prop::collection::btree_map("[a-e]\\PC{0,4}", member, 0..4);
    let texts = prop::collection::vec(spelled(), 1..5);
    (texts, members, space(), any::<bool>(), any::<bool>()).prop_map(
        |(texts, members, space, is_list, input_first)| {
            let texts = if is_list { texts } else { texts[..1].to_vec() };
            let (jsons, texts): (Vec<String>, Vec<String>) = texts.into_iter().unzip();
            let list = jsons.join(&format!("{space},{space}"));
            let input = if is_list { format!("[{space}{list}{space}]") } else { list };
            let members = members.iter().map(|(name, value)| format!("{}{space}:{value}", json!(name)));
            let mut written: Vec<String> = members.collect();
            let place = if input_first { 0 } else { written.len() };
            written.insert(place, format!("\"input\":{space}{input}"));
            written.insert(written.len() / 2, format!("\"model\"{space}:\"m\""));
            (format!("{space}{{{space}{}{space}}}{space}", written.join(&format!("{space},{space}"))), texts)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn units_in_place_of_themselves_change_no_byte((body, expected) in body()) {
        let request = parse(&body);
        prop_assert_eq!(texts(&request), expected);
        let mut draft = EmbeddingsDraft::new(&request);
        let payload = draft.main_payload();
        draft.apply_main(&payload, &payload).expect("nothing to do");
        prop_assert!(!draft.is_changed());
        prop_assert_eq!(draft.render().as_ptr(), request.body().as_ptr());
        for unit in request.current_units() {
            let payload = draft.unit_payload(unit);
            let json = draft.patched_unit(unit, &payload, &payload).expect("nothing to do");
            prop_assert_eq!(&json, &request.unit_json(unit));
            draft.replace_unit(unit, &json);
        }
        let rendered = draft.render();
        prop_assert_eq!(&rendered[..], body.as_bytes());
    }

    #[test]
    fn patched_texts_arrive_exactly_and_nothing_else_changes(
        (body, mut expected) in body(), patches in prop::collection::vec(prop::option::of(any::<String>()), 5),
    ) {
        let request = parse(&body);
        let mut draft = EmbeddingsDraft::new(&request);
        for (unit, patch) in request.current_units().iter().zip(&patches) {
            let Some(patch) = patch else { continue };
            let before = draft.unit_payload(unit);
            let after = BeforeLlmRequestPayload { text: patch.clone(), ..before.clone() };
            let json = draft.patched_unit(unit, &before, &after).expect("written back");
            draft.replace_unit(unit, &json);
            expected[unit.message()].clone_from(patch);
        }
        let before = draft.main_payload();
        if let Some(patch) = &patches[4] {
            let after = BeforeLlmRequestPayload { text: patch.clone(), ..before.clone() };
            draft.apply_main(&before, &after).expect("written back");
            expected.last_mut().expect("a text").clone_from(patch);
        }
        let rendered = draft.render();
        let changed = EmbeddingsRequest::parse(rendered.clone()).expect("still valid");
        prop_assert_eq!(texts(&changed), expected);
        let without_input = |json: &[u8]| {
            let mut value: Value = serde_json::from_slice(json).expect("JSON");
            let input = value.as_object_mut().and_then(|members| members.remove("input"));
            (value, input.map(|input| input.is_array()))
        };
        prop_assert_eq!(without_input(&rendered), without_input(body.as_bytes()));
    }

    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = EmbeddingsRequest::parse(bytes.into());
    }
}
