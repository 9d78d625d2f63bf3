//! The rpcs that run operations on this process.

use hookgate_proto::admin::v1 as wire;
use http::Method;

use crate::{
    admin::{
        AdminRoute,
        grpc::{AdminRpc, from_proto, to_proto},
        process_ops::{DescribeOutcome, OperationReason, ReloadReport, routes::ProcessRoute},
    },
    core::{error::Error, object::ObjectKind},
};

impl AdminRpc<'_> {
    pub(super) async fn reload(
        &self,
        wire::ReloadRequest { reason }: wire::ReloadRequest,
    ) -> Result<wire::ReloadResponse, Error> {
        self.check_act(&["reload"])?;
        let ReloadReport { outcome, revision, rejected, restart_required } =
            self.admin.upkeep.reload(&self.operation_reason(reason)?).await?;
        let (outcome, waiting_for) = to_proto::outcome(outcome);
        Ok(wire::ReloadResponse {
            outcome: outcome.into(),
            revision,
            waiting_for,
            rejected,
            restart_required: restart_required.into_iter().map(str::to_owned).collect(),
        })
    }

    pub(super) async fn describe_plugin(
        &self,
        wire::DescribePluginRequest { name, reason }: wire::DescribePluginRequest,
    ) -> Result<wire::DescribePluginResponse, Error> {
        self.check_act(&["plugins", &name, "describe"])?;
        let tried = self.admin.upkeep.describe_again(&self.operation_reason(reason)?, &name).await?;
        let contents = self.admin.contents().await?;
        let plugin = self.admin.one(
            &self.admin.gateway.snapshots.current(),
            &contents,
            ObjectKind::Plugin,
            &name,
            None,
        )?;
        let endpoint = |DescribeOutcome { address, trouble }| wire::DescribedEndpoint {
            address,
            described: trouble.is_none(),
            detail: trouble.unwrap_or_default(),
        };
        Ok(wire::DescribePluginResponse {
            endpoints: tried.into_iter().map(endpoint).collect(),
            plugin: Some(to_proto::object(plugin)),
        })
    }

    pub(super) async fn drain_plugin(
        &self,
        asked: wire::DrainPluginRequest,
    ) -> Result<wire::DrainPluginResponse, Error> {
        let wire::DrainPluginRequest { name, expected_version, timeout_ms, reason } = asked;
        self.check_act(&["plugins", &name, "drain"])?;
        let patience = from_proto::patience(timeout_ms)?;
        let drained =
            self.admin.drain(&self.operation_reason(reason)?, name, expected_version, patience).await?;
        Ok(wire::DrainPluginResponse {
            revision: drained.revision,
            active: drained.active,
            in_flight: drained.in_flight as u64,
            drained: drained.drained,
        })
    }

    pub(super) async fn call_plugin(
        &self,
        asked: wire::CallPluginRequest,
    ) -> Result<wire::CallPluginResponse, Error> {
        let name = &asked.name;
        self.check_act(&["plugins", name, "call"])?;
        let who = self.operation_reason(asked.reason.clone())?;
        let result_json = self.admin.call(&who, name, &from_proto::call(&asked)?).await?;
        Ok(wire::CallPluginResponse { result_json })
    }

    pub(super) async fn delete_plugin_data(
        &self,
        wire::DeletePluginDataRequest { name, reason }: wire::DeletePluginDataRequest,
    ) -> Result<wire::DeletePluginDataResponse, Error> {
        self.check_act(&["plugins", &name, "delete-data"])?;
        let entries = self.admin.delete_data(&self.operation_reason(reason)?, name).await?;
        Ok(wire::DeletePluginDataResponse { entries })
    }

    pub(super) async fn check_upstreams(
        &self,
        wire::CheckUpstreamsRequest { names, reason }: wire::CheckUpstreamsRequest,
    ) -> Result<wire::CheckUpstreamsResponse, Error> {
        self.check_act(&["check-upstreams"])?;
        let names = from_proto::upstreams(names)?;
        let checks = self.admin.upkeep.check_upstreams(&self.operation_reason(reason)?, &names).await?;
        Ok(wire::CheckUpstreamsResponse {
            upstreams: checks.into_iter().map(to_proto::upstream_check).collect(),
        })
    }

    fn check_act(&self, path: &[&str]) -> Result<(), Error> {
        self.check(ProcessRoute::find(path).map(AdminRoute::Upkeep), &Method::POST)
    }

    fn operation_reason(&self, reason: String) -> Result<OperationReason, Error> {
        let (author, request_id) = (self.operator.author(), self.arrival.request_id);
        Ok(OperationReason { author, reason: from_proto::reason(reason)?, request_id })
    }
}
