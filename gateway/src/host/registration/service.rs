//! RegistrationService: one stream for each registered endpoint.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, stream, stream::BoxStream};
use hookgate_proto::host::v1::{
    RegisterRequest, RegisterResponse, registration_service_server::RegistrationService,
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};
use tonic::{Request, Response, Status, Streaming, async_trait};
use uuid::Uuid;

use super::{LEASE, LeaseKey, PluginRegistrar, error};
use crate::{auth::VerifiedToken, host::error as host_error, host::error::FieldViolation};

/// Renewals that come sooner after the last one are answered and not written.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a new stream may say nothing.
const MAX_FIRST_MESSAGE_WAIT: Duration = Duration::from_secs(5);

pub(super) struct RegistrationServer(Arc<PluginRegistrar>);

impl RegistrationServer {
    pub(super) fn new(registrar: Arc<PluginRegistrar>) -> Self {
        RegistrationServer(registrar)
    }
}

#[async_trait]
impl RegistrationService for RegistrationServer {
    type RegisterStream = BoxStream<'static, Result<RegisterResponse, Status>>;

    async fn register(
        &self,
        request: Request<Streaming<RegisterRequest>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let registrar = Arc::clone(&self.0);
        let token = request.extensions().get::<Arc<VerifiedToken>>().cloned();
        let token = token.ok_or_else(|| Status::internal("the token was not verified"))?;
        let permit = Arc::clone(&registrar.streams).try_acquire_owned();
        let permit = permit.map_err(|_| error::too_many_streams())?;
        let left = token.until().duration_since(SystemTime::now()).unwrap_or_default();
        let registration = RegistrationStream {
            registrar,
            until: Instant::now() + left,
            token,
            messages: request.into_inner(),
            holder: Uuid::now_v7(),
            held: None,
            _permit: permit,
        };
        let answers = stream::unfold(Some(registration), |registration| async { registration?.next().await });
        Ok(Response::new(answers.boxed()))
    }
}

/// One process's registration of one endpoint.
struct RegistrationStream {
    registrar: Arc<PluginRegistrar>,
    token: Arc<VerifiedToken>,
    /// When the token expires.
    until: Instant,
    messages: Streaming<RegisterRequest>,
    /// Tells the registrations of one endpoint apart.
    holder: Uuid,
    held: Option<HeldLease>,
    _permit: OwnedSemaphorePermit,
}

struct HeldLease {
    key: LeaseKey,
    renewed: Instant,
    approval_pending: bool,
}

type Answer = Result<RegisterResponse, Status>;

impl RegistrationStream {
    /// The answer to the next message. `None` ends the stream.
    async fn next(mut self) -> Option<(Answer, Option<Self>)> {
        let draining = self.registrar.draining.clone();
        let patience = if self.held.is_some() { LEASE } else { MAX_FIRST_MESSAGE_WAIT };
        let message = tokio::select! {
            biased;
            () = draining.cancelled() => return Some((Err(error::shutting_down()), None)),
            () = sleep_until(self.until) => return Some((Err(error::token_expired()), None)),
            message = timeout(patience, self.messages.message()) => message,
        };
        let answer = match message {
            Err(_) => Err(error::not_renewed()),
            // The connection broke, or the message is invalid. The process may be well, so the lease runs on.
            Ok(Err(status)) => Err(status),
            Ok(Ok(None)) => {
                if let Some(HeldLease { key, .. }) = &self.held {
                    self.registrar.end(key, self.holder, "closed").await;
                }
                return None;
            }
            Ok(Ok(Some(request))) => self.answer(request).await,
        };
        let goes_on = answer.is_ok().then_some(self);
        Some((answer, goes_on))
    }

    async fn answer(&mut self, RegisterRequest { plugin, endpoint }: RegisterRequest) -> Answer {
        let approval_pending = match &mut self.held {
            None => {
                let key = LeaseKey { plugin, endpoint };
                let approval_pending = self.registrar.begin(&self.token, &key, self.holder).await?;
                self.held = Some(HeldLease { key, renewed: Instant::now(), approval_pending });
                approval_pending
            }
            Some(held) => {
                check_unchanged("plugin", &plugin, &held.key.plugin)?;
                check_unchanged("endpoint", &endpoint, &held.key.endpoint)?;
                if held.renewed.elapsed() >= MIN_RENEWAL_INTERVAL {
                    held.approval_pending = self.registrar.renew(&held.key, self.holder).await?;
                    held.renewed = Instant::now();
                }
                held.approval_pending
            }
        };
        let lease_ms = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        Ok(RegisterResponse { lease_ms, approval_pending })
    }
}

fn check_unchanged(field: &str, sent: &str, registered: &str) -> Result<(), Status> {
    if sent.is_empty() || sent == registered {
        return Ok(());
    }
    let rule =
        "must be empty or that of the first message: open another stream for another endpoint".to_owned();
    Err(host_error::invalid(FieldViolation { field: field.to_owned(), rule }))
}
