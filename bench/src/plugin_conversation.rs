//! Calls to a plugin that answers the benchmark itself, with JSON as the arguments of the tool call.

use hookgate_proto::gateway::v1::{
    BeforeToolCallRequest, extension_point_service_client::ExtensionPointServiceClient,
};
use hookgate_sdk::BeforeToolCallPayload;
use serde::de::DeserializeOwned;
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

use crate::{BenchError, gateway_config};

/// A tenant's connection to a gateway, with one such plugin in its chain.
pub(crate) struct PluginConversation {
    client: ExtensionPointServiceClient<Channel>,
    bearer: MetadataValue<Ascii>,
}

impl PluginConversation {
    pub(crate) async fn open(address: &str, tenant: &str) -> Result<Self, BenchError> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let bearer = format!("Bearer {}", gateway_config::token(tenant)?).parse()?;
        Ok(PluginConversation { client: ExtensionPointServiceClient::new(channel), bearer })
    }

    /// The plugin's answer to a call of the tool `name`.
    pub(crate) async fn ask<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, BenchError> {
        let (tool_name, args) = (name.to_owned(), "{}".into());
        let payload = Some(BeforeToolCallPayload { tool_name, args, ..Default::default() });
        let mut request = Request::new(BeforeToolCallRequest { payload, ..Default::default() });
        request.metadata_mut().insert("authorization", self.bearer.clone());
        let answer = self.client.before_tool_call(request).await?.into_inner();
        Ok(serde_json::from_slice(&answer.payload.ok_or("the answer has no payload")?.args)?)
    }
}
