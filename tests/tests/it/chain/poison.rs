//! Tests replies of enforcing steps that are broken, hostile or endless (G37): a cancel that can be decoded
//! is always a block, anything else follows `on_error`, and nothing takes longer than the step may.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use hookgate_proto::{
    plugin::v1::{
        Access, BeforeToolCallResponse, Cancel, Continue,
        before_tool_call_response::Verdict::{Cancel as Cancels, Continue as Continues},
    },
    types::v1::{BeforeToolCallPatch, ExtensionPoint, Notice, NoticeKind},
};
use hookgate_tests::{
    agent::{HttpAgent, HttpAnswer, path},
    fake::{Act, FakePlugin, WireBehaviour, notice},
    gateway::Gateway,
    token::token,
};
use http::Method;
use prost::Message as _;
use serde_json::{Value, json};

const POINT: ExtensionPoint = ExtensionPoint::BeforeToolCall;
const ARGS: &str = r#"{"z": 9007199254740993,  "a": null}"#;
/// The timeout of a step, and the maximum time of its answer; long, because machines are busy.
const STEP: &str = "8s";
const BOUND: Duration = Duration::from_secs(20);

/// Whether the plugin tries to stop the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Cancel,
    Continue,
}

impl Verdict {
    fn act(self) -> Act {
        match self {
            Verdict::Cancel => Act::cancel("TOOL_NOT_ALLOWED", "No."),
            Verdict::Continue => Act::pass(),
        }
    }

    fn reply(self) -> BeforeToolCallResponse {
        let verdict = match self {
            Verdict::Cancel => Cancels(Cancel {
                code: "TOOL_NOT_ALLOWED".into(),
                message: "No.".into(),
                ..Cancel::default()
            }),
            Verdict::Continue => Continues(Continue {}),
        };
        BeforeToolCallResponse { verdict: Some(verdict), ..BeforeToolCallResponse::default() }
    }
}

/// How the gateway must treat a reply with a defect.
#[derive(Clone)]
enum Taken {
    /// As received: a cancel blocks with this code, and a continue is a bad reply.
    Received(&'static str),
    /// As received, and a continue is fine.
    Harmless,
    /// As not received, whatever it contained: an error with one of these codes.
    Lost(&'static [&'static str]),
}

struct Defect {
    name: &'static str,
    taken: Taken,
    access: Access,
    timeout: &'static str,
    act: Box<dyn Fn(Verdict) -> Act + Send + Sync>,
}

fn defect(name: &'static str, taken: Taken, act: impl Fn(Verdict) -> Act + Send + Sync + 'static) -> Defect {
    Defect { name, taken, access: Access::Modify, timeout: STEP, act: Box::new(act) }
}

/// A reply that violates the contract but can be read.
fn received(name: &'static str, act: impl Fn(Act) -> Act + Send + Sync + 'static) -> Defect {
    defect(name, Taken::Received("TOOL_NOT_ALLOWED"), move |verdict| act(verdict.act()))
}

fn patching(name: &'static str, args: impl Into<Bytes>) -> Defect {
    let patch = BeforeToolCallPatch { args: Some(args.into()), ..BeforeToolCallPatch::default() };
    received(name, move |act| act.with_patch(patch.clone()))
}

fn noticing(name: &'static str, notice: Notice) -> Defect {
    received(name, move |act| act.with_notice(notice.clone()))
}

/// A cancel with an invalid code or message.
fn cancelling(name: &'static str, code: &'static str, message: &str) -> Defect {
    let act = Act::cancel(code, message);
    defect(name, Taken::Received("BLOCKED"), move |verdict| match verdict {
        Verdict::Cancel => act.clone(),
        Verdict::Continue => Act::no_verdict(),
    })
}

fn lost(name: &'static str, wire: WireBehaviour, codes: &'static [&'static str]) -> Defect {
    defect(name, Taken::Lost(codes), move |verdict| verdict.act().sent(wire.clone()))
}

const BAD: &[&str] = &["PLUGIN_BAD_REPLY"];
const GONE: &[&str] = &["PLUGIN_UNAVAILABLE"];

fn received_defects() -> Vec<Defect> {
    let remark = |code: &str, details: &Value| notice(NoticeKind::Warn, code, "x", details);
    let with_details =
        |details: &'static [u8]| Notice { details: details.into(), ..remark("X", &Value::Null) };
    let grown = json!("x".repeat((4 << 20) + (64 << 10))).to_string();
    let unnamed = BeforeToolCallPatch { tool_name: Some(String::new()), ..BeforeToolCallPatch::default() };
    let forbidden = BeforeToolCallPatch { args: Some("1".into()), ..BeforeToolCallPatch::default() };
    let million = |verdict: Verdict| {
        let notice = Notice { kind: NoticeKind::Info.into(), ..Notice::default() };
        BeforeToolCallResponse { notices: vec![notice; 1_000_000], ..verdict.reply() }.encode_to_vec()
    };
    let (million_cancel, million_continue) =
        (Bytes::from(million(Verdict::Cancel)), Bytes::from(million(Verdict::Continue)));
    vec![
        Defect {
            access: Access::Read,
            ..received("forbidden-patch", move |act| act.with_patch(forbidden.clone()))
        },
        patching("patch-no-json", r#"{"a":"#),
        patching("patch-no-utf8", &b"\"\xff\""[..]),
        patching("patch-key-twice", r#"{"a":1,"a":2}"#),
        patching("patch-too-deep", format!("{}{}", "[".repeat(65), "]".repeat(65))),
        patching("patch-too-large", grown),
        received("patch-invalid", move |act| act.with_patch(unnamed.clone())),
        noticing("notice-no-kind", Notice { kind: 0, ..remark("X", &Value::Null) }),
        noticing("notice-code", remark("no spaces", &Value::Null)),
        noticing("notice-no-object", remark("X", &json!([1]))),
        noticing("notice-no-utf8", with_details(b"{\"a\":\"\xff\"}")),
        noticing("notice-large", remark("X", &json!({ "x": "x".repeat(5 << 10) }))),
        defect("notices-million", Taken::Received("TOOL_NOT_ALLOWED"), move |verdict| {
            verdict.act().sent(WireBehaviour::Raw(match verdict {
                Verdict::Cancel => million_cancel.clone(),
                Verdict::Continue => million_continue.clone(),
            }))
        }),
        cancelling("code-spaces", "no spaces", "No."),
        cancelling("code-reserved", "PLUGIN_TIMEOUT", "No."),
        cancelling("message-large", "", &"x".repeat(1 << 20)),
        defect("drip", Taken::Harmless, |verdict| {
            verdict.act().sent(WireBehaviour::Drip(Duration::from_millis(2)))
        }),
    ]
}

fn lost_defects() -> Vec<Defect> {
    let no_utf8 = |verdict: Verdict| {
        let mut bytes = BeforeToolCallResponse {
            notices: vec![notice(NoticeKind::Info, "X", "????", &Value::Null)],
            ..verdict.reply()
        }
        .encode_to_vec();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
        WireBehaviour::Raw(bytes.into())
    };
    let huge = notice(NoticeKind::Info, "X", &"x".repeat(5 << 20), &Value::Null);
    vec![
        defect("no-utf8", Taken::Lost(BAD), move |verdict| verdict.act().sent(no_utf8(verdict))),
        defect("over-limit", Taken::Lost(BAD), move |verdict| verdict.act().with_notice(huge.clone())),
        lost("garbage", WireBehaviour::Garbage, BAD),
        // The reset may overtake the data, so that no reply begins.
        lost("half-then-reset", WireBehaviour::HalfThenReset, &["PLUGIN_BAD_REPLY", "PLUGIN_ERROR"]),
        lost("half-then-ok", WireBehaviour::HalfThenOk, BAD),
        lost("no-status", WireBehaviour::NoStatus, BAD),
        lost("huge-length", WireBehaviour::HugeLength, BAD),
        lost("endless-trailers", WireBehaviour::EndlessTrailers, BAD),
        lost("json", WireBehaviour::Json, BAD),
        lost("then-internal", WireBehaviour::ThenStatus(tonic::Code::Internal), &["PLUGIN_ERROR"]),
        lost("then-unavailable", WireBehaviour::ThenStatus(tonic::Code::Unavailable), GONE),
        // According to gRPC, a reset is an INTERNAL error of the plugin.
        lost("reset", WireBehaviour::Reset, &["PLUGIN_ERROR"]),
        lost("disconnect", WireBehaviour::Disconnect, GONE),
        Defect {
            timeout: "1s",
            ..lost("slow-drip", WireBehaviour::Drip(Duration::from_secs(2)), &["PLUGIN_TIMEOUT"])
        },
    ]
}

/// A call: the defect, the plugin's verdict, and whether a failure is skipped.
#[derive(Debug, Clone, Copy)]
struct Call {
    verdict: Verdict,
    skip: bool,
}

impl Call {
    const ALL: [Call; 4] = [
        Call { verdict: Verdict::Cancel, skip: false },
        Call { verdict: Verdict::Cancel, skip: true },
        Call { verdict: Verdict::Continue, skip: false },
        Call { verdict: Verdict::Continue, skip: true },
    ];

    fn tenant(self, defect: &Defect) -> String {
        let on_error = if self.skip { "skip" } else { "fail" };
        format!("{}.{:?}.{on_error}", defect.name, self.verdict)
    }
}

async fn start(defect: &Defect) -> FakePlugin {
    let acts = (defect.act)(Verdict::Cancel);
    let passes = (defect.act)(Verdict::Continue);
    let plugin = FakePlugin::named(defect.name).access(defect.access).flooding();
    let act = move |seen: &hookgate_tests::fake::Seen| {
        let tenant = seen.call.context.as_ref().map(|context| context.tenant.as_str()).unwrap_or_default();
        if tenant.contains("Cancel") { acts.clone() } else { passes.clone() }
    };
    plugin.at_with(POINT, act).start().await
}

async fn call(agent: &HttpAgent, tenant: String) -> HttpAnswer {
    let body = format!(r#"{{"payload":{{"tool_name":"fs.read","args":{ARGS}}}}}"#);
    let request = agent
        .request(Method::POST, path(POINT))
        .bearer_auth(token(&tenant))
        .header("content-type", "application/json")
        .body(body);
    let started = Instant::now();
    let answer = HttpAgent::send(request).await.expect("the gateway answers");
    assert!(started.elapsed() < BOUND, "{tenant}: {:?}", started.elapsed());
    answer
}

fn assert_blocked(answer: &HttpAnswer, code: &str, what: &str) {
    assert_eq!(
        (answer.status, answer.header("hookgate-decision")),
        (403, Some("block")),
        "{what}: {answer:?}"
    );
    let block = &answer.body["block"];
    assert_eq!(block["code"], json!(code), "{what}: {answer:?}");
    let message = block["message"].as_str().unwrap_or_default();
    assert!((1..=1024).contains(&message.len()), "{what}: {answer:?}");
    assert!(answer.text.contains(ARGS), "{what}: the broken patch is dropped: {answer:?}");
    let notices = answer.body["notices"].as_array().map_or(0, Vec::len);
    assert!(notices <= 16, "{what}: {answer:?}");
}

fn assert_failed(answer: &HttpAnswer, codes: &[&str], skip: bool, what: &str) {
    let decision = answer.header("hookgate-decision");
    if skip {
        assert_eq!((answer.status, decision), (200, Some("continue")), "{what}: {answer:?}");
        assert_eq!(answer.body["steps"][0]["outcome"], json!("failed_open"), "{what}: {answer:?}");
        assert!(answer.text.contains(ARGS), "{what}: {answer:?}");
        assert_eq!(answer.body["modified"], json!(false), "{what}: {answer:?}");
        let code = answer.body["notices"][0]["code"].as_str().unwrap_or_default();
        assert!(codes.contains(&code), "{what}: {answer:?}");
    } else {
        assert_eq!(decision, None, "{what}: {answer:?}");
        let code = answer.body["code"].as_str().unwrap_or_default();
        assert!(codes.contains(&code) && answer.status >= 500, "{what}: {answer:?}");
    }
}

fn judge(defect: &Defect, call: Call, answer: &HttpAnswer) {
    let what = call.tenant(defect);
    match (defect.taken.clone(), call.verdict) {
        (Taken::Received(code), Verdict::Cancel) => assert_blocked(answer, code, &what),
        (Taken::Harmless, Verdict::Cancel) => assert_blocked(answer, "TOOL_NOT_ALLOWED", &what),
        (Taken::Harmless, Verdict::Continue) => {
            assert_eq!(answer.status, 200, "{what}: {answer:?}");
            assert_eq!(answer.body["steps"][0]["outcome"], json!("continued"), "{what}: {answer:?}");
        }
        (Taken::Received(_), Verdict::Continue) => assert_failed(answer, BAD, call.skip, &what),
        (Taken::Lost(codes), _) => assert_failed(answer, codes, call.skip, &what),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_can_be_read_blocks_and_everything_else_is_what_on_error_says() {
    let mut defects = received_defects();
    defects.extend(lost_defects());
    let mut setup = Gateway::with().set("/limits/tenant_in_flight", 4);
    let mut plugins = Vec::new();
    for defect in &defects {
        let plugin = start(defect).await;
        setup = setup.plugin(&plugin);
        for call in Call::ALL {
            let tenant = call.tenant(defect);
            let on_error = if call.skip { "skip" } else { "fail" };
            let binding = json!({ "tenant": tenant, "mode": "enforce", "on_error": on_error,
                                  "timeout": defect.timeout });
            setup = setup.tenant(&tenant).binding_with(defect.name, 10, &binding);
        }
        plugins.push(plugin);
    }
    let gateway = setup.start().await;
    let agent = HttpAgent::new(gateway.data_addr());
    // Calls to each plugin are sequential, because a broken connection takes all its calls with it.
    let agent = &agent;
    stream::iter(defects.iter().zip(&plugins))
        .for_each_concurrent(4, |(defect, plugin)| async move {
            for one in Call::ALL {
                judge(defect, one, &call(agent, one.tenant(defect)).await);
            }
            assert_eq!(plugin.counts().calls, 4, "{}: no call is made twice", defect.name);
        })
        .await;
    let outcome = gateway.stop().await;
    assert_eq!(outcome.code, Some(0), "nothing that a plugin says ends the gateway: {}", outcome.log);
    println!("{} replies of {} defects", 4 * defects.len(), defects.len());
}
