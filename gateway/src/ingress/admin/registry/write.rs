//! Writes: what is sent becomes wishes, and what came of them an answer.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};
use serde_json::{Value, json};

use super::{
    Route,
    body::{Taken, receive},
    encode,
    query::{Meant, Upon},
    refused::{self, Sent},
    view::Written,
};
use crate::{
    auth::Operator,
    config::UnknownTenant,
    error::{Error, Violation},
    ingress::{admin::Admin, call::InForce},
    registry::{
        Writer,
        bypass::Glass,
        document::Document,
        edit::{Edit, Wish},
        operations::{Operations, Outcome, Undone},
    },
    store::{Change, Kind},
};

/// How long a writer waits until this process serves by what was written.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is to be done.
enum Task {
    Edits(Vec<Edit>),
    RollBack(u64),
    Bypass { glass: Glass, serves_others: bool },
}

/// A write as it was asked for.
struct Asked {
    task: Task,
    meant: Meant,
    sent: Sent,
}

impl Admin {
    /// Does what `route` stands for.
    pub(super) async fn write(
        &self,
        in_force: &InForce,
        route: Route,
        operator: &Operator,
        head: &Parts,
        body: Body,
    ) -> Result<(StatusCode, Bytes), Error> {
        let may_create = head.method == Method::PUT;
        let Asked { task, meant, sent } = self.asked(in_force, route, head, body).await?;
        let Meant { reason, dry_run, .. } = meant;
        let writer = Writer { author: operator.author(), reason };
        let operations = Arc::clone(&self.operations);
        // A writer who hangs up doesn't leave a write half done, or done without a word in the log.
        let doing = tokio::spawn(async move { perform(&operations, &writer, &task, dry_run).await });
        let done = doing.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        let outcome = done.map_err(|undone| refused::error(undone, &sent))?;
        let is_new = |change: &Change| change.before.is_none();
        let is_created = may_create && outcome.revision.is_some() && outcome.changes.iter().any(is_new);
        let in_force = !dry_run && self.is_in_force(&outcome).await?;
        let status = if is_created { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, encode(&Written::new(&outcome, dry_run, in_force))))
    }

    /// Whether this process serves by what the registry holds after `outcome`.
    async fn is_in_force(&self, outcome: &Outcome) -> Result<bool, Error> {
        Ok(match outcome.revision {
            Some(revision) => self.gateway.reaches(revision, PATIENCE).await,
            None => self.gateway.reaches(self.contents().await?.revision(), Duration::ZERO).await,
        })
    }

    async fn asked(
        &self,
        in_force: &InForce,
        route: Route,
        head: &Parts,
        body: Body,
    ) -> Result<Asked, Error> {
        let uri = &head.uri;
        let (kind, name, meant, wish) = match route {
            Route::RollBack(number) => {
                let meant = Meant::read(uri, Upon::Nothing, false)?;
                return Ok(Asked { task: Task::RollBack(number), meant, sent: Sent::Nothing });
            }
            Route::Bypass { binding, tenant } => {
                let (meant, lasts) = if head.method == Method::DELETE {
                    (Meant::read(uri, Upon::Nothing, false)?, None)
                } else {
                    let (meant, lasts) = Meant::of_bypass(uri)?;
                    (meant, Some(lasts))
                };
                let serves_others = in_force.config.tenants.unknown == UnknownTenant::Accept;
                let task = Task::Bypass { glass: Glass { binding, tenant, lasts }, serves_others };
                return Ok(Asked { task, meant, sent: Sent::Nothing });
            }
            Route::Switch { plugin, on } => {
                let meant = Meant::read(uri, Upon::AnyVersion, false)?;
                (Kind::Plugin, plugin, meant, Wish::Merge(json!({ "enabled": on })))
            }
            Route::One(kind, name) => match head.method {
                Method::DELETE => {
                    let meant = Meant::read(uri, Upon::Version, kind == Kind::Plugin)?;
                    let wish = Wish::Gone { with_bindings: meant.force };
                    (kind, name, meant, wish)
                }
                Method::PATCH => {
                    let meant = Meant::read(uri, Upon::Version, false)?;
                    let patch = self.receive(in_force, head, body, Taken::PATCH).await?;
                    (kind, name, meant, Wish::Merge(patch))
                }
                _ => {
                    let meant = Meant::read(uri, Upon::Version, false)?;
                    let spec = self.receive(in_force, head, body, Taken::OBJECT).await?;
                    (kind, name, meant, Wish::Be(spec))
                }
            },
            _ => {
                let meant = Meant::read(uri, Upon::Nothing, true)?;
                let document = self.receive(in_force, head, body, Taken::DOCUMENT).await?;
                let (edits, places) = document_of(document)?.edits(meant.force).map_err(Error::invalid)?;
                return Ok(Asked { task: Task::Edits(edits), meant, sent: Sent::Document(places) });
            }
        };
        let (expected, sent) = (meant.expected, Sent::Object(kind, name.clone()));
        Ok(Asked { task: Task::Edits(vec![Edit { kind, name, expected, wish }]), meant, sent })
    }

    async fn receive(
        &self,
        in_force: &InForce,
        head: &Parts,
        body: Body,
        taken: Taken,
    ) -> Result<Value, Error> {
        let mut room = self.gateway.admission.room(in_force.limits.bytes_in_flight);
        receive(&head.headers, body, taken, &mut room).await
    }
}

async fn perform(
    operations: &Operations,
    writer: &Writer,
    task: &Task,
    dry_run: bool,
) -> Result<Outcome, Undone> {
    match task {
        Task::Edits(edits) => operations.write(writer, edits, dry_run).await,
        Task::RollBack(number) => operations.roll_back(writer, *number, dry_run).await,
        Task::Bypass { glass, serves_others } => {
            operations.bypass(writer, glass, *serves_others, dry_run).await
        }
    }
}

fn document_of(value: Value) -> Result<Document, Error> {
    // Objects are taken as they are, so that no value of theirs is in these words.
    let read = serde_json::from_value(value);
    read.map_err(|error| Error::invalid(vec![Violation::new("", format!("The document has {error}"))]))
}
