//! Finds tokens that look random: long, of many different characters, whose kinds alternate as they don't in names,
//! paths and numbers. For keys that have no prefix and no label.
//!
//! A token of hexadecimal digits has at most 4 bits per character, so a UUID, a commit or a digest is never one.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};
use regex::Regex;

use super::{TextPattern, without_escape};

const MIN_TOKEN_BYTES: usize = 32;
/// Longer ones are data, such as an image.
const MAX_TOKEN_BYTES: usize = 512;
/// Shannon's entropy that a token must exceed, in bits per character.
const MIN_ENTROPY_BITS: f64 = 4.0;
const MIN_DIGITS: usize = 2;
/// How many of the neighbouring letters and digits must be of different kinds: 9 in 20. Random ones have about 12,
/// words in camel case about 7.
const MIN_ALTERNATION: (usize, usize) = (9, 20);

/// How public keys begin, and the digests of lock files: random, but no secrets.
const PUBLIC_PREFIXES: [&str; 4] = ["AAAA", "sha256-", "sha384-", "sha512-"];
/// How far in front of a token its label or the line before may begin.
const MAX_CONTEXT_BYTES: usize = 160;

/// What precedes a digest or a signature of a mail: none is a secret. So are lines of a certificate and of other base64: the line
/// before is one, too.
static PUBLIC_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?xi)
        (?: \b(?: sha-?(?:1|224|256|384|512) | md5 | h1 | bh? | hash | etag | fingerprint | integrity )
          | digest | checksum )
        \\*["'`]? \s? [:=\x20] \s? \\*["'`]? $
        | (?: ----- | (?:^|\n) [A-Za-z0-9+/]{64} (?: [A-Za-z0-9+/]{12} )? ) \r? \n [\x20\t]* $"#;
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
});

static TOKEN_PATTERN: LazyLock<TextPattern> =
    LazyLock::new(|| TextPattern::own(&format!("[A-Za-z0-9_+/-]{{{MIN_TOKEN_BYTES},}}={{0,2}}")));

pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let tokens = TOKEN_PATTERN.find_all(text, cut);
    let tokens = tokens.into_iter().map(|token| without_escape(text.text(), token));
    tokens.flat_map(|token| secret_parts(text.text(), token)).collect()
}

/// The random parts of a token that isn't public.
fn secret_parts(text: &str, token: Range<usize>) -> Vec<Range<usize>> {
    let parts = random_parts(text, token.clone());
    let before = &text[text.ceil_char_boundary(token.start.saturating_sub(MAX_CONTEXT_BYTES))..token.start];
    let is_public = || {
        PUBLIC_PREFIXES.iter().any(|prefix| text[token.clone()].starts_with(prefix))
            || PUBLIC_PATTERN.is_match(before)
    };
    if !parts.is_empty() && is_public() { Vec::new() } else { parts }
}

/// The token without the words of a path around it, or else the parts of a path that are random.
fn random_parts(text: &str, token: Range<usize>) -> Vec<Range<usize>> {
    let is_word = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || b"-_".contains(&byte));
    let mut start = token.start;
    let parts = text[token.clone()].split('/').map(|part| {
        let range = start..start + part.len();
        start = range.end + 1;
        range
    });
    let parts: Vec<_> = parts.collect();
    let is_key = |part: &&Range<usize>| !is_word(&text[(*part).clone()]);
    let (first, last) = (parts.iter().find(is_key), parts.iter().rfind(is_key));
    let key = first.zip(last).map(|(first, last)| first.start..last.end);
    if let Some(key) = key.filter(|key| is_random(&text[key.clone()])) {
        return vec![key];
    }
    parts.into_iter().filter(|part| is_random(&text[part.clone()])).collect()
}

fn is_random(token: &str) -> bool {
    let bytes = token.trim_end_matches('=').as_bytes();
    (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&bytes.len())
        && bytes.iter().filter(|byte| byte.is_ascii_digit()).count() >= MIN_DIGITS
        && bytes.iter().any(u8::is_ascii_lowercase)
        && bytes.iter().any(u8::is_ascii_uppercase)
        && alternates(bytes)
        && entropy_bits(bytes) > MIN_ENTROPY_BITS
}

fn alternates(bytes: &[u8]) -> bool {
    let kind = |byte: u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    let pairs = bytes.windows(2).filter(|pair| pair.iter().all(u8::is_ascii_alphanumeric));
    let (count, changes) = pairs.fold((0, 0), |(count, changes), pair| {
        (count + 1, changes + usize::from(kind(pair[0]) != kind(pair[1])))
    });
    let (part, whole) = MIN_ALTERNATION;
    changes * whole >= count * part
}

/// Shannon's entropy of the bytes, in bits per byte.
fn entropy_bits(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let share = |count: &u32| f64::from(*count) / bytes.len() as f64;
    counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RANDOM: [&str; 6] = [
        "q8Zt3VbN7/Kp2LmRw9Yc+4sHf6GjTa1E/X5o0uPi",
        "q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1E",
        "Xk2-vP9_dQ7mZs4LbT1nR8wYc5Jf3HgU",
        "dGhpcyBpcyBhIHNlY3JldCBrZXkgMTIzNDU2Nzg5MA==",
        "4f9KQzR2mT8xW1vLp6NdYb3HsJc7GtUeA5oZ",
        "9aZ8bY7cX6dW5eV4fU3gT2hS1iR0jQ9kP8lO7mN6",
    ];

    fn found(text: &str) -> Vec<&str> {
        let answer = AnswerText::whole(text);
        find_all(&answer, &mut SafeCut::new(&answer)).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn random_tokens_are_found() {
        for token in RANDOM {
            assert_eq!(found(token), [token]);
            assert_eq!(found(&format!("use '{token}', é")), [token]);
            assert_eq!(found(&format!(r"a\n{token}\n")), [token]);
        }
        let path = format!("https://example.com/{}{}/", "orders/".repeat(12), RANDOM[1]);
        assert_eq!(found(&path), [RANDOM[1]]);
    }

    #[test]
    fn names_paths_digests_and_public_keys_are_not_random() {
        for text in [
            "getUserByIdAndAccessTokenFromDatabaseV2",
            "/home/ada/Projects2024/hookgate/plugins/redaction/src/lib.rs",
            "feature/ABC-1234-fix-login-on-Safari-17-and-iOS",
            "CONSTANT_WITH_A_VERY_LONG_NAME_AND_A_NUMBER_42",
            "com.example.MyVeryLongApplicationName2.SubComponent1",
            "550e8400-e29b-41d4-a716-446655440000",
            "550E8400-E29B-41D4-A716-446655440000",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
            "h1:Kp5J1mJc2kVYqkWmF0Z7rQ8X3b9dLsTn6vGzUeA5oZQ=",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN2Cr3JXqmLW7u+R9pTh+wVDKHD",
            r"keys:\nAAAAC3NzaC1lZDI1NTE5AAAAIK0wmN2Cr3JXqmLW7u+R9pTh+wVDKHD\n",
            "01JDG7Q9XW3K5M8N2P4R6S7T9V 12345678901234567890123456789012",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
        let data = RANDOM[1].repeat(17);
        assert_eq!(found(&data), [""; 0], "{} bytes are data", data.len());
    }

    proptest! {
        #[test]
        fn prose_is_not_random(text in "([A-Z]?[a-z]{1,14}[,.:;!?]?[ \n]){0,60}") {
            prop_assert!(found(&text).is_empty());
        }

        #[test]
        fn hexadecimal_digits_are_not_random(
            lower in "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,128}",
            upper in "[0-9A-F]{32,128}",
        ) {
            prop_assert!(found(&lower).is_empty());
            prop_assert!(found(&upper).is_empty());
        }

        #[test]
        fn names_in_camel_case_are_not_random(name in "[a-z]{4,9}([A-Z][a-z]{4,9}){4,12}[0-9]{0,3}") {
            prop_assert!(found(&name).is_empty(), "{}", name);
        }

        #[test]
        fn paths_are_not_random(path in "(/[A-Z]?[a-z]{2,10}[0-9]{0,3}){4,14}(\\.[a-z]{2,3})?") {
            prop_assert!(found(&path).is_empty(), "{}", path);
        }
    }
}
