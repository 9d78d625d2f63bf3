//! Reads files and streams entirely, up to a size limit, so that an endless device can't fill the memory. The
//! caller reports what is too large.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// The bytes of the file at `path`. Returns `None` if it has more than `most`.
pub fn file(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    read(File::open(path)?, most)
}

/// All bytes of `input`. Returns `None` if there are more than `most`.
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
