//! The processes that are called: the gateway, no-op plugins, and a raw tonic service with the gateway's
//! messages.
//!
//! Each prints its address to standard output and serves until it is killed.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use hookgate::{app::App, config, telemetry::Telemetry};
use hookgate_proto::gateway::v1::{
    self as wire,
    extension_point_service_server::{ExtensionPointService, ExtensionPointServiceServer},
};
use hookgate_sdk::{Host, InitError, NoConfig, Offer, Plugin, Point, Server};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

use crate::{
    BenchError,
    scale::{self, Kind},
    whole,
};

/// What can be started.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// A gateway.
    Gateway { config: PathBuf },
    /// One of the plugins.
    Plugin { number: usize, address: String },
    /// A raw service.
    Raw { address: String },
    /// One that measures itself with a routing table.
    Scale {
        kind: Kind,
        tenants: usize,
        #[arg(long, value_name = "SECONDS")]
        calls: Option<f64>,
    },
    /// One that measures itself with a registry.
    Whole { tenants: usize, seconds: f64 },
}

impl Role {
    pub(crate) async fn run(&self) -> Result<(), BenchError> {
        match self {
            Role::Gateway { config } => gateway(config).await,
            Role::Plugin { number, address } => plugin(*number, address, |address| say(address)).await,
            Role::Raw { address } => raw(address).await,
            Role::Scale { kind, tenants, calls } => {
                say(scale::measure(*kind, *tenants, *calls).await?);
                Ok(())
            }
            Role::Whole { tenants, seconds } => {
                say(whole::measure(*tenants, *seconds).await?);
                Ok(())
            }
        }
    }
}

#[allow(clippy::print_stdout)] // this is how the process that measures finds it
fn say(address: impl std::fmt::Display) {
    println!("{address}");
}

async fn gateway(config: &Path) -> Result<(), BenchError> {
    let loaded = config::load(config, []).map_err(|problems| problems.to_string())?;
    // With metrics and traces, as in production.
    let telemetry = Telemetry::start(&loaded.config)?;
    let app = App::build(loaded, telemetry).map_err(|problems| problems.to_string())?;
    let running = app.bind().await?.start().await?;
    say(format_args!("http://{}", running.data_addr()));
    running.until(std::future::pending).await;
    Ok(())
}

pub(crate) const PLUGIN_NAMES: [&str; 5] = ["noop-0", "noop-1", "noop-2", "noop-3", "noop-4"];

/// A tenant-level configuration, which the plugin ignores.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct TenantSettings {
    limit: u64,
    owner: String,
}

/// Answers "continue" to every tool call.
struct NoopPlugin<const N: usize>;

impl<const N: usize> Plugin for NoopPlugin<N> {
    const NAME: &'static str = PLUGIN_NAMES[N];
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = NoConfig;
    type TenantConfig = TenantSettings;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(NoopPlugin)
    }
}

/// Serves the plugin at this index of [`PLUGIN_NAMES`]. `ready` is called with its address.
pub(crate) async fn plugin(number: usize, address: &str, ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    match number {
        0 => serve::<0>(address, ready).await,
        1 => serve::<1>(address, ready).await,
        2 => serve::<2>(address, ready).await,
        3 => serve::<3>(address, ready).await,
        _ => serve::<4>(address, ready).await,
    }
}

async fn serve<const N: usize>(address: &str, ready: impl FnOnce(&str)) -> Result<(), BenchError> {
    let server = Server::<NoopPlugin<N>>::bind(address).await?;
    ready(&server.address().to_string());
    Ok(server.run(std::future::pending()).await?)
}

/// A minimal service with the gateway's messages, which returns the payload unchanged.
struct Raw;

#[tonic::async_trait]
impl ExtensionPointService for Raw {
    async fn before_llm_request(
        &self,
        _: Request<wire::BeforeLlmRequestRequest>,
    ) -> Result<Response<wire::BeforeLlmRequestResponse>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn before_tool_call(
        &self,
        request: Request<wire::BeforeToolCallRequest>,
    ) -> Result<Response<wire::BeforeToolCallResponse>, Status> {
        let payload = request.into_inner().payload;
        let decision = hookgate_proto::types::v1::Decision::Continue.into();
        Ok(Response::new(wire::BeforeToolCallResponse { decision, payload, ..Default::default() }))
    }

    async fn after_tool_result(
        &self,
        _: Request<wire::AfterToolResultRequest>,
    ) -> Result<Response<wire::AfterToolResultResponse>, Status> {
        Err(Status::unimplemented("not measured"))
    }

    async fn before_response(
        &self,
        _: Request<wire::BeforeResponseRequest>,
    ) -> Result<Response<wire::BeforeResponseResponse>, Status> {
        Err(Status::unimplemented("not measured"))
    }
}

async fn raw(address: &str) -> Result<(), BenchError> {
    let router = tonic::transport::Server::builder().add_service(ExtensionPointServiceServer::new(Raw));
    if let Some(path) = address.strip_prefix("unix://") {
        let listener = UnixListener::bind(path)?;
        say(address);
        router.serve_with_incoming(UnixListenerStream::new(listener)).await?;
    } else {
        let listener = TcpListener::bind(address.trim_start_matches("http://")).await?;
        say(format_args!("http://{}", listener.local_addr()?));
        router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))).await?;
    }
    Ok(())
}
