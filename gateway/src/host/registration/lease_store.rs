//! Leases in the gateways' database: entries of plugins' data under a name that no plugin can have. So all replicas share
//! them, and what nobody renews is deleted in the end.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use uuid::Uuid;

use super::lease_table::{Lease, LeaseKey};
use crate::{
    host::now_ms,
    store::{DataEntry, DataOperation, DataScope, EntryContent, ListRange, PluginData, StoreError},
};

/// Not a plugin's name, which begins with a letter.
const SCOPE: &str = "@registrations";
/// When the database deletes a lease. A process ends it long before, unless all processes are gone.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);
const PAGE: usize = 500;

pub(super) struct LeaseStore {
    data: Arc<dyn PluginData>,
    scope: DataScope,
}

impl LeaseStore {
    pub(super) fn new(data: Arc<dyn PluginData>) -> Self {
        LeaseStore { data, scope: DataScope { plugin: SCOPE.into(), tenant: None } }
    }

    /// Begins a lease for `holder`, or takes it over from another one.
    pub(super) async fn begin(&self, key: &LeaseKey, holder: Uuid) -> Result<(), StoreError> {
        self.put(key, holder, None).await
    }

    /// Renews the lease of `holder`. One that another holder took over is left alone: it renews it itself.
    pub(super) async fn renew(&self, key: &LeaseKey, holder: Uuid) -> Result<(), StoreError> {
        let entry = self.entry(key).await?;
        if entry.as_ref().is_some_and(|entry| !is_of(entry, holder)) {
            return Ok(());
        }
        // If another holder takes it over at this moment, nothing is written, and that one has the lease.
        self.put(key, holder, Some(entry.map_or(0, |entry| entry.version))).await
    }

    /// Ends the lease of `holder`, unless another holder took it over. Returns whether it did.
    pub(super) async fn end(&self, key: &LeaseKey, holder: Uuid) -> Result<bool, StoreError> {
        match self.entry(key).await? {
            Some(entry) if is_of(&entry, holder) => self.delete(key, entry.version).await,
            _ => Ok(false),
        }
    }

    async fn put(&self, key: &LeaseKey, holder: Uuid, expected: Option<u64>) -> Result<(), StoreError> {
        let value = Bytes::copy_from_slice(holder.as_bytes());
        let expires = now_ms() + i64::try_from(MAX_AGE.as_millis()).unwrap_or(i64::MAX);
        let put = DataOperation::Put { key: as_text(key), value, expected, expires_ms: Some(expires) };
        self.data.write(&self.scope, &[put], now_ms()).await.map(drop)
    }

    /// Deletes a lease that was not renewed since it had this version. Returns whether there was one.
    pub(super) async fn delete(&self, key: &LeaseKey, version: u64) -> Result<bool, StoreError> {
        let delete = DataOperation::Delete { key: as_text(key), expected: Some(version) };
        Ok(self.data.write(&self.scope, &[delete], now_ms()).await?.is_ok())
    }

    /// The leases of `plugin`, or of all.
    pub(super) async fn read(&self, plugin: Option<&str>) -> Result<Vec<Lease>, StoreError> {
        let prefix = plugin.map_or_else(String::new, |plugin| format!("{plugin}/"));
        let (mut leases, mut after) = (Vec::new(), String::new());
        loop {
            let range = ListRange { prefix: &prefix, after: &after, limit: PAGE };
            let page = self.data.list(&self.scope, range, now_ms()).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|entry| entry.key.clone()).unwrap_or_default();
            leases.extend(page.iter().filter_map(lease));
            if is_last {
                return Ok(leases);
            }
        }
    }

    async fn entry(&self, key: &LeaseKey) -> Result<Option<DataEntry>, StoreError> {
        Ok(self.data.read(&self.scope, &[as_text(key)], now_ms()).await?.pop())
    }
}

fn as_text(LeaseKey { plugin, endpoint }: &LeaseKey) -> String {
    format!("{plugin}/{endpoint}")
}

fn lease(entry: &DataEntry) -> Option<Lease> {
    let (plugin, endpoint) = entry.key.split_once('/')?;
    let key = LeaseKey { plugin: plugin.to_owned(), endpoint: endpoint.to_owned() };
    Some(Lease { key, version: entry.version })
}

fn is_of(entry: &DataEntry, holder: Uuid) -> bool {
    matches!(&entry.content, EntryContent::Value(value) if **value == *holder.as_bytes())
}
