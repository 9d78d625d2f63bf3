//! The SDKs, with plugins that they serve as real processes.

mod typescript;
mod vectors;
