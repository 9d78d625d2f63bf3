//! Finds personal data and secrets in texts, and redacts them, for the reference plugins
//! (docs/reference-plugins.md).
//!
//! ```text
//!   payload ── TextPayload ──► Text ──► Redactor ──► Match: a rule's name, a range
//!                                          │
//!                                        Rules: detectors and own patterns
//! ```
//!
//! The mask of a [`Detector`] is never longer than what it replaces, so a text within a limit stays within it.
//! Otherwise the gateway would reject the redacted text, and the original would be shown.
//!
//! This is a separate crate because the plugins must agree on what a key is, and where a payload has texts. It
//! doesn't belong in the SDK, where other plugins would get it too. It knows of the plugins' settings
//! what they share, and none of their codes.
#![warn(missing_docs)]

mod card;
mod detector;
mod email;
mod email_context;
mod entropy;
mod formats;
mod iban;
mod json;
mod label;
mod labelled_value;
mod long_run;
mod pattern;
mod payload;
mod private_key;
mod redactor;
#[cfg(test)]
mod tests;
mod text_pattern;
mod url_password;
mod window;
#[cfg(test)]
mod window_tests;
mod word_list;
mod word_pattern;

pub use detector::Detector;
pub use json::{Text, TextKind};
pub use pattern::compile_pattern;
pub use payload::{Replaced, TextPayload, ToolsAndExtra};
pub use redactor::{Match, Redaction, Redactor, Rule};
pub(crate) use text_pattern::TextPattern;
pub use window::{FoundInWindow, may_become_json};
pub(crate) use word_list::words;
pub(crate) use word_pattern::{WordPattern, escape_length, is_word_start, without_escape, word_start};
