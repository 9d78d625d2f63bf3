//! Objects and revisions for people.

use serde_json::Value;

use crate::{
    output::{columns, printable},
    registry::render_write,
};
use hookgate::{config::ModelRule, core::object::ObjectKind, registry::document::plural};

/// A member for a table; `-` if it is absent.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A table with these titles, or a sentence if it is empty.
fn table<const N: usize>(
    list: &Value,
    kind: ObjectKind,
    titles: [&str; N],
    row: impl Fn(&Value) -> [String; N],
) -> String {
    let objects = list[plural(kind)].as_array().map(Vec::as_slice).unwrap_or_default();
    if objects.is_empty() {
        return format!("There are no {kind}s.\n");
    }
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(objects.iter().map(row));
    columns(&rows)
}

fn enabled(object: &Value) -> String {
    if object["spec"]["enabled"] == false { "no" } else { "yes" }.to_owned()
}

fn labels(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", cell(value)));
    pairs.collect::<Vec<_>>().join(", ")
}

fn own_labels(object: &Value) -> String {
    let labels = labels(&object["spec"]["labels"]);
    if labels.is_empty() { "-".to_owned() } else { labels }
}

pub(super) fn tenants(list: &Value) -> String {
    table(list, ObjectKind::Tenant, ["TENANT", "ENABLED", "LABELS", "OWNER", "VERSION"], |tenant| {
        let labels = own_labels(tenant);
        [cell(&tenant["id"]), enabled(tenant), labels, cell(&tenant["owner"]), cell(&tenant["version"])]
    })
}

pub(super) fn bindings(list: &Value) -> String {
    let titles = ["BINDING", "PLUGIN", "FOR", "PRIORITY", "MODE", "ENABLED", "LABELS", "OWNER", "VERSION"];
    let bindings = table(list, ObjectKind::Binding, titles, |binding| {
        let spec = &binding["spec"];
        let whom = match (spec["tenant"].as_str(), &spec["selector"]) {
            (Some("*"), _) => "every tenant".to_owned(),
            (Some(tenant), _) => tenant.to_owned(),
            (None, selector) => format!("tenants with {}", labels(selector)),
        };
        let mode = match (spec["mode"].as_str(), &spec["blocking"]) {
            (Some(mode), _) => mode,
            (None, Value::Bool(false)) => "advise",
            (None, Value::Null) if spec["hooks"].is_array() => "advise",
            (None, _) => "enforce",
        };
        [
            cell(&binding["name"]),
            cell(&spec["plugin"]),
            whom,
            cell(&spec["priority"]),
            mode.to_owned(),
            enabled(binding),
            own_labels(binding),
            cell(&binding["owner"]),
            cell(&binding["version"]),
        ]
    });
    bindings + &bypasses(&list["bypasses"])
}

pub(super) fn upstreams(list: &Value) -> String {
    let titles = ["UPSTREAM", "FORMAT", "URL", "CREDENTIAL", "LABELS", "OWNER", "VERSION"];
    table(list, ObjectKind::Upstream, titles, |upstream| {
        let spec = &upstream["spec"];
        let url = spec["builtin"].as_str().map(|model| format!("builtin:{model}"));
        // The registry doesn't have the keys of the file's upstreams.
        let is_in_file = upstream["owner"] == "file" && url.is_none();
        [
            cell(&upstream["name"]),
            spec["format"].as_str().unwrap_or("openai").to_owned(),
            url.unwrap_or_else(|| cell(&spec["base_url"])),
            if is_in_file { "(see the file)".to_owned() } else { cell(&spec["credential"]) },
            own_labels(upstream),
            cell(&upstream["owner"]),
            cell(&upstream["version"]),
        ]
    })
}

/// The rules in the order in which they are tried.
pub(super) fn models(list: &Value) -> String {
    let priority = |rule: &Value| rule["spec"]["priority"].as_i64().unwrap_or(ModelRule::API_PRIORITY);
    let mut list = list.clone();
    if let Some(rules) = list[plural(ObjectKind::Model)].as_array_mut() {
        // The list is in the order of names.
        rules.sort_by_key(priority);
    }
    let titles = ["RULE", "MATCH", "UPSTREAM", "AS", "PRIORITY", "LABELS", "OWNER", "VERSION"];
    table(&list, ObjectKind::Model, titles, |rule| {
        let spec = &rule["spec"];
        [
            cell(&rule["name"]),
            cell(&spec["match"]),
            cell(&spec["upstream"]),
            cell(&spec["as"]),
            priority(rule).to_string(),
            own_labels(rule),
            cell(&rule["owner"]),
            cell(&rule["version"]),
        ]
    })
}

/// The running bypasses; empty if there are none.
fn bypasses(list: &Value) -> String {
    let Some(bypasses) = list.as_array().filter(|list| !list.is_empty()) else { return String::new() };
    let mut rows = vec![["BYPASSED", "FOR", "UNTIL", "ACTIVE HERE", "REASON"].map(str::to_owned)];
    let row = |bypass: &Value| {
        let [binding, tenant, until, reason] =
            ["binding", "tenant", "until", "reason"].map(|key| cell(&bypass[key]));
        let here = if bypass["active"] == true { "yes" } else { "no" };
        [binding, tenant, until, here.to_owned(), reason]
    };
    rows.extend(bypasses.iter().map(row));
    format!("\n{}", columns(&rows))
}

pub(super) fn plugins(list: &Value) -> String {
    let titles = ["PLUGIN", "STATE", "MANIFEST", "ENDPOINT", "BINDINGS", "LABELS", "OWNER", "VERSION"];
    table(list, ObjectKind::Plugin, titles, |plugin| {
        let ready = plugin["state"] == "ready" || plugin["state"] == "disabled";
        let reason = match (ready, plugin["rejected"]["reason"].as_str()) {
            (false, _) => format!(": {}", cell(&plugin["reason"])),
            (true, Some(refusal)) => format!(", new entry rejected: {refusal}"),
            (true, None) => String::new(),
        };
        [
            cell(&plugin["name"]),
            cell(&plugin["state"]) + &reason,
            cell(&plugin["manifest"]["version"]),
            place(&plugin["spec"]),
            plugin["bindings"].as_array().map_or(0, Vec::len).to_string(),
            own_labels(plugin),
            cell(&plugin["owner"]),
            cell(&plugin["version"]),
        ]
    })
}

/// Where the plugin is: its endpoints, or the reason why its entry has none.
fn place(spec: &Value) -> String {
    if spec["self_registration"] == true {
        return "self-registered".to_owned();
    }
    match (&spec["builtin"], &spec["endpoint"], spec["endpoints"].as_array()) {
        (Value::String(_), ..) => "built in".to_owned(),
        (_, Value::String(endpoint), _) => endpoint.clone(),
        (.., endpoints) => endpoints.into_iter().flatten().map(cell).collect::<Vec<_>>().join(", "),
    }
}

/// One object: its state, then its definition.
pub(super) fn object(kind: ObjectKind, object: &Value) -> String {
    let name = if kind == ObjectKind::Tenant { &object["id"] } else { &object["name"] };
    let mut rows = vec![[kind.to_string(), cell(name)]];
    let owner = if object["owner"] == "file" { "the configuration file" } else { "the API" };
    rows.push(["owner".to_owned(), owner.to_owned()]);
    rows.push(["version".to_owned(), cell(&object["version"])]);
    if kind == ObjectKind::Plugin {
        rows.extend(described(object));
    }
    let spec = serde_saphyr::to_string(&object["spec"]).unwrap_or_default();
    let spec: String = spec.trim_end().lines().map(|line| format!("  {}\n", printable(line))).collect();
    format!("{}\n{spec}", columns(&rows))
}

/// A plugin's state and manifest.
pub(super) fn described(plugin: &Value) -> Vec<[String; 2]> {
    let row = |key: &str, value: String| [key.to_owned(), value];
    let detail = cell(&plugin["detail"]);
    let mut state = cell(&plugin["state"]);
    if !matches!(state.as_str(), "ready" | "disabled") {
        state += &format!(": {}", cell(&plugin["reason"]));
        state += &if detail.is_empty() { String::new() } else { format!(": {detail}") };
    }
    let mut rows = vec![row("state", state)];
    let refusal = &plugin["rejected"];
    if !refusal.is_null() {
        let [reason, detail] = ["reason", "detail"].map(|key| cell(&refusal[key]));
        rows.push(row(
            "rejected",
            format!("the new entry: {reason}: {detail}; the previous one stays active"),
        ));
    }
    let says = &plugin["manifest"];
    if says.is_null() {
        rows.push(row("config", "not checked: the plugin has not described its schema yet".to_owned()));
        return rows;
    }
    rows.push(row("manifest", format!("{} {}", cell(&says["name"]), cell(&says["version"]))));
    for offer in says["points"].as_array().into_iter().flatten() {
        let (access, effects) = (access(offer), side_effects(offer));
        rows.push(row("at", format!("{}: {access}, {effects}", cell(&offer["point"]))));
    }
    for offer in says["hooks"].as_array().into_iter().flatten() {
        rows.push(row("at", format!("{}: contributes, {}", cell(&offer["hook"]), side_effects(offer))));
    }
    rows.extend(tools(says).map(|tools| row("tools", tools)));
    let asks = says["capabilities"].as_array().into_iter().flatten().map(cell).collect::<Vec<_>>();
    rows.push(row("asks for", if asks.is_empty() { "no capability".to_owned() } else { asks.join(", ") }));
    let checked = match says["config_schema"] == true {
        _ if !refusal.is_null() => "rejected",
        true => "checked against its schema",
        false => "not checked: it has no schema",
    };
    rows.push(row("config", checked.to_owned()));
    rows
}

/// The tools in a plugin's manifest. `None` if it provides none.
fn tools(manifest: &Value) -> Option<String> {
    let list = |key: &str| manifest[key].as_array().into_iter().flatten().map(cell).collect::<Vec<_>>();
    let (tools, globs) = (list("tools"), list("tool_names"));
    match (tools.is_empty(), globs.is_empty()) {
        (false, _) => Some(tools.join(", ")),
        (true, false) => Some(format!("none yet; they may be named {}", globs.join(", "))),
        (true, true) => None,
    }
}

/// The access at a point, with the large fields that are read, unless it is all, and whether it is in windows.
fn access(offer: &Value) -> String {
    let fields = offer["reads"].as_array().map(|fields| {
        match fields.iter().map(cell).collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "no large field".to_owned(),
            fields => fields,
        }
    });
    let access = match (offer["access"] == "modify", fields) {
        (true, None) => "may rewrite".to_owned(),
        (true, Some(fields)) => format!("may rewrite, reads {fields}"),
        (false, None) => "reads".to_owned(),
        (false, Some(fields)) => format!("reads {fields}"),
    };
    if offer["windows"] == true { access + ", in windows" } else { access }
}

fn side_effects(offer: &Value) -> &'static str {
    if offer["side_effects"] == "some" { "with side effects" } else { "no side effects" }
}

pub(super) fn revisions(list: &Value) -> String {
    let revisions = list["revisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if revisions.is_empty() {
        return "There are no revisions.\n".to_owned();
    }
    let mut rows = vec![["REVISION", "AT", "BY", "CHANGES", "REASON"].map(str::to_owned)];
    rows.extend(revisions.iter().map(|revision| {
        let changes = &revision["changes"];
        let count = |key: &str, one: &str| match changes[key].as_u64() {
            None | Some(0) => None,
            Some(1) => Some(format!("1 {one}")),
            Some(several) => Some(format!("{several} {key}")),
        };
        let counts = [
            count("plugins", "plugin"),
            count("tenants", "tenant"),
            count("bindings", "binding"),
            count("upstreams", "upstream"),
            count("models", "model"),
            count("bypasses", "bypass"),
        ];
        let counts = counts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let [number, at, author, reason] =
            ["number", "at", "author", "reason"].map(|key| cell(&revision[key]));
        [number, at, author, counts, reason]
    }));
    columns(&rows)
}

pub(super) fn revision(revision: &Value) -> String {
    let row = |title: &str, key: &str| [title.to_owned(), cell(&revision[key])];
    let mut rows = vec![row("revision", "number"), row("at", "at"), row("by", "author")];
    if revision["reason"].as_str().is_some_and(|reason| !reason.is_empty()) {
        rows.push(row("reason", "reason"));
    }
    format!("{}\n{}", columns(&rows), render_write::changes(&revision["changes"]))
}
