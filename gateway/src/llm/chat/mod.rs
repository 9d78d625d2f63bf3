//! OpenAI's format Chat Completions: `POST /chat/completions`.

use bytes::Bytes;

use super::{
    error_text,
    format::{Echoes, Format, FormatHeartbeat, StreamEvents},
    guarded_points::GuardedPoints,
    openai_error, sse,
    surface::SurfaceTable,
};
use crate::core::{api_format::ApiFormat, error::Error};

mod answer;
mod answer_texts;
mod assembly;
mod call;
mod chunks;
mod draft;
mod media;
mod message;
mod patch;
mod render;
mod request;
mod shape;
mod spelling;
mod surface;
mod text_stream;
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
pub(crate) use text_stream::ChunkStream;

/// A comment, which is no event.
pub(crate) struct CommentHeartbeat;

impl FormatHeartbeat for CommentHeartbeat {
    fn new(_echoes: &Echoes, _is_guarded: bool) -> Self {
        CommentHeartbeat
    }

    fn beat(&mut self) -> Bytes {
        Bytes::from_static(sse::COMMENT)
    }
}

/// The format.
pub(crate) enum ChatCompletions {}

impl Format for ChatCompletions {
    type Request = ChatRequest;
    type Draft<'r> = RequestDraft<'r>;
    type Answer = ChatAnswer;
    type Assembly = AnswerAssembly;
    type Heartbeat = CommentHeartbeat;
    type TextStream = ChunkStream;

    const API: ApiFormat = ApiFormat::Openai;
    const PATH: &'static str = "chat/completions";
    const SURFACE: &'static SurfaceTable = &surface::TABLE;

    fn check_request(request: &ChatRequest, guarded: GuardedPoints, allowed: &[String]) -> Result<(), Error> {
        surface::check_request(request, guarded, allowed)
    }

    fn error_without_ids(body: &Bytes) -> Bytes {
        error_text::without_ids(body)
    }

    fn error_without_details(body: &Bytes, status: u16) -> Bytes {
        openai_error::error_without_details(body, status)
    }

    fn stream_events(answer: &Bytes, shows_usage: bool, _heartbeat: &CommentHeartbeat) -> StreamEvents {
        chunks::stream_events(answer, shows_usage)
    }

    fn error_event(json: &[u8]) -> Bytes {
        sse::event("", json)
    }
}
