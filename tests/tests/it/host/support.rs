//! A gateway with a database, a plugin that asks for storage, and clients that act for the plugin.

use std::{path::Path, sync::Arc};

use hookgate_proto::{
    host::v1::{
        AddRequest, AddResponse, GetRequest, PutRequest, add_response, entry, put_response,
        storage_service_client::StorageServiceClient,
    },
    types::v1::ExtensionPoint,
};
use hookgate_tests::{
    fake::{Builder, FakePlugin},
    gateway::{Gateway, Setup},
    token::token,
};
use serde_json::json;
use tempfile::TempDir;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

pub(crate) const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
pub(crate) const STORAGE: [&str; 2] = ["storage:read", "storage:write"];

/// A plugin that asks for storage.
pub(crate) fn storing(name: &str) -> Builder {
    let capabilities = STORAGE.map(str::to_owned);
    FakePlugin::named(name).manifest(|manifest| manifest.capabilities = capabilities.to_vec())
}

/// A gateway for two tenants with these plugins, a SQLite file in `folder`, and a host port.
pub(crate) fn setup(folder: &TempDir, plugins: &[&FakePlugin]) -> Setup {
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    stored_at(&url, folder.path(), plugins).set("/server/host_addr", "127.0.0.1:0")
}

/// The same, with another database and no host port.
pub(crate) fn stored_at(url: &str, folder: &Path, plugins: &[&FakePlugin]) -> Setup {
    let setup = Gateway::with().tenant("acme").tenant("globex").store(url, folder);
    plugins.iter().zip(1..).fold(setup, |setup, (plugin, priority)| {
        setup.plugin_with(plugin, &json!({ "grants": STORAGE })).binding(plugin.name(), priority)
    })
}

/// Adds a token to each request.
#[derive(Clone)]
pub(crate) struct BearerToken(MetadataValue<Ascii>);

impl BearerToken {
    pub(crate) fn new(token: &str) -> Self {
        BearerToken(format!("Bearer {token}").parse().unwrap())
    }
}

impl Interceptor for BearerToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

pub(crate) type Client = StorageServiceClient<InterceptedService<Channel, BearerToken>>;

/// Connects to `endpoint` as a plugin does.
pub(crate) async fn dial(endpoint: &str) -> Channel {
    Endpoint::from_shared(endpoint.to_owned()).unwrap().connect().await.unwrap()
}

pub(crate) fn with_token(channel: Channel, token: &str) -> Client {
    StorageServiceClient::with_interceptor(channel, BearerToken::new(token))
}

/// Where a plugin was told that the gateway's services are.
pub(crate) fn endpoint(plugin: &FakePlugin) -> String {
    plugin.initialized().last().expect("it was initialised").host_endpoint.clone()
}

/// The plugin's client for its own data.
pub(crate) async fn of_plugin(plugin: &FakePlugin) -> Client {
    let token = plugin.initialized().last().expect("it was initialised").host_token.clone();
    with_token(dial(&endpoint(plugin)).await, &token)
}

/// The token of a call of `tenant` that reached the plugin.
pub(crate) async fn call_token(gateway: &Gateway, plugin: &FakePlugin, tenant: &str) -> String {
    let answer = gateway.http(&token(tenant)).call(POINT, json!({ "tool_name": "t", "args": {} })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    plugin.seen().last().expect("it was called").call.host_token.clone()
}

/// The plugin's client during a call of `tenant`.
pub(crate) async fn of_tenant(gateway: &Gateway, plugin: &FakePlugin, tenant: &str) -> Client {
    let token = call_token(gateway, plugin, tenant).await;
    with_token(dial(&endpoint(plugin)).await, &token)
}

pub(crate) async fn put(client: &mut Client, key: &str, value: &str) -> Result<u64, Status> {
    let value = value.as_bytes().to_vec().into();
    let request = PutRequest { key: key.into(), value, ..Default::default() };
    match client.put(request).await?.into_inner().result {
        Some(put_response::Result::Written(written)) => Ok(written.version),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn get(client: &mut Client, key: &str) -> Result<Option<String>, Status> {
    let entry = client.get(GetRequest { key: key.into() }).await?.into_inner().entry;
    Ok(entry.map(|entry| match entry.content {
        Some(entry::Content::Value(value)) => String::from_utf8(value.to_vec()).unwrap(),
        Some(entry::Content::Counter(counter)) => counter.to_string(),
        None => panic!("an entry without content"),
    }))
}

/// Adds one. `None` if the limit was reached.
pub(crate) async fn add(client: &mut Client, key: &str, limit: Option<i64>) -> Result<Option<i64>, Status> {
    let request = AddRequest { key: key.into(), delta: 1, limit, window_ms: None };
    let AddResponse { result } = client.add(request).await?.into_inner();
    match result {
        Some(add_response::Result::Added(added)) => Ok(Some(added.counter)),
        Some(add_response::Result::LimitReached(_)) => Ok(None),
        None => panic!("an answer without a result"),
    }
}

/// `clients` add to one counter at the same time until the limit, `calls` in all. Returns how many were added.
pub(crate) async fn add_concurrently(clients: &[Client], calls: usize, limit: i64) -> usize {
    const AT_A_TIME: usize = 64;
    let permits = Arc::new(tokio::sync::Semaphore::new(AT_A_TIME));
    let tasks: Vec<_> = (0..calls)
        .map(|number| {
            let (mut client, permits) = (clients[number % clients.len()].clone(), Arc::clone(&permits));
            tokio::spawn(async move {
                let _permit = permits.acquire_owned().await.unwrap();
                add(&mut client, "quota", Some(limit)).await.unwrap().is_some()
            })
        })
        .collect();
    let mut added = 0;
    for task in tasks {
        added += usize::from(task.await.unwrap());
    }
    added
}
