//! The rules for an agent's request context: opaque values, limited in length, that can't replace a claim.

use hookgate_proto::gateway::v1::RequestContext;

use super::{Findings, Validator};
use crate::core::error::Violation;

const MAX_VALUE_BYTES: usize = 256;
const MAX_LABELS: usize = 32;
const MAX_LABEL_KEY_BYTES: usize = 64;

/// Labels with this prefix come from the token.
const CLAIM_PREFIX: &str = "claim.";

/// The violations in a request's context, with pointers below `/context`.
pub fn context_violations(context: &RequestContext) -> Vec<Violation> {
    let mut findings = Findings::default();
    check(context, &mut Validator::new("/context", &mut findings));
    findings.into_violations()
}

pub(super) fn check(context: &RequestContext, check: &mut Validator<'_>) {
    let values = [
        ("session_id", &context.session_id),
        ("run_id", &context.run_id),
        ("parent_run_id", &context.parent_run_id),
        ("agent_id", &context.agent_id),
        ("agent_path", &context.agent_path),
        ("project_id", &context.project_id),
        ("user_id", &context.user_id),
        ("provider", &context.provider),
        ("model", &context.model),
    ];
    for (member, value) in values {
        if let Some(wrong) = value.as_deref().and_then(|value| fault(value, MAX_VALUE_BYTES)) {
            check.report(member, format!("`{member}` {wrong}"));
        }
    }
    let labels = &context.labels;
    if labels.len() > MAX_LABELS {
        check
            .report("labels", format!("At most {MAX_LABELS} labels are allowed, there are {}", labels.len()));
    }
    check.inside("labels", |check| {
        for (key, value) in labels {
            if let Some(wrong) = label_fault(key, value) {
                check.report(key, wrong);
            }
        }
    });
}

fn label_fault(key: &str, value: &str) -> Option<String> {
    if key.is_empty() {
        return Some("The label's key must not be empty".to_owned());
    }
    if key.starts_with(CLAIM_PREFIX) {
        return Some(format!(
            "The label's key must not begin with `{CLAIM_PREFIX}`: claims come only from the token"
        ));
    }
    if let Some(wrong) = fault(key, MAX_LABEL_KEY_BYTES) {
        return Some(format!("The label's key {wrong}"));
    }
    fault(value, MAX_VALUE_BYTES).map(|wrong| format!("The label's value {wrong}"))
}

fn fault(value: &str, max: usize) -> Option<String> {
    if value.len() > max {
        return Some(format!("must be at most {max} bytes, is {}", value.len()));
    }
    value.chars().any(char::is_control).then(|| "must hold no control character".to_owned())
}
