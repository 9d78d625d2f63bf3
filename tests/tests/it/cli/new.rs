//! Tests `hookgate new`: what it writes builds against this repository's SDK, passes its test and decides calls.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use hookgate_proto::types::v1::ExtensionPoint::BeforeToolCall;
use hookgate_tests::{gateway::Gateway, repository, token::token};
use serde_json::json;
use tokio::{
    process::Command,
    time::{sleep, timeout},
};

use crate::{
    cli::support::{CommandOutput, Folder, Serving, pasted},
    docs::plugins,
    plugins::process::PluginProcess,
};

const FILES: [&str; 8] = [
    ".dockerignore",
    ".gitignore",
    "Cargo.toml",
    "Dockerfile",
    "README.md",
    "hookgate.yaml",
    "src/main.rs",
    "src/plugin.rs",
];
/// The timeout of a build, while all other tests run.
const PATIENCE: Duration = Duration::from_secs(240);
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// A folder with what a project by path needs from a checkout.
fn checkout(folder: &Folder) -> PathBuf {
    let checkout = folder.0.path().join("checkout");
    fs::create_dir(&checkout).unwrap();
    for name in ["Cargo.toml", "glob", "proto", "sdk"] {
        symlink(repository::root().join(name), checkout.join(name)).unwrap();
    }
    checkout
}

async fn created(folder: &Folder, args: &[&str]) -> CommandOutput {
    let ran = folder.run(&[&["new", "plugin"], args].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    ran
}

/// The script that stands for cargo: see [`plugins::cargo`].
async fn cargo(folder: &Folder) -> String {
    let script = tokio::task::spawn_blocking(plugins::cargo).await.unwrap();
    format!("bash '{}'", folder.write("cargo", &script).display())
}

/// Runs a line in the project, which must succeed.
async fn succeeds(project: &Path, line: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("{line} 2>&1")]).current_dir(project).output();
    let output = timeout(PATIENCE, output).await.unwrap_or_else(|_| panic!("{line} does not end")).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {said}");
    said
}

/// Waits for a plugin's socket. It is built first.
async fn appears(socket: &Path) {
    let seen = async {
        while !socket.exists() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, seen).await.expect("the plugin listens");
}

#[tokio::test]
async fn a_project_inside_a_checkout_is_built_with_its_sdk_and_decides_calls() {
    let folder = Folder::new();
    let checkout = checkout(&folder);
    let ran = created(&folder, &["no-shell", "--lang", "rust", "--dir", "checkout/plugins/mine"]).await;
    let project = checkout.join("plugins/mine");
    for file in FILES {
        let text = read(project.join(file));
        assert!(!text.contains('@') || file == "README.md", "{file} has a placeholder: {text}");
    }
    assert!(read(project.join("Cargo.toml")).contains(r#"hookgate-sdk = { path = "../../sdk/rust" }"#));
    assert!(!ran.stdout.contains("crates.io"), "{ran:?}");
    check_dockerfile(&project, Some("../../sdk/rust"));
    succeeds(&project, "rustfmt --edition 2024 --check src/main.rs").await;

    let cargo = cargo(&folder).await;
    let tested = succeeds(&project, &format!("{cargo} test")).await;
    assert!(tested.contains("1 passed; 0 failed"), "{tested}");

    let socket = folder.0.path().join("plugin.sock");
    let address = format!("unix://{}", socket.display());
    let plugin = Serving::pasted(&project, &format!("{cargo} run -- {address}"), &[]).await;
    appears(&socket).await;
    let commands: Vec<_> = ran.stdout.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let [cd, "cargo test", "cargo run", call] = commands[..] else { panic!("four commands: {ran:?}") };
    assert_eq!(cd, "cd checkout/plugins/mine");
    let (_, words) = call.split_once(" plugin test ").unwrap();
    assert!(
        read(project.join("README.md")).contains(&format!("\nhookgate plugin test {words}\n")),
        "{words}"
    );
    let call = call.replace("unix:///tmp/no-shell.sock", &address);
    let blocked = pasted(&call).await;
    assert_eq!(blocked.code, Some(3), "{blocked:?}");
    assert!(
        blocked.stdout.contains("CANCEL  TOOL_NOT_ALLOWED: Agents may not use shell.exec."),
        "{blocked:?}"
    );
    let passed = pasted(&call.replace("--tool shell.exec", "--tool fs.read")).await;
    assert!(passed.code == Some(0) && passed.stdout.contains("before_tool_call CONTINUE"), "{passed:?}");

    let config = read(project.join("hookgate.yaml")).replace("unix:///tmp/no-shell.sock", &address);
    folder.write("hookgate.yaml", &config);
    let secret = [("HOOKGATE_JWT_SECRET", "0123456789abcdef0123456789abcdef")];
    let check = folder.run_with(&["config", "check", "hookgate.yaml", "--connect"], &secret, "").await;
    assert!(check.code == Some(0) && check.stdout.contains("ready"), "{check:?}");
    assert_eq!(plugin.stop().await.code, Some(0));
}

#[tokio::test]
async fn a_shell_script_passes_its_test_and_decides_calls_in_the_runner() {
    let folder = Folder::new();
    let ran = created(&folder, &["No_Shell", "--lang", "shell"]).await;
    let project = folder.0.path().join("No_Shell");
    for file in ["README.md", "hookgate.yaml", "plugin.sh", "runner.yaml", "test.sh"] {
        assert!(!read(project.join(file)).contains('@'), "{file} has a placeholder");
    }
    let commands: Vec<_> = ran.stdout.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let ["cd No_Shell", test, start, call] = commands[..] else { panic!("four commands: {ran:?}") };
    assert_eq!(succeeds(&project, test).await, "2 tests passed\n");

    let socket = folder.0.path().join("plugin.sock");
    let place = |line: &str| line.replace("/tmp/No_Shell.sock", &socket.display().to_string());
    let state = folder.0.path().join("state").display().to_string();
    let plugin = Serving::pasted(&project, &place(start), &[("XDG_STATE_HOME", &state)]).await;
    appears(&socket).await;
    let blocked = pasted(&place(call)).await;
    assert!(
        blocked.stdout.contains("CANCEL  TOOL_NOT_ALLOWED: Agents may not use shell.exec."),
        "{blocked:?}"
    );
    let passed = pasted(&place(call).replace("--tool shell.exec", "--tool fs.read")).await;
    assert!(passed.code == Some(0) && passed.stdout.contains("before_tool_call CONTINUE"), "{passed:?}");
    assert_eq!(plugin.stop().await.code, Some(0));

    let wrong = folder.run(&["new", "plugin", "x", "--lang", "shell", "--sdk-path", "."]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[tokio::test]
async fn a_project_in_typescript_passes_its_test_and_decides_calls_as_it_is_and_as_its_image_runs_it() {
    let folder = Folder::new();
    checkout(&folder);
    let ran = created(&folder, &["No_Shell", "--lang", "typescript", "--sdk-path", "checkout"]).await;
    let project = folder.0.path().join("No_Shell");
    assert!(read(project.join("package.json")).contains(r#""name": "no-shell""#));
    has_no_placeholder(&project, &["@NAME@", "@PACKAGE@", "@SDK", "@IMAGE", "@PREPARE@", "@PACK@"]);
    let commands: Vec<_> = ran.stdout.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let ["cd No_Shell", prepare, pack, install, "npm test", "npm start", call] = commands[..] else {
        panic!("seven commands: {ran:?}")
    };
    let readme = read(project.join("README.md"));
    assert!(readme.contains(&format!("\n{prepare}\n{pack}\n{install}\nnpm test\nnpm start\n")), "{readme}");
    for line in [prepare, pack, &format!("{install} --ignore-scripts --no-audit --no-fund")] {
        succeeds(&project, line).await;
    }
    let tested = succeeds(&project, "npm test").await;
    assert!(tested.contains("pass 1") && tested.contains("fail 0"), "{tested}");

    let socket = folder.0.path().join("plugin.sock");
    let address = format!("unix://{}", socket.display());
    // npm passes SIGTERM on, to a shell that has become the plugin.
    let start = format!("npm start -- --listen {address}");
    decides(&project, &start, &call.replace("unix:///tmp/No_Shell.sock", &address), &socket).await;
    typescript_serves_from_its_image(&project, &address).await;
}

/// Checks that no file of the project has one of the templates' placeholders.
fn has_no_placeholder(project: &Path, placeholders: &[&str]) {
    for file in fs::read_dir(project).unwrap().map(|entry| entry.unwrap().path()) {
        let text = read(&file);
        for left in placeholders {
            assert!(!text.contains(left), "{} has a placeholder: {text}", file.display());
        }
    }
}

/// Starts the plugin with a line, makes the call, which is blocked, and one that isn't, and stops the plugin.
async fn decides(project: &Path, start: &str, call: &str, socket: &Path) {
    let plugin = Serving::pasted(project, start, &[]).await;
    appears(socket).await;
    let blocked = pasted(call).await;
    assert!(
        blocked.stdout.contains("CANCEL  TOOL_NOT_ALLOWED: Agents may not use shell.exec."),
        "{blocked:?}"
    );
    let passed = pasted(&call.replace("--tool shell.exec", "--tool fs.read")).await;
    assert!(passed.code == Some(0) && passed.stdout.contains("before_tool_call CONTINUE"), "{passed:?}");
    assert_eq!(plugin.stop().await.code, Some(0));
}

/// Runs the plugin as its Dockerfile does.
async fn typescript_serves_from_its_image(project: &Path, address: &str) {
    let dockerfile = read(project.join("Dockerfile"));
    assert!(!dockerfile.contains("npx"), "npx doesn't pass SIGTERM on: {dockerfile}");
    assert!(
        dockerfile.contains("\nARG NODE=22\n") && dockerfile.contains("\nUSER 65532:65532\n"),
        "{dockerfile}"
    );
    for line in ["npm run build", "npm prune --omit=dev --omit=optional --ignore-scripts"] {
        assert!(dockerfile.contains(&format!("&& {line} ")), "{dockerfile}");
        succeeds(project, line).await;
    }
    let entrypoint = entrypoint(&dockerfile);
    assert_eq!(entrypoint[0], "/nodejs/bin/node");
    let mut command = Command::new("node");
    command.args(&entrypoint[1..]).args(["--listen", address]).current_dir(project);
    decides_behind_a_gateway(command).await;
}

fn entrypoint(dockerfile: &str) -> Vec<String> {
    let entrypoint = dockerfile.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).unwrap();
    serde_json::from_str(entrypoint).unwrap()
}

/// Runs the plugin `No_Shell` behind a gateway.
async fn decides_behind_a_gateway(command: Command) {
    let mut plugin = PluginProcess::run(command).await;
    let entry = json!([{ "name": "No_Shell", "endpoint": plugin.address }]);
    let binding = json!({ "config": { "refused_tools": ["shell.exec"] } });
    let setup = Gateway::with().tenant("acme").set("/plugins", entry);
    let gateway = setup.binding_with("No_Shell", 50, &binding).start().await;
    let agent = gateway.http(&token("acme"));
    let blocked = agent.call(BeforeToolCall, json!({ "tool_name": "shell.exec", "args": {} })).await;
    assert_eq!((blocked.status, &blocked.body["code"]), (403, &json!("TOOL_NOT_ALLOWED")), "{blocked:?}");
    let passed = agent.call(BeforeToolCall, json!({ "tool_name": "fs.read", "args": {} })).await;
    assert_eq!(passed.status, 200, "{passed:?}");
    assert_eq!(plugin.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_project_in_typescript_outside_a_checkout_uses_the_version_of_the_program() {
    let folder = Folder::new();
    let ran = created(&folder, &["zod", "--lang", "typescript"]).await;
    let project = folder.0.path().join("zod");
    let manifest = read(project.join("package.json"));
    assert!(manifest.contains(&format!(r#""@hookgate/sdk": "{VERSION}""#)), "{manifest}");
    assert!(manifest.contains(r#""name": "zod-plugin""#), "{manifest}");
    let readme = read(project.join("README.md"));
    assert!(readme.contains("```sh\nnpm install\nnpm test\n"), "{readme}");
    for said in [&ran.stdout, &readme] {
        assert!(said.contains(" from npm") && said.contains("--sdk-path PATH"), "{said}");
    }
    let sdk = read(repository::root().join("sdk/typescript/package.json"));
    assert!(sdk.contains(&format!(r#""version": "{VERSION}""#)), "the SDK has the program's version");
}

#[tokio::test]
async fn a_project_in_python_passes_its_test_and_decides_calls_as_it_is_and_as_its_image_runs_it() {
    let folder = Folder::new();
    checkout(&folder);
    let ran = created(&folder, &["No_Shell", "--lang", "python", "--sdk-path", "checkout"]).await;
    let project = folder.0.path().join("No_Shell");
    has_no_placeholder(&project, &["@NAME@", "@SDK", "@IMAGE", "@WHEEL@"]);
    let commands: Vec<_> = ran.stdout.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let ["cd No_Shell", environment, wheel, install, types, test, start, call] = commands[..] else {
        panic!("eight commands: {ran:?}")
    };
    let readme = read(project.join("README.md"));
    let shown = format!("\n{environment}\n{wheel}\n{install}\n{types}\n{test}\n{start}\n");
    assert!(readme.contains(&shown), "{readme}");
    for line in [environment, wheel, install, types] {
        succeeds(&project, line).await;
    }
    let tested = succeeds(&project, test).await;
    assert!(tested.contains("1 passed"), "{tested}");

    let socket = folder.0.path().join("plugin.sock");
    let address = format!("unix://{}", socket.display());
    let place = |line: &str| line.replace("unix:///tmp/No_Shell.sock", &address);
    decides(&project, &place(start), &place(call), &socket).await;
    python_serves_from_its_image(&project, &address).await;
}

/// Runs the plugin as its Dockerfile does, with no other file than the image has.
async fn python_serves_from_its_image(project: &Path, address: &str) {
    let dockerfile = read(project.join("Dockerfile"));
    for line in ["ARG PYTHON=3.13", "COPY plugin.py ./", "USER 65532:65532"] {
        assert!(dockerfile.contains(&format!("\n{line}\n")), "{dockerfile}");
    }
    assert!(dockerfile.contains(" --requirement requirements.txt "), "{dockerfile}");
    let wheel = read(project.join("requirements.txt"));
    assert!(project.join(wheel.trim()).exists(), "the build of the image has {wheel}");
    let image = Folder::new();
    image.write("plugin.py", &read(project.join("plugin.py")));
    let entrypoint = entrypoint(&dockerfile);
    assert_eq!(entrypoint[0], "/venv/bin/python");
    let mut command = Command::new(project.join(".venv/bin/python"));
    command.args(&entrypoint[1..]).arg(address).current_dir(image.0.path());
    decides_behind_a_gateway(command).await;
}

#[tokio::test]
async fn a_project_in_python_outside_a_checkout_uses_the_version_of_the_program() {
    let folder = Folder::new();
    let ran = created(&folder, &["no-shell", "--lang", "python"]).await;
    let project = folder.0.path().join("no-shell");
    assert_eq!(read(project.join("requirements.txt")), format!("hookgate=={VERSION}\n"));
    let readme = read(project.join("README.md"));
    assert!(readme.contains("```sh\npython3 -m venv .venv\n.venv/bin/pip install -r "), "{readme}");
    for said in [&ran.stdout, &readme] {
        assert!(said.contains(" from PyPI") && said.contains("--sdk-path PATH"), "{said}");
    }
    let sdk = read(repository::root().join("sdk/python/pyproject.toml"));
    assert!(sdk.contains(&format!("\nversion = \"{VERSION}\"\n")), "the SDK has the program's version");
}

/// The patch makes this repository's SDK the published one. Cargo uses it only if the version fits.
#[tokio::test]
async fn a_project_outside_a_checkout_is_built_with_the_version_of_the_program() {
    let folder = Folder::new();
    let ran = created(&folder, &["Match", "--lang", "rust"]).await;
    let project = folder.0.path().join("Match");
    let manifest = read(project.join("Cargo.toml"));
    assert!(manifest.contains(&format!("hookgate-sdk = \"{VERSION}\"")), "{manifest}");
    assert!(manifest.contains("name = \"match-plugin\""), "{manifest}");
    for said in [&ran.stdout, &read(project.join("README.md"))] {
        assert!(said.contains("crates.io") && said.contains("--sdk-path PATH"), "{said}");
    }
    check_dockerfile(&project, None);

    fs::create_dir(folder.0.path().join(".cargo")).unwrap();
    let sdk = repository::root().join("sdk/rust");
    let patch = format!("[patch.crates-io]\nhookgate-sdk.path = '{}'\n", sdk.display());
    folder.write(".cargo/config.toml", &patch);
    let cargo = cargo(&folder).await;
    let tested = succeeds(&project, &format!("{cargo} test")).await;
    assert!(tested.contains("1 passed; 0 failed"), "{tested}");
    let tree = read(project.join("tree.txt"));
    assert!(tree.contains(&format!("hookgate-sdk v{VERSION} ({})", sdk.display())), "{tree}");
}

#[tokio::test]
async fn a_checkout_elsewhere_is_used_if_it_is_given() {
    let folder = Folder::new();
    checkout(&folder);
    for (name, given) in [("a", "checkout"), ("b", "checkout/plugins")] {
        fs::create_dir_all(folder.0.path().join("checkout/plugins")).unwrap();
        created(&folder, &[name, "--lang", "rust", "--sdk-path", given]).await;
        let project = folder.0.path().join(name);
        check_dockerfile(&project, Some("../checkout/sdk/rust"));
        let said = read(project.join("README.md"));
        assert!(said.contains("docker build --build-context hookgate=../checkout -t "), "{said}");
    }
}

#[tokio::test]
async fn a_directory_that_holds_something_is_refused_and_stays_as_it_is() {
    let folder = Folder::new();
    fs::create_dir_all(folder.0.path().join("taken/.git")).unwrap();
    folder.write("file", "mine");
    for (dir, said) in [
        ("taken", "nothing was written, because taken isn't empty: give a new directory with --dir\n"),
        (".", "nothing was written, because . isn't empty: give a new directory with --dir\n"),
        ("file", "file can't be written: Not a directory"),
        ("file/below", "file/below can't be written: Not a directory"),
    ] {
        let ran = folder.run(&["new", "plugin", "no-shell", "--lang", "rust", "--dir", dir]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{dir}: {ran:?}");
        assert!(ran.stderr.starts_with(&format!("hookgate: {said}")), "{dir}: {ran:?}");
    }
    assert_eq!(fs::read_dir(folder.0.path().join("taken")).unwrap().count(), 1);
    assert_eq!(read(folder.0.path().join("file")), "mine");
    // An empty one is as good as none.
    fs::create_dir(folder.0.path().join("no-shell")).unwrap();
    created(&folder, &["no-shell", "--lang", "rust"]).await;
}

#[tokio::test]
async fn a_project_that_cannot_be_written_whole_leaves_nothing_behind() {
    let folder = Folder::new();
    let program = hookgate_tests::gateway::binary().display().to_string();
    let project = folder.0.path().join("above/project");
    let line = format!(
        "trap '' XFSZ; ulimit -f 1; exec '{program}' new plugin no-shell --lang rust --dir '{}'",
        project.display()
    );
    let ran = pasted(&line).await;
    assert!(ran.code == Some(1) && ran.stderr.contains(" can't be written: File too large"), "{ran:?}");
    assert!(!folder.0.path().join("above").exists());
}

#[tokio::test]
async fn wrong_arguments_are_refused_with_what_would_be_right() {
    let folder = Folder::new();
    let long = "a".repeat(65);
    let name = "a letter and up to 63 letters, digits, `_` and `-`";
    for (args, said) in [
        (&["1x", "--lang", "rust"][..], name),
        (&["_x", "--lang", "rust"], name),
        (&["a.b", "--lang", "rust"], name),
        (&["ä", "--lang", "rust"], name),
        (&["../a", "--lang", "rust"], name),
        (&["", "--lang", "rust"], name),
        (&[&long, "--lang", "rust"], name),
        (&["a", "--lang", "cobol"], "[possible values: python, rust, shell, typescript]"),
        (&["a"], "--lang <LANG>"),
        (&["a", "--lang", "rust", "--sdk-path", "."], "--sdk-path: . isn't a checkout of Hookgate: give "),
    ] {
        let ran = folder.run(&[&["new", "plugin"], args].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{args:?}: {ran:?}");
    }
    assert_eq!(fs::read_dir(folder.0.path()).unwrap().count(), 0);

    checkout(&folder);
    let spaced = ["new", "plugin", "a", "--lang", "rust", "--dir", "checkout/my plugins/a"];
    let ran = folder.run(&spaced).await;
    assert!(ran.code == Some(2) && ran.stderr.contains("only ASCII letters"), "{ran:?}");
    assert!(!folder.0.path().join("checkout/my plugins").exists());
}

/// Checks by reading that the image could be built: the instructions, the copied files, and the place of the SDK.
fn check_dockerfile(project: &Path, sdk: Option<&str>) {
    let text = read(project.join("Dockerfile")).replace("\\\n", "");
    let instructions: Vec<_> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let all = |word: &str| -> Vec<Vec<String>> {
        let rest = instructions.iter().filter_map(|line| line.strip_prefix(&format!("{word} ")));
        rest.map(|rest| rest.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let known = ["ARG", "FROM", "COPY", "WORKDIR", "RUN", "USER", "ENTRYPOINT", "CMD"];
    for line in &instructions {
        assert!(known.iter().any(|word| line.starts_with(&format!("{word} "))), "{line}");
    }
    let (run, workdir) = (all("RUN")[0].join(" "), &all("WORKDIR")[0][0]);
    let mut checkout = None;
    for copy in all("COPY") {
        let (flags, paths): (Vec<_>, Vec<_>) = copy.iter().partition(|word| word.starts_with("--"));
        let [source, to] = paths[..] else { panic!("one source: {copy:?}") };
        match flags.first().map(|flag| flag.as_str()) {
            None => assert!(project.join(source).exists(), "{source}"),
            Some("--from=build") => assert!(run.contains(&format!(" {source}")), "{run} makes no {source}"),
            Some("--from=hookgate") => checkout = Some(to.clone()),
            Some(flag) => panic!("{flag} is not known"),
        }
    }
    assert!(run.contains(&format!(",target={workdir}/target ")), "{run}");
    let program = all("ENTRYPOINT")[0].join(" ");
    assert!(all("COPY").iter().any(|copy| program == format!("[\"{}\"]", copy.last().unwrap())), "{program}");
    let rust = all("ARG").concat();
    assert_eq!(rust, [format!("RUST={}", env!("CARGO_PKG_RUST_VERSION"))]);

    let Some(sdk) = sdk else { return assert_eq!(checkout, None) };
    assert!(read(project.join("Cargo.toml")).contains(&format!("hookgate-sdk = {{ path = \"{sdk}\" }}")));
    let found = Path::new(workdir).join(sdk).components().fold(PathBuf::new(), |mut path, component| {
        if component == Component::ParentDir {
            path.pop()
        } else {
            path.push(component);
            true
        };
        path
    });
    assert_eq!(found, Path::new(&checkout.unwrap()).join("sdk/rust"));
}
