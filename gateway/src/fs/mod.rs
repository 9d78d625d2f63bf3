//! Reading files that a person named: whole, up to a size, and only below a directory.

pub mod contained_path;
pub mod read_limited;
pub mod unreadable;
