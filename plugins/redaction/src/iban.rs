//! Finds IBANs (ISO 13616): country, length and check digits are right. Groups may have single spaces or hyphens
//! between them.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::WordPattern;

/// Each country's code and the length of its IBANs, from SWIFT's registry.
const LENGTHS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 \
    DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 \
    IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 \
    OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 \
    UA29 VA22 VG24 XK20 YE30";

static PREFIX_PATTERN: LazyLock<WordPattern> = LazyLock::new(|| {
    let countries: Vec<_> = LENGTHS.split_ascii_whitespace().map(|entry| &entry[..2]).collect();
    WordPattern::new(&format!("(?i-u:{})[0-9]{{2}}", countries.join("|")))
});

/// The IBANs in a text. One that may go on behind a window is kept back.
pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for prefix in PREFIX_PATTERN.find_all(text, cut) {
        let bytes = &text.text().as_bytes()[prefix.start..];
        if !text.is_last() && is_open(bytes) {
            cut.hold_from(prefix.start);
        } else if let Some(length) = iban_length(bytes) {
            found.push(prefix.start..prefix.start + length);
        }
    }
    found.iter().for_each(|iban| cut.keep_whole(iban.clone()));
    found
}

/// Whether more text says whether an IBAN begins like `bytes`. With its separators and the byte behind it, it is up to twice as long
/// as without.
fn is_open(bytes: &[u8]) -> bool {
    let expected = bytes.first_chunk().and_then(length_in_country);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b" -".contains(byte);
    expected.is_some_and(|expected| bytes.len() < 2 * expected && bytes.iter().all(is_part))
}

/// The length of the IBAN at the beginning of `bytes`, with its separators.
fn iban_length(bytes: &[u8]) -> Option<usize> {
    let expected = length_in_country(bytes.first_chunk()?)?;
    let (mut iban, mut length) = (Vec::with_capacity(expected), 0);
    while iban.len() < expected {
        let byte = *bytes.get(length)?;
        match byte {
            b' ' | b'-' if bytes[length - 1].is_ascii_alphanumeric() => {}
            _ if byte.is_ascii_alphanumeric() => iban.push(byte.to_ascii_uppercase()),
            _ => return None,
        }
        length += 1;
    }
    let ends = !bytes.get(length).is_some_and(u8::is_ascii_alphanumeric);
    (ends && has_check_digits(&iban)).then_some(length)
}

fn length_in_country(code: &[u8; 2]) -> Option<usize> {
    let mut entries = LENGTHS.split_ascii_whitespace();
    let entry = entries.find(|entry| entry.as_bytes()[..2].eq_ignore_ascii_case(code))?;
    entry[2..].parse().ok()
}

/// The remainder modulo 97 is 1, with the first four characters at the end and letters as 10 to 35.
fn has_check_digits(iban: &[u8]) -> bool {
    let digits = iban[4..].iter().chain(&iban[..4]);
    let remainder = digits.fold(0_u32, |remainder, byte| match byte {
        b'0'..=b'9' => (remainder * 10 + u32::from(byte - b'0')) % 97,
        _ => (remainder * 100 + u32::from(byte - b'A') + 10) % 97,
    });
    remainder == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let answer = AnswerText::whole(text);
        find_all(&answer, &mut SafeCut::new(&answer)).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn ibans_are_found_with_and_without_spaces() {
        for iban in [
            "DE89370400440532013000",
            "DE89 3704 0044 0532 0130 00",
            "DE89-3704-0044-0532-0130-00",
            "de89370400440532013000",
            "GB29 NWBK 6016 1331 9268 19",
            "FR14 2004 1010 0505 0001 3M02 606",
            "NO93 8601 1117 947",
            "MT84MALT011000012345MTLCAST001S",
        ] {
            assert_eq!(found(iban), [iban]);
            assert_eq!(found(&format!("IBAN: {iban} BIC COBADEFF")), [iban]);
            assert_eq!(found(&format!("ab12 {iban}, é")), [iban]);
            for start in ["_", r"A\n", r"\\r\\n", "a%3D", r"id\u0020", "\u{1b}[1;31m"] {
                assert_eq!(found(&format!("{start}{iban}_")), [iban]);
            }
        }
    }

    #[test]
    fn other_codes_are_no_ibans() {
        for text in [
            "DE88370400440532013000",
            "DE8937040044053201300",
            "DE893704004405320130001",
            "ZZ89370400440532013000",
            "XDE89370400440532013000",
            "DE89  3704 0044 0532 0130 00",
            "DE89",
            "",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_iban_with_a_wrong_digit_is_not_found(at in 4_usize..22, by in 1_u8..10) {
            let mut iban = b"DE89370400440532013000".to_vec();
            iban[at] = b'0' + (iban[at] - b'0' + by) % 10;
            let iban = String::from_utf8(iban).unwrap();
            prop_assert!(found(&iban).is_empty(), "{iban}");
        }

        #[test]
        fn any_text_is_searched_without_a_panic(text in "([A-Za-z]{2}[0-9]{2}|DE89|[0-9 -]{1,30}|[é€\\PC]){0,8}") {
            for iban in found(&text) {
                prop_assert!(iban.len() >= 15, "{iban:?} in {text:?}");
            }
        }
    }
}
