//! The reloads that operators have requested, and who still waits for their outcome.

use std::future;

use tokio::{sync::mpsc, time::Instant};

use crate::control::reload_requests::{ReloadReply, ReloadRequest};

pub(crate) struct PendingReloads {
    asks: mpsc::Receiver<ReloadRequest>,
    waiting: Vec<ReloadRequest>,
}

impl PendingReloads {
    pub(crate) fn new(asks: mpsc::Receiver<ReloadRequest>) -> Self {
        PendingReloads { asks, waiting: Vec::new() }
    }

    /// The next request. Waits for ever if nobody can send one.
    pub(crate) async fn next(&mut self) -> ReloadRequest {
        match self.asks.recv().await {
            Some(ask) => ask,
            None => future::pending().await,
        }
    }

    /// Keeps a request until its outcome is known.
    pub(crate) fn keep(&mut self, ask: ReloadRequest) {
        self.waiting.push(ask);
    }

    /// Replies to all requests.
    pub(crate) fn tell(&mut self, came: &ReloadReply) {
        self.waiting.drain(..).for_each(|ask| ask.tell(came.clone()));
    }

    /// Replies to requests whose time is over that the configuration waits for `what`.
    pub(crate) fn tell_late(&mut self, what: &str) {
        let now = Instant::now();
        let late = self.waiting.extract_if(.., |ask| ask.by <= now);
        late.for_each(|ask| ask.tell(ReloadReply::Waiting(what.to_owned())));
    }

    /// Ends all requests without a reply.
    pub(crate) fn close(&mut self) {
        self.asks.close();
        self.waiting.clear();
        while self.asks.try_recv().is_ok() {}
    }
}
