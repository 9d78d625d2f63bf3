use hookgate_proto::plugin::v1::{
    Call, CallContext, OnHookRequest, OnHookResponse, plugin_service_client::PluginServiceClient,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tonic::Code;

use super::*;
use crate::{Contribution, HookPayload, HookReply, NoConfig, Notice, PluginError, SideEffects, json};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Suffix {
    #[serde(default)]
    suffix: String,
}

#[derive(Deserialize)]
struct Recall {
    message: String,
}

/// Answers at hooks alone: at `recall` as the message says.
struct Memory;

impl Plugin for Memory {
    const NAME: &'static str = "memory";
    const VERSION: &'static str = "1.0.0";
    type Config = NoConfig;
    type TenantConfig = Suffix;

    fn points() -> Vec<Offer> {
        Vec::new()
    }

    fn hooks() -> Vec<HookOffer> {
        vec![HookOffer::new("recall"), HookOffer::new("turn_end").with_side_effects()]
    }

    async fn initialize(_: NoConfig, _: Host) -> Result<Self, InitError> {
        Ok(Memory)
    }

    async fn on_hook(
        &self,
        ctx: &Context,
        tenant: &Suffix,
        payload: HookPayload,
    ) -> Result<HookReply, PluginError> {
        if payload.hook == "turn_end" {
            return Ok(HookReply::none());
        }
        let recall: Recall = json::parse(&payload.body)?;
        match recall.message.as_str() {
            "panic" => panic!("at the call"),
            "unavailable" => Err(PluginError::unavailable("the database is away")),
            "context" => {
                let facts = format!(
                    "{} {:?} {:?} {} {:?} {:?}",
                    ctx.tenant(),
                    ctx.point(),
                    ctx.hook(),
                    ctx.depth(),
                    ctx.time_left().map(|left| left.as_secs()),
                    ctx.chain_result().and_then(|result| result.code.as_deref()),
                );
                Ok(HookReply::none().notice(Notice::info("CONTEXT", facts)))
            }
            message => {
                let text = format!("{message}{}", tenant.suffix);
                HookReply::none()
                    .notice(Notice::info("FOUND", "2 memories"))
                    .contribute("memory", &json!({ "content": text }))?
                    .contribute("note", &[1, 2])
            }
        }
    }
}

/// Offers a hook and has no method for it.
struct Silent;

impl Plugin for Silent {
    const NAME: &'static str = "silent";
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
        Ok(Silent)
    }
}

type Client<P> = PluginServiceClient<PluginServiceServer<PluginHost<P>>>;

async fn client<P: Plugin>() -> Client<P> {
    let mut client = PluginServiceClient::new(service::<P>());
    let request = wire::InitializeRequest { config_digest: "a".to_owned(), ..Default::default() };
    client.initialize(request).await.unwrap();
    client
}

fn request(hook: &str, body: &str) -> OnHookRequest {
    let call = Call { config_digest: "a".to_owned(), ..Default::default() };
    let payload = HookPayload { hook: hook.to_owned(), body: body.to_owned().into() };
    OnHookRequest { call: Some(call), payload: Some(payload) }
}

fn recall(message: &str) -> OnHookRequest {
    request("recall", &json!({ "message": message }).to_string())
}

async fn ask<P: Plugin>(client: &mut Client<P>, request: OnHookRequest) -> Result<OnHookResponse, Status> {
    client.on_hook(request).await.map(Response::into_inner)
}

fn contribution(kind: &str, value: &'static str) -> Contribution {
    Contribution { kind: kind.to_owned(), value: value.into() }
}

#[tokio::test]
async fn describes_hooks_of_a_plugin_without_points() {
    let manifest =
        client::<Memory>().await.describe(wire::DescribeRequest::default()).await.unwrap().into_inner();
    assert_eq!(manifest.points, []);
    let hooks: Vec<_> =
        manifest.hooks.iter().map(|offer| (offer.hook.as_str(), offer.side_effects())).collect();
    assert_eq!(hooks, [("recall", SideEffects::None.to_wire()), ("turn_end", SideEffects::Some.to_wire())]);
}

#[tokio::test]
async fn contributions_and_notices_keep_their_order() {
    let mut client = client::<Memory>().await;
    let answer = ask(&mut client, recall("tea")).await.unwrap();
    let expected = [contribution("memory", r#"{"content":"tea"}"#), contribution("note", "[1,2]")];
    assert_eq!(answer.contributions, expected);
    assert_eq!(answer.notices[0].code.as_deref(), Some("FOUND"));
    assert_eq!(ask(&mut client, request("turn_end", "{}")).await.unwrap(), OnHookResponse::default());
}

#[tokio::test]
async fn an_offered_hook_without_a_method_contributes_nothing() {
    let answer = ask(&mut client::<Silent>().await, recall("tea")).await.unwrap();
    assert_eq!(answer, OnHookResponse::default());
}

#[tokio::test]
async fn a_hook_that_is_not_offered_is_not_answered() {
    let mut client = client::<Memory>().await;
    for hook in ["session_start", "before_tool_call", ""] {
        let status = ask(&mut client, request(hook, "{}")).await.unwrap_err();
        let message = format!("memory does not answer at {hook}");
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, message.as_str()));
    }
    let point = client.before_tool_call(crate::tool_rule::request("a", "tool")).await.unwrap_err();
    assert_eq!(point.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_call_without_its_parts_or_with_a_wrong_body_is_an_invalid_argument() {
    let mut client = client::<Memory>().await;
    for (wrong, message) in [
        (OnHookRequest { call: None, ..recall("tea") }, "`call` is missing"),
        (OnHookRequest { payload: None, ..recall("tea") }, "`payload` is missing"),
        (OnHookRequest::default(), "`payload` is missing"),
        (request("recall", r#"{"message":7}"#), "field `message`: expected a string"),
    ] {
        let status = ask(&mut client, wrong).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, message));
    }
}

#[tokio::test]
async fn an_unknown_digest_is_not_initialized() {
    let mut request = recall("tea");
    request.call.get_or_insert_default().config_digest = "b".to_owned();
    let status = ask(&mut client::<Memory>().await, request).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.metadata().get("hookgate-reason").unwrap(), "NOT_INITIALIZED");
}

#[tokio::test]
async fn the_tenant_configuration_is_read() {
    let mut client = client::<Memory>().await;
    let with = |config: &'static str| {
        let mut request = recall("tea");
        request.call.get_or_insert_default().tenant_config = config.into();
        request
    };
    let answer = ask(&mut client, with(r#"{"suffix":"!"}"#)).await.unwrap();
    assert_eq!(answer.contributions[0], contribution("memory", r#"{"content":"tea!"}"#));
    let wrong = ask(&mut client, with(r#"{"suffix":7}"#)).await.unwrap_err();
    assert_eq!(
        (wrong.code(), wrong.message()),
        (Code::InvalidArgument, "tenant-level config: field `suffix`: expected a string")
    );
}

#[tokio::test]
async fn an_error_is_a_status_and_a_panic_fails_its_own_call_alone() {
    let mut client = client::<Memory>().await;
    for (message, code, text) in [
        ("unavailable", Code::Unavailable, "the database is away"),
        ("panic", Code::Internal, "memory panicked at recall"),
    ] {
        let status = ask(&mut client, recall(message)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, text));
    }
    assert_eq!(ask(&mut client, recall("tea")).await.unwrap().contributions.len(), 2);
}

#[tokio::test]
async fn the_context_holds_the_hook_and_no_point() {
    let mut request = Request::new(recall("context"));
    let call = request.get_mut().call.get_or_insert_default();
    call.context = Some(CallContext { tenant: "acme".to_owned(), ..Default::default() });
    call.chain_result = Some(wire::ChainResult { code: Some("LATE".to_owned()), ..Default::default() });
    request.set_timeout(Duration::from_millis(7900));
    request.metadata_mut().insert("hookgate-depth", "2".parse().unwrap());
    let answer = client::<Memory>().await.on_hook(request).await.unwrap().into_inner();
    assert_eq!(answer.notices[0].message, r#"acme None Some("recall") 2 Some(7) Some("LATE")"#);
}
