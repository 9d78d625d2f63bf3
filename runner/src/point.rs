//! The four points, so that a call is served by one function.

use bytes::Bytes;
use hookgate::transcode::{ObjectWriter, ReplyMessage, WriteJson};
use hookgate_proto::{
    Point,
    plugin::v1::{self as plugin, Call},
    types::v1 as types,
};

/// One point's messages.
pub(crate) trait PointMessages {
    const POINT: Point;
    type Request: Send;
    type Payload: WriteJson + Send;
    type Reply: ReplyMessage + Send;

    /// The parts of a request; `None` for those that the gateway omitted.
    fn open(request: Self::Request) -> (Option<Call>, Option<Self::Payload>);
}

macro_rules! points {
    ($($point:ident $request:ident $payload:ident $reply:ident),+ $(,)?) => {$(
        pub(crate) struct $point;

        impl PointMessages for $point {
            const POINT: Point = Point::$point;
            type Request = plugin::$request;
            type Payload = types::$payload;
            type Reply = plugin::$reply;

            fn open(request: Self::Request) -> (Option<Call>, Option<Self::Payload>) {
                (request.call, request.payload)
            }
        }
    )+};
}

points! {
    BeforeLlmRequest BeforeLlmRequestRequest BeforeLlmRequestPayload BeforeLlmRequestResponse,
    BeforeToolCall BeforeToolCallRequest BeforeToolCallPayload BeforeToolCallResponse,
    AfterToolResult AfterToolResultRequest AfterToolResultPayload AfterToolResultResponse,
    BeforeResponse BeforeResponseRequest BeforeResponsePayload BeforeResponseResponse,
}

/// A call as a line of JSON.
pub(crate) fn line(point: Point, call: &Call, config: &Bytes, payload: &impl WriteJson) -> Vec<u8> {
    let mut line = Vec::with_capacity(1024);
    ObjectWriter::object(&mut line, |object| {
        object.member("point", point.as_str());
        object.optional("context", call.context.as_ref());
        object.json("config", config);
        object.json("tenant_config", &call.tenant_config);
        object.member("payload", payload);
        object.optional("chain_result", call.chain_result.as_ref());
    });
    // JSON values are copied as the agent wrote them. Outside of strings, an end of line is white space; inside, it is
    // always escaped.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line_however_the_agent_wrote_its_values() {
        let context = plugin::CallContext {
            tenant: "acme".into(),
            request_id: "r".into(),
            labels: [("a".to_owned(), "1\n2".to_owned())].into(),
            depth: Some(2),
            ..Default::default()
        };
        let call = Call { context: Some(context), tenant_config: "{}".into(), ..Default::default() };
        let payload = types::BeforeToolCallPayload {
            tool_name: "fs.read".into(),
            args: "{\n  \"n\": 9007199254740993,\r\n  \"text\": \"a\\nb\"\n}".into(),
            ..Default::default()
        };
        let line = line(Point::BeforeToolCall, &call, &"{\"k\":\n1}".into(), &payload);
        assert_eq!(
            String::from_utf8(line).expect("text"),
            concat!(
                r#"{"point":"before_tool_call","context":{"tenant":"acme","operator":"","request_id":"r","#,
                r#""labels":{"a":"1\n2"},"depth":2},"config":{"k": 1},"tenant_config":{},"payload":{"tool_name":"fs.read","#,
                r#""args":{   "n": 9007199254740993,    "text": "a\nb" }}}"#,
                "\n"
            )
        );
    }
}
