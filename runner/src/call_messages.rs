//! The messages of the four points and of hooks, so that a call is served by one function.

use bytes::Bytes;
use hookgate::{
    core::call_site::CallSite,
    transcode::{ObjectWriter, ReplyMessage, WriteJson},
};
use hookgate_proto::{
    HookName, Point,
    plugin::v1::{self as plugin, Call},
    types::v1 as types,
};
use tonic::Status;

/// The messages of a point, or of all hooks.
pub(crate) trait CallMessages {
    type Request: Send;
    type Payload: WriteJson + Send + Sync;
    type Reply: ReplyMessage + Send;

    /// The parts of a request.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the gateway omitted one.
    fn open(request: Self::Request) -> Result<(CallSite, Call, Self::Payload), Status>;
}

fn required<T>(part: Option<T>, name: &str) -> Result<T, Status> {
    part.ok_or_else(|| Status::invalid_argument(format!("`{name}` is missing")))
}

macro_rules! points {
    ($($point:ident $request:ident $payload:ident $reply:ident),+ $(,)?) => {$(
        pub(crate) struct $point;

        impl CallMessages for $point {
            type Request = plugin::$request;
            type Payload = types::$payload;
            type Reply = plugin::$reply;

            fn open(request: Self::Request) -> Result<(CallSite, Call, Self::Payload), Status> {
                let (call, payload) = (required(request.call, "call")?, required(request.payload, "payload")?);
                Ok((Point::$point.into(), call, payload))
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

pub(crate) struct OnHook;

/// The body of a hook.
pub(crate) struct HookBody(pub(crate) Bytes);

impl WriteJson for HookBody {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

impl CallMessages for OnHook {
    type Request = plugin::OnHookRequest;
    type Payload = HookBody;
    type Reply = plugin::OnHookResponse;

    fn open(request: Self::Request) -> Result<(CallSite, Call, Self::Payload), Status> {
        let (call, payload) = (required(request.call, "call")?, required(request.payload, "payload")?);
        let hook = HookName::new(&payload.hook)
            .map_err(|error| Status::invalid_argument(format!("`payload.hook`: {error}")))?;
        Ok((hook.into(), call, HookBody(payload.body)))
    }
}

/// A call as a line of JSON.
pub(crate) fn line(site: &CallSite, call: &Call, config: &Bytes, payload: &dyn WriteJson) -> Vec<u8> {
    let mut line = Vec::with_capacity(1024);
    ObjectWriter::object(&mut line, |object| {
        object.member(site_member(site), site.as_str());
        object.optional("context", call.context.as_ref());
        object.json("config", config);
        object.json("tenant_config", &call.tenant_config);
        object.member("payload", payload);
        object.optional("chain_result", call.chain_result.as_ref());
    });
    end_line(&mut line);
    line
}

const fn site_member(site: &CallSite) -> &'static str {
    match site {
        CallSite::Point(_) => "point",
        CallSite::Hook(_) => "hook",
    }
}

/// Makes JSON text one line.
pub(crate) fn end_line(line: &mut Vec<u8>) {
    // JSON values are copied as the agent wrote them. Outside of strings, an end of line is white space; inside, it is
    // always escaped.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
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
        let line = line(&Point::BeforeToolCall.into(), &call, &"{\"k\":\n1}".into(), &payload);
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

    #[test]
    fn a_replay_and_a_part_of_a_request_are_marked_and_other_calls_are_not() {
        let context = |replay, part| {
            let context = plugin::CallContext { replay, part, ..Default::default() };
            let call = Call { context: Some(context), ..Default::default() };
            let payload = types::BeforeLlmRequestPayload::default();
            let line = line(&Point::BeforeLlmRequest.into(), &call, &"{}".into(), &payload);
            let line: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
            (line["context"]["replay"].clone(), line["context"]["part"].clone())
        };
        assert_eq!(context(true, true), (true.into(), true.into()));
        assert_eq!(context(false, true), (serde_json::Value::Null, true.into()));
        assert_eq!(context(false, false), (serde_json::Value::Null, serde_json::Value::Null));
    }

    #[test]
    fn a_hook_has_its_name_and_its_body_as_the_agent_wrote_it() {
        let payload = types::HookPayload { hook: "recall".into(), body: "{\"message\" :\n\"hi\"}".into() };
        let request = plugin::OnHookRequest { call: Some(Call::default()), payload: Some(payload) };
        let (site, call, body) = OnHook::open(request).expect("it is whole");
        let line = line(&site, &call, &"{}".into(), &body);
        let expected = "{\"hook\":\"recall\",\"config\":{},\"payload\":{\"message\" : \"hi\"}}\n";
        assert_eq!(String::from_utf8(line).expect("text"), expected);
    }
}
