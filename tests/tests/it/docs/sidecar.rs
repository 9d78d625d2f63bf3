//! Tests the Kubernetes tutorial with processes instead of containers: the page's Dockerfile is executed in
//! folders, and the pod that the chart makes of its values is started unchanged.
//!
//! Besides the kinds of blocks in `docs/story.rs` there are
//! - `image`: `docker build`, one per line;
//! - `release`: `helm install` or `helm upgrade`;
//! - `cluster`: commands that need a cluster and are not run, each of which is listed in `NOT_RUN`;
//! - `session restarted`: a session after containers that have ended were started again.
//!
//! `kubectl exec` is a script that runs its arguments with the container's environment.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::Path, process::Stdio};

use hookgate_tests::{ca::Ca, gateway::Setup, repository};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{
    deploy::{
        chart_support::{Pod, Rendered, chart, list},
        support::{PATIENCE, of_image},
    },
    docs::{
        sidecar_image::Image,
        story::{Block, Story},
    },
};

/// Commands on the page that are not run.
const NOT_RUN: [&str; 6] = [
    "kind load docker-image hookgate:0.1.0 tool-guard:1.0.0",
    r#"kubectl create secret generic hookgate-jwt --from-literal=HOOKGATE_JWT_SECRET="$(head -c 32 /dev/urandom | base64)""#,
    "kubectl port-forward service/hookgate 8080 > port-forward.log &",
    "kubectl get pods --selector app.kubernetes.io/name=hookgate",
    "helm uninstall hookgate",
    "kubectl delete secret hookgate-jwt",
];

/// A pod, and the files that it was made from.
struct Release {
    rendered: Rendered,
    pod: Pod,
    /// Its sidecars by name.
    sidecars: BTreeMap<String, Child>,
}

/// Replaces a cluster and a container engine.
struct Cluster {
    images: BTreeMap<String, Image>,
    release: Option<Release>,
    not_run: Vec<String>,
    folder: TempDir,
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Cluster { images: BTreeMap::new(), release: None, not_run: Vec::new(), folder }
    }

    /// `docker build [-f FILE] -t NAME CONTEXT`.
    fn build(&mut self, place: &Path, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["docker", "build", options @ .., "-t", name, context] = &words[..] else {
            panic!("this is not known here: {line}")
        };
        let (context, work) = (place.join(context), self.folder.path().join(name.replace(':', "-")));
        let image = match options {
            [] => Image::build(&context, &work, &self.images),
            ["-f", file] => {
                let ours = repository::root().join("deploy/Dockerfile").canonicalize().unwrap();
                assert_eq!(place.join(file).canonicalize().unwrap(), ours);
                assert_eq!(context.canonicalize().unwrap(), repository::root().canonicalize().unwrap());
                let entry_point = of_image("gateway", "ENTRYPOINT");
                assert_eq!(entry_point, ["/usr/local/bin/hookgate"]);
                Image::gateway(entry_point, &work)
            }
            _ => panic!("this is not known here: {line}"),
        };
        self.images.insert((*name).to_owned(), image);
    }

    fn image(&self, container: &Value) -> &Image {
        let name = container["image"].as_str().unwrap();
        self.images.get(name).unwrap_or_else(|| panic!("the page builds no image {name}"))
    }

    /// `helm install` or `helm upgrade`.
    async fn release(&mut self, story: &mut Story, line: &str) {
        let words: Vec<_> = line.split_whitespace().collect();
        let ["helm", verb, "hookgate", of, "--values", values, rest @ ..] = &words[..] else {
            panic!("this is not known here: {line}")
        };
        assert_eq!(story.here().join(of).canonicalize().unwrap(), chart().canonicalize().unwrap());
        let rendered = Rendered::of(&story.here().join(values));
        match (*verb, rest, self.release.take()) {
            ("install", ["--wait"], None) => self.install(story, rendered).await,
            ("upgrade", [], Some(release)) => self.upgrade(story, release, rendered),
            _ => panic!("this is not known here: {line}"),
        }
    }

    async fn install(&mut self, story: &mut Story, rendered: Rendered) {
        assert_secrets(&rendered);
        let service = rendered.kind("Service").find(|service| service["metadata"]["name"] == "hookgate");
        let ports = &service.expect("what is forwarded to is there")["spec"]["ports"];
        assert!(list(ports).iter().any(|port| port["port"] == 8080), "{ports}");
        let gateway = rendered.gateway();
        let loaded = NOT_RUN[0].split(' ').skip(3);
        assert_eq!(loaded.collect::<Vec<_>>(), self.images.keys().collect::<Vec<_>>());
        let words = [self.image(gateway).entry_point.clone(), words(&gateway["args"])].concat();
        // The command that `Setup` runs.
        assert_eq!(words, ["/usr/local/bin/hookgate", "serve", "--config", "/etc/hookgate/hookgate.yaml"]);

        let pod = Pod::of(&rendered, &Ca::new());
        let mut setup = Setup::file(&pod.text).environment("HOOKGATE__DRAIN__GRACE", "0ms");
        for (name, value) in &pod.environment {
            setup = setup.environment(name, &pod.moved(value));
        }
        for port in ["DATA", "OPS"] {
            setup = setup.environment(&format!("HOOKGATE__SERVER__{port}_ADDR"), "127.0.0.1:0");
        }
        let mut release = Release { rendered, pod, sidecars: BTreeMap::new() };
        self.start(&mut release);
        let gateway = setup.start().await;
        story.command("kubectl", &kubectl(&release, &gateway.file(), self.folder.path()));
        let root = release.pod.moved("/etc/hookgate/").replace("/etc/hookgate/", "");
        story.goes_on_with(gateway, &root);
        self.release = Some(release);
    }

    /// Checks that the pod would stay, and replaces its file atomically, as a mounted file changes.
    fn upgrade(&mut self, story: &Story, release: Release, rendered: Rendered) {
        let deployment =
            |rendered: &Rendered| rendered.kind("Deployment").next().expect("there is one").clone();
        assert_eq!(deployment(&rendered), deployment(&release.rendered), "its pods would be replaced");
        let file = story.gateway().file();
        let new = file.with_extension("new");
        fs::write(&new, release.pod.moved(rendered.text())).unwrap();
        fs::rename(new, file).unwrap();
        self.release = Some(Release { rendered, ..release });
    }

    /// Starts the sidecars that aren't running.
    fn start(&self, release: &mut Release) {
        for container in list(&release.rendered.template()["spec"]["initContainers"]) {
            let name = container["name"].as_str().unwrap();
            assert_eq!(container["restartPolicy"], "Always", "it is a sidecar: {container}");
            assert!(container.get("command").is_none(), "the image's own entry point is run");
            if release.sidecars.contains_key(name) {
                continue;
            }
            let mut command = self.image(container).command();
            command.args(words(&container["args"]).iter().map(|word| release.pod.moved(word)));
            let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap();
            fs::write(self.folder.path().join(name), child.id().unwrap().to_string()).unwrap();
            release.sidecars.insert(name.to_owned(), child);
        }
    }

    /// Waits until the sidecars, which were told to stop, have ended, and starts them again.
    async fn restart(&mut self) {
        let mut release = self.release.take().expect("it is installed");
        for (name, mut sidecar) in std::mem::take(&mut release.sidecars) {
            let ended = timeout(PATIENCE, sidecar.wait()).await;
            let ended = ended.unwrap_or_else(|_| panic!("{name} runs on")).unwrap();
            assert!(ended.success(), "{name}: {ended}");
        }
        self.start(&mut release);
        self.release = Some(release);
    }

    async fn tell(&mut self, story: &mut Story, mut block: Block) -> String {
        match block.story.as_deref() {
            Some("image") => block.text.lines().for_each(|line| self.build(story.here(), line)),
            Some("release") => self.release(story, block.text.trim()).await,
            Some("cluster") => self.not_run.extend(block.text.lines().map(str::to_owned)),
            Some("session restarted") => {
                self.restart().await;
                block.story = Some("session eventually".to_owned());
                return story.tell(&block).await;
            }
            _ => return story.tell(&block).await,
        }
        String::new()
    }
}

fn words(value: &Value) -> Vec<String> {
    list(value).iter().map(|word| word.as_str().expect("it is text").to_owned()).collect()
}

/// Checks that everything the gateway's file refers to is in a Secret that the page creates and the gateway
/// mounts.
fn assert_secrets(rendered: &Rendered) {
    let [source] = list(&rendered.gateway()["envFrom"]) else { panic!("it is given one Secret") };
    let made = format!("kubectl create secret generic {} ", source["secretRef"]["name"].as_str().unwrap());
    let line = NOT_RUN.iter().find(|line| line.starts_with(&made)).expect("the Secret is made");
    for rest in rendered.text().split("${").skip(1) {
        let name = rest.split('}').next().unwrap();
        assert!(line.contains(&format!("--from-literal={name}=")), "{name} isn't in it");
    }
}

/// The script for `kubectl exec`: into the gateway, and into a sidecar to stop it.
fn kubectl(release: &Release, file: &Path, folder: &Path) -> String {
    let set = |(name, value): &(String, String)| format!("{name}='{}' ", release.pod.moved(value));
    let environment: String = release.pod.environment.iter().map(set).collect();
    let names = release.sidecars.keys().map(String::as_str).collect::<Vec<_>>().join("|");
    format!(
        r#"#!/bin/bash
set -eu
[ "$1 $2 $3 $5" = "exec deployment/hookgate -c --" ] || {{ echo "not known here: $*"; exit 64; }}
container=$4
shift 5
case "$container: $*" in
    "hookgate: hookgate "*) exec env {environment} "${{@/#\/etc\/hookgate\/hookgate.yaml/{file}}}" ;;
    *": sh -c kill 1") ;;
    *) echo "not known here: $*"; exit 64 ;;
esac
case "$container" in
    {names}) kill "$(cat '{folder}'/"$container")" ;;
    *) echo "no such container: $container"; exit 1 ;;
esac
"#,
        file = file.display(),
        folder = folder.display(),
    )
}

#[tokio::test]
async fn the_tutorial_leads_from_an_empty_folder_to_a_tool_blocked_for_one_tenant() {
    let packages = repository::root().join("examples/python-raw/generate.sh");
    assert!(Command::new(packages).status().await.unwrap().success(), "grpcio is there");
    let mut story = Story::of("sidecar-tutorial.md").await;
    symlink(repository::root(), story.place().join("hookgate")).unwrap();
    let mut cluster = Cluster::new();
    let mut printed = String::new();
    for block in story.blocks() {
        printed += &cluster.tell(&mut story, block).await;
    }
    for stage in [
        r#""code":"TOOL_NOT_ALLOWED""#,
        r#""decision":"continue""#,
        r#""revision":2"#,
        "PLUGIN_UNAVAILABLE",
        "200\n403\n",
    ] {
        assert!(printed.contains(stage), "{stage}: {printed}");
    }
    assert_eq!(cluster.not_run, NOT_RUN, "what is not run is listed");
    let exit = story.gateway().stop().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
}
