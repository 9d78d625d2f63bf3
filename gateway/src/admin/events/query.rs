//! The query for events: which ones, since when, and whether to follow; and how to read it from a URL.

use std::{ops::RangeInclusive, time::Duration};

use http::request::Parts;
use regex::{RegexSet, RegexSetBuilder};
use tracing::Level;

use crate::{
    admin::query::{decode, invalid},
    config::Span,
    core::error::Error,
    edge::header::single,
};

/// The maximum number of events in one answer.
pub(in crate::admin) const MAX_EVENTS: usize = 1000;
/// The range of the `limit` parameter.
pub(in crate::admin) const LIMIT_RANGE: RangeInclusive<usize> = 1..=MAX_EVENTS;
/// Limits of name patterns: how many in one query, and how long in bytes.
const MAX_PATTERNS: usize = 32;
const MAX_PATTERN_BYTES: usize = 128;
/// Sent by server-sent-event clients when they reconnect.
const LAST_EVENT_ID_HEADER: &str = "last-event-id";

#[derive(Debug)]
pub(in crate::admin) struct EventsQuery {
    pub(in crate::admin) follow: bool,
    pub(in crate::admin) since: Option<EventsSince>,
    /// Only the last `limit` of the recorded events.
    pub(in crate::admin) limit: Option<usize>,
    /// Name patterns; `None` matches every name.
    pub(in crate::admin) names: Option<RegexSet>,
    pub(in crate::admin) plugin: Option<String>,
    pub(in crate::admin) tenant: Option<String>,
    /// The minimum level.
    pub(in crate::admin) level: Level,
}

/// Where the events begin.
#[derive(Debug)]
pub(in crate::admin) enum EventsSince {
    /// After the event with this id.
    Id { process: String, id: u64 },
    /// Within this time before now.
    Ago(Duration),
}

impl EventsSince {
    /// Parses an event id; returns `None` if `text` isn't one.
    pub(in crate::admin) fn id(text: &str) -> Option<Self> {
        let (process, id) = text.split_once('-')?;
        let is_process = process.len() == 12 && process.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(EventsSince::Id { process: process.to_owned(), id: id.parse().ok().filter(|_| is_process)? })
    }
}

/// Reads the query from a request.
///
/// # Errors
/// PAYLOAD_INVALID, naming a member that is unknown, repeated or malformed.
pub(super) fn read(head: &Parts) -> Result<EventsQuery, Error> {
    let mut asked = EventsQuery {
        follow: false,
        since: None,
        limit: None,
        names: None,
        plugin: None,
        tenant: None,
        level: Level::INFO,
    };
    let (mut globs, mut before) = (Vec::new(), Vec::new());
    for pair in head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if name != "event" && before.contains(&name) {
            return Err(invalid(format!("The query has `{name}` twice")));
        }
        match name.as_str() {
            "event" => globs.push(value),
            "follow" => asked.follow = switch(&value)?,
            "since" => asked.since = Some(since("`since` in the query", &value)?),
            "limit" => asked.limit = Some(limit(&value)?),
            "plugin" => asked.plugin = Some(value),
            "tenant" => asked.tenant = Some(value),
            "level" => asked.level = level(&value)?,
            _ => {
                return Err(invalid(format!(
                    "There is no query member `{name}`; the members are event, plugin, tenant, level, since, limit \
                     and follow"
                )));
            }
        }
        before.push(name);
    }
    asked.names = names("`event` in the query", &globs).map_err(invalid)?;
    if let Some(last) = single(&head.headers, LAST_EVENT_ID_HEADER)?.filter(|_| asked.follow) {
        asked.since = Some(since("Header `last-event-id`", last.to_str().unwrap_or_default())?);
    }
    Ok(asked)
}

/// Compiles name patterns; `None` if there are none. `what` names the parameter in errors.
///
/// # Errors
/// A sentence that says what is wrong with the patterns.
pub(in crate::admin) fn names(what: &str, globs: &[String]) -> Result<Option<RegexSet>, String> {
    if globs.len() > MAX_PATTERNS {
        return Err(format!("{what}: at most {MAX_PATTERNS} are allowed"));
    }
    let pattern = |glob: &String| {
        if glob.is_empty() || glob.len() > MAX_PATTERN_BYTES {
            let right = format!("{what} must be a name or a glob of 1 to {MAX_PATTERN_BYTES} bytes");
            return Err(right + ", such as `plugin.*`");
        }
        hookgate_glob::to_regex(glob).map_err(|wrong| format!("{what}: {wrong}"))
    };
    let patterns = globs.iter().map(pattern).collect::<Result<Vec<_>, _>>()?;
    if patterns.is_empty() {
        return Ok(None);
    }
    let set = RegexSetBuilder::new(patterns).build();
    set.map(Some).map_err(|_| format!("{what}: the patterns are too large together"))
}

fn switch(text: &str) -> Result<bool, Error> {
    text.parse().map_err(|_| invalid("`follow` in the query must be true or false".into()))
}

fn limit(text: &str) -> Result<usize, Error> {
    let limit = text.parse().ok().filter(|limit| LIMIT_RANGE.contains(limit));
    limit.ok_or_else(|| invalid(format!("`limit` in the query must be 1 to {MAX_EVENTS}")))
}

fn level(text: &str) -> Result<Level, Error> {
    match text {
        "info" => Ok(Level::INFO),
        "warn" => Ok(Level::WARN),
        "error" => Ok(Level::ERROR),
        _ => Err(invalid("`level` in the query must be info, warn or error".into())),
    }
}

fn since(what: &str, text: &str) -> Result<EventsSince, Error> {
    let ago = || Some(EventsSince::Ago(text.parse::<Span>().ok()?.0));
    EventsSince::id(text).or_else(ago).ok_or_else(|| {
        invalid(format!("{what} must be the id of an event, or how long ago as a duration such as `10m`"))
    })
}
