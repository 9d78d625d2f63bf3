use serde_json::json;

use super::*;

/// An answer that was read to its end.
pub(super) struct ReceivedAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl ReceivedAnswer {
    /// The JSON of a whole answer.
    pub(super) fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_str(&self.text).unwrap()
    }

    /// The lines of each event of a stream.
    pub(super) fn events(&self) -> Vec<&str> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.headers["content-type"], "text/event-stream; charset=utf-8");
        self.text.strip_suffix("\n\n").unwrap().split("\n\n").collect()
    }
}

/// What the model answers to a request to this path.
pub(super) async fn receive(path: &str, request: &str) -> ReceivedAnswer {
    let DemoAnswer { status, headers, body } = answer(path, &Bytes::copy_from_slice(request.as_bytes()));
    ReceivedAnswer { status, headers, text: collect(body).await }
}

async fn collect(mut body: DemoBody) -> String {
    let mut text = String::new();
    while let Some(piece) = body.piece().await {
        text += std::str::from_utf8(&piece).unwrap();
    }
    text
}

/// `base` with further members.
pub(super) fn with(mut base: Value, members: &Value) -> Value {
    base.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    base
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    for path in [
        "",
        "messages",
        "v1/messages/",
        "v1/messages/batches",
        "v1/chat/completions",
        "v1/responses",
        "models",
    ] {
        let received = receive(path, "{}").await;
        let message = format!("The demo model has no `{path}`");
        let error =
            json!({ "message": message, "type": "invalid_request_error", "param": null, "code": null });
        assert_eq!((received.status.as_u16(), received.json()), (404, json!({ "error": error })));
        assert!(received.headers["x-request-id"].to_str().unwrap().starts_with("req_demo_"));
    }
}

#[tokio::test]
async fn every_request_has_its_own_id() {
    for (path, header) in [
        ("chat/completions", "x-request-id"),
        ("responses", "x-request-id"),
        ("embeddings", "x-request-id"),
        ("v1/messages", "request-id"),
        ("v1/messages/count_tokens", "request-id"),
    ] {
        let (first, second) = (receive(path, "{}").await, receive(path, "{}").await);
        let id = first.headers[header].to_str().unwrap();
        assert!(id.starts_with("req_demo_") && second.headers[header] != *id, "{path}: {id}");
        assert_eq!(first.headers.len(), 2, "{path}: {:?}", first.headers);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_loses_nothing() {
    let messages = json!([{ "role": "user", "content": "a b" }]);
    let members = json!({ "messages": messages, "input": "a b", "max_tokens": 9 });
    let request = with(json!({ "model": "m", "stream": true }), &members).to_string();
    for path in ["chat/completions", "responses", "v1/messages"] {
        let mut body = answer(path, &request.clone().into()).body;
        let mut text = String::new();
        loop {
            match tokio::time::timeout(PAUSE / 4, body.piece()).await {
                Ok(Some(piece)) => text += std::str::from_utf8(&piece).unwrap(),
                Ok(None) => break,
                Err(_) => {}
            }
        }
        let whole = receive(path, &request).await;
        assert_eq!(text.matches("data: ").count(), whole.events().len(), "{path}: {text}");
    }
}
