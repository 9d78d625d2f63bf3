//! A gateway with a registry, and commands that use its admin socket without a token.

use hookgate_tests::gateway::{Gateway, Setup};
use serde_json::Value;

use crate::{
    cli::{
        session::Terminal,
        support::{CommandOutput, Folder},
    },
    registry::support::file_with,
};

/// A gateway, and a folder for commands.
pub(crate) struct Desk {
    pub(crate) gateway: Gateway,
    pub(crate) folder: Folder,
    address: String,
}

impl Desk {
    /// Its file has the tenant `acme` and the built-in `content-policy` for all at priority 10.
    pub(crate) async fn new() -> Self {
        Desk::of(file_with("acme")).await
    }

    /// With this file.
    pub(crate) async fn of(setup: Setup) -> Self {
        let folder = Folder::new();
        let place = folder.0.path();
        let url = format!("sqlite:{}", place.join("hookgate.db").display());
        let socket = place.join("admin.sock").display().to_string();
        let sockets = std::env::temp_dir().display().to_string();
        let egress = serde_json::json!({ "cidrs": ["127.0.0.0/8"], "socket_dirs": [sockets] });
        let setup = setup.store(&url, place).set("/egress", egress);
        let setup = setup.set("/server/admin_socket", socket.as_str());
        let gateway = setup.start().await;
        Desk { gateway, folder, address: format!("unix://{socket}") }
    }

    /// Runs `hookgate` to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        self.folder.run_with(args, &[("HOOKGATE_ADMIN_ADDR", &self.address)], "").await
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) async fn does(&self, args: &[&str]) -> String {
        let ran = self.run(args).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}: {ran:?}");
        ran.stdout
    }

    /// Like [`Self::does`], with JSON output.
    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--output", "json"]].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}: {ran:?}");
        ran.json()
    }

    /// Runs a command that must end with `code` and print `said`.
    pub(crate) async fn fails(&self, args: &[&str], code: i32, said: &str) {
        let ran = self.run(args).await;
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(
            ran.stderr.contains(said) && !ran.stderr.contains("panicked"),
            "{args:?}: no `{said}` in {ran:?}"
        );
    }

    /// A terminal in which a command line runs.
    pub(crate) async fn terminal(&self, line: &str) -> Terminal {
        let mut terminal = Terminal::open(self.folder.0.path()).await;
        terminal.does(&format!("export HOOKGATE_ADMIN_ADDR={}", self.address)).await;
        terminal.starts(line).await;
        terminal
    }

    /// The current revision.
    pub(crate) async fn head(&self) -> u64 {
        self.json(&["revision", "list", "--limit", "1"]).await["revisions"][0]["number"]
            .as_u64()
            .expect("there is one")
    }
}
