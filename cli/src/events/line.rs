//! Renders an event as a line: time, level, name, plugin, and a few details.

use serde_json::Value;

use crate::output::{BOLD, DIM, GREEN, RED, YELLOW, printable};

/// Members shown after the message, in this order.
const DETAIL_MEMBERS: &[&str] = &[
    "tenant", "point", "tool", "binding", "until", "code", "reason", "address", "version", "revision",
    "author", "objects", "error",
];
/// Column width that fits most names.
const NAME_WIDTH: usize = 22;

/// The line of `event`, without a line break.
pub(super) fn format_line(event: &Value) -> String {
    let text = |name: &str| match &event[name] {
        Value::String(text) => printable(text),
        Value::Null => String::new(),
        other => printable(&other.to_string()),
    };
    let level = text("level");
    let style = match level.as_str() {
        "ERROR" => RED,
        "WARN" => YELLOW,
        _ => GREEN,
    };
    let (time, name) = (when(&text("timestamp")), text("event"));
    let mut line = format!("{DIM}{time}{DIM:#}  {style}{level:5}{style:#}  {BOLD}{name:NAME_WIDTH$}{BOLD:#}");
    for part in [text("plugin"), text("message")].iter().filter(|part| !part.is_empty()) {
        line += "  ";
        line += part;
    }
    let detail = text("detail");
    if !detail.is_empty() {
        line += &format!(": {detail}");
    }
    let more = DETAIL_MEMBERS.iter().map(|name| (name, text(name))).filter(|(_, value)| !value.is_empty());
    let more: Vec<_> = more.map(|(name, value)| format!("{name}={value}")).collect();
    if !more.is_empty() {
        line += &format!("  {DIM}{}{DIM:#}", more.join(" "));
    }
    line
}

/// The time to the millisecond: `2026-11-22T07:31:30.123Z`.
fn when(timestamp: &str) -> String {
    match timestamp.split_once('.') {
        Some((seconds, rest)) => format!("{seconds}.{}Z", rest.get(..3).unwrap_or("000")),
        None => timestamp.to_owned(),
    }
}
