//! The consent to a plugin's manifest, as stored in the plugin's entry (docs/decisions/0033-consent.md).
//! Pure.

use serde_json::{Map, Value, json};

use crate::config::Consent;

const ACCEPTED_KEY: &str = "accepted";
const GRANTS_KEY: &str = "grants";

/// Keeps the previous consent when a plugin is written as a whole without one. Null removes it.
pub(super) fn keep(spec: &mut Value, before: Option<&Value>) {
    let Some(members) = spec.as_object_mut() else { return };
    match members.get(ACCEPTED_KEY) {
        Some(Value::Null) => drop(members.remove(ACCEPTED_KEY)),
        Some(_) => {}
        None => {
            if let Some(accepted) = before.and_then(|before| before.get(ACCEPTED_KEY)) {
                members.insert(ACCEPTED_KEY.to_owned(), accepted.clone());
            }
        }
    }
}

/// Replaces the consent by `accepted`, and grants what it asks for.
pub(super) fn give(spec: &mut Value, accepted: &Consent) {
    let Some(members) = spec.as_object_mut() else { return };
    members.insert(ACCEPTED_KEY.to_owned(), json!(accepted));
    grant(members, accepted);
}

fn grant(members: &mut Map<String, Value>, accepted: &Consent) {
    let mut missing: Vec<_> = accepted.capabilities.iter().map(|wanted| json!(wanted)).collect();
    let granted = members.get(GRANTS_KEY).and_then(Value::as_array).cloned().unwrap_or_default();
    missing.retain(|wanted| !granted.contains(wanted));
    if !missing.is_empty() {
        members.insert(GRANTS_KEY.to_owned(), [granted, missing].concat().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consent(capabilities: &[&str]) -> Value {
        let points = json!({ "before_response": { "access": "read", "side_effects": "none" } });
        json!({ "points": points, "capabilities": capabilities })
    }

    #[test]
    fn consent_stays_unless_another_one_or_none_is_written() {
        let before = json!({ "name": "guard", "accepted": consent(&["log"]) });
        for (written, after) in [
            (json!({ "name": "guard" }), before.clone()),
            (json!({ "name": "guard", "accepted": null }), json!({ "name": "guard" })),
            (
                json!({ "name": "guard", "accepted": consent(&[]) }),
                json!({ "name": "guard", "accepted": consent(&[]) }),
            ),
        ] {
            let mut spec = written;
            keep(&mut spec, Some(&before));
            assert_eq!(spec, after);
        }
        let mut new = json!({ "name": "guard" });
        keep(&mut new, None);
        assert_eq!(new, json!({ "name": "guard" }));
    }

    #[test]
    fn consent_takes_the_place_of_the_one_before_and_grants_what_is_missing() {
        let accepted = serde_json::from_value(consent(&["emit", "log"])).expect("a consent");
        let other = json!({ "before_tool_call": { "access": "read", "side_effects": "none" } });
        let mut spec =
            json!({ "name": "guard", "grants": ["storage:read", "log"], "accepted": { "points": other } });
        give(&mut spec, &accepted);
        assert_eq!(spec["grants"], json!(["storage:read", "log", "emit"]));
        assert_eq!(
            spec["accepted"],
            json!({ "points": consent(&[])["points"], "capabilities": ["log", "emit"] })
        );
        let mut spec = json!({ "name": "guard" });
        give(&mut spec, &serde_json::from_value(consent(&[])).expect("a consent"));
        assert_eq!(spec.get("grants"), None);
    }
}
