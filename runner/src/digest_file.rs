//! Checks files against their SHA-256 digests.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Checks that each file has its digest, which is hexadecimal.
///
/// # Errors
/// One sentence that names the first file that differs or can't be read.
pub(crate) fn check(files: &BTreeMap<PathBuf, String>) -> Result<(), String> {
    for (path, expected) in files {
        let found = digest(path).map_err(|error| format!("{} can't be read: {error}", path.display()))?;
        if !found.eq_ignore_ascii_case(expected) {
            return Err(format!(
                "{} has the SHA-256 digest {found}, and `sha256` requires {expected}: restore the file, or correct the \
                 digest",
                path.display()
            ));
        }
    }
    Ok(())
}

fn digest(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hex::encode(hasher.finalize()))
}
