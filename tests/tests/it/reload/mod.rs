//! Tests changes of the file while the gateway runs.

mod again;
mod file;
mod keys;
mod load;
mod plugins;
mod release;
