//! Data of the plugin, kept by the gateway in its database: all replicas share it and it survives restarts.
//!
//! [`Context::storage`](crate::Context::storage) gives the plugin's data for the tenant of a call,
//! [`Host::storage`](crate::Host::storage) the plugin's own data, which belongs to no tenant. No plugin can read
//! the data of another one. The plugin lists `Capability::StorageRead` in its `CAPABILITIES` to call
//! [`get`](Storage::get), [`get_many`](Storage::get_many), [`list_page`](Storage::list_page) and
//! [`list`](Storage::list), and `Capability::StorageWrite` to call the other methods.
//!
//! ```
//! use std::time::Duration;
//! use hookgate_sdk::{Context, PluginError};
//!
//! /// Whether the tenant may make another request in this minute.
//! async fn may_go_on(ctx: &Context) -> Result<bool, PluginError> {
//!     let requests = ctx.storage().add("requests", 1).limit(60).window(Duration::from_secs(60)).await?;
//!     Ok(requests.is_added())
//! }
//! ```

mod change;
mod entry;
mod key;
mod operation;

use std::fmt;

use bytes::Bytes;
use hookgate_proto::host::v1::{self as wire, storage_service_client::StorageServiceClient};
use tonic::{Request, Response, Status};

pub use self::{
    change::Change,
    entry::{Content, Entry, Page},
    key::key_part,
    operation::{
        Add, AddResult, Delete, DeleteResult, Operation, OperationResult, Put, PutResult, RejectedReason,
        TransactResult,
    },
};
use crate::{
    HostError,
    host_service::{HostClient, HostService},
};

/// A plugin's data, for one tenant or its own. Cheap to clone.
///
/// Every method fails with a [`HostError`]. A call ends after the time that the plugin's own call has left, and
/// after at most 5 s.
#[derive(Clone)]
pub struct Storage(HostClient);

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").finish_non_exhaustive()
    }
}

impl Storage {
    /// The data that `client` has access to.
    pub(crate) fn new(client: HostClient) -> Self {
        Storage(client)
    }

    /// Reads the entry of `key`; `None` if there is none.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn get(&self, key: impl Into<String>) -> Result<Option<Entry>, HostError> {
        let request = wire::GetRequest { key: key.into() };
        let send = |mut client: Client, request| async move { client.get(request).await };
        Ok(self.call(request, send).await?.entry.map(Entry::from_wire))
    }

    /// Reads the entries of 1 to 32 keys as of one moment: those that exist, in the order of the keys.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn get_many<K: Into<String>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Entry>, HostError> {
        let request = wire::GetManyRequest { keys: keys.into_iter().map(Into::into).collect() };
        let send = |mut client: Client, request| async move { client.get_many(request).await };
        Ok(self.call(request, send).await?.entries.into_iter().map(Entry::from_wire).collect())
    }

    /// Reads a page of entries whose keys begin with `prefix`: at most 100, from the first key after `after` on.
    /// An empty `prefix` means all keys, an empty `after` the first page. A page ends early at 1 MiB.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn list_page(&self, prefix: &str, after: &str) -> Result<Page, HostError> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        let request = wire::ListRequest { prefix, after, page_size: 0 };
        let send = |mut client: Client, request| async move { client.list(request).await };
        let wire::ListResponse { entries, next_after } = self.call(request, send).await?;
        Ok(Page {
            entries: entries.into_iter().map(Entry::from_wire).collect(),
            next_after: Some(next_after).filter(|key| !key.is_empty()),
        })
    }

    /// Reads the first `max_entries` entries whose keys begin with `prefix`, in the order of their keys' bytes. It
    /// reads pages, each as of its own moment.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn list(&self, prefix: &str, max_entries: usize) -> Result<Vec<Entry>, HostError> {
        let mut entries = Vec::new();
        let mut after = String::new();
        while entries.len() < max_entries {
            let page = self.list_page(prefix, &after).await?;
            entries.extend(page.entries);
            match page.next_after {
                Some(next) => after = next,
                None => break,
            }
        }
        entries.truncate(max_entries);
        Ok(entries)
    }

    /// Writes a value, at most 64 KiB, also in place of a counter. The [`Change`] that it returns takes options; write
    /// `.await` to make it.
    pub fn put(&self, key: impl Into<String>, value: impl Into<Bytes>) -> Change<'_, Put> {
        Change::new(self, Put::new(key, value))
    }

    /// Deletes an entry. The [`Change`] that it returns takes options; write `.await` to make it.
    pub fn delete(&self, key: impl Into<String>) -> Change<'_, Delete> {
        Change::new(self, Delete::new(key))
    }

    /// Adds `delta` to a counter, atomically among all replicas. The [`Change`] that it returns takes options; write
    /// `.await` to make it.
    pub fn add(&self, key: impl Into<String>, delta: i64) -> Change<'_, Add> {
        Change::new(self, Add::new(key, delta))
    }

    /// Makes 1 to 32 changes, each of another key: all, or none.
    ///
    /// ```
    /// # use hookgate_sdk::{Context, HostError, storage::{Add, Put, TransactResult}};
    /// # async fn reserve(ctx: &Context) -> Result<bool, HostError> {
    /// let changes = [Add::new("seats", 1).limit(10).into(), Put::new("last", "Ada").into()];
    /// let result = ctx.storage().transact(changes).await?;
    /// # Ok(
    /// matches!(result, TransactResult::Committed(_))
    /// # )
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn transact(
        &self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<TransactResult, HostError> {
        let (limits, operations): (Vec<_>, _) =
            operations.into_iter().map(|operation| (operation.limit_value(), operation.wire)).unzip();
        let request = wire::TransactRequest { operations };
        let send = |mut client: Client, request| async move { client.transact(request).await };
        TransactResult::from_wire(self.call(request, send).await?, &limits)
    }

    async fn make_put(&self, put: Put) -> Result<PutResult, HostError> {
        let send = |mut client: Client, request| async move { client.put(request).await };
        PutResult::from_wire(self.call(put.into_wire(), send).await?)
    }

    async fn make_delete(&self, delete: Delete) -> Result<DeleteResult, HostError> {
        let send = |mut client: Client, request| async move { client.delete(request).await };
        DeleteResult::from_wire(self.call(delete.into_wire(), send).await?)
    }

    async fn make_add(&self, add: Add) -> Result<AddResult, HostError> {
        let limit = add.limit_value();
        let send = |mut client: Client, request| async move { client.add(request).await };
        AddResult::from_wire(self.call(add.into_wire(), send).await?, limit)
    }

    async fn call<Q: Clone, A, F>(
        &self,
        message: Q,
        send: impl Fn(Client, Request<Q>) -> F,
    ) -> Result<A, HostError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.0.call(message, |service, request| send(StorageServiceClient::new(service), request)).await
    }
}

type Client = StorageServiceClient<HostService>;

#[cfg(test)]
mod tests;
