//! The source of the configuration, and when to read it again: at once on SIGHUP, and when two consecutive
//! polls of the file agree on new contents. Contents are compared, as with certificates
//! (docs/decisions/0017-certificates-by-content.md). That also works for swapped links, which ConfigMaps use,
//! and on file systems without change notifications. The second poll gives the writer time to finish.

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

/// How often the file is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A file that differs at this many polls in a row never becomes stable, so it is read as it is.
const MAX_UNSTABLE_POLLS: u32 = 10;

/// Identifies contents. `None` if the file can't be read.
type Fingerprint = Option<[u8; 32]>;

/// Reads a configuration.
type LoadFn = dyn Fn() -> Result<LoadedConfig, Problems> + Send + Sync;

/// Reads the configuration, and tells when to read it again.
pub struct Source {
    /// `None` if it never changes.
    path: Option<PathBuf>,
    read: Box<LoadFn>,
    /// The file's fingerprint at the first read.
    first: Fingerprint,
}

impl Source {
    /// The file at `path`, overridden by the environment.
    pub fn file(path: &Path) -> Self {
        let file = path.to_owned();
        Source::new(Some(path), move || config::load(&file, environment_variables()))
    }

    /// A source that calls `read`. If `path` is given, changes of that file trigger another read.
    pub fn new(
        path: Option<&Path>,
        read: impl Fn() -> Result<LoadedConfig, Problems> + Send + Sync + 'static,
    ) -> Self {
        let first = path.and_then(fingerprint);
        Source { path: path.map(Path::to_owned), read: Box::new(read), first }
    }

    /// The file's name for people.
    pub(crate) fn shown(&self) -> String {
        self.path.as_deref().unwrap_or(Path::new("the configuration")).display().to_string()
    }

    /// Reads the configuration. `telemetry` builds the telemetry that it asks for.
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

    /// Reads again, like [`Source::load`]. Pipes are rejected: they can't be read twice, and reading could
    /// block for ever.
    ///
    /// # Errors
    /// Those of [`Source::load`], and a path that isn't a regular file.
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

    /// Notifies `again` whenever the configuration should be read again, until `stop`.
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

/// Builds what `loaded` asks for with `telemetry`.
///
/// # Errors
/// That of `telemetry`, with its line in the file.
pub(crate) fn observed<T>(
    loaded: &LoadedConfig,
    telemetry: impl FnOnce(&Config) -> Result<T, String>,
) -> Result<T, Problems> {
    telemetry(&loaded.config)
        .map_err(|wrong| loaded.render(&[Problem::new("/telemetry/otlp_endpoint", wrong)]))
}

/// Detects changes of the file.
struct ChangeDetector {
    /// The contents that were read last.
    read: Fingerprint,
    /// The contents at the last poll.
    seen: Fingerprint,
    /// How many polls in a row found different contents.
    restless: u32,
}

impl ChangeDetector {
    /// Starts with `first` as the contents that were read.
    fn new(first: Fingerprint) -> Self {
        ChangeDetector { read: first, seen: first, restless: 0 }
    }

    /// Whether to read the file, given its current contents. `asked` forces it.
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

/// Whether the path can be read only once, such as a shell's pipe.
fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Doesn't read from pipes. A file that exceeds the size limit counts as unreadable.
fn fingerprint(path: &Path) -> Fingerprint {
    // Reading a pipe would wait for its writer.
    fs::metadata(path).is_ok_and(|there| there.is_file()).then_some(())?;
    read_limited::file(path, config::MAX_FILE).ok().flatten().map(|bytes| Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_its_new_contents_are_stable_or_on_request() {
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
    fn a_file_that_never_becomes_stable_is_read_now_and_then() {
        let mut looks = ChangeDetector::new(None);
        let wanted: Vec<_> = (1..=25).filter(|look| looks.wants(Some([*look; 32]), false)).collect();
        assert_eq!(wanted, [10, 20]);
    }
}
