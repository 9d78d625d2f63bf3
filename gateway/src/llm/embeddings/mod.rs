//! OpenAI's embeddings: `POST /embeddings`. A provider turns texts into lists of numbers.

use bytes::Bytes;

use super::{
    chat::ChatCompletions,
    format::{Format, StreamEvents},
    guarded_points::GuardedPoints,
    surface::SurfaceTable,
};
use crate::core::{api_format::ApiFormat, error::Error};

mod draft;
mod request;
mod surface;

#[cfg(test)]
mod tests;

pub(crate) use draft::EmbeddingsDraft;
pub(crate) use request::EmbeddingsRequest;

/// The format.
pub(crate) enum Embeddings {}

/// The answer has no text to judge, so that nothing reads or writes it. Its types are those of Chat Completions because there
/// must be some, and they are never used. Errors have the same form in both.
impl Format for Embeddings {
    type Request = EmbeddingsRequest;
    type Draft<'r> = EmbeddingsDraft<'r>;
    type Answer = <ChatCompletions as Format>::Answer;
    type Assembly = <ChatCompletions as Format>::Assembly;
    type Heartbeat = <ChatCompletions as Format>::Heartbeat;
    type TextStream = <ChatCompletions as Format>::TextStream;

    const API: ApiFormat = ApiFormat::Openai;
    const PATH: &'static str = "embeddings";
    const HAS_CHOICES: bool = false;
    const MAY_STREAM: bool = false;
    const SURFACE: &'static SurfaceTable = &surface::TABLE;

    fn check_request(
        request: &EmbeddingsRequest,
        guarded: GuardedPoints,
        allowed: &[String],
    ) -> Result<(), Error> {
        surface::check_request(request, guarded, allowed)
    }

    fn error_without_ids(body: &Bytes) -> Bytes {
        ChatCompletions::error_without_ids(body)
    }

    fn error_without_details(body: &Bytes, status: u16) -> Bytes {
        ChatCompletions::error_without_details(body, status)
    }

    fn stream_events(answer: &Bytes, shows_usage: bool, heartbeat: &Self::Heartbeat) -> StreamEvents {
        ChatCompletions::stream_events(answer, shows_usage, heartbeat)
    }

    fn error_event(json: &[u8]) -> Bytes {
        ChatCompletions::error_event(json)
    }
}
