//! Migrations, which bring a database's tables up to this version. They only add: an older version keeps
//! working with the tables of a newer one, and ignores migrations that it doesn't know.

use sqlx::{
    SqlStr,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};

use tracing::Instrument as _;

use super::Tables;
use crate::core::control_span::{control_span, record_error};

/// The table that records applied migrations. Another application in the same database may use sqlx's default
/// name.
const MIGRATIONS_TABLE: &str = "hookgate_migrations";

const SQLITE: [(i64, &str, &str); 4] = [
    (1, "registry", include_str!("../../migrations/sqlite/0001_registry.sql")),
    (2, "bypasses", include_str!("../../migrations/sqlite/0002_bypasses.sql")),
    (3, "plugin data", include_str!("../../migrations/sqlite/0003_plugin_data.sql")),
    (4, "models", include_str!("../../migrations/sqlite/0004_models.sql")),
];
const POSTGRES: [(i64, &str, &str); 4] = [
    (1, "registry", include_str!("../../migrations/postgres/0001_registry.sql")),
    (2, "bypasses", include_str!("../../migrations/postgres/0002_bypasses.sql")),
    (3, "plugin data", include_str!("../../migrations/postgres/0003_plugin_data.sql")),
    (4, "models", include_str!("../../migrations/postgres/0004_models.sql")),
];

/// The migration that adds bypasses.
pub(super) const BYPASSES: i64 = 2;
/// The migration that adds upstreams and models.
pub(super) const MODELS: i64 = 4;

/// Selects the applied migrations as [`AppliedMigration`] rows.
pub(super) const SELECT_APPLIED: &str =
    "SELECT version, success, checksum FROM hookgate_migrations ORDER BY version";

/// An applied migration: its number, whether it completed, and its checksum.
pub(super) type AppliedMigration = (i64, bool, Vec<u8>);

/// The state of the tables if the migrations `done`, in order, were applied.
///
/// # Errors
/// What [`run`] would report, without running anything: a migration didn't complete, or differs from this
/// version's.
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

/// Whether the migrations `done` include the one with this number.
pub(super) fn includes(done: &[AppliedMigration], number: i64) -> bool {
    done.iter().any(|(version, ..)| *version == number)
}

/// The library's own message names another table.
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
    // The caller holds its own lock: the library's does nothing for SQLite, and outlives an error in
    // PostgreSQL.
    migrator.set_locking(false);
    migrator.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrator
}

/// Runs the missing migrations. Call this in a transaction that only one process at a time can be in.
/// `system` is the database's name in the semantic conventions.
pub(super) async fn run<C: Migrate>(
    migrator: &Migrator,
    connection: &mut C,
    system: &'static str,
) -> Result<(), MigrationError> {
    let span = control_span!("store migration", "db.system.name" = system);
    let migrated = run_missing(migrator, connection).instrument(span.clone()).await;
    migrated.inspect_err(|error| record_error(&span, error.as_str()))
}

async fn run_missing<C: Migrate>(migrator: &Migrator, connection: &mut C) -> Result<(), MigrationError> {
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

/// Why the migrations failed.
pub(super) enum MigrationError {
    /// The database refused a migration, or went away.
    Database(sqlx::Error),
    /// The tables were not made by any version of this program.
    Tables(String),
}

impl MigrationError {
    /// The name of the kind, for telemetry.
    const fn as_str(&self) -> &'static str {
        match self {
            MigrationError::Database(_) => "database",
            MigrationError::Tables(_) => "tables",
        }
    }
}
