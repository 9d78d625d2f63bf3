//! OpenAI's format Chat Completions: `POST /chat/completions`.

mod answer;
mod assembly;
mod call;
mod chunks;
mod draft;
mod error_body;
mod media;
mod merged;
mod message;
mod patch;
mod render;
mod request;
mod shape;
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

pub(crate) use answer::{AnswerError, ChatAnswer};
pub(crate) use assembly::{AnswerAssembly, AssemblyError, ChunkEvent};
pub(crate) use chunks::{DONE, chunk_events, error_event};
pub(crate) use draft::RequestDraft;
pub(crate) use error_body::{error_without_details, without_ids};
pub(crate) use media::{UnseenMedium, check_medium};
pub(crate) use message::PatchError;
pub(crate) use render::{CallEdit, ChoiceEdit};
pub(crate) use request::{ChatRequest, Role};
pub(crate) use units::{Unit, UnitKind};
