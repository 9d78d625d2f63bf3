//! An error of OpenAI's API, as far as a client may see it while answers are judged.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{
    json::{self, ValueKind},
    llm::{
        error_text::{quote_start, quotes_model, text_without_ids},
        value::{MAX_SETTING_BYTES, kind, member, object_member, quote, string_member},
    },
};

/// An error with the four members of OpenAI's errors, as far as `body` has them. Other members may hold what the model
/// said, such as a tool call that the provider couldn't read, and so may the message: always where the server failed
/// (from status 500), and otherwise where it says so.
pub(super) fn error_without_details(body: &Bytes, status: u16) -> Bytes {
    let text = str::from_utf8(body)
        .ok()
        .map(str::trim_ascii)
        .filter(|text| json::scan(text.as_bytes(), json::MAX_DEPTH).is_ok());
    let error = text.and_then(error_in).unwrap_or_default();
    let is_servers = status >= 500;
    let text_of = |name: &str| {
        let text = string_member(error, name)?;
        let is_shown = !is_servers || text.len() <= MAX_SETTING_BYTES;
        is_shown.then(|| quote_start(&text_without_ids(&text)))
    };
    let message = string_member(error, "message").filter(|message| !is_servers && !quotes_model(message));
    let message =
        message.unwrap_or_else(|| Cow::Owned(format!("The provider answered with status {status}")));
    let message = quote_start(&text_without_ids(&message));
    let default_type = if is_servers { "server_error" } else { "invalid_request_error" };
    let error_type = text_of("type").unwrap_or_else(|| quote(default_type));
    let param = text_of("param").filter(|_| !is_servers).unwrap_or_else(|| "null".to_owned());
    let code = integer_code(error).or_else(|| text_of("code")).unwrap_or_else(|| "null".to_owned());
    format!(r#"{{"error":{{"message":{message},"type":{error_type},"param":{param},"code":{code}}}}}"#).into()
}

/// The object with the members of an error: that in `error`, or the body itself (older vLLM, Mistral). Gemini puts the
/// body into an array.
fn error_in(body: &str) -> Option<&str> {
    let root = match kind(body) {
        ValueKind::Array => json::elements(body).next()?,
        _ => body,
    };
    let has_message = |root: &&str| string_member(root, "message").is_some();
    object_member(root, "error").or_else(|| Some(root).filter(has_message))
}

fn integer_code(error: &str) -> Option<String> {
    let code = member(error, "code")?;
    code.parse::<i64>().ok().map(|code| code.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str, status: u16) -> String {
        let rebuilt = error_without_details(&Bytes::copy_from_slice(body.as_bytes()), status);
        String::from_utf8(rebuilt.to_vec()).expect("text")
    }

    /// An error with a message that names no cause.
    fn generic(status: u16, error_type: &str, code: &str) -> String {
        format!(
            r#"{{"error":{{"message":"The provider answered with status {status}","type":"{error_type}","param":null,"code":{code}}}}}"#
        )
    }

    #[test]
    fn what_the_model_said_is_left_out() {
        let body = r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"secret"}}"#;
        let left = r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error","param":null,"code":"tool_use_failed"}}"#;
        assert_eq!(of(body, 400), left);
        for message in ["error parsing tool call: raw='secret'", "see failed_generation", "Failed to parse x"]
        {
            let body = format!(r#"{{"error":{{"message":"{message}","type":"t","code":"c"}}}}"#);
            assert_eq!(of(&body, 400), generic(400, "t", r#""c""#));
        }
    }

    #[test]
    fn where_the_server_failed_only_a_short_type_and_code_are_left() {
        let body = r#"{"error":{"message":"secret","type":"api_error","param":"secret","code":"c"}}"#;
        assert_eq!(of(body, 500), generic(500, "api_error", r#""c""#));
        let long = "x".repeat(65);
        let body = format!(r#"{{"error":{{"message":"secret","type":"{long}","code":"{long}"}}}}"#);
        assert_eq!(of(&body, 503), generic(503, "server_error", "null"));
        assert!(of(&body, 499).contains(&long));
    }

    #[test]
    fn what_is_no_error_of_the_api_becomes_one() {
        let bodies = ["", "<p>secret", "[]", r#"["secret"]"#, r#"{"error":"secret"}"#];
        for body in bodies.into_iter().chain([r#"{"error":{"message":{"a":"secret"}}}"#, r#"{"message":1}"#])
        {
            assert_eq!(of(body, 400), generic(400, "invalid_request_error", "null"), "{body}");
            assert_eq!(of(body, 500), generic(500, "server_error", "null"), "{body}");
        }
    }

    #[test]
    fn errors_of_other_servers_are_read() {
        let read = |code: &str| {
            format!(
                r#"{{"error":{{"message":"m","type":"invalid_request_error","param":null,"code":{code}}}}}"#
            )
        };
        for (body, code) in [
            (r#"[{"error":{"code":400,"message":"m","status":"S"}}]"#, "400"),
            (r#"{"object":"error","message":"m","code":40303}"#, "40303"),
            (r#"{"error":"e","message":"m","code":-1}"#, "-1"),
            (r#"{"message":"m","code":1.5}"#, "null"),
            (r#"{"message":"m","code":{"a":1}}"#, "null"),
        ] {
            assert_eq!(of(body, 400), read(code), "{body}");
        }
    }

    #[test]
    fn ids_of_organizations_are_left_out() {
        let message = "Limit in organization org-Ab1 (org-2), of org- and org-org-x";
        let body = format!(r#"{{"error":{{"message":"{message}"}}}}"#);
        assert!(of(&body, 429).contains("Limit in organization org-… (org-…), of org- and org-…-x"));
        let body = format!(r#"{{"error":{{"message":"{}org-{}"}}}}"#, "x".repeat(2040), "y".repeat(100));
        assert!(!of(&body, 429).contains("yy"));
        let body = r#"{"error":{"message":"m","type":"org_01hx","param":"proj_Ab","code":"org-1"}}"#;
        assert!(of(body, 400).contains(r#""type":"org_…","param":"proj_…","code":"org-…""#));
    }
}
