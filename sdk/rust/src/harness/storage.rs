//! A gateway's storage in memory, for tests of plugins: `hookgate.host.v1` over the generated servers.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hookgate_proto::host::v1::{
    self as wire,
    operation::Operation,
    operation_result::Result as Done,
    rejected::Reason,
    storage_service_server::{StorageService, StorageServiceServer},
    token_service_server::{TokenService, TokenServiceServer},
};
use hookgate_proto::plugin::v1::InitializeRequest;
use tonic::{Request, Response, Status, async_trait, metadata::MetadataMap, service::Routes};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{
    memory::{Memory, Refusal, Scope},
    validation::{WrongField, check_key, check_keys, check_operation, check_operations, check_page_size},
};
use crate::{
    Capability, HostService, Storage,
    context::ForwardedMetadata,
    host_service::{HostLinks, HostServices, bearer},
};

const STORAGE: [Capability; 2] = [Capability::StorageRead, Capability::StorageWrite];
const TOKEN_LIFE_MS: u64 = 24 * 60 * 60 * 1000;

/// A gateway's storage in memory, with the rules of the real one. Clones share their entries.
///
/// Its clock starts at 2026-01-01T00:00:00Z, so at the beginning of a minute and of a day, and runs with tokio's
/// clock. In a test with `#[tokio::test(start_paused = true)]`, `tokio::time::advance` moves it.
#[derive(Clone)]
pub struct TestStorage(Arc<Mutex<State>>);

struct State {
    memory: Memory,
    is_available: bool,
    tokens: HashMap<String, TestToken>,
    issued: u64,
}

/// What a token gives access to.
#[derive(Clone, PartialEq, Eq)]
struct TestToken {
    scope: Scope,
    capabilities: Vec<&'static str>,
}

impl fmt::Debug for TestStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStorage").finish_non_exhaustive()
    }
}

impl Default for TestStorage {
    fn default() -> Self {
        TestStorage::new()
    }
}

impl TestStorage {
    /// A storage without entries and without a quota.
    pub fn new() -> Self {
        let state = State { memory: Memory::new(), is_available: true, tokens: HashMap::new(), issued: 0 };
        TestStorage(Arc::new(Mutex::new(state)))
    }

    /// A storage that takes at most this many bytes of keys and values for a plugin and tenant. A counter counts as 8
    /// bytes.
    #[must_use]
    pub fn with_quota(quota_bytes: u64) -> Self {
        let storage = TestStorage::new();
        storage.state().memory.quota_bytes = Some(quota_bytes);
        storage
    }

    /// Makes the storage unavailable, or available again: every call fails as if the database didn't answer.
    pub fn set_available(&self, is_available: bool) {
        self.state().is_available = is_available;
    }

    /// The gateway's services that have this storage.
    pub fn host_service(&self) -> HostService {
        let routes = Routes::new(StorageServiceServer::new(self.clone()));
        HostService::new(routes.add_service(TokenServiceServer::new(self.clone())).prepare())
    }

    /// A plugin's data, for a test to prepare or to read: for a tenant, or the plugin's own.
    pub(crate) fn storage_of(&self, plugin: &str, tenant: Option<&str>) -> Storage {
        self.storage_with(&self.issue(plugin, tenant, &STORAGE))
    }

    #[cfg(test)]
    fn with_capabilities(&self, capabilities: &[Capability]) -> Storage {
        self.storage_with(&self.issue("p", Some("acme"), capabilities))
    }

    fn storage_with(&self, token: &str) -> Storage {
        let links = Arc::new(HostLinks::default());
        let capabilities = STORAGE.map(|capability| capability.as_str().to_owned()).into();
        let gateway = InitializeRequest { capabilities, ..Default::default() };
        links.add(Arc::new(HostServices::in_process(self.host_service()).link(&gateway)));
        Storage::for_call(links, bearer(token), None, ForwardedMetadata::default())
    }

    /// A token; empty if the plugin has no capability for the storage.
    pub(crate) fn issue(&self, plugin: &str, tenant: Option<&str>, capabilities: &[Capability]) -> String {
        let capabilities = STORAGE.into_iter().filter(|one| capabilities.contains(one));
        let capabilities: Vec<_> = capabilities.map(Capability::as_str).collect();
        if capabilities.is_empty() {
            return String::new();
        }
        let scope = Scope { plugin: plugin.to_owned(), tenant: tenant.map(str::to_owned) };
        self.state().issue(&TestToken { scope, capabilities })
    }

    #[cfg(test)]
    pub(crate) fn revoke(&self, token: &str) {
        self.state().tokens.remove(token);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call of whoever has the capability, while the storage is available.
    fn serve<T>(
        &self,
        metadata: &MetadataMap,
        capability: Capability,
        call: impl FnOnce(&mut Memory, &Scope) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let mut state = self.state();
        let token = state.token(metadata)?;
        if !token.capabilities.contains(&capability.as_str()) {
            return Err(denied(format!("the plugin lacks the capability `{}`", capability.as_str())));
        }
        call(&mut state.memory, &token.scope).map(Response::new)
    }

    fn write<T>(
        &self,
        metadata: &MetadataMap,
        operations: Result<Vec<Operation>, WrongField>,
        answer: impl FnOnce(Result<Vec<Done>, wire::Rejected>) -> T,
    ) -> Result<Response<T>, Status> {
        self.serve(metadata, Capability::StorageWrite, |memory, scope| {
            match memory.write(scope, operations.map_err(invalid)?) {
                Ok(results) => Ok(answer(Ok(results))),
                Err(Refusal::Rejected(rejected)) => Ok(answer(Err(rejected))),
                Err(Refusal::NotACounter(key)) => {
                    Err(Status::failed_precondition(format!("`{key}` holds a value")))
                }
                Err(Refusal::QuotaExceeded) => {
                    Err(Status::resource_exhausted("the plugin's data for the tenant exceeds its quota"))
                }
            }
        })
    }

    fn write_one<T>(
        &self,
        metadata: &MetadataMap,
        operation: Operation,
        answer: impl FnOnce(Result<Done, Reason>) -> Option<T>,
    ) -> Result<Response<T>, Status> {
        let operations = check_operation(&operation).map(|()| vec![operation]);
        let answered = self.write(metadata, operations, |results| match results {
            Ok(mut results) => results.pop().map(Ok).and_then(answer),
            Err(rejected) => rejected.reason.map(Err).and_then(answer),
        })?;
        let result = answered.into_inner().ok_or_else(|| Status::internal("a result of another operation"));
        result.map(Response::new)
    }
}

impl State {
    fn issue(&mut self, token: &TestToken) -> String {
        if let Some((issued, _)) = self.tokens.iter().find(|(_, known)| *known == token) {
            return issued.clone();
        }
        self.issue_another(token)
    }

    fn issue_another(&mut self, token: &TestToken) -> String {
        let issued = format!("test-token-{}", self.issued);
        self.issued += 1;
        self.tokens.insert(issued.clone(), token.clone());
        issued
    }

    fn token(&self, metadata: &MetadataMap) -> Result<TestToken, Status> {
        if !self.is_available {
            return Err(Status::unavailable("the test made the storage unavailable"));
        }
        let header = metadata.get("authorization").and_then(|header| header.to_str().ok());
        let token = header.and_then(|header| self.tokens.get(header.strip_prefix("Bearer ")?));
        token.cloned().ok_or_else(|| denied("no token of this storage"))
    }
}

fn denied(message: impl Into<String>) -> Status {
    Status::permission_denied(message)
}

fn invalid(wrong: WrongField) -> Status {
    let details = ErrorDetails::with_bad_request_violation(wrong.field, wrong.range);
    Status::with_error_details(tonic::Code::InvalidArgument, "a field is outside its range", details)
}

#[async_trait]
impl StorageService for TestStorage {
    async fn get(&self, request: Request<wire::GetRequest>) -> Result<Response<wire::GetResponse>, Status> {
        self.serve(request.metadata(), Capability::StorageRead, |memory, scope| {
            let key = &request.get_ref().key;
            check_key(key).map_err(invalid)?;
            Ok(wire::GetResponse { entry: memory.get(scope, key) })
        })
    }

    async fn get_many(
        &self,
        request: Request<wire::GetManyRequest>,
    ) -> Result<Response<wire::GetManyResponse>, Status> {
        self.serve(request.metadata(), Capability::StorageRead, |memory, scope| {
            let keys = &request.get_ref().keys;
            check_keys(keys).map_err(invalid)?;
            let entries = keys.iter().filter_map(|key| memory.get(scope, key)).collect();
            Ok(wire::GetManyResponse { entries })
        })
    }

    async fn list(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<wire::ListResponse>, Status> {
        self.serve(request.metadata(), Capability::StorageRead, |memory, scope| {
            check_page_size(request.get_ref().page_size).map_err(invalid)?;
            Ok(memory.list(scope, request.get_ref()))
        })
    }

    async fn put(&self, request: Request<wire::PutRequest>) -> Result<Response<wire::PutResponse>, Status> {
        use wire::put_response::Result as PutResult;
        let (metadata, _, put) = request.into_parts();
        self.write_one(&metadata, Operation::Put(put), |result| {
            let result = match result {
                Ok(Done::Written(written)) => Some(PutResult::Written(written)),
                Err(Reason::Conflict(conflict)) => Some(PutResult::Conflict(conflict)),
                _ => None,
            };
            result.map(|result| wire::PutResponse { result: Some(result) })
        })
    }

    async fn delete(
        &self,
        request: Request<wire::DeleteRequest>,
    ) -> Result<Response<wire::DeleteResponse>, Status> {
        use wire::delete_response::Result as DeleteResult;
        let (metadata, _, delete) = request.into_parts();
        self.write_one(&metadata, Operation::Delete(delete), |result| {
            let result = match result {
                Ok(Done::Deleted(deleted)) => Some(DeleteResult::Deleted(deleted)),
                Err(Reason::Conflict(conflict)) => Some(DeleteResult::Conflict(conflict)),
                _ => None,
            };
            result.map(|result| wire::DeleteResponse { result: Some(result) })
        })
    }

    async fn add(&self, request: Request<wire::AddRequest>) -> Result<Response<wire::AddResponse>, Status> {
        use wire::add_response::Result as AddResult;
        let (metadata, _, add) = request.into_parts();
        self.write_one(&metadata, Operation::Add(add), |result| {
            let result = match result {
                Ok(Done::Added(added)) => Some(AddResult::Added(added)),
                Err(Reason::LimitReached(reached)) => Some(AddResult::LimitReached(reached)),
                _ => None,
            };
            result.map(|result| wire::AddResponse { result: Some(result) })
        })
    }

    async fn transact(
        &self,
        request: Request<wire::TransactRequest>,
    ) -> Result<Response<wire::TransactResponse>, Status> {
        use wire::transact_response::Result as TransactResult;
        let (metadata, _, wire::TransactRequest { operations }) = request.into_parts();
        self.write(&metadata, check_operations(operations), |result| {
            let result = match result {
                Ok(results) => {
                    let results = results.into_iter();
                    let results = results.map(|result| wire::OperationResult { result: Some(result) });
                    TransactResult::Committed(wire::Committed { results: results.collect() })
                }
                Err(rejected) => TransactResult::Rejected(rejected),
            };
            wire::TransactResponse { result: Some(result) }
        })
    }
}

#[async_trait]
impl TokenService for TestStorage {
    async fn renew_token(
        &self,
        request: Request<wire::RenewTokenRequest>,
    ) -> Result<Response<wire::RenewTokenResponse>, Status> {
        let mut state = self.state();
        let known = state.token(request.metadata())?;
        let token = state.issue_another(&known);
        Ok(Response::new(wire::RenewTokenResponse { token, expires_in_ms: TOKEN_LIFE_MS }))
    }
}

#[cfg(test)]
mod tests;
