//! Several objects in one document, which become as it says all together or not at all. What is not in it stays: a
//! document that is only half there must not take anything away, so what is to go is named. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::edit::{self, Edit, Wish};
use crate::{error::Violation, store::Kind};

/// What is to be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Document {
    /// Plugins as entries of a file.
    pub plugins: Vec<Value>,
    /// Tenants as entries of a file.
    pub tenants: Vec<Value>,
    /// Bindings as entries of a file.
    pub bindings: Vec<Value>,
    /// What is to go.
    pub remove: Vec<Named>,
    /// The versions that objects are to have now (0: they must not be there). Those that are not named here may have any.
    pub versions: Versions,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// Versions by name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Versions {
    /// Of plugins.
    pub plugins: BTreeMap<String, u64>,
    /// Of tenants.
    pub tenants: BTreeMap<String, u64>,
    /// Of bindings.
    pub bindings: BTreeMap<String, u64>,
}

/// Where each object stands in the document, as a JSON pointer.
pub type Places = BTreeMap<(Kind, String), String>;

/// What the members for objects of a kind are called.
pub const fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Plugin => "plugins",
        Kind::Tenant => "tenants",
        Kind::Binding => "bindings",
        Kind::Bypass => "bypasses",
    }
}

impl Document {
    /// The wishes that it comes to, and where each stands. `with_bindings`: see [`Wish::Gone`].
    ///
    /// # Errors
    /// An object without a name, one that is there twice, and a version of one that isn't.
    pub fn edits(self, with_bindings: bool) -> Result<(Vec<Edit>, Places), Vec<Violation>> {
        let Document { plugins, tenants, bindings, remove, versions } = self;
        let Versions { plugins: of_plugins, tenants: of_tenants, bindings: of_bindings } = versions;
        let lists = [
            (Kind::Plugin, plugins, of_plugins),
            (Kind::Tenant, tenants, of_tenants),
            (Kind::Binding, bindings, of_bindings),
        ];
        let (mut wishes, mut versions, mut wrong) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (kind, specs, expected) in lists {
            versions.extend(expected.into_iter().map(|(name, version)| ((kind, name), version)));
            for (at, spec) in specs.into_iter().enumerate() {
                let place = format!("/{}/{at}", plural(kind));
                match edit::name(kind, &spec) {
                    Some(name) => wishes.push((kind, name, place, Wish::Be(spec))),
                    None => wrong.push(Violation::new(place, format!("The {kind} has no name"))),
                }
            }
        }
        wishes.extend(remove.into_iter().enumerate().map(|(at, Named { kind, name })| {
            (kind, name, format!("/remove/{at}"), Wish::Gone { with_bindings })
        }));
        let (mut edits, mut places) = (Vec::new(), Places::new());
        for (kind, name, place, wish) in wishes {
            if kind == Kind::Bypass {
                let why = "A bypass is ended at the binding and the tenant that it is of, not by a document";
                wrong.push(Violation::new(place, why.to_owned()));
                continue;
            }
            if !edit::can_be_name(&name) {
                wrong.push(Violation::new(place, format!("No {kind} has a name like this one's")));
                continue;
            }
            if let Some(first) = places.insert((kind, name.clone()), place.clone()) {
                wrong.push(Violation::new(place, format!("The {kind} stands at {first} already")));
                continue;
            }
            let expected = versions.remove(&(kind, name.clone()));
            edits.push(Edit { kind, name, expected, wish });
        }
        wrong.extend(versions.into_keys().map(|(kind, name)| {
            let mut pointer = format!("/versions/{}", plural(kind));
            crate::json::pointer::push_key(&mut pointer, &name);
            Violation::new(pointer, format!("The document says nothing else of this {kind}"))
        }));
        if wrong.is_empty() { Ok((edits, places)) } else { Err(wrong) }
    }
}
