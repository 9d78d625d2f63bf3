//! The plugins that are called, written with the Rust SDK like a user's.

use std::time::Duration;

use hookgate_sdk::{
    Answer, BeforeToolCallPatch, BeforeToolCallPayload, Context, HookOffer, HookPayload, HookReply, Host,
    InitError, NoConfig, Offer, Plugin, PluginError, Point, Reply, Server,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::net::TcpListener;
use tonic::transport::{Identity, ServerTlsConfig, server::TcpIncoming};

use crate::{
    BenchError,
    host_add::{ADD_NAME, AddPlugin},
    host_traffic::{TRAFFIC_NAME, TrafficPlugin},
    payload,
};

pub(crate) const ECHO_NAMES: [&str; 10] =
    ["echo-0", "echo-1", "echo-2", "echo-3", "echo-4", "echo-5", "echo-6", "echo-7", "echo-8", "echo-9"];
pub(crate) const WAIT_NAMES: [&str; 10] =
    ["wait-0", "wait-1", "wait-2", "wait-3", "wait-4", "wait-5", "wait-6", "wait-7", "wait-8", "wait-9"];
pub(crate) const PATCH_NAME: &str = "patch";
pub(crate) const WINDOWS_NAME: &str = "windows";
/// How long a waiting plugin waits.
const WAIT: Duration = Duration::from_millis(5);

/// A tenant-level configuration, which the plugins ignore.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TenantSettings {
    limit: u64,
    owner: String,
}

/// Answers "continue". It may change payloads, so the gateway has to run several of them one after another.
struct EchoPlugin<const N: usize>;

impl<const N: usize> Plugin for EchoPlugin<N> {
    const NAME: &'static str = ECHO_NAMES[N];
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = TenantSettings;

    fn points() -> Vec<Offer> {
        Point::ALL.into_iter().map(Point::modify).collect()
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(EchoPlugin)
    }
}

/// Answers "continue" to every window of an answer.
struct WindowsPlugin;

impl Plugin for WindowsPlugin {
    const NAME: &'static str = WINDOWS_NAME;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeResponse.modify().in_windows()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(WindowsPlugin)
    }
}

/// Replaces the arguments of every tool call by others of the same size.
struct PatchPlugin(Box<RawValue>);

impl Plugin for PatchPlugin {
    const NAME: &'static str = PATCH_NAME;
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.modify()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        let replaced = payload::arguments(payload::SMALL_BYTES);
        let replaced = String::from_utf8_lossy(&replaced).replace("EMEA", "APAC");
        let replaced = RawValue::from_string(replaced);
        replaced.map(PatchPlugin).map_err(|error| InitError::unavailable(error.to_string()))
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        _: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        Reply::proceed().args(&self.0)
    }
}

/// Waits before it answers "continue", or at a hook with one contribution. It only reads and has no side effects,
/// so nothing prevents the gateway from running several of them at the same time.
struct WaitPlugin<const N: usize>;

impl<const N: usize> Plugin for WaitPlugin<N> {
    const NAME: &'static str = WAIT_NAMES[N];
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    fn hooks() -> Vec<HookOffer> {
        vec![HookOffer::new(payload::HOOK)]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(WaitPlugin)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        _: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        tokio::time::sleep(WAIT).await;
        Ok(Reply::proceed())
    }

    async fn on_hook(&self, _: &Context, _: &NoConfig, _: HookPayload) -> Result<HookReply, PluginError> {
        tokio::time::sleep(WAIT).await;
        HookReply::none().contribute("memory", &json!({ "content": "The fiscal year begins in April." }))
    }
}

/// Serves the plugin of this name. `ready` is called with its address.
pub(crate) async fn serve(name: &str, address: &str, ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    match name {
        "echo-0" => run::<EchoPlugin<0>>(address, ready).await,
        "echo-1" => run::<EchoPlugin<1>>(address, ready).await,
        "echo-2" => run::<EchoPlugin<2>>(address, ready).await,
        "echo-3" => run::<EchoPlugin<3>>(address, ready).await,
        "echo-4" => run::<EchoPlugin<4>>(address, ready).await,
        "echo-5" => run::<EchoPlugin<5>>(address, ready).await,
        "echo-6" => run::<EchoPlugin<6>>(address, ready).await,
        "echo-7" => run::<EchoPlugin<7>>(address, ready).await,
        "echo-8" => run::<EchoPlugin<8>>(address, ready).await,
        "echo-9" => run::<EchoPlugin<9>>(address, ready).await,
        "wait-0" => run::<WaitPlugin<0>>(address, ready).await,
        "wait-1" => run::<WaitPlugin<1>>(address, ready).await,
        "wait-2" => run::<WaitPlugin<2>>(address, ready).await,
        "wait-3" => run::<WaitPlugin<3>>(address, ready).await,
        "wait-4" => run::<WaitPlugin<4>>(address, ready).await,
        "wait-5" => run::<WaitPlugin<5>>(address, ready).await,
        "wait-6" => run::<WaitPlugin<6>>(address, ready).await,
        "wait-7" => run::<WaitPlugin<7>>(address, ready).await,
        "wait-8" => run::<WaitPlugin<8>>(address, ready).await,
        "wait-9" => run::<WaitPlugin<9>>(address, ready).await,
        PATCH_NAME => run::<PatchPlugin>(address, ready).await,
        WINDOWS_NAME => run::<WindowsPlugin>(address, ready).await,
        ADD_NAME => run::<AddPlugin>(address, ready).await,
        TRAFFIC_NAME => run::<TrafficPlugin>(address, ready).await,
        _ => Err(format!("there is no plugin `{name}`").into()),
    }
}

async fn run<P: Plugin>(address: &str, ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    let server = Server::bind(address).await?.with_plugin::<P>();
    ready(&server.address().to_string());
    Ok(server.run(std::future::pending()).await?)
}

/// Serves the first echo plugin with TLS on a free port. The SDK leaves TLS to what is in front of a plugin.
pub(crate) async fn serve_with_tls(
    certificate: &str,
    key: &str,
    ready: impl FnOnce(&str),
) -> Result<(), BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let identity = Identity::from_pem(std::fs::read(certificate)?, std::fs::read(key)?);
    let router = tonic::transport::Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))?
        .add_service(hookgate_sdk::service::<EchoPlugin<0>>());
    ready(&format!("https://{}", listener.local_addr()?));
    Ok(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?)
}
