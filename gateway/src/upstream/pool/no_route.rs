//! Why no endpoint of a plugin takes a call.

use tokio::time::Instant;

use super::{Pool, PoolMember, distance};
use crate::{
    core::{failure::Failure, step::Reason},
    upstream::state::{State, Status, Why},
};

impl Pool {
    /// Why no endpoint takes a call of `tenant`, or of any tenant. `held_back` is true if only breakers
    /// prevent it.
    pub(super) fn nowhere(&self, held_back: bool, tenant: Option<&str>) -> Failure {
        if held_back {
            let of_tenant = tenant.is_some() && !self.is_held_back(None);
            let calls = if of_tenant { "the tenant's last calls" } else { "calls" };
            let detail = match self.members.load().len() {
                1 => format!("{calls} to its endpoint failed, and it is not tried again yet"),
                many => format!("{calls} to all of its {many} endpoints failed, and none is tried again yet"),
            };
            return Failure::new(Reason::BreakerOpen, detail);
        }
        let Status { state, why, detail, manifest } = self.status();
        let reason = match why {
            Why::Unreachable(_) | Why::HealthUnanswered if manifest.is_some() => Reason::Unreachable,
            _ => Reason::NotReady,
        };
        let detail = match why {
            // The state changed since an endpoint was picked.
            Why::Serving => "no endpoint could take the call just now".to_owned(),
            _ if detail.is_empty() => format!("the plugin is {state}: {}", why.as_str()),
            _ => format!("the plugin is {state}: {} {detail}", why.as_str()),
        };
        Failure::new(reason, detail)
    }

    /// Why a call would fail now. Returns `None` if an endpoint can take it.
    pub(in crate::upstream) fn trouble(&self) -> Option<Failure> {
        let held_back = self.is_held_back(None);
        (held_back || self.status().state != State::Ready).then(|| self.nowhere(held_back, None))
    }

    /// Whether endpoints could take a call of `tenant`, or of any tenant, but the breakers of all of them are
    /// open.
    pub(in crate::upstream) fn is_held_back(&self, tenant: Option<&str>) -> bool {
        let (members, now) = (self.members.load(), Instant::now());
        let has_manifest = self.registration.manifests.has_accepted();
        let mut near = members.iter().filter(|member| distance(&member.endpoint, has_manifest).is_some());
        let is_open = |member: &PoolMember| !member.endpoint.breakers.lets_through(tenant, now);
        near.next().is_some_and(is_open) && near.all(is_open)
    }

    /// Whether breakers of single tenants may reject calls.
    pub(in crate::upstream) fn has_tenant_breakers(&self) -> bool {
        self.members.load().iter().any(|member| member.endpoint.breakers.has_of_tenants())
    }
}
