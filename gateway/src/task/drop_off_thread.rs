//! Drops large values on a blocking thread: freeing tens of thousands of objects must not delay a call or a worker of the
//! runtime.

use std::ops::Deref;

use tokio::runtime::Handle;

/// A value that is freed on a blocking thread, wherever it is dropped.
pub struct DropOffThread<T: Send + 'static>(
    /// `None` only in the destructor.
    Option<T>,
);

impl<T: Send + 'static> DropOffThread<T> {
    /// Owns `value`.
    pub fn new(value: T) -> Self {
        DropOffThread(Some(value))
    }
}

impl<T: Send + 'static> Deref for DropOffThread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only the destructor takes the value")
    }
}

impl<T: Send + 'static> Drop for DropOffThread<T> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(drop_off_thread);
    }
}

/// Drops `value` on a blocking thread. Drops it here if there is no runtime whose workers that could delay.
pub(crate) fn drop_off_thread<T: Send + 'static>(value: T) {
    if let Ok(runtime) = Handle::try_current() {
        // Not awaited, because it has no result.
        drop(runtime.spawn_blocking(move || drop(value)));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread::{self, ThreadId},
        time::Duration,
    };

    use super::*;

    /// Reports which thread drops it.
    struct FreedBy(mpsc::Sender<ThreadId>);

    impl Drop for FreedBy {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[tokio::test]
    async fn the_last_holder_on_a_worker_frees_the_value_on_another_thread() {
        let (tell, freed) = mpsc::channel();
        let value = Arc::new(DropOffThread::new(FreedBy(tell)));
        let holder = Arc::clone(&value);
        drop(value);
        assert!(freed.try_recv().is_err(), "it is still held");
        drop(holder);
        let by = freed.recv_timeout(Duration::from_secs(10)).expect("it is freed");
        assert_ne!(by, thread::current().id());
    }

    #[test]
    fn without_a_runtime_the_value_is_freed_in_place() {
        let (tell, freed) = mpsc::channel();
        drop(DropOffThread::new(FreedBy(tell)));
        assert_eq!(freed.try_recv(), Ok(thread::current().id()));
    }
}
