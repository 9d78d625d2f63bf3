//! Converts requests from protobuf to the registry's types. Errors name the wrong member as a violation.

use std::time::Duration;

use hookgate_proto::{HookName, admin::v1 as wire, types::v1::ExtensionPoint};
use tracing::Level;

use crate::{
    admin::{
        events::{
            query as events,
            query::{EventsSince, LIMIT_RANGE},
        },
        explain::{Question, TIMEOUT_RANGE_MS},
        process_ops::{TestCallOptions as TestCallResult, routes},
        registry::{
            body::part,
            query::{
                ListQuery, PAGE_SIZES, WriteOptions, can_last, right_reason, right_size, right_version,
                state, states,
            },
        },
    },
    auth::is_tenant_id,
    core::{
        call_site::CallSite,
        error::{Error, Violation},
        object::{ObjectKind, Owner},
        point::Point,
    },
    invoke::explain::ExplainQuery,
    registry::{
        bypass::{MAX_BYPASS_DURATION, MIN_BYPASS_DURATION},
        document::plural,
        edit::{can_be_name, can_be_reason},
        listing::{self, ListFilter},
    },
};

/// PAYLOAD_INVALID: `member` must be `right`.
fn wrong(member: &str, right: &str) -> Error {
    Error::invalid(vec![Violation::new(format!("/{member}"), format!("`{member}` must be {right}"))])
}

/// The revision in `member`. It must be present: 0 means the empty registry, so an omitted number would
/// otherwise roll everything back.
///
/// # Errors
/// PAYLOAD_INVALID if it is missing.
pub(super) fn number(member: &str, number: Option<u64>) -> Result<u64, Error> {
    number.ok_or_else(|| wrong(member, "a revision's number; 0 is before the first"))
}

/// The object's kind.
///
/// # Errors
/// PAYLOAD_INVALID if it is missing or unknown.
pub(super) fn kind(kind: i32) -> Result<ObjectKind, Error> {
    match wire::Kind::try_from(kind) {
        Ok(wire::Kind::Plugin) => Ok(ObjectKind::Plugin),
        Ok(wire::Kind::Tenant) => Ok(ObjectKind::Tenant),
        Ok(wire::Kind::Binding) => Ok(ObjectKind::Binding),
        Ok(wire::Kind::Upstream) => Ok(ObjectKind::Upstream),
        Ok(wire::Kind::Model) => Ok(ObjectKind::Model),
        Ok(wire::Kind::Bypass) => Ok(ObjectKind::Bypass),
        Ok(wire::Kind::Unspecified) | Err(_) => {
            let kinds =
                "one of KIND_PLUGIN, KIND_TENANT, KIND_BINDING, KIND_UPSTREAM, KIND_MODEL and KIND_BYPASS";
            Err(wrong("kind", kinds))
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

/// The point; `None` if unspecified.
///
/// # Errors
/// PAYLOAD_INVALID if there is no such point.
pub(super) fn point(point: i32) -> Result<Option<Point>, Error> {
    ExtensionPoint::try_from(point).map(Point::from_wire).map_err(|_| no_point())
}

/// The point or the hook; `None` if neither is given.
///
/// # Errors
/// PAYLOAD_INVALID if there is no such point, the hook's name is invalid, or both are given.
pub(super) fn site(at: i32, hook: Option<String>) -> Result<Option<CallSite>, Error> {
    match (point(at)?, hook) {
        (point, None) => Ok(point.map(CallSite::Point)),
        (None, Some(hook)) => {
            let hook = HookName::try_from(hook);
            hook.map(|hook| Some(hook.into())).map_err(|_| wrong("hook", "the name of a hook"))
        }
        (Some(_), Some(_)) => Err(wrong("hook", "absent beside `point`")),
    }
}

fn no_point() -> Error {
    wrong("point", "one of the four extension points")
}

/// The page size.
///
/// # Errors
/// PAYLOAD_INVALID if it is out of range.
pub(super) fn size(size: Option<u32>) -> Result<usize, Error> {
    let Some(size) = size else { return Ok(listing::DEFAULT_PAGE_SIZE) };
    let size = usize::try_from(size).ok().filter(|size| PAGE_SIZES.contains(size));
    size.ok_or_else(|| wrong("page_size", &right_size()))
}

/// The position in `token`, parsed with `read`; `None` for an empty token, which means the beginning.
///
/// # Errors
/// PAYLOAD_INVALID if `read` returns `None`.
pub(super) fn place<T>(token: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Error> {
    if token.is_empty() {
        return Ok(None);
    }
    let right = "the `next_page_token` of an answer to the same question";
    read(token).map(Some).ok_or_else(|| wrong("page_token", right))
}

/// A query for a page of objects of `kind`.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn list_query(kind: ObjectKind, asked: wire::ListObjectsRequest) -> Result<ListQuery, Error> {
    let wire::ListObjectsRequest { enabled, labels, plugin, tenant, binding, upstream, .. } = asked;
    for (member, is_there, of) in [
        ("state", asked.state.is_some(), ObjectKind::Plugin),
        ("enabled", enabled.is_some(), ObjectKind::Tenant),
        ("plugin", plugin.is_some(), ObjectKind::Binding),
        ("binding", binding.is_some(), ObjectKind::Bypass),
        ("upstream", upstream.is_some(), ObjectKind::Model),
    ] {
        if is_there && kind != of {
            return Err(wrong(member, &format!("absent: it is for {}", plural(of))));
        }
    }
    if !labels.is_empty() && kind == ObjectKind::Bypass {
        return Err(wrong("labels", "absent: no bypass has any"));
    }
    if tenant.is_some() && !matches!(kind, ObjectKind::Binding | ObjectKind::Bypass) {
        return Err(wrong("tenant", "absent: it is for bindings and bypasses"));
    }
    let owner = owner(asked.owner)?;
    if owner.is_some() && kind == ObjectKind::Bypass {
        return Err(wrong("owner", "absent: bypasses are the API's"));
    }
    let right_state = || wrong("state", &states());
    Ok(ListQuery {
        limit: size(asked.page_size)?,
        after: place(&asked.page_token, |token| listing::read_cursor(kind, token))?,
        filter: ListFilter {
            owner,
            plugin,
            tenant,
            binding,
            upstream,
            labels: labels.into_iter().collect(),
            enabled,
        },
        state: asked.state.map(|name| state(&name).ok_or_else(right_state)).transpose()?,
    })
}

/// The options of a write whose version is optional.
///
/// # Errors
/// PAYLOAD_INVALID if the reason is too long or not a line of text.
pub(super) fn write_options(
    expected: Option<u64>,
    reason: String,
    dry_run: bool,
) -> Result<WriteOptions, Error> {
    Ok(WriteOptions { expected, upon: None, reason: self::reason(reason)?, dry_run, force: false })
}

/// The options of a write that must name a version. If `may_be_new`, 0 means that the object must not exist
/// yet.
///
/// # Errors
/// PAYLOAD_INVALID if the version is missing, or the reason is too long or not a line of text.
pub(super) fn object_write_options(
    expected: Option<u64>,
    may_be_new: bool,
    reason: String,
    dry_run: bool,
) -> Result<WriteOptions, Error> {
    let right = || format!("there: {}", right_version(may_be_new));
    expected.ok_or_else(|| wrong("expected_version", &right()))?;
    write_options(expected, reason, dry_run)
}

/// Adds `force`, which only a plugin's deletion takes.
///
/// # Errors
/// PAYLOAD_INVALID for another kind.
pub(super) fn forced(kind: ObjectKind, force: bool, meant: WriteOptions) -> Result<WriteOptions, Error> {
    if force && kind != ObjectKind::Plugin {
        return Err(wrong("force", "absent: it is for plugins"));
    }
    Ok(WriteOptions { force, ..meant })
}

/// Checks a reason in the operator's words.
///
/// # Errors
/// PAYLOAD_INVALID if it is too long or not a line of text.
pub(super) fn reason(reason: String) -> Result<String, Error> {
    if can_be_reason(&reason) { Ok(reason) } else { Err(wrong("reason", &right_reason())) }
}

/// The options and the duration of a bypass.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn bypass(for_ms: u64, reason: String, dry_run: bool) -> Result<(WriteOptions, Duration), Error> {
    let lasts = Duration::from_millis(for_ms);
    if !can_last(&lasts) {
        let (least, most) = (MIN_BYPASS_DURATION.as_millis(), MAX_BYPASS_DURATION.as_millis());
        return Err(wrong("for_ms", &format!("{least} to {most}")));
    }
    if reason.trim().is_empty() {
        return Err(wrong("reason", "there: why the binding is bypassed"));
    }
    Ok((write_options(None, reason, dry_run)?, lasts))
}

/// How long to wait for a drain.
///
/// # Errors
/// PAYLOAD_INVALID if it is longer than [`routes::MAX_DRAIN_TIMEOUT`].
pub(super) fn patience(millis: Option<u64>) -> Result<Duration, Error> {
    let patience = millis.map_or(routes::DEFAULT_DRAIN_TIMEOUT, Duration::from_millis);
    let right = || format!("{} at most", routes::MAX_DRAIN_TIMEOUT.as_millis());
    if patience > routes::MAX_DRAIN_TIMEOUT { Err(wrong("timeout_ms", &right())) } else { Ok(patience) }
}

/// The upstreams to check.
///
/// # Errors
/// PAYLOAD_INVALID if one can be no name.
pub(super) fn upstreams(names: Vec<String>) -> Result<Vec<String>, Error> {
    let are_names = names.iter().all(|name| can_be_name(name));
    if are_names { Ok(names) } else { Err(wrong("names", routes::UPSTREAMS_REQUIREMENT)) }
}

/// The JSON text of a test call's member, or empty if it is missing.
fn text<'t>(member: &str, text: &'t [u8]) -> Result<&'t str, Error> {
    if text.is_empty() { Ok("") } else { part(member, &format!("`{member}_json`"), text) }
}

/// A request for a test call.
///
/// # Errors
/// PAYLOAD_INVALID with the places of the errors.
pub(super) fn call(asked: &wire::CallPluginRequest) -> Result<routes::TestCallRequest, Error> {
    let wire::CallPluginRequest { payload_json, context_json, tenant, tenant_config_json, .. } = asked;
    let point = point(asked.point)?.ok_or_else(no_point)?;
    if tenant.as_ref().is_some_and(|id| !is_tenant_id(id)) {
        return Err(Error::invalid(vec![Violation::new("/tenant", routes::TENANT_REQUIREMENT)]));
    }
    let tenant_config = match text("tenant_config", tenant_config_json)? {
        "" => None,
        // Cannot fail: the scanner accepts only what this parser accepts.
        text => serde_json::from_str(text).map_err(|_| wrong("tenant_config", "an object"))?,
    };
    let question = TestCallResult { tenant: tenant.clone(), tenant_config };
    let (context, payload) = (text("context", context_json)?, text("payload", payload_json)?);
    Ok(routes::TestCallRequest::new(point, question, context, payload))
}

/// A query for events.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn events(asked: wire::StreamEventsRequest) -> Result<events::EventsQuery, Error> {
    let level = match asked.level() {
        wire::EventLevel::Unspecified if asked.level != 0 => {
            return Err(wrong("level", "EVENT_LEVEL_INFO, EVENT_LEVEL_WARN or EVENT_LEVEL_ERROR"));
        }
        wire::EventLevel::Unspecified | wire::EventLevel::Info => Level::INFO,
        wire::EventLevel::Warn => Level::WARN,
        wire::EventLevel::Error => Level::ERROR,
    };
    let wire::StreamEventsRequest { follow, names, plugin, tenant, since, limit, .. } = asked;
    let names = events::names("`names`", &names);
    let names = names.map_err(|message| Error::invalid(vec![Violation::new("/names", message)]))?;
    let since = match since {
        None => None,
        Some(wire::stream_events_request::Since::AgoMs(millis)) => {
            Some(EventsSince::Ago(Duration::from_millis(millis)))
        }
        Some(wire::stream_events_request::Since::AfterId(id)) => {
            Some(EventsSince::id(&id).ok_or_else(|| wrong("after_id", "the id of an event"))?)
        }
    };
    let right_limit = || wrong("limit", &format!("{} to {}", LIMIT_RANGE.start(), LIMIT_RANGE.end()));
    let limit = limit.map(|limit| {
        usize::try_from(limit).ok().filter(|limit| LIMIT_RANGE.contains(limit)).ok_or_else(right_limit)
    });
    Ok(events::EventsQuery { follow, since, limit: limit.transpose()?, names, plugin, tenant, level })
}

/// A request to explain a call.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn question(asked: wire::ExplainRequest) -> Result<Question, Error> {
    match wire::Surface::try_from(asked.surface) {
        Ok(wire::Surface::Unspecified) => {}
        Ok(wire::Surface::Llm) => {
            let alone = wire::ExplainRequest {
                tenant: asked.tenant.clone(),
                surface: asked.surface,
                ..Default::default()
            };
            let right = "absent, or the only member besides `tenant`";
            return if asked == alone { Ok(Question::Llm) } else { Err(wrong("surface", right)) };
        }
        Err(_) => return Err(wrong("surface", "SURFACE_LLM, or absent")),
    }
    let wire::ExplainRequest { tenant, tool, agent, agent_path, model, text, timeout_ms, labels, .. } = asked;
    let mut question = ExplainQuery::new(tenant, site(asked.point, asked.hook)?.ok_or_else(no_point)?);
    if timeout_ms.is_some_and(|millis| !TIMEOUT_RANGE_MS.contains(&millis)) {
        return Err(wrong(
            "timeout_ms",
            &format!("{} to {}", TIMEOUT_RANGE_MS.start(), TIMEOUT_RANGE_MS.end()),
        ));
    }
    let call = &mut question.call;
    (call.tool, call.agent, call.agent_path) = (tool, agent, agent_path);
    (call.model, call.timeout_ms) = (model, timeout_ms);
    call.labels = labels.into_iter().collect();
    question.text = text;
    Ok(Question::Call(question))
}
