//! Which events somebody sees, and what of each.

use std::fmt::Write as _;

use regex::RegexSet;
use tracing::Level;

use super::query::EventsQuery;
use crate::telemetry::events::Event;

/// What a token that names a tenant is told of an event: what its agents say and are told themselves. What a plugin
/// failed of, and which other plugins ran, is the operator's, and so is every member that isn't here.
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
    /// What this process is called in ids.
    pub(super) tag: String,
    names: Option<RegexSet>,
    plugin: Option<String>,
    tenant: Option<String>,
    level: Level,
    /// The tenant whose events these are; none: everybody's.
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

    /// Whether it is shown at all.
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

    /// What it is called, so that a stream can be gone on with after it.
    pub(in crate::admin) fn id(&self, event: &Event) -> String {
        format!("{}-{}", self.tag, event.id)
    }

    /// Writes it as a JSON object.
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

    /// How many events of all are gone, for whoever may know: not a tenant, whose own they may not be.
    pub(super) fn missed(&self, count: u64) -> Option<u64> {
        Some(count).filter(|_| self.reader.is_none())
    }
}

/// Whether it is about a call of this tenant. What happens to its plugins and its routing is the operator's.
fn is_of(event: &Event, tenant: &str) -> bool {
    let families = ["decision.", "step.", "auth."];
    families.iter().any(|family| event.name.starts_with(family)) && event.says("tenant", tenant)
}

/// Why a call was blocked its agent is told in the plugin's words. Why there was no decision may be about the inside.
fn is_told(event: &Event, member: &str) -> bool {
    TENANT_VISIBLE_MEMBERS.contains(&member) || (member == "detail" && event.name == "decision.block")
}
