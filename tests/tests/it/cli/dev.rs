//! Tests `hookgate serve --dev`: what it prints works when pasted, its key is never shown, and it listens
//! on loopback only.

use std::{fs, net::SocketAddr};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{
    agent::HttpAgent,
    ca::Ca,
    token::{Token, token},
};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Validation, decode};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    cli::support::{CommandOutput, Folder, Serving, smallest},
    edge::support::{POINT, payload},
};

/// The last line of the banner.
const END: &str = "Then `";

/// The program's name for a shell.
fn hookgate() -> String {
    format!("'{}'", hookgate_tests::gateway::binary().display())
}

async fn dev(folder: &Folder, args: &str, env: &[(&str, &str)]) -> (Serving, String) {
    let program = tokio::task::spawn_blocking(hookgate).await.unwrap();
    let mut serving = Serving::pasted(folder.0.path(), &format!("{program} serve --dev {args}"), env).await;
    let banner = serving.printed(END).await;
    (serving, banner)
}

/// The first of the banner's indented lines: the one with the token and the one with the call.
fn lines(banner: &str) -> (String, String) {
    let lines: Vec<_> = banner.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let [token, call, ..] = lines.as_slice() else { panic!("two lines: {banner}") };
    let token = token.strip_prefix("export HOOKGATE_TOKEN=").expect("a token");
    (token.to_owned(), (*call).to_owned())
}

fn address(call: &str) -> SocketAddr {
    call.split_once("://").and_then(|(_, rest)| rest.split_once('/')).unwrap().0.parse().unwrap()
}

/// The words of a text with which the token was signed.
fn keys_in(text: &str, token: &str) -> Vec<String> {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.set_audience(&["hookgate"]);
    let signs =
        |word: &&str| decode::<Value>(token, &DecodingKey::from_secret(word.as_bytes()), &validation).is_ok();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() >= 32);
    words.filter(signs).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_call_of_the_banner_is_answered_when_it_is_pasted() {
    let folder = Folder::new();
    let (serving, banner) = dev(&folder, "", &[]).await;
    assert!(banner.contains("For development only"), "{banner}");
    let (minted, call) = lines(&banner);
    let ran = Command::new("sh").args(["-c", &call]).current_dir("/").output().await.unwrap();
    let answer = String::from_utf8(ran.stdout).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(r#""payload":{"text":"write to [EMAIL]"}"#), "{answer}");

    // Agents that only know their model's API reach a model too.
    for (name, path) in [("OPENAI", "/openai/v1/chat/completions"), ("ANTHROPIC", "/anthropic/v1/messages")] {
        assert!(banner.contains(&format!("export {name}_BASE_URL=http://{}", address(&call))), "{banner}");
        let url = format!("http://{}{path}", address(&call));
        let body = json!({ "model": "demo", "max_tokens": 9, "messages": [{ "role": "user", "content": "I am ada@example.com" }] });
        let asked = reqwest::Client::new().post(url).bearer_auth(&minted).json(&body).send().await.unwrap();
        assert!(asked.text().await.unwrap().contains("You said: I am [EMAIL]"), "{name}");
    }

    // A token may be for any tenant; a text that is too long is blocked.
    let agent = HttpAgent::new(address(&call)).with_token(&minted);
    let blocked = agent.call(ExtensionPoint::BeforeLlmRequest, json!({ "text": "x".repeat(2000) })).await;
    assert_eq!((blocked.status, &blocked.body["code"]), (413, &json!("INPUT_TOO_LONG")));
    let stopped = serving.stop().await;
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 0, "it writes nothing");
}

#[tokio::test]
async fn the_key_is_never_said_and_is_another_one_at_every_start() {
    let folder = Folder::new();
    let env = [("HOOKGATE__LOG__LEVEL", "trace"), ("RUST_LOG", "trace")];
    let (serving, banner) = dev(&folder, "", &env).await;
    let (minted, call) = lines(&banner);
    let agent = HttpAgent::new(address(&call)).with_token(&minted);
    assert_eq!(agent.call(POINT, payload()).await.status, 200);
    let CommandOutput { stdout, stderr, .. } = serving.stop().await;
    assert!(stderr.contains(r#""level":"DEBUG""#) || stderr.contains(r#""level":"INFO""#), "{stderr}");
    assert_eq!(keys_in(&format!("{stdout}{stderr}"), &minted), Vec::<String>::new());
    // The check itself works: a key among other words is found.
    let known = "0123456789abcdef0123456789abcdef";
    let other = Token::for_tenant("dev")
        .signed_with(Algorithm::HS256, EncodingKey::from_secret(known.as_bytes()))
        .mint();
    assert_eq!(keys_in(&format!("{stdout} key={known}, {stderr}"), &other), [known]);

    let (serving, banner) = dev(&folder, "", &[]).await;
    let agent = HttpAgent::new(address(&lines(&banner).1));
    assert_eq!(agent.with_token(&minted).call(POINT, payload()).await.status, 401, "a key of before");
    // Nor is it the placeholder in the built-in file, which is public.
    let placeholder = "replaced by a random one at every start";
    let forged = Token::for_tenant("dev")
        .issuer("hookgate-dev")
        .signed_with(Algorithm::HS256, EncodingKey::from_secret(placeholder.as_bytes()))
        .mint();
    let agent = HttpAgent::new(address(&lines(&banner).1));
    assert_eq!(agent.with_token(&forged).call(POINT, payload()).await.status, 401);
    serving.stop().await;
}

#[tokio::test]
async fn a_file_is_served_with_the_issuer_added_and_every_tenant_accepted() {
    let folder = Folder::new();
    let mut file = smallest();
    // The only issuer need not list its tenants, and still speaks for all of them.
    file["auth"]["issuers"][0].as_object_mut().unwrap().remove("tenants");
    folder.write("f.yaml", &file.to_string());
    let (serving, banner) = dev(&folder, "--config f.yaml", &[]).await;
    let (minted, call) = lines(&banner);
    let data = address(&call);
    for (token, status) in
        [(minted.clone(), 200), (token("acme"), 200), (token("nobody-listed"), 200), (token("gone"), 403)]
    {
        assert_eq!(HttpAgent::new(data).with_token(&token).call(POINT, payload()).await.status, status);
    }
    let stopped = serving.stop().await;
    assert_eq!((stopped.code, keys_in(&stopped.stderr, &minted)), (Some(0), vec![]));
}

#[tokio::test]
async fn the_call_of_the_banner_works_where_the_file_asks_for_tls() {
    let folder = Folder::new();
    let (ca, callers) = (Ca::new(), Ca::new());
    let (own, agent) = (ca.pair(&["127.0.0.1"]).files(), callers.pair(&["agent"]).files());
    let paste = |call: String| async move {
        let ran = Command::new("sh").args(["-c", &call]).output().await.unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    for (members, more) in [
        (json!({}), String::new()),
        (
            json!({ "client_ca_file": callers.file() }),
            format!(" --cert {} --key {}", agent.chain().display(), agent.key().display()),
        ),
    ] {
        let mut file = smallest();
        file["server"]["tls"] = own.members(&members);
        folder.write("f.yaml", &file.to_string());
        let (serving, banner) = dev(&folder, "--config f.yaml", &[]).await;
        let call = lines(&banner).1;
        assert_eq!(banner.contains("\nCallers must present a certificate: "), !more.is_empty(), "{banner}");
        let answer = paste(format!("{call}{more}")).await;
        let status = answer.lines().next().unwrap_or_default();
        assert!(status.starts_with("HTTP/") && status.contains(" 200"), "{call}{more}: {answer}");
        assert_eq!(serving.stop().await.code, Some(0));
    }
}

/// Mistakes in the file end it as they do without --dev.
#[tokio::test]
async fn addresses_that_others_reach_are_refused_with_what_would_be_right() {
    let folder = Folder::new();
    let mut file = smallest();
    file["server"]["ops_addr"] = json!("0.0.0.0:9090");
    file["server"]["admin_addr"] = json!("[::]:9091"); // closed: no issuer has an `admin_audience`
    folder.write("f.yaml", &format!("{file:#}"));
    let ran = folder.run(&["serve", "--dev", "--config", "f.yaml"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    for said in
        ["/server/ops_addr: `ops_addr` must be a loopback address", "write `127.0.0.1:9090`", "1 problem"]
    {
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
    }
    file["auth"]["issuers"][0]["admin_audience"] = json!("operators");
    file["auth"]["issuers"][0]["scopes"] = json!(["hookgate:read"]);
    folder.write("f.yaml", &format!("{file:#}"));
    let env = [("HOOKGATE__SERVER__DATA_ADDR", "192.0.2.1:8080")];
    let ran = folder.run_with(&["serve", "--dev", "--config", "f.yaml"], &env, "").await;
    assert!(ran.code == Some(2) && ran.stderr.ends_with("3 problems in the configuration\n"), "{ran:?}");
    let ran = folder.run_with(&["serve", "--dev"], &env, "").await;
    assert!(ran.code == Some(2) && ran.stderr.contains("HOOKGATE__SERVER__DATA_ADDR"), "{ran:?}");

    folder.write("broken.yaml", "log: { level: loud }\n");
    let (plain, dev) = (
        folder.run(&["serve", "--config", "broken.yaml"]).await,
        folder.run(&["serve", "--dev", "--config", "broken.yaml"]).await,
    );
    assert_eq!((plain.code, &plain.stderr), (Some(2), &dev.stderr));
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_the_variable_that_sets_another() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let env = [("HOOKGATE__SERVER__DATA_ADDR", &*address), ("HOOKGATE__SERVER__OPS_ADDR", "127.0.0.1:0")];
    let ran = Folder::new().run_with(&["serve", "--dev"], &env, "").await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    let said = ran.stderr.lines().last().unwrap();
    assert!(
        said.starts_with(&format!("hookgate: can't listen on {address} (`server.data_addr`): ")),
        "{said}"
    );
    assert!(said.contains("HOOKGATE__SERVER__DATA_ADDR=127.0.0.1:0"), "{said}");
}

#[tokio::test]
async fn a_serve_without_either_names_both() {
    let ran = Folder::new().run(&["serve"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("--config <FILE>") && ran.stderr.contains("--dev"), "{ran:?}");
}
