//! Log lines and events that plugins write (`hookgate.host.v1`). All are marked with the plugin's name, so that none
//! passes for the gateway's own.

use opentelemetry::KeyValue;
use tracing::Level;

use crate::telemetry::{
    Telemetry,
    events::EMITTED,
    names::{OUTPUT, PLUGIN},
};

/// The target of plugins' lines and events.
pub const TARGET: &str = module_path!();

/// Who wrote it, according to the token.
#[derive(Debug, Clone, Copy)]
pub struct PluginOrigin<'a> {
    pub plugin: &'a str,
    /// The call's tenant and request, unless it was written outside of calls.
    pub tenant: Option<&'a str>,
    pub request_id: Option<&'a str>,
}

/// A line for the log. `attributes` is a JSON object.
#[derive(Debug)]
pub struct PluginLine {
    pub level: Level,
    pub message: String,
    pub attributes: Option<String>,
}

/// An event for operators. `attributes` is a JSON object.
#[derive(Debug)]
pub struct PluginEvent {
    pub name: String,
    /// INFO, WARN or ERROR.
    pub level: Level,
    pub message: String,
    pub attributes: Option<String>,
}

/// What a plugin writes too much of.
#[derive(Debug, Clone, Copy)]
pub enum OutputKind {
    Log,
    Event,
}

impl OutputKind {
    const fn as_str(self) -> &'static str {
        match self {
            OutputKind::Log => "log",
            OutputKind::Event => "event",
        }
    }
}

/// Writes a log line of a level that is known only at run time.
macro_rules! log_at {
    ($level:expr, $($line:tt)+) => {
        match $level {
            Level::ERROR => tracing::error!($($line)+),
            Level::WARN => tracing::warn!($($line)+),
            Level::INFO => tracing::info!($($line)+),
            Level::DEBUG | Level::TRACE => tracing::debug!($($line)+),
        }
    };
}

/// Writes a plugin's line to the log.
pub fn write_line(origin: &PluginOrigin<'_>, line: &PluginLine) {
    let &PluginOrigin { plugin, tenant, request_id } = origin;
    let attributes = line.attributes.as_deref();
    log_at!(line.level, source = "plugin", plugin, tenant, request_id, attributes, "{}", line.message);
}

/// Writes a plugin's event to the log, and so to the events.
pub fn write_event(origin: &PluginOrigin<'_>, event: &PluginEvent) {
    let &PluginOrigin { plugin, tenant, request_id } = origin;
    let (name, attributes) = (event.name.as_str(), event.attributes.as_deref());
    let message = if event.message.is_empty() { name } else { &event.message };
    log_at!(event.level, event = EMITTED, plugin, name, tenant, request_id, attributes, "{message}");
}

impl Telemetry {
    /// Counts what was dropped because a plugin writes too much. `begins` has the limit per second if the plugin just
    /// began.
    pub fn record_plugin_flood(&self, plugin: &str, kind: OutputKind, dropped: usize, begins: Option<u32>) {
        let attributes = [KeyValue::new(PLUGIN, plugin.to_owned()), KeyValue::new(OUTPUT, kind.as_str())];
        self.0.instruments.host_dropped.add(dropped as u64, &attributes);
        if let Some(limit) = begins {
            let output = kind.as_str();
            tracing::warn!(
                event = "plugin.output_dropped",
                plugin,
                output,
                limit,
                "the plugin writes more per second than the limit; the rest is dropped"
            );
        }
    }
}
