//! Configuration.
mod model;
mod units;

pub use model::*;
pub use units::{Size, Span};
