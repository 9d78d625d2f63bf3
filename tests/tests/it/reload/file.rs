//! Tests reloading the file while the gateway runs, on SIGHUP and when its content changes. Reloads are
//! atomic.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use hookgate_tests::{
    ca::Ca,
    gateway::{Gateway, Line, Setup, binary},
    metrics::Scrape,
    repository,
    token::{Token, token},
};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use crate::{
    edge::support::{POINT, code, payload},
    registry::support::status_is,
};

fn acme() -> Setup {
    Gateway::with().tenant("acme").admin()
}

/// A file with a second tenant, which is served once the file is reloaded.
fn acme_and_globex() -> Setup {
    acme().tenant("globex")
}

async fn call(gateway: &Gateway, tenant: &str) -> (u16, Value) {
    let answer = gateway.http(&token(tenant)).call(POINT, payload()).await;
    (answer.status, answer.body["revision"].clone())
}

async fn configuration(gateway: &Gateway) -> Value {
    let operator = gateway.admin(&Token::for_operators().mint());
    operator.get("/admin/v1/status").await.unwrap().body["configuration"].clone()
}

async fn is_refused(gateway: &Gateway) -> bool {
    let scrape = Scrape::of(gateway).await;
    assert!(scrape.text.contains("hookgate_config_rejected"), "{}", scrape.text);
    scrape.sum("hookgate_config_rejected", &[]) > 0.0
}

fn refusal(line: &Line) -> bool {
    line.field("event").is_some_and(|event| event == "config.rejected")
}

#[tokio::test]
async fn a_hangup_makes_the_file_active() {
    let gateway = acme().start().await;
    assert_eq!(call(&gateway, "acme").await, (200, json!(1)));
    assert_eq!(call(&gateway, "globex").await.0, 403);

    gateway.reload(&acme_and_globex());
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway, "acme").await, (200, json!(2)));
    assert_eq!(call(&gateway, "globex").await, (200, json!(2)));
    assert_eq!(Scrape::of(&gateway).await.sum("hookgate_table_revision", &[]), 2.0);

    gateway.reload(&acme());
    gateway.wait_for_revision(3).await;
    assert_eq!(call(&gateway, "globex").await.0, 403);
}

#[tokio::test]
async fn a_file_that_is_written_again_or_replaced_is_taken_without_being_asked() {
    let gateway = acme().start().await;
    fs::write(gateway.file(), acme_and_globex().text()).unwrap();
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway, "globex").await.0, 200);

    let beside = gateway.file().with_extension("new");
    fs::write(&beside, acme().text()).unwrap();
    fs::rename(&beside, gateway.file()).unwrap();
    gateway.wait_for_revision(3).await;
    assert_eq!(call(&gateway, "globex").await.0, 403);
}

/// As in Kubernetes, the file is a link through `..data`, which is replaced by another link.
#[tokio::test]
async fn a_config_map_s_swap_of_links_is_taken() {
    let gateway = acme().start().await;
    let folder = gateway.file().parent().map(Path::to_owned).unwrap();
    let mount = |name: &str, text: String| {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("hookgate.yaml"), text).unwrap();
        symlink(name, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    mount("..first", acme().text());
    symlink("..data/hookgate.yaml", folder.join("link")).unwrap();
    fs::rename(folder.join("link"), gateway.file()).unwrap();

    mount("..second", acme_and_globex().text());
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway, "globex").await, (200, json!(2)));
}

/// A file that an editor writes in two steps is not read between them.
#[tokio::test]
async fn a_file_is_not_judged_while_it_is_written() {
    let gateway = acme().start().await;
    let text = acme_and_globex().text();
    fs::write(gateway.file(), &text[..text.len() / 2]).unwrap();
    fs::write(gateway.file(), text).unwrap();
    gateway.wait_for_revision(2).await;
    assert!(!gateway.log().lines().iter().any(refusal), "{}", gateway.log());
}

#[tokio::test]
async fn a_file_that_says_the_same_changes_nothing() {
    let gateway = acme().start().await;
    gateway.hang_up();
    let said = |line: &Line| line.message().is_some_and(|text| text.ends_with("has not changed"));
    gateway.log().wait_for(said).await;
    // Another text with the same meaning.
    gateway.reload(&Setup::file(&format!("# a remark\n{}", acme().text())));
    let mut times = 0;
    let twice = |line: &Line| {
        times += usize::from(said(line));
        times == 2
    };
    gateway.log().wait_for(twice).await;
    assert_eq!(call(&gateway, "acme").await, (200, json!(1)));
}

/// Files that are rejected, each by another part.
fn broken() -> Vec<(&'static str, String)> {
    let text = |setup: Setup| setup.text();
    vec![
        ("no YAML", "auth: [".into()),
        ("empty", String::new()),
        ("a typo", text(acme().set("/limits/budgt", "1s"))),
        ("two mistakes", text(acme().set("/limits/budgt", "1s").set("/drain/grace", "soon"))),
        ("a binding of no plugin", text(acme().binding("ghost", 1))),
        ("a key file that isn't there", {
            text(acme().set("/auth/issuers/0/keys/0", json!({ "jwk_file": "/nowhere/key.jwk" })))
        }),
        ("equal priorities", {
            let policy = acme().builtin("content-policy", &json!({})).binding("content-policy", 1);
            text(policy.binding_with("content-policy", 1, &json!({ "name": "second" })))
        }),
        ("a certificate that isn't there", {
            let files = json!({ "cert_file": "/nowhere/c.pem", "key_file": "/nowhere/k.pem" });
            text(acme().set("/server/tls", files))
        }),
        ("a collector that can't be", text(acme().set("/telemetry/otlp_endpoint", "http://127.0.0.1:1/x"))),
    ]
}

fn checked(file: &PathBuf) -> String {
    let check = Command::new(binary()).args(["config", "check"]).arg(file).output().unwrap();
    assert_eq!(check.status.code(), Some(2), "{check:?}");
    String::from_utf8(check.stderr).unwrap()
}

#[tokio::test]
async fn a_file_with_mistakes_keeps_the_active_configuration_and_reports_as_a_check_does() {
    let gateway = acme().start().await;
    assert_eq!(configuration(&gateway).await["rejected"], Value::Null);
    let mut refusals = 0;
    for (name, text) in broken() {
        let before = gateway.log().lines().len();
        gateway.reload(&Setup::file(&text));
        let mut looked = 0;
        let told = |line: &Line| {
            looked += 1;
            looked > before && line.message() == Some("the current configuration stays active")
        };
        gateway.log().wait_for(told).await;
        refusals += 1;
        assert_eq!(call(&gateway, "acme").await, (200, json!(1)), "{name}");
        assert!(is_refused(&gateway).await, "{name}");
        let refused = configuration(&gateway).await["rejected"].clone();
        let (problems, check) = (refused["problems"].as_array().unwrap(), checked(&gateway.file()));
        assert!(!problems.is_empty(), "{name}");
        for problem in problems {
            assert!(check.contains(problem.as_str().unwrap()), "{name}: {problem}\n{check}");
        }
    }
    assert_eq!(refusals, broken().len());

    fs::remove_file(gateway.file()).unwrap();
    gateway.hang_up();
    gateway.log().wait_for(|line| line.message().is_some_and(|text| text.contains("can't be read"))).await;

    gateway.reload(&acme());
    gateway.log().wait_for(|line| line.message().is_some_and(|text| text.ends_with("has not changed"))).await;
    assert!(!is_refused(&gateway).await);
    assert_eq!(configuration(&gateway).await["rejected"], Value::Null);
}

#[tokio::test]
async fn limits_statuses_and_details_hold_from_the_next_call_on() {
    let limit = |setup: Setup, chars: u64| {
        let config = json!({ "max_input_chars": chars });
        setup.builtin("content-policy", &config).binding("content-policy", 1)
    };
    let gateway = limit(acme(), 1_000).start().await;
    let long = json!({ "text": "x".repeat(500) });
    let point = hookgate_proto::types::v1::ExtensionPoint::BeforeLlmRequest;
    let call = async || gateway.http(&token("acme")).call(point, long.clone()).await;
    assert_eq!(call().await.status, 200);

    gateway.reload(&limit(acme(), 100).set("/answer/detail", "minimal"));
    gateway.wait_for_revision(2).await;
    let blocked = call().await;
    assert_eq!((blocked.status, code(&blocked)), (413, "INPUT_TOO_LONG"), "{blocked:?}");
    assert_eq!(blocked.body["steps"], json!([]), "{blocked:?}");

    gateway.reload(&limit(acme(), 100).set("/limits/request", "200B"));
    gateway.wait_for_revision(3).await;
    let refused = call().await;
    assert_eq!((refused.status, code(&refused)), (413, "PAYLOAD_TOO_LARGE"), "{refused:?}");
}

#[tokio::test]
async fn keys_of_callers_are_exchanged() {
    let other = "another secret of the tests, of 32 bytes or more";
    let gateway = acme().start().await;
    let key = EncodingKey::from_secret(other.as_bytes());
    let (old, new) = (token("acme"), Token::for_tenant("acme").signed_with(Algorithm::HS256, key).mint());
    let status = async |token: &str| gateway.http(token).call(POINT, payload()).await.status;
    assert_eq!((status(&old).await, status(&new).await), (200, 401));
    gateway.reload(&acme().set("/auth/issuers/0/keys/0/secret", other));
    gateway.wait_for_revision(2).await;
    assert_eq!((status(&old).await, status(&new).await), (401, 200));
}

#[tokio::test]
async fn keys_that_wait_for_a_restart_are_named_and_the_others_hold() {
    let gateway = acme().start().await;
    let moved = acme_and_globex().set("/server/data_addr", "127.0.0.1:1").set("/log/level", "debug");
    gateway.reload(&moved);
    gateway.wait_for_revision(2).await;
    assert_eq!(call(&gateway, "globex").await.0, 200);
    let named = |line: &Line| line.field("keys") == Some(&json!("server.data_addr, log"));
    gateway.log().wait_for(named).await;
    assert_eq!(configuration(&gateway).await["restart_required"], json!(["server.data_addr", "log"]));

    gateway.reload(&acme_and_globex());
    // The table is active shortly before the status says what waits.
    status_is(&gateway, |status| {
        status["revision"] == 3 && status["configuration"]["restart_required"] == json!([])
    })
    .await;
}

/// Each key of docs/configuration.md that needs a restart, another value for it, and the name that is
/// reported.
fn at_restart(tls: Value) -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("server.admin_addr", json!("127.0.0.1:1"), "server.admin_addr"),
        ("server.admin_socket", json!("/nowhere/admin.sock"), "server.admin_socket"),
        ("server.data_addr", json!("127.0.0.1:1"), "server.data_addr"),
        ("server.ops_addr", json!("127.0.0.1:1"), "server.ops_addr"),
        ("server.tls", tls, "server.tls"),
        ("server.workers", json!(3), "server.workers"),
        ("store.apply_file", json!(false), "store"),
        ("store.last_good", json!("/nowhere/last-good.json"), "store"),
        ("store.url", json!("sqlite:/nowhere/hookgate.db"), "store"),
        ("drain.finish", json!("4s"), "drain"),
        ("drain.grace", json!("1ms"), "drain"),
        ("log.format", json!("pretty"), "log"),
        ("log.level", json!("debug"), "log"),
        ("telemetry.otlp_endpoint", json!("http://127.0.0.1:1"), "telemetry.otlp_endpoint"),
        ("telemetry.otlp_protocol", json!("http"), "telemetry.otlp_protocol"),
    ]
}

#[tokio::test]
async fn every_key_that_the_docs_call_a_restart_s_is_named_when_it_changes() {
    let docs = fs::read_to_string(repository::root().join("docs/configuration.md")).unwrap();
    let rows = docs.lines().filter(|line| line.ends_with("| restart |"));
    let documented: BTreeSet<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let ca = Ca::new();
    let files = ca.pair(&["localhost"]).files();
    let cases = at_restart(files.members(&json!({ "client_ca_file": ca.file() })));
    // TLS counts as a whole, and the host port needs a store.
    let is_other = |key: &&str| key.starts_with("server.tls.") || key.starts_with("server.host_");
    let tried = documented.iter().filter(|key| !is_other(key));
    assert!(tried.eq(cases.iter().map(|(key, ..)| key).collect::<BTreeSet<_>>()), "{documented:?}");

    let gateway = acme().start().await;
    for (revision, (key, value, named)) in (2..).zip(cases) {
        gateway.reload(&acme().set(&format!("/{}", key.replace('.', "/")), value));
        gateway.wait_for_revision(revision).await;
        let named_last = |line: &Line| line.field("keys").is_some_and(|keys| keys == named);
        gateway.log().wait_for(named_last).await;
        let said = configuration(&gateway).await;
        assert_eq!((&said["restart_required"], &said["rejected"]), (&json!([named]), &Value::Null), "{key}");
        assert_eq!(call(&gateway, "acme").await, (200, json!(revision)), "{key}");
    }
}

#[tokio::test]
async fn changes_of_where_plugins_find_their_storage_wait_for_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("data.db").display());
    let stored = || acme().store(&url, folder.path()).set("/server/host_addr", "127.0.0.1:0");
    let gateway = stored().start().await;
    for (key, value) in [
        ("host_addr", json!("127.0.0.1:1")),
        ("host_endpoint", json!("http://hookgate.agents:9092")),
        ("host_socket", json!("/nowhere/host.sock")),
    ] {
        gateway.reload(&stored().set(&format!("/server/{key}"), value));
        let named = json!(format!("server.{key}"));
        gateway.log().wait_for(|line| line.field("keys").is_some_and(|keys| *keys == named)).await;
        assert_eq!(configuration(&gateway).await["restart_required"], json!([named]), "{key}");
    }
}
