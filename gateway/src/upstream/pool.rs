//! All endpoints of one plugin: which ones exist, and which one gets a call (docs/protocol.md, section 6).

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use futures::future::join_all;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    core::{call_site::CallSite, failure::Failure, step::Reason},
    telemetry::ServerAttributes,
    upstream::{
        breakers::CallClass,
        call_guard::CallGuard,
        consent::Wants,
        dial_error::DialErrorKind,
        endpoint::Endpoint,
        p2c,
        ready_connection::{ConnectError, ReadyConnection},
        redescribe::{self, RedescribeOutcome},
        registration::Registration,
        release::InUse,
        request::CallMeta,
        resolve::{self, LookupRequests, LookupResult},
        state::{EndpointStatus, NameStatus, State, Status, Why},
        supervisor,
        transport::{self, DnsTarget, RegisteredTransports, Target},
    },
};

mod no_route;
mod registered;

/// How long calls may continue at an endpoint that is no longer among its name's addresses: the longest
/// timeout of a step.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two draws one probe may have been given away: a call tries again so often.
const MAX_PICKS: usize = 4;

/// A DNS name among a plugin's endpoints.
struct NameSource {
    names: DnsTarget,
    server: Arc<ServerAttributes>,
    /// Notified when one of its addresses can't be reached.
    failed: Arc<Notify>,
    /// Lookups on request.
    asked: LookupRequests,
    /// Whether any lookup returned addresses.
    is_known: AtomicBool,
    /// Why the last lookup returned none.
    trouble: ArcSwapOption<(Why, String)>,
}

#[derive(Clone)]
struct PoolMember {
    endpoint: Arc<Endpoint>,
    origin: MemberOrigin,
}

/// Where an endpoint comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberOrigin {
    /// The configuration.
    Configured,
    /// An address of the name with this index.
    Name(usize, SocketAddr),
    /// A process registered it.
    Registered,
}

pub(super) struct Pool {
    pub(super) registration: Arc<Registration>,
    sources: Vec<NameSource>,
    registered: RegisteredTransports,
    /// Written by name lookups only, one at a time, or by registrations only.
    members: ArcSwap<Vec<PoolMember>>,
    /// Why a name returned no address.
    trouble: ArcSwapOption<(Why, String)>,
    pub(super) closing: CancellationToken,
    /// Cancelled when all endpoints are released, and those to notify were notified.
    released: CancellationToken,
}

/// Where a call goes.
pub(super) struct Route {
    pub(super) live: Arc<ReadyConnection>,
    pub(super) ticket: CallGuard,
}

/// Why a call has no route, and the endpoint that was tried.
pub(super) struct RouteError {
    pub(super) failure: Failure,
    pub(super) tried: Option<Arc<Endpoint>>,
}

/// How ready an endpoint is to take a call, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EndpointReadiness {
    Ready,
    /// Initialize is running.
    Initialising,
    /// A dial is needed.
    Away,
    /// A dial is needed, and the last one failed.
    Lost,
}

impl Pool {
    pub(super) fn new(registration: Registration, targets: Vec<Target>) -> Arc<Self> {
        let (registration, closing) = (Arc::new(registration), CancellationToken::new());
        let (mut members, mut sources) = (Vec::new(), Vec::new());
        for target in targets {
            match target {
                Target::One(transport) => {
                    let server = Arc::new(ServerAttributes::new(transport.address()));
                    let (registration, failed) = (Arc::clone(&registration), Arc::default());
                    let closing = closing.child_token();
                    let endpoint = Endpoint::new(registration, transport, server, failed, closing);
                    members.push(PoolMember { endpoint, origin: MemberOrigin::Configured });
                }
                Target::Names(names) => {
                    let server = Arc::new(ServerAttributes::new(&names.address));
                    let (is_known, trouble) = (AtomicBool::new(false), ArcSwapOption::empty());
                    let (failed, asked) = Default::default();
                    sources.push(NameSource { names, server, failed, asked, is_known, trouble });
                }
            }
        }
        let members = ArcSwap::from_pointee(members);
        let (trouble, released) = (ArcSwapOption::empty(), CancellationToken::new());
        let registered = RegisteredTransports::default();
        Arc::new(Pool { registration, sources, registered, members, trouble, closing, released })
    }

    /// Connects, and stays connected until [`Pool::shut_down`] or `cancel`.
    pub(super) fn start(self: &Arc<Self>, cancel: CancellationToken) {
        self.members.load().iter().for_each(|member| supervised(&member.endpoint));
        let closing = self.closing.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => closing.cancel(),
                () = closing.cancelled() => {}
            }
        });
        if !self.registration.plugin.enabled {
            return;
        }
        if self.registration.plugin.self_registration {
            self.follow_registrations();
        }
        if self.sources.is_empty() {
            return;
        }
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            let follow = |(index, source): (usize, &NameSource)| {
                let (pool, names, failed) =
                    (Arc::clone(&pool), source.names.clone(), Arc::clone(&source.failed));
                async move {
                    let resolver = Arc::clone(&pool.registration.shared.resolver);
                    let found = |found| pool.found(index, found);
                    let asked = &pool.sources[index].asked;
                    resolve::follow(&*resolver, &names.host, names.port, &failed, asked, found).await;
                }
            };
            let following = join_all(pool.sources.iter().enumerate().map(follow));
            tokio::select! {
                () = pool.closing.cancelled() => {}
                _ = following => {}
            }
        });
    }

    /// Applies a lookup of the name `index`. If it returned no address, the previous ones stay.
    fn found(&self, index: usize, found: LookupResult) {
        let addresses = match found {
            Ok(addresses) => addresses,
            Err((cause, detail)) => {
                let trouble = (Why::Unreachable(cause), detail.clone());
                let before = self.sources[index].trouble.swap(Some(Arc::new(trouble)));
                self.not_found(cause, &detail);
                if before.is_none() {
                    self.registration.changed();
                }
                return;
            }
        };
        self.trouble.store(None);
        let members = self.members.load_full();
        let source = &self.sources[index];
        source.trouble.store(None);
        let has_left = |member: &&PoolMember| match member.origin {
            MemberOrigin::Name(of, address) => of == index && !addresses.contains(&address),
            MemberOrigin::Configured | MemberOrigin::Registered => false,
        };
        let is_new = |address: &&SocketAddr| {
            let origin = MemberOrigin::Name(index, **address);
            !members.iter().any(|member| member.origin == origin)
        };
        let came: Vec<_> =
            addresses.iter().filter(is_new).map(|address| self.member(index, *address)).collect();
        let left: Vec<_> =
            members.iter().filter(has_left).map(|member| Arc::clone(&member.endpoint)).collect();
        if came.is_empty() && left.is_empty() {
            return;
        }
        let stay = members.iter().filter(|member| !has_left(member)).cloned();
        self.members.store(Arc::new(stay.chain(came.iter().cloned()).collect()));
        source.is_known.store(true, Ordering::Release);
        let (plugin, name) = (&*self.registration.plugin.name, &*source.names.address);
        let (new, gone) = (came.len(), left.len());
        tracing::info!(plugin, name, addresses = addresses.len(), new, gone, "the name's addresses changed");
        came.iter().for_each(|member| supervised(&member.endpoint));
        for endpoint in left {
            tokio::spawn(async move { retire(&endpoint).await });
        }
        self.registration.changed();
    }

    fn not_found(&self, cause: DialErrorKind, detail: &str) {
        let before = self.trouble.swap(Some(Arc::new((Why::Unreachable(cause), detail.to_owned()))));
        if before.is_none_or(|before| before.0 != Why::Unreachable(cause)) {
            let (plugin, reason) = (&*self.registration.plugin.name, cause.as_str());
            let kept = self.members.load().len();
            tracing::warn!(event = "plugin.health_failed", plugin, reason, kept, "{detail}");
            self.registration.changed();
        }
    }

    fn member(&self, index: usize, address: SocketAddr) -> PoolMember {
        let source = &self.sources[index];
        let transport = transport::transport_to(&source.names, address);
        let (registration, server) = (Arc::clone(&self.registration), Arc::clone(&source.server));
        let (failed, closing) = (Arc::clone(&source.failed), self.closing.child_token());
        let endpoint = Endpoint::new(registration, transport, server, failed, closing);
        PoolMember { endpoint, origin: MemberOrigin::Name(index, address) }
    }

    /// A connected and initialised route for a call at `site`. Uses `avoid` only if no other
    /// endpoint is better.
    pub(super) async fn route(
        &self,
        site: &CallSite,
        meta: &CallMeta,
        avoid: Option<&Arc<Endpoint>>,
        deadline: Instant,
    ) -> Result<Route, RouteError> {
        let ticket = self.draw(&meta.tenant, avoid).map_err(|failure| RouteError { failure, tried: None })?;
        let endpoint = Arc::clone(ticket.endpoint());
        match reach(&endpoint, site, deadline).await {
            Ok(live) => {
                endpoint.scale_up(&live);
                Ok(Route { live, ticket })
            }
            Err(failure) => {
                let speaks = failure.reason == Reason::Unreachable && (meta.whole || !failure.ran_out);
                ticket.judge(if speaks { CallClass::ConnectionFailure } else { CallClass::Unknown });
                Err(RouteError { failure, tried: Some(endpoint) })
            }
        }
    }

    /// Picks an endpoint for a call of `tenant`.
    fn draw(&self, tenant: &Arc<str>, avoid: Option<&Arc<Endpoint>>) -> Result<CallGuard, Failure> {
        let members = self.members.load();
        let has_manifest = self.registration.manifests.has_accepted();
        let avoided = |endpoint: &Arc<Endpoint>| avoid.is_some_and(|avoid| Arc::ptr_eq(avoid, endpoint));
        let now = Instant::now();
        let near = |member: &PoolMember| {
            let endpoint = &member.endpoint;
            let distance = distance(endpoint, has_manifest)?;
            // An endpoint that is known to be lost is no better than the one that was just tried.
            Some((distance == EndpointReadiness::Lost, avoided(endpoint), distance))
        };
        let open = |member: &PoolMember| member.endpoint.breakers.lets_through(Some(tenant), now);
        for _ in 0..MAX_PICKS {
            let Some(best) = members.iter().filter(|member| open(member)).filter_map(near).min() else {
                break;
            };
            let best = |member: &&PoolMember| near(member) == Some(best) && open(member);
            let drawn = p2c::pick(members.iter().filter(best), |member| member.endpoint.load.score(now));
            if let Some(member) = drawn
                && let Some(pass) = member.endpoint.breakers.enter(tenant, now)
            {
                return Ok(CallGuard::new(Arc::clone(&member.endpoint), Arc::clone(tenant), pass));
            }
        }
        let held_back = members.iter().any(|member| near(member).is_some());
        Err(self.nowhere(held_back, Some(tenant)))
    }

    /// Whether another endpoint can take a call of `tenant` at once, and is known to have its configuration.
    pub(super) fn has_proven_beside(&self, endpoint: &Arc<Endpoint>, tenant: &str) -> bool {
        let now = Instant::now();
        self.members.load().iter().any(|PoolMember { endpoint: other, .. }| {
            !Arc::ptr_eq(other, endpoint)
                && distance(other, true) == Some(EndpointReadiness::Ready)
                && other.breakers.lets_through(Some(tenant), now)
                && other.live().is_some_and(|live| live.is_proven())
        })
    }

    /// The state of the plugin: that of its best endpoint.
    pub(super) fn status(&self) -> Status {
        let manifest = self.registration.manifests.accepted().map(|accepted| Arc::clone(&accepted.manifest));
        let members = self.members.load();
        let of_all = members.iter().map(|member| member.endpoint.status.now());
        if let Some(best) = of_all.min_by_key(|standing| rank(standing.why)) {
            let (why, detail) = (best.why, best.detail.clone());
            return Status { state: why.state(), why, detail, manifest };
        }
        let (why, detail) = match self.trouble.load_full() {
            _ if !self.registration.plugin.enabled => (Why::Disabled, String::new()),
            _ if self.closing.is_cancelled() => (Why::ShuttingDown, String::new()),
            Some(trouble) => (*trouble).clone(),
            None if self.registration.plugin.self_registration => {
                let detail = "no process of the plugin has registered an endpoint";
                (Why::Unreachable(DialErrorKind::NotRegistered), detail.to_owned())
            }
            None => (Why::NotDialled, String::new()),
        };
        Status { state: why.state(), why, detail, manifest }
    }

    /// The status of every endpoint.
    pub(super) fn report(&self) -> Vec<EndpointStatus> {
        self.members.load().iter().map(|member| member.endpoint.report()).collect()
    }

    /// What operators would have to consent to for endpoints that are out: each manifest once, the highest
    /// version first.
    pub(super) fn wants(&self) -> Vec<Arc<Wants>> {
        let members = self.members.load();
        let mut all: Vec<_> =
            members.iter().filter_map(|member| member.endpoint.status.now().wants.clone()).collect();
        all.sort_by(|a, b| b.version.cmp(&a.version));
        let mut wants: Vec<Arc<Wants>> = Vec::new();
        for one in all {
            if wants.iter().all(|other| other.accepted != one.accepted) {
                wants.push(one);
            }
        }
        wants
    }

    /// The status of every name.
    pub(super) fn names(&self) -> Vec<NameStatus> {
        let status = |source: &NameSource| NameStatus {
            address: source.names.address.to_string(),
            is_known: source.is_known.load(Ordering::Acquire),
            trouble: match source.trouble.load_full() {
                _ if !self.registration.plugin.enabled => Some((Why::Disabled, String::new())),
                trouble => trouble.map(|trouble| (*trouble).clone()),
            },
        };
        self.sources.iter().map(status).collect()
    }

    /// Releases all endpoints at the same time. Those still `in_use` are told that this configuration is not.
    pub(super) async fn shut_down(&self, limit: Duration, in_use: &InUse) {
        self.closing.cancel();
        let (members, plugin) = (self.members.load_full(), &self.registration.plugin.name);
        let all = members.iter().map(|PoolMember { endpoint, origin }| {
            let goes_on = match origin {
                MemberOrigin::Configured => in_use.has(plugin, endpoint.address()),
                MemberOrigin::Name(source, _) => in_use.has(plugin, &self.sources[*source].names.address),
                MemberOrigin::Registered => in_use.has_registered(plugin),
            };
            async move {
                if goes_on { endpoint.release(limit, in_use).await } else { endpoint.shut_down(limit).await }
            }
        });
        join_all(all).await;
        self.released.cancel();
    }

    /// Returns when [`Pool::shut_down`] is done.
    pub(super) async fn released(&self) {
        self.released.cancelled().await;
    }

    /// Looks the names up, describes each endpoint again, one after the other, and reports each result to
    /// `tell`.
    pub(super) async fn describe_again(&self, tell: impl Fn(RedescribeOutcome)) {
        tokio::select! {
            // The lookups have stopped.
            () = self.closing.cancelled() => {}
            _ = join_all(self.sources.iter().map(|source| source.asked.look_up())) => {}
        }
        for (source, name) in self.sources.iter().zip(self.names()) {
            if let Some((_, detail)) = name.trouble {
                tell(RedescribeOutcome { address: source.names.address.to_string(), trouble: Some(detail) });
            }
        }
        for member in self.members.load_full().iter() {
            let (address, trouble) =
                (member.endpoint.address().to_owned(), redescribe::describe(&member.endpoint));
            tell(RedescribeOutcome { address, trouble: trouble.await });
        }
    }
}

/// Keeps an endpoint connected until it is released.
fn supervised(endpoint: &Arc<Endpoint>) {
    let endpoint = Arc::clone(endpoint);
    tokio::spawn(async move { supervisor::supervise(&endpoint).await });
}

/// Releases an endpoint that is no longer among its name's addresses, once its calls have ended.
async fn retire(endpoint: &Endpoint) {
    endpoint.leave();
    let _ = timeout(RETIRE_TIMEOUT, endpoint.load.idle()).await;
    endpoint.shut_down(endpoint.registration.plugin.limits.shutdown.0).await;
}

/// How ready an endpoint is to take a call. Returns `None` if it must not get one.
fn distance(endpoint: &Endpoint, has_manifest: bool) -> Option<EndpointReadiness> {
    if endpoint.out().is_some() || endpoint.closing.is_cancelled() {
        return None;
    }
    match endpoint.is_initialised() {
        Some(true) => Some(EndpointReadiness::Ready),
        Some(false) => Some(EndpointReadiness::Initialising),
        None if !has_manifest || !endpoint.status.why().may_dial() => None,
        None if endpoint.is_lost() => Some(EndpointReadiness::Lost),
        None => Some(EndpointReadiness::Away),
    }
}

/// An initialised connection to `endpoint`.
async fn reach(
    endpoint: &Arc<Endpoint>,
    site: &CallSite,
    deadline: Instant,
) -> Result<Arc<ReadyConnection>, Failure> {
    let live = match endpoint.live() {
        Some(live) => live,
        None => match timeout_at(deadline, endpoint.dial()).await {
            Ok(Ok(live)) => live,
            Ok(Err(ConnectError::Away(detail) | ConnectError::Gone(detail))) => {
                return Err(Failure::new(Reason::Unreachable, detail));
            }
            Ok(Err(ConnectError::Out(_, detail, _))) => return Err(Failure::new(Reason::NotReady, detail)),
            Err(_) => return Err(Failure::ran_out(Reason::Unreachable, "no connection in time")),
        },
    };
    if !live.is_initialised() {
        initialised(endpoint, &live, 0, deadline).await?;
    }
    if !live.accepted.manifest.is_called_at(site) {
        let detail = format!("the plugin's manifest does not offer {site}");
        return Err(Failure::new(Reason::PointNotOffered, detail));
    }
    Ok(live)
}

/// Waits until the plugin behind `live` has its configuration, delivered after generation `seen`.
pub(super) async fn initialised(
    endpoint: &Arc<Endpoint>,
    live: &Arc<ReadyConnection>,
    seen: u64,
    deadline: Instant,
) -> Result<(), Failure> {
    match timeout_at(deadline, endpoint.initialise(live, seen)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(ConnectError::Gone(detail))) => Err(Failure::new(Reason::Unreachable, detail)),
        Ok(Err(ConnectError::Away(detail) | ConnectError::Out(_, detail, _))) => {
            Err(Failure::new(Reason::NotReady, detail))
        }
        Err(_) => Err(Failure::ran_out(Reason::NotReady, "Initialize is still running")),
    }
}

/// Orders endpoints' reasons; the lowest is the plugin's. Serving comes first, then reasons that may soon
/// serve. A plugin is refused only if all its endpoints are.
fn rank(why: Why) -> u8 {
    match why.state() {
        State::Ready => 0,
        State::Connecting if why == Why::Initializing => 1,
        State::Connecting => 2,
        // The endpoint is reachable, and only an operator's consent is missing.
        State::Pending => 3,
        State::Unhealthy => 4,
        State::Refused => 5,
        State::Draining => 6,
        State::Disabled => 7,
    }
}
