//! The steps that bring a database's tables up to this version. They only ever add: an older version goes on working
//! with the tables of a newer one, and ignores the steps that it doesn't know.

use sqlx::{
    SqlStr,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};

use super::Tables;

/// Where it is kept which steps were done; another application's in the same database may have sqlx's usual name.
const TABLE: &str = "hookgate_migrations";

const SQLITE: [(i64, &str, &str); 2] = [
    (1, "registry", include_str!("../../migrations/sqlite/0001_registry.sql")),
    (2, "bypasses", include_str!("../../migrations/sqlite/0002_bypasses.sql")),
];
const POSTGRES: [(i64, &str, &str); 2] = [
    (1, "registry", include_str!("../../migrations/postgres/0001_registry.sql")),
    (2, "bypasses", include_str!("../../migrations/postgres/0002_bypasses.sql")),
];

/// Asks which steps were done.
pub(super) const DONE: &str = "SELECT version FROM hookgate_migrations ORDER BY version";

/// How tables are where the steps `done` were, of those of this version.
pub(super) fn tables(migrator: &Migrator, done: &[i64]) -> Tables {
    let mut known = migrator.iter().map(|step| step.version);
    if known.any(|version| !done.contains(&version)) {
        return Tables::Older;
    }
    let last = migrator.iter().map(|step| step.version).max();
    if done.iter().max().copied() > last { Tables::Newer } else { Tables::Current }
}

pub(super) fn sqlite() -> Migrator {
    migrator(&SQLITE)
}

pub(super) fn postgres() -> Migrator {
    migrator(&POSTGRES)
}

fn migrator(steps: &[(i64, &'static str, &'static str)]) -> Migrator {
    let steps = steps.iter().map(|(version, name, sql)| {
        Migration::new(*version, (*name).into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    });
    let mut migrator = Migrator::with_migrations(steps.collect());
    migrator.set_ignore_missing(true);
    // The caller holds a lock of its own: the library's is none for SQLite, and outlives an error in PostgreSQL.
    migrator.set_locking(false);
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

/// Runs what is missing. To be called in a transaction that no two processes are in at a time.
pub(super) async fn run<C: Migrate>(migrator: &Migrator, connection: &mut C) -> Result<(), MigrationFault> {
    match migrator.run_direct(None, connection, false).await {
        Ok(()) => Ok(()),
        Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Err(MigrationFault::Database(error))
        }
        Err(error) => Err(MigrationFault::Tables(error.to_string())),
    }
}

/// Why tables could not be brought up to this version.
pub(super) enum MigrationFault {
    /// The database refused it, or went away.
    Database(sqlx::Error),
    /// What is there is not what a version of this program made.
    Tables(String),
}
