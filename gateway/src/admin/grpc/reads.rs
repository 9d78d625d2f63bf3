//! The read-only rpcs.

use hookgate_proto::admin::v1 as wire;
use http::Method;

use crate::{
    admin::{
        AdminRoute, ReadRoute, bytes,
        explain::Question,
        explained, explained_llm,
        grpc::{AdminRpc, from_proto, to_proto},
        plan_of,
        registry::{
            RegistryRoute, to_error as refused,
            view::{self, ChangeCounts, RevisionView},
        },
    },
    core::error::Error,
    registry::listing,
    snapshot::ConfigSnapshot,
};

impl AdminRpc<'_> {
    pub(super) fn get_status(&self, _: wire::GetStatusRequest) -> Result<wire::GetStatusResponse, Error> {
        self.check(Some(AdminRoute::Shown(ReadRoute::Status)), &Method::GET)?;
        Ok(wire::GetStatusResponse { status_json: bytes(&self.admin.overview.status()) })
    }

    pub(super) async fn list_objects(
        &self,
        snapshot: &ConfigSnapshot,
        asked: wire::ListObjectsRequest,
    ) -> Result<wire::ListObjectsResponse, Error> {
        let kind = from_proto::kind(asked.kind)?;
        self.check_route(Some(RegistryRoute::List(kind)), &Method::GET)?;
        let wanted = from_proto::list_query(kind, asked)?;
        let contents = self.admin.contents().await?;
        let page = self.admin.list(snapshot, &contents, kind, self.reader.as_deref(), &wanted);
        Ok(to_proto::page(page))
    }

    pub(super) async fn get_object(
        &self,
        snapshot: &ConfigSnapshot,
        asked: wire::GetObjectRequest,
    ) -> Result<wire::GetObjectResponse, Error> {
        let (kind, name) = (from_proto::kind(asked.kind)?, asked.name);
        self.check_route(RegistryRoute::one(kind, &name), &Method::GET)?;
        let contents = self.admin.contents().await?;
        let object = self.admin.one(snapshot, &contents, kind, &name, self.reader.as_deref())?;
        Ok(wire::GetObjectResponse { object: Some(to_proto::object(object)) })
    }

    pub(super) async fn list_revisions(
        &self,
        asked: wire::ListRevisionsRequest,
    ) -> Result<wire::ListRevisionsResponse, Error> {
        self.check_route(Some(RegistryRoute::Revisions), &Method::GET)?;
        let most = from_proto::size(asked.page_size)?;
        let before = from_proto::place(&asked.page_token, listing::read_revision_cursor)?;
        let (revisions, next) = self.admin.operations.revisions(before, most).await.map_err(refused)?;
        let revision = |revision| {
            to_proto::revision(&RevisionView::new(revision, ChangeCounts::from_changes(&revision.changes)))
        };
        Ok(wire::ListRevisionsResponse {
            revisions: revisions.iter().map(revision).collect(),
            next_page_token: next.unwrap_or_default(),
        })
    }

    pub(super) async fn get_revision(
        &self,
        wire::GetRevisionRequest { number }: wire::GetRevisionRequest,
    ) -> Result<wire::GetRevisionResponse, Error> {
        self.check_route(Some(RegistryRoute::Revision(number)), &Method::GET)?;
        let revision = self.admin.operations.revision(number).await.map_err(refused)?;
        let counted = RevisionView::new(&revision, ChangeCounts::from_changes(&revision.changes));
        Ok(wire::GetRevisionResponse {
            revision: Some(to_proto::revision(&counted)),
            changes: to_proto::changes(view::changes(&revision.changes)),
        })
    }

    pub(super) async fn diff_revisions(
        &self,
        wire::DiffRevisionsRequest { from, to }: wire::DiffRevisionsRequest,
    ) -> Result<wire::DiffRevisionsResponse, Error> {
        let from = from_proto::number("from", from)?;
        self.check_route(Some(RegistryRoute::Difference(from)), &Method::GET)?;
        let (to, changes) = self.admin.operations.difference(from, to).await.map_err(refused)?;
        let changes = to_proto::changes(view::changes(&changes));
        Ok(wire::DiffRevisionsResponse { from, to, changes })
    }

    pub(super) fn get_plan(
        &self,
        snapshot: &ConfigSnapshot,
        asked: wire::GetPlanRequest,
    ) -> Result<wire::GetPlanResponse, Error> {
        let tenant = &asked.tenant;
        self.check(Some(AdminRoute::Shown(ReadRoute::Plan(tenant.clone()))), &Method::GET)?;
        let plan =
            plan_of(snapshot, self.reader.as_deref(), tenant, || from_proto::site(asked.point, asked.hook))?;
        Ok(wire::GetPlanResponse { plan_json: bytes(&plan) })
    }

    pub(super) fn explain(
        &self,
        snapshot: &ConfigSnapshot,
        asked: wire::ExplainRequest,
    ) -> Result<wire::ExplainResponse, Error> {
        self.check(Some(AdminRoute::Shown(ReadRoute::Explain(asked.tenant.clone()))), &Method::GET)?;
        let (tenant, reader) = (asked.tenant.clone(), self.reader.as_deref());
        let explanation_json = match from_proto::question(asked)? {
            Question::Call(question) => bytes(&explained(snapshot, reader, &question)),
            Question::Llm => bytes(&explained_llm(snapshot, reader, &tenant)),
        };
        Ok(wire::ExplainResponse { explanation_json })
    }
}
