//! One request of a client to a model: what is read, asked and sent, in which order (docs/llm-proxy.md).

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use hookgate_proto::gateway::v1::RequestContext;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    auth::{AuthRefusal, Authenticator, VerifiedToken},
    config::Detail,
    core::{
        api_format::ApiFormat,
        call_site::CallSite,
        error::{Code, Error, Violation},
        point::Point,
    },
    dataplane::{
        call::Gateway,
        http::check_content,
        llm::{chains::Caller, client_stream::ClientStream, session},
    },
    edge::{
        admission::{CallPermits, MemoryPermit},
        body::{self, SizeLimit},
        request_meta::{DEPTH, RequestMeta},
    },
    invoke::{BeforeResponse, Block, ExtensionPoint as _, check_steps},
    llm::{
        Llm,
        format::{Echoes, Format, FormatDraft, FormatRequest},
        guarded_points::GuardedPoints,
        routes::ModelRoute,
        upstream::{UpstreamAnswer, UpstreamError, UpstreamTimeouts, forwarded},
    },
    net::movable::leave_worker,
    records::exchange::ExchangeFacts,
    snapshot::published::PublishedSnapshot,
};

/// How long a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// How an exchange ended.
pub(crate) enum ExchangeEnd {
    /// What the provider answered, as far as plugins left it.
    Answer(ProviderAnswer),
    /// The same, which the client has got as a stream.
    Streamed {
        /// Whether plugins blocked any of it.
        is_blocked: bool,
    },
    /// A plugin blocked the request. The provider was not asked.
    Block(Block),
}

/// A provider's answer for the client.
pub(crate) struct ProviderAnswer {
    pub(crate) status: StatusCode,
    /// Those that are passed on.
    pub(crate) headers: HeaderMap,
    /// The provider's id of the request.
    pub(crate) request_id: Option<HeaderValue>,
    pub(crate) body: Bytes,
    /// Whether plugins blocked any of it.
    pub(crate) is_blocked: bool,
}

/// A request of which nothing has been read yet.
pub(super) struct ArrivedExchange {
    pub(super) gateway: Arc<Gateway>,
    pub(super) snapshot: Arc<PublishedSnapshot>,
    pub(super) llm: Arc<Llm>,
    pub(super) meta: RequestMeta,
    pub(super) headers: HeaderMap,
}

/// What outlives the work on an exchange.
pub(super) struct ExchangeContext<'a> {
    pub(super) facts: &'a mut ExchangeFacts,
    pub(super) permits: &'a mut CallPermits,
    pub(super) detail: &'a mut Detail,
    /// Where an answer goes that the client wants as a stream.
    pub(super) stream: &'a mut ClientStream,
}

/// A request as it was sent to the provider.
pub(super) struct SentRequest<'r, R> {
    pub(super) request: &'r R,
    /// Whether the client gets the usage.
    pub(super) shows_usage: bool,
    /// What the answer must not repeat as plugins made it.
    pub(super) echoes: Echoes,
}

/// A request of a known caller to a known model, in the format `F`.
pub(super) struct Exchange<'a, F> {
    pub(super) caller: Caller<'a>,
    pub(super) llm: &'a Llm,
    pub(super) guarded: GuardedPoints,
    pub(super) route: ModelRoute<'a>,
    format: PhantomData<F>,
}

impl ArrivedExchange {
    /// Runs the exchange.
    ///
    /// # Errors
    /// The request is invalid, a plugin made no decision, or the provider has no answer.
    pub(super) async fn run<F: Format>(
        &self,
        body: Body,
        context: ExchangeContext<'_>,
    ) -> Result<ExchangeEnd, Error> {
        let ArrivedExchange { gateway, snapshot, llm, meta, headers } = self;
        let ExchangeContext { facts, permits, detail, stream } = context;
        let mut said = meta.read(headers)?;
        // An agent that shortens the time of plugins could have them skipped. Who has no time for a model closes the connection.
        said.deadline = None;
        facts.correlation_id.clone_from(&said.correlation_id);
        let verified = authenticate(&snapshot.auth, F::API, headers).await;
        let identity =
            verified.and_then(|verified| verified.invoker().map(Arc::clone)).map_err(|refusal| {
                facts.refused = Some(refusal.reason);
                Error::from(refusal)
            })?;
        facts.identity = Some(Arc::clone(&identity));
        permits.of_all = Some(gateway.admission.enter_exchange(llm.limits.exchanges)?);
        let tenant = snapshot.tenant(&identity)?;
        *detail = tenant.detail;
        let most = llm.limits.tenant_exchanges;
        let permit = gateway.admission.enter_tenant_exchange(&identity.tenant, most, tenant.rate)?;
        let permit = permits.of_tenant.insert(permit);
        let room = gateway.admission.tenant_room(permit, snapshot.limits.bytes_in_flight);
        let room = permits.memory.insert(room);
        check_content(headers)?;
        let limit = SizeLimit::with_key(llm.limits.request, "llm.limits.request");
        let received = body::receive(body, limit, 0, room);
        let late = |_| Error::new(Code::BudgetExhausted, "The body was not received in time");
        let body = timeout(BODY_TIMEOUT, received).await.map_err(late)??;
        leave_worker(&identity.tenant, body.len()).await;
        let request = F::Request::parse(body)?;
        facts.model = Some(request.model().into());
        let route = llm
            .routes
            .route(F::API, request.model(), &identity.tenant, tenant.models.as_deref())
            .ok_or_else(|| unknown_model(request.model()))?;
        facts.upstream = Some(Arc::clone(route.upstream.name()));
        let context = match Point::ALL.iter().any(|point| tenant.asks(&CallSite::Point(*point))) {
            true => session::context(headers, &request, &identity, route.upstream.name()),
            false => RequestContext::default(),
        };
        let caller =
            Caller { gateway, snapshot, tenant, identity, said, request: context, exchange: meta.request_id };
        let guarded = GuardedPoints::new(|point| caller.tenant.is_guarded(point));
        let exchange = Exchange::<F> { caller, llm, guarded, route, format: PhantomData };
        let end = meta.received + llm.limits.timeouts.total;
        exchange.run(&request, headers, room, facts, (end, stream)).await
    }
}

impl<F: Format> Exchange<'_, F> {
    async fn run(
        &self,
        request: &F::Request,
        headers: &HeaderMap,
        room: &mut MemoryPermit,
        facts: &mut ExchangeFacts,
        (end, stream): (Instant, &mut ClientStream),
    ) -> Result<ExchangeEnd, Error> {
        F::check_request(request, self.guarded, &self.llm.allow)?;
        if F::HAS_CHOICES && F::MAY_STREAM {
            // No client would get the answer, so neither plugins nor the provider are asked.
            check_steps(self.caller.tenant, &CallSite::Point(BeforeResponse::POINT))?;
        }
        let mut draft = F::Draft::new(request);
        let judged = timeout_at(end, self.judge_conversation(request, &mut draft, facts)).await;
        let late = "The conversation took longer to judge than `llm.limits.total`";
        if let Some(block) = judged.map_err(|_| Error::new(Code::BudgetExhausted, late))?? {
            return Ok(ExchangeEnd::Block(block));
        }
        draft.set_model(self.route.model);
        // Plugins that count tokens need the usage, also if the client doesn't.
        let adds_usage = !request.shows_usage() && self.caller.asks::<BeforeResponse>();
        if adds_usage {
            draft.ask_for_usage();
        }
        let sent = draft.render();
        let changed = if draft.is_changed() { Some(self.check_changed(&sent)?) } else { None };
        let asked = changed.as_ref().unwrap_or(request);
        let echoes = F::echoes(request, asked, self.guarded.has_answers());
        let asked = SentRequest { request: asked, shows_usage: !adds_usage, echoes };
        room.grow(sent.len())?;
        let answer = self.ask_model(sent, headers, facts, end).await?;
        if answer.status == StatusCode::OK && (F::is_streamed(request) || !F::HAS_CHOICES) {
            let streamed = self.stream_answer(&asked, answer, room, facts, stream);
            let late = format!(
                "The answer of `{}` was not sent within `llm.limits.total`",
                self.route.upstream.name()
            );
            return timeout_at(end, streamed)
                .await
                .unwrap_or_else(|_| Err(Error::new(Code::UpstreamTimeout, late)));
        }
        self.judge_answer(&asked, answer, room, facts).await.map(ExchangeEnd::Answer)
    }

    /// What plugins made of a request is held to the same rules as what a client sends.
    fn check_changed(&self, sent: &Bytes) -> Result<F::Request, Error> {
        let changed = F::Request::parse(sent.clone())
            .and_then(|changed| F::check_request(&changed, self.guarded, &self.llm.allow).map(|()| changed));
        changed.map_err(|error| {
            let reason = error.violations.first().map(Violation::message_with_place);
            let reason = reason.as_deref().unwrap_or(&error.detail);
            Error::new(
                Code::PluginBadReply,
                format!("What a plugin made of the request is not valid: {reason}"),
            )
        })
    }

    async fn ask_model(
        &self,
        body: Bytes,
        headers: &HeaderMap,
        facts: &mut ExchangeFacts,
        end: Instant,
    ) -> Result<UpstreamAnswer, Error> {
        let started = Instant::now();
        facts.upstream_began = Some(started);
        let total = end.saturating_duration_since(started);
        let timeouts = UpstreamTimeouts { total, ..self.llm.limits.timeouts };
        let mut headers = forwarded(headers);
        // A provider that leads back to this gateway is refused there like any other loop.
        headers.insert(DEPTH, HeaderValue::from(self.caller.said.depth + 1));
        let sent = self.route.send(F::PATH, &headers, body, timeouts);
        let answer = sent.await.map_err(|error| provider_error(self.route.upstream.name(), error));
        facts.upstream_took = Some(started.elapsed());
        let answer = answer?;
        facts.upstream_status = Some(answer.status.as_u16());
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::PAYMENT_REQUIRED => {
                Err(self.credential_refused(answer.status))
            }
            _ => Ok(answer),
        }
    }

    /// Leaves the worker if work on `bytes` of the answer follows.
    pub(super) async fn leave_worker(&self, bytes: usize) {
        leave_worker(&self.caller.identity.tenant, bytes).await;
    }

    /// The error for a provider that doesn't accept the operator's credential: the client can't do anything about it.
    pub(super) fn credential_refused(&self, status: StatusCode) -> Error {
        let name = self.route.upstream.name();
        let detail =
            format!("The provider `{name}` does not accept the credential (status {})", status.as_u16());
        Error::new(Code::UpstreamCredential, detail)
    }
}

/// Verifies the token of a client of this API.
pub(super) async fn authenticate(
    auth: &Authenticator,
    api: ApiFormat,
    headers: &HeaderMap,
) -> Result<Arc<VerifiedToken>, AuthRefusal> {
    match api {
        ApiFormat::Openai => auth.authenticate(headers).await,
        ApiFormat::Anthropic => auth.authenticate_api_key(headers).await,
    }
}

/// The same for a model that is unknown and one that the tenant may not use.
pub(super) fn unknown_model(model: &str) -> Error {
    let model = crate::json::pointer::cut(model);
    Error::new(Code::ModelUnknown, format!("There is no model `{model}`"))
}

/// The error for the client. `name` is the upstream's.
pub(super) fn provider_error(name: &str, error: UpstreamError) -> Error {
    let code = match &error {
        UpstreamError::NoCredential(_) => Code::UpstreamCredential,
        UpstreamError::Unavailable(_) => Code::UpstreamUnavailable,
        UpstreamError::Timeout(_) => Code::UpstreamTimeout,
        UpstreamError::BadAnswer(_) => Code::UpstreamBadAnswer,
        UpstreamError::TooLarge => Code::AnswerTooLarge,
    };
    Error::new(code, format!("The provider `{name}`: {error}"))
}

/// Whether an answer has this media type.
pub(super) fn is_of_type(headers: &HeaderMap, wanted: &str) -> bool {
    let media_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(wanted))
}

/// The error for a change that can't be made, because of `reason`.
pub(super) fn bad_patch(reason: impl fmt::Display) -> Error {
    Error::new(Code::PluginBadReply, format!("A plugin's change can't be made: {reason}"))
}
