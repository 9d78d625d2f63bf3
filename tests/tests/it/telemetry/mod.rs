//! Logs, metrics, traces, and the page of the ops port.

mod collector;
mod control_spans;
mod log;
mod log_colours;
mod log_unread;
pub(crate) mod metrics;
mod ops_page;
mod plugins;
mod secrets;
pub(crate) mod support;
mod traces;
