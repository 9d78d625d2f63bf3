use std::path::Path;

use hookgate_sdk::{ChainResult, StatusCode, harness::TestPlugin, proto::types::v1::Decision};
use serde_json::{Value, json};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::*;

async fn start(path: &Path) -> TestPlugin<AuditLog> {
    let plugin = TestPlugin::<AuditLog>::start(&json!({ "path": path })).await.unwrap();
    plugin.with_context(|context| {
        context.session_id = Some("session".to_owned());
        context.provider = Some("anthropic".to_owned());
        context.model = Some("a-model".to_owned());
    })
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn call_at_all_points(plugin: &TestPlugin<AuditLog>) {
    plugin
        .before_llm_request(BeforeLlmRequestPayload { text: "CANARY".into(), ..Default::default() })
        .await
        .unwrap();
    let args = BeforeToolCallPayload {
        tool_name: "fs.read".into(),
        args: "\"CANARY\"".into(),
        ..Default::default()
    };
    plugin.before_tool_call(args).await.unwrap();
    let result = AfterToolResultPayload {
        tool_name: "fs.read".into(),
        result: "\"CANARY\"".into(),
        ..Default::default()
    };
    plugin.after_tool_result(result).await.unwrap();
    plugin
        .before_response(BeforeResponsePayload { content: "CANARY".into(), ..Default::default() })
        .await
        .unwrap();
}

#[tokio::test]
async fn each_point_writes_a_line_that_is_there_when_the_call_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    call_at_all_points(&start(&path).await).await;
    let lines = lines(&path);
    let points: Vec<_> = lines.iter().map(|line| line["point"].as_str().unwrap()).collect();
    assert_eq!(points, ["before_llm_request", "before_tool_call", "after_tool_result", "before_response"]);
    let tools: Vec<_> = lines.iter().map(|line| line.get("tool").and_then(Value::as_str)).collect();
    assert_eq!(tools, [None, Some("fs.read"), Some("fs.read"), None]);
    for line in &lines {
        let facts = json!({
            "time": line["time"], "request_id": "01930000-0000-7000-8000-000000000000",
            "tenant": "test-tenant", "operator": "test-operator", "session_id": "session",
            "provider": "anthropic", "model": "a-model", "point": line["point"],
        });
        let mut known = line.clone();
        known.as_object_mut().unwrap().remove("tool");
        assert_eq!(known, facts);
        assert!(OffsetDateTime::parse(line["time"].as_str().unwrap(), &Rfc3339).is_ok());
    }
}

#[tokio::test]
async fn an_observer_writes_how_the_chain_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let plugin = start(&path).await;
    let ended = [
        (Decision::Continue, None, None),
        (Decision::Block, Some("tenant-auth"), Some("TOOL_NOT_ALLOWED")),
        (Decision::Unspecified, Some("tenant-auth"), Some("PLUGIN_TIMEOUT")),
    ];
    for (decision, by, code) in ended {
        let result =
            ChainResult { decision: decision.into(), plugin: by.map(Into::into), code: code.map(Into::into) };
        plugin.with_chain_result(result).before_tool_call(BeforeToolCallPayload::default()).await.unwrap();
    }
    let lines = lines(&path);
    let facts: Vec<_> =
        lines.iter().map(|line| (&line["decision"], &line["plugin"], &line["code"])).collect();
    assert_eq!(facts[0], (&json!("continue"), &Value::Null, &Value::Null));
    assert_eq!(facts[1], (&json!("block"), &json!("tenant-auth"), &json!("TOOL_NOT_ALLOWED")));
    assert_eq!(facts[2], (&json!("none"), &json!("tenant-auth"), &json!("PLUGIN_TIMEOUT")));
}

#[tokio::test]
async fn no_value_of_a_payload_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    call_at_all_points(&start(&path).await).await;
    assert!(!std::fs::read_to_string(&path).unwrap().contains("CANARY"));
}

#[tokio::test]
async fn lines_are_appended_and_never_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    std::fs::write(&path, "{\"first\":true}\n").unwrap();
    let plugin = start(&path).await;
    let calls = (0..50).map(|_| {
        let plugin = plugin.clone();
        tokio::spawn(async move { plugin.before_tool_call(BeforeToolCallPayload::default()).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(lines(&path).len(), 51);
}

#[tokio::test]
async fn a_path_that_cannot_be_written_refuses_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "path": folder.path().join("none/audit.jsonl") });
    let status = TestPlugin::<AuditLog>::start(&config).await.err().unwrap();
    assert_eq!(status.code(), StatusCode::InvalidArgument);
    assert!(status.message().starts_with("config field `path`: can't append"), "{}", status.message());
}

#[tokio::test]
async fn a_replay_writes_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let plugin = start(&path).await.with_context(|context| context.replay = true);
    plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
    plugin.after_tool_result(AfterToolResultPayload::default()).await.unwrap();
    assert_eq!(lines(&path), Vec::<Value>::new());
}

#[tokio::test]
async fn a_message_of_a_request_has_a_line_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let plugin = start(&path).await;
    for part in [true, false] {
        let plugin = plugin.with_context(|context| context.part = part);
        plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap();
    }
    assert_eq!(lines(&path).len(), 2);
}
