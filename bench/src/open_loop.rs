//! Open-loop load: calls begin at a fixed rate, however long the answers take. Each latency counts from the
//! moment at which the call should have begun. So a call that begins late because of a stall has the whole
//! delay in its latency: nothing is omitted in coordination with the slow answers.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, sync::mpsc};

use crate::{
    BenchError,
    caller::{CallOutcome, Caller, GrpcCaller, Target},
    closed_loop::{Measurement, RunDurations, histogram},
    proc_fs::ThreadTimes,
};

/// Fewest calls that are measured, however slow the machine is.
const MIN_CALLS: u32 = 10;

/// One call: when it should have begun, and how and when it ended.
struct CallRecord {
    intended: Instant,
    ended: Instant,
    outcome: Result<CallOutcome, BenchError>,
}

/// Measures `rate` calls a second to the process `pid`, over `connections` connections in turn.
pub(crate) async fn measure(
    target: &Target,
    connections: usize,
    rate: f64,
    durations: RunDurations,
    pid: u32,
) -> Result<Measurement, BenchError> {
    let callers = target.callers(connections).await?.into_iter();
    let callers = callers.map(|caller| match caller {
        Caller::Grpc(caller) => Ok(caller),
        Caller::Http(_) => Err("open loops are measured over gRPC"),
    });
    let callers = callers.collect::<Result<Vec<_>, _>>()?;
    let interval = Duration::from_secs_f64(1.0 / rate);
    let measured = durations.measured.max(interval * MIN_CALLS);
    let begun = Instant::now();
    let (measured_from, until) = (begun + durations.warm_up, begun + durations.warm_up + measured);
    let (records, mut ended) = mpsc::unbounded_channel();
    let handle = Handle::current();
    thread::spawn(move || send_at_fixed_rate(callers, begun, interval, until, &handle, &records));
    let (mut micros, mut refused, mut before) = (histogram()?, 0, None);
    // The channel ends with the last call.
    while let Some(CallRecord { intended, ended, outcome }) = ended.recv().await {
        if intended < measured_from {
            continue;
        }
        if before.is_none() {
            before = Some(ThreadTimes::of_process(pid)?);
        }
        match outcome? {
            CallOutcome::Continued => {
                micros.saturating_record(u64::try_from((ended - intended).as_micros())?);
            }
            CallOutcome::Refused => {
                refused += 1;
                micros.saturating_record(u64::MAX);
            }
        }
    }
    let cpu = match before {
        Some(before) => ThreadTimes::of_process(pid)?.since(&before),
        None => return Err("no call was measured".into()),
    };
    Ok(Measurement { micros, refused, took: measured, cpu })
}

/// A thread of its own, because the runtime's timers have a resolution of one millisecond.
fn send_at_fixed_rate(
    mut callers: Vec<GrpcCaller>,
    begun: Instant,
    interval: Duration,
    until: Instant,
    handle: &Handle,
    records: &mpsc::UnboundedSender<CallRecord>,
) {
    let (mut intended, mut number) = (begun, 0);
    while intended < until {
        // Returns at once when the call is late.
        thread::sleep(intended.saturating_duration_since(Instant::now()));
        let turn = number % callers.len();
        let (call, records) = (callers[turn].next_call(), records.clone());
        handle.spawn(async move {
            let outcome = call.await;
            // Nobody listens any more after another call has failed.
            let _ = records.send(CallRecord { intended, ended: Instant::now(), outcome });
        });
        number += 1;
        intended += interval;
    }
}
