//! Tests `hookgate whoami` with a gateway and with other servers.

use hookgate_tests::{
    fake::FakePlugin,
    gateway::Gateway,
    token::{ISSUER, Token, token},
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cli::support::{CommandOutput, Folder};

async fn gateway() -> (FakePlugin, Gateway) {
    let guard = FakePlugin::named("guard").start().await;
    let setup = Gateway::with()
        .tenant("acme")
        .tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }))
        .tenant_with("gone", &json!({ "enabled": false }))
        .plugin(&guard)
        .binding_with("guard", 10, &json!({ "name": "floor", "points": ["before_tool_call"] }));
    let gateway =
        setup.set("/auth/issuers/0/scopes", json!(["hookgate:invoke", "hookgate:read"])).start().await;
    (guard, gateway)
}

async fn whoami(gateway: &Gateway, token: &str, args: &[&str]) -> CommandOutput {
    let address = format!("http://{}", gateway.data_addr());
    let env = [("HOOKGATE_ADDR", address.as_str()), ("HOOKGATE_TOKEN", token)];
    let ran = Folder::new().run_with(&[&["whoami"], args].concat(), &env, "").await;
    let signature = token.rsplit('.').next().unwrap();
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(signature.is_empty() || !all.contains(signature), "the token shows: {all}");
    ran
}

/// An answer without a caller is not from a gateway, whatever its status.
#[tokio::test]
async fn an_answer_that_names_no_tenant_is_a_failure() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
    });
    let env = [("HOOKGATE_ADDR", address.as_str()), ("HOOKGATE_TOKEN", "a.b.c")];
    let ran = Folder::new().run_with(&["whoami"], &env, "").await;
    server.await.unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.contains("neither a result nor an error of a gateway"), "{ran:?}");
}

#[tokio::test]
async fn a_token_is_shown_with_the_steps_of_each_point() {
    let (_guard, gateway) = gateway().await;
    let minted = Token::for_tenant("acme").claim("exp", 4_102_444_799_i64).mint();
    let ran = whoami(&gateway, &minted, &[]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let expected = format!(
        "tenant    acme\noperator  operator-of-acme\nissuer    {ISSUER}\nexpires   2099-12-31T23:59:59Z\n\
         scopes    hookgate:invoke\n\n\
         POINT               STEP  BINDING  PLUGIN  MODE\nbefore_llm_request  0     none\n\
         before_tool_call    1     floor    guard   enforce\nafter_tool_result   0     none\n\
         before_response     0     none\n"
    );
    assert_eq!(ran.stdout, expected);

    let json = whoami(&gateway, &minted, &["--output", "json"]).await;
    let answer = gateway.http(&minted).get("/v1/whoami").await.unwrap();
    assert_eq!((json.code, json.stdout.trim_end()), (Some(0), answer.text.as_str()), "as it came");
    let yaml = whoami(&gateway, &minted, &["--output", "yaml"]).await;
    assert!(yaml.stdout.contains("tenant: acme\n"), "{yaml:?}");

    let quiet = whoami(&gateway, &token("quiet"), &[]).await;
    assert!(quiet.stdout.contains("before_tool_call    1     not told"), "{quiet:?}");
    let reads = whoami(&gateway, &Token::for_tenant("acme").scopes("hookgate:read").mint(), &[]).await;
    assert_eq!(reads.code, Some(0));
    assert!(
        reads.stdout.contains("scopes    hookgate:read, but a call needs hookgate:invoke\n"),
        "{reads:?}"
    );
}

#[tokio::test]
async fn the_steps_of_hooks_come_after_those_of_points() {
    let notes = FakePlugin::named("notes").hooks(&["recall", "turn_end"]).start().await;
    let setup =
        Gateway::with().tenant("acme").tenant_with("quiet", &json!({ "answer": { "detail": "minimal" } }));
    let setup = setup.plugin(&notes);
    let setup = setup.binding_with("notes", 10, &json!({ "name": "all", "hooks": ["turn_end", "recall"] }));
    let gateway = setup
        .binding_with("notes", 20, &json!({ "name": "log", "hooks": ["turn_end"], "mode": "observe" }))
        .start()
        .await;
    let rows = |ran: &CommandOutput| {
        let rows = ran.stdout.lines().skip_while(|line| !line.starts_with("before_response"));
        rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let ran = whoami(&gateway, &token("acme"), &[]).await;
    let expected = [
        "before_response 0 none",
        "recall 1 all notes advise",
        "turn_end 1 all notes advise",
        "turn_end 2 log notes observe",
    ];
    assert_eq!((ran.code, rows(&ran)), (Some(0), expected.map(str::to_owned).into()), "{ran:?}");
    let ran = whoami(&gateway, &token("quiet"), &[]).await;
    assert_eq!(rows(&ran)[1..], ["recall 1 not told", "turn_end 2 not told"], "{ran:?}");
}

#[tokio::test]
async fn a_refused_token_is_told_with_the_remedy() {
    let (_guard, gateway) = gateway().await;
    for (token, said) in [
        (
            Token::for_tenant("acme").expiring_in(-120).mint(),
            "TOKEN_EXPIRED (the caller failed): The token has expired",
        ),
        (token("nobody"), "TENANT_UNKNOWN (the caller failed): "),
        (token("gone"), "TENANT_DISABLED (the caller failed): "),
        ("no.real.signature".into(), "TOKEN_INVALID (the caller failed): "),
    ] {
        let ran = whoami(&gateway, &token, &[]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("hookgate: {said}")), "{ran:?}");
        assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("  = ")).count(), 1, "{ran:?}");
        let ran = whoami(&gateway, &token, &["--output", "json"]).await;
        assert_eq!((ran.code, ran.json()["code"].as_str()), (Some(1), said.split(' ').next()), "{ran:?}");
    }
}

/// The ops port speaks HTTP but isn't a data port.
#[tokio::test]
async fn another_server_is_not_taken_for_a_gateway() {
    let (_guard, gateway) = gateway().await;
    let address = format!("http://{}", gateway.ops_addr());
    let ran = whoami(&gateway, &token("acme"), &["--addr", &address]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(
        ran.stderr.contains(" but not like a gateway; --addr must be the gateway's `server.data_addr`"),
        "{ran:?}"
    );
}
