//! Threads for large payloads: calls of built-in plugins, and the gateway's own work ([`crate::net::movable`]).
//!
//! A worker serves many connections on one thread. A plugin that searches megabytes there delays the calls of all of them,
//! also those of tenants without plugins. So a large call runs here: at a low priority, so that a worker gets the larger share of a
//! core, and on one of several threads per core, so that the system divides the cores between long calls. Tenants share
//! the threads as they share a plugin's permits ([`super::bulkhead`]).

use std::{
    future::ready,
    num::NonZeroUsize,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    thread,
    time::Duration,
};

use futures::future::BoxFuture;
use pin_project_lite::pin_project;
use rustix::process::nice;
use tokio::runtime::{self, Runtime};
use tokio_util::task::AbortOnDropHandle;

use super::bulkhead::{Bulkhead, BulkheadPermit};

/// A call of fewer bytes runs where it is made: at 150 MB/s it takes about as long as waking another thread.
const MIN_BYTES: usize = 4 << 10;

/// With as many threads as cores, the long calls of two tenants would keep all others waiting.
const THREADS_PER_CORE: usize = 4;

/// What is added to the "nice" value of the threads: a worker gets three times as much of a core. With more, they would get next to
/// nothing on a machine that other programs keep busy.
const NICE: i32 = 5;

/// The threads; started by the first large call, and ended when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct ComputePool(Arc<ComputeThreads>);

struct ComputeThreads {
    runtime: OnceLock<Runtime>,
    /// As many as there are threads. Calls wait here, and never in the runtime's queue, which isn't fair.
    permits: Bulkhead,
    count: usize,
}

impl Default for ComputePool {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        ComputePool::with_threads(cores * THREADS_PER_CORE)
    }
}

impl ComputePool {
    fn with_threads(count: usize) -> Self {
        let permits = Bulkhead::new(count, usize::MAX);
        ComputePool(Arc::new(ComputeThreads { runtime: OnceLock::new(), permits, count }))
    }

    /// Whether a call of so many bytes belongs here.
    pub(crate) fn takes(bytes: usize) -> bool {
        bytes >= MIN_BYTES
    }

    /// Runs `call` for `tenant`. Dropping the future takes a call that waits out of the queue, and ends one that runs when it
    /// next waits for something.
    ///
    /// # Panics
    /// As `call` does, and if the system refuses a thread.
    pub(crate) async fn run<F>(&self, tenant: &Arc<str>, call: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        // Here, so that calls of a tenant begin in their order, and one that is given up never begins.
        let permit = self.enter(tenant).await;
        let (pool, tenant) = (self.clone(), Arc::clone(tenant));
        let call = PermittedPolls { pool, tenant, entry: Some(Box::pin(ready(permit))), call };
        let task = self.0.runtime().spawn(call);
        match AbortOnDropHandle::new(task).await {
            Ok(output) => output,
            Err(ended) => std::panic::resume_unwind(ended.into_panic()),
        }
    }

    fn enter(&self, tenant: &Arc<str>) -> BoxFuture<'static, BulkheadPermit> {
        let (threads, tenant) = (Arc::clone(&self.0), Arc::clone(tenant));
        Box::pin(async move {
            let permit = threads.permits.enter(&tenant, Duration::MAX).await;
            permit.unwrap_or_else(|_| unreachable!("the queue has no limit, nor has the wait"))
        })
    }
}

impl ComputeThreads {
    fn runtime(&self) -> &Runtime {
        self.runtime.get_or_init(|| {
            let threads = runtime::Builder::new_multi_thread()
                .worker_threads(self.count)
                .thread_name("compute")
                .on_thread_start(lower_priority)
                .enable_all()
                .build();
            threads.expect("the system permits an event queue")
        })
    }
}

/// Of the thread that calls it. If the system refuses, all threads share the cores alike.
fn lower_priority() {
    // Elsewhere it is the whole process that has a priority.
    if cfg!(target_os = "linux") {
        let _ = nice(NICE);
    }
}

impl Drop for ComputeThreads {
    fn drop(&mut self) {
        // Never waits for a call. A runtime that is simply dropped does, which tokio forbids in a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pin_project! {
    #[project = PermittedPollsProjection]
    /// A call that has a permit whenever a thread polls it, and none while it waits for something, such as the store: that would
    /// keep a thread from others.
    struct PermittedPolls<F> {
        pool: ComputePool,
        tenant: Arc<str>,
        // The wait for the permit of the next poll.
        entry: Option<BoxFuture<'static, BulkheadPermit>>,
        #[pin]
        call: F,
    }
}

impl<F: Future> Future for PermittedPolls<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let PermittedPollsProjection { pool, tenant, entry, call } = self.project();
        let waiting = entry.get_or_insert_with(|| pool.enter(tenant));
        let _permit = ready!(waiting.as_mut().poll(context));
        *entry = None;
        call.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::mpsc,
    };

    use futures::FutureExt as _;
    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    fn tenant(name: &str) -> Arc<str> {
        name.into()
    }

    /// A call that keeps its thread until the other end is dropped.
    fn blocking() -> (mpsc::Sender<()>, oneshot::Receiver<()>, impl Future<Output = ()> + Send + 'static) {
        let (release, released) = mpsc::channel();
        let (start, started) = oneshot::channel();
        let call = async move {
            let _ = start.send(());
            let _ = released.recv();
        };
        (release, started, call)
    }

    #[tokio::test]
    async fn long_calls_of_one_tenant_leave_a_thread_for_another() {
        let pool = ComputePool::with_threads(4);
        let mut held = Vec::new();
        for _ in 0..8 {
            let (release, started, call) = blocking();
            let (pool, noisy) = (pool.clone(), tenant("noisy"));
            let call = tokio::spawn(async move { pool.run(&noisy, call).await });
            held.push((release, started, call));
        }
        for (_, started, _) in &mut held[..3] {
            started.await.expect("three of four threads are for a lone tenant");
        }
        assert_eq!(pool.run(&tenant("quiet"), ready(7)).await, 7);
        let running = held[3..].iter_mut().filter_map(|(_, started, _)| started.now_or_never()).count();
        assert_eq!(running, 0, "the others wait");
        for (release, _, call) in held {
            drop(release);
            call.await.expect("it ends");
        }
    }

    #[tokio::test]
    async fn a_call_that_waits_keeps_no_permit_and_one_given_up_never_runs() {
        let pool = ComputePool::with_threads(1);
        let (waiting, other) = (pool.clone(), tenant("a"));
        let waiting = tokio::spawn(async move { waiting.run(&other, pending::<()>()).await });
        while pool.0.runtime.get().is_none_or(|runtime| runtime.metrics().num_alive_tasks() == 0) {
            yield_now().await;
        }
        let (release, started, call) = blocking();
        let (busy, other) = (pool.clone(), tenant("a"));
        let busy = tokio::spawn(async move { busy.run(&other, call).await });
        started.await.expect("the only permit is free again");
        let b = tenant("b");
        let mut queued = Box::pin(pool.run(&b, async { unreachable!("nobody waits for it") }));
        assert!((&mut queued).now_or_never().is_none());
        drop(queued);
        drop(release);
        busy.await.expect("it ends");
        assert_eq!(pool.run(&tenant("b"), ready(7)).await, 7);
        waiting.abort();
    }

    #[tokio::test]
    #[should_panic(expected = "the plugin's own words")]
    async fn a_panic_is_the_callers() {
        ComputePool::with_threads(1).run(&tenant("a"), async { panic!("the plugin's own words") }).await
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_worker_comes_before_a_large_call() {
        let own = || rustix::process::getpriority_process(None).expect("a thread has a priority");
        let of_call = ComputePool::with_threads(1).run(&tenant("a"), async move { own() }).await;
        assert_eq!(of_call, (own() + NICE).min(19));
    }
}
