//! A gateway that takes registrations, and the client of a plugin that registers.

use std::time::Duration;

use hookgate_proto::host::v1::{
    RegisterRequest, RegisterResponse, registration_service_client::RegistrationServiceClient,
};
use hookgate_tests::{
    agent::HttpAnswer,
    fake::FakePlugin,
    gateway::{Gateway, Setup},
    token::{Token, token},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use super::super::support::{BearerToken, POINT, dial};

/// The time in which something must have happened.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// A gateway with a SQLite file and the host socket in `folder`, that takes registrations of local endpoints.
pub(super) fn setup(folder: &TempDir) -> Setup {
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    stored_at(&url, folder)
}

/// The same, with another database.
pub(super) fn stored_at(url: &str, folder: &TempDir) -> Setup {
    let setup = Gateway::with().tenant("acme").store(url, folder.path()).admin();
    setup
        .set("/server/host_socket", folder.path().join("host.sock").display().to_string())
        .set("/egress", json!({ "cidrs": ["127.0.0.0/8"] }))
}

/// Adds a plugin of the file whose processes register themselves, for all tenants.
pub(super) fn with_plugin(setup: Setup, plugin: &FakePlugin) -> Setup {
    let members = json!({ "endpoint": null, "self_registration": true });
    setup.plugin_with(plugin, &members).binding(plugin.name(), 10)
}

/// A token with which these plugins register.
pub(super) fn registering(plugins: &[&str]) -> Token {
    let token = Token::for_operators().scopes("hookgate:plugin").claim("sub", "deployer");
    token.claim("plugins", json!(plugins))
}

/// A plugin's registration.
pub(super) struct Registration {
    pub(super) messages: mpsc::UnboundedSender<RegisterRequest>,
    answers: Streaming<RegisterResponse>,
}

impl Registration {
    /// Opens a stream to the gateway whose host socket is in `folder`.
    pub(super) async fn open(folder: &TempDir, token: &Token) -> Result<Self, Status> {
        let socket = format!("unix://{}", folder.path().join("host.sock").display());
        let bearer = BearerToken::new(&token.mint());
        let mut client = RegistrationServiceClient::with_interceptor(dial(&socket).await, bearer);
        let (messages, outgoing) = mpsc::unbounded_channel();
        let answers = client.register(UnboundedReceiverStream::new(outgoing)).await?.into_inner();
        Ok(Registration { messages, answers })
    }

    /// Registers `endpoint` with the gateway whose host socket is in `folder`.
    pub(super) async fn begin(
        folder: &TempDir,
        token: &Token,
        plugin: &str,
        endpoint: &str,
    ) -> Result<(Self, RegisterResponse), Status> {
        let mut registration = Registration::open(folder, token).await?;
        let first = RegisterRequest { plugin: plugin.into(), endpoint: endpoint.into() };
        registration.messages.send(first).unwrap();
        let answer = registration.answer().await?.expect("a registration is answered");
        Ok((registration, answer))
    }

    /// The next answer; `None` if the gateway ended the stream.
    pub(super) async fn answer(&mut self) -> Result<Option<RegisterResponse>, Status> {
        tokio::time::timeout(SOON, self.answers.message()).await.expect("it is answered soon")
    }

    pub(super) async fn renew(&mut self) -> Result<RegisterResponse, Status> {
        // More often, renewals are not written.
        sleep(Duration::from_millis(1100)).await;
        self.messages.send(RegisterRequest::default()).unwrap();
        Ok(self.answer().await?.expect("a renewal is answered"))
    }

    /// Closes the stream, and waits until the gateway has ended it.
    pub(super) async fn close(self) {
        let Registration { messages, mut answers } = self;
        drop(messages);
        let ended = tokio::time::timeout(SOON, answers.message()).await.expect("it ends soon");
        assert!(ended.unwrap().is_none());
    }
}

/// Registers the plugin's own endpoint.
pub(super) async fn register(folder: &TempDir, plugin: &FakePlugin) -> Registration {
    let token = registering(&[plugin.name()]);
    Registration::begin(folder, &token, plugin.name(), &plugin.endpoint()).await.unwrap().0
}

pub(super) async fn call(gateway: &Gateway) -> HttpAnswer {
    gateway.http(&token("acme")).call(POINT, json!({ "tool_name": "t", "args": {} })).await
}

/// Calls until the answer has this status.
pub(super) async fn call_until(gateway: &Gateway, status: u16, within: Duration) -> HttpAnswer {
    let end = Instant::now() + within;
    loop {
        let answer = call(gateway).await;
        if answer.status == status {
            return answer;
        }
        assert!(Instant::now() < end, "{answer:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for an event of the gateway.
pub(super) async fn event(gateway: &Gateway, name: &str) -> Value {
    let line = gateway.log().wait_for(|line| line.field("event") == Some(&json!(name))).await;
    serde_json::from_str(&line.text).unwrap()
}
