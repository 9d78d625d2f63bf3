//! Reads a plugin's reply: decodes it, verifies it against the contract and the step's grant, and applies
//! its patch to a copy of the payload, all or nothing (docs/protocol.md, section 3).
//!
//! A cancel is honoured even if the rest of the reply is faulty: the faulty parts are removed and counted.
//! Beside `continue`, any fault makes the whole reply a failure.

use std::sync::Arc;

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::Cancel,
    rest_of_window,
    types::v1::{CancelScope, Contribution, Notice, NoticeKind},
};
use prost::Message;

use super::{AgentCall, ReplyParts, Verdict, contribution};
use crate::{
    config,
    core::{
        block_status::TOOL_ANSWERED, call_site::CallSite, error::Code, manifest::Access, point::Point,
        step::Reason,
    },
    json,
    payload::Validate,
};

/// The maximum length of a cancel's message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;
/// The default message of a cancel.
const DEFAULT_MESSAGE: &str = "Operation blocked by plugin";
/// The default message of a cancel with a tool's result.
const ANSWERED_MESSAGE: &str = "A plugin gave the tool's result, and the agent takes none";
/// The code of a cancel that has none or a reserved one.
const DEFAULT_CODE: &str = "BLOCKED";
/// How far a chain may grow a payload beyond the request limit, in bytes.
const MAX_GROWTH_BYTES: usize = 64 << 10;

/// The limits of replies.
#[derive(Debug, Clone, Copy)]
pub struct ReplyLimits {
    /// The maximum size of a request in bytes; a patched payload may be 64 KiB larger.
    pub request: usize,
    /// The maximum number of notices.
    pub notices: usize,
    /// The maximum size of all notices together, in bytes.
    pub notice_bytes: usize,
    /// The maximum size of one notice's details, in bytes.
    pub details_bytes: usize,
}

impl ReplyLimits {
    pub fn from_limits(limits: &config::Limits) -> Self {
        ReplyLimits {
            request: limits.request.in_memory(),
            notices: limits.notices,
            notice_bytes: limits.notice_bytes.in_memory(),
            details_bytes: limits.details_bytes.in_memory(),
        }
    }
}

/// What a plugin may do in one step.
#[derive(Debug, Clone, Copy)]
pub struct Grant<'a> {
    /// The access in the plugin's manifest.
    pub access: Access,
    /// The only fields that it may patch; `None` means all that the point allows.
    pub writable: Option<&'a [String]>,
}

/// A reply after verification.
pub struct VerifiedReply<P: AgentCall> {
    /// `None` means continue.
    pub cancel: Option<PluginCancel>,
    /// The patched payload; `None` if there is no patch.
    pub payload: Option<Arc<P::Payload>>,
    /// The names of the fields in the patch.
    pub changed: Vec<&'static str>,
    pub notices: Vec<Notice>,
    /// Always empty at points.
    pub contributions: Vec<Contribution>,
    /// The number of faults that were removed from the reply.
    pub sanitised: u32,
    /// How many characters of a window's text it is about; `None` means all.
    pub consumed: Option<u32>,
}

/// A cancel after verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginCancel {
    /// Valid, and not one of the gateway's own error codes.
    pub code: String,
    /// Not empty, at most 1 KiB.
    pub message: String,
    /// When to retry, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Never unspecified.
    pub scope: CancelScope,
    /// The tool's result, a JSON value.
    pub result: Option<Bytes>,
    /// Whether there was a result that can't be used.
    pub lost_result: bool,
}

/// Why a reply counts as a failed step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyError {
    /// `bad_reply`, `forbidden_patch` or `too_large`.
    pub reason: Reason,
    /// Describes the fault to the operator.
    pub detail: String,
}

impl ReplyError {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        ReplyError { reason, detail: detail.into() }
    }
}

/// Reads the reply in `bytes` to a call at `site` with `payload`.
pub fn read<P: AgentCall>(
    bytes: Bytes,
    site: &CallSite,
    payload: &Arc<P::Payload>,
    grant: Grant<'_>,
    limits: &ReplyLimits,
) -> Result<VerifiedReply<P>, ReplyError> {
    let parts = parts::<P>(bytes)?;
    let folded = match parts.modify {
        Some(patch) => folded::<P>(patch, payload, grant, limits),
        None => Ok(None),
    };
    match parts.verdict {
        None => Err(no_verdict()),
        Some(Verdict::Continue) => {
            let (payload, changed) = folded?.unzip();
            check_notices(&parts.notices, limits)?;
            if !parts.contributions.is_empty() {
                contribution::check(site.as_str(), &parts.contributions, limits)?;
            }
            let (changed, contributions) = (changed.unwrap_or_default(), parts.contributions);
            Ok(VerifiedReply {
                cancel: None,
                payload,
                changed,
                notices: parts.notices,
                contributions,
                sanitised: 0,
                consumed: parts.consumed,
            })
        }
        Some(Verdict::Cancel(cancel)) => {
            let mut sanitised = u32::from(folded.is_err());
            let (patched, changed) = folded.unwrap_or(None).unzip();
            let most = most_result::<P>(patched.as_ref().unwrap_or(payload), grant, limits);
            let cancel = cancelled(cancel, &parts.notices, most, &mut sanitised);
            let notices = keep_valid(parts.notices, limits, &mut sanitised);
            Ok(VerifiedReply {
                cancel: Some(cancel),
                payload: patched,
                changed: changed.unwrap_or_default(),
                notices,
                contributions: Vec::new(),
                sanitised,
                consumed: None,
            })
        }
    }
}

/// Checks how much of an answer's text, `content`, a reply is about: all of it where nothing follows, and never so little that more
/// than 64 KiB are left.
pub(super) fn of_window<P: AgentCall>(
    said: VerifiedReply<P>,
    content: &str,
    is_last: bool,
) -> Result<VerifiedReply<P>, ReplyError> {
    match rest_of_window(content, said.consumed, is_last) {
        Ok(_) => Ok(said),
        Err(error) => Err(ReplyError::new(Reason::BadReply, error.to_string())),
    }
}

/// Checks the reply of a plugin that was to run its tool: only a result or a refusal is one. The tool has run if there was a
/// result, so one that can't be used is no refusal.
pub(super) fn of_tool<P: AgentCall>(said: VerifiedReply<P>) -> Result<VerifiedReply<P>, ReplyError> {
    let fault = match &said.cancel {
        Some(cancel) if cancel.lost_result => {
            "its tool's result is not JSON, nested deeper than 64, or too large"
        }
        Some(_) => return Ok(said),
        None => "it was to run its tool, and its reply holds continue in place of a cancel with the result",
    };
    Err(ReplyError::new(Reason::BadReply, fault))
}

/// Reads an observer's reply and returns its cancel, if any. Observers' patches are ignored, so they aren't
/// verified.
pub fn heard<P: AgentCall>(bytes: Bytes, limits: &ReplyLimits) -> Result<Option<PluginCancel>, ReplyError> {
    let parts = parts::<P>(bytes)?;
    match parts.verdict {
        None => Err(no_verdict()),
        Some(Verdict::Continue) => check_notices(&parts.notices, limits).map(|()| None),
        // An observer's result is not used.
        Some(Verdict::Cancel(cancel)) => {
            let most = most_result_at(P::point(), limits.request);
            Ok(Some(cancelled(cancel, &parts.notices, most, &mut 0)))
        }
    }
}

fn parts<P: AgentCall>(bytes: Bytes) -> Result<ReplyParts<P::Patch>, ReplyError> {
    let undecodable =
        |error| ReplyError::new(Reason::BadReply, format!("its reply cannot be decoded: {error}"));
    P::Reply::decode(bytes).map(P::reply_parts).map_err(undecodable)
}

fn no_verdict() -> ReplyError {
    ReplyError::new(Reason::BadReply, "its reply holds neither continue nor cancel")
}

/// A patched payload, and the names of the fields in the patch.
type FoldedPayload<P> = (Arc<<P as AgentCall>::Payload>, Vec<&'static str>);

/// The payload with `patch` applied; `None` if the patch is empty.
fn folded<P: AgentCall>(
    patch: P::Patch,
    payload: &Arc<P::Payload>,
    grant: Grant<'_>,
    limits: &ReplyLimits,
) -> Result<Option<FoldedPayload<P>>, ReplyError> {
    let fields = P::fields(&patch);
    let Some(first) = fields.first() else { return Ok(None) };
    if grant.access == Access::Read {
        return Err(ReplyError::new(
            Reason::ForbiddenPatch,
            format!("it patches `{first}`, but its manifest declares access READ"),
        ));
    }
    if let Some(writable) = grant.writable
        && let Some(field) = fields.iter().find(|field| !writable.iter().any(|name| name == *field))
    {
        return Err(ReplyError::new(
            Reason::ForbiddenPatch,
            format!("it patches `{field}`, but its binding permits only {writable:?}"),
        ));
    }
    if let Some(violation) = patch.violations("/modify").into_iter().next() {
        return Err(ReplyError::new(
            Reason::BadReply,
            format!("{}: {}", violation.pointer, violation.message),
        ));
    }
    let mut folded = P::Payload::clone(payload);
    P::fold(&mut folded, patch);
    let size = folded.encoded_len();
    if size > limits.request + MAX_GROWTH_BYTES {
        return Err(ReplyError::new(
            Reason::TooLarge,
            format!("its patch makes the payload {size} bytes large"),
        ));
    }
    Ok(Some((Arc::new(folded), fields)))
}

/// Returns what is wrong with a notice.
fn notice_flaw(notice: &Notice, limits: &ReplyLimits) -> Option<&'static str> {
    if matches!(notice.kind(), NoticeKind::Unspecified) {
        return Some("has no kind");
    }
    if notice.code.as_deref().is_some_and(|code| !is_code(code)) {
        return Some("has a code outside [A-Za-z][A-Za-z0-9_.:-]{0,63}");
    }
    if notice.details.len() > limits.details_bytes {
        return Some("has details over the limit");
    }
    let object = || matches!(json::scan(&notice.details, json::MAX_DEPTH), Ok(json::ValueKind::Object));
    if !notice.details.is_empty() && !object() {
        return Some("has details that are not a JSON object");
    }
    None
}

fn check_notices(notices: &[Notice], limits: &ReplyLimits) -> Result<(), ReplyError> {
    if notices.len() > limits.notices {
        let detail = format!("its reply holds {} notices, {} are allowed", notices.len(), limits.notices);
        return Err(ReplyError::new(Reason::BadReply, detail));
    }
    let size: usize = notices.iter().map(Message::encoded_len).sum();
    if size > limits.notice_bytes {
        let detail = format!("its notices are {size} bytes, {} are allowed", limits.notice_bytes);
        return Err(ReplyError::new(Reason::BadReply, detail));
    }
    for (index, notice) in notices.iter().enumerate() {
        if let Some(flaw) = notice_flaw(notice, limits) {
            return Err(ReplyError::new(Reason::BadReply, format!("/notices/{index} {flaw}")));
        }
    }
    Ok(())
}

/// Keeps the valid notices, as many as the limits allow.
fn keep_valid(notices: Vec<Notice>, limits: &ReplyLimits, sanitised: &mut u32) -> Vec<Notice> {
    let given = notices.len();
    let mut left = limits.notice_bytes;
    let kept: Vec<Notice> = notices
        .into_iter()
        .filter(|notice| notice_flaw(notice, limits).is_none())
        .take(limits.notices)
        .take_while(|notice| {
            let size = notice.encoded_len();
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        })
        .collect();
    *sanitised += u32::from(kept.len() < given);
    kept
}

/// Replaces the faulty parts of a cancel by defaults, and counts them. `most_result` is the longest tool's result, in bytes;
/// `None` if there may be none.
fn cancelled(
    mut cancel: Cancel,
    notices: &[Notice],
    most_result: Option<usize>,
    sanitised: &mut u32,
) -> PluginCancel {
    let result = Some(std::mem::take(&mut cancel.result)).filter(|result| !result.is_empty());
    let has_result = result.is_some();
    let result = result.filter(|result| {
        most_result.is_some_and(|most| result.len() <= most) && json::scan(result, json::MAX_DEPTH).is_ok()
    });
    *sanitised += u32::from(has_result && result.is_none());
    let usable = |code: &str| is_code(code) && !Code::is_reserved(code);
    let code = if result.is_some() {
        TOOL_ANSWERED.into()
    } else if usable(&cancel.code) {
        cancel.code.clone()
    } else if cancel.code.is_empty() {
        let first = notices.iter().find(|notice| notice.kind() == NoticeKind::Block);
        first
            .and_then(|notice| notice.code.clone())
            .filter(|code| usable(code))
            .unwrap_or_else(|| DEFAULT_CODE.into())
    } else {
        *sanitised += 1;
        DEFAULT_CODE.into()
    };
    let scope = match cancel.scope() {
        CancelScope::Run if result.is_none() => CancelScope::Run,
        CancelScope::Run | CancelScope::Step | CancelScope::Unspecified => CancelScope::Step,
    };
    let mut message = cancel.message;
    if message.is_empty() {
        message = if result.is_some() { ANSWERED_MESSAGE } else { DEFAULT_MESSAGE }.into();
    } else if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        *sanitised += 1;
    }
    let lost_result = has_result && result.is_none();
    PluginCancel { code, message, retry_after_ms: cancel.retry_after_ms, scope, result, lost_result }
}

/// The longest tool's result that may be given beside `payload`, in bytes. An answer is no larger with it than a patch may
/// make it. A plugin that may not change the payload may not give a result either: both are content for the model.
fn most_result<P: AgentCall>(payload: &P::Payload, grant: Grant<'_>, limits: &ReplyLimits) -> Option<usize> {
    let most = (limits.request + MAX_GROWTH_BYTES).saturating_sub(payload.encoded_len());
    most_result_at(P::point(), most.min(limits.request)).filter(|_| grant.access == Access::Modify)
}

/// `most`, where a tool's result may be given.
fn most_result_at(point: Option<Point>, most: usize) -> Option<usize> {
    (point == Some(Point::BeforeToolCall)).then_some(most)
}

/// Whether `code` is `[A-Za-z][A-Za-z0-9_.:-]{0,63}`.
pub fn is_code(code: &str) -> bool {
    code.len() <= 64
        && code.starts_with(|c: char| c.is_ascii_alphabetic())
        && code.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-'))
}
