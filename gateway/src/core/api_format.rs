//! The APIs of models' providers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API that a provider's server has, and that its clients speak. Requests are never translated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApiFormat {
    /// OpenAI's: clients reach it below `/openai/v1`.
    #[default]
    Openai,
    /// Anthropic's: clients reach it below `/anthropic/v1`.
    Anthropic,
}

impl ApiFormat {
    /// The name in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            ApiFormat::Openai => "openai",
            ApiFormat::Anthropic => "anthropic",
        }
    }

    /// The path of a client's base URL at the gateway. Anthropic's clients add `/v1` themselves.
    pub const fn client_path(self) -> &'static str {
        match self {
            ApiFormat::Openai => "/openai/v1",
            ApiFormat::Anthropic => "/anthropic",
        }
    }
}
