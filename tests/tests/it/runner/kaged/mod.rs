//! Plugins of kaged behind a real gateway. The plugins are written as kaged documents them, and know nothing of Hookgate.

mod handshake;
mod hooks;
mod processes;
mod storage;
mod support;
mod tools;
mod wire;
