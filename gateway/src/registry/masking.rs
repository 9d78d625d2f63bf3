//! Masks secrets in objects that are shown, and unmasks them when they are sent back. Plugin-level config
//! may contain secrets, so its texts and numbers are shown as `***`, except for references. A `***` that
//! comes back keeps the stored value.

use serde_json::Value;

use crate::{
    config::{Problem, is_reference, shown_reference},
    core::object::ObjectKind,
    json::pointer::child,
    store::Spec,
};

/// Replaces a hidden value.
const MASK: &str = "***";

/// `spec` as shown to operators.
pub fn masked(kind: ObjectKind, spec: &Spec) -> Value {
    let mut spec = spec.value();
    let member = match kind {
        ObjectKind::Plugin => "config",
        ObjectKind::Upstream => "credential",
        ObjectKind::Tenant | ObjectKind::Binding | ObjectKind::Model | ObjectKind::Bypass => return spec,
    };
    if let Some(secret) = spec.get_mut(member) {
        walk(secret, "", &mut |_, value| hide(value));
    }
    spec
}

/// Replaces each `***` in `spec` by the value in `before`.
///
/// # Errors
/// The places of a `***` for which there is no such value.
pub(super) fn restore(spec: &mut Value, before: Option<&Value>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(config) = spec.get_mut("config") {
        walk(config, "/config", &mut |pointer, value| {
            if value.as_str() != Some(MASK) {
                return;
            }
            match before.and_then(|before| before.pointer(pointer)) {
                Some(was) => *value = was.clone(),
                None => problems.push(
                    Problem::new(pointer, "`***` stands for the previous value, but there is none")
                        .remedy("write the value, or a reference such as `${HOOKGATE_SECRET_NAME}`"),
                ),
            }
        });
    }
    problems
}

/// Finds references in places where they are not resolved.
pub(super) fn misplaced_references(kind: ObjectKind, spec: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut spec = spec.clone();
    walk(&mut spec, "", &mut |pointer, value| {
        let may_hold = match kind {
            ObjectKind::Plugin => pointer.starts_with("/config/"),
            // Refused for another reason.
            ObjectKind::Tenant => pointer.starts_with("/llm/credentials/"),
            ObjectKind::Upstream => pointer == "/credential",
            ObjectKind::Binding | ObjectKind::Model | ObjectKind::Bypass => false,
        };
        if !may_hold && value.as_str().is_some_and(|text| text.contains("${")) {
            problems.push(
                Problem::new(
                    pointer,
                    "references are resolved only in a plugin's `config` and an upstream's `credential`",
                )
                .remedy("write the value itself"),
            );
        }
    });
    problems
}

fn hide(value: &mut Value) {
    match value {
        Value::String(text) if is_reference(text) => *text = shown_reference(text, false),
        Value::String(_) | Value::Number(_) => *value = MASK.into(),
        _ => {}
    }
}

/// Visits every scalar with its pointer.
fn walk(value: &mut Value, pointer: &str, visit: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                walk(item, &child(pointer, &at.to_string()), visit);
            }
        }
        Value::Object(members) => {
            for (key, member) in members {
                walk(member, &child(pointer, key), visit);
            }
        }
        scalar => visit(pointer, scalar),
    }
}

#[cfg(test)]
#[path = "masking_tests.rs"]
mod tests;
