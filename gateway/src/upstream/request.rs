//! One call as the invoker requests it, and its result. Untyped: the payload is whatever message the point
//! has, shared and never copied.

use std::{fmt, sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use hookgate_proto::plugin::v1 as plugin;
use prost::Message;

use crate::{
    core::{call_site::CallSite, step::Reason},
    grpc::framing,
    telemetry::Parent,
    upstream::{breakers::CallClass, call_guard::CallGuard},
};

/// What is sent with a call's message.
#[derive(Debug, Clone, Default)]
pub struct CallMeta {
    /// The tenant whose call it is: permits, queues and breakers are divided between tenants.
    pub tenant: Arc<str>,
    /// `hookgate-depth` to send: the received value plus one.
    pub depth: u32,
    /// Whether the call has its step's entire timeout. A call that times out with less says nothing about the
    /// plugin.
    pub whole: bool,
    /// Whether this is an operator's trial call with no agent waiting: `hookgate-test: true`.
    pub trial: bool,
}

/// A complete reply with status OK.
#[derive(Debug)]
pub struct PluginReply {
    /// The encoded reply message, not yet decoded.
    pub bytes: Bytes,
    /// How long the call waited for a permit.
    pub queue: Duration,
    /// Must be told whether the reply was usable.
    pub served: ServingEndpoint,
}

/// The endpoint that sent a reply. Whether it works is known only once the reply was decoded.
#[derive(Default)]
pub struct ServingEndpoint(Option<CallGuard>);

impl ServingEndpoint {
    pub(super) fn by(ticket: CallGuard) -> Self {
        ServingEndpoint(Some(ticket))
    }

    /// Records that the reply was usable, or failed for `reason`. Only a reply that can't be decoded counts
    /// against the endpoint: one that breaks a rule would do so at any endpoint.
    pub fn judge(self, reason: Option<Reason>) {
        if let Some(ticket) = self.0 {
            let is_bad = reason == Some(Reason::BadReply);
            ticket.judge(if is_bad { CallClass::CallFailure } else { CallClass::Success });
        }
    }
}

impl fmt::Debug for ServingEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = self.0.as_ref().map(|ticket| ticket.endpoint().address());
        f.debug_tuple("Served").field(&endpoint).finish()
    }
}

/// A message that can be written without knowing its type.
pub(super) trait Payload: Send + Sync {
    /// Encoded length in bytes, without a length prefix.
    fn len(&self) -> usize;
    /// Appends the length prefix and the message.
    fn write(&self, buffer: &mut BytesMut);
}

impl<M: Message> Payload for M {
    fn len(&self) -> usize {
        self.encoded_len()
    }

    fn write(&self, buffer: &mut BytesMut) {
        self.encode_length_delimited(buffer).expect("a BytesMut grows as needed");
    }
}

/// A message that is already encoded, in an allocation of exactly its length.
pub(super) struct EncodedPayload(Bytes);

impl EncodedPayload {
    pub(super) fn new(message: &impl Message) -> Self {
        EncodedPayload(message.encode_to_vec().into())
    }
}

impl Payload for EncodedPayload {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&self, buffer: &mut BytesMut) {
        prost::encode_length_delimiter(self.0.len(), buffer).expect("a BytesMut grows as needed");
        buffer.extend_from_slice(&self.0);
    }
}

pub(super) struct PluginRequest {
    pub(super) site: CallSite,
    pub(super) call: plugin::Call,
    pub(super) payload: Arc<dyn Payload>,
    pub(super) meta: CallMeta,
    /// The trace the call belongs to.
    pub(super) parent: Parent,
    /// Time for everything: permit, connection, handshake and the call itself.
    pub(super) limit: Duration,
}

/// Keys of the length-delimited fields `call = 1` and `payload = 2`, which all request messages of points and hooks have.
const CALL_FIELD_KEY: u8 = 1 << 3 | 2;
const PAYLOAD_FIELD_KEY: u8 = 2 << 3 | 2;

impl PluginRequest {
    /// Approximate size of the request in bytes, as queues count it.
    pub(super) fn size(&self) -> usize {
        self.call.encoded_len() + self.payload.len()
    }

    /// The request as one gRPC frame, with the digest of the configuration to use.
    pub(super) fn frame(&mut self, config_digest: &str) -> Bytes {
        if self.call.config_digest != config_digest {
            self.call.config_digest = config_digest.to_owned();
        }
        framing::frame_with(self.size() + 12, |buffer| {
            buffer.put_u8(CALL_FIELD_KEY);
            Payload::write(&self.call, buffer);
            buffer.put_u8(PAYLOAD_FIELD_KEY);
            self.payload.write(buffer);
        })
    }
}

#[cfg(test)]
mod tests {
    use hookgate_proto::{Point, types::v1::BeforeToolCallPayload};

    use super::*;

    #[test]
    fn frame_is_the_request_message_of_the_contract() {
        let payload = BeforeToolCallPayload { tool_name: "fs.read".into(), ..Default::default() };
        let call = plugin::Call { config_digest: "stale".into(), ..Default::default() };
        let mut request = PluginRequest {
            site: Point::BeforeToolCall.into(),
            call: call.clone(),
            payload: Arc::new(payload.clone()),
            meta: CallMeta::default(),
            parent: Parent::current(),
            limit: Duration::ZERO,
        };
        let frame = request.frame("abc");
        let sent = plugin::BeforeToolCallRequest::decode(frame.slice(5..)).expect("the contract's message");
        let call = plugin::Call { config_digest: "abc".into(), ..call };
        assert_eq!(sent, plugin::BeforeToolCallRequest { call: Some(call), payload: Some(payload) });
        assert_eq!(frame[0], 0);
        assert_eq!(u32::from_be_bytes(frame[1..5].try_into().expect("4 bytes")) as usize, frame.len() - 5);
    }
}
