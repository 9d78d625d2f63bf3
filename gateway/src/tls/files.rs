//! The files of one end of TLS as bytes, and a fingerprint that tells whether they changed.

use std::{fmt, path::PathBuf};

use sha2::{Digest as _, Sha256};

use crate::{
    config,
    fs::{contained_path, read_limited},
};

/// Largest file, in bytes: four times the size of a bundle of every public CA.
const MAX_BYTES: u64 = 1 << 20;

/// A file that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct TlsFile {
    /// The configuration key that names the file.
    pub(super) key: &'static str,
    pub(super) path: PathBuf,
    /// The directory that the file must be in after links are resolved. `None` allows any.
    pub(super) within: Option<PathBuf>,
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.key, self.path.display())
    }
}

impl TlsFile {
    /// Reads the whole file. The error is one sentence.
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

/// Files that belong together: either all are used or none.
#[derive(Debug, Clone)]
pub(super) struct TlsFiles {
    /// The certificate chain of this end, and its key.
    pub(super) pair: Option<(TlsFile, TlsFile)>,
    /// The CAs trusted to issue the other end's certificate.
    pub(super) ca: Option<TlsFile>,
}

impl TlsFiles {
    /// Reads all files. Blocks.
    pub(super) fn read(&self) -> TlsFileContents {
        TlsFileContents {
            pair: self.pair.as_ref().map(|(chain, key)| (chain.read(), key.read())),
            ca: self.ca.as_ref().map(TlsFile::read),
        }
    }
}

/// The contents of the files. Secret.
pub(super) struct TlsFileContents {
    pub(super) pair: Option<(FileContent, FileContent)>,
    pub(super) ca: Option<FileContent>,
}

/// A file's bytes, or a sentence that says why it can't be read.
pub(super) type FileContent = Result<Vec<u8>, String>;

impl TlsFileContents {
    /// Equal for equal contents, regardless of the files' times and links.
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
