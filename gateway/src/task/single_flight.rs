//! Single flight: many ask, one job runs, all get its result. The job runs detached, so that it doesn't end
//! with the caller who happened to ask first.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// At most one job at a time whose result is a `T`.
#[derive(Debug)]
pub(crate) struct SingleFlight<T> {
    running: Mutex<Option<watch::Receiver<Option<T>>>>,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    pub(crate) fn new() -> Self {
        SingleFlight { running: Mutex::new(None) }
    }

    /// Returns the result of the running job, or of the one that `start` makes. `already` is checked before a
    /// job is started, and says that none is needed. `None` if the job ended without a result, which a
    /// shutdown of the runtime can cause.
    pub(crate) async fn join<F>(
        &self,
        already: impl FnOnce() -> Option<T>,
        start: impl FnOnce() -> F,
    ) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut result = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            match running.as_ref().filter(|job| job.has_changed().is_ok() && job.borrow().is_none()) {
                Some(job) => job.clone(),
                None => {
                    if let Some(result) = already() {
                        return Some(result);
                    }
                    let (ended, job) = watch::channel(None);
                    let work = start();
                    tokio::spawn(async move { ended.send_replace(Some(work.await)) });
                    *running = Some(job.clone());
                    job
                }
            }
        };
        result.wait_for(Option::is_some).await.ok()?.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn many_ask_and_one_job_runs() {
        let flight = SingleFlight::new();
        let (runs, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let askers = (0..50).map(|_| {
            let (runs, go) = (runs.clone(), go.clone());
            let job = || async move {
                go.notified().await;
                runs.fetch_add(1, Ordering::SeqCst) + 1
            };
            flight.join(|| None, job)
        });
        // Every caller is polled once before the job may end.
        let (results, ()) = tokio::join!(futures::future::join_all(askers), async { go.notify_one() });
        assert_eq!(results, vec![Some(1); 50]);
        assert_eq!(flight.join(|| Some(9), std::future::pending).await, Some(9), "no job is needed");
    }

    #[tokio::test]
    async fn job_outlives_the_asker_who_started_it() {
        let flight = Arc::new(SingleFlight::new());
        let go = Arc::new(Notify::new());
        let first = {
            let (flight, go) = (flight.clone(), go.clone());
            tokio::spawn(async move {
                let job = || async move {
                    go.notified().await;
                    7
                };
                flight.join(|| None, job).await
            })
        };
        tokio::task::yield_now().await;
        first.abort();
        assert!(first.await.is_err());
        go.notify_one();
        assert_eq!(flight.join(|| None, std::future::pending).await, Some(7));
    }
}
