//! Threads that serve the data port, each with a runtime of its own, as Envoy's workers do.
//!
//! A worker serves its callers' connections, and makes its own connections to plugins. So a call stays on one
//! thread: waking another thread costs more than the gateway's own work on a call. The control plane
//! (supervisors, health checks, reloads, the other ports) runs elsewhere.

use std::{
    cell::{Cell, RefCell},
    io,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::runtime::{self, Handle};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::fairness::compute_pool::ComputePool;

thread_local! {
    static CURRENT: Cell<Option<WorkerId>> = const { Cell::new(None) };
    static COMPUTE_POOL: RefCell<Option<ComputePool>> = const { RefCell::new(None) };
}

/// Whether the caller runs on a worker's thread.
pub(crate) fn is_current() -> bool {
    COMPUTE_POOL.with_borrow(Option::is_some)
}

/// The pool to which the worker that runs the caller gives large work; `None` on any other thread.
pub(crate) fn compute_pool() -> Option<ComputePool> {
    COMPUTE_POOL.with_borrow(Clone::clone)
}

/// One of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerId {
    /// From 0.
    pub(crate) index: usize,
    /// How many workers there are.
    pub(crate) of: NonZeroUsize,
}

impl WorkerId {
    /// The worker that runs the caller, or for which it runs; `None` on any other thread.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Lets the caller's thread act for this worker until the guard is dropped.
    pub(crate) fn represent(self) -> WorkerGuard {
        WorkerGuard(CURRENT.replace(Some(self)))
    }
}

/// While it lives, a thread acts for a worker.
pub(crate) struct WorkerGuard(Option<WorkerId>);

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// All workers. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Connections that it serves.
    connections: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts `count` workers, which give large work to `compute`.
    ///
    /// # Errors
    /// If the system refuses a thread or its event queue.
    pub(crate) fn start(count: NonZeroUsize, compute: ComputePool) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let start = |index| Worker::start(WorkerId { index, of: count }, compute.clone(), stop.clone());
        let workers = (0..count.get()).map(start).collect::<io::Result<_>>();
        let _stop = stop.clone().drop_guard();
        Ok(Workers { workers: workers?, _stop })
    }

    /// Runs `connection` on the worker that serves the fewest, tracked by `connections`.
    pub(crate) fn spawn<F>(&self, connections: &TaskTracker, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let load = |worker: &&Worker| worker.connections.load(Ordering::Relaxed);
        let worker = self.workers.iter().min_by_key(load).expect("there is at least one");
        let served = ConnectionGuard::new(&worker.connections);
        let task = async move {
            let _served = served;
            connection.await;
        };
        connections.spawn_on(task, &worker.runtime);
    }
}

impl Worker {
    fn start(id: WorkerId, compute: ComputePool, stop: CancellationToken) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name(format!("worker-{}", id.index)).spawn(move || {
            CURRENT.set(Some(id));
            COMPUTE_POOL.set(Some(compute));
            runtime.block_on(stop.cancelled());
            // A file read or a name lookup may hang forever, and its result is no longer needed.
            runtime.shutdown_background();
        })?;
        Ok(Worker { runtime: handle, connections: Arc::default() })
    }
}

/// Counts a connection for as long as it lives.
struct ConnectionGuard(Arc<AtomicUsize>);

impl ConnectionGuard {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(Arc::clone(connections))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use tokio::sync::oneshot;

    use super::*;

    /// The workers that each of these connections runs on. They last until the senders are dropped.
    async fn spawn(
        workers: &Workers,
        tracker: &TaskTracker,
        count: usize,
    ) -> Vec<(usize, oneshot::Sender<()>)> {
        let mut placed = Vec::new();
        for _ in 0..count {
            let (end, ended) = oneshot::channel();
            let (tell, told) = oneshot::channel();
            workers.spawn(tracker, async move {
                tell.send(WorkerId::current()).unwrap();
                let _ = ended.await;
            });
            placed.push((told.await.unwrap().expect("it runs on a worker").index, end));
        }
        placed
    }

    #[tokio::test]
    async fn a_connection_goes_to_the_worker_with_the_fewest() {
        let workers = Workers::start(NonZeroUsize::new(3).unwrap(), ComputePool::default()).unwrap();
        let tracker = TaskTracker::new();
        let mut placed = spawn(&workers, &tracker, 9).await;
        let mut counts = BTreeMap::new();
        placed.iter().for_each(|(worker, _)| *counts.entry(*worker).or_insert(0) += 1);
        assert_eq!(counts, BTreeMap::from([(0, 3), (1, 3), (2, 3)]));
        placed.retain(|(worker, _)| *worker != 1);
        let counted = || workers.workers[1].connections.load(Ordering::Relaxed);
        tokio::time::timeout(Duration::from_secs(60), async {
            while counted() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("ended connections are not counted");
        let next = spawn(&workers, &tracker, 3).await;
        assert_eq!(next.iter().map(|(worker, _)| *worker).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(WorkerId::current(), None, "this thread is no worker");
    }
}
