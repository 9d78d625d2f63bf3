//! How errors of the gateway are named in the APIs of models: the code and the kind of error that a client's SDK shows.

use crate::core::{
    api_format::ApiFormat,
    error::{Code, Party},
};

/// The code of an error in the form of an API.
pub const fn code(api: ApiFormat, code: Code) -> &'static str {
    match (api, code) {
        // The name by which SDKs and agents know it.
        (ApiFormat::Openai, Code::ModelUnknown) => "model_not_found",
        _ => code.as_str(),
    }
}

/// The kind of an error in the form of an API.
pub const fn error_type(api: ApiFormat, code: Code) -> &'static str {
    match (api, code.party(), code.http()) {
        (_, _, 401) => "authentication_error",
        (_, _, 403) => "permission_error",
        (_, _, 404) => "not_found_error",
        (ApiFormat::Anthropic, _, 413) => "request_too_large",
        (_, _, 429) => "rate_limit_error",
        (ApiFormat::Anthropic, _, 504) => "timeout_error",
        (_, Party::Caller, _) => "invalid_request_error",
        (ApiFormat::Openai, Party::Plugin | Party::Gateway | Party::Provider, _) => "server_error",
        (ApiFormat::Anthropic, Party::Plugin | Party::Gateway | Party::Provider, _) => "api_error",
    }
}

/// Finds the code that has this name in one of the APIs, ignoring case.
pub fn code_named(name: &str) -> Option<Code> {
    let is_so = |shown: Code| API_FORMATS.iter().any(|api| code(*api, shown).eq_ignore_ascii_case(name));
    Code::ALL.iter().copied().find(|shown| is_so(*shown))
}

/// Whether one of the APIs has a kind of errors with this name, ignoring case.
pub fn is_error_type(name: &str) -> bool {
    let is_so =
        |shown: &Code| API_FORMATS.iter().any(|api| error_type(*api, *shown).eq_ignore_ascii_case(name));
    Code::ALL.iter().any(is_so)
}

const API_FORMATS: [ApiFormat; 2] = [ApiFormat::Openai, ApiFormat::Anthropic];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_by_its_name_in_each_api() {
        for shown in Code::ALL {
            for api in API_FORMATS {
                assert_eq!(code_named(&code(api, *shown).to_lowercase()), Some(*shown));
            }
        }
        assert_eq!(code_named("model_not_found"), Some(Code::ModelUnknown));
        assert_eq!(code_named("insufficient_quota"), None, "it is the provider's");
    }

    #[test]
    fn a_kind_of_errors_is_no_code() {
        for kind in ["invalid_request_error", "server_error", "api_error", "request_too_large"] {
            assert!(is_error_type(kind) && code_named(kind).is_none(), "{kind}");
        }
        assert!(!is_error_type("model_not_found") && !is_error_type("overloaded_error"));
    }
}
