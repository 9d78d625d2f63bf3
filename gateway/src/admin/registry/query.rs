//! Reads the query parameters of registry requests: pages, filters, preconditions, reasons and `dry_run`.

use std::{ops::RangeInclusive, time::Duration};

use http::Uri;

use crate::{
    admin::query::{Query, invalid},
    config::Span,
    core::{
        error::Error,
        object::{ObjectKind, Owner},
    },
    registry::{
        bypass::{MAX_BYPASS_DURATION, MIN_BYPASS_DURATION},
        edit::{MAX_REASON, can_be_reason},
        listing::{self, ListFilter},
    },
    upstream::State,
};

/// A query for a page of objects.
#[derive(Debug)]
pub(in crate::admin) struct ListQuery {
    pub(in crate::admin) limit: usize,
    /// After the object of this name.
    pub(in crate::admin) after: Option<String>,
    pub(in crate::admin) filter: ListFilter,
    /// Only plugins in this state.
    pub(in crate::admin) state: Option<State>,
}

impl ListQuery {
    /// Reads the query for objects of `kind`.
    ///
    /// # Errors
    /// PAYLOAD_INVALID, naming the member.
    pub(super) fn read(kind: ObjectKind, uri: &Uri) -> Result<Self, Error> {
        let known: &[&str] = match kind {
            ObjectKind::Plugin => &["limit", "cursor", "owner", "state", "label.KEY"],
            ObjectKind::Tenant => &["limit", "cursor", "owner", "enabled", "label.KEY"],
            ObjectKind::Binding => &["limit", "cursor", "owner", "plugin", "tenant", "label.KEY"],
            ObjectKind::Upstream => &["limit", "cursor", "owner", "label.KEY"],
            ObjectKind::Model => &["limit", "cursor", "owner", "upstream", "label.KEY"],
            ObjectKind::Bypass => &["limit", "cursor", "binding", "tenant"],
        };
        let mut query = Query::read(uri, known)?;
        let most = most(&mut query)?;
        let cursor = |text: &str| listing::read_cursor(kind, text);
        let after = query.read_as("cursor", "the `next_cursor` of a list of the same path", cursor)?;
        let owner = query.read_as("owner", "file or api", |text| match text {
            "file" => Some(Owner::File),
            "api" => Some(Owner::Api),
            _ => None,
        })?;
        let state = query.read_as("state", &states(), state)?;
        let enabled = query.read_as("enabled", "true or false", |text| text.parse().ok())?;
        let [plugin, tenant, binding, upstream] =
            ["plugin", "tenant", "binding", "upstream"].map(|name| query.take(name));
        let labels = query.rest("label").collect();
        let filter = ListFilter { owner, plugin, tenant, binding, upstream, enabled, labels };
        Ok(ListQuery { limit: most, after, filter, state })
    }
}

/// The page size, and the revision after which the page begins.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn revisions(uri: &Uri) -> Result<(usize, Option<u64>), Error> {
    let mut query = Query::read(uri, &["limit", "cursor"])?;
    let most = most(&mut query)?;
    let right = "the `next_cursor` of a list of revisions";
    Ok((most, query.read_as("cursor", right, listing::read_revision_cursor)?))
}

/// The other revision of a comparison; `None` means the current one.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn difference(uri: &Uri) -> Result<Option<u64>, Error> {
    Query::read(uri, &["to"])?.read_as("to", "a revision's number", number)
}

/// Rejects any parameter.
///
/// # Errors
/// PAYLOAD_INVALID, naming the first one.
pub(super) fn none(uri: &Uri) -> Result<(), Error> {
    Query::read(uri, &[]).map(drop)
}

fn most(query: &mut Query) -> Result<usize, Error> {
    let most = |text: &str| text.parse().ok().filter(|most| PAGE_SIZES.contains(most));
    Ok(query.read_as("limit", &right_size(), most)?.unwrap_or(listing::DEFAULT_PAGE_SIZE))
}

/// The allowed page sizes.
pub(in crate::admin) const PAGE_SIZES: RangeInclusive<usize> = 1..=listing::MAX_PAGE_SIZE;

pub(in crate::admin) fn right_size() -> String {
    format!("{} to {}", PAGE_SIZES.start(), PAGE_SIZES.end())
}

/// Describes a valid version in words. If `may_be_new`, 0 is allowed too.
pub(in crate::admin) fn right_version(may_be_new: bool) -> String {
    let none = if may_be_new { ", or 0 if it must not exist" } else { "" };
    format!("the `version` of the object as it was read{none}")
}

/// Describes a valid reason in words.
pub(in crate::admin) fn right_reason() -> String {
    format!("at most {MAX_REASON} bytes, without control characters")
}

pub(in crate::admin) fn state(name: &str) -> Option<State> {
    State::ALL.iter().copied().find(|state| state.as_str() == name)
}

/// The names of all states in words.
pub(in crate::admin) fn states() -> String {
    format!("one of {}", State::ALL.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", "))
}

/// The precondition that a write takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreconditionKind {
    /// The object's version is required.
    Version,
    /// The object's version is required; 0 means that it must not exist yet.
    VersionOrNone,
    /// The object's version is optional.
    AnyVersion,
    /// The registry's revision is optional.
    Revision,
    /// No precondition.
    Nothing,
}

/// The options of a write.
#[derive(Debug)]
pub(in crate::admin) struct WriteOptions {
    /// See [`crate::registry::edit::Edit::expected`].
    pub(in crate::admin) expected: Option<u64>,
    /// See [`crate::registry::Writer::upon`].
    pub(in crate::admin) upon: Option<u64>,
    pub(in crate::admin) reason: String,
    pub(in crate::admin) dry_run: bool,
    /// Delete a plugin together with its bindings.
    pub(in crate::admin) force: bool,
}

impl WriteOptions {
    /// Reads the options. `may_force`: the request may contain `force`.
    ///
    /// # Errors
    /// PAYLOAD_INVALID, naming the member that is wrong or missing.
    pub(super) fn read(uri: &Uri, upon: PreconditionKind, may_force: bool) -> Result<Self, Error> {
        let mut known = vec!["dry_run", "reason"];
        match upon {
            PreconditionKind::Version | PreconditionKind::VersionOrNone | PreconditionKind::AnyVersion => {
                known.insert(0, "expected_version")
            }
            PreconditionKind::Revision => known.insert(0, "expected_revision"),
            PreconditionKind::Nothing => {}
        }
        if may_force {
            known.push("force");
        }
        let mut query = Query::read(uri, &known)?;
        let expected = query.read_as("expected_version", "a whole number", number)?;
        if matches!(upon, PreconditionKind::Version | PreconditionKind::VersionOrNone) && expected.is_none() {
            let right = right_version(upon == PreconditionKind::VersionOrNone);
            return Err(invalid(format!("The query must have `expected_version`: {right}")));
        }
        let revision = query.read_as("expected_revision", "a revision's number", number)?;
        let reason = reason(&mut query)?;
        let (dry_run, force) = (query.flag("dry_run")?, query.flag("force")?);
        Ok(WriteOptions { expected, upon: revision, reason, dry_run, force })
    }

    /// Reads the options of a bypass, and its duration.
    ///
    /// # Errors
    /// PAYLOAD_INVALID, naming the member that is wrong or missing.
    pub(super) fn for_bypass(uri: &Uri) -> Result<(Self, Duration), Error> {
        let mut query = Query::read(uri, &["for", "reason", "dry_run"])?;
        let right = "a time from 1s to 24h, such as 15m";
        let time = |text: &str| text.parse().ok().map(|Span(time)| time);
        let lasts = query.read_as("for", right, |text| time(text).filter(can_last))?;
        let Some(lasts) = lasts else {
            return Err(invalid(format!("The query must have `for`, {right}")));
        };
        let reason = written_reason(&mut query)?.filter(|reason| !reason.trim().is_empty());
        let Some(reason) = reason else {
            return Err(invalid("The query must have `reason`: why the binding is bypassed".to_owned()));
        };
        Ok((
            WriteOptions {
                expected: None,
                upon: None,
                reason,
                dry_run: query.flag("dry_run")?,
                force: false,
            },
            lasts,
        ))
    }
}

/// Whether a bypass may last this long.
pub(in crate::admin) fn can_last(time: &Duration) -> bool {
    (MIN_BYPASS_DURATION..=MAX_BYPASS_DURATION).contains(time)
}

/// The reason in the operator's own words; empty if absent.
///
/// # Errors
/// PAYLOAD_INVALID if it is too long or not a line of text.
pub(in crate::admin) fn reason(query: &mut Query) -> Result<String, Error> {
    Ok(written_reason(query)?.unwrap_or_default())
}

fn written_reason(query: &mut Query) -> Result<Option<String>, Error> {
    query.read_as("reason", &right_reason(), |text| can_be_reason(text).then(|| text.to_owned()))
}

/// Parses digits only, without a sign.
pub(in crate::admin) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
