//! Renders the result of `plugin test`: the manifest, and the reply or the failure.

use std::{sync::Arc, time::Duration};

use hookgate_proto::{
    HookName, PayloadFields,
    types::v1::{CancelScope, Notice, NoticeKind, Tool},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Exit,
    output::{self, GREEN, Output, RED, columns, printable},
    payload_diff::Members,
    plugin::target::PluginArgs,
    tools::first_line,
};
use hookgate::{
    core::{
        error::Code,
        failure::Failure,
        manifest::{Access, Manifest, SideEffects},
        point::Point,
        step::Reason,
    },
    invoke::reply::PluginCancel,
    upstream::{Refusal, State, Status},
};

#[derive(Serialize)]
pub(super) struct Report {
    endpoint: String,
    /// `None` if Describe did not succeed.
    plugin: Option<ManifestReport>,
    handshake_us: u64,
    pub(super) call: Option<CallReport>,
    /// Why there was no call, or no usable reply.
    pub(super) failure: Option<CallFailure>,
}

#[derive(Serialize)]
struct ManifestReport {
    name: String,
    version: String,
    points: Vec<OfferedPoint>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<OfferedHook>,
    /// Globs that cover the names of its tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ProvidedTool>,
    capabilities: Vec<String>,
    #[serde(skip)]
    offers_services: bool,
}

#[derive(Serialize)]
struct OfferedPoint {
    point: Point,
    access: &'static str,
    side_effects: bool,
    /// Absent if it reads all.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<PayloadFields>,
    /// Absent if it gets whole answers only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    windows: bool,
}

#[derive(Serialize)]
struct OfferedHook {
    hook: HookName,
    side_effects: bool,
}

#[derive(Serialize)]
struct ProvidedTool {
    name: String,
    description: String,
}

#[derive(Serialize)]
pub(super) struct CallReport {
    point: Point,
    /// Whether the plugin was to run its tool.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    run_tool: bool,
    verdict: &'static str,
    cancel: Option<CancelReport>,
    /// The tool's result that came with the cancel.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// The changed members, with their new values.
    changes: Option<Value>,
    /// The same, unparsed.
    #[serde(skip)]
    changes_text: String,
    notices: Vec<NoticeReport>,
    /// Number of invalid parts that were dropped from a cancel.
    sanitised: u32,
    duration_us: u64,
}

#[derive(Serialize)]
struct CancelReport {
    code: String,
    message: String,
    retry_after_ms: Option<u64>,
    scope: &'static str,
}

#[derive(Serialize)]
struct NoticeReport {
    kind: String,
    code: Option<String>,
    message: String,
    details: Option<Value>,
}

#[derive(Serialize)]
pub(super) struct CallFailure {
    reason: &'static str,
    detail: String,
    /// The error code with which a chain would end.
    code: Option<&'static str>,
    #[serde(skip)]
    sentence: String,
}

impl CallFailure {
    /// The handshake failed.
    pub(super) fn handshake(status: &Status) -> Self {
        let (state, reason, detail) = (status.state, status.why.as_str(), printable(&status.detail));
        let remedy = match status.state {
            State::Refused if reason == Refusal::NameMismatch.as_str() => {
                "\n  = --name says which plugin is meant"
            }
            State::Refused => "", // its sentence says what to mend
            _ => "\n  = check that the plugin runs and listens at that address, and check its log",
        };
        let sentence = format!("the plugin is {state}: {reason}: {detail}{remedy}");
        CallFailure { reason, detail, code: None, sentence }
    }

    /// The plugin's name is invalid, so no configuration could register it.
    pub(super) fn misnamed(name: &str) -> Self {
        let rule = "use a letter and up to 63 letters, digits, `_` and `-`";
        let detail = format!("the plugin's name `{}` is not valid: {rule}", printable(name));
        CallFailure { reason: Refusal::NameMismatch.as_str(), code: None, sentence: detail.clone(), detail }
    }

    /// The plugin does not offer `point`.
    pub(super) fn not_offered(point: Point, manifest: &Manifest) -> Self {
        let offered = Point::ALL.into_iter().filter(|point| manifest.offers(*point).is_some());
        let offered = offered.map(Point::as_str).collect::<Vec<_>>().join(", ");
        let (detail, remedy) = if offered.is_empty() && manifest.hooks.is_empty() {
            let remedy = "run one with before_tool_call --tool NAME --run-tool";
            (format!("the plugin doesn't offer {point}; it offers only tools"), remedy)
        } else if offered.is_empty() {
            let hooks = manifest.hooks.keys().map(HookName::as_str).collect::<Vec<_>>().join(", ");
            let remedy = "bind it there in a gateway, and use `hookgate call-hook`";
            (format!("the plugin doesn't offer {point}; it offers only the hooks {hooks}"), remedy)
        } else {
            (format!("the plugin doesn't offer {point}; it offers {offered}"), "use one of these")
        };
        let (reason, sentence) = (Reason::PointNotOffered.as_str(), format!("{detail}; {remedy}"));
        CallFailure { reason, code: Some(Code::PluginUnavailable.as_str()), detail, sentence }
    }

    /// The plugin doesn't provide `tool`.
    pub(super) fn not_provided(tool: &str, manifest: &Manifest) -> Self {
        let tools = manifest.tools.iter().flat_map(|tools| tools.iter());
        let tools = tools.map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
        let others =
            if tools.is_empty() { "it provides none".to_owned() } else { format!("it provides {tools}") };
        let detail = format!("the plugin doesn't provide the tool `{}`; {others}", printable(tool));
        let reason = Reason::PointNotOffered.as_str();
        CallFailure { reason, code: None, sentence: detail.clone(), detail }
    }

    /// The tenant-level config violates the plugin's schema. Its values are not shown.
    pub(super) fn tenant_config(flaw: &str) -> Self {
        let detail = format!("--tenant-config violates the plugin's schema: {}", printable(flaw));
        let reason = Reason::NotReady.as_str();
        CallFailure { reason, code: Some(Code::PluginUnavailable.as_str()), sentence: detail.clone(), detail }
    }

    /// The call failed, as a step would fail.
    pub(super) fn call(failure: &Failure) -> Self {
        let code = Code::for_step(failure.reason, failure.status);
        let (reason, detail) = (failure.reason.as_str(), printable(&failure.detail));
        let sentence = format!("the call failed: {reason}: {detail}\n  = {}", remedy(failure.reason));
        CallFailure { reason, code: Some(code.as_str()), detail, sentence }
    }

    /// An error that the checks before should have prevented.
    pub(super) fn internal(detail: String) -> Self {
        CallFailure { reason: "internal", code: None, sentence: detail.clone(), detail }
    }
}

/// The remedy, for the plugin's author.
const fn remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::Timeout | Reason::Budget => "answer faster, or raise --timeout and the binding's `timeout`",
        Reason::BadReply => {
            "follow docs/protocol.md, section 3; except in a cancel, any mistake fails the step"
        }
        Reason::ForbiddenPatch => "declare access MODIFY in the manifest, or omit the patch",
        Reason::TooLarge => "send a smaller reply: the reply and the resulting payload have size limits",
        Reason::RpcError => "check the plugin's log: it answered with an error, or the connection was lost",
        Reason::Unreachable
        | Reason::BreakerOpen
        | Reason::BulkheadFull
        | Reason::NotReady
        | Reason::PointNotOffered
        | Reason::UnknownPlugin
        | Reason::ConditionError => "check that the plugin still runs, and check its log",
    }
}

impl CallReport {
    pub(super) fn new(
        point: Point,
        cancel: Option<PluginCancel>,
        changes: &[u8],
        notices: &[Notice],
        sanitised: u32,
        took: Duration,
    ) -> Self {
        let details = |notice: &Notice| serde_json::from_slice(&notice.details).ok();
        let remark = |notice: &Notice| NoticeReport {
            kind: kind(notice.kind()).to_owned(),
            code: notice.code.clone(),
            message: notice.message.clone(),
            details: details(notice),
        };
        let result = cancel.as_ref().and_then(|cancel| cancel.result.as_deref());
        CallReport {
            point,
            run_tool: false,
            result: result.and_then(|result| serde_json::from_slice(result).ok()),
            verdict: if cancel.is_some() { "cancel" } else { "continue" },
            cancel: cancel.map(|cancel| CancelReport {
                code: cancel.code,
                message: cancel.message,
                retry_after_ms: cancel.retry_after_ms,
                scope: if cancel.scope == CancelScope::Run { "run" } else { "step" },
            }),
            changes: serde_json::from_slice(changes).ok(),
            changes_text: String::from_utf8_lossy(changes).into_owned(),
            notices: notices.iter().map(remark).collect(),
            sanitised,
            duration_us: micros(took),
        }
    }

    /// The same, of a call that was to run the plugin's tool.
    pub(super) fn of_tool(self) -> Self {
        CallReport { run_tool: true, ..self }
    }

    /// Whether the plugin ran its tool, and gave the result.
    fn has_run_tool(&self) -> bool {
        self.run_tool && self.result.is_some()
    }

    fn table(&self, sent: &[u8]) -> String {
        let took = millis(self.duration_us);
        let mut text = match &self.cancel {
            Some(_) if self.has_run_tool() => {
                let result = self.result.as_ref().map(|result| printable(&result.to_string()));
                format!("{GREEN}RESULT{GREEN:#}  after {took}\nresult {}\n", result.unwrap_or_default())
            }
            None => format!("{GREEN}CONTINUE{GREEN:#}  after {took}\n"),
            Some(cancel) => {
                let said = printable(&format!("{}: {}", cancel.code, cancel.message));
                let after = cancel.retry_after_ms.map(|millis| format!(", retry after {millis} ms"));
                let (scope, after) = (cancel.scope, after.unwrap_or_default());
                let result = self.result.as_ref().map(|result| printable(&result.to_string()));
                let result = result.map(|result| format!("\nresult {result}")).unwrap_or_default();
                format!("{RED}CANCEL{RED:#}  {said}  after {took}\nscope {scope}{after}{result}\n")
            }
        };
        if self.sanitised > 0 {
            text += &format!("{} parts of the reply were invalid and were dropped\n", self.sanitised);
        }
        if self.changes.is_some() {
            let mut payload = Members::parse(&String::from_utf8_lossy(sent));
            text += &format!("\npatch\n{}", payload.change(&self.changes_text));
        }
        if !self.notices.is_empty() {
            let mut rows = vec![["NOTICE", "CODE", "MESSAGE"].map(str::to_owned)];
            rows.extend(self.notices.iter().map(|notice| {
                [notice.kind.clone(), notice.code.clone().unwrap_or_default(), notice.message.clone()]
            }));
            text += &format!("\n{}", columns(&rows));
        }
        text
    }
}

fn kind(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::Unspecified => "",
        NoticeKind::Allow => "allow",
        NoticeKind::Block => "block",
        NoticeKind::Warn => "warn",
        NoticeKind::Info => "info",
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

fn provided(tool: &Arc<Tool>) -> ProvidedTool {
    ProvidedTool { name: tool.name.clone(), description: tool.description.clone() }
}

impl OfferedHook {
    fn new((hook, side_effects): (&HookName, &SideEffects)) -> Self {
        OfferedHook { hook: hook.clone(), side_effects: *side_effects == SideEffects::Some }
    }
}

impl ManifestReport {
    fn new(manifest: &Manifest, offers_services: bool) -> Self {
        let offered = |point| {
            let offer = manifest.offers(point)?;
            Some(OfferedPoint {
                point,
                access: if offer.access == Access::Read { "read" } else { "modify" },
                side_effects: offer.side_effects == SideEffects::Some,
                reads: offer.reads,
                windows: offer.windows,
            })
        };
        ManifestReport {
            name: manifest.name.to_string(),
            version: manifest.version.to_string(),
            points: Point::ALL.into_iter().filter_map(offered).collect(),
            hooks: manifest.hooks.iter().map(OfferedHook::new).collect(),
            tool_names: manifest.tool_names.globs().iter().cloned().collect(),
            tools: manifest.tools.iter().flat_map(|tools| tools.iter()).map(provided).collect(),
            capabilities: manifest.capabilities.clone(),
            offers_services,
        }
    }

    fn table(&self, handshake_us: u64) -> String {
        let capabilities = self.capabilities.join(" ");
        let wants = match (self.capabilities.is_empty(), self.offers_services) {
            (true, _) => "nothing".to_owned(),
            (false, true) => capabilities,
            (false, false) => format!("{capabilities} (not offered; see --host-services)"),
        };
        let head = [
            ["plugin", &format!("{} {}", self.name, self.version)],
            ["asks for", &wants],
            ["handshake", &millis(handshake_us)],
        ];
        let mut rows = vec![["POINT", "ACCESS", "SIDE EFFECTS", "READS"].map(str::to_owned)];
        let effects = |any: bool| if any { "some" } else { "none" };
        rows.extend(self.points.iter().map(|offer| {
            let mut reads = offer.reads.map_or("all".to_owned(), |fields| fields.to_string());
            if offer.windows {
                reads += ", in windows";
            }
            [offer.point.as_str(), offer.access, effects(offer.side_effects), &reads].map(str::to_owned)
        }));
        rows.extend(
            self.hooks.iter().map(|offer| {
                [offer.hook.as_str(), "-", effects(offer.side_effects), "all"].map(str::to_owned)
            }),
        );
        let mut text = columns(&head.map(|row| row.map(str::to_owned)));
        if self.points.iter().any(|offer| offer.reads.is_some() || offer.windows) {
            text += &format!("\n{}", columns(&rows));
        } else if rows.len() > 1 {
            let without = |[site, access, side_effects, _]: [String; 4]| [site, access, side_effects];
            text += &format!("\n{}", columns(&rows.into_iter().map(without).collect::<Vec<_>>()));
        }
        text + &self.tools_table()
    }

    /// The plugin's tools; empty if it provides none.
    fn tools_table(&self) -> String {
        if self.tools.is_empty() {
            return match self.tool_names.join(", ") {
                globs if globs.is_empty() => String::new(),
                globs => {
                    format!("\nno tools with this configuration; they may be named {}\n", printable(&globs))
                }
            };
        }
        let mut rows = vec![["TOOL", "DESCRIPTION"].map(str::to_owned)];
        rows.extend(self.tools.iter().map(|tool| [tool.name.clone(), first_line(&tool.description)]));
        format!("\n{}", columns(&rows))
    }
}

impl Report {
    pub(super) fn new(plugin: &PluginArgs, manifest: Option<&Manifest>, handshake: Duration) -> Self {
        let offers_services = plugin.offers_services();
        Report {
            endpoint: plugin.endpoint.clone(),
            plugin: manifest.map(|manifest| ManifestReport::new(manifest, offers_services)),
            handshake_us: micros(handshake),
            call: None,
            failure: None,
        }
    }

    /// Prints the result of a call with the payload `sent`.
    pub(super) fn print(&self, output: Output, sent: &[u8]) -> Exit {
        let exit = match (&self.failure, &self.call) {
            (Some(failed), _) => Exit::failure(failed.sentence.clone()),
            (None, Some(call)) if call.cancel.is_some() && !call.has_run_tool() => Exit::already_reported(3),
            (None, _) => Exit::ok(),
        };
        output::data(output, self, || self.table(sent), exit)
    }

    fn table(&self, sent: &[u8]) -> String {
        let described = self.plugin.as_ref().map(|plugin| plugin.table(self.handshake_us));
        let called = self.call.as_ref().map(|call| format!("\n{} {}", call.point, call.table(sent)));
        described.unwrap_or_default() + &called.unwrap_or_default()
    }
}
