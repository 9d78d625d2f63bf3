//! Tests the tables: which changes they reject, how older and newer versions handle each other's tables,
//! and unusable database files.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use futures::future::join_all;
use hookgate::{
    core::object::ObjectKind,
    store::{self, DataOperation, DataScope, SigningKey, Tables},
};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::store::support::{Place, add, api, change, draft};

/// Runs statements like a person by hand.
async fn run(place: &Place, sql: &str) -> Result<(), String> {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
    let done = if place.url.starts_with("sqlite") {
        sql.execute(&mut SqliteConnection::connect(&place.url).await.unwrap()).await.map(drop)
    } else {
        sql.execute(&mut PgConnection::connect(&place.url).await.unwrap()).await.map(drop)
    };
    done.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_revision_can_not_be_changed_or_deleted_even_by_hand() {
    for place in Place::every().await {
        let store = place.prepared().await;
        store.commit(&add(0, "a")).await.unwrap();
        store.commit(&add(1, "b")).await.unwrap();
        let before = store.since(0, 10).await.unwrap();
        let copied = "SELECT number, id, at_ms, author, 'mallory', changes, further FROM hookgate_revisions WHERE number = 1";
        let mut attempts = vec![
            "UPDATE hookgate_revisions SET author = 'mallory' WHERE number = 1".to_owned(),
            "DELETE FROM hookgate_revisions WHERE number = 2".to_owned(),
            format!("INSERT INTO hookgate_revisions {copied}"),
        ];
        if place.url.starts_with("sqlite") {
            attempts.push(format!("INSERT OR REPLACE INTO hookgate_revisions {copied}"));
        } else {
            attempts.push("TRUNCATE hookgate_revisions".to_owned());
        }
        for attempt in attempts {
            let refused = run(&place, &attempt).await.unwrap_err();
            let by_trigger =
                attempt.starts_with("INSERT INTO") || refused.contains("a revision never changes");
            assert!(by_trigger, "{place}: {attempt}: {refused}");
        }
        assert_eq!(store.since(0, 10).await.unwrap(), before, "{place}");
    }
}

#[tokio::test]
async fn an_older_version_works_with_the_tables_of_a_newer_one() {
    let newer = "ALTER TABLE hookgate_tenants ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';
                 ALTER TABLE hookgate_revisions ADD COLUMN ticket TEXT;
                 CREATE TABLE hookgate_later (name TEXT PRIMARY KEY);";
    for place in Place::every().await {
        let early = place.prepared().await;
        early.commit(&add(0, "a")).await.unwrap();
        let checksum = if place.url.starts_with("sqlite") { "x'00'" } else { "'\\x00'" };
        let known = format!(
            "INSERT INTO hookgate_migrations (version, description, success, checksum, execution_time)
             VALUES (9999, 'later', TRUE, {checksum}, 1)"
        );
        run(&place, &format!("{newer} {known}")).await.unwrap();
        // A store that was open all along, and one that is opened now.
        assert_eq!(early.commit(&add(1, "b")).await.unwrap(), 2, "{place}");
        let late = place.prepared().await;
        assert_eq!(late.commit(&add(2, "c")).await.unwrap(), 3, "{place}");
        assert_eq!(early.snapshot().await.unwrap().objects.len(), 3, "{place}");
        assert_eq!(late.since(0, 10).await.unwrap().len(), 3, "{place}");
    }
}

/// Replicas of a new version start concurrently, and each finds the tables of the previous version.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_bring_an_older_versions_tables_up_at_once() {
    let older = "DROP TABLE hookgate_bypasses;
                 DROP TABLE hookgate_upstreams;
                 DROP TABLE hookgate_models;
                 DROP TABLE hookgate_plugin_data;
                 DROP TABLE hookgate_signing_keys;
                 ALTER TABLE hookgate_revisions DROP COLUMN further;
                 DELETE FROM hookgate_migrations WHERE version > 1;";
    for place in Place::every().await {
        place.prepared().await.commit(&add(0, "a")).await.unwrap();
        for round in 0..5 {
            run(&place, older).await.unwrap();
            let stores: Vec<_> = (0..8).map(|_| place.open()).collect();
            let all = stores.iter().cloned().map(|store| tokio::spawn(async move { store.prepare().await }));
            for prepared in join_all(all).await {
                assert!(matches!(prepared, Ok(Ok(()))), "{place}, {round}: {prepared:?}");
            }
            assert_eq!(stores[0].commit(&add(round + 1, &format!("t{round}"))).await.unwrap(), round + 2);
        }
    }
}

#[tokio::test]
async fn tables_without_plugins_data_get_them_and_keep_what_they_hold() {
    let older = "DROP TABLE hookgate_plugin_data;
                 DROP TABLE hookgate_signing_keys;
                 DROP TABLE hookgate_upstreams;
                 DROP TABLE hookgate_models;
                 DELETE FROM hookgate_migrations WHERE version > 2;";
    for place in Place::every().await {
        let store = place.prepared().await;
        let bypass = change(ObjectKind::Bypass, "b", None, api(json!({ "reason": "x" })));
        let tenant = change(ObjectKind::Tenant, "t", None, api(json!({ "id": "t" })));
        store.commit(&draft(0, vec![tenant, bypass])).await.unwrap();
        let before = store.snapshot().await.unwrap();
        store.close().await;
        run(&place, older).await.unwrap();

        let store = place.open();
        let look = store.look().await.unwrap();
        assert_eq!((look.tables, &look.snapshot), (Tables::Older, &before), "{place}");
        store.prepare().await.unwrap();
        let look = store.look().await.unwrap();
        assert_eq!((look.tables, &look.snapshot), (Tables::Current, &before), "{place}");
        let own = DataScope { plugin: "p".into(), tenant: None };
        let put = DataOperation::Add { key: "c".into(), delta: 1, limit: 1, expires_ms: None };
        assert!(store.write(&own, &[put], 0).await.unwrap().is_ok(), "{place}");
        assert_eq!(store.commit(&add(1, "a")).await.unwrap(), 2, "{place}");
    }
}

/// A gateway without upstreams and models reads what a newer one wrote, and goes on.
#[tokio::test]
async fn changes_of_upstreams_and_models_are_kept_apart_from_what_older_versions_read() {
    for place in Place::every().await {
        let store = place.prepared().await;
        let made = |kind, name: &str| change(kind, name, None, api(json!({ "name": name })));
        let changes = vec![
            made(ObjectKind::Tenant, "t"),
            made(ObjectKind::Upstream, "u"),
            made(ObjectKind::Model, "m"),
            made(ObjectKind::Bypass, "b"),
        ];
        store.commit(&draft(0, changes.clone())).await.unwrap();
        assert_eq!(store.since(0, 1).await.unwrap()[0].changes, changes, "{place}");
        let kinds: Vec<_> =
            store.snapshot().await.unwrap().objects.iter().map(|object| object.kind).collect();
        assert_eq!(kinds, changes.iter().map(|change| change.kind).collect::<Vec<_>>(), "{place}");
        // Fails unless `changes` has the first three kinds only.
        let is_so = "INSERT INTO hookgate_upstreams SELECT NULL, 'api', 1, '{}' FROM hookgate_revisions \
                     WHERE changes LIKE '%upstream%' OR changes LIKE '%\"model%' OR further NOT LIKE '%upstream%'";
        run(&place, is_so).await.unwrap();
    }
}

/// With the grants of docs/registry.md.
#[tokio::test]
async fn a_role_that_may_make_no_tables_can_use_those_that_are_there() {
    let place = Place::postgres().await;
    place.prepared().await.commit(&add(0, "a")).await.unwrap();
    let role = format!("service_{}", std::process::id());
    let rights = format!(
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
         CREATE ROLE {role} LOGIN;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};"
    );
    run(&place, &rights).await.unwrap();
    let url = place.url.replace("hookgate@", &format!("{role}@"));
    let confined = store::open(&url).unwrap();
    confined.prepare().await.unwrap();
    assert_eq!(confined.commit(&add(1, "b")).await.unwrap(), 2);
    assert_eq!(confined.snapshot().await.unwrap().objects.len(), 2);
    let own = DataScope { plugin: "p".into(), tenant: None };
    let counter = DataOperation::Add { key: "c".into(), delta: 1, limit: 1, expires_ms: Some(1) };
    confined.write(&own, &[counter], 0).await.unwrap().unwrap();
    assert_eq!(confined.delete_expired(1, 10).await.unwrap(), 1);
    assert_eq!(confined.delete_plugin("p").await.unwrap(), 0);
    let key = SigningKey { generation: 1, created_ms: 0, secret: [1; 32] };
    confined.add_signing_key(&key).await.unwrap();

    let mut by_hand = PgConnection::connect(&url).await.unwrap();
    let refused = sqlx::raw_sql("CREATE TABLE mine (n INT)").execute(&mut by_hand).await.unwrap_err();
    assert!(refused.to_string().contains("permission denied"), "{refused}");
    run(&place, &format!("DROP OWNED BY {role}; DROP ROLE {role};")).await.unwrap();
}

/// The tests' servers sort by bytes by default; others don't.
#[tokio::test]
async fn names_are_compared_by_their_bytes_whatever_the_databases_language() {
    let place = Place::postgres().await;
    place.prepared().await;
    let mut connection = PgConnection::connect(&place.url).await.unwrap();
    let by_bytes = "SELECT table_name || '.' || column_name FROM information_schema.columns
                    WHERE collation_name = 'C' AND table_name LIKE 'hookgate%' ORDER BY 1";
    let columns: Vec<String> = sqlx::query_scalar(by_bytes).fetch_all(&mut connection).await.unwrap();
    assert_eq!(
        columns,
        [
            "hookgate_bindings.name",
            "hookgate_bypasses.name",
            "hookgate_models.name",
            "hookgate_plugin_data.key",
            "hookgate_plugin_data.plugin",
            "hookgate_plugin_data.tenant",
            "hookgate_plugins.name",
            "hookgate_tenants.name",
            "hookgate_upstreams.name",
        ]
    );
}

#[tokio::test]
async fn tables_that_this_version_did_not_make_are_refused_in_a_sentence() {
    for place in Place::every().await {
        place.prepared().await;
        run(&place, "DELETE FROM hookgate_head").await.unwrap();
        let said = place.open().head().await.unwrap_err().to_string();
        assert!(said.contains("lacks the row with its revision"), "{place}: {said}");
        run(&place, "DROP TABLE hookgate_tenants").await.unwrap();
        let said = place.open().snapshot().await.unwrap_err().to_string();
        assert!(said.starts_with("the store is not usable") && !said.contains('\n'), "{place}: {said}");
    }
}

/// A preview reports the same as a start, in the same words.
#[tokio::test]
async fn steps_that_a_start_refuses_are_refused_by_a_look() {
    for place in Place::every().await {
        let checksum = if place.url.starts_with("sqlite") { "x'00'" } else { "'\\x00'" };
        let later = format!(
            "INSERT INTO hookgate_migrations (version, description, success, checksum, execution_time)
                             VALUES (9999, 'later', FALSE, {checksum}, 1)"
        );
        place.prepared().await;
        for (by_hand, said) in [
            (later, "migration 9999 did not finish"),
            (
                format!(
                    "DELETE FROM hookgate_migrations WHERE version = 9999;
                         UPDATE hookgate_migrations SET checksum = {checksum} WHERE version = 2"
                ),
                "migration 2 is not the one of this version",
            ),
            // Missing migrations are reported before differing ones.
            (
                "UPDATE hookgate_migrations SET success = FALSE WHERE version = 1".to_owned(),
                "migration 1 did not finish",
            ),
        ] {
            run(&place, &by_hand).await.unwrap();
            let store = place.open();
            let start = store.prepare().await.unwrap_err().to_string();
            let look = store.look().await.unwrap_err().to_string();
            assert_eq!(look, start, "{place}");
            assert!(
                look.contains(said) && look.contains("the table `hookgate_migrations`"),
                "{place}: {look}"
            );
        }
    }
}

#[tokio::test]
async fn a_file_and_its_log_are_their_users_alone_and_an_acknowledged_write_is_in_the_log() {
    let place = Place::file();
    let store = place.prepared().await;
    store.commit(&add(0, "a")).await.unwrap();
    let path = place.url.strip_prefix("sqlite:").unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = fs::metadata(format!("{path}{suffix}")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{suffix}");
    }
    assert!(fs::metadata(format!("{path}-wal")).unwrap().len() > 0);
    // An operator's file mode is kept.
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    place.prepared().await;
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[tokio::test]
async fn a_file_that_can_not_hold_a_store_is_named_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let within = |name: &str| folder.path().join(name).display().to_string();
    fs::write(within("text"), "not a database, but long enough for SQLite to look at it\n".repeat(20))
        .unwrap();
    fs::create_dir(within("folder")).unwrap();
    symlink(within("gone"), within("dangling")).unwrap();
    symlink(within("loop"), within("loop")).unwrap();
    for (path, expected) in [
        (within("missing/x.db"), "does not exist"),
        (within("folder"), "is a folder"),
        (within("text"), "is not a SQLite database"),
        (within("text/x.db"), "can't be made"),
        ("/proc/version".to_owned(), "can't be opened|is not a SQLite database|read-only"),
        (within("dangling"), "is a link to nothing"),
        (within("dangling/x.db"), "does not exist"),
        (within("loop"), "can't be opened: Too many levels of symbolic links"),
        (within("loop/x.db"), "can't be made: Too many levels of symbolic links"),
        ("/proc/hookgate.db".to_owned(), "can't be made|does not exist"),
    ] {
        let store = store::open(&format!("sqlite:{path}")).unwrap();
        let said = store.prepare().await.unwrap_err().to_string();
        assert!(expected.split('|').any(|one| said.contains(one)), "{path}: {said}");
        assert!(said.contains(&path) && !said.contains('\n'), "{path}: {said}");
        // A preview says the same, except for what only writing shows.
        if !path.starts_with("/proc/") {
            let look = store.look().await.unwrap_err().to_string();
            assert_eq!(
                look.replace("can't be opened", "can't be made"),
                said.replace("can't be opened", "can't be made")
            );
        }
    }
    assert!(!fs::exists(within("gone")).unwrap(), "nothing is made at the end of a link");
}

#[tokio::test]
async fn a_server_that_refuses_is_named_with_its_words_and_without_the_password() {
    let place = Place::postgres().await;
    let (server, _) = place.url.rsplit_once('/').unwrap();
    let with_password = server.replace("hookgate@", "nobody:geheim@");
    let missing = server.replace("hookgate@", "hookgate:geheim@");
    for (url, expected) in [
        (format!("{missing}/missing"), "database \"missing\" does not exist"),
        (format!("{with_password}/postgres"), "role \"nobody\" does not exist"),
        (format!("{missing}/missing?sslmode=require"), "TLS"),
    ] {
        let error = store::open(&url).unwrap().prepare().await.unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(said.contains(expected) && said.contains("PostgreSQL at 127.0.0.1:"), "{said}");
        assert!(!said.contains("geheim") && !error.to_string().contains('\n'), "{said}");
    }
}
