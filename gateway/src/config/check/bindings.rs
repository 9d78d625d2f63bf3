//! Checks of bindings: tenants and conditions (docs/protocol.md, sections 3 and 7).

use super::{ConfigChecker, limits::STEP_TIMEOUT_RANGE, tenant_id_fault};
use crate::{
    config::{
        partial_config::PartialEntry,
        plugin::{Binding, Match},
        problem::{did_you_mean, item},
        schema::alternatives,
    },
    core::{point::Point, step::Mode, tool::ToolNames},
    json::pointer::child,
};

/// The payload fields that a plugin may patch at a point (section 1).
const fn patchable(point: Point) -> &'static [&'static str] {
    match point {
        Point::BeforeLlmRequest => {
            &["text", "images", "files", "system_prompt", "messages", "tools", "extra"]
        }
        Point::BeforeToolCall => &["tool_name", "args", "extra"],
        Point::AfterToolResult => &["result", "extra"],
        Point::BeforeResponse => &["content", "reasoning", "extra"],
    }
}

impl ConfigChecker<'_> {
    pub(super) fn bindings(&mut self) {
        let bindings = &self.draft.bindings;
        self.unique(
            "a binding",
            bindings.iter().filter_map(|item| {
                let binding = item.value.as_ref()?;
                // A default name is the plugin's, so that key is marked.
                let key = if binding.name.is_some() { "name" } else { "plugin" };
                Some((child(&item.pointer, key), binding.effective_name().into_owned()))
            }),
        );
        for item in bindings {
            if let Some(binding) = &item.value {
                self.binding(item, binding);
            }
        }
    }

    fn binding(&mut self, entry: &PartialEntry<Binding>, binding: &Binding) {
        let pointer = entry.pointer.as_str();
        if let Some(name) = &binding.name {
            self.name(&child(pointer, "name"), name);
        }
        let plugin = binding.plugin.as_str();
        if let Some(plugins) = self.plugins.as_ref().filter(|names| !names.contains(plugin)) {
            let remedy = self.did_you_mean(plugin, plugins.iter().copied());
            let remedy = remedy.unwrap_or_else(|| "add it to `plugins`, or name one that is there".into());
            self.report(child(pointer, "plugin"), format!("there is no plugin `{plugin}`"), remedy);
        }
        self.exactly_one(
            entry,
            &[("tenant", binding.tenant.is_some()), ("selector", binding.selector.is_some())],
        );
        self.bound_tenant(pointer, binding);
        self.verdict_rules(pointer, binding);
        if let Some(timeout) = binding.timeout {
            self.span(&child(pointer, "timeout"), timeout, STEP_TIMEOUT_RANGE);
        }
        self.writable(pointer, binding);
        self.conditions(&child(pointer, "match"), &binding.conditions);
        self.denied_tools(&child(pointer, "deny_tools"), binding);
        if binding.hooks.is_some() {
            self.at_hooks(pointer, binding);
        }
        let names_a_tool = |points: &Vec<Point>| points.iter().any(|point| point.names_a_tool());
        if binding.conditions.text.is_some() && binding.points.as_ref().is_some_and(names_a_tool) {
            self.report(
                child(&child(pointer, "match"), "text"),
                "`match.text` can't be evaluated at the tool points, which `points` lists",
                "split the binding in two, one for the tool points without `text`",
            );
        }
    }

    /// What a binding at hooks can't have: a hook decides nothing, and its body is no payload.
    fn at_hooks(&mut self, pointer: &str, binding: &Binding) {
        if binding.points.is_some() {
            self.report(
                child(pointer, "points"),
                "`points` and `hooks` can't be combined",
                "split the binding in two, one with `points` and one with `hooks`",
            );
        }
        for (key, enforces) in
            [("mode", binding.mode == Some(Mode::Enforce)), ("blocking", binding.blocking == Some(true))]
        {
            if enforces {
                self.report(
                    child(pointer, key),
                    format!("`{key}` asks to enforce, but a hook decides nothing"),
                    format!("omit `{key}` for `mode: advise`, or write `mode: observe`"),
                );
            }
        }
        if binding.writable.is_some() {
            let remedy = "omit `writable`";
            self.report(child(pointer, "writable"), "a hook has no payload that could be patched", remedy);
        }
        let conditions = &binding.conditions;
        for (key, is_set) in [("tools", conditions.tools.is_some()), ("text", conditions.text.is_some())] {
            if is_set {
                self.report(
                    child(&child(pointer, "match"), key),
                    format!("`match.{key}` can't be evaluated at hooks, which have none"),
                    format!("omit `{key}`"),
                );
            }
        }
    }

    fn bound_tenant(&mut self, pointer: &str, binding: &Binding) {
        let at = child(pointer, "tenant");
        if binding.selector.as_ref().is_some_and(|labels| labels.is_empty()) {
            let remedy = "write the labels that a tenant must have, or `tenant: \"*\"` for all";
            self.report(child(pointer, "selector"), "`selector` has no label", remedy);
        }
        let Some(tenant) = binding.tenant.as_deref().filter(|tenant| *tenant != "*") else { return };
        if let Some(fault) = tenant_id_fault(tenant) {
            self.report(at, fault, "write one tenant's id, or `\"*\"` for all");
        } else if let Some(ids) = self.tenants.as_ref().filter(|ids| !ids.contains(tenant)) {
            // With a misspelled tenant, the intended one would silently run without the plugin.
            let remedy = self.did_you_mean(tenant, ids.iter().copied());
            let remedy =
                remedy.unwrap_or_else(|| "add it to `tenants.list`, or name one that is there".into());
            self.report(at, format!("there is no tenant `{tenant}` in `tenants.list`"), remedy);
        }
    }

    fn verdict_rules(&mut self, pointer: &str, binding: &Binding) {
        if binding.blocking.is_some() && (binding.mode.is_some() || binding.on_error.is_some()) {
            self.report(
                child(pointer, "blocking"),
                "`blocking` can't be combined with `mode` and `on_error`, which it abbreviates",
                "omit `blocking`: true is `mode: enforce, on_error: fail`, false is `mode: advise, on_error: skip`",
            );
        } else if binding.mode == Some(Mode::Observe) && binding.on_error.is_some() {
            self.report(
                child(pointer, "on_error"),
                "`on_error` has no effect with `mode: observe`, whose failures change nothing",
                "leave `on_error` out",
            );
        }
    }

    fn writable(&mut self, pointer: &str, binding: &Binding) {
        if binding.hooks.is_some() {
            return;
        }
        let points = binding.points.as_deref().unwrap_or(&Point::ALL);
        let mut known: Vec<&str> = points.iter().flat_map(|&point| patchable(point)).copied().collect();
        known.sort_unstable();
        known.dedup();
        for (index, field) in binding.writable.iter().flatten().enumerate() {
            if !known.contains(&field.as_str()) {
                let remedy = did_you_mean(field, known.iter().copied());
                let remedy = remedy.unwrap_or_else(|| format!("write {}", alternatives(&known)));
                let message = format!("`{field}` can't be patched at any point of this binding");
                self.report(item(&child(pointer, "writable"), index), message, remedy);
            }
        }
    }

    fn conditions(&mut self, pointer: &str, conditions: &Match) {
        let Match { tools, agents, agent_paths, models, .. } = conditions;
        let lists = [("tools", tools), ("agents", agents), ("agent_paths", agent_paths), ("models", models)];
        for (key, globs) in lists {
            self.globs(&child(pointer, key), globs.as_deref().unwrap_or_default());
        }
        for (key, globs) in &conditions.labels {
            self.globs(&child(&child(pointer, "labels"), key), globs);
        }
        let Some(text) = &conditions.text else { return };
        let pointer = child(pointer, "text");
        for (index, pattern) in text.regex.iter().enumerate() {
            if let Err(error) = regex::Regex::new(pattern) {
                self.report(
                    item(&child(&pointer, "regex"), index),
                    format!("not a regular expression: {}", regex_fault(&error)),
                    "write it in the syntax of the Rust crate regex, in single quotes",
                );
            }
        }
    }

    fn denied_tools(&mut self, pointer: &str, binding: &Binding) {
        self.tool_globs(pointer, &binding.deny_tools);
        let lists_another = |points: &Vec<Point>| !points.contains(&Point::BeforeToolCall);
        let is_elsewhere = binding.hooks.is_some() || binding.points.as_ref().is_some_and(lists_another);
        if !binding.deny_tools.is_empty() && (is_elsewhere || binding.mode() != Mode::Enforce) {
            let message = "`deny_tools` has no effect: only bindings at `before_tool_call` in mode enforce provide tools";
            self.report(pointer, message, "omit `deny_tools`");
        }
    }

    /// Globs of tools' names.
    pub(super) fn tool_globs(&mut self, pointer: &str, globs: &[String]) {
        if globs.len() > ToolNames::MAX_GLOBS {
            let message = format!("lists {} globs", globs.len());
            self.report(pointer, message, format!("list at most {}", ToolNames::MAX_GLOBS));
        }
        for (index, glob) in globs.iter().enumerate() {
            if glob.is_empty() || glob.len() > ToolNames::MAX_GLOB_BYTES {
                let message = format!("the glob has {} bytes", glob.len());
                let remedy = format!("write a glob of 1 to {} bytes", ToolNames::MAX_GLOB_BYTES);
                self.report(item(pointer, index), message, remedy);
            }
        }
        self.globs(pointer, globs);
    }

    fn globs(&mut self, pointer: &str, globs: &[String]) {
        for (index, text) in globs.iter().enumerate() {
            if let Err(error) = hookgate_glob::to_regex(text) {
                self.report(
                    item(pointer, index),
                    error,
                    "globs support `*`, `?` and `[..]`; `[*]` matches a star",
                );
            }
        }
    }
}

/// The last line of the crate's message; the lines above repeat the pattern.
fn regex_fault(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use crate::config::{fixtures::*, load::from_text};

    #[test]
    fn a_binding_at_hooks_enforces_and_patches_nothing() {
        let start = "plugin: p, name: b, tenant: \"*\", priority: 2, hooks: [recall]";
        for (rule, message, remedy) in [
            (
                "mode: enforce",
                "`mode` asks to enforce, but a hook decides nothing",
                "omit `mode` for `mode: advise`, or write `mode: observe`",
            ),
            (
                "points: [before_response]",
                "`points` and `hooks` can't be combined",
                "split the binding in two, one with `points` and one with `hooks`",
            ),
            ("writable: [args]", "a hook has no payload that could be patched", "omit `writable`"),
            (
                "match: { tools: [a] }",
                "`match.tools` can't be evaluated at hooks, which have none",
                "omit `tools`",
            ),
        ] {
            binding(&format!("{start}, {rule}"), message, remedy);
        }
        for hook in ["Recall", "before_response"] {
            let rule = format!("plugin: p, name: b, tenant: \"*\", priority: 2, hooks: [{hook}]");
            let message = format!(
                "an entry of `hooks` must be the name of a hook, such as `turn_end`: lower-case letters, digits and \
                 `_`, and no point's name, not `{hook}`"
            );
            binding(&rule, &message, "");
        }
        let text = format!("{AUTH}{}", REST.replace("plugin: p, tenant: \"*\", priority: 1", start));
        from_text(String::new(), &served(&text), []).unwrap();
    }
}
