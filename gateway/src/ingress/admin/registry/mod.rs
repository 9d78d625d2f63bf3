//! Plugins, tenants and bindings one by one, and their revisions: shown, written, tried out (docs/registry.md). Thin:
//! what may be written, and what comes of it, is [`Operations`]' matter.
//!
//! Whoever is confined to a tenant sees that tenant and the bindings for it alone, and can't tell anything else from
//! what isn't there.

pub(super) mod body;
pub(super) mod query;
pub(super) mod refused;
mod view;
mod write;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};

pub(super) use self::view::Held;
use self::{
    query::Wanted,
    refused::Sent,
    view::{Counts, Difference, ObjectView, Objects, PageView, RevisionView, Revisions},
};
use super::{
    Admin, bytes as encode, nothing,
    plugin::{self, Registered},
};
use crate::{
    auth::Operator,
    error::Error,
    ingress::call::InForce,
    registry::{
        Contents, Entry, Typed,
        document::plural,
        edit,
        listing::{self, Page},
    },
    store::Kind,
};

/// What a path stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    List(Kind),
    One(Kind, String),
    Switch { plugin: String, on: bool },
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
    /// The one with these parts, and a name that an object can have.
    pub(super) fn find(parts: &[&str]) -> Option<Self> {
        let kind = |text: &str| Kind::ALL.into_iter().find(|kind| plural(*kind) == text);
        match *parts {
            ["apply"] => Some(Route::Apply),
            ["revisions"] => Some(Route::Revisions),
            ["revisions", number] => Some(Route::Revision(query::number(number)?)),
            ["revisions", number, "diff"] => Some(Route::Difference(query::number(number)?)),
            ["revisions", number, "rollback"] => Some(Route::RollBack(query::number(number)?)),
            [list] => Some(Route::List(kind(list)?)),
            [list, name] if edit::can_be_name(name) => Some(Route::One(kind(list)?, name.to_owned())),
            ["plugins", name, how @ ("enable" | "disable")] if edit::can_be_name(name) => {
                Some(Route::Switch { plugin: name.to_owned(), on: how == "enable" })
            }
            _ => None,
        }
    }

    /// The methods that it takes, as `Allow` names them.
    pub(super) fn allow(&self) -> &'static str {
        match self {
            Route::List(_) | Route::Revisions | Route::Revision(_) | Route::Difference(_) => "GET",
            Route::One(..) => "GET, PUT, PATCH, DELETE",
            Route::Switch { .. } | Route::Apply | Route::RollBack(_) => "POST",
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
        let is_object = matches!(self, Route::List(_) | Route::One(..));
        !is_object || *method != Method::GET
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
        let told = |undone| refused::error(undone, &Sent::Nothing);
        let shown = match route {
            Route::List(kind) => self.list(in_force, kind, asking.tenant, Wanted::read(kind, uri)?).await?,
            Route::One(kind, name) if head.method == Method::GET => {
                query::none(uri)?;
                self.one(in_force, kind, &name, asking.tenant).await?
            }
            Route::Revisions => {
                let (most, before) = query::revisions(uri)?;
                let (revisions, next) = self.operations.revisions(before, most).await.map_err(told)?;
                let views = revisions.iter();
                let views = views.map(|revision| RevisionView::new(revision, Counts::of(&revision.changes)));
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
            Route::One(..) | Route::Switch { .. } | Route::Apply | Route::RollBack(_) => {
                return self.write(in_force, route, asking.operator, head, body).await;
            }
        };
        Ok((StatusCode::OK, shown))
    }

    async fn list(
        &self,
        in_force: &InForce,
        kind: Kind,
        own: Option<&str>,
        wanted: Wanted,
    ) -> Result<Bytes, Error> {
        let contents = self.contents().await?;
        let registered = if kind == Kind::Plugin { Registered::all(in_force) } else { Vec::new() };
        let find = |name: &str| registered.iter().find(|plugin| plugin.name() == name);
        let state = |entry: &Entry| plugin::state(find(&entry.object.name), entry);
        let is_wanted = |entry: &Entry| {
            is_for(entry, own)
                && wanted.filter.admits(entry)
                && wanted.state.is_none_or(|wanted| state(entry) == Some(wanted))
        };
        let Page { entries, next } =
            listing::page(&contents, kind, wanted.after.as_deref(), wanted.most, is_wanted);
        let views = entries
            .into_iter()
            .map(|entry| self.object(in_force, &contents, find(&entry.object.name), entry))
            .collect();
        let of_file = || in_force.invoker.routes().table.revision();
        let revision = if self.operations.has_registry() { contents.revision() } else { of_file() };
        Ok(encode(&PageView { objects: Objects::new(kind, views), next_cursor: next, revision }))
    }

    pub(super) async fn one(
        &self,
        in_force: &InForce,
        kind: Kind,
        name: &str,
        own: Option<&str>,
    ) -> Result<Bytes, Error> {
        let contents = self.contents().await?;
        let entry = contents.get(kind, name).filter(|entry| is_for(entry, own)).ok_or_else(nothing)?;
        let registered = match kind {
            Kind::Plugin => Registered::named(in_force, name),
            Kind::Tenant | Kind::Binding => None,
        };
        Ok(encode(&self.object(in_force, &contents, registered.as_ref(), entry)))
    }

    async fn contents(&self) -> Result<std::sync::Arc<Contents>, Error> {
        self.operations.contents().await.map_err(|undone| refused::error(undone, &Sent::Nothing))
    }

    /// One object as operators see it. `registered`: the plugin as it is in force.
    fn object<'a>(
        &self,
        in_force: &InForce,
        contents: &Contents,
        registered: Option<&Registered>,
        entry: &'a Entry,
    ) -> ObjectView<'a> {
        let held = Held::new(entry, self.operations.has_registry());
        let name = &*entry.object.name;
        match (&entry.typed, registered) {
            (Typed::Plugin(_), Some(registered)) => {
                ObjectView::Plugin(Box::new(self.plugin(registered, held)))
            }
            (Typed::Plugin(plugin), None) => {
                let bindings = contents.entries().iter().filter_map(|entry| match &entry.typed {
                    Typed::Binding(binding) if binding.enabled && binding.plugin == plugin.name => {
                        Some(binding.effective_name().into_owned())
                    }
                    _ => None,
                });
                let required = in_force.config.requires(plugin);
                ObjectView::Plugin(Box::new(plugin::waiting(plugin, required, bindings.collect(), held)))
            }
            (Typed::Tenant(_), _) => ObjectView::Tenant { id: name, held },
            (Typed::Binding(_), _) => ObjectView::Binding { name, held },
        }
    }
}

/// Whether whoever is confined to the tenant `own` may see `entry`.
fn is_for(entry: &Entry, own: Option<&str>) -> bool {
    let Some(own) = own else { return true };
    match &entry.typed {
        Typed::Plugin(_) => false,
        Typed::Tenant(tenant) => tenant.id == own,
        // What is for several tenants is the operator's; the plan shows what of it concerns this one.
        Typed::Binding(binding) => own != "*" && binding.tenant.as_deref() == Some(own),
    }
}
