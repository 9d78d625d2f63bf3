//! The plugin of the vectors in Rust: it does what a call's tenant-level configuration says (tests/vectors/README.md).
//! Written with the SDK as an author would, so that the vectors test what authors get.

mod payload;
mod script;
mod tools;

use hookgate_sdk::{
    AfterToolResultPatch, AfterToolResultPayload, Answer, BeforeLlmRequestPatch, BeforeLlmRequestPayload,
    BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Context,
    HookOffer, HookPayload, HookReply, Host, InitError, NoConfig, Offer, Plugin, PluginError, Point, Reply,
    Tool, json, serve, telemetry,
};
use serde_json::value::RawValue;

use self::{payload::ScriptedPayload, script::Script};

struct VectorPlugin;

impl Plugin for VectorPlugin {
    const NAME: &'static str = "vectors";
    const VERSION: &'static str = "1.0.0";
    const TOOL_NAMES: &'static [&'static str] = &["vectors.*"];
    type Config = NoConfig;
    type TenantConfig = Script;

    fn points() -> Vec<Offer> {
        Point::ALL.map(Point::modify).to_vec()
    }

    fn hooks() -> Vec<HookOffer> {
        vec![HookOffer::new("recall"), HookOffer::new("vectors")]
    }

    fn tools(&self) -> Vec<Tool<Self>> {
        tools::all()
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(VectorPlugin)
    }

    async fn before_llm_request(
        &self,
        ctx: &Context,
        script: &Script,
        payload: BeforeLlmRequestPayload,
    ) -> Answer<BeforeLlmRequestPatch> {
        answer(ctx, script, &payload, script.verdict())
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        script: &Script,
        payload: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let verdict = match &script.answer {
            Some(answer) => Reply::answer(&answer.result, &answer.message)?,
            None => script.verdict(),
        };
        answer(ctx, script, &payload, verdict)
    }

    async fn after_tool_result(
        &self,
        ctx: &Context,
        script: &Script,
        payload: AfterToolResultPayload,
    ) -> Answer<AfterToolResultPatch> {
        answer(ctx, script, &payload, script.verdict())
    }

    async fn before_response(
        &self,
        ctx: &Context,
        script: &Script,
        payload: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        answer(ctx, script, &payload, script.verdict())
    }

    async fn on_hook(
        &self,
        ctx: &Context,
        script: &Script,
        payload: HookPayload,
    ) -> Result<HookReply, PluginError> {
        script.fail()?;
        let body = json::Object::parse(&payload.body)?;
        let mut reply = HookReply::none();
        if script.echo {
            reply = reply.contribute("echo", &body)?;
        }
        for contribution in &script.contribute {
            reply = reply.contribute(&contribution.kind, &contribution.value)?;
        }
        let mut members = json::Object::default();
        members.set("hook", &payload.hook)?;
        members.set("body", &body)?;
        Ok(script.notices(ctx, &members)?.into_iter().fold(reply, HookReply::notice))
    }
}

/// The reply at a point: the verdict, with the changes and the notices of the script.
fn answer<P: ScriptedPayload>(
    ctx: &Context,
    script: &Script,
    payload: &P,
    verdict: Reply<P::Patch>,
) -> Answer<P::Patch> {
    script.fail()?;
    let members = payload.members()?;
    let mut reply = verdict;
    if script.echo {
        for name in P::PATCHABLE {
            if let Some(value) = members.get::<Box<RawValue>>(name)? {
                reply = P::set(reply, name, &value)?;
            }
        }
    }
    for (name, changes) in &script.merge {
        let mut object = members.get::<json::Object>(name)?.unwrap_or_default();
        for member in changes.names() {
            object.set(member, &changes.get::<Box<RawValue>>(member)?)?;
        }
        reply = P::set(reply, name, &serde_json::value::to_raw_value(&object)?)?;
    }
    for (name, value) in &script.set {
        reply = P::set(reply, name, value)?;
    }
    Ok(script.notices(ctx, &members)?.into_iter().fold(reply, Reply::notice))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _telemetry = telemetry::init::<VectorPlugin>()?;
    let address = std::env::args().nth(1).ok_or("the argument is the address to listen at")?;
    serve::<VectorPlugin>(&address).await?;
    Ok(())
}
