//! Tests the chart's dashboards and alert rules: every query is valid, uses existing metrics and labels,
//! and has results for a gateway with varied traffic.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use hookgate::telemetry::names::{InstrumentKind, METRICS, Metric, TENANT};
use hookgate_tests::{
    prometheus::{Prometheus, promtool},
    repository,
};
use serde_json::{Value, json};

use crate::{
    deploy::chart_support::Rendered,
    telemetry::metrics::{eventful, label, prometheus},
};

/// Labels that come from the scrape, a histogram or OpenTelemetry.
const GIVEN: [&str; 4] = ["job", "namespace", "instance", "le"];
/// Queries for these have no results if no binding is bypassed, the data port has no TLS, nothing is
/// rewritten, and no model is asked.
const QUIET: [&str; 4] = [
    "hookgate_bypassed_total",
    "hookgate_certificate_expiry_seconds{",
    "hookgate_outcome=\"modified\"",
    "hookgate_llm_",
];

struct Query {
    /// The dashboard and the panel.
    of: String,
    text: String,
    /// The labels that its legend names.
    legend: BTreeSet<String>,
}

fn chart() -> PathBuf {
    repository::root().join("deploy/helm/hookgate")
}

fn dashboards() -> Vec<(String, Value)> {
    let mut found: Vec<_> = fs::read_dir(chart().join("dashboards"))
        .expect("the chart has dashboards")
        .map(|entry| entry.expect("they can be listed").path())
        .map(|path| {
            let text = fs::read_to_string(&path).expect("it can be read");
            let board = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            (path.file_name().unwrap().to_string_lossy().into_owned(), board)
        })
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert!(found.len() >= 4, "dashboards are missing");
    found
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The query as Grafana sends it if everything is selected.
fn asked(query: &str) -> String {
    let names = ["job", "namespace", "instance", "plugin"];
    let query = query.replace("$__rate_interval", "1m").replace("$__range", "1h");
    let query = names.iter().fold(query, |query, name| query.replace(&format!("\"${name}\""), "\".*\""));
    assert!(!query.contains('$'), "there is no such variable: {query}");
    query
}

fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for (name, board) in dashboards() {
        for panel in list(&board, "/panels") {
            for target in list(panel, "/targets") {
                let legend = target["legendFormat"].as_str().unwrap_or_default();
                let legend = legend.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
                queries.push(Query {
                    of: format!("{name}: {}", panel["title"]),
                    text: asked(target["expr"].as_str().expect("a query")),
                    legend: legend.map(|(label, _)| label.to_owned()).collect(),
                });
            }
        }
        for annotation in list(&board, "/annotations/list") {
            let text = asked(annotation["expr"].as_str().expect("a query"));
            queries.push(Query { of: format!("{name}: annotations"), text, legend: BTreeSet::new() });
        }
    }
    queries
}

/// The `label_values(SERIES, label)` of the dashboards' variables, as selection and label.
fn variables() -> Vec<(String, String)> {
    let of_board = |board: &Value| -> Vec<(String, String)> {
        let queries = list(board, "/templating/list").iter().filter_map(|one| one["query"]["query"].as_str());
        let values = queries.map(|query| {
            let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (selection, label) =
                inside.and_then(|inside| inside.rsplit_once(", ")).expect("label_values");
            (asked(selection), label.to_owned())
        });
        values.collect()
    };
    dashboards().iter().flat_map(|(_, board)| of_board(board)).collect()
}

fn alerts() -> Vec<Value> {
    let rules = fs::read_to_string(chart().join("rules/hookgate.yaml")).expect("the chart has rules");
    let rules: Value = serde_saphyr::from_str(&rules).expect("it is YAML");
    list(&rules, "/groups").iter().flat_map(|group| list(group, "/rules")).cloned().collect()
}

/// The names of a metric's series.
fn series(metric: &Metric) -> Vec<String> {
    let name = prometheus(metric);
    let ends: &[&str] =
        if metric.kind == InstrumentKind::Histogram { &["_bucket", "_count", "_sum"] } else { &[""] };
    ends.iter().map(|end| format!("{name}{end}")).collect()
}

/// Every series that a query selects, with the labels between its braces.
fn selections(query: &str) -> Vec<(String, BTreeSet<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = rest.find(is_name) {
        let end = rest[start..].find(|c| !is_name(c)).map_or(rest.len(), |end| start + end);
        let (name, after) = (&rest[start..end], &rest[end..]);
        rest = after;
        let inside = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        if let Some((inside, behind)) = inside {
            let parts = inside.split(", ").filter(|part| !part.is_empty());
            let labels = parts.map(|part| part.split(['=', '!']).next().unwrap_or_default().to_owned());
            found.push((name.to_owned(), labels.collect()));
            rest = behind;
        } else if METRICS.iter().any(|metric| series(metric).iter().any(|series| series == name)) {
            found.push((name.to_owned(), BTreeSet::new()));
        }
    }
    found
}

#[test]
fn every_query_asks_for_metrics_that_there_are_by_labels_that_they_have() {
    let of_alerts = alerts()
        .into_iter()
        .map(|alert| (alert["alert"].to_string(), alert["expr"].as_str().expect("a query").to_owned()));
    let of_dashboards = queries().into_iter().map(|query| (query.of, query.text));
    let of_variables = variables().into_iter().map(|(selection, _)| ("a variable".to_owned(), selection));
    let mut seen = BTreeSet::new();
    for (of, query) in of_alerts.chain(of_dashboards).chain(of_variables) {
        let selections = selections(&query);
        assert!(!selections.is_empty(), "{of} asks for nothing: {query}");
        for (name, labels) in selections {
            if name == "target_info" {
                continue;
            }
            let metric = METRICS.iter().find(|metric| series(metric).contains(&name));
            let metric = metric.unwrap_or_else(|| panic!("{of}: docs/metrics.md has no `{name}`: {query}"));
            seen.insert(metric.name);
            let tenant = metric.by_tenant.then_some(TENANT);
            let has: BTreeSet<String> = metric.attributes.iter().copied().chain(tenant).map(label).collect();
            for used in labels {
                assert!(has.contains(&used) || GIVEN.contains(&&*used), "{of}: `{name}` has no `{used}`");
            }
        }
    }
    let unseen: Vec<_> =
        METRICS.iter().map(|metric| metric.name).filter(|name| !seen.contains(name)).collect();
    assert_eq!(unseen, Vec::<&str>::new(), "no dashboard and no alert shows these");
}

#[test]
fn every_query_can_be_parsed() {
    let rules = queries().into_iter().enumerate().map(|(at, query)| {
        assert!(!query.text.is_empty(), "{}", query.of);
        json!({ "record": format!("query_{at}"), "expr": query.text })
    });
    let rules = json!({ "groups": [{ "name": "dashboards", "rules": rules.collect::<Vec<_>>() }] });
    let folder = tempfile::tempdir().expect("there is room");
    fs::write(folder.path().join("rules.yaml"), rules.to_string()).expect("there is room"); // JSON is YAML
    promtool(folder.path(), &["check", "rules", "rules.yaml"]);
}

#[test]
fn dashboards_have_names_of_their_own_and_panels_that_do_not_overlap() {
    let mut uids = BTreeSet::new();
    for (name, board) in dashboards() {
        let uid = board["uid"].as_str().expect("it has a uid");
        assert_eq!(name, format!("{uid}.json"));
        assert!(uids.insert(uid.to_owned()), "{uid} twice");
        let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in list(&board, "/panels") {
            assert!(ids.insert(panel["id"].as_u64()), "{name}: a panel's id twice: {}", panel["id"]);
            let place = |key: &str| panel["gridPos"][key].as_u64().expect("it has a place");
            assert!(place("x") + place("w") <= 24, "{name}: {} is too wide", panel["title"]);
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(cells.insert((x, y)), "{name}: {} covers another", panel["title"]);
                }
            }
            let sources = list(panel, "/targets").iter().map(|target| &target["datasource"]["uid"]);
            assert!(sources.into_iter().all(|uid| uid == "${datasource}"), "{name}: {}", panel["title"]);
        }
    }
}

#[test]
fn every_alert_fires_and_rests_in_its_tests_and_has_a_runbook() {
    let check = repository::root().join("deploy/check");
    promtool(&check, &["check", "rules", "../helm/hookgate/rules/hookgate.yaml"]);
    promtool(&check, &["test", "rules", "rules_test.yaml"]);
    let tests = fs::read_to_string(check.join("rules_test.yaml")).expect("there are tests");
    let tests: Value = serde_saphyr::from_str(&tests).expect("it is YAML");
    let tried = |alert: &str, fires: bool| {
        let cases = list(&tests, "/tests").iter().flat_map(|test| list(test, "/alert_rule_test"));
        let mut of_it = cases.filter(|case| case["alertname"] == alert);
        of_it.any(|case| list(case, "/exp_alerts").is_empty() != fires)
    };
    let runbooks =
        fs::read_to_string(repository::root().join("docs/operations.md")).expect("there are runbooks");
    let headings: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let mut alerts_of_rules = BTreeSet::new();
    for alert in alerts() {
        let name = alert["alert"].as_str().expect("it has a name").to_owned();
        assert!(tried(&name, true), "{name} fires in no test");
        assert!(tried(&name, false), "{name} rests in no test");
        assert!(headings.contains(&*name), "docs/operations.md has no section {name}");
        assert_eq!(alert["annotations"]["runbook"], format!("docs/operations.md#{}", name.to_lowercase()));
        assert!(["warning", "critical"].map(Value::from).contains(&alert["labels"]["severity"]), "{name}");
        alerts_of_rules.insert(name);
    }
    let stale: Vec<_> = headings
        .iter()
        .filter(|name| name.starts_with("Hookgate") && !alerts_of_rules.contains(**name))
        .collect();
    assert_eq!(stale, Vec::<&&str>::new(), "no rule has these any more");
}

#[test]
fn every_alert_links_to_its_runbook_where_the_values_say_where_the_runbooks_are() {
    let base = "https://git.example.com/docs/operations.md";
    let annotations = |runbooks: &str| -> Vec<(String, Value)> {
        let rule = json!({ "enabled": true, "runbooks": runbooks });
        let values = json!({ "metrics": { "prometheusRule": rule } }).to_string();
        let rendered = Rendered::over_minimal(&values);
        let groups = rendered.kind("PrometheusRule").flat_map(|rule| list(rule, "/spec/groups"));
        let rules = groups.flat_map(|group| list(group, "/rules"));
        let named = |rule: &Value| {
            (rule["alert"].as_str().expect("a name").to_lowercase(), rule["annotations"].clone())
        };
        rules.map(named).collect()
    };
    let (linked, plain) = (annotations(base), annotations(""));
    assert_eq!((linked.len(), plain.len()), (alerts().len(), alerts().len()));
    for ((name, linked), (_, plain)) in linked.iter().zip(&plain) {
        assert_eq!(linked["runbook_url"], format!("{base}#{name}"));
        assert_eq!(plain["runbook"], format!("docs/operations.md#{name}"));
        assert!(linked.get("runbook").is_none() && plain.get("runbook_url").is_none(), "{name}");
    }
}

#[tokio::test]
async fn dashboards_fill_at_a_gateway_at_which_things_happen() {
    let eventful = eventful().await;
    let server = Prometheus::of(&eventful.gateway, &chart().join("rules/hookgate.yaml")).await;
    // The observer had room for one call, and the last result comes after the answers.
    server.wait_for("hookgate_steps_total{hookgate_outcome=\"observed\"}").await;
    for query in queries() {
        // A late scrape leaves no results until the next one, and a rate needs two.
        let is_quiet = QUIET.iter().any(|name| query.text.contains(name));
        if !is_quiet && !query.of.ends_with("annotations") {
            server.wait_for(&query.text).await;
        }
        let found = server.query(&query.text).await;
        for label in query.legend.iter().filter(|_| !found.is_empty()) {
            let has = found.iter().any(|series| series["metric"][label].is_string());
            assert!(has, "{}: no series has the `{label}` of its legend", query.of);
        }
    }
    for (selection, label) in variables() {
        let found = server.query(&format!("last_over_time({selection}[1m])")).await;
        assert!(found.iter().any(|series| series["metric"][&label].is_string()), "{selection}: no `{label}`");
    }
    let looked_at = server.alerts().await;
    assert_eq!(looked_at.len(), alerts().len());
    let wrong: Vec<_> = looked_at.iter().filter(|alert| alert["health"] != "ok").collect();
    assert_eq!(wrong, Vec::<&Value>::new(), "Prometheus can't look at these");
}

/// Failures that are the gateway's or a plugin's fault count as an outage, those of the caller don't.
#[test]
fn alerts_on_errors_count_those_that_docs_errors_says_the_gateway_or_a_plugin_failed_by() {
    let page = fs::read_to_string(repository::root().join("docs/errors.md")).expect("there is a page");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split(" | ").collect();
        Some((cells.first()?.trim_end_matches('`').to_owned(), (*cells.get(4)?).to_owned()))
    });
    let ours: BTreeMap<_, _> = rows.map(|(code, who)| (code, who == "gateway" || who == "plugin")).collect();
    assert!(ours.values().any(|ours| *ours) && ours.values().any(|ours| !ours), "{ours:?}");
    let mut seen = 0;
    for alert in alerts() {
        let expr = alert["expr"].as_str().expect("a query");
        for (operator, counts_ours) in [("error_type=~\"", true), ("error_type!~\"", false)] {
            for part in expr.split(operator).skip(1) {
                let pattern = part.split('"').next().expect("it is closed");
                if pattern.starts_with(|first: char| first.is_ascii_digit()) {
                    continue; // statuses of a provider's errors
                }
                let pattern = regex::Regex::new(&format!("^(?:{pattern})$")).expect("it is a pattern");
                for (code, ours) in ours.iter().filter(|(code, _)| *code != "CANCELLED") {
                    assert_eq!(
                        pattern.is_match(code),
                        *ours,
                        "{}: {code} (counts ours: {counts_ours})",
                        alert["alert"]
                    );
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 0, "no alert is about errors");
}
