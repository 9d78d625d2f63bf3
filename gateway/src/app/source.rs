//! Where the configuration comes from, and when it is read again: on SIGHUP at once, and when the file holds something
//! else at two looks in a row. Contents are compared, as those of certificates are
//! (docs/decisions/0017-certificates-by-content.md): that works through links that are swapped, as ConfigMaps' are, and
//! over file systems that tell nobody of a change. The second look leaves whoever writes it the time to finish.

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

use super::environment;
use crate::config::{self, Config, Loaded, Problem, Problems};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Tells contents apart; none: it can't be read.
type Fingerprint = Option<[u8; 32]>;

/// A configuration file.
pub(super) struct Source {
    path: PathBuf,
    /// Of what was last read, or is being read.
    read: Fingerprint,
}

impl Source {
    /// The file at `path`, as it is from now on.
    pub(super) fn file(path: &Path) -> Self {
        Source { path: path.to_owned(), read: fingerprint(path) }
    }

    /// Reads it; `telemetry` makes what its telemetry asks for.
    ///
    /// # Errors
    /// Every mistake of the configuration, with the lines.
    pub(super) fn load<T>(
        &self,
        telemetry: impl FnOnce(&Config) -> Result<T, String>,
    ) -> Result<(Loaded, T), Problems> {
        let loaded = config::load(&self.path, environment())?;
        let telemetry = telemetry(&loaded.config)
            .map_err(|wrong| loaded.render(&[Problem::new("/telemetry/otlp_endpoint", wrong)]))?;
        Ok((loaded, telemetry))
    }

    /// Notifies `again` whenever it is to be read again, until `stop`.
    pub(super) async fn follow(&self, mut hangups: Signal, again: Arc<Notify>, stop: CancellationToken) {
        let (mut read, mut seen) = (self.read, self.read);
        let look = async {
            loop {
                let asked = tokio::select! {
                    _ = hangups.recv() => true,
                    () = sleep(EVERY) => false,
                };
                let path = self.path.clone();
                let now = tokio::task::spawn_blocking(move || fingerprint(&path)).await.unwrap_or_default();
                let is_stable = now == std::mem::replace(&mut seen, now);
                if asked || (is_stable && now != read) {
                    read = now;
                    again.notify_one();
                }
            }
        };
        stop.run_until_cancelled(look).await;
    }
}

/// Listens for SIGHUP, which would end the process otherwise.
pub(super) fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

fn fingerprint(path: &Path) -> Fingerprint {
    fs::read(path).ok().map(|bytes| Sha256::digest(bytes).into())
}
