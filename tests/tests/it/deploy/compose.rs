//! Tests `docker-compose.yml` and the files of `deploy/compose`: they agree with the gateway, its images
//! and each other, and our services in them work.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use hookgate_tests::{agent::HttpAgent, collector::Collector, openapi::Port, postgres::Cluster, repository};
use serde_json::{Value, json};

use crate::deploy::support::{Container, Machine, PATIENCE, Running, of_image, text};

/// The gateway's configuration file.
const CONFIG: &str = "deploy/compose/gateway/hookgate.yaml";

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn compose() -> Value {
    yaml("docker-compose.yml")
}

/// Everything between `${` and `}`, `:` or `-`.
fn references(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| {
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
    };
    text.split("${").skip(1).map(name).collect()
}

/// The container ports of our services that are published.
fn published(service: &Value) -> BTreeSet<String> {
    let ports = service["ports"].as_array().into_iter().flatten();
    ports.map(|port| port.as_str().unwrap().rsplit(':').next().unwrap().to_owned()).collect()
}

#[test]
fn every_image_is_pinned_and_every_file_and_variable_is_there() {
    let compose = compose();
    for (name, service) in compose["services"].as_object().unwrap() {
        let image = service["image"].as_str().unwrap();
        let (repository, tag) = image.split_once(':').unwrap_or_else(|| panic!("{name}: {image}"));
        assert!(tag.contains('.') && !repository.contains('.'), "{name}: a version, and no host: {image}");
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let from = volume.as_str().unwrap().split(':').next().unwrap();
            let is_there = match from.strip_prefix("./") {
                Some(file) => repository::root().join(file).exists(),
                None => compose["volumes"].get(from).is_some(),
            };
            assert!(is_there, "{name}: {from}");
        }
        for other in service["depends_on"].as_object().into_iter().flatten() {
            let service = &compose["services"][other.0];
            assert!(!service.is_null(), "{name}: {}", other.0);
            assert!(
                other.1["condition"] != "service_healthy" || service.get("healthcheck").is_some(),
                "{name}: {}",
                other.0
            );
        }
    }
    let python = format!("FROM {} AS build", compose["services"]["load"]["image"].as_str().unwrap());
    assert!(text("examples/python-raw/Dockerfile").contains(&python), "one Python: {python}");
    let example = text(".env.example");
    let named = example.lines().filter(|line| !line.starts_with('#'));
    let named: BTreeSet<_> = named.filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
    assert_eq!(references(&text("docker-compose.yml")), named);
}

#[test]
fn the_gateways_service_is_as_its_image_and_its_file_say() {
    let (compose, config) = (compose(), yaml(CONFIG));
    let gateway = &compose["services"]["gateway"];
    assert_eq!(
        gateway["healthcheck"]["test"],
        json!([vec!["CMD".to_owned()], of_image("gateway", "HEALTHCHECK")].concat())
    );
    let ports = ["data_addr", "ops_addr"]
        .map(|name| config["server"][name].as_str().unwrap().rsplit(':').next().unwrap().to_owned());
    assert_eq!(published(gateway), BTreeSet::from(ports));
    let at = of_image("gateway", "CMD").pop().unwrap();
    let (at, ours) = (Path::new(&at), Path::new(CONFIG));
    assert_eq!(at.file_name(), ours.file_name());
    let folder = |path: &Path| path.parent().unwrap().display().to_string();
    let mount = json!(format!("./{}:{}:ro", folder(ours), folder(at)));
    assert!(gateway["volumes"].as_array().unwrap().contains(&mount), "the folder, not the file: {mount}");
    let environment: BTreeSet<_> = gateway["environment"].as_object().unwrap().keys().cloned().collect();
    assert!(environment.is_superset(&references(&text(CONFIG))), "{environment:?}");
    let admin = format!("unix://{}", config["server"]["admin_socket"].as_str().unwrap());
    assert_eq!(gateway["environment"]["HOOKGATE_ADMIN_ADDR"], json!(admin));
    for plugin in ["tenant-auth", "audit-log"] {
        let service = &compose["services"][plugin];
        assert_eq!(service["build"]["target"], json!(plugin));
        assert!(
            gateway["volumes"].as_array().unwrap().contains(&service["volumes"][0]),
            "{plugin}: one volume of sockets"
        );
        let listed =
            config["plugins"].as_array().unwrap().iter().find(|entry| entry["name"] == json!(plugin));
        assert_eq!(listed.unwrap()["endpoint"], json!(of_image(plugin, "CMD").pop()));
    }
}

/// The number before the unit, which is the last word.
fn mebibytes(size: &Value, unit: &str) -> u64 {
    let size = size.as_str().unwrap();
    size.strip_suffix(unit).unwrap_or_else(|| panic!("{size}: in {unit}")).parse().unwrap()
}

#[test]
fn the_gateways_payloads_fit_its_memory() {
    let (under_way, memory) =
        (&yaml(CONFIG)["limits"]["bytes_in_flight"], &compose()["services"]["gateway"]["mem_limit"]);
    assert!(text("docs/performance.md").contains("resident memory <= 40 MiB + 5 x payload bytes in flight"));
    let most = 40 + 5 * mebibytes(under_way, "MiB");
    assert!(most <= mebibytes(memory, "m"), "{most} MiB of {memory}");
}

#[test]
fn whatever_can_be_asked_has_a_health_check_and_what_shows_trouble_waits_for_nothing_of_ours() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    let unasked: Vec<_> = services
        .iter()
        .filter(|(_, service)| service.get("healthcheck").is_none())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(unasked, ["collector", "load"], "an image of one program, and a program that only asks");
    let mut waits_for = vec!["grafana"];
    while let Some(name) = waits_for.pop() {
        let built = services[name].get("build");
        assert!(built.is_none(), "Grafana waits for {name}");
        waits_for
            .extend(services[name]["depends_on"].as_object().into_iter().flatten().map(|(name, _)| &**name));
    }
}

#[test]
fn telemetry_reaches_whom_the_files_name() {
    let (compose, config) = (compose(), yaml(CONFIG));
    let service = |address: &str| {
        let host = address.trim_start_matches("http://").split(':').next().unwrap();
        assert!(compose["services"].get(host).is_some(), "no service {host} of {address}");
        host.to_owned()
    };
    let port = |address: &Value| address.as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let (otlp, collector) = (&config["telemetry"]["otlp_endpoint"], yaml("deploy/compose/collector.yaml"));
    assert_eq!(service(otlp.as_str().unwrap()), "collector");
    assert_eq!(port(otlp), port(&collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]));
    service(collector["exporters"]["otlp_grpc/traces"]["endpoint"].as_str().unwrap());
    let pipelines: Vec<_> = collector["service"]["pipelines"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        pipelines.into_iter().collect::<BTreeSet<_>>(),
        ["logs", "metrics", "traces"].map(str::to_owned).into()
    );

    let prometheus = yaml("deploy/compose/prometheus.yml");
    let target = &prometheus["scrape_configs"][0]["static_configs"][0]["targets"][0];
    assert_eq!(service(target.as_str().unwrap()), "gateway");
    assert_eq!(port(target), port(&config["server"]["ops_addr"]));
    for source in yaml("deploy/compose/grafana/datasources.yaml")["datasources"].as_array().unwrap() {
        service(source["url"].as_str().unwrap());
    }
}

fn init(repository: &Path) -> Output {
    Command::new(repository.join("deploy/compose/init.sh")).current_dir("/").output().unwrap()
}

/// A copy of the files that `init.sh` reads.
fn fresh() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("deploy/compose")).unwrap();
    for file in ["deploy/compose/init.sh", ".env.example"] {
        std::fs::copy(repository::root().join(file), folder.path().join(file)).unwrap();
    }
    folder
}

#[test]
fn init_makes_secrets_that_only_their_owner_reads_and_keeps_existing_ones() {
    let folder = fresh();
    let file = folder.path().join(".env");
    let first = init(folder.path());
    assert!(first.status.success(), "{first:?}");
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let values: Vec<_> = written
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .collect();
    let secrets: BTreeSet<_> = values.iter().filter(|(_, value)| value.len() == 64).collect();
    assert_eq!(secrets.len(), 3, "{written}");
    assert!(values.iter().all(|(_, value)| !value.is_empty()), "{written}");
    let again = init(folder.path());
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"), "{again:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
}

/// Our containers, with a test's database and collector instead of the others.
struct Composed {
    machine: Machine,
    config: std::path::PathBuf,
    secrets: Vec<(String, String)>,
}

impl Composed {
    async fn new(database: &Cluster, collector: &Collector) -> Self {
        let machine = Machine::new().await;
        let config = text(CONFIG);
        let others = [
            ("@postgres:5432/hookgate", format!("@{}/postgres", database.address())),
            ("http://collector:4317", collector.endpoint()),
            // A machine that is busy with other tests must not cause a timeout.
            ("timeout: 500ms", "timeout: 10s".into()),
        ];
        let config = others.iter().fold(config, |config, (theirs, ours)| {
            assert!(config.contains(theirs), "{theirs}");
            config.replace(theirs, ours)
        });
        let folder = fresh();
        assert!(init(folder.path()).status.success());
        let secrets = std::fs::read_to_string(folder.path().join(".env")).unwrap();
        let secrets = secrets
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        let secrets = secrets.collect();
        let composed = Composed { config: machine.volume("gateway-config"), machine, secrets };
        composed.put(&config);
        composed
    }

    fn file(&self) -> std::path::PathBuf {
        self.config.join(Path::new(CONFIG).file_name().unwrap())
    }

    /// Replaces the gateway's file, as editors and git do.
    fn put(&self, config: &str) {
        let beside = self.config.join(".new");
        std::fs::write(&beside, config).unwrap();
        std::fs::rename(&beside, self.file()).unwrap();
    }

    /// Runs a service's health check in its container.
    async fn healthy(&self, name: &str) -> crate::deploy::support::Ended {
        let asked = compose()["services"][name]["healthcheck"]["test"].clone();
        let asked: Vec<String> = serde_json::from_value(asked).unwrap();
        assert_eq!(asked[0], "CMD");
        self.service(name).run(&asked[1..].iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    fn secret(&self, name: &str) -> &str {
        &self.secrets.iter().find(|(known, _)| known == name).unwrap().1
    }

    /// One of our services with its volumes and environment, on free ports.
    fn service(&self, name: &str) -> Container {
        let compose = compose();
        let service = &compose["services"][name];
        let mut binds = Vec::new();
        for entry in service["volumes"].as_array().unwrap() {
            let mut parts = entry.as_str().unwrap().split(':');
            let (from, to) = (parts.next().unwrap(), parts.next().unwrap());
            let from = if from.starts_with("./") { self.config.clone() } else { self.machine.volume(from) };
            binds.push((from, to.to_owned()));
        }
        for entry in service["tmpfs"].as_array().into_iter().flatten() {
            binds.push((
                self.machine.volume("tmpfs"),
                entry.as_str().unwrap().split(':').next().unwrap().to_owned(),
            ));
        }
        let binds: Vec<_> = binds.iter().map(|(from, to)| (from.as_path(), to.as_str())).collect();
        let mut container = self.machine.container(&binds);
        for (key, value) in service["environment"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap();
            let secret = references(value).pop_first();
            container = container.env(key, secret.as_deref().map_or(value, |name| self.secret(name)));
        }
        for port in ["DATA", "OPS"] {
            container = container.env(&format!("HOOKGATE__SERVER__{port}_ADDR"), "127.0.0.1:0");
        }
        container
    }

    async fn start(&self, name: &str) -> Running {
        let words = [of_image(name, "ENTRYPOINT"), of_image(name, "CMD")].concat();
        self.service(name).start(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// The plugins, which are healthy only once they listen.
    async fn plugins(&self) -> (Running, Running) {
        for plugin in ["tenant-auth", "audit-log"] {
            let asked = self.healthy(plugin).await;
            assert_eq!(asked.code, Some(1), "{plugin}, before it is there: {asked:?}");
        }
        let (mut guard, mut audit) = (self.start("tenant-auth").await, self.start("audit-log").await);
        for (plugin, running) in [("tenant-auth", &mut guard), ("audit-log", &mut audit)] {
            running.logged("plugin listens").await;
            let asked = self.healthy(plugin).await;
            assert_eq!(asked.code, Some(0), "{plugin}: {asked:?}");
        }
        (guard, audit)
    }

    /// Runs what a person types after `docker compose exec gateway hookgate`.
    async fn exec(&self, words: &[&str], env: &[(&str, &str)]) -> crate::deploy::support::Ended {
        let container =
            env.iter().fold(self.service("gateway"), |container, (name, value)| container.env(name, value));
        container.run(&[&["/usr/local/bin/hookgate"], words].concat()).await
    }

    /// The agents of the profile `load`: calls that pass and calls that are blocked, and nothing else.
    async fn load(&self, base: &str) {
        let mut load = tokio::process::Command::new("python3");
        load.arg(repository::root().join("deploy/compose/load.py"))
            .args([base, "28"])
            .env("CALLS_PER_SECOND", "200");
        load.env("HOOKGATE_JWT_SECRET", self.secret("HOOKGATE_JWT_SECRET")).kill_on_drop(true);
        let load = tokio::time::timeout(PATIENCE, load.output()).await.unwrap().unwrap();
        let said = String::from_utf8(load.stdout).unwrap();
        let counts: Vec<_> = said.trim().rsplit('\n').next().unwrap().split(": ").collect();
        assert!(
            said.contains("200: ") && said.contains("403: ") && counts.len() == 3,
            "passed and blocked, nothing else: {said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_compose_starts_of_ours_blocks_a_call_and_bears_its_load() {
    let database = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let collector = Collector::start().await;
    let composed = Composed::new(&database, &collector).await;
    let (_guard, mut audit) = composed.plugins().await;
    let mut gateway = composed.start("gateway").await;
    let listening = gateway.logged("listening").await;
    let address = |name| listening.field(name).unwrap().as_str().unwrap().parse::<SocketAddr>().unwrap();
    let (data, ops) = (address("data_addr"), address("ops_addr"));
    gateway.logged("started").await;
    let probe = composed.exec(&["probe", "--addr", &ops.to_string()], &[]).await;
    assert_eq!(probe.code, Some(0), "{probe:?}");

    let mint = ["token", "mint", "--config", "/etc/hookgate/hookgate.yaml", "--tenant", "globex"];
    let token = composed.exec(&mint, &[]).await;
    let token = token
        .said
        .lines()
        .find(|line| line.starts_with("ey"))
        .unwrap_or_else(|| panic!("{token:?}"))
        .to_owned();
    let base = format!("http://{data}");
    let call = ["call", "before_tool_call", "--tool", "orders.refund", "--addr", &base];
    let blocked = composed.exec(&call, &[("HOOKGATE_TOKEN", &token)]).await;
    assert_eq!(blocked.code, Some(3), "{blocked:?}");
    assert!(blocked.said.contains("by tenant-auth"), "{blocked:?}");
    audit
        .line(|line| {
            assert_ne!(line.field("tool"), Some(&json!("health.check")), "no such call was made");
            line.field("decision").is_some_and(|decision| decision == "block")
        })
        .await;
    let listed = composed.exec(&["plugin", "list"], &[]).await; // by HOOKGATE_ADMIN_ADDR
    assert!(listed.code == Some(0) && listed.said.contains("audit-log"), "{listed:?}");

    composed.load(&base).await;
    let metrics = HttpAgent::new(ops).of(Port::Ops).get("/metrics").await.unwrap().text;
    assert!(metrics.contains("hookgate_blocks_total{"), "what Prometheus fetches: {metrics}");
    collector
        .wait_until(|received| {
            received.span("POST /v1/before-tool-call", "hookgate.tenant.id", "globex").is_some()
        })
        .await;

    let config = std::fs::read_to_string(composed.file()).unwrap();
    let without: Vec<_> = config.lines().filter(|line| !line.contains("response-sanitizer")).collect();
    composed.put(&without.join("\n"));
    let left = gateway.logged("removed from the configuration").await;
    assert_eq!(left.field("plugin"), Some(&json!("response-sanitizer")));

    gateway.signal("TERM");
    assert_eq!(gateway.ended().await, Some(0));
}
