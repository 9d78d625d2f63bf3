//! Finds card numbers: 13 to 19 digits of a known issuer with a correct check digit (ISO/IEC 7812), in one group
//! or in groups of three to six digits with single spaces, hyphens or dots between them.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};
use regex::Regex;

use super::{escape_length, is_word_start};

/// `[CARD]` is shorter.
const MIN_DIGITS: usize = 13;
const MAX_DIGITS: usize = 19;
const MIN_GROUP_DIGITS: usize = 3;
/// Nobody sets longer groups apart: those are other numbers, or decimals.
const MAX_GROUP_DIGITS: usize = 6;

/// What may be between two groups. Documents have spaces and hyphens that don't break a line.
const SEPARATORS: [char; 7] = [' ', '-', '.', '\u{a0}', '\u{202f}', '\u{2010}', '\u{2011}'];

/// Where the groups of a UUID begin, and its length.
const UUID_GROUPS: [usize; 5] = [0, 9, 14, 19, 24];
const UUID_BYTES: usize = 36;

/// At least as many digits as a card has.
static DIGITS_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
    let separators = String::from_iter(SEPARATORS).replace('-', r"\-");
    let pattern = format!("[0-9](?:[{separators}]?[0-9]){{{},}}", MIN_DIGITS - 1);
    Regex::new(&pattern).expect("the pattern is a constant that the tests compile")
});

/// The cards in a text. Which groups are a card depends on those before them, so a sequence of digits stays whole.
pub(crate) fn find_all(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let (content, mut found, mut at) = (text.text(), Vec::new(), text.start());
    // No card is shorter than a step, so where a step ends in none, a step further is the next place to look at.
    while let Some(byte) = content.as_bytes().get(at + MIN_DIGITS - 1) {
        if !is_part(*byte) {
            at += MIN_DIGITS;
            continue;
        }
        let parts = parts_around(content, at..at + MIN_DIGITS - 1);
        at = parts.end.max(at + 1);
        for sequence in DIGITS_PATTERN.find_iter(&content[parts.clone()]) {
            let cards = cards(content, parts.start + sequence.start()..parts.start + sequence.end());
            for card in &cards {
                cut.keep_whole(parts.start + sequence.start()..card.end);
            }
            found.extend(cards.into_iter().filter(|card| !is_in_uuid(content.as_bytes(), card)));
        }
    }
    if !text.is_last() {
        hold_digits(text, cut);
    }
    found
}

/// Whether a byte may be in a sequence of groups.
fn is_part(byte: u8) -> bool {
    byte.is_ascii_digit() || b" -.\xc2\xa0\xe2\x80\xaf\x90\x91".contains(&byte)
}

/// The bytes of a sequence around the end of `step`, not before its beginning.
fn parts_around(text: &str, step: Range<usize>) -> Range<usize> {
    let bytes = text.as_bytes();
    let before = bytes[step.clone()].iter().rev().take_while(|byte| is_part(**byte)).count();
    let after = bytes[step.end..].iter().take_while(|byte| is_part(**byte)).count();
    text.ceil_char_boundary(step.end - before)..text.floor_char_boundary(step.end + after)
}

/// Keeps back digits at the end, to which more text may belong, also the rest of a UUID.
fn hold_digits(text: &AnswerText<'_>, cut: &mut SafeCut) {
    let content = text.content().as_bytes();
    let tail = content.iter().rev().take(UUID_BYTES).take_while(|byte| is_of_uuid(**byte)).count();
    let parts = content[..content.len() - tail].iter().rev().take_while(|byte| is_part(**byte)).count();
    let start = content.len() - tail - parts;
    if let Some(digit) = content[start..].iter().position(u8::is_ascii_digit) {
        cut.hold_from(text.start() + start + digit);
    }
}

fn is_of_uuid(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b'-'
}

fn is_in_uuid(text: &[u8], card: &Range<usize>) -> bool {
    let is_uuid = |start: usize| {
        let uuid = text.get(start..start + UUID_BYTES);
        uuid.is_some_and(|uuid| {
            uuid.iter().enumerate().all(|(at, byte)| match UUID_GROUPS.contains(&(at + 1)) {
                true => *byte == b'-',
                false => byte.is_ascii_hexdigit(),
            })
        })
    };
    UUID_GROUPS.iter().any(|group| card.start.checked_sub(*group).is_some_and(is_uuid))
}

/// The cards in a sequence of groups. Its first digits may be those of an escape, such as `%20`.
fn cards(text: &str, sequence: Range<usize>) -> Vec<Range<usize>> {
    let is_escape = |digits: &usize| {
        let before = text.as_bytes().get(..sequence.start + digits);
        before.is_some_and(|before| escape_length(before) > *digits)
    };
    let escape = [2, 4].into_iter().find(is_escape);
    let behind = escape.map(|digits| cards_in_groups(text, sequence.start + digits..sequence.end));
    let cards = cards_in_groups(text, sequence);
    behind.filter(|behind| behind.len() >= cards.len()).unwrap_or(cards)
}

/// A card may follow other numbers, and others may follow it.
fn cards_in_groups(text: &str, sequence: Range<usize>) -> Vec<Range<usize>> {
    let mut first = usize::from(!is_word_start(text, sequence.start));
    let (groups, mut found) = (groups(text, sequence), Vec::new());
    while let Some(rest) = groups.get(first..).filter(|rest| !rest.is_empty()) {
        let count = card_length(text, rest);
        if count > 0 {
            found.push(rest[0].start..rest[count - 1].end);
        }
        first += count.max(1);
    }
    found
}

fn groups(text: &str, sequence: Range<usize>) -> Vec<Range<usize>> {
    let mut start = sequence.start;
    let groups = text[sequence].split(SEPARATORS).map(|group| {
        let range = start..start + group.len();
        start = range.end + text[range.end..].chars().next().map_or(0, char::len_utf8);
        range
    });
    groups.collect()
}

/// How many of the first groups are a card; 0 if none are.
fn card_length(text: &str, groups: &[Range<usize>]) -> usize {
    let bytes = text.as_bytes();
    if is_fraction(&bytes[..groups[0].start]) {
        return 0;
    }
    let is_dotted = |at: usize| bytes.get(at) == Some(&b'.');
    let (mut digits, mut length) = (Vec::with_capacity(MAX_DIGITS), 0);
    for (index, group) in groups.iter().enumerate() {
        let has_dots = index > 0 && is_dotted(groups[index - 1].end);
        if group.len() < MIN_GROUP_DIGITS
            || digits.len() + group.len() > MAX_DIGITS
            || index > 0 && has_dots != is_dotted(groups[0].end)
            || index > 0 && group.len().max(groups[0].len()) > MAX_GROUP_DIGITS
        {
            break;
        }
        digits.extend(bytes[group.clone()].iter().map(|digit| digit - b'0'));
        let is_whole = !bytes.get(group.end).is_some_and(u8::is_ascii_alphabetic);
        if is_whole && is_issued(&digits) && has_check_digit(&digits) {
            length = index + 1;
        }
    }
    length
}

/// Whether digits after `before` are those behind the point of a decimal number.
fn is_fraction(before: &[u8]) -> bool {
    matches!(before, [.., digit, b'.'] if digit.is_ascii_digit())
}

/// Whether an issuer has numbers that begin like this and are this long.
fn is_issued(digits: &[u8]) -> bool {
    if digits.len() < MIN_DIGITS {
        return false;
    }
    let first_four = digits[..4].iter().fold(0_u32, |number, digit| number * 10 + u32::from(*digit));
    match first_four {
        // Visa
        4000..=4999 => matches!(digits.len(), 16 | 19),
        // Mastercard
        2221..=2720 | 5100..=5599 => digits.len() == 16,
        // American Express
        3400..=3499 | 3700..=3799 => digits.len() == 15,
        // Diners Club
        3000..=3059 | 3600..=3699 | 3800..=3999 => digits.len() >= 14,
        // JCB, Discover, UnionPay
        3528..=3589 | 6011 | 6440..=6599 | 6200..=6299 => digits.len() >= 16,
        // Maestro
        5018 | 5020 | 5038 | 5893 | 6304 | 6759 | 6761..=6763 => true,
        _ => false,
    }
}

/// The Luhn algorithm.
fn has_check_digit(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, digit)| match (index % 2, u32::from(*digit)) {
            (0, digit) => digit,
            (_, digit) => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
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
    fn cards_of_every_issuer_are_found() {
        for card in [
            "4111111111111111",
            "4111 1111 1111 1111",
            "4111-1111-1111-1111",
            "4111.1111.1111.1111",
            "4111\u{a0}1111\u{a0}1111\u{a0}1111",
            "4111\u{2011}1111\u{2011}1111\u{2011}1111",
            "5555555555554444",
            "2223003122003222",
            "378282246310005",
            "3782 822463 10005",
            "30569309025904",
            "3530111333300000",
            "6011111111111117",
            "6200000000000005",
            "6759649826438453",
        ] {
            assert_eq!(found(card), [card]);
            assert_eq!(found(&format!("({card}),")), [card]);
            assert_eq!(found(&format!("card_{card}é")), [card]);
            for start in [r"A\n", r"\\r\\n", "a%3D", "a%20", r"id\u0020", "\u{1b}[1;31m", "100%"] {
                assert_eq!(found(&format!("{start}{card}\\n")), [card], "{start}");
            }
        }
    }

    #[test]
    fn a_card_is_found_between_other_numbers() {
        assert_eq!(found("pay 2 4111 1111 1111 1111 123 12-28"), ["4111 1111 1111 1111"]);
        assert_eq!(found("v1 4111111111111111 378282246310005"), ["4111111111111111", "378282246310005"]);
    }

    #[test]
    fn other_long_numbers_are_no_cards() {
        for text in [
            "4111111111111112",
            "0000000000000000",
            "1234567812345670",
            "id4111111111111111",
            "4111111111111111b",
            "41111111111111110",
            "4111  1111 1111 1111",
            "4111 1111 1111 11 11",
            "41111111-1111-4111-8111-111111111111",
            "4111.111111111111",
            "2026-11-24 12:00:00",
            "+1 202 555 0123",
            "1732450000000000000",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_number_with_a_wrong_digit_is_no_card(body in "4[0-9]{14}", wrong in 1_u8..10) {
            let digit = (0..10).find(|digit| {
                let digits: Vec<u8> = format!("{body}{digit}").bytes().map(|byte| byte - b'0').collect();
                has_check_digit(&digits)
            });
            let digit: u8 = digit.unwrap();
            let (right, wrong) = (format!("{body}{digit}"), format!("{body}{}", (digit + wrong) % 10));
            prop_assert_eq!(found(&right), vec![right.as_str()]);
            prop_assert!(found(&wrong).is_empty());
        }

        #[test]
        fn what_is_found_has_13_to_19_digits(text in "([0-9]{1,20}|[ -]){0,12}") {
            for card in found(&text) {
                let digits = card.bytes().filter(u8::is_ascii_digit).count();
                prop_assert!((MIN_DIGITS..=MAX_DIGITS).contains(&digits), "{card:?} in {text:?}");
            }
        }
    }
}
