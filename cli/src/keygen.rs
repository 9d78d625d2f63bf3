//! Keys that are made here: from the system's random numbers, and in files for their owner alone.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Of a key, in bytes; the shared secret of an issuer has at least as many.
const KEY_BYTES: usize = 32;

/// A secret that nobody else knows, as text.
///
/// # Errors
/// One sentence, when the system has no random numbers.
pub(super) fn random() -> Result<String, String> {
    let mut bytes = [0; KEY_BYTES];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| hex::encode(bytes)).map_err(|error| format!("/dev/urandom can't be read: {error}"))
}

/// Writes a file that isn't there yet, with `mode` less what the umask takes away. Nothing of it is left behind where
/// that fails.
///
/// # Errors
/// What the system says; `AlreadyExists` for whatever has that name, a link that leads nowhere too.
pub(super) fn create(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        // The first error is the one to tell of.
        let _ = std::fs::remove_file(path);
    })
}
