//! What of a payload is sent to a plugin that doesn't read all of it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::{Call, DescribeResponse, PayloadFields},
    types::v1::BeforeToolCallPayload,
};
use tokio::sync::oneshot;

use super::support::*;
use crate::{
    config::{self, Size},
    core::{failure::Failure, point::Point, step::Reason},
    telemetry::Telemetry,
    upstream::{CallMeta, PluginReply, SharedResources, Why},
};

const SECOND: Duration = Duration::from_secs(1);

/// A manifest that reads the fields of these names.
fn reading(names: &[&str]) -> DescribeResponse {
    let mut manifest = manifest();
    manifest.points[0].reads =
        Some(PayloadFields { names: names.iter().map(|name| (*name).to_owned()).collect() });
    manifest
}

fn payload(args: usize) -> BeforeToolCallPayload {
    BeforeToolCallPayload {
        tool_name: "fs.write".into(),
        args: vec![b'1'; args].into(),
        call_id: Some("call-1".into()),
        extra: "{}".into(),
    }
}

/// Calls that are as large as they may be have 1 MiB and these bytes.
fn limited(request: u64, observed_bytes: u64) -> SharedResources {
    SharedResources::new(
        "gateway-1",
        Telemetry::unseen(),
        config::Limits { request: Size(request), ..config::Limits::default() },
        config::Observers { items: 1000, bytes: Size(observed_bytes) },
        |config, scope| config::resolve_references(config, [], scope),
    )
}

async fn call(client: &Client, call: Call, payload: BeforeToolCallPayload) -> Result<PluginReply, Failure> {
    let meta = CallMeta { depth: 1, whole: true, ..CallMeta::default() };
    client.call(Point::BeforeToolCall, call, Arc::new(payload), meta, SECOND).await
}

fn last_payload(script: &Script) -> BeforeToolCallPayload {
    let seen = script.seen.lock().expect("unpoisoned").pop().expect("a call");
    seen.payload.expect("sent")
}

#[tokio::test]
async fn only_the_large_fields_that_the_manifest_names_are_sent_and_all_small_ones() {
    for wire in WIRES {
        for (names, args, extra) in [
            (&[] as &[_], "", ""),
            (&["extra"], "", "{}"),
            (&["args"], "1", ""),
            (&["extra", "args"], "1", "{}"),
        ] {
            let (place, script) = (Place::new(wire), Arc::new(Script::describing(reading(names))));
            let _running = place.start(Process::new(&script));
            let client = Client::new(&registered(place.endpoint()));
            client.until_ready().await;
            call(&client, Call::default(), payload(1)).await.expect("an answer");
            let (args, extra) = (Bytes::from(args), Bytes::from(extra));
            assert_eq!(
                last_payload(&script),
                BeforeToolCallPayload { args, extra, ..payload(1) },
                "{names:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_call_to_run_the_plugins_own_tool_has_all_fields() {
    let script = Arc::new(Script::describing(reading(&[])));
    let client = Client::built_in(&script, |_| {});
    client.until_ready().await;
    call(&client, Call { run_tool: true, ..Call::default() }, payload(1)).await.expect("an answer");
    assert_eq!(last_payload(&script), payload(1));
}

#[tokio::test]
async fn the_limit_of_a_calls_size_is_for_what_is_sent() {
    for (manifest, fits) in [(reading(&["extra"]), true), (reading(&["args"]), false), (manifest(), false)] {
        let (place, script) = (Place::new(Wire::Tcp), Arc::new(Script::describing(manifest)));
        let _running = place.start(Process::new(&script));
        let client = Client::with(&registered(place.endpoint()), limited(1 << 10, 1 << 20), None);
        client.until_ready().await;
        let reply = call(&client, Call::default(), payload(2 << 20)).await;
        let reason = reply.err().map(|failure| failure.reason);
        assert_eq!(reason, (!fits).then_some(Reason::TooLarge));
        assert_eq!(script.executions(), usize::from(fits));
    }
}

#[tokio::test]
async fn an_observers_queue_holds_and_counts_only_what_it_reads() {
    let (place, script) = (Place::new(Wire::Unix), Arc::new(Script::describing(reading(&["extra"]))));
    let _running = place.start(Process::new(&script));
    let client = Client::with(&registered(place.endpoint()), limited(1 << 20, 10_000), None);
    client.until_ready().await;
    let (tell, told) = oneshot::channel();
    let done = Box::new(move |result| drop(tell.send(result)));
    client.observe(Point::BeforeToolCall, Call::default(), &payload(20_000), CallMeta::default(), SOON, done);
    told.await.expect("told").expect("an entry of 20,000 bytes would not fit");
    assert_eq!(last_payload(&script), BeforeToolCallPayload { args: Bytes::new(), ..payload(1) });
}

#[tokio::test]
async fn an_endpoint_that_reads_other_fields_has_another_manifest() {
    let places = [Place::new(Wire::Tcp), Place::new(Wire::Tcp)];
    let scripts = [reading(&["extra"]), reading(&["extra", "args"])].map(Script::describing).map(Arc::new);
    let first = places[0].start(Process::new(&scripts[0]));
    let mut plugin = registered(String::new());
    plugin.endpoint = None;
    plugin.endpoints = Some(places.iter().map(Place::endpoint).collect());
    let client = Client::new(&plugin);
    client.until_ready().await;
    let _second = places[1].start(Process::new(&scripts[1]));
    client.until(|_| client.endpoints()[1].why == Why::ManifestMismatch).await;
    drop(first);
    client.until(|_| client.endpoints()[1].why == Why::Serving).await;
    call(&client, Call::default(), payload(1)).await.expect("an answer");
    assert_eq!(last_payload(&scripts[1]), payload(1));
}
