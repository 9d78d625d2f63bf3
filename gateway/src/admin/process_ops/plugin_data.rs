//! Deletes what a plugin stored (`hookgate.host.v1`), for every tenant.

use std::sync::Arc;

use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::{
    admin::process_ops::{OperationReason, Upkeep, log},
    core::error::{Code, Error},
    registry::operations::OperationError,
    task::join::joined,
    telemetry::Parent,
};

impl Upkeep {
    /// Says that the plugin `name` may still write: it is registered, or this process still uses it.
    ///
    /// # Errors
    /// If there is no registry, or it can't be read.
    pub async fn still_writes(&self, name: &str) -> Result<Option<Error>, OperationError> {
        let conflict = |what| Error::new(Code::Conflict, format!("Plugin `{name}` {what}"));
        if self.operations.newest_plugin(name).await?.is_some() {
            return Ok(Some(conflict("is registered: remove it first")));
        }
        let snapshots = &self.gateway.snapshots;
        let is_active = snapshots.current().config.plugins.iter().any(|plugin| plugin.name == name);
        let is_in_use = is_active || !snapshots.draining(name).is_empty();
        Ok(is_in_use.then(|| conflict("is still in use by this process: try again")))
    }

    /// Deletes the data of the plugin `name`. Returns how many entries there were. `under_way` is kept until the end.
    ///
    /// # Errors
    /// If there is no registry, or the store fails. Then a part may be deleted.
    pub async fn delete_data(
        &self,
        who: &OperationReason,
        name: &str,
        under_way: TaskTrackerToken,
    ) -> Result<u64, OperationError> {
        log(who, "delete_data", Some(name));
        let (operations, plugin) = (Arc::clone(&self.operations), name.to_owned());
        // Run as a task, so that a caller who hangs up doesn't leave it half done.
        let deleting = Parent::current().wrap(async move {
            let deleted = operations.delete_plugin_data(&plugin).await;
            drop(under_way);
            deleted
        });
        joined(tokio::spawn(deleting)).await
    }
}
