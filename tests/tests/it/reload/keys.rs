//! Tests issuers that publish keys during reloads: fetched keys are kept, and removed issuers are no longer
//! asked.

use hookgate_tests::{
    gateway::{Gateway, Line, Setup},
    token::token,
};
use serde_json::{Value, json};
use tokio::time::Duration;

use crate::{
    auth::{
        jwks::{Answer, Idp, published},
        keys::Keys,
    },
    edge::support::{POINT, payload},
};

/// The issuer of the tests, and `others`.
fn issuers(others: &[Value]) -> Setup {
    let mut setup = Gateway::with().tenant("acme");
    for (index, issuer) in others.iter().enumerate() {
        let written: Value = serde_json::from_str(&setup.text()).unwrap();
        let mut all = written["auth"]["issuers"].as_array().unwrap().clone();
        assert_eq!(all.len(), index + 1);
        all.push(issuer.clone());
        setup = setup.set("/auth/issuers", all);
    }
    setup
}

async fn status(gateway: &Gateway, token: &str) -> u16 {
    gateway.http(token).call(POINT, payload()).await.status
}

fn refused(line: &Line) -> bool {
    line.field("event") == Some(&json!("config.rejected"))
}

#[tokio::test]
async fn keys_that_were_fetched_stay_when_another_issuer_comes_and_the_own_one_is_gone() {
    let key = Keys::ed25519();
    let idp = Idp::start(published(&[("k", &key)])).await;
    let (token, issuer) = (idp.token("k", &key), idp.issuer());
    let gateway = issuers(std::slice::from_ref(&issuer)).start().await;
    assert_eq!(status(&gateway, &token).await, 200);
    // They could not be fetched again.
    idp.answers(Answer::Nothing);
    let other_key = Keys::ed25519();
    let other = Idp::start(published(&[("k", &other_key)])).await;
    gateway.reload(&issuers(&[issuer, other.issuer()]));
    gateway.wait_for_revision(2).await;
    assert_eq!(status(&gateway, &token).await, 200);
    assert_eq!(status(&gateway, &other.token("k", &other_key)).await, 200);
    assert_eq!((idp.requests(), other.requests()), (1, 1));
}

#[tokio::test]
async fn an_issuer_whose_keys_can_not_be_had_takes_nothing_down() {
    let nobody = json!({
        "issuer": "https://nobody.example.com", "audience": "hookgate", "jwks_url": "http://127.0.0.1:1/keys",
        "tenants": "*",
    });
    let gateway = issuers(&[]).start().await;
    gateway.reload(&issuers(&[nobody]).set("/startup/wait", "300ms"));
    let line = gateway.log().wait_for(refused).await;
    assert!(line.message().unwrap().starts_with("an issuer has no keys"), "{line:?}");
    assert_eq!(status(&gateway, &token("acme")).await, 200);
    assert_eq!(gateway.ops().get("/readyz").await.unwrap().status, 200);
}

#[tokio::test]
async fn an_issuer_that_left_is_asked_for_no_more_keys() {
    let key = Keys::ed25519();
    let idp = Idp::start(published(&[("k", &key)])).await;
    let mut issuer = idp.issuer();
    issuer["jwks_ttl"] = json!("1s");
    let gateway = issuers(&[issuer]).start().await;
    let seen = idp.requests();
    while idp.requests() == seen {
        tokio::time::sleep(Duration::from_millis(20)).await; // only the count shows it
    }
    gateway.reload(&issuers(&[]));
    gateway.wait_for_revision(2).await;
    let fetched = idp.requests();
    tokio::time::sleep(Duration::from_millis(2_500)).await; // two of its intervals
    assert!(idp.requests() <= fetched + 1, "one may have been in flight: {} {fetched}", idp.requests());
    let before = idp.requests();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(idp.requests(), before);
}
