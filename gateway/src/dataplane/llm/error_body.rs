//! The JSON of errors and blocks, in the form of the client's API.

use bytes::Bytes;
use hookgate_proto::types::v1::CancelScope;
use http::StatusCode;
use serde::Serialize;

use crate::{
    config::Detail,
    core::{
        api_error,
        api_format::ApiFormat,
        error::{Code, Error, Violation},
    },
    dataplane::llm::reply::Client,
    edge::response::sentence,
    invoke::Block,
};

/// OpenAI's error.
#[derive(Serialize)]
struct OpenAiBody<'a> {
    error: OpenAiError<'a>,
}

/// All four members of OpenAI's error, and `hookgate`.
#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'a str,
    hookgate: ErrorOrigin<'a>,
}

/// Anthropic's error.
#[derive(Serialize)]
struct AnthropicBody<'a> {
    r#type: &'static str,
    error: AnthropicError<'a>,
    request_id: String,
}

/// Both members of Anthropic's error, and the gateway's.
#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'static str,
    message: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<ErrorDetails>,
    hookgate: ErrorOrigin<'a>,
}

/// What a client may do without.
#[derive(Serialize)]
struct ErrorDetails {
    error_code: &'static str,
    unsupported: [&'static str; 1],
}

/// Anthropic's SDKs try to let the provider keep a conversation. Where they get this, they go on without that.
const WITHOUT_THREADS: ErrorDetails =
    ErrorDetails { error_code: "thread_unsupported_request", unsupported: ["thread"] };

/// Who decided, or who failed. Members are absent where the tenant's `answer.detail` is `minimal`.
#[derive(Serialize)]
struct ErrorOrigin<'a> {
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plugin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    point: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    request_id: String,
}

/// What an error says, whatever the form.
struct ErrorView<'a> {
    message: &'a str,
    error_type: &'static str,
    param: Option<&'a str>,
    code: &'a str,
    origin: ErrorOrigin<'a>,
}

impl ErrorView<'_> {
    fn json(self, client: Client<'_>) -> Bytes {
        let details = (self.code == Code::Unsupported.as_str() && self.param == Some("thread"))
            .then_some(WITHOUT_THREADS);
        let ErrorView { message, error_type, param, code, origin: hookgate } = self;
        let json = match client.api {
            ApiFormat::Openai => serde_json::to_vec(&OpenAiBody {
                error: OpenAiError { message, r#type: error_type, param, code, hookgate },
            }),
            ApiFormat::Anthropic => serde_json::to_vec(&AnthropicBody {
                r#type: "error",
                error: AnthropicError { r#type: error_type, message, code, details, hookgate },
                request_id: client.meta.request_id.to_string(),
            }),
        };
        json.expect("texts are JSON").into()
    }
}

/// The JSON of an error.
pub(super) fn error_body(client: Client<'_>, error: &Error, detail: Detail) -> Bytes {
    let step = error.step.as_ref().filter(|_| detail == Detail::Full);
    // OpenAI's SDKs print the message alone, and Anthropic's form has no other place for where the mistake is.
    let message = error.violations.first().map(Violation::message_with_place);
    let view = ErrorView {
        message: message.as_deref().unwrap_or_else(|| sentence(error, detail)),
        error_type: api_error::error_type(client.api, error.code),
        // OpenAI's parameters are names, not pointers.
        param: error.violations.first().map(|violation| violation.pointer.trim_start_matches('/')),
        code: api_error::code(client.api, error.code),
        origin: ErrorOrigin {
            decision: "none",
            plugin: step.map(|step| &*step.plugin),
            binding: step.map(|step| &*step.binding),
            point: step.map(|step| step.site.to_string()),
            scope: None,
            request_id: client.meta.request_id.to_string(),
        },
    };
    view.json(client)
}

/// The JSON of a block, whose answer has this status.
pub(super) fn block_body(client: Client<'_>, status: StatusCode, block: &Block, detail: Detail) -> Bytes {
    let is_full = detail == Detail::Full;
    let error_type = match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        _ => "invalid_request_error",
    };
    let view = ErrorView {
        message: &block.message,
        error_type,
        param: None,
        code: &block.code,
        origin: ErrorOrigin {
            decision: "block",
            plugin: is_full.then_some(&*block.plugin),
            binding: is_full.then_some(&*block.binding),
            point: None,
            scope: Some(if block.scope == CancelScope::Run { "run" } else { "step" }),
            request_id: client.meta.request_id.to_string(),
        },
    };
    view.json(client)
}
