//! Tests that the Dockerfiles agree with the binary and the repository. `deploy/check/image.sh` tests that
//! they build and that the images run.

use std::collections::BTreeSet;

use hookgate_tests::repository;
use serde_json::{Value, json};

use crate::{
    cli::support::Folder,
    deploy::support::{Machine, of_image, text},
};

/// The value of an `ARG NAME=VALUE`.
fn argument(name: &str) -> String {
    let file = text("deploy/Dockerfile");
    let line = format!("ARG {name}=");
    file.lines().find_map(|text| text.strip_prefix(&line)).unwrap_or_else(|| panic!("no {line}")).to_owned()
}

#[test]
fn the_image_has_the_toolchain_and_the_version_of_the_repository() {
    let toolchain: toml::Value = toml::from_str(&text("rust-toolchain.toml")).unwrap();
    assert_eq!(toolchain["toolchain"]["channel"].as_str(), Some(&*argument("RUST")));
    let workspace: toml::Value = toml::from_str(&text("Cargo.toml")).unwrap();
    assert_eq!(workspace["workspace"]["package"]["version"].as_str(), Some(&*argument("VERSION")));
    let licence = format!(
        "org.opencontainers.image.licenses=\"{}\"",
        workspace["workspace"]["package"]["license"].as_str().unwrap()
    );
    for file in ["deploy/Dockerfile", "examples/python-raw/Dockerfile"] {
        assert!(text(file).contains(&licence), "{file}");
    }
}

#[test]
fn the_image_exposes_the_ports_of_the_configuration() {
    let schema: Value = serde_json::from_str(&text("docs/hookgate.schema.json")).unwrap();
    let definitions = schema["$defs"].as_object().unwrap().values();
    let server = definitions.map(|one| &one["properties"]).find(|one| one.get("ops_addr").is_some()).unwrap();
    let port = |name: &str| server[name]["default"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let ports = BTreeSet::from(["data_addr", "ops_addr", "admin_addr"].map(port));
    let file = text("deploy/Dockerfile");
    let exposed = file.lines().find_map(|line| line.strip_prefix("EXPOSE ")).unwrap();
    assert_eq!(exposed.split(' ').map(str::to_owned).collect::<BTreeSet<_>>(), ports);
}

#[tokio::test]
async fn what_the_images_run_is_what_the_binary_takes() {
    let health = of_image("gateway", "HEALTHCHECK");
    let commands = ["gateway", "tenant-auth", "audit-log"]
        .map(|stage| [of_image(stage, "ENTRYPOINT"), of_image(stage, "CMD")].concat());
    for command in commands.into_iter().chain([health]) {
        let (program, rest) = command.split_first().unwrap();
        assert_eq!(program, "/usr/local/bin/hookgate");
        let mut words: Vec<&str> = rest.iter().map(String::as_str).collect();
        words.push("--help");
        let ran = Folder::new().run(&words).await;
        assert_eq!(ran.code, Some(0), "{command:?}: {ran:?}");
    }
}

#[tokio::test]
async fn the_images_root_holds_nothing_that_is_not_named() {
    let machine = Machine::new().await;
    let root = machine.root();
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(&root).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    files.retain(|file| !file.contains(".so"));
    files.sort();
    let named = [
        "etc/group",
        "etc/nsswitch.conf",
        "etc/passwd",
        "etc/ssl/certs/ca-certificates.crt",
        "usr/local/bin/hookgate",
    ];
    assert_eq!(json!(files), json!(named));
}

#[test]
fn what_is_built_from_reaches_the_builder_and_what_is_made_does_not() {
    let ignored = text(".dockerignore");
    assert!(ignored.lines().any(|line| line == "*"), "everything stays outside that isn't named");
    let workspace: toml::Value = toml::from_str(&text("Cargo.toml")).unwrap();
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        let folder = member.split('/').next().unwrap();
        let is_named = |line: &str| [member, folder].iter().any(|name| line == format!("!{name}"));
        assert!(ignored.lines().any(is_named), "{member}");
        let manifest = format!("COPY {member}/Cargo.toml {member}/");
        assert!(text("deploy/Dockerfile").contains(&manifest), "the layer of the dependencies: {manifest}");
    }
    for made in ["**/target", "**/.venv", "**/node_modules"] {
        assert!(ignored.lines().any(|line| line == made), "{made}");
    }
    // A toolchain other than the image's would be downloaded for it.
    assert!(!ignored.contains("rust-toolchain") && repository::root().join("rust-toolchain.toml").exists());
}
