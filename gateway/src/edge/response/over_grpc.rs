//! The gRPC parts of an answer: frames, trailers, and an error as a status. Knows nothing of chains.

use std::{collections::HashMap, convert::Infallible};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use hookgate_proto::gateway::v1 as wire;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::StreamBody;
use prost::Message;
use prost_types::Any;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt, pb::Status as RpcStatus};

use super::{sentence, steps::behind, timing_headers};
use crate::{
    config::Detail,
    core::error::{Code, Error, FailedStep},
    edge::request_meta::RequestMeta,
    grpc::framing::frame,
    invoke::StepReport,
    net::tracked_body,
};

/// Domain of our ErrorInfo.
pub(super) const ERROR_DOMAIN: &str = "hookgate";
/// Type of the detail that holds the steps of a chain.
const CHAIN_REPORT_TYPE: &str = "type.googleapis.com/hookgate.gateway.v1.ChainReport";
/// The most bytes of violations, of steps, and of the message. A gRPC error travels in headers, and clients
/// accept 8 KiB of them (gRPC core's default), including base64 and the escapes of a message. An error from a
/// step has no violations.
const MAX_GRPC_VIOLATION_BYTES: usize = 3 << 10;
const MAX_GRPC_STEP_BYTES: usize = 3 << 9;
const MAX_GRPC_SENTENCE_BYTES: usize = 512;

/// The gRPC answer to a request that isn't a call of ours.
pub fn grpc_refusal(arrival: &RequestMeta, error: &Error, detail: Detail) -> Response<Body> {
    let mut answer = grpc_error(error, &[], detail);
    answer.headers_mut().extend(timing_headers(arrival, &[], detail));
    answer
}

/// The gRPC answer to an authenticated request, encoded with [`frame`]. Here NOT_FOUND keeps the status of
/// the table: the method exists, but its object doesn't.
pub fn grpc_asked(arrival: &RequestMeta, asked: Result<Bytes, Error>) -> Response<Body> {
    let mut answer = match asked {
        Ok(frame) => grpc_frame(frame),
        Err(error) => status_of(&error, error.code.grpc(), &[], Detail::Full).into_http(),
    };
    answer.headers_mut().extend(timing_headers(arrival, &[], Detail::Full));
    answer
}

pub(super) fn grpc_message(message: &impl Message) -> Response<Body> {
    grpc_frame(frame(message))
}

/// A streaming gRPC answer. `frames` end with a [`grpc_end`].
pub fn grpc_events(arrival: &RequestMeta, frames: Body) -> Response<Body> {
    let mut answer = grpc_body(frames);
    answer.headers_mut().extend(timing_headers(arrival, &[], Detail::Full));
    tracked_body::goes_on(&mut answer);
    answer
}

/// The last frame of a streaming answer.
pub fn grpc_end(error: &Error) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    let status = status_of(error, error.code.grpc(), &[], Detail::Full);
    if status.add_header(&mut trailers).is_err() {
        // This status has no message that a header could not hold.
        trailers.insert("grpc-status", HeaderValue::from(i32::from(status.code())));
    }
    Frame::trailers(trailers)
}

fn grpc_frame(frame: Bytes) -> Response<Body> {
    let trailers =
        HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    // Frames rather than a body of known size: gRPC answers carry no content-length.
    let frames = [Frame::data(frame), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
    grpc_body(Body::new(StreamBody::new(stream::iter(frames))))
}

fn grpc_body(frames: Body) -> Response<Body> {
    let mut answer = Response::new(frames);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}

pub(super) fn grpc_error(error: &Error, steps: &[StepReport], detail: Detail) -> Response<Body> {
    status_of(error, grpc_status(error.code), steps, detail).into_http()
}

fn status_of(error: &Error, status: tonic::Code, steps: &[StepReport], detail: Detail) -> Status {
    let chain = behind(error, steps, detail);
    let metadata = chain.as_ref().map_or_else(HashMap::new, |(failed, _)| metadata(failed));
    let mut details = ErrorDetails::with_error_info(error.code.as_str(), ERROR_DOMAIN, metadata);
    if error.retry_after.is_some() {
        details.set_retry_info(error.retry_after);
    }
    let mut left = MAX_GRPC_VIOLATION_BYTES;
    for violation in &error.violations {
        let size = violation.pointer.len() + violation.message.len();
        let Some(rest) = left.checked_sub(size) else { break };
        left = rest;
        details.add_bad_request_violation(&violation.pointer, &violation.message);
    }
    let sentence = sentence(error, detail);
    let sentence = &sentence[..sentence.floor_char_boundary(MAX_GRPC_SENTENCE_BYTES)];
    let status = Status::with_error_details(status, sentence, details);
    match chain {
        Some((_, steps)) => with_report(&status, &chain_report(steps)),
        None => status,
    }
}

/// The step in ErrorInfo. The `reason` of ErrorInfo is the error's code, so the step's reason has another
/// name (docs/decisions/0043).
fn metadata(failed: &FailedStep) -> HashMap<String, String> {
    let members = [
        ("plugin", &*failed.plugin),
        ("binding", &*failed.binding),
        (if failed.site.hook().is_some() { "hook" } else { "point" }, failed.site.as_str()),
        ("step_reason", failed.reason.as_str()),
    ];
    members.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The steps, as many as fit. The last ones are kept, because they are nearest to the failure.
fn chain_report(mut steps: Vec<wire::Step>) -> wire::ChainReport {
    let mut left = MAX_GRPC_STEP_BYTES;
    let fits = |step: &&wire::Step| {
        let size = step.encoded_len() + 3; // with its tag and its length
        left.checked_sub(size).map(|rest| left = rest).is_some()
    };
    let omitted = steps.len() - steps.iter().rev().take_while(fits).count();
    steps.drain(..omitted);
    wire::ChainReport { steps, omitted_steps: u32::try_from(omitted).unwrap_or(u32::MAX) }
}

/// `status` with another detail, which `ErrorDetails` doesn't support.
fn with_report(status: &Status, report: &wire::ChainReport) -> Status {
    let report = Any { type_url: CHAIN_REPORT_TYPE.into(), value: report.encode_to_vec() };
    let report = RpcStatus { details: vec![report], ..RpcStatus::default() };
    // Two concatenated encoded messages are one message, in which the second's details follow the first's.
    let details = [status.details(), &report.encode_to_vec()].concat();
    Status::with_details(status.code(), status.message(), details.into())
}

/// gRPC uses UNIMPLEMENTED for unknown methods, and its tools probe for it. So an unknown method gets that
/// status, with the reason NOT_FOUND (docs/decisions/0002).
fn grpc_status(code: Code) -> tonic::Code {
    match code {
        Code::NotFound => tonic::Code::Unimplemented,
        other => other.grpc(),
    }
}
