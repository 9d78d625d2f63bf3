use std::time::Duration;

use crate::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Capability, Context, Host, InitError, NoConfig,
    Offer, Plugin, Point, Reply, StatusCode, Storage,
    harness::{TestHost, TestPlugin},
    storage::TransactResult,
};

/// Acts as the tool's name says.
struct Counter {
    own: Storage,
}

impl Plugin for Counter {
    const NAME: &'static str = "counter";
    const VERSION: &'static str = "1.0.0";
    const CAPABILITIES: &'static [Capability] = &[Capability::StorageRead, Capability::StorageWrite];
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read().with_side_effects()]
    }

    async fn initialize(_: NoConfig, host: Host) -> Result<Self, InitError> {
        let _ = host.storage().add("starts", 1).await?;
        Ok(Counter { own: host.storage() })
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        if call.tool_name == "own" {
            let _ = self.own.add("calls", 1).await?;
            return Ok(Reply::proceed());
        }
        let calls = ctx.storage().add("calls", 1).limit(2).window(Duration::from_secs(60)).await?;
        if calls.is_added() { Ok(Reply::proceed()) } else { Ok(Reply::cancel("FULL", "no more calls")) }
    }

    async fn shutdown(&self) {
        self.own.put("flushed", "").await.expect("the storage can be used until the end");
    }
}

/// Uses the storage without a capability for it.
struct Unentitled;

impl Plugin for Unentitled {
    const NAME: &'static str = "unentitled";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Unentitled)
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        _: &NoConfig,
        _: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        ctx.storage().get("k").await?;
        Ok(Reply::proceed())
    }
}

async fn call<P: Plugin>(plugin: &TestPlugin<P>, tool: &str) -> Result<bool, StatusCode> {
    let call = BeforeToolCallPayload { tool_name: tool.to_owned(), ..Default::default() };
    let reply = plugin.before_tool_call(call).await.map_err(|status| status.code())?;
    Ok(reply.cancelled().is_none())
}

#[tokio::test(start_paused = true)]
async fn replicas_share_a_limit_and_tenants_do_not() {
    let storage = TestHost::new();
    let one = TestPlugin::<Counter>::start_with_host(&NoConfig {}, &storage).await.unwrap();
    let two = TestPlugin::<Counter>::start_with_host(&NoConfig {}, &storage).await.unwrap();
    assert!(call(&one, "t").await.unwrap() && call(&two, "t").await.unwrap());
    assert!(!call(&one, "t").await.unwrap() && !call(&two, "t").await.unwrap());
    assert!(call(&two.with_tenant("other"), "t").await.unwrap());
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(call(&one, "t").await.unwrap());
    assert_eq!(one.storage().get("calls").await.unwrap().unwrap().counter(), Some(1));
}

#[tokio::test]
async fn a_plugins_own_data_is_apart_and_can_be_written_until_the_end() {
    let plugin = TestPlugin::<Counter>::start(&NoConfig {}).await.unwrap();
    call(&plugin, "own").await.unwrap();
    assert_eq!(plugin.storage().list("", 10).await.unwrap(), []);
    let own = plugin.plugin_storage();
    plugin.shutdown().await.unwrap();
    let keys: Vec<_> = own.list("", 10).await.unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["calls", "flushed", "starts"]);
}

#[tokio::test]
async fn an_unavailable_storage_fails_calls_and_starts_as_unavailable() {
    let plugin = TestPlugin::<Counter>::start(&NoConfig {}).await.unwrap();
    plugin.test_host().set_available(false);
    assert_eq!(call(&plugin, "t").await, Err(StatusCode::Unavailable));
    let start = TestPlugin::<Counter>::start_with_host(&NoConfig {}, plugin.test_host()).await;
    assert_eq!(start.err().map(|status| status.code()), Some(StatusCode::Unavailable));
}

#[tokio::test]
async fn a_plugin_without_the_capability_has_no_storage() {
    let plugin = TestPlugin::<Unentitled>::start(&NoConfig {}).await.unwrap();
    let call = BeforeToolCallPayload { tool_name: "t".to_owned(), ..Default::default() };
    let status = plugin.before_tool_call(call).await.unwrap_err();
    assert!(status.message().contains("in the plugin's CAPABILITIES"), "{}", status.message());
}

#[tokio::test]
async fn a_capability_permits_its_own_methods_only() {
    let storage = TestHost::new();
    let with = |capability| Storage::new(storage.client_of("p", Some("acme"), &[capability]));
    let reader = with(Capability::StorageRead);
    let writer = with(Capability::StorageWrite);
    assert!(reader.get("k").await.is_ok() && reader.list_page("", "").await.is_ok());
    assert!(writer.put("k", "").await.is_ok());
    let removal = writer.transact([crate::storage::Delete::new("k").into()]).await;
    assert!(matches!(removal, Ok(TransactResult::Committed(_))));
    let denied = writer.get("k").await.unwrap_err();
    assert!(denied.to_string().ends_with("the plugin lacks the capability `storage:read`"), "{denied}");
    assert!(reader.add("k", 1).await.unwrap_err().to_string().contains("`storage:write`"));
}
