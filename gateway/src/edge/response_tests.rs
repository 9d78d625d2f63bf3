//! A block is never an error and an error never a block, whatever a plugin or a step did.

use crate::core::block_status::FIXED_BLOCK_STATUSES;
use std::{sync::Arc, time::Duration};

use hookgate_proto::types::v1::{BeforeToolCallPayload, CancelScope};
use proptest::{prelude::*, sample::select};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Status;
use tonic_types::{StatusExt as _, pb::Status as RpcStatus};

use super::{over_grpc::ERROR_DOMAIN, *};
use crate::{
    core::{
        error::{FailedStep, Violation},
        point::Point,
        step::{Mode, Reason, StepOutcome},
    },
    edge::admission::CallPermits,
    invoke::BeforeToolCall,
};

fn report(plugin: &str, outcome: StepOutcome) -> StepReport {
    StepReport {
        plugin: plugin.into(),
        binding: "floor".into(),
        mode: Mode::Enforce,
        outcome,
        reason: None,
        duration: Duration::from_millis(3),
        added: Duration::from_millis(3),
        queue: Duration::from_millis(1),
        sanitised: 0,
        would_block: None,
        failed_open: false,
        changed: Vec::new(),
    }
}

fn ended(result: Result<ChainDecision, Error>) -> InvocationResult<BeforeToolCall> {
    let report = report("guard", StepOutcome::Cancelled);
    let ended = ChainOutcome {
        result,
        payload: Arc::new(BeforeToolCallPayload::default()),
        modified: false,
        contributions: Vec::new(),
        notices: Vec::new(),
        steps: vec![report],
        changes: Vec::new(),
        consumed: None,
        plan_digest: "0".into(),
        revision: 1,
    };
    InvocationResult {
        arrival: RequestMeta::now(),
        result: Ok(ended),
        detail: Detail::Full,
        statuses: Arc::default(),
        permits: CallPermits::default(),
    }
}

fn block(code: &str, retry_after_ms: Option<u64>) -> Block {
    Block {
        plugin: "guard".into(),
        binding: "floor".into(),
        code: code.into(),
        message: "no".into(),
        retry_after_ms,
        scope: CancelScope::Step,
    }
}

fn error(code: Code) -> Error {
    let step = FailedStep {
        plugin: "guard".into(),
        binding: "floor".into(),
        site: Point::BeforeToolCall.into(),
        reason: Reason::BadReply,
    };
    Error { step: Some(Box::new(step)), ..Error::new(code, "Plugin 'guard' failed: why") }
}

/// A gRPC status that is entirely in the headers.
fn status_of(answer: &Response<Body>) -> Status {
    Status::from_header_map(answer.headers()).expect("an error is all in the headers")
}

fn chain_report(status: &Status) -> Option<wire::ChainReport> {
    let details = RpcStatus::decode(status.details()).expect("details are a google.rpc.Status").details;
    let report =
        details.into_iter().find(|any| any.type_url.ends_with("/hookgate.gateway.v1.ChainReport"))?;
    Some(wire::ChainReport::decode(&*report.value).expect("it is one"))
}

/// Bytes of headers as HTTP/2 counts them.
fn header_bytes(answer: &Response<Body>) -> usize {
    answer.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

async fn body_of(answer: Response<Body>) -> Value {
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("it is all there");
    serde_json::from_slice(&body).expect("JSON")
}

fn decision(answer: &Response<Body>) -> Option<&str> {
    answer.headers().get(&DECISION).and_then(|value| value.to_str().ok())
}

/// Statuses that a configuration may set for codes that are not fixed.
fn statuses() -> impl Strategy<Value = BlockStatuses> {
    let of_all = prop::collection::btree_map("[A-Z_]{1,12}", 400..=499_u16, 0..4);
    let of_plugin = prop::collection::btree_map("[A-Z_]{1,12}", 400..=499_u16, 0..4);
    (of_all, of_plugin)
        .prop_map(|(of_all, guard)| BlockStatuses { of_all, of_plugin: [("guard".to_owned(), guard)].into() })
}

proptest! {
    #[test]
    fn a_block_is_a_decision_with_a_status_of_the_callers(
        code in prop_oneof![
            "[A-Za-z][A-Za-z0-9_.:-]{0,63}",
            select(FIXED_BLOCK_STATUSES).prop_map(|(code, _)| code.to_owned()),
        ],
        statuses in statuses(),
        retry in proptest::option::of(any::<u64>()),
    ) {
        let block = block(&code, retry);
        let blocked = ended(Ok(ChainDecision::Block(block.clone())));
        let answer = http(InvocationResult { statuses: Arc::new(statuses), ..blocked });
        prop_assert_eq!(decision(&answer), Some("block"));
        prop_assert!(answer.status().is_client_error());
        prop_assert_eq!(answer.headers().contains_key(header::RETRY_AFTER), retry.is_some());
        let challenge = answer.headers().get(header::WWW_AUTHENTICATE).map(|value| value.as_bytes());
        prop_assert_eq!(challenge.is_some(), answer.status() == StatusCode::UNAUTHORIZED);
        prop_assert!(challenge.is_none_or(|text| text.starts_with(b"Hookgate code=")));
        if let Some((_, fixed)) = FIXED_BLOCK_STATUSES.iter().find(|(fixed, _)| *fixed == code) {
            prop_assert_eq!(answer.status().as_u16(), *fixed, "no configuration changes it");
        }

        let answer = grpc(ended(Ok(ChainDecision::Block(block))));
        prop_assert!(!answer.headers().contains_key("grpc-status"), "OK comes in the trailers");
    }

    #[test]
    fn an_error_is_no_decision_and_carries_its_code(
        code in select(Code::ALL),
        retry in proptest::option::of(0..10_000_000_u64),
        detail in select(vec![Detail::Full, Detail::Minimal]),
        statuses in statuses(),
    ) {
        let error = || Error { retry_after: retry.map(Duration::from_millis), ..error(code) };
        let mut finished = ended(Err(error()));
        (finished.detail, finished.statuses) = (detail, Arc::new(statuses));
        let answer = http(finished);
        prop_assert_eq!(decision(&answer), None);
        prop_assert_eq!(answer.status().as_u16(), code.http());
        let seconds = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let seconds = seconds.map(|text| text.parse::<u64>().expect("whole seconds"));
        prop_assert_eq!(seconds, retry.map(|millis| millis.div_ceil(1000)));

        let mut finished = ended(Err(error()));
        finished.detail = detail;
        let answer = grpc(finished);
        prop_assert_eq!(decision(&answer), None);
        let status = status_of(&answer);
        prop_assert_ne!(status.code(), tonic::Code::Ok);
        let info = status.get_details_error_info().expect("every error has it");
        prop_assert_eq!((info.reason.as_str(), info.domain.as_str()), (code.as_str(), ERROR_DOMAIN));
        prop_assert_eq!(status.get_details_retry_info().is_some(), retry.is_some());
        let told = detail == Detail::Full;
        prop_assert_eq!((!info.metadata.is_empty(), chain_report(&status).is_some()), (told, told));
    }
}

proptest! {
    // few cases: each is tens of long texts
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_grpc_error_fits_into_the_headers_that_clients_take(
        violations in prop::collection::vec(("\\PC{0,200}", "\\PC{0,200}"), 0..40),
        detail in "\\PC{0,1000}",
    ) {
        let violations: Vec<_> =
            violations.into_iter().map(|(pointer, message)| Violation::new(pointer, message)).collect();
        let error = Error { violations, ..Error::new(Code::PayloadInvalid, detail) };
        let answer = grpc_refusal(&RequestMeta::now(), &error, Detail::Full);
        let size = header_bytes(&answer);
        prop_assert!(size <= 8 << 10, "{} bytes", size);
    }

    #[test]
    fn a_grpc_error_of_a_long_chain_keeps_the_last_steps_and_counts_the_others(
        names in prop::collection::vec("[A-Za-z][A-Za-z0-9_-]{0,63}", 1..300),
        detail in "\\PC{0,1000}",
        would_block in proptest::option::of("[A-Za-z]{64}"),
    ) {
        let steps: Vec<_> = names.iter().map(|name| {
            let step = report(name, StepOutcome::WouldBlock);
            let (binding, would_block) = (name.as_str().into(), would_block.clone());
            StepReport { binding, reason: Some(Reason::Timeout), would_block, ..step }
        }).collect();
        let last = &steps[steps.len() - 1];
        let failed = FailedStep {
            plugin: Arc::clone(&last.plugin),
            binding: Arc::clone(&last.binding),
            site: Point::BeforeToolCall.into(),
            reason: Reason::Timeout,
        };
        let error = Error { step: Some(Box::new(failed)), ..Error::new(Code::PluginTimeout, detail) };
        let mut finished = ended(Err(error));
        finished.result.as_mut().expect("it ended").steps = steps.clone();
        let answer = grpc(finished);
        let size = header_bytes(&answer);
        prop_assert!(size <= 7 << 10, "{} bytes", size);
        let report = chain_report(&status_of(&answer)).expect("a step led to it");
        let omitted = usize::try_from(report.omitted_steps).expect("there are few");
        prop_assert!(omitted == 0 || report.steps.len() >= 5, "{} of {}", report.steps.len(), steps.len());
        let kept: Vec<_> = steps[omitted..].iter().map(step_message).collect();
        prop_assert_eq!(report.steps, kept);
    }
}

#[tokio::test]
async fn an_error_over_http_has_every_step_of_a_long_chain() {
    let steps: Vec<_> = (0..300).map(|at| report(&format!("p{at}"), StepOutcome::Continued)).collect();
    let mut finished = ended(Err(error(Code::PluginBadReply)));
    finished.result.as_mut().expect("it ended").steps = steps;
    let answer = http(finished);
    assert!(header_bytes(&answer) <= 2 << 10, "{:?}", answer.headers());
    let body = body_of(answer).await;
    assert_eq!(body["steps"].as_array().map(Vec::len), Some(300));
    assert_eq!((&body["plugin"], &body["reason"]), (&json!("guard"), &json!("bad_reply")));
}

#[test]
fn no_code_is_both_a_blocks_and_an_errors() {
    for (code, status) in FIXED_BLOCK_STATUSES {
        assert!(!Code::is_reserved(code), "{code}");
        assert!((400..=499).contains(status), "{code}");
    }
    for code in Code::ALL {
        assert!(Code::is_reserved(code.as_str()));
        assert!((400..=599).contains(&code.http()), "{code}");
        assert_ne!(code.grpc(), tonic::Code::Ok, "{code}");
    }
}

#[test]
fn every_failed_step_is_an_error_of_the_plugins_side() {
    for reason in Reason::ALL {
        for status in [None, Some(tonic::Code::Unavailable), Some(tonic::Code::PermissionDenied)] {
            let code = Code::for_step(*reason, status);
            assert!(code.http() >= 500, "an outage never looks like a denial: {reason} is {code}");
        }
    }
}

#[test]
fn a_failed_step_shows_its_reason_only_at_full_detail() {
    let error = error(Code::PluginError);
    assert!(sentence(&error, Detail::Full).contains("guard"));
    assert_eq!(sentence(&error, Detail::Minimal), Code::PluginError.meaning());
}
