//! The payload of a call as JSON.

use std::{borrow::Cow, collections::BTreeMap};

use hookgate::{json, transcode::WriteJson};
use tonic::Status;

/// The depth of values within a payload.
const PAYLOAD_DEPTH: usize = 4;

/// The payload of a call: an object whose members are text.
pub(crate) struct Payload(String);

impl Payload {
    /// # Errors
    /// INVALID_ARGUMENT if it isn't JSON.
    pub(crate) fn new(payload: &dyn WriteJson) -> Result<Self, Status> {
        let mut text = Vec::new();
        payload.put(&mut text);
        let is_json = json::scan(&text, json::MAX_DEPTH + PAYLOAD_DEPTH).is_ok();
        let text = String::from_utf8(text).ok().filter(|_| is_json);
        text.map(Payload).ok_or_else(|| Status::invalid_argument("`payload` is not JSON"))
    }

    pub(crate) fn members(&self) -> BTreeMap<Cow<'_, str>, &str> {
        json::members(&self.0).collect()
    }

    /// A member that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self.members().get(name).copied()?;
        value.starts_with('"').then(|| json::unescape(value))
    }
}
