//! Durations (`500ms`) and sizes (`4MiB`) as configuration writes them.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de::Error as _};

/// A length of time: a whole number followed by `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: a whole number followed by `B`, `KiB`, `MiB` or `GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

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

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1_000) { write!(f, "{}s", millis / 1_000) } else { write!(f, "{millis}ms") }
    }
}

macro_rules! from_text {
    ($type:ident, $name:literal, $pattern:literal, $example:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "examples": [$example] })
            }
        }
    };
}

from_text!(Span, "Duration", "^[0-9]+(ms|s|m|h)$", "500ms");
from_text!(Size, "Size", "^[0-9]+(B|KiB|MiB|GiB)$", "4MiB");
