//! Checks what a plugin contributes at a hook (docs/protocol.md, section 9).

use hookgate_proto::{is_lower_snake_case, types::v1::Contribution};
use prost::Message;

use crate::{
    core::step::Reason,
    invoke::reply::{ReplyError, ReplyLimits},
    json,
    payload::known_hooks::KnownHook,
};

/// The maximum number of contributions in a reply.
const MAX_CONTRIBUTIONS: usize = 64;

/// Checks the `contributions` in a reply at `hook`.
///
/// # Errors
/// `bad_reply` for the first one that is invalid, or for too many; `too_large`.
pub(super) fn check(
    hook: &str,
    contributions: &[Contribution],
    limits: &ReplyLimits,
) -> Result<(), ReplyError> {
    let bad = |detail: String| Err(ReplyError::new(Reason::BadReply, detail));
    if contributions.len() > MAX_CONTRIBUTIONS {
        let given = contributions.len();
        return bad(format!("its reply holds {given} contributions, {MAX_CONTRIBUTIONS} are allowed"));
    }
    let size = encoded_len(contributions);
    if size > limits.request {
        let detail = format!("its contributions are {size} bytes, {} are allowed", limits.request);
        return Err(ReplyError::new(Reason::TooLarge, detail));
    }
    let known = KnownHook::named(hook);
    for (index, Contribution { kind, value }) in contributions.iter().enumerate() {
        let at = format!("/contributions/{index}");
        if !is_lower_snake_case(kind) {
            return bad(format!("{at}/kind is not [a-z][a-z0-9_]{{0,63}}"));
        }
        if let Err(error) = json::scan(value, json::MAX_DEPTH) {
            return bad(format!("{at}/value is not valid JSON: {}", error.message));
        }
        let Some(known) = known else { continue };
        if known.kinds.is_empty() {
            return bad(format!("{at}/kind is `{kind}`, but {hook} takes no contributions"));
        }
        if !known.kinds.contains(&kind.as_str()) {
            return bad(format!("{at}/kind is `{kind}`, but {hook} takes only {}", known.kinds.join(", ")));
        }
        let value = str::from_utf8(value).unwrap_or_default().trim_ascii();
        if let Some(error) = KnownHook::contribution_error(kind, value) {
            let member = if error.member.is_empty() { String::new() } else { format!("/{}", error.member) };
            return bad(format!("{at}/value{member}: {}", error.message));
        }
    }
    Ok(())
}

/// The size of all `contributions` together, in bytes.
pub(super) fn encoded_len(contributions: &[Contribution]) -> usize {
    contributions.iter().map(Message::encoded_len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ReplyLimits = ReplyLimits { request: 128, notices: 1, notice_bytes: 1, details_bytes: 1 };

    fn one(kind: &str, value: &'static str) -> Contribution {
        Contribution { kind: kind.into(), value: value.into() }
    }

    fn flaw(hook: &str, contributions: &[Contribution]) -> (Reason, String) {
        let error = check(hook, contributions, &LIMITS).expect_err("it is refused");
        (error.reason, error.detail)
    }

    #[test]
    fn any_kind_is_taken_at_a_hook_of_ones_own_and_the_listed_ones_at_a_known_hook() {
        assert_eq!(check("my_hook", &[one("anything", "null"), one("anything", "[1]")], &LIMITS), Ok(()));
        assert_eq!(check("recall", &[one("memory", r#"{"content":"Ada"}"#)], &LIMITS), Ok(()));
        let bad = |detail: &str| (Reason::BadReply, detail.to_owned());
        let said = flaw("recall", &[one("memory", r#"{"content":"Ada"}"#), one("memories", "{}")]);
        assert_eq!(said, bad("/contributions/1/kind is `memories`, but recall takes only memory"));
        let said = flaw("run_end", &[one("memory", "{}")]);
        assert_eq!(said, bad("/contributions/0/kind is `memory`, but run_end takes no contributions"));
        let said = flaw("recall", &[one("memory", "{}")]);
        assert_eq!(
            said,
            bad("/contributions/0/value/content: `content` is required: a text that isn't empty")
        );
    }

    #[test]
    fn kinds_values_number_and_size_are_checked_at_every_hook() {
        let said = flaw("my_hook", &[one("Kind", "1")]);
        assert_eq!(said, (Reason::BadReply, "/contributions/0/kind is not [a-z][a-z0-9_]{0,63}".into()));
        for value in ["", "{", "{\"a\":1,\"a\":2}"] {
            assert_eq!(flaw("my_hook", &[one("k", value)]).0, Reason::BadReply, "{value}");
        }
        assert_eq!(flaw("my_hook", &vec![one("k", "1"); 65]).0, Reason::BadReply);
        assert_eq!(flaw("my_hook", &vec![one("k", "1"); 64]).0, Reason::TooLarge);
    }
}
