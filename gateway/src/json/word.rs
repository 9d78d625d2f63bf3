//! Looks at eight bytes at a time (Hacker's Delight, section 6-1). A word has the bytes in little-endian order. A
//! match is marked by its byte's high bit. Only the first mark is reliable.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; 8]);

/// The bytes below `limit`, which is at most 0x80.
pub(super) const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & HIGH_BITS
}

/// The bytes that are `byte`.
pub(super) const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * byte as u64), 1)
}

/// The place of the first byte that was found.
pub(super) const fn first(found: u64) -> Option<usize> {
    if found == 0 { None } else { Some(found.trailing_zeros() as usize / 8) }
}
