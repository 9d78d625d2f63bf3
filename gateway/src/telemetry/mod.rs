//! Telemetry of a running gateway: metrics, traces and log lines, over OTLP, as Prometheus text and on
//! standard error.
//!
//! This module holds the mechanism: [`ServerCall`] is the guard around a request on the data port and
//! [`PluginCall`] the guard around a call to a plugin. What is recorded of one invocation is in
//! [`records`](crate::records). A guard that is dropped before it has a result records that the caller went
//! away.
//!
//! All names are in [`names`]. Values of metric attributes come from the configuration or from closed sets.
//! The tenant is an attribute only for the tenants in `telemetry.tenant_labels`.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider as _},
    trace::TracerProvider as _,
};
use opentelemetry_sdk::trace::SdkTracer;
use prometheus::TextEncoder;
use uuid::Uuid;

use crate::{config::Config, core::block_status::FIXED_BLOCK_STATUSES};

mod control_spans;
mod document;
pub mod events;
mod export;
mod instruments;
mod json_fields;
mod json_line;
mod log;
mod log_queue;
pub mod names;
mod otlp_http;
mod otlp_logs;
mod plugin_call;
mod pretty_fields;
mod server_call;
mod tally;
pub mod terminal;
pub(crate) mod trace;
pub(crate) mod value;

pub use document::document;
pub use instruments::Measurement;
pub use log::{flush_log, log_dropped, say, start_log, start_log_of, start_plugin_log};
pub use plugin_call::{PluginCall, PluginCalls, ServerAttributes};
pub use server_call::ServerCall;
pub use tally::Totals;
pub(crate) use trace::current_trace_headers;
pub use trace::{InContext, Parent};

use events::Events;
use export::Providers;
use instruments::Instruments;
use names::{Metric, SCOPE, TENANT};
use tally::Tallies;

/// The telemetry of one gateway process; cheap to clone.
#[derive(Clone)]
pub struct Telemetry(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    instance: String,
    providers: Providers,
    /// `None` if spans aren't exported.
    tracer: Option<SdkTracer>,
    meter: Meter,
    pub(crate) instruments: Instruments,
    /// The URL scheme of the data port.
    scheme: &'static str,
    pub(crate) known: ArcSwap<TelemetrySettings>,
    events: Arc<Events>,
}

/// What the configuration says about what is recorded. Replaced when a configuration is applied.
pub(crate) struct TelemetrySettings {
    /// Tenants with their own series.
    tenants: BTreeSet<String>,
    /// Block codes that are named in metrics.
    pub(crate) codes: BTreeSet<Arc<str>>,
    pub(crate) tallies: Tallies,
    /// An invocation that takes longer is slow.
    pub(crate) slow: Duration,
}

impl TelemetrySettings {
    /// Only the protocol's own block codes.
    fn nothing() -> Self {
        let codes = FIXED_BLOCK_STATUSES.iter().map(|(code, _)| Arc::from(*code)).collect();
        TelemetrySettings {
            tenants: BTreeSet::new(),
            codes,
            tallies: Tallies::default(),
            slow: Duration::MAX,
        }
    }

    fn from_config(config: &Config, before: &Self) -> Self {
        let mut known = TelemetrySettings::nothing();
        let of_plugins = config.plugins.iter().flat_map(|plugin| plugin.block_status.keys());
        let configured = config.block_status.keys().chain(of_plugins);
        known.codes.extend(configured.map(|code| Arc::from(code.as_str())));
        known.tenants.extend(config.telemetry.tenant_labels.iter().cloned());
        let (tallies, slow) =
            (Tallies::from_config(config, &before.tallies), config.telemetry.slow_invocation.0);
        TelemetrySettings { tallies, slow, ..known }
    }
}

impl Telemetry {
    /// Starts logging, and the configured exports. Call it within the runtime.
    ///
    /// # Errors
    /// One sentence that names the configuration key of an endpoint that can't be used.
    pub fn start(config: &Config) -> Result<Self, String> {
        let telemetry = Self::without_log(config)?;
        let spans = telemetry.0.tracer.clone().map(control_spans::layer);
        log::start(&config.log, spans, telemetry.0.providers.logger.as_ref(), &telemetry.0.events);
        tokio::spawn(log::tell_of_overflows());
        Ok(telemetry)
    }

    /// Like [`Telemetry::start`], but without logging: the demo prints events itself.
    ///
    /// # Errors
    /// As [`Telemetry::start`].
    pub fn without_log(config: &Config) -> Result<Self, String> {
        let instance = Uuid::now_v7().to_string();
        let providers = Providers::new(&config.telemetry, &instance)?;
        let scheme = if config.server.tls.is_some() { "https" } else { "http" };
        Ok(Telemetry(Arc::new(Inner::new(instance, providers, scheme))))
    }

    /// Checks that [`Telemetry::start`] would accept this configuration, and returns telemetry that is
    /// discarded. Logs nothing.
    ///
    /// # Errors
    /// As [`Telemetry::start`].
    pub fn dry_run(config: &Config) -> Result<Self, String> {
        let providers = Providers::dry_run(&config.telemetry)?;
        Ok(Telemetry(Arc::new(Inner::new(Uuid::now_v7().to_string(), providers, "http"))))
    }

    /// Telemetry that is discarded: for a trial of a plugin, and for tests.
    pub fn unseen() -> Self {
        let instance = Uuid::now_v7().to_string();
        Telemetry(Arc::new(Inner::new(instance, Providers::none(), "http")))
    }

    /// Applies the plugins, block codes and tenants of `config`. Plugins that remain keep their counts.
    pub fn configured(&self, config: &Config) {
        let fresh = TelemetrySettings::from_config(config, &self.0.known.load());
        self.0.known.store(Arc::new(fresh));
    }

    /// Identifies this process: to plugins, and in every signal.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Recent and new events. Filled only if this instance started the log.
    pub fn events(&self) -> &Arc<Events> {
        &self.0.events
    }

    /// The body of `GET /metrics`: Prometheus text, version 0.0.4.
    ///
    /// # Errors
    /// One sentence, if a metric can't be written.
    pub fn prometheus(&self) -> Result<String, String> {
        let mut text = String::new();
        let families = self.0.providers.registry.gather();
        TextEncoder::new().encode_utf8(&families, &mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    /// Calls `read` for the values of `metric` on every collection.
    pub fn observe(&self, metric: &Metric, read: impl Fn() -> Vec<Measurement> + Send + Sync + 'static) {
        instruments::observe(&self.0.meter, metric, read);
    }

    /// Totals of the steps of `plugin` at sites of this [kind](crate::core::call_site::CallSite::kind) since the start.
    pub fn totals(&self, plugin: &str, kind: usize) -> Totals {
        self.0.known.load().tallies.totals(plugin, kind)
    }

    /// Flushes and shuts down. Returns after `limit` at the latest.
    pub async fn shutdown(&self, limit: Duration) {
        self.0.providers.shutdown(limit).await;
    }
}

impl Inner {
    fn new(instance: String, providers: Providers, scheme: &'static str) -> Self {
        let meter = providers.meter.meter(SCOPE);
        let tracer = providers.tracer.as_ref().map(|provider| provider.tracer(SCOPE));
        let instruments = Instruments::new(&meter);
        let known = ArcSwap::from_pointee(TelemetrySettings::nothing());
        Inner { instance, providers, tracer, meter, instruments, scheme, known, events: Arc::default() }
    }

    /// The tenant as a metric attribute, if it is listed in `telemetry.tenant_labels`.
    pub(crate) fn tenant_label(&self, tenant: Option<&Arc<str>>) -> Option<KeyValue> {
        let known = self.known.load();
        let tenant = tenant.filter(|tenant| known.tenants.contains(&***tenant))?;
        Some(KeyValue::new(TENANT, Arc::clone(tenant)))
    }
}
