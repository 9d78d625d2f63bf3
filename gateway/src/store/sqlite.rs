//! The registry in SQLite: a file for one process. Other processes may read and write the file too, but they
//! are not notified of each other's writes.
//!
//! A write of the registry is on the disk before it is acknowledged, and readers never wait for the writer (WAL).

use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::AtomicI64,
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    core::object::ObjectKind,
    store::{
        CommitError, Revision, RevisionDraft, Snapshot, Store, StoreError, StoreInspection,
        connections::{ConnectionPool, Database},
        error,
        migrations::{self, AppliedMigration, MigrationError},
        rows::{self, ChangeBatch, ContentRow, HeadUpdate, ObjectRow, RevisionInsert, RevisionRow, by_kind},
    },
};

/// How long one writer waits for another, in this process or another one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between attempts at what SQLite refuses without waiting.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Most readers at a time.
const MAX_READERS: usize = 4;

/// The SQLite store.
pub(super) struct Sqlite {
    path: PathBuf,
    /// A single connection: SQLite allows one writer at a time, and writers queue here in order.
    writer: ConnectionPool<SqliteFile>,
    pub(super) readers: ConnectionPool<SqliteFile>,
    /// The writer of plugins' data. It doesn't wait for the disk: an acknowledged write survives the process, but
    /// the last ones may be lost with the machine.
    pub(super) data: ConnectionPool<SqliteFile>,
    /// The greatest version of an entry of plugins' data that this process has drawn.
    pub(super) last_version: AtomicI64,
    hints: watch::Sender<u64>,
}

/// How to connect to a database's file.
pub(super) struct SqliteFile {
    options: SqliteConnectOptions,
    /// The file's location, for messages.
    place: String,
}

impl SqliteFile {
    fn new(path: &Path, synchronous: SqliteSynchronous) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(path)
            // Only `prepare` creates the file, with its mode.
            .create_if_missing(false)
            .synchronous(synchronous)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        SqliteFile {
            options,
            place: format!("the file {}", path.strip_prefix(".").unwrap_or(path).display()),
        }
    }
}

impl Database for SqliteFile {
    type Connection = SqliteConnection;

    async fn connect(&self) -> Result<SqliteConnection, sqlx::Error> {
        self.options.connect().await
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn fault(&self, error: &sqlx::Error) -> StoreError {
        error::sqlite(&self.place, error)
    }
}

impl Sqlite {
    pub(super) fn new(path: PathBuf) -> Self {
        let file = |synchronous| SqliteFile::new(&path, synchronous);
        Self {
            writer: ConnectionPool::new(file(SqliteSynchronous::Full), 1),
            readers: ConnectionPool::new(file(SqliteSynchronous::Full), MAX_READERS),
            data: ConnectionPool::new(file(SqliteSynchronous::Normal), 1),
            last_version: AtomicI64::new(0),
            path,
            hints: watch::Sender::new(0),
        }
    }

    fn fault(&self, error: &sqlx::Error) -> StoreError {
        self.readers.fault(error)
    }

    fn place(&self) -> &str {
        self.readers.place()
    }

    async fn revisions(&self, sql: &'static str, key: i64, most: usize) -> Result<Vec<Revision>, StoreError> {
        let mut taken = self.readers.take().await?;
        let query = sqlx::query_as::<_, RevisionRow>(sql).bind(key).bind(rows::limit(most));
        let found = query.fetch_all(&mut *taken).await.map_err(|error| self.fault(&error))?;
        taken.keep();
        found.into_iter().map(rows::revision).collect()
    }

    /// The statements of a write. Nothing takes effect before the caller commits.
    async fn write(
        &self,
        connection: &mut SqliteConnection,
        draft: &RevisionDraft,
        write: &RevisionInsert,
    ) -> Result<HeadUpdate, StoreError> {
        let fault = |error: sqlx::Error| self.fault(&error);
        let advanced =
            sqlx::query(rows::UPDATE_HEAD).bind(write.base).execute(&mut *connection).await.map_err(fault)?;
        if advanced.rows_affected() == 0 {
            let before = sqlx::query_scalar::<_, i64>(rows::SELECT_REVISION_BY_ID).bind(draft.id);
            if let Some(number) = before.fetch_optional(&mut *connection).await.map_err(fault)? {
                return Ok(HeadUpdate::Before(rows::number(number)?));
            }
            let head =
                sqlx::query_scalar::<_, i64>(rows::SELECT_HEAD).fetch_one(connection).await.map_err(fault)?;
            return Ok(HeadUpdate::Moved(rows::number(head)?));
        }
        for batch in ChangeBatch::by_kind(&draft.changes) {
            let names = serde_json::json!(batch.names()).to_string();
            let gone = sqlx::query_as::<_, ContentRow>(delete(batch.kind)).bind(names);
            batch.check(gone.fetch_all(&mut *connection).await.map_err(fault)?)?;
            let after = serde_json::json!(batch.after()).to_string();
            let insert = sqlx::query(insert(batch.kind)).bind(after).bind(write.number);
            insert.execute(&mut *connection).await.map_err(fault)?;
        }
        let record = sqlx::query(rows::INSERT_REVISION).bind(write.number).bind(draft.id).bind(write.at_ms);
        let record = record.bind(&draft.author).bind(&draft.reason).bind(&write.changes).bind(&write.further);
        record.execute(connection).await.map_err(fault)?;
        Ok(HeadUpdate::Now(rows::number(write.number)?))
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn prepare(&self) -> Result<(), StoreError> {
        make(&self.path)?;
        let fault = |error: sqlx::Error| self.fault(&error);
        let mut taken = self.writer.take().await?;
        self.keep_log(&mut taken).await?;
        // This transaction has exclusive access to the tables, among threads and processes.
        let mut alone = taken.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
        migrations::run(&migrations::sqlite(), &mut *alone, "sqlite").await.map_err(|wrong| match wrong {
            MigrationError::Database(error) => self.fault(&error),
            MigrationError::Tables(why) => StoreError::Unusable(format!("{}: {why}", self.place())),
        })?;
        alone.commit().await.map_err(fault)?;
        taken.keep();
        Ok(())
    }

    async fn look(&self) -> Result<StoreInspection, StoreError> {
        let path = &self.path;
        if !is_there(path)? {
            return match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
                Some(folder) => Err(no_folder(folder, path)),
                None => Ok(StoreInspection::nothing()),
            };
        }
        let fault = |error: sqlx::Error| self.fault(&error);
        let mut taken = self.readers.take().await?;
        let mut moment = taken.begin().await.map_err(fault)?;
        let made = sqlx::query_scalar::<_, i64>(COUNT_MIGRATIONS_TABLE)
            .fetch_one(&mut *moment)
            .await
            .map_err(fault)?;
        if made == 0 {
            return Ok(StoreInspection::nothing());
        }
        let done =
            sqlx::query_as::<_, AppliedMigration>(migrations::SELECT_APPLIED).fetch_all(&mut *moment).await;
        let done = done.map_err(fault)?;
        let tables = migrations::tables(&migrations::sqlite(), &done)
            .map_err(|why| StoreError::Unusable(format!("{}: {why}", self.place())))?;
        let head =
            sqlx::query_scalar::<_, i64>(rows::SELECT_HEAD).fetch_one(&mut *moment).await.map_err(fault)?;
        let found = sqlx::query_as::<_, ObjectRow>(rows::query(&done)).fetch_all(&mut *moment).await;
        let objects = found.map_err(fault)?.into_iter().map(rows::object).collect::<Result<_, _>>()?;
        moment.rollback().await.map_err(fault)?;
        taken.keep();
        Ok(StoreInspection { snapshot: Snapshot { revision: rows::number(head)?, objects }, tables })
    }

    async fn head(&self) -> Result<u64, StoreError> {
        let mut taken = self.readers.take().await?;
        let head = sqlx::query_scalar::<_, i64>(rows::SELECT_HEAD).fetch_one(&mut *taken).await;
        let head = head.map_err(|error| self.fault(&error))?;
        taken.keep();
        rows::number(head)
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let fault = |error: sqlx::Error| self.fault(&error);
        let mut taken = self.readers.take().await?;
        let mut moment = taken.begin().await.map_err(fault)?;
        let head =
            sqlx::query_scalar::<_, i64>(rows::SELECT_HEAD).fetch_one(&mut *moment).await.map_err(fault)?;
        let found = sqlx::query_as::<_, ObjectRow>(rows::SELECT_OBJECTS).fetch_all(&mut *moment).await;
        let found = found.map_err(fault)?;
        moment.rollback().await.map_err(fault)?;
        taken.keep();
        Ok(Snapshot { revision: rows::number(head)?, objects: rows::objects(found).await? })
    }

    async fn since(&self, revision: u64, most: usize) -> Result<Vec<Revision>, StoreError> {
        self.revisions(rows::SELECT_REVISIONS_SINCE, rows::key(revision), most).await
    }

    async fn before(&self, before: Option<u64>, most: usize) -> Result<Vec<Revision>, StoreError> {
        self.revisions(rows::SELECT_REVISIONS_BEFORE, before.map_or(i64::MAX, rows::key), most).await
    }

    async fn revision(&self, number: u64) -> Result<Option<Revision>, StoreError> {
        let mut taken = self.readers.take().await?;
        let query = sqlx::query_as::<_, RevisionRow>(rows::SELECT_REVISION).bind(rows::key(number));
        let found = query.fetch_optional(&mut *taken).await.map_err(|error| self.fault(&error))?;
        taken.keep();
        found.map(rows::revision).transpose()
    }

    async fn find_revision(&self, id: Uuid) -> Result<Option<u64>, StoreError> {
        let mut taken = self.readers.take().await?;
        let query = sqlx::query_scalar::<_, i64>(rows::SELECT_REVISION_BY_ID).bind(id);
        let found = query.fetch_optional(&mut *taken).await.map_err(|error| self.fault(&error))?;
        taken.keep();
        found.map(rows::number).transpose()
    }

    async fn commit(&self, draft: &RevisionDraft) -> Result<u64, CommitError> {
        let write = RevisionInsert::new(draft)?;
        let fault = |error: sqlx::Error| self.fault(&error);
        let mut taken = self.writer.take().await?;
        let mut transaction = taken.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
        let written = self.write(&mut transaction, draft, &write).await?;
        let HeadUpdate::Now(number) = written else {
            transaction.rollback().await.map_err(fault)?;
            taken.keep();
            return match written {
                HeadUpdate::Moved(head) => Err(CommitError::Moved { head }),
                HeadUpdate::Now(number) | HeadUpdate::Before(number) => Ok(number),
            };
        };
        match transaction.commit().await {
            Ok(()) => taken.keep(),
            Err(error) => {
                drop(taken);
                // SQLite has rolled it back, unless the disk failed at the last moment.
                let error = self.fault(&error);
                match self.find_revision(draft.id).await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Err(error.into()),
                    Err(_) => return Err(CommitError::Unknown(error.to_string())),
                }
            }
        }
        self.hints.send_modify(|ticks| *ticks += 1);
        Ok(number)
    }

    fn hints(&self) -> watch::Receiver<u64> {
        self.hints.subscribe()
    }

    async fn close(&self) {
        // Running reads are not awaited: the process ends, and open transactions are rolled back.
        tokio::join!(self.readers.close(), self.writer.close(), self.data.close());
    }
}

impl Sqlite {
    /// Switches the file to a write-ahead log, permanently. Several processes may do so at the same time, and
    /// here SQLite doesn't wait by itself as it does elsewhere.
    async fn keep_log(&self, connection: &mut SqliteConnection) -> Result<(), StoreError> {
        let since = Instant::now();
        loop {
            let switched = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL")
                .fetch_one(&mut *connection)
                .await;
            match switched.map_err(|error| self.fault(&error)) {
                Ok(mode) if mode == "wal" => return Ok(()),
                Ok(_) => {
                    return Err(StoreError::Unusable(format!(
                        "{} can't have a write-ahead log there",
                        self.place()
                    )));
                }
                Err(StoreError::Unavailable(_)) if since.elapsed() < BUSY_TIMEOUT => sleep(RETRY_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Creates the file if it doesn't exist. Only its user may access it, because plugins' configuration may be
/// secret.
fn make(path: &Path) -> Result<(), StoreError> {
    let name = path.strip_prefix(".").unwrap_or(path).display();
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => is_there(path).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(no_folder(path.parent().unwrap_or(path), path))
        }
        Err(error) => Err(StoreError::Unavailable(format!("the file {name} can't be made: {error}"))),
    }
}

/// Whether the file exists. Returns an error if that can't be determined, or for a link to nowhere: a start
/// doesn't create the link's target either.
fn is_there(path: &Path) -> Result<bool, StoreError> {
    let name = path.strip_prefix(".").unwrap_or(path).display();
    match (fs::symlink_metadata(path), fs::metadata(path)) {
        (_, Ok(found)) if found.is_dir() => {
            Err(StoreError::Unusable(format!("{name} is a folder, not a file")))
        }
        (_, Ok(_)) => Ok(true),
        (Ok(_), Err(error)) if error.kind() == ErrorKind::NotFound => {
            Err(StoreError::Unavailable(format!("the file {name} is a link to nothing")))
        }
        (Err(error), _) if error.kind() == ErrorKind::NotFound => Ok(false),
        (_, Err(error)) => Err(StoreError::Unavailable(format!("the file {name} can't be opened: {error}"))),
    }
}

fn no_folder(folder: &Path, path: &Path) -> StoreError {
    let (folder, name) = (folder.display(), path.strip_prefix(".").unwrap_or(path).display());
    StoreError::Unavailable(format!("the folder {folder} of the file {name} does not exist"))
}

/// Whether there are tables of this program.
const COUNT_MIGRATIONS_TABLE: &str =
    "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'hookgate_migrations'";

/// Deletes the objects named by the JSON array `$1`, and returns them.
fn delete(kind: ObjectKind) -> &'static str {
    by_kind!(
        kind,
        "DELETE FROM ",
        " WHERE name IN (SELECT value FROM json_each($1)) RETURNING name, owner, spec"
    )
}

/// Inserts the objects of the JSON array `$1`, whose elements are arrays of name, owner and spec.
fn insert(kind: ObjectKind) -> &'static str {
    by_kind!(
        kind,
        "INSERT INTO ",
        " (name, owner, version, spec)
          SELECT value ->> 0, value ->> 1, $2, value ->> 2 FROM json_each($1)"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;
    use time::OffsetDateTime;

    use super::*;
    use crate::{
        core::object::Owner,
        store::{Change, ObjectContent},
    };

    async fn store() -> (TempDir, Sqlite) {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::new(folder.path().join("small.db"));
        store.prepare().await.unwrap();
        (folder, store)
    }

    /// Runs `sql` on the writer's connection.
    async fn run(store: &Sqlite, sql: &'static str) {
        let mut taken = store.writer.take().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut *taken).await.unwrap();
        taken.keep();
    }

    fn tenant(base: u64) -> RevisionDraft {
        let content = ObjectContent {
            owner: Owner::Api,
            spec: json!({ "labels": { "long": "x".repeat(2000) } }).into(),
        };
        let name = format!("t{base}").into();
        let changes = vec![Change { kind: ObjectKind::Tenant, name, before: None, after: Some(content) }];
        let (id, at) = (Uuid::now_v7(), OffsetDateTime::UNIX_EPOCH);
        RevisionDraft { id, base, at, author: String::new(), reason: String::new(), changes }
    }

    #[tokio::test]
    async fn bypasses_are_stored_where_an_older_version_does_not_look() {
        let (_folder, store) = store().await;
        let mut draft = tenant(0);
        let content = ObjectContent { owner: Owner::Api, spec: json!({ "reason": "x" }).into() };
        let bypass =
            Change { kind: ObjectKind::Bypass, name: "b@t0".into(), before: None, after: Some(content) };
        draft.changes.push(bypass.clone());
        assert_eq!(store.commit(&draft).await.unwrap(), 1);
        let ended = Change { before: bypass.after.clone(), after: None, ..bypass };
        let alone = RevisionDraft { id: Uuid::now_v7(), base: 1, changes: vec![ended], ..draft.clone() };
        assert_eq!(store.commit(&alone).await.unwrap(), 2);
        let sql = "SELECT changes FROM hookgate_revisions ORDER BY number";
        let seen: Vec<String> =
            sqlx::query_scalar(sql).fetch_all(&mut *store.readers.take().await.unwrap()).await.unwrap();
        let seen: Vec<Vec<serde_json::Value>> =
            seen.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        assert_eq!((seen[0].len(), &seen[0][0]["kind"], seen[1].len()), (1, &json!("tenant"), 0));
        let revisions = store.since(0, 10).await.unwrap();
        assert_eq!((&revisions[0].changes, &revisions[1].changes), (&draft.changes, &alone.changes));
    }

    /// Makes SQLite roll back on its own every transaction that inserts its revision, as it does after a disk
    /// error, without notifying the library.
    const ROLL_BACK: &str = "CREATE TRIGGER no_room BEFORE INSERT ON hookgate_revisions
                             BEGIN SELECT RAISE(ROLLBACK, 'no room'); END";

    #[tokio::test]
    async fn writes_go_on_after_sqlite_has_rolled_one_back_by_itself() {
        let (_folder, store) = store().await;
        run(&store, ROLL_BACK).await;
        for _ in 0..3 {
            let said = store.commit(&tenant(0)).await.unwrap_err().to_string();
            assert!(said.ends_with("no room"), "{said}");
        }
        assert_eq!(store.head().await.unwrap(), 0);
        run(&store, "DROP TRIGGER no_room").await;
        assert_eq!(store.commit(&tenant(0)).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_full_disk_refuses_a_write_whole_and_is_named() {
        let (_folder, store) = store().await;
        // On the writer's only connection, the disk appears full at that size.
        run(&store, "PRAGMA max_page_count = 40").await;
        let mut base = 0;
        let said = loop {
            match store.commit(&tenant(base)).await {
                Ok(head) => base = head,
                Err(error) => break error.to_string(),
            }
            assert!(base < 1000, "the disk is larger than thought");
        };
        assert!(base > 0 && said.ends_with("can't grow: the disk is full"), "{base}: {said}");
        let snapshot = store.snapshot().await.unwrap();
        assert_eq!((snapshot.revision, snapshot.objects.len() as u64), (base, base));
        // Another connection doesn't have the limit.
        assert_eq!(store.commit(&tenant(base)).await.unwrap(), base + 1);
    }
}
