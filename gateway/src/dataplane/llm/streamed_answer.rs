//! A model's answer as a stream: held whole and judged, then sent in pieces. If nobody is asked about it, it goes on as it comes. Its
//! text may go on before the rest ([`super::text_release`]).
//!
//! The provider's events are never passed on while plugins are asked: the client gets events that are written anew from what was
//! judged, so that nobody reads in them what plugins didn't.

use std::{ops::ControlFlow, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::sleep;

use crate::{
    core::{
        answer_way::AnswerWay,
        error::{Code, Error},
    },
    dataplane::llm::{
        client_stream::ClientStream,
        exchange::{Exchange, ExchangeEnd, SentRequest, is_of_type, provider_error},
        model_answer::BegunAnswer,
        reply,
        stream_writer::StreamWriter,
        text_release::{JudgedWindows, TextEvent, TextRelease},
    },
    edge::admission::MemoryPermit,
    invoke::Block,
    llm::{
        format::{Echoes, Format, FormatAssembly, FormatRequest as _, StreamProgress},
        sse::{self, SseDecoder, SseError},
        upstream::{UpstreamAnswer, UpstreamError},
    },
    records::exchange::ExchangeFacts,
};

/// The media type of streams.
const EVENT_STREAM: &str = "text/event-stream";

/// The client gets a heartbeat when it has got nothing for so long. Clients and proxies give up after a minute or more.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A provider's answer as far as it came.
struct AssembledAnswer<'e> {
    body: Bytes,
    /// Why it isn't whole.
    fault: Option<Error>,
    /// What was judged in windows.
    windows: Option<JudgedWindows<'e>>,
    /// The block that ended it.
    block: Option<Block>,
}

impl AssembledAnswer<'_> {
    /// An answer of which nothing has been judged.
    fn whole(body: Bytes) -> Self {
        AssembledAnswer { body, fault: None, windows: None, block: None }
    }
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
                self.assemble(sent, answer, room, &writer).await?
            } else {
                // Some servers don't stream, whatever they are asked for.
                AssembledAnswer::whole(self.receive(&mut answer, room).await?)
            };
            facts.upstream_ended();
            let AssembledAnswer { body, fault, windows, block } = assembled;
            let begun = BegunAnswer { text: writer.sent_text(), windows, block };
            let judged = self.judge_body(sent, body, begun, facts).await?;
            let expected = F::EVENT_COPIES * judged.body.len();
            room.grow(expected)?;
            let events = writer.events(&judged.body, sent.shows_usage).ok_or_else(|| self.changed_text())?;
            let written: usize = events.answer.iter().chain(&events.end).map(Bytes::len).sum();
            room.grow(written.saturating_sub(expected))?;
            Ok::<_, Error>((events, judged.is_blocked, fault))
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
            self.leave_worker(decoder.buffered() + piece.len()).await;
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

    /// Receives a stream, and sends its text as far as that may go out. One that is cut or that the provider ends with an error is what
    /// came, without the tool calls that may not be whole.
    async fn assemble<'e>(
        &'e self,
        sent: &'e SentRequest<'e, F::Request>,
        mut answer: UpstreamAnswer,
        room: &mut MemoryPermit,
        writer: &StreamWriter<'_, F>,
    ) -> Result<AssembledAnswer<'e>, Error> {
        let limit = self.llm.limits.answer;
        let (mut decoder, mut assembly) = (SseDecoder::new(limit), F::Assembly::new(limit));
        let mut release = TextRelease::new(self, sent, self.answer_way(sent.request));
        let (mut fault, mut block) = (None, None);
        let mut charged = 0;
        while block.is_none() {
            let piece = tokio::select! {
                biased;
                event = release.next() => {
                    match event {
                        TextEvent::Due => release.ask(&assembly),
                        TextEvent::Judged(judged) => block = release.send(judged, writer).await?,
                    }
                    continue;
                }
                piece = answer.piece(0, usize::MAX) => piece,
            };
            let came = piece.as_ref().ok().and_then(Option::as_ref).map_or(0, Bytes::len);
            self.leave_worker(decoder.buffered() + came).await;
            let flow = self.take_piece(piece, &mut decoder, &mut assembly, writer)?;
            let held = assembly.held() + decoder.buffered() + release.held();
            room.grow(held.saturating_sub(charged))?;
            charged = charged.max(held);
            release.take(&assembly, writer).await?;
            if let ControlFlow::Break(why) = flow {
                fault = why;
                break;
            }
        }
        // A provider need not write what nobody reads.
        drop(answer);
        if block.is_none() {
            block = release.finish(writer).await?;
        }
        match fault {
            Some(fault) if !assembly.has_choices() => return Err(fault),
            None if block.is_none() => {}
            Some(_) | None => assembly.drop_open_calls(),
        }
        // What came last, and the same once more as a whole.
        let held = assembly.held();
        room.grow(held.saturating_sub(charged) + held)?;
        self.leave_worker(held).await;
        let body = assembly.body();
        // Its text has escapes.
        room.grow(body.len().saturating_sub(held))?;
        Ok(AssembledAnswer { body, fault, windows: release.into_windows(), block })
    }

    /// Takes a piece of a stream, or its end. Breaks if nothing follows: with the reason why the answer isn't whole, unless it is.
    fn take_piece(
        &self,
        piece: Result<Option<Bytes>, UpstreamError>,
        decoder: &mut SseDecoder,
        assembly: &mut F::Assembly,
        writer: &StreamWriter<'_, F>,
    ) -> Result<ControlFlow<Option<Error>>, Error> {
        let name = self.route.upstream.name();
        match piece {
            Ok(Some(piece)) => decoder.push(&piece),
            Ok(None) => return Ok(ControlFlow::Break(self.unfinished(assembly))),
            Err(error) => return Ok(ControlFlow::Break(Some(provider_error(name, error)))),
        }
        while let Some(event) = decoder.next_event().map_err(|error| self.unreadable(&error))? {
            let progress = assembly.push(&event).map_err(|error| self.not_an_answer(&error))?;
            writer.push(&event);
            match progress {
                StreamProgress::GoesOn => {}
                StreamProgress::Done => return Ok(ControlFlow::Break(self.unfinished(assembly))),
                StreamProgress::Failed => {
                    let detail = format!("The provider `{name}` ended its answer with an error");
                    let error = Error::new(Code::UpstreamUnavailable, detail);
                    return Ok(ControlFlow::Break(Some(error)));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// How the text of an answer to `request` goes out. An answer that must be JSON is held, because a message in its place can't
    /// follow a part of it. So are several choices.
    fn answer_way(&self, request: &F::Request) -> AnswerWay {
        match request.choices() == 1 && !request.expects_json() {
            true => self.caller.tenant.answer_way(),
            false => AnswerWay::Whole,
        }
    }

    /// The error for a provider that ends a text otherwise than it began.
    pub(super) fn changed_text(&self) -> Error {
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
