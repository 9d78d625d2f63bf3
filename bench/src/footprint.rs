//! The gateway's start and its resident memory, each measured with a gateway of its own.

use std::time::Duration;

use crate::{
    BenchError,
    caller::{Protocol, Target},
    closed_loop::{self, RunDurations},
    formula::SingleFigure,
    gateway_config,
    gateway_process::GatewayProcess,
    plugins::{ECHO_NAMES, WAIT_NAMES},
    rig::{Rig, borrowed},
    scale::mib,
};

/// Calls in flight.
const CALLS_IN_FLIGHT: usize = 64;
/// The time between two looks at the resident memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Measures the resident memory after one call, and the largest while calls are in flight. The plugin waits,
/// so nearly all callers have a call in flight at any moment.
pub(crate) async fn memory(
    rig: &mut Rig,
    durations: RunDurations,
) -> Result<[(SingleFigure, f64); 2], BenchError> {
    let plugins = rig.tcp_plugins(&WAIT_NAMES[..1])?;
    let gateway = rig.start_gateway(&gateway_config::chain(&borrowed(&plugins)))?;
    let target = Target::tool_calls(&gateway.data_addr, Protocol::Grpc)?;
    target.callers(1).await?[0].call().await?;
    let idle = gateway.memory("VmRSS:")?;
    let callers = target.callers(CALLS_IN_FLIGHT).await?;
    let calls = closed_loop::run(callers, durations.warm_up + durations.measured);
    tokio::pin!(calls);
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    let mut busy = 0;
    loop {
        tokio::select! {
            called = &mut calls => {
                called?;
                break;
            }
            _ = looks.tick() => busy = busy.max(gateway.memory("VmRSS:")?),
        }
    }
    Ok([(SingleFigure::IdleMemory, mib(idle)), (SingleFigure::BusyMemory, mib(busy))])
}

/// Measures the time from the start of the process until it is ready, in seconds. Each of `tenants` has a
/// binding for each of ten plugins.
pub(crate) fn start_time(rig: &mut Rig, tenants: usize) -> Result<f64, BenchError> {
    let plugins = rig.tcp_plugins(&ECHO_NAMES)?;
    let config = gateway_config::all_plugins_for_each_tenant(tenants, &borrowed(&plugins));
    let GatewayProcess { start_time, .. } = &rig.start_gateway(&config)?;
    Ok(start_time.as_secs_f64())
}
