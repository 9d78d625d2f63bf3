//! Closed-loop load: each caller makes its next call when it has the answer to the previous one.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::{BenchError, caller::Caller, proc_fs::ThreadTimes};

/// How long each measurement runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunDurations {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// The result of one run of load.
pub(crate) struct Measurement {
    /// Latencies in microseconds.
    pub(crate) micros: Histogram<u64>,
    /// Calls that were refused for lack of room. They count in `micros` as the slowest.
    pub(crate) refused: u64,
    pub(crate) took: Duration,
    /// The CPU time of the called process.
    pub(crate) cpu: Duration,
}

/// A histogram from one microsecond to one minute with three digits.
pub(crate) fn histogram() -> Result<Histogram<u64>, BenchError> {
    Ok(Histogram::new_with_bounds(1, 60_000_000, 3)?)
}

/// Measures `callers` of the process `pid`.
pub(crate) async fn measure(
    callers: Vec<Caller>,
    durations: RunDurations,
    pid: u32,
) -> Result<Measurement, BenchError> {
    let (callers, _) = run(callers, durations.warm_up).await?;
    let (before, begun) = (ThreadTimes::of_process(pid)?, Instant::now());
    let (_, micros) = run(callers, durations.measured).await?;
    let took = begun.elapsed();
    let cpu = ThreadTimes::of_process(pid)?.since(&before);
    Ok(Measurement { micros, refused: 0, took, cpu })
}

/// Runs all callers for `time`.
pub(crate) async fn run(
    callers: Vec<Caller>,
    time: Duration,
) -> Result<(Vec<Caller>, Histogram<u64>), BenchError> {
    let until = Instant::now() + time;
    let running: Vec<_> = callers.into_iter().map(|caller| tokio::spawn(work(caller, until))).collect();
    let (mut callers, mut all) = (Vec::with_capacity(running.len()), histogram()?);
    for caller in running {
        let (caller, micros) = caller.await??;
        callers.push(caller);
        all.add(micros)?;
    }
    Ok((callers, all))
}

async fn work(mut caller: Caller, until: Instant) -> Result<(Caller, Histogram<u64>), BenchError> {
    let mut micros = histogram()?;
    loop {
        let begun = Instant::now();
        let ended = caller.call().await?;
        micros.saturating_record(u64::try_from((ended - begun).as_micros())?);
        if ended >= until {
            return Ok((caller, micros));
        }
    }
}
