//! Converts objects, write results and revisions to protobuf.

use hookgate_proto::{HookName, admin::v1 as wire, types::v1::ExtensionPoint};

use crate::{
    admin::{
        bytes,
        process_ops::ReloadResult,
        registry::view::{
            ChangeCounts, ChangeView, ContentView, ObjectView, Objects, PageView, RevisionView, StoredObject,
            WriteView,
        },
    },
    core::{
        call_site::CallSite,
        object::{ObjectKind, Owner},
        point::Point,
    },
    llm::upstream_check::{UnlistedModel, UpstreamCheck, UpstreamCheckResult},
    registry::effect::{Effect, Effects, FailingBinding, PlanEffect, TenantAdmission},
    snapshot::RejectedEntry,
};

pub(super) fn page(page: PageView<'_>) -> wire::ListObjectsResponse {
    let PageView { objects, next_cursor, revision } = page;
    let (Objects::Plugins(objects)
    | Objects::Tenants(objects)
    | Objects::Bindings(objects)
    | Objects::Upstreams(objects)
    | Objects::Models(objects)
    | Objects::Bypasses(objects)) = objects;
    wire::ListObjectsResponse {
        objects: objects.into_iter().map(object).collect(),
        next_page_token: next_cursor.unwrap_or_default(),
        revision,
    }
}

pub(super) fn object(object: ObjectView<'_>) -> wire::Object {
    let (of_kind, name, held, status_json) = match object {
        ObjectView::Plugin { name, status, held } => (wire::Kind::Plugin, name, held, bytes(&status)),
        ObjectView::Tenant { id, held } => (wire::Kind::Tenant, id, held, ::bytes::Bytes::new()),
        ObjectView::Binding { name, held } => (wire::Kind::Binding, name, held, ::bytes::Bytes::new()),
        ObjectView::Upstream { name, held } => (wire::Kind::Upstream, name, held, ::bytes::Bytes::new()),
        ObjectView::Model { name, held } => (wire::Kind::Model, name, held, ::bytes::Bytes::new()),
        ObjectView::Bypass { bypass, version, active } => {
            return wire::Object {
                kind: wire::Kind::Bypass.into(),
                name: bypass.name(),
                owner: wire::Owner::Api.into(),
                version: Some(version),
                spec_json: bytes(bypass),
                status_json: bytes(&serde_json::json!({ "active": active })),
            };
        }
    };
    let StoredObject { owner: of_owner, version, spec } = held;
    wire::Object {
        kind: of_kind.into(),
        name: name.to_owned(),
        owner: owner(of_owner).into(),
        version,
        spec_json: bytes(&spec),
        status_json,
    }
}

pub(super) fn write_result(written: WriteView) -> wire::WriteResult {
    let WriteView { revision, dry_run, changes: changed, effects: has, unvalidated, active, rejected } =
        written;
    let rejected = rejected.into_iter().map(|RejectedEntry { plugin, refusal }| wire::RejectedEntry {
        plugin,
        reason: refusal.reason.to_owned(),
        detail: refusal.detail,
    });
    wire::WriteResult {
        revision,
        dry_run,
        changes: changes(changed),
        effects: has.map(effects),
        unvalidated,
        active,
        rejected: rejected.collect(),
    }
}

/// The result of a reload, and what it waits for.
pub(super) fn outcome(outcome: ReloadResult) -> (wire::ReloadOutcome, Option<String>) {
    match outcome {
        ReloadResult::Applied => (wire::ReloadOutcome::Applied, None),
        ReloadResult::Unchanged => (wire::ReloadOutcome::Unchanged, None),
        ReloadResult::Waiting(what) => (wire::ReloadOutcome::Waiting, Some(what)),
    }
}

pub(super) fn upstream_check(check: UpstreamCheck) -> wire::UpstreamCheck {
    let UpstreamCheck { name, result, detail, duration_us, models, unlisted } = check;
    let result = match result {
        UpstreamCheckResult::Ok => wire::UpstreamCheckResult::Ok,
        UpstreamCheckResult::CredentialRefused => wire::UpstreamCheckResult::CredentialRefused,
        UpstreamCheckResult::CredentialMissing => wire::UpstreamCheckResult::CredentialMissing,
        UpstreamCheckResult::Unreachable => wire::UpstreamCheckResult::Unreachable,
        UpstreamCheckResult::NoModelList => wire::UpstreamCheckResult::NoModelList,
    };
    let unlisted =
        unlisted.into_iter().map(|UnlistedModel { rule, model }| wire::UnlistedModel { rule, model });
    wire::UpstreamCheck {
        name,
        result: result.into(),
        detail,
        duration_us,
        models,
        unlisted: unlisted.collect(),
    }
}

pub(super) fn changes(changes: Vec<ChangeView>) -> Vec<wire::Change> {
    let content = |ContentView { owner: of, spec }: ContentView| wire::Content {
        owner: owner(of).into(),
        spec_json: bytes(&spec),
    };
    let change = |ChangeView { kind: of, name, before, after }: ChangeView| wire::Change {
        kind: kind(of).into(),
        name,
        before: before.map(content),
        after: after.map(content),
    };
    changes.into_iter().map(change).collect()
}

pub(super) fn revision(revision: &RevisionView<'_, ChangeCounts>) -> wire::Revision {
    let RevisionView { number, at, author, reason, changes } = revision;
    wire::Revision {
        number: *number,
        at: at.clone(),
        author: (*author).to_owned(),
        reason: (*reason).to_owned(),
        counts: Some(wire::ChangeCounts {
            plugins: changes.plugins as u64,
            tenants: changes.tenants as u64,
            bindings: changes.bindings as u64,
            bypasses: changes.bypasses as u64,
            upstreams: changes.upstreams as u64,
            models: changes.models as u64,
        }),
    }
}

fn effects(Effects { tenants, sample }: Effects) -> wire::Effects {
    wire::Effects { tenants: tenants as u64, sample: sample.into_iter().map(effect).collect() }
}

fn effect(Effect { tenant, before, after, settings, points, hooks }: Effect) -> wire::TenantEffect {
    let failing = |FailingBinding { binding, reason, detail }: FailingBinding| wire::FailingStep {
        binding,
        reason: reason.to_owned(),
        detail,
    };
    let of_plan = |at: CallSite, effect: PlanEffect| wire::PlanEffect {
        point: at.point().map_or(ExtensionPoint::Unspecified, Point::to_wire).into(),
        hook: at.hook().map(HookName::to_string).unwrap_or_default(),
        plan_digest: effect.plan_digest,
        added: effect.added,
        removed: effect.removed,
        changed: effect.changed,
        order: effect.order,
        failing: effect.failing.into_iter().map(failing).collect(),
        lacks_steps: effect.lacks_steps,
        lacked_steps: effect.lacked_steps,
    };
    wire::TenantEffect {
        tenant,
        before: tenant_status(before).into(),
        after: tenant_status(after).into(),
        settings,
        points: points
            .into_iter()
            .map(|(point, effect)| of_plan(point.into(), effect))
            .chain(hooks.into_iter().map(|(hook, effect)| of_plan(hook.into(), effect)))
            .collect(),
    }
}

const fn tenant_status(standing: TenantAdmission) -> wire::TenantStatus {
    match standing {
        TenantAdmission::Served => wire::TenantStatus::Served,
        TenantAdmission::Disabled => wire::TenantStatus::Disabled,
        TenantAdmission::Unknown => wire::TenantStatus::Unknown,
    }
}

const fn kind(kind: ObjectKind) -> wire::Kind {
    match kind {
        ObjectKind::Plugin => wire::Kind::Plugin,
        ObjectKind::Tenant => wire::Kind::Tenant,
        ObjectKind::Binding => wire::Kind::Binding,
        ObjectKind::Upstream => wire::Kind::Upstream,
        ObjectKind::Model => wire::Kind::Model,
        ObjectKind::Bypass => wire::Kind::Bypass,
    }
}

const fn owner(owner: Owner) -> wire::Owner {
    match owner {
        Owner::File => wire::Owner::File,
        Owner::Api => wire::Owner::Api,
    }
}
