//! How the conforming plugin judges an answer in windows.

use hookgate_proto::{
    plugin::v1::{BeforeResponseResponse, Continue, ResponseWindow, before_response_response::Verdict},
    types::v1::BeforeResponsePatch,
};

use crate::broken_rule::BrokenRule;

/// Masks the addresses in a window, which it keeps back as long as their last word may go on.
pub(crate) fn masked_window(
    rule: BrokenRule,
    window: Option<&ResponseWindow>,
    content: &str,
) -> BeforeResponseResponse {
    let is_last = window.is_none_or(|window| window.last);
    let words = content.rfind([' ', '\n']).map_or(0, |at| at + 1);
    let consumed = match is_last {
        true if rule == BrokenRule::RestOfLast => words,
        false if rule != BrokenRule::HalfAddress => words,
        _ => content.len(),
    };
    let is_counted = rule != BrokenRule::CountedBytes;
    let count = if is_counted { content[..consumed].chars().count() } else { consumed };
    let text = content[..consumed].replace("ada.lovelace@example.com", "[EMAIL]");
    let patch = (text != content[..consumed]).then_some(text);
    BeforeResponseResponse {
        verdict: Some(Verdict::Continue(Continue {})),
        modify: patch.map(|text| BeforeResponsePatch { content: Some(text), ..Default::default() }),
        consumed: u32::try_from(count).ok(),
        ..Default::default()
    }
}
