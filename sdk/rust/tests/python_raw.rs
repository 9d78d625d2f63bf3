//! The contract meets a second language: `examples/python-raw` is set up as its README says, runs as a process,
//! and is called over a Unix socket and over TCP.
#![allow(clippy::unwrap_used)] // the lint's exception for tests leaves their helper functions out

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use hookgate_sdk::proto::{
    plugin::v1::{
        Access, BeforeToolCallRequest, BeforeToolCallResponse, Call, DescribeRequest, InitializeRequest,
        SideEffects, before_tool_call_response::Verdict, plugin_service_client::PluginServiceClient,
    },
    types::v1::{BeforeToolCallPayload, ExtensionPoint},
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-raw")
}

/// Starts the plugin and waits until it says that it listens; gives the port too (1 for a socket).
async fn start(address: &str) -> (tokio::process::Child, u16) {
    let generated = Command::new(example().join("generate.sh")).output().unwrap();
    assert!(generated.status.success(), "generate.sh: {}", String::from_utf8_lossy(&generated.stderr));
    let mut plugin = tokio::process::Command::new(example().join(".venv/bin/python"))
        .args([example().join("plugin.py").as_os_str(), address.as_ref()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(plugin.stdout.take().unwrap()).lines();
    let line =
        tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await.unwrap().unwrap().unwrap();
    let port = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    (plugin, port)
}

async fn connect(address: String) -> PluginServiceClient<Channel> {
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    PluginServiceClient::new(channel).max_encoding_message_size(usize::MAX)
}

async fn initialize(
    client: &mut PluginServiceClient<Channel>,
    digest: &str,
    config: &'static str,
) -> Result<(), Status> {
    let (config, config_digest) = (config.into(), digest.to_owned());
    client.initialize(InitializeRequest { config, config_digest, ..Default::default() }).await.map(drop)
}

async fn call(
    client: &mut PluginServiceClient<Channel>,
    digest: &str,
    tool: &str,
    args: Vec<u8>,
) -> Result<BeforeToolCallResponse, Status> {
    let call = Call { config_digest: digest.to_owned(), ..Default::default() };
    let payload =
        BeforeToolCallPayload { tool_name: tool.to_owned(), args: args.into(), ..Default::default() };
    let request = BeforeToolCallRequest { call: Some(call), payload: Some(payload) };
    client.before_tool_call(request).await.map(tonic::Response::into_inner)
}

async fn keeps_the_contract(mut client: PluginServiceClient<Channel>) {
    let manifest = client.describe(DescribeRequest::default()).await.unwrap().into_inner();
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("python-raw", "1.0.0"));
    assert_eq!(manifest.protocol_versions, [1]);
    let offer = &manifest.points[0];
    assert_eq!((offer.point(), manifest.points.len()), (ExtensionPoint::BeforeToolCall, 1));
    assert_eq!((offer.access(), offer.side_effects()), (Access::Read, SideEffects::None));

    let early = call(&mut client, "d", "shell.exec", vec![]).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    assert_eq!(early.metadata().get("hookgate-reason").unwrap(), "NOT_INITIALIZED");

    let wrong = initialize(&mut client, "d", r#"{"refused_tools":7}"#).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    initialize(&mut client, "d", r#"{"refused_tools":["shell.exec"]}"#).await.unwrap();
    initialize(&mut client, "other", "{}").await.unwrap();

    let Some(Verdict::Cancel(cancel)) = call(&mut client, "d", "shell.exec", vec![]).await.unwrap().verdict
    else {
        panic!("not cancelled")
    };
    assert_eq!(
        (cancel.code.as_str(), cancel.message.as_str()),
        ("TOOL_NOT_ALLOWED", "Tool 'shell.exec' is refused.")
    );
    let large = vec![b' '; 16 << 20];
    for (digest, tool) in [("d", "fs.read"), ("other", "shell.exec")] {
        let answer = call(&mut client, digest, tool, large.clone()).await.unwrap();
        assert!(matches!(answer.verdict, Some(Verdict::Continue(_))), "{digest} {tool}");
    }
}

async fn stops_on_sigterm(mut plugin: tokio::process::Child) {
    let pid = plugin.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = tokio::time::timeout(Duration::from_secs(10), plugin.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn the_python_example_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/plugin.sock", folder.path().display());
    let (plugin, _) = start(&socket).await;
    keeps_the_contract(connect(socket).await).await;
    stops_on_sigterm(plugin).await;

    let (plugin, port) = start("127.0.0.1:0").await;
    keeps_the_contract(connect(format!("http://127.0.0.1:{port}")).await).await;
    stops_on_sigterm(plugin).await;
}
