//! Tests that all commands which call a gateway have the same limits, and the same messages for the same
//! mistakes.

use hookgate_tests::gateway::Gateway;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::cli::support::{CommandOutput, Folder};

/// The beginnings of commands that call a gateway with a token.
const ASKING: [&[&str]; 4] = [
    &["whoami"],
    &["tools"],
    &["call", "before_response", "--content", "x"],
    &["explain", "--tenant", "acme", "--point", "before_response"],
];

#[tokio::test]
async fn the_same_mistake_reads_the_same_whichever_command_asks() {
    let folder = Folder::new();
    folder.write("token", "a.b.c");
    folder.write("words", "two secretwords");
    let at = |address, more: &[&'static str]| [&["--addr", address], more].concat();
    let url = "http://127.0.0.1:1";
    for (args, code) in [
        (at("127.0.0.1:1", &["--token-file", "token"]), 2),
        (at("http://me:hunter2@127.0.0.1:1", &["--token-file", "token"]), 2),
        (at("http://127.0.0.1:1/path", &["--token-file", "token"]), 2),
        (at("http://127.0.0.1:1?query", &["--token-file", "token"]), 2),
        (at(url, &[]), 2),
        (at(url, &["--token-file", "nowhere"]), 2),
        (at(url, &["--token-file", "words"]), 2),
        (at(url, &["--token-file", "/dev/zero"]), 2),
        (at(url, &["--token-file", "token", "--ca", "nowhere"]), 2),
        (at(url, &["--token-file", "token", "--ca", "words"]), 2),
        (at(url, &["--token-file", "token"]), 1),
    ] {
        let mut said = Vec::new();
        for asking in ASKING {
            let ran = folder.run(&[asking, &args[..]].concat()).await;
            // Without an answer there is no decision, for which `call` has its own exit code.
            let code = if code == 1 && asking[0] == "call" { 4 } else { code };
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{asking:?}: {ran:?}");
            assert!(!ran.stderr.contains("secretwords") && !ran.stderr.contains("hunter2"), "{ran:?}");
            said.push(unported(&ran.stderr));
        }
        assert_eq!((&said[0], &said[0]), (&said[1], &said[2]));
    }
}

/// Removes intended differences: the port, and the prefix of `call`.
fn unported(said: &str) -> String {
    let said = said.replace("no decision: ", "").replace("9091", "8080").replace("admin_addr", "data_addr");
    let said =
        said.replace(" or unix:///run/hookgate/admin.sock", "").replace("HOOKGATE_ADMIN_TOKEN or ", "");
    said.replace(" which is open if an issuer has an `admin_audience`,", "")
}

/// Small containers have no CAs, and need none unless they use TLS.
#[tokio::test]
async fn a_machine_without_cas_asks_over_plain_http() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let (ops, data) = (gateway.ops_addr().to_string(), format!("http://{}", gateway.data_addr()));
    let token = hookgate_tests::token::token("acme");
    let none = [("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/nowhere"), ("HOOKGATE_TOKEN", &token)];
    let folder = Folder::new();
    for args in [&["probe", "--addr", &ops][..], &["whoami", "--addr", &data]] {
        let ran = folder.run_with(args, &none, "").await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
    let ran = folder.run_with(&["whoami", "--addr", &data.replace("http:", "https:")], &none, "").await;
    assert!(
        ran.code == Some(2) && ran.stderr.contains("give the CA of the gateway's certificate with --ca"),
        "{ran:?}"
    );
}

/// A server that answers everything with `head` and then endless bytes.
async fn answers(head: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                stream.write_all(head.as_bytes()).await.unwrap();
                while stream.write_all(&[b' '; 64 << 10]).await.is_ok() {}
            });
        }
    });
    address
}

async fn ask(folder: &Folder, address: &str) -> Vec<CommandOutput> {
    let url = format!("http://{address}");
    let env = [("HOOKGATE_TOKEN", "a.b.c")];
    let mut all = vec![folder.run_with(&["probe", "--addr", address], &env, "").await];
    for asking in ASKING {
        all.push(folder.run_with(&[asking, &["--addr", &url]].concat(), &env, "").await);
    }
    all
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let address = answers("HTTP/1.1 200 OK\r\n\r\n").await;
    for ran in ask(&Folder::new(), &address).await {
        assert!(matches!(ran.code, Some(1 | 4)) && ran.stdout.is_empty(), "{ran:?}");
        assert!(
            ran.stderr.contains(" answered with more than 64 MiB; --addr must be the gateway's"),
            "{ran:?}"
        );
    }
}

/// A token is sent only to where its owner said.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let head = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n",
        target.local_addr().unwrap()
    );
    let address = answers(Box::leak(head.into_boxed_str())).await;
    for ran in ask(&Folder::new(), &address).await {
        assert!(matches!(ran.code, Some(1 | 4)) && ran.stdout.is_empty(), "{ran:?}");
        assert!(ran.stderr.contains("307"), "{ran:?}");
    }
    let none = futures::FutureExt::now_or_never(target.accept());
    assert!(none.is_none(), "a connection was made");
}
