//! What programs write to standard error: lines of the runner's log, with the plugin's name.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use crate::instances::Instance;

/// Longest line, in bytes. The rest of a longer one is left out.
const MAX_LINE_BYTES: u64 = 4096;
/// Most lines of a plugin in a second.
const MAX_LINES: u32 = 100;

/// The lines of one plugin.
pub(crate) struct OutputLog {
    plugin: String,
    second: Mutex<LoggedSecond>,
}

struct LoggedSecond {
    began: Instant,
    lines: u32,
    dropped: u64,
}

impl OutputLog {
    pub(crate) fn new(plugin: &str) -> Self {
        let second = LoggedSecond { began: Instant::now(), lines: 0, dropped: 0 };
        OutputLog { plugin: plugin.to_owned(), second: Mutex::new(second) }
    }

    /// Logs every line of `stderr` until its end.
    pub(crate) async fn read(
        self: Arc<Self>,
        stderr: impl AsyncRead + Unpin,
        tenant: Arc<str>,
        instance: Arc<Instance>,
    ) {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut stderr).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let is_whole = line.ends_with(b"\n");
            let text = String::from_utf8_lossy(&line);
            let text = instance.redaction.apply_to_beginning(text.trim_end_matches(['\n', '\r']));
            self.log(&tenant, &text);
            if !is_whole && line.len() as u64 == MAX_LINE_BYTES && skip_line(&mut stderr).await.is_err() {
                return;
            }
        }
    }

    fn log(&self, tenant: &str, line: &str) {
        let plugin = &*self.plugin;
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if second.began.elapsed() >= Duration::from_secs(1) {
            if second.dropped > 0 {
                let dropped = second.dropped;
                tracing::warn!(
                    plugin,
                    dropped,
                    "lines of standard error left out: more than {MAX_LINES} in a second"
                );
            }
            *second = LoggedSecond { began: Instant::now(), lines: 0, dropped: 0 };
        }
        if second.lines >= MAX_LINES {
            second.dropped += 1;
            return;
        }
        second.lines += 1;
        drop(second);
        tracing::info!(plugin, tenant, stream = "stderr", "{line}");
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
