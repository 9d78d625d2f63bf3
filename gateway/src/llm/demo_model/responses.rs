//! The demo model with OpenAI's Responses.

use std::collections::VecDeque;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Content, DemoAnswer, Prompt, Reply, Speech, check_tool_count, openai, read, words};
use crate::llm::sse;

/// The answer to a request to `/responses`.
pub(super) fn answer(body: &[u8], id: &str) -> DemoAnswer {
    let turn = read(body).and_then(|request: Request| {
        let is_streamed = request.stream == Some(true);
        Ok((Turn::new(request, id)?, is_streamed))
    });
    match turn {
        Ok((turn, true)) => DemoAnswer::streamed(turn),
        Ok((turn, false)) => DemoAnswer::json(StatusCode::OK, &turn.completed()),
        Err(message) => openai::bad_request(&message),
    }
}

#[derive(Deserialize)]
struct Request {
    model: String,
    input: Input,
    instructions: Option<String>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    metadata: Option<Value>,
    text: Option<Value>,
    stream: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

/// A message, the result of a tool, or what the model said and thought before.
#[derive(Deserialize)]
struct Item {
    role: Option<String>,
    content: Option<Content>,
    /// Of the result of a tool.
    output: Option<Content>,
}

impl Item {
    fn text(&self) -> String {
        self.content.as_ref().map(Content::text).unwrap_or_default()
    }

    fn result(&self) -> Option<String> {
        self.output.as_ref().map(Content::text)
    }

    /// Whether somebody else than the model has written it.
    fn is_of_others(&self) -> bool {
        self.output.is_some() || self.role.as_ref().is_some_and(|role| role != "assistant")
    }

    fn words(&self) -> usize {
        words(&self.text()) + self.result().map_or(0, |result| words(&result))
    }
}

impl Request {
    fn prompt(&self) -> Result<Prompt, String> {
        let (user_texts, result) = match &self.input {
            Input::Text(text) => (vec![text.clone()], None),
            Input::Items(items) => {
                let newest = items.iter().rfind(|item| item.is_of_others());
                let newest = newest.ok_or("`input` has nothing for the model")?;
                let user = items.iter().filter(|item| item.role.as_deref() == Some("user"));
                (user.map(Item::text).collect(), newest.result())
            }
        };
        let may_call = self.tool_choice.as_ref().is_none_or(|choice| choice != "none");
        let tools = self.tools.iter().flatten().filter(|tool| may_call && tool["type"] == "function");
        let tools = tools.filter_map(|tool| tool["name"].as_str().map(str::to_owned));
        Ok(Prompt { user_texts, result, tools: tools.collect() })
    }

    /// How many words all its texts have.
    fn words(&self) -> usize {
        let input = match &self.input {
            Input::Text(text) => words(text),
            Input::Items(items) => items.iter().map(Item::words).sum(),
        };
        words(self.instructions.as_deref().unwrap_or_default()) + input
    }
}

/// One answer of the model.
#[derive(Debug)]
struct Turn {
    id: String,
    /// What each form of the answer has: settings, also those that repeat the request's.
    head: Value,
    speech: Speech,
    input_tokens: usize,
    /// How many events there were.
    events: usize,
}

impl Turn {
    fn new(request: Request, id: &str) -> Result<Self, String> {
        check_tool_count(request.tools.as_ref().map_or(0, Vec::len))?;
        let speech = Speech::new(&request.prompt()?);
        let input_tokens = request.words();
        let head = json!({
            "id": format!("resp_demo_{id}"),
            "object": "response",
            "created_at": openai::now(),
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": request.instructions,
            "max_output_tokens": null,
            "metadata": request.metadata.unwrap_or_else(|| json!({})),
            "model": request.model,
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "reasoning": { "effort": null, "summary": null },
            "store": false,
            "temperature": 1.0,
            "text": request.text.unwrap_or_else(|| json!({ "format": { "type": "text" } })),
            "tool_choice": request.tool_choice.unwrap_or_else(|| "auto".into()),
            "tools": request.tools.unwrap_or_default(),
            "top_p": 1.0,
            "truncation": "disabled",
        });
        Ok(Turn { id: id.to_owned(), head, speech, input_tokens, events: 0 })
    }

    /// The whole answer.
    fn completed(&self) -> Value {
        let output_tokens = words(self.speech.text());
        let usage = json!({
            "input_tokens": self.input_tokens,
            "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
            "output_tokens": output_tokens,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": self.input_tokens + output_tokens,
        });
        self.response("completed", json!([self.whole_item()]), usage)
    }

    fn response(&self, status: &str, output: Value, usage: Value) -> Value {
        let mut response = self.head.clone();
        response["status"] = status.into();
        response["output"] = output;
        response["usage"] = usage;
        response
    }

    /// The only item of the answer.
    fn whole_item(&self) -> Value {
        match &self.speech {
            Speech::Text(text) => self.item("completed", json!([text_part(text)])),
            Speech::Call { arguments, .. } => self.item("completed", arguments.as_str().into()),
        }
    }

    /// The item with these parts of a message, or these arguments.
    fn item(&self, status: &str, content: Value) -> Value {
        let id = self.item_id();
        match &self.speech {
            Speech::Text(_) => {
                json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
            }
            Speech::Call { name, .. } => json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "call_id": format!("call_demo_{}", self.id),
                "name": name,
                "arguments": content,
            }),
        }
    }

    fn item_id(&self) -> String {
        let kind = match self.speech {
            Speech::Text(_) => "msg",
            Speech::Call { .. } => "fc",
        };
        format!("{kind}_demo_{}", self.id)
    }

    /// The next event, with these members.
    fn event(&mut self, name: &str, mut members: Value) -> Bytes {
        members["type"] = name.into();
        members["sequence_number"] = self.events.into();
        self.events += 1;
        sse::event(name, members.to_string().as_bytes())
    }

    /// The next event about the item, or about its text.
    fn item_event(&mut self, name: &str, mut members: Value) -> Bytes {
        members["item_id"] = self.item_id().into();
        members["output_index"] = 0.into();
        if matches!(self.speech, Speech::Text(_)) {
            members["content_index"] = 0.into();
        }
        self.event(name, members)
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

impl Reply for Turn {
    fn speech(&self) -> &Speech {
        &self.speech
    }

    fn start(&mut self) -> Bytes {
        let response = self.response("in_progress", json!([]), Value::Null);
        let (is_text, nothing) = match self.speech {
            Speech::Text(_) => (true, json!([])),
            Speech::Call { .. } => (false, "".into()),
        };
        let item = self.item("in_progress", nothing);
        let mut events = vec![
            self.event("response.created", json!({ "response": &response })),
            self.event("response.in_progress", json!({ "response": response })),
            self.event("response.output_item.added", json!({ "output_index": 0, "item": item })),
        ];
        if is_text {
            events.push(self.item_event("response.content_part.added", json!({ "part": text_part("") })));
        }
        events.into_iter().flatten().collect()
    }

    fn delta(&mut self, piece: &str) -> Bytes {
        match self.speech {
            Speech::Text(_) => {
                self.item_event("response.output_text.delta", json!({ "delta": piece, "logprobs": [] }))
            }
            Speech::Call { .. } => {
                self.item_event("response.function_call_arguments.delta", json!({ "delta": piece }))
            }
        }
    }

    fn end(&mut self) -> VecDeque<Bytes> {
        let text = self.speech.text().to_owned();
        let mut end = match &self.speech {
            Speech::Text(_) => {
                let part = json!({ "part": text_part(&text) });
                VecDeque::from([
                    self.item_event("response.output_text.done", json!({ "text": text, "logprobs": [] })),
                    self.item_event("response.content_part.done", part),
                ])
            }
            Speech::Call { name, .. } => {
                let members = json!({ "name": name, "arguments": text });
                VecDeque::from([self.item_event("response.function_call_arguments.done", members)])
            }
        };
        let item = json!({ "output_index": 0, "item": self.whole_item() });
        end.push_back(self.event("response.output_item.done", item));
        end.push_back(self.event("response.completed", json!({ "response": self.completed() })));
        end
    }
}

#[cfg(test)]
#[path = "responses_tests.rs"]
mod tests;
