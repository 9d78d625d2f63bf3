//! What operators see of a running gateway: metrics, traces and log lines, over OTLP, as Prometheus text and on
//! standard error.
//!
//! This module holds the mechanism: [`ServerCall`] is the guard around a request on the data port and [`PluginCall`] the
//! guard around a call to a plugin. What is recorded of one invocation is in [`records`](crate::records). A guard that is
//! dropped before it has a result records that the caller went away.
//!
//! Every name stands in [`names`]. Values of metric attributes come from the configuration or from closed sets, and a
//! tenant is among them only where `telemetry.tenant_labels` says so.

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

use crate::{
    config::Config,
    core::{block_status::FIXED_BLOCK_STATUSES, point::Point},
};

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
pub use instruments::Observed;
pub use log::{flush_log, log_dropped, say, start_log, start_plugin_log};
pub use plugin_call::{Parent, PluginCall, PluginCalls, Server};
pub use server_call::ServerCall;
pub use tally::Totals;
pub use trace::InContext;

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
    /// None: nobody would see the spans.
    tracer: Option<SdkTracer>,
    meter: Meter,
    pub(crate) instruments: Instruments,
    /// Of URLs on the data port.
    scheme: &'static str,
    pub(crate) known: ArcSwap<Known>,
    events: Arc<Events>,
}

/// What the configuration says about what is recorded; replaced when it is applied again.
pub(crate) struct Known {
    /// Tenants with series of their own.
    tenants: BTreeSet<String>,
    /// Block codes that stand on metrics by name.
    pub(crate) codes: BTreeSet<Arc<str>>,
    pub(crate) tallies: Tallies,
    /// Above it an invocation is slow.
    pub(crate) slow: Duration,
}

impl Known {
    /// Nothing but the protocol's.
    fn nothing() -> Self {
        let codes = FIXED_BLOCK_STATUSES.iter().map(|(code, _)| Arc::from(*code)).collect();
        Known { tenants: BTreeSet::new(), codes, tallies: Tallies::default(), slow: Duration::MAX }
    }

    fn of(config: &Config, before: &Self) -> Self {
        let mut known = Known::nothing();
        let of_plugins = config.plugins.iter().flat_map(|plugin| plugin.block_status.keys());
        let configured = config.block_status.keys().chain(of_plugins);
        known.codes.extend(configured.map(|code| Arc::from(code.as_str())));
        known.tenants.extend(config.telemetry.tenant_labels.iter().cloned());
        let (tallies, slow) = (Tallies::of(config, &before.tallies), config.telemetry.slow_invocation.0);
        Known { tallies, slow, ..known }
    }
}

impl Telemetry {
    /// Starts logging and what is configured beside it. Call it within the runtime.
    ///
    /// # Errors
    /// One sentence that names the key of an endpoint that can't be used.
    pub fn start(config: &Config) -> Result<Self, String> {
        let telemetry = Self::without_log(config)?;
        log::start(&config.log, None, telemetry.0.providers.logger.as_ref(), &telemetry.0.events);
        tokio::spawn(log::tell_of_overflows());
        Ok(telemetry)
    }

    /// As [`Telemetry::start`], but nothing is logged: the demo prints what happens itself.
    ///
    /// # Errors
    /// As [`Telemetry::start`].
    pub fn without_log(config: &Config) -> Result<Self, String> {
        let instance = Uuid::now_v7().to_string();
        let providers = Providers::new(&config.telemetry, &instance)?;
        let scheme = if config.server.tls.is_some() { "https" } else { "http" };
        Ok(Telemetry(Arc::new(Inner::new(instance, providers, scheme))))
    }

    /// Telemetry that nobody sees, of a configuration that [`Telemetry::start`] could start. Nothing is logged.
    ///
    /// # Errors
    /// As [`Telemetry::start`].
    pub fn dry_run(config: &Config) -> Result<Self, String> {
        let providers = Providers::dry_run(&config.telemetry)?;
        Ok(Telemetry(Arc::new(Inner::new(Uuid::now_v7().to_string(), providers, "http"))))
    }

    /// Telemetry that nobody sees: for one try of a plugin, and for tests.
    pub fn unseen() -> Self {
        let instance = Uuid::now_v7().to_string();
        Telemetry(Arc::new(Inner::new(instance, Providers::none(), "http")))
    }

    /// Records by `config` from now on: its plugins, its block codes, its tenants. What was counted of a plugin that is
    /// still in it stays.
    pub fn configured(&self, config: &Config) {
        let fresh = Known::of(config, &self.0.known.load());
        self.0.known.store(Arc::new(fresh));
    }

    /// Names this process: to plugins, in every signal.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// What happened lately, and does: filled where the log was started by this.
    pub fn events(&self) -> &Arc<Events> {
        &self.0.events
    }

    /// What `GET /metrics` answers: Prometheus text, version 0.0.4.
    ///
    /// # Errors
    /// One sentence, when a metric can't be written.
    pub fn prometheus(&self) -> Result<String, String> {
        let mut text = String::new();
        let families = self.0.providers.registry.gather();
        TextEncoder::new().encode_utf8(&families, &mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }

    /// Has `read` asked for the values of `metric` whenever metrics are collected.
    pub fn observe(&self, metric: &Metric, read: impl Fn() -> Vec<Observed> + Send + Sync + 'static) {
        instruments::observe(&self.0.meter, metric, read);
    }

    /// What the steps of `plugin` at `point` came to since the start.
    pub fn totals(&self, plugin: &str, point: Point) -> Totals {
        self.0.known.load().tallies.totals(plugin, point)
    }

    /// Sends what is left, and ends. Returns after `limit` at the latest.
    pub async fn shutdown(&self, limit: Duration) {
        self.0.providers.shutdown(limit).await;
    }
}

impl Inner {
    fn new(instance: String, providers: Providers, scheme: &'static str) -> Self {
        let meter = providers.meter.meter(SCOPE);
        let tracer = providers.tracer.as_ref().map(|provider| provider.tracer(SCOPE));
        let instruments = Instruments::new(&meter);
        let known = ArcSwap::from_pointee(Known::nothing());
        Inner { instance, providers, tracer, meter, instruments, scheme, known, events: Arc::default() }
    }

    /// The tenant as an attribute of metrics, where it may be one.
    pub(crate) fn tenant_label(&self, tenant: Option<&Arc<str>>) -> Option<KeyValue> {
        let known = self.known.load();
        let tenant = tenant.filter(|tenant| known.tenants.contains(&***tenant))?;
        Some(KeyValue::new(TENANT, Arc::clone(tenant)))
    }
}
