//! The question: which events, from where on, once or for good; and how a query puts it.

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

/// Most events of one answer.
pub(in crate::admin) const MAX_EVENTS: usize = 1000;
/// How many of the last may be asked for.
pub(in crate::admin) const LIMIT_RANGE: RangeInclusive<usize> = 1..=MAX_EVENTS;
/// Most patterns of one question, and the longest of them in bytes.
const MAX_PATTERNS: usize = 32;
const MAX_PATTERN_BYTES: usize = 128;
/// What a client that was cut off sends with its next request.
const LAST_EVENT_ID_HEADER: &str = "last-event-id";

/// What is asked.
#[derive(Debug)]
pub(in crate::admin) struct EventsQuery {
    pub(in crate::admin) follow: bool,
    pub(in crate::admin) since: Option<EventsSince>,
    /// The last so many of those that are there.
    pub(in crate::admin) limit: Option<usize>,
    /// Any of these names; none: all.
    pub(in crate::admin) names: Option<RegexSet>,
    pub(in crate::admin) plugin: Option<String>,
    pub(in crate::admin) tenant: Option<String>,
    /// This one and those that are worse.
    pub(in crate::admin) level: Level,
}

/// From where on.
#[derive(Debug)]
pub(in crate::admin) enum EventsSince {
    /// After the event of this id.
    Id { process: String, id: u64 },
    /// What happened in so long.
    Ago(Duration),
}

impl EventsSince {
    /// After the event whose id is `text`; none: it is no id.
    pub(in crate::admin) fn id(text: &str) -> Option<Self> {
        let (process, id) = text.split_once('-')?;
        let is_process = process.len() == 12 && process.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(EventsSince::Id { process: process.to_owned(), id: id.parse().ok().filter(|_| is_process)? })
    }
}

/// Reads the question.
///
/// # Errors
/// PAYLOAD_INVALID, naming what is unknown, there twice, or no value of its kind.
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

/// The names that `globs`, which are called `what`, stand for; none: all.
///
/// # Errors
/// What is wrong with them, in words.
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
