//! Whether what a program wrote is a reply to the call.

use bytes::Bytes;
use hookgate::{
    core::error::Violation,
    transcode::{DecodedReply, ReplyMessage, decode_reply},
};
use tonic::Status;

use crate::plugin_entry::ProcessMode;

/// Reads the reply to the call `request_id` of a program in `mode`.
///
/// # Errors
/// INTERNAL if it is not a reply, or not one to this call.
pub(crate) fn read<R: ReplyMessage>(bytes: &Bytes, request_id: &str, mode: ProcessMode) -> Result<R, Status> {
    let DecodedReply { message, request_id: replied } =
        decode_reply(bytes).map_err(|violations| bad_reply(&violations))?;
    check_request(replied.as_deref(), request_id, mode)?;
    Ok(message)
}

/// Checks the call that a reply names. A program that answers several calls must name it: a line too many that it wrote
/// for the call before would decide this one.
fn check_request(replied: Option<&str>, asked: &str, mode: ProcessMode) -> Result<(), Status> {
    match (replied, mode) {
        (Some(replied), _) if replied != asked => Err(Status::internal(format!(
            "the program's reply has the `request_id` {replied}, and the call has {asked}: a program must write one line \
             for each call"
        ))),
        (None, ProcessMode::Persistent) => Err(Status::internal(format!(
            "the program's reply has no `request_id`: copy it from the call's `context`, here \"request_id\": \"{asked}\", \
             or set `process: per_call`"
        ))),
        _ => Ok(()),
    }
}

fn bad_reply(violations: &[Violation]) -> Status {
    let said: Vec<_> = violations.iter().map(|one| format!("{} {}", one.pointer, one.message)).collect();
    Status::internal(format!("the program's reply is wrong: {}", said.join("; ").trim_start()))
}
