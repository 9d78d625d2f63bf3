use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Any JSON value, a few levels deep.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/~ ]{0,8}".prop_map(Value::from),
        Just(Value::from("${HOOKGATE_SECRET_X}")),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z/~]{0,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_shown_and_sent_back_is_what_it_was(config in value()) {
        let spec = json!({ "name": "p", "config": config });
        let mut back = masked(ObjectKind::Plugin, &spec.clone().into());
        prop_assert!(restore(&mut back, Some(&spec)).is_empty());
        prop_assert_eq!(back, spec);
    }

    #[test]
    fn no_text_and_no_number_of_a_config_is_shown(config in value()) {
        let mut seen = masked(ObjectKind::Plugin, &json!({ "config": config }).into());
        walk(&mut seen, "", &mut |_, value| {
            let is_hidden = match value {
                Value::String(text) => text == MASK || is_reference(text),
                Value::Number(_) => false,
                _ => true,
            };
            assert!(is_hidden, "{value}");
        });
    }
}

#[test]
fn a_mask_without_a_stored_value_is_a_mistake() {
    let mut spec = json!({ "config": { "new": "***", "old": ["***"] } });
    let problems = restore(&mut spec, Some(&json!({ "config": { "old": [7] } })));
    assert_eq!(problems.iter().map(|problem| &*problem.pointer).collect::<Vec<_>>(), ["/config/new"]);
    assert_eq!(spec["config"]["old"], json!([7]));
}

#[test]
fn references_stand_in_plugins_config_alone() {
    let config = json!({ "name": "${X}", "config": { "a": "${X}" } });
    let pointers = |kind| {
        misplaced_references(kind, &config).into_iter().map(|problem| problem.pointer).collect::<Vec<_>>()
    };
    assert_eq!(pointers(ObjectKind::Plugin), ["/name"]);
    assert_eq!(pointers(ObjectKind::Binding).len(), 2);
    let tenant = json!({ "id": "a", "llm": { "credentials": { "openai": "${X}" } } });
    assert!(misplaced_references(ObjectKind::Tenant, &tenant).is_empty(), "its check refuses them");
}
