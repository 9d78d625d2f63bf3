//! A bypass, which temporarily removes a binding from a tenant's plans (docs/decisions/0034-break-glass.md).
//! Never part of a file: an operator writes it, with a reason, and it expires.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Removes one binding from one tenant's plans until a given time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bypass {
    /// The binding's name.
    pub binding: String,
    /// The tenant's id. It may be unlisted.
    pub tenant: String,
    /// When the binding applies again.
    pub until: Until,
    /// The reason, in the operator's words.
    pub reason: String,
}

/// A moment by the wall clock, written as in RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Until(pub OffsetDateTime);

impl Bypass {
    /// The bypass's name in the registry: the binding's name and the tenant's id. It is unique, because the
    /// first `@` ends the binding's name.
    pub fn name(&self) -> String {
        Bypass::object_name(&self.binding, &self.tenant)
    }

    /// The name for `binding` and `tenant`.
    pub fn object_name(binding: &str, tenant: &str) -> String {
        format!("{}@{tenant}", binding.replace('@', "%40"))
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Until {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.format(&Rfc3339).map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Until {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        OffsetDateTime::parse(&text, &Rfc3339).map(Until).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bypass_is_read_as_it_was_written() {
        let spec = json!({ "binding": "guard", "tenant": "acme", "until": "2026-11-22T09:15:00.25Z", "reason": "x" });
        let bypass: Bypass = crate::config::read(&spec.to_string()).expect("right");
        assert_eq!(serde_json::to_value(&bypass).expect("text"), spec);
        for wrong in ["tomorrow", "2026-11-22", ""] {
            let mut spec = spec.clone();
            spec["until"] = wrong.into();
            crate::config::read::<Bypass>(&spec.to_string()).expect_err(wrong);
        }
    }

    #[test]
    fn no_two_bypasses_have_one_name() {
        assert_eq!(Bypass::object_name("guard", "acme"), "guard@acme");
        assert_ne!(Bypass::object_name("guard@a", "b"), Bypass::object_name("guard", "a@b"));
    }
}
