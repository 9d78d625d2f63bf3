//! Mistakes in the settings.

use std::fmt;

use hookgate_glob::InvalidGlob;

/// A setting that can't be used. It names the field and never shows the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidSetting {
    pub(crate) field: String,
    pub(crate) expected: String,
}

impl InvalidSetting {
    pub(crate) fn new(field: impl Into<String>, expected: impl Into<String>) -> Self {
        InvalidSetting { field: field.into(), expected: expected.into() }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.field, self.expected)
    }
}

impl From<InvalidGlob> for InvalidSetting {
    fn from(invalid: InvalidGlob) -> Self {
        InvalidSetting { field: invalid.field, expected: invalid.fault }
    }
}

/// # Errors
/// If the list is empty: it could mean everything or nothing.
pub(crate) fn non_empty<T>(list: &[T], field: &str) -> Result<(), InvalidSetting> {
    match list.is_empty() {
        true => Err(InvalidSetting::new(field, "expected at least one entry")),
        false => Ok(()),
    }
}
