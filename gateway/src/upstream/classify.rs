//! Classifies a failed exchange: the reason that the step reports, and what it says about the endpoint.

use crate::core::step::Reason;
use crate::{
    core::failure::Failure,
    upstream::{
        breakers::CallClass, call_guard::CallGuard, codec::ExchangeError, ready_connection::ReadyConnection,
    },
};

/// The step's reason for an exchange that is not retried. Also records the failure at the endpoint.
pub(super) fn failed(
    error: &ExchangeError,
    live: &ReadyConnection,
    ticket: CallGuard,
    whole: bool,
) -> Failure {
    let failure = failure(error, live);
    ticket.judge(class(error, &failure, live, whole));
    failure
}

/// What a failed call says about its endpoint (docs/protocol.md, section 6, breaker). `whole` is true if the
/// call had its step's entire timeout; a call that timed out with less says nothing.
fn class(error: &ExchangeError, failure: &Failure, live: &ReadyConnection, whole: bool) -> CallClass {
    use tonic::Code;
    match (failure.reason, failure.status) {
        (Reason::Timeout, _) | (Reason::RpcError, Some(Code::DeadlineExceeded)) if !whole => {
            CallClass::Unknown
        }
        _ if error.is_of_connection() && !live.connection.is_in_process() => CallClass::ConnectionFailure,
        _ if matches!(error, ExchangeError::StreamRefused) => CallClass::NoAnswer,
        (Reason::RpcError, Some(code)) => match code {
            Code::Unavailable | Code::Internal | Code::Unknown | Code::DeadlineExceeded => {
                CallClass::CallFailure
            }
            Code::Cancelled => CallClass::Unknown,
            // The endpoint answered: the call was at fault.
            _ => CallClass::Success,
        },
        (Reason::Timeout, _) => CallClass::NoAnswer,
        (Reason::BadReply, _) => CallClass::CallFailure,
        (Reason::TooLarge, _) => CallClass::Success,
        _ => CallClass::Unknown,
    }
}

/// The reason for a failed exchange.
pub(super) const fn reason(error: &ExchangeError) -> Reason {
    match error {
        ExchangeError::Unsent(_) => Reason::Unreachable,
        ExchangeError::StreamRefused | ExchangeError::Status(_) | ExchangeError::Lost(_) => Reason::RpcError,
        ExchangeError::BadReply(_) => Reason::BadReply,
        ExchangeError::TooLarge(_) => Reason::TooLarge,
        ExchangeError::TimedOut => Reason::Timeout,
    }
}

/// What a step reports of an exchange that is not retried.
fn failure(error: &ExchangeError, live: &ReadyConnection) -> Failure {
    let status = match error {
        ExchangeError::Status(status) => Some(status.code()),
        // As gRPC defines it: the plugin may or may not have seen the call.
        ExchangeError::StreamRefused | ExchangeError::Lost(_) => Some(tonic::Code::Unavailable),
        _ => None,
    };
    let ran_out = matches!(error, ExchangeError::TimedOut);
    Failure { reason: reason(error), status, ran_out, detail: live.config.shown_error(error) }
}
