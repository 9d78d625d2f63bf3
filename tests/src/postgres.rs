//! PostgreSQL servers for tests, from Debian's package: on a free port of this machine, in a temporary
//! folder. One server is shared by a whole run, with a database for each test. A test that stops its server
//! has its own.
//!
//! A server ends with the process that started it, however that process ends: a shell waits until its
//! standard input is closed, then stops the server.

use std::{
    fmt, fs,
    io::{Read, Seek},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, postgres::PgConnectOptions};

use crate::port::ReservedPort;

const INSTALL: &str = "these tests need PostgreSQL 14 or newer: `apt-get install postgresql`, or put its initdb and \
                       pg_ctl on the PATH";
/// Where Debian installs the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Stops a server and deletes its folder when its standard input is closed. Arguments: the folder, and the
/// command that stops the server.
///
/// A process of the server may still write as it ends, so the folder is deleted repeatedly until it is
/// gone.
const STAND_BY: &str = r#"
read -r _; folder=$1; shift; cd /; "$@" >/dev/null 2>&1
for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$folder" && break; sleep 0.2; done
"#;

/// The run's shared server.
static SHARED: OnceLock<Cluster> = OnceLock::new();

/// The URL of a new empty database on the shared server, which the first call starts.
pub async fn database() -> String {
    let cluster = tokio::task::spawn_blocking(|| SHARED.get_or_init(Cluster::start)).await;
    cluster.expect("a server can be started").database().await
}

/// A test's own server. It ends on drop.
pub struct Cluster {
    folder: PathBuf,
    programs: Programs,
    /// The address, which stays reserved while the server is stopped.
    reserved: ReservedPort,
    databases: AtomicU64,
    stand_by: Child,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Creates and starts a server. Blocks for about a second.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or doesn't start. The message says what to install, or shows its log.
    pub fn start() -> Self {
        let programs = Programs::find();
        let folder = tempfile::Builder::new().prefix("hookgate-pg-").tempdir().expect("there is room").keep();
        programs.own(&folder);
        let stand_by = stand_by(&programs, &folder);
        let reserved = ReservedPort::new().expect("there are free ports");
        let cluster = Self { folder, programs, reserved, databases: AtomicU64::new(0), stand_by };
        let data = cluster.data();
        let initdb = ["-U", "hookgate", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "-D", &data];
        cluster.run("initdb", &initdb).unwrap_or_else(|said| panic!("initdb: {said}"));
        cluster.up().unwrap_or_else(|said| panic!("PostgreSQL does not start: {said}"));
        cluster
    }

    /// Stops the server like a crash: connections are cut and nothing is finished. Acknowledged writes are
    /// on disk.
    pub fn stop(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-s", "-w", "-m", "immediate", "stop"])
            .unwrap_or_else(|said| panic!("PostgreSQL does not stop: {said}"));
    }

    /// Starts the server again after [`Cluster::stop`], on the same port.
    pub fn start_again(&self) {
        self.up().unwrap_or_else(|said| panic!("PostgreSQL does not start again: {said}"));
    }

    /// The server's host and port.
    pub fn address(&self) -> String {
        self.reserved.address().to_string()
    }

    /// The URL of a new empty database.
    pub async fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let options: PgConnectOptions = self.url("postgres").parse().expect("this is a URL");
        let mut connection = options.connect().await.expect("the server runs");
        let create = format!("CREATE DATABASE {name} TEMPLATE template0");
        sqlx::query(AssertSqlSafe(create)).execute(&mut connection).await.expect("a database can be made");
        connection.close().await.expect("nothing is left to send");
        self.url(&name)
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://hookgate@{}/{database}", self.address())
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    fn up(&self) -> Result<(), String> {
        // Little WAL is kept, because disk space is short where tests run. Without fsync, only a crash of the machine loses data; a crash of the server doesn't.
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c full_page_writes=off \
             -c shared_buffers=32MB -c max_connections=200 -c min_wal_size=32MB -c max_wal_size=64MB",
            self.reserved.address().port()
        );
        let log = self.folder.join("log").display().to_string();
        let started =
            self.run("pg_ctl", &["-D", &self.data(), "-s", "-w", "-l", &log, "-o", &options, "start"]);
        started.map_err(|said| said + &fs::read_to_string(&log).unwrap_or_default())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.programs.command(program);
        // The server keeps inherited files open, so a pipe would never end.
        let said = tempfile::tempfile().expect("there is room");
        let stderr = said.try_clone().expect("a file can be shared");
        command
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let status = command.status().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("{status}: {}", written(said))) }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.stand_by.stdin.take());
        // It waits until the server has ended and nothing is left.
        let _ = self.stand_by.wait();
    }
}

fn written(mut file: fs::File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    read.map_or_else(|error| error.to_string(), |_| text)
}

/// In its own process group, so that it survives a signal to this process's group.
fn stand_by(programs: &Programs, folder: &Path) -> Child {
    let stop = programs.command("pg_ctl");
    let mut shell = Command::new("sh");
    shell.args(["-c", STAND_BY, "sh"]).arg(folder).arg(stop.get_program()).args(stop.get_args());
    shell.args(["-s", "-w", "-m", "immediate", "stop", "-D"]).arg(folder.join("data"));
    shell
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    shell.spawn().expect("a shell can be run")
}

/// PostgreSQL's programs, and the user that runs them, because they refuse to run as root.
struct Programs {
    /// `None` if they are on the PATH.
    folder: Option<PathBuf>,
    as_postgres: bool,
}

impl Programs {
    fn find() -> Self {
        let numbered = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
        let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten().map(|entry| entry.path());
        let newest = versions
            .filter(|path| path.join("bin/pg_ctl").exists() && path.join("bin/initdb").exists())
            .max_by_key(numbered)
            .map(|path| path.join("bin"));
        let found = newest.is_some()
            || ["initdb", "pg_ctl"].iter().all(|name| Command::new(name).arg("--version").output().is_ok());
        assert!(found, "{INSTALL}");
        let user = Command::new("id").arg("-u").output().expect("`id` can be run").stdout;
        Self { folder: newest, as_postgres: user == b"0\n" }
    }

    fn command(&self, program: &str) -> Command {
        let program = self.folder.as_ref().map_or_else(|| program.into(), |folder| folder.join(program));
        if !self.as_postgres {
            return Command::new(program);
        }
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program);
        command
    }

    /// Makes the server's user the owner of the folder.
    fn own(&self, folder: &Path) {
        if self.as_postgres {
            let given = Command::new("chown").arg("postgres").arg(folder).status();
            assert!(given.is_ok_and(|status| status.success()), "{INSTALL}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_ends_with_the_process_that_started_it_and_leaves_nothing() {
        let mut cluster = Cluster::start();
        assert!(std::net::TcpStream::connect(cluster.address()).is_ok());
        // What the end of this process does, without destructors.
        drop(cluster.stand_by.stdin.take());
        cluster.stand_by.wait().expect("it ends");
        assert!(std::net::TcpStream::connect(cluster.address()).is_err());
        assert!(!cluster.folder.exists());
    }
}
