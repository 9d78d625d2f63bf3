//! The endpoints of a plugin whose processes register them.

use std::{collections::BTreeSet, sync::Arc};

use super::{MemberOrigin, Pool, PoolMember, retire, supervised};
use crate::{telemetry::ServerAttributes, upstream::endpoint::Endpoint};

impl Pool {
    /// Follows the registered endpoints until the pool closes.
    pub(super) fn follow_registrations(self: &Arc<Self>) {
        let pool = Arc::clone(self);
        let mut registered = self.registration.shared.registered.subscribe();
        // Before the task runs, so that a start waits for the endpoints that are known already.
        let known = registered.borrow_and_update().of(&pool.registration.plugin.name);
        pool.set_registered(&known);
        tokio::spawn(async move {
            let follow = async {
                while registered.changed().await.is_ok() {
                    let endpoints = registered.borrow_and_update().of(&pool.registration.plugin.name);
                    pool.set_registered(&endpoints);
                }
            };
            pool.closing.run_until_cancelled(follow).await;
        });
    }

    /// Adds the endpoints that are new, and lets those go that are no longer among `endpoints`.
    fn set_registered(&self, endpoints: &BTreeSet<String>) {
        let members = self.members.load_full();
        let (stay, left): (Vec<_>, Vec<_>) =
            members.iter().cloned().partition(|member| endpoints.contains(member.endpoint.address()));
        let is_new =
            |endpoint: &&String| stay.iter().all(|member| member.endpoint.address() != endpoint.as_str());
        let came: Vec<_> =
            endpoints.iter().filter(is_new).map(|endpoint| self.registered_member(endpoint)).collect();
        if came.is_empty() && left.is_empty() {
            return;
        }
        self.members.store(Arc::new(stay.iter().chain(&came).cloned().collect()));
        let (plugin, new, gone) = (&*self.registration.plugin.name, came.len(), left.len());
        tracing::info!(
            plugin,
            endpoints = endpoints.len(),
            new,
            gone,
            "the plugin's registered endpoints changed"
        );
        came.iter().for_each(|member| supervised(&member.endpoint));
        for member in left {
            tokio::spawn(async move { retire(&member.endpoint).await });
        }
        self.registration.changed();
    }

    fn registered_member(&self, endpoint: &str) -> PoolMember {
        let (registration, closing) = (Arc::clone(&self.registration), self.closing.child_token());
        let (plugin, shared) = (&registration.plugin, &registration.shared);
        let transport = self.registered.transport(endpoint, plugin, &shared.reach, &shared.certificates);
        let server = Arc::new(ServerAttributes::new(transport.address()));
        let endpoint = Endpoint::new(Arc::clone(&registration), transport, server, Arc::default(), closing);
        PoolMember { endpoint, origin: MemberOrigin::Registered }
    }
}
