//! A small pool of connections to one database.
//!
//! Why not sqlx's pool? When a server refuses connections, that pool retries for as long as the caller waits,
//! and hides the reason. It checks a returned connection with a query, which a server that doesn't respond
//! would hold for ever. And it reuses a connection after an error, although a database that rolled a
//! transaction back on its own leaves the connection unusable (docs/decisions/0044-connections-to-sqlite.md).

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use sqlx::Connection;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::StoreError;

/// Timeout for getting a connection: the wait for a turn and everything after it, together.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout for making a connection, including TLS and login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout for an idle connection to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// [`ConnectionPool::take_recent`] doesn't ping a connection that was used this recently.
const RECENT_USE: Duration = Duration::from_secs(1);

/// A database that connections are made to.
pub(super) trait Database: Send + Sync {
    type Connection: Connection;

    fn connect(&self) -> impl Future<Output = Result<Self::Connection, sqlx::Error>> + Send;

    /// The database's location, for messages.
    fn place(&self) -> &str;

    /// Converts an error of the database.
    fn fault(&self, error: &sqlx::Error) -> StoreError;
}

pub(super) struct ConnectionPool<D: Database> {
    database: D,
    turns: Semaphore,
    /// Each with the time of its last use.
    idle: Mutex<Vec<(D::Connection, Instant)>>,
}

impl<D: Database> ConnectionPool<D> {
    /// At most `max` connections at a time.
    pub(super) fn new(database: D, max: usize) -> Self {
        Self { database, turns: Semaphore::new(max), idle: Mutex::default() }
    }

    /// The database's location, for messages.
    pub(super) fn place(&self) -> &str {
        self.database.place()
    }

    /// Converts an error of the database.
    pub(super) fn fault(&self, error: &sqlx::Error) -> StoreError {
        self.database.fault(error)
    }

    /// A connection that has just answered a ping, or is new.
    pub(super) async fn take(&self) -> Result<PooledConnection<'_, D>, StoreError> {
        self.take_within(Duration::ZERO).await
    }

    /// Like [`Self::take`], but saves the ping of a connection that was used a moment ago. So a use may fail because
    /// the connection was lost since.
    pub(super) async fn take_recent(&self) -> Result<PooledConnection<'_, D>, StoreError> {
        self.take_within(RECENT_USE).await
    }

    async fn take_within(&self, recent: Duration) -> Result<PooledConnection<'_, D>, StoreError> {
        timeout(ACQUIRE_TIMEOUT, self.in_turn(recent)).await.unwrap_or_else(|_| Err(self.silent()))
    }

    async fn in_turn(&self, recent: Duration) -> Result<PooledConnection<'_, D>, StoreError> {
        let Ok(turn) = self.turns.acquire().await else {
            return Err(StoreError::Unavailable(format!("{} was dropped", self.place())));
        };
        if let Some((mut connection, used)) = self.newest() {
            if used.elapsed() < recent || self.within(PING_TIMEOUT, connection.ping()).await.is_ok() {
                return Ok(PooledConnection { from: self, connection, _turn: turn });
            }
            // The other idle connections were lost for the same reason.
            self.idle().clear();
        }
        let connection = self.within(CONNECT_TIMEOUT, self.database.connect()).await?;
        Ok(PooledConnection { from: self, connection, _turn: turn })
    }

    /// Awaits one result, for at most `limit`.
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

    /// Closes the pool and all idle connections.
    pub(super) async fn close(&self) {
        self.turns.close();
        let idle = std::mem::take(&mut *self.idle());
        let farewell = futures::future::join_all(idle.into_iter().map(|(connection, _)| connection.close()));
        // A database that doesn't respond will notice by itself.
        let _ = timeout(PING_TIMEOUT, farewell).await;
    }

    fn newest(&self) -> Option<(D::Connection, Instant)> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(D::Connection, Instant)>> {
        self.idle.lock().expect("no holder of this lock panics")
    }
}

/// A connection. Dropping it closes it, whatever was running on it; [`PooledConnection::keep`] returns it to
/// the pool.
pub(super) struct PooledConnection<'a, D: Database> {
    from: &'a ConnectionPool<D>,
    connection: D::Connection,
    _turn: SemaphorePermit<'a>,
}

impl<D: Database> PooledConnection<'_, D> {
    /// Returns the connection to the pool. No transaction may be open, and all results must have been read.
    pub(super) fn keep(self) {
        if !self.from.turns.is_closed() {
            self.from.idle().push((self.connection, Instant::now()));
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
