//! Lists objects in pages: filters, pages and cursors. Pure.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use super::{Contents, Entry, TypedObject};
use crate::core::object::{ObjectKind, Owner};

pub const MAX_PAGE_SIZE: usize = 500;
/// The default number of entries per page.
pub const DEFAULT_PAGE_SIZE: usize = 100;

/// Which objects to list. Empty members accept every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Objects of this owner.
    pub owner: Option<Owner>,
    /// Bindings of this plugin.
    pub plugin: Option<String>,
    /// Bindings with exactly this `tenant`, and bypasses for it.
    pub tenant: Option<String>,
    /// Bypasses of this binding.
    pub binding: Option<String>,
    /// Rules for models that name this provider.
    pub upstream: Option<String>,
    /// Objects with all of these labels. Bypasses have no labels.
    pub labels: Vec<(String, String)>,
    /// Tenants with this `enabled`.
    pub enabled: Option<bool>,
}

impl ListFilter {
    /// Whether `entry` matches. A filter for another kind matches nothing.
    pub fn admits(&self, entry: &Entry) -> bool {
        self.owner.is_none_or(|owner| owner == entry.object.content.owner)
            && self.labels.iter().all(|(key, value)| entry.is_labelled(key, value))
            && match &entry.typed {
                TypedObject::Plugin(_) | TypedObject::Upstream(_) => true,
                TypedObject::Tenant(tenant) => self.enabled.is_none_or(|enabled| enabled == tenant.enabled),
                TypedObject::Binding(binding) => {
                    self.plugin.as_ref().is_none_or(|plugin| *plugin == binding.plugin)
                        && self.tenant.as_ref().is_none_or(|tenant| binding.tenant.as_ref() == Some(tenant))
                }
                TypedObject::Model(rule) => {
                    self.upstream.as_ref().is_none_or(|upstream| *upstream == rule.upstream)
                }
                TypedObject::Bypass(bypass) => {
                    self.binding.as_ref().is_none_or(|binding| *binding == bypass.binding)
                        && self.tenant.as_ref().is_none_or(|tenant| *tenant == bypass.tenant)
                }
            }
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct ListPage<'c> {
    /// Sorted by name in byte order.
    pub entries: Vec<&'c Entry>,
    /// The cursor of the next page; `None` on the last.
    pub next: Option<String>,
}

/// The first `most` objects of `kind` after the name `after` that match `wanted`. Objects that are created
/// or deleted between pages make no other object appear twice or not at all.
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

/// The cursor after the object `name`.
pub fn cursor(kind: ObjectKind, name: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{kind}\0{name}"))
}

/// The name in a cursor of a list of `kind`; `None` if `text` isn't one.
pub fn read_cursor(kind: ObjectKind, text: &str) -> Option<String> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (of, name) = text.split_once('\0')?;
    (of == kind.as_str() && !name.is_empty()).then(|| name.to_owned())
}

/// The cursor after the revision `number`.
pub fn revision_cursor(number: u64) -> String {
    URL_SAFE_NO_PAD.encode(format!("revision\0{number}"))
}

/// The number in a cursor of the list of revisions; `None` if `text` isn't one.
pub fn read_revision_cursor(text: &str) -> Option<u64> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    text.strip_prefix("revision\0")?.parse().ok()
}
