//! Finds card numbers: 13 to 19 digits of a known issuer with a correct check digit (ISO/IEC 7812), in one group
//! or in groups of at least three digits with single spaces or hyphens between them.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::window::{AnswerText, SafeCut};

use super::{Ranges, WordPattern, word_start};

/// `[CARD]` is shorter.
const MIN_DIGITS: usize = 13;
const MAX_DIGITS: usize = 19;
const MIN_GROUP_DIGITS: usize = 3;

static GROUPS_PATTERN: LazyLock<WordPattern> =
    LazyLock::new(|| WordPattern::new(&word_start(), "[0-9]+(?:[ -][0-9]+)*"));

pub(crate) fn find(text: &str) -> Ranges<'_> {
    Box::new(GROUPS_PATTERN.find(text).flat_map(move |groups| cards(text, groups)))
}

/// The cards in a window. The sequence stays whole: which groups are a card depends on those before them.
pub(crate) fn find_in_window(text: &AnswerText<'_>, cut: &mut SafeCut) -> Vec<Range<usize>> {
    let sequences = GROUPS_PATTERN.find_in_window(text, cut);
    sequences.into_iter().flat_map(|sequence| cards(text.text(), sequence)).collect()
}

/// The cards in a sequence of groups. What looks like a percent escape before it may be its first two digits.
fn cards(text: &str, sequence: Range<usize>) -> Vec<Range<usize>> {
    let before = &text[..sequence.start];
    let all_digits = before.trim_end_matches(|c: char| c.is_ascii_digit());
    let cards = cards_in_groups(text, sequence.clone());
    if all_digits.len() == before.len() || !all_digits.ends_with('%') {
        return cards;
    }
    let longer = cards_in_groups(text, all_digits.len()..sequence.end);
    if longer.len() > cards.len() { longer } else { cards }
}

/// A card may follow other numbers, and others may follow it.
fn cards_in_groups(text: &str, sequence: Range<usize>) -> Vec<Range<usize>> {
    let groups = groups(text, sequence);
    let (mut found, mut first) = (Vec::new(), 0);
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
    let groups = text[sequence].split([' ', '-']).map(|group| {
        let range = start..start + group.len();
        start = range.end + 1;
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
    let (mut digits, mut length) = (Vec::with_capacity(MAX_DIGITS), 0);
    for (index, group) in groups.iter().enumerate() {
        if group.len() < MIN_GROUP_DIGITS || digits.len() + group.len() > MAX_DIGITS {
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
        find(text).map(|range| &text[range]).collect()
    }

    #[test]
    fn cards_of_every_issuer_are_found() {
        for card in [
            "4111111111111111",
            "4111 1111 1111 1111",
            "4111-1111-1111-1111",
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
            "4111.1111.1111.1111",
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
