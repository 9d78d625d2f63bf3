//! The registry in PostgreSQL, shared by several processes that notify each other of writes.
//!
//! A server that doesn't respond blocks nobody: every wait has a timeout, and a connection that timed out is
//! not used again. If the answer to a write is lost, its outcome is determined on another connection.

mod listen;

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use async_trait::async_trait;
use futures::TryStreamExt;
use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    core::object::ObjectKind,
    store::{
        CommitError, Object, Revision, RevisionDraft, Snapshot, Store, StoreError, StoreInspection, Tables,
        connections::{ConnectionPool, Database, PooledConnection},
        error,
        migrations::{self, AppliedMigration, MigrationError},
        rows::{self, ChangeBatch, ContentRow, HeadUpdate, ObjectRow, RevisionInsert, RevisionRow, by_kind},
    },
};

/// The first version that ends an idle session in a transaction, as `SESSION_SETTINGS` requires.
const MIN_SERVER_VERSION: i32 = 14;
/// Most connections of a pool at a time. Those of all replicas add up, and a server allows a hundred by default.
const MAX_CONNECTIONS: usize = 5;
/// Settings of every session: the server releases the lock or statement of a process that has vanished (in
/// milliseconds). Writers of one row wait for each other instead of failing, whatever the database's defaults are.
const SESSION_SETTINGS: &str = "SET lock_timeout = 3500; SET idle_in_transaction_session_timeout = 5000; \
                       SET statement_timeout = 60000; SET synchronous_commit = on; \
                       SET default_transaction_isolation = 'read committed'";
/// Timeout for one response of the server, or for the next row of one.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// A large write gets this much more time for each MiB.
const EXTRA_TIMEOUT_PER_MIB: Duration = Duration::from_secs(1);
/// The advisory lock held during migrations: "hookgate" in ASCII.
const MIGRATION_LOCK: i64 = 0x686f_6f6b_6761_7465;

/// The PostgreSQL store.
pub(super) struct Postgres {
    options: PgConnectOptions,
    connections: ConnectionPool<PostgresServer>,
    /// For plugins' data, so that plugins can't keep the registry waiting.
    pub(super) data: ConnectionPool<PostgresServer>,
    hints: Arc<watch::Sender<u64>>,
    listening: Once,
    closed: CancellationToken,
}

/// How to connect to the server.
pub(super) struct PostgresServer {
    options: PgConnectOptions,
    place: String,
}

impl PostgresServer {
    fn new(options: PgConnectOptions) -> Self {
        let place = match options.get_socket() {
            Some(socket) => format!("PostgreSQL at {}", socket.display()),
            None => format!("PostgreSQL at {}:{}", options.get_host(), options.get_port()),
        };
        let options = options.application_name("hookgate").disable_statement_logging();
        Self { options, place }
    }
}

impl Database for PostgresServer {
    type Connection = PgConnection;

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        sqlx::raw_sql(SESSION_SETTINGS).execute(&mut connection).await?;
        Ok(connection)
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn fault(&self, error: &sqlx::Error) -> StoreError {
        error::postgres(&self.place, error)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl Postgres {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        Self {
            connections: ConnectionPool::new(PostgresServer::new(options.clone()), MAX_CONNECTIONS),
            data: ConnectionPool::new(PostgresServer::new(options.clone()), MAX_CONNECTIONS),
            options,
            hints: Arc::new(watch::Sender::new(0)),
            listening: Once::new(),
            closed: CancellationToken::new(),
        }
    }

    async fn revisions(&self, sql: &'static str, key: i64, most: usize) -> Result<Vec<Revision>, StoreError> {
        let mut taken = self.connections.take().await?;
        let query = sqlx::query_as::<_, RevisionRow>(sql).bind(key).bind(rows::limit(most));
        let mut stream = query.fetch(&mut *taken);
        let mut found = Vec::new();
        while let Some(row) = self.within(ANSWER_TIMEOUT, stream.try_next()).await? {
            found.push(rows::revision(row)?);
        }
        drop(stream);
        taken.keep();
        Ok(found)
    }

    /// Awaits one result, for at most `limit`.
    async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        self.connections.within(limit, answer).await
    }

    /// The statements of a write. Nothing takes effect before the caller commits.
    async fn write(
        &self,
        connection: &mut PgConnection,
        draft: &RevisionDraft,
        write: &RevisionInsert,
    ) -> Result<HeadUpdate, StoreError> {
        let limit = limit(write);
        let advance = sqlx::query(rows::UPDATE_HEAD).bind(write.base).execute(&mut *connection);
        if self.within(ANSWER_TIMEOUT, advance).await?.rows_affected() == 0 {
            let before = sqlx::query_scalar::<_, i64>(rows::SELECT_REVISION_BY_ID).bind(draft.id);
            if let Some(number) = self.within(ANSWER_TIMEOUT, before.fetch_optional(&mut *connection)).await?
            {
                return Ok(HeadUpdate::Before(rows::number(number)?));
            }
            let head = sqlx::query_scalar::<_, i64>(rows::SELECT_HEAD).fetch_one(connection);
            return Ok(HeadUpdate::Moved(rows::number(self.within(ANSWER_TIMEOUT, head).await?)?));
        }
        for batch in ChangeBatch::by_kind(&draft.changes) {
            let gone = sqlx::query_as::<_, ContentRow>(delete(batch.kind)).bind(batch.names());
            batch.check(self.within(limit, gone.fetch_all(&mut *connection)).await?)?;
            let (mut names, mut owners, mut specs) = (Vec::new(), Vec::new(), Vec::new());
            for (name, owner, spec) in batch.after() {
                names.push(name);
                owners.push(owner);
                specs.push(spec);
            }
            let insert =
                sqlx::query(insert(batch.kind)).bind(names).bind(owners).bind(specs).bind(write.number);
            self.within(limit, insert.execute(&mut *connection)).await?;
        }
        let record = sqlx::query(rows::INSERT_REVISION).bind(write.number).bind(draft.id).bind(write.at_ms);
        let record = record.bind(&draft.author).bind(&draft.reason).bind(&write.changes).bind(&write.further);
        self.within(limit, record.execute(&mut *connection)).await?;
        let notify =
            sqlx::query("SELECT pg_notify($1, $2)").bind(listen::CHANNEL).bind(write.number.to_string());
        self.within(ANSWER_TIMEOUT, notify.execute(connection)).await?;
        Ok(HeadUpdate::Now(rows::number(write.number)?))
    }

    /// Determines the outcome of a write whose answer was lost. While such a transaction may still commit, it
    /// holds the lock on the head's row: once that row can be locked here, the outcome is final.
    async fn look(&self, id: Uuid) -> Result<Option<u64>, StoreError> {
        let mut taken = self.connections.take().await?;
        let mut transaction = self.within(ANSWER_TIMEOUT, taken.begin()).await?;
        let wait = sqlx::query("SELECT revision FROM hookgate_head FOR UPDATE").execute(&mut *transaction);
        self.within(ANSWER_TIMEOUT, wait).await?;
        let written = sqlx::query_scalar::<_, i64>(rows::SELECT_REVISION_BY_ID)
            .bind(id)
            .fetch_optional(&mut *transaction);
        let written = self.within(ANSWER_TIMEOUT, written).await?;
        self.within(ANSWER_TIMEOUT, transaction.rollback()).await?;
        taken.keep();
        written.map(rows::number).transpose()
    }

    /// The state of the tables, and the applied migrations.
    async fn tables(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(Tables, Vec<AppliedMigration>), StoreError> {
        let made = sqlx::query_scalar::<_, bool>("SELECT to_regclass('hookgate_migrations') IS NOT NULL");
        if !self.within(ANSWER_TIMEOUT, made.fetch_one(&mut *connection)).await? {
            return Ok((Tables::Absent, Vec::new()));
        }
        let done = sqlx::query_as::<_, AppliedMigration>(migrations::SELECT_APPLIED).fetch_all(connection);
        let done = self.within(ANSWER_TIMEOUT, done).await?;
        let tables = migrations::tables(&migrations::postgres(), &done)
            .map_err(|why| StoreError::Unusable(format!("{}: {why}", self.connections.place())))?;
        Ok((tables, done))
    }

    fn tick(&self) {
        self.hints.send_modify(|ticks| *ticks += 1);
    }
}

#[async_trait]
impl Store for Postgres {
    async fn prepare(&self) -> Result<(), StoreError> {
        let mut taken = self.connections.take().await?;
        self.check_server(&mut taken).await?;
        let mut alone = self.within(ANSWER_TIMEOUT, taken.begin()).await?;
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).execute(&mut *alone);
        self.within(ANSWER_TIMEOUT, lock).await?;
        if matches!(self.tables(&mut alone).await?, (Tables::Current | Tables::Newer, _)) {
            // The tables may have been created by a role with more rights than this one.
            self.within(ANSWER_TIMEOUT, alone.rollback()).await?;
            taken.keep();
            return Ok(());
        }
        let place = self.connections.place();
        let steps = migrations::postgres();
        match timeout(ANSWER_TIMEOUT, migrations::run(&steps, &mut *alone, "postgresql")).await {
            Ok(Ok(())) => {}
            Ok(Err(MigrationError::Database(error))) => return Err(self.connections.fault(&error)),
            Ok(Err(MigrationError::Tables(why))) => {
                return Err(StoreError::Unusable(format!("{place}: {why}")));
            }
            Err(_) => return Err(self.connections.silent()),
        }
        self.within(ANSWER_TIMEOUT, alone.commit()).await?;
        taken.keep();
        Ok(())
    }

    async fn look(&self) -> Result<StoreInspection, StoreError> {
        let mut taken = self.connections.take().await?;
        self.check_server(&mut taken).await?;
        let begin = taken.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let mut moment = self.within(ANSWER_TIMEOUT, begin).await?;
        let look = match self.tables(&mut moment).await? {
            (Tables::Absent, _) => StoreInspection::nothing(),
            (tables, done) => {
                StoreInspection { snapshot: self.read(&mut moment, rows::query(&done)).await?, tables }
            }
        };
        self.within(ANSWER_TIMEOUT, moment.rollback()).await?;
        taken.keep();
        Ok(look)
    }

    async fn head(&self) -> Result<u64, StoreError> {
        let mut taken = self.connections.take().await?;
        let head = sqlx::query_scalar::<_, i64>(rows::SELECT_HEAD).fetch_one(&mut *taken);
        let head = self.within(ANSWER_TIMEOUT, head).await?;
        taken.keep();
        rows::number(head)
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let mut taken = self.connections.take().await?;
        let begin = taken.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        let mut moment = self.within(ANSWER_TIMEOUT, begin).await?;
        let snapshot = self.read(&mut moment, rows::SELECT_OBJECTS).await?;
        self.within(ANSWER_TIMEOUT, moment.rollback()).await?;
        taken.keep();
        Ok(snapshot)
    }

    async fn since(&self, revision: u64, most: usize) -> Result<Vec<Revision>, StoreError> {
        self.revisions(rows::SELECT_REVISIONS_SINCE, rows::key(revision), most).await
    }

    async fn before(&self, before: Option<u64>, most: usize) -> Result<Vec<Revision>, StoreError> {
        self.revisions(rows::SELECT_REVISIONS_BEFORE, before.map_or(i64::MAX, rows::key), most).await
    }

    async fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError> {
        let mut taken = self.connections.take().await?;
        let query = sqlx::query_as::<_, RevisionRow>(rows::SELECT_REVISION).bind(rows::key(number));
        let found = self.within(ANSWER_TIMEOUT, query.fetch_optional(&mut *taken)).await?;
        taken.keep();
        found.map(rows::revision).transpose()
    }

    async fn find_revision(&self, id: Uuid) -> Result<Option<u64>, StoreError> {
        let mut taken = self.connections.take().await?;
        let query = sqlx::query_scalar::<_, i64>(rows::SELECT_REVISION_BY_ID).bind(id);
        let found = self.within(ANSWER_TIMEOUT, query.fetch_optional(&mut *taken)).await?;
        taken.keep();
        found.map(rows::number).transpose()
    }

    async fn commit(&self, draft: &RevisionDraft) -> Result<u64, CommitError> {
        let write = RevisionInsert::new(draft)?;
        let mut taken = self.connections.take().await?;
        let mut transaction = self.within(ANSWER_TIMEOUT, taken.begin()).await?;
        let written = self.write(&mut transaction, draft, &write).await?;
        let HeadUpdate::Now(number) = written else {
            self.within(ANSWER_TIMEOUT, transaction.rollback()).await?;
            taken.keep();
            return match written {
                HeadUpdate::Moved(head) => Err(CommitError::Moved { head }),
                HeadUpdate::Now(number) | HeadUpdate::Before(number) => Ok(number),
            };
        };
        match self.within(limit(&write), transaction.commit()).await {
            Ok(()) => taken.keep(),
            Err(error) => {
                drop(taken);
                match self.look(draft.id).await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Err(error.into()),
                    Err(_) => return Err(CommitError::Unknown(error.to_string())),
                }
            }
        }
        self.tick();
        Ok(number)
    }

    fn hints(&self) -> watch::Receiver<u64> {
        self.listening.call_once(|| {
            let follow =
                listen::follow(self.options.clone(), self.connections.place().to_owned(), self.hints.clone());
            tokio::spawn(self.closed.clone().run_until_cancelled_owned(follow));
        });
        self.hints.subscribe()
    }

    async fn close(&self) {
        self.closed.cancel();
        tokio::join!(self.connections.close(), self.data.close());
    }
}

impl Postgres {
    /// All objects that the query `objects` returns, and the revision of the same moment.
    async fn read(&self, moment: &mut PgConnection, objects: &'static str) -> Result<Snapshot, StoreError> {
        let head = sqlx::query_scalar::<_, i64>(rows::SELECT_HEAD).fetch_one(&mut *moment);
        let revision = rows::number(self.within(ANSWER_TIMEOUT, head).await?)?;
        let mut found: Vec<Object> = Vec::new();
        let mut stream = sqlx::query_as::<_, ObjectRow>(objects).fetch(moment);
        while let Some(row) = self.within(ANSWER_TIMEOUT, stream.try_next()).await? {
            found.push(rows::object(row)?);
        }
        Ok(Snapshot { revision, objects: found })
    }

    async fn check_server(&self, taken: &mut PooledConnection<'_, PostgresServer>) -> Result<(), StoreError> {
        let asked = sqlx::query_as::<_, (i32, String)>(
            "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding')",
        );
        let (version, encoding) = self.within(ANSWER_TIMEOUT, asked.fetch_one(&mut **taken)).await?;
        let place = self.connections.place();
        usable(version, &encoding).map_err(|why| StoreError::Unusable(format!("{place} {why}")))
    }
}

/// Whether a server with this `server_version_num`, and a database with this encoding, can hold the registry.
/// If not, describes what it is.
fn usable(version: i32, encoding: &str) -> Result<(), String> {
    let major = version / 10_000;
    if major < MIN_SERVER_VERSION {
        return Err(format!("is version {major}: it has to be {MIN_SERVER_VERSION} or newer"));
    }
    if encoding != "UTF8" {
        return Err(format!("has the encoding {encoding}: it has to be UTF8"));
    }
    Ok(())
}

/// Timeout for a statement that carries the draft.
fn limit(write: &RevisionInsert) -> Duration {
    let mib = u32::try_from(write.len() >> 20).unwrap_or(u32::MAX);
    ANSWER_TIMEOUT.saturating_add(EXTRA_TIMEOUT_PER_MIB.saturating_mul(mib))
}

/// Deletes the objects named in `$1`, and returns them.
fn delete(kind: ObjectKind) -> &'static str {
    by_kind!(kind, "DELETE FROM ", " WHERE name = ANY($1) RETURNING name, owner, spec")
}

/// Inserts objects: their names, owners and specs.
fn insert(kind: ObjectKind) -> &'static str {
    by_kind!(
        kind,
        "INSERT INTO ",
        " (name, owner, version, spec)
          SELECT name, owner, $4, spec FROM UNNEST($1::text[], $2::text[], $3::text[]) AS new (name, owner, spec)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_older_than_14_or_without_utf_8_is_refused_in_a_sentence() {
        for version in [140_000, 140_022, 150_014, 180_001] {
            assert_eq!(usable(version, "UTF8"), Ok(()), "{version}");
        }
        for (version, major) in [(139_999, 13), (130_004, 13), (90_624, 9)] {
            let said = usable(version, "UTF8");
            assert_eq!(said, Err(format!("is version {major}: it has to be 14 or newer")));
        }
        assert_eq!(usable(150_014, "LATIN1"), Err("has the encoding LATIN1: it has to be UTF8".to_owned()));
    }
}
