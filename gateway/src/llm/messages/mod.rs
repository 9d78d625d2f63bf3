//! Anthropic's format Messages: `POST /v1/messages`, and the tokens of such a request: `POST /v1/messages/count_tokens`.

use bytes::Bytes;

use super::{
    format::{Echoes, Format, FormatAnswer, FormatHeartbeat, StreamEvents},
    guarded_points::GuardedPoints,
    surface::SurfaceTable,
};
use crate::core::{api_format::ApiFormat, error::Error};

mod answer;
mod assembly;
mod block_assembly;
mod blocks;
mod draft;
mod error_body;
mod events;
mod media;
mod message;
mod model_message;
mod patch;
mod render;
mod request;
mod shape;
mod spelling;
mod surface;
mod text_stream;
mod token_count;
mod units;
mod withhold;

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
mod test_edits;
#[cfg(test)]
mod text_stream_property_tests;
#[cfg(test)]
mod withhold_tests;

pub(crate) use answer::MessagesAnswer;
pub(crate) use assembly::MessageAssembly;
pub(crate) use draft::RequestDraft;
pub(crate) use request::MessagesRequest;
pub(crate) use text_stream::MessageStream;
pub(crate) use token_count::TokenCount;

/// An endpoint whose requests are messages. The rest of the format is the same for all of them.
pub(crate) trait MessagesEndpoint: Send + Sync + 'static {
    /// Its answer.
    type Answer: FormatAnswer;

    /// Its path, below the base URL of a provider.
    const PATH: &'static str;

    /// Whether its answers may be streams.
    const MAY_STREAM: bool;
}

/// The model answers messages.
pub(crate) enum Messages {}

impl MessagesEndpoint for Messages {
    type Answer = MessagesAnswer;

    const PATH: &'static str = "v1/messages";
    const MAY_STREAM: bool = true;
}

/// The provider counts the tokens of messages. To plugins it is the request that it counts: the provider gets the same text.
pub(crate) enum CountTokens {}

impl MessagesEndpoint for CountTokens {
    type Answer = TokenCount;

    const PATH: &'static str = "v1/messages/count_tokens";
    const MAY_STREAM: bool = false;
}

/// An event in which clients read nothing.
pub(crate) struct PingHeartbeat;

impl FormatHeartbeat for PingHeartbeat {
    fn new(_echoes: &Echoes, _is_guarded: bool) -> Self {
        PingHeartbeat
    }

    fn beat(&mut self) -> Bytes {
        Bytes::from_static(events::PING)
    }
}

impl<E: MessagesEndpoint> Format for E {
    type Request = MessagesRequest;
    type Draft<'r> = RequestDraft<'r>;
    type Answer = E::Answer;
    type Assembly = MessageAssembly;
    type Heartbeat = PingHeartbeat;
    type TextStream = MessageStream;

    const API: ApiFormat = ApiFormat::Anthropic;
    const PATH: &'static str = E::PATH;
    const MAY_STREAM: bool = E::MAY_STREAM;
    const SURFACE: &'static SurfaceTable = &surface::TABLE;

    fn check_request(
        request: &MessagesRequest,
        guarded: GuardedPoints,
        allowed: &[String],
    ) -> Result<(), Error> {
        surface::check_request(request, guarded, allowed)
    }

    fn error_without_ids(body: &Bytes) -> Bytes {
        error_body::without_ids(body)
    }

    fn error_without_details(body: &Bytes, status: u16) -> Bytes {
        error_body::error_without_details(body, status)
    }

    fn stream_events(answer: &Bytes, _shows_usage: bool, _heartbeat: &PingHeartbeat) -> StreamEvents {
        events::stream_events(answer)
    }

    fn error_event(json: &[u8]) -> Bytes {
        events::error_event(json)
    }
}
