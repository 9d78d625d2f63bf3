//! What programs write to standard error: lines of the runner's log, with the plugin's name.

use std::{sync::Arc, time::Duration};

use hookgate::upstream::Redaction;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    sync::watch,
    time::{Instant, timeout},
};

use crate::instances::Instance;

/// Longest line, in bytes. The rest of a longer one is left out.
pub(crate) const MAX_LINE_BYTES: u64 = 4096;
/// Most lines of a program in a second.
const MAX_LINES: u32 = 100;

/// How long the log of a fault waits for the rest of standard error, after the program was told to end.
const MAX_TAIL_WAIT: Duration = Duration::from_millis(500);

/// The standard error of one program.
pub(crate) struct OutputLog {
    plugin: Arc<str>,
    tenant: Arc<str>,
    instance: Arc<Instance>,
    rate: LineRate,
}

/// How many lines of a program are logged.
#[derive(Default)]
pub(crate) struct LineRate {
    /// When the current second began.
    second: Option<Instant>,
    /// Lines in this second.
    lines: u32,
    /// Lines that were left out in this second.
    dropped: u64,
}

/// Whether a line is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// The first one in its second that isn't.
    FirstDropped,
    Dropped,
}

impl Admission {
    pub(crate) fn is_admitted(self) -> bool {
        self == Admission::Admitted
    }

    pub(crate) fn is_first_dropped(self) -> bool {
        self == Admission::FirstDropped
    }
}

impl LineRate {
    /// Counts a line. At the end of a second, `report` gets the number of lines that were left out in it.
    pub(crate) fn admit(&mut self, report: impl FnOnce(u64)) -> Admission {
        if self.second.is_none_or(|begin| begin.elapsed() >= Duration::from_secs(1)) {
            self.end_second(report);
            (self.second, self.lines) = (Some(Instant::now()), 0);
        }
        if self.lines < MAX_LINES {
            self.lines += 1;
            return Admission::Admitted;
        }
        self.dropped += 1;
        if self.dropped == 1 { Admission::FirstDropped } else { Admission::Dropped }
    }

    fn end_second(&mut self, report: impl FnOnce(u64)) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            report(dropped);
        }
    }
}

impl OutputLog {
    pub(crate) fn new(plugin: Arc<str>, tenant: Arc<str>, instance: Arc<Instance>) -> Self {
        OutputLog { plugin, tenant, instance, rate: LineRate::default() }
    }

    /// Logs every line of `stderr` until its end.
    pub(crate) fn follow(self, stderr: impl AsyncRead + Unpin + Send + 'static) -> StderrTail {
        let (last_line, last) = watch::channel(StderrLine::default());
        tokio::spawn(self.read(stderr, last_line));
        StderrTail { last, seen: 0 }
    }

    async fn read(mut self, stderr: impl AsyncRead + Unpin, last_line: watch::Sender<StderrLine>) {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        while let Ok(read) = (&mut stderr).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await
            && read > 0
        {
            let is_cut = !line.ends_with(b"\n") && line.len() as u64 == MAX_LINE_BYTES;
            self.log(&line, is_cut);
            if !line.trim_ascii().is_empty() {
                last_line.send_modify(|last| {
                    *last = StderrLine { number: last.number + 1, text: line.clone(), is_cut };
                });
            }
            line.clear();
            if is_cut && skip_line(&mut stderr).await.is_err() {
                break;
            }
        }
        let (plugin, tenant) = (&*self.plugin, &*self.tenant);
        self.rate.end_second(|dropped| report_dropped(plugin, tenant, dropped));
    }

    /// Logs lines that a program wrote to standard output beside its reply.
    pub(crate) fn log_lines(plugin: &Arc<str>, tenant: &str, instance: &Instance, lines: &[String]) {
        for line in lines.iter().take(MAX_LINES as usize) {
            let end = line.floor_char_boundary(MAX_LINE_BYTES as usize);
            let text = redacted(&line.as_bytes()[..end], end < line.len(), &instance.redaction);
            tracing::info!(plugin = &**plugin, tenant, stream = "stdout", "{text}");
        }
    }

    fn log(&mut self, line: &[u8], is_cut: bool) {
        let (plugin, tenant) = (&*self.plugin, &*self.tenant);
        if self.rate.admit(|dropped| report_dropped(plugin, tenant, dropped)).is_admitted() {
            let text = redacted(line, is_cut, &self.instance.redaction);
            tracing::info!(plugin, tenant, stream = "stderr", "{text}");
        }
    }
}

fn report_dropped(plugin: &str, tenant: &str, dropped: u64) {
    tracing::warn!(
        plugin,
        tenant,
        dropped,
        "lines of standard error left out: more than {MAX_LINES} in a second"
    );
}

/// A line without its end, and without what must not be shown.
pub(crate) fn redacted(line: &[u8], is_cut: bool, redaction: &Redaction) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\n', '\r']);
    if is_cut { redaction.apply_to_cut(text) } else { redaction.apply(text) }
}

/// One line as it was written, also if the log left it out.
#[derive(Default)]
struct StderrLine {
    /// Counted from 1.
    number: u64,
    text: Vec<u8>,
    is_cut: bool,
}

/// The last line of a program's standard error.
#[derive(Clone)]
pub(crate) struct StderrTail {
    last: watch::Receiver<StderrLine>,
    /// The number of the last line that doesn't count.
    seen: u64,
}

impl StderrTail {
    /// The tail of what comes from now on.
    pub(crate) fn following(&self) -> Self {
        StderrTail { seen: self.last.borrow().number, last: self.last.clone() }
    }

    /// Waits for the end of standard error, but not for long, and returns the last line.
    pub(crate) async fn last(mut self, redaction: &Redaction) -> Option<String> {
        let _ = timeout(MAX_TAIL_WAIT, self.last.wait_for(|_| false)).await;
        let last = self.last.borrow();
        (last.number > self.seen).then(|| redacted(&last.text, last.is_cut, redaction))
    }
}

/// Skips the rest of a line, however long.
async fn skip_line(stderr: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<()> {
    loop {
        let buffer = stderr.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let read = end.map_or(buffer.len(), |end| end + 1);
        stderr.consume(read);
        if end.is_some() {
            return Ok(());
        }
    }
}
