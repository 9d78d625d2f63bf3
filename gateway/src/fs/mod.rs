//! Reads files that a person named: entirely, up to a size limit, and only below a directory.

pub mod contained_path;
pub mod read_limited;
pub mod unreadable;
