//! Checks with payloads that an agent may send and a plugin may not expect.

use std::time::Duration;

use tonic::Code;

use crate::conformance::{
    check::{CheckVerdict, Fault},
    sample::{SampleCall, SampleContent, limits},
    session::Session,
};
use hookgate::{
    json,
    upstream::{Rpc, TrialError},
};

/// The longest timeout of a step.
const MAX_STEP: Duration = Duration::from_secs(60);
/// The first integer that a double can't hold, and the double next to it.
const EXACT_INTEGER: &str = "9007199254740993";
const ROUNDED_INTEGER: &[u8] = b"9007199254740992";

/// The shortest values.
pub(super) async fn empty(session: &mut Session) -> CheckVerdict {
    all(session, &empty_contents(), "an empty payload").await
}

fn empty_contents() -> [SampleContent; 5] {
    ["null", "{}", "[]", r#""""#, "0"].map(|value| SampleContent {
        text: String::new(),
        tool: "t".into(),
        value: value.into(),
    })
}

/// JSON as deep as it may be.
pub(super) async fn nested(session: &mut Session) -> CheckVerdict {
    all(session, &[SampleContent::with_value(nested_value())], "JSON of 64 levels").await
}

/// One level less, because `extra` adds one.
fn nested_value() -> String {
    let levels = json::MAX_DEPTH - 1;
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// Text with any Unicode character: NUL, right to left, combining, outside the basic plane, no character at all.
const ODD_TEXT: &str =
    "a\u{0}b \u{1b}[31m \u{202e}abc \u{2028} e\u{301} 👩‍👩‍👧 \u{feff} \u{ffff} \u{10ffff} %s {} ' \" \\ \n\r\t";

pub(super) async fn unicode(session: &mut Session) -> CheckVerdict {
    all(session, &[odd_content()], "text with unusual characters").await
}

fn odd_content() -> SampleContent {
    let value = serde_json::Value::from(ODD_TEXT).to_string();
    SampleContent { text: ODD_TEXT.into(), value, ..SampleContent::ordinary() }
}

/// Numbers that not every parser keeps. A patch must not round them.
pub(super) async fn numbers(session: &mut Session) -> CheckVerdict {
    let event = "numbers beyond 2^53";
    for sample in samples(session, &[SampleContent::with_value(large_numbers())]) {
        let reply = usable(session, &sample, session.timeout, event).await?;
        if reply.windows(ROUNDED_INTEGER.len()).any(|part| part == ROUNDED_INTEGER) {
            return Err(Fault::new(
                format!("a patch with the integer {EXACT_INTEGER} as it was, or none"),
                "a patch with 9007199254740992",
                "parse JSON without converting integers to doubles, and patch only fields that change",
            )
            .into());
        }
    }
    Ok(())
}

fn large_numbers() -> String {
    format!(
        r#"{{"exact":{EXACT_INTEGER},"u64":18446744073709551615,"large":123456789012345678901234567890,"min":-9223372036854775809,"zero":-0.0,"double":1.7976931348623157e308}}"#
    )
}

/// The largest request that a gateway can be configured to accept.
pub(super) async fn large(session: &mut Session) -> CheckVerdict {
    let event = "a request of 16 MiB";
    let fix = "raise the receive limit of the gRPC library to 17 MiB, `max_call_bytes` of Initialize";
    for sample in samples(session, &[large_content()]) {
        let reply = usable(session, &sample, MAX_STEP, event).await;
        reply.map_err(|fault| Fault { fix: fix.into(), ..fault })?;
    }
    session.still_answers().await.map_err(|fault| fault.after(event).into())
}

/// `extra` repeats the value, so both are half of the request.
fn large_content() -> SampleContent {
    let words = |bytes: usize| "some words of a long text. ".chars().cycle().take(bytes).collect::<String>();
    let half = limits().request.in_memory() / 2 - 1024;
    SampleContent { text: words(half), tool: "fs.read".into(), value: format!(r#""{}""#, words(half)) }
}

/// Each content at each point and hook, and afterwards an ordinary call.
async fn all(session: &Session, contents: &[SampleContent], event: &str) -> CheckVerdict {
    for sample in samples(session, contents) {
        usable(session, &sample, session.timeout, event).await?;
    }
    session.still_answers().await.map_err(|fault| fault.after(event).into())
}

fn samples<'a>(session: &'a Session, contents: &'a [SampleContent]) -> impl Iterator<Item = SampleCall> + 'a {
    session
        .sites
        .iter()
        .flat_map(move |site| contents.iter().map(move |content| SampleCall::with_all(site, content)))
}

/// Makes a call that must get a valid reply, or INVALID_ARGUMENT. Returns the reply, which is then empty.
async fn usable(
    session: &Session,
    sample: &SampleCall,
    limit: Duration,
    event: &str,
) -> Result<bytes::Bytes, Fault> {
    let message = sample.request(&session.call(&session.digest(), limit), session.reads(&sample.site));
    let connection = session.connection()?;
    let reply = connection.call(Rpc::at(&sample.site), &message, limit).await;
    if matches!(&reply, Err(TrialError::Status { code: Code::InvalidArgument, .. })) {
        return Ok(bytes::Bytes::new());
    }
    let is_status = matches!(&reply, Err(TrialError::Status { .. }));
    session.judged(sample, reply).map_err(|fault| {
        let fix = if is_status && sample.site.hook().is_some() {
            "contribute nothing, or answer INVALID_ARGUMENT; other statuses count against the plugin, so that one agent \
             could make it unavailable"
                .into()
        } else if is_status {
            "cancel, or answer INVALID_ARGUMENT; other statuses count against the plugin, so that one agent could \
             make it unavailable"
                .into()
        } else {
            fault.fix.clone()
        };
        Fault { fix, ..fault.after(event) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hookgate::{
        core::{call_site::CallSite, point::Point},
        json::scan,
    };
    use hookgate_proto::{HookName, plugin::v1::Call};

    #[test]
    fn agents_may_send_every_payload_at_every_point_and_hook() {
        let mut contents = Vec::from(empty_contents());
        contents.extend([nested_value(), large_numbers()].map(SampleContent::with_value));
        contents.extend([odd_content(), large_content(), SampleContent::ordinary()]);
        let hooks = ["recall", "turn_end", "my_hook"];
        let hooks = hooks.map(|hook| CallSite::Hook(HookName::new(hook).expect("it is the name of a hook")));
        for site in Point::ALL.map(CallSite::Point).into_iter().chain(hooks) {
            for content in &contents {
                // It panics for a payload that a gateway would refuse.
                let size = SampleCall::with_all(&site, content).request(&Call::default(), None).len();
                assert!(size <= limits().request.in_memory(), "{site}: {size} bytes");
            }
        }
    }

    #[test]
    fn nested_value_is_as_deep_as_agents_may_send_it() {
        let extra = format!("{{\"sample\":{}}}", nested_value());
        assert!(scan(extra.as_bytes(), json::MAX_DEPTH).is_ok());
        assert!(scan(format!("[{extra}]").as_bytes(), json::MAX_DEPTH).is_err());
    }
}
