//! Lists the keys that take effect only at a restart; all others take effect on reload. docs/configuration.md
//! states it for each key.

use super::model::Config;

/// Whether two configurations agree in one key.
type KeyComparison = fn(&Config, &Config) -> bool;

/// Each key, and how to compare its values.
const RESTART_KEYS: &[(&str, KeyComparison)] = &[
    ("server.data_addr", |a, b| a.server.data_addr == b.server.data_addr),
    ("server.ops_addr", |a, b| a.server.ops_addr == b.server.ops_addr),
    // Opens or closes depending on whether an issuer grants tokens for it.
    ("server.admin_addr", |a, b| a.admin_addr() == b.admin_addr()),
    ("server.admin_socket", |a, b| a.server.admin_socket == b.server.admin_socket),
    ("server.host_addr", |a, b| a.server.host_addr == b.server.host_addr),
    ("server.host_endpoint", |a, b| a.server.host_endpoint == b.server.host_endpoint),
    ("server.host_socket", |a, b| a.server.host_socket == b.server.host_socket),
    ("server.tls", |a, b| a.server.tls == b.server.tls),
    ("server.workers", |a, b| a.server.workers == b.server.workers),
    ("drain", |a, b| a.drain == b.drain),
    ("store", |a, b| a.store == b.store),
    ("log", |a, b| a.log == b.log),
    ("telemetry.otlp_endpoint", |a, b| a.telemetry.otlp_endpoint == b.telemetry.otlp_endpoint),
    ("telemetry.otlp_protocol", |a, b| a.telemetry.otlp_protocol == b.telemetry.otlp_protocol),
];

impl Config {
    /// The keys whose values in `other` would take effect only after a restart of a process that runs with
    /// this configuration.
    pub fn waits_for_restart(&self, other: &Config) -> Vec<&'static str> {
        RESTART_KEYS.iter().filter(|(_, agree)| !agree(self, other)).map(|(key, _)| *key).collect()
    }
}

/// Whether `key`, written as in docs/configuration.md, takes effect only at a restart.
#[cfg(test)]
pub(super) fn is_at_restart(key: &str) -> bool {
    let within =
        |at: &&str| key.strip_prefix(*at).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    RESTART_KEYS.iter().any(|(at, _)| within(at))
}
