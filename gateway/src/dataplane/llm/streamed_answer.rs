//! A model's answer as a stream: held whole and judged, then sent in pieces. If nobody is asked about it, it goes on as it comes. If
//! plugins are asked about tool calls alone, the text goes on as it comes, and the rest is held.
//!
//! The provider's events are never passed on while plugins are asked: the client gets events that are written anew from what was
//! judged, so that nobody reads in them what plugins didn't.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::sleep;

use crate::{
    core::{
        call_site::CallSite,
        error::{Code, Error},
        point::Point,
    },
    dataplane::llm::{
        client_stream::ClientStream,
        exchange::{Exchange, ExchangeEnd, SentRequest, is_of_type, provider_error},
        reply,
        stream_writer::StreamWriter,
    },
    edge::admission::MemoryPermit,
    llm::{
        format::{Echoes, Format, FormatAnswer as _, FormatAssembly, FormatRequest as _, StreamProgress},
        sse::{self, SseDecoder, SseError},
        upstream::UpstreamAnswer,
    },
    records::exchange::ExchangeFacts,
};

/// The media type of streams.
const EVENT_STREAM: &str = "text/event-stream";

/// The client gets a heartbeat when it has got nothing for so long. Clients and proxies give up after a minute or more.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A provider's answer as far as it came.
struct AssembledAnswer {
    body: Bytes,
    /// Why it isn't whole.
    fault: Option<Error>,
}

impl<F: Format> Exchange<'_, F> {
    /// Sends the provider's answer, whose status is 200, to a client that wants a stream; with the usage, if it `shows_usage`.
    ///
    /// # Errors
    /// A plugin made no decision, or the provider's answer is too large, not whole, or none of a model's. If the stream has begun,
    /// the error is for its end.
    pub(super) async fn stream_answer(
        &self,
        sent: &SentRequest<'_, F::Request>,
        mut answer: UpstreamAnswer,
        room: &mut MemoryPermit,
        facts: &mut ExchangeFacts,
        stream: &mut ClientStream,
    ) -> Result<ExchangeEnd, Error> {
        let name = self.route.upstream.name();
        let mut headers = reply::stream_headers(F::API, self.caller.exchange, &answer);
        let is_stream = is_of_type(&answer.headers, EVENT_STREAM);
        if !F::HAS_CHOICES || !self.asks_about_answers() {
            if !is_stream && !sent.echoes.is_empty() {
                return self.judge_answer(sent, answer, room, facts).await.map(ExchangeEnd::Answer);
            }
            facts.is_streamed = true;
            stream.pass(headers);
            match sent.echoes.is_empty() {
                true => self.pass_bytes(&mut answer, stream).await?,
                false => self.pass_events(&sent.echoes, &mut answer, room, stream).await?,
            }
            facts.upstream_ended();
            return Ok(ExchangeEnd::Streamed { is_blocked: false });
        }
        if !is_stream && !is_of_type(&answer.headers, "application/json") {
            let detail = format!("The provider `{name}` answered with neither a stream nor JSON");
            return Err(Error::new(Code::UpstreamBadAnswer, detail));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        facts.is_streamed = true;
        stream.begin(headers);
        let writer = StreamWriter::<F>::new(stream, &sent.echoes, self.guarded.has_answers());
        // In a box, since it is large.
        let judged = Box::pin(async {
            let assembled = if is_stream {
                self.assemble(sent, &mut answer, room, &writer).await?
            } else {
                // Some servers don't stream, whatever they are asked for.
                AssembledAnswer { body: self.receive(&mut answer, room).await?, fault: None }
            };
            facts.upstream_ended();
            let judged = self.judge_body(sent, assembled.body, writer.sent_text().as_deref(), facts).await?;
            let expected = F::EVENT_COPIES * judged.body.len();
            room.grow(expected)?;
            let events = writer.events(&judged.body, sent.shows_usage).ok_or_else(|| self.changed_text())?;
            let written: usize = events.answer.iter().chain(&events.end).map(Bytes::len).sum();
            room.grow(written.saturating_sub(expected))?;
            Ok::<_, Error>((events, judged.is_blocked, assembled.fault))
        });
        let (events, is_blocked, fault) = with_heartbeat(&writer, judged).await?;
        for event in events.answer {
            stream.send(event).await;
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        for event in events.end {
            stream.send(event).await;
        }
        Ok(ExchangeEnd::Streamed { is_blocked })
    }

    /// Passes on what comes.
    async fn pass_bytes(&self, answer: &mut UpstreamAnswer, stream: &ClientStream) -> Result<(), Error> {
        while let Some(piece) = self.next_piece(answer).await? {
            stream.send(piece).await;
        }
        Ok(())
    }

    /// Passes on the events that come, with the client's own words where they repeat the request.
    async fn pass_events(
        &self,
        echoes: &Echoes,
        answer: &mut UpstreamAnswer,
        room: &mut MemoryPermit,
        stream: &ClientStream,
    ) -> Result<(), Error> {
        let mut decoder = SseDecoder::new(self.llm.limits.answer);
        let mut charged = 0;
        while let Some(piece) = self.next_piece(answer).await? {
            decoder.push(&piece);
            // An event is held three times while it is written anew.
            let held = 3 * decoder.buffered();
            room.grow(held.saturating_sub(charged))?;
            charged = charged.max(held);
            let mut is_silent = true;
            while let Some(event) = decoder.next_event().map_err(|error| self.unreadable(&error))? {
                is_silent = false;
                let changed = F::event_with_echoes(&event.data, echoes);
                let changed = changed.map_err(|error| self.unusable(Code::UpstreamBadAnswer, &error))?;
                let data = changed.unwrap_or(event.data);
                stream.send(sse::event(&event.name, data.as_bytes())).await;
            }
            // The decoder drops comments, by which some providers say that they are at work.
            if is_silent {
                stream.send_if_idle(|| Bytes::from_static(sse::COMMENT));
            }
        }
        Ok(())
    }

    /// What comes next. `limits.answer` is for answers that are held.
    async fn next_piece(&self, answer: &mut UpstreamAnswer) -> Result<Option<Bytes>, Error> {
        let piece = answer.piece(0, usize::MAX).await;
        piece.map_err(|error| provider_error(self.route.upstream.name(), error))
    }

    /// Receives a stream, and sends its text where nobody is asked about it. One that is cut or that the provider ends with an error
    /// is what came, without the tool calls that may not be whole.
    async fn assemble(
        &self,
        sent: &SentRequest<'_, F::Request>,
        answer: &mut UpstreamAnswer,
        room: &mut MemoryPermit,
        writer: &StreamWriter<'_, F>,
    ) -> Result<AssembledAnswer, Error> {
        let (name, limit) = (self.route.upstream.name(), self.llm.limits.answer);
        let passes_text = self.passes_text(sent.request);
        let mut passed = 0;
        let mut decoder = SseDecoder::new(limit);
        let mut assembly = F::Assembly::new(limit);
        let mut charged = 0;
        let fault = 'answer: loop {
            let piece = match answer.piece(0, usize::MAX).await {
                Ok(Some(piece)) => piece,
                Ok(None) => break self.unfinished(&assembly),
                Err(error) => break Some(provider_error(name, error)),
            };
            decoder.push(&piece);
            while let Some(event) = decoder.next_event().map_err(|error| self.unreadable(&error))? {
                let progress = assembly.push(&event).map_err(|error| self.not_an_answer(&error))?;
                writer.push(&event);
                match progress {
                    StreamProgress::GoesOn => {}
                    StreamProgress::Done => break 'answer self.unfinished(&assembly),
                    StreamProgress::Failed => {
                        let detail = format!("The provider `{name}` ended its answer with an error");
                        break 'answer Some(Error::new(Code::UpstreamUnavailable, detail));
                    }
                }
            }
            let held = assembly.held() + decoder.buffered() + passed;
            room.grow(held.saturating_sub(charged))?;
            charged = charged.max(held);
            if passes_text {
                passed += self.pass_text(sent, &assembly, passed, writer).await?;
            }
        };
        match fault {
            Some(fault) if !assembly.has_choices() => return Err(fault),
            Some(_) => assembly.drop_open_calls(),
            None => {}
        }
        // What came last, and the same once more as a whole.
        let held = assembly.held();
        room.grow(held.saturating_sub(charged) + held)?;
        let body = assembly.body();
        // Its text has escapes.
        room.grow(body.len().saturating_sub(held))?;
        Ok(AssembledAnswer { body, fault })
    }

    /// Whether the text of an answer to `request` goes on as it comes: nobody is asked about it. An answer that must be JSON is held,
    /// because a message in place of the answer can't follow a part of it.
    fn passes_text(&self, request: &F::Request) -> bool {
        let site = CallSite::Point(Point::BeforeResponse);
        let tenant = self.caller.tenant;
        let is_free = !tenant.is_guarded(Point::BeforeResponse) && tenant.bypassed(&site).is_empty();
        is_free && request.choices() == 1 && !request.expects_json()
    }

    /// Sends what has come of the text behind the first `passed` bytes, and returns how many bytes it is.
    async fn pass_text(
        &self,
        sent: &SentRequest<'_, F::Request>,
        assembly: &F::Assembly,
        passed: usize,
        writer: &StreamWriter<'_, F>,
    ) -> Result<usize, Error> {
        let text = assembly.first_text();
        let Some(piece) = text.as_deref().and_then(|text| text.get(passed..)).filter(|text| !text.is_empty())
        else {
            return Ok(0);
        };
        if !writer.has_begun() {
            // What can't be read yet is held.
            let Ok(answer) = F::Answer::parse(assembly.body(), 1) else { return Ok(0) };
            let rendered = answer.render(&[], false, self.guarded.has_answers());
            writer.begin(&self.with_echoes(rendered.body, &sent.echoes)?).await;
        }
        writer.text(piece).await;
        Ok(piece.len())
    }

    /// The error for a provider that ends a text otherwise than it began.
    fn changed_text(&self) -> Error {
        let name = self.route.upstream.name();
        let detail = format!("The provider `{name}` changed the text of its answer that it had sent");
        Error::new(Code::UpstreamBadAnswer, detail)
    }

    /// Why an answer that has ended isn't whole: the model hasn't said why it stopped.
    fn unfinished(&self, assembly: &F::Assembly) -> Option<Error> {
        let name = self.route.upstream.name();
        let detail = || format!("The provider `{name}` ended its answer before the model did");
        (!assembly.is_complete()).then(|| Error::new(Code::UpstreamBadAnswer, detail()))
    }

    fn unreadable(&self, error: &SseError) -> Error {
        let code = match error {
            SseError::TooLarge => Code::AnswerTooLarge,
            SseError::NotText => Code::UpstreamBadAnswer,
        };
        self.unusable(code, error)
    }
}

/// Does `work` while the client gets a heartbeat every [`HEARTBEAT`].
async fn with_heartbeat<F: Format, T>(writer: &StreamWriter<'_, F>, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(HEARTBEAT) => writer.beat(),
        }
    }
}
