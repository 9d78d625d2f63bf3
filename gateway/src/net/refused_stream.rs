//! What HTTP/2 says of a request that the other side has not looked at (RFC 9113, section 8.7).

/// Whether the other side has not looked at the request that ended with this error: it refused the stream, or sent a graceful GOAWAY. Only
/// requests beyond its last accepted stream end with the latter (section 6.8).
pub(crate) fn is_stream_refused(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    let is_goaway = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (is_refused || is_goaway)
}
