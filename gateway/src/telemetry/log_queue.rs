//! A bounded queue between loggers and standard error, and the thread that writes it out.
//!
//! Logging never waits for a reader: the lock is held only while a line is copied, never during a write. A
//! line that doesn't fit is dropped and counted (docs/decisions/0041-the-log-is-not-waited-for.md). The queue
//! doesn't interpret the lines.

use std::{
    io::{ErrorKind, Write},
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::value::{MAX_LINE_BYTES, cut_line};

/// Most bytes of queued lines. As many may already be with the writer.
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Minimum time between reports of dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Largest write that is atomic on a pipe (`PIPE_BUF` on Linux), so that lines of several processes don't
/// mix.
const MAX_WRITE_BYTES: usize = 4096;
/// Delay before a retry if standard error is full and non-blocking, because another process that shares it
/// made it so.
const WRITE_RETRY_DELAY: Duration = Duration::from_millis(10);

pub(super) struct LogQueue {
    state: Mutex<LogQueueState>,
    /// Notified when there is something to write.
    filled: Condvar,
    /// Notified when everything is written.
    emptied: Condvar,
    /// Dropped lines since the start.
    dropped: AtomicU64,
    overflowed: Notify,
}

#[derive(Default)]
struct LogQueueState {
    lines: Vec<u8>,
    /// Dropped lines since the last report.
    dropped: u64,
    reported_at: Option<Instant>,
    is_writing: bool,
    /// Whether the last write failed. Until one succeeds, nothing would read the report.
    is_failing: bool,
    is_flushing: bool,
}

impl LogQueueState {
    /// Time until dropped lines are due to be reported. Returns `None` if there are none.
    fn report_in(&self) -> Option<Duration> {
        let since = |at: Instant| REPORT_INTERVAL.saturating_sub(at.elapsed());
        let left = if self.is_flushing { None } else { self.reported_at.map(since) };
        (self.dropped > 0 && !self.is_failing).then(|| left.unwrap_or_default())
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty() && !self.is_writing && self.report_in().is_none()
    }
}

impl LogQueue {
    /// Starts the thread. Once `output` accepts lines again, `report` gets the number of dropped lines; what
    /// it logs appears where they are missing.
    pub(super) fn start(
        output: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> Arc<Self> {
        let queue = Arc::new(LogQueue {
            state: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            dropped: AtomicU64::new(0),
            overflowed: Notify::new(),
        });
        let writer = Arc::clone(&queue);
        let spawned =
            thread::Builder::new().name("log".into()).spawn(move || writer.write_all(output, report));
        spawned.expect("a process that starts may have a thread");
        queue
    }

    fn locked(&self) -> MutexGuard<'_, LogQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a line, including its newline, or drops it if there is no room.
    pub(super) fn push(&self, line: &[u8]) {
        if line.len() > MAX_LINE_BYTES {
            self.push_text(&cut_line(line));
        } else {
            self.push_text(line);
        }
    }

    /// Like [`Self::push`], for text of any length.
    pub(super) fn push_text(&self, text: &[u8]) {
        let mut state = self.locked();
        if state.lines.len() + text.len() > MAX_QUEUED_BYTES {
            self.drop_lines(state, text);
        } else {
            state.lines.extend_from_slice(text);
            self.filled.notify_one();
        }
    }

    fn drop_lines(&self, mut state: MutexGuard<'_, LogQueueState>, lines: &[u8]) {
        let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        let is_first = state.dropped == 0;
        state.dropped += count;
        drop(state);
        self.dropped.fetch_add(count, Relaxed);
        if is_first {
            self.overflowed.notify_one();
        }
    }

    /// How many lines were dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub(super) async fn overflowed(&self) {
        self.overflowed.notified().await;
    }

    /// Waits until everything is written, for at most `limit`. From now on dropped lines are reported at
    /// once.
    pub(super) fn flush(&self, limit: Duration) {
        let mut state = self.locked();
        state.is_flushing = true;
        self.filled.notify_one();
        let waited = self.emptied.wait_timeout_while(state, limit, |state| !state.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn write_all(&self, mut output: impl Write, report: impl Fn(u64)) {
        loop {
            let (lines, dropped) = self.next();
            if dropped > 0 {
                // After everything accepted so far, and before what follows.
                report(dropped);
            }
            let unwritten = write_lines(&mut output, &lines).err();
            let mut state = self.locked();
            state.is_writing = false;
            state.is_failing = unwritten.is_some();
            if let Some(unwritten) = unwritten {
                self.drop_lines(state, unwritten);
            }
        }
    }

    /// Waits for something to write, or to report.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut state = self.locked();
        loop {
            let report_in = state.report_in();
            let is_due = report_in.is_some_and(|left| left.is_zero());
            if is_due || !state.lines.is_empty() {
                state.is_writing = true;
                let mut dropped = 0;
                if is_due {
                    dropped = mem::take(&mut state.dropped);
                    state.reported_at = Some(Instant::now());
                }
                return (mem::take(&mut state.lines), dropped);
            }
            if state.is_empty() {
                self.emptied.notify_all();
            }
            let waited = self.filled.wait_timeout(state, report_in.unwrap_or(Duration::MAX));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Writes the lines in pieces.
///
/// # Errors
/// The lines that could not be written.
fn write_lines<'a>(output: &mut impl Write, lines: &'a [u8]) -> Result<(), &'a [u8]> {
    let mut rest = lines;
    while !rest.is_empty() {
        match output.write(first_lines(rest)) {
            Ok(0) => return Err(rest),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(WRITE_RETRY_DELAY),
            Err(_) => return Err(rest),
        }
    }
    Ok(())
}

/// As many whole lines as fit into one write; at least one.
fn first_lines(lines: &[u8]) -> &[u8] {
    if lines.len() <= MAX_WRITE_BYTES {
        return lines;
    }
    let is_end = |byte: &u8| *byte == b'\n';
    let end = lines[..MAX_WRITE_BYTES].iter().rposition(is_end).or_else(|| lines.iter().position(is_end));
    end.map_or(lines, |end| &lines[..=end])
}

#[cfg(test)]
#[path = "log_queue_tests.rs"]
pub(super) mod tests;
