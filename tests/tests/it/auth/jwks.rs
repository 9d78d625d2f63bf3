//! Tests key sets that an issuer publishes, over real sockets: an issuer that rotates, floods, redirects,
//! hangs and dies. Unit tests beside the code check the times, with a paused clock.
#![allow(clippy::unwrap_used)] // tests, and what only they use

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hookgate::{
    auth::{Authenticator, RefusalReason},
    core::error::Code,
};
use jsonwebtoken::{Algorithm, AlgorithmFamily};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::auth::keys::{Keys, SECRET, ask, authenticator, claims, token, unsigned};

/// The issuer's answer.
#[derive(Clone)]
pub(crate) enum Answer {
    /// These bytes, then the connection is closed.
    Raw(Vec<u8>),
    /// Nothing, until the client gives up.
    Nothing,
}

/// An issuer on a real socket.
pub(crate) struct Idp {
    url: String,
    answer: Arc<Mutex<Answer>>,
    requests: Arc<AtomicUsize>,
    /// A request arrived.
    asked: Arc<Notify>,
    /// A client without an answer has closed.
    gave_up: Arc<Notify>,
    serving: JoinHandle<()>,
}

fn http(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Raw(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes())
}

fn jwks(keys: &[(&str, &Keys)]) -> String {
    let key = |(kid, key): &(&str, &Keys)| {
        let mut jwk = key.jwk(AlgorithmFamily::Ed);
        jwk["kid"] = json!(kid);
        jwk
    };
    json!({ "keys": keys.iter().map(key).collect::<Vec<_>>() }).to_string()
}

pub(crate) fn published(keys: &[(&str, &Keys)]) -> Answer {
    http("200 OK", "", &jwks(keys))
}

impl Idp {
    pub(crate) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(answer));
        let requests = Arc::new(AtomicUsize::new(0));
        let (asked, gave_up) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (script, count, came, gone) = (answer.clone(), requests.clone(), asked.clone(), gave_up.clone());
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, count, came, gone) = (script.clone(), count.clone(), came.clone(), gone.clone());
                connections.spawn(async move { serve(stream, &script, &count, &came, &gone).await });
            }
        });
        Idp { url, answer, requests, asked, gave_up, serving }
    }

    pub(crate) fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn issuer(&self) -> Value {
        json!({ "issuer": self.url, "audience": "hookgate", "jwks_url": self.url, "tenants": "*" })
    }

    pub(crate) fn token(&self, kid: &str, key: &Keys) -> String {
        let header = json!({ "alg": "EdDSA", "kid": kid });
        token(&header, &claims(&self.url, "acme"), &key.signs, Algorithm::EdDSA)
    }
}

impl Drop for Idp {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    script: &Mutex<Answer>,
    count: &AtomicUsize,
    came: &Notify,
    gone: &Notify,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    count.fetch_add(1, Ordering::SeqCst);
    let answer = script.lock().unwrap().clone();
    came.notify_one();
    match answer {
        Answer::Raw(bytes) => {
            // The client may hang up during an answer that is too long.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Answer::Nothing => {
            let _ = stream.read_u8().await;
            gone.notify_one();
        }
    }
}

/// Runs an authenticator's refresh, which ends with the test.
struct Running {
    auth: Arc<Authenticator>,
    stop: CancellationToken,
    refresh: JoinHandle<()>,
}

impl Running {
    fn start(issuers: &Value) -> Self {
        let auth = Arc::new(authenticator(issuers));
        let stop = CancellationToken::new();
        let (refreshed, stopped) = (Arc::clone(&auth), stop.clone());
        let refresh = tokio::spawn(async move { refreshed.refresh(stopped).await });
        Running { auth, stop, refresh }
    }

    async fn until_ready(&self) {
        let ready = async {
            while !self.auth.ready() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ready).await.expect("keys within 20 s");
    }
}

#[tokio::test]
async fn a_token_with_a_new_key_fetches_it_and_a_key_that_is_gone_verifies_nothing_any_more() {
    let (old, new) = (Keys::ed25519(), Keys::ed25519());
    let idp = Idp::start(published(&[("old", &old)])).await;
    let running = Running::start(&json!([idp.issuer()]));
    running.until_ready().await;
    let (with_old, with_new) = (idp.token("old", &old), idp.token("new", &new));
    let verified = ask(&running.auth, &with_old).await.unwrap();
    assert_eq!(&*verified.invoker().unwrap().tenant, "acme");
    let again = ask(&running.auth, &with_old).await.unwrap();
    assert!(Arc::ptr_eq(&verified, &again), "remembered");
    assert!(running.auth.key_ages().all(|(_, age, left)| age.is_some() && !left.is_zero()));
    assert_eq!(running.auth.key_ages().count(), 1);

    idp.answers(published(&[("new", &new)]));
    assert!(ask(&running.auth, &with_new).await.is_ok());
    assert_eq!(
        ask(&running.auth, &with_old).await.unwrap_err(),
        RefusalReason::Kid,
        "though it was remembered"
    );
    assert_eq!(idp.requests(), 2);
}

#[tokio::test]
async fn a_key_of_the_same_name_but_other_numbers_forgets_what_the_old_one_verified() {
    let (old, new, other) = (Keys::ed25519(), Keys::ed25519(), Keys::ed25519());
    let idp = Idp::start(published(&[("k", &old)])).await;
    let running = Running::start(&json!([idp.issuer()]));
    running.until_ready().await;
    let token = idp.token("k", &old);
    assert!(ask(&running.auth, &token).await.is_ok());
    idp.answers(published(&[("k", &new), ("other", &other)]));
    assert!(ask(&running.auth, &idp.token("other", &other)).await.is_ok());
    assert_eq!(ask(&running.auth, &token).await.unwrap_err(), RefusalReason::Signature);
}

#[tokio::test]
async fn ten_thousand_unknown_kids_reach_the_issuer_once() {
    let key = Keys::ed25519();
    let idp = Idp::start(published(&[("k", &key)])).await;
    let running = Running::start(&json!([idp.issuer()]));
    running.until_ready().await;
    let claims = claims(&idp.url, "acme");
    let mut calls = JoinSet::new();
    for n in 0..10_000 {
        let forged =
            format!("{}.AAAA", unsigned(&json!({ "alg": "EdDSA", "kid": format!("k{n}") }), &claims));
        let auth = Arc::clone(&running.auth);
        calls.spawn(async move { ask(&auth, &forged).await.unwrap_err() });
    }
    let reasons = calls.join_all().await;
    assert!(reasons.iter().all(|reason| *reason == RefusalReason::Kid));
    assert_eq!(idp.requests(), 2, "one at start, one for all of them");
    assert!(ask(&running.auth, &idp.token("k", &key)).await.is_ok());
}

#[tokio::test]
async fn nothing_but_a_whole_small_200_brings_keys() {
    let key = Keys::ed25519();
    let elsewhere = Idp::start(published(&[("k", &key)])).await;
    let good = jwks(&[("k", &key)]);
    let padded = format!("{good}{}", " ".repeat(300 << 10));
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{padded}\r\n0\r\n\r\n",
        padded.len()
    );
    let cut = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{good}", good.len() + 1);
    let location = format!("location: {}\r\n", elsewhere.url);
    let answers = [
        http("302 Found", &location, &good),
        http("307 Temporary Redirect", &location, ""),
        http("200 OK", "", &padded),
        Answer::Raw(chunked.into_bytes()),
        Answer::Raw(cut.into_bytes()),
        http("201 Created", "", &good),
        http("404 Not Found", "", &good),
        http("500 Internal Server Error", "", &good),
        http("200 OK", "", "<html>sign in</html>"),
        http("200 OK", "", r#"{"key":[]}"#),
        http("200 OK", "content-encoding: gzip\r\n", "\u{1f}\u{8b}"),
        Answer::Raw(b"garbage\r\n\r\n".to_vec()),
        Answer::Raw(Vec::new()),
    ];
    let mut cases = JoinSet::new();
    for (index, answer) in answers.into_iter().enumerate() {
        let key = key.clone();
        cases.spawn(async move {
            let idp = Idp::start(answer).await;
            let running = Running::start(&json!([idp.issuer()]));
            // It soon asks again only if the first answer was useless.
            for _ in 0..2 {
                let asked = tokio::time::timeout(Duration::from_secs(60), idp.asked.notified()).await;
                asked.unwrap_or_else(|_| panic!("answer {index} brought keys"));
            }
            assert!(!running.auth.ready(), "answer {index}");
            let token = idp.token("k", &key);
            let reason = ask(&running.auth, &token).await.unwrap_err();
            assert_eq!(
                (reason, reason.code()),
                (RefusalReason::KeysUnavailable, Code::Internal),
                "an outage is no 401"
            );
            idp.answers(published(&[("k", &key)]));
            running.until_ready().await;
            assert!(ask(&running.auth, &token).await.is_ok(), "answer {index}");
        });
    }
    cases.join_all().await;
    assert_eq!(elsewhere.requests(), 0, "redirects are not followed");
}

#[tokio::test]
async fn an_issuer_that_hangs_is_given_up_and_delays_no_other() {
    let key = Keys::ed25519();
    let idp = Idp::start(Answer::Nothing).await;
    let shared = json!({
        "issuer": "https://shared", "audience": "hookgate", "tenants": "*", "keys": [{ "alg": "HS256", "secret": SECRET }],
    });
    let running = Running::start(&json!([idp.issuer(), shared]));
    idp.asked.notified().await;
    let other = token(
        &json!({ "alg": "HS256" }),
        &claims("https://shared", "globex"),
        &jsonwebtoken::EncodingKey::from_secret(SECRET.as_bytes()),
        Algorithm::HS256,
    );
    assert!(ask(&running.auth, &other).await.is_ok());
    assert!(!running.auth.ready());
    idp.answers(published(&[("k", &key)]));
    idp.gave_up.notified().await;
    running.until_ready().await;
    assert!(ask(&running.auth, &idp.token("k", &key)).await.is_ok());
}

#[tokio::test]
async fn keys_outlive_their_issuer() {
    let key = Keys::ed25519();
    let idp = Idp::start(published(&[("k", &key)])).await;
    let running = Running::start(&json!([idp.issuer()]));
    running.until_ready().await;
    let (first, unknown) = (idp.token("k", &key), idp.token("unknown", &key));
    let header = json!({ "alg": "EdDSA", "kid": "k" });
    let second = token(&header, &claims(&idp.url, "globex"), &key.signs, Algorithm::EdDSA);
    assert!(ask(&running.auth, &first).await.is_ok());
    drop(idp);
    assert_eq!(ask(&running.auth, &unknown).await.unwrap_err(), RefusalReason::Kid);
    assert!(ask(&running.auth, &first).await.is_ok(), "remembered");
    assert!(ask(&running.auth, &second).await.is_ok(), "seen for the first time");
    assert!(running.auth.ready());
}

#[tokio::test]
async fn refresh_ends_when_it_is_told_to_and_at_once_without_published_keys() {
    let idp = Idp::start(Answer::Nothing).await;
    let running = Running::start(&json!([idp.issuer()]));
    idp.asked.notified().await;
    running.stop.cancel();
    running.refresh.await.unwrap();
    idp.gave_up.notified().await;
    let shared = json!([{ "issuer": "i", "audience": "a", "keys": [{ "alg": "HS256", "secret": SECRET }] }]);
    Running::start(&shared).refresh.await.unwrap();
}
