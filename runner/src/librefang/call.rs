//! Calls in LibreFang's words: the input of a script, and a request to a sidecar.

use hookgate::transcode::{ObjectWriter, WriteJson as _};
use hookgate_proto::plugin::v1::CallContext;

use super::script::ScriptKind;
use crate::payload::Payload;

/// Who is asked: a script, or a sidecar with the request of this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Script,
    Sidecar(u64),
}

/// The call as one JSON object.
pub(super) fn encode(kind: ScriptKind, wire: Wire, context: &CallContext, payload: &Payload) -> Vec<u8> {
    let mut line = Vec::with_capacity(1024);
    match wire {
        Wire::Script => ObjectWriter::object(&mut line, |input| match kind {
            ScriptKind::OnEvent => event(input, payload),
            ScriptKind::TransformToolResult => tool_result(input, context, payload),
            _ => {
                input.member("type", kind.key());
                members(input, kind, wire, context, payload);
            }
        }),
        Wire::Sidecar(id) => {
            let mut params = Vec::with_capacity(1024);
            ObjectWriter::object(&mut params, |input| members(input, kind, wire, context, payload));
            ObjectWriter::object(&mut line, |request| {
                request.member("id", &id);
                request.member("method", kind.key());
                request.json("params", &params);
            });
        }
    }
    line
}

/// The members that LibreFang names, and then those of the payload that it doesn't name.
fn members(
    input: &mut ObjectWriter<'_>,
    kind: ScriptKind,
    wire: Wire,
    context: &CallContext,
    payload: &Payload,
) {
    let mut left = payload.members();
    left.remove("type");
    let agent = context.agent_id.as_deref().unwrap_or_default();
    match kind {
        ScriptKind::PrepareSubagent | ScriptKind::MergeSubagent => {
            let parent = context.agent_id.as_ref().or(context.run_id.as_ref());
            let parent = parent.map(String::as_str).unwrap_or_default();
            match left.remove("parent_id") {
                Some(parent) => input.json("parent_id", parent.as_bytes()),
                None => input.member("parent_id", parent),
            }
            let child = left.remove("child").unwrap_or("\"\"");
            let child = left.remove("child_id").unwrap_or(child);
            input.json("child_id", child.as_bytes());
        }
        ScriptKind::Bootstrap => {}
        _ => {
            left.remove("agent_id");
            input.member("agent_id", agent);
        }
    }
    if kind == ScriptKind::Ingest {
        let message = left.remove("message").unwrap_or("\"\"");
        let name = if wire == Wire::Script { "message" } else { "user_message" };
        input.json(name, message.as_bytes());
        match (left.remove("peer_id"), &context.user_id) {
            (Some(peer), _) => input.json("peer_id", peer.as_bytes()),
            (None, Some(user)) => input.member("peer_id", user),
            (None, None) => input.json("peer_id", b"null"),
        }
    }
    if kind == ScriptKind::Compact && !left.contains_key("model") {
        input.optional("model", context.model.as_ref());
    }
    if !left.contains_key("session_id") {
        input.optional("session_id", context.session_id.as_ref());
    }
    left.into_iter().for_each(|(name, value)| input.json(&name, value.as_bytes()));
}

fn event(input: &mut ObjectWriter<'_>, payload: &Payload) {
    let members = payload.members();
    let member = |name| members.get(name).copied().unwrap_or("null").as_bytes();
    let mut event = Vec::with_capacity(256);
    ObjectWriter::object(&mut event, |event| {
        event.json("name", member("kind"));
        event.json("payload", member("data"));
        event.json("source_plugin", member("source_plugin"));
    });
    input.json("event", &event);
}

/// The members of both of LibreFang's formats.
fn tool_result(input: &mut ObjectWriter<'_>, context: &CallContext, payload: &Payload) {
    let members = payload.members();
    let member = |name| members.get(name).copied().unwrap_or("null").as_bytes();
    let status = if members.get("success") == Some(&"true") { "success" } else { "error" };
    input.member("type", ScriptKind::TransformToolResult.key());
    input.member("agent_id", context.agent_id.as_deref().unwrap_or_default());
    input.json("tool_name", member("tool_name"));
    input.json("args", member("args"));
    input.json("result", member("result"));
    input.json("input", member("args"));
    input.json("content", result_text(payload).as_bytes());
    input.json("tool_use_id", member("call_id"));
    input.member("status", status);
}

/// A tool's result as JSON text of a string: LibreFang's results are texts.
pub(super) fn result_text(payload: &Payload) -> String {
    let members = payload.members();
    let result = members.get("result").copied().unwrap_or("null");
    if result.starts_with('"') {
        return result.to_owned();
    }
    let mut text = Vec::new();
    result.put(&mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hookgate::transcode::WriteJson;

    use super::*;

    struct Text(&'static str);

    impl WriteJson for Text {
        fn put(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(self.0.as_bytes());
        }
    }

    fn encoded(kind: ScriptKind, wire: Wire, payload: &'static str) -> String {
        let context = CallContext {
            agent_id: Some("a-1".into()),
            user_id: Some("u:1/2".into()),
            model: Some("m".into()),
            ..Default::default()
        };
        let payload = Payload::new(&Text(payload)).expect("it is JSON");
        String::from_utf8(encode(kind, wire, &context, &payload)).expect("text")
    }

    #[test]
    fn each_script_gets_what_librefang_gives_it() {
        for (kind, payload, expected) in [
            (
                ScriptKind::Ingest,
                r#"{"message":"hi","type":"x","n":9007199254740993}"#,
                r#"{"type":"ingest","agent_id":"a-1","message":"hi","peer_id":"u:1/2","n":9007199254740993}"#,
            ),
            (
                ScriptKind::Ingest,
                r#"{"message":"hi","peer_id":null}"#,
                r#"{"type":"ingest","agent_id":"a-1","message":"hi","peer_id":null}"#,
            ),
            (
                ScriptKind::Compact,
                r#"{"messages":[{}],"token_pressure":{}}"#,
                r#"{"type":"compact","agent_id":"a-1","model":"m","messages":[{}],"token_pressure":{}}"#,
            ),
            (
                ScriptKind::MergeSubagent,
                r#"{"child":"run-2"}"#,
                r#"{"type":"merge_subagent","parent_id":"a-1","child_id":"run-2"}"#,
            ),
            (
                ScriptKind::OnEvent,
                r#"{"kind":"saved","data":[1]}"#,
                r#"{"event":{"name":"saved","payload":[1],"source_plugin":null}}"#,
            ),
            (
                ScriptKind::TransformToolResult,
                r#"{"tool_name":"t","result":{"n":1},"success":true,"args":[2],"call_id":"c"}"#,
                concat!(
                    r#"{"type":"transform_tool_result","agent_id":"a-1","tool_name":"t","args":[2],"result":{"n":1},"#,
                    r#""input":[2],"content":"{\"n\":1}","tool_use_id":"c","status":"success"}"#
                ),
            ),
        ] {
            assert_eq!(encoded(kind, Wire::Script, payload), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_sidecar_gets_a_request_with_an_id() {
        assert_eq!(
            encoded(ScriptKind::Ingest, Wire::Sidecar(7), r#"{"message":"hi"}"#),
            concat!(
                r#"{"id":7,"method":"ingest","params":"#,
                r#"{"agent_id":"a-1","user_message":"hi","peer_id":"u:1/2"}}"#
            )
        );
    }
}
