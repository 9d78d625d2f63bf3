//! The question in a query: which events, from where on, once or for good.

use std::time::Duration;

use http::request::Parts;
use regex::{RegexSet, RegexSetBuilder};
use tracing::Level;

use crate::{
    config::Span,
    error::Error,
    ingress::admin::query::{decode, invalid},
};

/// Most events of one answer.
pub(super) const MOST: usize = 1000;
/// Most patterns of one question, and the longest of them in bytes.
const PATTERNS: usize = 32;
const PATTERN_BYTES: usize = 128;
/// What a client that was cut off sends with its next request.
const LAST_EVENT_ID: &str = "last-event-id";

/// What is asked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) follow: bool,
    pub(super) since: Option<Since>,
    /// The last so many of those that are there.
    pub(super) limit: Option<usize>,
    /// Any of these names; none: all.
    pub(super) names: Option<RegexSet>,
    pub(super) plugin: Option<String>,
    pub(super) tenant: Option<String>,
    /// This one and those that are worse.
    pub(super) level: Level,
}

/// From where on.
#[derive(Debug)]
pub(super) enum Since {
    /// After the event of this id.
    Id { process: String, id: u64 },
    /// What happened in so long.
    Ago(Duration),
}

/// Reads the question.
///
/// # Errors
/// PAYLOAD_INVALID, naming what is unknown, there twice, or no value of its kind.
pub(super) fn read(head: &Parts) -> Result<Asked, Error> {
    let mut asked = Asked {
        follow: false,
        since: None,
        limit: None,
        names: None,
        plugin: None,
        tenant: None,
        level: Level::INFO,
    };
    let (mut patterns, mut before) = (Vec::new(), Vec::new());
    for pair in head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if name != "event" && before.contains(&name) {
            return Err(invalid(format!("The query has `{name}` twice")));
        }
        match name.as_str() {
            "event" => patterns.push(pattern(&value)?),
            "follow" => asked.follow = switch(&value)?,
            "since" => asked.since = Some(since("`since` in the query", &value)?),
            "limit" => asked.limit = Some(limit(&value)?),
            "plugin" => asked.plugin = Some(value),
            "tenant" => asked.tenant = Some(value),
            "level" => asked.level = level(&value)?,
            _ => {
                return Err(invalid(format!(
                    "There is no query member `{name}`: there are event, plugin, tenant, level, since, limit and follow"
                )));
            }
        }
        before.push(name);
    }
    if patterns.len() > PATTERNS {
        return Err(invalid(format!("The query has `event` more than {PATTERNS} times")));
    }
    asked.names = (!patterns.is_empty()).then(|| set(&patterns)).transpose()?;
    if let Some(last) = head.headers.get(LAST_EVENT_ID).filter(|_| asked.follow) {
        asked.since = Some(since("Header `last-event-id`", last.to_str().unwrap_or_default())?);
    }
    Ok(asked)
}

fn pattern(glob: &str) -> Result<String, Error> {
    if glob.is_empty() || glob.len() > PATTERN_BYTES {
        let right = format!("`event` in the query must be a name or a glob of 1 to {PATTERN_BYTES} bytes");
        return Err(invalid(right + ", such as `plugin.*`"));
    }
    hookgate_glob::to_regex(glob).map_err(|wrong| invalid(format!("`event` in the query: {wrong}")))
}

fn set(patterns: &[String]) -> Result<RegexSet, Error> {
    let set = RegexSetBuilder::new(patterns).build();
    set.map_err(|_| invalid("`event` in the query: the patterns are too large together".into()))
}

fn switch(text: &str) -> Result<bool, Error> {
    text.parse().map_err(|_| invalid("`follow` in the query must be true or false".into()))
}

fn limit(text: &str) -> Result<usize, Error> {
    let limit = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| invalid(format!("`limit` in the query must be 1 to {MOST}")))
}

fn level(text: &str) -> Result<Level, Error> {
    match text {
        "info" => Ok(Level::INFO),
        "warn" => Ok(Level::WARN),
        "error" => Ok(Level::ERROR),
        _ => Err(invalid("`level` in the query must be info, warn or error".into())),
    }
}

fn since(what: &str, text: &str) -> Result<Since, Error> {
    let of_id = |text: &str| {
        let (process, id) = text.split_once('-')?;
        let is_process = process.len() == 12 && process.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Since::Id { process: process.to_owned(), id: id.parse().ok().filter(|_| is_process)? })
    };
    let ago = || Some(Since::Ago(text.parse::<Span>().ok()?.0));
    of_id(text).or_else(ago).ok_or_else(|| {
        invalid(format!("{what} must be the id of an event, or how long ago as a duration such as `10m`"))
    })
}
