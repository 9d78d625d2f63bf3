//! The part of a plugin's manifest that an operator consents to, and the differences between two of them
//! (docs/decisions/0033-consent.md). The version is not part of it: a build that does what was accepted needs
//! no new consent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::point::{Point, PointAccess};
use hookgate_proto::Capability;

/// A manifest as it is consented to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Consent {
    /// The offered points, at least one.
    pub points: OfferedPoints,
    /// Requested capabilities; all must be in `grants`.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// SHA-256 of the canonical JSON of the schema for `config`. Absent: no schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "sha-256"))]
    pub config_schema: Option<String>,
    /// SHA-256 of the canonical JSON of the schema for tenant-level config. Absent: no schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "sha-256"))]
    pub tenant_config_schema: Option<String>,
}

/// Points with what a plugin does at each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OfferedPoints {
    /// Before input goes to a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_llm_request: Option<PointAccess>,
    /// Before a tool runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_tool_call: Option<PointAccess>,
    /// After a tool ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_tool_result: Option<PointAccess>,
    /// Before the answer is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_response: Option<PointAccess>,
}

impl OfferedPoints {
    /// The offer at `point`. Returns `None` if there is none.
    pub fn at(&self, point: Point) -> Option<PointAccess> {
        match point {
            Point::BeforeLlmRequest => self.before_llm_request,
            Point::BeforeToolCall => self.before_tool_call,
            Point::AfterToolResult => self.after_tool_result,
            Point::BeforeResponse => self.before_response,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == OfferedPoints::default()
    }
}

impl From<[Option<PointAccess>; 4]> for OfferedPoints {
    /// By [`Point::index`].
    fn from(
        [before_llm_request, before_tool_call, after_tool_result, before_response]: [Option<PointAccess>; 4],
    ) -> Self {
        OfferedPoints { before_llm_request, before_tool_call, after_tool_result, before_response }
    }
}

/// The differences between two manifests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ManifestDiff {
    pub points: PointsDiff,
    pub capabilities: CapabilitiesDiff,
    /// The schemas that changed, were added or were removed.
    pub schemas: Vec<&'static str>,
    /// The differences of `schemas`, in words.
    #[serde(skip)]
    schemas_in_words: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PointsDiff {
    /// Only in the new manifest.
    pub added: BTreeMap<Point, PointAccess>,
    /// Only in the old manifest.
    pub removed: BTreeMap<Point, PointAccess>,
    /// In both, but different.
    pub changed: BTreeMap<Point, OfferChange>,
}

/// A change of access or side effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfferChange {
    pub from: PointAccess,
    pub to: PointAccess,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CapabilitiesDiff {
    /// Only in the new manifest.
    pub added: BTreeSet<Capability>,
    /// Only in the old manifest.
    pub removed: BTreeSet<Capability>,
}

impl ManifestDiff {
    /// The differences from `before` to `after`.
    pub fn between(before: &Consent, after: &Consent) -> Self {
        let mut points = PointsDiff::default();
        for point in Point::ALL {
            match (before.points.at(point), after.points.at(point)) {
                (None, Some(offer)) => drop(points.added.insert(point, offer)),
                (Some(offer), None) => drop(points.removed.insert(point, offer)),
                (Some(from), Some(to)) if from != to => {
                    points.changed.insert(point, OfferChange { from, to });
                }
                _ => {}
            }
        }
        let capabilities = CapabilitiesDiff {
            added: after.capabilities.difference(&before.capabilities).copied().collect(),
            removed: before.capabilities.difference(&after.capabilities).copied().collect(),
        };
        let (mut schemas, mut schemas_in_words) = (Vec::new(), Vec::new());
        for (name, before, after) in [
            ("config_schema", &before.config_schema, &after.config_schema),
            ("tenant_config_schema", &before.tenant_config_schema, &after.tenant_config_schema),
        ] {
            let words = match (before, after) {
                _ if before == after => continue,
                (None, _) => format!("has a {name}"),
                (_, None) => format!("no longer has {name}"),
                _ => format!("has another {name}"),
            };
            schemas.push(name);
            schemas_in_words.push(words);
        }
        ManifestDiff { points, capabilities, schemas, schemas_in_words }
    }
}

impl fmt::Display for ManifestDiff {
    /// All differences on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PointsDiff { added, removed, changed } = &self.points;
        let mut parts = Vec::new();
        parts.extend(added.iter().map(|(point, offer)| format!("adds {point} ({offer})")));
        parts.extend(removed.keys().map(|point| format!("omits {point}")));
        let changed = changed.iter();
        parts.extend(
            changed.map(|(point, OfferChange { from, to })| {
                format!("has {point} as ({to}) instead of ({from})")
            }),
        );
        let CapabilitiesDiff { added, removed } = &self.capabilities;
        parts.extend(added.iter().map(|capability| format!("asks for {}", capability.as_str())));
        parts.extend(removed.iter().map(|capability| format!("no longer requests {}", capability.as_str())));
        parts.extend(self.schemas_in_words.iter().cloned());
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn consent(value: serde_json::Value) -> Consent {
        serde_json::from_value(value).expect("a consent")
    }

    #[test]
    fn difference_names_what_is_added_removed_and_changed_and_nothing_else() {
        let before = consent(json!({
            "points": {
                "before_tool_call": { "access": "read", "side_effects": "none" },
                "after_tool_result": { "access": "read", "side_effects": "none" },
                "before_response": { "access": "read", "side_effects": "none" },
            },
            "capabilities": ["log", "emit"],
        }));
        let after = consent(json!({
            "points": {
                "before_llm_request": { "access": "modify", "side_effects": "some" },
                "before_tool_call": { "access": "modify", "side_effects": "none" },
                "before_response": { "access": "read", "side_effects": "none" },
            },
            "capabilities": ["emit", "storage:read"],
            "config_schema": "00",
        }));
        let difference = ManifestDiff::between(&before, &after);
        assert_eq!(
            serde_json::to_value(&difference).expect("JSON"),
            json!({
                "points": {
                    "added": { "before_llm_request": { "access": "modify", "side_effects": "some" } },
                    "removed": { "after_tool_result": { "access": "read", "side_effects": "none" } },
                    "changed": { "before_tool_call": {
                        "from": { "access": "read", "side_effects": "none" },
                        "to": { "access": "modify", "side_effects": "none" },
                    } },
                },
                "capabilities": { "added": ["storage:read"], "removed": ["log"] },
                "schemas": ["config_schema"],
            })
        );
        assert_eq!(
            difference.to_string(),
            "adds before_llm_request (modify, side effects: some), omits after_tool_result, has \
             before_tool_call as (modify, side effects: none) instead of (read, side effects: none), asks for \
             storage:read, no longer requests log, has a config_schema"
        );
        assert_eq!(ManifestDiff::between(&after, &after), ManifestDiff::default());
        let other = Consent { config_schema: Some("01".into()), ..after.clone() };
        assert_eq!(ManifestDiff::between(&after, &other).to_string(), "has another config_schema");
        let without = Consent { config_schema: None, ..after.clone() };
        assert_eq!(ManifestDiff::between(&after, &without).to_string(), "no longer has config_schema");
    }
}
