//! Tests of answers and problems as bytes.

use hookgate_proto::{FILE_DESCRIPTOR_SET, plugin::v1 as plugin};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use serde_json::Value as Json;

use super::*;
use crate::{
    core::{
        error::{FailedStep, Violation},
        point::Point,
        step::{Reason, StepOutcome},
    },
    transcode::value::JsonMessage,
};

/// An answer in which every member is set.
fn full() -> gateway::BeforeToolCallResponse {
    gateway::BeforeToolCallResponse {
        decision: types::Decision::Block.into(),
        payload: Some(types::BeforeToolCallPayload {
            tool_name: "fs.\"read\"\n".into(),
            args: r#"{"z":9007199254740993,"a":null}"#.into(),
            call_id: Some("c".into()),
            extra: r#"{"b":1.10,"a":"\u00e9"}"#.into(),
        }),
        modified: true,
        block: Some(gateway::Block {
            plugin: Some("tenant-auth".into()),
            binding: Some("floor".into()),
            code: "TOOL_NOT_ALLOWED".into(),
            message: "no".into(),
            retry_after_ms: Some(u64::MAX),
            scope: types::CancelScope::Run.into(),
        }),
        notices: vec![gateway::PluginNotice {
            plugin: Some("p".into()),
            kind: types::NoticeKind::Warn.into(),
            code: Some("C".into()),
            message: "m".into(),
            details: r#"{"used":1}"#.into(),
        }],
        steps: vec![gateway::Step {
            plugin: "p".into(),
            binding: "b".into(),
            outcome: gateway::StepOutcome::FailedOpen.into(),
            reason: gateway::StepReason::Timeout.into(),
            duration_us: 12,
            changes: r#"{"args":{"z":9007199254740993,"a":null}}"#.into(),
            code: Some("X".into()),
        }],
        plan_digest: "d".into(),
        revision: 9_007_199_254_740_993,
        request_id: "r".into(),
        result: r#"{"z":1.0}"#.into(),
    }
}

fn text(bytes: &Bytes) -> &str {
    str::from_utf8(bytes).expect("JSON")
}

#[test]
fn an_answer_has_the_members_of_the_contract_in_its_order() {
    assert_eq!(
        text(&encode(&full())),
        concat!(
            r#"{"decision":"block","payload":{"tool_name":"fs.\"read\"\n","#,
            r#""args":{"z":9007199254740993,"a":null},"call_id":"c","extra":{"b":1.10,"a":"\u00e9"}},"modified":true,"#,
            r#""block":{"plugin":"tenant-auth","binding":"floor","code":"TOOL_NOT_ALLOWED","message":"no","#,
            r#""retry_after_ms":18446744073709551615,"scope":"run"},"#,
            r#""notices":[{"plugin":"p","kind":"warn","code":"C","message":"m","details":{"used":1}}],"#,
            r#""steps":[{"plugin":"p","binding":"b","outcome":"failed_open","reason":"timeout","duration_us":12,"changes":{"args":{"z":9007199254740993,"a":null}},"code":"X"}],"#,
            r#""plan_digest":"d","revision":9007199254740993,"request_id":"r","result":{"z":1.0}}"#,
        )
    );
}

#[test]
fn absent_members_are_left_out() {
    let answer = gateway::BeforeLlmRequestResponse {
        decision: types::Decision::Continue.into(),
        payload: Some(types::BeforeLlmRequestPayload::default()),
        ..Default::default()
    };
    assert_eq!(
        text(&encode(&answer)),
        r#"{"decision":"continue","payload":{"text":""},"modified":false,"notices":[],"steps":[],"plan_digest":"","revision":0,"request_id":""}"#
    );
    let answer = gateway::AfterToolResultResponse {
        decision: types::Decision::Block.into(),
        block: Some(gateway::Block { code: "BLOCKED".into(), message: "m".into(), ..Default::default() }),
        steps: vec![gateway::Step { outcome: gateway::StepOutcome::Observed.into(), ..Default::default() }],
        ..Default::default()
    };
    let read: Json = serde_json::from_slice(&encode(&answer)).expect("JSON");
    assert_eq!(read["block"], serde_json::json!({"code": "BLOCKED", "message": "m", "scope": "step"}));
    assert_eq!(
        read["steps"],
        serde_json::json!([{"plugin": "", "binding": "", "outcome": "observed", "duration_us": 0}])
    );
    assert!(read.get("payload").is_none());
}

#[test]
fn a_payload_of_every_type_is_written() {
    let answer = gateway::BeforeLlmRequestResponse {
        payload: Some(types::BeforeLlmRequestPayload {
            images: vec![types::Media {
                source: Some(types::media::Source::Data(Bytes::from_static(&[0xfb, 0xff]))),
                mime_type: "image/png".into(),
                filename: Some("a.png".into()),
            }],
            files: vec![types::Media {
                source: Some(types::media::Source::Url("https://x".into())),
                mime_type: "text/plain".into(),
                filename: None,
            }],
            messages: "[{}]".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    assert!(text(&encode(&answer)).contains(concat!(
        r#"{"text":"","images":[{"data":"+/8=","mime_type":"image/png","filename":"a.png"}],"#,
        r#""files":[{"url":"https://x","mime_type":"text/plain"}],"messages":[{}]}"#
    )));
    let answer = gateway::BeforeResponseResponse {
        payload: Some(types::BeforeResponsePayload {
            content: "c".into(),
            token_usage: Some(types::TokenUsage { input: u64::MAX, output: 0 }),
            ..Default::default()
        }),
        ..Default::default()
    };
    assert!(
        text(&encode(&answer))
            .contains(r#"{"content":"c","token_usage":{"input":18446744073709551615,"output":0}}"#)
    );
}

#[test]
fn a_block_holds_the_problem_and_every_member_of_the_answer_once() {
    let problem = ProblemDetails {
        r#type: "about:blank",
        title: "Forbidden",
        status: 403,
        detail: "no",
        code: "TOOL_NOT_ALLOWED",
        step: None,
        steps: &[],
        request_id: "r",
        errors: &[],
    };
    let body = encode_block(&problem, &full());
    crate::json::scan(&body, 64).expect("no key stands twice");
    assert!(text(&body).starts_with(
        r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":"no","code":"TOOL_NOT_ALLOWED","decision":"block","#
    ));
    let block: Json = serde_json::from_slice(&body).expect("JSON");
    let answer: Json = serde_json::from_slice(&encode(&full())).expect("JSON");
    for (name, value) in answer.as_object().expect("an object") {
        assert_eq!(&block[name], value, "{name}");
    }
}

#[test]
fn a_problem_lists_its_errors_with_their_pointers() {
    let errors = [Violation::new("/payload/a~1b", "must be \"x\"")];
    let mut problem = ProblemDetails {
        r#type: "about:blank",
        title: "Bad Request",
        status: 400,
        detail: "d",
        code: "PAYLOAD_INVALID",
        step: None,
        steps: &[],
        request_id: "r",
        errors: &errors,
    };
    assert_eq!(
        text(&problem.encode()),
        concat!(
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"d","code":"PAYLOAD_INVALID","#,
            r#""request_id":"r","errors":[{"pointer":"/payload/a~1b","message":"must be \"x\""}]}"#
        )
    );
    problem.errors = &[];
    assert!(!text(&problem.encode()).contains("errors"));
}

#[test]
fn a_problem_names_the_step_that_led_to_it_beside_all_steps() {
    let step = FailedStep {
        plugin: "p".into(),
        binding: "b".into(),
        site: Point::BeforeToolCall.into(),
        reason: Reason::BreakerOpen,
    };
    let problem = ProblemDetails {
        r#type: "about:blank",
        title: "Service Unavailable",
        status: 503,
        detail: "d",
        code: "PLUGIN_UNAVAILABLE",
        step: Some(&step),
        steps: &full().steps,
        request_id: "r",
        errors: &[],
    };
    let body = problem.encode();
    crate::json::scan(&body, 64).expect("no key stands twice");
    let (body, answer) = (text(&body), encode(&full()));
    let told = r#""code":"PLUGIN_UNAVAILABLE","plugin":"p","binding":"b","point":"before_tool_call","reason":"breaker_open","steps":"#;
    assert!(body.contains(told), "{body}");
    let (_, steps) = text(&answer).split_once(r#""steps":"#).expect("an answer has steps");
    let (steps, _) = steps.split_once(r#","plan_digest""#).expect("they end");
    assert!(body.ends_with(&format!(r#""steps":{steps},"request_id":"r"}}"#)), "as in an answer: {body}");
}

#[test]
fn outcomes_and_reasons_have_the_names_of_the_step_vocabulary() {
    let written = |outcome: gateway::StepOutcome, reason: gateway::StepReason| {
        let step = gateway::Step { outcome: outcome.into(), reason: reason.into(), ..Default::default() };
        let answer = gateway::BeforeResponseResponse { steps: vec![step], ..Default::default() };
        let read: Json = serde_json::from_slice(&encode(&answer)).expect("JSON");
        read["steps"][0].clone()
    };
    // 0 is the unspecified value of both.
    for (number, outcome) in (1..).zip(StepOutcome::ALL) {
        let proto = gateway::StepOutcome::try_from(number).expect("one for each");
        assert_eq!(written(proto, gateway::StepReason::Unspecified)["outcome"], outcome.as_str());
    }
    for (number, reason) in (1..).zip(Reason::ALL) {
        let proto = gateway::StepReason::try_from(number).expect("one for each");
        assert_eq!(written(gateway::StepOutcome::Failed, proto)["reason"], reason.as_str());
    }
}

/// The fields of a message, as the contract declares them.
fn declared(message: &str) -> Vec<String> {
    let (package, name) = message.rsplit_once('.').expect("a full name");
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("descriptors");
    let file = set.file.iter().filter(|file| file.package() == package);
    let found = file.flat_map(|file| &file.message_type).find(|found| found.name() == name).expect(message);
    found.field.iter().map(|field| field.name().to_owned()).collect()
}

#[test]
fn the_members_are_those_of_the_contract() {
    fn assert_members<M: JsonMessage>(message: &str) {
        assert_eq!(M::MEMBERS, declared(message), "{message}");
    }
    assert_members::<gateway::BeforeLlmRequestRequest>("hookgate.gateway.v1.BeforeLlmRequestRequest");
    assert_members::<gateway::BeforeToolCallRequest>("hookgate.gateway.v1.BeforeToolCallRequest");
    assert_members::<gateway::AfterToolResultRequest>("hookgate.gateway.v1.AfterToolResultRequest");
    assert_members::<gateway::BeforeResponseRequest>("hookgate.gateway.v1.BeforeResponseRequest");
    assert_members::<gateway::RequestContext>("hookgate.gateway.v1.RequestContext");
    assert_members::<types::BeforeLlmRequestPayload>("hookgate.types.v1.BeforeLlmRequestPayload");
    assert_members::<types::BeforeToolCallPayload>("hookgate.types.v1.BeforeToolCallPayload");
    assert_members::<types::AfterToolResultPayload>("hookgate.types.v1.AfterToolResultPayload");
    assert_members::<types::BeforeResponsePayload>("hookgate.types.v1.BeforeResponsePayload");
    assert_members::<types::TokenUsage>("hookgate.types.v1.TokenUsage");
    assert_members::<types::Media>("hookgate.types.v1.Media");
    assert_members::<plugin::Cancel>("hookgate.plugin.v1.Cancel");
    assert_members::<plugin::BeforeToolCallResponse>("hookgate.plugin.v1.BeforeToolCallResponse");
    assert_members::<plugin::OnHookResponse>("hookgate.plugin.v1.OnHookResponse");
    assert_members::<types::Contribution>("hookgate.types.v1.Contribution");
    assert_members::<types::Notice>("hookgate.types.v1.Notice");
    assert_members::<types::BeforeLlmRequestPatch>("hookgate.types.v1.BeforeLlmRequestPatch");
    assert_members::<types::BeforeToolCallPatch>("hookgate.types.v1.BeforeToolCallPatch");
    assert_members::<types::AfterToolResultPatch>("hookgate.types.v1.AfterToolResultPatch");
    assert_members::<types::BeforeResponsePatch>("hookgate.types.v1.BeforeResponsePatch");

    // A serde_json map is sorted; the order of the members is compared above.
    let answer: Json = serde_json::from_slice(&encode(&full())).expect("JSON");
    for (value, message) in [
        (&answer, "hookgate.gateway.v1.BeforeToolCallResponse"),
        (&answer["block"], "hookgate.gateway.v1.Block"),
        (&answer["notices"][0], "hookgate.gateway.v1.PluginNotice"),
        (&answer["steps"][0], "hookgate.gateway.v1.Step"),
    ] {
        let mut declared = declared(message);
        declared.sort();
        let mut written: Vec<_> = value.as_object().expect(message).keys().cloned().collect();
        written.sort();
        assert_eq!(written, declared, "{message}");
    }
}
