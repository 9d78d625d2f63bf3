//! Where a reload is. A trigger is a changed file, SIGHUP, a new revision of the registry or an operator's request.
//!
//! ```text
//!            trigger                    built
//!   Idle ─────────────► Loading ──────────────────► Pending ──┐ plugins or keys
//!    ▲                   │   ▲                       │  │  ▲  │ are missing
//!    │ unchanged,        │   │        trigger        │  │  └──┘
//!    │ rejected          │   └───────────────────────┘  │
//!    ├───────────────────┘                              │
//!    └──────────────────────────────────────────────────┘
//!       ready: active, or rejected by a plugin or by the table
//! ```
//!
//! `Loading` keeps the configuration that was pending, which may become active meanwhile. Then the load has built on clients
//! that are now in other hands, and the [reconciler](super::reconciler) starts it again. A load that ends because the store can't
//! be reached, or with what was pending already, leads back to `Pending`.
//!
//! After 1 s in `Pending` the status says what is waited for. After `startup.wait`, or once a required plugin is refused, the
//! configuration is blocked: the status and the log say that it is rejected, and it still becomes active when it is ready.

use std::{mem, sync::Arc};

use tokio::task::{JoinError, JoinHandle};

use crate::control::{
    candidate::{Candidate, Wait},
    generation::Generation,
};

/// Where a reload is; `L` is what a load results in. These functions are its only transitions.
#[derive(Default)]
pub(super) enum ReloadState<L> {
    /// What was loaded last is active or was rejected.
    #[default]
    Idle,
    /// The file or the registry is being read, and a generation built.
    Loading { load: JoinHandle<L>, pending: Option<PendingConfig> },
    /// It is built, and plugins or keys are missing.
    Pending(PendingConfig),
}

/// A configuration without a mistake that is not active yet.
pub(super) struct PendingConfig {
    pub(super) candidate: Candidate,
    /// Goes on when another configuration takes the place of this one.
    pub(super) wait: Wait,
}

impl PendingConfig {
    /// `generation` in the place of `before`, while `active` serves.
    pub(super) fn new(
        generation: Arc<Generation>,
        before: Option<PendingConfig>,
        active: &Arc<Generation>,
    ) -> Self {
        let candidate = Candidate::new(generation, before.as_ref().map(|before| &before.candidate), active);
        let wait = before.map_or_else(Wait::new, |before| before.wait);
        PendingConfig { candidate, wait }
    }
}

impl<L> ReloadState<L> {
    pub(super) fn is_loading(&self) -> bool {
        matches!(self, ReloadState::Loading { .. })
    }

    pub(super) fn pending(&self) -> Option<&PendingConfig> {
        match self {
            ReloadState::Idle => None,
            ReloadState::Loading { pending, .. } => pending.as_ref(),
            ReloadState::Pending(pending) => Some(pending),
        }
    }

    pub(super) fn pending_mut(&mut self) -> Option<&mut PendingConfig> {
        match self {
            ReloadState::Idle => None,
            ReloadState::Loading { pending, .. } => pending.as_mut(),
            ReloadState::Pending(pending) => Some(pending),
        }
    }

    /// `Idle` or `Pending` to `Loading`, by `load`.
    pub(super) fn start_load(&mut self, load: JoinHandle<L>) {
        let pending = self.take_pending();
        *self = ReloadState::Loading { load, pending };
    }

    /// `Loading` to `Idle`, or back to `Pending`, when the load has ended; the state stays while it has not. None: nothing is
    /// being loaded.
    pub(super) async fn loaded(&mut self) -> Option<Result<L, JoinError>> {
        let ReloadState::Loading { load, pending } = self else { return None };
        let result = load.await;
        *self = pending.take().map_or(ReloadState::Idle, ReloadState::Pending);
        Some(result)
    }

    /// To `Pending`; a load that is under way goes on.
    pub(super) fn set_pending(&mut self, next: PendingConfig) {
        match self {
            ReloadState::Loading { pending, .. } => *pending = Some(next),
            ReloadState::Idle | ReloadState::Pending(_) => *self = ReloadState::Pending(next),
        }
    }

    /// `Pending` to `Idle`: it becomes active or is given up. A load that is under way goes on.
    pub(super) fn take_pending(&mut self) -> Option<PendingConfig> {
        match mem::take(self) {
            ReloadState::Idle => None,
            ReloadState::Loading { load, mut pending } => {
                let taken = pending.take();
                *self = ReloadState::Loading { load, pending };
                taken
            }
            ReloadState::Pending(pending) => Some(pending),
        }
    }
}

#[cfg(test)]
#[path = "reload_state_tests.rs"]
mod tests;
