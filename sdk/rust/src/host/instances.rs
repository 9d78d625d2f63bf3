//! The instances of a plugin: one for each configuration digest that some gateway holds.

use std::{
    collections::{HashMap, VecDeque},
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use crate::host_service::{HostLink, HostLinks};

/// The maximum number of instances. It limits what is left over from gateways that crashed or never
/// release. An instance with calls in flight may exceed it.
const MAX_INSTANCES: usize = 16;

/// The maximum number of holders of an instance, more than any installation has gateways. A crashed gateway
/// never releases, so beyond this number the least recently seen holder is forgotten.
const MAX_HOLDERS: usize = 64;

/// The maximum number of calls in flight at one instance.
const MAX_CALLS: u32 = u32::MAX >> 3;

struct Instance<P> {
    digest: String,
    /// The gateways that initialised it and have not released it, the most recently seen one last.
    holders: VecDeque<String>,
    /// What the holders offer.
    links: Arc<HostLinks>,
    plugin: Arc<P>,
    /// Each call in flight holds one permit.
    calls: Arc<Semaphore>,
    /// The sequence number of its last initialisation or call.
    used: AtomicU64,
}

impl<P> Instance<P> {
    fn hold(&mut self, gateway: &str, link: Arc<HostLink>) {
        self.holders.retain(|holder| holder != gateway);
        self.holders.push_back(gateway.to_owned());
        self.links.add(link);
        if self.holders.len() > MAX_HOLDERS
            && let Some(forgotten) = self.holders.pop_front()
        {
            self.links.remove(&forgotten);
        }
    }

    /// Removes `gateway` from the holders, and returns whether it was one.
    fn let_go(&mut self, gateway: &str) -> bool {
        let place = self.holders.iter().position(|holder| holder == gateway);
        let is_holder = place.and_then(|place| self.holders.remove(place)).is_some();
        if is_holder {
            self.links.remove(gateway);
        }
        is_holder
    }

    fn is_idle(&self) -> bool {
        self.calls.available_permits() == MAX_CALLS as usize
    }

    fn released(self) -> RetiredInstance<P> {
        RetiredInstance { plugin: self.plugin, calls: self.calls }
    }
}

/// Keeps an instance in use during a call.
pub(crate) struct InstanceGuard<P> {
    plugin: Arc<P>,
    links: Arc<HostLinks>,
    _permit: OwnedSemaphorePermit,
}

impl<P> InstanceGuard<P> {
    /// What its gateways offer.
    pub(crate) fn links(&self) -> Arc<HostLinks> {
        Arc::clone(&self.links)
    }
}

impl<P> Deref for InstanceGuard<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.plugin
    }
}

/// An instance that gets no more calls.
pub(crate) struct RetiredInstance<P> {
    plugin: Arc<P>,
    calls: Arc<Semaphore>,
}

impl<P> RetiredInstance<P> {
    /// Waits until the last call has ended.
    pub(crate) async fn unused(self) -> Arc<P> {
        // Never fails, because the semaphore is never closed.
        let _all = self.calls.acquire_many(MAX_CALLS).await;
        self.plugin
    }
}

/// A plugin that has started, with what its gateways offer.
struct StartedPlugin<P> {
    plugin: Arc<P>,
    links: Arc<HostLinks>,
}

/// The instances, ordered by their last initialisation. Calls only take the read lock; initialising and
/// releasing take the write lock, but never across an await.
pub(crate) struct Instances<P> {
    ready: RwLock<VecDeque<Instance<P>>>,
    /// Starts in progress, so that two gateways with the same configuration share one start. An entry lives
    /// as long as a request waits for it, so an abandoned start leaves nothing behind.
    starting: Mutex<HashMap<String, Weak<OnceCell<StartedPlugin<P>>>>>,
    uses: AtomicU64,
}

impl<P> Instances<P> {
    pub(crate) fn new() -> Self {
        Instances {
            ready: RwLock::new(VecDeque::new()),
            starting: Mutex::new(HashMap::new()),
            uses: AtomicU64::new(0),
        }
    }

    /// Finds the instance for a digest, for one call.
    pub(crate) fn get(&self, digest: &str) -> Option<InstanceGuard<P>> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        let instance = ready.iter().find(|instance| instance.digest == digest)?;
        instance.used.store(self.next_use(), Ordering::Relaxed);
        let permit = Arc::clone(&instance.calls).try_acquire_owned().ok()?;
        let (plugin, links) = (Arc::clone(&instance.plugin), Arc::clone(&instance.links));
        Some(InstanceGuard { plugin, links, _permit: permit })
    }

    fn write(&self) -> RwLockWriteGuard<'_, VecDeque<Instance<P>>> {
        self.ready.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts an instance unless it exists, and records that `gateway` holds it and offers `link`. Returns the
    /// instance that had to make room.
    pub(crate) async fn start<E, F>(
        &self,
        digest: &str,
        gateway: &str,
        link: Arc<HostLink>,
        start: impl FnOnce(Arc<HostLinks>) -> F,
    ) -> Result<Option<RetiredInstance<P>>, E>
    where
        F: Future<Output = Result<P, E>>,
    {
        if self.hold(&mut self.write(), digest, gateway, Arc::clone(&link)) {
            return Ok(None);
        }
        let cell = self.cell(digest);
        let started = cell.get_or_try_init(|| async {
            let links = Arc::new(HostLinks::default());
            links.add(Arc::clone(&link));
            let plugin = start(Arc::clone(&links)).await.map(Arc::new)?;
            Ok(StartedPlugin { plugin, links })
        });
        Ok(self.keep(digest, gateway, started.await?, link))
    }

    fn cell(&self, digest: &str) -> Arc<OnceCell<StartedPlugin<P>>> {
        let mut starting: MutexGuard<'_, _> = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        starting.retain(|_, cell| cell.strong_count() > 0);
        if let Some(cell) = starting.get(digest).and_then(Weak::upgrade) {
            return cell;
        }
        let cell = Arc::new(OnceCell::new());
        starting.insert(digest.to_owned(), Arc::downgrade(&cell));
        cell
    }

    /// Records that `gateway` holds the instance for a digest, if it exists.
    fn hold(
        &self,
        ready: &mut VecDeque<Instance<P>>,
        digest: &str,
        gateway: &str,
        link: Arc<HostLink>,
    ) -> bool {
        let Some(place) = ready.iter().position(|instance| instance.digest == digest) else { return false };
        let Some(mut instance) = ready.remove(place) else { return false };
        instance.hold(gateway, link);
        instance.used.store(self.next_use(), Ordering::Relaxed);
        ready.push_back(instance);
        true
    }

    /// Adds an instance. If there are too many, removes the least recently used one.
    fn keep(
        &self,
        digest: &str,
        gateway: &str,
        started: &StartedPlugin<P>,
        link: Arc<HostLink>,
    ) -> Option<RetiredInstance<P>> {
        let mut ready = self.write();
        // Another request that shared the start may have added it already.
        if self.hold(&mut ready, digest, gateway, link) {
            return None;
        }
        ready.push_back(Instance {
            digest: digest.to_owned(),
            holders: VecDeque::from([gateway.to_owned()]),
            links: Arc::clone(&started.links),
            plugin: Arc::clone(&started.plugin),
            calls: Arc::new(Semaphore::new(MAX_CALLS as usize)),
            used: AtomicU64::new(self.next_use()),
        });
        if ready.len() <= MAX_INSTANCES {
            return None;
        }
        let idle = ready.iter().enumerate().filter(|(_, instance)| instance.is_idle());
        let (oldest, _) = idle.min_by_key(|(_, instance)| instance.used.load(Ordering::Relaxed))?;
        ready.remove(oldest).map(Instance::released)
    }

    /// Releases all that `gateway` holds, or only `digest`. Returns the instances without any holder, the
    /// newest first.
    pub(crate) fn release(&self, gateway: &str, digest: Option<&str>) -> Vec<RetiredInstance<P>> {
        let mut ready = self.write();
        let mut released = Vec::new();
        for mut instance in std::mem::take(&mut *ready) {
            let is_meant = digest.is_none_or(|digest| instance.digest == digest);
            if is_meant && instance.let_go(gateway) && instance.holders.is_empty() {
                released.push(instance.released());
            } else {
                ready.push_back(instance);
            }
        }
        released.reverse();
        released
    }

    /// Removes all instances, the newest first.
    pub(crate) fn take_all(&self) -> Vec<Arc<P>> {
        let mut ready = self.write();
        std::mem::take(&mut *ready).into_iter().rev().map(|instance| instance.plugin).collect()
    }
}
