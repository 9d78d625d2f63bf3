//! The last good table: the contents that were active last, in a local file. A start uses them while the
//! database can't be reached. The file holds references unresolved, and only its owner may read it.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{fs::read_limited, store::Snapshot};

/// The version of the file format.
const FORMAT_VERSION: u32 = 1;
/// The maximum size of the file in bytes: 100 times the size for 10,000 tenants.
const MAX_FILE: u64 = 1 << 30;

/// The first line of the file. The second is the snapshot.
#[derive(Serialize, Deserialize)]
struct LastGoodHeader {
    format: u32,
    /// Identifies the database: SHA-256 of the URL without credentials.
    store: String,
    /// SHA-256 of the second line.
    sha256: String,
}

/// The file, and the database that it belongs to.
pub(super) struct LastGood {
    path: PathBuf,
    store: String,
}

impl LastGood {
    /// The file at `path` for the database at `url`, which must not contain credentials.
    pub(super) fn new(path: &Path, url: &str) -> Self {
        LastGood { path: path.to_owned(), store: sha256(url.as_bytes()) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file atomically.
    pub(super) fn write(&self, snapshot: &Snapshot) -> io::Result<()> {
        let body = serde_json::to_vec(snapshot)?;
        let head =
            LastGoodHeader { format: FORMAT_VERSION, store: self.store.clone(), sha256: sha256(&body) };
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // Created with mode 0600.
        let mut file = tempfile::Builder::new().prefix(".hookgate-last-good").tempfile_in(folder)?;
        file.write_all(&serde_json::to_vec(&head)?)?;
        file.write_all(b"\n")?;
        file.write_all(&body)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        fs::File::open(folder)?.sync_all()
    }

    /// Reads the file; returns `None` if there is none.
    ///
    /// # Errors
    /// Why the file can't be used, in words that follow the path in a sentence.
    pub(super) fn read(&self) -> Result<Option<Snapshot>, String> {
        let bytes = match read_limited::file(&self.path, MAX_FILE) {
            Ok(bytes) => bytes.ok_or("is larger than 1 GiB")?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("can't be read: {error}")),
        };
        let broken = || "is incomplete".to_owned();
        let at = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(broken)?;
        let (head, body) = (&bytes[..at], bytes[at + 1..].trim_ascii_end());
        let head: LastGoodHeader = serde_json::from_slice(head).map_err(|_| broken())?;
        if head.format != FORMAT_VERSION {
            return Err(format!("has form {}, which this version doesn't know", head.format));
        }
        if head.store != self.store {
            return Err("is of another database".into());
        }
        if head.sha256 != sha256(body) {
            return Err(broken());
        }
        serde_json::from_slice(body).map(Some).map_err(|_| broken())
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
