//! What is recorded of a call: its metrics and span, its log line, its observers' results, and callers that were turned
//! away. Stands above `invoke`, whose reports it counts; the mechanism is in [`telemetry`](crate::telemetry).

pub mod auth_failure;
pub mod invocation;
pub mod log_line;
pub mod observer;
