//! Clients that know only their model's API, and what makes them use a gateway: one source for all commands that
//! print it. Knows nothing of configurations and of how tokens are made.

use clap::ValueEnum;

use crate::{client::TOKEN_VARIABLE, shell_quote};
use hookgate::core::api_format::ApiFormat;

/// A client of models' APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelClient {
    /// OpenAI's SDKs, and clients built on them.
    Openai,
    /// Anthropic's SDKs, and clients built on them.
    Anthropic,
    /// Claude Code.
    ClaudeCode,
    /// Codex. It reads the address from a file, which --toml prints.
    Codex,
}

impl ModelClient {
    /// The API that it speaks.
    pub(crate) const fn format(self) -> ApiFormat {
        match self {
            ModelClient::Openai | ModelClient::Codex => ApiFormat::Openai,
            ModelClient::Anthropic | ModelClient::ClaudeCode => ApiFormat::Anthropic,
        }
    }

    /// Its variables, with the values as words of a shell: `token` is one, such as `$HOOKGATE_TOKEN`.
    pub(crate) fn variables(self, gateway: &str, token: &str) -> Vec<(&'static str, String)> {
        let address = shell_quote::word(&base_url(self.format(), gateway));
        let token = token.to_owned();
        match self {
            ModelClient::Openai => vec![("OPENAI_BASE_URL", address), ("OPENAI_API_KEY", token)],
            ModelClient::Anthropic => vec![("ANTHROPIC_BASE_URL", address), ("ANTHROPIC_API_KEY", token)],
            ModelClient::ClaudeCode => vec![("ANTHROPIC_BASE_URL", address), ("ANTHROPIC_AUTH_TOKEN", token)],
            ModelClient::Codex => vec![(TOKEN_VARIABLE, token)],
        }
    }

    /// The variable of a second token, which it would send too. A gateway refuses two that differ.
    pub(crate) const fn second_token(self) -> Option<&'static str> {
        match self {
            ModelClient::Openai | ModelClient::Codex => None,
            ModelClient::Anthropic => Some("ANTHROPIC_AUTH_TOKEN"),
            ModelClient::ClaudeCode => Some("ANTHROPIC_API_KEY"),
        }
    }

    /// Its variables as a shell sets them in front of a command, or after `export`.
    pub(crate) fn assignments(self, gateway: &str, token: &str) -> String {
        let variables = self.variables(gateway, token).into_iter();
        variables.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

/// The base URL of clients of this API at the gateway.
fn base_url(format: ApiFormat, gateway: &str) -> String {
    format!("{gateway}{}", format.client_path())
}

/// Codex's configuration. Under the name `OpenAI` it would compress requests and open WebSockets, and so it must have
/// another.
pub(crate) fn codex_toml(gateway: &str) -> String {
    let base_url = base_url(ModelClient::Codex.format(), gateway);
    format!(
        "model_provider = \"hookgate\"\n\n\
         [model_providers.hookgate]\n\
         name = \"Hookgate\"\n\
         base_url = \"{base_url}\"\n\
         env_key = \"{TOKEN_VARIABLE}\"\n\
         wire_api = \"responses\"\n\
         supports_websockets = false\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_word_of_a_shell() {
        let variables = ModelClient::Anthropic.assignments("http://[::1]:8080", "$HOOKGATE_TOKEN");
        let expected = "ANTHROPIC_BASE_URL='http://[::1]:8080/anthropic' ANTHROPIC_API_KEY=$HOOKGATE_TOKEN";
        assert_eq!(variables, expected);
    }
}
