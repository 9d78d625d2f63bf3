//! What a service answers, and the reply that it becomes.
//!
//! An answer of another form fails the step. A cancel with a bad code, a long message or bad details stays a cancel: the
//! gateway repairs it, as it does for every plugin.

use hookgate_sdk::{Cancel, Notice, PluginError, Reply, json::Object};
use serde::Deserialize;

use std::time::Duration;

use crate::client::{DeliveryError, ServiceAnswer};

/// The code of a block without one.
const DEFAULT_CODE: &str = "BLOCKED";
/// The message of a block without one.
const DEFAULT_MESSAGE: &str = "The webhook service blocked this.";

/// What a service decided.
#[derive(Debug)]
pub(crate) enum ServiceDecision {
    Continue { notices: Vec<ServiceNotice> },
    Cancel { cancel: CancelMembers, notices: Vec<ServiceNotice> },
}

/// Why a service cancels.
#[derive(Debug, Default)]
pub(crate) struct CancelMembers {
    code: Option<String>,
    message: Option<String>,
    details: Option<Object>,
    retry_after_ms: Option<u64>,
    scope: Option<ScopeName>,
}

/// The answer as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    decision: DecisionName,
    code: Option<String>,
    message: Option<String>,
    details: Option<Object>,
    retry_after_ms: Option<u64>,
    scope: Option<ScopeName>,
    #[serde(default)]
    notices: Vec<ServiceNotice>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DecisionName {
    Continue,
    Cancel,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScopeName {
    Step,
    Run,
}

/// A remark of the service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceNotice {
    kind: KindName,
    #[serde(default)]
    code: String,
    message: String,
    details: Option<Object>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindName {
    Allow,
    Block,
    Warn,
    Info,
}

impl ServiceDecision {
    pub(crate) fn from_answer(answer: ServiceAnswer) -> Result<Self, DeliveryError> {
        match answer {
            ServiceAnswer::NoContent => Ok(ServiceDecision::Continue { notices: Vec::new() }),
            ServiceAnswer::Body(body) => Self::parse(&body),
        }
    }

    /// The errors have the place of the mistake, never the text.
    fn parse(body: &[u8]) -> Result<Self, DeliveryError> {
        // serde would also accept a list of the members in order.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(DeliveryError::NoDecision("it isn't a JSON object".to_owned()));
        }
        let parsed: AnswerBody = serde_json::from_slice(body).map_err(|error| {
            let fault = if error.is_data() {
                "a member is missing, unknown or of the wrong type"
            } else {
                "it isn't valid JSON"
            };
            let place = format!("{fault} (line {}, column {})", error.line(), error.column());
            DeliveryError::NoDecision(place)
        })?;
        let AnswerBody { decision, code, message, details, retry_after_ms, scope, notices } = parsed;
        let cancel = CancelMembers { code, message, details, retry_after_ms, scope };
        match decision {
            DecisionName::Cancel => Ok(ServiceDecision::Cancel { cancel, notices }),
            DecisionName::Continue if cancel.is_empty() => Ok(ServiceDecision::Continue { notices }),
            DecisionName::Continue => {
                let fault = "`continue` has a member that only `cancel` may have".to_owned();
                Err(DeliveryError::NoDecision(fault))
            }
        }
    }

    pub(crate) fn into_reply<P>(self) -> Result<Reply<P>, PluginError> {
        let (reply, notices) = match self {
            ServiceDecision::Continue { notices } => (Reply::proceed(), notices),
            ServiceDecision::Cancel { cancel, notices } => (cancel.into_reply()?, notices),
        };
        notices.into_iter().try_fold(reply, |reply, notice| Ok(reply.notice(notice.into_notice()?)))
    }
}

impl CancelMembers {
    fn is_empty(&self) -> bool {
        let CancelMembers { code, message, details, retry_after_ms, scope } = self;
        code.is_none()
            && message.is_none()
            && details.is_none()
            && retry_after_ms.is_none()
            && scope.is_none()
    }

    /// The cancel, with a notice of the same code and message that has the details.
    fn into_reply<P>(self) -> Result<Reply<P>, PluginError> {
        let code = self.code.filter(|code| !code.is_empty()).unwrap_or_else(|| DEFAULT_CODE.to_owned());
        let message =
            self.message.filter(|text| !text.is_empty()).unwrap_or_else(|| DEFAULT_MESSAGE.to_owned());
        let mut notice = Notice::block(code.as_str(), message.as_str());
        if let Some(details) = &self.details {
            notice = notice.details(details)?;
        }
        let mut cancel = Cancel::new(code, message);
        if let Some(milliseconds) = self.retry_after_ms {
            cancel = cancel.retry_after(Duration::from_millis(milliseconds));
        }
        if let Some(ScopeName::Run) = self.scope {
            cancel = cancel.whole_run();
        }
        Ok(Reply::from(cancel).notice(notice))
    }
}

impl ServiceNotice {
    fn into_notice(self) -> Result<Notice, PluginError> {
        let notice = match self.kind {
            KindName::Allow => Notice::allow(self.code, self.message),
            KindName::Block => Notice::block(self.code, self.message),
            KindName::Warn => Notice::warn(self.code, self.message),
            KindName::Info => Notice::info(self.code, self.message),
        };
        match &self.details {
            Some(details) => notice.details(details),
            None => Ok(notice),
        }
    }
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
