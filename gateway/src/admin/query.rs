//! Reads query strings: only known names, each at most once.

use std::collections::BTreeMap;

use http::Uri;
use percent_encoding::percent_decode_str;

use crate::core::error::{Code, Error};

/// The end of a known name that stands for many names, such as `label.KEY`.
const WILDCARD_SUFFIX: &str = ".KEY";

/// The members of a query that have not been taken yet.
#[derive(Debug)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads `uri`'s query. Only the names in `known` are allowed.
    ///
    /// # Errors
    /// PAYLOAD_INVALID, naming a member that is unknown, repeated or not UTF-8.
    pub(super) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Error> {
        let mut members = BTreeMap::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let is_it = |known: &&str| match known.strip_suffix(WILDCARD_SUFFIX) {
                Some(stem) => {
                    name.strip_prefix(stem).is_some_and(|rest| rest.len() > 1 && rest.starts_with('.'))
                }
                None => name == **known,
            };
            if !known.iter().any(is_it) {
                return Err(invalid(match known {
                    [] => format!("There is no query member `{name}`; there are no members here"),
                    [only] => format!("There is no query member `{name}`; the only member is {only}"),
                    [some @ .., last] => {
                        format!(
                            "There is no query member `{name}`; the members are {} and {last}",
                            some.join(", ")
                        )
                    }
                }));
            }
            if let Some((name, _)) = members.get_key_value(&name) {
                return Err(invalid(format!("The query has `{name}` twice")));
            }
            members.insert(name, value);
        }
        Ok(Query(members))
    }

    /// Whether no member is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// The value of `name`, parsed with `read`.
    ///
    /// # Errors
    /// PAYLOAD_INVALID if `read` returns `None`; `right` says what the value must be.
    pub(super) fn read_as<T>(
        &mut self,
        name: &str,
        right: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let value = read(&text);
        value.map(Some).ok_or_else(|| invalid(format!("`{name}` in the query must be {right}")))
    }

    /// The value of `name`, which must be `true` or `false`. Defaults to false.
    ///
    /// # Errors
    /// PAYLOAD_INVALID for any other value.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Error> {
        Ok(self.read_as(name, "true or false", |text| text.parse().ok())?.unwrap_or_default())
    }

    /// The remaining members `STEM.KEY`, as pairs of key and value.
    pub(super) fn rest(self, stem: &str) -> impl Iterator<Item = (String, String)> {
        let rest = move |name: &str| Some(name.strip_prefix(stem)?.strip_prefix('.')?.to_owned());
        self.0.into_iter().filter_map(move |(name, value)| Some((rest(&name)?, value)))
    }
}

/// Decodes a form-encoded part, in which `+` is a space.
pub(super) fn decode(part: &str) -> Result<String, Error> {
    let spaced = part.replace('+', " ");
    let text = percent_decode_str(&spaced).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| invalid(format!("`{part}` in the query is not UTF-8")))
}

pub(super) fn invalid(detail: String) -> Error {
    Error::new(Code::PayloadInvalid, detail)
}
