//! Checks of health, Shutdown, SIGTERM and a restart.

use std::time::Duration;

use crate::conformance::{
    check::{CheckVerdict, Fault, Halt},
    digests, handshake,
    sample::{SampleCall, SampleContent},
    session::Session,
    tools,
};
use hookgate::upstream::HealthCheckOutcome;

/// How long a process may take to end after SIGTERM: what Kubernetes grants by default.
const MAX_STOP: Duration = Duration::from_secs(30);
const NO_COMMAND: &str = "no command to start the plugin was given: append `-- COMMAND`";

/// An initialised plugin reports SERVING, if it has the health service.
pub(super) async fn health(session: &mut Session) -> CheckVerdict {
    let expected = "SERVING from `grpc.health.v1.Health/Check` for the service \"\" within 1 s";
    let (got, fix) = match session.connection()?.check_health().await {
        HealthCheckOutcome::Serving => return Ok(()),
        HealthCheckOutcome::Unsupported => {
            return Err(Halt::Skipped("the plugin has no health service, which is optional".into()));
        }
        HealthCheckOutcome::NotServing => {
            ("NOT_SERVING".to_owned(), "report SERVING as soon as the plugin can answer calls")
        }
        HealthCheckOutcome::Missed(why) => (why, "answer within 1 s, also while calls are running"),
    };
    Err(Fault::new(expected, got, fix).into())
}

/// Shutdown is answered. The process goes on, and keeps the instances of other gateways.
pub(super) async fn shutdown(session: &mut Session) -> CheckVerdict {
    let (connection, request) = (session.connection()?, digests::initialize_request(session));
    let other = digests::of_other_gateway(&request);
    if let Err(error) = session.initialize(&connection, &other).await {
        let error = session.shown(&error.to_string());
        return Err(Halt::Skipped(format!("another gateway can't initialise it: {error}")));
    }
    let fix = "flush and answer; keep the process, and the instances of other gateways";
    let answered = session.shut_down(&connection, &other.gateway_instance_id).await;
    answered.map_err(|error| Fault::new("the status OK for Shutdown within 5 s", error.to_string(), fix))?;
    let answers = session.still_answers().await;
    answers.map_err(|fault| Fault { fix: fix.into(), ..fault.after("Shutdown by another gateway") })?;
    let answered = session.shut_down(&connection, &request.gateway_instance_id).await;
    answered.map_err(|error| Fault::new("the status OK for Shutdown within 5 s", error.to_string(), fix))?;
    let event = "Shutdown by every gateway";
    let fault = |got: String| Fault::new("a plugin that a new gateway can use", got, fix).after(event);
    let next = session.trial.connect().await.map_err(fault)?;
    session.trial.describe(&next).await.map_err(fault)?;
    session.initialize(&next, &request).await.map_err(|error| fault(error.to_string()))?;
    session.connection = Some(next.into());
    session.still_answers().await.map_err(|fault| fault.after(event).into())
}

/// SIGTERM ends the process.
pub(super) async fn stop(session: &mut Session) -> CheckVerdict {
    let Some(process) = &mut session.process else { return Err(Halt::Skipped(NO_COMMAND.into())) };
    let stopped = process.stop(MAX_STOP).await;
    session.connection = None;
    match stopped {
        Ok(false) if session.trial.connect().await.is_ok() => {
            let got = "the command ended, but something still listens at the endpoint";
            let fix = "let the command be the plugin itself: a script starts it with `exec`";
            Err(Fault::new("the end of the plugin after SIGTERM", got, fix).into())
        }
        Ok(false) => Ok(()),
        Ok(true) => {
            let got = format!("a process that still runs after {MAX_STOP:?}, and was killed");
            let fix = "handle SIGTERM: refuse new calls, finish running ones, and exit; as a container's first \
                       process, a program gets no default handler";
            Err(Fault::new("the end of the process after SIGTERM", got, fix).into())
        }
        Err(error) => Err(Halt::Skipped(format!("SIGTERM can't be sent: {error}"))),
    }
}

/// A new process doesn't know the configuration, and works once it has it.
pub(super) async fn restart(session: &mut Session) -> CheckVerdict {
    if session.process.is_none() {
        return Err(Halt::Skipped(NO_COMMAND.into()));
    }
    if session.trial.connect().await.is_ok() {
        return Err(Halt::Skipped("something still listens at the endpoint, so a new process can't".into()));
    }
    let fix =
        "let the process start on its own: replace a stale socket, and depend on no state of the last run";
    let fault = |got: String| Fault::new("a plugin that starts again", got, fix);
    let connection = session.start().await.map_err(fault)?;
    session.connection = Some(connection.clone());
    let described = session.trial.describe(&connection).await.map_err(fault)?;
    handshake::same_manifest(session, &described)?;
    for site in &session.sites {
        let sample = SampleCall::new(site, &SampleContent::ordinary());
        let reply = session.reply(&connection, &sample, &session.digest()).await;
        digests::not_initialized(reply.map(drop)).map_err(|fault| fault.after("a restart"))?;
    }
    if session.answers_tools {
        let reply = tools::run_other(session, &connection, &session.digest()).await;
        digests::not_initialized(reply.map(drop)).map_err(|fault| fault.after("a restart"))?;
    }
    let request = digests::initialize_request(session);
    session.initialize(&connection, &request).await.map_err(|error| fault(error.to_string()))?;
    session.still_answers().await.map_err(|fault| fault.after("a restart and Initialize").into())
}
