//! A plugin that restarts under load never answers with a configuration other than the call's own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use hookgate_proto::{
    plugin::v1::{BeforeToolCallResponse, Call},
    types::v1::{BeforeToolCallPayload, Notice},
};
use prost::Message as _;

use super::support::*;
use crate::{
    config,
    core::{point::Point, step::Reason},
    telemetry::Telemetry,
    upstream::{CallMeta, SharedResources},
};

const CALLS: usize = 10_000;

/// Answers with the configurations that it used: the plugin-level one as a digest, the tenant-level one as
/// `tenant_config`.
fn echo() -> Script {
    Script::calling(|seen| async move {
        let config = String::from_utf8(seen.call.tenant_config.to_vec()).expect("UTF-8");
        let notice = Notice { message: config, code: Some(seen.call.config_digest), ..Notice::default() };
        Ok(BeforeToolCallResponse { notices: vec![notice], ..go_on() })
    })
}

#[tokio::test]
async fn restarts_under_load_never_mix_configurations() {
    let (place, script) = (Place::new(Wire::Unix), Arc::new(echo()));
    // Another plugin-level configuration for every connection, as when a secret is rotated.
    let resolved = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&resolved);
    let shared = SharedResources::new(
        "gateway-1",
        Telemetry::unseen(),
        config::Limits::default(),
        config::Observers::default(),
        move |config: &config::JsonObject, scope: config::ReferenceScope<'_>| {
            let mut config = config.clone();
            config.insert("rotation".into(), count.fetch_add(1, Ordering::SeqCst).into());
            config::resolve_references(&config, [], scope)
        },
    );
    let mut plugin = registered(place.endpoint());
    // Otherwise most calls would fail at once between two restarts, and leave none for the next.
    plugin.breaker.failures = 1_000_000;
    let mut running = place.start(Process::new(&script));
    let client = Client::with(&plugin, shared, None);
    client.until_ready().await;

    let done = AtomicUsize::new(0);
    let calls = stream::iter(0..CALLS).map(async |number| {
        let tenant = format!("{{\"tenant\":{}}}", number % 5);
        let call = Call { tenant_config: tenant.clone().into(), ..Call::default() };
        let payload = Arc::new(BeforeToolCallPayload::default());
        let result = client
            .call(Point::BeforeToolCall, call, payload, CallMeta::default(), Duration::from_secs(5))
            .await;
        done.fetch_add(1, Ordering::SeqCst);
        result.map(|reply| (tenant, BeforeToolCallResponse::decode(reply.bytes).expect("a reply")))
    });
    let load = calls.buffer_unordered(32).collect::<Vec<_>>();
    let restarts = async {
        for restart in 1..=5 {
            eventually("calls go on", || done.load(Ordering::SeqCst) >= restart * CALLS / 7).await;
            let _ = std::mem::replace(&mut running, Running::none());
            running = place.start(Process::new(&script));
        }
    };
    let (results, ()) = tokio::join!(load, restarts);

    let known: Vec<_> = {
        let initialized = script.initialized.lock().expect("unpoisoned");
        initialized.iter().map(|request| request.config_digest.clone()).collect()
    };
    assert!(known.len() >= 5, "{} configurations", known.len());
    let mut answered = 0;
    for result in &results {
        match result {
            Ok((tenant, reply)) => {
                let notice = &reply.notices[0];
                assert_eq!(&notice.message, tenant, "another tenant's configuration");
                assert!(known.contains(notice.code.as_ref().expect("sent")));
                answered += 1;
            }
            Err(failure) => assert!(
                matches!(failure.reason, Reason::RpcError | Reason::Unreachable | Reason::BadReply),
                "{failure}"
            ),
        }
    }
    assert!(answered > CALLS / 2, "{answered} of {CALLS} answered");
}
