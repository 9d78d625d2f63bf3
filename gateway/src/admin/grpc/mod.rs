//! The admin API over gRPC: `hookgate.admin.v1.AdminService`, health and reflection. Thin: each rpc is what its message says, as
//! a question, a write or an act that HTTP has too, and its answer is what HTTP would show, as a message. Who may do what is
//! decided where HTTP asks for it.

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
    events::Told,
    nothing,
    registry::{
        Route,
        body::{MAX_DOCUMENT_BYTES, MAX_OBJECT_BYTES, receive_bytes},
    },
};
use crate::{
    auth::Operator,
    config::Detail,
    core::error::{Code, Error},
    dataplane::grpc,
    edge::{
        common_services::{CommonServices, is_common},
        request_meta::RequestMeta,
        response,
    },
    snapshot::published::PublishedSnapshot,
};

/// What the path of every rpc begins with.
const SERVICE_PREFIX: &str = "/hookgate.admin.v1.AdminService/";

/// Everything that speaks gRPC on the admin port.
#[derive(Clone)]
pub struct AdminGrpc {
    admin: Arc<Admin>,
    /// For whoever is let in.
    services: CommonServices,
}

/// One request of whoever was let in.
struct AdminRpc<'a> {
    admin: &'a Admin,
    arrival: &'a RequestMeta,
    head: &'a Parts,
    operator: Operator,
    /// Whom he is confined to.
    reader: Option<Arc<str>>,
}

impl AdminGrpc {
    /// Puts `admin` beside `services`.
    pub fn new(admin: Arc<Admin>, services: CommonServices) -> Self {
        AdminGrpc { admin, services }
    }

    /// Answers one request. The token comes first, for the services too.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let arrival = RequestMeta::now();
        let (head, body) = request.into_parts();
        let in_force = self.admin.gateway.snapshots.in_force();
        let (operator, reader) = match self.admin.let_in(&arrival, &in_force, &head).await {
            Ok(let_in) => let_in,
            Err(error) => return response::grpc_asked(&arrival, Err(error)),
        };
        if is_common(head.uri.path()) {
            return self.services.answer(Request::from_parts(head, body)).await;
        }
        let call = AdminRpc { admin: &self.admin, arrival: &arrival, head: &head, operator, reader };
        let rpc = head.uri.path().strip_prefix(SERVICE_PREFIX);
        match call.answer(in_force, rpc.unwrap_or_default(), body).await {
            Some(Ok(Told::Following(events))) => response::grpc_events(&arrival, events),
            Some(Ok(Told::Kept(frames))) => response::grpc_asked(&arrival, Ok(frames)),
            Some(Err(error)) => response::grpc_asked(&arrival, Err(error)),
            None => {
                let what = if rpc.is_some() { "method" } else { "service" };
                let error = Error::new(Code::NotFound, format!("No such {what}"));
                response::grpc_refusal(&arrival, &error, Detail::Full)
            }
        }
    }
}

/// The answer as frames.
type RpcResult = Result<Told, Error>;

impl AdminRpc<'_> {
    /// None: there is no such method.
    async fn answer(&self, in_force: Arc<PublishedSnapshot>, rpc: &str, body: Body) -> Option<RpcResult> {
        let most = if rpc == "Apply" { MAX_DOCUMENT_BYTES } else { MAX_OBJECT_BYTES };
        let by = &**in_force;
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
            "GetPlan" => self.unary(body, most, |asked| ready(self.get_plan(by, &asked))).await,
            "Explain" => self.unary(body, most, |asked| ready(self.explain(by, asked))).await,
            "ApprovePlugin" => self.unary(body, most, |asked| self.approve_plugin(by, asked)).await,
            "PutBypass" => self.unary(body, most, |asked| self.put_bypass(by, asked)).await,
            "DeleteBypass" => self.unary(body, most, |asked| self.delete_bypass(by, asked)).await,
            _ => {
                // Kept, it would be taken for a call under way.
                drop(in_force);
                return self.act(rpc, body).await;
            }
        })
    }

    /// The same of what takes a while, and holds no configuration that is in force meanwhile.
    async fn act(&self, rpc: &str, body: Body) -> Option<RpcResult> {
        let most = MAX_OBJECT_BYTES;
        Some(match rpc {
            "Reload" => self.unary(body, most, |asked| self.reload(asked)).await,
            "DescribePlugin" => self.unary(body, most, |asked| self.describe_plugin(asked)).await,
            "DrainPlugin" => self.unary(body, most, |asked| self.drain_plugin(asked)).await,
            "CallPlugin" => {
                let most = self.admin.gateway.snapshots.in_force().limits.request;
                self.unary(body, most, |asked| self.call_plugin(asked)).await
            }
            "StreamEvents" => self.answered(body, most, |asked| ready(self.stream_events(asked))).await,
            _ => return None,
        })
    }

    /// Takes the one message, of at most `most` bytes, and gives back the one that `run` makes of it.
    async fn unary<Q, A, F>(&self, body: Body, most: usize, run: impl FnOnce(Q) -> F) -> RpcResult
    where
        Q: Message + Default,
        A: Message,
        F: Future<Output = Result<A, Error>>,
    {
        let answer = async |asked| Ok(Told::Kept(response::framed(&run(asked).await?)));
        self.answered(body, most, answer).await
    }

    /// The same, of an answer that has its frames.
    async fn answered<Q, F>(&self, body: Body, most: usize, run: impl FnOnce(Q) -> F) -> RpcResult
    where
        Q: Message + Default,
        F: Future<Output = RpcResult>,
    {
        grpc::check(self.head)?;
        let limits = self.admin.gateway.snapshots.in_force().limits;
        let mut room = self.admin.gateway.admission.room(limits.bytes_in_flight);
        let body = receive_bytes(body, most, grpc::MESSAGE_PREFIX_BYTES, &mut room).await?;
        run(grpc::message(body, most)?).await
    }

    /// Whether whoever asks may do what `method` stands for with what is `found` (none: it can't be there).
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

    fn check_route(&self, route: Option<Route>, method: &Method) -> Result<(), Error> {
        self.check(route.map(AdminRoute::Registry), method)
    }
}
