//! Letting go of a plugin for its maintenance: it is disabled for everybody who shares the registry, and it is waited
//! until this process has nothing under way there.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::json;
use tokio::time::{Duration, Instant, timeout_at};

use super::{OperationReason, Upkeep, log};
use crate::{
    core::object::ObjectKind,
    registry::{
        Writer,
        edit::{Edit, EditAction},
        operations::{OperationError, WriteOutcome},
    },
    task::join::joined,
};

/// How it stands with a plugin that is drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainResult {
    /// That switched it off; none: it was off.
    pub revision: Option<u64>,
    /// Whether that is in force in this process.
    pub active: bool,
    /// Calls of this process that are still under way there.
    pub in_flight: usize,
    /// Whether none is, and the plugin was told of the end.
    pub drained: bool,
}

impl Upkeep {
    /// Switches the plugin `name` off, upon the version `expected` where there is one, and waits up to `patience` until
    /// this process has let go of it. Who asks must hold no configuration that is in force meanwhile: calls may go by
    /// that.
    ///
    /// # Errors
    /// Nothing was written. It is the file's, say, or was overtaken.
    pub async fn drain(
        &self,
        who: &OperationReason,
        name: &str,
        expected: Option<u64>,
        patience: Duration,
    ) -> Result<DrainResult, OperationError> {
        log(who, "drain", Some(name));
        let (by, serving) = (Instant::now() + patience, self.client(name));
        let writer = Writer { author: who.author.clone(), reason: who.reason.clone(), upon: None };
        let wish = EditAction::Merge(json!({ "enabled": false }));
        let edit = Edit { kind: ObjectKind::Plugin, name: name.to_owned(), expected, wish };
        let operations = Arc::clone(&self.operations);
        // Whoever hangs up leaves no write half done, or done without a word in the log.
        let writing = tokio::spawn(async move { operations.write(&writer, &[edit], None, false).await });
        let WriteOutcome { revision, .. } = joined(writing).await?;
        let wanted = match revision {
            Some(revision) => revision,
            None => self.operations.contents().await?.revision(),
        };
        let active =
            self.gateway.snapshots.reaches(wanted, by.saturating_duration_since(Instant::now())).await;
        // One that was replaced before may have calls as well.
        let mut left = self.gateway.snapshots.leaving(name);
        left.extend(serving.filter(|serving| !left.iter().any(|left| Arc::ptr_eq(left, serving))));
        let released = join_all(left.iter().map(|client| client.released()));
        let is_released = tokio::select! {
            biased;
            released = timeout_at(by, released) => released.is_ok(),
            // The process itself ends, and says how far this came.
            () = self.gateway.snapshots.settled() => false,
        };
        let in_flight = left.iter().map(|client| client.in_flight()).sum();
        Ok(DrainResult { revision, active, in_flight, drained: active && is_released })
    }
}
