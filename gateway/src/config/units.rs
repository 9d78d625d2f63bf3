//! Durations (`500ms`), sizes (`4MiB`) and rates (`100/s`) as configuration writes them.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A length of time: a whole number followed by `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: a whole number followed by `B`, `KiB`, `MiB` or `GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// As the length of something in memory.
    pub fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// At most so many in so long: a whole number, `/`, and `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least 1.
    pub count: u32,
    /// In how long: a second, a minute or an hour.
    pub per: Duration,
}

/// Splits `text` into its digits and its unit.
fn quantity(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let millis = match quantity(text) {
            Some((n, "ms")) => Some(n),
            Some((n, "s")) => n.checked_mul(1_000),
            Some((n, "m")) => n.checked_mul(60_000),
            Some((n, "h")) => n.checked_mul(3_600_000),
            _ => None,
        };
        millis.map(|millis| Span(Duration::from_millis(millis))).ok_or_else(|| {
            format!(
                "`{text}` is not a duration: write a whole number and `ms`, `s`, `m` or `h`, such as `500ms`"
            )
        })
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = match quantity(text) {
            Some((n, "B")) => Some(n),
            Some((n, "KiB")) => n.checked_mul(1 << 10),
            Some((n, "MiB")) => n.checked_mul(1 << 20),
            Some((n, "GiB")) => n.checked_mul(1 << 30),
            _ => None,
        };
        bytes.map(Size).ok_or_else(|| {
            format!(
                "`{text}` is not a size: write a whole number and `B`, `KiB`, `MiB` or `GiB`, such as `4MiB`"
            )
        })
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(count, unit)| {
            let per = match unit {
                "s" => 1,
                "m" => 60,
                "h" => 3_600,
                _ => return None,
            };
            let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
            let count = count.parse().ok().filter(|&count| digits && count > 0)?;
            Some(Rate { count, per: Duration::from_secs(per) })
        });
        parsed.ok_or_else(|| {
            format!("`{text}` is not a rate: write a whole number above 0, `/` and `s`, `m` or `h`, such as `100/s`")
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1_000) { write!(f, "{}s", millis / 1_000) } else { write!(f, "{millis}ms") }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, unit) = match self.0 {
            0 => (0, "B"),
            n if n.is_multiple_of(1 << 30) => (n >> 30, "GiB"),
            n if n.is_multiple_of(1 << 20) => (n >> 20, "MiB"),
            n if n.is_multiple_of(1 << 10) => (n >> 10, "KiB"),
            n => (n, "B"),
        };
        write!(f, "{n}{unit}")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

macro_rules! from_text {
    ($type:ident, $name:literal, $format:literal, $pattern:literal, $example:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $format, "pattern": $pattern, "examples": [$example] })
            }
        }
    };
}

from_text!(Span, "Duration", "duration-text", "^[0-9]+(ms|s|m|h)$", "500ms");
from_text!(Size, "Size", "size-text", "^[0-9]+(B|KiB|MiB|GiB)$", "4MiB");
from_text!(Rate, "Rate", "rate", "^[0-9]+/[smh]$", "100/s");

pub(super) use from_text;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_read_exactly_and_nothing_else_is() {
        let millis = |text: &str| text.parse::<Span>().map(|span| span.0.as_millis());
        assert_eq!(millis("0ms"), Ok(0));
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("30s"), Ok(30_000));
        assert_eq!(millis("5m"), Ok(300_000));
        assert_eq!(millis("2h"), Ok(7_200_000));
        let bytes = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(bytes("7B"), Ok(7));
        assert_eq!(bytes("8KiB"), Ok(8_192));
        assert_eq!(bytes("4MiB"), Ok(4_194_304));
        assert_eq!(bytes("1GiB"), Ok(1_073_741_824));
        let rate = |text: &str| text.parse::<Rate>().map(|rate| (rate.count, rate.per.as_secs()));
        assert_eq!(rate("100/s"), Ok((100, 1)));
        assert_eq!(rate("5/m"), Ok((5, 60)));
        assert_eq!(rate("1/h"), Ok((1, 3_600)));
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "+5s",
            "5 s",
            "5.5s",
            "5S",
            "5d",
            "5sec",
            "5ss",
            "99999999999999999999s",
            "18446744073709551615h",
            "５s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "4", "4MB", "4mib", "4 MiB", "-4B", "99999999999GiB", "4k"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in [
            "",
            "5",
            "0/s",
            "-1/s",
            "+1/s",
            "1/d",
            "1/",
            "/s",
            "1 /s",
            "1/ s",
            "1.5/s",
            "4294967296/s",
            "1/s/s",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn units_round_trip(millis in 0_u64..1 << 50, bytes: u64, count in 1_u32.., per in 0_usize..3) {
            let span = Span(Duration::from_millis(millis));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            let size = Size(bytes);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
            let rate = Rate { count, per: Duration::from_secs([1, 60, 3_600][per]) };
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        #[test]
        fn units_never_panic(text: String) {
            let _ = (text.parse::<Span>(), text.parse::<Size>(), text.parse::<Rate>());
        }
    }
}
