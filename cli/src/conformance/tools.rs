//! Checks of the tools that a plugin provides.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use hookgate_proto::{
    plugin::v1::{BeforeToolCallRequest, Call},
    types::v1::{BeforeToolCallPayload, Tool},
};
use prost::Message as _;
use tonic::Code;

use crate::conformance::{
    check::{CheckVerdict, Fault},
    digests, sample,
    session::Session,
};
use hookgate::{
    core::{call_site::CallSite, manifest::Access, point::Point},
    invoke::{
        BeforeToolCall, ReplyLimits,
        reply::{self, Grant},
    },
    upstream::{Rpc, TrialConnection, TrialError},
};

/// A tool that no plugin provides.
const OTHER_TOOL: &str = "tool.of.hookgate-conformance";

/// The answer to Initialize has valid tools, and the same ones each time. A call with `run_tool` is an error for a tool that
/// the plugin doesn't provide; for its own, it gives a result or a refusal. Tools may have effects: only those with
/// `read_only_hint` are called, with the arguments `{}`.
pub(super) async fn tools(session: &mut Session) -> CheckVerdict {
    let Some(manifest) = session.manifest.clone() else { return Ok(()) };
    session.trial.accept_tools(&manifest, session.tools.clone()).map_err(|got| {
        let fix = "correct `tools` in the answer to Initialize, or its globs in the answer to Describe";
        Fault::new("tools in the answer to Initialize that a gateway accepts", got, fix)
    })?;
    if manifest.tool_names.is_empty() {
        return Ok(());
    }
    same_tools(session).await?;
    runs_no_other(session, &session.digest()).await?;
    for tool in session.tools.iter().filter(|tool| is_read_only(tool)) {
        runs(session, &tool.name).await?;
    }
    session.answers_tools = true;
    Ok(())
}

fn is_read_only(tool: &Tool) -> bool {
    tool.annotations.as_ref().is_some_and(|annotations| annotations.read_only_hint())
}

/// A second Initialize is answered with the same tools, in whichever order.
async fn same_tools(session: &Session) -> Result<(), Fault> {
    let fault = |got: String| {
        let expected = "the same tools in the answer to a second Initialize with the same configuration";
        Fault::new(expected, got, "let the configuration alone decide which tools there are")
    };
    let (connection, request) = (session.connection()?, digests::initialize_request(session));
    let again = session.initialize(&connection, &request).await.map_err(|error| fault(error.to_string()))?;
    difference(&session.tools, &again.tools).map_or(Ok(()), |got| Err(fault(got)))
}

/// The first tool, by name, in which two answers to Initialize differ.
fn difference(first: &[Tool], second: &[Tool]) -> Option<String> {
    let by_name = |tools: &[Tool]| -> BTreeMap<_, _> {
        tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect()
    };
    let (first, second) = (by_name(first), by_name(second));
    let name = first.keys().chain(second.keys()).find(|name| first.get(*name) != second.get(*name))?;
    Some(match (first.contains_key(name), second.contains_key(name)) {
        (true, true) => format!("another definition of `{name}`"),
        (true, false) => format!("an answer without `{name}`"),
        (false, _) => format!("an answer that adds `{name}`"),
    })
}

/// The plugin has the configuration of `digest`, and answers the call of another tool with an error.
pub(super) async fn runs_no_other(session: &Session, digest: &str) -> Result<(), Fault> {
    let connection = session.connection()?;
    let (got, fix) = match run_other(session, &connection, digest).await {
        Err(TrialError::Status { .. }) => return Ok(()),
        Err(error) => (error.to_string(), remedy(&error)),
        Ok(reply) => (
            described(OTHER_TOOL, reply),
            "look the tool up by its name, and answer NOT_FOUND if there is none",
        ),
    };
    let expected =
        format!("an error for a call with `run_tool` of `{OTHER_TOOL}`, which the plugin doesn't provide");
    Err(Fault::new(expected, got, fix))
}

/// The plugin runs its own `tool`.
async fn runs(session: &Session, tool: &str) -> Result<(), Fault> {
    let connection = session.connection()?;
    let (got, fix) = match run(session, &connection, tool, &session.digest()).await {
        Err(TrialError::Status { code: Code::InvalidArgument, .. }) => return Ok(()),
        Err(error) => (error.to_string(), remedy(&error)),
        Ok(reply) => match verdict(tool, reply) {
            Ok(Verdict::Cancel) => return Ok(()),
            Ok(Verdict::Continue) => (
                "continue".into(),
                "run the tool if `run_tool` is set, and answer with a cancel and its `result`",
            ),
            Err(flaw) => {
                (format!("a reply that a gateway refuses: {flaw}"), "build the cancel as section 3 says")
            }
        },
    };
    let expected = format!("a cancel with the result or a refusal for a call with `run_tool` of `{tool}`");
    Err(Fault::new(expected, got, fix))
}

/// A call that is to run a tool that the plugin doesn't provide: it has no effects.
pub(super) async fn run_other(
    session: &Session,
    connection: &TrialConnection,
    digest: &str,
) -> Result<Bytes, TrialError> {
    run(session, connection, OTHER_TOOL, digest).await
}

async fn run(
    session: &Session,
    connection: &TrialConnection,
    tool: &str,
    digest: &str,
) -> Result<Bytes, TrialError> {
    let call = Call { run_tool: true, ..session.call(digest, session.timeout) };
    let request = BeforeToolCallRequest { call: Some(call), payload: Some(payload(tool)) };
    let rpc = Rpc::at(&CallSite::Point(Point::BeforeToolCall));
    connection.call(rpc, &request.encode_to_vec(), session.timeout).await
}

fn payload(tool: &str) -> BeforeToolCallPayload {
    BeforeToolCallPayload { tool_name: tool.to_owned(), args: "{}".into(), ..Default::default() }
}

enum Verdict {
    Continue,
    Cancel,
}

/// Reads the reply to a call of `tool` as a gateway does.
///
/// # Errors
/// What a gateway refuses or drops.
fn verdict(tool: &str, reply: Bytes) -> Result<Verdict, String> {
    // A gateway ignores its patch.
    let grant = Grant { access: Access::Modify, writable: None };
    let limits = ReplyLimits::from_limits(&sample::limits());
    let site = CallSite::Point(Point::BeforeToolCall);
    match reply::read::<BeforeToolCall>(reply, &site, &Arc::new(payload(tool)), grant, &limits) {
        Err(error) => Err(format!("{}: {}", error.reason.as_str(), error.detail)),
        Ok(said) if said.sanitised > 0 => {
            Err("a cancel with an invalid result, code, message, patch or notice, which a gateway drops"
                .into())
        }
        Ok(said) if said.cancel.is_some() => Ok(Verdict::Cancel),
        Ok(_) => Ok(Verdict::Continue),
    }
}

/// The reply to a call of `tool`, in words.
fn described(tool: &str, reply: Bytes) -> String {
    match verdict(tool, reply) {
        Ok(Verdict::Continue) => "continue".into(),
        Ok(Verdict::Cancel) => "a cancel".into(),
        Err(flaw) => format!("a reply that a gateway refuses: {flaw}"),
    }
}

/// What the plugin's author can do about a call of a tool without a reply.
fn remedy(error: &TrialError) -> &'static str {
    match error {
        TrialError::NotInitialized => {
            "keep the instance of a digest until each gateway that initialised it sends Release or Shutdown"
        }
        TrialError::Status { .. } => {
            "see the plugin's log; answer arguments that don't fit with a refusal or INVALID_ARGUMENT"
        }
        TrialError::Lost(_) => {
            "see the plugin's log for a crash; no call may end the process or the connection"
        }
        TrialError::BadReply(_) => "answer with one uncompressed message and the status OK",
        TrialError::TimedOut(_) => "answer faster, or raise --timeout and the binding's `timeout`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_differ_by_name_and_content_but_not_by_order() {
        let tool = |name: &str, description: &str| Tool {
            name: name.into(),
            description: description.into(),
            ..Default::default()
        };
        let both = [tool("a", "Reads."), tool("b", "Writes.")];
        assert_eq!(difference(&both, &[both[1].clone(), both[0].clone()]), None);
        let got = |second: &[Tool]| difference(&both, second).expect("they differ");
        assert_eq!(got(&both[..1]), "an answer without `b`");
        assert_eq!(got(&[both[0].clone(), tool("b", "Deletes.")]), "another definition of `b`");
        let more = [&both[..], &[tool("c", "Waits.")]].concat();
        assert_eq!(got(&more), "an answer that adds `c`");
    }
}
