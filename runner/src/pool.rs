//! The programs of one plugin: each belongs to a tenant and a configuration, and takes one call at a time.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{instances::Instance, program::Program};

/// How many programs there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLimits {
    /// Of a tenant, at the same time.
    pub(crate) parallel: usize,
    /// Of all tenants.
    pub(crate) programs: usize,
}

pub(crate) struct ProgramPool {
    limits: PoolLimits,
    state: Mutex<PoolState>,
    freed: Notify,
}

#[derive(Default)]
struct PoolState {
    /// Programs that wait for a call, the one that waits the longest first.
    idle: VecDeque<IdleProgram>,
    /// How many calls each tenant has.
    busy: HashMap<Arc<str>, usize>,
    is_closed: bool,
}

struct IdleProgram {
    tenant: Arc<str>,
    instance: Arc<Instance>,
    program: Program,
}

impl PoolState {
    fn total(&self) -> usize {
        self.idle.len() + self.busy.values().sum::<usize>()
    }
}

/// The right to run one program. Dropping it frees its place.
pub(crate) struct ProgramSlot {
    pool: Arc<ProgramPool>,
    pub(crate) tenant: Arc<str>,
    pub(crate) instance: Arc<Instance>,
    /// A program that can be used again.
    program: Option<Program>,
}

impl ProgramPool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        ProgramPool { limits, state: Mutex::default(), freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `tenant` may run a program with the configuration `instance`.
    pub(crate) async fn acquire(self: &Arc<Self>, tenant: &str, instance: &Arc<Instance>) -> ProgramSlot {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that no place that is freed after it is missed.
            freed.as_mut().enable();
            if let Some(slot) = self.try_acquire(tenant, instance) {
                return slot;
            }
            freed.await;
        }
    }

    fn try_acquire(self: &Arc<Self>, tenant: &str, instance: &Arc<Instance>) -> Option<ProgramSlot> {
        let mut state = self.state();
        let (tenant, busy) = state
            .busy
            .get_key_value(tenant)
            .map_or_else(|| (Arc::from(tenant), 0), |(tenant, busy)| (Arc::clone(tenant), *busy));
        if busy >= self.limits.parallel {
            return None;
        }
        let is_own = |idle: &IdleProgram| *idle.tenant == *tenant && Arc::ptr_eq(&idle.instance, instance);
        // The last one used, so that those that aren't needed grow old.
        let own = state.idle.iter().rposition(is_own);
        let program = own.and_then(|place| state.idle.remove(place)).map(|idle| idle.program);
        if program.is_none() && state.total() >= self.limits.programs {
            // Another one's idle program makes room.
            retire([state.idle.pop_front()?.program]);
        }
        *state.busy.entry(Arc::clone(&tenant)).or_default() += 1;
        Some(ProgramSlot { pool: Arc::clone(self), tenant, instance: Arc::clone(instance), program })
    }

    /// Ends the programs that have waited longer than `limit`, and those whose configuration is not used any more.
    pub(crate) fn sweep(&self, limit: Duration) {
        let mut state = self.state();
        let is_old =
            |idle: &IdleProgram| idle.program.used().elapsed() > limit || idle.instance.is_released();
        let (old, kept): (VecDeque<_>, _) = std::mem::take(&mut state.idle).into_iter().partition(is_old);
        state.idle = kept;
        drop(state);
        retire(old.into_iter().map(|idle| idle.program));
        self.freed.notify_waiters();
    }

    /// Ends all programs that wait for a call; no program will wait again.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        retire(idle.into_iter().map(|idle| idle.program));
    }
}

fn retire(programs: impl IntoIterator<Item = Program>) {
    for program in programs {
        tokio::spawn(program.finish());
    }
}

impl ProgramSlot {
    /// The program that was used before, if there is one.
    pub(crate) fn take(&mut self) -> Option<Program> {
        self.program.take()
    }

    /// Keeps `program` for the next call.
    pub(crate) fn keep(mut self, program: Program) {
        self.program = Some(program);
    }
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        if let Some(busy) = state.busy.get_mut(&self.tenant) {
            *busy -= 1;
            if *busy == 0 {
                state.busy.remove(&self.tenant);
            }
        }
        match self.program.take() {
            Some(program) if !state.is_closed && !self.instance.is_released() => {
                let (tenant, instance) = (Arc::clone(&self.tenant), Arc::clone(&self.instance));
                state.idle.push_back(IdleProgram { tenant, instance, program });
            }
            Some(program) => retire([program]),
            None => {}
        }
        drop(state);
        self.pool.freed.notify_waiters();
    }
}
