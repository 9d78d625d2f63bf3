//! A gateway's services in memory, for tests of plugins: `hookgate.host.v1` over the generated servers.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hookgate_proto::host::v1::{
    self as wire,
    event_service_server::EventServiceServer,
    log_service_server::LogServiceServer,
    operation::Operation,
    operation_result::Result as Done,
    rejected::Reason,
    storage_service_server::{StorageService, StorageServiceServer},
    token_service_server::{TokenService, TokenServiceServer},
};
use hookgate_proto::plugin::v1::InitializeRequest;
use tokio::sync::watch;
use tonic::{Request, Response, Status, async_trait, metadata::MetadataMap, service::Routes};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{
    memory::{Memory, Refusal, Scope},
    records::{TestEvent, TestLogLine},
    validation::{check_key, check_keys, check_operation, check_operations, check_page_size},
};
use crate::{
    Capability, HostService, Storage,
    context::ForwardedMetadata,
    host_service::{HostClient, HostLinks, HostServices, bearer},
    record_rules::WrongField,
};

const STORAGE: [Capability; 2] = [Capability::StorageRead, Capability::StorageWrite];
const TOKEN_LIFE_MS: u64 = 24 * 60 * 60 * 1000;

/// A gateway's services in memory: a storage with the rules of the real one, and a log and events without limits per
/// second. Clones share what they keep.
///
/// Its clock starts at 2026-01-01T00:00:00Z, so at the beginning of a minute and of a day, and runs with tokio's
/// clock. In a test with `#[tokio::test(start_paused = true)]`, `tokio::time::advance` moves it.
#[derive(Clone)]
pub struct TestHost {
    state: Arc<Mutex<State>>,
    /// How many lines the log has.
    pub(super) written: Arc<watch::Sender<usize>>,
}

pub(super) struct State {
    memory: Memory,
    is_available: bool,
    tokens: HashMap<String, TestToken>,
    issued: u64,
    pub(super) log_lines: Vec<TestLogLine>,
    pub(super) events: Vec<TestEvent>,
}

/// What a token gives access to.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TestToken {
    pub(super) scope: Scope,
    capabilities: Vec<Capability>,
}

impl fmt::Debug for TestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHost").finish_non_exhaustive()
    }
}

impl Default for TestHost {
    fn default() -> Self {
        TestHost::new()
    }
}

impl TestHost {
    /// Services whose storage has no entries and no quota.
    pub fn new() -> Self {
        let state = State {
            memory: Memory::new(),
            is_available: true,
            tokens: HashMap::new(),
            issued: 0,
            log_lines: Vec::new(),
            events: Vec::new(),
        };
        TestHost { state: Arc::new(Mutex::new(state)), written: Arc::new(watch::Sender::new(0)) }
    }

    /// Services whose storage takes at most this many bytes of keys and values for a plugin and tenant. A counter counts as 8
    /// bytes.
    #[must_use]
    pub fn with_quota(quota_bytes: u64) -> Self {
        let host = TestHost::new();
        host.state().memory.quota_bytes = Some(quota_bytes);
        host
    }

    /// Makes the services unavailable, or available again: every call fails as if the database didn't answer.
    pub fn set_available(&self, is_available: bool) {
        self.state().is_available = is_available;
    }

    /// The services, for a plugin.
    pub fn host_service(&self) -> HostService {
        let routes = Routes::new(StorageServiceServer::new(self.clone()))
            .add_service(LogServiceServer::new(self.clone()))
            .add_service(EventServiceServer::new(self.clone()))
            .add_service(TokenServiceServer::new(self.clone()));
        HostService::new(routes.prepare())
    }

    /// A plugin's data, for a test to prepare or to read: for a tenant, or the plugin's own.
    pub(crate) fn storage_of(&self, plugin: &str, tenant: Option<&str>) -> Storage {
        Storage::new(self.client_of(plugin, tenant, &STORAGE))
    }

    /// Calls these services with these capabilities.
    pub(crate) fn client_of(
        &self,
        plugin: &str,
        tenant: Option<&str>,
        capabilities: &[Capability],
    ) -> HostClient {
        let links = Arc::new(HostLinks::default());
        let granted = capabilities.iter().map(|capability| capability.as_str().to_owned()).collect();
        let gateway = InitializeRequest { capabilities: granted, ..Default::default() };
        links.add(Arc::new(HostServices::in_process(self.host_service()).link(&gateway)));
        let token = bearer(&self.issue(plugin, tenant, capabilities));
        HostClient::for_call(links, token, None, ForwardedMetadata::default())
    }

    /// A token; empty if the plugin has no capability.
    pub(crate) fn issue(&self, plugin: &str, tenant: Option<&str>, capabilities: &[Capability]) -> String {
        if capabilities.is_empty() {
            return String::new();
        }
        let scope = Scope { plugin: plugin.to_owned(), tenant: tenant.map(str::to_owned) };
        self.state().issue(&TestToken { scope, capabilities: capabilities.to_vec() })
    }

    #[cfg(test)]
    pub(crate) fn revoke(&self, token: &str) {
        self.state().tokens.remove(token);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call of whoever has the capability, while the storage is available.
    fn serve<T>(
        &self,
        metadata: &MetadataMap,
        capability: Capability,
        call: impl FnOnce(&mut Memory, &Scope) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let mut state = self.state();
        let token = state.permitted(metadata, capability)?;
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

    /// The token of a request, if it permits calls that need the capability.
    pub(super) fn permitted(
        &self,
        metadata: &MetadataMap,
        capability: Capability,
    ) -> Result<TestToken, Status> {
        let token = self.token(metadata)?;
        if token.capabilities.contains(&capability) {
            return Ok(token);
        }
        Err(denied(format!("the plugin lacks the capability `{}`", capability.as_str())))
    }

    fn token(&self, metadata: &MetadataMap) -> Result<TestToken, Status> {
        if !self.is_available {
            return Err(Status::unavailable("the test made the services unavailable"));
        }
        let header = metadata.get("authorization").and_then(|header| header.to_str().ok());
        let token = header.and_then(|header| self.tokens.get(header.strip_prefix("Bearer ")?));
        token.cloned().ok_or_else(|| denied("no token of these services"))
    }
}

fn denied(message: impl Into<String>) -> Status {
    Status::permission_denied(message)
}

pub(super) fn invalid(wrong: WrongField) -> Status {
    let details = ErrorDetails::with_bad_request_violation(wrong.field, wrong.range);
    Status::with_error_details(tonic::Code::InvalidArgument, "a field is outside its range", details)
}

#[async_trait]
impl StorageService for TestHost {
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
impl TokenService for TestHost {
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
