//! Where the configuration comes from, and when it is read again: on SIGHUP at once, and when the file holds something
//! else at two looks in a row. Contents are compared, as those of certificates are
//! (docs/decisions/0017-certificates-by-content.md): that works through links that are swapped, as ConfigMaps' are, and
//! over file systems that tell nobody of a change. The second look leaves whoever writes it the time to finish.

use std::{
    io,
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
use crate::bounded;
use crate::config::{self, Config, Loaded, Problem, Problems};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Tells contents apart; none: it can't be read.
type Fingerprint = Option<[u8; 32]>;

/// Reads a configuration.
type Read = dyn Fn() -> Result<Loaded, Problems> + Send + Sync;

/// What gives a configuration, and gives another when its file changes.
pub struct Source {
    /// None: it never changes.
    path: Option<PathBuf>,
    read: Box<Read>,
    /// Of the file when it was read first.
    first: Fingerprint,
}

impl Source {
    /// The file at `path`, as it is from now on, with the environment over it.
    pub fn file(path: &Path) -> Self {
        let file = path.to_owned();
        Source::new(Some(path), move || config::load(&file, environment()))
    }

    /// What `read` makes of the file at `path`, or of nothing that changes.
    pub fn new(
        path: Option<&Path>,
        read: impl Fn() -> Result<Loaded, Problems> + Send + Sync + 'static,
    ) -> Self {
        let first = path.and_then(fingerprint);
        Source { path: path.map(Path::to_owned), read: Box::new(read), first }
    }

    /// Reads it; `telemetry` makes what its telemetry asks for.
    ///
    /// # Errors
    /// Every mistake of the configuration, with the lines.
    pub(super) fn load<T>(
        &self,
        telemetry: impl FnOnce(&Config) -> Result<T, String>,
    ) -> Result<(Loaded, T), Problems> {
        let loaded = (self.read)()?;
        let telemetry = telemetry(&loaded.config)
            .map_err(|wrong| loaded.render(&[Problem::new("/telemetry/otlp_endpoint", wrong)]))?;
        Ok((loaded, telemetry))
    }

    /// Notifies `again` whenever it is to be read again, until `stop`.
    pub(super) async fn follow(&self, mut hangups: Signal, again: Arc<Notify>, stop: CancellationToken) {
        let Some(path) = self.path.clone() else { return };
        let mut looks = Looks { read: self.first, seen: self.first };
        let look = async {
            loop {
                let asked = tokio::select! {
                    _ = hangups.recv() => true,
                    () = sleep(EVERY) => false,
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

/// What was seen of the file.
struct Looks {
    /// When it was read last.
    read: Fingerprint,
    /// At the last look.
    seen: Fingerprint,
}

impl Looks {
    /// Whether it is to be read, now that this is seen.
    fn wants(&mut self, now: Fingerprint, asked: bool) -> bool {
        let is_stable = now == std::mem::replace(&mut self.seen, now);
        let wants = asked || (is_stable && now != self.read);
        if wants {
            self.read = now;
        }
        wants
    }
}

/// Listens for SIGHUP, which would end the process otherwise.
pub(super) fn hangups() -> io::Result<Signal> {
    signal(SignalKind::hangup())
}

fn fingerprint(path: &Path) -> Fingerprint {
    bounded::file(path, config::MAX_FILE).ok().flatten().map(|bytes| Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_stands_still_with_another_content_or_somebody_asks() {
        let [first, half, second, none] = [Some([1; 32]), Some([2; 32]), Some([3; 32]), None];
        let mut looks = Looks { read: first, seen: first };
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
}
