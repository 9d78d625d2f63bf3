//! The state of a plugin, the reason for it, and the accepted manifest (docs/protocol.md, section 2).
//! Published as immutable snapshots, so that reading takes no lock. Logs noteworthy changes, once per change.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::{
    core::manifest::Manifest,
    upstream::{breaker::BreakerState, consent::Wants, dial_error::DialErrorKind, refusal::Refusal},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Disabled, and never dialled.
    Disabled,
    /// Waits for an operator's consent.
    Pending,
    /// The first connection and handshake are running.
    Connecting,
    /// Calls are sent.
    Ready,
    /// Was or should be ready, but is unreachable or unusable now. Retried.
    Unhealthy,
    /// The handshake was refused for a stable reason.
    Refused,
    /// The gateway is releasing the plugin.
    Draining,
}

impl State {
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

/// Why a plugin is in its [`State`], which follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// `enabled: false`.
    Disabled,
    /// Not dialled yet.
    NotDialled,
    /// Described and accepted; the first Initialize is running.
    Initializing,
    /// Described, and an operator has yet to consent to the manifest.
    Approval,
    /// Described, accepted and initialised.
    Serving,
    /// The connection can't be made.
    Unreachable(DialErrorKind),
    /// The connection ended.
    Disconnected,
    /// Describe was not answered within 5 s.
    DescribeTimeout,
    /// Describe was answered with an error that may be temporary.
    DescribeFailed,
    /// Initialize was answered with UNAVAILABLE, or the connection ended meanwhile, or the plugin did not
    /// know the configuration right after it.
    InitializeUnavailable,
    /// The health check returned NOT_SERVING.
    NotServing,
    /// Health checks are not answered.
    HealthUnanswered,
    /// The manifest differs in more than its version from the one that is accepted, or that an operator
    /// consented to.
    ManifestMismatch,
    /// The manifest asks for more capabilities than are granted or consented to, and another one was
    /// accepted.
    UpgradePending,
    /// Refused.
    Refused(Refusal),
    /// The gateway shuts down.
    ShuttingDown,
}

impl Why {
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

    /// The name used in status and logs. A refusal uses its own name.
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

    /// Whether a call that finds no connection may dial, because only the connection is missing. After a
    /// failed Initialize the call waits for the supervisor: otherwise secrets would be sent at the rate of
    /// calls.
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

    /// The event (docs/protocol.md, section 8) logged on entering this reason. Successes are logged where
    /// they happen, with their own fields.
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
    pub state: State,
    /// Why the plugin is in that state.
    pub why: Why,
    /// One sentence for the operator: what happened and, for a refusal, what to change. Holds no secret.
    pub detail: String,
    /// The accepted manifest. Kept while the plugin is unreachable.
    pub manifest: Option<Arc<Manifest>>,
}

/// One endpoint of a plugin at one moment.
#[derive(Debug, Clone)]
pub struct EndpointStatus {
    /// `unix:///path`, `http://host:port`, or the name of a built-in.
    pub address: String,
    pub state: State,
    /// Why the endpoint is in that state.
    pub why: Why,
    /// One sentence for the operator. Holds no secret.
    pub detail: String,
    /// The version from the endpoint's manifest. `None` if it isn't connected.
    pub version: Option<semver::Version>,
    /// The state of the breaker for all tenants.
    pub breaker: BreakerState,
    /// How many tenants' own breakers are open or half-open.
    pub tenant_breakers_open: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Connections in use.
    pub connections: usize,
    /// What an operator would have to consent to. `None` if no consent is needed, or the endpoint is not
    /// connected.
    pub wants: Option<Arc<Wants>>,
    /// Whether the last health check was answered; true without a health service. `None` before the first
    /// check.
    pub health_answered: Option<bool>,
}

/// A DNS name among a plugin's endpoints at one moment.
#[derive(Debug, Clone)]
pub struct NameStatus {
    /// The name as configured: `dns:///name:port`.
    pub address: String,
    /// Whether any lookup returned addresses.
    pub is_known: bool,
    /// Why the last lookup returned none, and the system's message.
    pub trouble: Option<(Why, String)>,
}

pub(super) struct StatusRecord {
    pub(super) why: Why,
    pub(super) detail: String,
    /// See [`EndpointStatus::wants`].
    pub(super) wants: Option<Arc<Wants>>,
    /// The problem that was logged last and is not over: repeated attempts at an endpoint are not logged
    /// again.
    told: Option<Why>,
}

/// Holds an endpoint's status and announces changes.
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

    /// The current reason, read without touching the reference count.
    pub(super) fn why(&self) -> Why {
        self.now.load().why
    }

    /// Changes the status. `draining` is final.
    pub(super) fn set(&self, why: Why, detail: impl Into<String>) {
        self.out(why, detail, None);
    }

    /// Like [`Self::set`], for an endpoint that is out because an operator has yet to consent to what it
    /// `wants`.
    pub(super) fn out(&self, why: Why, detail: impl Into<String>, wants: Option<&Arc<Wants>>) {
        let detail = detail.into();
        self.change(why, &detail, wants, |before| {
            let (plugin, address, state) = (&*self.plugin, &*self.address, why.state().as_str());
            if let Some(event) = why.event()
                && before.told != Some(why)
            {
                tracing::warn!(event, plugin, address, state, reason = why.as_str(), "{detail}");
            }
            if why == Why::Serving && matches!(before.why, Why::NotServing | Why::HealthUnanswered) {
                tracing::info!(event = "plugin.connected", plugin, address, "well again");
            }
        });
    }

    /// Records that a connection was described as `version` and accepted.
    pub(super) fn accepted(&self, (why, detail): (Why, &str), version: &semver::Version) {
        self.change(why, detail, None, |before| {
            let is_news = match before.told {
                Some(Why::Refused(_) | Why::InitializeUnavailable) => false,
                _ => !matches!(before.why, Why::Serving | Why::Initializing),
            };
            if is_news {
                let (plugin, address) = (&*self.plugin, &*self.address);
                tracing::info!(event = "plugin.connected", plugin, %version, address, "described and accepted");
            }
        });
    }

    /// Changes the record, and calls `log` with the previous one. The watchers learn of the change after the log:
    /// a start that fails because of it ends the process, and its message must be the last line.
    fn change(&self, why: Why, detail: &str, wants: Option<&Arc<Wants>>, log: impl FnOnce(&StatusRecord)) {
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
        if before.why == Why::ShuttingDown {
            return;
        }
        log(&before);
        if before.why != why || before.detail != detail || before.wants.as_ref() != wants {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}
