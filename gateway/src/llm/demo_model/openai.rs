//! What the demo model answers with in all of OpenAI's APIs.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderName, StatusCode};
use serde_json::json;

use super::DemoAnswer;

/// Has the id of the request.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The answer to a request that the model can't take.
pub(super) fn bad_request(message: &str) -> DemoAnswer {
    error(StatusCode::BAD_REQUEST, message)
}

/// The answer to a request to a path that no API of the model has.
pub(super) fn unknown_path(path: &str) -> DemoAnswer {
    error(StatusCode::NOT_FOUND, &format!("The demo model has no `{path}`"))
}

fn error(status: StatusCode, message: &str) -> DemoAnswer {
    let error = json!({ "message": message, "type": "invalid_request_error", "param": null, "code": null });
    DemoAnswer::json(status, &json!({ "error": error }))
}

/// The time of an answer, in seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
