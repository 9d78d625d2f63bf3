//! The files of one end of TLS, as bytes: what is in them, and whether that is what it was.

use std::{fmt, path::PathBuf};

use sha2::{Digest as _, Sha256};

use crate::{
    config,
    fs::{contained_path, read_limited},
};

/// Largest file that is read, in bytes: a bundle of every public CA has a quarter of it.
const MAX_BYTES: u64 = 1 << 20;

/// A file that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct TlsFile {
    /// The key that names it.
    pub(super) key: &'static str,
    pub(super) path: PathBuf,
    /// It must lie below this directory, wherever links lead; none: it may be anywhere.
    pub(super) within: Option<PathBuf>,
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.key, self.path.display())
    }
}

impl TlsFile {
    /// Whole; else one sentence.
    fn read(&self) -> Result<Vec<u8>, String> {
        let real = match &self.within {
            None => Ok(Some(self.path.clone())),
            Some(dir) => contained_path::real(&self.path, [&**dir]),
        };
        let path = real.map_err(|error| config::unreadable(self, &error))?;
        let path = path.ok_or_else(|| format!("{self} leads out of the directory that it has to lie in"))?;
        match read_limited::file(&path, MAX_BYTES) {
            Err(error) => Err(config::unreadable(self, &error)),
            Ok(None) => Err(format!("{self} is larger than 1 MiB: name a file of certificates or a key")),
            Ok(Some(bytes)) => Ok(bytes),
        }
    }
}

/// The files that belong together: used all or not at all.
#[derive(Debug, Clone)]
pub(super) struct TlsFiles {
    /// The certificate chain of this end, and its key.
    pub(super) pair: Option<(TlsFile, TlsFile)>,
    /// Who may vouch for the other end.
    pub(super) ca: Option<TlsFile>,
}

impl TlsFiles {
    /// Reads them all; blocks.
    pub(super) fn read(&self) -> TlsFileContents {
        TlsFileContents {
            pair: self.pair.as_ref().map(|(chain, key)| (chain.read(), key.read())),
            ca: self.ca.as_ref().map(TlsFile::read),
        }
    }
}

/// What was in the files; secret.
pub(super) struct TlsFileContents {
    pub(super) pair: Option<(FileContent, FileContent)>,
    pub(super) ca: Option<FileContent>,
}

/// A file's bytes, or the sentence that says why there are none.
pub(super) type FileContent = Result<Vec<u8>, String>;

impl TlsFileContents {
    /// The same for the same contents, whatever the files' times and links are.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let pair = self.pair.iter().flat_map(|(chain, key)| [chain, key]);
        let mut hash = Sha256::new();
        for content in pair.chain(&self.ca) {
            let (kind, bytes) = match content {
                Ok(bytes) => (0, bytes.as_slice()),
                Err(sentence) => (1, sentence.as_bytes()),
            };
            hash.update([kind]);
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        }
        hash.finalize().into()
    }
}
