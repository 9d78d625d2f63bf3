//! The chart as rendered by deploy/check/render.sh, and a pod's folders and environment for the built
//! gateway.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use hookgate_tests::{ca::Ca, repository};
use serde_json::Value;
use tempfile::TempDir;

/// The value of unknown Secrets; long enough for a key.
const SECRET: &str = "what a Secret of the cluster would hold";
/// The value of a Secret with the registry's address.
const DATABASE: &str = "postgres://hookgate:hunter2@db.example.com/hookgate";

/// The chart's folder.
pub(crate) fn chart() -> PathBuf {
    repository::root().join("deploy/helm/hookgate")
}

/// Every variant of values, in order.
pub(crate) fn variants() -> Vec<PathBuf> {
    let folder = fs::read_dir(repository::root().join("deploy/helm/variants")).unwrap();
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 12, "only {} variants are there", files.len());
    files
}

/// The renderer's output; fails the test if rendering fails.
pub(crate) fn print(values: &Path, args: &[&str]) -> String {
    let mut command = Command::new(repository::root().join("deploy/check/render.sh"));
    command.args(args).arg("-f").arg(values).arg(chart());
    let done = command.output().expect("the renderer can be run");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", values.display());
    String::from_utf8(done.stdout).unwrap()
}

/// The objects of a rendering.
#[derive(Debug)]
pub(crate) struct Rendered {
    name: String,
    objects: Vec<Value>,
}

impl Rendered {
    /// Renders a file of values.
    pub(crate) fn of(values: &Path) -> Self {
        Rendered::parse(values, &[])
    }

    fn parse(values: &Path, args: &[&str]) -> Self {
        let text = print(values, args);
        let object = |part: &str| {
            serde_saphyr::from_str(part)
                .unwrap_or_else(|error| panic!("{}: {error}\n{part}", values.display()))
        };
        let parts = text.split("---\n").filter(|part| part.lines().any(|line| !line.starts_with('#')));
        let name = values.file_stem().unwrap().to_string_lossy().into_owned();
        Rendered { name, objects: parts.map(object).collect() }
    }

    /// Renders these values.
    pub(crate) fn with(values: &Value) -> Self {
        Rendered::laid(&values.to_string(), &[])
    }

    /// Renders these values, merged over those of the minimal variant.
    pub(crate) fn over_minimal(values: &str) -> Self {
        let minimal = repository::root().join("deploy/helm/variants/minimal.yaml");
        Rendered::laid(values, &["-f", minimal.to_str().unwrap()])
    }

    fn laid(values: &str, args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values.yaml");
        fs::write(&file, values).unwrap();
        Rendered::parse(&file, args)
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The objects of a kind.
    pub(crate) fn kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The template of the gateway's pods.
    pub(crate) fn template(&self) -> &Value {
        let workload = self.kind("Deployment").chain(self.kind("StatefulSet")).next();
        &workload.expect("something makes pods")["spec"]["template"]
    }

    /// The gateway's container.
    pub(crate) fn gateway(&self) -> &Value {
        let container = &self.template()["spec"]["containers"][0];
        assert_eq!(container["name"], "hookgate");
        container
    }

    /// The gateway's file, as text.
    pub(crate) fn text(&self) -> &str {
        self.kind("ConfigMap").next().expect("there is one")["data"]["hookgate.yaml"]
            .as_str()
            .expect("it is text")
    }

    /// The gateway's file.
    pub(crate) fn file(&self) -> Value {
        serde_saphyr::from_str(self.text()).expect("it is YAML")
    }

    /// The arguments of a container.
    pub(crate) fn args(container: &Value) -> Vec<&str> {
        list(&container["args"]).iter().map(|arg| arg.as_str().expect("it is text")).collect()
    }
}

/// The members of a list; empty if it is missing.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A pod's folders, below one of the test, and its environment.
pub(crate) struct Pod {
    root: TempDir,
    /// The gateway's file, with the paths adapted to this machine.
    pub(crate) text: String,
    pub(crate) environment: Vec<(String, String)>,
    mounts: Vec<String>,
}

impl Pod {
    /// Creates every mount of the gateway's container, with values for its Secrets, and sets every
    /// variable.
    pub(crate) fn of(rendered: &Rendered, ca: &Ca) -> Self {
        let mounts = list(&rendered.gateway()["volumeMounts"]).iter();
        let mounts = mounts.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect();
        let text = rendered.text().to_owned();
        let environment = environment(rendered);
        let mut pod = Pod { root: tempfile::tempdir().unwrap(), text, environment, mounts };
        pod.fill(rendered, ca);
        pod.text = pod.moved(&pod.text);
        pod
    }

    /// Replaces the pod's paths in a text by those on this machine.
    pub(crate) fn moved(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for mount in &self.mounts {
            text = text.replace(&format!("{mount}/"), &format!("{}{mount}/", self.root.path().display()));
        }
        text
    }

    fn fill(&self, rendered: &Rendered, ca: &Ca) {
        let pair = ca.pair(&["hookgate"]).files();
        let values = self.environment.iter().map(|(_, value)| value.as_str());
        let text = values.chain([rendered.text()]).collect::<Vec<_>>().join("\n");
        for mount in list(&rendered.gateway()["volumeMounts"]) {
            let path = mount["mountPath"].as_str().unwrap();
            let folder = self.root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(&folder).unwrap();
            let named = |volume: &&Value| volume["name"] == mount["name"];
            let volume = list(&rendered.template()["spec"]["volumes"]).iter().find(named);
            if volume.is_none_or(|volume| volume.get("secret").is_none()) {
                continue;
            }
            for name in named_below(&text, path) {
                let known = match name.as_str() {
                    "tls.crt" => Some(pair.chain()),
                    "tls.key" => Some(pair.key()),
                    "ca.crt" | "agents.crt" => Some(ca.file()),
                    _ => None,
                };
                let content =
                    known.map_or_else(|| SECRET.to_owned(), |file| fs::read_to_string(file).unwrap());
                fs::write(folder.join(name), content).unwrap();
            }
        }
    }
}

/// The names of files in `folder` that the text contains.
fn named_below(text: &str, folder: &str) -> Vec<String> {
    let folder = format!("{folder}/");
    let end = |c: char| c.is_whitespace() || matches!(c, '}' | '"' | '\'');
    text.split(&folder).skip(1).map(|rest| rest.split(end).next().unwrap().to_owned()).collect()
}

/// Every variable of the gateway's container. Values of Secrets are made up, with a variable for each
/// reference that nothing else answers. Without such a Secret, there are none.
fn environment(rendered: &Rendered) -> Vec<(String, String)> {
    let mut environment = Vec::new();
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    for variable in list(&rendered.gateway()["env"]) {
        let name = text(&variable["name"]);
        let value = match &variable["value"] {
            Value::Null if name == "HOOKGATE_STORE_URL" => DATABASE.to_owned(),
            Value::Null => SECRET.to_owned(),
            value => text(value),
        };
        environment.push((name, value));
    }
    for source in list(&rendered.gateway()["envFrom"]) {
        let secret = &source["secretRef"]["name"];
        let made = rendered.kind("Secret").find(|object| object["metadata"]["name"] == *secret);
        if let Some(made) = made {
            let data = made["stringData"].as_object().expect("it holds something").iter();
            environment.extend(data.map(|(name, value)| (name.clone(), text(value))));
        } else {
            environment.extend(references(rendered.text()).map(|name| (name, SECRET.to_owned())));
        }
    }
    environment
}

fn references(text: &str) -> impl Iterator<Item = String> {
    let names = text.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
    names.map(|(name, _)| name.to_owned()).filter(|name| !name.contains(':'))
}
