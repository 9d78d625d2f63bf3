//! Decides which events a reader sees, and which members of each.

use std::fmt::Write as _;

use regex::RegexSet;
use tracing::Level;

use super::query::EventsQuery;
use crate::telemetry::events::Event;

/// The members that a token which names a tenant sees: what its agents send and receive themselves. All
/// other members are for operators only, such as why a plugin failed and which other plugins ran.
const TENANT_VISIBLE_MEMBERS: &[&str] = &[
    "timestamp",
    "level",
    "message",
    "event",
    "request_id",
    "correlation_id",
    "trace_id",
    "tenant",
    "session",
    "run",
    "agent",
    "user",
    "point",
    "tool",
    "call_id",
    "decision",
    "status",
    "code",
    "plugin",
    "binding",
    "mode",
    "revision",
    "plan_digest",
    "duration_ms",
    "slow",
];

/// What one reader sees.
pub(in crate::admin) struct Visibility {
    /// The process's tag in event ids.
    pub(super) tag: String,
    names: Option<RegexSet>,
    plugin: Option<String>,
    tenant: Option<String>,
    level: Level,
    /// Only this tenant's events are visible; `None` means all.
    reader: Option<String>,
}

impl Visibility {
    pub(super) fn new(tag: String, asked: &EventsQuery, reader: Option<&str>) -> Self {
        Visibility {
            tag,
            names: asked.names.clone(),
            plugin: asked.plugin.clone(),
            tenant: asked.tenant.clone(),
            level: asked.level,
            reader: reader.map(str::to_owned),
        }
    }

    pub(super) fn reader(&self) -> Option<&str> {
        self.reader.as_deref()
    }

    pub(super) fn shows(&self, event: &Event) -> bool {
        let is = |name: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| event.says(name, wanted))
        };
        event.level <= self.level
            && self.names.as_ref().is_none_or(|names| names.is_match(&event.name))
            && is("plugin", &self.plugin)
            && is("tenant", &self.tenant)
            && self.reader.as_ref().is_none_or(|reader| is_of(event, reader))
    }

    /// The event's id, from which a client can resume a stream.
    pub(in crate::admin) fn id(&self, event: &Event) -> String {
        format!("{}-{}", self.tag, event.id)
    }

    /// Writes the visible members as a JSON object.
    pub(in crate::admin) fn write(&self, event: &Event, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{{\"id\":\"{}\"", self.id(event));
        for (name, member) in event.members() {
            if self.reader.is_none() || is_told(event, name) {
                text.push(',');
                text.push_str(member);
            }
        }
        text.push('}');
    }

    /// Returns the number of lost events, except to a tenant: they may be another tenant's.
    pub(super) fn missed(&self, count: u64) -> Option<u64> {
        Some(count).filter(|_| self.reader.is_none())
    }
}

/// Whether the event is about a call of this tenant. Events about plugins and routing are for operators.
fn is_of(event: &Event, tenant: &str) -> bool {
    let families = ["decision.", "step.", "auth."];
    families.iter().any(|family| event.name.starts_with(family)) && event.says("tenant", tenant)
}

/// `detail` of a block is what the agent was told by the plugin. `detail` of other events may expose
/// internals.
fn is_told(event: &Event, member: &str) -> bool {
    TENANT_VISIBLE_MEMBERS.contains(&member) || (member == "detail" && event.name == "decision.block")
}
