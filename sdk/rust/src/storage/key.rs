//! Texts from outside as parts of keys.

use sha2::{Digest as _, Sha256};

const MAX_TEXT_BYTES: usize = 256;
const DIGEST_PREFIX: &str = "sha256:";

/// `text` as a part of a key, for names that come from an agent or a model. A text of at most 256 bytes without control
/// characters stays as it is; any other becomes `sha256:` and its digest. Different texts stay different.
///
/// ```
/// let key = format!("failures/{}", hookgate_sdk::storage::key_part("fs.read"));
/// assert_eq!(key, "failures/fs.read");
/// ```
pub fn key_part(text: &str) -> String {
    let fits = text.len() <= MAX_TEXT_BYTES && !text.contains(char::is_control);
    if fits && !text.starts_with(DIGEST_PREFIX) {
        return text.to_owned();
    }
    format!("{DIGEST_PREFIX}{}", hex::encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_text_becomes_a_digest_and_any_other_stays() {
        for text in ["", "fs.read", "a/b c", "Ünïcode", &"x".repeat(256)] {
            assert_eq!(key_part(text), text);
        }
        for text in ["a\nb", "\u{85}", "sha256:", &"x".repeat(257)] {
            let part = key_part(text);
            assert!(part.starts_with(DIGEST_PREFIX) && part.len() == 71 && part != text, "{part}");
        }
        assert_ne!(key_part("a\n"), key_part("a\r"));
    }
}
