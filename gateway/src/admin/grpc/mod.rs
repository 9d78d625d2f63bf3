//! The admin API over gRPC: `hookgate.admin.v1.AdminService`, health and reflection. It is a thin layer:
//! each rpc converts its message to a query, write or operation that HTTP has too, and converts the result
//! back. Authorization is shared with HTTP.

mod events;
mod from_proto;
mod process_ops;
mod reads;
mod to_proto;
mod writes;

use std::{future::ready, sync::Arc};

use axum::body::Body;
use http::{Method, Request, Response, request::Parts};
use prost::Message;

use super::{
    Admin, AdminRoute,
    events::EventsAnswer,
    nothing,
    registry::{
        RegistryRoute,
        body::{MAX_DOCUMENT_BYTES, MAX_OBJECT_BYTES, receive_bytes},
    },
};
use crate::{
    auth::Operator,
    config::Detail,
    core::error::{Code, Error},
    dataplane,
    edge::{
        body::SizeLimit,
        common_services::{CommonServices, is_common},
        request_meta::RequestMeta,
        response,
    },
    grpc::framing,
    snapshot::published::PublishedSnapshot,
};

/// The path prefix of every rpc.
const SERVICE_PREFIX: &str = "/hookgate.admin.v1.AdminService/";

/// All gRPC services of the admin port.
#[derive(Clone)]
pub struct AdminGrpc {
    admin: Arc<Admin>,
    /// Available to authorized callers only.
    services: CommonServices,
}

/// One request of an authorized caller.
struct AdminRpc<'a> {
    admin: &'a Admin,
    arrival: &'a RequestMeta,
    head: &'a Parts,
    operator: Operator,
    /// The tenant that the caller is confined to.
    reader: Option<Arc<str>>,
}

impl AdminGrpc {
    pub fn new(admin: Arc<Admin>, services: CommonServices) -> Self {
        AdminGrpc { admin, services }
    }

    /// Answers one request. Checks the token first, for the common services too.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let arrival = RequestMeta::now();
        let (head, body) = request.into_parts();
        let snapshot = self.admin.gateway.snapshots.current();
        let (operator, reader) = match self.admin.let_in(&arrival, &snapshot, &head).await {
            Ok(let_in) => let_in,
            Err(error) => return response::grpc_asked(&arrival, Err(error)),
        };
        if is_common(head.uri.path()) {
            return self.services.answer(Request::from_parts(head, body)).await;
        }
        let call = AdminRpc { admin: &self.admin, arrival: &arrival, head: &head, operator, reader };
        let rpc = head.uri.path().strip_prefix(SERVICE_PREFIX);
        match call.answer(snapshot, rpc.unwrap_or_default(), body).await {
            Some(Ok(EventsAnswer::Following(events))) => response::grpc_events(&arrival, events),
            Some(Ok(EventsAnswer::Kept(frames))) => response::grpc_asked(&arrival, Ok(frames)),
            Some(Err(error)) => response::grpc_asked(&arrival, Err(error)),
            None => {
                let what = if rpc.is_some() { "method" } else { "service" };
                let error = Error::new(Code::NotFound, format!("No such {what}"));
                response::grpc_refusal(&arrival, &error, Detail::Full)
            }
        }
    }
}

type RpcResult = Result<EventsAnswer, Error>;

impl AdminRpc<'_> {
    /// None: there is no such method.
    async fn answer(&self, snapshot: Arc<PublishedSnapshot>, rpc: &str, body: Body) -> Option<RpcResult> {
        let most = if rpc == "Apply" { MAX_DOCUMENT_BYTES } else { MAX_OBJECT_BYTES };
        let by = &**snapshot;
        Some(match rpc {
            "GetStatus" => self.unary(body, most, |asked| ready(self.get_status(asked))).await,
            "ListObjects" => self.unary(body, most, |asked| self.list_objects(by, asked)).await,
            "GetObject" => self.unary(body, most, |asked| self.get_object(by, asked)).await,
            "PutObject" => self.unary(body, most, |asked| self.put_object(asked)).await,
            "PatchObject" => self.unary(body, most, |asked| self.patch_object(asked)).await,
            "DeleteObject" => self.unary(body, most, |asked| self.delete_object(asked)).await,
            "EnablePlugin" => self.unary(body, most, |asked| self.enable_plugin(asked)).await,
            "DisablePlugin" => self.unary(body, most, |asked| self.disable_plugin(asked)).await,
            "Apply" => self.unary(body, most, |asked| self.apply(asked)).await,
            "ListRevisions" => self.unary(body, most, |asked| self.list_revisions(asked)).await,
            "GetRevision" => self.unary(body, most, |asked| self.get_revision(asked)).await,
            "DiffRevisions" => self.unary(body, most, |asked| self.diff_revisions(asked)).await,
            "RollBack" => self.unary(body, most, |asked| self.roll_back(asked)).await,
            "GetPlan" => self.unary(body, most, |asked| ready(self.get_plan(by, asked))).await,
            "Explain" => self.unary(body, most, |asked| ready(self.explain(by, asked))).await,
            "ApprovePlugin" => self.unary(body, most, |asked| self.approve_plugin(by, asked)).await,
            "PutBypass" => self.unary(body, most, |asked| self.put_bypass(by, asked)).await,
            "DeleteBypass" => self.unary(body, most, |asked| self.delete_bypass(by, asked)).await,
            _ => {
                // Drop the snapshot: while held, it would count as a call in flight.
                drop(snapshot);
                return self.act(rpc, body).await;
            }
        })
    }

    /// Like [`Self::answer`], for methods that take long and must not hold a snapshot.
    async fn act(&self, rpc: &str, body: Body) -> Option<RpcResult> {
        let most = MAX_OBJECT_BYTES;
        Some(match rpc {
            "Reload" => self.unary(body, most, |asked| self.reload(asked)).await,
            "DescribePlugin" => self.unary(body, most, |asked| self.describe_plugin(asked)).await,
            "DrainPlugin" => self.unary(body, most, |asked| self.drain_plugin(asked)).await,
            "DeletePluginData" => self.unary(body, most, |asked| self.delete_plugin_data(asked)).await,
            "CheckUpstreams" => self.unary(body, most, |asked| self.check_upstreams(asked)).await,
            "CallPlugin" => {
                let most = self.admin.gateway.snapshots.current().limits.request;
                self.unary(body, most, |asked| self.call_plugin(asked)).await
            }
            "StreamEvents" => self.answered(body, most, |asked| ready(self.stream_events(asked))).await,
            _ => return None,
        })
    }

    /// Reads one message of at most `most` bytes and encodes the message that `run` returns.
    async fn unary<Q, A, F>(&self, body: Body, most: usize, run: impl FnOnce(Q) -> F) -> RpcResult
    where
        Q: Message + Default,
        A: Message,
        F: Future<Output = Result<A, Error>>,
    {
        let answer = async |asked| Ok(EventsAnswer::Kept(framing::frame(&run(asked).await?)));
        self.answered(body, most, answer).await
    }

    /// Like [`Self::unary`], for a `run` that returns frames.
    async fn answered<Q, F>(&self, body: Body, most: usize, run: impl FnOnce(Q) -> F) -> RpcResult
    where
        Q: Message + Default,
        F: Future<Output = RpcResult>,
    {
        dataplane::grpc::check(self.head)?;
        let limits = self.admin.gateway.snapshots.current().limits;
        let mut room = self.admin.gateway.admission.room(limits.bytes_in_flight);
        let body = receive_bytes(body, most, framing::PREFIX_BYTES, &mut room).await?;
        run(dataplane::grpc::message(&body, SizeLimit::without_key(most))?).await
    }

    /// Checks that the caller may use `method` on `found`; `None` is NOT_FOUND.
    fn check(&self, found: Option<AdminRoute>, method: &Method) -> Result<(), Error> {
        let found = found.filter(|found| found.is_for(self.reader.as_deref(), method)).ok_or_else(nothing)?;
        match found {
            AdminRoute::Registry(route) => {
                self.admin.check_scope(self.arrival, &route, method, &self.operator)
            }
            AdminRoute::Upkeep(_) => self.admin.check_administers(self.arrival, &self.operator),
            AdminRoute::Shown(_) => Ok(()),
        }
    }

    fn check_route(&self, route: Option<RegistryRoute>, method: &Method) -> Result<(), Error> {
        self.check(route.map(AdminRoute::Registry), method)
    }
}
