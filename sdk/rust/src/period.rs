//! Durations in configuration, as the gateway's own configuration writes them.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const EXPECTED: &str = "a whole number and `ms`, `s`, `m` or `h`, such as `500ms`";

/// A length of time in a plugin's configuration: a whole number followed by `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub Duration);

impl Period {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let count: u64 = text[..digits].parse().ok()?;
        let milliseconds = match &text[digits..] {
            "ms" => Some(count),
            "s" => count.checked_mul(1000),
            "m" => count.checked_mul(60_000),
            "h" => count.checked_mul(3_600_000),
            _ => None,
        };
        milliseconds.map(|milliseconds| Period(Duration::from_millis(milliseconds)))
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Period::parse(&text).ok_or_else(|| D::Error::custom(format!("expected {EXPECTED}")))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}ms", self.0.as_millis()))
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_whole_number_with_a_unit() {
        for (text, milliseconds) in [
            ("0ms", Some(0)),
            ("500ms", Some(500)),
            ("30s", Some(30_000)),
            ("10m", Some(600_000)),
            ("24h", Some(86_400_000)),
            ("1d", None),
            ("1.5s", None),
            ("-1s", None),
            ("1 s", None),
            ("s", None),
            ("30", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            let parsed = serde_json::from_value::<Period>(text.into());
            let expected = milliseconds.map(|milliseconds| Period(Duration::from_millis(milliseconds)));
            assert_eq!(parsed.as_ref().ok(), expected.as_ref(), "{text}");
            if let Err(error) = parsed {
                assert_eq!(error.to_string(), format!("expected {EXPECTED}"));
            }
        }
        assert_eq!(serde_json::to_value(Period(Duration::from_secs(1))).unwrap(), "1000ms");
    }
}
