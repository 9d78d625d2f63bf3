//! A scripted plugin's reaction to a call.

use std::time::Duration;

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::Cancel,
    types::v1::{
        AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, CancelScope,
        Contribution, Notice, NoticeKind,
    },
};
use tokio::sync::watch;
use tonic::{Code, Status};

use super::wire::WireBehaviour;

/// One reaction: a delay, an answer, and how it is sent.
#[derive(Debug, Clone)]
pub struct Act {
    pub(super) delay: Duration,
    pub(super) gate: Option<Gate>,
    pub(super) reply: Reply,
    pub(super) wire: WireBehaviour,
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    Answer(Box<Answer>),
    Status(Status),
    Hang,
}

/// The content of a reply.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// `None` violates the contract.
    pub verdict: Option<Verdict>,
    /// For the point at which it is used.
    pub patch: Option<Patch>,
    /// In this order.
    pub notices: Vec<Notice>,
    /// For a hook.
    pub contributions: Vec<Contribution>,
    /// For an answer's window: how many characters it is about.
    pub consumed: Option<u32>,
}

/// The verdict of a reply.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// Stop here.
    Cancel(Cancel),
}

/// The patch of a reply, for one of the points.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // named after the points
pub enum Patch {
    BeforeLlmRequest(BeforeLlmRequestPatch),
    BeforeToolCall(BeforeToolCallPatch),
    AfterToolResult(AfterToolResultPatch),
    BeforeResponse(BeforeResponsePatch),
}

macro_rules! patch_from {
    ($($point:ident: $patch:ty),*) => {
        $(impl From<$patch> for Patch {
            fn from(patch: $patch) -> Self {
                Patch::$point(patch)
            }
        })*
    };
}
patch_from!(
    BeforeLlmRequest: BeforeLlmRequestPatch,
    BeforeToolCall: BeforeToolCallPatch,
    AfterToolResult: AfterToolResultPatch,
    BeforeResponse: BeforeResponsePatch
);

impl Act {
    fn new(reply: Reply) -> Self {
        Act { delay: Duration::ZERO, gate: None, reply, wire: WireBehaviour::Proper }
    }

    fn answering(verdict: Option<Verdict>) -> Self {
        Act::new(Reply::Answer(Box::new(Answer { verdict, ..Answer::default() })))
    }

    /// Continues.
    pub fn pass() -> Self {
        Act::answering(Some(Verdict::Continue))
    }

    /// Continues with a patch.
    pub fn patch(patch: impl Into<Patch>) -> Self {
        Act::pass().with_patch(patch)
    }

    /// Contributes at a hook; `value` is JSON text.
    pub fn contribute(kind: &str, value: &str) -> Self {
        Act::pass().with_contribution(kind, value)
    }

    /// Cancels with this code and message; either may be empty.
    pub fn cancel(code: &str, message: &str) -> Self {
        let cancel = Cancel { code: code.into(), message: message.into(), ..Cancel::default() };
        Act::answering(Some(Verdict::Cancel(cancel)))
    }

    /// Adds a tool's result to a cancel.
    #[must_use]
    pub fn with_result(self, result: &str) -> Self {
        self.change(|answer| {
            let Some(Verdict::Cancel(cancel)) = &mut answer.verdict else {
                panic!("only a cancel has a result")
            };
            cancel.result = result.to_owned().into();
        })
    }

    /// Answers without a verdict.
    pub fn no_verdict() -> Self {
        Act::answering(None)
    }

    /// Answers with an error status.
    pub fn status(code: Code, message: &str) -> Self {
        Act::new(Reply::Status(Status::new(code, message)))
    }

    /// Answers with this status, including its details and metadata.
    pub fn fail(status: Status) -> Self {
        Act::new(Reply::Status(status))
    }

    /// Never answers. When the caller goes away, it ends and is counted.
    pub fn hang() -> Self {
        Act::new(Reply::Hang)
    }

    /// Waits this long first.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits first until the gate is open.
    #[must_use]
    pub fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Sends the answer in this way.
    #[must_use]
    pub fn sent(mut self, wire: WireBehaviour) -> Self {
        self.wire = wire;
        self
    }

    /// Adds a patch, whatever the verdict.
    #[must_use]
    pub fn with_patch(self, patch: impl Into<Patch>) -> Self {
        self.change(|answer| answer.patch = Some(patch.into()))
    }

    /// Adds a contribution at a hook; `value` is JSON text.
    #[must_use]
    pub fn with_contribution(self, kind: &str, value: &str) -> Self {
        let contribution =
            Contribution { kind: kind.into(), value: Bytes::copy_from_slice(value.as_bytes()) };
        self.change(|answer| answer.contributions.push(contribution))
    }

    /// Is about so many characters of an answer's window.
    #[must_use]
    pub fn consuming(self, characters: usize) -> Self {
        self.change(|answer| answer.consumed = u32::try_from(characters).ok())
    }

    /// Adds a notice.
    #[must_use]
    pub fn with_notice(self, notice: Notice) -> Self {
        self.change(|answer| answer.notices.push(notice))
    }

    /// Sets when a cancelled call should be retried.
    #[must_use]
    pub fn retry_after_ms(self, retry_after_ms: u64) -> Self {
        self.change_cancel(|cancel| cancel.retry_after_ms = Some(retry_after_ms))
    }

    /// Sets how far a cancel reaches.
    #[must_use]
    pub fn scope(self, scope: CancelScope) -> Self {
        self.change_cancel(|cancel| cancel.set_scope(scope))
    }

    fn change(mut self, change: impl FnOnce(&mut Answer)) -> Self {
        match &mut self.reply {
            Reply::Answer(answer) => change(answer),
            other => panic!("only an answer can be changed, this is {other:?}"),
        }
        self
    }

    fn change_cancel(self, change: impl FnOnce(&mut Cancel)) -> Self {
        self.change(|answer| match &mut answer.verdict {
            Some(Verdict::Cancel(cancel)) => change(cancel),
            other => panic!("only a cancel can be changed, this is {other:?}"),
        })
    }
}

/// A notice; `details` is JSON, or null for none.
pub fn notice(kind: NoticeKind, code: &str, message: &str, details: &serde_json::Value) -> Notice {
    Notice {
        kind: kind.into(),
        code: (!code.is_empty()).then(|| code.into()),
        message: message.into(),
        details: if details.is_null() { Bytes::new() } else { Bytes::from(details.to_string()) },
    }
}

/// Holds calls back until the test opens it.
#[derive(Debug, Clone)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    /// A gate that holds calls back.
    pub fn closed() -> Self {
        Gate(watch::Sender::new(false))
    }

    /// Releases the waiting calls and lets all later ones through.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Returns once the gate is open.
    pub(super) async fn passed(&self) {
        self.0.subscribe().wait_for(|open| *open).await.expect("the gate holds its own sender");
    }
}
