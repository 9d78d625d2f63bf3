//! Reads what a person named, whole, up to a size: a device that never ends fills no memory. What is said of one that is
//! too large is its reader's to know.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The bytes of the file at `path`; none where it has more than `most`.
pub fn file(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    read(File::open(path)?, most)
}

/// What `input` has to its end; none where that is more than `most` bytes.
pub fn read(input: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| u64::try_from(bytes.len()).is_ok_and(|length| length <= most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_long_as_may_be_is_read_and_what_never_ends_is_not() {
        assert_eq!(read(&b"four"[..], 4).unwrap(), Some(b"four".to_vec()));
        assert_eq!(read(&b"fours"[..], 4).unwrap(), None);
        assert_eq!(file(Path::new("/dev/zero"), 1 << 10).unwrap(), None);
    }
}
