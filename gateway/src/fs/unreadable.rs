//! The error message for a configured file that can't be read.

use std::{fmt::Display, io};

/// One sentence: which file, the system's error, and what to do about it.
pub(crate) fn unreadable(what: impl Display, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "correct the path, or put the file there",
        io::ErrorKind::PermissionDenied => "make it readable for the gateway's user",
        io::ErrorKind::IsADirectory => "name a file in it",
        _ => "check whether another program can read it",
    };
    format!("{what} can't be read: {error}: {remedy}")
}
