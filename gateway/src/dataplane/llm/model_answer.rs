//! Judges a model's answer on its way to the client: each tool call, then the answer of each choice.

use std::{fmt, pin::pin, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use hookgate_proto::types::v1::{BeforeResponsePayload, CancelScope};
use http::{HeaderValue, StatusCode, header};

use crate::{
    core::{
        call_site::CallSite,
        context::QuestionKind,
        error::{Code, Error},
    },
    dataplane::llm::{
        chains::MAX_QUESTIONS,
        exchange::{Exchange, ProviderAnswer, SentRequest, bad_patch, is_of_type, provider_error},
        text_release::JudgedWindows,
    },
    edge::admission::MemoryPermit,
    invoke::{BeforeResponse, BeforeToolCall, Block},
    json::ValueKind,
    llm::{
        answer_json::json_answer,
        answer_parts::AnswerPart,
        format::{AnswerError, CallEdit, ChoiceEdit, Echoes, Format, FormatAnswer, FormatRequest},
        guarded_points::GuardedPoints,
        upstream::UpstreamAnswer,
    },
    net::body_buffer::BodyBuffer,
    records::exchange::ExchangeFacts,
};

/// An answer as plugins left it.
pub(super) struct JudgedBody {
    pub(super) body: Bytes,
    /// Whether plugins blocked any of it.
    pub(super) is_blocked: bool,
}

/// What has become of an answer before it was whole. The default is nothing.
#[derive(Default)]
pub(super) struct BegunAnswer<'e> {
    /// The text that the client has got.
    pub(super) text: Option<String>,
    /// What was judged in windows.
    pub(super) windows: Option<JudgedWindows<'e>>,
    /// The block of a window.
    pub(super) block: Option<Block>,
}

/// What was decided about one choice.
enum ChoiceVerdict {
    Edit(ChoiceEdit),
    /// The message that takes the place of all choices.
    EndsRun(String),
}

impl ChoiceVerdict {
    fn from_block(block: Block) -> Self {
        match block.scope {
            CancelScope::Run => ChoiceVerdict::EndsRun(block.message),
            CancelScope::Step | CancelScope::Unspecified => {
                ChoiceVerdict::Edit(ChoiceEdit::replaced(block.message))
            }
        }
    }

    /// The edit of the only choice of an answer.
    fn into_edit(self) -> ChoiceEdit {
        match self {
            ChoiceVerdict::Edit(edit) => edit,
            ChoiceVerdict::EndsRun(message) => ChoiceEdit::replaced(message),
        }
    }
}

/// What was decided about one tool call.
enum CallVerdict {
    Edit(CallEdit),
    /// The message that takes the place of all choices.
    EndsRun(String),
}

impl<F: Format> Exchange<'_, F> {
    /// Receives and judges the provider's answer.
    ///
    /// # Errors
    /// A plugin made no decision, or the answer is too large, or none of a model's.
    pub(super) async fn judge_answer(
        &self,
        sent: &SentRequest<'_, F::Request>,
        mut answer: UpstreamAnswer,
        room: &mut MemoryPermit,
        facts: &mut ExchangeFacts,
    ) -> Result<ProviderAnswer, Error> {
        let name = self.route.upstream.name();
        let body = self.receive(&mut answer, room).await?;
        facts.upstream_ended();
        let (status, request_id) = (answer.status, answer.request_id());
        let passed =
            ProviderAnswer { status, headers: answer.passed_headers(), request_id, body, is_blocked: false };
        if status.as_u16() >= 400 {
            let body = answer.without_credential(&passed.body);
            return self.provider_refusal(ProviderAnswer { body, ..passed });
        }
        if !self.asks_about_answers() {
            let body = self.with_echoes(passed.body, &sent.echoes)?;
            return Ok(ProviderAnswer { body, ..passed });
        }
        if status != StatusCode::OK || !is_of_type(&answer.headers, "application/json") {
            let detail = format!("The provider `{name}` answered with status {status} and no JSON");
            return Err(Error::new(Code::UpstreamBadAnswer, detail));
        }
        let judged = self.judge_body(sent, passed.body, BegunAnswer::default(), facts).await?;
        let mut passed = ProviderAnswer { body: judged.body, is_blocked: judged.is_blocked, ..passed };
        // As it was read, whatever the provider says beside it.
        passed.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(passed)
    }

    /// Whether plugins are asked about anything in an answer.
    pub(super) fn asks_about_answers(&self) -> bool {
        GuardedPoints::OF_ANSWERS.iter().any(|point| self.caller.tenant.asks(&CallSite::Point(*point)))
    }

    /// An error of the provider, for the client.
    fn provider_refusal(&self, passed: ProviderAnswer) -> Result<ProviderAnswer, Error> {
        if is_about_credential(passed.status, &passed.body) {
            return Err(self.credential_refused(passed.status));
        }
        // Some clients take 403 for a login.
        let status =
            if passed.status == StatusCode::FORBIDDEN { StatusCode::BAD_REQUEST } else { passed.status };
        if !self.guarded.has_answers() {
            return Ok(ProviderAnswer { status, body: F::error_without_ids(&passed.body), ..passed });
        }
        // Some providers put there what the model said.
        let body = F::error_without_details(&passed.body, passed.status.as_u16());
        let mut refusal = ProviderAnswer { status, body, ..passed };
        refusal.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(refusal)
    }

    /// Judges an answer, of which this has been sent or judged before. A message in its place follows the text that the client has, on
    /// a line of its own.
    ///
    /// # Errors
    /// A plugin made no decision, or the answer is too large, or none of a model's.
    pub(super) async fn judge_body(
        &self,
        sent: &SentRequest<'_, F::Request>,
        body: Bytes,
        begun: BegunAnswer<'_>,
        facts: &mut ExchangeFacts,
    ) -> Result<JudgedBody, Error> {
        let BegunAnswer { text, windows, block } = begun;
        let request = sent.request;
        let answer = F::Answer::parse(body, request.choices()).map_err(|error| self.not_an_answer(&error))?;
        let sent_text = text.unwrap_or_default();
        let mut edits = match (block, windows) {
            (Some(block), _) => vec![ChoiceEdit::replaced(block.message)],
            (None, Some(windows)) => {
                // In a box, since it is large.
                let judged = Box::pin(self.judge_windows(&answer, windows, &sent_text)).await?;
                vec![judged.into_edit()]
            }
            (None, None) => self.judge_choices(&answer).await?,
        };
        if !sent_text.is_empty() {
            for replacement in edits.iter_mut().filter_map(|edit| edit.replacement.as_mut()) {
                *replacement = format!("{sent_text}\n{replacement}");
            }
        }
        let is_blocked = edits.iter().any(ChoiceEdit::is_block);
        let rendered = answer.render(&edits, request.expects_json(), self.guarded.has_answers());
        facts.withheld = rendered.withheld;
        Ok(JudgedBody { body: self.with_echoes(rendered.body, &sent.echoes)?, is_blocked })
    }

    /// An answer that repeats the client's request, and not what plugins made of it.
    ///
    /// # Errors
    /// The answer isn't JSON, so the members of the request in it can't be found.
    pub(super) fn with_echoes(&self, body: Bytes, echoes: &Echoes) -> Result<Bytes, Error> {
        if echoes.is_empty() {
            return Ok(body);
        }
        let text = json_answer(&body).map_err(|error| self.not_an_answer(&error))?;
        Ok(F::with_echoes(text, echoes).map_or(body.clone(), Bytes::from))
    }

    /// The error for an answer that plugins can't judge.
    pub(super) fn unusable(&self, code: Code, why: &dyn fmt::Display) -> Error {
        let name = self.route.upstream.name();
        Error::new(code, format!("The answer of the provider `{name}` can't be used: {why}"))
    }

    /// The error for what is no answer of a model, or too large a one.
    pub(super) fn not_an_answer(&self, error: &AnswerError) -> Error {
        let code = match error {
            AnswerError::TooLarge(_) => Code::AnswerTooLarge,
            AnswerError::Invalid(_) => Code::UpstreamBadAnswer,
        };
        self.unusable(code, error)
    }

    /// Receives a whole body.
    ///
    /// # Errors
    /// It is too large, or late, or cut.
    pub(super) async fn receive(
        &self,
        answer: &mut UpstreamAnswer,
        room: &mut MemoryPermit,
    ) -> Result<Bytes, Error> {
        let (name, limit) = (self.route.upstream.name(), self.llm.limits.answer);
        let mut body = BodyBuffer::default();
        loop {
            let piece = answer.piece(body.so_far().len(), limit).await;
            let Some(piece) = piece.map_err(|error| provider_error(name, error))? else { break };
            room.grow(piece.len())?;
            self.leave_worker(body.so_far().len() + piece.len()).await;
            body.push(piece);
        }
        Ok(body.finish())
    }

    async fn judge_choices(&self, answer: &F::Answer) -> Result<Vec<ChoiceEdit>, Error> {
        let mut edits = Vec::with_capacity(answer.choices());
        for choice in 0..answer.choices() {
            match self.judge_choice(answer, choice).await? {
                ChoiceVerdict::Edit(edit) => edits.push(edit),
                ChoiceVerdict::EndsRun(message) => {
                    return Ok(vec![ChoiceEdit::replaced(message); answer.choices()]);
                }
            }
        }
        Ok(edits)
    }

    async fn judge_choice(&self, answer: &F::Answer, choice: usize) -> Result<ChoiceVerdict, Error> {
        let mut edit = match self.judge_calls(answer, choice).await? {
            ChoiceVerdict::Edit(edit) => edit,
            ends_run @ ChoiceVerdict::EndsRun(_) => return Ok(ends_run),
        };
        if !self.caller.asks::<BeforeResponse>() {
            return Ok(ChoiceVerdict::Edit(edit));
        }
        let parts = answer.parts(choice).to_judge().map_err(|error| self.not_an_answer(&error))?;
        Ok(match self.judge_parts(&answer.payload(choice), parts, &mut edit).await? {
            Some(block) => ChoiceVerdict::from_block(block),
            None => ChoiceVerdict::Edit(edit),
        })
    }

    /// Judges parts of a choice, of which plugins are shown `choice` too, and adds to `edit` what plugins left of them. Returns the
    /// block of the first part that has one.
    pub(super) async fn judge_parts(
        &self,
        choice: &BeforeResponsePayload,
        parts: Vec<AnswerPart>,
        edit: &mut ChoiceEdit,
    ) -> Result<Option<Block>, Error> {
        edit.cited_texts.get_or_insert_default();
        // None of them is polled before its turn.
        let judged = stream::iter(parts.into_iter().map(|part| self.judge_part(choice, part)));
        let mut judged = pin!(judged.buffered(MAX_QUESTIONS));
        while let Some(part) = judged.try_next().await? {
            match part {
                Ok(part) => edit.add_part(part),
                Err(block) => return Ok(Some(block)),
            }
        }
        Ok(None)
    }

    /// Judges a part of a choice. Nothing is left of a citation's text that plugins change: a citation of other words is none.
    async fn judge_part(
        &self,
        choice: &BeforeResponsePayload,
        part: AnswerPart,
    ) -> Result<Result<AnswerPart, Block>, Error> {
        let place = part.place;
        let takes_thought = part.is_main() || part.thought.is_some();
        let kind = if part.is_main() { QuestionKind::Main } else { QuestionKind::Unit };
        let cited = place.is_none().then(|| part.text.clone());
        let verdict = self.caller.ask::<BeforeResponse>(part.payload(choice), kind).await?;
        Ok(match verdict.block {
            Some(block) => Err(block),
            None => {
                let BeforeResponsePayload { content, reasoning, .. } = Arc::unwrap_or_clone(verdict.payload);
                let is_kept = cited.is_none_or(|cited| cited == content);
                let text = if is_kept { content } else { String::new() };
                Ok(AnswerPart { place, text, thought: reasoning.filter(|_| takes_thought) })
            }
        })
    }

    /// Judges the end of the only choice of an answer that was judged in `windows` so far, and its tool calls. `passed` is the text that
    /// plugins let pass.
    async fn judge_windows(
        &self,
        answer: &F::Answer,
        judged: JudgedWindows<'_>,
        passed: &str,
    ) -> Result<ChoiceVerdict, Error> {
        let JudgedWindows { mut windows, taken, thoughts } = judged;
        let mut edit = match self.judge_calls(answer, 0).await {
            Ok(ChoiceVerdict::Edit(edit)) => edit,
            Ok(ends_run @ ChoiceVerdict::EndsRun(_)) => {
                windows.end(None).await;
                return Ok(ends_run);
            }
            Err(error) => return Err(windows.fail(error).await),
        };
        let mut parts = match answer.parts(0).to_judge() {
            Ok(parts) => parts,
            Err(error) => return Err(windows.fail(self.not_an_answer(&error)).await),
        };
        edit.thoughts = thoughts.iter().zip(&mut parts).map(|(known, part)| known.take_from(part)).collect();
        let choice = answer.payload(0);
        let first = parts.remove(0);
        let Some(text) = first.text.strip_prefix(&*taken) else {
            return Err(windows.fail(self.changed_text()).await);
        };
        let takes_thought = first.thought.is_some();
        let window = AnswerPart { text: text.to_owned(), ..first }.payload(&choice);
        let last = match self.caller.judge_window(&mut windows, window, true).await {
            Ok(Ok(last)) => last,
            Ok(Err(block)) => {
                windows.end(Some(&block)).await;
                return Ok(ChoiceVerdict::from_block(block));
            }
            Err(error) => return Err(windows.fail(error).await),
        };
        windows.end(None).await;
        let thought = last.reasoning.filter(|_| takes_thought);
        edit.add_part(AnswerPart { place: Some(0), text: [passed, &last.text].concat(), thought });
        parts.retain(|part| !part.text.is_empty() || part.thought.is_some());
        Ok(match self.judge_parts(&choice, parts, &mut edit).await? {
            Some(block) => ChoiceVerdict::from_block(block),
            None => ChoiceVerdict::Edit(edit),
        })
    }

    /// Judges the tool calls of a choice. Returns what becomes of them.
    async fn judge_calls(&self, answer: &F::Answer, choice: usize) -> Result<ChoiceVerdict, Error> {
        let mut edit = ChoiceEdit::default();
        if !self.caller.asks::<BeforeToolCall>() {
            return Ok(ChoiceVerdict::Edit(edit));
        }
        // None of them is polled before its turn.
        let judged: Vec<_> =
            (0..answer.calls(choice)).map(|call| self.judge_call(answer, choice, call)).collect();
        let judged = stream::iter(judged).buffered(MAX_QUESTIONS);
        for verdict in judged.try_collect::<Vec<_>>().await? {
            match verdict {
                CallVerdict::Edit(call) => edit.calls.push(call),
                CallVerdict::EndsRun(message) => return Ok(ChoiceVerdict::EndsRun(message)),
            }
        }
        Ok(ChoiceVerdict::Edit(edit))
    }

    async fn judge_call(&self, answer: &F::Answer, choice: usize, call: usize) -> Result<CallVerdict, Error> {
        let before = match answer.call_payload(choice, call) {
            Ok(payload) => payload,
            // Two parsers must not see two calls.
            Err(invalid) if self.guarded.calls => {
                let note = refused(&invalid.tool_name, "its arguments are not valid JSON");
                return Ok(CallVerdict::Edit(CallEdit::Note(note)));
            }
            Err(_) => return Ok(CallVerdict::Edit(CallEdit::Keep)),
        };
        let name = before.tool_name.clone();
        let verdict = self.caller.ask::<BeforeToolCall>(before, QuestionKind::Main).await?;
        Ok(match verdict.block {
            Some(block) if block.scope == CancelScope::Run => CallVerdict::EndsRun(block.message),
            Some(block) => CallVerdict::Edit(CallEdit::Note(refused(&name, &block.message))),
            None if verdict.is_modified => {
                check_args(answer.args_kind(choice, call), &verdict.payload.args)?;
                let (name, args) = (verdict.payload.tool_name.clone(), verdict.payload.args.clone());
                CallVerdict::Edit(CallEdit::Patch { name, args })
            }
            None => CallVerdict::Edit(CallEdit::Keep),
        })
    }
}

/// Whether an error is about the operator's credential or account: Google, Anthropic and xAI say so with 400, and others refuse
/// prompts with 403.
fn is_about_credential(status: StatusCode, body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    match status {
        StatusCode::BAD_REQUEST => {
            let marks = [
                "API_KEY_INVALID",
                r#""message":"Your credit balance is too low"#,
                r#""Incorrect API key provided"#,
            ];
            marks.iter().any(|mark| text.contains(mark))
        }
        StatusCode::FORBIDDEN => !["moderation", "flagged"].iter().any(|mark| text.contains(mark)),
        _ => false,
    }
}

/// Refuses what a plugin made of a call's arguments if the format can't have them.
fn check_args(wanted: Option<ValueKind>, args: &Bytes) -> Result<(), Error> {
    match wanted {
        Some(wanted) if ValueKind::from_text(args) != Some(wanted) => {
            Err(bad_patch(format!("the arguments of this tool call must be {wanted}")))
        }
        _ => Ok(()),
    }
}

/// What the model and the user read in place of a tool call: plain, in the past tense, without instructions.
fn refused(tool: &str, why: &str) -> String {
    format!("Tool call {tool} was refused: {why}")
}
