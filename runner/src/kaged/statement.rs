//! What an SQL statement is, as far as it takes to keep a plugin to its own database.

/// What SQLite takes for white space.
const SPACE: [char; 5] = [' ', '\t', '\n', '\u{c}', '\r'];

/// One statement.
pub(super) struct Statement<'a> {
    sql: &'a str,
}

/// What a statement does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementKind {
    /// It may read and, with `WITH`, change. SQLite refuses the change if only reading is allowed.
    Query,
    Change,
    /// It may reach beyond the database, or change how it works: ATTACH, PRAGMA, VACUUM and others.
    Other,
}

impl<'a> Statement<'a> {
    /// # Errors
    /// If it isn't exactly one statement, or can't be told to be.
    pub(super) fn new(sql: &'a str) -> Result<Self, &'static str> {
        if sql.contains('\0') {
            return Err("`sql` must not contain the character 0");
        }
        let sql = after_space(sql);
        if word(sql).is_empty() {
            return Err("`sql` must be a statement");
        }
        let mut rest = sql;
        while let Some(next) = rest.chars().next() {
            rest = match next {
                '\'' | '"' | '`' => after_quoted(rest, next),
                '[' => rest.split_once(']').map_or("", |(_, rest)| rest),
                ';' if is_end(&rest[1..]) => "",
                ';' => return Err("`sql` must be one statement: it goes on after `;`"),
                // A name of a parameter may contain quotes, and so hide where a statement ends.
                '$' | '@' | '#' | ':' => {
                    return Err(
                        "`sql` must not contain `$`, `@`, `#` and `:` outside of quotes: parameters are `?`",
                    );
                }
                _ if rest.starts_with("--") || rest.starts_with("/*") => after_space(rest),
                _ => &rest[next.len_utf8()..],
            };
        }
        Ok(Statement { sql })
    }

    pub(super) fn kind(&self) -> StatementKind {
        let first = word(self.sql);
        let second = word(after_space(&self.sql[first.len()..]));
        match (&*first.to_ascii_uppercase(), &*second.to_ascii_uppercase()) {
            ("SELECT" | "WITH" | "VALUES", _) => StatementKind::Query,
            ("CREATE", "TEMP" | "TEMPORARY" | "VIRTUAL") => StatementKind::Other,
            ("INSERT" | "UPDATE" | "DELETE" | "REPLACE" | "CREATE" | "ALTER" | "DROP", _) => {
                StatementKind::Change
            }
            _ => StatementKind::Other,
        }
    }
}

/// Whether no other statement follows.
fn is_end(sql: &str) -> bool {
    let mut rest = after_space(sql);
    while let Some(next) = rest.strip_prefix(';') {
        rest = after_space(next);
    }
    rest.is_empty()
}

/// The text after white space and comments.
fn after_space(sql: &str) -> &str {
    let mut rest = sql.trim_start_matches(SPACE);
    loop {
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, rest)| rest)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, rest)| rest)
        } else {
            return rest;
        }
        .trim_start_matches(SPACE);
    }
}

/// The text after a quoted one. A doubled quote, which stands for itself, begins another quoted text.
fn after_quoted(sql: &str, quote: char) -> &str {
    sql[1..].split_once(quote).map_or("", |(_, rest)| rest)
}

fn word(sql: &str) -> &str {
    let end = sql.find(|next: char| !next.is_ascii_alphabetic()).unwrap_or(sql.len());
    &sql[..end]
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::{
        prelude::*,
        sample::select,
        test_runner::{Config, TestRunner},
    };
    use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

    use super::*;

    fn kind(sql: &str) -> Option<StatementKind> {
        Statement::new(sql).ok().map(|statement| statement.kind())
    }

    #[test]
    fn the_first_words_after_comments_decide() {
        for (sql, expected) in [
            ("select 1", StatementKind::Query),
            ("-- a; b\n/* ; */ SELECT 1;", StatementKind::Query),
            ("WITH x AS (SELECT 1) DELETE FROM y", StatementKind::Query),
            ("CREATE TABLE a(b)", StatementKind::Change),
            ("CREATE INDEX temp ON a(b)", StatementKind::Change),
            ("CREATE TEMP TABLE a(b)", StatementKind::Other),
            ("create/**/temporary view a AS SELECT 1", StatementKind::Other),
            ("CREATE -- x\n VIRTUAL TABLE a USING fts5(b)", StatementKind::Other),
            ("attach 'x' as y", StatementKind::Other),
            ("PRAGMA query_only = OFF", StatementKind::Other),
            ("VACUUM INTO '/tmp/x'", StatementKind::Other),
            ("BEGIN", StatementKind::Other),
        ] {
            assert_eq!(kind(sql), Some(expected), "{sql}");
        }
    }

    #[test]
    fn more_than_one_statement_is_refused_and_a_quoted_semicolon_is_none() {
        for sql in [
            "",
            " ; ",
            "-- only a comment",
            "SELECT 1; SELECT 2",
            "SELECT 1;;ATTACH 'x' AS y",
            "SELECT ']'; PRAGMA x",
            "\u{a0}SELECT 1",
            "SELECT 1;\u{b}SELECT 2",
        ] {
            assert_eq!(kind(sql), None, "{sql}");
        }
        for sql in [
            "SELECT 'a;''b;'",
            "SELECT \";\" FROM [a;b]",
            "SELECT 1; ; -- end",
            "SELECT `;`",
            "SELECT 1 -- ; x\n + 1",
            "SELECT '$1', \"@a\", [#], `:` /* $ @ */ -- :x",
            "SELECT a->>'$.b' FROM c WHERE d = ?1",
        ] {
            assert!(kind(sql).is_some(), "{sql}");
        }
    }

    #[test]
    fn a_parameter_with_a_name_is_refused_because_it_may_contain_quotes() {
        for sql in [
            "SELECT $1('); ATTACH '/x/.storage/globex.db' AS y --",
            "SELECT @a('); PRAGMA query_only = OFF --')",
            "SELECT #a::b(\"); VACUUM INTO '/tmp/x' --",
            "SELECT :a('); ATTACH 'x' AS y --",
            "SELECT a$b('); ATTACH 'x' AS y --",
            "SELECT $0",
            "SELECT 1\0",
            "SELECT 'a\0'; ATTACH 'x' AS y",
        ] {
            assert_eq!(kind(sql), None, "{sql}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(sql in r#"([;'"`\[\]/*$@#:-]|\PC){0,64}"#) {
            let _ = kind(&sql);
        }
    }

    /// What begins, ends or hides something in SQL, and whole values.
    const PIECES: [&str; 27] = [
        "$", "(", ")", ":", "@", "#", "'", "\"", "[", "]", "`", ";", "-", "/", "*", "--", "/*", "*/", "1",
        "?", "a", "::", "\n", " ", ",", "'a'", "x''",
    ];

    fn pieces() -> impl Strategy<Value = String> {
        prop::collection::vec(select(&PIECES[..]), 0..3).prop_map(|pieces| pieces.concat())
    }

    /// Pieces, some of them in the name of a parameter.
    fn text() -> impl Strategy<Value = String> {
        let name = (select(&["$", "@", "#", ":"][..]), pieces());
        let name = name.prop_map(|(sign, inner)| format!("{sign}a({inner})"));
        prop::collection::vec(prop_oneof![pieces(), name], 0..3).prop_map(|texts| texts.concat())
    }

    /// Runs `sql`, however far SQLite comes with it. Returns whether it made the table `second`.
    async fn makes_a_table(database: &mut SqliteConnection, sql: &str) -> sqlx::Result<bool> {
        // Without values, so that no parameter is refused for its name.
        let _ = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut *database).await;
        let made = sqlx::query("SELECT count(*) FROM sqlite_schema").fetch_one(&mut *database).await?;
        let is_made = made.get::<i64, _>(0) > 0;
        sqlx::query("DROP TABLE IF EXISTS second").execute(database).await?;
        Ok(is_made)
    }

    #[test]
    fn sqlite_finds_no_second_statement_in_a_text_that_is_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can be made");
        let database = runtime.block_on(SqliteConnection::connect("sqlite::memory:")).expect("it opens");
        let database = Mutex::new(database);
        let tested =
            TestRunner::new(Config::with_cases(10_000)).run(&(text(), pieces()), |(before, after)| {
                let sql = format!("SELECT 1,{before}; CREATE TABLE second(a) {after}");
                if kind(&sql).is_some() {
                    let mut database = database.lock().expect("no test panicked");
                    let is_made = runtime.block_on(makes_a_table(&mut database, &sql));
                    prop_assert!(!is_made.expect("it goes on"), "{}", sql);
                }
                Ok(())
            });
        tested.expect("no text hides a statement");
    }
}
