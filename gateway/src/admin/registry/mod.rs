//! Plugins, tenants and bindings one by one, and their revisions: reads, writes, dry runs (docs/registry.md). Thin:
//! what may be written, and what comes of it, is [`Operations`]' matter.
//!
//! Whoever is confined to a tenant sees that tenant and the bindings for it alone, and can't tell anything else from
//! what isn't there.

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
        query::Wanted,
        view::{ChangeCounts, Difference, Held, ObjectView, Objects, PageView, RevisionView, Revisions},
        write_error::Sent,
    },
    auth::{Operator, is_tenant_id},
    core::{error::Error, object::Kind},
    registry::{
        Contents, Entry, TypedObject,
        document::plural,
        edit,
        listing::{self, ListPage},
        operations::OperationError,
    },
    snapshot::InForce,
};

/// What a path stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    List(Kind),
    One(Kind, String),
    Bypass { binding: String, tenant: String },
    Switch { plugin: String, on: bool },
    Approve(String),
    Apply,
    Revisions,
    Revision(u64),
    Difference(u64),
    RollBack(u64),
}

/// Who asks.
pub(super) struct Asking<'a> {
    pub(super) operator: &'a Operator,
    /// Whom he is confined to.
    pub(super) tenant: Option<&'a str>,
}

impl Route {
    /// The one with these parts, and a name that an object can have where one must be there.
    pub(super) fn find(parts: &[&str]) -> Option<Self> {
        let kind = |text: &str| Kind::ALL.into_iter().find(|kind| plural(*kind) == text);
        match *parts {
            ["apply"] => Some(Route::Apply),
            ["revisions"] => Some(Route::Revisions),
            ["revisions", number] => Some(Route::Revision(query::number(number)?)),
            ["revisions", number, "diff"] => Some(Route::Difference(query::number(number)?)),
            ["revisions", number, "rollback"] => Some(Route::RollBack(query::number(number)?)),
            [list] => Some(Route::List(kind(list)?)),
            ["bindings", binding, "bypass", tenant] if edit::can_be_name(binding) && is_tenant_id(tenant) => {
                Some(Route::Bypass { binding: binding.to_owned(), tenant: tenant.to_owned() })
            }
            [list, name] => Route::one(kind(list)?, name),
            ["plugins", name, how @ ("enable" | "disable")] => Route::switch(name, how == "enable"),
            ["plugins", name, "approve"] if edit::can_be_name(name) => Some(Route::Approve(name.to_owned())),
            _ => None,
        }
    }

    /// To the object of this name, whether one can have it or not.
    pub(super) fn one(kind: Kind, name: &str) -> Option<Self> {
        // A bypass is written and ended at its binding.
        (kind != Kind::Bypass).then(|| Route::One(kind, name.to_owned()))
    }

    /// To the plugin's switch, if one can have this name.
    pub(super) fn switch(plugin: &str, on: bool) -> Option<Self> {
        edit::can_be_name(plugin).then(|| Route::Switch { plugin: plugin.to_owned(), on })
    }

    /// The methods that it takes, as `Allow` names them.
    pub(super) fn allow(&self) -> &'static str {
        match self {
            Route::List(_) | Route::Revisions | Route::Revision(_) | Route::Difference(_) => "GET",
            Route::One(..) => "GET, PUT, PATCH, DELETE",
            Route::Bypass { .. } => "PUT, DELETE",
            Route::Switch { .. } | Route::Approve(_) | Route::Apply | Route::RollBack(_) => "POST",
        }
    }

    /// Whether a token that is confined to the tenant `own` may learn that there is such a path.
    pub(super) fn is_for(&self, own: &str, method: &Method) -> bool {
        let is_own = match self {
            Route::List(Kind::Binding) | Route::One(Kind::Binding, _) => true,
            Route::One(Kind::Tenant, id) => id == own,
            _ => false,
        };
        is_own && *method == Method::GET
    }

    /// Whether it wants the scope `hookgate:admin`: what was written by whom is not for every reader.
    pub(super) fn is_administration(&self, method: &Method) -> bool {
        !matches!(self, Route::List(_) | Route::One(..)) || *method != Method::GET
    }
}

impl Admin {
    /// The answer to whoever may ask.
    pub(super) async fn registry(
        &self,
        in_force: &InForce,
        route: Route,
        asking: Asking<'_>,
        head: &Parts,
        body: Body,
    ) -> Result<(StatusCode, Bytes), Error> {
        let uri = &head.uri;
        let shown = match route {
            Route::List(kind) => {
                let wanted = Wanted::read(kind, uri)?;
                encode(&self.list(in_force, &*self.contents().await?, kind, asking.tenant, &wanted))
            }
            Route::One(kind, name) if head.method == Method::GET => {
                query::none(uri)?;
                encode(&self.one(in_force, &*self.contents().await?, kind, &name, asking.tenant)?)
            }
            Route::Revisions => {
                let (most, before) = query::revisions(uri)?;
                let (revisions, next) = self.operations.revisions(before, most).await.map_err(told)?;
                let views = revisions.iter();
                let views =
                    views.map(|revision| RevisionView::new(revision, ChangeCounts::of(&revision.changes)));
                encode(&Revisions { revisions: views.collect(), next_cursor: next })
            }
            Route::Revision(number) => {
                query::none(uri)?;
                let revision = self.operations.revision(number).await.map_err(told)?;
                encode(&RevisionView::new(&revision, view::changes(&revision.changes)))
            }
            Route::Difference(from) => {
                let to = query::difference(uri)?;
                let (to, changes) = self.operations.difference(from, to).await.map_err(told)?;
                encode(&Difference { from, to, changes: view::changes(&changes) })
            }
            Route::One(..)
            | Route::Bypass { .. }
            | Route::Switch { .. }
            | Route::Approve(_)
            | Route::Apply
            | Route::RollBack(_) => {
                return self.write(in_force, route, asking.operator, head, body).await;
            }
        };
        Ok((StatusCode::OK, shown))
    }

    /// The objects of `kind` among `contents` that are `wanted`, of those that whoever is confined to `own` may see.
    pub(super) fn list<'c>(
        &self,
        in_force: &InForce,
        contents: &'c Contents,
        kind: Kind,
        own: Option<&str>,
        wanted: &Wanted,
    ) -> PageView<'c> {
        let registered = if kind == Kind::Plugin { ActivePlugin::all(in_force) } else { Vec::new() };
        let find = |name: &str| registered.iter().find(|plugin| plugin.name() == name);
        let state = |entry: &Entry| plugin::state(find(&entry.object.name), entry);
        let is_wanted = |entry: &Entry| {
            is_for(entry, own)
                && wanted.filter.admits(entry)
                && wanted.state.is_none_or(|wanted| state(entry) == Some(wanted))
        };
        let ListPage { entries, next } =
            listing::page(contents, kind, wanted.after.as_deref(), wanted.most, is_wanted);
        let views = entries
            .into_iter()
            .map(|entry| self.object(in_force, contents, find(&entry.object.name), entry))
            .collect();
        let of_file = || in_force.invoker.routes().table.revision();
        let revision = if self.operations.has_registry() { contents.revision() } else { of_file() };
        PageView { objects: Objects::new(kind, views), next_cursor: next, revision }
    }

    /// One object of `contents`.
    ///
    /// # Errors
    /// NOT_FOUND, also where it is not for whoever is confined to `own`.
    pub(super) fn one<'c>(
        &self,
        in_force: &InForce,
        contents: &'c Contents,
        kind: Kind,
        name: &str,
        own: Option<&str>,
    ) -> Result<ObjectView<'c>, Error> {
        let entry = contents.get(kind, name).filter(|entry| is_for(entry, own)).ok_or_else(nothing)?;
        let registered = match kind {
            Kind::Plugin => ActivePlugin::named(in_force, name),
            Kind::Tenant | Kind::Binding | Kind::Bypass => None,
        };
        Ok(self.object(in_force, contents, registered.as_ref(), entry))
    }

    /// What there is.
    ///
    /// # Errors
    /// STORE_UNAVAILABLE: the store could not be read so far.
    pub(super) async fn contents(&self) -> Result<std::sync::Arc<Contents>, Error> {
        self.operations.contents().await.map_err(told)
    }

    /// One object as operators see it. `registered`: the plugin as it is in force.
    fn object<'a>(
        &self,
        in_force: &InForce,
        contents: &Contents,
        registered: Option<&ActivePlugin>,
        entry: &'a Entry,
    ) -> ObjectView<'a> {
        let held = Held::new(entry, self.operations.has_registry());
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
                let required = in_force.config.requires(plugin);
                let status = Box::new(plugin::waiting(plugin, required, bindings.collect()));
                ObjectView::Plugin { name, status, held }
            }
            (TypedObject::Tenant(_), _) => ObjectView::Tenant { id: name, held },
            (TypedObject::Binding(_), _) => ObjectView::Binding { name, held },
            (TypedObject::Bypass(bypass), _) => ObjectView::Bypass {
                bypass,
                version: entry.object.version,
                active: in_force.config.bypasses.contains(bypass),
            },
        }
    }
}

/// Why nothing is shown.
pub(super) fn told(undone: OperationError) -> Error {
    write_error::error(undone, &Sent::Nothing)
}

/// Whether whoever is confined to the tenant `own` may see `entry`.
fn is_for(entry: &Entry, own: Option<&str>) -> bool {
    let Some(own) = own else { return true };
    match &entry.typed {
        TypedObject::Plugin(_) | TypedObject::Bypass(_) => false,
        TypedObject::Tenant(tenant) => tenant.id == own,
        // What is for several tenants is the operator's; the plan shows what of it concerns this one.
        TypedObject::Binding(binding) => own != "*" && binding.tenant.as_deref() == Some(own),
    }
}
