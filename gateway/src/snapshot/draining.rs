//! The clients of plugins that get no more calls and are not shut down yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::upstream::PluginClient;

/// Clones share the list.
#[derive(Clone, Default)]
pub(super) struct DrainingList(Arc<Mutex<Vec<Arc<PluginClient>>>>);

impl DrainingList {
    /// Lists `client` until the guard is dropped.
    pub(super) fn add(&self, client: &Arc<PluginClient>) -> DrainGuard {
        self.lock().push(Arc::clone(client));
        DrainGuard { client: Arc::clone(client), list: self.clone() }
    }

    /// The clients of the plugin `name`.
    pub(super) fn of_plugin(&self, name: &str) -> Vec<Arc<PluginClient>> {
        self.lock().iter().filter(|client| client.name() == name).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<PluginClient>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Owned by the task that drains the client. Dropping it removes the client from the list.
pub struct DrainGuard {
    client: Arc<PluginClient>,
    list: DrainingList,
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        self.list.lock().retain(|client| !Arc::ptr_eq(client, &self.client));
    }
}
