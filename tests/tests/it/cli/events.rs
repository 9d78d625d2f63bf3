//! Tests `hookgate events`: recorded events, following, and the end of the gateway.

use std::process::Stdio;

use hookgate_tests::{
    fake::{Act, FakePlugin},
    gateway::{Gateway, binary},
    port::ReservedPort,
    token::{Token, token},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader, Lines},
    process::Command,
    time::{Duration, timeout},
};

use crate::{
    admin::events_support::wait_for,
    cli::support::{CommandOutput, Folder},
    edge::support::{POINT, payload},
};

const PATIENCE: Duration = Duration::from_secs(35);

async fn gateway() -> (FakePlugin, Gateway) {
    let guard = FakePlugin::named("guard").at(POINT, Act::cancel("NO", "not today")).start().await;
    let setup = Gateway::with().tenant("acme").admin().plugin(&guard).binding("guard", 10);
    (guard, setup.start().await)
}

fn address(gateway: &Gateway) -> String {
    format!("http://{}", gateway.admin_addr().expect("the admin port is open"))
}

async fn events(gateway: &Gateway, token: &str, args: &[&str]) -> CommandOutput {
    let address = address(gateway);
    let args = [&["events", "--addr", &address], args].concat();
    Folder::new().run_with(&args, &[("HOOKGATE_TOKEN", token)], "").await
}

#[tokio::test]
async fn people_get_a_line_for_each_event_and_programs_an_object() {
    let (_guard, gateway) = gateway().await;
    let operator = Token::for_operators().mint();
    gateway.http(&token("acme")).call(POINT, payload()).await;
    wait_for(&gateway.admin(&operator), "event=decision.block", 1).await;
    let ran = events(&gateway, &operator, &["--event", "decision.*", "--event", "plugin.initialized"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let lines: Vec<_> =
        ran.stdout.lines().map(|line| line.split_once("Z  ").expect("a time first").1).collect();
    let [initialized, blocked] = lines[..] else { panic!("{ran:?}") };
    assert!(
        initialized.starts_with("INFO   plugin.initialized      guard  configuration handed over  address=")
    );
    assert_eq!(
        blocked,
        "INFO   decision.block          guard  a call was blocked: not today  tenant=acme point=before_tool_call \
         tool=fs.read code=NO revision=1"
    );
    let ran = events(&gateway, &operator, &["--plugin", "guard", "--limit", "2", "--output", "json"]).await;
    let objects: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ran.code, objects.len()), (Some(0), 2), "{ran:?}");
    assert!(objects.iter().all(|event| event["plugin"] == "guard"), "{ran:?}");
    let none = events(&gateway, &operator, &["--level", "error"]).await;
    assert_eq!((none.code, none.stdout.as_str(), none.stderr.as_str()), (Some(0), "", ""));
}

#[tokio::test]
async fn a_mistake_is_told_with_its_remedy_and_exit_code() {
    let (_guard, gateway) = gateway().await;
    let operator = Token::for_operators().mint();
    let ran = events(&gateway, &operator, &["--since", "yesterday"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(
        ran.stderr.starts_with("hookgate: PAYLOAD_INVALID (the caller failed): --since must be "),
        "{ran:?}"
    );
    for args in [&[][..], &["--follow"]] {
        let ran = events(&gateway, &Token::for_operators().expiring_in(-120).mint(), args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
        assert!(ran.stderr.starts_with("hookgate: TOKEN_EXPIRED (the caller failed): "), "{ran:?}");
        assert!(ran.stderr.contains("hookgate token mint --admin"), "{ran:?}");
        let closed = format!("http://{}", gateway.ops_addr());
        let args = [&["events", "--addr", &closed], args].concat();
        let ran = Folder::new().run_with(&args, &[("HOOKGATE_TOKEN", &operator)], "").await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains("--addr must be the gateway's `server.admin_addr`"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_gateway_that_goes_is_followed_again_when_it_is_back_and_ctrl_c_ends_it_well() {
    let guard = FakePlugin::named("guard").start().await;
    // Reserved while no gateway uses it.
    let port = ReservedPort::new().unwrap();
    let setup = Gateway::with().tenant("acme").admin().plugin(&guard).binding("guard", 10);
    let setup = setup.set("/server/admin_addr", port.address().to_string());
    let gateway = setup.clone().start().await;
    let mut command = Command::new(tokio::task::spawn_blocking(binary).await.unwrap());
    command.args(["events", "--follow", "--output", "json", "--addr", &address(&gateway), "--limit", "1"]);
    command.args(["--event", "plugin.registered"]).env("HOOKGATE_TOKEN", Token::for_operators().mint());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut follower = command.spawn().unwrap();
    let mut stdout = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut stderr = BufReader::new(follower.stderr.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&line(&mut stdout).await).unwrap();
    assert_eq!((&first["event"], &first["plugin"]), (&json!("plugin.registered"), &json!("guard")));
    assert_eq!(gateway.stop().await.code, Some(0));
    assert_eq!(line(&mut stderr).await, "hookgate: the gateway is shutting down; trying again in 500ms");
    let again = setup.start().await;
    while line(&mut stderr).await != "hookgate: connected again" {}
    let second: Value = serde_json::from_str(&line(&mut stdout).await).unwrap();
    assert_eq!(second["event"], "plugin.registered");
    assert_ne!(first["id"], second["id"]);
    let id = follower.id().expect("it runs");
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {id}")]).status().await.unwrap();
    assert!(sent.success());
    let ended = timeout(PATIENCE, follower.wait()).await.expect("it ends").unwrap();
    assert_eq!(ended.code(), Some(0));
    drop(again);
}

async fn line(stream: &mut Lines<BufReader<impl AsyncRead + Unpin>>) -> String {
    timeout(PATIENCE, stream.next_line()).await.expect("it goes on").unwrap().expect("it is not over")
}
