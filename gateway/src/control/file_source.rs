//! Where the configuration comes from, and when it is read again: on SIGHUP at once, and when the file holds something
//! else at two looks in a row. Contents are compared, as those of certificates are
//! (docs/decisions/0017-certificates-by-content.md): that works through links that are swapped, as ConfigMaps' are, and
//! over file systems that tell nobody of a change. The second look leaves the writer time to finish.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{self, Config, LoadedConfig, Problem, Problems, environment_variables},
    fs::read_limited,
};

/// How often the file is looked at.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A file that is another at so many looks in a row never stands still: it is read as it is.
const MAX_UNSTABLE_POLLS: u32 = 10;

/// Tells contents apart; none: it can't be read.
type Fingerprint = Option<[u8; 32]>;

/// Reads a configuration.
type LoadFn = dyn Fn() -> Result<LoadedConfig, Problems> + Send + Sync;

/// What gives a configuration, and gives another when its file changes.
pub struct Source {
    /// None: it never changes.
    path: Option<PathBuf>,
    read: Box<LoadFn>,
    /// Of the file when it was read first.
    first: Fingerprint,
}

impl Source {
    /// The file at `path`, as it is from now on, with the environment over it.
    pub fn file(path: &Path) -> Self {
        let file = path.to_owned();
        Source::new(Some(path), move || config::load(&file, environment_variables()))
    }

    /// What `read` makes of the file at `path`, or of nothing that changes.
    pub fn new(
        path: Option<&Path>,
        read: impl Fn() -> Result<LoadedConfig, Problems> + Send + Sync + 'static,
    ) -> Self {
        let first = path.and_then(fingerprint);
        Source { path: path.map(Path::to_owned), read: Box::new(read), first }
    }

    /// The file as people call it.
    pub(crate) fn shown(&self) -> String {
        self.path.as_deref().unwrap_or(Path::new("the configuration")).display().to_string()
    }

    /// Reads it; `telemetry` makes what its telemetry asks for.
    ///
    /// # Errors
    /// Every mistake of the configuration, with the lines.
    pub(crate) fn load<T>(
        &self,
        telemetry: impl FnOnce(&Config) -> Result<T, String>,
    ) -> Result<(LoadedConfig, T), Problems> {
        let loaded = (self.read)()?;
        let telemetry = observed(&loaded, telemetry)?;
        Ok((loaded, telemetry))
    }

    /// Reads it once more, as [`Source::load`] does. A pipe gives nothing a second time, and may be waited for for ever.
    ///
    /// # Errors
    /// As [`Source::load`]; what is there is no file.
    pub(crate) fn again<T>(
        &self,
        telemetry: impl FnOnce(&Config) -> Result<T, String>,
    ) -> Result<(LoadedConfig, T), Problems> {
        if let Some(path) = self.path.as_deref().filter(|path| is_no_file(path)) {
            let (file, message) = (path.display().to_string(), "is not a regular file".to_owned());
            return Err(Problems::nowhere(&file, message, "put a file there, or restart the process"));
        }
        self.load(telemetry)
    }

    /// Notifies `again` whenever it is to be read again, until `stop`.
    pub(crate) async fn follow(&self, mut hangups: Signal, again: Arc<Notify>, stop: CancellationToken) {
        let Some(path) = self.path.clone() else { return };
        let mut looks = ChangeDetector::new(self.first);
        let look = async {
            loop {
                let asked = tokio::select! {
                    _ = hangups.recv() => true,
                    () = sleep(POLL_INTERVAL) => false,
                };
                let path = path.clone();
                let now = tokio::task::spawn_blocking(move || fingerprint(&path)).await.unwrap_or_default();
                if looks.wants(now, asked) {
                    again.notify_one();
                }
            }
        };
        stop.run_until_cancelled(look).await;
    }
}

/// What `telemetry` makes of what `loaded` asks for.
///
/// # Errors
/// It can't, with the line.
pub(crate) fn observed<T>(
    loaded: &LoadedConfig,
    telemetry: impl FnOnce(&Config) -> Result<T, String>,
) -> Result<T, Problems> {
    telemetry(&loaded.config)
        .map_err(|wrong| loaded.render(&[Problem::new("/telemetry/otlp_endpoint", wrong)]))
}

/// What was seen of the file.
struct ChangeDetector {
    /// When it was read last.
    read: Fingerprint,
    /// At the last look.
    seen: Fingerprint,
    /// How often in a row it was something else.
    restless: u32,
}

impl ChangeDetector {
    /// It was read when it held `first`.
    fn new(first: Fingerprint) -> Self {
        ChangeDetector { read: first, seen: first, restless: 0 }
    }

    /// Whether it is to be read, now that this is seen.
    fn wants(&mut self, now: Fingerprint, asked: bool) -> bool {
        let is_stable = now == std::mem::replace(&mut self.seen, now);
        self.restless = if is_stable { 0 } else { self.restless + 1 };
        let wants = asked || ((is_stable || self.restless >= MAX_UNSTABLE_POLLS) && now != self.read);
        if wants {
            (self.read, self.restless) = (now, 0);
        }
        wants
    }
}

/// Listens for SIGHUP, which would end the process otherwise.
pub(crate) fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Whether something is there that can be read once at most: a pipe, say, of a shell.
fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Nothing is taken out of a pipe. A file that is too large to be taken is as one that can't be read.
fn fingerprint(path: &Path) -> Fingerprint {
    // A pipe would wait for who writes it.
    fs::metadata(path).is_ok_and(|there| there.is_file()).then_some(())?;
    read_limited::file(path, config::MAX_FILE).ok().flatten().map(|bytes| Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_stands_still_with_another_content_or_somebody_asks() {
        let [first, half, second, none] = [Some([1; 32]), Some([2; 32]), Some([3; 32]), None];
        let mut looks = ChangeDetector::new(first);
        let seen = [
            (first, false, false),
            (half, false, false),   // being written
            (second, false, false), // still
            (second, false, true),
            (second, false, false), // read already
            (none, false, false),   // being replaced
            (second, false, false),
            (second, false, false),
            (half, true, true), // asked: as it is
            (half, false, false),
            (none, false, false),
            (none, false, true), // gone
            (none, false, false),
            (none, true, true),
        ];
        for (at, (now, asked, wanted)) in seen.into_iter().enumerate() {
            assert_eq!(looks.wants(now, asked), wanted, "look {at}");
        }
    }

    #[test]
    fn a_file_that_never_stands_still_is_read_now_and_then() {
        let mut looks = ChangeDetector::new(None);
        let wanted: Vec<_> = (1..=25).filter(|look| looks.wants(Some([*look; 32]), false)).collect();
        assert_eq!(wanted, [10, 20]);
    }
}
