//! Maps the registry's [`OperationError`]s to API errors. This is the only place that does so.

use std::time::Duration;

use crate::{
    core::{
        error::{Code, Error, Violation},
        object::ObjectKind,
    },
    json::pointer::push_key,
    registry::{
        RegistryError,
        document::{DocumentPointers, plural},
        edit::EditError,
        operations::{Invalid, OperationError, invalid},
    },
};

/// `Retry-After` when the store may soon be able to answer.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Where objects are in the body that was sent.
pub(crate) enum SentBody {
    /// There was no body, or it names no object.
    Nothing,
    /// The body is this object.
    Object(ObjectKind, String),
    /// The body contains objects at these places.
    Document(DocumentPointers),
}

impl SentBody {
    /// A pointer into the body for `pointer` in an object. If the object isn't in the body, the pointer is
    /// `/bindings/NAME/...`.
    fn pointer(&self, kind: ObjectKind, name: &str, pointer: &str) -> String {
        match self {
            SentBody::Object(sent, own) if *sent == kind && own == name => pointer.to_owned(),
            SentBody::Document(places) if places.contains_key(&(kind, name.to_owned())) => {
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

/// The API error for `undone`.
pub(crate) fn error(undone: OperationError, sent: &SentBody) -> Error {
    match undone {
        OperationError::Refused(refusal) => edit_error(refusal, sent),
        OperationError::Invalid(wrong) => not_valid(wrong, sent),
        OperationError::NoRevision(number) => {
            Error::new(Code::NotFound, format!("There is no revision {number}"))
        }
        OperationError::NoRegistry => Error::new(
            Code::Conflict,
            "Without a `store`, the configuration file is the only source of objects: change the file, or add a \
             `store` to it",
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

fn edit_error(refusal: EditError, sent: &SentBody) -> Error {
    let conflict = |kind, name: &str, detail: String| {
        let violations = vec![Violation::new(sent.pointer(kind, name, ""), detail.clone())];
        Error { violations, ..Error::new(Code::Conflict, detail) }
    };
    match refusal {
        EditError::Missing { kind, name } => {
            Error::new(Code::NotFound, format!("There is no {kind} `{name}`"))
        }
        EditError::Version { kind, name, current: 0, expected } => conflict(
            kind,
            &name,
            format!("There is no {kind} `{name}`, but version {expected} is expected; expect 0 to create it"),
        ),
        EditError::Version { kind, name, current, expected: 0 } => {
            conflict(kind, &name, format!("There is already a {kind} `{name}`: its version is {current}"))
        }
        EditError::Version { kind, name, current, expected } => conflict(
            kind,
            &name,
            format!("The version of {kind} `{name}` is {current}, and {expected} is expected"),
        ),
        EditError::Revision { current, expected } => Error::new(
            Code::Conflict,
            format!("The registry is at revision {current}, and {expected} is expected"),
        ),
        EditError::OfFile { kind, name } => {
            conflict(kind, &name, format!("The configuration file owns {kind} `{name}`: change it there"))
        }
        EditError::InUse { name, bindings } => {
            let named: Vec<_> = bindings.iter().map(|binding| format!("`{binding}`")).collect();
            let detail = format!(
                "Bindings use plugin `{name}`: {}; delete them first, or send `force=true` to delete them too",
                named.join(", ")
            );
            let violation = |binding: &String| {
                let at = sent.pointer(ObjectKind::Binding, binding, "/plugin");
                Violation::new(at, format!("Uses plugin `{name}`"))
            };
            Error {
                violations: bindings.iter().map(violation).collect(),
                ..Error::new(Code::Conflict, detail)
            }
        }
        EditError::Wrong { kind, name, problems } => {
            let wrong = problems.into_iter().map(|problem| Invalid {
                object: Some((kind, name.clone())),
                message: problem.sentence(),
                pointer: problem.pointer,
            });
            not_valid(wrong.collect(), sent)
        }
    }
}

fn not_valid(wrong: Vec<Invalid>, sent: &SentBody) -> Error {
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
        several => format!("The resulting configuration would have {} mistakes", several.len()),
    };
    Error { violations, ..Error::new(Code::ConfigInvalid, detail) }
}

fn sentence(error: &RegistryError) -> String {
    capital(&error.to_string())
}

/// `text` with a capital first letter.
fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
