//! OpenAI's format Responses without the provider's state: `POST /responses`.

use bytes::Bytes;

use super::{
    error_text,
    format::{Echoes, Format, StreamEvents, UnreadableEvent},
    guarded_points::GuardedPoints,
    openai_error,
    surface::SurfaceTable,
};
use crate::core::{api_format::ApiFormat, error::Error};

mod answer;
mod assembly;
mod draft;
mod echoes;
mod events;
mod heartbeat;
mod item_assembly;
mod items;
mod marks;
mod media;
mod message;
mod model_item;
mod output_plan;
mod patch;
mod render;
mod request;
mod shape;
mod spelling;
mod surface;
mod surface_rules;
mod text_stream;
mod units;
mod withhold;

#[cfg(test)]
mod answer_property_tests;
#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod draft_property_tests;
#[cfg(test)]
mod draft_tests;
#[cfg(test)]
mod patch_tests;
#[cfg(test)]
mod request_property_tests;
#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod stream_property_tests;
#[cfg(test)]
mod text_stream_property_tests;
#[cfg(test)]
mod withhold_tests;

pub(crate) use answer::ResponsesAnswer;
pub(crate) use assembly::ResponseAssembly;
pub(crate) use draft::RequestDraft;
pub(crate) use heartbeat::StreamHeartbeat;
pub(crate) use request::ResponsesRequest;
pub(crate) use text_stream::ResponseStream;

/// The format.
pub(crate) enum Responses {}

impl Format for Responses {
    type Request = ResponsesRequest;
    type Draft<'r> = RequestDraft<'r>;
    type Answer = ResponsesAnswer;
    type Assembly = ResponseAssembly;
    type Heartbeat = StreamHeartbeat;
    type TextStream = ResponseStream;

    const API: ApiFormat = ApiFormat::Openai;
    const PATH: &'static str = "responses";
    /// Deltas, the ends of texts, parts and items, and the last event.
    const EVENT_COPIES: usize = 5;
    const SURFACE: &'static SurfaceTable = &surface_rules::TABLE;

    fn check_request(
        request: &ResponsesRequest,
        guarded: GuardedPoints,
        allowed: &[String],
    ) -> Result<(), Error> {
        surface::check_request(request, guarded, allowed)
    }

    fn error_without_ids(body: &Bytes) -> Bytes {
        error_text::without_ids(body)
    }

    fn error_without_details(body: &Bytes, status: u16) -> Bytes {
        openai_error::error_without_details(body, status)
    }

    fn echoes(request: &ResponsesRequest, sent: &ResponsesRequest, is_guarded: bool) -> Echoes {
        echoes::echoes(request, sent, is_guarded)
    }

    fn with_echoes(answer: &str, echoes: &Echoes) -> Option<String> {
        echoes::with_echoes(answer, echoes)
    }

    fn event_with_echoes(data: &str, echoes: &Echoes) -> Result<Option<String>, UnreadableEvent> {
        echoes::event_with_echoes(data, echoes)
    }

    fn stream_events(answer: &Bytes, _shows_usage: bool, heartbeat: &StreamHeartbeat) -> StreamEvents {
        events::stream_events(answer, heartbeat)
    }

    fn error_event(json: &[u8]) -> Bytes {
        events::error_event(json)
    }
}
