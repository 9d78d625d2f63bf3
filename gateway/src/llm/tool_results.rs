//! The results of tools in a request, in all formats.

use bytes::Bytes;
use hookgate_proto::types::v1::AfterToolResultPayload;

use super::{
    unit::Unit,
    value::{kind, quote},
};
use crate::{
    core::error::{Error, Violation},
    json::ValueKind,
    payload::MAX_VIOLATIONS,
};

/// Checks that each result has one call, and each call at most one result. `list` is the member with the messages, and `repeated_ids` are
/// the pointers to the ids of calls that an earlier call of the message has too. Plugins judge a result by the tool of its call, so there
/// must be exactly one.
pub(super) fn check_results(
    list: &str,
    units: &[Unit],
    repeated_ids: impl Iterator<Item = String>,
) -> Result<(), Error> {
    let without = units.iter().filter(|unit| unit.is_without_call()).map(|unit| without_call(list, unit));
    let second = units.iter().filter(|unit| unit.is_second_result()).map(|unit| {
        Violation::new(pointer_to(list, unit), "An earlier result is that of the same tool call")
    });
    let repeated = repeated_ids.map(|pointer| {
        Violation::new(
            pointer,
            "An earlier tool call of the message has the same id, so a result could be that of either",
        )
    });
    let violations: Vec<Violation> = without.chain(second).chain(repeated).take(MAX_VIOLATIONS).collect();
    if violations.is_empty() { Ok(()) } else { Err(Error::invalid(violations)) }
}

/// The payload of a result. `list` is the member with the messages.
///
/// # Errors
/// Its call isn't in the request.
pub(super) fn result_payload(list: &str, unit: &Unit) -> Result<AfterToolResultPayload, Error> {
    let named = unit.result().and_then(|result| Some((result.tool_name.clone()?, result)));
    let (tool_name, result) = named.ok_or_else(|| Error::invalid(vec![without_call(list, unit)]))?;
    Ok(AfterToolResultPayload {
        tool_name,
        result: result.result.clone(),
        success: Some(result.success),
        args: result.args.clone(),
        call_id: result.call_id.clone(),
        duration_ms: None,
        extra: Bytes::new(),
    })
}

/// The content of a result with another value: a string, an array if `is_content` takes it, or the text of another value.
pub(super) fn result_content(result: &str, is_content: impl Fn(&str) -> bool) -> String {
    match kind(result) {
        ValueKind::String => result.to_owned(),
        ValueKind::Array if is_content(result) => result.to_owned(),
        _ => quote(result),
    }
}

/// The mistake of a result whose call isn't in the request.
fn without_call(list: &str, unit: &Unit) -> Violation {
    Violation::new(pointer_to(list, unit), "Nothing that the model said before this result has its tool call")
}

fn pointer_to(list: &str, unit: &Unit) -> String {
    let message = format!("/{list}/{}", unit.message());
    unit.block().map_or(message.clone(), |block| format!("{message}/content/{block}"))
}
