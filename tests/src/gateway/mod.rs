//! The gateway as a child process: its configuration file, log, ports and exit.

mod binary;
mod log;
mod process;
mod setup;

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use self::process::Process;
pub use self::{
    binary::path as binary,
    log::{Line, Log},
    process::ProcessExit,
    setup::Setup,
};
use crate::{
    agent::{GrpcAgent, HttpAgent},
    openapi::Port,
};

/// The timeout of all waits. A drain ends within 29 s, so nothing correct takes longer.
const PATIENCE: Duration = Duration::from_secs(35);

/// A running gateway. On drop, it is told to stop, and killed if it doesn't.
#[derive(Debug)]
pub struct Gateway {
    process: Process,
    data: SocketAddr,
    ops: SocketAddr,
    admin: Option<SocketAddr>,
    directory: TempDir,
}

impl Gateway {
    /// A gateway that is not started yet; see [`Setup`].
    pub fn with() -> Setup {
        Setup::new()
    }

    /// Waits until it logs its addresses.
    async fn listening(process: Process, directory: TempDir) -> Self {
        let line = process.log().wait_for(|line| line.message() == Some("listening")).await;
        let address = |name| -> Option<SocketAddr> {
            let text = line.field(name)?.as_str()?;
            Some(text.parse().unwrap_or_else(|error| panic!("`{name}` of {line:?}: {error}")))
        };
        let (data, ops) = address("data_addr").zip(address("ops_addr")).expect("two ports are always open");
        Gateway { data, ops, admin: address("admin_addr"), process, directory }
    }

    /// The address for agents.
    pub fn data_addr(&self) -> SocketAddr {
        self.data
    }

    /// The address for probes and people.
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops
    }

    /// The address of the admin port, if it is open.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The admin port, with this token.
    ///
    /// # Panics
    /// If it isn't open.
    pub fn admin(&self, token: &str) -> HttpAgent {
        HttpAgent::new(self.admin.expect("the admin port is open")).of(Port::Admin).with_token(token)
    }

    /// The id of its process, valid while that runs.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it logged so far, and will.
    pub fn log(&self) -> &Log {
        self.process.log()
    }

    /// An agent that calls it over HTTP with this token.
    pub fn http(&self, token: &str) -> HttpAgent {
        HttpAgent::new(self.data).with_token(token)
    }

    /// An agent that calls it over HTTP without a token.
    pub fn http_without_token(&self) -> HttpAgent {
        HttpAgent::new(self.data)
    }

    /// The ops port.
    pub fn ops(&self) -> HttpAgent {
        HttpAgent::new(self.ops).of(Port::Ops)
    }

    /// An agent that calls it over gRPC with this token.
    pub async fn grpc(&self, token: &str) -> GrpcAgent {
        GrpcAgent::dial(self.data, Some(token)).await
    }

    /// An agent that calls it over gRPC without a token.
    pub async fn grpc_without_token(&self) -> GrpcAgent {
        GrpcAgent::dial(self.data, None).await
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// If it doesn't within 35 s, or the gateway ends.
    pub async fn wait_until_ready(&self) {
        let ops = self.ops();
        let ready = async {
            // Polling is the only way to learn of readiness.
            while !ops.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
                assert!(self.process.exit().is_none(), "the gateway ended:\n{}", self.log());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, ready).await;
        assert!(in_time.is_ok(), "not ready within {PATIENCE:?}:\n{}", self.log());
    }

    /// Its configuration file.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join(setup::FILE)
    }

    /// Replaces its configuration file atomically, because the file may be read at any moment, and sends
    /// SIGHUP.
    pub fn reload(&self, setup: &Setup) {
        let beside = self.file().with_extension("next");
        fs::write(&beside, setup.text()).expect("the directory is ours to write");
        fs::rename(beside, self.file()).expect("the directory is ours to write");
        self.hang_up();
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.process.signal("HUP");
    }

    /// Waits until its routing table of this revision is active.
    pub async fn wait_for_revision(&self, revision: u64) {
        let is_it = |line: &Line| {
            line.field("event").is_some_and(|event| event == "table.published")
                && line.field("revision").and_then(Value::as_u64) == Some(revision)
        };
        self.log().wait_for(is_it).await;
    }

    /// Sends SIGTERM without waiting.
    pub fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Waits for its end.
    pub async fn exited(&self) -> ProcessExit {
        self.process.exited().await
    }

    /// Waits for its end only, and returns its exit code. The log need not be read.
    pub async fn ended(&self) -> Option<i32> {
        self.process.ended().await
    }

    /// Sends SIGTERM and waits for its end.
    pub async fn stop(&self) -> ProcessExit {
        self.terminate();
        self.exited().await
    }

    /// Kills it, like a crash.
    pub async fn kill(&self) -> ProcessExit {
        self.process.signal("KILL");
        self.exited().await
    }
}
