//! The vocabulary that all other modules share: the four points, the hooks, a step's outcome, the error table, the
//! context of a call, a plugin's manifest, canonical digests, spans of the control plane. Imports only the contract, and nothing else of
//! this crate.

pub mod answer_way;
pub mod api_error;
pub mod api_format;
pub mod block_status;
pub mod call_site;
pub mod context;
pub(crate) mod control_span;
pub mod digest;
pub mod error;
pub mod error_chain;
pub mod failure;
pub mod fair_share;
pub mod manifest;
pub mod model_names;
pub mod object;
pub mod point;
pub mod schema_violation;
pub mod step;
pub mod tool;
