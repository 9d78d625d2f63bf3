//! The question in a query: which call is to be explained.

use std::collections::BTreeMap;

use http::Uri;
use percent_encoding::percent_decode_str;

use crate::{
    error::{Code, Error},
    invoke::explain::{AbsentWhy, Explanation, Question},
    point::Point,
};

/// How long a caller may say that it waits, in milliseconds, as on the data port.
const TIMEOUTS: std::ops::RangeInclusive<u64> = 1..=60_000;

/// `?point=NAME` and what the call carries, of the tenant `id`.
///
/// # Errors
/// PAYLOAD_INVALID, naming what is unknown, there twice, or no value of its kind.
pub(super) fn question(uri: &Uri, id: &str) -> Result<Question, Error> {
    let mut members = BTreeMap::new();
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        let known = matches!(name.as_str(), "point" | "tool" | "agent" | "model" | "text" | "timeout_ms")
            || name.strip_prefix("label.").is_some_and(|key| !key.is_empty());
        if !known {
            return Err(invalid(format!(
                "There is no query member `{name}`: there are point, tool, agent, model, text, timeout_ms and \
                 label.KEY"
            )));
        }
        if let Some((name, _)) = members.get_key_value(&name) {
            return Err(invalid(format!("The query has `{name}` twice")));
        }
        members.insert(name, value);
    }
    let mut question = Question::new(id, point(members.remove("point"))?);
    let call = &mut question.call;
    call.tool = members.remove("tool");
    call.agent = members.remove("agent");
    call.model = members.remove("model");
    call.timeout_ms = members.remove("timeout_ms").map(|text| timeout(&text)).transpose()?;
    question.text = members.remove("text");
    call.labels = members
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("label.")?.to_owned(), value)))
        .collect();
    Ok(question)
}

/// What a token that names the tenant may see of it: no names of other tenants, and of bindings only those that are for
/// it, here or elsewhere.
pub(super) fn for_tenant(mut said: Explanation) -> Explanation {
    said.tenant.hint = None;
    let concerns = |why| matches!(why, AbsentWhy::Disabled | AbsentWhy::Points | AbsentWhy::NotOffered);
    said.absent.retain(|absent| concerns(absent.why));
    said
}

/// A part of a query as forms write it: `+` is a space.
pub(super) fn decode(part: &str) -> Result<String, Error> {
    let spaced = part.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| invalid(format!("`{part}` in the query is no UTF-8")))
}

fn point(name: Option<String>) -> Result<Point, Error> {
    let point = name.as_deref().and_then(Point::named);
    let names = || Point::ALL.map(Point::as_str).join(", ");
    point.ok_or_else(|| invalid(format!("The query must have `point`, one of {}", names())))
}

fn timeout(text: &str) -> Result<u64, Error> {
    let millis = text.parse().ok().filter(|millis| TIMEOUTS.contains(millis));
    millis.ok_or_else(|| invalid("`timeout_ms` in the query must be 1 to 60000".to_owned()))
}

pub(super) fn invalid(detail: String) -> Error {
    Error::new(Code::PayloadInvalid, detail)
}
