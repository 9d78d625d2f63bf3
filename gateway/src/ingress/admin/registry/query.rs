//! What stands beside a question about the registry, or beside a write: how much of a list, which objects, upon which
//! version, why, and whether in earnest.

use http::Uri;

use crate::{
    error::{Code, Error},
    ingress::admin::query::Query,
    registry::{
        edit::MOST_REASON,
        listing::{self, Filter},
    },
    store::{Kind, Owner},
    upstream::State,
};

/// A part of a list of objects.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) most: usize,
    /// Behind the object of this name.
    pub(super) after: Option<String>,
    pub(super) filter: Filter,
    /// Plugins in this state.
    pub(super) state: Option<State>,
}

impl Wanted {
    /// Of `kind`, as `uri` says.
    ///
    /// # Errors
    /// PAYLOAD_INVALID, naming the member.
    pub(super) fn read(kind: Kind, uri: &Uri) -> Result<Self, Error> {
        let known: &[&str] = match kind {
            Kind::Plugin => &["limit", "cursor", "owner", "state"],
            Kind::Tenant => &["limit", "cursor", "owner", "enabled", "label.KEY"],
            Kind::Binding => &["limit", "cursor", "owner", "plugin", "tenant"],
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
        let names = State::ALL.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ");
        let state = query.read_as("state", &format!("one of {names}"), |text| {
            State::ALL.iter().copied().find(|state| state.as_str() == text)
        })?;
        let enabled = query.read_as("enabled", "true or false", |text| text.parse().ok())?;
        let (plugin, tenant) = (query.take("plugin"), query.take("tenant"));
        let filter = Filter { owner, plugin, tenant, enabled, labels: query.rest("label").collect() };
        Ok(Wanted { most, after, filter, state })
    }
}

/// How many entries, and behind which revision.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn revisions(uri: &Uri) -> Result<(usize, Option<u64>), Error> {
    let mut query = Query::read(uri, &["limit", "cursor"])?;
    let most = most(&mut query)?;
    let right = "the `next_cursor` of a list of revisions";
    Ok((most, query.read_as("cursor", right, listing::read_revision_cursor)?))
}

/// The other end of a comparison; none: what is there now.
///
/// # Errors
/// PAYLOAD_INVALID, naming the member.
pub(super) fn difference(uri: &Uri) -> Result<Option<u64>, Error> {
    Query::read(uri, &["to"])?.read_as("to", "a revision's number", number)
}

/// Takes no members.
///
/// # Errors
/// PAYLOAD_INVALID, naming the first.
pub(super) fn none(uri: &Uri) -> Result<(), Error> {
    Query::read(uri, &[]).map(drop)
}

fn most(query: &mut Query) -> Result<usize, Error> {
    let right = format!("1 to {}", listing::MOST);
    let most = |text: &str| text.parse().ok().filter(|most| (1..=listing::MOST).contains(most));
    Ok(query.read_as("limit", &right, most)?.unwrap_or(listing::USUAL))
}

/// Which members a write takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upon {
    /// The version must be named.
    Version,
    /// It may be.
    AnyVersion,
    /// There is none.
    Nothing,
}

/// How a write is meant.
#[derive(Debug)]
pub(super) struct Meant {
    /// See [`crate::registry::edit::Edit::expected`].
    pub(super) expected: Option<u64>,
    pub(super) reason: String,
    pub(super) dry_run: bool,
    /// Plugins go with their bindings.
    pub(super) force: bool,
}

impl Meant {
    /// As `uri` says. `may_force`: it may delete.
    ///
    /// # Errors
    /// PAYLOAD_INVALID, naming the member that is wrong or missing.
    pub(super) fn read(uri: &Uri, upon: Upon, may_force: bool) -> Result<Self, Error> {
        let mut known = vec!["dry_run", "reason"];
        if upon != Upon::Nothing {
            known.insert(0, "expected_version");
        }
        if may_force {
            known.push("force");
        }
        let mut query = Query::read(uri, &known)?;
        let expected = query.read_as("expected_version", "a whole number", number)?;
        if upon == Upon::Version && expected.is_none() {
            let detail = "The query must have `expected_version`: the `version` of the object as it was read, or 0 \
                          where there is to be none";
            return Err(Error::new(Code::PayloadInvalid, detail));
        }
        let reason = reason(&mut query)?;
        let (dry_run, force) = (query.flag("dry_run")?, query.flag("force")?);
        Ok(Meant { expected, reason, dry_run, force })
    }
}

/// Why, in the operator's own words; absent: nothing.
///
/// # Errors
/// PAYLOAD_INVALID: it is too long, or no line of text.
pub(in crate::ingress::admin) fn reason(query: &mut Query) -> Result<String, Error> {
    let right = format!("{MOST_REASON} bytes at most, without control characters");
    let fits = |text: &str| text.len() <= MOST_REASON && !text.chars().any(char::is_control);
    let reason = query.read_as("reason", &right, |text| fits(text).then(|| text.to_owned()))?;
    Ok(reason.unwrap_or_default())
}

/// Digits alone.
pub(in crate::ingress::admin) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
