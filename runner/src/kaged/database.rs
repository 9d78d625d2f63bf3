//! The database of a plugin for one tenant, in a process of its own: the plugin's SQL is only ever read there.

use std::{
    io::{self, BufRead as _, Write as _},
    path::PathBuf,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Row as _, SqliteConnection, TypeInfo as _,
    ValueRef as _,
    query::Query,
    sqlite::{Sqlite, SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqliteRow},
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{
    message::{self, INVALID_PARAMS, IncomingMessage, METHOD_NOT_FOUND, RpcError},
    statement::{Statement, StatementKind},
};

/// Longest statement, as time.
const MAX_TIME: Duration = Duration::from_secs(5);
/// How long a statement waits for another session of the tenant.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// How many instructions of SQLite pass between two looks at the time.
const TIME_CHECK: i32 = 10_000;
/// Most rows of a query.
const MAX_ROWS: usize = 10_000;
/// Most pages of a database, of 4 KiB each: 64 MiB.
const MAX_PAGES: u32 = 16_384;
/// Cache of a database, in SQLite's notation for KiB.
const CACHE_SIZE: &str = "-256";
/// Memory of SQLite, in bytes. It is less than that of the process, so that SQLite answers with an error.
const MAX_HEAP: u64 = 96 << 20;
/// Longest result of a query, in bytes of JSON.
pub(super) const MAX_RESULT_BYTES: usize = 4 << 20;
/// Longest message of SQLite, in characters. It may quote the statement.
const MAX_MESSAGE: usize = 500;

/// What a request may ask for.
pub(super) const OPERATIONS: [&str; 3] = ["exec", "query", "schema"];

/// The code of kaged for what a plugin may not do.
pub(super) const FORBIDDEN: i64 = -32003;
/// The code of an SQL error.
pub(super) const STORAGE_ERROR: i64 = -32000;

/// What a plugin may do with its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StorageAccess {
    Read,
    Write,
}

impl StorageAccess {
    /// The access that `capabilities` of a manifest ask for.
    pub(super) fn of(capabilities: &[String]) -> Option<Self> {
        let has = |wanted: &str| capabilities.iter().any(|capability| capability == wanted);
        match (has("kaged:storage:write"), has("kaged:storage:read")) {
            (true, _) => Some(StorageAccess::Write),
            (false, true) => Some(StorageAccess::Read),
            (false, false) => None,
        }
    }
}

/// A storage to serve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StorageSpec {
    pub(crate) file: PathBuf,
    pub(crate) access: StorageAccess,
}

/// Answers requests on standard input, one after the other, until it ends. Each is a line, and so is its response.
///
/// # Errors
/// If standard input or output fails.
pub(crate) fn serve_storage(spec: &StorageSpec) -> io::Result<()> {
    // Without its thread the database would refuse everything. The next request starts another process.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    // With a handler, a write beyond the largest file fails instead of ending the process.
    let _handler = runtime.block_on(async { signal(SignalKind::from_raw(libc::SIGXFSZ)) })?;
    let mut database = Database::new(spec.clone());
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let IncomingMessage::Request { id, method, params } = IncomingMessage::parse(&line.into()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let outcome = runtime.block_on(database.answer(&method, &params));
        let outcome = outcome.map(|result| result.to_string().into_bytes());
        output.write_all(&message::response(&id, &outcome))?;
        output.flush()?;
    }
}

/// The database of one plugin and tenant.
struct Database {
    spec: StorageSpec,
    max_time: Duration,
    /// Opened for the first statement.
    connection: Option<SqliteConnection>,
}

#[derive(Deserialize)]
struct StatementParams {
    sql: String,
    #[serde(default)]
    params: Vec<Value>,
}

pub(super) fn error(code: i64, message: impl Into<String>) -> RpcError {
    RpcError { code, message: message.into() }
}

/// SQLite's message for an error.
fn sql_error(cause: &sqlx::Error) -> RpcError {
    let message = match cause {
        sqlx::Error::Database(cause) if cause.message() == "interrupted" => {
            "the statement took too long".to_owned()
        }
        sqlx::Error::Database(cause) => cause.message().chars().take(MAX_MESSAGE).collect(),
        cause => cause.to_string().chars().take(MAX_MESSAGE).collect(),
    };
    error(STORAGE_ERROR, message)
}

impl Database {
    fn new(spec: StorageSpec) -> Self {
        Database { spec, max_time: MAX_TIME, connection: None }
    }

    /// Answers a request: `exec`, `query` or `schema`.
    async fn answer(&mut self, operation: &str, params: &[u8]) -> Result<Value, RpcError> {
        if !OPERATIONS.contains(&operation) {
            return Err(error(METHOD_NOT_FOUND, format!("there is no method storage.{operation}")));
        }
        if operation == "schema" && (params.is_empty() || params == b"{}" || params == b"null") {
            let tables = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
            let rows = self.rows(tables, Vec::new()).await?;
            return Ok(json!({ "tables": rows }));
        }
        let StatementParams { sql, params } = serde_json::from_slice(params)
            .map_err(|cause| error(INVALID_PARAMS, format!("`sql` and `params` are expected: {cause}")))?;
        let kind = Statement::new(&sql).map_err(|reason| error(INVALID_PARAMS, reason))?.kind();
        match (kind, self.spec.access) {
            (StatementKind::Other, _) => {
                let reason = "only SELECT, INSERT, UPDATE, DELETE, REPLACE, CREATE, ALTER and DROP are allowed, \
                              and no temporary and virtual tables";
                Err(error(FORBIDDEN, reason))
            }
            (StatementKind::Change, StorageAccess::Read) => {
                Err(error(FORBIDDEN, "a change needs the capability kaged:storage:write in the manifest"))
            }
            _ if operation == "query" => Ok(json!({ "rows": self.rows(&sql, params).await? })),
            _ => self.execute(&sql, params).await,
        }
    }

    /// The connection, whose next statement has its own time.
    async fn connection(&mut self) -> Result<&mut SqliteConnection, RpcError> {
        if self.connection.is_none() {
            let opened = self.open().await;
            self.connection = Some(opened.map_err(|cause| sql_error(&cause))?);
        }
        let connection = self.connection.as_mut().ok_or_else(|| error(STORAGE_ERROR, "it is not open"))?;
        let end = Instant::now() + self.max_time;
        let mut handle = connection.lock_handle().await.map_err(|cause| sql_error(&cause))?;
        handle.set_progress_handler(TIME_CHECK, move || Instant::now() < end);
        drop(handle);
        Ok(connection)
    }

    async fn open(&self) -> sqlx::Result<SqliteConnection> {
        let options = SqliteConnectOptions::new()
            .filename(&self.spec.file)
            .create_if_missing(true)
            // A write-ahead log has no limit of its size.
            .journal_mode(SqliteJournalMode::Truncate)
            .busy_timeout(MAX_WAIT)
            .pragma("max_page_count", MAX_PAGES.to_string())
            .pragma("cache_size", CACHE_SIZE)
            .pragma("hard_heap_limit", MAX_HEAP.to_string())
            .pragma("temp_store", "MEMORY")
            .pragma("trusted_schema", "OFF")
            .disable_statement_logging();
        let options = match self.spec.access {
            StorageAccess::Read => options.pragma("query_only", "ON"),
            StorageAccess::Write => options,
        };
        options.connect().await
    }

    async fn rows(&mut self, sql: &str, params: Vec<Value>) -> Result<Vec<Value>, RpcError> {
        let query = bound(sql, params)?;
        let mut rows = query.fetch(self.connection().await?);
        let (mut read, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.try_next().await.map_err(|cause| sql_error(&cause))? {
            if read.len() == MAX_ROWS {
                return Err(error(STORAGE_ERROR, format!("a query may have up to {MAX_ROWS} rows")));
            }
            let row = row_object(&row, MAX_RESULT_BYTES - bytes)?;
            bytes += row.to_string().len() + 1;
            if bytes > MAX_RESULT_BYTES {
                return Err(too_long());
            }
            read.push(row);
        }
        Ok(read)
    }

    async fn execute(&mut self, sql: &str, params: Vec<Value>) -> Result<Value, RpcError> {
        let query = bound(sql, params)?;
        let done = query.execute(self.connection().await?).await.map_err(|cause| sql_error(&cause))?;
        Ok(json!({ "changes": done.rows_affected(), "last_insert_rowid": done.last_insert_rowid() }))
    }
}

fn too_long() -> RpcError {
    error(STORAGE_ERROR, "the result of a query may have up to 4 MiB")
}

/// A statement with its parameters.
fn bound(sql: &str, params: Vec<Value>) -> Result<Query<'static, Sqlite, SqliteArguments>, RpcError> {
    let query = sqlx::query(AssertSqlSafe(sql.to_owned())).persistent(false);
    params.into_iter().enumerate().try_fold(query, |query, (index, value)| {
        Ok(match value {
            Value::Null => query.bind(None::<String>),
            Value::Bool(flag) => query.bind(flag),
            Value::String(text) => query.bind(text),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => query.bind(integer),
                (None, Some(real)) if number.is_f64() => query.bind(real),
                _ => return Err(error(INVALID_PARAMS, format!("`params[{index}]` is beyond 64 bits"))),
            },
            Value::Array(_) | Value::Object(_) => {
                let reason = format!("`params[{index}]` must be a string, a number, a boolean or null");
                return Err(error(INVALID_PARAMS, reason));
            }
        })
    })
}

/// A row of up to `max` bytes. No value is copied before that is known.
fn row_object(row: &SqliteRow, max: usize) -> Result<Value, RpcError> {
    let (mut object, mut bytes) = (Map::new(), 0);
    for (index, column) in row.columns().iter().enumerate() {
        bytes += column.name().len() + value_bytes(row, index).map_err(|cause| sql_error(&cause))?;
        if bytes > max {
            return Err(too_long());
        }
        let value = value(row, index).map_err(|cause| sql_error(&cause))?;
        object.insert(column.name().to_owned(), value);
    }
    Ok(Value::Object(object))
}

/// The length of a text or of bytes.
fn value_bytes(row: &SqliteRow, index: usize) -> sqlx::Result<usize> {
    let raw = row.try_get_raw(index)?;
    match (raw.is_null(), raw.type_info().name()) {
        (true, _) | (_, "INTEGER" | "REAL") => Ok(0),
        _ => Ok(row.try_get_unchecked::<&[u8], _>(index)?.len()),
    }
}

fn value(row: &SqliteRow, index: usize) -> sqlx::Result<Value> {
    let raw = row.try_get_raw(index)?;
    Ok(match (raw.is_null(), raw.type_info().name()) {
        (true, _) => Value::Null,
        (false, "INTEGER") => row.try_get_unchecked::<i64, _>(index)?.into(),
        (false, "REAL") => row.try_get_unchecked::<f64, _>(index)?.into(),
        (false, "BLOB") => STANDARD.encode(row.try_get_unchecked::<&[u8], _>(index)?).into(),
        _ => row.try_get_unchecked::<&str, _>(index)?.into(),
    })
}

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
