//! Records one exchange with a model: metrics, span, and a log line unless it went as usual. The questions to plugins within it have
//! records of their own ([`super::invocation`]).

use std::{sync::Arc, time::Duration};

use opentelemetry::{Context, KeyValue, StringValue, trace::TraceContextExt as _};
use tokio::time::Instant;
use tracing::Level;
use uuid::Uuid;

use crate::{
    auth,
    core::{
        context::Identity,
        error::{Code, Error},
    },
    invoke::Block,
    records::log_line::MAX_SENTENCE_BYTES,
    telemetry::{
        Inner, Telemetry,
        names::{
            CODE, CONVENTION_OTHER, DECISION, ERROR_TYPE, OPERATOR, OUTCOME, REASON, REQUEST_ID, TENANT,
            UPSTREAM,
        },
        trace,
        value::cut,
    },
};

/// The maximum length of a model's name in the log, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// What is known of an exchange so far. It outlives the work on it.
#[derive(Debug, Default)]
pub struct ExchangeFacts {
    /// The caller's own id, if its header was readable.
    pub correlation_id: Option<String>,
    /// Why the caller was rejected.
    pub refused: Option<auth::RefusalReason>,
    /// The verified caller.
    pub identity: Option<Arc<Identity>>,
    /// The model that the client asks for.
    pub model: Option<String>,
    /// The provider's name.
    pub upstream: Option<Arc<str>>,
    /// The status of its answer.
    pub upstream_status: Option<u16>,
    /// Whether the client got its answer as a stream.
    pub is_streamed: bool,
    /// When it was asked.
    pub upstream_began: Option<Instant>,
    /// The time to its answer's headers.
    pub upstream_took: Option<Duration>,
    /// The time to its answer's end; of a stream that is passed on, until the client had it.
    pub answer_took: Option<Duration>,
    /// Earlier parts of the conversation whose verdict was known.
    pub remembered: usize,
    /// Earlier parts of the conversation about which plugins were asked again.
    pub replayed: usize,
    /// Members of the answer that were left out because nobody can judge them.
    pub withheld: Vec<String>,
}

impl ExchangeFacts {
    /// Notes that the provider's answer has ended.
    pub(crate) fn upstream_ended(&mut self) {
        self.answer_took = self.upstream_began.map(|began| began.elapsed());
    }
}

/// How an exchange ended, for its record.
pub enum ExchangeOutcome<'a> {
    /// The client gets what the provider answered, as far as plugins left it.
    Answer {
        /// The status of the answer.
        status: u16,
        /// Whether plugins blocked any of it.
        is_blocked: bool,
    },
    /// The client gets an error of the provider.
    ProviderError {
        /// Its status, as the provider sent it.
        status: u16,
    },
    /// A plugin blocked the request.
    Block(&'a Block),
    /// There is no answer of the model.
    Error(&'a Error),
    /// The client went away.
    Cancelled,
}

impl ExchangeOutcome<'_> {
    const fn as_str(&self) -> &'static str {
        match self {
            ExchangeOutcome::Answer { is_blocked: false, .. } => "answer",
            ExchangeOutcome::Answer { is_blocked: true, .. } | ExchangeOutcome::Block(_) => "block",
            ExchangeOutcome::ProviderError { .. } => "provider_error",
            ExchangeOutcome::Error(_) => "error",
            ExchangeOutcome::Cancelled => "cancelled",
        }
    }

    fn error(&self) -> Option<Code> {
        match self {
            ExchangeOutcome::Error(error) => Some(error.code),
            ExchangeOutcome::Cancelled => Some(Code::Cancelled),
            ExchangeOutcome::Answer { .. }
            | ExchangeOutcome::ProviderError { .. }
            | ExchangeOutcome::Block(_) => None,
        }
    }

    /// The code of the error, or the status of the provider's. A status that HTTP doesn't have is no series of its own.
    fn error_type(&self) -> Option<StringValue> {
        match self {
            ExchangeOutcome::ProviderError { status: status @ 400..=599 } => Some(status.to_string().into()),
            ExchangeOutcome::ProviderError { .. } => Some(CONVENTION_OTHER.into()),
            outcome => outcome.error().map(|code| code.as_str().into()),
        }
    }

    fn message(&self, is_refused: bool) -> &'static str {
        match self {
            ExchangeOutcome::Answer { is_blocked: true, .. } => "a part of a model's answer was blocked",
            ExchangeOutcome::Answer { .. } => "a model answered, with remarks",
            ExchangeOutcome::ProviderError { .. } => "a provider answered with an error",
            ExchangeOutcome::Block(_) => "a request to a model was blocked",
            ExchangeOutcome::Error(_) if is_refused => "a caller was refused",
            ExchangeOutcome::Error(_) => "a request to a model has no answer",
            ExchangeOutcome::Cancelled => "a client disconnected",
        }
    }

    /// A failure of the gateway, a plugin or the provider is a warning. What the client can correct isn't.
    fn level(&self) -> Level {
        let status = match self {
            ExchangeOutcome::ProviderError { status } => *status,
            outcome => outcome.error().map_or(0, Code::http),
        };
        if status >= 500 { Level::WARN } else { Level::INFO }
    }
}

/// An exchange in flight. If it is dropped without [`ExchangeRecord::ended`], its client went away.
#[must_use = "dropped, it records that the client went away"]
pub struct ExchangeRecord {
    inner: Arc<Inner>,
    request_id: Uuid,
    received: Instant,
    /// The context of the request's span.
    context: Context,
    is_ended: bool,
    /// What is known of it so far.
    pub facts: ExchangeFacts,
}

impl Telemetry {
    /// Begins an exchange whose headers arrived at `received`.
    pub fn exchange(&self, request_id: Uuid, received: Instant) -> ExchangeRecord {
        let (inner, context) = (Arc::clone(&self.0), Context::current());
        ExchangeRecord {
            inner,
            request_id,
            received,
            context,
            is_ended: false,
            facts: ExchangeFacts::default(),
        }
    }
}

impl ExchangeRecord {
    /// Records the end of the exchange.
    pub fn ended(mut self, outcome: &ExchangeOutcome<'_>) {
        self.is_ended = true;
        self.record(outcome);
    }

    fn record(&self, outcome: &ExchangeOutcome<'_>) {
        let took = self.received.elapsed();
        self.measure(outcome, took);
        self.describe(outcome);
        let of_provider = self.facts.answer_took.or(self.facts.upstream_took).unwrap_or_default();
        let is_slow = took.saturating_sub(of_provider) > self.inner.known.load().slow;
        let is_plain = matches!(outcome, ExchangeOutcome::Answer { status: 200, is_blocked: false });
        if !is_plain || is_slow || !self.facts.withheld.is_empty() {
            let _current = self.context.clone().attach();
            self.write_line(outcome, took, is_slow);
        }
    }

    fn measure(&self, outcome: &ExchangeOutcome<'_>, took: Duration) {
        let (facts, instruments) = (&self.facts, &self.inner.instruments);
        let upstream = facts.upstream.as_ref().map(|name| KeyValue::new(UPSTREAM, Arc::clone(name)));
        let tenant = self.inner.tenant_label(facts.identity.as_ref().map(|identity| &identity.tenant));
        let attributes = |known: Vec<KeyValue>| -> Vec<KeyValue> {
            known.into_iter().chain(upstream.clone()).chain(tenant.clone()).collect()
        };
        let mut ended = vec![KeyValue::new(OUTCOME, outcome.as_str())];
        ended.extend(outcome.error_type().map(|error| KeyValue::new(ERROR_TYPE, error)));
        instruments.llm_exchange.record(took.as_secs_f64(), &attributes(ended));
        if let Some(upstream_took) = facts.upstream_took {
            instruments.llm_upstream.record(upstream_took.as_secs_f64(), &attributes(Vec::new()));
        }
        for (count, outcome) in [(facts.remembered, "remembered"), (facts.replayed, "replayed")] {
            if count > 0 {
                let attributes = attributes(vec![KeyValue::new(OUTCOME, outcome)]);
                instruments.llm_units.add(count as u64, &attributes);
            }
        }
        if !facts.withheld.is_empty() {
            instruments.llm_withheld.add(facts.withheld.len() as u64, &attributes(Vec::new()));
        }
        if let Some(reason) = facts.refused {
            instruments.auth_failures.add(1, &[KeyValue::new(REASON, reason.as_str())]);
        }
    }

    /// Describes the outcome on the request's span.
    fn describe(&self, outcome: &ExchangeOutcome<'_>) {
        let span = self.context.span();
        if !span.is_recording() {
            return;
        }
        span.set_attribute(KeyValue::new(REQUEST_ID, self.request_id.to_string()));
        span.set_attribute(KeyValue::new(DECISION, outcome.as_str()));
        if let Some(identity) = &self.facts.identity {
            span.set_attribute(KeyValue::new(TENANT, Arc::clone(&identity.tenant)));
            span.set_attribute(KeyValue::new(OPERATOR, Arc::clone(&identity.operator)));
        }
        if let Some(upstream) = &self.facts.upstream {
            span.set_attribute(KeyValue::new(UPSTREAM, Arc::clone(upstream)));
        }
        let code = match outcome {
            ExchangeOutcome::Block(block) => Some(block.code.clone()),
            outcome => outcome.error().map(|code| code.as_str().to_owned()),
        };
        if let Some(code) = code {
            span.set_attribute(KeyValue::new(CODE, code));
        }
    }

    fn write_line(&self, outcome: &ExchangeOutcome<'_>, took: Duration, is_slow: bool) {
        let facts = &self.facts;
        let (block, error) = match outcome {
            ExchangeOutcome::Block(block) => (Some(*block), None),
            ExchangeOutcome::Error(error) => (None, Some(*error)),
            _ => (None, None),
        };
        let code = block.map(|block| block.code.as_str());
        let code = code.or(outcome.error().map(Code::as_str));
        let sentence = block.map(|block| block.message.as_str());
        let sentence = sentence.or(error.map(|error| error.detail.as_str()));
        let message = outcome.message(facts.refused.is_some());
        let event = if facts.refused.is_some() { "auth.refused" } else { "llm.exchange" };
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    event,
                    request_id = %self.request_id,
                    correlation_id = facts.correlation_id,
                    trace_id = trace::id(&self.context),
                    tenant = facts.identity.as_ref().map(|identity| &*identity.tenant),
                    operator = facts.identity.as_ref().map(|identity| &*identity.operator),
                    model = facts.model.as_deref().map(|model| cut(model, MAX_MODEL_BYTES)),
                    upstream = facts.upstream.as_deref(),
                    outcome = outcome.as_str(),
                    code,
                    reason = facts.refused.map(auth::RefusalReason::as_str),
                    plugin = block.map(|block| &*block.plugin),
                    detail = sentence.map(|sentence| cut(sentence, MAX_SENTENCE_BYTES)),
                    upstream_status = facts.upstream_status,
                    upstream_ms = facts.upstream_took.map(millis),
                    streamed = facts.is_streamed.then_some(true),
                    duration_ms = millis(took),
                    slow = is_slow,
                    remembered = facts.remembered,
                    replayed = facts.replayed,
                    withheld = (!facts.withheld.is_empty()).then(|| facts.withheld.join(",")),
                    "{message}"
                )
            };
        }
        if is_slow || outcome.level() == Level::WARN { line!(warn) } else { line!(info) }
    }
}

fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

impl Drop for ExchangeRecord {
    fn drop(&mut self) {
        if !self.is_ended {
            self.record(&ExchangeOutcome::Cancelled);
        }
    }
}
