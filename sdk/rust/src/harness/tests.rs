use hookgate_proto::plugin::v1::{DescribeResponse, HookOffer as WireOffer, PointOffer};
use serde_json::json;
use tonic::Code;

use super::*;
use crate::{
    Answer, Context, HookOffer, Host, InitError, NoConfig, Notice, Offer, PayloadField, PluginError, Point,
    tool_rule::ToolRule,
};

/// Contributes the hook's body under the kind that the body names.
struct Echo;

impl Plugin for Echo {
    const NAME: &'static str = "echo";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        Vec::new()
    }

    fn hooks() -> Vec<HookOffer> {
        vec![HookOffer::new("recall")]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Echo)
    }

    async fn on_hook(
        &self,
        ctx: &Context,
        _: &NoConfig,
        payload: HookPayload,
    ) -> Result<HookReply, PluginError> {
        let body = crate::json::Object::parse(&payload.body)?;
        let kind: String = body.get("kind")?.ok_or_else(|| PluginError::invalid("no kind"))?;
        HookReply::none().notice(Notice::info("TENANT", ctx.tenant())).contribute(kind, &body)
    }
}

#[tokio::test]
async fn a_plugin_is_called_at_a_hook() {
    let plugin = TestPlugin::<Echo>::start(&NoConfig {}).await.unwrap().with_tenant("acme");
    let reply = plugin.on_hook("recall", &json!({ "kind": "memory" })).await.unwrap();
    assert_eq!(reply.contributions().len(), 1);
    assert_eq!(reply.contributions()[0].kind, "memory");
    assert_eq!(reply.contributions()[0].value, r#"{"kind":"memory"}"#);
    assert_eq!(reply.notices()[0].message(), "acme");
}

#[tokio::test]
async fn errors_at_a_hook_are_those_of_the_plugin_or_of_a_gateway() {
    let plugin = TestPlugin::<Echo>::start(&NoConfig {}).await.unwrap();
    for (hook, body, code, message) in [
        ("recall", json!({}), Code::InvalidArgument, "no kind"),
        ("turn_end", json!({}), Code::Unimplemented, "echo does not answer at turn_end"),
        (
            "recall",
            json!({ "kind": "A-B" }),
            Code::Internal,
            "/contributions/0 has the kind `A-B` outside [a-z][a-z0-9_]{0,63}",
        ),
    ] {
        let status = plugin.on_hook(hook, &body).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, message));
    }
}

/// Cancels replays and parts, with the exchange as the message.
struct WholeRequestsOnly;

impl Plugin for WholeRequestsOnly {
    const NAME: &'static str = "whole-requests-only";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeLlmRequest.read()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(WholeRequestsOnly)
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        _: &NoConfig,
        _: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        let code = match (ctx.is_replay(), ctx.is_part()) {
            (false, false) => return Ok(Reply::proceed()),
            (true, _) => "REPLAY",
            (false, true) => "PART",
        };
        Ok(Reply::cancel(code, ctx.caller().exchange_id()))
    }
}

#[tokio::test]
async fn a_test_sets_the_exchange_the_replay_and_the_part() {
    let plugin = TestPlugin::<WholeRequestsOnly>::start(&NoConfig {}).await.unwrap();
    let plugin = plugin.with_context(|context| context.exchange_id = Some("e-1".to_owned()));
    let ask = async |plugin: &TestPlugin<WholeRequestsOnly>| {
        plugin.before_llm_request(BeforeLlmRequestPayload::default()).await.unwrap()
    };
    assert!(ask(&plugin).await.cancelled().is_none());
    let facts = |reply: &Reply<BeforeLlmRequestPatch>| {
        reply.cancelled().map(|cancel| (cancel.code().to_owned(), cancel.message().to_owned()))
    };
    let replayed = ask(&plugin.with_context(|context| context.replay = true)).await;
    assert_eq!(facts(&replayed), Some(("REPLAY".to_owned(), "e-1".to_owned())));
    let part = ask(&plugin.with_context(|context| context.part = true)).await;
    assert_eq!(facts(&part), Some(("PART".to_owned(), "e-1".to_owned())));
}

/// Gives more notices than a gateway takes, and cancels if the tool is `shell`.
#[derive(Default)]
struct Verbose;

impl ToolRule for Verbose {
    const NAME: &'static str = "verbose";

    async fn answer(&self, tool: &str) -> Answer<BeforeToolCallPatch> {
        let reply = if tool == "shell" { Reply::cancel("NO", "no") } else { Reply::proceed() };
        Ok((0..17).fold(reply, |reply, _| reply.notice(Notice::info("SEEN", ""))))
    }
}

#[tokio::test]
async fn too_many_notices_are_rejected_beside_a_continue_and_not_beside_a_cancel() {
    let plugin = TestPlugin::<Verbose>::start(&NoConfig {}).await.unwrap();
    let call = |tool: &str| BeforeToolCallPayload { tool_name: tool.to_owned(), ..Default::default() };
    let status = plugin.before_tool_call(call("fs.read")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "17 notices, 16 are allowed"));
    assert!(plugin.before_tool_call(call("shell")).await.unwrap().cancelled().is_some());
}

/// Cancels with what it gets of a call.
struct Blind;

impl Plugin for Blind {
    const NAME: &'static str = "blind";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = NoConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.modify().reading_only(&[PayloadField::Extra])]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Blind)
    }

    async fn before_tool_call(
        &self,
        _: &Context,
        _: &NoConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        Ok(Reply::cancel("SEEN", format!("{} {:?} {:?}", call.tool_name, call.args, call.extra)))
    }
}

#[tokio::test]
async fn a_plugin_under_test_gets_only_the_fields_that_it_reads() {
    let plugin = TestPlugin::<Blind>::start(&NoConfig {}).await.unwrap();
    let call = BeforeToolCallPayload {
        tool_name: "fs.read".to_owned(),
        args: "[1]".into(),
        extra: "{}".into(),
        ..Default::default()
    };
    let reply = plugin.before_tool_call(call).await.unwrap();
    assert_eq!(reply.cancelled().map(|cancel| cancel.message()), Some(r#"fs.read b"" b"{}""#));
}

fn manifest(points: Vec<PointOffer>, hooks: &[&str]) -> DescribeResponse {
    let hooks = hooks.iter().map(|hook| WireOffer { hook: (*hook).to_owned(), ..Default::default() });
    DescribeResponse {
        version: "1.0.0".to_owned(),
        points,
        hooks: hooks.collect(),
        config_schema: "{}".into(),
        tenant_config_schema: "{}".into(),
        ..Default::default()
    }
}

#[test]
fn a_manifest_lists_a_point_or_a_hook_and_each_once() {
    let point = Point::BeforeToolCall.read().to_wire();
    for right in [
        manifest(vec![point.clone()], &[]),
        manifest(Vec::new(), &["recall"]),
        manifest(vec![point.clone()], &["a", "b"]),
    ] {
        assert_eq!(check(&right), Ok(()));
    }
    let many: Vec<_> = (0..65).map(|number| format!("hook_{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for (wrong, error) in [
        (manifest(Vec::new(), &[]), "points() must list a point, hooks() a hook, or TOOL_NAMES a name"),
        (manifest(vec![point.clone(), point], &[]), "points() must list each point once"),
        (
            manifest(vec![Point::BeforeToolCall.read().reading_only(&[PayloadField::Text]).to_wire()], &[]),
            "`reads` of before_tool_call names `text`: choose from args, extra",
        ),
        (manifest(Vec::new(), &["a", "b", "a"]), "hooks() must list each hook once"),
        (manifest(Vec::new(), &many), "hooks() must list at most 64 hooks"),
        (
            manifest(Vec::new(), &["before_response"]),
            "hooks() lists `before_response`: this is the name of a point, which no hook may have",
        ),
        (
            manifest(Vec::new(), &["Recall"]),
            "hooks() lists `Recall`: the name of a hook is a lower-case letter, then up to 63 lower-case letters, \
             digits and `_`",
        ),
    ] {
        assert_eq!(check(&wrong).unwrap_err(), error);
    }
}
