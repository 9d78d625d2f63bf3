//! The command line.

mod approve;
mod ask;
mod call;
mod call_hook;
mod config;
mod conformance;
mod connect;
mod connect_store;
mod demo;
mod dev;
mod events;
mod explain;
mod help;
mod init;
mod new;
mod plugin_host;
mod plugin_test;
mod probe;
mod profile;
mod proto;
pub(crate) mod registry;
pub(crate) mod session;
pub(crate) mod support;
mod token;
mod tools;
mod upkeep;
mod whoami;
