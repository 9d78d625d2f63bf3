//! Chooses the manifest that all endpoints of one plugin must match (docs/protocol.md, section 2).
//!
//! The first accepted manifest applies until no connection to an endpoint with it is left. Then the next one
//! replaces it for all endpoints at once. So when replicas are replaced one by one, the routing table changes
//! once and never flaps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, futures::Notified};

use crate::upstream::{manifest_validation::AcceptedManifest, ready_connection::ReadyConnection};

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
    /// Notified when no connection with the accepted manifest is left.
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
        Ok(ManifestAdmission::Became)
    }

    /// Reconsiders the accepted manifest after a connection ended. Returns whether it changed.
    pub(super) fn look_again(&self) -> bool {
        let mut serving = self.serving();
        let others = usable(&mut serving);
        let Some(accepted) = self.accepted() else { return false };
        if others.iter().any(|other| is(other, &accepted)) {
            return false;
        }
        let fitting = others.iter().filter(|other| other.accepted.has_shape_of(&accepted));
        // The highest version, so that every gateway chooses the same.
        if let Some(next) = fitting.max_by(|a, b| a.accepted.version().cmp(b.accepted.version())) {
            self.accepted.store(Some(Arc::clone(&next.accepted)));
            return true;
        }
        drop(serving);
        self.freed.notify_waiters();
        false
    }

    /// Resolves when no connection with the accepted manifest is left. Create it before an admission that may
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
