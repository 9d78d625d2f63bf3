//! What this binary is as a child process: a plugin, the floor, the bare path, or something that measures
//! itself. Those that are called print their address to standard output and serve until they are killed.

use clap::Subcommand;

use crate::{
    BenchError, bare, ext_proc, llm_floor, llm_provider,
    neighbour::{self, NeighbourLoad},
    payload::Payload,
    plugins, raw,
    scale::{self, Kind},
    stdio_runner, whole,
};

/// What can be started.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// One of the plugins.
    Plugin { name: String, address: String },
    /// A plugin with TLS.
    TlsPlugin { certificate: String, key: String },
    /// The echo plugin for Envoy.
    ExtProc,
    /// The raw server.
    RawServer,
    /// The raw client.
    RawClient { address: String, payload: Payload, concurrency: usize },
    /// The tenant with large texts.
    Neighbour { address: String, load: NeighbourLoad },
    /// The gateway's job without its features.
    Bare { plugins: Vec<String> },
    /// A provider of models.
    LlmProvider,
    /// The LLM proxy's job without its features.
    LlmFloor { provider: String },
    /// A program for the runner, which answers every line at once.
    LineProgram,
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
        let ready = |address: &str| say(address);
        match self {
            Role::Plugin { name, address } => plugins::serve(name, address, ready).await,
            Role::TlsPlugin { certificate, key } => plugins::serve_with_tls(certificate, key, ready).await,
            Role::ExtProc => ext_proc::serve(ready).await,
            Role::RawServer => raw::serve(ready).await,
            Role::RawClient { address, payload, concurrency } => {
                raw::call(address, *payload, *concurrency, ready, say).await
            }
            Role::Neighbour { address, load } => neighbour::call(address, *load, ready).await,
            Role::Bare { plugins } => bare::serve(plugins, ready).await,
            Role::LlmProvider => llm_provider::serve(ready).await,
            Role::LlmFloor { provider } => llm_floor::serve(provider, ready).await,
            Role::LineProgram => Ok(stdio_runner::answer_lines()?),
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
fn say(what: impl std::fmt::Display) {
    println!("{what}");
}
