//! The part of a plugin's manifest that an operator consents to, and the differences between two of them
//! (docs/decisions/0033-consent.md). The version is not part of it: a build that does what was accepted needs
//! no new consent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::point::{Point, PointAccess, SideEffects};
use hookgate_proto::{Capability, HookName};

/// A manifest as it is consented to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Consent {
    /// The offered points; at least one, unless `hooks` or `tools` has one.
    #[serde(default)]
    pub points: OfferedPoints,
    /// The side effects at each offered hook.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<HookName, SideEffects>,
    /// Names that the plugin's tools may have, as globs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<String>,
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

    /// The offered points with what the plugin does at each.
    pub fn offers(&self) -> BTreeMap<Point, PointAccess> {
        Point::ALL.into_iter().filter_map(|point| Some((point, self.at(point)?))).collect()
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
    pub points: OffersDiff<Point, PointAccess>,
    #[serde(skip_serializing_if = "OffersDiff::is_empty")]
    pub hooks: OffersDiff<HookName, SideEffects>,
    /// Globs of tools' names.
    #[serde(skip_serializing_if = "SetDiff::is_empty")]
    pub tools: SetDiff<String>,
    pub capabilities: SetDiff<Capability>,
    /// The schemas that changed, were added or were removed.
    pub schemas: Vec<&'static str>,
    /// The differences of `schemas`, in words.
    #[serde(skip)]
    schemas_in_words: Vec<String>,
}

/// The differences between what two manifests offer at points, or at hooks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(bound(serialize = "Site: Ord + Serialize, Offer: Serialize"))]
pub struct OffersDiff<Site, Offer> {
    /// Only in the new manifest.
    pub added: BTreeMap<Site, Offer>,
    /// Only in the old manifest.
    pub removed: BTreeMap<Site, Offer>,
    /// In both, but different.
    pub changed: BTreeMap<Site, OfferChange<Offer>>,
}

/// A change of access or side effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfferChange<Offer> {
    pub from: Offer,
    pub to: Offer,
}

impl<Site, Offer> Default for OffersDiff<Site, Offer> {
    fn default() -> Self {
        OffersDiff { added: BTreeMap::new(), removed: BTreeMap::new(), changed: BTreeMap::new() }
    }
}

impl<Site: Ord + Clone + fmt::Display, Offer: PartialEq + Clone> OffersDiff<Site, Offer> {
    fn between(before: &BTreeMap<Site, Offer>, after: &BTreeMap<Site, Offer>) -> Self {
        let only_in = |these: &BTreeMap<Site, Offer>, others: &BTreeMap<Site, Offer>| {
            let new = these.iter().filter(|(site, _)| !others.contains_key(site));
            new.map(|(site, offer)| (site.clone(), offer.clone())).collect()
        };
        let changed = before.iter().filter_map(|(site, from)| {
            let to = after.get(site).filter(|to| *to != from)?;
            Some((site.clone(), OfferChange { from: from.clone(), to: to.clone() }))
        });
        OffersDiff {
            added: only_in(after, before),
            removed: only_in(before, after),
            changed: changed.collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    /// The differences in words; `words` describes an offer.
    fn in_words(&self, words: impl Fn(&Offer) -> String) -> Vec<String> {
        let added = self.added.iter().map(|(site, offer)| format!("adds {site} ({})", words(offer)));
        let removed = self.removed.keys().map(|site| format!("omits {site}"));
        let changed = self.changed.iter().map(|(site, OfferChange { from, to })| {
            format!("has {site} as ({}) instead of ({})", words(to), words(from))
        });
        added.chain(removed).chain(changed).collect()
    }
}

/// The differences between two sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(bound(serialize = "T: Ord + Serialize"))]
pub struct SetDiff<T> {
    /// Only in the new manifest.
    pub added: BTreeSet<T>,
    /// Only in the old manifest.
    pub removed: BTreeSet<T>,
}

impl<T> Default for SetDiff<T> {
    fn default() -> Self {
        SetDiff { added: BTreeSet::new(), removed: BTreeSet::new() }
    }
}

impl<T: Ord + Clone> SetDiff<T> {
    fn between(before: &BTreeSet<T>, after: &BTreeSet<T>) -> Self {
        SetDiff {
            added: after.difference(before).cloned().collect(),
            removed: before.difference(after).cloned().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl ManifestDiff {
    /// The differences from `before` to `after`.
    pub fn between(before: &Consent, after: &Consent) -> Self {
        let points = OffersDiff::between(&before.points.offers(), &after.points.offers());
        let hooks = OffersDiff::between(&before.hooks, &after.hooks);
        let tools = SetDiff::between(&before.tools, &after.tools);
        let capabilities = SetDiff::between(&before.capabilities, &after.capabilities);
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
        ManifestDiff { points, hooks, tools, capabilities, schemas, schemas_in_words }
    }
}

impl fmt::Display for ManifestDiff {
    /// All differences on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.points.in_words(PointAccess::to_string);
        parts.extend(self.hooks.in_words(|side_effects| format!("side effects: {}", side_effects.as_str())));
        let SetDiff { added, removed } = &self.tools;
        parts.extend(added.iter().map(|glob| format!("provides tools named `{glob}`")));
        parts.extend(removed.iter().map(|glob| format!("no longer provides tools named `{glob}`")));
        let SetDiff { added, removed } = &self.capabilities;
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

    #[test]
    fn difference_names_the_fields_that_are_read() {
        let consent = |reads: serde_json::Value| {
            let mut offer = json!({ "access": "read", "side_effects": "none" });
            if !reads.is_null() {
                offer["reads"] = reads;
            }
            consent(json!({ "points": { "before_tool_call": offer } }))
        };
        let (nothing, args, all) = (consent(json!([])), consent(json!(["args"])), consent(json!(null)));
        for (before, after, said) in [
            (
                &nothing,
                &args,
                "(read, side effects: none, reads: args) instead of (read, side effects: none, reads: nothing)",
            ),
            (&args, &all, "(read, side effects: none) instead of (read, side effects: none, reads: args)"),
        ] {
            let difference = ManifestDiff::between(before, after);
            assert_eq!(difference.to_string(), format!("has before_tool_call as {said}"));
        }
        assert_eq!(consent(json!(["extra", "args"])), consent(json!(["args", "extra"])));
    }

    #[test]
    fn difference_names_the_windows() {
        let consent = |windows: bool| {
            let mut offer = json!({ "access": "read", "side_effects": "none" });
            if windows {
                offer["windows"] = json!(true);
            }
            consent(json!({ "points": { "before_response": offer } }))
        };
        let difference = ManifestDiff::between(&consent(false), &consent(true));
        assert_eq!(
            difference.to_string(),
            "has before_response as (read, side effects: none, windows) instead of (read, side effects: none)"
        );
    }

    #[test]
    fn difference_names_the_hooks_that_are_added_removed_and_changed() {
        let consent = |hooks| consent(json!({ "points": {}, "hooks": hooks }));
        let before = consent(json!({ "recall": "none", "turn_end": "none" }));
        let after = consent(json!({ "session_end": "none", "turn_end": "some" }));
        let difference = ManifestDiff::between(&before, &after);
        assert_eq!(
            difference.to_string(),
            "adds session_end (side effects: none), omits recall, has turn_end as (side effects: some) instead of \
             (side effects: none)"
        );
        assert_eq!(
            serde_json::to_value(&difference.hooks).expect("JSON"),
            json!({
                "added": { "session_end": "none" },
                "removed": { "recall": "none" },
                "changed": { "turn_end": { "from": "none", "to": "some" } },
            })
        );
    }
}
