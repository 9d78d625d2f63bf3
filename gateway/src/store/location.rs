//! Parses database URLs. Makes no connections.

use std::{path::PathBuf, str::FromStr};

use sqlx::postgres::PgConnectOptions;

/// The parameters of a PostgreSQL URL that sqlx supports. It would log any other, including its value.
const ALLOWED_PARAMETERS: [&str; 17] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

pub(super) enum StoreLocation {
    /// A SQLite database.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Postgres(Box<PgConnectOptions>),
}

/// Parses a URL. The error is one sentence, and shows nothing of the URL but its scheme and names of
/// parameters.
pub(super) fn parse(url: &str) -> Result<StoreLocation, String> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(forms("it has no scheme"));
    };
    match scheme {
        "sqlite" => sqlite(rest),
        "postgres" | "postgresql" => postgres(url, rest),
        _ if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            Err(forms(&format!("{scheme}: is not a store")))
        }
        _ => Err(forms("it has no scheme")),
    }
}

fn forms(what: &str) -> String {
    format!("{what}: write sqlite:PATH or postgres://USER@HOST/DATABASE")
}

fn sqlite(rest: &str) -> Result<StoreLocation, String> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    // SQLite would keep a database of this name in memory, and lose acknowledged writes when the process
    // ends.
    if is_in_memory(path) {
        return Err("a database in memory is lost at the end of the process: write sqlite:PATH".into());
    }
    if path.is_empty() {
        return Err(forms("it has no path"));
    }
    if path.contains(['?', '\0']) {
        return Err("the path of a SQLite file takes no parameters".to_owned());
    }
    if path.ends_with('/') {
        return Err("it names a folder: write sqlite:PATH with the path of a file".to_owned());
    }
    // SQLite interprets a name that begins with `file:` as a URI.
    let path = PathBuf::from(path);
    Ok(StoreLocation::File(if path.is_absolute() { path } else { PathBuf::from(".").join(path) }))
}

/// Whether SQLite keeps a database of this name in memory, however it is spelled.
fn is_in_memory(path: &str) -> bool {
    let name = path.strip_prefix("file:").unwrap_or(path);
    let (name, parameters) = name.split_once('?').unwrap_or((name, ""));
    name.trim_start_matches('/') == ":memory:"
        || parameters.split('&').any(|parameter| matches!(parameter, "mode=memory" | "vfs=memdb"))
}

fn postgres(url: &str, rest: &str) -> Result<StoreLocation, String> {
    if !rest.starts_with("//") {
        return Err(forms("it is not complete"));
    }
    let parsed =
        reqwest::Url::parse(url).map_err(|error| format!("it is not a URL of PostgreSQL: {error}"))?;
    for (key, _) in parsed.query_pairs() {
        let known =
            ALLOWED_PARAMETERS.contains(&&*key) || (key.starts_with("options[") && key.ends_with(']'));
        if !known {
            return Err(format!("PostgreSQL has no parameter {key:?} in a URL"));
        }
    }
    // The library's error may quote a parameter's value, and a password may be in the wrong parameter.
    let options =
        PgConnectOptions::from_str(url).map_err(|_| "a part of this PostgreSQL URL is invalid".to_owned())?;
    Ok(StoreLocation::Postgres(Box::new(options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(url: &str) -> String {
        match parse(url) {
            Ok(StoreLocation::File(path)) => path.display().to_string(),
            _ => panic!("{url} should name a file"),
        }
    }

    #[test]
    fn urls_name_a_file_or_a_server() {
        assert_eq!(file("sqlite:hookgate.db"), "./hookgate.db");
        assert_eq!(file("sqlite:/var/lib/hookgate/a b.db"), "/var/lib/hookgate/a b.db");
        assert_eq!(file("sqlite:///var/lib/x.db"), "/var/lib/x.db");
        assert_eq!(file("sqlite:file:x?".trim_end_matches('?')), "./file:x");
        let Ok(StoreLocation::Postgres(options)) =
            parse("postgresql://me:geheim@db.example.com:6432/hg?sslmode=require")
        else {
            panic!("this names a server");
        };
        assert_eq!((options.get_host(), options.get_port()), ("db.example.com", 6432));
        assert_eq!(options.get_database(), Some("hg"));
    }

    #[test]
    fn database_in_memory_is_refused_however_it_is_spelt() {
        for url in [
            "sqlite::memory:",
            "sqlite://:memory:",
            "sqlite:///:memory:",
            "sqlite:file::memory:",
            "sqlite://file::memory:?cache=shared",
            "sqlite:file:x?mode=memory",
            "sqlite:x.db?cache=shared&mode=memory",
            "sqlite:file:/x?vfs=memdb",
        ] {
            let Err(said) = parse(url) else { panic!("{url} should be refused") };
            assert!(said.contains("in memory") && said.contains("sqlite:PATH"), "{url}: {said}");
        }
        for temporary in ["sqlite:", "sqlite://", "sqlite:?mode=rwc"] {
            assert!(parse(temporary).is_err(), "{temporary}");
        }
        assert_eq!(file("sqlite:memory"), "./memory");
        assert_eq!(file("sqlite:memory/x.db"), "./memory/x.db");
    }

    #[test]
    fn a_bad_url_is_one_sentence_without_what_it_holds() {
        for url in [
            "",
            "hookgate.db",
            "geheim:",
            "mysql://u:geheim@h/db",
            "u:geheim@h/db",
            "sqlite:",
            "sqlite:folder/",
            "sqlite:x.db?key=geheim",
            "postgres:geheim",
            "postgres://u:geheim@h:99999/db",
            "postgres://u:geheim@[/db",
            "postgres://u@h/db?pasword=geheim",
            "postgres://u@h/db?sslmode=geheim",
            "postgres://u@h/db?port=geheim",
            "postgres://u:%FFgeheim@h/db",
        ] {
            let Err(said) = parse(url) else { panic!("{url} should be refused") };
            assert!(!said.contains("geheim") || url == "geheim:", "{url}: {said}");
            assert!(!said.contains('\n') && !said.is_empty(), "{url}: {said}");
        }
    }
}
