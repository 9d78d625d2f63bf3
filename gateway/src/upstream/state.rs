//! The state of a plugin, why it is in it, and the manifest it was accepted with (docs/protocol.md, section
//! 2). Published as immutable snapshots: reading takes no lock. Logs what is worth a person's look, once per
//! change.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::{
    core::manifest::Manifest,
    upstream::{breaker::BreakerState, consent::Wants, dial_error::DialErrorKind, refusal::Refusal},
};

/// Where a plugin stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Switched off: never dialled.
    Disabled,
    /// Waits for a person's approval.
    Pending,
    /// The first connection and handshake are under way.
    Connecting,
    /// Calls are sent.
    Ready,
    /// Was or should be ready and is not reachable or not usable now; retried.
    Unhealthy,
    /// The handshake was refused for a stable reason.
    Refused,
    /// The gateway lets go of it.
    Draining,
}

impl State {
    /// All of them.
    pub const ALL: &'static [State] = &[
        State::Disabled,
        State::Pending,
        State::Connecting,
        State::Ready,
        State::Unhealthy,
        State::Refused,
        State::Draining,
    ];

    /// The name used in status, metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Pending => "pending",
            State::Connecting => "connecting",
            State::Ready => "ready",
            State::Unhealthy => "unhealthy",
            State::Refused => "refused",
            State::Draining => "draining",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a plugin is in its [`State`]; the state follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// `enabled: false`.
    Disabled,
    /// Not dialled yet.
    NotDialled,
    /// Described and accepted; the first Initialize is under way.
    Initializing,
    /// Described, and an operator has yet to consent to what it describes itself as.
    Approval,
    /// Described, accepted and initialised.
    Serving,
    /// Can't be connected to.
    Unreachable(DialErrorKind),
    /// The connection ended.
    Disconnected,
    /// Describe was not answered within 5 s.
    DescribeTimeout,
    /// Describe was answered with an error that may pass.
    DescribeFailed,
    /// Initialize was answered UNAVAILABLE, or the connection ended meanwhile, or the plugin did not know the
    /// configuration right after it.
    InitializeUnavailable,
    /// The health check is answered with NOT_SERVING.
    NotServing,
    /// Health checks are not answered.
    HealthUnanswered,
    /// The manifest differs in more than its version from the one that is accepted, or that an operator consented to.
    ManifestMismatch,
    /// The manifest asks for more capabilities than are granted or consented to, and another one was accepted.
    UpgradePending,
    /// Refused.
    Refused(Refusal),
    /// The gateway shuts down.
    ShuttingDown,
}

impl Why {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Why> {
        let plain = [
            Why::Disabled,
            Why::NotDialled,
            Why::Initializing,
            Why::Approval,
            Why::Serving,
            Why::Disconnected,
            Why::DescribeTimeout,
            Why::DescribeFailed,
            Why::InitializeUnavailable,
            Why::NotServing,
            Why::HealthUnanswered,
            Why::ManifestMismatch,
            Why::UpgradePending,
            Why::ShuttingDown,
        ];
        let unreachable = DialErrorKind::ALL.iter().copied().map(Why::Unreachable);
        plain.into_iter().chain(unreachable).chain(Refusal::ALL.iter().copied().map(Why::Refused))
    }

    /// The state that follows.
    pub const fn state(self) -> State {
        match self {
            Why::Disabled => State::Disabled,
            Why::NotDialled | Why::Initializing => State::Connecting,
            Why::Approval => State::Pending,
            Why::Serving => State::Ready,
            Why::Unreachable(_)
            | Why::Disconnected
            | Why::DescribeTimeout
            | Why::DescribeFailed
            | Why::InitializeUnavailable
            | Why::NotServing
            | Why::HealthUnanswered
            | Why::ManifestMismatch
            | Why::UpgradePending => State::Unhealthy,
            Why::Refused(_) => State::Refused,
            Why::ShuttingDown => State::Draining,
        }
    }

    /// The name used in status and logs; a refusal's is its own.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Disabled => "disabled",
            Why::NotDialled => "not_dialled",
            Why::Initializing => "initializing",
            Why::Approval => "approval",
            Why::Serving => "serving",
            Why::Unreachable(cause) => cause.as_str(),
            Why::Disconnected => "disconnected",
            Why::DescribeTimeout => "describe_timeout",
            Why::DescribeFailed => "describe_failed",
            Why::InitializeUnavailable => "initialize_unavailable",
            Why::NotServing => "not_serving",
            Why::HealthUnanswered => "health_unanswered",
            Why::ManifestMismatch => "manifest_mismatch",
            Why::UpgradePending => "upgrade_pending",
            Why::Refused(refusal) => refusal.as_str(),
            Why::ShuttingDown => "shutting_down",
        }
    }

    /// Whether a call that finds no connection may dial: nothing but the connection is missing. After an
    /// Initialize that did not last it waits for the supervisor, or secrets were sent at the rate of calls.
    pub(super) const fn may_dial(self) -> bool {
        match self {
            Why::Initializing
            | Why::Serving
            | Why::Unreachable(_)
            | Why::Disconnected
            | Why::DescribeTimeout
            | Why::DescribeFailed => true,
            Why::Disabled
            | Why::NotDialled
            | Why::Approval
            | Why::InitializeUnavailable
            | Why::NotServing
            | Why::HealthUnanswered
            | Why::ManifestMismatch
            | Why::UpgradePending
            | Why::Refused(_)
            | Why::ShuttingDown => false,
        }
    }

    /// The event (docs/protocol.md, section 8) that entering it is logged as. What goes well is logged where
    /// it happens, with its own fields.
    const fn event(self) -> Option<&'static str> {
        match self {
            Why::Disconnected => Some("plugin.disconnected"),
            Why::Unreachable(_)
            | Why::DescribeTimeout
            | Why::DescribeFailed
            | Why::InitializeUnavailable
            | Why::NotServing
            | Why::HealthUnanswered
            | Why::ManifestMismatch => Some("plugin.health_failed"),
            Why::UpgradePending => Some("plugin.capability_overreach"),
            Why::Approval => Some("plugin.pending"),
            Why::Refused(_) => Some("plugin.refused"),
            Why::Disabled | Why::NotDialled | Why::Initializing | Why::Serving | Why::ShuttingDown => None,
        }
    }
}

/// A plugin's state at one moment: that of its best endpoint.
#[derive(Debug, Clone)]
pub struct Status {
    /// Where it stands.
    pub state: State,
    /// Why.
    pub why: Why,
    /// One sentence for the operator: what happened and, for a refusal, what to change. Holds no secret.
    pub detail: String,
    /// The accepted manifest; stays while the plugin is away.
    pub manifest: Option<Arc<Manifest>>,
}

/// One endpoint of a plugin at one moment.
#[derive(Debug, Clone)]
pub struct EndpointStatus {
    /// Where it is: `unix:///path`, `http://host:port`, or the name of a built-in.
    pub address: String,
    /// Where it stands.
    pub state: State,
    /// Why.
    pub why: Why,
    /// One sentence for the operator. Holds no secret.
    pub detail: String,
    /// The version that it described itself with; none: it isn't connected.
    pub version: Option<semver::Version>,
    /// What its breaker does with calls.
    pub breaker: BreakerState,
    /// How many tenants' own breakers are open or half open.
    pub tenant_breakers_open: usize,
    /// Calls under way.
    pub in_flight: usize,
    /// Connections in use, 0 to 4.
    pub connections: usize,
    /// What it would have to be accepted as; none: nobody is asked, or it isn't there.
    pub wants: Option<Arc<Wants>>,
    /// Whether its last health check was answered, or it has none to ask for; none: it wasn't asked yet.
    pub health_answered: Option<bool>,
}

/// A name among a plugin's endpoints at one moment.
#[derive(Debug, Clone)]
pub struct NameStatus {
    /// As it is written: `dns:///name:port`.
    pub address: String,
    /// Whether any lookup brought addresses.
    pub is_known: bool,
    /// Why the last lookup brought none, and what the system says.
    pub trouble: Option<(Why, String)>,
}

/// What a [`StatusCell`] holds.
pub(super) struct StatusRecord {
    pub(super) why: Why,
    pub(super) detail: String,
    /// See [`EndpointStatus::wants`].
    pub(super) wants: Option<Arc<Wants>>,
    /// The trouble that was logged last and is not over: an endpoint that is tried again and again is no news.
    told: Option<Why>,
}

/// Holds where an endpoint stands and tells of changes.
pub(super) struct StatusCell {
    plugin: Arc<str>,
    address: Arc<str>,
    now: ArcSwap<StatusRecord>,
    changes: watch::Sender<u64>,
}

impl StatusCell {
    pub(super) fn new(plugin: Arc<str>, address: Arc<str>, why: Why, changes: watch::Sender<u64>) -> Self {
        let standing = StatusRecord { why, detail: String::new(), wants: None, told: None };
        StatusCell { plugin, address, now: ArcSwap::from_pointee(standing), changes }
    }

    pub(super) fn now(&self) -> Arc<StatusRecord> {
        self.now.load_full()
    }

    /// The current reason without touching the reference count.
    pub(super) fn why(&self) -> Why {
        self.now.load().why
    }

    /// A change. Nothing leaves `draining`.
    pub(super) fn set(&self, why: Why, detail: impl Into<String>) {
        self.out(why, detail, None);
    }

    /// The same of one that stays out for what it `wants`.
    pub(super) fn out(&self, why: Why, detail: impl Into<String>, wants: Option<&Arc<Wants>>) {
        let detail = detail.into();
        let before = self.change(why, &detail, wants);
        if before.why == Why::ShuttingDown {
            return;
        }
        let (plugin, address, state) = (&*self.plugin, &*self.address, why.state().as_str());
        if let Some(event) = why.event()
            && before.told != Some(why)
        {
            tracing::warn!(event, plugin, address, state, reason = why.as_str(), "{detail}");
        }
        if why == Why::Serving && matches!(before.why, Why::NotServing | Why::HealthUnanswered) {
            tracing::info!(event = "plugin.connected", plugin, address, "well again");
        }
    }

    /// A connection was described as `version` and accepted.
    pub(super) fn accepted(&self, (why, detail): (Why, &str), version: &semver::Version) {
        let before = self.change(why, detail, None);
        let is_news = match before.told {
            Some(Why::Refused(_) | Why::InitializeUnavailable) => false,
            _ => !matches!(before.why, Why::Serving | Why::Initializing),
        };
        if is_news {
            let (plugin, address) = (&*self.plugin, &*self.address);
            tracing::info!(event = "plugin.connected", plugin, %version, address, "described and accepted");
        }
    }

    /// Gives back what was before.
    fn change(&self, why: Why, detail: &str, wants: Option<&Arc<Wants>>) -> Arc<StatusRecord> {
        let before = self.now.rcu(|now| {
            if now.why == Why::ShuttingDown {
                return Arc::clone(now);
            }
            let told = match why {
                Why::Serving => None,
                _ => why.event().map(|_| why).or(now.told),
            };
            Arc::new(StatusRecord { why, detail: detail.to_owned(), wants: wants.cloned(), told })
        });
        let is_news = before.why != why || before.detail != detail || before.wants.as_ref() != wants;
        if is_news && before.why != Why::ShuttingDown {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
        before
    }
}
