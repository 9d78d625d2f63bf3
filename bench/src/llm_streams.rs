//! The memory of the gateway while streams are open of which it holds nothing: each has had its first text, and waits.

use futures::{StreamExt as _, TryStreamExt as _};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::{
    BenchError,
    caller::{Caller, HttpAnswer, Protocol, Target},
    gateway_config,
    llm_provider::StreamShape,
    payload::{Payload, TENANT},
    rig::Rig,
    scale::mib,
    scenario::GatewaySetup,
};

/// The gateway's files beside the two connections of each stream.
const OTHER_FILES: u64 = 256;
/// How many streams begin at the same time.
const BEGINNING: usize = 64;

pub(crate) struct StreamMemory {
    /// Resident memory with all streams open.
    pub(crate) resident_mib: f64,
    /// What each stream adds to that.
    pub(crate) per_stream_kib: f64,
}

/// Measures a gateway of its own.
pub(crate) async fn measure(
    rig: &mut Rig,
    setup: GatewaySetup,
    streams: usize,
) -> Result<StreamMemory, BenchError> {
    let mut config = rig.config(setup)?;
    config["llm"]["limits"] = json!({ "exchanges": streams + 1, "tenant_exchanges": streams + 1 });
    let gateway = rig.start_gateway(&config)?;
    let target = Target {
        address: gateway.data_addr.clone(),
        protocol: Protocol::Http,
        payload: Payload::Stream(StreamShape::Stalled),
        tokens: vec![gateway_config::token(TENANT)?],
        ca: None,
    };
    // The first stream takes what the gateway keeps for all of them.
    let mut first = target.callers(1).await?;
    let _first = begin(&mut first).await?;
    let before = gateway.memory("VmRSS:")?;
    let mut callers = target.callers(streams).await?;
    let _open = begin(&mut callers).await?;
    let after = gateway.memory("VmRSS:")?;
    let per_stream_kib = after.saturating_sub(before) as f64 / streams as f64 / 1024.0;
    Ok(StreamMemory { resident_mib: mib(after), per_stream_kib })
}

/// Opens a stream of each caller.
async fn begin(callers: &mut [Caller]) -> Result<Vec<HttpAnswer>, BenchError> {
    let answers = callers.iter_mut().map(async |caller| match caller {
        Caller::Http(caller) => caller.begin().await,
        Caller::Grpc(_) => Err("streams are opened over HTTP".into()),
    });
    futures::stream::iter(answers).buffer_unordered(BEGINNING).try_collect().await
}

/// Lets this process, and those that it starts from now on, have as many files open as `streams` take. Many systems
/// allow 1,024 until a process asks for more.
pub(crate) fn allow_files(streams: usize) -> Result<(), BenchError> {
    let count = 2 * streams as u64 + OTHER_FILES;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        limit.current = Some(limit.maximum.map_or(count, |maximum| maximum.min(count)));
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}
