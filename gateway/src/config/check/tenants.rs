//! Checks of tenants, and of what they change in global bindings.

use std::collections::BTreeMap;

use super::{ConfigChecker, tenant_id_fault};
use crate::{
    config::{model::Tenant, partial_config::PartialEntry, plugin::Binding, problem::item},
    json::pointer::child,
};

impl<'d> ConfigChecker<'d> {
    pub(super) fn tenants(&mut self) {
        let tenants = &self.draft.tenants;
        if self.draft.refuses_everybody {
            self.report(
                "/tenants",
                "no tenant is listed and unknown tenants are refused: every call would be refused",
                "list the tenants under `tenants.list`, or set `tenants.unknown: accept`",
            );
        }
        self.unique(
            "a tenant",
            tenants.iter().filter_map(|item| Some((child(&item.pointer, "id"), item.id.clone()?))),
        );
        let bindings = self.bindings_by_name();
        for item in tenants {
            if let Some(tenant) = &item.value {
                self.tenant(&item.pointer, tenant, bindings.as_ref());
            }
        }
    }

    /// All bindings, or `None` if a binding's name is uncertain.
    fn bindings_by_name(&self) -> Option<BTreeMap<String, &'d PartialEntry<Binding>>> {
        if !self.is_whole {
            return None;
        }
        let named = |item: &'d PartialEntry<Binding>| {
            let binding = item.value.as_ref().filter(|binding| binding.name.is_some() || !item.tainted)?;
            Some((binding.effective_name().into_owned(), item))
        };
        self.draft.bindings.iter().map(named).collect()
    }

    fn tenant(
        &mut self,
        pointer: &str,
        tenant: &Tenant,
        bindings: Option<&BTreeMap<String, &PartialEntry<Binding>>>,
    ) {
        if let Some(fault) = tenant_id_fault(&tenant.id) {
            self.report(child(pointer, "id"), fault, "write the id that tokens carry");
        }
        self.tenant_llm(&child(pointer, "llm"), &tenant.llm);
        if let Some(plugins) = &self.plugins {
            let unknown = tenant.config.keys().filter(|name| !plugins.contains(name.as_str()));
            let found: Vec<_> =
                unknown.map(|name| (name, self.did_you_mean(name, plugins.iter().copied()))).collect();
            for (name, remedy) in found {
                self.report_key(
                    child(&child(pointer, "config"), name),
                    format!("there is no plugin `{name}`"),
                    remedy.unwrap_or_else(|| "the keys of `config` are names of plugins".into()),
                );
            }
        }
        let Some(bindings) = bindings else { return };
        for (index, name) in tenant.disable.iter().enumerate() {
            let pointer = item(&child(pointer, "disable"), index);
            match bindings.get(name) {
                None => {
                    let remedy = self.did_you_mean(name, bindings.keys().map(String::as_str));
                    self.report(
                        pointer,
                        format!("there is no binding `{name}`"),
                        remedy.unwrap_or_else(|| "`disable` lists names of bindings".into()),
                    );
                }
                Some(entry) => self.disabled(pointer, name, entry),
            }
        }
    }

    fn disabled(&mut self, pointer: String, name: &str, entry: &PartialEntry<Binding>) {
        let Some(binding) = entry.value.as_ref().filter(|_| !entry.tainted) else { return };
        if !binding.is_floor() {
            self.report(
                pointer,
                format!("binding `{name}` applies to one tenant only, and can't be disabled by `disable`"),
                "set `enabled: false` in the binding, or remove it",
            );
        } else if !binding.overridable {
            self.report(
                pointer,
                format!("binding `{name}` can't be disabled by a tenant"),
                "set `overridable: true` in the binding, or remove it from `disable`",
            );
        }
    }
}
