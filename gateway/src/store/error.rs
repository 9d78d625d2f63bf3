//! Converts database errors into [`StoreError`]. Only this module looks at the databases' codes.
//!
//! An error text names the location (a file, or host and port) and the database's message. It never contains
//! a password: server messages don't, and URLs are never shown.

use sqlx::Error;

use super::StoreError;

/// Converts an error of the SQLite database at `place`.
pub(super) fn sqlite(place: &str, error: &Error) -> StoreError {
    if let Error::Database(said) = error {
        // The lower byte is the primary code; the rest is the extended code.
        let code = said.code().and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff);
        return match code {
            Some(5 | 6) => StoreError::Unavailable(format!("{place} is locked by another writer")),
            Some(8) => StoreError::Unusable(format!("{place} is read-only")),
            Some(13) => StoreError::Unavailable(format!("{place} can't grow: the disk is full")),
            Some(14) => StoreError::Unavailable(format!("{place} can't be opened")),
            Some(11) => StoreError::Unusable(format!("{place} is damaged: {}", said.message())),
            Some(26) => StoreError::Unusable(format!("{place} is not a SQLite database")),
            Some(7 | 10) => StoreError::Unavailable(format!("{place}: {}", said.message())),
            _ => StoreError::Unusable(format!("{place}: {}", said.message())),
        };
    }
    other(place, error)
}

/// Converts an error of the PostgreSQL database at `place`.
pub(super) fn postgres(place: &str, error: &Error) -> StoreError {
    if let Error::Database(said) = error {
        let text = format!("{place}: {}", said.message());
        let code = said.code().unwrap_or_default();
        // Temporary errors: connection, resources, operator intervention, transaction conflict, lock, and a
        // standby that may be promoted. Every other error would only repeat.
        let passes = ["08", "53", "57P", "57014", "58", "40", "55P03", "25006"];
        return if passes.iter().any(|class| code.starts_with(class)) {
            StoreError::Unavailable(text)
        } else {
            StoreError::Unusable(text)
        };
    }
    other(place, error)
}

fn other(place: &str, error: &Error) -> StoreError {
    match error {
        Error::Io(error) => StoreError::Unavailable(format!("{place}: {error}")),
        Error::Tls(error) => StoreError::Unavailable(format!("{place}: {error}")),
        Error::PoolTimedOut => StoreError::Unavailable(format!("{place} does not answer in time")),
        Error::PoolClosed | Error::WorkerCrashed => StoreError::Unavailable(format!("{place} is closed")),
        // The server went away in the middle of a message.
        Error::Protocol(error) => StoreError::Unavailable(format!("{place}: {error}")),
        Error::RowNotFound => StoreError::Unusable(format!("{place} lacks the row with its revision")),
        error => StoreError::Unusable(format!("{place}: {error}")),
    }
}
