//! Records calls: metrics and span, log line, observers' results, and rejected callers. This module is
//! above `invoke`, whose reports it counts; the mechanism is in [`telemetry`](crate::telemetry).

pub mod auth_failure;
pub mod exchange;
pub mod host_refusal;
pub mod invocation;
pub mod log_line;
pub mod observer;
pub mod plugin_output;
