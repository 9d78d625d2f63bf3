//! The current TLS configuration, replaced when its files change. The files' contents are compared every 2 s
//! (docs/decisions/0017-certificates-by-content.md): this also works with swapped links, and on file systems
//! without change notifications. Making a connection takes no lock and reads no file.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use tokio_util::sync::CancellationToken;

use super::{
    certificate::CertificateFacts,
    files::TlsFiles,
    material::{self, TlsMaterial},
};

/// How often the files are read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A rustls configuration that follows its files.
pub(super) struct ReloadingConfig<C> {
    /// The plugin that it belongs to. `None` for the gateway's own listener.
    plugin: Option<Arc<str>>,
    files: TlsFiles,
    make: MakeConfig<C>,
    current: ArcSwap<ActiveConfig<C>>,
    /// Locked during a check.
    judged: Mutex<CheckedFingerprints>,
}

/// Fingerprints of contents that were checked.
struct CheckedFingerprints {
    /// The contents that need no further check: they are current, or permanently invalid.
    settled: [u8; 32],
    /// The contents whose rejection was logged last.
    told: Option<[u8; 32]>,
}

/// Why contents are rejected.
enum MaterialError {
    /// They are invalid.
    Wrong(String),
    /// They are not valid now, but may be later.
    Untimely(String),
}

type MakeConfig<C> = Box<dyn Fn(TlsMaterial) -> Result<C, String> + Send + Sync>;

struct ActiveConfig<C> {
    config: Arc<C>,
    pair: Option<CertificateFacts>,
    ca: Option<CertificateFacts>,
}

impl<C: Send + Sync + 'static> ReloadingConfig<C> {
    /// Reads the files for the first time. An expired certificate is accepted with a warning: the gateway
    /// also serves things that don't depend on it, and peers reject it themselves.
    pub(super) fn load(
        plugin: Option<&str>,
        files: TlsFiles,
        make: impl Fn(TlsMaterial) -> Result<C, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let contents = files.read();
        let judged = Mutex::new(CheckedFingerprints { settled: contents.fingerprint(), told: None });
        let make: MakeConfig<C> = Box::new(make);
        let first = active_config(material::check(&files, contents)?, &make)?;
        if let Some((file, wrong)) = untimely(&files, &first) {
            tracing::warn!(
                event = "certificate.outside_validity",
                plugin,
                "the certificate of {file} {wrong}"
            );
        }
        let plugin = plugin.map(Into::into);
        Ok(ReloadingConfig { plugin, files, make, current: ArcSwap::from_pointee(first), judged })
    }

    /// The configuration for a connection that begins now.
    pub(super) fn current(&self) -> Arc<C> {
        Arc::clone(&self.current.load().config)
    }

    fn replace(
        &self,
        contents: super::files::TlsFileContents,
    ) -> Result<Arc<ActiveConfig<C>>, MaterialError> {
        let material = material::check(&self.files, contents).map_err(MaterialError::Wrong)?;
        let fresh = active_config(material, &self.make).map_err(MaterialError::Wrong)?;
        if let Some((file, wrong)) = untimely(&self.files, &fresh) {
            return Err(MaterialError::Untimely(format!("the certificate of {file} {wrong}")));
        }
        let fresh = Arc::new(fresh);
        self.current.store(Arc::clone(&fresh));
        Ok(fresh)
    }
}

fn active_config<C>(material: TlsMaterial, make: &MakeConfig<C>) -> Result<ActiveConfig<C>, String> {
    let pair = material.pair.as_ref().map(|pair| pair.facts.clone());
    let ca = material.ca.as_ref().map(|ca| ca.facts.clone());
    Ok(ActiveConfig { config: Arc::new(make(material)?), pair, ca })
}

fn untimely<C>(files: &TlsFiles, fresh: &ActiveConfig<C>) -> Option<(String, String)> {
    let wrong = fresh.pair.as_ref()?.untimely()?;
    Some((files.pair.as_ref()?.0.to_string(), wrong))
}

/// Object-safe view of any [`ReloadingConfig`].
trait WatchFiles: Send + Sync {
    /// Reads the files, and applies their contents if they are new and valid. Otherwise logs the reason,
    /// once. Blocks.
    fn look(&self);

    /// When the current certificates expire.
    fn expiries(&self) -> Vec<CertificateExpiry>;
}

impl<C: Send + Sync + 'static> WatchFiles for ReloadingConfig<C> {
    fn look(&self) {
        let mut judged = match self.judged.try_lock() {
            Ok(judged) => judged,
            // A hanging file system blocks one check; further ones would only block too.
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let contents = self.files.read();
        let fingerprint = contents.fingerprint();
        if judged.settled == fingerprint {
            return;
        }
        let plugin = self.plugin.as_deref();
        match self.replace(contents) {
            Ok(fresh) => {
                *judged = CheckedFingerprints { settled: fingerprint, told: None };
                let names = fresh.pair.as_ref().map(|facts| &*facts.names);
                let until = fresh.pair.as_ref().or(fresh.ca.as_ref()).map(|facts| &*facts.until);
                tracing::info!(event = "certificate.reloaded", plugin, names, until, "certificates reloaded");
            }
            Err(refused) => {
                let error = match refused {
                    MaterialError::Wrong(error) => {
                        judged.settled = fingerprint;
                        error
                    }
                    // Checked again every time, since the issuer's clock may be ahead of ours; logged once.
                    MaterialError::Untimely(error) => error,
                };
                if judged.told.replace(fingerprint) == Some(fingerprint) {
                    return;
                }
                tracing::warn!(
                    event = "certificate.refused",
                    plugin,
                    error,
                    "the old certificates stay active"
                );
            }
        }
    }

    fn expiries(&self) -> Vec<CertificateExpiry> {
        let current = self.current.load();
        let expiry = |of_ca, facts: &Option<CertificateFacts>| {
            let seconds_left = facts.as_ref()?.seconds_left();
            Some(CertificateExpiry { plugin: self.plugin.clone(), of_ca, seconds_left })
        };
        expiry(false, &current.pair).into_iter().chain(expiry(true, &current.ca)).collect()
    }
}

/// How long a current certificate is still valid.
#[derive(Debug, Clone)]
pub struct CertificateExpiry {
    /// The plugin that it is for. `None` for the gateway's own listener.
    pub plugin: Option<Arc<str>>,
    /// Whether the CA's certificate expires first, rather than the gateway's own.
    pub of_ca: bool,
    /// Negative once it has expired.
    pub seconds_left: i64,
}

/// All configurations that follow their files. Clones share one list.
#[derive(Clone, Default)]
pub struct CertificateWatch(Arc<WatchedFiles>);

#[derive(Default)]
struct WatchedFiles {
    all: Mutex<Vec<Weak<dyn WatchFiles>>>,
}

impl CertificateWatch {
    /// Follows the files of `reloaded` until it is dropped.
    pub(super) fn add<C: Send + Sync + 'static>(&self, reloaded: &Arc<ReloadingConfig<C>>) {
        let weak: Weak<ReloadingConfig<C>> = Arc::downgrade(reloaded);
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).push(weak);
    }

    fn all(&self) -> Vec<Arc<dyn WatchFiles>> {
        let mut all = self.0.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|weak| weak.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Applies changed files until `stop`. Reads on blocking threads.
    pub async fn follow(&self, stop: CancellationToken) {
        let look = async {
            loop {
                tokio::time::sleep(POLL_INTERVAL).await;
                for follows in self.all() {
                    // Not awaited, so that one that hangs doesn't delay the others.
                    drop(tokio::task::spawn_blocking(move || follows.look()));
                }
            }
        };
        tokio::select! {
            () = look => {}
            () = stop.cancelled() => {}
        }
    }

    /// When each current certificate expires.
    pub fn expiries(&self) -> Vec<CertificateExpiry> {
        self.all().iter().flat_map(|follows| follows.expiries()).collect()
    }
}

/// The CAs that this machine trusts, read once.
///
/// # Errors
/// There are none.
pub(super) fn platform_roots() -> Result<Arc<RootCertStore>, String> {
    static ROOTS: OnceLock<Result<Arc<RootCertStore>, String>> = OnceLock::new();
    ROOTS.get_or_init(read_platform_roots).clone()
}

fn read_platform_roots() -> Result<Arc<RootCertStore>, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Machines contain unusable certificates; the others still work.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("this system has no trusted CAs".to_owned());
    }
    Ok(Arc::new(roots))
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
