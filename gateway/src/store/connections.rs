//! A few connections to one database, kept for the next question.
//!
//! Why not the library's pool: where a server refuses connections it tries again for as long as one waits, so that nobody
//! learns why. It takes a connection back by asking the server, which one that does not answer would hold for ever. And
//! it takes one back after an error, though a database that rolled a transaction back itself leaves it unusable
//! (docs/decisions/0044-connections-to-sqlite.md).

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use sqlx::Connection;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::StoreError;

/// How long it may take to have one: the wait for a turn and what follows it, together.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long making one may take, TLS and log-in included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one that was idle may take to show that it is still there.
const PING_TIMEOUT: Duration = Duration::from_secs(1);

/// A database that connections are made to.
pub(super) trait Database: Send + Sync {
    type Connection: Connection;

    /// Makes one.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, sqlx::Error>> + Send;

    /// The database in words.
    fn place(&self) -> &str;

    /// What an error of it means.
    fn fault(&self, error: &sqlx::Error) -> StoreError;
}

pub(super) struct ConnectionPool<D: Database> {
    database: D,
    turns: Semaphore,
    idle: Mutex<Vec<D::Connection>>,
}

impl<D: Database> ConnectionPool<D> {
    /// At most `max` at a time.
    pub(super) fn new(database: D, max: usize) -> Self {
        Self { database, turns: Semaphore::new(max), idle: Mutex::default() }
    }

    /// The database in words.
    pub(super) fn place(&self) -> &str {
        self.database.place()
    }

    /// What an error of it means.
    pub(super) fn fault(&self, error: &sqlx::Error) -> StoreError {
        self.database.fault(error)
    }

    /// A connection that has just answered, or is new.
    pub(super) async fn take(&self) -> Result<PooledConnection<'_, D>, StoreError> {
        timeout(ACQUIRE_TIMEOUT, self.in_turn()).await.unwrap_or_else(|_| Err(self.silent()))
    }

    async fn in_turn(&self) -> Result<PooledConnection<'_, D>, StoreError> {
        let Ok(turn) = self.turns.acquire().await else {
            return Err(StoreError::Unavailable(format!("{} was dropped", self.place())));
        };
        if let Some(mut connection) = self.newest() {
            if self.within(PING_TIMEOUT, connection.ping()).await.is_ok() {
                return Ok(PooledConnection { from: self, connection, _turn: turn });
            }
            // What happened to one of them happened to all.
            self.idle().clear();
        }
        let connection = self.within(CONNECT_TIMEOUT, self.database.connect()).await?;
        Ok(PooledConnection { from: self, connection, _turn: turn })
    }

    /// The answer to one question, if it comes within `limit`.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.fault(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    pub(super) fn silent(&self) -> StoreError {
        StoreError::Unavailable(format!("{} does not answer in time", self.place()))
    }

    /// Gives no more connections, and says good-bye to those that are idle.
    pub(super) async fn close(&self) {
        self.turns.close();
        let idle = std::mem::take(&mut *self.idle());
        let farewell = futures::future::join_all(idle.into_iter().map(Connection::close));
        // A database that does not answer finds out by itself.
        let _ = timeout(PING_TIMEOUT, farewell).await;
    }

    fn newest(&self) -> Option<D::Connection> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<D::Connection>> {
        self.idle.lock().expect("no holder of this lock panics")
    }
}

/// A connection. It ends with this value, whatever was under way on it, unless [`PooledConnection::keep`] takes it back.
pub(super) struct PooledConnection<'a, D: Database> {
    from: &'a ConnectionPool<D>,
    connection: D::Connection,
    _turn: SemaphorePermit<'a>,
}

impl<D: Database> PooledConnection<'_, D> {
    /// For the next one: no transaction is open, and all answers were read.
    pub(super) fn keep(self) {
        if !self.from.turns.is_closed() {
            self.from.idle().push(self.connection);
        }
    }
}

impl<D: Database> Deref for PooledConnection<'_, D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.connection
    }
}

impl<D: Database> DerefMut for PooledConnection<'_, D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.connection
    }
}
