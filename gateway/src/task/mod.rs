//! Small tools around tokio tasks.

pub mod drop_off_thread;
pub mod join;
pub mod single_flight;
