//! Writes to a registry besides the gateways that follow it.

use std::{sync::Arc, time::Duration};

use hookgate::{
    core::object::{ObjectKind, Owner},
    store::{self, Change, CommitError, ObjectContent, RevisionDraft, Store, StoreError},
};
use hookgate_tests::{
    agent::HttpAnswer,
    gateway::{Gateway, Setup},
    token::{Token, token},
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::edge::support::{POINT, payload};

/// The timeout for anything that happens by itself.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A store that tests write to.
pub(crate) struct Writer(Arc<dyn Store>);

/// The wanted state of an object after a write; `None` deletes it.
pub(crate) type Wish<'w> = (ObjectKind, &'w str, Option<Value>);

impl Writer {
    /// Opens the database at `url`.
    pub(crate) async fn open(url: &str) -> Self {
        let store = store::open(url).expect("the URL is one");
        store.prepare().await.expect("the database runs");
        Writer(store)
    }

    /// Writes `wishes` as the API would, but without its checks. Returns the new revision.
    pub(crate) async fn write(&self, wishes: &[Wish<'_>]) -> Result<u64, StoreError> {
        loop {
            let now = self.0.snapshot().await?;
            let change = |(kind, name, spec): &Wish<'_>| Change {
                kind: *kind,
                name: (*name).into(),
                before: now
                    .objects
                    .iter()
                    .find(|object| object.kind == *kind && *object.name == **name)
                    .map(|object| object.content.clone()),
                after: spec.clone().map(|spec| ObjectContent { owner: Owner::Api, spec: spec.into() }),
            };
            let draft = RevisionDraft {
                id: Uuid::now_v7(),
                base: now.revision,
                at: OffsetDateTime::now_utc(),
                author: "a test".into(),
                reason: String::new(),
                changes: wishes.iter().map(change).collect(),
            };
            match self.0.commit(&draft).await {
                Ok(number) => return Ok(number),
                Err(CommitError::Moved { .. }) => {}
                Err(CommitError::Store(error)) => return Err(error),
                Err(CommitError::Unknown(why)) => return Err(StoreError::Unavailable(why)),
            }
        }
    }

    /// The current revision.
    pub(crate) async fn head(&self) -> u64 {
        self.0.head().await.expect("the database runs")
    }
}

/// A tenant of the API.
pub(crate) fn tenant(id: &str, plan: u64) -> Wish<'_> {
    (ObjectKind::Tenant, id, Some(json!({ "id": id, "labels": { "plan": plan.to_string() } })))
}

/// A file with the built-in `content-policy` for all tenants, and this tenant.
pub(crate) fn file_with(tenant: &str) -> Setup {
    let limit = json!({ "max_input_chars": 1000 });
    Gateway::with().tenant(tenant).builtin("content-policy", &limit).binding("content-policy", 10).admin()
}

/// One call of `tenant`.
pub(crate) async fn call(gateway: &Gateway, tenant: &str) -> HttpAnswer {
    gateway.http(&token(tenant)).call(POINT, payload()).await
}

/// `/admin/v1/status`.
pub(crate) async fn status(gateway: &Gateway) -> Value {
    let token = Token::for_operators().mint();
    let answer = gateway.admin(&token).get("/admin/v1/status").await;
    answer.expect("the admin port is open").body
}

/// Waits until `is_so` holds for the gateway's status.
pub(crate) async fn status_is(gateway: &Gateway, is_so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + SOON;
    loop {
        let status = status(gateway).await;
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < end, "the status stays {status:#}\n{}", gateway.log());
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the gateway serves `revision`.
pub(crate) async fn serves_by(gateway: &Gateway, revision: u64) {
    status_is(gateway, |status| status["revision"] == revision).await;
}
