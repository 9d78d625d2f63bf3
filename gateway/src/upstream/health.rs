//! Health checks with `grpc.health.v1`, service `""` (docs/protocol.md, section 6). An endpoint without the
//! service is judged by its calls alone.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use http::HeaderMap;
use prost::Message as _;
use tokio::time::Instant;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus};

use super::{
    codec::ExchangeError,
    connection::{Connection, Rpc},
    state::Why,
};
use crate::{config, grpc::framing};

/// Largest response: a status, and room for fields of later versions.
const MAX_ANSWER_BYTES: usize = 1 << 10;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthCheckOutcome {
    /// The endpoint serves.
    Serving,
    /// The endpoint reports that it doesn't serve.
    NotServing,
    /// No usable answer.
    Missed(String),
    /// The endpoint doesn't have the health service.
    Unsupported,
}

pub(super) async fn check(connection: &Connection, settings: &config::Health) -> HealthCheckOutcome {
    let frame = framing::frame(&HealthCheckRequest { service: String::new() });
    let deadline = Instant::now() + settings.timeout.0;
    let answer =
        connection.unary(Rpc::Health, frame, &HeaderMap::new(), deadline, MAX_ANSWER_BYTES, None).await;
    match answer {
        Ok(answer) => match HealthCheckResponse::decode(answer).map(|answer| answer.status()) {
            Ok(ServingStatus::Serving) => HealthCheckOutcome::Serving,
            Ok(ServingStatus::NotServing) => HealthCheckOutcome::NotServing,
            // The response for a service unknown to the server. The empty name stands for the whole plugin.
            Ok(ServingStatus::ServiceUnknown | ServingStatus::Unknown) => HealthCheckOutcome::Unsupported,
            Err(error) => HealthCheckOutcome::Missed(format!("the answer can't be decoded: {error}")),
        },
        Err(ExchangeError::Status(status))
            if matches!(status.code(), tonic::Code::Unimplemented | tonic::Code::NotFound) =>
        {
            HealthCheckOutcome::Unsupported
        }
        // A plugin's own text may hold secrets. This error omits the status message.
        Err(error @ (ExchangeError::Status(_) | ExchangeError::TimedOut | ExchangeError::StreamRefused)) => {
            HealthCheckOutcome::Missed(error.to_string())
        }
        Err(_) => HealthCheckOutcome::Missed("the connection broke off, or the answer was no gRPC".into()),
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct HealthCounts {
    misses: u32,
    passes: u32,
    out: Option<Why>,
}

/// The accumulated results of one endpoint's checks.
#[derive(Default)]
pub(super) struct EndpointHealth {
    /// Locked only by the health checker.
    count: Mutex<HealthCounts>,
    /// Why the endpoint is out, as a number. Read by calls.
    out: AtomicU8,
    asked: AtomicBool,
    /// Whether the last check was answered.
    answered: AtomicBool,
}

impl EndpointHealth {
    /// Why the endpoint gets no calls. Returns `None` if it may get calls.
    pub(super) fn out(&self) -> Option<Why> {
        match self.out.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Why::NotServing),
            _ => Some(Why::HealthUnanswered),
        }
    }

    /// Whether the last check was answered. Returns `None` before the first check.
    pub(super) fn answered(&self) -> Option<bool> {
        self.asked.load(Ordering::Acquire).then(|| self.answered.load(Ordering::Relaxed))
    }

    /// Records whether a check was answered. Returns whether this was the first check.
    pub(super) fn note_check(&self, found: &HealthCheckOutcome) -> bool {
        self.answered.store(!matches!(found, HealthCheckOutcome::Missed(_)), Ordering::Relaxed);
        !self.asked.swap(true, Ordering::Release)
    }

    /// Records the result of a check. If that changes whether the endpoint gets calls, returns whether it
    /// does now.
    pub(super) fn note(&self, found: &HealthCheckOutcome, settings: &config::Health) -> Option<bool> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let change = count.note(found, settings);
        let out = match count.out {
            None => 0,
            Some(Why::NotServing) => 1,
            Some(_) => 2,
        };
        self.out.store(out, Ordering::Relaxed);
        change
    }
}

impl HealthCounts {
    fn note(&mut self, found: &HealthCheckOutcome, settings: &config::Health) -> Option<bool> {
        let count = self;
        match found {
            HealthCheckOutcome::Serving | HealthCheckOutcome::Unsupported => {
                *count = HealthCounts { misses: 0, passes: count.passes.saturating_add(1), out: count.out };
                let back = count.passes >= settings.passes || *found == HealthCheckOutcome::Unsupported;
                (back && count.out.take().is_some()).then_some(true)
            }
            HealthCheckOutcome::NotServing => {
                count.passes = 0;
                (count.out.replace(Why::NotServing) != Some(Why::NotServing)).then_some(false)
            }
            HealthCheckOutcome::Missed(_) => {
                *count = HealthCounts { misses: count.misses.saturating_add(1), passes: 0, out: count.out };
                (count.misses >= settings.misses && count.out.replace(Why::HealthUnanswered).is_none())
                    .then_some(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed() -> HealthCheckOutcome {
        HealthCheckOutcome::Missed(String::new())
    }

    #[test]
    fn three_misses_in_a_row_take_it_out_and_one_pass_lets_it_in() {
        let (health, settings) = (EndpointHealth::default(), config::Health::default());
        for found in [missed(), missed(), HealthCheckOutcome::Serving, missed(), missed()] {
            assert_eq!((health.note(&found, &settings), health.out()), (None, None));
        }
        assert_eq!(health.note(&missed(), &settings), Some(false));
        assert_eq!((health.note(&missed(), &settings), health.out()), (None, Some(Why::HealthUnanswered)));
        assert_eq!((health.note(&HealthCheckOutcome::Serving, &settings), health.out()), (Some(true), None));
    }

    #[test]
    fn what_says_itself_that_it_does_not_serve_is_out_at_once() {
        let (health, settings) = (EndpointHealth::default(), config::Health::default());
        assert_eq!(health.note(&HealthCheckOutcome::NotServing, &settings), Some(false));
        assert_eq!(
            (health.note(&HealthCheckOutcome::NotServing, &settings), health.out()),
            (None, Some(Why::NotServing))
        );
        assert_eq!((health.note(&HealthCheckOutcome::Serving, &settings), health.out()), (Some(true), None));
    }

    #[test]
    fn as_many_passes_are_needed_as_are_set() {
        let (health, settings) =
            (EndpointHealth::default(), config::Health { passes: 2, ..Default::default() });
        health.note(&HealthCheckOutcome::NotServing, &settings);
        assert_eq!(health.note(&HealthCheckOutcome::Serving, &settings), None);
        assert_eq!(health.note(&missed(), &settings), None);
        assert_eq!(health.note(&HealthCheckOutcome::Serving, &settings), None);
        assert_eq!(health.note(&HealthCheckOutcome::Serving, &settings), Some(true));
    }
}
