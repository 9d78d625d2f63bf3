//! What operators see of a running gateway: log lines, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging to standard error; pretty on a terminal, a JSON object a line elsewhere, or as configured.
///
/// Does nothing when logging was started before.
pub fn start_log(log: &Log) {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let automatic = if std::io::stderr().is_terminal() { LogFormat::Pretty } else { LogFormat::Json };
    // Lines of libraries are about their insides: only what they warn of.
    let filter = EnvFilter::new(format!("warn,hookgate={level},hookgate_sdk={level}"));
    let registry = tracing_subscriber::registry().with(filter);
    let started = match log.format.unwrap_or(automatic) {
        LogFormat::Pretty => {
            registry.with(fmt::layer().with_writer(std::io::stderr).with_target(false)).try_init()
        }
        LogFormat::Json => {
            let layer =
                fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).with_target(false);
            registry.with(layer).try_init()
        }
    };
    drop(started); // a second start keeps the first one's settings
}
