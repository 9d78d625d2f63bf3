//! StorageService over the store. The token decides the scope, so no request can name another plugin or tenant.

use std::sync::Arc;

use hookgate_proto::{
    Capability,
    host::v1::{
        self as wire, AddRequest, AddResponse, DeleteRequest, DeleteResponse, GetManyRequest,
        GetManyResponse, GetRequest, GetResponse, ListRequest, ListResponse, PutRequest, PutResponse,
        TransactRequest, TransactResponse, add_response, delete_response, put_response,
        storage_service_server::StorageService, transact_response,
    },
};
use tonic::{Request, Response, Status, async_trait};

use super::{HostServices, entry_bytes, error, now_ms, operation};
use crate::store::{
    DataChange, DataEntry, DataOperation, DataScope, EntryContent, ListRange, RejectedReason, RejectedWrite,
};

/// A page ends with the entry that reaches this size.
const MAX_PAGE_BYTES: u64 = 1 << 20;

pub(super) struct StorageServer(Arc<HostServices>);

impl StorageServer {
    pub(super) fn new(host: Arc<HostServices>) -> Self {
        StorageServer(host)
    }

    /// The scope of the request's token, and the message.
    fn open<T>(&self, request: Request<T>, capability: Capability) -> Result<(DataScope, T), Status> {
        let claims = self.0.authorize(request.extensions(), Some(capability))?;
        let scope = DataScope { plugin: claims.plugin.into(), tenant: claims.tenant.map(Into::into) };
        Ok((scope, request.into_inner()))
    }

    async fn read(&self, scope: &DataScope, keys: &[String], now_ms: i64) -> Result<Vec<DataEntry>, Status> {
        self.0.data.read(scope, keys, now_ms).await.map_err(|error| error::unavailable(&error))
    }

    /// Makes all `operations`, or none.
    async fn write(
        &self,
        scope: &DataScope,
        operations: &[DataOperation],
        now_ms: i64,
    ) -> Result<Result<Vec<DataChange>, RejectedWrite>, Status> {
        let HostServices { data, quota, .. } = &*self.0;
        let growth = quota.check(&**data, scope, operations).await?;
        let written =
            data.write(scope, operations, now_ms).await.map_err(|error| error::unavailable(&error))?;
        match &written {
            Ok(changes) => quota.note(scope, operations, changes, growth),
            Err(RejectedWrite { index, reason: RejectedReason::NotACounter }) => {
                return Err(error::not_a_counter(operations.get(*index).map_or("", DataOperation::key)));
            }
            Err(_) => {}
        }
        Ok(written)
    }

    /// Makes one operation.
    async fn write_one(
        &self,
        scope: &DataScope,
        operation: DataOperation,
        now_ms: i64,
    ) -> Result<Result<DataChange, RejectedReason>, Status> {
        let written = self.write(scope, &[operation], now_ms).await?;
        match written.map(|mut changes| changes.pop()) {
            Ok(Some(change)) => Ok(Ok(change)),
            Ok(None) => Err(unexpected()),
            Err(rejected) => Ok(Err(rejected.reason)),
        }
    }
}

#[async_trait]
impl StorageService for StorageServer {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let (scope, GetRequest { key }) = self.open(request, Capability::StorageRead)?;
        let (key, now_ms) = (operation::key(key).map_err(error::invalid)?, now_ms());
        let entry = self.read(&scope, &[key], now_ms).await?.pop();
        Ok(Response::new(GetResponse { entry: entry.map(|entry| shown_entry(entry, now_ms)) }))
    }

    async fn get_many(&self, request: Request<GetManyRequest>) -> Result<Response<GetManyResponse>, Status> {
        let (scope, GetManyRequest { keys }) = self.open(request, Capability::StorageRead)?;
        let (keys, now_ms) = (operation::keys(keys).map_err(error::invalid)?, now_ms());
        let found = self.read(&scope, &keys, now_ms).await?;
        let of_key = |key: &String| found.iter().find(|entry| entry.key == *key).cloned();
        let entries = keys.iter().filter_map(of_key).map(|entry| shown_entry(entry, now_ms)).collect();
        Ok(Response::new(GetManyResponse { entries }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let (scope, ListRequest { prefix, after, page_size }) =
            self.open(request, Capability::StorageRead)?;
        let prefix = operation::optional_key("prefix", prefix).map_err(error::invalid)?;
        let after = operation::optional_key("after", after).map_err(error::invalid)?;
        let size = operation::page_size(page_size).map_err(error::invalid)?;
        let now_ms = now_ms();
        // One more shows whether this is the last page.
        let range = ListRange { prefix: &prefix, after: &after, limit: size + 1 };
        let listed = self.0.data.list(&scope, range, now_ms).await;
        let found = listed.map_err(|error| error::unavailable(&error))?;
        Ok(Response::new(page(found, size, now_ms)))
    }

    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        let (scope, request) = self.open(request, Capability::StorageWrite)?;
        let now_ms = now_ms();
        let operation = operation::put("", request, now_ms).map_err(error::invalid)?;
        let result = match self.write_one(&scope, operation, now_ms).await? {
            Ok(DataChange::Written { version }) => put_response::Result::Written(wire::Written { version }),
            Err(RejectedReason::Conflict { version }) => {
                put_response::Result::Conflict(wire::Conflict { version })
            }
            _ => return Err(unexpected()),
        };
        Ok(Response::new(PutResponse { result: Some(result) }))
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        let (scope, request) = self.open(request, Capability::StorageWrite)?;
        let operation = operation::delete("", request).map_err(error::invalid)?;
        let result = match self.write_one(&scope, operation, now_ms()).await? {
            Ok(DataChange::Deleted { existed }) => {
                delete_response::Result::Deleted(wire::Deleted { existed })
            }
            Err(RejectedReason::Conflict { version }) => {
                delete_response::Result::Conflict(wire::Conflict { version })
            }
            _ => return Err(unexpected()),
        };
        Ok(Response::new(DeleteResponse { result: Some(result) }))
    }

    async fn add(&self, request: Request<AddRequest>) -> Result<Response<AddResponse>, Status> {
        let (scope, request) = self.open(request, Capability::StorageWrite)?;
        let now_ms = now_ms();
        let operation = operation::add("", request, now_ms).map_err(error::invalid)?;
        let result = match self.write_one(&scope, operation, now_ms).await? {
            Ok(DataChange::Added { counter, version, expires_ms }) => {
                add_response::Result::Added(added(counter, version, expires_ms, now_ms))
            }
            Err(RejectedReason::LimitReached { counter, expires_ms }) => {
                add_response::Result::LimitReached(limit_reached(counter, expires_ms, now_ms))
            }
            _ => return Err(unexpected()),
        };
        Ok(Response::new(AddResponse { result: Some(result) }))
    }

    async fn transact(
        &self,
        request: Request<TransactRequest>,
    ) -> Result<Response<TransactResponse>, Status> {
        let (scope, request) = self.open(request, Capability::StorageWrite)?;
        let now_ms = now_ms();
        let operations = operation::operations(request, now_ms).map_err(error::invalid)?;
        let result = match self.write(&scope, &operations, now_ms).await? {
            Ok(changes) => {
                let results = changes.into_iter().map(|change| operation_result(&change, now_ms)).collect();
                transact_response::Result::Committed(wire::Committed { results })
            }
            Err(rejected) => transact_response::Result::Rejected(shown_rejection(&rejected, now_ms)?),
        };
        Ok(Response::new(TransactResponse { result: Some(result) }))
    }
}

/// The store answered what the operation can't lead to.
fn unexpected() -> Status {
    Status::internal("the store gave another result than the operation has")
}

/// The time left until `expires_ms`.
fn left_ms(expires_ms: Option<i64>, now_ms: i64) -> Option<u64> {
    expires_ms.map(|expires_ms| u64::try_from(expires_ms - now_ms).unwrap_or(0))
}

fn shown_entry(entry: DataEntry, now_ms: i64) -> wire::Entry {
    let DataEntry { key, content, version, expires_ms } = entry;
    let content = match content {
        EntryContent::Value(value) => wire::entry::Content::Value(value),
        EntryContent::Counter(counter) => wire::entry::Content::Counter(counter),
    };
    wire::Entry { key, content: Some(content), version, expires_in_ms: left_ms(expires_ms, now_ms) }
}

/// The page of at most `size` entries that `found` begins with.
fn page(mut found: Vec<DataEntry>, size: usize, now_ms: i64) -> ListResponse {
    let mut bytes = 0;
    let by_bytes = found.iter().position(|entry| {
        bytes += entry_bytes(entry);
        bytes >= MAX_PAGE_BYTES
    });
    let kept = by_bytes.map_or(size, |last| size.min(last + 1));
    let is_last = found.len() <= kept;
    found.truncate(kept);
    let next_after = found.last().filter(|_| !is_last).map(|entry| entry.key.clone()).unwrap_or_default();
    let entries = found.into_iter().map(|entry| shown_entry(entry, now_ms)).collect();
    ListResponse { entries, next_after }
}

fn added(counter: i64, version: u64, expires_ms: Option<i64>, now_ms: i64) -> wire::Added {
    wire::Added { counter, version, resets_in_ms: left_ms(expires_ms, now_ms) }
}

fn limit_reached(counter: i64, expires_ms: Option<i64>, now_ms: i64) -> wire::LimitReached {
    wire::LimitReached { counter, resets_in_ms: left_ms(expires_ms, now_ms) }
}

fn operation_result(change: &DataChange, now_ms: i64) -> wire::OperationResult {
    use wire::operation_result::Result;

    let result = match *change {
        DataChange::Written { version } => Result::Written(wire::Written { version }),
        DataChange::Deleted { existed } => Result::Deleted(wire::Deleted { existed }),
        DataChange::Added { counter, version, expires_ms } => {
            Result::Added(added(counter, version, expires_ms, now_ms))
        }
    };
    wire::OperationResult { result: Some(result) }
}

fn shown_rejection(rejected: &RejectedWrite, now_ms: i64) -> Result<wire::Rejected, Status> {
    use wire::rejected::Reason;

    let reason = match rejected.reason {
        RejectedReason::Conflict { version } => Reason::Conflict(wire::Conflict { version }),
        RejectedReason::LimitReached { counter, expires_ms } => {
            Reason::LimitReached(limit_reached(counter, expires_ms, now_ms))
        }
        RejectedReason::NotACounter => return Err(unexpected()),
    };
    let index = u32::try_from(rejected.index).map_err(|_| unexpected())?;
    Ok(wire::Rejected { index, reason: Some(reason) })
}
