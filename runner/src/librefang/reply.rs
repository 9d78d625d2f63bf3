//! Replies in LibreFang's words, as replies of the contract.

use std::{borrow::Cow, collections::BTreeMap};

use hookgate::{json, transcode::ObjectWriter};
use serde::de::IgnoredAny;
use tonic::Status;

use super::{
    bootstrap::Overrides,
    call::{Wire, result_text},
    script::ScriptKind,
};
use crate::payload::Payload;

/// The type of a reply with a new result.
const TRANSFORMED: &str = "\"transformed\"";
/// Most contributions of a reply, as the contract allows.
const MAX_CONTRIBUTIONS: usize = 64;

/// Most lines beside the reply that are kept for the log.
const MAX_NOISE_LINES: usize = 100;

/// What a script or a sidecar wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptOutput<'a> {
    /// The last line that is a JSON object. `None` if there is none.
    reply: Option<&'a str>,
    /// The first of the other lines.
    pub(super) noise: Vec<Cow<'a, str>>,
}

impl<'a> ScriptOutput<'a> {
    /// # Errors
    /// ABORTED if there is nothing.
    pub(super) fn read(output: &'a [u8]) -> Result<Self, Status> {
        let lines = || {
            let lines = output.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            lines.filter(|line| !line.is_empty())
        };
        if lines().next().is_none() {
            return Err(Status::aborted("the program ended without a reply"));
        }
        let reply = lines().rev().find(|line| is_object_line(line));
        let noise = lines().filter(|line| reply.is_none_or(|reply| !std::ptr::eq(*line, reply)));
        let noise = noise.take(MAX_NOISE_LINES).map(String::from_utf8_lossy).collect();
        Ok(ScriptOutput { reply: reply.and_then(|reply| str::from_utf8(reply).ok()), noise })
    }

    /// Whether there is a reply.
    pub(super) fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// The members of the reply.
    pub(super) fn members(&self) -> BTreeMap<Cow<'a, str>, &'a str> {
        self.reply.map(|reply| json::members(reply).collect()).unwrap_or_default()
    }
}

/// Whether a line is one JSON object, which all replies are.
pub(crate) fn is_object_line(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    // `from_slice` doesn't look for UTF-8 in what it ignores.
    line.starts_with(b"{")
        && str::from_utf8(line).is_ok_and(|line| serde_json::from_str::<IgnoredAny>(line).is_ok())
}

/// Whether a line answers the request `id` of a sidecar.
pub(crate) fn answers_request(line: &[u8], id: u64) -> bool {
    is_object_line(line)
        && str::from_utf8(line).is_ok_and(|line| {
            json::members(line.trim()).any(|(name, value)| name == "id" && value.parse() == Ok(id))
        })
}

/// The members of a sidecar's result.
///
/// # Errors
/// ABORTED with its error.
pub(super) fn sidecar_result<'a>(
    members: &BTreeMap<Cow<'_, str>, &'a str>,
) -> Result<BTreeMap<Cow<'a, str>, &'a str>, Status> {
    match (members.get("ok"), members.get("error")) {
        (Some(result), _) => Ok(json::members(result).collect()),
        (None, Some(error)) => {
            let error = if error.starts_with('"') { json::unescape(error) } else { Cow::Borrowed(*error) };
            Err(Status::aborted(format!("the sidecar answered an error: {error}")))
        }
        (None, None) => Err(Status::internal("the sidecar's reply has neither `ok` nor `error`")),
    }
}

/// A reply of the contract, and what else a reply of LibreFang says.
pub(super) struct DecodedOutput {
    /// In the form of docs/writing-a-plugin-shell.md.
    pub(super) text: Vec<u8>,
    /// What the plugin wants to be logged.
    pub(super) log: Option<String>,
    pub(super) warning: Option<&'static str>,
    pub(super) overrides: Option<Overrides>,
}

/// Reads the members of a reply to `transform_tool_result`.
///
/// # Errors
/// INTERNAL if the reply announces a result and has none: the tool's own would pass.
pub(super) fn decode_result(
    reply: &BTreeMap<Cow<'_, str>, &str>,
    payload: &Payload,
) -> Result<DecodedOutput, Status> {
    if reply.get("type") == Some(&TRANSFORMED)
        && !reply.contains_key("result")
        && !reply.contains_key("content")
    {
        return Err(Status::internal("the reply has the type `transformed` and no `result`"));
    }
    let text = continued(new_result(reply, payload));
    Ok(DecodedOutput { text, log: None, warning: None, overrides: None })
}

/// Reads the members of a reply to a call of another `kind`.
pub(super) fn decode(kind: ScriptKind, wire: Wire, reply: &BTreeMap<Cow<'_, str>, &str>) -> DecodedOutput {
    let list = |name: &str| reply.get(name).copied().into_iter().flat_map(json::elements);
    let mut contributions: Vec<(&str, Cow<'_, str>)> = Vec::new();
    let mut warning = None;
    match kind {
        ScriptKind::Ingest | ScriptKind::AfterTurn => {
            let memories = if wire == Wire::Script { "memories" } else { "recalled_memories" };
            let memories = list(memories).filter(|memory| has_content(memory));
            contributions.extend(memories.map(|memory| ("memory", Cow::Borrowed(memory))));
            if kind == ScriptKind::AfterTurn {
                let events = list("events").filter_map(event);
                contributions.extend(events.map(|event| ("event", Cow::Owned(event))));
            }
        }
        ScriptKind::Assemble | ScriptKind::Compact => match reply.get("messages") {
            Some(messages) if is_window(messages) => {
                contributions.push(("messages", Cow::Borrowed(messages)));
            }
            _ => warning = Some("the reply has no `messages`, so the agent's default applies"),
        },
        _ => {}
    }
    if contributions.len() > MAX_CONTRIBUTIONS {
        contributions.truncate(MAX_CONTRIBUTIONS);
        warning = Some("the reply has more than 64 memories and events; the others are left out");
    }
    DecodedOutput {
        text: contributed(&contributions),
        log: reply.get("log").filter(|log| log.starts_with('"')).map(|log| json::unescape(log).into_owned()),
        warning,
        overrides: (kind == ScriptKind::Bootstrap).then(|| Overrides::from_reply(reply)),
    }
}

/// A reply that contributes nothing, or lets a call pass.
pub(super) fn nothing(kind: ScriptKind) -> Vec<u8> {
    if kind == ScriptKind::TransformToolResult { continued(None) } else { contributed(&[]) }
}

fn contributed(contributions: &[(&str, Cow<'_, str>)]) -> Vec<u8> {
    let mut list = vec![b'['];
    for (index, (kind, value)) in contributions.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        ObjectWriter::object(&mut list, |contribution| {
            contribution.member("kind", *kind);
            contribution.json("value", value.as_bytes());
        });
    }
    list.push(b']');
    let mut text = Vec::with_capacity(list.len() + 32);
    ObjectWriter::object(&mut text, |reply| reply.json("contributions", &list));
    text
}

fn continued(result: Option<&str>) -> Vec<u8> {
    let mut modify = Vec::new();
    if let Some(result) = result {
        ObjectWriter::object(&mut modify, |modify| modify.json("result", result.as_bytes()));
    }
    let mut text = Vec::with_capacity(modify.len() + 32);
    ObjectWriter::object(&mut text, |reply| {
        reply.json("continue", b"{}");
        reply.json("modify", &modify);
    });
    text
}

/// The result that replaces a tool's, in either of LibreFang's formats.
fn new_result<'a>(reply: &BTreeMap<Cow<'_, str>, &'a str>, payload: &Payload) -> Option<&'a str> {
    if let Some(result) = reply.get("result")
        && reply.get("type") == Some(&TRANSFORMED)
    {
        return Some(result);
    }
    let content = reply.get("content").filter(|content| **content != "null")?;
    // A result that isn't a text came as one. Unchanged, it stays what it was.
    let was = result_text(payload);
    let is_same = content.starts_with('"') && json::unescape(content) == json::unescape(&was);
    (!is_same).then_some(*content)
}

fn has_content(memory: &str) -> bool {
    memory.starts_with('{')
        && json::members(memory).any(|(name, value)| {
            name == "content" && value.starts_with('"') && !json::unescape(value).is_empty()
        })
}

/// An event of the contract: `{name, payload}` as `{kind, data}`.
fn event(event: &str) -> Option<String> {
    let members: BTreeMap<_, _> = event.starts_with('{').then(|| json::members(event).collect())?;
    let name = members.get("name").filter(|name| name.starts_with('"') && **name != "\"\"")?;
    let mut text = Vec::new();
    ObjectWriter::object(&mut text, |event| {
        event.json("kind", name.as_bytes());
        event.json("data", members.get("payload").copied().unwrap_or("null").as_bytes());
    });
    String::from_utf8(text).ok()
}

fn is_window(messages: &str) -> bool {
    let mut all = json::elements(messages).peekable();
    messages.starts_with('[') && all.peek().is_some() && all.all(|message| message.starts_with('{'))
}

#[cfg(test)]
mod tests {
    use hookgate::transcode::WriteJson;

    use super::*;

    fn last(output: &str) -> Option<String> {
        let read = ScriptOutput::read(output.as_bytes()).ok()?;
        Some(read.reply.unwrap_or("(none)").to_owned())
    }

    #[test]
    fn the_last_line_that_is_json_is_the_reply() {
        for (output, expected) in [
            ("{\"a\":1}\n", Some("{\"a\":1}")),
            ("{\"a\":1}", Some("{\"a\":1}")),
            ("log\n{\"a\":1}\n{\"a\":2}\n", Some("{\"a\":2}")),
            ("{\"a\":1}\nbye {\n\n", Some("{\"a\":1}")),
            ("hello\n", Some("(none)")),
            ("\n \n", None),
        ] {
            assert_eq!(last(output).as_deref(), expected, "{output:?}");
        }
        let read = ScriptOutput::read(b"one\n{\"a\":1}\r\ntwo").expect("there is output");
        assert_eq!((read.reply, &read.noise[..]), (Some("{\"a\":1}"), &["one".into(), "two".into()][..]));
        let read = ScriptOutput::read(b"{\"a\":\"caf\xe9\"}\n3\n").expect("there is output");
        assert_eq!((read.reply, read.noise.len()), (None, 2), "neither UTF-8 nor an object");
        let flood = ScriptOutput::read("x\n".repeat(1000).as_bytes()).expect("there is output").noise.len();
        assert_eq!(flood, MAX_NOISE_LINES);
    }

    #[test]
    fn memories_events_and_windows_are_contributions() {
        let decoded = |kind, reply: &str| {
            let members = json::members(reply).collect();
            String::from_utf8(decode(kind, Wire::Script, &members).text).expect("text")
        };
        let reply = r#"{"memories":[{"content":"Ada","n":9007199254740993},{"content":""},"x"],
            "events":[{"name":"saved","payload":{"n":1}},{"payload":2}]}"#;
        assert_eq!(
            decoded(ScriptKind::Ingest, reply),
            r#"{"contributions":[{"kind":"memory","value":{"content":"Ada","n":9007199254740993}}]}"#
        );
        assert_eq!(
            decoded(ScriptKind::AfterTurn, reply),
            concat!(
                r#"{"contributions":[{"kind":"memory","value":{"content":"Ada","n":9007199254740993}},"#,
                r#"{"kind":"event","value":{"kind":"saved","data":{"n":1}}}]}"#
            )
        );
        for (reply, expected) in [
            (
                r#"{"messages":[{"role":"user"}]}"#,
                r#"{"contributions":[{"kind":"messages","value":[{"role":"user"}]}]}"#,
            ),
            (r#"{"messages":[]}"#, r#"{"contributions":[]}"#),
            (r#"{"messages":["hi"]}"#, r#"{"contributions":[]}"#),
            ("{}", r#"{"contributions":[]}"#),
        ] {
            assert_eq!(decoded(ScriptKind::Assemble, reply), expected);
        }
    }

    struct Body;

    impl WriteJson for Body {
        fn put(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(br#"{"tool_name":"t","result":{"n":1}}"#);
        }
    }

    #[test]
    fn both_formats_replace_a_tools_result() {
        let payload = Payload::new(&Body).expect("it is JSON");
        for (reply, expected) in [
            (r#"{"type":"transformed","result":[1]}"#, r#"{"continue":{},"modify":{"result":[1]}}"#),
            (r#"{"type":"skip","result":[1]}"#, r#"{"continue":{}}"#),
            (r#"{"content":"short"}"#, r#"{"continue":{},"modify":{"result":"short"}}"#),
            (r#"{"content":"{\"n\":1}"}"#, r#"{"continue":{}}"#),
            (r#"{"content":null}"#, r#"{"continue":{}}"#),
            ("{}", r#"{"continue":{}}"#),
        ] {
            let members = json::members(reply).collect();
            let decoded = decode_result(&members, &payload).expect("a reply");
            assert_eq!(String::from_utf8(decoded.text).expect("text"), expected, "{reply}");
        }
        let members = json::members(r#"{"type":"transformed"}"#).collect();
        assert!(decode_result(&members, &payload).is_err());
    }
}
