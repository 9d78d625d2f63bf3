//! Dexto's two built-in plugins, as the gateway's built-in plugins with the nearest meaning. What differs is listed
//! in docs/coming-from.md, and told where the agent's file uses it.

use serde_json::json;

use hookgate::{
    config::{JsonObject, did_you_mean},
    json::pointer,
};

use super::{
    agent_file::{ContentPolicy, ResponseSanitizer},
    report::{Finding, FindingKind},
};

const BUILTIN_KEYS: [&str; 5] = ["priority", "blocking", "enabled", "redactEmails", "redactApiKeys"];

/// The `config` of `content-policy`, and a finding for each difference.
pub(super) fn content_policy(policy: &ContentPolicy, at: &str) -> (JsonObject, Vec<Finding>) {
    let mut config = redaction(policy.redact_emails, policy.redact_api_keys);
    let mut findings = vec![Finding::new(
        FindingKind::NotCarriedOver,
        at,
        "Dexto blocks a fixed list of abusive words; the gateway's content-policy has no words of its own",
        "list the words to block under `abuse: { terms: [...] }` in the plugin's `config`",
    )];
    if policy.max_input_chars > 0 {
        config.insert("max_input_chars".to_owned(), policy.max_input_chars.into());
        config.insert("on_too_long".to_owned(), "cut".into());
        findings.push(Finding::new(
            FindingKind::Different,
            pointer::child(at, "maxInputChars"),
            "the gateway redacts before it cuts, and counts Unicode scalar values instead of UTF-16 units",
            "nothing; or write `on_too_long: block` to refuse long texts",
        ));
    }
    findings.extend(redaction_findings(policy.redact_emails, policy.redact_api_keys, at));
    findings.extend(ignored(&policy.others, at, "maxInputChars"));
    (config, findings)
}

/// The `config` of `response-sanitizer`, and a finding for each difference.
pub(super) fn response_sanitizer(sanitizer: &ResponseSanitizer, at: &str) -> (JsonObject, Vec<Finding>) {
    let mut config = redaction(sanitizer.redact_emails, sanitizer.redact_api_keys);
    let mut findings = Vec::new();
    if sanitizer.max_response_length > 0 {
        config.insert("max_response_length".to_owned(), sanitizer.max_response_length.into());
        findings.push(Finding::new(
            FindingKind::Different,
            pointer::child(at, "maxResponseLength"),
            "the gateway appends `[Response truncated]` after the limit; in Dexto the mark is within the limit. It \
             counts Unicode scalar values instead of UTF-16 units",
            "lower `max_response_length` by 21 if the whole text must stay within the limit",
        ));
    }
    if sanitizer.redact_emails || sanitizer.redact_api_keys {
        findings.push(Finding::new(
            FindingKind::Different,
            at,
            "the gateway redacts `reasoning` too, not only `content`",
            "nothing",
        ));
    }
    findings.extend(redaction_findings(sanitizer.redact_emails, sanitizer.redact_api_keys, at));
    findings.extend(ignored(&sanitizer.others, at, "maxResponseLength"));
    (config, findings)
}

fn redaction(emails: bool, api_keys: bool) -> JsonObject {
    let settings = [("redact_emails", emails), ("redact_api_keys", api_keys)];
    settings
        .into_iter()
        .filter(|(_, is_on)| *is_on)
        .map(|(key, is_on)| (key.to_owned(), json!(is_on)))
        .collect()
}

fn redaction_findings(emails: bool, api_keys: bool, at: &str) -> Vec<Finding> {
    let different = |key: &str, message: &str, remedy: &str| {
        Finding::new(FindingKind::Different, pointer::child(at, key), message, remedy)
    };
    let mut findings = Vec::new();
    if emails {
        findings.push(different(
            "redactEmails",
            "an address becomes `[EMAIL]` or a shorter mask instead of `[redacted-email]`, with a notice of kind \
             `warn`",
            "nothing, unless something looks for the mask of Dexto",
        ));
    }
    if api_keys {
        findings.push(different(
            "redactApiKeys",
            "a key becomes `[REDACTED]` instead of `[redacted]`; the gateway knows more labels, and runs of 32 \
             characters, but leaves a value that looks like a word or like code",
            "try your own keys with `hookgate call`",
        ));
    }
    findings
}

/// Members that Dexto's plugin doesn't read.
fn ignored(others: &JsonObject, at: &str, own_key: &'static str) -> Vec<Finding> {
    let finding = |key: &String| {
        let known = BUILTIN_KEYS.into_iter().chain([own_key]);
        let remedy = did_you_mean(key, known).unwrap_or_else(|| "remove it from the agent's file".to_owned());
        let message = format!("`{key}` is not a setting of this plugin, and Dexto ignores it");
        Finding::new(FindingKind::NotCarriedOver, pointer::child(at, key), message, remedy)
    };
    others.keys().map(finding).collect()
}
