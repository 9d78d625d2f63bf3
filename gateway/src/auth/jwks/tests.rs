//! Tests of the timing, with a paused clock and without sockets. The integration tests cover the wire.

use std::sync::{
    Mutex as StdMutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use serde_json::json;
use tokio::{sync::Semaphore, time::advance};

use super::*;

const TTL: Duration = Duration::from_secs(300);
const SECOND: Duration = Duration::from_secs(1);

/// An issuer with scripted responses that counts fetches.
#[derive(Debug, Clone)]
struct Fake(Arc<Script>);

#[derive(Debug)]
struct Script {
    /// The kids of the set. `None` if the issuer is down.
    kids: StdMutex<Option<Vec<&'static str>>>,
    fetches: AtomicUsize,
    /// A fetch takes one permit, and hangs if none is left.
    permits: Semaphore,
}

impl Fetch for Fake {
    fn fetch(&self) -> BoxFuture<'_, Result<Vec<u8>, FetchError>> {
        Box::pin(async {
            self.0.fetches.fetch_add(1, Ordering::SeqCst);
            self.0.permits.acquire().await.unwrap().forget();
            let kids = self.0.kids.lock().unwrap().clone();
            kids.map(|kids| set(&kids)).ok_or(FetchError::Status(503))
        })
    }
}

fn set(kids: &[&str]) -> Vec<u8> {
    let x = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let key = |kid: &&str| json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x });
    json!({ "keys": kids.iter().map(key).collect::<Vec<_>>() }).to_string().into_bytes()
}

impl Fake {
    fn answer(&self, kids: Option<Vec<&'static str>>) {
        *self.0.kids.lock().unwrap() = kids;
    }

    fn fetches(&self) -> usize {
        self.0.fetches.load(Ordering::SeqCst)
    }
}

fn published(kids: Option<Vec<&'static str>>) -> (Arc<PublishedKeys>, Fake) {
    let script = Script {
        kids: StdMutex::new(kids),
        fetches: AtomicUsize::new(0),
        permits: Semaphore::new(1_000_000),
    };
    let fake = Fake(Arc::new(script));
    (PublishedKeys::from_source("https://id", "", Box::new(fake.clone()), TTL), fake)
}

fn kids(published: &PublishedKeys) -> Option<Vec<String>> {
    published.keys().map(|keys| keys.keys.iter().filter_map(|key| key.kid.clone()).collect())
}

/// Starts `keep_fresh`. It stops when the test's runtime is dropped.
fn start(published: &Arc<PublishedKeys>) -> CancellationToken {
    let stop = CancellationToken::new();
    let (published, stopped) = (Arc::clone(published), stop.clone());
    tokio::spawn(async move { published.keep_fresh(&stopped).await });
    stop
}

/// Advances the clock second by second, so that everything due runs in time.
async fn pass(seconds: u64) {
    for _ in 0..seconds {
        advance(SECOND).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_fetched_at_start_and_then_every_ttl() {
    let (published, fake) = published(Some(vec!["a"]));
    assert_eq!((kids(&published), published.age()), (None, None));
    let stop = start(&published);
    pass(1).await;
    assert_eq!((kids(&published), fake.fetches()), (Some(vec!["a".into()]), 1));
    fake.answer(Some(vec!["b"]));
    pass(298).await;
    assert_eq!((kids(&published), fake.fetches()), (Some(vec!["a".into()]), 1));
    pass(2).await;
    assert_eq!((kids(&published), fake.fetches()), (Some(vec!["b".into()]), 2));
    stop.cancel();
    pass(900).await;
    assert_eq!(fake.fetches(), 2, "stopped");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_unknown_kids_cause_at_most_one_fetch_in_30_seconds() {
    let (published, fake) = published(Some(vec!["a"]));
    for second in 0..100 {
        let callers = (0..100).map(|_| published.refetch());
        join_all(callers).await;
        assert_eq!(fake.fetches(), second / 30 + 1, "second {second}");
        pass(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn callers_with_an_unknown_kid_share_one_fetch_and_wait_for_it() {
    let (published, fake) = published(Some(vec!["a"]));
    fake.0.permits.forget_permits(1_000_000);
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let published = Arc::clone(&published);
            tokio::spawn(async move {
                published.refetch().await;
                kids(&published)
            })
        })
        .collect();
    pass(40).await;
    assert_eq!(fake.fetches(), 1);
    assert!(callers.iter().all(|caller| !caller.is_finished()));
    fake.0.permits.add_permits(1);
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Some(vec!["a".into()]));
    }
    assert_eq!(fake.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_does_not_end_the_fetch_it_asked_for() {
    let (published, fake) = published(Some(vec!["a"]));
    fake.0.permits.forget_permits(1_000_000);
    let asking = Arc::clone(&published);
    let caller = tokio::spawn(async move { asking.refetch().await });
    pass(1).await;
    assert_eq!(fake.fetches(), 1);
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    fake.0.permits.add_permits(1);
    pass(1).await;
    assert_eq!((kids(&published), fake.fetches()), (Some(vec!["a".into()]), 1));
}

#[tokio::test(start_paused = true)]
async fn callers_who_hang_up_leave_one_job_behind_however_many_they_were() {
    let (published, fake) = published(Some(vec!["a"]));
    fake.0.permits.forget_permits(1_000_000);
    let ask = |_| {
        let published = Arc::clone(&published);
        tokio::spawn(async move { published.refetch().await })
    };
    let callers: Vec<_> = (0..500).map(ask).collect();
    pass(1).await;
    for caller in callers {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    }
    let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!((left, fake.fetches()), (1, 1));
    fake.0.permits.add_permits(1);
    pass(1).await;
    assert_eq!(kids(&published), Some(vec!["a".into()]));
}

#[tokio::test(start_paused = true)]
async fn stale_keys_are_used_for_an_hour_and_then_all_tokens_are_rejected() {
    let (published, fake) = published(Some(vec!["a"]));
    let _stop = start(&published);
    tokio::task::yield_now().await;
    assert!(published.keys().is_some());
    fake.answer(None);
    pass(3_900).await;
    assert_eq!(published.age(), Some(Duration::from_secs(3_900)));
    assert!(published.keys().is_some(), "TTL and an hour");
    pass(1).await;
    assert!(published.keys().is_none(), "and not a second more");
    published.refetch().await;
    assert!(published.keys().is_none());
    fake.answer(Some(vec!["b"]));
    pass(30).await;
    assert_eq!(kids(&published), Some(vec!["b".into()]), "back within the longest pause");
}

#[tokio::test(start_paused = true)]
async fn a_failed_fetch_is_tried_again_after_1_2_4_to_30_seconds() {
    let (published, fake) = published(None);
    let _stop = start(&published);
    let mut at = Vec::new();
    for second in 0..125 {
        if fake.fetches() > at.len() {
            at.push(second);
        }
        pass(1).await;
    }
    // A fetch is observed one second later.
    assert_eq!(at, [1, 2, 4, 8, 16, 32, 62, 92, 122]);
}

#[tokio::test(start_paused = true)]
async fn the_generation_changes_with_the_keys_and_only_then() {
    let (published, fake) = published(Some(vec!["a"]));
    let generation = async |published: &Arc<PublishedKeys>| {
        pass(30).await;
        published.refetch().await;
        published.keys().unwrap().generation
    };
    let first = generation(&published).await;
    assert_eq!(generation(&published).await, first);
    fake.answer(Some(vec!["b"]));
    let second = generation(&published).await;
    assert_ne!(second, first);
    fake.answer(None);
    assert_eq!(generation(&published).await, second, "an outage changes no keys");
    fake.answer(Some(vec!["a"]));
    assert_ne!(generation(&published).await, first, "keys that come back are new ones");
    fake.answer(Some(vec![]));
    generation(&published).await;
    assert_eq!(kids(&published), Some(vec![]), "an issuer may take all its keys back");
}

#[test]
fn each_key_of_a_set_is_read_alone() {
    let mut good: serde_json::Value = serde_json::from_slice(&set(&["a", "b"])).unwrap();
    let keys = good["keys"].as_array_mut().unwrap();
    keys.insert(1, json!({ "kty": "oct", "alg": "HS256", "kid": "s", "k": "AAAA" }));
    keys.insert(1, json!({ "kty": "OKP", "crv": "Ed25519", "kid": "e", "x": keys[0]["x"], "use": "enc" }));
    keys.extend([json!(null), json!([]), json!("a"), json!({ "kty": "new" })]);
    let document = document::parse(good.to_string().as_bytes()).unwrap();
    let kids: Vec<_> = document.keys.iter().filter_map(|key| key.kid.as_deref()).collect();
    assert_eq!((kids, document.skipped.len()), (vec!["a", "b"], 6));
    for garbage in ["", "{}", "[]", "<html>", r#"{"keys":{}}"#, r#"{"keys":[}"#, "\u{0}"] {
        assert!(document::parse(garbage.as_bytes()).is_err(), "{garbage}");
    }
}

#[test]
fn keys_come_over_https_or_over_http_from_loopback() {
    let fits = |url: &str| http::Http::new(url, http::FETCH_TIMEOUT).is_ok();
    for url in [
        "https://id.example.com/k",
        "http://127.0.0.1:1/k",
        "http://127.9.9.9/k",
        "http://[::1]/k",
        "http://localhost:80/k",
    ] {
        assert!(fits(url), "{url}");
    }
    for url in [
        "",
        "k",
        "/k",
        "http://id.example.com/k",
        "http://10.0.0.1/k",
        "http://127.0.0.1.evil.com/k",
        "http://localhost.evil.com/",
        "http://0.0.0.0/k",
        "http://169.254.169.254/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "https://user@id.example.com/",
        "https://:secret@id.example.com/",
        "unix:///run/x",
    ] {
        assert!(!fits(url), "{url}");
    }
}
