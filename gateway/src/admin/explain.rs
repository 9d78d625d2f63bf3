//! The question in a query: which call is to be explained.

use http::Uri;

use super::query::{Query, invalid};
use crate::{
    core::{error::Error, point::Point},
    invoke::explain::{AbsenceCause, ExplainQuery, Explanation},
};

/// How long a caller may say that it waits, in milliseconds, as on the data port.
pub(super) const TIMEOUT_RANGE_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

/// `?point=NAME` and what the call carries, of the tenant `id`.
///
/// # Errors
/// PAYLOAD_INVALID, naming what is unknown, there twice, or no value of its kind.
pub(super) fn question(uri: &Uri, id: &str) -> Result<ExplainQuery, Error> {
    let known = ["point", "tool", "agent", "model", "text", "timeout_ms", "label.KEY"];
    let mut members = Query::read(uri, &known)?;
    let mut question = ExplainQuery::new(id, point(members.take("point"))?);
    let call = &mut question.call;
    call.tool = members.take("tool");
    call.agent = members.take("agent");
    call.model = members.take("model");
    call.timeout_ms = members.read_as("timeout_ms", "1 to 60000", |text| {
        text.parse().ok().filter(|millis| TIMEOUT_RANGE_MS.contains(millis))
    })?;
    question.text = members.take("text");
    call.labels = members.rest("label").collect();
    Ok(question)
}

/// What a token that names the tenant may see of it: no names of other tenants, and of bindings only those that are for
/// it, here or elsewhere; why an operator bypasses one is among operators.
pub(super) fn for_tenant(mut said: Explanation) -> Explanation {
    said.tenant.hint = None;
    let concerns = |why| {
        use AbsenceCause::{Bypassed, Disabled, NotOffered, Points};
        matches!(why, Disabled | Points | NotOffered | Bypassed)
    };
    said.absent.retain(|absent| concerns(absent.cause));
    said.absent.iter_mut().for_each(|absent| absent.reason = None);
    said
}

fn point(name: Option<String>) -> Result<Point, Error> {
    let point = name.as_deref().and_then(Point::from_name);
    let names = || Point::ALL.map(Point::as_str).join(", ");
    point.ok_or_else(|| invalid(format!("The query must have `point`, one of {}", names())))
}
