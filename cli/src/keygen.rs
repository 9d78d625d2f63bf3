//! Makes keys from the system's random numbers, and writes files that only their owner can read.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Length of a key in bytes, the minimum for an issuer's shared secret.
const KEY_BYTES: usize = 32;

/// A random secret as text.
///
/// # Errors
/// One sentence, if the system has no random numbers.
pub(super) fn random() -> Result<String, String> {
    let mut bytes = [0; KEY_BYTES];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| hex::encode(bytes)).map_err(|error| format!("/dev/urandom can't be read: {error}"))
}

/// Creates a file with `mode`, reduced by the umask. Leaves nothing behind if that fails.
///
/// # Errors
/// The system's error; `AlreadyExists` if the name is taken, even by a broken link.
pub(super) fn create(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        // The first error is the one to report.
        let _ = std::fs::remove_file(path);
    })
}
