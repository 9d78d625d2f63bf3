//! Describe and Initialize: every refusal over the wire, temporary failures, and when they are retried.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hookgate_proto::{
    plugin::v1::{DescribeResponse, PayloadFields},
    types::v1::ExtensionPoint,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Status;

use super::support::*;
use crate::{
    config::{self, Capability, Span},
    core::step::Reason,
    telemetry::Telemetry,
    upstream::{Refusal, State, Why},
};

const SECOND: Duration = Duration::from_secs(1);

/// A refused manifest, the change to its registration, the refusal, and a part of the sentence.
type Case = (DescribeResponse, fn(&mut config::Plugin), Refusal, &'static str);

/// Manifests that are refused for the names of tools or of the fields that they read, or for their windows.
fn refused_names() -> Vec<Case> {
    let reading = |names: &[&str]| {
        let mut manifest = manifest();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        manifest.points[0].reads = Some(PayloadFields { names });
        manifest
    };
    let windows = |point, names| {
        let mut manifest: DescribeResponse = reading(names);
        manifest.points[0].set_point(point);
        manifest.points[0].windows = true;
        manifest
    };
    let with_tools = |glob: &str| DescribeResponse { tools: vec![glob.to_owned()], ..manifest() };
    let bad = Refusal::BadManifest;
    vec![
        (with_tools("*?"), |_| {}, bad, "`*?`, which covers every plugin's tools"),
        (with_tools("[a-z]*"), |_| {}, bad, "`[a-z]*`, which covers every plugin's tools"),
        (reading(&["args", "text"]), |_| {}, bad, "`text`: choose from args, extra"),
        (reading(&["tool_name"]), |_| {}, bad, "`reads` of before_tool_call names `tool_name`"),
        (reading(&["args", "args"]), |_| {}, bad, "`args` twice"),
        (windows(ExtensionPoint::BeforeToolCall, &["args"]), |_| {}, bad, "only before_response has windows"),
        (windows(ExtensionPoint::BeforeResponse, &["extra"]), |_| {}, bad, "add `content` to `reads`"),
    ]
}

fn refused_manifests() -> Vec<Case> {
    let with = |change: &dyn Fn(&mut DescribeResponse)| {
        let mut manifest = manifest();
        change(&mut manifest);
        manifest
    };
    let schema = |member: &str| {
        let properties = json!({ member: {} });
        json!({ "type": "object", "properties": properties }).to_string()
    };
    let large = json!({ "description": "x".repeat(64 << 10) }).to_string();
    let plain: fn(&mut config::Plugin) = |_| {};
    let bad = Refusal::BadManifest;
    vec![
        (with(&|m| m.name = "other".into()), plain, Refusal::NameMismatch, "`other`"),
        (
            manifest(),
            |p| p.version = Some(">=2".parse().expect("a range")),
            Refusal::VersionMismatch,
            "version 1.2.0",
        ),
        (with(&|m| m.protocol_versions = vec![2]), plain, Refusal::ProtocolMismatch, "[2]"),
        (with(&|m| m.points.clear()), plain, Refusal::NoExtensionPoint, "`points`"),
        (
            with(&|m| m.capabilities = vec!["log".into(), "storage:write".into()]),
            |p| p.grants = vec![Capability::Log],
            Refusal::CapabilityOverreach,
            "[\"storage:write\"]",
        ),
        (with(&|m| m.version = "one".into()), plain, bad, "`version`"),
        (with(&|m| m.version = format!("1.2.0+{}", "9".repeat(251))), plain, bad, "`version` has 257 bytes"),
        (with(&|m| m.points.push(m.points[0].clone())), plain, bad, "before_tool_call twice"),
        (with(&|m| m.points[0].point = 99), plain, bad, "`point`"),
        (with(&|m| m.points[0].access = 0), plain, bad, "`access`"),
        (with(&|m| m.points[0].side_effects = 0), plain, bad, "`side_effects`"),
        (with(&|m| m.config_schema = "{".into()), plain, bad, "`config_schema`"),
        (with(&|m| m.config_schema = "{\"type\": 7}".into()), plain, bad, "`config_schema`"),
        (with(&|m| m.tenant_config_schema = large.clone().into()), plain, bad, "64 KiB"),
        (
            with(&|m| m.config_schema = "{\"$ref\": \"http://127.0.0.1:1/schema\"}".into()),
            plain,
            bad,
            "`config_schema` does not compile",
        ),
        (
            with(&|m| {
                m.config_schema = schema("tools").into();
                m.tenant_config_schema = schema("tools").into();
            }),
            plain,
            bad,
            "`tools`",
        ),
        (
            with(&|m| m.config_schema = json!({ "required": ["url"] }).to_string().into()),
            plain,
            Refusal::ConfigRefused,
            "lacks \"url\"",
        ),
    ]
}

#[tokio::test]
async fn manifest_that_does_not_fit_is_refused_for_its_reason_with_what_to_change() {
    for wire in WIRES {
        for (manifest, change, refusal, names) in refused_manifests().into_iter().chain(refused_names()) {
            let (place, script) = (Place::new(wire), Arc::new(Script::describing(manifest)));
            let _running = place.start(Process::new(&script));
            let mut plugin = registered(place.endpoint());
            change(&mut plugin);
            let client = Client::new(&plugin);
            client.until(|status| status.state == State::Refused).await;
            let status = client.status();
            assert_eq!(status.why, Why::Refused(refusal), "{}", status.detail);
            assert!(status.detail.contains(names), "{refusal}: {}", status.detail);
            assert!(status.detail.contains(':'), "says what to change: {}", status.detail);
            assert_eq!(script.initializes(), 0, "no configuration before the manifest is accepted");
            assert_eq!(client.tool_call(SECOND).await.expect_err("refused").reason, Reason::NotReady);
        }
    }
}

#[tokio::test]
async fn plugin_without_describe_or_with_garbage_for_it_is_a_bad_manifest() {
    let unimplemented = || {
        let describe: Box<dyn Fn() -> _ + Send + Sync> =
            Box::new(|| Box::pin(async { Err(Status::unimplemented("no such method")) }) as _);
        Arc::new(Script { describe, ..Script::default() })
    };
    for wire in WIRES {
        let place = Place::new(wire);
        let _running = place.start(Process::new(&unimplemented()));
        let client = Client::new(&registered(place.endpoint()));
        client.until(|status| status.why == Why::Refused(Refusal::BadManifest)).await;
    }
    // A server that speaks only HTTP/1.1, and answers after the preface and the request.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read_exact(&mut [0; 120]).await;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    let client = Client::new(&registered(format!("http://127.0.0.1:{port}")));
    client.until(|status| status.why == Why::Refused(Refusal::BadManifest)).await;
}

/// A client whose Initialize ends with `status`.
async fn initialize_ending_in(wire: Wire, status: Status) -> (Client, Place, Running) {
    let script = Script::initializing(move || std::future::ready(Err(status.clone())));
    let place = Place::new(wire);
    let running = place.start(Process::new(&Arc::new(script)));
    (Client::new(&registered(place.endpoint())), place, running)
}

#[tokio::test]
async fn failed_initialize_is_refused_or_unhealthy_by_its_status() {
    let refused = Why::Refused;
    for wire in WIRES {
        for (status, why) in [
            (Status::invalid_argument("`url` is no URL"), refused(Refusal::ConfigRefused)),
            (Status::internal("out of luck"), refused(Refusal::InitializeFailed)),
            (Status::unimplemented("no such method"), refused(Refusal::InitializeFailed)),
            (Status::unavailable("database away"), Why::InitializeUnavailable),
        ] {
            let words = status.message().to_owned();
            let (client, _place, _running) = initialize_ending_in(wire, status).await;
            client.until(|status| status.why == why).await;
            assert!(client.status().detail.contains(&words), "{}", client.status().detail);
            assert_eq!(client.tool_call(SECOND).await.expect_err("refused").reason, Reason::NotReady);
        }
        let silent = Arc::new(Script::initializing(std::future::pending));
        let place = Place::new(wire);
        let _running = place.start(Process::new(&silent));
        let mut plugin = registered(place.endpoint());
        plugin.limits.initialize = Span(Duration::from_millis(100));
        let client = Client::new(&plugin);
        client.until(|status| status.why == refused(Refusal::InitializeTimeout)).await;
        assert_eq!(silent.executions(), 0);
    }
}

#[tokio::test]
async fn configuration_is_handed_over_resolved_with_its_digest_grants_and_limits() {
    let script = Arc::new(Script::default());
    let shared = crate::upstream::SharedResources::new(
        "gateway-7",
        Telemetry::unseen(),
        config::Limits::default(),
        config::Observers::default(),
        |config, scope| config::resolve_references(config, [("KEY".into(), "s3cr3t".into())], scope),
    );
    let mut plugin = registered(String::new());
    (plugin.endpoint, plugin.builtin) = (None, Some("guard".into()));
    plugin.config = json!({"b": 1, "key": "${KEY}"}).as_object().expect("an object").clone();
    plugin.grants = vec![Capability::StorageRead];
    let client = Client::with(&plugin, shared, Some(Process::new(&script).in_process()));
    client.until_ready().await;
    let request = script.initialized.lock().expect("unpoisoned").remove(0);
    let config: serde_json::Value = serde_json::from_slice(&request.config).expect("JSON");
    assert_eq!(config, json!({"b": 1, "key": "s3cr3t"}));
    assert_eq!(request.config_digest, crate::core::digest::digest(&config));
    assert_eq!(request.capabilities, ["storage:read"]);
    assert_eq!((&*request.gateway_instance_id, &*request.host_endpoint), ("gateway-7", ""));
    let limits = request.limits.expect("sent");
    assert_eq!((limits.max_call_bytes, limits.max_notices), (5 << 20, 16));
}

/// A client of `script` in this process. Its `config` has a multi-line key, and a text that contains a
/// password.
fn with_secrets(script: Script) -> Client {
    let shared = crate::upstream::SharedResources::new(
        "gateway-1",
        Telemetry::unseen(),
        config::Limits::default(),
        config::Observers::default(),
        |config, scope| {
            let env = [("PEM", "-----BEGIN\ns3cr3t\n-----END"), ("DBPW", "hunter22")];
            config::resolve_references(
                config,
                env.map(|(name, value)| (name.to_owned(), value.to_owned())),
                scope,
            )
        },
    );
    let mut plugin = registered(String::new());
    (plugin.endpoint, plugin.builtin) = (None, Some("guard".into()));
    let config = json!({"key": "${PEM}", "dsn": "user:x${DBPW}"});
    plugin.config = config.as_object().expect("an object").clone();
    Client::with(&plugin, shared, Some(Process::new(&Arc::new(script)).in_process()))
}

/// A plugin's text with secrets, and how it is shown.
fn indiscreet() -> [(String, String); 4] {
    let filler = "x".repeat((1 << 10) - 12);
    [
        ("no -----BEGIN\ns3cr3t\n-----END!".into(), "no ***!".into()),
        (format!("{filler} -----BEGIN\ns3cr3t\n-----END"), format!("{filler} ***")),
        ("no hunter22".into(), "no ***".into()),
        ("no user:xhunter22".into(), "no ***".into()),
    ]
}

#[tokio::test]
async fn secrets_are_cut_out_of_the_words_of_a_plugin_that_refuses_them() {
    for (words, left) in indiscreet() {
        let refuse = move || std::future::ready(Err(Status::invalid_argument(words.clone())));
        let client = with_secrets(Script::initializing(refuse));
        client.until(|status| status.why == Why::Refused(Refusal::ConfigRefused)).await;
        let expected = format!("the plugin refused `config` with InvalidArgument: {left}: correct `config`");
        assert_eq!(client.status().detail, expected);
        let failure = client.tool_call(SECOND).await.expect_err("refused");
        assert_eq!(failure.detail, format!("the plugin is refused: CONFIG_REFUSED {expected}"));
    }
}

#[tokio::test]
async fn secrets_are_cut_out_of_the_words_of_a_call_that_fails() {
    for (words, left) in indiscreet() {
        let client =
            with_secrets(Script::calling(move |_| std::future::ready(Err(Status::internal(words.clone())))));
        client.until_ready().await;
        let failure = client.tool_call(SECOND).await.expect_err("refused");
        assert_eq!(failure.detail, format!("the plugin answered with Internal: {left}"));
    }
}

#[tokio::test]
async fn references_travel_over_loopback_and_unix_sockets() {
    for wire in WIRES {
        let (place, script) = (Place::new(wire), Arc::new(Script::default()));
        let _running = place.start(Process::new(&script));
        let mut plugin = registered(place.endpoint());
        plugin.config = json!({"key": "${KEY}"}).as_object().expect("an object").clone();
        Client::new(&plugin).until_ready().await;
        assert_eq!(script.initializes(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn describe_has_five_seconds_and_is_tried_again() {
    let describe: Box<dyn Fn() -> _ + Send + Sync> = Box::new(|| Box::pin(std::future::pending()) as _);
    let script = Arc::new(Script { describe, ..Script::default() });
    let since = tokio::time::Instant::now();
    let client = Client::built_in(&script, |_| {});
    client.until(|status| status.why == Why::DescribeTimeout).await;
    assert_eq!(since.elapsed(), Duration::from_secs(5));
    assert_eq!(client.status().state, State::Unhealthy);
    tokio::time::sleep(SECOND).await;
    assert_eq!(script.described.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn refused_plugin_is_asked_again_every_minute() {
    let name = Arc::new(Mutex::new("other".to_owned()));
    let script = {
        let name = Arc::clone(&name);
        let describe: Box<dyn Fn() -> _ + Send + Sync> = Box::new(move || {
            let name = name.lock().expect("unpoisoned").clone();
            Box::pin(async { Ok(DescribeResponse { name, ..manifest() }) }) as _
        });
        Arc::new(Script { describe, ..Script::default() })
    };
    let client = Client::built_in(&script, |_| {});
    client.until(|status| status.state == State::Refused).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(script.described.load(Ordering::SeqCst), 1);
    "guard".clone_into(&mut name.lock().expect("unpoisoned"));
    let since = tokio::time::Instant::now();
    client.until_ready().await;
    assert_eq!(since.elapsed(), SECOND);
}

#[tokio::test]
async fn refused_plugin_is_asked_again_on_a_new_connection() {
    let place = Place::new(Wire::Tcp);
    let wrong = Arc::new(Script::describing(DescribeResponse { name: "other".into(), ..manifest() }));
    let running = place.start(Process::new(&wrong));
    let client = Client::new(&registered(place.endpoint()));
    client.until(|status| status.state == State::Refused).await;
    drop(running);
    let _right = place.start(Process::new(&Arc::new(Script::default())));
    client.until_ready().await;
}

#[tokio::test]
async fn changed_manifest_is_accepted_when_no_endpoint_has_the_old_one_and_it_asks_for_no_more() {
    let changed = Arc::new(Mutex::new(manifest()));
    let script = {
        let changed = Arc::clone(&changed);
        let describe: Box<dyn Fn() -> _ + Send + Sync> = Box::new(move || {
            let manifest = changed.lock().expect("unpoisoned").clone();
            Box::pin(async { Ok(manifest) }) as _
        });
        Arc::new(Script { describe, ..Script::default() })
    };
    let place = Place::new(Wire::Unix);
    let mut running = place.start(Process::new(&script));
    let client = Client::new(&registered(place.endpoint()));
    client.until_ready().await;
    let first = client.status().manifest.clone().expect("accepted");
    let mut restart = async |manifest: DescribeResponse| {
        *changed.lock().expect("unpoisoned") = manifest;
        // Dropped before the next one is started.
        let _ = std::mem::replace(&mut running, Running::none());
        client.until(|status| status.state != State::Ready).await;
        running = place.start(Process::new(&script));
    };

    restart(manifest()).await;
    client.until_ready().await;
    assert!(Arc::ptr_eq(&first, client.status().manifest.as_ref().expect("accepted")), "nothing is new");

    restart(DescribeResponse { version: "1.3.0".into(), ..manifest() }).await;
    client.until_ready().await;
    assert_eq!(client.status().manifest.as_ref().expect("accepted").version.to_string(), "1.3.0");

    let offers = vec![offer(ExtensionPoint::BeforeToolCall), offer(ExtensionPoint::BeforeResponse)];
    restart(DescribeResponse { points: offers, ..manifest() }).await;
    client.until_ready().await;
    assert!(client.status().manifest.expect("accepted").offers[3].is_some());

    restart(DescribeResponse { capabilities: vec!["emit".into()], ..manifest() }).await;
    client.until(|status| status.why == Why::UpgradePending).await;

    restart(manifest()).await;
    client.until_ready().await;
    client.tool_call(SECOND).await.expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn first_initialize_comes_before_any_call_and_only_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let script = {
        let calls = Arc::clone(&calls);
        Arc::new(Script::calling(move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            async { Ok(go_on()) }
        }))
    };
    let client = Client::built_in(&script, |_| {});
    client.until_ready().await;
    assert_eq!((script.initializes(), calls.load(Ordering::SeqCst)), (1, 0));
    for _ in 0..3 {
        client.tool_call(SECOND).await.expect("an answer");
    }
    assert_eq!((script.initializes(), calls.load(Ordering::SeqCst)), (1, 3));
}
