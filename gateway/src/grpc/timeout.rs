//! The header `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").

use std::time::Duration;

use http::HeaderValue;

/// The header's name.
pub const GRPC_TIMEOUT: &str = "grpc-timeout";

const MAX_DIGITS: usize = 8;
const MAX_VALUE: u64 = 99_999_999;

/// The time that a header's text names. `None` if the text is malformed.
pub fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// The header's value for the time that is `left`, rounded down.
pub fn value(left: Duration) -> HeaderValue {
    let most = u128::from(MAX_VALUE);
    let text = match (left.as_micros(), left.as_millis()) {
        (micros, _) if micros <= most => format!("{micros}u"),
        (_, millis) if millis <= most => format!("{millis}m"),
        _ => format!("{}S", left.as_secs().min(MAX_VALUE)),
    };
    HeaderValue::try_from(text).expect("digits and a letter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_keeps_to_eight_digits_and_is_parsed_as_the_time_that_it_names() {
        for (left, text, named) in [
            (Duration::ZERO, "0u", Duration::ZERO),
            (Duration::from_nanos(1999), "1u", Duration::from_micros(1)),
            (Duration::from_millis(1500), "1500000u", Duration::from_millis(1500)),
            (Duration::from_micros(99_999_999), "99999999u", Duration::from_micros(99_999_999)),
            (Duration::from_secs(120), "120000m", Duration::from_secs(120)),
            (Duration::from_secs(86_400_000), "86400000S", Duration::from_secs(86_400_000)),
            (Duration::MAX, "99999999S", Duration::from_secs(99_999_999)),
        ] {
            assert_eq!(value(left), text);
            assert_eq!(parse(text), Some(named), "{text}");
        }
    }

    #[test]
    fn text_is_parsed_in_every_unit_or_refused() {
        for (text, named) in [
            ("2H", Some(Duration::from_secs(7200))),
            ("2M", Some(Duration::from_secs(120))),
            ("2S", Some(Duration::from_secs(2))),
            ("2m", Some(Duration::from_millis(2))),
            ("2u", Some(Duration::from_micros(2))),
            ("2n", Some(Duration::from_nanos(2))),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("5é", None),
            ("+5S", None),
            ("-5S", None),
            ("100000000m", None),
        ] {
            assert_eq!(parse(text), named, "{text}");
        }
    }
}
