//! Tests the Helm chart against the built gateway: its file, arguments, ports, variables, and which changes
//! replace pods. deploy/check/chart.py tests schemas, policy and rejected values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use clap::Parser as _;
use hookgate_cli::Cli;
use hookgate_tests::{ca::Ca, repository};
use serde_json::{Value, json};

use crate::{
    cli::support::Folder,
    deploy::chart_support::{Pod, Rendered, chart, list, print, variants},
    docs::pages::parts,
};

fn read(path: &str) -> String {
    fs::read_to_string(repository::root().join(path)).unwrap()
}

/// The minimal values of the chart, with one member set.
fn values(pointer: &str, value: &Value) -> Value {
    let issuer = json!({ "issuer": "a", "audience": "b", "jwks_url": "https://a.example.com/jwks.json" });
    let mut values =
        json!({ "config": { "auth": { "issuers": [issuer] }, "tenants": { "unknown": "accept" } } });
    let mut place = &mut values;
    for name in pointer.split('/').skip(1) {
        place = match name.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[name],
        };
    }
    *place = value.clone();
    values
}

async fn check(pod: &Pod) -> (Option<i32>, String) {
    let folder = Folder::new();
    folder.write("hookgate.yaml", &pod.text);
    let moved: Vec<_> =
        pod.environment.iter().map(|(name, value)| (name.as_str(), pod.moved(value))).collect();
    let environment: Vec<_> = moved.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ran = folder.run_with(&["config", "check", "hookgate.yaml"], &environment, "").await;
    (ran.code, ran.stdout + &ran.stderr)
}

#[tokio::test]
async fn every_variants_file_is_one_that_the_gateway_takes() {
    let ca = Ca::new();
    for values in variants() {
        let rendered = Rendered::of(&values);
        let (code, said) = check(&Pod::of(&rendered, &ca)).await;
        assert_eq!(code, Some(0), "{}: {said}\n{}", rendered.name(), rendered.text());
        assert!(said.contains(": no mistakes: "), "{}: {said}", rendered.name());
    }
}

#[tokio::test]
async fn every_example_of_the_page_is_taken_too() {
    let page = read("docs/operations.md");
    let (_, section) = page.split_once("## On Kubernetes\n").expect("the page has it");
    let section = section.split("\n## ").next().unwrap();
    let readme = read("README.md");
    let (_, readme) = readme.split_once("## On Kubernetes\n").expect("the page has it");
    let readme = readme.split("\n## ").next().unwrap();
    let blocks = [parts(section).1, parts(readme).1].concat();
    let examples: Vec<_> = blocks.iter().filter(|(language, _)| language == "yaml").collect();
    assert!(examples.len() >= 4, "only {} examples were found", examples.len());
    for (_, values) in examples {
        let (code, said) = check(&Pod::of(&Rendered::over_minimal(values), &Ca::new())).await;
        assert_eq!(code, Some(0), "{said}\n{values}");
    }
}

/// `config check` finds the mistakes that the chart can't.
#[tokio::test]
async fn a_mistake_in_the_values_is_found_in_the_rendered_file() {
    let binding = json!({ "tenant": "*", "priority": 1 });
    let plugin = |more: &Value| {
        let mut plugin = json!({ "name": "guard", "image": "example/guard:1.0.0", "bindings": [binding] });
        plugin.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        values("/plugins", &json!([plugin]))
    };
    for (values, expected) in [
        (
            plugin(&json!({ "limits": { "timeot": "1s" } })),
            "/plugins/0/limits/timeot: `timeot` is not a key here",
        ),
        (plugin(&json!({ "bindings": [binding, binding] })), "/bindings/1"),
        (
            plugin(&json!({ "config": { "key": "${NOWHERE}" } })),
            "the environment variable NOWHERE is not set",
        ),
        (values("/config/limits", &json!({ "in_flight": 0 })), "/limits/in_flight"),
        (
            values("/extraEnv", &json!([{ "name": "HOOKGATE__LOG__LEVL", "value": "info" }])),
            "did you mean `HOOKGATE__LOG__LEVEL`?",
        ),
    ] {
        let (code, said) = check(&Pod::of(&Rendered::with(&values), &Ca::new())).await;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{expected} isn't in {said}");
    }
}

/// Collects the paths in the file: values that are a path, or that have one after the scheme of an address
/// or a reference.
fn paths(value: &Value, at: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => {
            for scheme in ["", "unix://", "sqlite:", "${file:"] {
                let rest = text.strip_prefix(scheme).filter(|rest| rest.starts_with('/'));
                found.extend(rest.map(|path| (at.to_owned(), path.trim_end_matches('}').to_owned())));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, at, found)),
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| paths(member, &format!("{at}/{key}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[test]
fn every_path_of_the_file_is_mounted_and_what_is_written_is_writable() {
    let mut count = 0;
    for values in variants() {
        let rendered = Rendered::of(&values);
        let mut named = Vec::new();
        paths(&rendered.file(), "", &mut named);
        for (at, path) in named.iter().filter(|(at, _)| !at.starts_with("/egress")) {
            count += 1;
            let mounts = list(&rendered.gateway()["volumeMounts"]).iter();
            let mut mounts = mounts
                .filter(|mount| path.starts_with(&format!("{}/", mount["mountPath"].as_str().unwrap())));
            let mount = mounts
                .next()
                .unwrap_or_else(|| panic!("{}: {at}: nothing is mounted at {path}", rendered.name()));
            let is_written = at.starts_with("/store")
                || ["/server/admin_socket", "/server/host_socket", "/plugins/endpoint"].contains(&&**at);
            let is_writable = mount.get("readOnly").is_none();
            assert_eq!(is_writable, is_written, "{}: {at}: {mount}", rendered.name());
        }
    }
    assert!(count > 15, "only {count} paths were found");
}

/// `0.0.0.0:8080` or `[::]:8080`
fn port(address: &Value) -> u64 {
    address.as_str().and_then(|text| text.rsplit_once(':')).and_then(|(_, port)| port.parse().ok()).unwrap()
}

#[test]
fn ports_are_those_that_the_file_opens_and_the_gateway_has_by_itself() {
    let schema: Value = serde_json::from_str(&read("docs/hookgate.schema.json")).unwrap();
    for values in variants() {
        let rendered = Rendered::of(&values);
        let file = rendered.file();
        let admin =
            list(&file["auth"]["issuers"]).iter().any(|issuer| issuer.get("admin_audience").is_some());
        let open = ["data", "ops", "admin"].into_iter().filter(|name| *name != "admin" || admin);
        let mut expected: BTreeMap<String, u64> = open
            .map(|name| {
                let number = port(&file["server"][format!("{name}_addr")]);
                let own = &schema["$defs"]["Server"]["properties"][format!("{name}_addr")]["default"];
                assert_eq!(number, port(own), "{name}");
                (name.to_owned(), number)
            })
            .collect();
        // The gateway has no host port by itself.
        let host = file["server"].get("host_addr").map(|address| ("host".to_owned(), port(address)));
        expected.extend(host);
        let ports = list(&rendered.gateway()["ports"]).iter();
        let ports = ports
            .map(|port| (port["name"].as_str().unwrap().to_owned(), port["containerPort"].as_u64().unwrap()));
        assert_eq!(ports.collect::<BTreeMap<_, _>>(), expected, "{}", rendered.name());
    }
}

/// The URL of the host port names a Service that leads there, also to a gateway that isn't ready: a plugin may
/// use its storage while it is initialised.
#[test]
fn plugins_are_told_the_service_of_the_host_port() {
    let mut count = 0;
    for values in variants() {
        let rendered = Rendered::of(&values);
        let server = &rendered.file()["server"];
        let services: Vec<_> = rendered.kind("Service").collect();
        let leads_there = |service: &&&Value| service["spec"]["ports"][0]["targetPort"] == "host";
        let service = services.iter().find(leads_there);
        assert_eq!(service.is_some(), server.get("host_addr").is_some(), "{}", rendered.name());
        assert_eq!(service.is_some(), server.get("host_endpoint").is_some(), "{}", rendered.name());
        let Some(service) = service else { continue };
        count += 1;
        assert_eq!(service["spec"]["publishNotReadyAddresses"], true, "{}", rendered.name());
        assert_eq!(service["spec"]["type"], "ClusterIP", "{}", rendered.name());
        let scheme = if server.get("tls").is_some() { "https" } else { "http" };
        let name = |of: &str| service["metadata"][of].as_str().unwrap();
        let number = &service["spec"]["ports"][0]["port"];
        let own = format!("{scheme}://{}.{}.svc:{number}", name("name"), name("namespace"));
        let chosen = "https://hookgate.example.com:443";
        let expected = if rendered.name() == "host-port-outside" { chosen } else { own.as_str() };
        assert_eq!(server["host_endpoint"], expected, "{}", rendered.name());
    }
    assert_eq!(count, 2);
}

/// A sidecar may connect to the socket, and can't put its own there.
#[test]
fn sidecars_see_the_host_socket_and_nothing_opens_by_itself() {
    let store = json!({ "postgresql": { "existingSecret": "database" } });
    let mut values = values("/store", &store);
    values["plugins"] = json!([{ "name": "guard", "image": "example/guard:1.0.0" }]);
    let folders = |rendered: &Rendered, container: &Value| -> Vec<Value> {
        let socket = &rendered.file()["server"]["host_socket"];
        let socket = socket.as_str().unwrap_or("/nowhere/host.sock");
        let is_folder =
            |mount: &&Value| socket.starts_with(&format!("{}/", mount["mountPath"].as_str().unwrap()));
        list(&container["volumeMounts"]).iter().filter(is_folder).cloned().collect()
    };
    for open in [false, true] {
        if open {
            values["hostServices"] = json!({ "socket": true });
        }
        let rendered = Rendered::with(&values);
        let server = rendered.file()["server"].clone();
        let keys: Vec<_> =
            server.as_object().unwrap().keys().filter(|key| key.starts_with("host_")).collect();
        assert_eq!(keys, if open { vec!["host_socket"] } else { vec![] });
        let [sidecar] = list(&rendered.template()["spec"]["initContainers"]) else { panic!("one plugin") };
        let (theirs, ours) = (folders(&rendered, sidecar), folders(&rendered, rendered.gateway()));
        assert_eq!((theirs.len(), ours.len()), (usize::from(open), usize::from(open)));
        for (theirs, ours) in theirs.iter().zip(&ours) {
            assert_eq!(theirs["name"], ours["name"]);
            assert_eq!((&theirs["readOnly"], ours.get("readOnly")), (&json!(true), None));
        }
    }
}

#[test]
fn arguments_are_those_that_the_binary_takes() {
    for values in variants() {
        let rendered = Rendered::of(&values);
        let [test] = rendered.kind("Pod").collect::<Vec<_>>()[..] else { panic!("one pod asks") };
        let probe = Rendered::args(&test["spec"]["containers"][0]);
        let (command, address) = (probe[0], probe[2]);
        assert_eq!((command, probe[1]), ("probe", "--addr"));
        assert_eq!(port(&json!(address)), port(&rendered.file()["server"]["ops_addr"]));
        let headless = address.split('.').next().unwrap();
        assert!(rendered.kind("Service").any(|service| service["metadata"]["name"] == headless), "{address}");
        for args in [Rendered::args(rendered.gateway()), probe] {
            Cli::try_parse_from(["hookgate"].iter().chain(&args))
                .unwrap_or_else(|error| panic!("{args:?}: {error}"));
        }
        let notes = print(&values, &["-notes"]);
        let commands: Vec<_> = notes.lines().filter_map(|line| line.split_once(" -- ")).collect();
        assert!(!commands.is_empty(), "{notes}");
        for (_, line) in commands {
            Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}

/// `hookgate config check` also rejects a `HOOKGATE__` variable that sets nothing, and a reference to an
/// unset variable.
#[test]
fn variables_are_settings_references_or_the_command_lines() {
    let (page, mut count) = (read("docs/cli.md"), 0);
    for values in variants() {
        let rendered = Rendered::of(&values);
        for variable in list(&rendered.gateway()["env"]) {
            count += 1;
            let name = variable["name"].as_str().unwrap();
            let is_known = name.starts_with("HOOKGATE__")
                || rendered.text().contains(&format!("${{{name}}}"))
                || page.contains(&format!("| `{name}` |"));
            assert!(is_known, "{}: {name}", rendered.name());
        }
    }
    assert!(count >= 4, "only {count} variables were found");
}

#[test]
fn the_chart_is_of_the_version_that_is_built() {
    let chart: Value = serde_saphyr::from_str(&read("deploy/helm/hookgate/Chart.yaml")).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

/// docs/protocol.md, section 6: the drain, 4 s more, and 750 ms for the forced exit.
#[test]
fn a_pod_has_longer_to_end_than_the_gateway_ever_takes() {
    for values in variants() {
        let rendered = Rendered::of(&values);
        let drain = &rendered.file()["drain"];
        let seconds =
            |key: &str| drain[key].as_str().unwrap().strip_suffix('s').unwrap().parse::<u64>().unwrap();
        let grace = rendered.template()["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(
            grace > seconds("grace") + seconds("finish") + 4,
            "{}: {grace} s for {drain}",
            rendered.name()
        );
    }
}

/// Keys of `plugins[]` are mixed with those of a container. The chart's schema knows exactly the gateway's
/// keys and its own. A key of both would get lost.
#[test]
fn keys_of_plugins_are_the_gateways_and_those_that_the_chart_takes_out() {
    let schema: Value = serde_json::from_str(&read("docs/hookgate.schema.json")).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let gateways = keys(&schema["$defs"]["Plugin"]["properties"]);
    let template = fs::read_to_string(chart().join("templates/_config.tpl")).unwrap();
    let taken = template.split_once("omit . ").and_then(|(_, rest)| rest.split_once(" -}}")).unwrap().0;
    let taken: BTreeSet<_> = taken.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect();
    assert!(gateways.is_disjoint(&taken), "{taken:?}");
    let known: Value = serde_json::from_str(&read("deploy/helm/hookgate/values.schema.json")).unwrap();
    let known = keys(&known["properties"]["plugins"]["items"]["properties"]);
    assert_eq!(known, &gateways | &taken);
}

/// The keys of docs/configuration.md whose changes take effect then.
fn keys_that_change(when: &str) -> BTreeSet<String> {
    let page = read("docs/configuration.md");
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.ends_with(&format!("| {when} |")));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn pods_are_replaced_for_what_waits_for_a_restart() {
    let tls = json!({ "enabled": true, "existingSecret": "a" });
    let clients = json!({ "enabled": true, "existingSecret": "a", "clientCa": { "existingSecret": "b" } });
    let sqlite = json!({ "sqlite": { "enabled": true } });
    let cases = [
        (&["server.data_addr", "server.ops_addr", "server.admin_addr"][..], "/listenAddress", json!("[::]")),
        (&["server.admin_socket"], "/adminSocket", json!(false)),
        (&["server.workers"], "/workers", json!(2)),
        (&["server.tls", "server.tls.cert_file", "server.tls.key_file"], "/tls", tls.clone()),
        (&["server.tls.client_ca_file"], "/tls", clients),
        (&["drain.grace"], "/drain", json!({ "graceSeconds": 6 })),
        (&["drain.finish"], "/drain", json!({ "finishSeconds": 21 })),
        (&["log.level"], "/config/log", json!({ "level": "debug" })),
        (&["log.format"], "/config/log", json!({ "format": "json" })),
        (&["telemetry.otlp_endpoint"], "/config/telemetry", json!({ "otlp_endpoint": "http://c:4317" })),
        (&["telemetry.otlp_protocol"], "/config/telemetry", json!({ "otlp_protocol": "http" })),
        (&["store.url", "store.last_good"], "/store", json!({ "postgresql": { "url": "postgres://a@b/c" } })),
    ];
    let mark = |values: &Value| {
        Rendered::with(values).template()["metadata"]["annotations"]["hookgate/restart"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let before = mark(&values("/replicas", &json!(1)));
    let mut tried = BTreeSet::from(["store.apply_file".to_owned()]);
    for (keys, pointer, value) in cases {
        assert_ne!(mark(&values(pointer, &value)), before, "{keys:?}");
        tried.extend(keys.iter().map(|&key| key.to_owned()));
    }
    let applied = |apply: bool| {
        let mut store = sqlite.clone();
        store["applyFile"] = json!(apply);
        let mut values = values("/store", &store);
        values["replicas"] = json!(1);
        mark(&values)
    };
    assert_ne!(applied(true), applied(false), "store.apply_file");
    let opened = |host_services: &Value| {
        let mut values = values("/store", &json!({ "postgresql": { "existingSecret": "database" } }));
        values["hostServices"] = host_services.clone();
        mark(&values)
    };
    let (closed, port) = (opened(&json!({})), opened(&json!({ "port": true })));
    for (keys, before, host_services) in [
        (&["server.host_socket"][..], &closed, json!({ "socket": true })),
        (&["server.host_addr"], &closed, json!({ "port": true })),
        (&["server.host_endpoint"], &port, json!({ "port": true, "endpoint": "http://a:1" })),
    ] {
        assert_ne!(&opened(&host_services), before, "{keys:?}");
        tried.extend(keys.iter().map(|&key| key.to_owned()));
    }
    assert_eq!(tried, keys_that_change("restart"));
    // The admin port opens with the first issuer that has an admin audience.
    assert_ne!(mark(&values("/config/auth/issuers/0/admin_audience", &json!("admin"))), before);
}

#[test]
fn pods_stay_when_the_gateway_takes_the_change_by_itself() {
    let before = Rendered::with(&values("/replicas", &json!(2)));
    let binding = json!([{ "tenant": "*", "priority": 1 }]);
    let remote = json!([{ "name": "guard", "endpoint": "http://guard:7000", "bindings": binding }]);
    let builtin = json!([{ "name": "content-policy", "builtin": "content-policy", "bindings": binding }]);
    let cases = [
        ("/plugins", remote),
        ("/plugins", builtin),
        ("/config/tenants", json!({ "list": [{ "id": "acme" }] })),
        ("/config/limits", json!({ "in_flight": 7 })),
        ("/config/auth/issuers/0/leeway", json!("7s")),
        ("/config/telemetry", json!({ "slow_invocation": "7s", "tenant_labels": ["acme"] })),
        ("/config/observers", json!({ "items": 7 })),
        ("/config/startup", json!({ "wait": "7s" })),
        ("/config/answer", json!({ "detail": "minimal" })),
        ("/config/egress", json!({ "names": ["*.svc"] })),
        ("/config/secrets", json!({ "dir": "/run/others" })),
        ("/config/block_status", json!({ "MINE": 429 })),
        ("/config/self_registration", json!({ "unknown_plugins": "deny" })),
        (
            "/config/llm",
            json!({ "upstreams": [{ "name": "a", "base_url": "https://a/v1" }], "models": [{ "match": "*", "upstream": "a" }] }),
        ),
    ];
    let roots: BTreeSet<_> = keys_that_change("at once").iter().map(|key| root(key)).collect();
    let mut tried = BTreeSet::new();
    for (pointer, value) in cases {
        let after = Rendered::with(&values(pointer, &value));
        assert_ne!(after.text(), before.text(), "{pointer}");
        assert_eq!(after.template(), before.template(), "{pointer}");
        tried.insert(root(&pointer.trim_start_matches("/config").trim_start_matches('/').replace('/', ".")));
    }
    tried.insert("bindings".to_owned()); // tested with the plugins
    assert_eq!(tried, roots);
}

/// Returns `plugins` for `plugins[].breaker.open`.
fn root(key: &str) -> String {
    key.split(['.', '[']).next().unwrap().to_owned()
}
