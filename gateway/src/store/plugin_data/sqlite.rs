//! Plugins' data in SQLite. One connection writes, and others read at the same time.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use sqlx::{Connection, SqliteConnection};

use super::{
    DataChange, DataEntry, DataOperation, DataScope, DataUsage, ListRange, PluginData, RejectedWrite,
    SigningKey,
    sql::{
        self, ChangeRequest, ChangeRow, ChangeStatements, EntryRow, KeyRange, SigningKeyRow,
        change_statements, put_statement,
    },
    write::{self, ChangeSession},
};
use crate::store::{
    StoreError,
    connections::ConnectionPool,
    rows,
    sqlite::{Sqlite, SqliteFile},
};

const CHANGES: ChangeStatements = change_statements!("max", "$4");

/// Selects the entries whose keys are in the JSON array `$3`.
const SELECT_ENTRIES: &str = "
    SELECT key, value, counter, version, expires_ms FROM hookgate_plugin_data
    WHERE plugin = $1 AND tenant = $2 AND key IN (SELECT value FROM json_each($3))
    AND (expires_ms IS NULL OR expires_ms > $4)";
const DELETE_EXPIRED: &str = "
    DELETE FROM hookgate_plugin_data WHERE (plugin, tenant, key) IN
    (SELECT plugin, tenant, key FROM hookgate_plugin_data WHERE expires_ms <= $1 LIMIT $2)";
const DELETE_PLUGIN: &str = "
    DELETE FROM hookgate_plugin_data WHERE (plugin, tenant, key) IN
    (SELECT plugin, tenant, key FROM hookgate_plugin_data WHERE plugin = $1 LIMIT $2)";

/// The statements of a write on a connection.
struct SqliteSession<'a> {
    database: &'a ConnectionPool<SqliteFile>,
    connection: &'a mut SqliteConnection,
    last_version: &'a AtomicI64,
}

impl SqliteSession<'_> {
    /// Microseconds since 1970, but greater at every call, also if the clock is set back.
    fn clock(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let next = |last: i64| now.max(last + 1);
        // The writer's connection has one user at a time.
        let version = next(self.last_version.load(Ordering::Relaxed));
        self.last_version.store(version, Ordering::Relaxed);
        version
    }
}

impl ChangeSession for SqliteSession<'_> {
    async fn change(&mut self, request: ChangeRequest<'_>) -> Result<Option<ChangeRow>, StoreError> {
        let query = request.query(&CHANGES, self.clock());
        // All rows: the library hides an error of the implicit commit after the first one.
        let mut changed =
            query.fetch_all(&mut *self.connection).await.map_err(|error| self.database.fault(&error))?;
        Ok(changed.pop())
    }

    async fn state(&mut self, request: ChangeRequest<'_>) -> Result<Option<ChangeRow>, StoreError> {
        let ChangeRequest { scope, operation, now_ms } = request;
        let query = sqlx::query_as::<_, ChangeRow>(sql::SELECT_STATE).bind(&*scope.plugin);
        let query = query.bind(scope.tenant_column()).bind(operation.key()).bind(now_ms);
        query.fetch_optional(&mut *self.connection).await.map_err(|error| self.database.fault(&error))
    }
}

impl Sqlite {
    async fn delete_batch(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let mut taken = self.data.take_recent().await?;
        let deleted = query.execute(&mut *taken).await.map_err(|error| self.data.fault(&error))?;
        taken.keep();
        Ok(deleted.rows_affected())
    }
}

#[async_trait]
impl PluginData for Sqlite {
    async fn read(
        &self,
        scope: &DataScope,
        keys: &[String],
        now_ms: i64,
    ) -> Result<Vec<DataEntry>, StoreError> {
        let (plugin, tenant) = (&*scope.plugin, scope.tenant_column());
        let mut taken = self.readers.take_recent().await?;
        let query = match keys {
            [key] => sqlx::query_as::<_, EntryRow>(sql::SELECT_ENTRY).bind(plugin).bind(tenant).bind(key),
            keys => {
                let keys = serde_json::json!(keys).to_string();
                sqlx::query_as::<_, EntryRow>(SELECT_ENTRIES).bind(plugin).bind(tenant).bind(keys)
            }
        };
        let found = query.bind(now_ms).fetch_all(&mut *taken).await;
        let found = found.map_err(|error| self.readers.fault(&error))?;
        taken.keep();
        found.into_iter().map(sql::entry).collect()
    }

    async fn list(
        &self,
        scope: &DataScope,
        range: ListRange<'_>,
        now_ms: i64,
    ) -> Result<Vec<DataEntry>, StoreError> {
        let range = KeyRange::new(range);
        let mut taken = self.readers.take_recent().await?;
        let query =
            sqlx::query_as::<_, EntryRow>(range.sql()).bind(&*scope.plugin).bind(scope.tenant_column());
        let mut query = query.bind(range.first).bind(range.after).bind(now_ms).bind(range.most);
        if let Some(end) = &range.end {
            query = query.bind(end);
        }
        let found = query.fetch_all(&mut *taken).await.map_err(|error| self.readers.fault(&error))?;
        taken.keep();
        found.into_iter().map(sql::entry).collect()
    }

    async fn write(
        &self,
        scope: &DataScope,
        operations: &[DataOperation],
        now_ms: i64,
    ) -> Result<Result<Vec<DataChange>, RejectedWrite>, StoreError> {
        let (database, last_version) = (&self.data, &self.last_version);
        let mut taken = database.take_recent().await?;
        if let [operation] = operations {
            let mut session = SqliteSession { database, connection: &mut taken, last_version };
            let made = write::make(&mut session, ChangeRequest { scope, operation, now_ms }).await?;
            taken.keep();
            return Ok(made.map(|change| vec![change]).map_err(|reason| RejectedWrite { index: 0, reason }));
        }
        let fault = |error: sqlx::Error| database.fault(&error);
        let mut transaction = taken.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
        let mut session = SqliteSession { database, connection: &mut transaction, last_version };
        let made = write::make_all(&mut session, scope, operations, now_ms).await?;
        match made {
            Ok(_) => transaction.commit().await.map_err(fault)?,
            Err(_) => transaction.rollback().await.map_err(fault)?,
        }
        taken.keep();
        Ok(made)
    }

    async fn usage(&self, scope: &DataScope, now_ms: i64) -> Result<DataUsage, StoreError> {
        let mut taken = self.readers.take_recent().await?;
        let query = sqlx::query_as::<_, (i64, i64)>(sql::SELECT_USAGE);
        let query = query.bind(&*scope.plugin).bind(scope.tenant_column()).bind(now_ms);
        let usage = query.fetch_one(&mut *taken).await.map_err(|error| self.readers.fault(&error))?;
        taken.keep();
        sql::usage(usage)
    }

    async fn delete_expired(&self, now_ms: i64, most: usize) -> Result<u64, StoreError> {
        let mut total = 0;
        for size in sql::batches(most) {
            let deleted =
                self.delete_batch(sqlx::query(DELETE_EXPIRED).bind(now_ms).bind(rows::limit(size))).await?;
            total += deleted;
            if deleted < size as u64 {
                break;
            }
        }
        Ok(total)
    }

    async fn delete_plugin(&self, plugin: &str) -> Result<u64, StoreError> {
        let mut total = 0;
        for size in sql::batches(usize::MAX) {
            let deleted =
                self.delete_batch(sqlx::query(DELETE_PLUGIN).bind(plugin).bind(rows::limit(size))).await?;
            total += deleted;
            if deleted < size as u64 {
                break;
            }
        }
        Ok(total)
    }

    async fn signing_keys(&self) -> Result<Vec<SigningKey>, StoreError> {
        let mut taken = self.readers.take().await?;
        let query = sqlx::query_as::<_, SigningKeyRow>(sql::SELECT_SIGNING_KEYS);
        let found = query.fetch_all(&mut *taken).await.map_err(|error| self.readers.fault(&error))?;
        taken.keep();
        found.into_iter().map(sql::signing_key).collect()
    }

    async fn add_signing_key(&self, key: &SigningKey) -> Result<(), StoreError> {
        let fault = |error: sqlx::Error| self.data.fault(&error);
        let mut taken = self.data.take().await?;
        let mut transaction = taken.begin_with("BEGIN IMMEDIATE").await.map_err(fault)?;
        let insert =
            sqlx::query(sql::INSERT_SIGNING_KEY).bind(rows::key(key.generation)).bind(key.created_ms);
        insert.bind(&key.secret[..]).execute(&mut *transaction).await.map_err(fault)?;
        sqlx::query(sql::DELETE_OLD_SIGNING_KEYS).execute(&mut *transaction).await.map_err(fault)?;
        transaction.commit().await.map_err(fault)?;
        taken.keep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row};

    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn statements_read_only_the_rows_that_they_are_about() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::new(folder.path().join("small.db"));
        store.prepare().await.unwrap();
        let page = |prefix| KeyRange::new(ListRange { prefix, after: "", limit: 1 }).sql();
        for (sql, used) in [
            (page("a"), "PRIMARY KEY (plugin=? AND tenant=? AND key>? AND key<?)"),
            (page(""), "PRIMARY KEY (plugin=? AND tenant=? AND key>?)"),
            (SELECT_ENTRIES, "PRIMARY KEY (plugin=? AND tenant=? AND key=?)"),
            (DELETE_EXPIRED, "hookgate_plugin_data_expiry (expires_ms<?)"),
            (DELETE_PLUGIN, "PRIMARY KEY (plugin=?)"),
        ] {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let mut taken = store.readers.take().await.unwrap();
            let plan = sqlx::raw_sql(explain).fetch_all(&mut *taken).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
            assert!(plan.iter().any(|step| step.contains(used)), "{sql}: {plan:?}");
            assert!(!plan.iter().any(|step| step.contains("B-TREE")), "{sql}: {plan:?}");
        }
    }

    #[tokio::test]
    async fn plugins_data_is_written_without_waiting_for_the_disk_but_the_registry_waits() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::new(folder.path().join("small.db"));
        store.prepare().await.unwrap();
        for (database, synchronous) in [(&store.data, 1_i64), (&store.readers, 2)] {
            let mut taken = database.take().await.unwrap();
            let set = sqlx::query_scalar::<_, i64>("PRAGMA synchronous").fetch_one(&mut *taken).await;
            assert_eq!(set.unwrap(), synchronous);
        }
    }
}
