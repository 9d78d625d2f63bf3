//! Lists of objects in pages: which of them are wanted, and where the next page begins. Pure.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{Contents, Entry, TypedObject};
use crate::core::object::{ObjectKind, Owner};

/// Most entries of a page.
pub const MAX_PAGE_SIZE: usize = 500;
/// Entries of a page where nobody says how many.
pub const DEFAULT_PAGE_SIZE: usize = 100;

/// Which objects are wanted; what is empty asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Of this owner.
    pub owner: Option<Owner>,
    /// Bindings of this plugin.
    pub plugin: Option<String>,
    /// Bindings with exactly this `tenant`, and bypasses for it.
    pub tenant: Option<String>,
    /// Bypasses of this binding.
    pub binding: Option<String>,
    /// Those with all of these labels; no bypass has any.
    pub labels: Vec<(String, String)>,
    /// Tenants that are switched on, or off.
    pub enabled: Option<bool>,
}

impl ListFilter {
    /// Whether `entry` is wanted. What a filter asks of another kind, no object has.
    pub fn admits(&self, entry: &Entry) -> bool {
        self.owner.is_none_or(|owner| owner == entry.object.content.owner)
            && self.labels.iter().all(|(key, value)| entry.is_labelled(key, value))
            && match &entry.typed {
                TypedObject::Plugin(_) => true,
                TypedObject::Tenant(tenant) => self.enabled.is_none_or(|enabled| enabled == tenant.enabled),
                TypedObject::Binding(binding) => {
                    self.plugin.as_ref().is_none_or(|plugin| *plugin == binding.plugin)
                        && self.tenant.as_ref().is_none_or(|tenant| binding.tenant.as_ref() == Some(tenant))
                }
                TypedObject::Bypass(bypass) => {
                    self.binding.as_ref().is_none_or(|binding| *binding == bypass.binding)
                        && self.tenant.as_ref().is_none_or(|tenant| *tenant == bypass.tenant)
                }
            }
    }
}

/// A part of a list.
#[derive(Debug)]
pub struct ListPage<'c> {
    /// By name, in the order of its bytes.
    pub entries: Vec<&'c Entry>,
    /// What to ask for the next part with; none: this is the last.
    pub next: Option<String>,
}

/// The first `most` objects of `kind` behind the one that is named `after` which `wanted` wants. An object that comes or
/// goes meanwhile makes none of the others come twice or go missing.
pub fn page<'c>(
    contents: &'c Contents,
    kind: ObjectKind,
    after: Option<&str>,
    most: usize,
    wanted: impl Fn(&Entry) -> bool,
) -> ListPage<'c> {
    let key = |entry: &Entry| entry.object.kind;
    let (all, after) = (contents.entries(), after.unwrap_or_default());
    let first = all.partition_point(|entry| (key(entry), &*entry.object.name) <= (kind, after));
    let of_kind = all[first..].iter().map(|entry| &**entry).take_while(|entry| key(entry) == kind);
    let mut found = of_kind.filter(|entry| wanted(entry));
    let entries: Vec<_> = found.by_ref().take(most).collect();
    let next = entries.last().filter(|_| found.next().is_some()).map(|last| cursor(kind, &last.object.name));
    ListPage { entries, next }
}

/// What stands for the place behind the object `name` of a list.
pub fn cursor(kind: ObjectKind, name: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{kind}\0{name}"))
}

/// The name behind which a list of `kind` goes on; none: that is no cursor of such a list.
pub fn read_cursor(kind: ObjectKind, text: &str) -> Option<String> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (of, name) = text.split_once('\0')?;
    (of == kind.as_str() && !name.is_empty()).then(|| name.to_owned())
}

/// What stands for the place behind the revision `number` of the list of revisions.
pub fn revision_cursor(number: u64) -> String {
    URL_SAFE_NO_PAD.encode(format!("revision\0{number}"))
}

/// The revision behind which the list of revisions goes on; none: that is no cursor of it.
pub fn read_revision_cursor(text: &str) -> Option<u64> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    text.strip_prefix("revision\0")?.parse().ok()
}
