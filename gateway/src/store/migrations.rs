//! The steps that bring a database's tables up to this version. They only ever add: an older version goes on working
//! with the tables of a newer one, and ignores the steps that it doesn't know.

use sqlx::{
    SqlStr,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};

use super::Tables;

/// Where it is kept which steps were done; another application's in the same database may have sqlx's usual name.
const MIGRATIONS_TABLE: &str = "hookgate_migrations";

const SQLITE: [(i64, &str, &str); 2] = [
    (1, "registry", include_str!("../../migrations/sqlite/0001_registry.sql")),
    (2, "bypasses", include_str!("../../migrations/sqlite/0002_bypasses.sql")),
];
const POSTGRES: [(i64, &str, &str); 2] = [
    (1, "registry", include_str!("../../migrations/postgres/0001_registry.sql")),
    (2, "bypasses", include_str!("../../migrations/postgres/0002_bypasses.sql")),
];

/// Asks which steps were done, as [`AppliedMigration`].
pub(super) const SELECT_APPLIED: &str =
    "SELECT version, success, checksum FROM hookgate_migrations ORDER BY version";

/// A step that was done: its number, whether it came to its end, and the checksum of what it was.
pub(super) type AppliedMigration = (i64, bool, Vec<u8>);

/// How tables are where the steps `done` were, in order, of those of this version.
///
/// # Errors
/// What [`run`] would say without running anything: a step didn't come to its end, or isn't that of this version.
pub(super) fn tables(migrator: &Migrator, done: &[AppliedMigration]) -> Result<Tables, String> {
    if let Some((version, ..)) = done.iter().find(|(_, success, _)| !success) {
        return Err(unfinished(*version));
    }
    let mut is_older = false;
    for step in migrator.iter() {
        match done.iter().find(|(version, ..)| *version == step.version) {
            Some((.., checksum)) if *checksum != *step.checksum => return Err(changed(step.version)),
            Some(_) => {}
            None => is_older = true,
        }
    }
    if is_older {
        return Ok(Tables::Older);
    }
    let last = migrator.iter().map(|step| step.version).max();
    let is_newer = done.iter().map(|(version, ..)| *version).max() > last;
    Ok(if is_newer { Tables::Newer } else { Tables::Current })
}

/// The library's own sentence names another table.
fn unfinished(version: i64) -> String {
    format!(
        "migration {version} did not finish: undo it by hand, and delete its row in the table `{MIGRATIONS_TABLE}`"
    )
}

fn changed(version: i64) -> String {
    format!(
        "migration {version} is not the one of this version: its checksum in the table `{MIGRATIONS_TABLE}` differs"
    )
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
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrator
}

/// Runs what is missing. To be called in a transaction that no two processes are in at a time.
pub(super) async fn run<C: Migrate>(migrator: &Migrator, connection: &mut C) -> Result<(), MigrationError> {
    match migrator.run_direct(None, connection, false).await {
        Ok(()) => Ok(()),
        Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Err(MigrationError::Database(error))
        }
        Err(MigrateError::Dirty(version)) => Err(MigrationError::Tables(unfinished(version))),
        Err(MigrateError::VersionMismatch(version)) => Err(MigrationError::Tables(changed(version))),
        Err(error) => Err(MigrationError::Tables(error.to_string())),
    }
}

/// Why tables could not be brought up to this version.
pub(super) enum MigrationError {
    /// The database refused it, or went away.
    Database(sqlx::Error),
    /// What is there is not what a version of this program made.
    Tables(String),
}
