//! A few connections to one server, kept for the next question.
//!
//! Why not the library's pool: it tries again for as long as one waits where a server refuses, so that nobody learns
//! why, and it takes a connection back by asking the server, which one that does not answer would hold for ever.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use sqlx::{ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::super::{StoreError, fault};

/// At most so many at a time; replicas add up, and a server has a hundred.
const MOST: usize = 5;
/// How long it may take to have one: the wait for a turn and what follows it, together.
const HAVE: Duration = Duration::from_secs(4);
/// How long making one may take, TLS and log-in included.
const CONNECT: Duration = Duration::from_secs(3);
/// How long one that was idle may take to show that it is still there.
const PING: Duration = Duration::from_secs(1);

/// What every session is told: the server gives up a lock, or a statement, whose process has vanished. In milliseconds.
const SESSION: &str = "SET lock_timeout = 3500; SET idle_in_transaction_session_timeout = 5000; \
                       SET statement_timeout = 60000; SET synchronous_commit = on";

pub(super) struct Connections {
    options: PgConnectOptions,
    place: String,
    turns: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        let place = match options.get_socket() {
            Some(socket) => format!("PostgreSQL at {}", socket.display()),
            None => format!("PostgreSQL at {}:{}", options.get_host(), options.get_port()),
        };
        let options = options.application_name("hookgate").disable_statement_logging();
        Self { options, place, turns: Semaphore::new(MOST), idle: Mutex::default() }
    }

    /// The server in words.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// A connection that has just answered, or is new.
    pub(super) async fn take(&self) -> Result<Taken<'_>, StoreError> {
        timeout(HAVE, self.in_turn()).await.unwrap_or_else(|_| Err(self.silent()))
    }

    async fn in_turn(&self) -> Result<Taken<'_>, StoreError> {
        let Ok(turn) = self.turns.acquire().await else {
            return Err(StoreError::Unavailable(format!("{} was let go of", self.place)));
        };
        if let Some(mut connection) = self.newest() {
            if self.within(PING, connection.ping()).await.is_ok() {
                return Ok(Taken { from: self, connection, _turn: turn });
            }
            // What happened to one of them happened to all.
            self.idle().clear();
        }
        let connection = self.within(CONNECT, self.connect()).await?;
        Ok(Taken { from: self, connection, _turn: turn })
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        sqlx::raw_sql(SESSION).execute(&mut connection).await?;
        Ok(connection)
    }

    /// The answer to one question, if it comes within `limit`.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(fault::postgres(&self.place, &error)),
            Err(_) => Err(self.silent()),
        }
    }

    pub(super) fn silent(&self) -> StoreError {
        StoreError::Unavailable(format!("{} does not answer in time", self.place))
    }

    /// Gives no more connections, and says good-bye to those that are idle.
    pub(super) async fn close(&self) {
        self.turns.close();
        let idle = std::mem::take(&mut *self.idle());
        let farewell = futures::future::join_all(idle.into_iter().map(Connection::close));
        // A server that does not answer finds out by itself.
        let _ = timeout(PING, farewell).await;
    }

    fn newest(&self) -> Option<PgConnection> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().expect("no holder of this lock panics")
    }
}

/// A connection. It ends with this value, whatever was under way on it, unless [`Taken::keep`] takes it back.
pub(super) struct Taken<'a> {
    from: &'a Connections,
    connection: PgConnection,
    _turn: SemaphorePermit<'a>,
}

impl Taken<'_> {
    /// For the next one: no transaction is open, and all answers were read.
    pub(super) fn keep(self) {
        if !self.from.turns.is_closed() {
            self.from.idle().push(self.connection);
        }
    }
}

impl Deref for Taken<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}
