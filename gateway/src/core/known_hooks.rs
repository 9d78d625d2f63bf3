//! The hooks whose bodies and contributions have a schema (docs/protocol.md, section 9). Names of hooks are
//! open: any other hook takes any object and any contribution.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use jsonschema::Validator;
use serde::Deserialize;
use serde_json::{Value, json};

use super::schema_violation;

/// The known hooks, as a file that people can read.
pub const KNOWN_HOOKS: &str = include_str!("hooks.json");

/// A hook with schemas.
pub struct KnownHook {
    /// The schema of its body.
    pub body: Validator,
    /// The schemas of what plugins may contribute, by kind.
    contributions: BTreeMap<String, Arc<Validator>>,
}

/// Why a contribution doesn't fit its hook, in words that hide its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContributionFlaw {
    /// The hook takes no such kind; the kinds that it takes.
    Kind(Vec<String>),
    /// The value violates the kind's schema.
    Value(String),
}

impl KnownHook {
    /// The hook called `name`; `None` if it has no schemas.
    pub fn named(name: &str) -> Option<&'static KnownHook> {
        static KNOWN: LazyLock<BTreeMap<String, KnownHook>> = LazyLock::new(|| {
            let document: Document = serde_json::from_str(KNOWN_HOOKS).expect("hooks.json is a document");
            document.compile()
        });
        KNOWN.get(name)
    }

    /// Checks a contribution of this `kind`.
    ///
    /// # Errors
    /// The hook takes no such kind, or the value violates its schema.
    pub fn check(&self, kind: &str, value: &[u8]) -> Result<(), ContributionFlaw> {
        let Some(schema) = self.contributions.get(kind) else {
            return Err(ContributionFlaw::Kind(self.contributions.keys().cloned().collect()));
        };
        // Text that isn't JSON is null here, which violates every schema of a kind.
        let value: Value = serde_json::from_slice(value).unwrap_or_default();
        schema.validate(&value).map_err(|error| {
            let (place, rule) = (schema_violation::place(&error), schema_violation::rule(&error));
            ContributionFlaw::Value(format!("{rule} at `{place}`"))
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    kinds: BTreeMap<String, Value>,
    hooks: BTreeMap<String, Entry>,
    #[serde(rename = "$defs")]
    definitions: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    contributions: Vec<String>,
    body: Value,
}

impl Document {
    fn compile(self) -> BTreeMap<String, KnownHook> {
        let Document { kinds, hooks, definitions } = self;
        let compile =
            |schema: &Value| jsonschema::validator_for(schema).expect("hooks.json has valid schemas");
        let kinds: BTreeMap<_, _> =
            kinds.into_iter().map(|(kind, schema)| (kind, Arc::new(compile(&schema)))).collect();
        let hook = |(name, Entry { contributions, body }): (String, Entry)| {
            let body = compile(&json!({ "allOf": [body], "$defs": definitions }));
            let contribution = |kind: String| {
                let schema = Arc::clone(&kinds[&kind]);
                (kind, schema)
            };
            let contributions = contributions.into_iter().map(contribution).collect();
            (name, KnownHook { body, contributions })
        };
        hooks.into_iter().map(hook).collect()
    }
}

#[cfg(test)]
mod tests {
    use hookgate_proto::HookName;

    use super::*;

    #[test]
    fn every_known_hook_has_a_valid_name_and_schemas_that_compile() {
        let document: Document = serde_json::from_str(KNOWN_HOOKS).expect("a document");
        let compiled = document.compile();
        for (name, hook) in &compiled {
            assert_eq!(HookName::new(name).map(String::from).as_ref(), Ok(name));
            assert!(
                hook.contributions.keys().all(|kind| hookgate_proto::is_lower_snake_case(kind)),
                "{name}"
            );
            assert!(hook.body.validate(&json!([])).is_err(), "{name} takes an object only");
        }
        assert_eq!(compiled.len(), 15);
    }

    #[test]
    fn a_body_may_have_more_members_than_its_schema_names() {
        let recall = KnownHook::named("recall").expect("it is known");
        assert!(recall.body.is_valid(&json!({ "message": "hi", "peer_id": null })));
        assert!(!recall.body.is_valid(&json!({ "text": "hi" })));
        let window = KnownHook::named("before_compact").expect("it is known");
        assert!(window.body.is_valid(&json!({ "messages": [{ "role": "user" }], "trigger": "tokens" })));
        assert!(!window.body.is_valid(&json!({ "messages": ["hi"] })));
    }

    #[test]
    fn a_contribution_of_another_kind_or_form_is_refused_without_its_value() {
        let recall = KnownHook::named("recall").expect("it is known");
        assert_eq!(recall.check("memory", br#"{"content":"the user is called Ada"}"#), Ok(()));
        assert_eq!(recall.check("inject", b"{}"), Err(ContributionFlaw::Kind(vec!["memory".into()])));
        let flaw = recall.check("memory", br#"{"content":["s3cr3t"]}"#);
        let Err(ContributionFlaw::Value(words)) = flaw else { panic!("{flaw:?}") };
        assert!(words.contains("`/content`") && !words.contains("s3cr3t"), "{words}");
        assert!(recall.check("memory", b"{").is_err());
    }

    #[test]
    fn a_hook_of_ones_own_has_no_schema() {
        assert!(KnownHook::named("my_hook").is_none());
    }
}
