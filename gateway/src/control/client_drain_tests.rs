//! A client that a configuration leaves out is retired by the end of the calls that know it. No test lets time pass where
//! nothing has to.

use std::{pin::pin, task::Poll};

use futures::poll;
use serde_json::json;

use super::*;
use crate::{
    config::from_text,
    control::{
        generation::{ConfigBasis, RuntimeBuilder},
        publisher::{Publisher, snapshots},
    },
    snapshot::published::PublishedSnapshot,
    telemetry::Telemetry,
};

const PLUGIN: &str = "content-policy";

/// A call that took its snapshot before a configuration without [`PLUGIN`] became active.
struct OutdatedCall {
    call: Arc<PublishedSnapshot>,
    client: Arc<PluginClient>,
    snapshots: Arc<SnapshotCell>,
    publisher: Publisher,
}

impl OutdatedCall {
    async fn start() -> Self {
        let text = json!({
            "auth": { "issuers": [{ "issuer": "i", "audience": "a", "jwks_url": "https://id/keys", "tenants": "*" }] },
            "tenants": { "unknown": "accept" },
            "plugins": [{ "name": PLUGIN, "builtin": PLUGIN }],
        });
        let mut loaded = from_text("f.yaml".into(), &text.to_string(), []).expect("it is right");
        let workshop = Arc::new(RuntimeBuilder::new(&loaded.config, Telemetry::unseen()));
        let build = |loaded: &_, before: &[_]| {
            let built = workshop.build(Clone::clone(loaded), ConfigBasis::from_file(loaded), before);
            Arc::new(built.unwrap_or_else(|problems| panic!("{problems}")).generation)
        };
        let first = build(&loaded, &[]);
        let client = Arc::clone(first.client(PLUGIN).expect("it is registered"));
        let snapshots = Arc::new(snapshots(&workshop, &first));
        let seen = Arc::new(ArcSwap::new(Arc::clone(&first)));
        let mut publisher = Publisher::new(Arc::clone(&workshop), Arc::clone(&snapshots), seen, None);
        let call = snapshots.current();
        loaded.config.plugins.clear();
        publisher.adopt(build(&loaded, &[first])).await.expect("nothing is wrong with it");
        OutdatedCall { call, client, snapshots, publisher }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_is_retired_when_the_last_call_that_knows_it_ends() {
    let OutdatedCall { call, client, snapshots, publisher: _publisher } = OutdatedCall::start().await;
    let mut released = pin!(client.released());
    sleep(MAX_CALL_WAIT / 2).await;
    assert_eq!(poll!(&mut released), Poll::Pending, "a call may still reach the plugin");
    assert_eq!(snapshots.draining(PLUGIN).len(), 1);

    let end = Instant::now();
    drop(call);
    released.await;
    while !snapshots.draining(PLUGIN).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(end.elapsed(), Duration::ZERO, "the end of the call is an event, which nothing polls for");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_holds_its_clients_no_longer_than_the_longest_invocation() {
    let OutdatedCall { call: _call, client, publisher: _publisher, .. } = OutdatedCall::start().await;
    let start = Instant::now();
    client.released().await;
    assert_eq!(start.elapsed(), MAX_CALL_WAIT);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_process_waits_for_no_call() {
    let OutdatedCall { call: _call, client, publisher, .. } = OutdatedCall::start().await;
    let start = Instant::now();
    publisher.draining().finish(start + Duration::from_secs(60)).await;
    client.released().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}
