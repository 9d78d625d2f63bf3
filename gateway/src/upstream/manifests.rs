//! Chooses the manifest that all endpoints of one plugin must match (docs/protocol.md, section 2).
//!
//! The first accepted manifest applies until no connection to an endpoint with it is left. Then the next one
//! replaces it for all endpoints at once. So when replicas are replaced one by one, the routing table changes
//! once and never flaps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, futures::Notified};

use crate::{
    core::tool::Tools,
    upstream::{manifest_validation::AcceptedManifest, ready_connection::ReadyConnection},
};

/// Whether a connection's manifest was already accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ManifestAdmission {
    /// It equals the accepted one, or differs only in its version while the accepted one is still in use.
    Joined,
    /// It became the accepted one.
    Became,
}

#[derive(Default)]
pub(super) struct Manifests {
    accepted: ArcSwapOption<AcceptedManifest>,
    /// The admitted connections.
    serving: Mutex<Vec<Weak<ReadyConnection>>>,
    /// Notified when no connection with the accepted manifest is left, or another manifest became the accepted one.
    freed: Notify,
}

impl Manifests {
    pub(super) fn accepted(&self) -> Option<Arc<AcceptedManifest>> {
        self.accepted.load_full()
    }

    pub(super) fn has_accepted(&self) -> bool {
        self.accepted.load().is_some()
    }

    fn serving(&self) -> MutexGuard<'_, Vec<Weak<ReadyConnection>>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection.
    ///
    /// # Errors
    /// The manifest differs, and there still are connections to endpoints with the accepted one, which is
    /// returned.
    pub(super) fn admit(
        &self,
        live: &Arc<ReadyConnection>,
    ) -> Result<ManifestAdmission, Arc<AcceptedManifest>> {
        let mut serving = self.serving();
        let others = usable(&mut serving);
        let Some(accepted) = self.accepted() else {
            self.accepted.store(Some(Arc::clone(&live.accepted)));
            serving.push(Arc::downgrade(live));
            return Ok(ManifestAdmission::Became);
        };
        let fits = live.accepted.has_shape_of(&accepted);
        if !fits && others.iter().any(|other| other.accepted.has_shape_of(&accepted)) {
            return Err(accepted);
        }
        serving.push(Arc::downgrade(live));
        let same = fits && live.accepted.version() == accepted.version();
        if same || (fits && others.iter().any(|other| is(other, &accepted))) {
            return Ok(ManifestAdmission::Joined);
        }
        self.accepted.store(Some(Arc::clone(&live.accepted)));
        drop(serving);
        // A call may connect to a new process before anyone noticed that the connection to the old one has ended.
        self.freed.notify_waiters();
        Ok(ManifestAdmission::Became)
    }

    /// Records the tools that the plugin gave over `live`. Returns whether those of the accepted manifest changed.
    pub(super) fn note_tools(&self, live: &ReadyConnection, tools: Tools) -> bool {
        if live.accepted.manifest.tool_names.is_empty() {
            return false;
        }
        live.note_tools(tools);
        let mut serving = self.serving();
        self.refresh_tools(&usable(&mut serving))
    }

    /// Gives the accepted manifest the tools of the oldest of `usable` with its version, so that endpoints that differ don't
    /// change them in turn. Returns whether that changed it.
    fn refresh_tools(&self, usable: &[Arc<ReadyConnection>]) -> bool {
        let Some(accepted) = self.accepted() else { return false };
        let of_version = usable.iter().filter(|live| is(live, &accepted));
        let refreshed = accepted.with_tools(of_version.into_iter().find_map(|live| live.tools()));
        let changed = !Arc::ptr_eq(&refreshed, &accepted);
        if changed {
            self.accepted.store(Some(refreshed));
        }
        changed
    }

    /// Reconsiders the accepted manifest after a connection ended. Returns whether it changed.
    pub(super) fn look_again(&self) -> bool {
        let mut serving = self.serving();
        let others = usable(&mut serving);
        let Some(accepted) = self.accepted() else { return false };
        if others.iter().any(|other| is(other, &accepted)) {
            return self.refresh_tools(&others);
        }
        let fitting = others.iter().filter(|other| other.accepted.has_shape_of(&accepted));
        // The highest version, so that every gateway chooses the same.
        if let Some(next) = fitting.max_by(|a, b| a.accepted.version().cmp(b.accepted.version())) {
            self.accepted.store(Some(Arc::clone(&next.accepted)));
            self.refresh_tools(&others);
            return true;
        }
        drop(serving);
        self.freed.notify_waiters();
        false
    }

    /// Resolves when an endpoint with another manifest may be admitted. Create it before an admission that may
    /// fail, so that no notification is missed between the two.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }
}

fn is(live: &ReadyConnection, accepted: &AcceptedManifest) -> bool {
    live.accepted.has_shape_of(accepted) && live.accepted.version() == accepted.version()
}

/// The connections that are still usable; removes the others.
fn usable(serving: &mut Vec<Weak<ReadyConnection>>) -> Vec<Arc<ReadyConnection>> {
    let there = |live: &Weak<ReadyConnection>| live.upgrade().filter(|live| live.is_usable());
    let usable: Vec<_> = serving.iter().filter_map(there).collect();
    *serving = usable.iter().map(Arc::downgrade).collect();
    usable
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;
    use hookgate_proto::{plugin::v1::DescribeResponse, types::v1::ExtensionPoint};

    use super::*;
    use crate::upstream::tests::support::{
        Client, Place, Process, Script, Wire, manifest, offer, registered,
    };

    #[tokio::test]
    async fn endpoint_that_waits_has_its_turn_though_nobody_noticed_the_end_of_the_old_one() {
        let points = vec![offer(ExtensionPoint::BeforeToolCall), offer(ExtensionPoint::BeforeResponse)];
        let newer = DescribeResponse { version: "2.0.0".into(), points, ..manifest() };
        let (places, mut lives) = ([Place::new(Wire::Tcp), Place::new(Wire::Tcp)], Vec::new());
        let scripts = [Script::default(), Script::describing(newer)].map(Arc::new);
        let mut clients = Vec::new();
        for (place, script) in places.iter().zip(&scripts) {
            let running = place.start(Process::new(script));
            let client = Client::new(&registered(place.endpoint()));
            client.until_ready().await;
            lives.extend(usable(&mut client.plugin.pool.registration.manifests.serving()));
            clients.push((client, running));
        }
        let [old, new] = &lives[..] else { panic!("{} connections", lives.len()) };

        let manifests = Manifests::default();
        assert_eq!(manifests.admit(old).ok(), Some(ManifestAdmission::Became));
        let mut freed = pin!(manifests.freed());
        freed.as_mut().enable();
        assert!(manifests.admit(new).is_err() && freed.as_mut().now_or_never().is_none(), "it waits");
        old.withdraw();
        assert_eq!(manifests.admit(new).ok(), Some(ManifestAdmission::Became));
        assert!(freed.now_or_never().is_some());
    }
}
