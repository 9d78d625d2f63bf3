//! Tests changes to the API's plugins: a rejected entry keeps the previous one and affects nothing else
//! (K17, G22).

use hookgate::core::object::ObjectKind;
use hookgate_tests::{
    fake::{Act, FakePlugin, Handshake},
    gateway::Gateway,
};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    edge::support::POINT,
    registry::support::{Writer, call, file_with, serves_by, status_is, tenant},
};

/// Answers with the digest of the config in the call.
async fn guard() -> FakePlugin {
    let plugin = FakePlugin::named("guard")
        .config_schema(json!({ "properties": { "strictness": { "type": "integer" } } }))
        .start_unix()
        .await;
    plugin.set_with(POINT, |seen| {
        let digest = json!({ "digest": seen.call.config_digest });
        Act::pass().with_notice(hookgate_tests::fake::notice(
            hookgate_proto::types::v1::NoticeKind::Info,
            "",
            "made with",
            &digest,
        ))
    });
    plugin
}

fn entry(plugin: &FakePlugin, strictness: u64) -> Value {
    let (endpoint, accepted) = (plugin.endpoint(), plugin.accepted());
    json!({ "name": "guard", "endpoint": endpoint, "accepted": accepted, "config": { "strictness": strictness } })
}

async fn made_with(gateway: &Gateway) -> Value {
    let answer = call(gateway, "acme").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["notices"][0]["details"]["digest"].clone()
}

#[tokio::test]
async fn a_config_that_its_plugin_refuses_leaves_the_one_before_and_the_rest_of_the_revision_is_taken() {
    let (folder, plugin) = (tempfile::tempdir().expect("there is room"), guard().await);
    let url = format!("sqlite:{}", folder.path().join("hookgate.db").display());
    let sockets = std::env::temp_dir().display().to_string();
    let setup = file_with("acme").store(&url, folder.path()).set("/egress/socket_dirs", json!([sockets]));
    let gateway = setup.start().await;
    let writer = Writer::open(&url).await;
    let binding = json!({ "name": "guard", "plugin": "guard", "tenant": "*", "priority": 20 });
    let wishes = [
        (ObjectKind::Plugin, "guard", Some(entry(&plugin, 1))),
        (ObjectKind::Binding, "guard", Some(binding)),
    ];
    serves_by(&gateway, writer.write(&wishes).await.expect("it runs")).await;
    let first = made_with(&gateway).await;

    plugin.set_initialize(Handshake::Fails(Status::invalid_argument("strictness 2 is too much")));
    let wishes = [(ObjectKind::Plugin, "guard", Some(entry(&plugin, 2))), tenant("globex", 1)];
    let refused = writer.write(&wishes).await.expect("it runs");
    serves_by(&gateway, refused).await;
    assert_eq!(made_with(&gateway).await, first, "the config before is in use");
    assert_eq!(call(&gateway, "globex").await.status, 200, "the rest of the revision holds");
    let status = status_is(&gateway, |status| !status["configuration"]["rejected"].is_null()).await;
    let problems = status["configuration"]["rejected"]["problems"].to_string();
    for part in ["plugin `guard` rejected its new entry", "strictness 2 is too much", "the previous one"] {
        assert!(problems.contains(part), "{part}: {problems}");
    }

    // Other changes go on, and don't cause the plugin to be initialised again.
    let asked = plugin.counts().initializes;
    serves_by(&gateway, writer.write(&[tenant("initech", 1)]).await.expect("it runs")).await;
    assert_eq!((made_with(&gateway).await, plugin.counts().initializes), (first.clone(), asked));

    plugin.set_initialize(Handshake::Proper);
    let taken =
        writer.write(&[(ObjectKind::Plugin, "guard", Some(entry(&plugin, 3)))]).await.expect("it runs");
    serves_by(&gateway, taken).await;
    assert_ne!(made_with(&gateway).await, first);
    status_is(&gateway, |status| status["configuration"]["rejected"].is_null()).await;
}
