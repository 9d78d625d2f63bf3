//! Deletes what a plugin stored (`hookgate.host.v1`), for every tenant.

use crate::{
    admin::process_ops::{OperationReason, Upkeep, log},
    core::error::{Code, Error},
    registry::operations::OperationError,
    task::join::joined,
    telemetry::Parent,
};
use std::sync::Arc;

/// Why nothing, or not everything, was deleted.
#[derive(Debug)]
pub enum DeletionError {
    /// The plugin may still write.
    InUse(Error),
    Operation(OperationError),
}

impl Upkeep {
    /// Deletes the data of the plugin `name`, which must not be registered any more. Returns how many entries there were.
    ///
    /// # Errors
    /// If the plugin is registered, there is no registry, or the store fails. Then a part may be deleted.
    pub async fn delete_data(&self, who: &OperationReason, name: &str) -> Result<u64, DeletionError> {
        let conflict = |what: &str| {
            let said = format!("Plugin `{name}` {what}");
            Err(DeletionError::InUse(Error::new(Code::Conflict, said)))
        };
        let is_registered = self.operations.is_registered(name).await;
        if is_registered.map_err(DeletionError::Operation)? {
            return conflict("is registered: remove it first");
        }
        let snapshot = self.gateway.snapshots.current();
        if snapshot.config.plugins.iter().any(|plugin| plugin.name == name) {
            return conflict("is still active in this process: try again");
        }
        drop(snapshot);
        log(who, "delete_data", Some(name));
        let (operations, plugin) = (Arc::clone(&self.operations), name.to_owned());
        // Run as a task, so that a caller who hangs up doesn't leave it half done.
        let deleting = Parent::current().wrap(async move { operations.delete_plugin_data(&plugin).await });
        joined(tokio::spawn(deleting)).await.map_err(DeletionError::Operation)
    }
}
