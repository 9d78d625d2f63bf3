//! The HTTP routes of operations on this process (docs/registry.md). The operations themselves are in
//! [`Upkeep`].
//!
//! [`Upkeep`]: crate::admin::process_ops::Upkeep

use std::{collections::BTreeMap, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use hookgate_proto::gateway::v1 as gateway;
use http::{StatusCode, Uri, request::Parts};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    admin::{
        Admin, bytes as encode,
        process_ops::{
            self, DrainResult, OperationReason, ReloadReport, ReloadResult, TestCallOptions, TestCallResult,
        },
        query::Query,
        registry::{
            body::{BodySpec, text},
            query::{self, number},
            view::ObjectView,
            write_error::{self, SentBody},
        },
        writes::until_the_end,
    },
    auth::{Operator, is_tenant_id},
    config::{JsonObject, Span},
    core::{
        error::{Code, Error, Violation},
        failure::Failure,
        object::ObjectKind,
        point::Point,
        step,
    },
    edge::request_meta::RequestMeta,
    invoke::{
        AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, ExtensionPoint,
        reply::VerifiedReply,
    },
    json::pointer::push_key,
    llm::upstream_check::UpstreamCheck,
    payload::MAX_VIOLATIONS,
    registry::edit,
    transcode::{self, ObjectWriter},
};

/// The default of a drain's `timeout`.
pub(crate) const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum of a drain's `timeout`.
pub(crate) const MAX_DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

/// What the tenant of a call must be.
pub(crate) const TENANT_REQUIREMENT: &str = "Must be a tenant's id, or be absent";

/// What the upstreams to check must be.
pub(crate) const UPSTREAMS_REQUIREMENT: &str = "names of upstreams";

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProcessRoute {
    Reload,
    Describe(String),
    Drain(String),
    Call(String),
    DeleteData(String),
    CheckUpstreams,
}

/// The request for a test call.
pub(crate) struct TestCallRequest {
    point: Point,
    question: TestCallOptions,
    /// In the form in which an agent would send it.
    request: Bytes,
}

impl TestCallRequest {
    /// `context` and `payload` are JSON texts or empty.
    pub(crate) fn new(point: Point, question: TestCallOptions, context: &str, payload: &str) -> Self {
        let mut request = Vec::with_capacity(context.len() + payload.len() + 32);
        ObjectWriter::object(&mut request, |object| {
            object.json("context", context.as_bytes());
            object.json("payload", payload.as_bytes());
        });
        TestCallRequest { point, question, request: request.into() }
    }
}

impl ProcessRoute {
    /// Resolves the parts of a path. Returns `None` for unknown ones and for impossible plugin names.
    pub(crate) fn find(parts: &[&str]) -> Option<Self> {
        match *parts {
            ["reload"] => Some(ProcessRoute::Reload),
            ["check-upstreams"] => Some(ProcessRoute::CheckUpstreams),
            ["plugins", name, how] if edit::can_be_name(name) => {
                let name = name.to_owned();
                match how {
                    "describe" => Some(ProcessRoute::Describe(name)),
                    "drain" => Some(ProcessRoute::Drain(name)),
                    "call" => Some(ProcessRoute::Call(name)),
                    "delete-data" => Some(ProcessRoute::DeleteData(name)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl Admin {
    /// Runs the operation of `route`.
    pub(crate) async fn keep_up(
        &self,
        route: ProcessRoute,
        arrival: &RequestMeta,
        operator: &Operator,
        head: &Parts,
        body: Body,
    ) -> Result<(StatusCode, Bytes), Error> {
        let who =
            |reason| OperationReason { author: operator.author(), reason, request_id: arrival.request_id };
        match route {
            ProcessRoute::Reload => {
                let reloaded = self.upkeep.reload(&who(only_reason(&head.uri)?)).await?;
                let is_waiting = matches!(reloaded.outcome, ReloadResult::Waiting(_));
                let status = if is_waiting { StatusCode::ACCEPTED } else { StatusCode::OK };
                Ok((status, encode(&ReloadView::new(&reloaded))))
            }
            ProcessRoute::Describe(name) => {
                let tried = self.upkeep.describe_again(&who(only_reason(&head.uri)?), &name).await?;
                let contents = self.contents().await?;
                let plugin =
                    self.one(&self.gateway.snapshots.current(), &contents, ObjectKind::Plugin, &name, None)?;
                let endpoints = tried.into_iter().map(|tried| EndpointView {
                    described: tried.trouble.is_none(),
                    address: tried.address,
                    detail: tried.trouble.unwrap_or_default(),
                });
                Ok((StatusCode::OK, encode(&DescribeView { endpoints: endpoints.collect(), plugin })))
            }
            ProcessRoute::Drain(name) => {
                let (expected, patience, reason) = drain(&head.uri)?;
                let drained = self.drain(&who(reason), name, expected, patience).await?;
                Ok((StatusCode::OK, encode(&DrainView::new(&drained))))
            }
            ProcessRoute::Call(name) => {
                let who = who(only_reason(&head.uri)?);
                let limits = self.gateway.snapshots.current().limits;
                let mut room = self.gateway.admission.room(limits.bytes_in_flight);
                let body = text(&head.headers, body, BodySpec::call(limits.request), &mut room).await?;
                Ok((StatusCode::OK, self.call(&who, &name, &parse_test_call(&body)?).await?))
            }
            ProcessRoute::DeleteData(name) => {
                let entries = self.delete_data(&who(only_reason(&head.uri)?), name).await?;
                Ok((StatusCode::OK, encode(&DeletedView { entries })))
            }
            ProcessRoute::CheckUpstreams => {
                let (names, reason) = checked_upstreams(&head.uri)?;
                let upstreams = self.upkeep.check_upstreams(&who(reason), &names).await?;
                Ok((StatusCode::OK, encode(&UpstreamChecksView { upstreams })))
            }
        }
    }

    /// Drains the plugin `name`: see [`process_ops::Upkeep::drain`].
    pub(crate) async fn drain(
        &self,
        who: &OperationReason,
        name: String,
        expected: Option<u64>,
        patience: Duration,
    ) -> Result<DrainResult, Error> {
        let _under_way = self.writes.begin()?;
        let draining = self.upkeep.drain(who, &name, expected, patience);
        let drained = until_the_end(&self.ended, draining).await;
        drained.map_err(|undone| write_error::error(undone, &SentBody::Object(ObjectKind::Plugin, name)))
    }

    /// Deletes what the plugin `name` stored: see [`process_ops::Upkeep::delete_data`].
    pub(crate) async fn delete_data(&self, who: &OperationReason, name: String) -> Result<u64, Error> {
        let under_way = self.writes.begin()?;
        let deleted = async {
            if let Some(conflict) = self.upkeep.still_writes(&name).await? {
                return Ok(Err(conflict));
            }
            let deleting = self.upkeep.delete_data(who, &name, under_way);
            until_the_end(&self.ended, deleting).await.map(Ok)
        };
        let deleted = deleted.await;
        deleted.map_err(|undone| write_error::error(undone, &SentBody::Object(ObjectKind::Plugin, name)))?
    }

    /// Makes a test call to the plugin `name`. Returns its result as a JSON object.
    pub(crate) async fn call(
        &self,
        who: &OperationReason,
        name: &str,
        asked: &TestCallRequest,
    ) -> Result<Bytes, Error> {
        match asked.point {
            Point::BeforeLlmRequest => self.try_out::<BeforeLlmRequest>(who, name, asked).await,
            Point::BeforeToolCall => self.try_out::<BeforeToolCall>(who, name, asked).await,
            Point::AfterToolResult => self.try_out::<AfterToolResult>(who, name, asked).await,
            Point::BeforeResponse => self.try_out::<BeforeResponse>(who, name, asked).await,
        }
    }

    async fn try_out<P: ExtensionPoint>(
        &self,
        who: &OperationReason,
        name: &str,
        asked: &TestCallRequest,
    ) -> Result<Bytes, Error>
    where
        P::Request: transcode::HttpRequestMessage,
        P::Payload: transcode::Changes,
    {
        let request = transcode::decode::<P::Request>(&asked.request).map_err(Error::invalid)?;
        let snapshot = self.gateway.snapshots.current();
        let trial = process_ops::trial::<P>(&snapshot, who, name, &asked.question, request).await?;
        Ok(view(who, name, trial))
    }
}

fn only_reason(uri: &Uri) -> Result<String, Error> {
    query::reason(&mut Query::read(uri, &["reason"])?)
}

/// Reads a drain's expected version, timeout and reason.
fn drain(uri: &Uri) -> Result<(Option<u64>, Duration, String), Error> {
    let mut query = Query::read(uri, &["expected_version", "timeout", "reason"])?;
    let expected = query.read_as("expected_version", "a whole number", number)?;
    let right = "a duration of up to 2m, such as 30s";
    let patience = query.read_as("timeout", right, |text| {
        text.parse().ok().map(|Span(span)| span).filter(|span| *span <= MAX_DRAIN_TIMEOUT)
    })?;
    Ok((expected, patience.unwrap_or(DEFAULT_DRAIN_TIMEOUT), query::reason(&mut query)?))
}

/// Reads which upstreams to check, none for all, and the reason.
fn checked_upstreams(uri: &Uri) -> Result<(Vec<String>, String), Error> {
    let mut query = Query::read(uri, &["upstreams", "reason"])?;
    let right = format!("{UPSTREAMS_REQUIREMENT}, separated by commas");
    let names = query.read_as("upstreams", &right, |text| {
        let names: Vec<_> = text.split(',').map(str::to_owned).collect();
        names.iter().all(|name| edit::can_be_name(name)).then_some(names)
    })?;
    Ok((names.unwrap_or_default(), query::reason(&mut query)?))
}

/// Reads the body of a test call: an object without duplicate keys. Payload and context keep their bytes.
fn parse_test_call(body: &Bytes) -> Result<TestCallRequest, Error> {
    const KNOWN_MEMBERS: [&str; 5] = ["point", "payload", "context", "tenant", "tenant_config"];
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body)
        .map_err(|error| Error::new(Code::PayloadInvalid, format!("The body can't be read: {error}")))?;
    let mut wrong = Vec::new();
    for name in members.keys().filter(|name| !KNOWN_MEMBERS.contains(&&***name)).take(MAX_VIOLATIONS) {
        let mut pointer = String::new();
        push_key(&mut pointer, name);
        wrong.push(Violation::new(
            pointer,
            format!("Unknown member; the members are {}", KNOWN_MEMBERS.join(", ")),
        ));
    }
    let given = |name: &str| members.get(name).map(|value| value.get()).filter(|value| *value != "null");
    let point = given("point").and_then(|text| Point::from_name(&serde_json::from_str::<String>(text).ok()?));
    if point.is_none() {
        let names = Point::ALL.map(Point::as_str).join(", ");
        wrong.push(Violation::new("/point", format!("Must be one of {names}")));
    }
    let tenant = given("tenant").map(|text| serde_json::from_str::<String>(text).ok());
    let tenant = tenant.map(|id| id.filter(|id| is_tenant_id(id)));
    if tenant == Some(None) {
        wrong.push(Violation::new("/tenant", TENANT_REQUIREMENT));
    }
    let tenant_config = given("tenant_config").map(|text| serde_json::from_str::<JsonObject>(text).ok());
    if tenant_config == Some(None) {
        wrong.push(Violation::new("/tenant_config", "Must be an object, or be absent"));
    }
    let Some(point) = point.filter(|_| wrong.is_empty()) else { return Err(Error::invalid(wrong)) };
    let question = TestCallOptions { tenant: tenant.flatten(), tenant_config: tenant_config.flatten() };
    let [context, payload] = ["context", "payload"].map(|name| given(name).unwrap_or_default());
    Ok(TestCallRequest::new(point, question, context, payload))
}

#[derive(Serialize)]
struct ReloadView<'a> {
    outcome: &'static str,
    /// The revision of the active table.
    revision: u64,
    waiting_for: Option<&'a str>,
    rejected: &'a [String],
    restart_required: &'a [&'static str],
}

impl<'a> ReloadView<'a> {
    fn new(reloaded: &'a ReloadReport) -> Self {
        let ReloadReport { outcome, revision, rejected, restart_required } = reloaded;
        let (outcome, waiting_for) = match outcome {
            ReloadResult::Applied => ("applied", None),
            ReloadResult::Unchanged => ("unchanged", None),
            ReloadResult::Waiting(what) => ("waiting", Some(what.as_str())),
        };
        ReloadView { outcome, revision: *revision, waiting_for, rejected, restart_required }
    }
}

#[derive(Serialize)]
struct DescribeView<'v> {
    endpoints: Vec<EndpointView>,
    plugin: ObjectView<'v>,
}

#[derive(Serialize)]
struct EndpointView {
    address: String,
    described: bool,
    /// Why the endpoint failed; empty if it didn't.
    detail: String,
}

#[derive(Serialize)]
struct DeletedView {
    entries: u64,
}

#[derive(Serialize)]
struct UpstreamChecksView {
    upstreams: Vec<UpstreamCheck>,
}

#[derive(Serialize)]
struct DrainView {
    revision: Option<u64>,
    active: bool,
    in_flight: usize,
    drained: bool,
}

impl DrainView {
    fn new(drained: &DrainResult) -> Self {
        let DrainResult { revision, active, in_flight, drained } = *drained;
        DrainView { revision, active, in_flight, drained }
    }
}

/// The result of a test call. Members without a value are left out.
fn view<P: ExtensionPoint>(who: &OperationReason, name: &str, trial: TestCallResult<P>) -> Bytes
where
    P::Payload: transcode::Changes,
{
    let TestCallResult { payload, result, took } = trial;
    let mut out = Vec::new();
    ObjectWriter::object(&mut out, |object| {
        object.member("request_id", &who.request_id.to_string());
        object.member("plugin", name);
        object.member("point", P::POINT.as_str());
        let verdict = match &result {
            Ok(said) if said.cancel.is_some() => "cancel",
            Ok(_) => "continue",
            Err(_) => "failed",
        };
        object.member("verdict", verdict);
        object.member("duration_us", &u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        match result {
            Ok(said) => put_said::<P>(object, &payload, said),
            Err(failure) => object.member("failure", &FailureJson(failure)),
        }
    });
    out.into()
}

fn put_said<P: ExtensionPoint>(object: &mut ObjectWriter<'_>, sent: &P::Payload, said: VerifiedReply<P>)
where
    P::Payload: transcode::Changes,
{
    if let Some(cancel) = said.cancel {
        let block = gateway::Block {
            code: cancel.code,
            message: cancel.message,
            retry_after_ms: cancel.retry_after_ms,
            scope: cancel.scope.into(),
            ..gateway::Block::default()
        };
        object.member("cancel", &block);
        object.json("result", &cancel.result.unwrap_or_default());
    }
    if let Some(after) = &said.payload {
        object.json("changes", &transcode::changes(sent, &**after));
    }
    let notices = said.notices.into_iter().map(|notice| gateway::PluginNotice {
        plugin: None,
        kind: notice.kind,
        code: notice.code,
        message: notice.message,
        details: notice.details,
    });
    object.member("notices", notices.collect::<Vec<_>>().as_slice());
    object.member("sanitised", &u64::from(said.sanitised));
}

/// Why the call has no verdict.
struct FailureJson(Failure);

impl transcode::WriteJson for FailureJson {
    fn put(&self, out: &mut Vec<u8>) {
        let Failure { reason, status, detail, .. } = &self.0;
        ObjectWriter::object(out, |object| {
            object.member("reason", reason.as_str());
            object.member("code", Code::for_step(*reason, *status).as_str());
            object.member("detail", detail);
            object.member("remedy", remedy(*reason));
        });
    }
}

/// What the operator can do about a failure.
const fn remedy(reason: step::Reason) -> &'static str {
    use step::Reason;
    match reason {
        Reason::Timeout | Reason::Budget => {
            "make the plugin answer faster, or raise the binding's `timeout` or the plugin's `limits.timeout`"
        }
        Reason::BadReply => {
            "make it follow docs/protocol.md, section 3; except in a cancel, any mistake fails the step"
        }
        Reason::ForbiddenPatch => {
            "declare access MODIFY in its manifest, or allow the field in the binding's `writable`"
        }
        Reason::TooLarge => {
            "make it send a smaller reply: the reply and the resulting payload have size limits"
        }
        Reason::RpcError => "check its log: it answered with an error, or the connection was lost",
        Reason::BulkheadFull => "wait until agents' calls free a permit, or raise its `limits.in_flight`",
        Reason::PointNotOffered => "call it at a point that its manifest offers",
        Reason::Unreachable | Reason::BreakerOpen | Reason::NotReady => {
            "see its state, reason and endpoints in GET /admin/v1/plugins/NAME"
        }
        Reason::UnknownPlugin | Reason::ConditionError => "see its state in GET /admin/v1/plugins/NAME",
    }
}
