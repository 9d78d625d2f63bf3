//! The rpcs that write to the registry.

use hookgate_proto::admin::v1 as wire;
use http::Method;

use crate::{
    admin::{
        grpc::{AdminRpc, from_proto, to_proto},
        registry::{
            RegistryRoute,
            body::read,
            query::WriteOptions,
            write::{WriteRequest, check_name},
        },
    },
    core::{error::Error, object::ObjectKind},
    registry::{bypass::BypassRequest, edit::EditAction},
    snapshot::ConfigSnapshot,
};

impl AdminRpc<'_> {
    pub(super) async fn put_object(
        &self,
        asked: wire::PutObjectRequest,
    ) -> Result<wire::PutObjectResponse, Error> {
        let wire::PutObjectRequest { name, spec_json, expected_version, reason, dry_run, .. } = asked;
        let kind = self.object(asked.kind, &name, &Method::PUT)?;
        let meant = from_proto::object_write_options(expected_version, true, reason, dry_run)?;
        let wish = EditAction::Be(read("`spec_json`", &spec_json)?);
        let written = self.run_write(WriteRequest::object(kind, name, wish, meant)).await?;
        Ok(wire::PutObjectResponse { written })
    }

    pub(super) async fn patch_object(
        &self,
        asked: wire::PatchObjectRequest,
    ) -> Result<wire::PatchObjectResponse, Error> {
        let wire::PatchObjectRequest { name, patch_json, expected_version, reason, dry_run, .. } = asked;
        let kind = self.object(asked.kind, &name, &Method::PATCH)?;
        let meant = from_proto::object_write_options(expected_version, false, reason, dry_run)?;
        let wish = EditAction::Merge(read("`patch_json`", &patch_json)?);
        let written = self.run_write(WriteRequest::object(kind, name, wish, meant)).await?;
        Ok(wire::PatchObjectResponse { written })
    }

    pub(super) async fn delete_object(
        &self,
        asked: wire::DeleteObjectRequest,
    ) -> Result<wire::DeleteObjectResponse, Error> {
        let wire::DeleteObjectRequest { name, expected_version, reason, dry_run, force, .. } = asked;
        let kind = self.object(asked.kind, &name, &Method::DELETE)?;
        let meant = from_proto::object_write_options(expected_version, false, reason, dry_run)?;
        let meant = from_proto::forced(kind, force, meant)?;
        let wish = EditAction::Gone { with_bindings: force };
        let written = self.run_write(WriteRequest::object(kind, name, wish, meant)).await?;
        Ok(wire::DeleteObjectResponse { written })
    }

    pub(super) async fn enable_plugin(
        &self,
        asked: wire::EnablePluginRequest,
    ) -> Result<wire::EnablePluginResponse, Error> {
        let wire::EnablePluginRequest { name, expected_version, reason, dry_run } = asked;
        self.check_route(RegistryRoute::switch(&name, true), &Method::POST)?;
        let meant = from_proto::write_options(expected_version, reason, dry_run)?;
        let written = self.run_write(WriteRequest::switch(name, true, meant)).await?;
        Ok(wire::EnablePluginResponse { written })
    }

    pub(super) async fn disable_plugin(
        &self,
        asked: wire::DisablePluginRequest,
    ) -> Result<wire::DisablePluginResponse, Error> {
        let wire::DisablePluginRequest { name, expected_version, reason, dry_run } = asked;
        self.check_route(RegistryRoute::switch(&name, false), &Method::POST)?;
        let meant = from_proto::write_options(expected_version, reason, dry_run)?;
        let written = self.run_write(WriteRequest::switch(name, false, meant)).await?;
        Ok(wire::DisablePluginResponse { written })
    }

    pub(super) async fn apply(&self, asked: wire::ApplyRequest) -> Result<wire::ApplyResponse, Error> {
        let wire::ApplyRequest { document_json, reason, dry_run, force, expected_revision } = asked;
        self.check_route(Some(RegistryRoute::Apply), &Method::POST)?;
        let meant = WriteOptions {
            force,
            upon: expected_revision,
            ..from_proto::write_options(None, reason, dry_run)?
        };
        let asked = WriteRequest::document(read("`document_json`", &document_json)?, meant)?;
        Ok(wire::ApplyResponse { written: self.run_write(asked).await? })
    }

    pub(super) async fn roll_back(
        &self,
        asked: wire::RollBackRequest,
    ) -> Result<wire::RollBackResponse, Error> {
        let wire::RollBackRequest { number, reason, dry_run, expected_revision } = asked;
        let number = from_proto::number("number", number)?;
        self.check_route(Some(RegistryRoute::RollBack(number)), &Method::POST)?;
        let meant =
            WriteOptions { upon: expected_revision, ..from_proto::write_options(None, reason, dry_run)? };
        Ok(wire::RollBackResponse { written: self.run_write(WriteRequest::roll_back(number, meant)).await? })
    }

    pub(super) async fn approve_plugin(
        &self,
        snapshot: &ConfigSnapshot,
        asked: wire::ApprovePluginRequest,
    ) -> Result<wire::ApprovePluginResponse, Error> {
        let wire::ApprovePluginRequest { name, approval_json, expected_version, reason, dry_run } = asked;
        self.check_route(RegistryRoute::find(&["plugins", &name, "approve"]), &Method::POST)?;
        let meant = from_proto::write_options(expected_version, reason, dry_run)?;
        let approval = read("`approval_json`", &approval_json)?;
        let accepted = self.admin.approved(snapshot, &name, approval).await?;
        let written = self.run_write(WriteRequest::approval(name, accepted, meant)).await?;
        Ok(wire::ApprovePluginResponse { written })
    }

    pub(super) async fn put_bypass(
        &self,
        snapshot: &ConfigSnapshot,
        asked: wire::PutBypassRequest,
    ) -> Result<wire::PutBypassResponse, Error> {
        let wire::PutBypassRequest { binding, tenant, for_ms, reason, dry_run } = asked;
        self.check_route(RegistryRoute::find(&["bindings", &binding, "bypass", &tenant]), &Method::PUT)?;
        let (meant, lasts) = from_proto::bypass(for_ms, reason, dry_run)?;
        let glass = BypassRequest { binding, tenant, lasts: Some(lasts) };
        let written = self.run_write(WriteRequest::bypass(snapshot, glass, meant)).await?;
        Ok(wire::PutBypassResponse { written })
    }

    pub(super) async fn delete_bypass(
        &self,
        snapshot: &ConfigSnapshot,
        asked: wire::DeleteBypassRequest,
    ) -> Result<wire::DeleteBypassResponse, Error> {
        let wire::DeleteBypassRequest { binding, tenant, reason, dry_run } = asked;
        self.check_route(RegistryRoute::find(&["bindings", &binding, "bypass", &tenant]), &Method::DELETE)?;
        let meant = from_proto::write_options(None, reason, dry_run)?;
        let glass = BypassRequest { binding, tenant, lasts: None };
        let written = self.run_write(WriteRequest::bypass(snapshot, glass, meant)).await?;
        Ok(wire::DeleteBypassResponse { written })
    }

    /// Parses the object's kind, and checks that the caller may use `method` on the object.
    fn object(&self, kind: i32, name: &str, method: &Method) -> Result<ObjectKind, Error> {
        let kind = from_proto::kind(kind)?;
        self.check_route(RegistryRoute::one(kind, name), method)?;
        check_name(kind, name, *method == Method::PUT, "/name")?;
        Ok(kind)
    }

    async fn run_write(&self, asked: WriteRequest) -> Result<Option<wire::WriteResult>, Error> {
        let written = self.admin.perform(&self.operator, asked).await?;
        Ok(Some(to_proto::write_result(written)))
    }
}
