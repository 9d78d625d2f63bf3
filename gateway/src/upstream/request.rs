//! One call as the invoker requests it, and its result. Untyped: the payload is whatever message the point
//! has, shared and never copied.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use hookgate_proto::{PayloadFields, SelectFields, plugin::v1 as plugin};
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

/// A payload that can be written without knowing its type.
pub(super) trait Payload: Send + Sync {
    /// Encoded length in bytes, without a length prefix.
    fn len(&self) -> usize;
    /// Appends the length prefix and the message.
    fn write(&self, buffer: &mut BytesMut);
    /// The payload with only these of its large fields; `None` if it is already so.
    fn select(&self, fields: PayloadFields) -> Option<Box<dyn Payload>>;
}

impl<M: Message + SelectFields + 'static> Payload for M {
    fn len(&self) -> usize {
        self.encoded_len()
    }

    fn write(&self, buffer: &mut BytesMut) {
        self.encode_length_delimited(buffer).expect("a BytesMut grows as needed");
    }

    fn select(&self, fields: PayloadFields) -> Option<Box<dyn Payload>> {
        Some(Box::new(self.select_fields(fields)))
    }
}

/// A payload that is already encoded, in an allocation of exactly its length.
pub(super) struct EncodedPayload<M> {
    bytes: Bytes,
    /// The large fields that it was encoded with; `None` for all of them.
    fields: Option<PayloadFields>,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + SelectFields> EncodedPayload<M> {
    /// Encodes `message` with only these of its large fields, or with all.
    pub(super) fn new(message: &M, fields: Option<PayloadFields>) -> Self {
        let bytes = match fields {
            Some(fields) => message.select_fields(fields).encode_to_vec(),
            None => message.encode_to_vec(),
        };
        EncodedPayload { bytes: bytes.into(), fields, message: PhantomData }
    }
}

impl<M: Message + SelectFields + Default + 'static> Payload for EncodedPayload<M> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn write(&self, buffer: &mut BytesMut) {
        prost::encode_length_delimiter(self.bytes.len(), buffer).expect("a BytesMut grows as needed");
        buffer.extend_from_slice(&self.bytes);
    }

    fn select(&self, fields: PayloadFields) -> Option<Box<dyn Payload>> {
        if self.fields == Some(fields) {
            return None;
        }
        let message = M::decode(self.bytes.clone()).expect("the message that was encoded here");
        Some(Box::new(message.select_fields(fields)))
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

    /// The request as one gRPC frame, with the digest of the configuration to use. `reads` are the large fields of the payload
    /// that the plugin gets, or `None` for all; a call to run its tool has all.
    pub(super) fn frame(&mut self, config_digest: &str, reads: Option<PayloadFields>) -> Bytes {
        if self.call.config_digest != config_digest {
            self.call.config_digest = config_digest.to_owned();
        }
        let reads = reads.filter(|_| !self.call.run_tool);
        let selected = reads.and_then(|fields| self.payload.select(fields));
        let payload = selected.as_deref().unwrap_or(&*self.payload);
        framing::frame_with(self.call.encoded_len() + payload.len() + 12, |buffer| {
            buffer.put_u8(CALL_FIELD_KEY);
            self.call.encode_length_delimited(buffer).expect("a BytesMut grows as needed");
            buffer.put_u8(PAYLOAD_FIELD_KEY);
            payload.write(buffer);
        })
    }
}

#[cfg(test)]
mod tests {
    use hookgate_proto::{PayloadField, Point, types::v1::BeforeToolCallPayload};

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
        let frame = request.frame("abc", None);
        let sent = plugin::BeforeToolCallRequest::decode(frame.slice(5..)).expect("the contract's message");
        let call = plugin::Call { config_digest: "abc".into(), ..call };
        assert_eq!(sent, plugin::BeforeToolCallRequest { call: Some(call), payload: Some(payload) });
        assert_eq!(frame[0], 0);
        assert_eq!(u32::from_be_bytes(frame[1..5].try_into().expect("4 bytes")) as usize, frame.len() - 5);
    }

    #[test]
    fn encoded_payload_that_a_plugin_reads_less_of_is_sent_without_the_rest() {
        let payload = BeforeToolCallPayload {
            tool_name: "fs.read".into(),
            args: "1".into(),
            extra: "{}".into(),
            ..Default::default()
        };
        let fields = PayloadFields::new(&[PayloadField::Args]);
        let read = EncodedPayload::new(&payload, Some(fields));
        assert!(read.select(fields).is_none(), "it has no other fields");
        let [mut whole, mut less] = [BytesMut::new(), BytesMut::new()];
        EncodedPayload::new(&payload, None).select(fields).expect("it has others").write(&mut whole);
        read.write(&mut less);
        let sent = [whole, less].map(BeforeToolCallPayload::decode_length_delimited);
        let expected = BeforeToolCallPayload { extra: Bytes::new(), ..payload };
        assert_eq!(sent, [Ok(expected.clone()), Ok(expected)]);
    }
}
