//! Plugins' data in PostgreSQL, on connections of its own.
//!
//! Statements that lock several rows lock them in the order of their keys, or skip locked ones, so that there are no
//! deadlocks.

use async_trait::async_trait;
use sqlx::{Connection, PgConnection};

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
    postgres::{ANSWER_TIMEOUT, Postgres, PostgresServer},
    rows,
};

/// Versions come from the server's clock, which is the same for all replicas.
const CHANGES: ChangeStatements =
    change_statements!("greatest", "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)");

/// Selects the entries whose keys are in the array `$3`.
const SELECT_ENTRIES: &str = "
    SELECT key, value, counter, version, expires_ms FROM hookgate_plugin_data
    WHERE plugin = $1 AND tenant = $2 AND key = ANY($3) AND (expires_ms IS NULL OR expires_ms > $4)";
const DELETE_EXPIRED: &str = "
    WITH gone AS (
        SELECT plugin, tenant, key FROM hookgate_plugin_data WHERE expires_ms <= $1
        LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    DELETE FROM hookgate_plugin_data AS stored USING gone
    WHERE stored.plugin = gone.plugin AND stored.tenant = gone.tenant AND stored.key = gone.key";
const DELETE_PLUGIN: &str = "
    WITH gone AS (
        SELECT plugin, tenant, key FROM hookgate_plugin_data WHERE plugin = $1
        ORDER BY plugin, tenant, key LIMIT $2 FOR UPDATE
    )
    DELETE FROM hookgate_plugin_data AS stored USING gone
    WHERE stored.plugin = gone.plugin AND stored.tenant = gone.tenant AND stored.key = gone.key";

/// The statements of a write on a connection.
struct PostgresSession<'a> {
    database: &'a ConnectionPool<PostgresServer>,
    connection: &'a mut PgConnection,
}

impl ChangeSession for PostgresSession<'_> {
    async fn change(&mut self, request: ChangeRequest<'_>) -> Result<Option<ChangeRow>, StoreError> {
        // Every statement has the parameter of the clock, but here none reads it.
        let changed = request.query(&CHANGES, 0).fetch_optional(&mut *self.connection);
        self.database.within(ANSWER_TIMEOUT, changed).await
    }

    async fn state(&mut self, request: ChangeRequest<'_>) -> Result<Option<ChangeRow>, StoreError> {
        let ChangeRequest { scope, operation, now_ms } = request;
        let query = sqlx::query_as::<_, ChangeRow>(sql::SELECT_STATE).bind(&*scope.plugin);
        let query = query.bind(scope.tenant_column()).bind(operation.key()).bind(now_ms);
        self.database.within(ANSWER_TIMEOUT, query.fetch_optional(&mut *self.connection)).await
    }
}

impl Postgres {
    async fn delete_batch(
        &self,
        query: sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments>,
    ) -> Result<u64, StoreError> {
        let mut taken = self.data.take_recent().await?;
        let deleted = self.data.within(ANSWER_TIMEOUT, query.execute(&mut *taken)).await?;
        taken.keep();
        Ok(deleted.rows_affected())
    }
}

#[async_trait]
impl PluginData for Postgres {
    async fn read(
        &self,
        scope: &DataScope,
        keys: &[String],
        now_ms: i64,
    ) -> Result<Vec<DataEntry>, StoreError> {
        let (plugin, tenant) = (&*scope.plugin, scope.tenant_column());
        let mut taken = self.data.take_recent().await?;
        let query = match keys {
            [key] => sqlx::query_as::<_, EntryRow>(sql::SELECT_ENTRY).bind(plugin).bind(tenant).bind(key),
            keys => sqlx::query_as::<_, EntryRow>(SELECT_ENTRIES).bind(plugin).bind(tenant).bind(keys),
        };
        let found = self.data.within(ANSWER_TIMEOUT, query.bind(now_ms).fetch_all(&mut *taken)).await?;
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
        let mut taken = self.data.take_recent().await?;
        let query =
            sqlx::query_as::<_, EntryRow>(range.sql()).bind(&*scope.plugin).bind(scope.tenant_column());
        let mut query = query.bind(range.first).bind(range.after).bind(now_ms).bind(range.most);
        if let Some(end) = &range.end {
            query = query.bind(end);
        }
        let found = self.data.within(ANSWER_TIMEOUT, query.fetch_all(&mut *taken)).await?;
        taken.keep();
        found.into_iter().map(sql::entry).collect()
    }

    async fn write(
        &self,
        scope: &DataScope,
        operations: &[DataOperation],
        now_ms: i64,
    ) -> Result<Result<Vec<DataChange>, RejectedWrite>, StoreError> {
        let database = &self.data;
        let mut taken = database.take_recent().await?;
        if let [operation] = operations {
            let mut session = PostgresSession { database, connection: &mut taken };
            let made = write::make(&mut session, ChangeRequest { scope, operation, now_ms }).await?;
            taken.keep();
            return Ok(made.map(|change| vec![change]).map_err(|reason| RejectedWrite { index: 0, reason }));
        }
        let mut transaction = database.within(ANSWER_TIMEOUT, taken.begin()).await?;
        let mut session = PostgresSession { database, connection: &mut transaction };
        let made = write::make_all(&mut session, scope, operations, now_ms).await?;
        match made {
            Ok(_) => database.within(ANSWER_TIMEOUT, transaction.commit()).await?,
            Err(_) => database.within(ANSWER_TIMEOUT, transaction.rollback()).await?,
        }
        taken.keep();
        Ok(made)
    }

    async fn usage(&self, scope: &DataScope, now_ms: i64) -> Result<DataUsage, StoreError> {
        let mut taken = self.data.take_recent().await?;
        let query = sqlx::query_as::<_, (i64, i64)>(sql::SELECT_USAGE);
        let query = query.bind(&*scope.plugin).bind(scope.tenant_column()).bind(now_ms);
        let usage = self.data.within(ANSWER_TIMEOUT, query.fetch_one(&mut *taken)).await?;
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
            // Others may have deleted some of the rows that this statement selected.
            if deleted == 0 {
                break;
            }
        }
        Ok(total)
    }

    async fn signing_keys(&self) -> Result<Vec<SigningKey>, StoreError> {
        let mut taken = self.data.take().await?;
        let query = sqlx::query_as::<_, SigningKeyRow>(sql::SELECT_SIGNING_KEYS);
        let found = self.data.within(ANSWER_TIMEOUT, query.fetch_all(&mut *taken)).await?;
        taken.keep();
        found.into_iter().map(sql::signing_key).collect()
    }

    async fn add_signing_key(&self, key: &SigningKey) -> Result<(), StoreError> {
        let mut taken = self.data.take().await?;
        let mut transaction = self.data.within(ANSWER_TIMEOUT, taken.begin()).await?;
        let insert =
            sqlx::query(sql::INSERT_SIGNING_KEY).bind(rows::key(key.generation)).bind(key.created_ms);
        let insert = insert.bind(&key.secret[..]).execute(&mut *transaction);
        self.data.within(ANSWER_TIMEOUT, insert).await?;
        let delete = sqlx::query(sql::DELETE_OLD_SIGNING_KEYS).execute(&mut *transaction);
        self.data.within(ANSWER_TIMEOUT, delete).await?;
        self.data.within(ANSWER_TIMEOUT, transaction.commit()).await?;
        taken.keep();
        Ok(())
    }
}
