//! `hookgate token mint`.

use std::{
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

use serde::Serialize;

use super::{Mint, TokenChecker};
use crate::{Exit, output};
use hookgate::{
    auth::{self, Port, TokenRequest},
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
    let judge = match TokenChecker::new(&mint.config) {
        Ok(judge) => judge,
        Err(problems) => return Exit::problems(&problems),
    };
    let (port, usual) = match mint.admin {
        _ if !mint.plugins.is_empty() => (Port::Host, Scope::Plugin),
        true => (Port::Admin, Scope::Read),
        false => (Port::Data, Scope::Invoke),
    };
    let order = TokenRequest {
        issuer: mint.issuer,
        tenant: mint.tenant,
        operator: mint.operator,
        scopes: if mint.scopes.is_empty() { vec![usual] } else { mint.scopes },
        plugins: mint.plugins,
        ttl: mint.ttl.0,
        port,
    };
    let minted = match auth::mint(&judge.config.auth, &order, SystemTime::now()) {
        Ok(minted) => minted,
        Err(error) => return Exit::failure(error),
    };
    let (inspected, data, admin) = judge.judge(&minted.token).await;
    let verdict = match port {
        Port::Data => data,
        Port::Admin => admin,
        Port::Host => TokenChecker::at_registration(&inspected),
    };
    match verdict {
        Ok(beside) => beside.iter().for_each(|beside| output::note(beside)),
        Err(refused) => {
            let (code, detail) = (refused.code(), &refused.error.detail);
            return Exit::failure(format!(
                "a gateway would refuse this token: {detail}; see `hookgate errors {code}`"
            ));
        }
    }
    let printed = MintOutput { token: &minted.token, issuer: &minted.issuer, expires: minted.expires };
    output::data(mint.output, &printed, || format!("{}\n", minted.token), Exit::ok())
}
