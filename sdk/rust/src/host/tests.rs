use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use hookgate_proto::plugin::v1::{
    BeforeToolCallRequest, BeforeToolCallResponse, Call, plugin_service_client::PluginServiceClient,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tonic::Code;

use super::*;
use crate::{
    Answer, BeforeResponsePatch, BeforeResponsePayload, BeforeToolCallPatch, BeforeToolCallPayload, Notice,
    Offer, PluginError, Point, Reply, json, tool_rule::request,
};

static STARTED: AtomicUsize = AtomicUsize::new(0);
static GATE_WAITERS: AtomicUsize = AtomicUsize::new(0);
/// Each permit releases one waiting call.
static GATE: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    name: String,
    #[serde(default)]
    list: Vec<String>,
    #[serde(default)]
    fail: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TenantConfig {
    #[serde(default)]
    limit: u32,
}

/// Acts as the tool's name says.
struct Scripted {
    name: String,
    calls: AtomicUsize,
}

static STOPPED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

impl Plugin for Scripted {
    const NAME: &'static str = "scripted";
    const VERSION: &'static str = "1.0.0";
    const CAPABILITIES: &'static [Capability] = &[Capability::StorageRead];
    type Config = Config;
    type TenantConfig = TenantConfig;

    fn points() -> Vec<Offer> {
        vec![Point::BeforeToolCall.modify().with_side_effects(), Point::AfterToolResult.read()]
    }

    async fn initialize(config: Config, _: Host) -> Result<Self, InitError> {
        drop(config.list);
        match config.fail.as_deref() {
            Some("config") => return Err(InitError::config("fail", "must not be `config`")),
            Some("unavailable") => return Err(InitError::unavailable("the database is away")),
            Some("error") => return Err(std::io::Error::other("odd").into()),
            Some("panic") => panic!("at start"),
            _ => {}
        }
        if config.name == "counted" {
            STARTED.fetch_add(1, SeqCst);
            tokio::task::yield_now().await;
        }
        Ok(Scripted { name: config.name, calls: AtomicUsize::new(0) })
    }

    async fn before_tool_call(
        &self,
        ctx: &Context,
        tenant: &TenantConfig,
        call: BeforeToolCallPayload,
    ) -> Answer<BeforeToolCallPatch> {
        let calls = self.calls.fetch_add(1, SeqCst) + 1;
        match call.tool_name.as_str() {
            "panic" => panic!("at the call"),
            "unavailable" => Err(PluginError::unavailable("the database is away")),
            "wait" => {
                GATE_WAITERS.fetch_add(1, SeqCst);
                GATE.acquire().await.expect("it is never closed").forget();
                Ok(Reply::proceed())
            }
            "late" => {
                tokio::time::sleep(ctx.time_left().expect("the call has a deadline")).await;
                Ok(Reply::proceed())
            }
            "parse" => {
                let number: u32 = json::parse(&call.args)?;
                Ok(Reply::proceed().args(&(number + 1))?)
            }
            "context" => {
                let left = ctx.time_left().map(|left| left.as_secs());
                let site = (ctx.point(), ctx.hook());
                let facts =
                    format!("{} {left:?} {} {:?} {site:?}", ctx.tenant(), ctx.depth(), ctx.traceparent());
                Ok(Reply::proceed().notice(Notice::info("CONTEXT", facts)))
            }
            _ => {
                let facts = format!("{} {calls} {}", self.name, tenant.limit);
                Ok(Reply::proceed().notice(Notice::info("FACTS", facts)))
            }
        }
    }

    // Implemented but not offered, so never called.
    async fn before_response(
        &self,
        _: &Context,
        _: &TenantConfig,
        _: BeforeResponsePayload,
    ) -> Answer<BeforeResponsePatch> {
        Ok(Reply::cancel("NO", "no"))
    }

    async fn shutdown(&self) {
        STOPPED.lock().unwrap().push(self.name.clone());
    }
}

type Client = PluginServiceClient<PluginServiceServer<PluginHost<Scripted>>>;

fn client() -> Client {
    PluginServiceClient::new(service::<Scripted>()).max_encoding_message_size(usize::MAX)
}

async fn initialize(client: &mut Client, gateway: &str, digest: &str, config: &str) -> Result<(), Status> {
    let request = wire::InitializeRequest {
        config: config.to_owned().into(),
        config_digest: digest.to_owned(),
        gateway_instance_id: gateway.to_owned(),
        ..Default::default()
    };
    client.initialize(request).await.map(drop)
}

async fn named(client: &mut Client, gateway: &str, name: &str) {
    initialize(client, gateway, name, &format!(r#"{{"name":"{name}"}}"#)).await.unwrap();
}

async fn call(client: &mut Client, digest: &str, tool: &str) -> Result<BeforeToolCallResponse, Status> {
    client.before_tool_call(request(digest, tool)).await.map(Response::into_inner)
}

async fn remark(client: &mut Client, digest: &str) -> String {
    call(client, digest, "facts").await.unwrap().notices.remove(0).message
}

#[tokio::test]
async fn describes_points_capabilities_and_schemas() {
    let manifest = client().describe(wire::DescribeRequest::default()).await.unwrap().into_inner();
    let points: Vec<_> = manifest.points.iter().map(|p| (p.point, p.access, p.side_effects)).collect();
    assert_eq!(points, [(2, 2, 2), (3, 1, 1)]);
    assert_eq!(manifest.hooks, []);
    assert_eq!(manifest.capabilities, ["storage:read"]);
    let schema: serde_json::Value = serde_json::from_slice(&manifest.config_schema).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["name"]["type"], "string");
    let tenant: serde_json::Value = serde_json::from_slice(&manifest.tenant_config_schema).unwrap();
    assert!(tenant["properties"]["limit"].is_object());
}

#[tokio::test]
async fn one_instance_answers_every_call_of_its_configuration() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    named(&mut client, "g", "b").await;
    for n in 1..=100 {
        assert_eq!(remark(&mut client, "a").await, format!("a {n} 0"));
    }
    assert_eq!(remark(&mut client, "b").await, "b 1 0");
}

#[tokio::test]
async fn the_same_configuration_is_started_once_even_by_two_gateways_at_once() {
    let client = client();
    let starts = ["g1", "g2", "g1"].map(|gateway| {
        let mut client = client.clone();
        tokio::spawn(async move { named(&mut client, gateway, "counted").await })
    });
    for start in starts {
        start.await.unwrap();
    }
    assert_eq!(STARTED.load(SeqCst), 1);
}

fn is_stopped(name: &str) -> bool {
    STOPPED.lock().unwrap().iter().any(|stopped| stopped == name)
}

async fn release(client: &mut Client, gateway: &str, digest: &str) {
    let request =
        wire::ReleaseRequest { gateway_instance_id: gateway.to_owned(), config_digest: digest.to_owned() };
    client.release(request).await.unwrap();
}

#[tokio::test]
async fn configuration_is_released_when_its_last_call_has_ended_and_no_sooner() {
    let mut client = client();
    named(&mut client, "g", "r1").await;
    let mut waiting = client.clone();
    let under_way = tokio::spawn(async move { call(&mut waiting, "r1", "wait").await });
    while GATE_WAITERS.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // Newer ones alone change nothing.
    for name in ["r2", "r3", "r4", "r5", "r6"] {
        named(&mut client, "g", name).await;
    }
    assert_eq!(remark(&mut client, "r1").await, "r1 2 0");
    let mut letting_go = client.clone();
    let released = tokio::spawn(async move { release(&mut letting_go, "g", "r1").await });
    while call(&mut client, "r1", "facts").await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!is_stopped("r1") && !under_way.is_finished() && !released.is_finished());
    GATE.add_permits(1);
    under_way.await.unwrap().unwrap();
    released.await.unwrap();
    assert!(is_stopped("r1"));
    assert_eq!(remark(&mut client, "r6").await, "r6 1 0", "the others stay");
    named(&mut client, "g", "r1").await;
    assert_eq!(remark(&mut client, "r1").await, "r1 1 0", "handed over again, it is a new one");
}

#[tokio::test]
async fn configuration_that_another_gateway_holds_stays() {
    let mut client = client();
    for gateway in ["g1", "g2"] {
        named(&mut client, gateway, "o1").await;
    }
    release(&mut client, "g1", "o1").await;
    release(&mut client, "g1", "o1").await;
    release(&mut client, "g3", "o1").await;
    assert_eq!(remark(&mut client, "o1").await, "o1 1 0");
    assert!(!is_stopped("o1"));
    release(&mut client, "g2", "o1").await;
    assert!(is_stopped("o1"));
}

#[tokio::test]
async fn of_unreleased_configurations_the_least_recently_used_makes_room() {
    let mut client = client();
    let names: Vec<_> = (0..16).map(|number| format!("k{number}")).collect();
    for name in &names {
        named(&mut client, "g", name).await;
    }
    named(&mut client, "g", "k0").await;
    remark(&mut client, "k1").await;
    named(&mut client, "g", "k16").await;
    let gone = call(&mut client, "k2", "facts").await.unwrap_err();
    assert_eq!(gone.code(), Code::FailedPrecondition);
    assert_eq!(gone.metadata().get("hookgate-reason").unwrap(), "NOT_INITIALIZED");
    for name in ["k0", "k3", "k15", "k16"] {
        assert_eq!(remark(&mut client, name).await, format!("{name} 1 0"));
    }
    assert_eq!(remark(&mut client, "k1").await, "k1 2 0");
    while !is_stopped("k2") {
        tokio::task::yield_now().await; // it is asked to flush in the background
    }
}

#[tokio::test]
async fn an_instance_goes_with_the_last_gateway_that_holds_it_and_flushes_in_reverse_order() {
    let mut client = client();
    for (gateway, name) in [("g1", "s1"), ("g1", "s2"), ("g2", "s1")] {
        named(&mut client, gateway, name).await;
    }
    let stopped = || {
        let all = STOPPED.lock().unwrap();
        all.iter().filter(|name| name.starts_with('s')).cloned().collect::<Vec<_>>()
    };
    let shutdown = |gateway: &str| wire::ShutdownRequest { gateway_instance_id: gateway.to_owned() };
    client.shutdown(shutdown("g1")).await.unwrap();
    assert_eq!(stopped(), ["s2"]);
    assert_eq!(remark(&mut client, "s1").await, "s1 1 0");
    named(&mut client, "g2", "s3").await;
    client.shutdown(shutdown("g2")).await.unwrap();
    assert_eq!(stopped(), ["s2", "s3", "s1"]);
    assert_eq!(call(&mut client, "s1", "facts").await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn gateways_that_crashed_are_forgotten_once_there_are_too_many() {
    let mut client = client();
    for crashed in 0..200 {
        named(&mut client, &format!("crashed-{crashed}"), "z1").await;
        named(&mut client, "alive", "z1").await;
    }
    // The live gateway was seen throughout, and with it the last 63 that came.
    let shutdown = |gateway: String| wire::ShutdownRequest { gateway_instance_id: gateway };
    let stopped = || STOPPED.lock().unwrap().iter().any(|name| name == "z1");
    for gone in (137..200).map(|gone| format!("crashed-{gone}")) {
        client.shutdown(shutdown(gone)).await.unwrap();
    }
    assert!(!stopped());
    assert_eq!(remark(&mut client, "z1").await, "z1 1 0");
    client.shutdown(shutdown("alive".to_owned())).await.unwrap();
    assert!(stopped());
}

#[tokio::test]
async fn a_wrong_configuration_is_an_invalid_argument_that_names_the_field_and_not_the_value() {
    let mut client = client();
    for (config, message) in [
        (r#"{"name":["s3cret"]}"#, "config: field `name`: expected a string"),
        (r#"{"list":["a",7]}"#, "config: field `list[1]`: expected a string"),
        (
            r#"{"naem":"s3cret"}"#,
            "config: field `naem`: unknown field `naem`, expected one of `name`, `list`, `fail`",
        ),
        (r#"{"fail":"config"}"#, "config field `fail`: must not be `config`"),
        ("[]", "config: expected a JSON object"),
        ("{", "config: EOF while parsing an object"),
        ("{} {}", "config: text follows the JSON value"),
    ] {
        let status = initialize(&mut client, "g", "bad", config).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, message));
    }
    assert_eq!(call(&mut client, "bad", "facts").await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_start_that_fails_says_whether_to_try_again() {
    let mut client = client();
    for (config, code) in [
        (r#"{"fail":"unavailable"}"#, Code::Unavailable),
        (r#"{"fail":"error"}"#, Code::Internal),
        (r#"{"fail":"panic"}"#, Code::Internal),
    ] {
        assert_eq!(initialize(&mut client, "g", "d", config).await.unwrap_err().code(), code, "{config}");
    }
    named(&mut client, "g", "d").await;
}

#[tokio::test]
async fn a_point_that_is_not_offered_is_not_answered() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    let call = Call { config_digest: "a".to_owned(), ..Default::default() };
    let request = wire::BeforeResponseRequest { call: Some(call.clone()), payload: Some(Default::default()) };
    assert_eq!(client.before_response(request).await.unwrap_err().code(), Code::Unimplemented);
    // Offered but not implemented: continues.
    let request = wire::AfterToolResultRequest { call: Some(call), payload: Some(Default::default()) };
    let answer = client.after_tool_result(request).await.unwrap().into_inner();
    assert_eq!(answer.verdict, Some(wire::after_tool_result_response::Verdict::Continue(wire::Continue {})));
}

#[tokio::test]
async fn a_panic_fails_its_own_call_alone() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    assert_eq!(call(&mut client, "a", "panic").await.unwrap_err().code(), Code::Internal);
    assert_eq!(remark(&mut client, "a").await, "a 2 0");
}

#[tokio::test]
async fn an_error_is_a_status_and_never_a_verdict() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    let status = call(&mut client, "a", "unavailable").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "the database is away"));
    assert_eq!(call(&mut client, "a", "parse").await.unwrap_err().code(), Code::InvalidArgument);
    let empty = client.before_tool_call(BeforeToolCallRequest::default()).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_tenant_configuration_is_read_once_per_digest_and_never_mixed() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    let with = |digest: &str, config: &str| {
        let mut request = request("a", "facts");
        let call = request.call.get_or_insert_default();
        call.tenant_config_digest = digest.to_owned();
        call.tenant_config = config.to_owned().into();
        request
    };
    for (digest, config, limit) in [
        ("d1", r#"{"limit":1}"#, "1"),
        ("d2", r#"{"limit":2}"#, "2"),
        ("d1", "not read again", "1"),
        ("", r#"{"limit":3}"#, "3"),
        ("", r#"{"limit":4}"#, "4"),
    ] {
        let answer = client.before_tool_call(with(digest, config)).await.unwrap().into_inner();
        assert!(answer.notices[0].message.ends_with(limit), "{digest}: {}", answer.notices[0].message);
    }
    let wrong = client.before_tool_call(with("d3", r#"{"limit":"s3cret"}"#)).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert_eq!(wrong.message(), "tenant-level config: field `limit`: expected u32");
}

#[tokio::test]
async fn the_context_holds_caller_time_trace_and_depth() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    let mut request = Request::new(request("a", "context"));
    request.get_mut().call.get_or_insert_default().context =
        Some(wire::CallContext { tenant: "acme".to_owned(), ..Default::default() });
    request.set_timeout(Duration::from_millis(7900));
    request.metadata_mut().insert("hookgate-depth", "2".parse().unwrap());
    request.metadata_mut().insert("traceparent", "00-a-b-01".parse().unwrap());
    let answer = client.before_tool_call(request).await.unwrap().into_inner();
    let expected = r#"acme Some(7) 2 Some("00-a-b-01") (Some(BeforeToolCall), None)"#;
    assert_eq!(answer.notices[0].message, expected);
}

#[tokio::test]
async fn no_answer_is_sent_after_the_deadline() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    let mut request = Request::new(request("a", "late"));
    request.set_timeout(Duration::from_millis(1));
    assert_eq!(client.before_tool_call(request).await.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_call_may_have_17_mib_and_no_more() {
    let mut client = client();
    named(&mut client, "g", "a").await;
    for (bytes, expected) in [(MAX_CALL_BYTES - 200, None), (MAX_CALL_BYTES, Some(Code::OutOfRange))] {
        let mut request = request("a", "facts");
        request.payload.get_or_insert_default().args = vec![b'1'; bytes].into();
        assert_eq!(
            client.before_tool_call(request).await.err().map(|status| status.code()),
            expected,
            "{bytes}"
        );
    }
}
