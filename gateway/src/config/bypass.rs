//! A binding that is taken out of a tenant's chains for a while (docs/decisions/0034-break-glass.md). No part of a file:
//! what goes round a rule is written by somebody, with a reason, and ends by itself.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// One binding out of one tenant's chains, until then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bypass {
    /// The binding's name.
    pub binding: String,
    /// The tenant's id; it need not be listed.
    pub tenant: String,
    /// From then on the binding stands again.
    pub until: Until,
    /// Why, in the words of whoever did it.
    pub reason: String,
}

/// A moment by the wall clock; written as RFC 3339 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Until(pub OffsetDateTime);

impl Bypass {
    /// What it is called in the registry: the binding's name and the tenant's id. No two are called the same, since the
    /// first `@` ends the name.
    pub fn name(&self) -> String {
        Bypass::object_name(&self.binding, &self.tenant)
    }

    /// The same of `binding` and `tenant`.
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
