//! What programs write to standard error: lines of the runner's log, with the plugin's name.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use crate::instances::Instance;

/// Longest line, in bytes. The rest of a longer one is left out.
const MAX_LINE_BYTES: u64 = 4096;
/// Most lines of a program in a second.
const MAX_LINES: u32 = 100;

/// The standard error of one program.
pub(crate) struct OutputLog {
    plugin: Arc<str>,
    tenant: Arc<str>,
    instance: Arc<Instance>,
    /// When the current second began.
    second: Instant,
    /// Lines in this second.
    lines: u32,
    /// Lines that were left out in this second.
    dropped: u64,
}

impl OutputLog {
    pub(crate) fn new(plugin: Arc<str>, tenant: Arc<str>, instance: Arc<Instance>) -> Self {
        OutputLog { plugin, tenant, instance, second: Instant::now(), lines: 0, dropped: 0 }
    }

    /// Logs every line of `stderr` until its end.
    pub(crate) async fn read(mut self, stderr: impl AsyncRead + Unpin) {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        while let Ok(read) = (&mut stderr).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await
            && read > 0
        {
            let is_cut = !line.ends_with(b"\n") && line.len() as u64 == MAX_LINE_BYTES;
            self.log(&line, is_cut);
            line.clear();
            if is_cut && skip_line(&mut stderr).await.is_err() {
                break;
            }
        }
        self.report_dropped();
    }

    fn log(&mut self, line: &[u8], is_cut: bool) {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.report_dropped();
            (self.second, self.lines) = (Instant::now(), 0);
        }
        if self.lines >= MAX_LINES {
            self.dropped += 1;
            return;
        }
        self.lines += 1;
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches(['\n', '\r']);
        let redaction = &self.instance.redaction;
        let text = if is_cut { redaction.apply_to_cut(text) } else { redaction.apply(text) };
        tracing::info!(plugin = &*self.plugin, tenant = &*self.tenant, stream = "stderr", "{text}");
    }

    fn report_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let (plugin, tenant) = (&*self.plugin, &*self.tenant);
            tracing::warn!(
                plugin,
                tenant,
                dropped,
                "lines of standard error left out: more than {MAX_LINES} in a second"
            );
        }
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
