//! Reads a request to explain a call, and limits the explanation to what a tenant may see.

use hookgate_proto::HookName;
use http::Uri;

use super::query::{Query, invalid};
use crate::{
    core::{call_site::CallSite, error::Error, point::Point},
    invoke::explain::{AbsenceCause, ExplainQuery, Explanation},
};

/// The range of the caller's timeout in milliseconds, as on the data port.
pub(super) const TIMEOUT_RANGE_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

/// What is to be explained.
pub(super) enum Question {
    /// A call at a point or a hook.
    Call(ExplainQuery),
    /// The LLM proxy.
    Llm,
}

/// Reads `?point=NAME` or `?hook=NAME` and the call's properties for the tenant `id`, or `?surface=llm`.
///
/// # Errors
/// PAYLOAD_INVALID, naming a member that is unknown, repeated or malformed.
pub(super) fn question(uri: &Uri, id: &str) -> Result<Question, Error> {
    let known = [
        "point",
        "hook",
        "surface",
        "tool",
        "agent",
        "agent_path",
        "model",
        "text",
        "timeout_ms",
        "label.KEY",
    ];
    let mut members = Query::read(uri, &known)?;
    if let Some(surface) = members.take("surface") {
        return match (surface.as_str(), members.is_empty()) {
            ("llm", true) => Ok(Question::Llm),
            ("llm", false) => Err(invalid("`surface` in the query must be the only member".to_owned())),
            _ => Err(invalid("`surface` in the query must be llm".to_owned())),
        };
    }
    let mut question = ExplainQuery::new(id, site(members.take("point"), members.take("hook"))?);
    let call = &mut question.call;
    call.tool = members.take("tool");
    call.agent = members.take("agent");
    call.agent_path = members.take("agent_path");
    call.model = members.take("model");
    call.timeout_ms = members.read_as("timeout_ms", "1 to 60000", |text| {
        text.parse().ok().filter(|millis| TIMEOUT_RANGE_MS.contains(millis))
    })?;
    question.text = members.take("text");
    call.labels = members.rest("label").collect();
    Ok(Question::Call(question))
}

/// Removes what a token that names the tenant may not see: names of other tenants, bindings that don't
/// concern the tenant at any point, and the operators' reasons for bypasses.
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

fn site(point: Option<String>, hook: Option<String>) -> Result<CallSite, Error> {
    let site = match (point, hook) {
        (Some(point), None) => Point::from_name(&point).map(CallSite::Point),
        (None, Some(hook)) => HookName::try_from(hook).ok().map(CallSite::Hook),
        (None, None) | (Some(_), Some(_)) => None,
    };
    let names = || Point::ALL.map(Point::as_str).join(", ");
    site.ok_or_else(|| {
        invalid(format!("The query must have `point`, one of {}, or `hook`, the name of a hook", names()))
    })
}
