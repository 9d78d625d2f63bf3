//! Extracts the decision from an answer. A broken proxy or gateway may garble it, so it is a decision only if its
//! status, header and body agree.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::{client::Answer, output::printable};

/// A gateway's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Continue,
    Block,
    /// A plugin gave the tool's result.
    Answer,
}

/// The members of a decision. A repeated member is refused, because parsers disagree on which one counts.
#[derive(Default, Deserialize)]
struct DecisionMembers<'a> {
    decision: Option<String>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    block: Option<IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

impl Decision {
    /// # Errors
    /// There is no decision: the gateway answered an error, or the parts of the answer disagree.
    pub(super) fn from_answer(answer: &Answer) -> Result<Self, String> {
        let header = answer.decision.as_deref();
        if header.is_none() && answer.body["decision"].is_null() {
            return Err(answer.error());
        }
        let members: DecisionMembers<'_> = serde_json::from_str(&answer.text).unwrap_or_default();
        let said = (header, answer.status, members.decision.as_deref());
        // `null` is a result too.
        let has_result = members.result.is_some() || answer.body.get("result").is_some();
        match (said, members.payload.is_some(), members.block.is_some(), has_result) {
            ((Some("continue"), 200, Some("continue")), true, false, false) => Ok(Decision::Continue),
            ((Some("answer"), 200, Some("answer")), true, false, true) => Ok(Decision::Answer),
            ((Some("block"), 400..=499, Some("block")), _, true, false) => Ok(Decision::Block),
            ((header, status, decision), has_payload, has_block, _) => {
                let quoted = |text: Option<&str>| match text {
                    Some(text) => format!("is `{}`", printable(text)),
                    None => "is missing".to_owned(),
                };
                let there = |is_there| if is_there { "is there" } else { "is missing" };
                Err(format!(
                    "this is not a valid gateway answer: its status is {status}, the header `hookgate-decision` {}, \
                     and of the members `decision` {}, `payload` {} and `block` {}; check for a proxy that \
                     modifies responses",
                    quoted(header),
                    quoted(decision),
                    there(has_payload),
                    there(has_block)
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, decision: Option<&str>, text: &str) -> Result<Decision, String> {
        let body = serde_json::from_str(text).expect("it is JSON");
        Decision::from_answer(&Answer {
            status,
            decision: decision.map(str::to_owned),
            text: text.to_owned(),
            body,
        })
    }

    const GOES_ON: &str = r#"{"decision":"continue","payload":{"text":"a"}}"#;
    const BLOCKS: &str =
        r#"{"decision":"block","payload":{"text":"a"},"block":{"code":"NO","message":"no"}}"#;

    #[test]
    fn status_header_and_body_that_agree_are_a_decision() {
        assert_eq!(of(200, Some("continue"), GOES_ON), Ok(Decision::Continue));
        for status in [400, 403, 429, 499] {
            assert_eq!(of(status, Some("block"), BLOCKS), Ok(Decision::Block), "{status}");
        }
        let null = r#"{"decision":"continue","payload":{"text":"a"},"block":null}"#;
        assert_eq!(of(200, Some("continue"), null), Ok(Decision::Continue));
    }

    #[test]
    fn a_result_is_a_decision_whatever_its_value() {
        for result in ["null", "{}", "7"] {
            let text = format!(r#"{{"decision":"answer","payload":{{}},"result":{result}}}"#);
            assert_eq!(of(200, Some("answer"), &text), Ok(Decision::Answer), "{result}");
            assert!(of(200, Some("continue"), &text.replace("\"answer", "\"continue")).is_err(), "{result}");
        }
    }

    #[test]
    fn an_answer_that_contradicts_itself_or_says_something_unknown_is_no_decision() {
        let maybe = GOES_ON.replace("continue", "maybe");
        for (status, header, body) in [
            (200, Some("continue"), maybe.as_str()),
            (200, Some("maybe"), &maybe),
            (200, Some("continue"), BLOCKS),
            (200, Some("block"), BLOCKS),
            (200, Some("block"), GOES_ON),
            (200, None, GOES_ON),
            (403, None, BLOCKS),
            (403, Some("continue"), GOES_ON),
            (403, Some("continue"), BLOCKS),
            (403, Some("block"), GOES_ON),
            (503, Some("block"), BLOCKS),
            (201, Some("continue"), GOES_ON),
            (200, Some("Continue"), GOES_ON),
            (200, Some("continue, continue"), GOES_ON),
            (200, Some("continue"), r#"{"payload":{}}"#),
            (200, Some("continue"), r#"{"decision":"continue"}"#),
            (200, Some("continue"), r#"{"decision":"continue","payload":null}"#),
            (200, Some("continue"), r#"{"decision":["continue"],"payload":{}}"#),
            (200, Some("continue"), r#"{"decision":"block","decision":"continue","payload":{}}"#),
            (200, Some("continue"), r#"{"decision":"continue","payload":{},"block":{"code":"NO"}}"#),
            (403, Some("block"), r#"{"decision":"block","payload":{},"block":null}"#),
            (200, Some("answer"), r#"{"decision":"answer","payload":{}}"#),
            (200, Some("continue"), "[]"),
        ] {
            let why = of(status, header, body).expect_err(body);
            assert!(why.starts_with("this is not a valid gateway answer: its status is"), "{why}");
        }
    }

    #[test]
    fn an_error_is_told_as_the_gateway_says_it() {
        let error = r#"{"code":"TENANT_LIMITED","detail":"Too many calls"}"#;
        assert!(of(429, None, error).expect_err(error).starts_with("TENANT_LIMITED ("));
        assert!(of(200, None, "{}").expect_err("{}").contains("neither a result nor an error of a gateway"));
    }
}
