//! TokenService: a plugin's own token in exchange for one that is about to expire.

use std::sync::Arc;

use hookgate_proto::host::v1::{RenewTokenRequest, RenewTokenResponse, token_service_server::TokenService};
use tonic::{Request, Response, Status, async_trait};

use super::{HostServices, PLUGIN_TOKEN_AGE, token::Refusal};
use crate::upstream::HostAccess as _;

pub(super) struct TokenServer(Arc<HostServices>);

impl TokenServer {
    pub(super) fn new(host: Arc<HostServices>) -> Self {
        TokenServer(host)
    }
}

#[async_trait]
impl TokenService for TokenServer {
    async fn renew_token(
        &self,
        request: Request<RenewTokenRequest>,
    ) -> Result<Response<RenewTokenResponse>, Status> {
        let claims = self.0.authorize(request.extensions(), None)?;
        // A call's token would turn into one that outlives the call.
        if claims.tenant.is_some() {
            return Err(self.0.refuse(Refusal::Capability, Some(&claims.plugin)));
        }
        let token = self.0.plugin_token(&claims.plugin, claims.capabilities());
        if token.is_empty() {
            return Err(self.0.refuse(Refusal::KeysUnavailable, Some(&claims.plugin)));
        }
        let expires_in_ms = u64::try_from(PLUGIN_TOKEN_AGE.as_millis()).unwrap_or(u64::MAX);
        Ok(Response::new(RenewTokenResponse { token, expires_in_ms }))
    }
}
