//! A model's answer as a stream: held whole and judged, then sent in pieces. If nobody is asked about it, it goes on as it comes.
//!
//! The provider's events are never passed on while plugins are asked: the client gets events that are written anew from what was
//! judged, so that nobody reads in them what plugins didn't.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::sleep;

use crate::{
    core::error::{Code, Error},
    dataplane::llm::{
        client_stream::ClientStream,
        exchange::{Exchange, ExchangeEnd, SentRequest, is_of_type, provider_error},
        reply,
    },
    edge::admission::MemoryPermit,
    llm::{
        format::{Echoes, Format, FormatAssembly, FormatHeartbeat, StreamProgress},
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
        // In a box, since it is large.
        let heartbeat = Mutex::new(F::Heartbeat::new(&sent.echoes, self.guarded.has_answers()));
        let judged = Box::pin(async {
            let assembled = if is_stream {
                self.assemble(&mut answer, room, &heartbeat).await?
            } else {
                // Some servers don't stream, whatever they are asked for.
                AssembledAnswer { body: self.receive(&mut answer, room).await?, fault: None }
            };
            facts.upstream_ended();
            let judged = self.judge_body(sent, assembled.body, facts).await?;
            let expected = F::EVENT_COPIES * judged.body.len();
            room.grow(expected)?;
            let events = F::stream_events(&judged.body, sent.shows_usage, &locked(&heartbeat));
            let written: usize = events.answer.iter().chain(&events.end).map(Bytes::len).sum();
            room.grow(written.saturating_sub(expected))?;
            Ok::<_, Error>((events, judged.is_blocked, assembled.fault))
        });
        let (events, is_blocked, fault) = with_heartbeat(stream, &heartbeat, judged).await?;
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

    /// Receives a stream. One that is cut or that the provider ends with an error is what came, without the tool calls that may not
    /// be whole.
    async fn assemble(
        &self,
        answer: &mut UpstreamAnswer,
        room: &mut MemoryPermit,
        heartbeat: &Mutex<F::Heartbeat>,
    ) -> Result<AssembledAnswer, Error> {
        let (name, limit) = (self.route.upstream.name(), self.llm.limits.answer);
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
                locked(heartbeat).push(&event);
                match progress {
                    StreamProgress::GoesOn => {}
                    StreamProgress::Done => break 'answer self.unfinished(&assembly),
                    StreamProgress::Failed => {
                        let detail = format!("The provider `{name}` ended its answer with an error");
                        break 'answer Some(Error::new(Code::UpstreamUnavailable, detail));
                    }
                }
            }
            let held = assembly.held() + decoder.buffered();
            room.grow(held.saturating_sub(charged))?;
            charged = charged.max(held);
        };
        match fault {
            Some(fault) if !assembly.has_choices() => return Err(fault),
            Some(_) => assembly.drop_open_calls(),
            None => {}
        }
        // What came last, and the same once more as a whole.
        let held = assembly.held();
        room.grow(held.saturating_sub(charged) + held)?;
        let body = assembly.finish();
        // Its text has escapes.
        room.grow(body.len().saturating_sub(held))?;
        Ok(AssembledAnswer { body, fault })
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
async fn with_heartbeat<T>(
    stream: &ClientStream,
    heartbeat: &Mutex<impl FormatHeartbeat>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(HEARTBEAT) => stream.send_if_idle(|| locked(heartbeat).beat()),
        }
    }
}

fn locked<H>(heartbeat: &Mutex<H>) -> MutexGuard<'_, H> {
    heartbeat.lock().unwrap_or_else(PoisonError::into_inner)
}
