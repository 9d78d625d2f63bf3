use super::*;
use crate::llm::demo_model::{
    MAX_REQUEST, PAUSE,
    tests::{receive, with},
};
use tokio::time::Instant;

const PATH: &str = "chat/completions";

/// The answer to a request with these members beside the model.
async fn answered(members: Value) -> (StatusCode, Value) {
    let received = receive(PATH, &with(json!({ "model": "demo" }), &members).to_string()).await;
    (received.status, received.json())
}

/// The message of the only choice, and why it ended.
async fn said(members: Value) -> (Value, String) {
    let (status, answer) = answered(members).await;
    assert_eq!(status, 200, "{answer}");
    let choice = &answer["choices"][0];
    (choice["message"].clone(), choice["finish_reason"].as_str().unwrap().to_owned())
}

async fn text(messages: Value) -> String {
    let (message, finish) = said(json!({ "messages": messages })).await;
    assert_eq!((finish.as_str(), message["role"].as_str().unwrap()), ("stop", "assistant"));
    message["content"].as_str().unwrap().to_owned()
}

/// The data of each event.
async fn streamed(members: Value) -> Vec<String> {
    let request = with(json!({ "model": "demo", "stream": true }), &members);
    let received = receive(PATH, &request.to_string()).await;
    let events = received.events().into_iter();
    events.map(|event| event.strip_prefix("data: ").unwrap().to_owned()).collect()
}

fn function(name: &str) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object" } } })
}

#[tokio::test]
async fn it_repeats_what_the_user_has_said() {
    let user = |content: Value| json!({ "role": "user", "content": content });
    assert_eq!(text(json!([user("Hi there".into())])).await, "You said: Hi there");
    let parts =
        json!([{ "type": "text", "text": "a" }, { "type": "image_url" }, { "type": "text", "text": "b" }]);
    let conversation = json!([
        { "role": "system", "content": "Be kind" },
        user("first".into()),
        { "role": "assistant", "content": null },
        user(parts),
        { "role": "assistant", "content": "so far" },
    ]);
    assert_eq!(text(conversation).await, "You said: first | a\nb");
}

#[tokio::test]
async fn it_repeats_the_result_of_a_tool() {
    let conversation = json!([
        { "role": "user", "content": "Use shell.exec" },
        { "role": "assistant", "tool_calls": [] },
        { "role": "tool", "tool_call_id": "a", "content": "done" },
    ]);
    let (message, _) = said(json!({ "messages": conversation, "tools": [function("shell.exec")] })).await;
    assert_eq!(message["content"], "The tool said: done");
}

#[tokio::test]
async fn it_calls_the_tool_that_the_user_names() {
    let tools = json!([function("fs"), function("fs.read"), { "type": "web_search" }]);
    for (text, arguments) in [
        ("Call fs.read", "{}"),
        ("Call fs.read with {this} and {\"path\": \"/{x}\"} or {\"b\": 1}", "{\"path\": \"/{x}\"}"),
        ("Call fs.read with {\"path", "{}"),
    ] {
        let members = json!({ "messages": [{ "role": "user", "content": text }], "tools": tools });
        let (message, finish) = said(members.clone()).await;
        assert_eq!((finish.as_str(), &message["content"]), ("tool_calls", &Value::Null));
        let call = &message["tool_calls"][0];
        assert_eq!(call["type"], "function");
        assert!(call["id"].as_str().unwrap().starts_with("call_"));
        assert_eq!(call["function"], json!({ "name": "fs.read", "arguments": arguments }), "{text}");
        let mut none = members;
        none["tool_choice"] = "none".into();
        assert_eq!(said(none).await.1, "stop");
    }
    let other = json!({ "messages": [{ "role": "user", "content": "Read it" }], "tools": tools });
    assert_eq!(said(other).await.0["content"], "You said: Read it");
}

#[tokio::test]
async fn an_answer_has_what_a_provider_s_has() {
    let messages =
        json!([{ "role": "system", "content": "Be very kind" }, { "role": "user", "content": "a b" }]);
    let (_, answer) = answered(json!({ "messages": messages, "n": 2 })).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-demo-"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("demo")));
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|choice| choice["index"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(choices[0]["message"], choices[1]["message"]);
    let usage = json!({ "prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13 });
    assert_eq!(answer["usage"], usage);
}

#[tokio::test]
async fn a_wrong_request_gets_the_error_of_a_provider() {
    let user = json!([{ "role": "user", "content": "a" }]);
    for (members, part) in [
        (json!({}), "missing field `messages`"),
        (json!({ "messages": "a" }), "can't be read"),
        (json!({ "messages": [] }), "no message"),
        (json!({ "messages": [{ "role": "assistant", "content": "a" }] }), "no message"),
        (json!({ "messages": user, "n": 0 }), "`n` must be from 1 to 8"),
        (json!({ "messages": user, "n": 9 }), "`n` must be from 1 to 8"),
        (json!({ "messages": user, "tools": vec![function("f"); 129] }), "`tools` has more than 128"),
        (json!({ "messages": [{ "role": "user", "content": "a".repeat(MAX_REQUEST) }] }), "at most 262144"),
    ] {
        let (status, body) = answered(members).await;
        assert_eq!(
            (status, &body["error"]["type"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_request_error"))
        );
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
        assert_eq!(body["error"].as_object().unwrap().len(), 4);
    }
    assert_eq!(receive(PATH, "no JSON").await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_answer_comes_word_by_word() {
    let began = Instant::now();
    let messages = json!([{ "role": "user", "content": "a  b\n" }]);
    let events = streamed(json!({ "messages": messages })).await;
    // The role, four words, the finish and [DONE], and what says that there is no more.
    assert_eq!(began.elapsed().as_millis(), 7 * PAUSE.as_millis());
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    let deltas: Vec<_> = chunks.iter().map(|chunk| chunk["choices"][0]["delta"].clone()).collect();
    let text = |text: &str| json!({ "content": text });
    let first = json!({ "role": "assistant", "content": "" });
    assert_eq!(deltas, [first, text("You "), text("said: "), text("a  "), text("b\n"), json!({})]);
    let ends: Vec<_> = chunks.iter().map(|chunk| chunk["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(ends, [None, None, None, None, None, Some("stop")]);
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!((&chunk["id"], chunk.get("usage")), (&chunks[0]["id"], None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_call_has_its_arguments_in_pieces() {
    let messages = json!([{ "role": "user", "content": "f {\"é\":\"é\"}" }]);
    let members = json!({ "messages": messages, "tools": [function("f")], "n": 2 });
    let events = streamed(members).await;
    let chunks = events.iter().filter(|event| *event != "[DONE]");
    let chunks: Vec<Value> = chunks.map(|event| serde_json::from_str(event).unwrap()).collect();
    for choice in 0..2_u64 {
        let own = chunks.iter().map(|chunk| &chunk["choices"][0]);
        let own: Vec<_> = own.filter(|own| own["index"] == choice).collect();
        assert_eq!(own[0]["delta"]["tool_calls"][0]["function"]["name"], "f");
        let pieces: Vec<_> = own
            .iter()
            .filter_map(|own| own["delta"]["tool_calls"][0]["function"]["arguments"].as_str())
            .filter(|piece| !piece.is_empty())
            .collect();
        assert_eq!((pieces.len(), pieces.concat().as_str()), (2, "{\"é\":\"é\"}"));
        assert_eq!(own.last().unwrap()["finish_reason"], "tool_calls");
    }
}

#[tokio::test(start_paused = true)]
async fn the_usage_is_streamed_if_it_is_asked_for() {
    let messages = json!([{ "role": "user", "content": "a" }]);
    let members = json!({ "messages": messages, "stream_options": { "include_usage": true } });
    let events = streamed(members).await;
    let [earlier @ .., last, done] = &events[..] else { panic!("{events:?}") };
    assert_eq!(done, "[DONE]");
    let last: Value = serde_json::from_str(last).unwrap();
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4 });
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &usage));
    for chunk in earlier {
        assert_eq!(serde_json::from_str::<Value>(chunk).unwrap()["usage"], Value::Null, "{chunk}");
    }
}
