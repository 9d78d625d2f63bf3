//! Break glass: takes one binding out of one tenant's chains for a while, whatever their owner, or puts it
//! back (docs/decisions/0034-break-glass.md).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use time::OffsetDateTime;

use super::{
    Contents, Entry, TypedObject, Writer,
    edit::EditError,
    operations::{Invalid, OperationError, Operations, WriteOutcome},
};
use crate::{
    config::{Bypass, Plugin, Tenant, Until},
    core::object::{ObjectKind, Owner},
    routing::{self, AbsenceReason},
    store::{Change, Object, ObjectContent},
};

/// The minimum duration.
pub const MIN_BYPASS_DURATION: Duration = Duration::from_secs(1);
/// The maximum duration. For longer, an operator changes the binding or renews the bypass.
pub const MAX_BYPASS_DURATION: Duration = Duration::from_secs(24 * 3600);

/// A request to begin or end the bypass of one binding for one tenant.
#[derive(Debug, Clone)]
pub struct BypassRequest {
    pub binding: String,
    pub tenant: String,
    /// How long to bypass the binding from now on, from [`MIN_BYPASS_DURATION`] to [`MAX_BYPASS_DURATION`].
    /// `None` ends the bypass.
    pub lasts: Option<Duration>,
}

/// The request as seen in the process that receives it.
#[derive(Debug, Clone, Copy)]
pub struct LocalView {
    /// Whether unlisted tenants are served.
    pub serves_others: bool,
    /// Whether the binding is in the tenant's active chains, whatever the registry now says.
    pub stands: bool,
}

impl Operations {
    /// Begins or ends the bypass `glass`, with the writer's reason. Expired bypasses are deleted in the
    /// same revision.
    ///
    /// # Errors
    /// If the binding or tenant doesn't exist, or the binding doesn't apply to the tenant; otherwise as for
    /// [`Operations::write`].
    pub async fn bypass(
        &self,
        writer: &Writer,
        glass: &BypassRequest,
        here: LocalView,
        dry_run: bool,
    ) -> Result<WriteOutcome, OperationError> {
        let changes =
            |contents: &Contents| changes(contents, glass, &writer.reason, here, OffsetDateTime::now_utc());
        self.change(writer, dry_run, None, changes).await
    }
}

fn changes(
    contents: &Contents,
    glass: &BypassRequest,
    reason: &str,
    here: LocalView,
    now: OffsetDateTime,
) -> Result<Vec<Change>, OperationError> {
    let BypassRequest { binding, tenant, lasts } = glass;
    let name: Arc<str> = Bypass::object_name(binding, tenant).into();
    let content =
        |name: &str| contents.get(ObjectKind::Bypass, name).map(|entry| entry.object.content.clone());
    let ended = contents.bypasses().filter(|(bypass, _)| bypass.until.0 <= now);
    let ended = ended.map(|(bypass, _)| Arc::<str>::from(bypass.name()));
    let gone = |name: Arc<str>| {
        let before = content(&name);
        (Arc::clone(&name), Change { kind: ObjectKind::Bypass, name, before, after: None })
    };
    let mut changes: BTreeMap<_, _> = ended.map(gone).collect();
    let Some(lasts) = lasts else {
        if changes.contains_key(&name) || content(&name).is_none() {
            return Err(EditError::Missing { kind: ObjectKind::Bypass, name: name.to_string() }.into());
        }
        changes.extend([gone(name)]);
        return Ok(changes.into_values().collect());
    };
    check(contents, binding, tenant, here)?;
    let until = now + *lasts;
    // Round to the precision that is shown.
    let until = Until(until.replace_millisecond(until.millisecond()).unwrap_or(until));
    let bypass =
        Bypass { binding: binding.clone(), tenant: tenant.clone(), until, reason: reason.to_owned() };
    let spec = serde_json::to_value(&bypass).unwrap_or_default();
    let after = Some(ObjectContent { owner: Owner::Api, spec: spec.into() });
    let before = content(&name);
    changes.insert(Arc::clone(&name), Change { kind: ObjectKind::Bypass, name, before, after });
    Ok(changes.into_values().collect())
}

/// The bypasses to delete along with `changes`. A bypass ends when its binding or its tenant is deleted,
/// because a later object of that name is another one. A bypass of a binding that is created is a leftover,
/// which an older gateway did not delete.
pub(super) fn outlived(contents: &Contents, changes: &[Change]) -> Vec<Change> {
    let ends = |change: &Change| match change.kind {
        ObjectKind::Binding => change.before.is_none() || change.after.is_none(),
        // An unlisted tenant may be served, so it may have bypasses before it is listed.
        ObjectKind::Tenant => change.after.is_none(),
        ObjectKind::Plugin | ObjectKind::Upstream | ObjectKind::Model | ObjectKind::Bypass => false,
    };
    let named = |change: &Change| (change.kind, Arc::clone(&change.name));
    let ending: BTreeSet<_> = changes.iter().filter(|change| ends(change)).map(named).collect();
    if ending.is_empty() {
        return Vec::new();
    }
    let is_ending = |kind, name: &str| ending.contains(&(kind, name.into()));
    let outlived = contents.entries().iter().filter(|entry| match &entry.typed {
        TypedObject::Bypass(bypass) => {
            is_ending(ObjectKind::Binding, &bypass.binding) || is_ending(ObjectKind::Tenant, &bypass.tenant)
        }
        _ => false,
    });
    let gone = |entry: &Arc<Entry>| {
        let Object { kind, name, content, .. } = entry.object.clone();
        Change { kind, name, before: Some(content), after: None }
    };
    outlived.map(gone).collect()
}

/// Returns `contents`, which are active, with the bypasses of `newest`: bypasses apply even while `newest`
/// is pending for other reasons. A bypass belongs to one particular binding and tenant. If these were
/// deleted or recreated in `newest`, the bypasses in `contents` stay as they are.
pub fn as_in(newest: &Contents, contents: &Arc<Contents>) -> Arc<Contents> {
    if newest.revision() <= contents.revision() {
        return Arc::clone(contents);
    }
    let concerns = |entry: &&Arc<Entry>| match &entry.typed {
        TypedObject::Bypass(bypass) => {
            let met = |contents: &Contents, kind, name: &str| contents.get(kind, name).map(|entry| entry.met);
            let of = |kind, name: &str| (met(contents, kind, name), met(newest, kind, name));
            let is_binding =
                matches!(of(ObjectKind::Binding, &bypass.binding), (Some(old), Some(new)) if old == new);
            // A tenant that was served while unlisted is the same when it is listed later.
            let is_tenant = match of(ObjectKind::Tenant, &bypass.tenant) {
                (Some(old), new) => new == Some(old),
                (None, _) => true,
            };
            is_binding && is_tenant
        }
        _ => false,
    };
    let own = contents.bypass_entries();
    let (news, stays) =
        (newest.bypass_entries().iter().filter(concerns), own.iter().filter(|own| !concerns(own)));
    let mut bypasses: Vec<_> = news.chain(stays).cloned().collect();
    bypasses.sort_by(|a, b| a.object.name.cmp(&b.object.name));
    let is_same = |(a, b): (&Arc<Entry>, &Arc<Entry>)| {
        a.object.name == b.object.name && a.object.version == b.object.version
    };
    if bypasses.len() == own.len() && bypasses.iter().zip(own).all(is_same) {
        return Arc::clone(contents);
    }
    Arc::new(contents.with_bypasses(bypasses))
}

/// Checks that the binding applies to the tenant.
fn check(contents: &Contents, binding: &str, tenant: &str, here: LocalView) -> Result<(), OperationError> {
    let missing = |kind, name: &str| EditError::Missing { kind, name: name.to_owned() };
    let typed = |kind, name: &str| contents.get(kind, name).map(|entry| &entry.typed);
    let Some(TypedObject::Binding(of)) = typed(ObjectKind::Binding, binding) else {
        return Err(missing(ObjectKind::Binding, binding).into());
    };
    let listed: Option<&Tenant> = match typed(ObjectKind::Tenant, tenant) {
        Some(TypedObject::Tenant(tenant)) => Some(tenant),
        _ if here.serves_others => None,
        _ => return Err(missing(ObjectKind::Tenant, tenant).into()),
    };
    if here.stands {
        return Ok(());
    }
    let plugin: Option<&Plugin> = match typed(ObjectKind::Plugin, &of.plugin) {
        Some(TypedObject::Plugin(plugin)) => Some(plugin),
        _ => None,
    };
    let why = if listed.is_some_and(|tenant| !tenant.enabled) {
        "the tenant is disabled"
    } else if !of.is_floor() && of.tenant.as_deref() != Some(tenant) {
        "it belongs to another tenant"
    } else {
        match plugin.map(|plugin| routing::stands(of, plugin, listed)) {
            Some(Ok(())) => return Ok(()),
            None | Some(Err(AbsenceReason::PluginDisabled)) => "its plugin is disabled",
            Some(Err(AbsenceReason::BindingDisabled)) => "it is disabled",
            Some(Err(AbsenceReason::NotSelected)) => "the tenant lacks a label of its `selector`",
            Some(Err(_)) => "the tenant's `disable` names it",
        }
    };
    let message = format!("binding `{binding}` doesn't apply to tenant `{tenant}`: {why}");
    let object = Some((ObjectKind::Binding, binding.to_owned()));
    Err(OperationError::Invalid(vec![Invalid { object, pointer: String::new(), message }]))
}

#[cfg(test)]
#[path = "bypass_tests.rs"]
mod tests;
