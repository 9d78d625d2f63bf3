//! The SDKs, with plugins that they serve as real processes.

mod examples;
mod typescript;
mod vectors;
