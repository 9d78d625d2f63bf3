//! The demo model with OpenAI's Chat Completions.

use std::collections::VecDeque;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Content, DemoAnswer, Prompt, Reply, Speech, check_tool_count, openai, read, words};
use crate::llm::sse;

const MAX_CHOICES: usize = 8;

/// The answer to a request to `/chat/completions`.
pub(super) fn answer(body: &[u8], id: &str) -> DemoAnswer {
    let turn = read(body).and_then(|request: Request| Turn::new(request, id));
    match turn {
        Ok(turn) if turn.is_streamed => DemoAnswer::streamed(turn),
        Ok(turn) => DemoAnswer::json(StatusCode::OK, &turn.completion()),
        Err(message) => openai::bad_request(&message),
    }
}

#[derive(Deserialize)]
struct Request {
    model: String,
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Value>,
    n: Option<usize>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
}

#[derive(Deserialize)]
struct Tool {
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: String,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl Message {
    fn text(&self) -> String {
        self.content.as_ref().map(Content::text).unwrap_or_default()
    }
}

impl Request {
    fn prompt(&self) -> Result<Prompt, String> {
        let newest = self.messages.iter().rfind(|message| message.role != "assistant");
        let newest = newest.ok_or("`messages` has no message for the assistant")?;
        let user = self.messages.iter().filter(|message| message.role == "user");
        let may_call = self.tool_choice.as_ref().is_none_or(|choice| choice != "none");
        let tools = self.tools.iter().flatten().filter(|_| may_call);
        Ok(Prompt {
            user_texts: user.map(Message::text).collect(),
            result: (newest.role == "tool").then(|| newest.text()),
            tools: tools.filter_map(|tool| Some(tool.function.as_ref()?.name.clone())).collect(),
        })
    }
}

/// One answer of the model.
#[derive(Debug)]
struct Turn {
    id: String,
    created: u64,
    model: String,
    choices: usize,
    speech: Speech,
    usage: Value,
    is_streamed: bool,
    includes_usage: bool,
}

impl Turn {
    fn new(request: Request, id: &str) -> Result<Self, String> {
        let choices = request.n.unwrap_or(1);
        if !(1..=MAX_CHOICES).contains(&choices) {
            return Err(format!("`n` must be from 1 to {MAX_CHOICES}"));
        }
        check_tool_count(request.tools.as_ref().map_or(0, Vec::len))?;
        let speech = Speech::new(&request.prompt()?);
        let prompt: usize = request.messages.iter().map(|message| words(&message.text())).sum();
        let completion = words(speech.text()) * choices;
        Ok(Turn {
            id: id.to_owned(),
            created: openai::now(),
            choices,
            speech,
            usage: json!({
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }),
            is_streamed: request.stream == Some(true),
            includes_usage: request.stream_options.and_then(|options| options.include_usage) == Some(true),
            model: request.model,
        })
    }

    fn completion(&self) -> Value {
        let choice = |index| {
            let mut message = json!({ "role": "assistant", "content": null, "refusal": null });
            match &self.speech {
                Speech::Text(text) => message["content"] = text.as_str().into(),
                Speech::Call { name, arguments } => {
                    let function = json!({ "name": name, "arguments": arguments });
                    message["tool_calls"] =
                        json!([{ "id": self.call_id(index), "type": "function", "function": function }]);
                }
            }
            let finish_reason = self.finish_reason();
            json!({ "index": index, "message": message, "logprobs": null, "finish_reason": finish_reason })
        };
        let choices: Vec<_> = (0..self.choices).map(choice).collect();
        let mut completion = self.head("chat.completion");
        completion["choices"] = choices.into();
        completion["usage"] = self.usage.clone();
        completion
    }

    fn head(&self, object: &str) -> Value {
        let id = format!("chatcmpl-demo-{}", self.id);
        json!({ "id": id, "object": object, "created": self.created, "model": self.model })
    }

    fn call_id(&self, choice: usize) -> String {
        format!("call_demo_{}_{choice}", self.id)
    }

    fn finish_reason(&self) -> &'static str {
        match self.speech {
            Speech::Text(_) => "stop",
            Speech::Call { .. } => "tool_calls",
        }
    }

    /// One event for each choice.
    fn chunks(&self, finish_reason: Option<&str>, delta: impl Fn(usize) -> Value) -> Bytes {
        let of_choice = |index| {
            let mut chunk = self.chunk();
            let delta = delta(index);
            chunk["choices"] =
                json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason }]);
            event(&chunk)
        };
        (0..self.choices).flat_map(of_choice).collect()
    }

    fn chunk(&self) -> Value {
        let mut chunk = self.head("chat.completion.chunk");
        chunk["choices"] = json!([]);
        if self.includes_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

impl Reply for Turn {
    fn speech(&self) -> &Speech {
        &self.speech
    }

    fn start(&mut self) -> Bytes {
        self.chunks(None, |choice| match &self.speech {
            Speech::Text(_) => json!({ "role": "assistant", "content": "" }),
            Speech::Call { name, .. } => {
                let function = json!({ "name": name, "arguments": "" });
                let call = json!({ "index": 0, "id": self.call_id(choice), "type": "function", "function": function });
                json!({ "role": "assistant", "content": null, "tool_calls": [call] })
            }
        })
    }

    fn delta(&mut self, piece: &str) -> Bytes {
        self.chunks(None, |_| match &self.speech {
            Speech::Text(_) => json!({ "content": piece }),
            Speech::Call { .. } => {
                json!({ "tool_calls": [{ "index": 0, "function": { "arguments": piece } }] })
            }
        })
    }

    fn end(&mut self) -> VecDeque<Bytes> {
        let mut end = VecDeque::from([self.chunks(Some(self.finish_reason()), |_| json!({}))]);
        if self.includes_usage {
            let mut chunk = self.chunk();
            chunk["usage"] = self.usage.clone();
            end.push_back(event(&chunk));
        }
        end.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        end
    }
}

fn event(chunk: &Value) -> Bytes {
    sse::event("", chunk.to_string().as_bytes())
}

#[cfg(test)]
#[path = "chat_tests.rs"]
mod tests;
