//! Tests a SQLite registry whose file can't grow: writes fail, everything else works, and with room again
//! writes succeed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    gateway::Gateway,
};
use serde_json::json;

use crate::{
    admin::registry::support::{administrator, get, put, written},
    edge::support::assert_no_panic,
    registry::support::{call, file_with},
};

/// Room for the tables and a few tenants, in bytes.
const ROOM: usize = 400_000;

/// Adds a tenant of about 20 kB.
async fn add(operator: &HttpAgent, id: &str) -> HttpAnswer {
    let note = "x".repeat(200);
    let labels: serde_json::Map<_, _> = (0..90).map(|n| (format!("label-{n}"), json!(note))).collect();
    put(operator, &format!("tenants/{id}?expected_version=0"), json!({ "labels": labels })).await
}

/// Adds tenants until there is no room for another one, and returns its id.
async fn fill(operator: &HttpAgent) -> String {
    for number in 0..1000 {
        let id = format!("t{number}");
        let answer = add(operator, &id).await;
        if !matches!(answer.status, 200 | 201) {
            assert!(number > 0, "there was room for nothing: {answer:?}");
            assert_refused(&answer);
            return id;
        }
    }
    panic!("there is more room than thought");
}

fn assert_refused(answer: &HttpAnswer) {
    assert_eq!((answer.status, &answer.body["code"]), (503, &json!("STORE_UNAVAILABLE")), "{answer:?}");
    let said = answer.body.to_string();
    assert!(said.contains("hookgate.db") && !said.contains("transaction"), "{said}");
}

/// Checks what works without room, and what works again after `make_room`.
async fn goes_on(gateway: &Gateway, operator: &HttpAgent, make_room: impl FnOnce()) {
    let id = fill(operator).await;
    for _ in 0..3 {
        assert_refused(&add(operator, &id).await);
        assert_eq!(call(gateway, "acme").await.status, 200);
        assert_eq!(get(operator, "tenants/t0").await.status, 200, "what was acknowledged is there");
        assert_eq!(get(operator, &format!("tenants/{id}")).await.status, 404, "what was refused is not");
    }
    make_room();
    written(&add(operator, &id).await);
    written(&add(operator, "another").await);
    assert_no_panic(gateway);
}

#[tokio::test]
async fn a_file_that_may_not_grow_refuses_writes_until_it_may_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let limit = format!("--fsize={ROOM}:unlimited");
    let setup = file_with("acme").store(&url, folder.path()).launched_by(&["prlimit", &limit, "--"]);
    let gateway = setup.start().await;
    let operator = gateway.admin(&administrator());
    let lift = || {
        let pid = gateway.id().to_string();
        let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status();
        assert!(lifted.expect("prlimit is there").success());
    };
    goes_on(&gateway, &operator, lift).await;
    assert_eq!(gateway.stop().await.code, Some(0));
}

/// The path of `path` outside of the gateway's mount namespace.
fn seen_from_outside(gateway: &Gateway, path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").expect("it is a path from the root");
    Path::new("/proc").join(gateway.id().to_string()).join("root").join(path)
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    // Its own disk, which ends with the process.
    let (size, path) = (2 * ROOM, folder.path().display());
    let mount = format!(r#"mount -t tmpfs -o size={size} tmpfs '{path}' && exec "$@""#);
    let launcher = ["unshare", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"];
    let gateway = file_with("acme").store(&url, folder.path()).launched_by(&launcher).start().await;
    let operator = gateway.admin(&administrator());
    let other = seen_from_outside(&gateway, &folder.path().join("other"));
    fs::write(&other, vec![b'x'; ROOM]).unwrap();
    goes_on(&gateway, &operator, || fs::remove_file(&other).unwrap()).await;
    assert_eq!(gateway.stop().await.code, Some(0));
}
