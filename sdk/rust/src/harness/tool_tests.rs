use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tonic::Code;

use super::TestPlugin;
use crate::{
    Cancel, Host, InitError, NoConfig, Offer, Plugin, PluginError, Reply, StatusCode, Tool, ToolCall,
    ToolError, Verdict,
};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Setup {
    #[serde(default)]
    without: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Tenant {
    #[serde(default)]
    suffix: String,
}

/// Has a tool for each way in which a tool can end.
struct Toolbox {
    without: Vec<String>,
}

/// The arguments.
#[derive(Deserialize, JsonSchema)]
struct Text {
    /// What to repeat.
    text: String,
}

async fn repeat(call: ToolCall<Toolbox, Text>) -> Result<Value, ToolError> {
    let ToolCall { context, tenant_config, args, .. } = call;
    match args.text.as_str() {
        "refused" => Err(Cancel::new("QUOTA_EXCEEDED", "Enough.").into()),
        "failed" => Err(ToolError::failed("There is no such text.")),
        "broken" => Err(PluginError::unavailable("the database is away").into()),
        "error" => Err(std::io::Error::other("no disk").into()),
        "panic" => panic!("in a tool"),
        text => Ok(json!({ "text": format!("{text}{}", tenant_config.suffix), "tenant": context.tenant() })),
    }
}

async fn nothing(_: ToolCall<Toolbox, NoConfig>) -> Result<(), ToolError> {
    Ok(())
}

impl Plugin for Toolbox {
    const NAME: &'static str = "toolbox";
    const VERSION: &'static str = "1.0.0";
    const TOOL_NAMES: &'static [&'static str] = &["toolbox.*"];
    type Config = Setup;
    type TenantConfig = Tenant;

    fn points() -> Vec<Offer> {
        Vec::new()
    }

    fn tools(&self) -> Vec<Tool<Self>> {
        let mut tools = vec![
            Tool::new("toolbox.repeat", "Repeats a text.", repeat).title("Repeat").idempotent(true),
            Tool::new("toolbox.nothing", "Does nothing.", nothing).open_world(false).destructive(false),
        ];
        tools.retain(|tool| !self.without.iter().any(|without| without == tool.name()));
        tools
    }

    async fn initialize(Setup { without }: Setup, _: Host) -> Result<Self, InitError> {
        Ok(Toolbox { without })
    }
}

async fn toolbox(config: Value) -> TestPlugin<Toolbox> {
    TestPlugin::start(&config).await.expect("it starts")
}

fn cancel<T>(reply: &Reply<T>) -> &Cancel {
    match reply.verdict() {
        Verdict::Cancel(cancel) => cancel,
        Verdict::Continue => panic!("a tool never lets a call pass"),
    }
}

#[tokio::test]
async fn a_tool_gives_its_result_as_json_with_the_callers_context() {
    let plugin = toolbox(json!({})).await.with_tenant("acme");
    let plugin = plugin.with_tenant_config(&json!({ "suffix": "!" })).expect("JSON");
    let reply = plugin.run_tool("toolbox.repeat", &json!({ "text": "hi" })).await.expect("a reply");
    assert_eq!(cancel(&reply).result_json(), br#"{"tenant":"acme","text":"hi!"}"#);
    let reply = plugin.run_tool("toolbox.nothing", &json!({})).await.expect("a reply");
    assert_eq!(cancel(&reply).result_json(), b"null");
}

#[tokio::test]
async fn definitions_have_the_schema_and_the_annotations() {
    let plugin = toolbox(json!({})).await;
    let [repeat, nothing] = plugin.tools() else { panic!("two tools") };
    assert_eq!((&*repeat.name, &*repeat.description), ("toolbox.repeat", "Repeats a text."));
    let schema: Value = serde_json::from_slice(&repeat.input_schema).expect("JSON");
    assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["text"])));
    assert_eq!(schema["properties"]["text"]["description"], json!("What to repeat."));
    let annotations = repeat.annotations.as_ref().expect("some");
    assert_eq!((annotations.title(), annotations.idempotent_hint), ("Repeat", Some(true)));
    let annotations = nothing.annotations.as_ref().expect("some");
    assert_eq!((annotations.open_world_hint, annotations.destructive_hint), (Some(false), Some(false)));
}

#[tokio::test]
async fn a_refusal_is_for_the_model_and_a_failure_of_the_plugin_is_not() {
    let plugin = toolbox(json!({})).await;
    let run = async |text: &str| plugin.run_tool("toolbox.repeat", &json!({ "text": text })).await;
    for (text, code, message) in
        [("refused", "QUOTA_EXCEEDED", "Enough."), ("failed", "TOOL_FAILED", "There is no such text.")]
    {
        let reply = run(text).await.expect("a reply");
        assert_eq!((cancel(&reply).code(), cancel(&reply).message()), (code, message));
        assert!(cancel(&reply).result_json().is_empty());
    }
    for (text, code, message) in [
        ("broken", Code::Unavailable, "the database is away"),
        ("error", Code::Internal, "no disk"),
        ("panic", Code::Internal, "toolbox panicked in the tool toolbox.repeat"),
    ] {
        let status = run(text).await.expect_err("an error");
        assert_eq!((status.code(), status.message()), (code, message));
    }
    let reply = plugin.run_tool("toolbox.repeat", &json!({ "text": 1 })).await.expect("a reply");
    let expected = ("TOOL_ARGS_INVALID", "The arguments are wrong: field `text`: expected a string");
    assert_eq!((cancel(&reply).code(), cancel(&reply).message()), expected);
}

#[tokio::test]
async fn a_configuration_decides_which_tools_there_are() {
    let plugin = toolbox(json!({ "without": ["toolbox.nothing"] })).await;
    assert_eq!(plugin.tools().iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["toolbox.repeat"]);
    for tool in ["toolbox.nothing", "shell.exec"] {
        let status = plugin.run_tool(tool, &json!({})).await.expect_err("it isn't there");
        assert_eq!(status.code(), StatusCode::NotFound);
    }
}

#[test]
fn each_fault_of_a_tool_is_named() {
    use hookgate_proto::types::v1::Tool;
    let valid = || Tool {
        name: "a".into(),
        description: "Does a".into(),
        input_schema: Bytes::from_static(br#"{"type":"object"}"#),
        annotations: None,
    };
    let check = |tools: &[Tool]| super::check_tools(&["a*".to_owned()], tools);
    assert_eq!(check(&[valid()]), Ok(()));
    for (tools, fault) in [
        (vec![valid(), valid()], "`tools` names `a` twice"),
        (vec![valid(); 65], "`tools` has 65 tools"),
        (vec![Tool { name: "b".into(), ..valid() }], "no glob in TOOL_NAMES covers the tool `b`"),
        (vec![Tool { name: "a b".into(), ..valid() }], "`name` must be"),
        (vec![Tool { description: String::new(), ..valid() }], "needs a `description`"),
        (
            vec![Tool { input_schema: Bytes::from_static(b"true"), ..valid() }],
            "must be a struct with named fields",
        ),
    ] {
        let error = check(&tools).expect_err(fault);
        assert!(error.contains(fault), "{error}");
    }
}
