//! What the proxy needs of a format, such as OpenAI's Chat Completions: views of requests and answers, and the bytes with changes.
//!
//! The formats are never translated into each other. An exchange has one format from end to end.

use std::{borrow::Cow, collections::HashSet};

use bytes::Bytes;
use hookgate_proto::types::v1::{
    AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload,
};

use super::{
    answer_parts::AnswerParts, guarded_points::GuardedPoints, sse::SseEvent, surface::SurfaceTable,
    unit::Unit,
};
use crate::{
    core::{api_format::ApiFormat, error::Error},
    json::ValueKind,
};

/// A format of requests to models and of their answers.
pub(crate) trait Format: Send + Sync + 'static {
    /// A request.
    type Request: FormatRequest;
    /// A request with changes.
    type Draft<'r>: FormatDraft<'r, Request = Self::Request>;
    /// An answer.
    type Answer: FormatAnswer;
    /// An answer that comes as a stream.
    type Assembly: FormatAssembly;
    /// What tells a client that a streamed answer, which is held, is on its way.
    type Heartbeat: FormatHeartbeat;
    /// A stream whose text goes out before the answer is whole.
    type TextStream: FormatTextStream<Heartbeat = Self::Heartbeat>;

    /// The API that it is a part of.
    const API: ApiFormat;

    /// The path of requests, below the base URL of a provider.
    const PATH: &'static str;

    /// Whether an answer has anything that plugins are asked about. One that hasn't, such as a list of embeddings, passes as it
    /// comes.
    const HAS_CHOICES: bool = true;

    /// How many times the events of an answer have its text, about.
    const EVENT_COPIES: usize = 1;

    /// Whether an answer may be a stream. A format whose answers never are, such as a count of tokens, ignores what the request
    /// says.
    const MAY_STREAM: bool = true;

    /// What it refuses.
    const SURFACE: &'static SurfaceTable;

    /// Refuses what would pass plugins by, unless it is in `allowed` (`llm.allow`).
    ///
    /// # Errors
    /// `UNSUPPORTED`, with a violation for the first thing that is refused.
    fn check_request(
        request: &Self::Request,
        guarded: GuardedPoints,
        allowed: &[String],
    ) -> Result<(), Error>;

    /// Whether the answer is to be a stream.
    fn is_streamed(request: &Self::Request) -> bool {
        Self::MAY_STREAM && request.is_streamed()
    }

    /// A provider's error in any form, without the ids of the operator's organizations and projects.
    fn error_without_ids(body: &Bytes) -> Bytes;

    /// A provider's error, with the members that the API has, as far as `body` has them. Other members may hold what the model
    /// said, and so may the message: always where the server failed (from status 500), and otherwise where it says so.
    fn error_without_details(body: &Bytes, status: u16) -> Bytes;

    /// What a provider that repeats the request in its answer may repeat of `sent`, as the client wrote it in `request`. A client
    /// must not read there what plugins made of it. With `is_guarded`, also what plugins left as it is and what is withheld from
    /// answers: the provider could write something else there.
    fn echoes(_request: &Self::Request, _sent: &Self::Request, _is_guarded: bool) -> Echoes {
        Echoes::default()
    }

    /// A whole answer, a valid JSON object, with the client's own words where it repeats the request. `None` if that changes
    /// nothing.
    fn with_echoes(_answer: &str, _echoes: &Echoes) -> Option<String> {
        None
    }

    /// The data of an event, with the client's own words where the answer in it repeats the request. `None` if that changes
    /// nothing.
    ///
    /// # Errors
    /// The data isn't JSON, so the members of the request in it can't be found.
    fn event_with_echoes(_data: &str, _echoes: &Echoes) -> Result<Option<String>, UnreadableEvent> {
        Ok(None)
    }

    /// A whole answer, as [`FormatAnswer::render`] wrote it, as the events of a stream; with the usage, if the client `shows_usage`.
    /// They follow what the heartbeat has sent.
    fn stream_events(answer: &Bytes, shows_usage: bool, heartbeat: &Self::Heartbeat) -> StreamEvents;

    /// An event with an error, given as the JSON of a whole answer, in place of the rest of a stream.
    fn error_event(json: &[u8]) -> Bytes;
}

/// Members of a request that answers may repeat otherwise than the client wrote them, with the client's values; `None` for those that
/// it didn't write.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Echoes(Vec<(String, Option<String>)>);

impl Echoes {
    /// Members with the client's values, as JSON.
    pub(super) fn new(members: Vec<(String, Option<String>)>) -> Self {
        Echoes(members)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }
}

/// The data of an event isn't a JSON object that every client reads in the same way. One sentence says why, without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnreadableEvent(String);

impl UnreadableEvent {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        UnreadableEvent(sentence.into())
    }
}

/// Tells a client that its stream is alive while the answer is held.
pub(crate) trait FormatHeartbeat: Send + Sized {
    /// The heartbeat for an answer that repeats these members of the request. With `is_guarded`, it has nothing of the provider's that
    /// may carry text.
    fn new(echoes: &Echoes, is_guarded: bool) -> Self;

    /// Takes an event that the assembly has taken.
    fn push(&mut self, _event: &SseEvent) {}

    /// What the client gets next.
    fn beat(&mut self) -> Bytes;
}

/// The events of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamEvents {
    /// What the model said.
    pub(crate) answer: Vec<Bytes>,
    /// What says that this was all. It is left out where the answer isn't whole.
    pub(crate) end: Vec<Bytes>,
}

/// What a request says about the conversation that it is a part of. All of it is the agent's word.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conversation<'r> {
    /// Its name.
    pub(crate) session: Option<&'r str>,
    /// Who uses the agent.
    pub(crate) user: Option<&'r str>,
}

/// A view of a request's bytes.
pub(crate) trait FormatRequest: Send + Sync + Sized {
    /// What requests of this form are called. It tells units of different forms apart in the memory of verdicts.
    const FORM: &'static str;

    /// Reads and checks a body.
    ///
    /// # Errors
    /// `PAYLOAD_INVALID`, with a violation for each mistake.
    fn parse(body: Bytes) -> Result<Self, Error>;

    /// The model that is asked for.
    fn model(&self) -> &str;

    /// Whether the answer is to be a stream.
    fn is_streamed(&self) -> bool;

    /// Whether the client gets the usage with this request as it is. Otherwise the gateway asks for it, for plugins, and leaves
    /// it out of the client's stream.
    fn shows_usage(&self) -> bool;

    /// How many answers are asked for.
    fn choices(&self) -> u32;

    /// Whether the answer's text must be JSON.
    fn expects_json(&self) -> bool;

    /// The conversation that it is a part of.
    fn conversation(&self) -> Conversation<'_>;

    /// What the first message of a user says, as JSON that is the same in every turn; empty if there is none.
    fn first_user_message(&self) -> Cow<'_, str>;

    /// The units of turns that the model has answered.
    fn older_units(&self) -> &[Unit];

    /// The units of the current turn, including [`Self::main_unit`].
    fn current_units(&self) -> &[Unit];

    /// The last user unit of the current turn.
    fn main_unit(&self) -> Option<&Unit>;

    /// The JSON of a unit, for comparison with its replacement; shares the body's memory where it can.
    fn unit_json(&self, unit: &Unit) -> Bytes;

    /// The JSON of a unit, or of what replaces it, without what some agents change about it from turn to turn. It names the unit in
    /// the memory of verdicts.
    fn lasting_json(json: Bytes) -> Bytes {
        json
    }

    /// Checks that every result of a tool has exactly one call in the request, and a call at most one result: it is the
    /// tool to judge the result by.
    ///
    /// # Errors
    /// `PAYLOAD_INVALID`, with a violation for each result without its call, for each further result of a call and for
    /// each repeated id of a call.
    fn results_have_calls(&self) -> Result<(), Error>;
}

/// Why a plugin's change can't be written back into the request: one sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PatchError(String);

impl PatchError {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        PatchError(sentence.into())
    }
}

/// A request and its changes. What nobody changes stays byte for byte.
pub(crate) trait FormatDraft<'r>: Send + Sync + Sized {
    /// The request that is changed.
    type Request: FormatRequest;

    /// A draft without changes.
    fn new(request: &'r Self::Request) -> Self;

    /// Asks this model.
    fn set_model(&mut self, model: &str);

    /// Asks for the usage at the end of a stream.
    fn ask_for_usage(&mut self);

    /// Keeps text parts apart, as plugins see them. What is sent depends on the messages alone, so that a provider's prompt
    /// cache holds.
    fn break_lines(&mut self);

    /// Puts this JSON in place of a unit: one that [`Self::patched_unit`] or [`Self::patched_result`] has returned, in this
    /// turn or an earlier one.
    fn replace_unit(&mut self, unit: &Unit, json: &Bytes);

    /// Puts a note in place of a unit's content.
    fn remove_content(&mut self, unit: &Unit, note: &str);

    /// Whether anything was changed but the model, the options of streams and line breaks.
    fn is_changed(&self) -> bool;

    /// The payload of the main call: the last text of the user, and all that surrounds it.
    fn main_payload(&self) -> BeforeLlmRequestPayload;

    /// The payload of one user unit without what surrounds it.
    fn unit_payload(&self, unit: &Unit) -> BeforeLlmRequestPayload;

    /// The payload of a result.
    ///
    /// # Errors
    /// `PAYLOAD_INVALID` if its call isn't in the request; see [`FormatRequest::results_have_calls`].
    fn result_payload(&self, unit: &Unit) -> Result<AfterToolResultPayload, Error>;

    /// A user unit with the text and media that plugins changed, as JSON. What else they changed counts in the main call only.
    ///
    /// # Errors
    /// The change can't be written in this format.
    fn patched_unit(
        &self,
        unit: &Unit,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<Bytes, PatchError>;

    /// A result with another value, as JSON. With the same value it keeps its bytes.
    fn patched_result(&self, unit: &Unit, result: &Bytes) -> Bytes;

    /// Writes back what differs between the payload of the main call and what plugins left of it.
    ///
    /// # Errors
    /// A change can't be written back. The draft may then hold some of the other changes.
    fn apply_main(
        &mut self,
        before: &BeforeLlmRequestPayload,
        after: &BeforeLlmRequestPayload,
    ) -> Result<(), PatchError>;

    /// The body with all changes.
    fn render(&self) -> Bytes;
}

/// Why plugins can't judge an answer, in half a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    /// It isn't an answer to the request in this format.
    #[error("{0}")]
    Invalid(String),
    /// It is more than plugins are asked about, or than may be held.
    #[error("{0}")]
    TooLarge(String),
}

/// A tool call whose arguments aren't exactly one JSON value: two parsers could see two calls in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidArguments {
    /// The tool that the model wants to call.
    pub(crate) tool_name: String,
}

/// A view of an answer's bytes.
pub(crate) trait FormatAnswer: Send + Sync + Sized {
    /// Reads an answer to a request for so many choices.
    ///
    /// # Errors
    /// It is not in the form of an answer, or has more tool calls than plugins are asked about.
    fn parse(body: Bytes, choices: u32) -> Result<Self, AnswerError>;

    /// How many choices there are.
    fn choices(&self) -> usize;

    /// How many tools a choice calls.
    fn calls(&self, choice: usize) -> usize;

    /// What the model says and thinks in a choice.
    ///
    /// # Panics
    /// There is no such choice.
    fn parts(&self, choice: usize) -> &AnswerParts;

    /// What plugins see of a choice beside its texts and thoughts. The usage is in the first choice only.
    ///
    /// # Panics
    /// There is no such choice.
    fn payload(&self, choice: usize) -> BeforeResponsePayload;

    /// What plugins see of a tool call.
    ///
    /// # Errors
    /// The arguments aren't exactly one JSON value.
    ///
    /// # Panics
    /// There is no such choice or call.
    fn call_payload(&self, choice: usize, call: usize) -> Result<BeforeToolCallPayload, InvalidArguments>;

    /// The kind of value that the arguments of a tool call must be; `None` if it may be any.
    fn args_kind(&self, _choice: usize, _call: usize) -> Option<ValueKind> {
        None
    }

    /// The answer with an edit for each choice; choices beyond the list stay. With `expects_json` the client parses the
    /// text, so that no message stands there. With `is_guarded`, members that may carry text that no plugin saw are
    /// withheld.
    fn render(&self, edits: &[ChoiceEdit], expects_json: bool, is_guarded: bool) -> RenderedAnswer;
}

/// What happens to one choice. The default changes nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChoiceEdit {
    /// Another text in place of each; `None` and those beyond the list stay. A choice without texts gets the first.
    pub(crate) texts: Vec<Option<String>>,
    /// Another thought in place of each, likewise.
    pub(crate) thoughts: Vec<Option<String>>,
    /// The texts that citations may have; `None` if plugins weren't asked about the answer, so that any may. A citation with another
    /// text is taken out.
    pub(crate) cited_texts: Option<HashSet<String>>,
    /// What happens to each tool call; those beyond the list stay.
    pub(crate) calls: Vec<CallEdit>,
    /// A message in place of the whole answer. Nothing else of the edit then counts.
    pub(crate) replacement: Option<String>,
}

/// What happens to a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallEdit {
    /// It stays byte for byte.
    Keep,
    /// It has another name or other arguments, as JSON.
    Patch {
        /// The tool's name.
        name: String,
        /// The arguments.
        args: Bytes,
    },
    /// It is taken out, and this text stands in its place.
    Note(String),
}

impl ChoiceEdit {
    /// A message in place of the whole answer.
    pub(crate) fn replaced(message: String) -> Self {
        ChoiceEdit { replacement: Some(message), ..ChoiceEdit::default() }
    }

    /// Whether it takes something out: the answer or a tool call.
    pub(crate) fn is_block(&self) -> bool {
        self.replacement.is_some() || self.calls.iter().any(|call| matches!(call, CallEdit::Note(_)))
    }
}

/// An answer to be sent.
#[derive(Debug)]
pub(crate) struct RenderedAnswer {
    /// The body. Without changes it shares the memory of the old one.
    pub(crate) body: Bytes,
    /// The names of the members that were withheld, each once.
    pub(crate) withheld: Vec<String>,
}

/// What an event of a provider's stream means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    /// More may come.
    GoesOn,
    /// This was the end. What follows is not read.
    Done,
    /// The provider has put an error in place of the rest.
    Failed,
}

/// What is known so far of a streamed answer.
pub(crate) trait FormatAssembly: Send + Sized {
    /// An assembly that holds at most so many bytes.
    fn new(limit: usize) -> Self;

    /// Takes an event.
    ///
    /// # Errors
    /// It is none of an answer, or there is no room for it. The assembly is of no use afterwards.
    fn push(&mut self, event: &SseEvent) -> Result<StreamProgress, AnswerError>;

    /// Bytes that are held. Never shrinks.
    fn held(&self) -> usize;

    /// Whether there is anything of an answer.
    fn has_choices(&self) -> bool;

    /// Whether the model has said why it stopped, for each choice. Otherwise the stream was cut.
    fn is_complete(&self) -> bool;

    /// Removes the tool calls of choices that aren't finished, because their arguments may be incomplete.
    fn drop_open_calls(&mut self);

    /// The JSON of the answer so far, for [`FormatAnswer::parse`].
    fn body(&self) -> Bytes;

    /// The answer's first text, as far as it came. `None` before it has any, and if anything but reasoning comes before it, or there
    /// is another choice.
    fn first_text(&self) -> Option<Cow<'_, str>>;
}

/// Writes the events of an answer whose first text goes out while the rest still comes.
pub(crate) trait FormatTextStream: Send + Sized {
    /// What the client has got before.
    type Heartbeat;

    /// Begins the stream of an answer, given as [`FormatAnswer::render`] wrote it so far: reasoning, and the beginning of its first
    /// text. Returns the events in front of that text.
    fn begin(answer: &Bytes, heartbeat: &Self::Heartbeat) -> (Self, Vec<Bytes>);

    /// The event with the next piece of the first text, which isn't empty.
    fn text(&mut self, piece: &str) -> Bytes;

    /// The text that was sent.
    fn sent(&self) -> &str;

    /// What the client gets next while nothing else is sent.
    fn beat(&mut self) -> Bytes;

    /// The rest of the events of the whole answer; with the usage, if the client `shows_usage`. What stands in front of its first
    /// text has been sent. `None` if that text doesn't begin with what was sent of it.
    fn rest(&self, answer: &Bytes, shows_usage: bool) -> Option<StreamEvents>;
}
