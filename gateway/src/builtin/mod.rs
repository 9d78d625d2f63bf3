//! Plugins that run in the gateway's process, over the same contract as any other.

use crate::upstream::InProcess;

/// The service of the built-in plugin `name`, if there is one.
pub fn service(name: &str) -> Option<InProcess> {
    match name {
        "content-policy" => {
            Some(InProcess::new(hookgate_sdk::service::<hookgate_content_policy::ContentPolicy>()))
        }
        "response-sanitizer" => {
            Some(InProcess::new(hookgate_sdk::service::<hookgate_response_sanitizer::ResponseSanitizer>()))
        }
        _ => None,
    }
}
