//! The gateway's rules for contributions and notices (docs/protocol.md, section 3). An error names the first one that
//! breaks a rule.

use std::collections::HashSet;

use hookgate_proto::{is_lower_snake_case, plugin::v1::Limits};
use prost::Message as _;
use serde_json::value::RawValue;

use crate::{Contribution, HookReply, Notice, json};

/// The limits of a gateway that wasn't told others.
pub(super) const LIMITS: Limits = Limits {
    max_call_bytes: 5 << 20,
    max_reply_bytes: 4 << 20,
    max_notices: 16,
    max_notice_bytes: 8192,
    max_details_bytes: 4096,
};
const MAX_CONTRIBUTIONS: usize = 64;
/// All contributions of a reply together: as many as a patched payload may have.
const MAX_CONTRIBUTION_BYTES: u64 = LIMITS.max_reply_bytes - LIMITS.max_notice_bytes;
/// How deep a JSON value nests, counted from its own root.
const MAX_JSON_LEVELS: usize = 64;
const MAX_CODE_BYTES: usize = 64;

pub(super) fn check_hook_reply(reply: &HookReply) -> Result<(), String> {
    let HookReply { contributions, notices } = reply;
    if contributions.len() > MAX_CONTRIBUTIONS {
        return Err(format!("{} contributions, {MAX_CONTRIBUTIONS} are allowed", contributions.len()));
    }
    let size: u64 = contributions.iter().map(|contribution| contribution.encoded_len() as u64).sum();
    if size > MAX_CONTRIBUTION_BYTES {
        return Err(format!("contributions of {size} bytes, {MAX_CONTRIBUTION_BYTES} are allowed"));
    }
    for (index, contribution) in contributions.iter().enumerate() {
        check_contribution(contribution).map_err(|fault| format!("/contributions/{index} {fault}"))?;
    }
    check_notices(notices)
}

fn check_contribution(contribution: &Contribution) -> Result<(), String> {
    if !is_lower_snake_case(&contribution.kind) {
        return Err(format!("has the kind `{}` outside [a-z][a-z0-9_]{{0,63}}", contribution.kind));
    }
    check_json(&contribution.value, MAX_JSON_LEVELS)
}

pub(super) fn check_notices(notices: &[Notice]) -> Result<(), String> {
    if notices.len() > LIMITS.max_notices as usize {
        return Err(format!("{} notices, {} are allowed", notices.len(), LIMITS.max_notices));
    }
    let size: u64 = notices.iter().map(|notice| notice.clone().into_wire().encoded_len() as u64).sum();
    if size > LIMITS.max_notice_bytes {
        return Err(format!("notices of {size} bytes, {} are allowed", LIMITS.max_notice_bytes));
    }
    for (index, notice) in notices.iter().enumerate() {
        check_notice(notice).map_err(|fault| format!("/notices/{index} {fault}"))?;
    }
    Ok(())
}

fn check_notice(notice: &Notice) -> Result<(), String> {
    if let Some(code) = notice.code().filter(|code| !is_code(code)) {
        return Err(format!("has the code `{code}` outside [A-Za-z][A-Za-z0-9_.:-]{{0,63}}"));
    }
    let details = notice.details_json();
    if details.is_empty() {
        return Ok(());
    }
    if details.len() as u64 > LIMITS.max_details_bytes {
        return Err(format!(
            "has details of {} bytes, {} are allowed",
            details.len(),
            LIMITS.max_details_bytes
        ));
    }
    if !details.starts_with(b"{") {
        return Err("has details that are not a JSON object".to_owned());
    }
    check_json(details, MAX_JSON_LEVELS)
}

fn is_code(code: &str) -> bool {
    code.len() <= MAX_CODE_BYTES
        && code.starts_with(|c: char| c.is_ascii_alphabetic())
        && code.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-'))
}

/// Checks JSON text that nests at most `levels` levels and in which no object repeats a key.
fn check_json(text: &[u8], levels: usize) -> Result<(), String> {
    let syntax = |error: serde_json::Error| format!("has no JSON value: {error}");
    let values: Vec<Box<RawValue>> = match text.first() {
        Some(b'{' | b'[') if levels == 0 => {
            return Err(format!("nests deeper than {MAX_JSON_LEVELS} levels"));
        }
        Some(b'{') => {
            let object: json::Object = serde_json::from_slice(text).map_err(syntax)?;
            let mut names = HashSet::new();
            if let Some(name) = object.names().find(|name| !names.insert(*name)) {
                return Err(format!("repeats the key `{name}`"));
            }
            object.into_values().collect()
        }
        Some(b'[') => serde_json::from_slice(text).map_err(syntax)?,
        _ => return serde_json::from_slice::<&RawValue>(text).map(drop).map_err(syntax),
    };
    values.iter().try_for_each(|value| check_json(value.get().as_bytes(), levels - 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::PluginError;

    fn contributes(kind: &str, value: &str) -> Result<(), String> {
        let value: Box<RawValue> = serde_json::from_str(value).unwrap();
        check_hook_reply(&HookReply::none().contribute(kind, &value).unwrap())
    }

    #[test]
    fn a_kind_is_lower_snake_case() {
        assert_eq!(contributes("memory_2", "1"), Ok(()));
        for kind in ["", "Memory", "_memory", "a-b", &"k".repeat(65)] {
            let error = contributes(kind, "1").unwrap_err();
            assert!(error.starts_with("/contributions/0 has the kind `"), "{error}");
        }
    }

    #[test]
    fn a_value_nests_64_levels_and_repeats_no_key() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for value in ["null", "1e400", r#""a""#, "{}", r#"{"a":{"a":1}}"#, &nested(64)] {
            assert_eq!(contributes("k", value), Ok(()), "{value}");
        }
        for (value, error) in [
            (r#"[{"a":1,"b":2,"a":3}]"#, "/contributions/0 repeats the key `a`"),
            (&nested(65), "/contributions/0 nests deeper than 64 levels"),
        ] {
            assert_eq!(contributes("k", value).unwrap_err(), error);
        }
    }

    #[test]
    fn a_reply_has_64_contributions_at_most() {
        let reply = |count: usize| {
            (0..count).try_fold(HookReply::none(), |reply, number| reply.contribute("k", &number)).unwrap()
        };
        assert_eq!(check_hook_reply(&reply(64)), Ok(()));
        assert_eq!(check_hook_reply(&reply(65)).unwrap_err(), "65 contributions, 64 are allowed");
    }

    #[test]
    fn contributions_are_together_as_large_as_a_payload_at_most() {
        let sized = |bytes: usize| HookReply::none().contribute("k", &"x".repeat(bytes)).unwrap();
        assert_eq!(check_hook_reply(&sized(4_186_000)), Ok(()));
        let error = check_hook_reply(&sized(4_186_112)).unwrap_err();
        assert_eq!(error, "contributions of 4186122 bytes, 4186112 are allowed");
    }

    #[test]
    fn notices_keep_to_the_limits() -> Result<(), PluginError> {
        let notice = |code: &str| Notice::info(code, "for people");
        let good = notice("A.b:c-1").details(&json!({ "facts": "x".repeat(4000) }))?;
        assert_eq!(check_notices(&[good.clone(), notice("")]), Ok(()));
        for (notices, error) in [
            (vec![notice("A"); 17], "17 notices, 16 are allowed"),
            (vec![good; 3], "notices of 12114 bytes, 8192 are allowed"),
            (vec![notice("A"), notice("1")], "/notices/1 has the code `1` outside"),
            (vec![notice("A").details(&[1])?], "/notices/0 has details that are not a JSON object"),
            (vec![notice("A").details(&json!({ "a": "x".repeat(4096) }))?], "/notices/0 has details of 4104"),
        ] {
            let found = check_notices(&notices).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
        Ok(())
    }
}
