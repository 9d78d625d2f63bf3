//! [`TextRelease`]: the text of a streamed answer goes to the client while the rest of the answer is held.
//!
//! If nobody judges answers, it goes on as it comes. Otherwise plugins judge it in windows, and what they let pass goes on. One window
//! is judged at a time; what comes meanwhile is in the next one.

use std::{collections::HashSet, pin::Pin, time::Duration};

use bytes::Bytes;
use hookgate_proto::types::v1::BeforeResponsePayload;
use tokio::time::{Instant, sleep_until};

use crate::{
    core::{answer_way::AnswerWay, error::Error},
    dataplane::llm::{
        answer_windows::AnswerWindows,
        exchange::{Exchange, SentRequest},
        stream_writer::StreamWriter,
    },
    invoke::{Block, PassedText},
    llm::{
        answer_parts::AnswerPart,
        format::{ChoiceEdit, Format, FormatAnswer as _, FormatAssembly as _},
    },
};

/// How long text waits for more of it before it is judged.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// How many bytes are judged without waiting for more. Of most languages that is about as many characters.
const FULL_WINDOW: usize = 256;

/// What plugins decided about a window, and about the thoughts in front of the first one.
pub(super) type Judged = Result<Result<PassedWindow, Block>, Error>;

type Question<'e> = Pin<Box<dyn Future<Output = (Option<AnswerWindows<'e>>, Judged)> + Send + 'e>>;

/// What plugins let pass.
pub(super) struct PassedWindow {
    text: String,
    /// The thoughts in front of the text, if plugins were asked about them: what they became, or `None` if they stay.
    thoughts: Vec<Option<String>>,
}

/// What happens to the text next.
pub(super) enum TextEvent {
    /// It has waited long enough.
    Due,
    /// A window was judged.
    Judged(Judged),
}

/// Lets the text of one answer go.
pub(super) struct TextRelease<'e, F: Format> {
    exchange: &'e Exchange<'e, F>,
    sent: &'e SentRequest<'e, F::Request>,
    way: AnswerWay,
    /// The text that was taken from the provider.
    taken: String,
    /// Since when more of it waits.
    waits_since: Option<Instant>,
    /// The answer when its first window was asked about, until text goes out.
    opening: Option<F::Answer>,
    /// The thoughts of that answer, which are judged with its first window.
    thoughts: Vec<JudgedThought>,
    windows: Option<AnswerWindows<'e>>,
    question: Option<Question<'e>>,
}

/// An answer that was judged in windows so far.
pub(super) struct JudgedWindows<'e> {
    pub(super) windows: AnswerWindows<'e>,
    /// The text that was judged, as the provider sent it.
    pub(super) taken: String,
    /// The thoughts that were judged.
    pub(super) thoughts: Vec<JudgedThought>,
}

/// A thought that plugins judged before the answer was whole.
pub(super) struct JudgedThought {
    /// As the provider sent it.
    before: String,
    /// As plugins left it.
    after: String,
}

impl JudgedThought {
    fn new(part: &AnswerPart) -> Option<Self> {
        let thought = part.thought.clone()?;
        Some(JudgedThought { after: thought.clone(), before: thought })
    }

    /// Leaves in `part` what plugins haven't judged of the thought, and returns what they left of the rest. If it no longer begins with
    /// what they judged, they judge all of it again.
    pub(super) fn take_from(&self, part: &mut AnswerPart) -> Option<String> {
        let whole = part.thought.take()?;
        match whole.strip_prefix(&self.before) {
            Some(late) => {
                part.thought = Some(late).filter(|late| !late.is_empty()).map(str::to_owned);
                Some(self.after.clone())
            }
            None => {
                part.thought = Some(whole);
                None
            }
        }
    }
}

impl<'e, F: Format> TextRelease<'e, F> {
    pub(super) fn new(
        exchange: &'e Exchange<'e, F>,
        sent: &'e SentRequest<'e, F::Request>,
        way: AnswerWay,
    ) -> Self {
        TextRelease {
            exchange,
            sent,
            way,
            taken: String::new(),
            waits_since: None,
            opening: None,
            thoughts: Vec::new(),
            windows: None,
            question: None,
        }
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        // Once here, and once by the writer.
        2 * self.taken.len()
    }

    /// Takes what has come of the text.
    ///
    /// # Errors
    /// The answer can't be sent.
    pub(super) async fn take(
        &mut self,
        assembly: &F::Assembly,
        writer: &StreamWriter<'_, F>,
    ) -> Result<(), Error> {
        let Some(text) = assembly.first_text().filter(|_| self.way != AnswerWay::Whole) else {
            return Ok(());
        };
        let waiting = text.get(self.taken.len()..).unwrap_or_default();
        if waiting.is_empty() {
            return Ok(());
        }
        if self.way == AnswerWay::Windows {
            let since = *self.waits_since.get_or_insert_with(Instant::now);
            if self.question.is_none() && (waiting.len() >= FULL_WINDOW || since.elapsed() >= MAX_WAIT) {
                self.ask(assembly);
            }
            return Ok(());
        }
        if !writer.has_begun() {
            let Ok(answer) = F::Answer::parse(assembly.body(), 1) else {
                self.hold();
                return Ok(());
            };
            let opening = self.opening(&answer, &ChoiceEdit::default())?;
            writer.begin(&opening).await;
        }
        writer.text(waiting).await;
        self.taken.push_str(waiting);
        Ok(())
    }

    /// Holds the rest up to its end: what comes before the text can't be read, and reading the whole answer at each piece would
    /// take the square of its length.
    fn hold(&mut self) {
        self.way = AnswerWay::Whole;
    }

    /// Waits until something is to be done. May be dropped and called again.
    pub(super) async fn next(&mut self) -> TextEvent {
        if let Some(question) = &mut self.question {
            let (windows, judged) = question.await;
            self.question = None;
            self.windows = windows;
            return TextEvent::Judged(judged);
        }
        match self.waits_since {
            Some(since) => sleep_until(since + MAX_WAIT).await,
            None => std::future::pending().await,
        }
        TextEvent::Due
    }

    /// Asks the plugins about what has come of the text.
    pub(super) fn ask(&mut self, assembly: &F::Assembly) {
        self.waits_since = None;
        let mut choice = BeforeResponsePayload::default();
        let mut parts = Vec::new();
        if self.windows.is_none() {
            let Ok(answer) = F::Answer::parse(assembly.body(), 1) else { return self.hold() };
            let Ok(known) = answer.parts(0).to_judge() else { return self.hold() };
            choice = BeforeResponsePayload { token_usage: None, stop_reason: None, ..answer.payload(0) };
            // The thoughts go out in front of the text. Other texts are judged in the end.
            let thoughts = known.into_iter().filter(|part| part.thought.is_some());
            parts = thoughts.map(|part| AnswerPart { text: String::new(), ..part }).collect();
            self.thoughts = parts.iter().filter_map(JudgedThought::new).collect();
            self.opening = Some(answer);
        }
        let text = assembly.first_text().unwrap_or_default();
        let new = text.get(self.taken.len()..).unwrap_or_default();
        self.taken.push_str(new);
        let first = if parts.is_empty() { None } else { parts.remove(0).thought };
        let window = AnswerPart { place: Some(0), text: new.to_owned(), thought: first };
        let exchange = self.exchange;
        let windows = self.windows.take();
        self.question = Some(Box::pin(async move {
            let mut edit = ChoiceEdit::default();
            match exchange.judge_parts(&choice, parts, &mut edit).await {
                Ok(None) => {}
                Ok(Some(block)) => return (windows, Ok(Err(block))),
                Err(error) => return (windows, Err(error)),
            }
            let takes_thought = window.thought.is_some();
            let window = window.payload(&choice);
            let mut windows = windows.unwrap_or_else(|| exchange.caller.windows(&window));
            let judged = exchange.caller.judge_window(&mut windows, window, false).await;
            let passed = judged.map(|judged| {
                judged.map(|PassedText { text, reasoning }| {
                    let thought = reasoning.filter(|_| takes_thought);
                    edit.add_part(AnswerPart { place: Some(0), text: String::new(), thought });
                    PassedWindow { text, thoughts: edit.thoughts }
                })
            });
            (Some(windows), passed)
        }));
    }

    /// Sends what plugins let pass. Returns the block, if they blocked.
    ///
    /// # Errors
    /// A plugin made no decision, or the answer can't be sent.
    pub(super) async fn send(
        &mut self,
        judged: Judged,
        writer: &StreamWriter<'_, F>,
    ) -> Result<Option<Block>, Error> {
        let PassedWindow { text, thoughts } = match judged {
            Ok(Ok(passed)) => passed,
            Ok(Err(block)) => {
                if let Some(windows) = self.windows.take() {
                    windows.end(Some(&block)).await;
                }
                return Ok(Some(block));
            }
            Err(error) => {
                return Err(match self.windows.take() {
                    Some(windows) => windows.fail(error).await,
                    None => error,
                });
            }
        };
        for (known, judged) in self.thoughts.iter_mut().zip(thoughts) {
            judged.into_iter().for_each(|judged| known.after = judged);
        }
        if text.is_empty() {
            return Ok(None);
        }
        if let Some(opening) = self.opening.take() {
            let thoughts = self.thoughts.iter().map(|thought| Some(thought.after.clone())).collect();
            // Citations are judged in the end.
            let edit = ChoiceEdit { thoughts, cited_texts: Some(HashSet::new()), ..ChoiceEdit::default() };
            let opening = self.opening(&opening, &edit)?;
            writer.begin(&opening).await;
        }
        writer.text(&text).await;
        Ok(None)
    }

    /// Ends the release of text when nothing follows: waits for what plugins are asked about, and sends what they let pass.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub(super) async fn finish(&mut self, writer: &StreamWriter<'_, F>) -> Result<Option<Block>, Error> {
        if self.question.is_none() {
            return Ok(None);
        }
        match self.next().await {
            TextEvent::Judged(judged) => self.send(judged, writer).await,
            TextEvent::Due => Ok(None),
        }
    }

    /// What was judged in windows; `None` if nothing was.
    pub(super) fn into_windows(self) -> Option<JudgedWindows<'e>> {
        let TextRelease { windows, taken, thoughts, .. } = self;
        windows.map(|windows| JudgedWindows { windows, taken, thoughts })
    }

    /// An answer so far, as the client gets it.
    fn opening(&self, answer: &F::Answer, edit: &ChoiceEdit) -> Result<Bytes, Error> {
        let rendered = answer.render(std::slice::from_ref(edit), false, self.exchange.guarded.has_answers());
        self.exchange.with_echoes(rendered.body, &self.sent.echoes)
    }
}
