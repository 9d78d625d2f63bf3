//! Plugins that run in the gateway's process, over the same contract as any other.

use hookgate_content_policy::ContentPolicy;
use hookgate_output_validate::OutputValidate;
use hookgate_redact::Redact;
use hookgate_response_sanitizer::ResponseSanitizer;
use hookgate_sdk::Plugin;
use hookgate_secrets::Secrets;
use hookgate_tool_policy::ToolPolicy;

use std::sync::Arc;

use crate::{host::HostServices, upstream::InProcess};

/// The service of the built-in plugin `name`, if there is one. It stores its data with `host`.
pub fn service(name: &str, host: Option<&Arc<HostServices>>) -> Option<InProcess> {
    match name {
        ContentPolicy::NAME => Some(InProcess::new(hookgate_sdk::service::<ContentPolicy>())),
        OutputValidate::NAME => Some(InProcess::new(hookgate_sdk::service::<OutputValidate>())),
        Redact::NAME => Some(InProcess::new(hookgate_sdk::service::<Redact>())),
        ResponseSanitizer::NAME => Some(InProcess::new(hookgate_sdk::service::<ResponseSanitizer>())),
        Secrets::NAME => Some(InProcess::new(hookgate_sdk::service::<Secrets>())),
        ToolPolicy::NAME => Some(InProcess::new(hookgate_sdk::service::<ToolPolicy>())),
        _ => None,
    }
}
