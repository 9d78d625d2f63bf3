//! Write Hookgate plugins and call Hookgate from Rust.
//!
//! A plugin is a type that implements [`Plugin`]: it names the extension points and the lifecycle hooks it answers
//! at, takes a typed configuration, and answers calls with a [`Reply`] or a [`HookReply`]. [`serve`] runs it as a process; [`service`] gives the same
//! thing as a tower service; [`harness::TestPlugin`] calls it in a test without a socket. [`agent::Agent`] is the
//! other side: what an agent uses to call the gateway.
//!
//! ```text
//!   agent::Agent ──► gateway ──► serve::<P>() ──► host::PluginHost<P> ──► your P
//!                                                  one P per config digest, typed configuration
//! ```
//!
//! Everything here is a layer over the generated contract in [`proto`]; the rules are those of docs/protocol.md.
#![warn(missing_docs)]

mod address;
pub mod agent;
mod call_span;
mod config;
mod context;
mod error;
mod event;
pub mod harness;
mod hook_reply;
pub mod host;
mod host_service;
pub mod json;
mod listen;
mod log;
mod period;
mod plugin;
mod record_rules;
mod reply;
mod serve;
pub mod storage;
#[cfg(feature = "otel")]
pub mod telemetry;
mod tool;
#[cfg(test)]
mod tool_rule;
pub mod window;
mod wire;

pub use address::{Address, AddressError};
pub use config::NoConfig;
pub use context::{Context, Deadline};
pub use error::{InitError, PluginError};
pub use event::Event;
pub use hook_reply::HookReply;
pub use hookgate_proto as proto;
pub use hookgate_proto::{
    Access, Capability, HookOffer, Offer, PayloadField, PayloadFields, Point, SideEffects,
    plugin::v1::{CallContext, ChainResult, Limits, ResponseWindow},
    types::v1::{
        AfterToolResultPatch, AfterToolResultPayload, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
        BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Contribution,
        HookPayload, Media, MediaList, TokenUsage,
    },
};
pub use host::{PluginHost, service, service_with_host};
pub use host_service::{HostError, HostService};
pub use log::{Log, LogRecord};
pub use period::Period;
pub use plugin::{Answer, Host, Plugin};
pub use reply::{Cancel, Notice, Reply, Verdict};
pub use serve::{Registration, RegistrationError, ServeError, Server, serve, stop_signal};
pub use storage::Storage;
pub use tonic::{Code as StatusCode, Status};
pub use tool::{Tool, ToolCall, ToolError};

/// Largest message that a plugin takes, in bytes: the largest request limit of a gateway (16 MiB) and the 1 MiB
/// that a call may add to it (docs/protocol.md, section 6).
pub const MAX_CALL_BYTES: usize = 17 * 1024 * 1024;

/// Compiles and runs the code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-plugin.md")]
pub struct WritingAPlugin;

/// Compiles the plugin of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

#[cfg(test)]
mod tests {
    #[test]
    fn the_guides_complete_plugin_has_at_most_25_lines() {
        let guide = include_str!("../../../docs/writing-a-plugin.md");
        let code = guide.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert!(code.contains("#[tokio::main]") && code.lines().count() <= 25, "{}", code.lines().count());
    }
}
