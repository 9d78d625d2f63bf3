//! What messages ask for, in the words of the registry. A member that is wrong is named by a violation.

use hookgate_proto::{admin::v1 as wire, types::v1::ExtensionPoint};

use crate::{
    error::{Error, Violation},
    ingress::admin::{
        explain::TIMEOUTS,
        registry::query::{Meant, SIZES, Wanted, right_reason, right_size, state, states},
    },
    invoke::explain::Question,
    point::Point,
    registry::{
        edit::can_be_reason,
        listing::{self, Filter},
    },
    store::{Kind, Owner},
};

/// PAYLOAD_INVALID: `member` is not what it must be.
fn wrong(member: &str, right: &str) -> Error {
    Error::invalid(vec![Violation::new(format!("/{member}"), format!("`{member}` must be {right}"))])
}

/// The kind that must be named.
///
/// # Errors
/// PAYLOAD_INVALID: it isn't.
pub(super) fn kind(kind: i32) -> Result<Kind, Error> {
    match wire::Kind::try_from(kind) {
        Ok(wire::Kind::Plugin) => Ok(Kind::Plugin),
        Ok(wire::Kind::Tenant) => Ok(Kind::Tenant),
        Ok(wire::Kind::Binding) => Ok(Kind::Binding),
        Ok(wire::Kind::Bypass) => Ok(Kind::Bypass),
        Ok(wire::Kind::Unspecified) | Err(_) => {
            Err(wrong("kind", "one of KIND_PLUGIN, KIND_TENANT, KIND_BINDING and KIND_BYPASS"))
        }
    }
}

fn owner(owner: i32) -> Result<Option<Owner>, Error> {
    match wire::Owner::try_from(owner) {
        Ok(wire::Owner::Unspecified) => Ok(None),
        Ok(wire::Owner::File) => Ok(Some(Owner::File)),
        Ok(wire::Owner::Api) => Ok(Some(Owner::Api)),
        Err(_) => Err(wrong("owner", "OWNER_FILE or OWNER_API")),
    }
}

/// The point that is named; none: none is.
///
/// # Errors
/// PAYLOAD_INVALID: there is no such point.
pub(super) fn point(point: i32) -> Result<Option<Point>, Error> {
    match ExtensionPoint::try_from(point) {
        Ok(ExtensionPoint::Unspecified) => Ok(None),
        Ok(ExtensionPoint::BeforeLlmRequest) => Ok(Some(Point::BeforeLlmRequest)),
        Ok(ExtensionPoint::BeforeToolCall) => Ok(Some(Point::BeforeToolCall)),
        Ok(ExtensionPoint::AfterToolResult) => Ok(Some(Point::AfterToolResult)),
        Ok(ExtensionPoint::BeforeResponse) => Ok(Some(Point::BeforeResponse)),
        Err(_) => Err(no_point()),
    }
}

fn no_point() -> Error {
    wrong("point", "one of the four extension points")
}

/// How many entries an answer has at most.
///
/// # Errors
/// PAYLOAD_INVALID: fewer or more than it can have.
pub(super) fn size(size: Option<u32>) -> Result<usize, Error> {
    let Some(size) = size else { return Ok(listing::USUAL) };
    let size = usize::try_from(size).ok().filter(|size| SIZES.contains(size));
    size.ok_or_else(|| wrong("page_size", &right_size()))
}

/// The place that `token` stands for, as `read` reads it; none: the beginning.
///
/// # Errors
/// PAYLOAD_INVALID: it stands for none.
pub(super) fn place<T>(token: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Error> {
    if token.is_empty() {
        return Ok(None);
    }
    let right = "the `next_page_token` of an answer to the same question";
    read(token).map(Some).ok_or_else(|| wrong("page_token", right))
}

/// A part of a list of objects of `kind`.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn wanted(kind: Kind, asked: wire::ListObjectsRequest) -> Result<Wanted, Error> {
    let wire::ListObjectsRequest { enabled, labels, plugin, tenant, .. } = asked;
    for (member, is_there, of) in [
        ("state", asked.state.is_some(), Kind::Plugin),
        ("enabled", enabled.is_some(), Kind::Tenant),
        ("plugin", plugin.is_some(), Kind::Binding),
        ("tenant", tenant.is_some(), Kind::Binding),
    ] {
        if is_there && kind != of {
            return Err(wrong(member, &format!("absent: it is for {of}s")));
        }
    }
    if !labels.is_empty() && kind == Kind::Bypass {
        return Err(wrong("labels", "absent: no bypass has any"));
    }
    let right_state = || wrong("state", &states());
    Ok(Wanted {
        most: size(asked.page_size)?,
        after: place(&asked.page_token, |token| listing::read_cursor(kind, token))?,
        filter: Filter {
            owner: owner(asked.owner)?,
            plugin,
            tenant,
            binding: None,
            labels: labels.into_iter().collect(),
            enabled,
        },
        state: asked.state.map(|name| state(&name).ok_or_else(right_state)).transpose()?,
    })
}

/// How a write is meant that may have any version.
///
/// # Errors
/// PAYLOAD_INVALID: there can't be such a reason.
pub(super) fn meant(expected: Option<u64>, reason: String, dry_run: bool) -> Result<Meant, Error> {
    if !can_be_reason(&reason) {
        return Err(wrong("reason", &right_reason()));
    }
    Ok(Meant { expected, upon: None, reason, dry_run, force: false })
}

/// How a write is meant that must name a version.
///
/// # Errors
/// PAYLOAD_INVALID: it doesn't, or there can't be such a reason.
pub(super) fn meant_for(expected: Option<u64>, reason: String, dry_run: bool) -> Result<Meant, Error> {
    let right = "there: the `version` of the object as it was read, or 0 where there is to be none";
    expected.ok_or_else(|| wrong("expected_version", right))?;
    meant(expected, reason, dry_run)
}

/// With `force`, which only a plugin's deletion has.
///
/// # Errors
/// PAYLOAD_INVALID: this one hasn't.
pub(super) fn forced(kind: Kind, force: bool, meant: Meant) -> Result<Meant, Error> {
    if force && kind != Kind::Plugin {
        return Err(wrong("force", "absent: it is for plugins"));
    }
    Ok(Meant { force, ..meant })
}

/// Which call is to be explained.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn question(asked: wire::ExplainRequest) -> Result<Question, Error> {
    let wire::ExplainRequest { tenant, tool, agent, model, text, timeout_ms, labels, .. } = asked;
    let mut question = Question::new(tenant, point(asked.point)?.ok_or_else(no_point)?);
    if timeout_ms.is_some_and(|millis| !TIMEOUTS.contains(&millis)) {
        return Err(wrong("timeout_ms", &format!("{} to {}", TIMEOUTS.start(), TIMEOUTS.end())));
    }
    let call = &mut question.call;
    (call.tool, call.agent, call.model, call.timeout_ms) = (tool, agent, model, timeout_ms);
    call.labels = labels.into_iter().collect();
    question.text = text;
    Ok(question)
}
