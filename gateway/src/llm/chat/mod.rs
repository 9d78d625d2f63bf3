//! OpenAI's format Chat Completions: `POST /chat/completions`.

use bytes::Bytes;

use super::{
    error_text,
    format::{Format, StreamEvents},
    guarded_points::GuardedPoints,
    sse,
};
use crate::core::{api_format::ApiFormat, error::Error};

mod answer;
mod assembly;
mod call;
mod chunks;
mod draft;
mod error_body;
mod media;
mod message;
mod patch;
mod render;
mod request;
mod shape;
mod spelling;
mod surface;
mod units;
mod withhold;

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod draft_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod stream_property_tests;
#[cfg(test)]
mod withhold_tests;

pub(crate) use answer::ChatAnswer;
pub(crate) use assembly::AnswerAssembly;
pub(crate) use draft::RequestDraft;
pub(crate) use request::ChatRequest;

/// The format.
pub(crate) enum ChatCompletions {}

impl Format for ChatCompletions {
    type Request = ChatRequest;
    type Draft<'r> = RequestDraft<'r>;
    type Answer = ChatAnswer;
    type Assembly = AnswerAssembly;

    const API: ApiFormat = ApiFormat::Openai;
    const PATH: &'static str = "chat/completions";
    /// A comment, which is no event.
    const HEARTBEAT: &'static [u8] = b": hookgate\n\n";
    const ARGS_ARE_OBJECTS: bool = false;

    fn check_request(request: &ChatRequest, guarded: GuardedPoints, allowed: &[String]) -> Result<(), Error> {
        surface::check_request(request, guarded, allowed)
    }

    fn error_without_ids(body: &Bytes) -> Bytes {
        error_text::without_ids(body)
    }

    fn error_without_details(body: &Bytes, status: u16) -> Bytes {
        error_body::error_without_details(body, status)
    }

    fn stream_events(answer: &Bytes, shows_usage: bool) -> StreamEvents {
        chunks::stream_events(answer, shows_usage)
    }

    fn error_event(json: &[u8]) -> Bytes {
        sse::event("", json)
    }
}
