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

/// How public keys, certificates and the digests of lock files begin: random, but no secrets. `LS0tLS1CRUdJTiBDRVJU`
/// is `-----BEGIN CERT` in base64, and `LS0tLS1CRUdJTiBQVUJM` is `-----BEGIN PUBL`.
const PUBLIC_PREFIXES: [&str; 9] = [
    "AAAA",
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE",
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A",
    "MIGfMA0GCSqGSIb3DQEBAQUAA4GNAD",
    "LS0tLS1CRUdJTiBDRVJU",
    "LS0tLS1CRUdJTiBQVUJM",
    "sha256-",
    "sha384-",
    "sha512-",
];
/// How far in front of a token its label may begin.
const MAX_LABEL_BYTES: usize = 64;
/// How far in front of a token the first line of a certificate or the like may begin. A window has more text than that before it.
const MAX_BLOCK_BYTES: usize = 1000;

/// What precedes a digest, a public key, the id of a request or data in a URL: none is a secret.
static LABEL_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?xi)
        (?: \b(?: sha-?(?:1|224|256|384|512) | md5 | h1 | bh? | hash | etag | fingerprint | integrity | x-amz-(?:id-2|cf-id) )
          | digest | checksum | public [\x20_-]? key )
        \\*["'`]? \s? [:=\x20] \s? (?: w/ )? \\*["'`]? $
        | ; base64 , $"#;
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
});

/// Lines that precede one of base64: the first line of armor, such as that of a certificate, with its headers and further lines of base64.
/// If the first line is too far, it is the line before, which is as long as such lines are.
static BLOCK_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let line_break = r#"(?: ["'`,+\x20\t]* (?: \r? \n | \\+ (?: r \\+ )? n ) [\x20\t>|+"'`]* )"#;
    let pattern = format!(
        r"(?x) (?:
            ----[-]? \x20? BEGIN\x20 [A-Z0-9\x20]+ ----[-]? (?: {line_break}+ [A-Za-z-]+ :\x20 [^\r\n\\]* )*
            (?: {line_break}+ [A-Za-z0-9+/]{{32,}} ={{0,2}} )* {line_break}+
          | (?: ^ | \n | \\n ) [\x20\t>+]* [A-Za-z0-9+/]{{64}} (?: [A-Za-z0-9+/]{{12}} )? (?: \r? \n | \\+ (?: r \\+ )? n ) [\x20\t>+]*
        ) $"
    );
    Regex::new(&pattern).expect("the pattern is a constant that the tests compile")
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
    if !parts.is_empty() && is_public(text, token) { Vec::new() } else { parts }
}

/// Whether a token is no secret because of its beginning, its label, or the block whose line it is.
fn is_public(text: &str, token: Range<usize>) -> bool {
    let before =
        |bytes: usize| &text[text.ceil_char_boundary(token.start.saturating_sub(bytes))..token.start];
    let is_line = || {
        let after = text[token.end..].chars().next();
        after.is_none_or(|char| "\r\n\\\"'`<".contains(char))
            && BLOCK_PATTERN.is_match(before(MAX_BLOCK_BYTES))
    };
    PUBLIC_PREFIXES.iter().any(|prefix| text[token.clone()].starts_with(prefix))
        || LABEL_PATTERN.is_match(before(MAX_LABEL_BYTES))
        || is_line()
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
        for before in [
            "<img src=\"data:image/gif;base64,",
            "ETag: W/\"",
            "PublicKey = ",
            "certificate-authority-data: LS0tLS1CRUdJTiBDRVJU",
        ] {
            assert_eq!(found(&format!("{before}{}", RANDOM[1])), [""; 0], "{before}");
        }
        let data = RANDOM[1].repeat(17);
        assert_eq!(found(&data), [""; 0], "{} bytes are data", data.len());
    }

    #[test]
    fn lines_of_certificates_and_the_like_are_public() {
        for (first, last) in [
            ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"),
            ("-----BEGIN X509 CRL-----", "-----END X509 CRL-----"),
            ("-----BEGIN PGP SIGNATURE-----\n", "-----END PGP SIGNATURE-----"),
            ("-----BEGIN PGP PUBLIC KEY BLOCK-----\nComment: a b\n", "-----END PGP PUBLIC KEY BLOCK-----"),
            ("---- BEGIN SSH2 PUBLIC KEY ----\nComment: a", "---- END SSH2 PUBLIC KEY ----"),
        ] {
            for (lines, line) in [(1, 40), (3, 48), (9, 70), (40, 64), (40, 76)] {
                let line: String = RANDOM[0].chars().chain(RANDOM[1].chars()).cycle().take(line).collect();
                let block =
                    format!("{first}\n{}{}\n{last}\n", format!("{line}\n").repeat(lines), &line[..36]);
                for line_break in ["\n", "\r\n", r"\n", r"\r\n", r"\\n", "\n    ", "\n+", "\n> "] {
                    let block = block.replace('\n', line_break);
                    assert_eq!(found(&block), [""; 0], "{block}");
                }
                assert_eq!(found(&format!("{block}\n{}", RANDOM[1])), [RANDOM[1]], "behind a block");
            }
        }
        for text in [
            "-----BEGIN CERTIFICATE-----\nno base64\nTOKEN",
            "-----BEGIN CERTIFICATE-----\nTOKEN is a line with words",
            "-----BEGIN CERTIFICATE----- TOKEN",
            "Token\n-----\nTOKEN",
            "TOKEN\nTOKEN",
        ] {
            let text = text.replace("TOKEN", RANDOM[1]);
            assert_eq!(found(&text).len(), text.matches(RANDOM[1]).count(), "{text}");
        }
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
