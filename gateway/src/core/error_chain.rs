//! Errors with their causes.

use std::{error::Error, iter};

/// An error, and what caused it, from the outside to the inside.
pub fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// The error with its causes; many errors display only the outermost.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(|error| error.to_string()).collect::<Vec<_>>().join(": ")
}
