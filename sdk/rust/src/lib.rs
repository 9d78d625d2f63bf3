//! Write Hookgate plugins and call Hookgate from Rust.
