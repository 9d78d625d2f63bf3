//! Errors of calls and of starts. An error is not a verdict: a plugin that wants to stop an action answers
//! with [`crate::Reply::cancel`].

use tonic::{Code, Status};

use crate::HostError;

/// Why a plugin could not answer a call. The step fails, and its binding decides whether the chain stops.
///
/// `?` converts any error into an internal one, except that unavailable services of the gateway stay unavailable
/// (see [`HostError`]).
#[derive(Debug)]
pub struct PluginError {
    code: Code,
    message: String,
}

impl PluginError {
    /// The plugin's own fault; the gateway answers `PLUGIN_ERROR`.
    pub fn internal(message: impl Into<String>) -> Self {
        PluginError { code: Code::Internal, message: message.into() }
    }

    /// Something that the plugin needs can't be reached; the gateway answers `PLUGIN_UNAVAILABLE`.
    pub fn unavailable(message: impl Into<String>) -> Self {
        PluginError { code: Code::Unavailable, message: message.into() }
    }

    /// The call contains something that the plugin can't process. Unlike the other two, this doesn't count
    /// against the plugin's circuit breaker.
    pub fn invalid(message: impl Into<String>) -> Self {
        PluginError { code: Code::InvalidArgument, message: message.into() }
    }

    pub(crate) fn into_status(self) -> Status {
        Status::new(self.code, cut(self.message))
    }
}

/// Truncates a status's message to [`MAX_MESSAGE_BYTES`]. gRPC sends it percent-encoded in the trailers.
/// Many clients and proxies accept only 8 KiB of trailers, and end the call or the connection above that.
pub(crate) fn cut(mut message: String) -> String {
    const TRUNCATION_MARK: &str = "…";
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES - TRUNCATION_MARK.len()));
        message.push_str(TRUNCATION_MARK);
    }
    message
}

/// The maximum length of a status's message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

impl<E: std::error::Error + 'static> From<E> for PluginError {
    fn from(error: E) -> Self {
        PluginError { code: code_of(&error), message: error.to_string() }
    }
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> Code {
    match HostError::find(error) {
        Some(host) if host.is_unavailable() => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// Why a plugin could not start with a configuration.
///
/// `?` converts any error into one that doesn't blame the configuration. If the error is that the
/// gateway's services are unavailable (see [`HostError`]), the gateway tries again.
#[derive(Debug)]
pub struct InitError {
    code: Code,
    message: String,
}

impl InitError {
    /// The configuration is wrong: names the `field` (a path such as `limits.tokens`) and what is expected.
    /// Don't include the value, which may be secret. The gateway rejects the plugin as `CONFIG_REFUSED` and
    /// shows this text.
    pub fn config(field: &str, expected: impl std::fmt::Display) -> Self {
        InitError { code: Code::InvalidArgument, message: format!("config field `{field}`: {expected}") }
    }

    /// Something that the plugin needs can't be reached; the gateway tries again.
    pub fn unavailable(message: impl Into<String>) -> Self {
        InitError { code: Code::Unavailable, message: message.into() }
    }

    pub(crate) fn from_refusal(message: String) -> Self {
        InitError { code: Code::InvalidArgument, message }
    }

    pub(crate) fn into_status(self) -> Status {
        Status::new(self.code, cut(self.message))
    }
}

impl<E: std::error::Error + 'static> From<E> for InitError {
    fn from(error: E) -> Self {
        InitError { code: code_of(&error), message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters_and_a_short_one_is_kept() {
        let long = PluginError::internal("é".repeat(40_000)).into_status();
        assert!(
            long.message().len() <= MAX_MESSAGE_BYTES && long.message().ends_with("é…"),
            "{}",
            long.message().len()
        );
        let just = "x".repeat(MAX_MESSAGE_BYTES);
        assert_eq!(InitError::unavailable(just.clone()).into_status().message(), just);
    }
}
