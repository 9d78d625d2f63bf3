//! What calls cost while a plugin that another tenant uses writes to the gateway's storage. Calls with and without the writes
//! alternate, so that other load on the machine affects both.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Capability, Context, Host, InitError, NoConfig,
    Offer, Plugin, Point, Reply,
};
use serde_json::json;
use tokio::time::interval;

use crate::{
    BenchError,
    caller::{Protocol, Target},
    closed_loop::{self, RunDurations, histogram},
    gateway_config,
    payload::TENANT,
    plugin_conversation::PluginConversation,
    plugins::ECHO_NAMES,
    rig::{Rig, borrowed},
};

pub(crate) const TRAFFIC_NAME: &str = "traffic";
const STORING_TENANT: &str = "storing";
const GRANTS: [Capability; 1] = [Capability::StorageWrite];
/// 200 writes a second.
const WRITE_INTERVAL: Duration = Duration::from_millis(5);
/// In which order calls with and without writes alternate: what drifts affects both.
const TURNS: [&str; 4] = [OFF, ON, ON, OFF];
/// The tool names with which a call switches the writes on and off.
const ON: &str = "on";
const OFF: &str = "off";

/// Adds to a counter in the background while it is switched on. It answers a call with the number of writes so far.
pub(crate) struct TrafficPlugin(Arc<TrafficState>);

#[derive(Default)]
struct TrafficState {
    is_on: AtomicBool,
    writes: AtomicU64,
}

impl Plugin for TrafficPlugin {
    const NAME: &'static str = TRAFFIC_NAME;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const CAPABILITIES: &'static [Capability] = &GRANTS;
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.modify()]
    }

    async fn initialize(_: NoConfig, host: Host) -> Result<Self, InitError> {
        let state = Arc::new(TrafficState::default());
        let plugin = TrafficPlugin(Arc::clone(&state));
        tokio::spawn(async move {
            let mut ticks = interval(WRITE_INTERVAL);
            // Ends with the instance.
            while Arc::strong_count(&state) > 1 {
                ticks.tick().await;
                if state.is_on.load(Ordering::Relaxed) && host.storage().add("counter", 1).await.is_ok() {
                    state.writes.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(plugin)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let TrafficState { is_on, writes } = &*self.0;
        is_on.store(call.tool_name == ON, Ordering::Relaxed);
        Reply::proceed().args(&writes.load(Ordering::Relaxed))
    }
}

/// Measures the median time of calls beside writes over that of calls without, with SQLite and one echo plugin.
pub(crate) async fn measure(rig: &mut Rig, durations: RunDurations) -> Result<f64, BenchError> {
    let plugins = rig.tcp_plugins(&[ECHO_NAMES[0], TRAFFIC_NAME])?;
    let mut config = gateway_config::chain(&borrowed(&plugins));
    gateway_config::open_storage(&mut config, 1, &GRANTS);
    config["tenants"]["list"] = json!([{ "id": TENANT }, { "id": STORING_TENANT }]);
    config["bindings"][0]["tenant"] = json!(TENANT);
    config["bindings"][1]["tenant"] = json!(STORING_TENANT);
    let gateway = rig.start_gateway(&config)?;
    let mut switch = PluginConversation::open(&gateway.data_addr, STORING_TENANT).await?;
    let target = Target::tool_calls(&gateway.data_addr, Protocol::Grpc)?;
    let (mut callers, _) = closed_loop::run(target.callers(1).await?, durations.warm_up).await?;
    let (mut beside, mut alone) = (histogram()?, histogram()?);
    let mut written_for = Duration::ZERO;
    for state in TURNS {
        let _: u64 = switch.ask(state).await?;
        let begun = Instant::now();
        let found;
        (callers, found) = closed_loop::run(callers, durations.measured.div_f64(TURNS.len() as f64)).await?;
        if state == ON {
            written_for += begun.elapsed();
            beside.add(found)?;
        } else {
            alone.add(found)?;
        }
    }
    let writes: u64 = switch.ask(OFF).await?;
    let expected = written_for.as_millis() / WRITE_INTERVAL.as_millis();
    if u128::from(writes) < expected / 2 {
        return Err(format!("the plugin made {writes} of {expected} writes").into());
    }
    Ok(beside.value_at_quantile(0.5) as f64 / alone.value_at_quantile(0.5).max(1) as f64)
}
