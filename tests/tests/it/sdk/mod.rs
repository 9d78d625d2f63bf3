//! The SDKs, with plugins that they serve as real processes.

mod examples;
mod python;
mod runner;
mod typescript;
mod vectors;
