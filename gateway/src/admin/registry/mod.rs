//! The HTTP routes of the registry: plugins, tenants, bindings, upstreams, models and revisions are listed, written and
//! previewed (docs/registry.md). It is a thin layer over [`Operations`], which decides what may be written.
//!
//! A caller confined to a tenant sees only that tenant and its own bindings, and can't tell a hidden object
//! from a missing one.

mod approve;
pub(super) mod body;
pub(super) mod query;
pub(super) mod view;
pub(super) mod write;
pub(super) mod write_error;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};

use super::{
    Admin, bytes as encode, nothing,
    plugin::{self, ActivePlugin},
};
use crate::{
    admin::registry::{
        query::ListQuery,
        view::{
            ChangeCounts, Difference, ObjectView, Objects, PageView, RevisionView, Revisions, StoredObject,
        },
        write_error::SentBody,
    },
    auth::{Operator, is_tenant_id},
    core::{error::Error, object::ObjectKind},
    registry::{
        Contents, Entry, TypedObject,
        document::plural,
        edit,
        listing::{self, ListPage},
        operations::OperationError,
    },
    snapshot::ConfigSnapshot,
};

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RegistryRoute {
    List(ObjectKind),
    One(ObjectKind, String),
    Bypass { binding: String, tenant: String },
    Switch { plugin: String, on: bool },
    Approve(String),
    Apply,
    Revisions,
    Revision(u64),
    Difference(u64),
    RollBack(u64),
}

pub(super) struct RegistryCaller<'a> {
    pub(super) operator: &'a Operator,
    /// The tenant that the caller is confined to.
    pub(super) tenant: Option<&'a str>,
}

impl RegistryRoute {
    /// Resolves the parts of a path. Returns `None` for unknown ones and for impossible object names.
    pub(super) fn find(parts: &[&str]) -> Option<Self> {
        let kind = |text: &str| ObjectKind::ALL.into_iter().find(|kind| plural(*kind) == text);
        match *parts {
            ["apply"] => Some(RegistryRoute::Apply),
            ["revisions"] => Some(RegistryRoute::Revisions),
            ["revisions", number] => Some(RegistryRoute::Revision(query::number(number)?)),
            ["revisions", number, "diff"] => Some(RegistryRoute::Difference(query::number(number)?)),
            ["revisions", number, "rollback"] => Some(RegistryRoute::RollBack(query::number(number)?)),
            [list] => Some(RegistryRoute::List(kind(list)?)),
            ["bindings", binding, "bypass", tenant] if edit::can_be_name(binding) && is_tenant_id(tenant) => {
                Some(RegistryRoute::Bypass { binding: binding.to_owned(), tenant: tenant.to_owned() })
            }
            [list, name] => RegistryRoute::one(kind(list)?, name),
            ["plugins", name, how @ ("enable" | "disable")] => RegistryRoute::switch(name, how == "enable"),
            ["plugins", name, "approve"] if edit::can_be_name(name) => {
                Some(RegistryRoute::Approve(name.to_owned()))
            }
            _ => None,
        }
    }

    /// The route to an object. `name` need not be a possible name.
    pub(super) fn one(kind: ObjectKind, name: &str) -> Option<Self> {
        // A bypass has no route of its own; it is written and ended at its binding.
        (kind != ObjectKind::Bypass).then(|| RegistryRoute::One(kind, name.to_owned()))
    }

    /// The route to a plugin's switch; `None` if `plugin` can't be a name.
    pub(super) fn switch(plugin: &str, on: bool) -> Option<Self> {
        edit::can_be_name(plugin).then(|| RegistryRoute::Switch { plugin: plugin.to_owned(), on })
    }

    /// The value of `Allow`.
    pub(super) fn allow(&self) -> &'static str {
        match self {
            RegistryRoute::List(_)
            | RegistryRoute::Revisions
            | RegistryRoute::Revision(_)
            | RegistryRoute::Difference(_) => "GET",
            RegistryRoute::One(..) => "GET, PUT, PATCH, DELETE",
            RegistryRoute::Bypass { .. } => "PUT, DELETE",
            RegistryRoute::Switch { .. }
            | RegistryRoute::Approve(_)
            | RegistryRoute::Apply
            | RegistryRoute::RollBack(_) => "POST",
        }
    }

    /// Whether a caller confined to the tenant `own` may know that the path exists.
    pub(super) fn is_for(&self, own: &str, method: &Method) -> bool {
        let is_own = match self {
            RegistryRoute::List(ObjectKind::Binding) | RegistryRoute::One(ObjectKind::Binding, _) => true,
            RegistryRoute::One(ObjectKind::Tenant, id) => id == own,
            _ => false,
        };
        is_own && *method == Method::GET
    }

    /// Whether the scope `hookgate:admin` is required. Authors and revisions are not for every reader.
    pub(super) fn is_administration(&self, method: &Method) -> bool {
        !matches!(self, RegistryRoute::List(_) | RegistryRoute::One(..)) || *method != Method::GET
    }
}

impl Admin {
    /// Answers a request of an authorized caller.
    pub(super) async fn registry(
        &self,
        snapshot: &ConfigSnapshot,
        route: RegistryRoute,
        asking: RegistryCaller<'_>,
        head: &Parts,
        body: Body,
    ) -> Result<(StatusCode, Bytes), Error> {
        let uri = &head.uri;
        let shown = match route {
            RegistryRoute::List(kind) => {
                let wanted = ListQuery::read(kind, uri)?;
                encode(&self.list(snapshot, &*self.contents().await?, kind, asking.tenant, &wanted))
            }
            RegistryRoute::One(kind, name) if head.method == Method::GET => {
                query::none(uri)?;
                encode(&self.one(snapshot, &*self.contents().await?, kind, &name, asking.tenant)?)
            }
            RegistryRoute::Revisions => {
                let (most, before) = query::revisions(uri)?;
                let (revisions, next) = self.operations.revisions(before, most).await.map_err(to_error)?;
                let views = revisions.iter();
                let views = views.map(|revision| {
                    RevisionView::new(revision, ChangeCounts::from_changes(&revision.changes))
                });
                encode(&Revisions { revisions: views.collect(), next_cursor: next })
            }
            RegistryRoute::Revision(number) => {
                query::none(uri)?;
                let revision = self.operations.revision(number).await.map_err(to_error)?;
                encode(&RevisionView::new(&revision, view::changes(&revision.changes)))
            }
            RegistryRoute::Difference(from) => {
                let to = query::difference(uri)?;
                let (to, changes) = self.operations.difference(from, to).await.map_err(to_error)?;
                encode(&Difference { from, to, changes: view::changes(&changes) })
            }
            RegistryRoute::One(..)
            | RegistryRoute::Bypass { .. }
            | RegistryRoute::Switch { .. }
            | RegistryRoute::Approve(_)
            | RegistryRoute::Apply
            | RegistryRoute::RollBack(_) => {
                return self.write(snapshot, route, asking.operator, head, body).await;
            }
        };
        Ok((StatusCode::OK, shown))
    }

    /// The page of objects of `kind` that match `wanted` and that a caller confined to `own` may see.
    pub(super) fn list<'c>(
        &self,
        snapshot: &ConfigSnapshot,
        contents: &'c Contents,
        kind: ObjectKind,
        own: Option<&str>,
        wanted: &ListQuery,
    ) -> PageView<'c> {
        let registered = if kind == ObjectKind::Plugin { ActivePlugin::all(snapshot) } else { Vec::new() };
        let find = |name: &str| registered.iter().find(|plugin| plugin.name() == name);
        let state = |entry: &Entry| plugin::state(find(&entry.object.name), entry);
        let is_wanted = |entry: &Entry| {
            is_for(entry, own)
                && wanted.filter.admits(entry)
                && wanted.state.is_none_or(|wanted| state(entry) == Some(wanted))
        };
        let ListPage { entries, next } =
            listing::page(contents, kind, wanted.after.as_deref(), wanted.limit, is_wanted);
        let views = entries
            .into_iter()
            .map(|entry| self.object(snapshot, contents, find(&entry.object.name), entry))
            .collect();
        let of_file = || snapshot.invoker.routes().table.revision();
        let revision = if self.operations.has_registry() { contents.revision() } else { of_file() };
        PageView { objects: Objects::new(kind, views), next_cursor: next, revision }
    }

    /// Finds one object.
    ///
    /// # Errors
    /// NOT_FOUND, also if a caller confined to `own` may not see it.
    pub(super) fn one<'c>(
        &self,
        snapshot: &ConfigSnapshot,
        contents: &'c Contents,
        kind: ObjectKind,
        name: &str,
        own: Option<&str>,
    ) -> Result<ObjectView<'c>, Error> {
        let entry = contents.get(kind, name).filter(|entry| is_for(entry, own)).ok_or_else(nothing)?;
        let registered = match kind {
            ObjectKind::Plugin => ActivePlugin::named(snapshot, name),
            ObjectKind::Tenant
            | ObjectKind::Binding
            | ObjectKind::Upstream
            | ObjectKind::Model
            | ObjectKind::Bypass => None,
        };
        Ok(self.object(snapshot, contents, registered.as_ref(), entry))
    }

    /// The registry's current contents.
    ///
    /// # Errors
    /// STORE_UNAVAILABLE if nothing was ever read.
    pub(super) async fn contents(&self) -> Result<std::sync::Arc<Contents>, Error> {
        self.operations.contents().await.map_err(to_error)
    }

    /// One object as operators see it. `registered` is the active plugin.
    fn object<'a>(
        &self,
        snapshot: &ConfigSnapshot,
        contents: &Contents,
        registered: Option<&ActivePlugin>,
        entry: &'a Entry,
    ) -> ObjectView<'a> {
        let held = StoredObject::new(entry, self.operations.has_registry());
        let name = &*entry.object.name;
        match (&entry.typed, registered) {
            (TypedObject::Plugin(_), Some(registered)) => {
                ObjectView::Plugin { name, status: Box::new(self.plugin(registered)), held }
            }
            (TypedObject::Plugin(plugin), None) => {
                let bindings = contents.entries().iter().filter_map(|entry| match &entry.typed {
                    TypedObject::Binding(binding) if binding.enabled && binding.plugin == plugin.name => {
                        Some(binding.effective_name().into_owned())
                    }
                    _ => None,
                });
                let required = snapshot.config.requires(plugin);
                let status = Box::new(plugin::waiting(plugin, required, bindings.collect()));
                ObjectView::Plugin { name, status, held }
            }
            (TypedObject::Tenant(_), _) => ObjectView::Tenant { id: name, held },
            (TypedObject::Binding(_), _) => ObjectView::Binding { name, held },
            (TypedObject::Upstream(_), _) => ObjectView::Upstream { name, held },
            (TypedObject::Model(_), _) => ObjectView::Model { name, held },
            (TypedObject::Bypass(bypass), _) => ObjectView::Bypass {
                bypass,
                version: entry.object.version,
                active: snapshot.config.bypasses.contains(bypass),
            },
        }
    }
}

/// Converts an error of a request without a body.
pub(super) fn to_error(undone: OperationError) -> Error {
    write_error::error(undone, &SentBody::Nothing)
}

/// Whether a caller confined to the tenant `own` may see `entry`.
fn is_for(entry: &Entry, own: Option<&str>) -> bool {
    let Some(own) = own else { return true };
    match &entry.typed {
        TypedObject::Plugin(_)
        | TypedObject::Upstream(_)
        | TypedObject::Model(_)
        | TypedObject::Bypass(_) => false,
        TypedObject::Tenant(tenant) => tenant.id == own,
        // Bindings for several tenants are for operators; a tenant sees their effect in its plan.
        TypedObject::Binding(binding) => own != "*" && binding.tenant.as_deref() == Some(own),
    }
}
