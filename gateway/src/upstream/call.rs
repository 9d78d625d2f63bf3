//! One call to a plugin, as a list. The order, and its reasons:
//!
//! 1. [`PluginClient::enter_bulkhead`]: a permit among the plugin's calls. First, since a call that waits for one costs the
//!    plugin nothing yet; the retry keeps it, so a call never queues twice.
//! 2. [`PluginClient::measure`]: the client span, the headers and the duration. Below the permit, so that the duration is
//!    the plugin's and not the queue's; above the attempts, so that a call is one span however often it is sent.
//! 3. [`PluginClient::attempt`]: the loop over what follows, at most twice to the plugin.
//! 4. [`PluginClient::next_route`]: an endpoint by p2c among those that breaker and health admit, and a connection to it.
//!    Once per attempt, since the second one goes to another endpoint where there is one.
//! 5. [`PluginClient::exchange`]: one frame out, one reply in. The frame is made here, since it names the configuration of the
//!    connection.
//! 6. [`PluginClient::retry_once`]: what the failure says. Another attempt where the plugin provably did not process the
//!    call; otherwise `classify` tells the endpoint's breaker.
//!
//! The deadline is set before the first of them and bounds them all. A reply's endpoint is not told here: `invoke` decodes
//! the reply and then judges it ([`ServingEndpoint`]).
//!
//! These are functions and not tower layers. `tower::retry` clones every request before it is sent, which allocates for
//! every call what few calls need, and its policy can't hand the configuration over between two attempts. `tower::limit`
//! is not fair between tenants. The permit and the span last as long as the call's future, which borrows them: as layers
//! they would be `async` functions around the next one, which is what they are here.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hookgate_proto::{SelectFields, plugin::v1 as plugin};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::{
    core::{call_site::CallSite, failure::Failure, step::Reason},
    fairness::bulkhead::{BulkheadPermit, Full},
    telemetry::{Parent, PluginCall},
    upstream::{
        classify,
        client::PluginClient,
        codec::{self, ExchangeError},
        connection::Rpc,
        endpoint::Endpoint,
        host_access::CallTokenRequest,
        pool::{self, Route, RouteError},
        request::{CallMeta, PluginReply, PluginRequest, ServingEndpoint},
    },
};

/// The detail of a second NOT_INITIALIZED.
const CONFIG_LOST_MESSAGE: &str = "the plugin does not know its configuration, though it was initialised";

impl PluginClient {
    /// Makes one call at `site`: waits for a permit, gets a connection, sends the call, and returns the
    /// reply undecoded. Fills in `call.config_digest`. `limit` covers everything. Dropping the future cancels
    /// the plugin's call.
    ///
    /// # Errors
    /// The reason is `bulkhead_full`, `not_ready`, `unreachable`, `point_not_offered`, `timeout`,
    /// `rpc_error`, `bad_reply` or `too_large`.
    pub async fn call<M: prost::Message + SelectFields + 'static>(
        &self,
        site: impl Into<CallSite>,
        call: plugin::Call,
        payload: Arc<M>,
        meta: CallMeta,
        limit: Duration,
    ) -> Result<PluginReply, Failure> {
        let request =
            PluginRequest { site: site.into(), call, payload, meta, parent: Parent::current(), limit };
        let deadline = Instant::now() + request.limit;
        let permit = self.enter_bulkhead(&request).await?;
        let (bytes, served) = self.measure(request, deadline).await?;
        Ok(PluginReply { bytes, queue: permit.waited, served })
    }

    /// Delivers one observed call. Its limit starts when it has a permit.
    pub(super) async fn deliver(&self, request: PluginRequest) -> Result<PluginReply, Failure> {
        let permit = self.bulkhead.enter_observer().await;
        let deadline = Instant::now() + request.limit;
        let (bytes, served) = self.measure(request, deadline).await?;
        Ok(PluginReply { bytes, queue: permit.waited, served })
    }

    /// A permit among the plugin's calls, at once or within a part of the call's time.
    async fn enter_bulkhead(&self, request: &PluginRequest) -> Result<BulkheadPermit, Failure> {
        let wait = self.limits.queue_wait.map_or(request.limit / 10, |wait| wait.0.min(request.limit));
        self.bulkhead.enter(&request.meta.tenant, wait).await.map_err(|full| {
            let (reason, late) = (Reason::BulkheadFull, "no permit became free in time");
            match full {
                Full::Queue => Failure::new(reason, "too many calls in flight and waiting"),
                Full::Wait if wait == request.limit => Failure::ran_out(reason, late),
                Full::Wait => Failure::new(reason, late),
            }
        })
    }

    /// Sends and measures the call. If it is dropped, it is measured as cancelled.
    async fn measure(
        &self,
        request: PluginRequest,
        deadline: Instant,
    ) -> Result<(Bytes, ServingEndpoint), Failure> {
        let mut call = self.calls.start(&request.site, &request.parent);
        let mut headers = HeaderMap::new();
        headers.insert("hookgate-depth", HeaderValue::from(request.meta.depth));
        if request.meta.trial {
            headers.insert("hookgate-test", HeaderValue::from_static("true"));
            call.is_trial();
        }
        call.inject(&mut headers);
        let outbound = OutboundCall { request, headers, deadline, span: &mut call };
        let result = self.attempt(outbound).await;
        call.ended(result.as_ref().map(drop).map_err(|failure| (failure.reason, failure.status)));
        result
    }

    /// Sends the call, and once more for each reason why the plugin provably did not process it: the
    /// connection could not be made or returned the request, the stream was refused, or the reply was
    /// NOT_INITIALIZED. The plugin's code sees a call at most twice, and processes it at most once. The next
    /// attempt uses another endpoint if there is one.
    async fn attempt(&self, mut call: OutboundCall<'_, '_>) -> Result<(Bytes, ServingEndpoint), Failure> {
        let mut attempts = AttemptState::default();
        loop {
            let route = self.next_route(&mut attempts, &call).await?;
            match self.exchange(&mut call, &attempts, &route).await? {
                Ok(bytes) => {
                    route.live.note_answer();
                    return Ok((bytes, ServingEndpoint::by(route.ticket)));
                }
                Err(failed) => self.retry_once(&mut attempts, &call, route, failed).await?,
            }
        }
    }

    /// The route of the next attempt.
    async fn next_route(
        &self,
        attempts: &mut AttemptState,
        call: &OutboundCall<'_, '_>,
    ) -> Result<Route, Failure> {
        let OutboundCall { request, deadline, .. } = call;
        let again = attempts.again.take();
        attempts.handed_over = again.is_some();
        if let Some(route) = again {
            return Ok(route);
        }
        loop {
            match self.pool.route(&request.site, &request.meta, attempts.avoid.as_ref(), *deadline).await {
                Ok(route) => return Ok(route),
                Err(RouteError { failure, tried: Some(tried) })
                    if failure.reason == Reason::Unreachable
                        && !attempts.unsent
                        && Instant::now() < *deadline =>
                {
                    attempts.unsent = true;
                    attempts.avoid = Some(tried);
                    attempts.failure = Some(failure);
                }
                Err(RouteError { failure, .. }) => {
                    let first = attempts.failure.take();
                    // The reason for the failed connection is more useful than the open breaker that it
                    // caused.
                    return Err(first.filter(|_| failure.reason == Reason::BreakerOpen).unwrap_or(failure));
                }
            }
        }
    }

    /// Sends the call along `route`. The inner error may allow another attempt.
    async fn exchange(
        &self,
        call: &mut OutboundCall<'_, '_>,
        attempts: &AttemptState,
        route: &Route,
    ) -> Result<Result<Bytes, FailedExchange>, Failure> {
        let OutboundCall { request, headers, deadline, span } = call;
        let Route { live, ticket } = route;
        span.sent_to(&ticket.endpoint().server);
        let generation = live.generation();
        self.add_host_token(request, &live.config.capabilities, *deadline);
        // The connection's own manifest: the plugin's process at its end may read more than the accepted one.
        let offer = live.accepted.manifest.offers_at(&request.site);
        let frame = request.frame(&live.config.digest, offer.and_then(|offer| offer.reads));
        if frame.len() > self.max_call {
            let detail = format!("the call has {} bytes; the limit is {}", frame.len(), self.max_call);
            return Err(Failure::new(Reason::TooLarge, detail));
        }
        let whole = request.meta.whole && !attempts.handed_over && is_nearly(*deadline, request.limit);
        let rpc = Rpc::at(&request.site);
        let occupied = live.occupied();
        let tenant = Some(&request.meta.tenant);
        let reply = live.connection.unary(rpc, frame, headers, *deadline, self.max_reply, tenant).await;
        drop(occupied);
        Ok(reply.map_err(|error| FailedExchange { error, generation, whole }))
    }

    /// Adds a token for the gateway's own services, if the plugin has a use for one.
    fn add_host_token(&self, request: &mut PluginRequest, capabilities: &[String], deadline: Instant) {
        let Some(host) = self.host.services(capabilities) else { return };
        if !request.call.host_token.is_empty() {
            return;
        }
        let request_id = request.call.context.as_ref().map_or("", |context| &*context.request_id);
        request.call.host_token = host.call_token(&CallTokenRequest {
            plugin: self.name(),
            tenant: &request.meta.tenant,
            request_id,
            capabilities,
            left: deadline.saturating_duration_since(Instant::now()),
        });
    }

    /// Prepares another attempt after `failed` if one is allowed; otherwise tells the endpoint's breaker.
    async fn retry_once(
        &self,
        attempts: &mut AttemptState,
        call: &OutboundCall<'_, '_>,
        route: Route,
        failed: FailedExchange,
    ) -> Result<(), Failure> {
        let FailedExchange { error, generation, whole } = failed;
        match error {
            ExchangeError::Unsent(_) if !attempts.unsent => {
                attempts.unsent = true;
                attempts.avoid = Some(Arc::clone(route.ticket.endpoint()));
                Ok(())
            }
            ExchangeError::StreamRefused if !attempts.refused => {
                attempts.refused = true;
                attempts.avoid = Some(Arc::clone(route.ticket.endpoint()));
                Ok(())
            }
            ExchangeError::Status(status) if codec::says_not_initialized(&status) => {
                // Another connection may lead to another process.
                if attempts.handed_over {
                    route.ticket.endpoint().forgot(&route.live, CONFIG_LOST_MESSAGE);
                }
                self.hand_over_again(attempts, call, route, generation).await
            }
            error => Err(classify::failed(&error, &route.live, route.ticket, whole)),
        }
    }

    /// Handles NOT_INITIALIZED for a call sent after `generation`: initialises the plugin again, and repeats
    /// the call there, or at once at another endpoint that has the configuration.
    async fn hand_over_again(
        &self,
        attempts: &mut AttemptState,
        call: &OutboundCall<'_, '_>,
        Route { live, ticket }: Route,
        generation: u64,
    ) -> Result<(), Failure> {
        if attempts.not_initialized {
            return Err(Failure::new(Reason::NotReady, CONFIG_LOST_MESSAGE));
        }
        attempts.not_initialized = true;
        live.note_forgotten(generation);
        let endpoint = Arc::clone(ticket.endpoint());
        // The other endpoint may be the one that just refused the call.
        if !attempts.refused && self.pool.has_proven_beside(&endpoint, &call.request.meta.tenant) {
            attempts.avoid = Some(Arc::clone(&endpoint));
            // The result shows in the endpoint's status.
            tokio::spawn(async move { endpoint.initialise(&live, generation).await });
            return Ok(());
        }
        pool::initialised(&endpoint, &live, generation, call.deadline).await?;
        attempts.again = Some(Route { live, ticket });
        Ok(())
    }
}

/// A call with its permit.
struct OutboundCall<'s, 'c> {
    request: PluginRequest,
    headers: HeaderMap,
    deadline: Instant,
    span: &'s mut PluginCall<'c>,
}

/// An exchange without a reply.
struct FailedExchange {
    error: ExchangeError,
    /// How often the plugin had been initialised over the connection when the call was sent.
    generation: u64,
    /// Whether the call had about all of its step's time.
    whole: bool,
}

/// The progress of a call.
#[derive(Default)]
struct AttemptState {
    /// A connection could not be made, or returned the call.
    unsent: bool,
    /// The plugin's server refused the stream.
    refused: bool,
    /// The plugin's code saw the call and did not know its configuration.
    not_initialized: bool,
    /// The endpoint of the last attempt.
    avoid: Option<Arc<Endpoint>>,
    /// The route of the endpoint that was just initialised again.
    again: Option<Route>,
    /// Whether the current attempt goes to the endpoint that was just initialised again.
    handed_over: bool,
    /// Why the first attempt got no connection.
    failure: Option<Failure>,
}

/// Whether the time until `deadline` is nearly all of `limit`: a wait in the queue (a tenth at most) may have
/// passed, but no dial and no Initialize.
fn is_nearly(deadline: Instant, limit: Duration) -> bool {
    deadline.saturating_duration_since(Instant::now()) >= limit.mul_f64(0.85)
}
