//! The task that registers the process, renews the lease, and registers again.

use std::{error::Error, path::PathBuf, time::Duration};

use futures::{TryFutureExt as _, TryStreamExt as _, channel::mpsc, stream::BoxStream};
use hookgate_proto::host::v1::{
    RegisterRequest, RegisterResponse, registration_service_client::RegistrationServiceClient,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{Code, Request, Response, Status, body::Body, metadata::AsciiMetadataValue};
use tower::ServiceExt as _;

use super::{backoff::Backoff, resettable_body::ResettableBody};
use crate::host_service::{bearer, dial_with_environment};

/// How long the gateway may take to remove the endpoint at the end.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(1);
/// The renewal's interval, whatever lease the gateway answers.
const MIN_RENEWAL: Duration = Duration::from_millis(50);
const MAX_RENEWAL: Duration = Duration::from_secs(600);

/// A registrar's times; other than the default only in tests.
pub(super) struct Timeouts {
    /// How long the gateway may take to answer a registration or a renewal.
    pub(super) answer: Duration,
    /// When to register again after a refusal, which an operator may repair.
    pub(super) refusal_retry: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts { answer: Duration::from_secs(5), refusal_retry: Duration::from_secs(15) }
    }
}

/// Registers one process.
pub(super) struct Registrar {
    plugin: String,
    endpoint: String,
    gateway: String,
    token_file: PathBuf,
    pub(super) timeouts: Timeouts,
    backoff: Backoff,
    /// What was logged last as the reason why the process isn't registered; `None` while it is.
    failure: Option<String>,
    approval_pending: bool,
}

/// A registrar's task. If it is dropped, the registration ends with its lease.
pub(in crate::serve) struct RunningRegistrar {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl RunningRegistrar {
    /// Removes the endpoint, so that gateways stop calling it. Takes at most 1 s.
    pub(in crate::serve) async fn stop(self) {
        self.stop.cancel();
        let _ = timeout(MAX_CLOSE_TIME, self.task).await;
    }
}

/// Why a process isn't registered.
enum Failure {
    /// The token can't be read or sent.
    Token(String),
    /// The gateway can't be reached, or the stream ended.
    Broken(String),
    /// The gateway refused, so trying again soon is useless.
    Refused(Code, String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // A status that the gateway sent has no source.
        let is_transient = status.source().is_some()
            || matches!(
                status.code(),
                Code::Unavailable
                    | Code::DeadlineExceeded
                    | Code::Cancelled
                    | Code::Aborted
                    | Code::Internal
                    | Code::ResourceExhausted
                    | Code::Unknown
            );
        if is_transient {
            Failure::Broken(with_cause(&status))
        } else {
            Failure::Refused(status.code(), status.message().to_owned())
        }
    }
}

/// What `status` means for a process that `is_registered`: an expired token may have a successor already.
fn after(status: Status, is_registered: bool) -> Failure {
    match Failure::from(status) {
        Failure::Refused(Code::Unauthenticated, message) if is_registered => Failure::Broken(message),
        failure => failure,
    }
}

/// The status's message, and the cause at the end of its sources.
fn with_cause(status: &Status) -> String {
    let mut cause = status.source();
    while let Some(deeper) = cause.and_then(Error::source) {
        cause = Some(deeper);
    }
    let (code, message) = (status.code(), status.message());
    match cause {
        Some(cause) => format!("{message}: {cause}"),
        None => format!("{code:?}: {message}"),
    }
}

/// A stream to one gateway. The endpoint is removed when `renewals` is dropped, and the gateway's answers then end.
struct Session {
    renewals: mpsc::Sender<RegisterRequest>,
    answers: BoxStream<'static, Result<RegisterResponse, Status>>,
    /// Breaks the stream, so that the lease runs on.
    reset: CancellationToken,
}

impl Registrar {
    pub(super) fn new(plugin: String, endpoint: String, gateway: String, token_file: PathBuf) -> Self {
        Registrar {
            plugin,
            endpoint,
            gateway,
            token_file,
            timeouts: Timeouts::default(),
            backoff: Backoff::default(),
            failure: None,
            approval_pending: false,
        }
    }

    pub(super) fn start(mut self) -> RunningRegistrar {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = AbortOnDropHandle::new(tokio::spawn(async move { self.run(&stopped).await }));
        RunningRegistrar { stop, task }
    }

    async fn run(&mut self, stop: &CancellationToken) {
        loop {
            let Err(failure) = self.register(stop).await else { return };
            let wait = match &failure {
                Failure::Token(_) | Failure::Broken(_) => self.backoff.next_wait(),
                Failure::Refused(..) => self.timeouts.refusal_retry,
            };
            self.log_failure(&failure);
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Registers and renews until `stop`, then removes the endpoint.
    ///
    /// # Errors
    /// Why the process isn't registered any more, or was not.
    async fn register(&mut self, stop: &CancellationToken) -> Result<(), Failure> {
        let Some(session) = stop.run_until_cancelled(self.open()).await else { return Ok(()) };
        let Session { mut renewals, mut answers, reset } = session?;
        let answer_time = self.timeouts.answer;
        let mut is_registered = false;
        let mut awaits_answer = true;
        let mut due = Instant::now() + answer_time;
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    drop(renewals);
                    // Until the gateway has removed the endpoint. `RunningRegistrar::stop` limits the wait.
                    while let Ok(Some(_)) = answers.try_next().await {}
                    return Ok(());
                }
                answer = answers.try_next() => {
                    let ended = || Failure::Broken("the gateway ended the stream".to_owned());
                    let answer = answer.map_err(|failure| after(failure, is_registered))?.ok_or_else(ended)?;
                    if is_registered {
                        // Not at the first answer: a gateway that breaks every stream after it isn't usable yet.
                        self.backoff.reset();
                    }
                    self.log_answer(&answer, is_registered);
                    is_registered = true;
                    awaits_answer = false;
                    due = Instant::now() + renewal_interval(&answer);
                }
                () = sleep_until(due) => {
                    if awaits_answer {
                        reset.cancel();
                        return Err(Failure::Broken(format!("no answer within {answer_time:?}")));
                    }
                    // If the stream has broken, its end says so.
                    let _ = renewals.try_send(RegisterRequest::default());
                    awaits_answer = true;
                    due = Instant::now() + answer_time;
                }
            }
        }
    }

    /// Begins a registration over a connection of its own: the previous one may lead to a gateway that ends.
    async fn open(&self) -> Result<Session, Failure> {
        let token = self.read_token().await?;
        let channel = dial_with_environment(&self.gateway);
        let channel = channel.map_err(|error| Failure::Broken(error.to_string()))?;
        let (mut renewals, requests) = mpsc::channel(1);
        let registration = RegisterRequest { plugin: self.plugin.clone(), endpoint: self.endpoint.clone() };
        renewals.try_send(registration).expect("the channel is open and empty");
        let mut request = Request::new(requests);
        request.metadata_mut().insert("authorization", token);
        let reset = CancellationToken::new();
        let body_reset = reset.clone();
        let channel = channel.map_request(move |request: http::Request<Body>| {
            request.map(|body| Body::new(ResettableBody::new(body, body_reset.clone())))
        });
        let mut client = RegistrationServiceClient::new(channel);
        let answers = async move { client.register(request).await.map(Response::into_inner) };
        Ok(Session { renewals, answers: Box::pin(answers.try_flatten_stream()), reset })
    }

    /// The token, as a header.
    async fn read_token(&self) -> Result<AsciiMetadataValue, Failure> {
        let file = self.token_file.display();
        let token = tokio::fs::read_to_string(&self.token_file).await;
        let token =
            token.map_err(|error| Failure::Token(format!("can't read the token in {file}: {error}")))?;
        bearer(token.trim())
            .ok_or_else(|| Failure::Token(format!("{file} has no token that a header can hold")))
    }

    fn log_answer(&mut self, answer: &RegisterResponse, is_renewal: bool) {
        let Registrar { plugin, endpoint, gateway, .. } = self;
        if !is_renewal {
            tracing::info!(plugin, endpoint, gateway, lease_ms = answer.lease_ms, "registered");
            self.failure = None;
        }
        if answer.approval_pending != self.approval_pending {
            self.approval_pending = answer.approval_pending;
            if self.approval_pending {
                tracing::warn!(plugin, gateway, "waits for approval: run `hookgate plugin approve {plugin}`");
            } else {
                tracing::info!(plugin, gateway, "approved");
            }
        }
    }

    /// Logs why the process isn't registered, unless it is logged already.
    fn log_failure(&mut self, failure: &Failure) {
        let Registrar { plugin, endpoint, gateway, .. } = self;
        let (Failure::Token(text) | Failure::Broken(text) | Failure::Refused(_, text)) = failure;
        if self.failure.as_ref() == Some(text) {
            return;
        }
        match failure {
            Failure::Token(error) => tracing::error!(plugin, endpoint, gateway, error, "can't register"),
            Failure::Broken(error) => {
                tracing::warn!(plugin, endpoint, gateway, error, "not registered; trying again");
            }
            Failure::Refused(Code::Unimplemented, _) => tracing::error!(
                plugin,
                endpoint,
                gateway,
                "the address takes no registrations: name that of `server.host_addr` or `server.host_socket`"
            ),
            Failure::Refused(code, error) => {
                tracing::error!(
                    plugin,
                    endpoint,
                    gateway,
                    ?code,
                    error,
                    "the gateway refuses the registration"
                );
            }
        }
        self.failure = Some(text.clone());
    }
}

fn renewal_interval(answer: &RegisterResponse) -> Duration {
    Duration::from_millis(answer.lease_ms / 3).clamp(MIN_RENEWAL, MAX_RENEWAL)
}
