//! Plugins of LibreFang behind a real gateway. The plugins are written as LibreFang documents them, and know nothing of
//! Hookgate.

mod files;
mod hooks;
mod manifest;
mod processes;
mod support;
