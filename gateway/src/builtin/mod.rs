//! Plugins that run in the gateway's process, over the same contract as any other.

use std::sync::Arc;

use hookgate_circuit_breaker::CircuitBreaker;
use hookgate_content_policy::ContentPolicy;
use hookgate_loop_detect::LoopDetect;
use hookgate_output_validate::OutputValidate;
use hookgate_rate_limit::RateLimit;
use hookgate_redact::Redact;
use hookgate_response_sanitizer::ResponseSanitizer;
use hookgate_sdk::{HostService, Plugin};
use hookgate_secrets::Secrets;
use hookgate_tool_policy::ToolPolicy;

use crate::{host::HostServices, upstream::InProcess};

/// The service of the built-in plugin `name`, if there is one. Plugins that store data do so with `host`; without
/// it they are refused.
pub fn service(name: &str, host: Option<&Arc<HostServices>>) -> Option<InProcess> {
    match name {
        CircuitBreaker::NAME => Some(storing::<CircuitBreaker>(host)),
        ContentPolicy::NAME => Some(InProcess::new(hookgate_sdk::service::<ContentPolicy>())),
        LoopDetect::NAME => Some(storing::<LoopDetect>(host)),
        OutputValidate::NAME => Some(InProcess::new(hookgate_sdk::service::<OutputValidate>())),
        RateLimit::NAME => Some(storing::<RateLimit>(host)),
        Redact::NAME => Some(InProcess::new(hookgate_sdk::service::<Redact>())),
        ResponseSanitizer::NAME => Some(InProcess::new(hookgate_sdk::service::<ResponseSanitizer>())),
        Secrets::NAME => Some(InProcess::new(hookgate_sdk::service::<Secrets>())),
        ToolPolicy::NAME => Some(InProcess::new(hookgate_sdk::service::<ToolPolicy>())),
        _ => None,
    }
}

fn storing<P: Plugin>(host: Option<&Arc<HostServices>>) -> InProcess {
    match host {
        Some(host) => {
            InProcess::new(hookgate_sdk::service_with_host::<P>(HostService::new(host.routes().prepare())))
        }
        None => InProcess::new(hookgate_sdk::service::<P>()),
    }
}
