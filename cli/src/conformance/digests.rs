//! Checks of configuration digests: which of them a plugin knows, and for how long.

use hookgate_proto::plugin::v1::{InitializeRequest, ReleaseRequest, ReleaseResponse};
use prost::Message as _;
use tonic::Code;

use crate::conformance::{
    check::{CheckVerdict, Fault, Halt},
    sample::{SampleCall, SampleContent},
    session::{Session, unknown_digest},
    tools,
};
use hookgate::upstream::{Rpc, TrialError};

/// Configurations at the same time, besides the first.
const OTHER_DIGESTS: usize = 2;

/// A call with a digest that was never initialised is NOT_INITIALIZED, at each point and hook, and so is one of a tool.
pub(super) async fn unknown(session: &mut Session) -> CheckVerdict {
    if let Some(early) = session.early.clone() {
        not_initialized(early).map_err(|fault| fault.after("a call before any Initialize"))?;
    }
    let connection = session.connection()?;
    for site in session.offered_sites() {
        let sample = SampleCall::new(&site, &SampleContent::ordinary());
        for (digest, event) in [
            (unknown_digest(), format!("a call at {site} with a digest that was never initialised")),
            (String::new(), format!("a call at {site} with an empty digest")),
        ] {
            let reply = session.reply(&connection, &sample, &digest).await;
            not_initialized(reply.map(drop)).map_err(|fault| fault.after(&event))?;
        }
    }
    if session.provides_tools() {
        let reply = tools::run_other(session, &connection, &unknown_digest()).await;
        let event = "a call of a tool with a digest that was never initialised";
        not_initialized(reply.map(drop)).map_err(|fault| fault.after(event))?;
    }
    Ok(())
}

pub(super) fn not_initialized(reply: Result<(), TrialError>) -> Result<(), Fault> {
    let got = match reply {
        Err(TrialError::NotInitialized) => return Ok(()),
        Err(error) => error.to_string(),
        Ok(()) => "a reply with the status OK".into(),
    };
    Err(Fault::new(
        "FAILED_PRECONDITION with the trailing metadata `hookgate-reason: NOT_INITIALIZED`",
        got,
        "look up the instance by the call's `config_digest`, and never use another configuration instead",
    ))
}

/// Initialize is repeated: by this gateway, and by another with the same configuration.
pub(super) async fn again(session: &mut Session) -> CheckVerdict {
    let (connection, request) = (session.connection()?, initialize_request(session));
    for (request, who) in [(&request, "the same gateway"), (&of_other_gateway(&request), "another gateway")] {
        session.initialize(&connection, request).await.map_err(|error| {
            let fix = "accept Initialize for a digest that is known: keep the instance, or replace it";
            let expected = format!("the status OK for a second Initialize, from {who}");
            Fault::new(expected, error.to_string(), fix)
        })?;
    }
    let answers = session.still_answers().await;
    answers.map_err(|fault| fault.after("a second Initialize with the same digest").into())
}

/// Several configurations are in use at the same time, as during a reload.
pub(super) async fn several(session: &mut Session) -> CheckVerdict {
    let (connection, first) = (session.connection()?, initialize_request(session));
    let mut digests = vec![first.config_digest.clone()];
    for _ in 0..OTHER_DIGESTS {
        let request = InitializeRequest { config_digest: unknown_digest(), ..first.clone() };
        match session.initialize(&connection, &request).await {
            Ok(_) => digests.push(request.config_digest),
            // The configuration is the first one, so the digest is not its own.
            Err(TrialError::Status { code: Code::InvalidArgument, .. }) => {
                return Err(Halt::Skipped(
                    "the plugin verifies digests, and only one configuration is given".into(),
                ));
            }
            Err(error) => {
                let fix = "keep one instance per digest";
                let expected = "the status OK for Initialize with another digest";
                return Err(Fault::new(expected, error.to_string(), fix).into());
            }
        }
    }
    let mut answers = Ok(());
    for digest in &digests {
        if answers.is_ok() {
            answers = session.answers_with(digest).await;
        }
    }
    for digest in &digests[1..] {
        // Courtesy: the check of Release has its own.
        let _ = release(session, &first.gateway_instance_id, digest).await;
    }
    answers.map_err(|fault| fault.after("Initialize with three digests").into())
}

/// Release by one gateway leaves the configuration to the others.
pub(super) async fn released(session: &mut Session) -> CheckVerdict {
    let (connection, request) = (session.connection()?, initialize_request(session));
    let other = of_other_gateway(&request);
    if let Err(error) = session.initialize(&connection, &other).await {
        return Err(Halt::Skipped(format!(
            "another gateway can't initialise it: {}",
            session.shown(&error.to_string())
        )));
    }
    match release(session, &other.gateway_instance_id, &other.config_digest).await {
        Ok(()) => {}
        Err(TrialError::Status { code: Code::Unimplemented, .. }) => {
            return Err(Halt::Skipped("the plugin doesn't implement Release, which is optional".into()));
        }
        Err(error) => {
            let expected = "the status OK for Release, or UNIMPLEMENTED";
            let fix = "answer Release with a ReleaseResponse, or leave the rpc out";
            return Err(Fault::new(expected, error.to_string(), fix).into());
        }
    }
    let answers = session.still_answers().await;
    answers.map_err(|fault| fault.after("Release by another gateway that had the same digest").into())
}

async fn release(session: &Session, instance: &str, digest: &str) -> Result<(), TrialError> {
    let Ok(connection) = session.connection() else { return Ok(()) };
    let request =
        ReleaseRequest { gateway_instance_id: instance.to_owned(), config_digest: digest.to_owned() };
    let limit = session.trial.control_limit(Rpc::Release);
    let reply = connection.call(Rpc::Release, &request.encode_to_vec(), limit).await?;
    let undecodable = |error| TrialError::BadReply(format!("it can't be decoded: {error}"));
    ReleaseResponse::decode(reply).map(drop).map_err(undecodable)
}

/// The Initialize that the plugin accepted.
pub(super) fn initialize_request(session: &Session) -> InitializeRequest {
    session.initialize.clone().unwrap_or_default()
}

/// The same Initialize from another gateway process.
pub(super) fn of_other_gateway(request: &InitializeRequest) -> InitializeRequest {
    let gateway_instance_id = format!("{}-other", request.gateway_instance_id);
    InitializeRequest { gateway_instance_id, ..request.clone() }
}
