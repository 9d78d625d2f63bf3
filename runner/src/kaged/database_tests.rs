use tempfile::TempDir;

use super::*;

struct TestDatabase {
    folder: TempDir,
    database: Database,
}

impl TestDatabase {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let database = open(&folder, StorageAccess::Write);
        TestDatabase { folder, database }
    }

    async fn ask(&mut self, operation: &str, params: Value) -> Result<Value, (i64, String)> {
        ask(&mut self.database, operation, params).await
    }
}

fn open(folder: &TempDir, access: StorageAccess) -> Database {
    Database::new(StorageSpec { file: folder.path().join("db"), access })
}

async fn ask(database: &mut Database, operation: &str, params: Value) -> Result<Value, (i64, String)> {
    let answer = database.answer(operation, params.to_string().as_bytes()).await;
    answer.map_err(|RpcError { code, message }| (code, message))
}

#[tokio::test]
async fn what_is_stored_is_read_again_with_its_types() {
    let mut test = TestDatabase::new();
    let table = "CREATE TABLE notes(id INTEGER PRIMARY KEY, text TEXT, weight REAL, data BLOB)";
    test.ask("exec", json!({ "sql": table })).await.expect("it is allowed");
    let insert = "INSERT INTO notes(text, weight, data) VALUES (?, ?, x'00ff')";
    for (text, weight) in [(json!("a;b"), json!(1.5)), (json!(null), json!(9_007_199_254_740_993_i64))] {
        let params = json!({ "sql": insert, "params": [text, weight] });
        let done = test.ask("exec", params).await.expect("it is allowed");
        assert_eq!(done["changes"], 1);
    }
    let query = json!({ "sql": "SELECT id, text, weight, data FROM notes ORDER BY id;" });
    let rows = test.ask("query", query).await.expect("it is allowed");
    let expected = json!([
        { "id": 1, "text": "a;b", "weight": 1.5, "data": "AP8=" },
        { "id": 2, "text": null, "weight": 9_007_199_254_740_992.0, "data": "AP8=" },
    ]);
    assert_eq!(rows["rows"], expected);
    let tables = test.ask("schema", json!({})).await.expect("it is allowed");
    assert_eq!(tables["tables"], json!([{ "name": "notes", "sql": table }]));
}

#[tokio::test]
async fn who_may_only_read_changes_nothing() {
    let mut test = TestDatabase::new();
    test.ask("schema", json!({ "sql": "CREATE TABLE notes(text)" })).await.expect("it is allowed");
    let mut reader = open(&test.folder, StorageAccess::Read);
    for sql in ["INSERT INTO notes VALUES (1)", "DROP TABLE notes", "CREATE TABLE x(y)"] {
        let (code, _) = ask(&mut reader, "exec", json!({ "sql": sql })).await.expect_err(sql);
        assert_eq!(code, FORBIDDEN, "{sql}");
    }
    let sql = "WITH x AS (SELECT 1) DELETE FROM notes";
    let (code, message) = ask(&mut reader, "query", json!({ "sql": sql })).await.expect_err("read-only");
    assert_eq!((code, &*message), (STORAGE_ERROR, "attempt to write a readonly database"));
    let rows = ask(&mut reader, "query", json!({ "sql": "SELECT * FROM notes" })).await;
    assert_eq!(rows, Ok(json!({ "rows": [] })));
}

#[tokio::test]
async fn nothing_outside_the_database_is_reached() {
    let mut test = TestDatabase::new();
    for sql in [
        "ATTACH '/tmp/other.db' AS other",
        "PRAGMA hard_heap_limit = 0",
        "VACUUM INTO '/tmp/copy.db'",
        "BEGIN",
        "EXPLAIN SELECT 1",
        "CREATE TEMP TABLE x(y)",
        "CREATE VIRTUAL TABLE x USING dbstat",
    ] {
        let (code, _) = test.ask("exec", json!({ "sql": sql })).await.expect_err(sql);
        assert_eq!(code, FORBIDDEN, "{sql}");
    }
    for params in [
        json!({ "sql": "SELECT 1; ATTACH 'x' AS y" }),
        json!({ "sql": "SELECT $1('); ATTACH 'x' AS y --" }),
        json!({ "sql": "SELECT $0" }),
        json!({ "sql": "SELECT 1\u{0}" }),
        json!({ "sql": 1 }),
        json!({ "sql": "SELECT ?", "params": [[]] }),
    ] {
        let (code, _) = test.ask("query", params.clone()).await.expect_err("it is refused");
        assert_eq!(code, INVALID_PARAMS, "{params}");
    }
    for sql in ["SELECT load_extension('x')", "SELECT readfile('/etc/passwd')", "SELECT * FROM missing"] {
        let (code, _) = test.ask("query", json!({ "sql": sql })).await.expect_err(sql);
        assert_eq!(code, STORAGE_ERROR, "{sql}");
    }
    let (code, _) = test.ask("drop", json!({})).await.expect_err("no such method");
    assert_eq!(code, METHOD_NOT_FOUND);
}

#[tokio::test]
async fn a_statement_without_end_and_a_huge_value_are_stopped() {
    let mut test = TestDatabase::new();
    test.database.max_time = Duration::from_millis(500);
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    for (sql, reason) in [
        (endless, "the statement took too long"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
            "up to 10000 rows",
        ),
        ("SELECT length(randomblob(500000000))", "out of memory"),
        ("SELECT hex(zeroblob(3000000))", "up to 4 MiB"),
        ("SELECT zeroblob(30000000)", "up to 4 MiB"),
    ] {
        let (code, message) = test.ask("query", json!({ "sql": sql })).await.expect_err(reason);
        assert_eq!(code, STORAGE_ERROR, "{sql}");
        assert!(message.contains(reason), "{message}");
    }
    assert_eq!(
        test.ask("query", json!({ "sql": "SELECT 1 AS n" })).await,
        Ok(json!({ "rows": [{ "n": 1 }] }))
    );
}
