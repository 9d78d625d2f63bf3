//! JSON-RPC 2.0, a message on each line.

use bytes::Bytes;
use hookgate::{
    json::{self, ValueKind},
    transcode::ObjectWriter,
};

use crate::call_messages::end_line;

/// Deepest message. A plugin may wrap what an agent sent.
const MAX_DEPTH: usize = 2 * json::MAX_DEPTH;
/// Longest id of a plugin's request, in bytes.
const MAX_ID_BYTES: usize = 64;
/// Longest message of an error, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// A line of the plugin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IncomingMessage {
    Response {
        id: u64,
        outcome: Result<Bytes, RpcError>,
    },
    /// `id` is JSON text.
    Request {
        id: String,
        method: String,
        params: Bytes,
    },
    Notification {
        method: String,
        params: Bytes,
    },
    /// An array of messages.
    Batch,
    /// An object that is no message.
    Invalid,
    /// Anything else.
    Noise,
}

/// The error of a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
}

// Codes of JSON-RPC 2.0.
pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;

impl IncomingMessage {
    pub(super) fn parse(line: &Bytes) -> Self {
        match json::scan(line, MAX_DEPTH) {
            Ok(ValueKind::Object) => {}
            Ok(ValueKind::Array) => return IncomingMessage::Batch,
            _ => return IncomingMessage::Noise,
        }
        let Ok(text) = str::from_utf8(line) else { return IncomingMessage::Noise };
        Parts::read(text).message(line).unwrap_or(IncomingMessage::Invalid)
    }
}

/// The members of a message, as JSON text.
#[derive(Default)]
struct Parts<'a> {
    id: Option<&'a str>,
    method: Option<&'a str>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = Parts::default();
        for (name, value) in json::members(text) {
            match &*name {
                "id" => parts.id = Some(value),
                "method" => parts.method = Some(value).filter(|method| *method != "null"),
                "params" => parts.params = Some(value),
                "result" => parts.result = Some(value),
                "error" => parts.error = Some(value).filter(|error| *error != "null"),
                _ => {}
            }
        }
        parts
    }

    fn message(&self, line: &Bytes) -> Option<IncomingMessage> {
        let Some(method) = self.method else {
            let id = self.id?.parse().ok()?;
            let outcome = match (self.error, self.result) {
                (Some(error), _) => Err(read_error(error)),
                (None, Some(result)) => Ok(line.slice_ref(result.as_bytes())),
                // JavaScript omits what is undefined.
                (None, None) => Ok(Bytes::from_static(b"null")),
            };
            return Some(IncomingMessage::Response { id, outcome });
        };
        let method = text(method)?;
        let params = self.params.map(|params| line.slice_ref(params.as_bytes())).unwrap_or_default();
        Some(match self.id {
            Some(id) if id.len() <= MAX_ID_BYTES => {
                IncomingMessage::Request { id: id.to_owned(), method, params }
            }
            Some(_) => return None,
            None => IncomingMessage::Notification { method, params },
        })
    }
}

/// The text of a JSON string.
pub(super) fn text(value: &str) -> Option<String> {
    value.starts_with('"').then(|| json::unescape(value).into_owned())
}

fn read_error(error: &str) -> RpcError {
    let (mut code, mut message) = (None, String::new());
    for (name, value) in json::members(error).filter(|_| error.starts_with('{')) {
        match &*name {
            "code" => code = value.parse().ok(),
            "message" => message = text(value).unwrap_or_default(),
            _ => {}
        }
    }
    message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    // Without a code it is a fault of the plugin.
    RpcError { code: code.unwrap_or(INTERNAL_ERROR), message }
}

/// A JSON object.
pub(super) fn object(write: impl FnOnce(&mut ObjectWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    ObjectWriter::object(&mut out, write);
    out
}

/// A request as a line. `params` is JSON text.
pub(super) fn request(id: u64, method: &str, params: &[u8]) -> Vec<u8> {
    line(|message| {
        message.member("id", &id);
        message.member("method", method);
        message.json("params", params);
    })
}

/// A notification as a line. `params` is JSON text.
pub(super) fn notification(method: &str, params: &[u8]) -> Vec<u8> {
    line(|message| {
        message.member("method", method);
        message.json("params", params);
    })
}

/// The response to a request of the plugin. `id` and the result are JSON text.
pub(super) fn response(id: &str, outcome: &Result<Vec<u8>, RpcError>) -> Vec<u8> {
    line(|message| {
        message.json("id", id.as_bytes());
        match outcome {
            Ok(result) => message.json("result", result),
            Err(RpcError { code, message: text }) => {
                let error = object(|error| {
                    error.json("code", code.to_string().as_bytes());
                    error.member("message", text);
                });
                message.json("error", &error);
            }
        }
    })
}

fn line(write: impl FnOnce(&mut ObjectWriter<'_>)) -> Vec<u8> {
    let mut line = object(|message| {
        message.member("jsonrpc", "2.0");
        write(message);
    });
    end_line(&mut line);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &'static str) -> IncomingMessage {
        IncomingMessage::parse(&Bytes::from_static(line.as_bytes()))
    }

    #[test]
    fn each_kind_of_message_is_recognised() {
        let error = |code, message: &str| Err(RpcError { code, message: message.to_owned() });
        let response = |id, outcome| IncomingMessage::Response { id, outcome };
        for (line, message) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"n": 9007199254740993}}"#,
                response(7, Ok(r#"{"n": 9007199254740993}"#.into())),
            ),
            (r#"{"id":7,"result":null}"#, response(7, Ok("null".into()))),
            (
                r#"{"id":7,"error":{"code":-32000,"message":"full","data":[1]}}"#,
                response(7, error(-32000, "full")),
            ),
            (r#"{"id":7,"result":1,"error":null}"#, response(7, Ok("1".into()))),
            (
                r#"{"id":"a","method":"storage.query","params":{"sql":"x"}}"#,
                IncomingMessage::Request {
                    id: "\"a\"".into(),
                    method: "storage.query".into(),
                    params: r#"{"sql":"x"}"#.into(),
                },
            ),
            (
                r#"{"method":"catalog.updated"}"#,
                IncomingMessage::Notification { method: "catalog.updated".into(), params: Bytes::new() },
            ),
            (r#"[{"id":1,"result":1}]"#, IncomingMessage::Batch),
            (r#"{"id":7}"#, response(7, Ok("null".into()))),
            (r#"{"id":7,"method":null,"result":1}"#, response(7, Ok("1".into()))),
            (r#"{"id":7,"error":"no"}"#, response(7, error(-32603, ""))),
            (r#"{"id":7,"error":{"code":1.5,"message":"x"}}"#, response(7, error(-32603, "x"))),
            (r#"{"id":-1,"result":1}"#, IncomingMessage::Invalid),
            (r#"{"id":1.5,"result":1}"#, IncomingMessage::Invalid),
            (r#"{"id":"7","result":1}"#, IncomingMessage::Invalid),
            (r#"{"id":7,"method":7}"#, IncomingMessage::Invalid),
            (r#"{"a":1}"#, IncomingMessage::Invalid),
            ("Listening on stdio", IncomingMessage::Noise),
            ("7", IncomingMessage::Noise),
            (r#"{"id":7,"#, IncomingMessage::Noise),
        ] {
            assert_eq!(parse(line), message, "{line}");
        }
        let deep = format!(r#"{{"id":7,"result":{}1{}}}"#, "[".repeat(100), "]".repeat(100));
        assert!(matches!(
            IncomingMessage::parse(&Bytes::from(deep)),
            IncomingMessage::Response { id: 7, outcome: Ok(_) }
        ));
        assert_eq!(
            IncomingMessage::parse(&Bytes::from_static(b"{\"id\":1,\"result\":\"\xff\"}")),
            IncomingMessage::Noise
        );
    }

    #[test]
    fn what_is_written_is_one_line_each() {
        let text = |line: Vec<u8>| String::from_utf8(line).expect("it is text");
        assert_eq!(
            text(request(3, "ping", b"{\n}")),
            "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\",\"params\":{ }}\n"
        );
        assert_eq!(
            text(notification("initialized", b"{}")),
            "{\"jsonrpc\":\"2.0\",\"method\":\"initialized\",\"params\":{}}\n"
        );
        assert_eq!(
            text(response("\"a\"", &Ok(b"[]".to_vec()))),
            "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":[]}\n"
        );
        let refused = RpcError { code: METHOD_NOT_FOUND, message: "no \"x\"".into() };
        assert_eq!(
            text(response("1", &Err(refused))),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"no \\\"x\\\"\"}}\n"
        );
    }
}
