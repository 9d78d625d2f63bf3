//! One instance of a plugin per configuration digest, the last four; who holds which.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
};

use tokio::sync::OnceCell;

/// Instances kept: the one in use, its successor while a change rolls out, and room for two more gateways.
const KEPT: usize = 4;

/// Holders noted of an instance: more than any installation has gateways. One that crashed never lets go; past this
/// number the one that was seen least recently is forgotten.
const HOLDERS: usize = 64;

struct Instance<P> {
    digest: String,
    /// The gateway processes that initialised it and did not let go of it, the one seen last at the end.
    holders: VecDeque<String>,
    plugin: Arc<P>,
}

impl<P> Instance<P> {
    fn hold(&mut self, gateway: &str) {
        self.let_go(gateway);
        self.holders.push_back(gateway.to_owned());
        if self.holders.len() > HOLDERS {
            self.holders.pop_front();
        }
    }

    /// Whether `gateway` held it.
    fn let_go(&mut self, gateway: &str) -> bool {
        let place = self.holders.iter().position(|holder| holder == gateway);
        place.and_then(|place| self.holders.remove(place)).is_some()
    }
}

/// The instances, oldest first. A call only reads; initialising and letting go write, and never while awaiting.
pub(crate) struct Instances<P> {
    ready: RwLock<VecDeque<Instance<P>>>,
    /// What is being started: two gateways that bring the same configuration share one start. An entry dies with
    /// the last request that waits for it, so that a start which was given up leaves nothing behind.
    starting: Mutex<HashMap<String, Weak<OnceCell<Arc<P>>>>>,
}

impl<P> Instances<P> {
    pub(crate) fn new() -> Self {
        Instances { ready: RwLock::new(VecDeque::new()), starting: Mutex::new(HashMap::new()) }
    }

    /// The instance for a digest.
    pub(crate) fn get(&self, digest: &str) -> Option<Arc<P>> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        ready.iter().find(|instance| instance.digest == digest).map(|instance| Arc::clone(&instance.plugin))
    }

    /// Starts an instance unless there is one, and notes that `gateway` holds it. Gives back the instance that
    /// had to make room.
    pub(crate) async fn start<E, F>(
        &self,
        digest: &str,
        gateway: &str,
        start: impl FnOnce() -> F,
    ) -> Result<Option<Arc<P>>, E>
    where
        F: Future<Output = Result<P, E>>,
    {
        let plugin = match self.get(digest) {
            Some(plugin) => plugin,
            None => {
                let cell = self.cell(digest);
                let started = cell.get_or_try_init(|| async { start().await.map(Arc::new) }).await?;
                Arc::clone(started)
            }
        };
        Ok(self.keep(digest, gateway, plugin))
    }

    fn cell(&self, digest: &str) -> Arc<OnceCell<Arc<P>>> {
        let mut starting: MutexGuard<'_, _> = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        starting.retain(|_, cell| cell.strong_count() > 0);
        if let Some(cell) = starting.get(digest).and_then(Weak::upgrade) {
            return cell;
        }
        let cell = Arc::new(OnceCell::new());
        starting.insert(digest.to_owned(), Arc::downgrade(&cell));
        cell
    }

    /// Puts the instance behind the others, where the next ones to go are in front.
    fn keep(&self, digest: &str, gateway: &str, plugin: Arc<P>) -> Option<Arc<P>> {
        let mut ready = self.ready.write().unwrap_or_else(PoisonError::into_inner);
        let known = ready.iter().position(|instance| instance.digest == digest);
        let mut instance = known.and_then(|position| ready.remove(position)).unwrap_or_else(|| Instance {
            digest: digest.to_owned(),
            holders: VecDeque::new(),
            plugin,
        });
        instance.hold(gateway);
        ready.push_back(instance);
        if ready.len() > KEPT { ready.pop_front().map(|replaced| replaced.plugin) } else { None }
    }

    /// Lets go of what `gateway` holds; gives back, last one first, the instances that nobody holds any longer.
    pub(crate) fn release(&self, gateway: &str) -> Vec<Arc<P>> {
        let mut ready = self.ready.write().unwrap_or_else(PoisonError::into_inner);
        let mut released = Vec::new();
        for mut instance in std::mem::take(&mut *ready) {
            let held = instance.let_go(gateway);
            if held && instance.holders.is_empty() {
                released.push(instance.plugin);
            } else {
                ready.push_back(instance);
            }
        }
        released.reverse();
        released
    }

    /// Every instance, last one first.
    pub(crate) fn take_all(&self) -> Vec<Arc<P>> {
        let mut ready = self.ready.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *ready).into_iter().rev().map(|instance| instance.plugin).collect()
    }
}
