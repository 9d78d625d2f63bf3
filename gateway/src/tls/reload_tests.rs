//! Files that change, half and whole.
