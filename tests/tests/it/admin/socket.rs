//! Tests the admin socket: its file mode decides who may use it, it exists from start to end, and it grants
//! everything without a token.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
        net::UnixListener,
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
};

use hookgate::core::error::Code;
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer},
    gateway::{Gateway, Setup, binary},
    openapi::Port,
    token::Token,
};
use serde_json::json;
use tempfile::TempDir;

use crate::{cli::support::Folder, edge::support::assert_http_error};

const STATUS: &str = "/admin/v1/status";
/// The uid of `nobody`.
const NOBODY: u32 = 65_534;

/// A folder for a socket that everybody may enter, and the socket's path.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("admin.sock");
    (folder, path)
}

fn setup(path: &Path) -> Setup {
    Gateway::with().tenant("acme").set("/server/admin_socket", path.display().to_string())
}

async fn get(path: &Path, what: &str) -> HttpAnswer {
    HttpAgent::over_socket(path).get(what).await.expect("the socket answers")
}

#[tokio::test]
async fn a_client_of_the_socket_sees_everything_without_a_token() {
    let (_folder, path) = place();
    // No issuer has an admin audience, so the port stays closed.
    let gateway = setup(&path).set("/log/level", "debug").start().await;
    assert_eq!(gateway.admin_addr(), None);
    let file = fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o7777, 0o600);
    let uid = fs::metadata(gateway.file()).unwrap().uid();
    assert_eq!(file.uid(), uid);

    assert_eq!(get(&path, STATUS).await.body["ready"], json!(true));
    assert_eq!(get(&path, "/admin/v1/plugins").await.status, 200);
    assert_eq!(get(&path, "/admin/v1/tenants/acme/plan").await.body["tenant"], json!("acme"));
    assert_http_error(&get(&path, "/admin/v1/tenants/nobody/plan").await, Code::NotFound);
    // A token is ignored, even an invalid one.
    let with = HttpAgent::over_socket(&path).with_token("nonsense");
    assert_eq!(with.get(STATUS).await.unwrap().status, 200);

    let user = json!(format!("unix:{uid}"));
    gateway.log().wait_for(|line| line.field("operator") == Some(&user)).await;
    let line = gateway.log().wait_for(|line| line.message() == Some("listening")).await;
    assert_eq!(line.field("admin_socket"), Some(&json!(path)));
    assert_eq!(gateway.stop().await.code, Some(0));
    assert!(!path.exists(), "it went with the gateway");
}

#[tokio::test]
async fn the_port_beside_it_still_wants_a_token() {
    let (_folder, path) = place();
    let gateway = setup(&path).admin().start().await;
    assert_eq!(get(&path, STATUS).await.status, 200);
    let port = HttpAgent::new(gateway.admin_addr().unwrap()).of(Port::Admin);
    assert_http_error(&port.get(STATUS).await.unwrap(), Code::TokenMissing);
    let operator = gateway.admin(&Token::for_operators().mint());
    assert_eq!(operator.get(STATUS).await.unwrap().status, 200);
}

/// Calls as another user, for whom only the mode of the socket matters: root could always connect.
#[tokio::test]
async fn another_user_cannot_open_it() {
    let (folder, path) = place();
    let _gateway = setup(&path).start().await;
    // The gateway's binary is in a folder that `nobody` can't enter.
    let program = folder.path().join("hookgate");
    tokio::task::spawn_blocking(binary).await.unwrap();
    // Copied by another process: a child of another thread could inherit the file open for writing, and
    // then nobody could execute it.
    let copied = Command::new("cp").arg(binary()).arg(&program).status().unwrap();
    assert!(copied.success());
    let explain = |uid: Option<u32>| {
        let mut command = Command::new(&program);
        command.args(["explain", "--tenant", "acme", "--point", "before_response"]);
        command.args(["--addr", &format!("unix://{}", path.display())]);
        command.current_dir("/").env_clear();
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        command.output().unwrap()
    };
    let own = explain(None);
    assert!(own.status.success(), "{own:?}");
    assert_eq!(fs::metadata(&path).unwrap().uid(), 0, "the tests that change their user run as root");
    let other = explain(Some(NOBODY));
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!((other.status.code(), other.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.contains("Permission denied") && said.contains("only its user and root may open"), "{said}");
    // Only the mode is in his way.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(explain(Some(NOBODY)).status.success());
}

#[tokio::test]
async fn one_that_a_crash_left_behind_is_replaced_and_one_in_use_ends_the_start() {
    let (_folder, path) = place();
    let first = setup(&path).start().await;
    let second = setup(&path).run_to_the_end().await;
    assert_eq!(second.code, Some(1), "{}", second.log);
    let said = format!(
        "hookgate: can't listen on unix://{} (`server.admin_socket`): another process listens there: stop it, or choose another path",
        path.display()
    );
    assert!(second.log.to_string().contains(&said), "{}", second.log);
    assert_eq!(get(&path, STATUS).await.status, 200);
    first.kill().await;
    assert!(path.exists(), "no process was left to remove it");
    let third = setup(&path).start().await;
    assert_eq!(get(&path, STATUS).await.status, 200);
    // At its end, a gateway removes only its own file.
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    third.stop().await;
    assert!(path.exists());
    drop(other);
}

#[tokio::test]
async fn a_place_where_none_can_be_names_the_key() {
    let (folder, path) = place();
    fs::write(&path, "").unwrap();
    for (path, why) in [
        (path, "there is a file that is not a socket: remove it, or choose another path".to_owned()),
        (
            folder.path().join("run/admin.sock"),
            format!("there is no folder {}/run: create it, or choose another path", folder.path().display()),
        ),
        ("/proc/admin.sock".into(), {
            let why = "No such file or directory (os error 2)";
            format!("the socket can't be created in the folder /proc: {why}")
        }),
    ] {
        let exit = setup(&path).run_to_the_end().await;
        let said = format!("can't listen on unix://{} (`server.admin_socket`): {why}", path.display());
        assert_eq!(exit.code, Some(1), "{}", exit.log);
        assert!(exit.log.to_string().contains(&said), "{}", exit.log);
    }
    for (path, why) in [
        ("admin.sock".to_owned(), "the path of a Unix socket must be absolute"),
        (format!("/{}", "x".repeat(107)), "the path of a Unix socket has at most 107 bytes"),
    ] {
        let exit = setup(Path::new(&path)).run_to_the_end().await;
        assert_eq!(exit.code, Some(2), "{}", exit.log);
        assert!(exit.log.to_string().contains(&format!("/server/admin_socket: {why}")), "{}", exit.log);
    }
}

#[tokio::test]
async fn another_path_waits_for_a_restart() {
    let (folder, path) = place();
    let gateway = setup(&path).start().await;
    let other = folder.path().join("other.sock");
    gateway.reload(&setup(&other).set("/limits/budget", "1s"));
    // Logged once it is in the status.
    gateway.log().wait_for(|line| line.field("keys") == Some(&json!("server.admin_socket"))).await;
    let waiting = get(&path, STATUS).await.body["configuration"]["restart_required"].clone();
    assert_eq!((waiting, other.exists()), (json!(["server.admin_socket"]), false));
}

#[tokio::test]
async fn explain_asks_the_socket_and_takes_no_token_there() {
    let (_folder, path) = place();
    let gateway = setup(&path).start().await;
    let (folder, address) = (Folder::new(), format!("unix://{}", path.display()));
    let asking = ["explain", "--tenant", "acme", "--point", "before_response", "--addr", &address];
    let ran = folder.run(&asking).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains(&address), "{ran:?}");
    let ran = folder.run(&[&asking[..], &["--token-file", "token"]].concat()).await;
    assert!(
        ran.code == Some(2) && ran.stderr.contains("a socket needs neither a token nor a certificate"),
        "{ran:?}"
    );
    gateway.stop().await;
    let ran = folder.run(&asking).await;
    let said = format!(
        "hookgate: no answer from {address}: No such file or directory (os error 2); --addr must be the"
    );
    assert!(ran.code == Some(1) && ran.stderr.starts_with(&said), "{ran:?}");
}
