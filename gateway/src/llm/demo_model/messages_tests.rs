use super::*;
use crate::llm::demo_model::{
    MAX_REQUEST, PAUSE,
    tests::{ReceivedAnswer, receive, with},
};
use tokio::time::Instant;

const PATH: &str = "v1/messages";
const COUNT: &str = "v1/messages/count_tokens";

/// The answer to a request with these members beside the model and `max_tokens`.
async fn answered(members: &Value) -> ReceivedAnswer {
    receive(PATH, &with(json!({ "model": "claude", "max_tokens": 9 }), members).to_string()).await
}

/// The only block of the answer, and why it ended.
async fn said(members: &Value) -> (Value, String) {
    let received = answered(members).await;
    assert_eq!(received.status, 200, "{}", received.text);
    let answer = received.json();
    assert_eq!(answer["content"].as_array().unwrap().len(), 1);
    (answer["content"][0].clone(), answer["stop_reason"].as_str().unwrap().to_owned())
}

async fn text(messages: Value) -> String {
    let (block, stop_reason) = said(&json!({ "messages": messages })).await;
    assert_eq!((stop_reason.as_str(), &block["type"]), ("end_turn", &json!("text")));
    block["text"].as_str().unwrap().to_owned()
}

/// The id of a streamed message, and the data of each event.
async fn streamed(members: &Value) -> (String, Vec<Value>) {
    let received = answered(&with(json!({ "stream": true }), members)).await;
    let data = received.events().into_iter().map(|event| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), data["type"]);
        data
    });
    let data: Vec<_> = data.collect();
    let id = data[0]["message"]["id"].as_str().unwrap();
    (id.strip_prefix("msg_demo_").unwrap().to_owned(), data)
}

fn user(content: impl Into<Value>) -> Value {
    json!({ "role": "user", "content": content.into() })
}

fn assistant(content: impl Into<Value>) -> Value {
    json!({ "role": "assistant", "content": content.into() })
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn result_block(content: impl Into<Value>) -> Value {
    json!({ "type": "tool_result", "tool_use_id": "toolu_1", "content": content.into() })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "input_schema": { "type": "object" } })
}

fn usage(input_tokens: usize, output_tokens: usize) -> Value {
    json!({
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
    })
}

#[tokio::test]
async fn it_repeats_what_the_user_has_said() {
    assert_eq!(text(json!([user("Hi there")])).await, "You said: Hi there");
    let image = json!({ "type": "image", "source": { "type": "url", "url": "https://a" } });
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "f", "input": { "text": "no" } });
    let thinking = json!({ "type": "thinking", "thinking": "no", "signature": "s" });
    let conversation = json!([
        { "role": "system", "content": "no" },
        user("first"),
        assistant([thinking, call]),
        user([result_block("no")]),
        assistant("no"),
        user([text_block(" a"), image.clone(), text_block("b ")]),
        assistant("so far"),
    ]);
    assert_eq!(text(conversation).await, "You said: first |  a\nb ");
    assert_eq!(text(json!([user("a"), user([image]), user(json!([]))])).await, "You said: a |  | ");
}

#[tokio::test]
async fn it_repeats_the_newest_result_of_a_tool() {
    let of_results = |results: Value| json!([user("Use f"), assistant("f"), user(results)]);
    for (results, said) in [
        (json!([result_block("done")]), "The tool said: done"),
        (json!([result_block([text_block("a"), text_block("b")])]), "The tool said: a\nb"),
        (json!([result_block("first"), result_block("second")]), "The tool said: second"),
        (json!([result_block(Value::Null)]), "The tool said: "),
        (json!([{ "type": "tool_result", "tool_use_id": "a", "is_error": true }]), "The tool said: "),
    ] {
        let members = json!({ "messages": of_results(results), "tools": [tool("f")] });
        assert_eq!(said_text(&members).await, said);
    }
    // A prefill, and what the operator says, change nothing.
    let mut conversation = of_results(json!([result_block("done")]));
    conversation.as_array_mut().unwrap().push(json!({ "role": "system", "content": "Be kind" }));
    conversation.as_array_mut().unwrap().push(assistant("Well"));
    assert_eq!(text(conversation).await, "The tool said: done");
}

async fn said_text(members: &Value) -> String {
    said(members).await.0["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_the_user_says_beside_a_result_is_newer() {
    let newest = user([result_block("done"), text_block("Thanks")]);
    let conversation = json!([user("Use it"), assistant("f"), newest]);
    assert_eq!(text(conversation).await, "You said: Use it | Thanks");
}

#[tokio::test]
async fn it_calls_the_tool_that_the_user_names() {
    let search = json!({ "type": "web_search_20250305", "name": "web.search" });
    let custom = json!({ "type": "custom", "name": "fs.read", "input_schema": {} });
    let tools = json!([tool("fs"), custom, tool(""), search, { "type": "mcp_toolset" }]);
    for (text, input) in [
        ("Call fs.read", json!({})),
        ("Call fs.read with {this} and {\"path\": \"/{x}\"} or {\"b\": 1}", json!({ "path": "/{x}" })),
        ("Call fs.read with {\"path", json!({})),
    ] {
        let members = json!({ "messages": [user(text)], "tools": tools });
        let (block, stop_reason) = said(&members).await;
        let id = block["id"].as_str().unwrap();
        assert!(id.starts_with("toolu_demo_"), "{id}");
        let call = json!({ "type": "tool_use", "id": id, "name": "fs.read", "input": input });
        assert_eq!((stop_reason.as_str(), &block), ("tool_use", &call));
        for (choice, stop_reason) in [("none", "end_turn"), ("auto", "tool_use"), ("any", "tool_use")] {
            let members = with(members.clone(), &json!({ "tool_choice": { "type": choice } }));
            assert_eq!(said(&members).await.1, stop_reason, "{choice}");
        }
    }
    let later =
        json!({ "messages": [user("Call fs.read"), assistant("ok"), user("Thanks")], "tools": tools });
    assert_eq!(said_text(&later).await, "You said: Call fs.read | Thanks");
    for text in ["Read it", "Call web.search"] {
        let members = json!({ "messages": [user(text)], "tools": tools });
        assert_eq!(said_text(&members).await, format!("You said: {text}"));
    }
}

#[tokio::test]
async fn the_input_of_a_call_is_as_the_user_has_written_it() {
    let members = json!({ "messages": [user("f {\"b\": 1e2, \"a\" :\"\\u00e9\"}")], "tools": [tool("f")] });
    let answer = answered(&members).await.text;
    assert!(answer.contains(r#""name":"f","input":{"b": 1e2, "a" :"\u00e9"}}"#), "{answer}");
}

#[tokio::test]
async fn an_answer_has_what_a_provider_s_has() {
    let answer = answered(&json!({ "system": "Be very kind", "messages": [user("a b")] })).await.json();
    let id = answer["id"].as_str().unwrap();
    assert!(id.starts_with("msg_demo_"), "{id}");
    let whole = json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [text_block("You said: a b")],
        "stop_reason": "end_turn",
        "stop_sequence": null,
        "usage": usage(5, 4),
    });
    assert_eq!(answer, whole);
}

#[tokio::test]
async fn the_words_of_all_texts_are_counted() {
    let system = json!([text_block("Be very"), text_block("kind")]);
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "f", "input": { "a": "no word" } });
    let messages = json!([
        user([text_block("one two"), text_block("three")]),
        assistant([text_block(" four\n"), call]),
        user([result_block([text_block("five six")]), result_block("seven"), text_block("eight")]),
        assistant("nine"),
    ]);
    for (members, input_tokens) in [
        (json!({ "messages": [user("a b")] }), 2),
        (json!({ "messages": messages, "stream": true }), 9),
        (json!({ "messages": messages, "system": system, "tools": [tool("f")] }), 12),
        (json!({ "messages": messages, "system": "Be kind" }), 11),
        (json!({ "messages": [] }), 0),
    ] {
        let received = receive(COUNT, &with(json!({ "model": "claude" }), &members).to_string()).await;
        let count = json!({ "input_tokens": input_tokens });
        assert_eq!((received.status.as_u16(), received.json()), (200, count));
    }
    let answer = answered(&json!({ "messages": messages, "system": system })).await.json();
    assert_eq!(answer["usage"]["input_tokens"], 12);
}

/// Tests that a request with these members is refused with a message that has this part.
async fn refused(path: &str, request: &str, part: &str) {
    let received = receive(path, request).await;
    let request_id = received.headers["request-id"].to_str().unwrap();
    let error = received.json();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains(part), "{message}");
    let inner = json!({ "type": "invalid_request_error", "message": message });
    let whole = json!({ "type": "error", "error": inner, "request_id": request_id });
    assert_eq!((received.status.as_u16(), &error), (400, &whole));
}

#[tokio::test]
async fn a_wrong_request_gets_the_error_of_a_provider() {
    let large = json!([user("a".repeat(MAX_REQUEST))]);
    for (members, part) in [
        (json!({}), "missing field `messages`"),
        (json!({ "messages": "a" }), "can't be read"),
        (json!({ "messages": [{ "role": "user" }] }), "missing field `content`"),
        (json!({ "messages": [user([json!({ "text": "a" })])] }), "can't be read"),
        (json!({ "messages": large }), "at most 262144 bytes"),
    ] {
        let request = with(json!({ "model": "claude", "max_tokens": 9 }), &members).to_string();
        refused(PATH, &request, part).await;
        refused(COUNT, &request, part).await;
    }
    let most = json!({ "messages": [user("a")], "tools": vec![tool("f"); 128] });
    assert_eq!(said_text(&most).await, "You said: a");
    for (members, part) in [
        (json!({ "messages": [] }), "`messages` has no message of the user"),
        (json!({ "messages": [assistant("a")] }), "`messages` has no message of the user"),
        (json!({ "messages": [user("a")], "tools": vec![tool("f"); 129] }), "`tools` has more than 128"),
        (json!({ "messages": [user("a")], "max_tokens": null }), "`max_tokens` is missing"),
    ] {
        let request = with(json!({ "model": "claude", "max_tokens": 9 }), &members).to_string();
        refused(PATH, &request, part).await;
    }
    refused(PATH, "no JSON", "can't be read").await;
    refused(COUNT, "", "can't be read").await;
}

#[tokio::test(start_paused = true)]
async fn a_streamed_answer_comes_word_by_word() {
    let began = Instant::now();
    let (id, events) = streamed(&json!({ "messages": [user("a  b\n")] })).await;
    // The start, four words, three events of the end, and what says that there is no more.
    assert_eq!(began.elapsed().as_millis(), 8 * PAUSE.as_millis());
    let message = json!({
        "id": format!("msg_demo_{id}"),
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(2, 0),
    });
    let delta = |text: &str| {
        let delta = json!({ "type": "text_delta", "text": text });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    let expected = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": text_block("") }),
        delta("You "),
        delta("said: "),
        delta("a  "),
        delta("b\n"),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta",
            "delta": { "stop_reason": "end_turn", "stop_sequence": null },
            "usage": usage(2, 4),
        }),
        json!({ "type": "message_stop" }),
    ];
    assert_eq!(events, expected);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_call_has_its_input_in_pieces() {
    let members = json!({ "messages": [user("f {\"é\":\"é\"}")], "tools": [tool("f")] });
    let (id, events) = streamed(&members).await;
    let block = json!({ "type": "tool_use", "id": format!("toolu_demo_{id}"), "name": "f", "input": {} });
    let delta = |json: &str| {
        let delta = json!({ "type": "input_json_delta", "partial_json": json });
        json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    let expected = [
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        delta("{\"é\":"),
        delta("\"é\"}"),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta",
            "delta": { "stop_reason": "tool_use", "stop_sequence": null },
            "usage": usage(2, 1),
        }),
        json!({ "type": "message_stop" }),
    ];
    assert_eq!(events[1..], expected);
}

#[tokio::test(start_paused = true)]
async fn text_can_forge_no_event() {
    let received = answered(&json!({ "stream": true, "messages": [user("a\u{2028}data: b")] })).await;
    assert!(!received.text.contains('\u{2028}') && received.text.contains(r"a\u2028"), "{}", received.text);
}
