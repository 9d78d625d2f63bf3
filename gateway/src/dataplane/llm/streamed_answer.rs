//! A model's answer as a stream: held whole and judged, then sent in pieces. If nobody is asked about it, it goes on as it comes.
//!
//! The provider's events are never passed on while plugins are asked: the client gets events that are written anew from what was
//! judged, so that nobody reads in them what plugins didn't.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::sleep;

use crate::{
    core::error::{Code, Error},
    dataplane::llm::{
        client_stream::ClientStream,
        exchange::{Exchange, ExchangeEnd, is_of_type, provider_error},
        reply,
    },
    edge::admission::MemoryPermit,
    llm::{
        format::{Format, FormatAssembly, StreamProgress},
        sse::{SseDecoder, SseError},
        upstream::UpstreamAnswer,
    },
    records::exchange::ExchangeFacts,
};

/// The media type of streams.
const EVENT_STREAM: &str = "text/event-stream";

/// The client gets a sign of life when it has got nothing for so long. Clients and proxies give up after a minute or more.
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
        request: (&F::Request, bool),
        mut answer: UpstreamAnswer,
        room: &mut MemoryPermit,
        facts: &mut ExchangeFacts,
        stream: &mut ClientStream,
    ) -> Result<ExchangeEnd, Error> {
        let (request, shows_usage) = request;
        let name = self.route.upstream.name();
        let mut headers = reply::stream_headers(F::API, self.caller.exchange, &answer);
        if !self.asks_about_answers() {
            facts.is_streamed = true;
            stream.pass(headers);
            // `limits.answer` is for answers that are held.
            while let Some(piece) =
                answer.piece(0, usize::MAX).await.map_err(|error| provider_error(name, error))?
            {
                stream.send(piece).await;
            }
            facts.upstream_ended();
            return Ok(ExchangeEnd::Streamed { is_blocked: false });
        }
        let is_stream = is_of_type(&answer.headers, EVENT_STREAM);
        if !is_stream && !is_of_type(&answer.headers, "application/json") {
            let detail = format!("The provider `{name}` answered with neither a stream nor JSON");
            return Err(Error::new(Code::UpstreamBadAnswer, detail));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
        facts.is_streamed = true;
        stream.begin(headers);
        // In a box, since it is large.
        let judged = Box::pin(async {
            let assembled = if is_stream {
                self.assemble(&mut answer, room).await?
            } else {
                // Some servers don't stream, whatever they are asked for.
                AssembledAnswer { body: self.receive(&mut answer, room).await?, fault: None }
            };
            facts.upstream_ended();
            let judged = self.judge_body(request, assembled.body, facts).await?;
            // They have about the size of the body.
            room.grow(judged.body.len())?;
            let events = F::stream_events(&judged.body, shows_usage);
            let written: usize = events.answer.iter().map(Bytes::len).sum();
            room.grow(written.saturating_sub(judged.body.len()))?;
            Ok::<_, Error>((events, judged.is_blocked, assembled.fault))
        });
        let (events, is_blocked, fault) = with_heartbeat(stream, F::HEARTBEAT, judged).await?;
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

    /// Receives a stream. One that is cut or that the provider ends with an error is what came, without the tool calls that may not
    /// be whole.
    async fn assemble(
        &self,
        answer: &mut UpstreamAnswer,
        room: &mut MemoryPermit,
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
                match assembly.push(&event).map_err(|error| self.not_an_answer(&error))? {
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

/// Does `work` while the client gets `sign` every [`HEARTBEAT`].
async fn with_heartbeat<T>(stream: &ClientStream, sign: &'static [u8], work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep(HEARTBEAT) => stream.send_if_idle(Bytes::from_static(sign)),
        }
    }
}
