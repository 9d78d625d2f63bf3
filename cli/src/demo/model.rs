//! The demo's second agent: it calls a model through the gateway's LLM proxy, as any client of OpenAI's API does. The model is the
//! one that is built into the gateway.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};

use super::{Stage, screen};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const EVENT: &str = "data: ";

/// A request to the model, and its expected answer.
struct ModelRequest {
    tenant: &'static str,
    streams: bool,
    /// A short description.
    what: &'static str,
    messages: Value,
    /// The tool that the agent offers.
    tool: Option<&'static str>,
    expected: ModelAnswer,
    /// About how many parts plugins are asked.
    questions: usize,
}

/// What the client gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelAnswer {
    pub(super) status: u16,
    /// The code of an error; empty for none.
    pub(super) code: String,
    /// The text of the answer, or the message of an error.
    pub(super) text: String,
    /// The tools that the model calls.
    pub(super) calls: Vec<String>,
}

fn says(text: &str) -> ModelAnswer {
    ModelAnswer { status: 200, code: String::new(), text: text.into(), calls: Vec::new() }
}

fn script() -> [ModelRequest; 5] {
    let user = |text: &str| json!([{ "role": "user", "content": text }]);
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "orders.refund", "arguments": "{}" } });
    let turn = json!([
        { "role": "user", "content": "Refund my order" },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "call_1", "content": "refunded, mail to ada@example.com" },
    ]);
    let request = |tenant, what, messages| ModelRequest {
        tenant,
        streams: false,
        what,
        messages,
        tool: None,
        expected: says(""),
        questions: 2,
    };
    [
        ModelRequest {
            expected: says("You said: Refund my order and write to [EMAIL]"),
            ..request("acme", "an e-mail address", user("Refund my order and write to ada@example.com"))
        },
        ModelRequest {
            expected: ModelAnswer {
                status: 400,
                code: "INPUT_TOO_LONG".into(),
                ..says("Input exceeds 200 character limit")
            },
            questions: 1,
            ..request("acme", "240 characters", user(&"far too long ".repeat(20)[..240]))
        },
        ModelRequest {
            tool: Some("orders.refund"),
            expected: says(
                "Tool call orders.refund was refused: Tool 'orders.refund' is not available on your plan.",
            ),
            questions: 3,
            ..request("globex", "orders.refund", user("Call orders.refund for me"))
        },
        ModelRequest {
            tool: Some("orders.refund"),
            expected: ModelAnswer { calls: vec!["orders.refund".into()], ..says("") },
            questions: 3,
            ..request("acme", "orders.refund", user("Call orders.refund for me"))
        },
        ModelRequest {
            streams: true,
            expected: says("The tool said: refunded, mail to [EMAIL]"),
            questions: 3,
            ..request("acme", "its result", turn)
        },
    ]
}

/// Makes the requests, shows and compares the answers. Returns how many requests there were, and about how many parts of them plugins
/// were asked.
///
/// # Errors
/// One sentence, or the first difference.
pub(super) async fn play(stage: &Stage) -> Result<(usize, usize), String> {
    screen::title(
        "An agent that knows nothing of Hookgate: OpenAI's API at /openai/v1, and a model that is built in",
    );
    let (mut requests, mut questions) = (0, 0);
    for request in script() {
        let token = stage.signer(request.tenant).map_err(|error| error.to_string())?.token();
        let answer = ask(stage.data_addr, &token, &request).await?;
        screen::model_call(request.tenant, request.streams, request.what, &answer);
        if answer != request.expected {
            let (what, expected) = (request.what, request.expected);
            return Err(format!(
                "the model request `{what}` differs\nexpected {expected:#?}\nobserved {answer:#?}"
            ));
        }
        requests += 1;
        questions += request.questions;
    }
    Ok((requests, questions))
}

async fn ask(gateway: SocketAddr, token: &str, request: &ModelRequest) -> Result<ModelAnswer, String> {
    let mut body = json!({ "model": "demo", "messages": request.messages, "stream": request.streams });
    if let Some(name) = request.tool {
        body["tools"] = json!([{ "type": "function", "function": { "name": name } }]);
    }
    let failed = |error: reqwest::Error| format!("no answer of the model: {error}");
    // Ignore the machine's proxies.
    let client = reqwest::Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).build().map_err(failed)?;
    let url = format!("http://{gateway}/openai/v1/chat/completions");
    let sent =
        client.post(url).bearer_auth(token).header("content-type", "application/json").body(body.to_string());
    let answer = sent.send().await.map_err(failed)?;
    let status = answer.status().as_u16();
    let text = answer.text().await.map_err(failed)?;
    read(status, &text).ok_or_else(|| format!("an answer in another form: {text}"))
}

/// Reads an answer, whole or in events.
fn read(status: u16, text: &str) -> Option<ModelAnswer> {
    let events = text.lines().filter_map(|line| line.strip_prefix(EVENT)).filter(|data| *data != "[DONE]");
    let mut values: Vec<Value> = events.filter_map(|data| serde_json::from_str(data).ok()).collect();
    if values.is_empty() {
        values.push(serde_json::from_str(text).ok()?);
    }
    let mut answer = ModelAnswer { status, ..says("") };
    for value in &values {
        if let Some(error) = value.get("error") {
            answer.code = error["code"].as_str()?.to_owned();
            answer.text = error["message"].as_str()?.to_owned();
            continue;
        }
        for choice in value["choices"].as_array()? {
            let said = choice.get("delta").or(choice.get("message"))?;
            answer.text += said["content"].as_str().unwrap_or_default();
            let calls = said["tool_calls"].as_array().into_iter().flatten();
            answer.calls.extend(calls.filter_map(|call| Some(call["function"]["name"].as_str()?.to_owned())));
        }
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_the_same_whole_and_in_events() {
        let call = json!([{ "index": 0, "function": { "name": "f" } }]);
        let whole = json!({ "choices": [{ "message": { "content": "ab", "tool_calls": call } }] });
        let delta = |delta: Value| json!({ "choices": [{ "delta": delta }] });
        let events = [json!({ "content": "a" }), json!({ "content": "b" }), json!({ "tool_calls": call })];
        let events: String = events.map(|event| format!("data: {}\n\n", delta(event))).concat();
        let expected = Some(ModelAnswer { calls: vec!["f".into()], ..says("ab") });
        assert_eq!(read(200, &whole.to_string()), expected);
        assert_eq!(read(200, &format!("{events}data: [DONE]\n\n")), expected);
    }

    #[test]
    fn an_error_is_its_code_and_message() {
        let expected = ModelAnswer { status: 400, code: "C".into(), ..says("m") };
        assert_eq!(read(400, r#"{"error":{"code":"C","message":"m"}}"#), Some(expected));
        assert_eq!(read(200, "<p>"), None);
    }
}
