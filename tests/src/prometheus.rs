//! Prometheus and promtool from Debian's package, as `./test` unpacks it. A test's server uses a free port,
//! scrapes one gateway and ends with the test.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{gateway::Gateway, repository};

/// The timeout for a server to start and to see its target.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program of the package.
///
/// # Panics
/// If it isn't there; the message says what to do.
pub fn program(name: &str) -> PathBuf {
    let unpacked = repository::root().join("target/tools/prometheus/usr/bin").join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::iter::once(unpacked).chain(std::env::split_paths(&path).map(|at| at.join(name)));
    places.find(|place| place.is_file()).unwrap_or_else(|| {
        panic!("these tests need {name}: `./test` unpacks it, or put Debian's package prometheus on the PATH")
    })
}

/// Runs promtool in a folder and returns its output.
///
/// # Panics
/// If it reports an error.
pub fn promtool(folder: &Path, arguments: &[&str]) -> String {
    let ran = Command::new(program("promtool")).args(arguments).current_dir(folder).output();
    let ran = ran.expect("promtool can be run");
    let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(ran.status.success(), "promtool {arguments:?}: {said}");
    said
}

/// A server that scrapes a gateway five times a second.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts a server with these rules, and waits until it has scraped the gateway three times.
    ///
    /// # Panics
    /// If it doesn't start, or doesn't see the gateway.
    pub async fn of(gateway: &Gateway, rules: &Path) -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let config = serde_json::json!({
            "global": { "scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": "hookgate",
                "static_configs": [{ "targets": [gateway.ops_addr()], "labels": { "namespace": "agents" } }],
            }],
        });
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config.to_string()).expect("there is room"); // JSON is YAML
        let (address, child) = start(&file, folder.path()).await;
        let server = Prometheus { address, child, _folder: folder };
        server.wait_for("count_over_time(up{job=\"hookgate\"}[1m]) > 2").await;
        server
    }

    /// The alerts, each with its `name` and `health`, once all have been evaluated.
    ///
    /// # Panics
    /// If some are never evaluated.
    pub async fn alerts(&self) -> Vec<Value> {
        let looked_at = async {
            loop {
                let answer = self.get("rules").await.expect("Prometheus answers");
                let groups = answer["data"]["groups"].as_array().cloned().unwrap_or_default();
                let rules = groups.iter().filter_map(|group| group["rules"].as_array());
                let rules: Vec<_> = rules.flatten().cloned().collect();
                if !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown") {
                    return rules;
                }
                tokio::time::sleep(Duration::from_millis(50)).await; // polling is the only way
            }
        };
        tokio::time::timeout(PATIENCE, looked_at).await.expect("rules are looked at every second")
    }

    /// The series of a query, each with its `metric` and `value`.
    ///
    /// # Panics
    /// If the query is wrong.
    pub async fn query(&self, query: &str) -> Vec<Value> {
        let answer = self.ask(query).await.expect("Prometheus answers");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until the query has a result.
    ///
    /// # Panics
    /// If there is none in time.
    pub async fn wait_for(&self, query: &str) {
        let found = async {
            while self.query(query).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await; // polling is the only way
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never: {query}"));
    }

    async fn ask(&self, query: &str) -> reqwest::Result<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        self.get(&format!("query?query={encoded}")).await
    }

    async fn get(&self, path: &str) -> reqwest::Result<Value> {
        reqwest::get(format!("http://{}/api/v1/{path}", self.address)).await?.json().await
    }
}

/// Starts a server with this file. Returns the address that it logs.
async fn start(file: &Path, folder: &Path) -> (SocketAddr, Child) {
    let said = folder.join("log");
    let log = fs::File::create(&said).expect("there is room");
    let child = Command::new(program("prometheus"))
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg("--web.listen-address=127.0.0.1:0")
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    let child = child.expect("Prometheus can be run");
    let listening = async {
        loop {
            let log = fs::read_to_string(&said).expect("it can be read");
            let line = log.lines().find_map(|line| line.split_once("msg=\"Listening on\" address="));
            if let Some(address) = line.and_then(|(_, address)| address.trim().parse().ok()) {
                return address;
            }
            tokio::time::sleep(Duration::from_millis(50)).await; // polling is the only way
        }
    };
    let address = tokio::time::timeout(PATIENCE, listening).await;
    let address =
        address.unwrap_or_else(|_| panic!("Prometheus: {}", fs::read_to_string(&said).unwrap_or_default()));
    (address, child)
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
