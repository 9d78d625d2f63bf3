//! Work on a large payload leaves its worker.
//!
//! A worker serves many connections on one thread, so the milliseconds that it takes to decode, check and write a megabyte delay
//! the calls of all of them. The work on a request is [`movable`]: it begins on the worker, and goes on on the threads of the
//! compute pool from where it says so ([`leave_worker`]). What it starts or registers there still belongs to its worker: timers, tasks, and
//! connections to plugins and providers.

use std::{
    cell::Cell,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, pending, poll_fn};
use tokio::runtime::Handle;

use crate::net::worker::{self, WorkerId};

/// Work on fewer bytes stays: moving it would take longer than it delays others.
const MIN_BYTES: usize = 64 << 10;

thread_local! {
    static DEPARTURE: Cell<Departure> = const { Cell::new(Departure::Impossible) };
}

/// Whether the work that the thread polls leaves it.
#[derive(Default)]
enum Departure {
    /// It has left before, or isn't [`movable`].
    #[default]
    Impossible,
    Possible,
    /// It leaves, and takes a thread from the share of this tenant.
    Requested(Arc<str>),
}

/// Work that may leave its worker. It ends when this is dropped, wherever it is.
pub(crate) struct Movable<T> {
    /// Where it has moved, it waits for the work.
    work: BoxFuture<'static, T>,
    has_moved: bool,
}

/// Work that may call [`leave_worker`].
pub(crate) fn movable<T>(work: BoxFuture<'static, T>) -> Movable<T> {
    Movable { work, has_moved: false }
}

/// Moves the work that calls this off its worker if work on `bytes` follows. Does nothing if it has moved before, or if no worker runs it.
pub(crate) async fn leave_worker(tenant: &Arc<str>, bytes: usize) {
    if bytes < MIN_BYTES {
        return;
    }
    poll_fn(|cx| {
        if matches!(DEPARTURE.take(), Departure::Impossible) {
            return Poll::Ready(());
        }
        DEPARTURE.set(Departure::Requested(Arc::clone(tenant)));
        // A future around this one polls again only what was woken. It may do so before the work has moved.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<T: Send + 'static> Future for Movable<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if self.has_moved || !worker::is_current() {
            return self.work.as_mut().poll(cx);
        }
        DEPARTURE.set(Departure::Possible);
        let polled = self.work.as_mut().poll(cx);
        let Departure::Requested(tenant) = DEPARTURE.take() else { return polled };
        let (Poll::Pending, Some(worker), Some(pool)) =
            (&polled, WorkerId::current(), worker::compute_pool())
        else {
            return polled;
        };
        let work = mem::replace(&mut self.work, Box::pin(pending()));
        let work = MovedWork { worker, runtime: Handle::current(), work };
        self.work = Box::pin(async move { pool.run(&tenant, work).await });
        self.has_moved = true;
        self.work.as_mut().poll(cx)
    }
}

/// Work that another thread does for a worker.
struct MovedWork<T: Send + 'static> {
    worker: WorkerId,
    runtime: Handle,
    work: BoxFuture<'static, T>,
}

impl<T: Send + 'static> MovedWork<T> {
    /// Does `act` on the work as if its worker did.
    fn represent<R>(&mut self, act: impl FnOnce(&mut BoxFuture<'static, T>) -> R) -> R {
        let MovedWork { worker, runtime, work } = self;
        let _entered = runtime.enter();
        let _represented = worker.represent();
        act(work)
    }
}

impl<T: Send + 'static> Drop for MovedWork<T> {
    fn drop(&mut self) {
        self.represent(|work| *work = Box::pin(pending()));
    }
}

impl<T: Send + 'static> Future for MovedWork<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.represent(|work| work.as_mut().poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, thread};

    use futures::{StreamExt as _, stream};
    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::{fairness::compute_pool::ComputePool, net::worker::Workers};

    /// Does `work` on a worker, and returns what it returned.
    async fn on_worker<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
        let workers = Workers::start(NonZeroUsize::MIN, ComputePool::default()).unwrap();
        let (done, is_done) = oneshot::channel();
        workers.spawn(&TaskTracker::new(), async move {
            let _ = done.send(movable(Box::pin(work)).await);
        });
        is_done.await.expect("it ends")
    }

    fn thread_name() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    async fn leave(bytes: usize) {
        leave_worker(&"tenant".into(), bytes).await;
    }

    #[tokio::test]
    async fn work_on_a_large_payload_leaves_its_worker_once_and_a_small_one_stays() {
        let names = on_worker(async {
            leave(MIN_BYTES - 1).await;
            let small = thread_name();
            leave(MIN_BYTES).await;
            let large = thread_name();
            leave(MIN_BYTES).await;
            [small, large, thread_name()]
        });
        assert_eq!(names.await, ["worker-0", "compute", "compute"]);
    }

    #[tokio::test]
    async fn what_moved_work_starts_belongs_to_its_worker() {
        let (own, spawned, home) = on_worker(async {
            let home = Handle::current().id();
            leave(MIN_BYTES).await;
            let spawned =
                tokio::spawn(async { (thread_name(), WorkerId::current().map(|worker| worker.index)) });
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            (
                WorkerId::current().map(|worker| worker.index),
                spawned.await.unwrap(),
                home == Handle::current().id(),
            )
        })
        .await;
        assert_eq!((own, spawned), (Some(0), ("worker-0".into(), Some(0))));
        assert!(home, "timers and sockets too");
    }

    /// As several questions to plugins about one answer.
    #[tokio::test]
    async fn one_of_several_pieces_of_work_moves_them_all() {
        let names = on_worker(async {
            let pieces = stream::iter(0..4).map(|number| async move {
                if number == 2 {
                    leave(MIN_BYTES).await;
                }
                tokio::task::yield_now().await;
                thread_name()
            });
            pieces.buffered(4).collect::<Vec<_>>().await
        });
        assert_eq!(names.await, ["compute"; 4]);
    }

    #[tokio::test]
    async fn off_the_workers_nothing_moves() {
        let here = thread_name();
        let name = movable(Box::pin(async {
            leave(MIN_BYTES).await;
            thread_name()
        }));
        assert_eq!(name.await, here);
        leave(MIN_BYTES).await;
        assert_eq!(thread_name(), here, "outside of movable work");
    }

    #[tokio::test]
    async fn moved_work_ends_when_nobody_waits_for_it() {
        let (held, gone) = oneshot::channel::<()>();
        on_worker(async move {
            let (moved, has_moved) = oneshot::channel();
            let mut work = movable(Box::pin(async move {
                let _held = held;
                leave(MIN_BYTES).await;
                let _ = moved.send(());
                pending::<()>().await;
            }));
            tokio::select! {
                () = &mut work => unreachable!("it never ends"),
                _ = has_moved => drop(work),
            }
        })
        .await;
        assert!(gone.await.is_err());
    }

    #[tokio::test]
    #[should_panic(expected = "it ends")]
    async fn a_panic_of_moved_work_is_its_workers() {
        on_worker(async {
            leave(MIN_BYTES).await;
            panic!("a mistake of ours");
        })
        .await
    }
}
