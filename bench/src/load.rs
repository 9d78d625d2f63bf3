//! Closed-loop load: each worker makes its next call when it has the answer to the previous one.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hookgate_proto::{
    gateway::v1::{BeforeToolCallRequest, extension_point_service_client::ExtensionPointServiceClient},
    types::v1::{BeforeToolCallPayload, Decision},
};
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

use crate::{BenchError, RunDurations, published::histogram};

/// The deadline of a call, which no call comes near.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// Typical arguments of a tool, 256 bytes.
const TOOL_ARGS: &str = r#"{"path": "/srv/reports/2026/november/sales.csv", "offset": 9007199254740993, "limit": 500, "columns": ["date", "region", "product", "amount", "currency"], "filter": {"region": "EMEA", "amount": {"gte": 1000}, "note": null}, "sort": "date", "format": "csv"}"#;

pub(crate) struct Measurement {
    /// Latencies in microseconds.
    pub(crate) micros: Histogram<u64>,
    pub(crate) took: Duration,
}

/// What to call, and with which token.
pub(crate) struct Target<'a> {
    pub(crate) address: &'a str,
    pub(crate) token: &'a str,
    /// Each worker has its own connection.
    pub(crate) workers: usize,
}

impl Target<'_> {
    /// Warms up, then measures; `started` is called in between.
    pub(crate) async fn measure(
        &self,
        pace: RunDurations,
        started: impl FnOnce() -> Result<(), BenchError>,
    ) -> Result<Measurement, BenchError> {
        let mut workers = Vec::with_capacity(self.workers);
        for _ in 0..self.workers {
            workers.push(Worker::connect(self.address, self.token).await?);
        }
        let (workers, _) = run(workers, pace.warm_up).await?;
        started()?;
        let begun = Instant::now();
        let (_, micros) = run(workers, pace.measured).await?;
        Ok(Measurement { micros, took: begun.elapsed() })
    }
}

/// Runs all workers for `time`.
async fn run(workers: Vec<Worker>, time: Duration) -> Result<(Vec<Worker>, Histogram<u64>), BenchError> {
    let until = Instant::now() + time;
    let running: Vec<_> = workers.into_iter().map(|worker| tokio::spawn(worker.work(until))).collect();
    let (mut workers, mut all) = (Vec::with_capacity(running.len()), histogram()?);
    for worker in running {
        let (worker, micros) = worker.await??;
        workers.push(worker);
        all.add(micros)?;
    }
    Ok((workers, all))
}

struct Worker {
    client: ExtensionPointServiceClient<Channel>,
    token: MetadataValue<Ascii>,
    request: BeforeToolCallRequest,
}

impl Worker {
    async fn connect(address: &str, token: &str) -> Result<Self, BenchError> {
        let channel = Endpoint::from_shared(address.to_owned())?.tcp_nodelay(true).connect().await?;
        let payload = BeforeToolCallPayload {
            tool_name: "fs.read".into(),
            args: TOOL_ARGS.into(),
            ..BeforeToolCallPayload::default()
        };
        let request = BeforeToolCallRequest { payload: Some(payload), ..BeforeToolCallRequest::default() };
        let client = ExtensionPointServiceClient::new(channel);
        Ok(Worker { client, token: format!("Bearer {token}").parse()?, request })
    }

    async fn work(mut self, until: Instant) -> Result<(Self, Histogram<u64>), BenchError> {
        let mut micros = histogram()?;
        loop {
            let mut request = Request::new(self.request.clone());
            request.metadata_mut().insert("authorization", self.token.clone());
            request.set_timeout(CALL_DEADLINE);
            let begun = Instant::now();
            let answer = self.client.before_tool_call(request).await?.into_inner();
            let ended = Instant::now();
            if answer.decision() != Decision::Continue {
                return Err(format!("an answer that is not to be measured: {answer:?}").into());
            }
            micros.saturating_record(u64::try_from((ended - begun).as_micros())?);
            if ended >= until {
                return Ok((self, micros));
            }
        }
    }
}
