//! The vocabulary that all other modules share: the four points, a step's outcome, the error table, the
//! context of a call, a plugin's manifest, canonical digests. Imports only the contract, and nothing else of
//! this crate.

pub mod block_status;
pub mod context;
pub mod digest;
pub mod error;
pub mod failure;
pub mod fair_share;
pub mod manifest;
pub mod object;
pub mod point;
pub mod step;
