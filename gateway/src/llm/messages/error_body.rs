//! A provider's error, as far as a client may see it while answers are judged.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{
    json,
    llm::{
        error_text::{self, quote_start, quotes_model},
        value::{MAX_SETTING_BYTES, object_member, quote, string_member},
    },
};

/// The types of errors that Anthropic documents, each with its status.
const ERROR_TYPES: [(u16, &str); 10] = [
    (400, "invalid_request_error"),
    (401, "authentication_error"),
    (402, "billing_error"),
    (403, "permission_error"),
    (404, "not_found_error"),
    (413, "request_too_large"),
    (429, "rate_limit_error"),
    (500, "api_error"),
    (504, "timeout_error"),
    (529, "overloaded_error"),
];

/// The lengths of the parts of a UUID. Anthropic's ids of organizations have this form.
const UUID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// An error with the members of Anthropic's errors, as far as `body` has them. Other members may hold what the model
/// said, and so may the message: always where the server failed (from status 500), and otherwise where it says so. An
/// undocumented type could be any text, so that of the status stands in its place.
pub(crate) fn error_without_details(body: &Bytes, status: u16) -> Bytes {
    let text = str::from_utf8(body)
        .ok()
        .map(str::trim_ascii)
        .filter(|text| json::scan(text.as_bytes(), json::MAX_DEPTH).is_ok())
        .unwrap_or_default();
    // Some servers of this format have the members of the error in the body itself.
    let error = object_member(text, "error").unwrap_or(text);
    let is_servers = status >= 500;
    let message = string_member(error, "message").filter(|message| !is_servers && !quotes_model(message));
    let message =
        message.unwrap_or_else(|| Cow::Owned(format!("The provider answered with status {status}")));
    let message = quote_start(&text_without_ids(&message));
    let given = string_member(error, "type").unwrap_or_default();
    let documented = ERROR_TYPES.iter().find(|(_, name)| *name == given);
    let error_type = quote(documented.map_or_else(|| type_of_status(status), |(_, name)| name));
    let request_id = string_member(text, "request_id").filter(|id| id.len() <= MAX_SETTING_BYTES);
    let request_id = request_id.map_or_else(|| "null".to_owned(), |id| quote(&text_without_ids(&id)));
    format!(
        r#"{{"type":"error","error":{{"type":{error_type},"message":{message}}},"request_id":{request_id}}}"#
    )
    .into()
}

/// The type of error that goes with a status.
fn type_of_status(status: u16) -> &'static str {
    let default = if status >= 500 { "api_error" } else { "invalid_request_error" };
    ERROR_TYPES.iter().find(|(of_type, _)| *of_type == status).map_or(default, |(_, name)| name)
}

/// A body in any form, without the ids of the operator's organizations, also those that are UUIDs.
pub(crate) fn without_ids(body: &Bytes) -> Bytes {
    let mut shown = Vec::new();
    let (mut shown_to, mut at) = (0, 0);
    while at < body.len() {
        let is_inside_word = at > 0 && body[at - 1].is_ascii_alphanumeric();
        match uuid_length(&body[at..]).filter(|_| !is_inside_word) {
            Some(length) => {
                shown.extend_from_slice(&body[shown_to..at]);
                shown.extend_from_slice("…".as_bytes());
                at += length;
                shown_to = at;
            }
            None => at += 1,
        }
    }
    if shown.is_empty() {
        return error_text::without_ids(body);
    }
    shown.extend_from_slice(&body[shown_to..]);
    error_text::without_ids(&shown.into())
}

/// The length of the UUID at the start of `text`, if there is one.
fn uuid_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for (index, length) in UUID_PARTS.into_iter().enumerate() {
        if index > 0 {
            at += text.get(at).filter(|byte| **byte == b'-').map(|_| 1)?;
        }
        let part = text.get(at..at + length)?;
        at += part.iter().all(u8::is_ascii_hexdigit).then_some(length)?;
    }
    let goes_on = text.get(at).is_some_and(u8::is_ascii_alphanumeric);
    (!goes_on).then_some(at)
}

fn text_without_ids(text: &str) -> String {
    let shown = without_ids(&Bytes::copy_from_slice(text.as_bytes()));
    String::from_utf8_lossy(&shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str, status: u16) -> String {
        let rebuilt = error_without_details(&Bytes::copy_from_slice(body.as_bytes()), status);
        String::from_utf8(rebuilt.to_vec()).expect("text")
    }

    fn error(error_type: &str, message: &str, request_id: &str) -> String {
        format!(
            r#"{{"type":"error","error":{{"type":"{error_type}","message":"{message}"}},"request_id":{request_id}}}"#
        )
    }

    /// An error with a message that names no cause.
    fn generic(status: u16, error_type: &str) -> String {
        error(error_type, &format!("The provider answered with status {status}"), "null")
    }

    #[test]
    fn an_error_keeps_its_type_message_and_request_id_and_nothing_else() {
        let body = r#" {"request_id":"req_1","type":"error","new":"secret",
            "error":{"message":"max_tokens: must be \"at\" least 1","type":"not_found_error","details":"secret"}} "#;
        let left = error("not_found_error", r#"max_tokens: must be \"at\" least 1"#, r#""req_1""#);
        assert_eq!(of(body, 400), left);
        let long =
            format!(r#"{{"error":{{"message":"{}"}},"request_id":"{}"}}"#, "m".repeat(4000), "r".repeat(65));
        assert_eq!(of(&long, 400), error("invalid_request_error", &"m".repeat(2048), "null"));
    }

    #[test]
    fn what_the_model_said_is_left_out() {
        for message in ["error parsing tool call: raw='secret'", "see failed_generation", "Failed to parse x"]
        {
            let body =
                format!(r#"{{"type":"error","error":{{"message":"{message}","type":"billing_error"}}}}"#);
            assert_eq!(of(&body, 400), generic(400, "billing_error"));
        }
    }

    #[test]
    fn where_the_server_failed_no_message_is_left() {
        let body = r#"{"type":"error","error":{"message":"secret","type":"overloaded_error"}}"#;
        assert_eq!(of(body, 500), generic(500, "overloaded_error"));
        assert_eq!(of(body, 499), error("overloaded_error", "secret", "null"));
    }

    #[test]
    fn an_undocumented_type_becomes_that_of_the_status() {
        for (status, error_type) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (413, "request_too_large"),
            (422, "invalid_request_error"),
            (429, "rate_limit_error"),
            (500, "api_error"),
            (502, "api_error"),
            (504, "timeout_error"),
            (529, "overloaded_error"),
        ] {
            for body in [
                r#"{"type":"error","error":{"type":"secret"}}"#,
                r#"{"type":"error","error":{"type":["api_error"],"message":{}}}"#,
            ] {
                assert_eq!(of(body, status), generic(status, error_type), "{body}");
            }
        }
    }

    #[test]
    fn what_is_no_error_of_the_api_becomes_one() {
        for body in
            ["", "<p>secret", "[]", r#"["secret"]"#, r#"{"error":"secret"}"#, r#"{"a":1,"a":"secret"}"#]
        {
            assert_eq!(of(body, 400), generic(400, "invalid_request_error"), "{body}");
            assert_eq!(of(body, 500), generic(500, "api_error"), "{body}");
        }
        assert_eq!(of(r#"{"message":"m"}"#, 404), error("not_found_error", "m", "null"));
    }

    #[test]
    fn ids_of_organizations_are_left_out() {
        let uuid = "1a2B3c4d-0000-4000-8000-00000000000f";
        for (given, left) in [
            (format!("limit (org: {uuid}, model)"), "limit (org: …, model)"),
            (format!("org-{uuid} org_01HX"), "org-… org_…"),
            (format!("{uuid}{uuid}"), &format!("{uuid}{uuid}")),
            (format!("{uuid} {uuid}"), "… …"),
            (format!("x{uuid}"), &format!("x{uuid}")),
            (format!("{}z", &uuid[..35]), &format!("{}z", &uuid[..35])),
            (uuid[..35].to_owned(), &uuid[..35]),
            (format!("_{uuid}-"), "_…-"),
        ] {
            assert_eq!(without_ids(&given.clone().into()), left, "{given}");
            let body = format!(r#"{{"type":"error","error":{{"message":"{given}"}}}}"#);
            assert_eq!(of(&body, 429), error("rate_limit_error", left, "null"));
        }
        let body = format!(r#"{{"request_id":"{uuid}"}}"#);
        assert!(!of(&body, 400).contains(uuid));
    }

    #[test]
    fn a_body_without_ids_keeps_its_memory() {
        let plain = Bytes::from_static(b"no such model \xff");
        assert_eq!(without_ids(&plain).as_ptr(), plain.as_ptr());
        let masked = without_ids(&Bytes::from_static(b"\xff 00000000-0000-0000-0000-000000000000\xfe"));
        assert_eq!(masked, Bytes::from_static(b"\xff \xe2\x80\xa6\xfe"));
    }
}
