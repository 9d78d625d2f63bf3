//! Lifecycle hooks as values: their names, and what a plugin offers at one.

use std::{borrow::Borrow, fmt, sync::Arc};

use crate::{Point, SideEffects, plugin::v1 as wire};

/// The longest name of a hook or of a contribution's kind, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The name of a lifecycle hook: `[a-z][a-z0-9_]{0,63}`, and not that of a point.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct HookName(Arc<str>);

/// Why a text is not the name of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookNameError {
    /// It doesn't match `[a-z][a-z0-9_]{0,63}`.
    Form,
    /// A point has this name.
    Point,
}

impl HookName {
    /// The hook of this name.
    ///
    /// # Errors
    /// The text is not the name of a hook.
    pub fn new(name: &str) -> Result<Self, HookNameError> {
        if !is_lower_snake_case(name) {
            return Err(HookNameError::Form);
        }
        match Point::from_name(name) {
            Some(_) => Err(HookNameError::Point),
            None => Ok(HookName(name.into())),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether `name` is `[a-z][a-z0-9_]{0,63}`, as names of hooks and of contributions' kinds are.
pub fn is_lower_snake_case(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

impl fmt::Display for HookNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HookNameError::Form => {
                "the name of a hook is a lower-case letter, then up to 63 lower-case letters, digits and `_`"
            }
            HookNameError::Point => "this is the name of a point, which no hook may have",
        })
    }
}

impl std::error::Error for HookNameError {}

impl fmt::Display for HookName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for HookName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for HookName {
    type Error = HookNameError;

    fn try_from(name: String) -> Result<Self, HookNameError> {
        HookName::new(&name)
    }
}

impl From<HookName> for String {
    fn from(name: HookName) -> String {
        name.0.as_ref().to_owned()
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for HookName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HookName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "The name of a lifecycle hook, and not that of a point.",
            "type": "string",
            "pattern": "^[a-z][a-z0-9_]{0,63}$",
            "format": "hook-name",
        })
    }
}

/// One lifecycle hook that a plugin answers at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookOffer {
    /// The hook's name. A gateway refuses a plugin whose name for a hook is invalid.
    pub hook: &'static str,
    /// Whether a call has effects beyond its reply.
    pub side_effects: SideEffects,
}

impl HookOffer {
    /// Offers to contribute at `hook`.
    pub const fn new(hook: &'static str) -> Self {
        HookOffer { hook, side_effects: SideEffects::None }
    }

    /// Declares that a call counts, stores or sends something.
    #[must_use]
    pub const fn with_side_effects(mut self) -> Self {
        self.side_effects = SideEffects::Some;
        self
    }

    /// The offer as a manifest names it.
    pub fn to_wire(self) -> wire::HookOffer {
        wire::HookOffer { hook: self.hook.to_owned(), side_effects: self.side_effects.to_wire().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hooks_name_is_lower_snake_case_and_not_that_of_a_point() {
        for name in ["a", "recall", "turn_end", "x9_", &"a".repeat(64)] {
            assert_eq!(HookName::new(name).as_ref().map(HookName::as_str), Ok(name));
        }
        for name in ["", "Recall", "_a", "9a", "a-b", "a b", "ä", &"a".repeat(65)] {
            assert_eq!(HookName::new(name), Err(HookNameError::Form), "{name}");
        }
        for point in Point::ALL {
            assert_eq!(HookName::new(point.as_str()), Err(HookNameError::Point));
        }
    }
}
