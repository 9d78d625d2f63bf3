//! The programs of one plugin: each belongs to a tenant and a configuration, and takes one call at a time.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

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
}

#[derive(Default)]
struct PoolState {
    /// Programs that wait for a call, the one that waits the longest first.
    idle: VecDeque<IdleProgram>,
    /// How many calls each tenant has.
    busy: HashMap<Arc<str>, usize>,
    /// How many programs have not ended.
    places: usize,
    /// Calls that wait for a program, in the order in which they came.
    waiting: Vec<WaitingCall>,
    /// While calls wait: which turn each tenant had last.
    turns: HashMap<Arc<str>, u64>,
    is_closed: bool,
}

struct IdleProgram {
    tenant: Arc<str>,
    instance: Arc<Instance>,
    /// The request id of its last call.
    request_id: Arc<str>,
    /// Which of the plugin's programs it is.
    key: Arc<str>,
    program: Program,
}

struct WaitingCall {
    tenant: Arc<str>,
    instance: Arc<Instance>,
    request_id: Arc<str>,
    key: Arc<str>,
    slot: oneshot::Sender<ProgramSlot>,
}

impl PoolState {
    /// The place of the idle program that the call can have: the last one used, so that those that aren't needed grow old.
    /// Two steps of a chain have one request id. A program that answered the first doesn't get the second, because a
    /// line too many would fit it.
    fn own_idle(&self, call: &WaitingCall) -> Option<usize> {
        self.idle.iter().rposition(|idle| {
            *idle.tenant == *call.tenant
                && idle.key == call.key
                && *idle.request_id != *call.request_id
                && Arc::ptr_eq(&idle.instance, &call.instance)
        })
    }

    /// How many programs are about to end.
    fn ending(&self) -> usize {
        self.places.saturating_sub(self.idle.len() + self.busy.values().sum::<usize>())
    }
}

/// What follows from a change of the state, outside its lock.
#[derive(Default)]
struct Consequences {
    granted: Vec<(oneshot::Sender<ProgramSlot>, ProgramSlot)>,
    evicted: Vec<Program>,
}

/// The right to run one program for one call. Dropping it lets the next call have it.
pub(crate) struct ProgramSlot {
    pool: Arc<ProgramPool>,
    pub(crate) tenant: Arc<str>,
    pub(crate) instance: Arc<Instance>,
    request_id: Arc<str>,
    key: Arc<str>,
    /// A program that can be used again.
    program: Option<Program>,
    /// Without a program, the place for one.
    place: Option<ProgramPlace>,
}

/// One of the places for programs. A program keeps it until it has ended.
pub(crate) struct ProgramPlace(Arc<ProgramPool>);

impl ProgramPool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        ProgramPool { limits, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `tenant` may run the program `key` with the configuration `instance`. Of the tenants that wait, the one with
    /// the fewest calls is next. Returns `None` if the pool is closed.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        tenant: &str,
        request_id: &str,
        key: &Arc<str>,
        instance: &Arc<Instance>,
    ) -> Option<ProgramSlot> {
        let (slot, granted) = oneshot::channel();
        let (tenant, request_id) = (Arc::from(tenant), Arc::from(request_id));
        let (instance, key) = (Arc::clone(instance), Arc::clone(key));
        let call = WaitingCall { tenant, instance, request_id, key, slot };
        self.change(|state| {
            if !state.is_closed {
                state.waiting.push(call);
            }
        });
        granted.await.ok()
    }

    /// Changes the state, and grants what can be granted then.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut PoolState) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state);
        let Consequences { granted, evicted } = self.grant(&mut state);
        drop(state);
        drop(evicted);
        for (call, slot) in granted {
            // If the call was given up meanwhile, the slot comes back.
            let _ = call.send(slot);
        }
        changed
    }

    fn grant(self: &Arc<Self>, state: &mut PoolState) -> Consequences {
        let mut consequences = Consequences::default();
        state.waiting.retain(|call| !call.slot.is_closed());
        while let Some((call, idle)) = self.next(state, &mut consequences.evicted) {
            let WaitingCall { tenant, instance, request_id, key, slot } = state.waiting.remove(call);
            let program = idle.and_then(|place| state.idle.remove(place)).map(|idle| idle.program);
            let place = program.is_none().then(|| {
                state.places += 1;
                ProgramPlace(Arc::clone(self))
            });
            let turn = state.turns.values().max().map_or(1, |last| last + 1);
            state.turns.insert(Arc::clone(&tenant), turn);
            *state.busy.entry(Arc::clone(&tenant)).or_default() += 1;
            let pool = Arc::clone(self);
            let granted = ProgramSlot { pool, tenant, instance, request_id, key, program, place };
            consequences.granted.push((slot, granted));
        }
        if state.waiting.is_empty() {
            state.turns.clear();
        }
        consequences
    }

    /// The place of the next call that can have a program, and the place of the idle program that it gets. The tenant
    /// with the fewest calls is first, then the one that had its turn the longest ago. For each call before it that
    /// needs room, an idle program ends, the oldest first.
    fn next(&self, state: &mut PoolState, evicted: &mut Vec<Program>) -> Option<(usize, Option<usize>)> {
        let rank = |(place, call): (usize, &WaitingCall)| {
            let busy = state.busy.get(&call.tenant).copied().unwrap_or_default();
            let turn = state.turns.get(&call.tenant).copied().unwrap_or_default();
            (busy < self.limits.parallel).then_some((busy, turn, place))
        };
        let mut ranks: Vec<_> = state.waiting.iter().enumerate().filter_map(rank).collect();
        ranks.sort_unstable();
        for (in_need, (_, _, place)) in ranks.into_iter().enumerate() {
            let own = state.own_idle(&state.waiting[place]);
            if own.is_some() || state.places < self.limits.programs {
                return Some((place, own));
            }
            // All before it need room too.
            if state.ending() <= in_need {
                evicted.extend(state.idle.pop_front().map(|idle| idle.program));
            }
        }
        None
    }

    /// Ends the programs that have waited longer than `limit`, and those whose configuration is not used any more.
    pub(crate) fn sweep(self: &Arc<Self>, limit: Duration) {
        let is_old =
            |idle: &IdleProgram| idle.program.used().elapsed() > limit || idle.instance.is_released();
        let old = self.change(|state| {
            let (old, kept): (VecDeque<_>, _) = std::mem::take(&mut state.idle).into_iter().partition(is_old);
            state.idle = kept;
            old
        });
        retire(old.into_iter().map(|idle| idle.program));
    }

    /// Ends all programs that wait for a call. No program will wait again, and no call gets one.
    pub(crate) fn close(self: &Arc<Self>) {
        let (idle, waiting) = self.change(|state| {
            state.is_closed = true;
            (std::mem::take(&mut state.idle), std::mem::take(&mut state.waiting))
        });
        drop(waiting);
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

    /// The place for a new program. `None` if the slot has or had a program.
    pub(crate) fn take_place(&mut self) -> Option<ProgramPlace> {
        self.place.take()
    }

    /// Gives the slot a place, that of a program that has ended.
    pub(crate) fn put_place(&mut self, place: ProgramPlace) {
        self.place = Some(place);
    }

    /// Keeps `program` for the next call.
    pub(crate) fn keep(mut self, program: Program) {
        self.program = Some(program);
    }
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        let (tenant, instance) = (Arc::clone(&self.tenant), Arc::clone(&self.instance));
        let (request_id, key) = (Arc::clone(&self.request_id), Arc::clone(&self.key));
        let program = self.program.take();
        let unused = self.pool.change(|state| {
            if let Some(busy) = state.busy.get_mut(&tenant) {
                *busy -= 1;
                if *busy == 0 {
                    state.busy.remove(&tenant);
                }
            }
            match program {
                Some(program) if !state.is_closed && !instance.is_released() => {
                    state.idle.push_back(IdleProgram { tenant, instance, request_id, key, program });
                    None
                }
                unused => unused,
            }
        });
        retire(unused);
    }
}

impl Drop for ProgramPlace {
    fn drop(&mut self) {
        self.0.change(|state| state.places -= 1);
    }
}
