//! The end of what was in force: tens of thousands of objects, which no call that had it last, nor any task of the
//! runtime, is held up by letting go of.

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};

use super::Generation;
use crate::ingress::call::InForce;

/// How often it is looked whether a call still goes by it.
const LOOK: Duration = Duration::from_millis(50);

/// Lets go of `past`, which is not in force any more, on a thread that may block, when nobody else has it.
pub(super) fn await_last_call(past: Arc<InForce>) {
    tokio::spawn(async move {
        // Nobody who doesn't have it gets it any more.
        while Arc::strong_count(&past) > 1 {
            sleep(LOOK).await;
        }
        // Not waited for: it has no result.
        drop(spawn_blocking(move || drop(past)));
    });
}

/// The same of a generation, which tasks may still have.
pub(super) fn bury(past: Arc<Generation>) {
    drop(spawn_blocking(move || drop(past)));
}
