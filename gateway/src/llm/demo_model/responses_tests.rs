use super::*;
use crate::llm::demo_model::{
    MAX_REQUEST, PAUSE,
    tests::{ReceivedAnswer, receive, with},
};
use tokio::time::Instant;

const PATH: &str = "responses";

/// The answer to a request with these members beside the model.
async fn answered(members: &Value) -> ReceivedAnswer {
    receive(PATH, &with(json!({ "model": "demo" }), members).to_string()).await
}

/// The only item of the answer.
async fn said(members: &Value) -> Value {
    let received = answered(members).await;
    assert_eq!(received.status, 200, "{}", received.text);
    let answer = received.json();
    assert_eq!((&answer["status"], answer["output"].as_array().unwrap().len()), (&json!("completed"), 1));
    answer["output"][0].clone()
}

async fn text(input: Value) -> String {
    said_text(&json!({ "input": input })).await
}

async fn said_text(members: &Value) -> String {
    let item = said(members).await;
    assert_eq!(item["type"], "message", "{item}");
    item["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The data of each event.
async fn streamed(members: &Value) -> Vec<Value> {
    let received = answered(&with(json!({ "stream": true }), members)).await;
    let data = received.events().into_iter().enumerate().map(|(number, event)| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
        assert_eq!(data["sequence_number"], number);
        data
    });
    data.collect()
}

fn user(content: impl Into<Value>) -> Value {
    json!({ "role": "user", "content": content.into() })
}

fn part(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn assistant(text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    json!({ "type": "message", "role": "assistant", "content": content })
}

fn call() -> Value {
    json!({ "type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}" })
}

fn result(output: impl Into<Value>) -> Value {
    json!({ "type": "function_call_output", "call_id": "call_1", "output": output.into() })
}

fn function(name: &str) -> Value {
    json!({ "type": "function", "name": name, "parameters": { "type": "object" } })
}

#[tokio::test]
async fn it_repeats_what_the_user_has_said() {
    assert_eq!(text("Hi there".into()).await, "You said: Hi there");
    assert_eq!(text(json!([user("Hi there")])).await, "You said: Hi there");
    let thought = json!({ "type": "reasoning", "summary": [], "content": null, "encrypted_content": "e" });
    let image = json!({ "type": "input_image", "image_url": "https://a" });
    let conversation = json!([
        { "role": "developer", "content": "no" },
        user("first"),
        thought,
        assistant("no"),
        user([part("a"), image, part("b")]),
        assistant("so far"),
    ]);
    assert_eq!(text(conversation).await, "You said: first | a\nb");
}

#[tokio::test]
async fn it_repeats_the_newest_result_of_a_tool() {
    for (output, said) in
        [(json!("done"), "The tool said: done"), (json!([part("a"), part("b")]), "The tool said: a\nb")]
    {
        let input = json!([user("Use f"), call(), result("first"), call(), result(output)]);
        assert_eq!(said_text(&json!({ "input": input, "tools": [function("f")] })).await, said);
    }
    let input = json!([user("Use it"), call(), result("done"), user("Thanks")]);
    assert_eq!(text(input).await, "You said: Use it | Thanks");
}

#[tokio::test]
async fn it_calls_the_tool_that_the_user_names() {
    let tools = json!([function("fs"), function("fs.read"), { "type": "web_search", "name": "web" }]);
    for (text, arguments) in [
        ("Call fs.read", "{}"),
        ("Call fs.read with {this} and {\"path\": \"/{x}\"} or {\"b\": 1}", "{\"path\": \"/{x}\"}"),
        ("Call fs.read with {\"path", "{}"),
    ] {
        let members = json!({ "input": text, "tools": tools });
        let item = said(&members).await;
        let id = item["id"].as_str().unwrap().strip_prefix("fc_demo_").unwrap();
        let call = json!({
            "id": item["id"],
            "type": "function_call",
            "status": "completed",
            "call_id": format!("call_demo_{id}"),
            "name": "fs.read",
            "arguments": arguments,
        });
        assert_eq!(item, call, "{text}");
        let none = with(members, &json!({ "tool_choice": "none" }));
        assert_eq!(said(&none).await["type"], "message");
    }
    for text in ["Read it", "Call web"] {
        let members = json!({ "input": text, "tools": tools });
        assert_eq!(said_text(&members).await, format!("You said: {text}"));
    }
}

#[tokio::test]
async fn an_answer_has_what_a_provider_s_has() {
    let members = json!({
        "instructions": "Be very kind",
        "input": [user("a b"), call(), result("c d e"), assistant("f"), user("g")],
        "tools": [function("h")],
        "tool_choice": "required",
        "metadata": { "a": "b" },
        "text": { "verbosity": "low" },
    });
    let answer = answered(&members).await.json();
    let id = answer["id"].as_str().unwrap().strip_prefix("resp_demo_").unwrap();
    assert!(answer["created_at"].as_u64().unwrap() > 1_700_000_000);
    let content = json!([text_part("You said: a b | g")]);
    let message = json!({
        "id": format!("msg_demo_{id}"),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    });
    let usage = json!({
        "input_tokens": 10,
        "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
        "output_tokens": 6,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 16,
    });
    let expected = json!({ "object": "response", "model": "demo", "output": [message], "usage": usage });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(answer[name], *value, "{name}");
    }
    for name in ["instructions", "tools", "tool_choice", "metadata", "text"] {
        assert_eq!(answer[name], members[name], "{name}");
    }
    let plain = answered(&json!({ "input": "a" })).await.json();
    let defaults = json!({ "instructions": null, "tools": [], "tool_choice": "auto", "metadata": {} });
    for (name, value) in defaults.as_object().unwrap() {
        assert_eq!(plain[name], *value, "{name}");
    }
}

#[tokio::test]
async fn a_wrong_request_gets_the_error_of_a_provider() {
    for (members, part) in [
        (json!({}), "missing field `input`"),
        (json!({ "input": 1 }), "can't be read"),
        (json!({ "input": [] }), "`input` has nothing for the model"),
        (json!({ "input": [assistant("a"), call()] }), "`input` has nothing for the model"),
        (json!({ "input": "a", "tools": vec![function("f"); 129] }), "`tools` has more than 128"),
        (json!({ "input": "a".repeat(MAX_REQUEST) }), "at most 262144"),
    ] {
        let received = answered(&members).await;
        let body = received.json();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
        let error =
            json!({ "message": message, "type": "invalid_request_error", "param": null, "code": null });
        assert_eq!((received.status.as_u16(), &body), (400, &json!({ "error": error })));
    }
    assert_eq!(receive(PATH, "no JSON").await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_answer_comes_word_by_word() {
    let began = Instant::now();
    let events = streamed(&json!({ "input": "a  b\n" })).await;
    // The start, four words, four events of the end, and what says that there is no more.
    assert_eq!(began.elapsed().as_millis(), 9 * PAUSE.as_millis());
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, expected);
    for begun in &events[..2] {
        let response = &begun["response"];
        assert_eq!((&response["status"], &response["output"]), (&json!("in_progress"), &json!([])));
        assert_eq!(response["id"], events[11]["response"]["id"]);
    }
    let item = json!({ "status": "in_progress", "content": [] });
    assert_eq!(events[2]["item"], with(events[10]["item"].clone(), &item));
    assert_eq!(events[3]["part"], text_part(""));
    let pieces: Vec<_> = events[4..8].iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(pieces, ["You ", "said: ", "a  ", "b\n"]);
    let whole = "You said: a  b\n";
    assert_eq!((&events[8]["text"], &events[9]["part"]), (&json!(whole), &text_part(whole)));
    for event in &events[3..10] {
        assert_eq!(event["item_id"], events[10]["item"]["id"]);
        assert_eq!((&event["output_index"], &event["content_index"]), (&json!(0), &json!(0)));
    }
    let completed = &events[11]["response"];
    assert_eq!(completed["output"], json!([events[10]["item"]]));
    assert_eq!((&completed["status"], &completed["usage"]["total_tokens"]), (&json!("completed"), &json!(6)));
}

#[tokio::test(start_paused = true)]
async fn a_streamed_call_has_its_arguments_in_pieces() {
    let events = streamed(&json!({ "input": "f {\"é\":\"é\"}", "tools": [function("f")] })).await;
    let [_, _, added, first, second, arguments_done, done, completed] = &events[..] else {
        panic!("{events:?}")
    };
    let begun = json!({ "status": "in_progress", "arguments": "" });
    assert_eq!(added["item"], with(done["item"].clone(), &begun));
    let item_id = &done["item"]["id"];
    for (event, piece) in [(first, "{\"é\":"), (second, "\"é\"}")] {
        assert_eq!(event["type"], "response.function_call_arguments.delta");
        assert_eq!((&event["delta"], &event["item_id"]), (&json!(piece), item_id));
        assert!(event.get("content_index").is_none());
    }
    assert_eq!(arguments_done["type"], "response.function_call_arguments.done");
    assert_eq!(arguments_done["arguments"], "{\"é\":\"é\"}");
    assert_eq!((&arguments_done["name"], &arguments_done["item_id"]), (&json!("f"), item_id));
    assert_eq!(completed["response"]["output"], json!([done["item"]]));
}

#[tokio::test(start_paused = true)]
async fn text_can_forge_no_event() {
    let received = answered(&json!({ "stream": true, "input": "a\u{2028}data: b" })).await;
    assert!(!received.text.contains('\u{2028}') && received.text.contains(r"a\u2028"), "{}", received.text);
}
