//! What an `add` in the gateway's storage costs a plugin, next to a raw unary call: a plugin makes both in turn and takes
//! the times itself.

use std::time::{Duration, Instant};

use hookgate_proto::plugin::v1::{ReleaseRequest, plugin_service_client::PluginServiceClient};
use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Capability, Context, Host, InitError, NoConfig,
    Offer, Plugin, Point, Reply,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tonic::transport::{Channel, Endpoint};

use crate::{
    BenchError,
    closed_loop::RunDurations,
    gateway_config,
    payload::TENANT,
    plugin_conversation::PluginConversation,
    process::RoleProcess,
    rig::{Rig, borrowed},
};

pub(crate) const ADD_NAME: &str = "add";
/// The grants of the plugin.
const GRANTS: [Capability; 1] = [Capability::StorageWrite];

/// Adds to a counter and calls the raw server, in turn, for as long as the configuration says.
pub(crate) struct AddPlugin {
    raw: PluginServiceClient<Channel>,
    config: AddConfig,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddConfig {
    /// The address of the raw server.
    raw: String,
    warm_up_seconds: f64,
    seconds: f64,
}

/// Medians in microseconds.
#[derive(Debug, Serialize, Deserialize)]
struct AddTimes {
    add: f64,
    raw: f64,
}

impl Plugin for AddPlugin {
    const NAME: &'static str = ADD_NAME;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const CAPABILITIES: &'static [Capability] = &GRANTS;
    type Config = AddConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.modify()]
    }

    async fn initialize(config: AddConfig, _: Host) -> Result<Self, InitError> {
        let raw = Endpoint::from_shared(config.raw.clone())?.tcp_nodelay(true).connect().await?;
        Ok(AddPlugin { raw: PluginServiceClient::new(raw), config })
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        _: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let storage = ctx.storage();
        let begun = Instant::now();
        let measured_from = begun + Duration::from_secs_f64(self.config.warm_up_seconds);
        let end = measured_from + Duration::from_secs_f64(self.config.seconds);
        let (mut raw, mut adds, mut calls) = (self.raw.clone(), Vec::new(), Vec::new());
        loop {
            let before = Instant::now();
            let _ = storage.add("counter", 1).await?;
            let between = Instant::now();
            raw.release(ReleaseRequest::default()).await?;
            let after = Instant::now();
            if before >= measured_from {
                adds.push(between - before);
                calls.push(after - between);
            }
            if after >= end && !adds.is_empty() {
                break;
            }
        }
        let times = AddTimes { add: median_us(adds), raw: median_us(calls) };
        Reply::proceed().args(&times)
    }
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Measures the median time of an `add` over that of a raw call, with SQLite.
pub(crate) async fn measure(rig: &mut Rig, durations: RunDurations) -> Result<f64, BenchError> {
    let raw = RoleProcess::start(&["raw-server"])?;
    let plugins = rig.tcp_plugins(&[ADD_NAME])?;
    let mut config = gateway_config::chain(&borrowed(&plugins));
    gateway_config::open_storage(&mut config, 0, &GRANTS);
    config["plugins"][0]["config"] = json!({
        "raw": raw.address,
        "warm_up_seconds": durations.warm_up.as_secs_f64(),
        "seconds": durations.measured.as_secs_f64(),
    });
    let gateway = rig.start_gateway(&config)?;
    let AddTimes { add, raw } = PluginConversation::open(&gateway.data_addr, TENANT).await?.ask("t").await?;
    Ok(add / raw)
}
