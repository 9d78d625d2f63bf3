//! What an operator is told whose wish was not granted: the one place where the registry's refusals become [`Error`]s.

use std::time::Duration;

use crate::{
    core::{
        error::{Code, Error, Violation},
        object::Kind,
    },
    json::pointer::push_key,
    registry::{
        RegistryError,
        document::{DocumentPointers, plural},
        edit::Refusal,
        operations::{Invalid, OperationError, invalid},
    },
};

/// When to ask again for what the store may be able to do then.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Where objects stand in the body that was sent.
pub(crate) enum Sent {
    /// Nowhere: there was none, or it names no object.
    Nothing,
    /// This one is the body.
    Object(Kind, String),
    /// Each has its place.
    Document(DocumentPointers),
}

impl Sent {
    /// The pointer to what stands at `pointer` in an object: into the body where it is there, else `/bindings/NAME/...`.
    fn pointer(&self, kind: Kind, name: &str, pointer: &str) -> String {
        match self {
            Sent::Object(sent, own) if *sent == kind && own == name => pointer.to_owned(),
            Sent::Document(places) if places.contains_key(&(kind, name.to_owned())) => {
                format!("{}{pointer}", places[&(kind, name.to_owned())])
            }
            _ => {
                let mut at = format!("/{}", plural(kind));
                push_key(&mut at, name);
                at + pointer
            }
        }
    }
}

/// What `undone` means to whoever sent `sent`.
pub(crate) fn error(undone: OperationError, sent: &Sent) -> Error {
    match undone {
        OperationError::Refused(refusal) => refused(refusal, sent),
        OperationError::Invalid(wrong) => not_valid(wrong, sent),
        OperationError::NoRevision(number) => {
            Error::new(Code::NotFound, format!("There is no revision {number}"))
        }
        OperationError::NoRegistry => Error::new(
            Code::Conflict,
            "The configuration file alone says what is there: change it, or name a `store` in it to write here",
        ),
        OperationError::Registry(RegistryError::Invalid(problems)) => not_valid(invalid(&problems), sent),
        OperationError::Registry(error @ RegistryError::Busy) => {
            Error::new(Code::Conflict, sentence(&error)).retry_after(STORE_RETRY_AFTER)
        }
        OperationError::Registry(error) => {
            Error::new(Code::StoreUnavailable, sentence(&error)).retry_after(STORE_RETRY_AFTER)
        }
    }
}

fn refused(refusal: Refusal, sent: &Sent) -> Error {
    let conflict = |kind, name: &str, detail: String| {
        let violations = vec![Violation::new(sent.pointer(kind, name, ""), detail.clone())];
        Error { violations, ..Error::new(Code::Conflict, detail) }
    };
    match refusal {
        Refusal::Missing { kind, name } => Error::new(Code::NotFound, format!("There is no {kind} `{name}`")),
        Refusal::Version { kind, name, current: 0, expected } => conflict(
            kind,
            &name,
            format!(
                "There is no {kind} `{name}`, whose version {expected} is expected; write 0 to create it"
            ),
        ),
        Refusal::Version { kind, name, current, expected: 0 } => {
            conflict(kind, &name, format!("There is a {kind} `{name}` already: its version is {current}"))
        }
        Refusal::Version { kind, name, current, expected } => conflict(
            kind,
            &name,
            format!("The version of {kind} `{name}` is {current}, and {expected} is expected"),
        ),
        Refusal::Revision { current, expected } => Error::new(
            Code::Conflict,
            format!("The registry is at revision {current}, and {expected} is expected"),
        ),
        Refusal::OfFile { kind, name } => {
            conflict(kind, &name, format!("The configuration file owns {kind} `{name}`: change it there"))
        }
        Refusal::InUse { name, bindings } => {
            let named: Vec<_> = bindings.iter().map(|binding| format!("`{binding}`")).collect();
            let detail = format!(
                "Bindings name plugin `{name}`: {}; delete them first, or send `force=true` to delete them too",
                named.join(", ")
            );
            let violation = |binding: &String| {
                let at = sent.pointer(Kind::Binding, binding, "/plugin");
                Violation::new(at, format!("Names plugin `{name}`"))
            };
            Error {
                violations: bindings.iter().map(violation).collect(),
                ..Error::new(Code::Conflict, detail)
            }
        }
        Refusal::Wrong { kind, name, problems } => {
            let wrong = problems.into_iter().map(|problem| Invalid {
                object: Some((kind, name.clone())),
                message: problem.sentence(),
                pointer: problem.pointer,
            });
            not_valid(wrong.collect(), sent)
        }
    }
}

fn not_valid(wrong: Vec<Invalid>, sent: &Sent) -> Error {
    let violation = |wrong: Invalid| {
        let pointer = match wrong.object {
            Some((kind, name)) => sent.pointer(kind, &name, &wrong.pointer),
            None => wrong.pointer,
        };
        Violation::new(pointer, wrong.message)
    };
    let violations: Vec<_> = wrong.into_iter().map(violation).collect();
    let detail = match violations.as_slice() {
        [only] => capital(&only.message),
        several => format!("There would be {} mistakes in the configuration", several.len()),
    };
    Error { violations, ..Error::new(Code::ConfigInvalid, detail) }
}

fn sentence(error: &RegistryError) -> String {
    capital(&error.to_string())
}

/// `text` as a sentence begins.
fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
