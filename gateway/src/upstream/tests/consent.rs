//! Consent by an operator, and plugins that stay out without it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hookgate_proto::{plugin::v1::DescribeResponse, types::v1::ExtensionPoint};
use serde_json::json;

use super::support::*;
use crate::{
    config::{self, Capability, Consent},
    core::{object::Owner, step::Reason},
    upstream::{Refusal, State, Why},
};

const SECOND: Duration = Duration::from_secs(1);

/// The accepted form of [`manifest`].
fn as_described() -> Consent {
    let points = json!({ "before_tool_call": { "access": "modify", "side_effects": "none" } });
    serde_json::from_value(json!({ "points": points })).expect("a consent")
}

/// A plugin of the API.
fn of_api(endpoint: String) -> config::Plugin {
    let mut plugin = registered(endpoint);
    plugin.owner = Owner::Api;
    plugin.config.insert("key".into(), json!("${HOOKGATE_SECRET_KEY}"));
    plugin
}

fn asking(capabilities: &[&str]) -> DescribeResponse {
    let capabilities = capabilities.iter().map(|name| (*name).to_owned()).collect();
    DescribeResponse { capabilities, ..manifest() }
}

fn larger() -> DescribeResponse {
    let points = vec![offer(ExtensionPoint::BeforeToolCall), offer(ExtensionPoint::BeforeResponse)];
    DescribeResponse { version: "2.0.0".into(), points, ..manifest() }
}

#[tokio::test]
async fn plugin_without_consent_is_only_described() {
    for wire in WIRES {
        let place = Place::new(wire);
        let script = Arc::new(Script::describing(DescribeResponse {
            config_schema: r#"{"type":"object"}"#.into(),
            ..asking(&["log", "emit"])
        }));
        let _running = place.start(Process::new(&script));
        let client = Client::new(&of_api(place.endpoint()));
        client.until(|status| status.why == Why::Approval).await;
        let status = client.status();
        assert_eq!((status.state, status.manifest.is_none()), (State::Pending, true));
        assert_eq!(
            status.detail,
            "version 1.2.0 is waiting for approval: it adds before_tool_call (modify, side effects: none), asks \
             for log, asks for emit, has a config_schema"
        );
        let refused = client.tool_call(SECOND).await.expect_err("nobody consented");
        assert_eq!(refused.reason, Reason::NotReady);
        assert_eq!(script.described.load(Ordering::SeqCst), 1, "a call doesn't dial");
        assert_eq!((script.initializes(), script.executions()), (0, 0));

        let wants = client.wants();
        let [wants] = wants.as_slice() else { panic!("{wants:?}") };
        assert_eq!((&*wants.name, wants.version.to_string().as_str()), ("guard", "1.2.0"));
        let wanted = &wants.accepted;
        assert_eq!(wanted.points, as_described().points);
        assert_eq!(wanted.capabilities, [Capability::Log, Capability::Emit].into());
        // printf '{"type":"object"}' | sha256sum
        let digest = "a2c799262a3ce3c19ef5cdd983bf3d12b43ab3c426227091b909dcb7054738c0";
        assert_eq!(wanted.config_schema.as_deref(), Some(digest));
        assert_eq!(wanted.tenant_config_schema, None);

        // What it asks for is exactly what admits it.
        let mut plugin = of_api(place.endpoint());
        plugin.accepted = Some(wanted.clone());
        plugin.grants = vec![Capability::Emit, Capability::Log];
        let client = Client::new(&plugin);
        client.until_ready().await;
        client.tool_call(SECOND).await.expect("an answer");
        assert_eq!((script.initializes(), script.executions(), client.wants().len()), (1, 1, 0));
    }
}

#[tokio::test]
async fn a_capability_that_no_gateway_grants_is_refused_without_a_call() {
    let place = Place::new(Wire::Unix);
    let _running = place.start(Process::new(&Arc::new(Script::describing(asking(&["log", "fly"])))));
    let client = Client::new(&of_api(place.endpoint()));
    client.until(|status| status.why == Why::Refused(Refusal::CapabilityOverreach)).await;
    let detail = client.status().detail;
    assert!(detail.contains(r#"wants ["fly"]"#), "{detail}");
    assert!(client.wants().is_empty());
}

#[tokio::test]
async fn consent_outlasts_its_endpoints_and_a_version_alone_needs_none() {
    for owner in [Owner::Api, Owner::File] {
        let places = [Place::new(Wire::Tcp), Place::new(Wire::Tcp)];
        let old = Arc::new(Script::default());
        let mut old_running = places[0].start(Process::new(&old));
        let new = Arc::new(Script::describing(larger()));
        let mut new_running = places[1].start(Process::new(&new));
        let mut plugin = of_api(String::new());
        (plugin.owner, plugin.endpoint) = (owner, None);
        plugin.endpoints = Some(places.iter().map(Place::endpoint).collect());
        plugin.accepted = Some(as_described());
        let client = Client::new(&plugin);
        client.until_ready().await;
        client.until(|_| client.endpoints()[1].why == Why::ManifestMismatch).await;
        client.tool_call(SECOND).await.expect("the old one serves");
        let wants = client.wants();
        assert_eq!(wants.len(), 1);
        assert_eq!(
            serde_json::to_value(&wants[0].difference.points).expect("JSON"),
            json!({
                "added": { "before_response": { "access": "modify", "side_effects": "none" } },
                "removed": {},
                "changed": {},
            })
        );

        // Without connections that have the accepted manifest, the other manifest is still not accepted.
        drop(std::mem::replace(&mut old_running, Running::none()));
        client.until(|status| status.state != State::Ready).await;
        let asked = new.described.load(Ordering::SeqCst);
        drop(std::mem::replace(&mut new_running, Running::none()));
        new_running = places[1].start(Process::new(&new));
        eventually("it is described again", || new.described.load(Ordering::SeqCst) > asked).await;
        client.until(|_| client.endpoints()[1].why == Why::ManifestMismatch).await;
        assert_eq!((new.initializes(), new.executions()), (0, 0));
        assert!(client.tool_call(SECOND).await.is_err());

        // The same manifest with another version.
        let newer = DescribeResponse { version: "9.0.0".into(), ..manifest() };
        old_running = places[0].start(Process::new(&Arc::new(Script::describing(newer))));
        client.until_ready().await;
        client.tool_call(SECOND).await.expect("an answer");
        drop((old_running, new_running));
    }
}

#[tokio::test]
async fn more_capabilities_than_were_accepted_wait_though_they_are_granted_while_the_others_serve() {
    let places = [Place::new(Wire::Tcp), Place::new(Wire::Tcp), Place::new(Wire::Tcp)];
    let scripts = [
        Script::default(),
        Script::describing(DescribeResponse { version: "1.3.0".into(), ..asking(&["log"]) }),
        Script::describing(larger()),
    ]
    .map(Arc::new);
    let running: Vec<_> =
        places.iter().zip(&scripts).map(|(place, script)| place.start(Process::new(script))).collect();
    let mut plugin = of_api(String::new());
    plugin.endpoint = None;
    plugin.endpoints = Some(places.iter().map(Place::endpoint).collect());
    plugin.grants = vec![Capability::Log];
    plugin.accepted = Some(as_described());
    let client = Client::new(&plugin);
    let reasons = || client.endpoints().iter().map(|endpoint| endpoint.why).collect::<Vec<_>>();
    client.until(|_| reasons() == [Why::Serving, Why::UpgradePending, Why::ManifestMismatch]).await;
    assert_eq!(
        client.endpoints()[1].detail,
        "version 1.3.0 exceeds the accepted manifest, and is waiting for approval: it asks for log"
    );
    let versions: Vec<_> = client.wants().iter().map(|wants| wants.version.to_string()).collect();
    assert_eq!(versions, ["2.0.0", "1.3.0"]);
    for _ in 0..20 {
        client.tool_call(SECOND).await.expect("the accepted one serves");
    }
    assert_eq!(scripts.each_ref().map(|script| script.initializes()), [1, 0, 0]);
    assert_eq!(scripts[0].executions(), 20);
    drop(running);
}
