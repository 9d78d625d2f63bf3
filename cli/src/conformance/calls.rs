//! Checks of calls at points and hooks: replies, other points, unknown fields, connections, calls at the same time, and
//! calls that nobody waits for.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use hookgate_proto::plugin::v1::DescribeResponse;
use prost::Message as _;
use tokio::time;
use tonic::Code;

use crate::conformance::{
    check::{CheckVerdict, Fault, Halt},
    handshake,
    sample::{self, SampleCall, SampleContent},
    session::Session,
};
use hookgate::{
    core::{call_site::CallSite, point::Point},
    upstream::{Rpc, TrialConnection, TrialError},
};

/// Calls at the same time, at one point or hook.
const PARALLEL_CALLS: usize = 8;
const PARALLEL_ROUNDS: usize = 3;
/// How often a call gets its usual reply before another one counts as wrong.
const STABLE_REPLIES: usize = 4;
/// Calls that nobody waits for. Few: HTTP/2 servers end a connection with many resets.
const ABANDONED_CALLS: u32 = 4;

/// An ordinary call is answered with a valid reply, at each point of the manifest.
pub(super) async fn call(session: &mut Session) -> CheckVerdict {
    if session.has_no_points() {
        let others = match (session.has_only_tools(), session.provides_tools()) {
            (true, _) => "tools",
            (false, true) => "hooks and tools",
            (false, false) => "hooks",
        };
        return Err(Halt::Skipped(format!("the plugin offers no points, only {others}")));
    }
    let points = session.offered_sites().into_iter().filter(|site| site.point().is_some()).collect();
    answered_at(session, points).await
}

/// An ordinary call is answered with a valid reply, at each of these `sites`. The session keeps those where it is.
pub(super) async fn answered_at(session: &mut Session, sites: Vec<CallSite>) -> CheckVerdict {
    let connection = session.connection()?;
    let mut first = Ok(());
    for site in sites {
        let sample = SampleCall::new(&site, &SampleContent::ordinary());
        match session.decision(&connection, &sample, &session.digest()).await {
            Ok(_) => session.sites.push(site),
            Err(fault) => first = first.and(Err(fault)),
        }
    }
    first.map_err(Halt::from)
}

/// Other points are UNIMPLEMENTED.
pub(super) async fn other_points(session: &mut Session) -> CheckVerdict {
    let offered =
        |point: &Point| session.manifest.as_ref().is_some_and(|manifest| manifest.offers(*point).is_some());
    let others: Vec<_> = Point::ALL.into_iter().filter(|point| !offered(point)).collect();
    if others.is_empty() {
        return Err(Halt::Skipped("the plugin offers all four points".into()));
    }
    for point in others {
        let fix = "offer the point in the manifest, or leave the rpc out";
        unimplemented_at(session, &point.into(), fix).await?;
    }
    Ok(())
}

/// An ordinary call is UNIMPLEMENTED at `site`, which the manifest doesn't offer.
pub(super) async fn unimplemented_at(session: &Session, site: &CallSite, fix: &str) -> Result<(), Fault> {
    let connection = session.connection()?;
    let sample = SampleCall::new(site, &SampleContent::ordinary());
    let got = match session.reply(&connection, &sample, &session.digest()).await {
        Err(TrialError::Status { code: Code::Unimplemented, .. }) => return Ok(()),
        Err(error) => error.to_string(),
        Ok(_) => "a reply with the status OK".into(),
    };
    Err(Fault::new(format!("UNIMPLEMENTED at {site}, which the manifest doesn't offer"), got, fix))
}

/// Fields of a later version change nothing.
pub(super) async fn unknown_fields(session: &mut Session) -> CheckVerdict {
    let connection = session.connection()?;
    let fix = "ignore fields that the contract doesn't have, as code generated from the .proto files does";
    let expected = |what: &str| format!("the usual answer to {what} with unknown fields");
    let mut message = session.trial.describe_request().encode_to_vec();
    sample::add_unknown_fields(&mut message);
    let described = connection.call(Rpc::Describe, &message, session.timeout).await;
    let described = described.map_err(|error| Fault::new(expected("Describe"), error.to_string(), fix))?;
    DescribeResponse::decode(described)
        .map_err(|error| Fault::new(expected("Describe"), format!("it can't be decoded: {error}"), fix))?;
    for site in &session.sites {
        let sample = SampleCall::new(site, &SampleContent::ordinary());
        let call = session.call(&session.digest(), session.timeout);
        let message = sample.request_with_unknown_fields(&call, session.reads(site));
        let reply = connection.call(Rpc::at(site), &message, session.timeout).await;
        session
            .judged(&sample, reply)
            .map_err(|fault| Fault { fix: fix.into(), ..fault.after("unknown fields") })?;
    }
    Ok(())
}

/// Another connection has the same manifest and needs no Initialize of its own.
pub(super) async fn connections(session: &mut Session) -> CheckVerdict {
    let fix = "keep manifest and instances per process, not per connection";
    let connect = session.trial.connect().await;
    let second = connect.map_err(|got| Fault::new("a second connection at the same time", got, fix))?;
    let described = session.trial.describe(&second).await;
    let described =
        described.map_err(|got| Fault::new("Describe answered on a second connection", got, fix))?;
    handshake::same_manifest(session, &described)?;
    for site in &session.sites {
        let sample = SampleCall::new(site, &SampleContent::ordinary());
        let decision = session.decision(&second, &sample, &session.digest()).await;
        decision
            .map_err(|fault| Fault { fix: fix.into(), ..fault.after("a call on a second connection") })?;
    }
    Ok(())
}

/// Calls at the same time get their own replies: none gets one that another call gets alone.
pub(super) async fn parallel(session: &mut Session) -> CheckVerdict {
    let (connection, digest) = (session.connection()?, session.digest());
    for site in &session.sites {
        let samples: Vec<_> = (0..PARALLEL_CALLS)
            .map(|number| SampleCall::new(site, &SampleContent::numbered(number)))
            .collect();
        let mut alone = Vec::new();
        for sample in &samples {
            alone.push(session.decision(&connection, sample, &digest).await?);
        }
        for _ in 0..PARALLEL_ROUNDS {
            let calls = samples.iter().map(|sample| session.decision(&connection, sample, &digest));
            for (number, reply) in join_all(calls).await.into_iter().enumerate() {
                let reply = reply.map_err(|fault| fault.after("calls at the same time"))?;
                // The reply to exactly one other call.
                let is_foreign =
                    reply != alone[number] && alone.iter().filter(|one| **one == reply).count() == 1;
                if is_foreign && is_stable(session, &connection, &samples[number], &alone[number]).await? {
                    let expected =
                        format!("the reply to the call itself at {site}, also while other calls run");
                    let fix = "keep the state of a call in the call, not in the instance or the process";
                    return Err(Fault::new(expected, "the reply to another call", fix).into());
                }
            }
        }
    }
    Ok(())
}

/// Whether the call gets this reply again and again. A plugin with a quota, or with chance in it, may answer a call
/// in several ways.
async fn is_stable(
    session: &Session,
    connection: &Arc<TrialConnection>,
    sample: &SampleCall,
    reply: &Bytes,
) -> Result<bool, Fault> {
    for _ in 0..STABLE_REPLIES {
        if session.decision(connection, sample, &session.digest()).await? != *reply {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A call that the gateway cancels leaves the plugin as it was.
pub(super) async fn cancelled(session: &mut Session) -> CheckVerdict {
    let (connection, digest) = (session.connection()?, session.digest());
    for site in &session.sites {
        let sample = SampleCall::new(site, &SampleContent::ordinary());
        let calls = (0..ABANDONED_CALLS).map(|number| {
            time::timeout(abandoned_after(number), session.reply(&connection, &sample, &digest))
        });
        join_all(calls).await;
    }
    undisturbed(session, &connection, "cancelled calls").await
}

/// A call whose time runs out leaves the plugin as it was.
pub(super) async fn expired(session: &mut Session) -> CheckVerdict {
    let connection = session.connection()?;
    for site in &session.sites {
        let sample = SampleCall::new(site, &SampleContent::ordinary());
        let calls = (0..ABANDONED_CALLS).map(abandoned_after).map(|limit| {
            let message = sample.request(&session.call(&session.digest(), limit), session.reads(site));
            let connection = &connection;
            async move { connection.call(Rpc::at(site), &message, limit).await }
        });
        join_all(calls).await;
    }
    undisturbed(session, &connection, "calls whose time ran out").await
}

/// 1, 4, 16 and 64 ms: how long a plugin takes, nobody knows.
fn abandoned_after(number: u32) -> Duration {
    Duration::from_millis(1 << (2 * number))
}

async fn undisturbed(session: &Session, connection: &Arc<TrialConnection>, event: &str) -> CheckVerdict {
    if connection.is_closed() {
        let fix = "end the call alone, not the connection or the process";
        return Err(Fault::new("an open connection", "the connection ended", fix).after(event).into());
    }
    let fix = "release what a call holds, such as threads, locks and permits, however it ends";
    let answers = session.still_answers().await;
    answers.map_err(|fault| Fault { fix: fix.into(), ..fault.after(event) }.into())
}
