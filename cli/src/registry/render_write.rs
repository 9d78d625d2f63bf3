//! Renders a write or its preview: the changed objects, member by member, and the effects on tenants' calls.

use serde_json::Value;

use crate::{
    Exit,
    output::{GREEN, RED, YELLOW, columns, indented, printable, text},
};

/// Longest value in a comparison, in characters.
const MAX_VALUE_CHARS: usize = 60;
/// Most tenants that are listed.
const MAX_NAMED_TENANTS: usize = 20;

/// The difference and the closing line.
pub(super) fn table(body: &Value) -> String {
    difference(body) + &end(body)
}

/// Whether there is nothing to change.
pub(super) fn is_empty(body: &Value) -> bool {
    body["changes"].as_array().is_none_or(Vec::is_empty)
}

/// The changes and their effects on tenants.
pub(super) fn difference(body: &Value) -> String {
    let mut text = changes(&body["changes"]);
    if !text.is_empty() {
        text += &effects(body);
    }
    for plugin in body["unvalidated"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text += &format!(
            "\nThe config of `{}` was not checked: the plugin has not described its schema yet.\n",
            printable(plugin)
        );
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The exit code: 1 if a plugin rejected its new entry, even if that was written before.
pub(super) fn exit(body: &Value) -> Exit {
    let done = if is_empty(body) { "nothing to write" } else { "written" };
    let one = |held: &Value| {
        let [plugin, reason, detail] = ["plugin", "reason", "detail"].map(|key| text(&held[key]));
        format!(
            "{done}, but the plugin `{plugin}` rejected it: {reason}: {detail}; the previous entry stays active"
        )
    };
    let held_back: Vec<_> = body["rejected"].as_array().into_iter().flatten().map(one).collect();
    if held_back.is_empty() { Exit::ok() } else { Exit::failure(held_back.join("\n")) }
}

/// The closing line: whether it was written, and is active.
pub(super) fn end(body: &Value) -> String {
    if is_empty(body) {
        return "Nothing to change.\n".to_owned();
    }
    let is_whole = body["rejected"].as_array().is_none_or(Vec::is_empty);
    match (body["dry_run"].as_bool(), body["revision"].as_u64(), body["active"].as_bool()) {
        (Some(true), ..) => "Dry run: nothing was written.\n".to_owned(),
        (_, Some(revision), Some(true)) if is_whole => {
            format!("Written as revision {revision}, which is active.\n")
        }
        (_, Some(revision), Some(true)) => {
            format!("Written as revision {revision}, which is active except for the rejected entries.\n")
        }
        (_, revision, _) => {
            let revision = revision.unwrap_or_default();
            let why = match body["waiting_for"].as_str() {
                Some(what) => format!(": waiting for {}", printable(what)),
                None => "; see `hookgate events`".to_owned(),
            };
            format!("Written as revision {revision}, which is not yet active on this gateway{why}.\n")
        }
    }
}

/// The mistakes, one per line.
pub(super) fn mistakes(body: &Value) -> String {
    let line = |wrong: &Value| match text(&wrong["pointer"]) {
        pointer if pointer.is_empty() => format!("  {}\n", text(&wrong["message"])),
        pointer => format!("  {pointer}: {}\n", text(&wrong["message"])),
    };
    match body["errors"].as_array() {
        Some(errors) if !errors.is_empty() => errors.iter().map(line).collect(),
        _ => format!("  {}\n", text(&body["detail"])),
    }
}

/// Created, removed and changed objects.
pub(super) fn changes(changes: &Value) -> String {
    changes.as_array().into_iter().flatten().map(one).collect()
}

fn one(change: &Value) -> String {
    let (before, after) = (change.get("before"), change.get("after"));
    let (sign, style) = match (before, after) {
        (None, _) => ('+', GREEN),
        (_, None) => ('-', RED),
        _ => ('~', YELLOW),
    };
    let (kind, name) = (text(&change["kind"]), text(&change["name"]));
    let (none, owner) = (Value::Null, |content: &Value| content["owner"].as_str().map(str::to_owned));
    let spec = |content: Option<&Value>| content.map_or(none.clone(), |content| content["spec"].clone());
    let mut rows = Vec::new();
    if sign != '-' {
        compare("", &spec(before), &spec(after), sign == '~', &mut rows);
        // The name is in the line above.
        rows.retain(|[member, _]| sign == '~' || !matches!(member.as_str(), "name" | "id"));
        if let (Some(before), Some(after)) = (before.and_then(owner), after.and_then(owner))
            && before != after
        {
            rows.push(["(owner)".to_owned(), format!("{before} -> {after}")]);
        }
        if sign == '~' && rows.is_empty() {
            rows.push(["config".to_owned(), "changes; values are not shown".to_owned()]);
        }
    }
    format!("{style}{sign} {kind} {name}{style:#}\n{}", indented(4, &columns(&rows)))
}

/// A row for each member that differs, by its path. `was_there` says whether the object existed, even without the
/// member.
fn compare(path: &str, before: &Value, after: &Value, was_there: bool, rows: &mut Vec<[String; 2]>) {
    if before == after {
        return;
    }
    let objects = (before.as_object(), after.as_object());
    let keys: Vec<&String> = match objects {
        (Some(before), Some(after)) => {
            after.keys().chain(before.keys().filter(|key| !after.contains_key(*key))).collect()
        }
        (None, Some(after)) if before.is_null() => after.keys().collect(),
        (Some(before), None) if after.is_null() => before.keys().collect(),
        _ => Vec::new(),
    };
    if keys.is_empty() {
        let value = match (before, after) {
            (Value::Null, after) if was_there => format!("(absent) -> {}", short(after)),
            (Value::Null, after) => short(after),
            (before, Value::Null) => format!("{} -> (absent)", short(before)),
            (before, after) => format!("{} -> {}", short(before), short(after)),
        };
        rows.push([path.to_owned(), value]);
        return;
    }
    for key in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        compare(&path, &before[key.as_str()], &after[key.as_str()], was_there, rows);
    }
}

/// A value in one line.
fn short(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut characters = printable(&text).chars().collect::<Vec<_>>();
    if characters.len() > MAX_VALUE_CHARS {
        characters.truncate(MAX_VALUE_CHARS);
        characters.extend("...".chars());
    }
    characters.into_iter().collect()
}

/// The effects on tenants' calls. Those of upstreams and rules for models aren't computed.
fn effects(body: &Value) -> String {
    let effects = &body["effects"];
    let Some(tenants) = effects["tenants"].as_u64() else {
        return "\nThe current registry is invalid on this gateway, so the effect of this change cannot be \
                computed.\n"
            .to_owned();
    };
    let is_of_llm = |change: &Value| change["kind"] == "upstream" || change["kind"] == "model";
    let is_about_models = body["changes"].as_array().is_some_and(|changes| changes.iter().any(is_of_llm));
    if tenants == 0 && is_about_models {
        return "\nNo tenant's plugins are affected.\n".to_owned();
    }
    if tenants == 0 {
        return "\nNo tenant's calls are affected.\n".to_owned();
    }
    let mut rows = vec![["TENANT", "WHERE", "CHANGE"].map(str::to_owned)];
    for effect in effects["sample"].as_array().into_iter().flatten().take(MAX_NAMED_TENANTS) {
        let tenant = match effect["tenant"].as_str().unwrap_or_default() {
            "*" => "(not listed)".to_owned(),
            id => printable(id),
        };
        let before = rows.len();
        if effect["before"] != effect["after"] {
            let word = |key: &str| effect[key].as_str().unwrap_or_default().replace('_', " ");
            rows.push([
                tenant.clone(),
                "calls".to_owned(),
                format!("{} -> {}", word("before"), word("after")),
            ]);
        }
        if effect["settings"] == true {
            rows.push([tenant.clone(), "settings".to_owned(), "change".to_owned()]);
        }
        let sites = ["points", "hooks"].map(|key| effect[key].as_object().into_iter().flatten());
        for (site, plan) in sites.into_iter().flatten() {
            let change = plan_change(plan, effect["after"] == "served");
            rows.push([tenant.clone(), site.clone(), change]);
            rows.extend(failing(plan).map(|fails| [tenant.clone(), String::new(), fails]));
        }
        // Show a tenant's name once.
        for row in rows.iter_mut().skip(before + 1) {
            row[0].clear();
        }
    }
    let named = u64::try_from(MAX_NAMED_TENANTS).unwrap_or(u64::MAX);
    let more = tenants.saturating_sub(named);
    let more = if more > 0 { format!("and {more} more\n") } else { String::new() };
    format!("\n{}{more}", columns(&rows))
}

fn failing(plan: &Value) -> impl Iterator<Item = String> {
    plan["failing"].as_array().into_iter().flatten().map(move |failing| {
        let [binding, reason, detail] = ["binding", "reason", "detail"].map(|key| text(&failing[key]));
        format!("{binding} would fail: {reason}: {detail}")
    })
}

/// The change of a plan. `is_served` says whether the tenant's calls run through it.
fn plan_change(plan: &Value, is_served: bool) -> String {
    let names = |key: &str| {
        let names = plan[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(printable).collect::<Vec<_>>()
    };
    let signed = |sign: char, key: &str| {
        names(key).into_iter().map(|name| format!("{sign}{name}")).collect::<Vec<_>>()
    };
    let signs = [signed('+', "added"), signed('-', "removed"), signed('~', "changed")].concat().join(" ");
    let order = names("order");
    let order =
        if order.is_empty() { "nothing runs".to_owned() } else { format!("runs {}", order.join(", ")) };
    let (lacks, lacked) = (plan["lacks_steps"] == true, plan["lacked_steps"] == true && is_served);
    let order = match (lacked, lacks) {
        (_, true) => format!("{order}; refused: STEPS_REQUIRED"),
        // The steps are the same and lacked one that guards, so the requirement is gone.
        (true, false) if signs.is_empty() => format!("{order}; calls were refused and now pass unguarded"),
        (true, false) => format!("{order}; no longer refused"),
        (false, false) => order,
    };
    let has_failing = plan["failing"].as_array().is_some_and(|failing| !failing.is_empty());
    match signs.as_str() {
        "" if has_failing || lacks || lacked => order,
        "" => format!("new order: {order}"),
        _ => format!("{signs}: {order}"),
    }
}
