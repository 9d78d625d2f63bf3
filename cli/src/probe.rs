//! `hookgate probe`: checks the ops port, for containers without a shell or curl.

use std::time::Duration;

use http::Method;

use crate::{Exit, client, output::printable};
use hookgate::config::Span;

/// Time limit of a probe, including connecting.
const PROBE_TIMEOUT: Span = Span(Duration::from_secs(3));
/// Most characters of an answer that are shown.
const MAX_SHOWN_CHARS: usize = 200;

pub(super) async fn run(address: &str, live: bool) -> Exit {
    let path = if live { "/livez" } else { "/readyz" };
    let asker = match client::ops(address, PROBE_TIMEOUT) {
        Ok(asker) => asker,
        Err(wrong) => return Exit::usage(wrong),
    };
    match asker.send(Method::GET, path, None).await {
        Ok(answer) if answer.status == 200 => Exit::ok(),
        Ok(answer) => {
            let first = printable(answer.text.lines().next().unwrap_or_default());
            let said: String = first.chars().take(MAX_SHOWN_CHARS).collect();
            let said = format!("{}{path} answers {}: {said}", asker.base(), answer.status);
            // Only an ops port answers that it is not ready.
            Exit::failure(if answer.status == 503 { said } else { format!("{said}; {}", asker.remedy()) })
        }
        Err(unanswered) => Exit::failure(unanswered),
    }
}
