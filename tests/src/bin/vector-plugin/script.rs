//! What a call's script says, as the tenant-level configuration that it is.

use std::{collections::BTreeMap, time::Duration};

use hookgate_sdk::{Cancel, Context, Notice, PluginError, Reply, json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The reply that a call wants. `cut` is missing: texts of Rust are never ill-formed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Script {
    pub(crate) fail: Option<Failure>,
    pub(crate) cancel: Option<ScriptedCancel>,
    pub(crate) answer: Option<ScriptedAnswer>,
    pub(crate) echo: bool,
    #[schemars(with = "BTreeMap<String, BTreeMap<String, serde_json::Value>>")]
    pub(crate) merge: BTreeMap<String, json::Object>,
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub(crate) set: BTreeMap<String, Box<RawValue>>,
    pub(crate) contribute: Vec<ScriptedContribution>,
    show: Option<ShownPart>,
    notices: Vec<ScriptedNotice>,
}

/// What the details of a notice show.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ShownPart {
    Payload,
    Caller,
}

/// A call that fails.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    r#as: FailureKind,
    message: String,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FailureKind {
    Unavailable,
    Invalid,
    Internal,
    Uncaught,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedCancel {
    code: String,
    message: String,
    scope: Option<Scope>,
    retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scope {
    Step,
    Run,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedAnswer {
    #[schemars(with = "serde_json::Value")]
    pub(crate) result: Box<RawValue>,
    pub(crate) message: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedContribution {
    pub(crate) kind: String,
    #[schemars(with = "serde_json::Value")]
    pub(crate) value: Box<RawValue>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScriptedNotice {
    kind: NoticeName,
    #[serde(default)]
    code: String,
    message: String,
    #[schemars(with = "Option<serde_json::Value>")]
    details: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum NoticeName {
    Allow,
    Block,
    Warn,
    Info,
}

impl Failure {
    /// Fails as it says.
    pub(crate) fn fail(&self) -> Result<(), PluginError> {
        let message = self.message.clone();
        Err(match self.r#as {
            FailureKind::Unavailable => PluginError::unavailable(message),
            FailureKind::Invalid => PluginError::invalid(message),
            FailureKind::Internal => PluginError::internal(message),
            FailureKind::Uncaught => panic!("{message}"),
        })
    }
}

impl ScriptedNotice {
    fn to_notice(&self) -> Result<Notice, PluginError> {
        let make = match self.kind {
            NoticeName::Allow => Notice::allow,
            NoticeName::Block => Notice::block,
            NoticeName::Warn => Notice::warn,
            NoticeName::Info => Notice::info,
        };
        let notice: Notice = make(&self.code, &self.message);
        match &self.details {
            Some(details) => notice.details(details),
            None => Ok(notice),
        }
    }
}

impl Script {
    /// Fails if the script says so.
    pub(crate) fn fail(&self) -> Result<(), PluginError> {
        self.fail.as_ref().map_or(Ok(()), Failure::fail)
    }

    /// Goes on, or stops with the script's cancel.
    pub(crate) fn verdict<Patch>(&self) -> Reply<Patch> {
        let Some(scripted) = &self.cancel else { return Reply::proceed() };
        let mut cancel = Cancel::new(&scripted.code, &scripted.message);
        if scripted.scope == Some(Scope::Run) {
            cancel = cancel.whole_run();
        }
        if let Some(millis) = scripted.retry_after_ms {
            cancel = cancel.retry_after(Duration::from_millis(millis));
        }
        cancel.into()
    }

    /// The notices: first that which shows something, then those of the script.
    pub(crate) fn notices(&self, ctx: &Context, payload: &json::Object) -> Result<Vec<Notice>, PluginError> {
        let seen = Notice::info("SEEN", "seen");
        let shown = match self.show {
            Some(ShownPart::Payload) => Some(seen.details(payload)),
            Some(ShownPart::Caller) => Some(seen.details(&caller(ctx)?)),
            None => None,
        };
        shown.into_iter().chain(self.notices.iter().map(ScriptedNotice::to_notice)).collect()
    }
}

/// Everything that is known about the caller, by the names of the contract.
fn caller(ctx: &Context) -> Result<json::Object, PluginError> {
    let caller = ctx.caller();
    let mut members = json::Object::default();
    members.set("tenant", ctx.tenant())?;
    members.set("operator", ctx.operator())?;
    members.set("request_id", ctx.request_id())?;
    members.set("labels", &caller.labels)?;
    members.set("replay", &caller.replay)?;
    members.set("part", &caller.part)?;
    let texts = [
        ("correlation_id", &caller.correlation_id),
        ("session_id", &caller.session_id),
        ("run_id", &caller.run_id),
        ("parent_run_id", &caller.parent_run_id),
        ("agent_id", &caller.agent_id),
        ("agent_path", &caller.agent_path),
        ("project_id", &caller.project_id),
        ("user_id", &caller.user_id),
        ("provider", &caller.provider),
        ("model", &caller.model),
        ("exchange_id", &caller.exchange_id),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            members.set(name, text)?;
        }
    }
    if let Some(depth) = caller.depth {
        members.set("depth", &depth)?;
    }
    Ok(members)
}
