//! The demo model with Anthropic's Messages.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderName, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{Content, DemoAnswer, Prompt, Reply, Speech, check_tool_count, lines, read, words};
use crate::llm::sse;

/// Has the id of the request.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The answer to a request to `/v1/messages`.
pub(super) fn answer(body: &[u8], id: &str, request_id: &str) -> DemoAnswer {
    let turn = read(body).and_then(|request: Request| Turn::new(request, id));
    match turn {
        Ok(turn) if turn.is_streamed => DemoAnswer::streamed(turn),
        Ok(turn) => DemoAnswer::json(StatusCode::OK, &turn.whole()),
        Err(message) => error(&message, request_id),
    }
}

/// The answer to a request to `/v1/messages/count_tokens`.
pub(super) fn token_count(body: &[u8], request_id: &str) -> DemoAnswer {
    match read::<Request>(body) {
        Ok(request) => DemoAnswer::json(StatusCode::OK, &json!({ "input_tokens": request.words() })),
        Err(message) => error(&message, request_id),
    }
}

fn error(message: &str, request_id: &str) -> DemoAnswer {
    let error = json!({ "type": "invalid_request_error", "message": message });
    let body = json!({ "type": "error", "error": error, "request_id": request_id });
    DemoAnswer::json(StatusCode::BAD_REQUEST, &body)
}

#[derive(Deserialize)]
struct Request {
    model: String,
    /// Only counting needs none.
    max_tokens: Option<u64>,
    system: Option<Content>,
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    stream: Option<bool>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Blocks,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Blocks {
    Text(String),
    List(Vec<Block>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        text: String,
    },
    ToolResult {
        content: Option<Content>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Tool {
    r#type: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct ToolChoice {
    r#type: String,
}

impl Message {
    fn blocks(&self) -> &[Block] {
        match &self.content {
            Blocks::Text(_) => &[],
            Blocks::List(blocks) => blocks,
        }
    }

    /// The text without that of results; several blocks one per line.
    fn text(&self) -> String {
        match &self.content {
            Blocks::Text(text) => text.clone(),
            Blocks::List(blocks) => lines(blocks.iter().filter_map(|block| match block {
                Block::Text { text } => Some(text.as_str()),
                Block::ToolResult { .. } | Block::Other => None,
            })),
        }
    }

    /// The texts of the results of tools.
    fn results(&self) -> impl DoubleEndedIterator<Item = String> {
        self.blocks().iter().filter_map(|block| match block {
            Block::ToolResult { content } => Some(content.as_ref().map(Content::text).unwrap_or_default()),
            Block::Text { .. } | Block::Other => None,
        })
    }

    /// Whether somebody says something beside the results of tools.
    fn has_more_than_results(&self) -> bool {
        let blocks = self.blocks();
        blocks.is_empty() || blocks.iter().any(|block| !matches!(block, Block::ToolResult { .. }))
    }
}

impl Tool {
    /// The name, if the agent defines the tool.
    fn own_name(&self) -> Option<&String> {
        let is_own = self.r#type.as_ref().is_none_or(|name| name == "custom");
        self.name.as_ref().filter(|_| is_own)
    }
}

impl Request {
    fn prompt(&self) -> Result<Prompt, String> {
        let user = self.messages.iter().filter(|message| message.role == "user");
        let newest = user.clone().next_back().ok_or("`messages` has no message of the user")?;
        let may_call = self.tool_choice.as_ref().is_none_or(|choice| choice.r#type != "none");
        let tools = self.tools.iter().flatten().filter(|_| may_call);
        Ok(Prompt {
            user_texts: user.filter(|message| message.has_more_than_results()).map(Message::text).collect(),
            result: newest.results().next_back().filter(|_| !newest.has_more_than_results()),
            tools: tools.filter_map(Tool::own_name).cloned().collect(),
        })
    }

    /// How many words all its texts have.
    fn words(&self) -> usize {
        let system = self.system.as_ref().map_or(0, |system| words(&system.text()));
        let of_message = |message: &Message| {
            words(&message.text()) + message.results().map(|result| words(&result)).sum::<usize>()
        };
        system + self.messages.iter().map(of_message).sum::<usize>()
    }
}

/// One answer of the model.
#[derive(Debug)]
struct Turn {
    id: String,
    model: String,
    speech: Speech,
    input_tokens: usize,
    is_streamed: bool,
}

/// An answer, also one whose content comes later.
#[derive(Serialize)]
struct Answer<'t> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: &'t str,
    content: Vec<AnswerBlock<'t>>,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<&'t str>,
    usage: Value,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnswerBlock<'t> {
    Text {
        text: &'t str,
    },
    ToolUse {
        id: String,
        name: &'t str,
        /// As the user has written it.
        input: &'t RawValue,
    },
}

impl Turn {
    fn new(request: Request, id: &str) -> Result<Self, String> {
        request.max_tokens.ok_or("`max_tokens` is missing")?;
        check_tool_count(request.tools.as_ref().map_or(0, Vec::len))?;
        Ok(Turn {
            id: id.to_owned(),
            speech: Speech::new(&request.prompt()?),
            input_tokens: request.words(),
            is_streamed: request.stream == Some(true),
            model: request.model,
        })
    }

    fn whole(&self) -> Answer<'_> {
        let content = vec![self.block(self.speech.text())];
        self.answer(content, Some(self.stop_reason()), self.output_tokens())
    }

    fn answer<'t>(
        &'t self,
        content: Vec<AnswerBlock<'t>>,
        stop_reason: Option<&'static str>,
        output_tokens: usize,
    ) -> Answer<'t> {
        Answer {
            id: format!("msg_demo_{}", self.id),
            r#type: "message",
            role: "assistant",
            model: &self.model,
            content,
            stop_reason,
            stop_sequence: None,
            usage: self.usage(output_tokens),
        }
    }

    /// The only block of the answer, with this text or these arguments.
    fn block<'t>(&'t self, text: &'t str) -> AnswerBlock<'t> {
        match &self.speech {
            Speech::Text(_) => AnswerBlock::Text { text },
            Speech::Call { name, .. } => AnswerBlock::ToolUse {
                id: format!("toolu_demo_{}", self.id),
                name,
                input: serde_json::from_str(text).expect("arguments are JSON"),
            },
        }
    }

    fn usage(&self, output_tokens: usize) -> Value {
        json!({
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output_tokens,
        })
    }

    fn output_tokens(&self) -> usize {
        words(self.speech.text())
    }

    fn stop_reason(&self) -> &'static str {
        match self.speech {
            Speech::Text(_) => "end_turn",
            Speech::Call { .. } => "tool_use",
        }
    }
}

impl Reply for Turn {
    fn speech(&self) -> &Speech {
        &self.speech
    }

    fn start(&mut self) -> Bytes {
        let empty = match self.speech {
            Speech::Text(_) => "",
            Speech::Call { .. } => "{}",
        };
        let message = json!({ "type": "message_start", "message": self.answer(Vec::new(), None, 0) });
        let block = json!({ "type": "content_block_start", "index": 0, "content_block": self.block(empty) });
        [event(&message), event(&block)].into_iter().flatten().collect()
    }

    fn delta(&mut self, piece: &str) -> Bytes {
        let delta = match self.speech {
            Speech::Text(_) => json!({ "type": "text_delta", "text": piece }),
            Speech::Call { .. } => json!({ "type": "input_json_delta", "partial_json": piece }),
        };
        event(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
    }

    fn end(&mut self) -> VecDeque<Bytes> {
        let delta = json!({ "stop_reason": self.stop_reason(), "stop_sequence": null });
        let usage = self.usage(self.output_tokens());
        VecDeque::from([
            event(&json!({ "type": "content_block_stop", "index": 0 })),
            event(&json!({ "type": "message_delta", "delta": delta, "usage": usage })),
            event(&json!({ "type": "message_stop" })),
        ])
    }
}

/// An event. Its name is its `type`.
fn event(data: &Value) -> Bytes {
    sse::event(data["type"].as_str().unwrap_or_default(), data.to_string().as_bytes())
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
