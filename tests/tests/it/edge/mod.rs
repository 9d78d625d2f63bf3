//! The data port as agents see it.

mod blocks;
mod call_depth;
mod callers;
mod detail;
mod drain;
mod errors;
mod errors_page;
mod failed_step;
mod http1;
mod isolation;
mod limits;
mod neighbours;
mod probes;
mod requests;
pub(crate) mod support;
mod trace;
mod whoami;
