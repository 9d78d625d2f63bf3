//! Writes to the registry: turns a request into edits and the outcome into an answer.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::{
    admin::{
        Admin, nothing,
        registry::{
            RegistryRoute,
            body::{BodySpec, deserialize, receive},
            encode,
            query::{PreconditionKind, WriteOptions},
            view::WriteView,
            write_error::{self, SentBody},
        },
        writes::until_the_end,
    },
    auth::Operator,
    config::{Consent, UnknownTenant},
    core::{
        call_site::CallSite,
        error::{Error, Violation},
        object::ObjectKind,
        point::Point,
    },
    registry::{
        Contents, TypedObject, Writer,
        bypass::{BypassRequest, LocalView},
        document::{ApplyDocument, DocumentEdits, Prune},
        edit::{Edit, EditAction, can_be_name, right_name},
        operations::{OperationError, Operations, WriteOutcome},
    },
    routing::TenantRoute,
    snapshot::{ConfigSnapshot, RejectedEntry},
    store::Change,
    task::join::joined,
    telemetry::Parent,
};

/// How long a writer waits until this process serves what was written.
const ACTIVATION_TIMEOUT: Duration = Duration::from_secs(2);

enum WriteTask {
    Edits(Vec<Edit>, Option<Prune>),
    RollBack(u64),
    Bypass(BypassRequest, LocalView),
}

impl WriteTask {
    /// The plugins that the edits name.
    fn plugins(&self) -> Vec<String> {
        let WriteTask::Edits(edits, _) = self else { return Vec::new() };
        let plugins = edits.iter().filter(|edit| edit.kind == ObjectKind::Plugin);
        plugins.map(|edit| edit.name.clone()).collect()
    }
}

/// A write request.
pub(in crate::admin) struct WriteRequest {
    task: WriteTask,
    meant: WriteOptions,
    sent: SentBody,
}

impl WriteRequest {
    /// Applies `wish` to one object.
    pub(in crate::admin) fn object(
        kind: ObjectKind,
        name: String,
        wish: EditAction,
        meant: WriteOptions,
    ) -> Self {
        let (expected, sent) = (meant.expected, SentBody::Object(kind, name.clone()));
        WriteRequest { task: WriteTask::Edits(vec![Edit { kind, name, expected, wish }], None), meant, sent }
    }

    /// Switches a plugin on or off.
    pub(in crate::admin) fn switch(plugin: String, on: bool, meant: WriteOptions) -> Self {
        WriteRequest::object(ObjectKind::Plugin, plugin, EditAction::Merge(json!({ "enabled": on })), meant)
    }

    /// Applies all objects of `document`.
    ///
    /// # Errors
    /// PAYLOAD_INVALID with the places of the errors if it isn't a valid document.
    pub(in crate::admin) fn document(document: Value, meant: WriteOptions) -> Result<Self, Error> {
        let wishes = document_of(document)?.wishes(meant.force).map_err(Error::invalid)?;
        let DocumentEdits { edits, prune, places } = wishes;
        Ok(WriteRequest { task: WriteTask::Edits(edits, prune), meant, sent: SentBody::Document(places) })
    }

    /// Records consent to a plugin's manifest.
    pub(in crate::admin) fn approval(plugin: String, accepted: Consent, meant: WriteOptions) -> Self {
        WriteRequest::object(ObjectKind::Plugin, plugin, EditAction::Accept(accepted), meant)
    }

    /// Takes a binding out of a tenant's chains for a while, or puts it back.
    pub(in crate::admin) fn bypass(
        snapshot: &ConfigSnapshot,
        glass: BypassRequest,
        meant: WriteOptions,
    ) -> Self {
        let serves_others = snapshot.config.tenants.unknown == UnknownTenant::Accept;
        let here = LocalView { serves_others, stands: stands(snapshot, &glass) };
        WriteRequest { task: WriteTask::Bypass(glass, here), meant, sent: SentBody::Nothing }
    }

    /// Rolls the registry back to the revision `number`.
    pub(in crate::admin) fn roll_back(number: u64, meant: WriteOptions) -> Self {
        WriteRequest { task: WriteTask::RollBack(number), meant, sent: SentBody::Nothing }
    }
}

impl Admin {
    /// Performs the write of `route`.
    pub(super) async fn write(
        &self,
        snapshot: &ConfigSnapshot,
        route: RegistryRoute,
        operator: &Operator,
        head: &Parts,
        body: Body,
    ) -> Result<(StatusCode, Bytes), Error> {
        let asked = self.parse_request(snapshot, route, head, body).await?;
        let written = self.perform(operator, asked).await?;
        let is_created = head.method == Method::PUT && written.is_creation();
        let status = if is_created { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, encode(&written)))
    }

    /// Performs a write of `operator` and waits until it is active.
    pub(in crate::admin) async fn perform(
        &self,
        operator: &Operator,
        WriteRequest { task, meant, sent }: WriteRequest,
    ) -> Result<WriteView, Error> {
        let _under_way = self.writes.begin()?;
        let WriteOptions { reason, dry_run, upon, .. } = meant;
        let writer = Writer { author: operator.author(), reason, upon };
        let operations = Arc::clone(&self.operations);
        let named = task.plugins();
        // Run as a task, so that a writer who hangs up doesn't leave it half done or unlogged.
        let doing = tokio::spawn(
            Parent::current().wrap(async move { perform(&operations, &writer, &task, dry_run).await }),
        );
        let done = until_the_end(&self.ended, joined(doing)).await;
        let outcome = done.map_err(|undone| write_error::error(undone, &sent))?;
        let snapshot = !dry_run && self.is_in_force(&outcome).await?;
        // A dry run can only know of rejections of what was written earlier.
        let knows = !dry_run || outcome.changes.is_empty();
        let rejected = if knows { self.rejected(&named, &outcome) } else { Vec::new() };
        Ok(WriteView::new(&outcome, dry_run, snapshot, rejected))
    }

    /// The plugins in `named` and in `outcome` that rejected their new entry and keep the previous one.
    fn rejected(&self, named: &[String], outcome: &WriteOutcome) -> Vec<RejectedEntry> {
        let changed = outcome.changes.iter().filter(|change| change.kind == ObjectKind::Plugin);
        let changed: Vec<_> = changed.map(|change| &*change.name).collect();
        let mut rejected = self.gateway.snapshots.current().rejected.clone();
        rejected.retain(|held| named.contains(&held.plugin) || changed.contains(&&*held.plugin));
        rejected
    }

    /// Waits until this process serves what the registry holds after `outcome`. A bypass becomes active
    /// even while its revision is pending.
    async fn is_in_force(&self, outcome: &WriteOutcome) -> Result<bool, Error> {
        Ok(match outcome.revision {
            Some(revision) => {
                self.gateway.snapshots.reaches(revision, ACTIVATION_TIMEOUT).await
                    || are_in_force(
                        &self.gateway.snapshots.current(),
                        &*self.contents().await?,
                        &outcome.changes,
                    )
            }
            None => self.gateway.snapshots.reaches(self.contents().await?.revision(), Duration::ZERO).await,
        })
    }

    async fn parse_request(
        &self,
        snapshot: &ConfigSnapshot,
        route: RegistryRoute,
        head: &Parts,
        body: Body,
    ) -> Result<WriteRequest, Error> {
        let uri = &head.uri;
        match route {
            RegistryRoute::Bypass { binding, tenant } => {
                let (meant, lasts) = if head.method == Method::DELETE {
                    (WriteOptions::read(uri, PreconditionKind::Nothing, false)?, None)
                } else {
                    let (meant, lasts) = WriteOptions::for_bypass(uri)?;
                    (meant, Some(lasts))
                };
                Ok(WriteRequest::bypass(snapshot, BypassRequest { binding, tenant, lasts }, meant))
            }
            RegistryRoute::RollBack(number) => Ok(WriteRequest::roll_back(
                number,
                WriteOptions::read(uri, PreconditionKind::Revision, false)?,
            )),
            RegistryRoute::Switch { plugin, on } => Ok(WriteRequest::switch(
                plugin,
                on,
                WriteOptions::read(uri, PreconditionKind::AnyVersion, false)?,
            )),
            RegistryRoute::One(kind, name) => {
                let is_put = head.method == Method::PUT;
                check_name(kind, &name, is_put, "")?;
                let may_force = head.method == Method::DELETE && kind == ObjectKind::Plugin;
                let upon = if is_put { PreconditionKind::VersionOrNone } else { PreconditionKind::Version };
                let meant = WriteOptions::read(uri, upon, may_force)?;
                let wish = match head.method {
                    Method::DELETE => EditAction::Gone { with_bindings: meant.force },
                    Method::PATCH => {
                        EditAction::Merge(self.receive(snapshot, head, body, BodySpec::PATCH).await?)
                    }
                    _ => EditAction::Be(self.receive(snapshot, head, body, BodySpec::OBJECT).await?),
                };
                Ok(WriteRequest::object(kind, name, wish, meant))
            }
            RegistryRoute::Approve(plugin) => {
                let meant = WriteOptions::read(uri, PreconditionKind::AnyVersion, false)?;
                let body = self.receive(snapshot, head, body, BodySpec::OBJECT).await?;
                let accepted = self.approved(snapshot, &plugin, body).await?;
                Ok(WriteRequest::approval(plugin, accepted, meant))
            }
            _ => {
                let meant = WriteOptions::read(uri, PreconditionKind::Revision, true)?;
                WriteRequest::document(self.receive(snapshot, head, body, BodySpec::DOCUMENT).await?, meant)
            }
        }
    }

    async fn receive(
        &self,
        snapshot: &ConfigSnapshot,
        head: &Parts,
        body: Body,
        taken: BodySpec,
    ) -> Result<Value, Error> {
        let mut room = self.gateway.admission.room(snapshot.limits.bytes_in_flight);
        receive(&head.headers, body, taken, &mut room).await
    }
}

/// Checks an object's name. If `may_be_new`, an impossible name is an error of the request; otherwise no
/// such object exists. `pointer` is the name's place in the request.
///
/// # Errors
/// NOT_FOUND, or PAYLOAD_INVALID.
pub(in crate::admin) fn check_name(
    kind: ObjectKind,
    name: &str,
    may_be_new: bool,
    pointer: &str,
) -> Result<(), Error> {
    match (can_be_name(name), may_be_new) {
        (true, _) => Ok(()),
        (false, false) => Err(nothing()),
        (false, true) => Err(Error::invalid(vec![Violation::new(pointer, right_name(kind))])),
    }
}

async fn perform(
    operations: &Operations,
    writer: &Writer,
    task: &WriteTask,
    dry_run: bool,
) -> Result<WriteOutcome, OperationError> {
    match task {
        WriteTask::Edits(edits, prune) => operations.write(writer, edits, prune.as_ref(), dry_run).await,
        WriteTask::RollBack(number) => operations.roll_back(writer, *number, dry_run).await,
        WriteTask::Bypass(glass, here) => operations.bypass(writer, glass, *here, dry_run).await,
    }
}

/// Whether the binding is in the tenant's active chains, or would be without a bypass.
fn stands(snapshot: &ConfigSnapshot, BypassRequest { binding, tenant, .. }: &BypassRequest) -> bool {
    let TenantRoute::Known(plans) = snapshot.invoker.routes().table.tenant(tenant) else { return false };
    let points = Point::ALL.into_iter().map(CallSite::Point);
    let mut sites = points.chain(plans.sites_of_hooks());
    sites.any(|site| {
        let mut steps = plans.plan_at(&site).steps.iter();
        steps.any(|step| *step.binding == **binding)
            || plans.bypassed(&site).iter().any(|name| **name == **binding)
    })
}

/// Whether `changes` are bypasses only and all of them are active. `contents` are the registry's contents.
fn are_in_force(snapshot: &ConfigSnapshot, contents: &Contents, changes: &[Change]) -> bool {
    let bypasses = &snapshot.config.bypasses;
    let is_so =
        |change: &Change| match contents.get(ObjectKind::Bypass, &change.name).map(|entry| &entry.typed) {
            Some(TypedObject::Bypass(bypass)) => {
                bypasses.contains(bypass) || bypass.until.0 <= OffsetDateTime::now_utc()
            }
            _ => !bypasses.iter().any(|bypass| bypass.name() == *change.name),
        };
    changes.iter().all(|change| change.kind == ObjectKind::Bypass && is_so(change))
}

fn document_of(value: Value) -> Result<ApplyDocument, Error> {
    // Objects are passed on unparsed, so the error can't quote any of their values.
    deserialize(value).map_err(|wrong| Error::invalid(vec![wrong]))
}
