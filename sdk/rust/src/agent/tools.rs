//! The tools that plugins provide, on the agent's side.

use hookgate_proto::gateway::v1::{
    ListToolsRequest, ListToolsResponse, tool_service_client::ToolServiceClient,
};
use tonic::{Request, Response, Status, transport::Channel};

use super::{Agent, CallError, wire::AgentCall};
use crate::MAX_CALL_BYTES;

struct ListTools;

impl AgentCall for ListTools {
    type Request = ListToolsRequest;
    type Response = ListToolsResponse;

    async fn send(
        channel: Channel,
        request: Request<ListToolsRequest>,
    ) -> Result<Response<ListToolsResponse>, Status> {
        ToolServiceClient::new(channel).max_decoding_message_size(MAX_CALL_BYTES).list_tools(request).await
    }
}

impl Agent {
    /// The tools that the tenant's plugins provide. Offer them to the model beside your own, and pass a call of one to
    /// [`Agent::before_tool_call_or_result`], which has the plugin run it.
    ///
    /// # Errors
    /// The gateway doesn't answer, or answers with an error.
    pub async fn list_tools(&self) -> Result<ListToolsResponse, CallError> {
        self.send::<ListTools>(ListToolsRequest {}).await.map_err(|status| CallError::from_status(&status))
    }
}
