//! From the signal to the exit (docs/protocol.md, section 6, drain): turn readiness off, serve for the
//! grace period, send GOAWAY, wait for calls, give up the rest, then end observers and send Shutdown.

use std::{io, process, sync::Arc, thread, time::Duration};

use futures::future::join_all;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal as listen},
    sync::Semaphore,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::task::TaskTracker;
use tonic_health::{ServingStatus, server::HealthReporter};

use super::ShutdownPhases;
use crate::{
    config,
    control::{client_drain::OBSERVER_DRAIN_BUDGET, generation::Generation, publisher::Publisher},
    dataplane::call::Gateway,
    telemetry,
    upstream::PluginClient,
};

/// After the remaining calls are given up: the time for observers, Shutdown and the last answers.
const SHUTDOWN_BUDGET: Duration = Duration::from_secs(4);
/// The part of it for telemetry, which comes last.
pub const TELEMETRY: Duration = Duration::from_secs(1);
/// The part of it for the answers to calls that were given up.
const ANSWER_BUDGET: Duration = Duration::from_millis(500);

/// The time for the last events to operators who follow. If less is left, the process exits without sending
/// them all.
const EVENT_STREAM_BUDGET: Duration = Duration::from_secs(1);

/// How long a drain may exceed its time before the process is forced to exit.
const FORCED_EXIT_MARGIN: Duration = Duration::from_millis(250);
/// The time to flush the log at the very end. It is more than a reader needs; there may be no reader.
pub const MAX_LOG_FLUSH: Duration = Duration::from_millis(500);
/// The exit code of a forced exit.
const FORCED_EXIT_CODE: i32 = 1;

/// How long the process may take from the first signal to its exit.
pub(super) fn longest(config: &config::Drain) -> Duration {
    config.grace.0.saturating_add(config.finish.0).saturating_add(SHUTDOWN_BUDGET)
}

/// Counts the requests to stop (SIGTERM or Ctrl-C) that have not been taken yet. It listens from its
/// creation on, so that no signal is lost between two waits.
pub(super) struct StopSignals(Arc<Semaphore>);

impl StopSignals {
    /// Forces the process to exit `longest` after the first signal, even if something hangs.
    ///
    /// Signals have their own thread and runtime, because every thread of the gateway's runtime can be
    /// blocked.
    pub(super) fn listen(longest: Duration) -> Self {
        let asked = Arc::new(Semaphore::new(0));
        if let Err(error) = watch(Arc::clone(&asked), longest) {
            tracing::error!(%error, "signal handlers can't be installed: use SIGKILL to end the process");
        }
        StopSignals(asked)
    }

    /// Waits for the next request.
    pub(super) async fn next(&self) {
        self.0.acquire().await.expect("the semaphore is never closed").forget();
    }
}

fn watch(asked: Arc<Semaphore>, longest: Duration) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _within = runtime.enter();
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?)
    };
    let watch = async move {
        let mut left = longest;
        let mut end = None;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                    // If the log flush itself hangs, the main thread ends the process meanwhile.
                    telemetry::flush_log(MAX_LOG_FLUSH);
                    process::exit(FORCED_EXIT_CODE);
                }
            }
            asked.add_permits(1);
            let by = Instant::now() + left + FORCED_EXIT_MARGIN;
            end = Some(end.map_or(by, |end: Instant| end.min(by)));
            // A second signal cuts the drain short, but telemetry still gets its time.
            left = TELEMETRY;
        }
    };
    thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(watch)).map(drop)
}

/// Drains the gateway, until nothing is left to do or the time is over.
pub(super) async fn run(
    times: &config::Drain,
    gateway: &Gateway,
    publisher: &mut Publisher,
    lifecycle: &ShutdownPhases,
    health: &HealthReporter,
) {
    lifecycle.draining.cancel();
    // Logged after readiness is off, so that readers of the line find it off.
    tracing::info!("draining");
    health.set_service_status("", ServingStatus::NotServing).await;
    let end = tokio::select! {
        end = let_finish(times, gateway, lifecycle) => end,
        // Bypasses still expire while calls are served, so that no rule is left out for longer than
        // requested.
        () = publisher.keep_time() => return,
    };

    let current = publisher.current();
    let retired = publisher.draining().finish(end);
    let observed = async {
        let drained = join_all(current.clients().map(|client| client.drain(OBSERVER_DRAIN_BUDGET))).await;
        let given_up: u64 = drained.into_iter().sum();
        if given_up > 0 {
            tracing::warn!(given_up, "observers did not receive every call");
        }
        shut_down(current, end).await;
    };
    let written = async {
        if timeout_at(end, lifecycle.writes.finish()).await.is_err() {
            tracing::warn!(
                "draining with unconfirmed writes: waiting clients are told that the result is unknown"
            );
        }
    };
    tokio::join!(retired, observed, written);
    tracing::info!("drained");
}

/// Serves for the grace period, then waits for the calls in flight. Returns the time by which everything
/// must be over.
async fn let_finish(times: &config::Drain, gateway: &Gateway, lifecycle: &ShutdownPhases) -> Instant {
    sleep(times.grace.0).await;
    tracing::info!("draining: no new calls are accepted");
    lifecycle.goaway.cancel();
    lifecycle.writes.close();
    lifecycle.connections.close();
    let end = Instant::now() + times.finish.0 + SHUTDOWN_BUDGET - TELEMETRY;
    if timeout(times.finish.0, lifecycle.connections.wait()).await.is_err() {
        gateway.abort.cancel();
        let unfinished = timeout(ANSWER_BUDGET, lifecycle.connections.wait()).await.is_err();
        tracing::warn!(unfinished, "calls in flight were abandoned");
    }
    end
}

/// Sends the last events to operators who follow.
pub(super) async fn take_leave(operators: &TaskTracker) {
    operators.close();
    if timeout(EVENT_STREAM_BUDGET, operators.wait()).await.is_err() {
        tracing::debug!("a client of the event stream did not read the last events");
    }
}

/// Shuts down the plugins that a failed start had initialised.
pub(super) async fn let_go(first: &Generation) {
    shut_down(first, Instant::now() + SHUTDOWN_BUDGET).await;
}

/// Sends Shutdown to the plugins by `end`, in reverse order of their initialisation. A plugin that doesn't
/// answer delays the next one by its share of the time, and may still answer until the end.
async fn shut_down(generation: &Generation, end: Instant) {
    // A plugin that is being initialised right now counts as the last. One that was never initialised gets
    // no Shutdown.
    let now = Instant::now();
    let at = |client: &PluginClient| client.initialised_at().unwrap_or(now);
    let mut initialised: Vec<_> = generation.clients().map(|client| (at(client), client)).collect();
    initialised.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let mut waiting = (1..=u32::try_from(initialised.len()).unwrap_or(u32::MAX)).rev();
    let mut unanswered = Vec::new();
    for (_, client) in initialised {
        let left = end.saturating_duration_since(Instant::now());
        let mut answered = Box::pin(client.shutdown(left));
        let share = left / waiting.next().unwrap_or(1);
        if timeout(share, &mut answered).await.is_err() {
            unanswered.push(answered);
        }
    }
    join_all(unanswered).await;
}
