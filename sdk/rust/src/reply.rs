//! A plugin's answer: a verdict, with a patch and notices. The gateway checks sizes and formats
//! (docs/protocol.md, section 3).

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use hookgate_proto::{
    plugin::v1::{self as wire, Limits},
    types::v1::{self as types, CancelScope, NoticeKind},
};
use prost::Message as _;

use crate::{
    AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, Media, MediaList,
    PluginError, json,
};

/// The size of a reply without its patch's fields and its notices: the verdict, and the patch's tag and
/// length. A patch of the maximum payload size leaves no room for it except the notices' share.
const REPLY_OVERHEAD_BYTES: u64 = 16;

/// The size of a message of `size` bytes inside another one, with its tag and its length.
fn framed(size: usize) -> u64 {
    (1 + prost::length_delimiter_len(size) + size) as u64
}

/// A plugin's answer at a point: go on or stop, with changes to the payload and remarks.
///
/// The methods that carry a payload field's name, such as `text` or `args`, replace that field as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<Patch> {
    pub(crate) verdict: Verdict,
    pub(crate) modify: Option<Patch>,
    pub(crate) notices: Vec<Notice>,
    /// Only at `before_response`.
    pub(crate) consumed: Option<u32>,
}

/// Go on or stop.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// Stop here.
    Cancel(Cancel),
}

impl<Patch> Reply<Patch> {
    /// Go on.
    pub fn proceed() -> Self {
        Reply { verdict: Verdict::Continue, modify: None, notices: Vec::new(), consumed: None }
    }

    /// Stop here: `code` decides the HTTP status, `message` is shown to the user. For more than the two, write
    /// `Cancel::new(..)` and turn it into a reply with `into()`.
    pub fn cancel(code: impl Into<String>, message: impl Into<String>) -> Self {
        Cancel::new(code, message).into()
    }

    /// Adds a remark: at most 16, 8 KiB together.
    #[must_use]
    pub fn notice(mut self, notice: Notice) -> Self {
        self.notices.push(notice);
        self
    }

    /// Keeps as many notices, from the first on, as the gateway accepts. With too many notices, the gateway
    /// rejects the whole reply including the patch. `limits` are those of
    /// [`Host::limits`](crate::Host::limits).
    #[must_use]
    pub fn fit_notices(mut self, limits: &Limits) -> Self {
        if limits.max_notices == 0 {
            return self; // the gateway did not say
        }
        let mut left = limits.max_notice_bytes.saturating_sub(REPLY_OVERHEAD_BYTES);
        let fits = |notice: &Notice| {
            let size = framed(notice.0.encoded_len());
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let most = limits.max_notices as usize;
        let kept = self.notices.iter().take(most).map(fits).take_while(|fits| *fits).count();
        self.notices.truncate(kept);
        self
    }

    /// Replaces the whole patch.
    #[must_use]
    pub fn patch(mut self, patch: Patch) -> Self {
        self.modify = Some(patch);
        self
    }

    /// The verdict.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The cancel, if the verdict is one.
    pub fn cancelled(&self) -> Option<&Cancel> {
        match &self.verdict {
            Verdict::Continue => None,
            Verdict::Cancel(cancel) => Some(cancel),
        }
    }

    /// The changes to the payload, if any.
    pub fn changes(&self) -> Option<&Patch> {
        self.modify.as_ref()
    }

    /// The remarks, in order.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

impl<Patch: Default> Reply<Patch> {
    fn set(mut self, change: impl FnOnce(&mut Patch)) -> Self {
        change(self.modify.get_or_insert_with(Patch::default));
        self
    }

    fn set_json<T: Serialize + ?Sized>(
        self,
        value: &T,
        change: impl FnOnce(&mut Patch, Option<Bytes>),
    ) -> Result<Self, PluginError> {
        let bytes = json::to_bytes(value)?;
        Ok(self.set(|patch| change(patch, Some(bytes))))
    }
}

impl<Patch> From<Cancel> for Reply<Patch> {
    fn from(cancel: Cancel) -> Self {
        Verdict::Cancel(cancel).into()
    }
}

impl<Patch> From<Verdict> for Reply<Patch> {
    fn from(verdict: Verdict) -> Self {
        Reply { verdict, ..Reply::proceed() }
    }
}

impl Reply<BeforeLlmRequestPatch> {
    /// Replaces the user's text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.set(|patch| patch.text = Some(text.into()))
    }

    /// Replaces the system prompt.
    #[must_use]
    pub fn system_prompt(self, prompt: impl Into<String>) -> Self {
        self.set(|patch| patch.system_prompt = Some(prompt.into()))
    }

    /// Replaces the images; an empty list removes them.
    #[must_use]
    pub fn images(self, images: Vec<Media>) -> Self {
        self.set(|patch| patch.images = Some(MediaList { items: images }))
    }

    /// Replaces the files; an empty list removes them.
    #[must_use]
    pub fn files(self, files: Vec<Media>) -> Self {
        self.set(|patch| patch.files = Some(MediaList { items: files }))
    }

    /// Replaces the conversation, a JSON array.
    pub fn messages<T: Serialize + ?Sized>(self, messages: &T) -> Result<Self, PluginError> {
        self.set_json(messages, |patch, json| patch.messages = json)
    }

    /// Replaces the tools offered to the model, a JSON array.
    pub fn tools<T: Serialize + ?Sized>(self, tools: &T) -> Result<Self, PluginError> {
        self.set_json(tools, |patch, json| patch.tools = json)
    }

    /// Replaces the extras, a JSON object.
    pub fn extra<T: Serialize + ?Sized>(self, extra: &T) -> Result<Self, PluginError> {
        self.set_json(extra, |patch, json| patch.extra = json)
    }
}

impl Reply<BeforeToolCallPatch> {
    /// Gives the tool's result, any JSON value, instead of running the tool. An agent that takes no results gets a block
    /// with the code `TOOL_ANSWERED` and this message.
    pub fn answer<T: Serialize + ?Sized>(
        result: &T,
        message: impl Into<String>,
    ) -> Result<Self, PluginError> {
        Ok(Cancel::from_result(json::to_bytes(result)?, message).into())
    }

    /// Replaces the tool's name, 1 to 256 bytes.
    #[must_use]
    pub fn tool_name(self, name: impl Into<String>) -> Self {
        self.set(|patch| patch.tool_name = Some(name.into()))
    }

    /// Replaces the arguments, any JSON value. [`json::Object`] changes one member and leaves the others alone.
    pub fn args<T: Serialize + ?Sized>(self, args: &T) -> Result<Self, PluginError> {
        self.set_json(args, |patch, json| patch.args = json)
    }

    /// Replaces the extras, a JSON object.
    pub fn extra<T: Serialize + ?Sized>(self, extra: &T) -> Result<Self, PluginError> {
        self.set_json(extra, |patch, json| patch.extra = json)
    }
}

impl Reply<AfterToolResultPatch> {
    /// Replaces the result, any JSON value.
    pub fn result<T: Serialize + ?Sized>(self, result: &T) -> Result<Self, PluginError> {
        self.set_json(result, |patch, json| patch.result = json)
    }

    /// Replaces the extras, a JSON object.
    pub fn extra<T: Serialize + ?Sized>(self, extra: &T) -> Result<Self, PluginError> {
        self.set_json(extra, |patch, json| patch.extra = json)
    }
}

impl Reply<BeforeResponsePatch> {
    /// In a window ([`Context::window`](crate::Context::window)): the plugin is done with this many characters of the
    /// payload's `content`. They go on, and [`content`](Self::content) replaces them. The rest is shown again, with more text behind
    /// it. Without this, the plugin is done with all of them, as it must be in the last window and in a whole answer.
    #[must_use]
    pub fn consumed(mut self, characters: usize) -> Self {
        self.consumed = Some(u32::try_from(characters).unwrap_or(u32::MAX));
        self
    }

    /// How many characters of a window the plugin is done with; `None` for all of them.
    pub fn consumes(&self) -> Option<usize> {
        self.consumed.map(|characters| characters as usize)
    }

    /// Replaces the answer's text.
    #[must_use]
    pub fn content(self, content: impl Into<String>) -> Self {
        self.set(|patch| patch.content = Some(content.into()))
    }

    /// Replaces the reasoning.
    #[must_use]
    pub fn reasoning(self, reasoning: impl Into<String>) -> Self {
        self.set(|patch| patch.reasoning = Some(reasoning.into()))
    }

    /// Replaces the extras, a JSON object.
    pub fn extra<T: Serialize + ?Sized>(self, extra: &T) -> Result<Self, PluginError> {
        self.set_json(extra, |patch, json| patch.extra = json)
    }
}

/// Why a plugin stops an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Cancel(wire::Cancel);

impl Cancel {
    /// `code` matches `[A-Za-z][A-Za-z0-9_.:-]{0,63}` and decides the HTTP status (docs/errors.md); `message` is
    /// shown to the user, at most 1 KiB.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Cancel(wire::Cancel {
            code: code.into(),
            message: message.into(),
            retry_after_ms: None,
            scope: CancelScope::Step.into(),
            result: Bytes::new(),
        })
    }

    /// The tool's result as JSON text.
    pub(crate) fn from_result(result: Bytes, message: impl Into<String>) -> Self {
        Cancel(wire::Cancel { result, ..Cancel::new("", message).0 })
    }

    /// When it makes sense to try again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after_ms = Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Ends the whole run, not only this action.
    #[must_use]
    pub fn whole_run(mut self) -> Self {
        self.0.scope = CancelScope::Run.into();
        self
    }

    /// The code; empty for an answer.
    pub fn code(&self) -> &str {
        &self.0.code
    }

    /// The message for the user.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The tool's result as JSON text; empty if it isn't an answer.
    pub fn result_json(&self) -> &[u8] {
        &self.0.result
    }

    pub(crate) fn into_wire(self) -> wire::Cancel {
        self.0
    }

    pub(crate) fn from_wire(cancel: wire::Cancel) -> Self {
        Cancel(cancel)
    }
}

/// A notice that is sent to the agent with the decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice(types::Notice);

impl Notice {
    fn new(kind: NoticeKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = Some(code.into()).filter(|code| !code.is_empty());
        Notice(types::Notice { kind: kind.into(), code, message: message.into(), details: Bytes::new() })
    }

    /// The plugin looked and has no objection.
    pub fn allow(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(NoticeKind::Allow, code, message)
    }

    /// Why the plugin cancels.
    pub fn block(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(NoticeKind::Block, code, message)
    }

    /// Something a person should know.
    pub fn warn(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(NoticeKind::Warn, code, message)
    }

    /// Something worth recording.
    pub fn info(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(NoticeKind::Info, code, message)
    }

    /// Facts, as a JSON object of at most 4 KiB.
    pub fn details<T: Serialize + ?Sized>(mut self, details: &T) -> Result<Self, PluginError> {
        self.0.details = json::to_bytes(details)?;
        Ok(self)
    }

    /// The kind.
    pub fn kind(&self) -> NoticeKind {
        self.0.kind()
    }

    /// The machine-readable code.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The details as JSON text; empty if there are none.
    pub fn details_json(&self) -> &[u8] {
        &self.0.details
    }

    pub(crate) fn into_wire(self) -> types::Notice {
        self.0
    }

    pub(crate) fn from_wire(notice: types::Notice) -> Self {
        Notice(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_kept(notices: &[&str], limits: &Limits) -> usize {
        let reply = Reply::<BeforeLlmRequestPatch>::proceed();
        let remark = |reply: Reply<_>, message: &&str| reply.notice(Notice::info("SEEN", *message));
        notices.iter().fold(reply, remark).fit_notices(limits).notices().len()
    }

    #[test]
    fn notices_that_the_gateway_does_not_take_are_left_out() {
        let limits =
            |max_notices, max_notice_bytes| Limits { max_notices, max_notice_bytes, ..Limits::default() };
        assert_eq!(count_kept(&["a", "b", "c"], &limits(16, 8 << 10)), 3);
        assert_eq!(count_kept(&["a", "b", "c"], &limits(2, 8 << 10)), 2);
        assert_eq!(count_kept(&["a", "b"], &limits(16, 1)), 0);
        // 2 bytes for the kind, 6 for the code, 3 for the message, 2 around them.
        assert_eq!(count_kept(&["a", "b"], &limits(16, REPLY_OVERHEAD_BYTES + 2 * 13)), 2);
        assert_eq!(count_kept(&["a", "b"], &limits(16, REPLY_OVERHEAD_BYTES + 2 * 13 - 1)), 1);
        assert_eq!(
            count_kept(&["a long one", "b"], &limits(16, REPLY_OVERHEAD_BYTES + 13)),
            0,
            "order is kept"
        );
        assert_eq!(count_kept(&["a", "b"], &Limits::default()), 2, "the gateway did not say");
    }
}
