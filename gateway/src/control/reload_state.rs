//! The state of a reload. Its trigger is a changed file, SIGHUP, a new revision of the registry or an
//! operator's request.
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
//! `Loading` keeps the configuration that was pending, which may become active or be given up meanwhile. The
//! load then reused clients that are being retired, so the [reconciler](super::reconciler) repeats it. A load
//! returns to `Pending` if the store can't be reached, or if it gives the configuration that is already
//! pending.
//!
//! After 1 s in `Pending` the status shows what the configuration waits for. After `startup.wait`, or once a
//! required plugin is refused, the configuration is blocked: the status and the log report it as rejected,
//! but it still becomes active once it is ready.

use std::{mem, sync::Arc};

use tokio::task::{JoinError, JoinHandle};

use crate::control::{
    candidate::{Candidate, Wait},
    generation::Generation,
    reload_span::ReloadSpan,
};

/// The state of a reload; `L` is the result of a load. Only these functions change the state.
#[derive(Default)]
pub(super) enum ReloadState<L> {
    /// The last loaded configuration is active or was rejected.
    #[default]
    Idle,
    /// The file or the registry is being read, and a generation is being built.
    Loading { load: JoinHandle<L>, pending: Option<PendingConfig> },
    /// The configuration is built, but plugins or keys are missing.
    Pending(PendingConfig),
}

/// A valid configuration that is not active yet.
pub(super) struct PendingConfig {
    pub(super) candidate: Candidate,
    /// Continues when another configuration replaces this one.
    pub(super) wait: Wait,
    pub(super) span: ReloadSpan,
}

impl PendingConfig {
    /// `generation` replaces `before`, while `active` serves. `span` ends with it.
    pub(super) fn new(
        generation: Arc<Generation>,
        span: ReloadSpan,
        before: Option<PendingConfig>,
        active: &Arc<Generation>,
    ) -> Self {
        let candidate = Candidate::new(generation, before.as_ref().map(|before| &before.candidate), active);
        let wait = before.map_or_else(Wait::new, |before| before.wait);
        PendingConfig { candidate, wait, span }
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

    /// From `Idle` or `Pending` to `Loading`, with `load`.
    pub(super) fn start_load(&mut self, load: JoinHandle<L>) {
        let pending = self.take_pending();
        *self = ReloadState::Loading { load, pending };
    }

    /// Waits for the load, and moves from `Loading` to `Idle` or back to `Pending`. If this is dropped
    /// before, the state stays. Returns `None` at once if nothing is being loaded.
    pub(super) async fn loaded(&mut self) -> Option<Result<L, JoinError>> {
        let ReloadState::Loading { load, pending } = self else { return None };
        let result = load.await;
        *self = pending.take().map_or(ReloadState::Idle, ReloadState::Pending);
        Some(result)
    }

    /// To `Pending`. A running load continues.
    pub(super) fn set_pending(&mut self, next: PendingConfig) {
        match self {
            ReloadState::Loading { pending, .. } => *pending = Some(next),
            ReloadState::Idle | ReloadState::Pending(_) => *self = ReloadState::Pending(next),
        }
    }

    /// From `Pending` to `Idle`, because the configuration becomes active or is given up. A running load
    /// continues.
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
