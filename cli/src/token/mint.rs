//! `hookgate token mint`.

use std::{
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

use serde::Serialize;

use super::{Mint, SigningArgs, TokenChecker};
use crate::{Exit, output};
use hookgate::{
    auth::{self, MintedToken, Port, TokenRequest},
    config::{Scope, Span},
};

/// Longest lifetime of a token: a token can't be revoked.
const TTL_RANGE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(720 * 3_600);

/// Parses `--ttl`.
pub(super) fn ttl(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if TTL_RANGE.contains(&span.0) {
        Ok(span)
    } else {
        Err("a token's lifetime must be from 1s to 720h".into())
    }
}

#[derive(Serialize)]
struct MintOutput<'m> {
    token: &'m str,
    issuer: &'m str,
    expires: u64,
}

pub(super) async fn run(mint: Mint) -> Exit {
    let checker = match TokenChecker::new(&mint.signing.config) {
        Ok(checker) => checker,
        Err(problems) => return Exit::problems(&problems),
    };
    let (port, usual) = match mint.admin {
        _ if !mint.plugins.is_empty() => (Port::Host, Scope::Plugin),
        true => (Port::Admin, Scope::Read),
        false => (Port::Data, Scope::Invoke),
    };
    let order = TokenRequest {
        issuer: mint.signing.issuer,
        tenant: mint.tenant,
        operator: mint.signing.operator,
        scopes: if mint.scopes.is_empty() { vec![usual] } else { mint.scopes },
        plugins: mint.plugins,
        ttl: mint.signing.ttl.0,
        port,
    };
    let minted = match accepted(&checker, &order).await {
        Ok(minted) => minted,
        Err(exit) => return exit,
    };
    let printed = MintOutput { token: &minted.token, issuer: &minted.issuer, expires: minted.expires };
    output::data(mint.output, &printed, || format!("{}\n", minted.token), Exit::ok())
}

/// A token with which an agent of the tenant calls the data port.
pub(crate) async fn for_agent(
    checker: &TokenChecker,
    signing: SigningArgs,
    tenant: String,
) -> Result<String, Exit> {
    let order = TokenRequest {
        issuer: signing.issuer,
        tenant: Some(tenant),
        operator: signing.operator,
        scopes: vec![Scope::Invoke],
        plugins: Vec::new(),
        ttl: signing.ttl.0,
        port: Port::Data,
    };
    accepted(checker, &order).await.map(|minted| minted.token)
}

/// Makes a token that a gateway of this configuration accepts. What only the registry knows is printed as a note.
async fn accepted(checker: &TokenChecker, order: &TokenRequest) -> Result<MintedToken, Exit> {
    let minted = auth::mint(&checker.config.auth, order, SystemTime::now()).map_err(Exit::failure)?;
    let (inspected, data, admin) = checker.judge(&minted.token).await;
    let verdict = match order.port {
        Port::Data => data,
        Port::Admin => admin,
        Port::Host => TokenChecker::at_registration(&inspected),
    };
    match verdict {
        Ok(beside) => beside.iter().for_each(|beside| output::note(beside)),
        Err(refused) => {
            let (code, detail) = (refused.code(), &refused.error.detail);
            return Err(Exit::failure(format!(
                "a gateway would refuse this token: {detail}; see `hookgate errors {code}`"
            )));
        }
    }
    Ok(minted)
}
