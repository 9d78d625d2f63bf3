//! Calls to the gateway's services: with which token, how long, and at which gateway.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tonic::{Request, Response, Status, metadata::AsciiMetadataValue};

use super::{HostError, HostLink, HostLinks, HostService};
use crate::context::ForwardedMetadata;

/// How long a call to the gateway may take.
const MAX_CALL_TIME: Duration = Duration::from_secs(5);

/// Calls the gateway's services, for a call or for the plugin itself. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HostClient {
    links: Arc<HostLinks>,
    access: Access,
    deadline: Option<Instant>,
    forwarded: ForwardedMetadata,
}

/// What the gateway takes as permission.
#[derive(Clone)]
enum Access {
    /// The token of a call; `None` if the gateway sent none.
    Call(Option<AsciiMetadataValue>),
    /// The gateway's token for the plugin.
    Plugin,
}

impl fmt::Debug for HostClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostClient").finish_non_exhaustive()
    }
}

impl HostClient {
    /// Calls for the tenant of a plugin's call.
    pub(crate) fn for_call(
        links: Arc<HostLinks>,
        token: Option<AsciiMetadataValue>,
        deadline: Option<Instant>,
        forwarded: ForwardedMetadata,
    ) -> Self {
        HostClient { links, access: Access::Call(token), deadline, forwarded }
    }

    /// Calls for the plugin itself.
    pub(crate) fn for_plugin(links: Arc<HostLinks>) -> Self {
        let forwarded = ForwardedMetadata::default();
        HostClient { links, access: Access::Plugin, deadline: None, forwarded }
    }

    /// The same permission without the deadline of the plugin's call, for work that goes on after it.
    pub(crate) fn without_deadline(&self) -> Self {
        HostClient { deadline: None, ..self.clone() }
    }

    /// Makes one call. Tries the next gateway if one certainly didn't make it.
    pub(crate) async fn call<Q: Clone, A, F>(
        &self,
        message: Q,
        send: impl Fn(HostService, Request<Q>) -> F,
    ) -> Result<A, HostError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let until = Instant::now() + MAX_CALL_TIME;
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        let mut failure = HostError::NotOffered;
        for link in self.links.candidates() {
            let (service, token) = match (link.service(), self.token(&link)) {
                (Ok(service), Ok(token)) => (service, token),
                (Err(error), _) | (_, Err(error)) => {
                    failure = error;
                    continue;
                }
            };
            let request = self.request(message.clone(), token);
            let left = until.saturating_duration_since(Instant::now());
            match bounded(left, request, |request| send(service, request)).await {
                Ok(answer) => {
                    link.record_success();
                    return Ok(answer);
                }
                Err(status) => {
                    failure = HostError::from_status(&status);
                    if failure.is_unavailable() {
                        link.record_failure();
                    }
                    if !was_not_made(&status) {
                        break;
                    }
                }
            }
        }
        Err(failure)
    }

    fn token(&self, link: &HostLink) -> Result<AsciiMetadataValue, HostError> {
        let token = match &self.access {
            Access::Call(token) => token.clone(),
            Access::Plugin => link.token(),
        };
        let unsigned = "the gateway can't sign tokens for host services yet";
        token.ok_or_else(|| HostError::Unavailable(unsigned.to_owned()))
    }

    fn request<Q>(&self, message: Q, token: AsciiMetadataValue) -> Request<Q> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", token);
        self.forwarded.add_to(request.metadata_mut());
        #[cfg(feature = "otel")]
        crate::telemetry::inject(request.metadata_mut());
        request
    }
}

/// Sends a request that has this much time.
pub(super) async fn bounded<Q, A, F>(
    left: Duration,
    mut request: Request<Q>,
    send: impl FnOnce(Request<Q>) -> F,
) -> Result<A, Status>
where
    F: Future<Output = Result<Response<A>, Status>>,
{
    if left.is_zero() {
        return Err(Status::deadline_exceeded("the time of the call is over"));
    }
    request.set_timeout(left);
    let overdue = |_| Err(Status::deadline_exceeded(format!("no answer within {left:?}")));
    timeout(left, send(request)).await.unwrap_or_else(overdue).map(Response::into_inner)
}

/// Whether the gateway certainly didn't make the call: it wasn't connected, or refused the token. Another gateway
/// may have another database, and other tokens.
fn was_not_made(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.downcast_ref::<tonic::ConnectError>().is_some() {
            return true;
        }
        source = error.source();
    }
    status.code() == tonic::Code::PermissionDenied
}
