//! What a provider repeats of the request in its answer. The client reads its own words there, and not what plugins made of them, nor
//! what the provider writes in their place.

use std::collections::{HashMap, HashSet};

use super::request::ResponsesRequest;
use crate::{
    json::{MAX_DEPTH, ValueKind},
    llm::{
        answer_json::check_event,
        edits::{Edits, ObjectEdit},
        format::{Echoes, UnreadableEvent},
        request_view::RequestView as _,
        value::{kind, object_member},
    },
};

/// Members of a request with the words of clients that answers repeat.
pub(super) const REPEATED: &[&str] = &[
    "instructions",
    "tools",
    "tool_choice",
    "metadata",
    "text",
    "reasoning",
    "user",
    "safety_identifier",
    "prompt_cache_key",
];

/// Those that no provider fills in.
const WITHOUT_DEFAULT: &[&str] = &["instructions", "metadata", "user"];

/// Those that some providers fill in with an id.
pub(super) const FILLED_IDS: &[&str] = &["safety_identifier", "prompt_cache_key"];

/// What answers have where the client wrote nothing, if it isn't `null`.
const NOTHING: &[(&str, &str)] =
    &[("tools", "[]"), ("tool_choice", "\"auto\""), ("metadata", "{}"), ("parallel_tool_calls", "true")];

/// Members that say something of the answer, also where a request has one of the same name.
const OWN: &[&str] = &[
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "error",
    "incomplete_details",
    "model",
    "output",
    "output_text",
    "usage",
    "store",
    "background",
];

/// What an answer to `sent` may repeat of it, as the client wrote it in `request`: what plugins changed. With `is_guarded`, also
/// what is withheld from answers where it is long, and nothing where only the provider's own words could stand.
pub(super) fn echoes(request: &ResponsesRequest, sent: &ResponsesRequest, is_guarded: bool) -> Echoes {
    let written: HashMap<&str, &str> = given(request).collect();
    let sent: HashMap<&str, &str> = given(sent).collect();
    let without_default = WITHOUT_DEFAULT.iter().filter(|_| is_guarded);
    let names: HashSet<&str> = written.keys().chain(sent.keys()).chain(without_default).copied().collect();
    let is_repeated = |name: &str| {
        let (written, sent) = (written.get(name), sent.get(name));
        let is_guarded =
            is_guarded && (WITHOUT_DEFAULT.contains(&name) || REPEATED.contains(&name) && written.is_some());
        is_guarded || written != sent
    };
    let mut names: Vec<&str> = names.into_iter().filter(|name| is_repeated(name)).collect();
    names.sort_unstable();
    let value = |name: &str| written.get(name).map(|value| (*value).to_owned());
    Echoes::new(names.into_iter().map(|name| (name.to_owned(), value(name))).collect())
}

/// The members of a request that its answer may repeat.
fn given(request: &ResponsesRequest) -> impl Iterator<Item = (&str, &str)> {
    let is_given = |(name, value): &(&str, &str)| {
        *value != "null" && !OWN.contains(name) && !["input", "stream"].contains(name)
    };
    request.members().filter(is_given)
}

/// An answer, a valid JSON object, with the client's own words. `None` if that changes nothing.
pub(super) fn with_echoes(answer: &str, echoes: &Echoes) -> Option<String> {
    if echoes.is_empty() || kind(answer) != ValueKind::Object {
        return None;
    }
    put_back(answer, answer, echoes)
}

/// The data of an event with the client's own words in the answer in it. Other members of events have the same names and say
/// something else, such as the `text` of an answer.
///
/// # Errors
/// It isn't an object without repeated keys, nor the mark that some servers end a stream with.
pub(super) fn event_with_echoes(data: &str, echoes: &Echoes) -> Result<Option<String>, UnreadableEvent> {
    if data.starts_with("[DONE]") {
        return Ok(None);
    }
    // An answer of the greatest depth is one level deeper in its event.
    check_event(data, "an event", MAX_DEPTH + 1).map_err(|error| UnreadableEvent::new(error.to_string()))?;
    let answer = object_member(data, "response").filter(|_| !echoes.is_empty());
    Ok(answer.and_then(|answer| put_back(data, answer, echoes)))
}

/// Puts the client's values into `answer`, a slice of `root`, where it has these members. `None` if that changes nothing.
fn put_back(root: &str, answer: &str, echoes: &Echoes) -> Option<String> {
    let mut object = ObjectEdit::new(root, answer);
    for (name, value) in echoes.iter() {
        let nothing =
            || NOTHING.iter().find(|(known, _)| *known == name).map_or("null", |(_, nothing)| nothing);
        let value = value.unwrap_or_else(nothing);
        if object.get(name).is_some_and(|repeated| repeated != value) {
            object.set(name, value);
        }
    }
    let mut edits = Edits::default();
    object.finish(&mut edits);
    (!edits.is_empty()).then(|| edits.apply_to_str(root))
}

#[cfg(test)]
#[path = "echoes_tests.rs"]
mod tests;
