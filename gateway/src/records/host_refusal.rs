//! Counts and logs requests of plugins to the host services that were refused because of their token.

use opentelemetry::KeyValue;

use crate::telemetry::{
    Telemetry,
    names::{PLUGIN, REASON},
};

/// The target of the lines.
pub const TARGET: &str = module_path!();

impl Telemetry {
    /// Records a refused request. `plugin` is known if the token is valid.
    pub fn record_host_refusal(&self, reason: &'static str, plugin: Option<&str>) {
        let of_plugin = plugin.map(|plugin| KeyValue::new(PLUGIN, plugin.to_owned()));
        let attributes: Vec<_> = of_plugin.into_iter().chain([KeyValue::new(REASON, reason)]).collect();
        self.0.instruments.host_refusals.add(1, &attributes);
        tracing::info!(
            event = "host.refused",
            reason,
            plugin,
            "a plugin's request to the host services was refused"
        );
    }
}
