//! Drains a plugin for maintenance: switches it off in the registry, for every gateway that shares it, and
//! waits until this process has no call in flight to it.

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
    telemetry::Parent,
};

/// The result of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainResult {
    /// The revision that switched the plugin off; `None` if it was off already.
    pub revision: Option<u64>,
    /// Whether that revision is active in this process.
    pub active: bool,
    /// Calls of this process to the plugin that are still in flight.
    pub in_flight: usize,
    /// Whether no call is in flight and the plugin's connections were shut down.
    pub drained: bool,
}

impl Upkeep {
    /// Switches the plugin `name` off, provided it has version `expected` (if given), and waits up to
    /// `patience` until this process has released it. The caller must not hold a snapshot meanwhile,
    /// because the snapshot keeps the plugin in use.
    ///
    /// # Errors
    /// If nothing was written: the file owns the plugin, for example, or another write came first.
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
        // Run the write as a task, so that a caller who hangs up doesn't leave it half done or unlogged.
        let writing = tokio::spawn(
            Parent::current().wrap(async move { operations.write(&writer, &[edit], None, false).await }),
        );
        let WriteOutcome { revision, .. } = joined(writing).await?;
        let wanted = match revision {
            Some(revision) => revision,
            None => self.operations.contents().await?.revision(),
        };
        let active =
            self.gateway.snapshots.reaches(wanted, by.saturating_duration_since(Instant::now())).await;
        // One that was replaced before may have calls as well.
        let mut left = self.gateway.snapshots.draining(name);
        left.extend(serving.filter(|serving| !left.iter().any(|left| Arc::ptr_eq(left, serving))));
        let released = join_all(left.iter().map(|client| client.released()));
        let is_released = tokio::select! {
            biased;
            released = timeout_at(by, released) => released.is_ok(),
            // The process is ending: report how far the drain came.
            () = self.gateway.snapshots.settled() => false,
        };
        let in_flight = left.iter().map(|client| client.in_flight()).sum();
        Ok(DrainResult { revision, active, in_flight, drained: active && is_released })
    }
}
