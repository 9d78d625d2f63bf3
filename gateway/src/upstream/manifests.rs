//! Which manifest the endpoints of one plugin are measured by (docs/protocol.md, section 2). The first that is
//! accepted stands until no connection to an endpoint that has it is left; then the next one does, at once and for all
//! of them. So a table changes once when replicas are replaced one by one, and never to and fro.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, futures::Notified};

use crate::upstream::{manifest_validation::AcceptedManifest, ready_connection::ReadyConnection};

/// What came of a connection's manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ManifestAdmission {
    /// It is as the accepted one, or differs in its version alone while that is still there.
    Joined,
    /// It is the accepted one from now on.
    Became,
}

#[derive(Default)]
pub(super) struct Manifests {
    accepted: ArcSwapOption<AcceptedManifest>,
    /// The connections that were let in.
    serving: Mutex<Vec<Weak<ReadyConnection>>>,
    /// Wakes those who stay out until none of the others is left.
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

    /// Lets a connection in.
    ///
    /// # Errors
    /// Its manifest differs, and there are connections to endpoints that have the accepted one, which is given back.
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

    /// Looks again after a connection ended. Says whether another manifest is the accepted one now.
    pub(super) fn look_again(&self) -> bool {
        let mut serving = self.serving();
        let others = usable(&mut serving);
        let Some(accepted) = self.accepted() else { return false };
        if others.iter().any(|other| is(other, &accepted)) {
            return false;
        }
        let fitting = others.iter().filter(|other| other.accepted.has_shape_of(&accepted));
        // The highest, so that every gateway comes to the same.
        if let Some(next) = fitting.max_by(|a, b| a.accepted.version().cmp(b.accepted.version())) {
            self.accepted.store(Some(Arc::clone(&next.accepted)));
            return true;
        }
        drop(serving);
        self.freed.notify_waiters();
        false
    }

    /// Resolves when none is left that has the accepted manifest. Asked for before an admission that fails, so that
    /// nothing is missed between the two.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }
}

fn is(live: &ReadyConnection, accepted: &AcceptedManifest) -> bool {
    live.accepted.has_shape_of(accepted) && live.accepted.version() == accepted.version()
}

/// Those that are still there; forgets the others.
fn usable(serving: &mut Vec<Weak<ReadyConnection>>) -> Vec<Arc<ReadyConnection>> {
    let there = |live: &Weak<ReadyConnection>| live.upgrade().filter(|live| live.is_usable());
    let usable: Vec<_> = serving.iter().filter_map(there).collect();
    *serving = usable.iter().map(Arc::downgrade).collect();
    usable
}
