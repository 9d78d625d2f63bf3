//! Tests profiles: which one is used, what overrides it, where its tokens come from, and what is never
//! shown or written.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use hookgate_tests::{
    gateway::Gateway,
    token::{Token, token},
};
use serde_json::json;

use crate::cli::support::{CommandOutput, Folder};

/// The path where [`Folder`]'s commands look for profiles.
const FILE: &str = "hookgate/config.yaml";

fn write(folder: &Folder, text: &str, mode: u32) -> PathBuf {
    fs::create_dir_all(folder.0.path().join("hookgate")).unwrap();
    let path = folder.write(FILE, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// Two tenants' tokens, and a gateway with an admin port.
struct Rig {
    folder: Folder,
    gateway: Gateway,
    data: String,
    admin: String,
}

impl Rig {
    async fn new() -> Self {
        let gateway = Gateway::with().tenant("acme").tenant("globex").admin().start().await;
        let (data, admin) = (gateway.data_addr(), gateway.admin_addr().unwrap());
        let folder = Folder::new();
        folder.write("acme.txt", &token("acme"));
        folder.write("globex.txt", &token("globex"));
        folder.write("operator.txt", &Token::for_operators().mint());
        Rig { folder, gateway, data: format!("http://{data}"), admin: format!("http://{admin}") }
    }

    /// The tenant of the token that arrives.
    async fn tenant(&self, args: &[&str], env: &[(&str, &str)]) -> String {
        let ran = self.folder.run_with(&[&["whoami", "--output", "json"], args].concat(), env, "").await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        ran.json()["tenant"].as_str().unwrap().to_owned()
    }

    async fn explain(&self, args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
        let asking = ["explain", "--tenant", "acme", "--point", "before_response"];
        self.folder.run_with(&[&asking, args].concat(), env, "").await
    }
}

#[tokio::test]
async fn arguments_stand_over_the_environment_and_that_over_a_profile_that_none_names() {
    let rig = Rig::new().await;
    let nowhere = "http://127.0.0.1:1";
    let file = json!({ "current": "local", "profiles": {
        "local": { "data": rig.data, "token": { "file": "../acme.txt" } },
        "other": { "data": rig.data, "token": { "env": "OTHER" } },
        "away": { "data": nowhere, "token": { "file": "../acme.txt" } },
        "bare": { "admin": nowhere },
    } });
    write(&rig.folder, &file.to_string(), 0o644);
    let globex = token("globex");
    let other = [("OTHER", globex.as_str())];
    let chosen = [("HOOKGATE_PROFILE", "other"), ("OTHER", &globex)];
    assert_eq!(rig.tenant(&[], &[]).await, "acme");
    assert_eq!(rig.tenant(&["--profile", "other"], &other).await, "globex");
    assert_eq!(rig.tenant(&[], &chosen).await, "globex");
    assert_eq!(rig.tenant(&["--profile", "local"], &chosen).await, "acme");
    assert_eq!(rig.tenant(&[], &[("HOOKGATE_TOKEN", &globex)]).await, "globex");
    let token_file = ["--token-file", "acme.txt"];
    assert_eq!(rig.tenant(&token_file, &[("HOOKGATE_TOKEN", &globex)]).await, "acme");
    let address = ["--profile", "away", "--addr", &rig.data];
    assert_eq!(rig.tenant(&address, &[("HOOKGATE_ADDR", nowhere)]).await, "acme");
    let here = ("HOOKGATE_ADDR", rig.data.as_str());
    assert_eq!(rig.tenant(&[], &[("HOOKGATE_PROFILE", "away"), here]).await, "acme");
    let env = [("HOOKGATE_ADDR", nowhere), ("HOOKGATE_TOKEN", &globex), ("HOOKGATE_PROFILE", "away")];
    assert_eq!(rig.tenant(&["--profile", "local"], &env).await, "acme");
    // Settings that it lacks come from the environment.
    assert_eq!(rig.tenant(&["--profile", "bare"], &[here, ("HOOKGATE_TOKEN", &globex)]).await, "globex");

    let ran = rig.folder.run(&["whoami", "--profile", "locl"]).await;
    let said = format!("there is no profile `locl` in {}", rig.folder.0.path().join(FILE).display());
    assert_eq!(
        (ran.code, ran.stderr),
        (Some(2), format!("hookgate: {said}; it has away, bare, local, other\n"))
    );
    let ran = rig.folder.run(&["whoami", "--profile", "other"]).await;
    let said = "hookgate: there is no token in the variable OTHER (`token` of the profile `other`): set";
    assert!(ran.code == Some(2) && ran.stderr.starts_with(said), "{ran:?}");
}

#[tokio::test]
async fn the_admin_port_has_a_token_of_its_own_or_that_of_both() {
    let rig = Rig::new().await;
    let (acme, operator) = (token("acme"), Token::for_operators().mint());
    let file = json!({ "current": "two", "profiles": {
        "two": { "data": rig.data, "admin": rig.admin, "token": { "env": "HOOKGATE_TOKEN" },
                 "admin_token": { "file": rig.folder.0.path().join("operator.txt") } },
        "one": { "admin": rig.admin, "token": { "file": "../operator.txt" } },
    } });
    write(&rig.folder, &file.to_string(), 0o600);
    // A token for data calls takes precedence over no token for the admin port.
    let ran = rig.explain(&[], &[("HOOKGATE_TOKEN", &acme)]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains(&rig.admin), "{ran:?}");
    assert_eq!(rig.tenant(&[], &[("HOOKGATE_TOKEN", &acme)]).await, "acme");
    assert_eq!(rig.explain(&["--profile", "one"], &[]).await.code, Some(0));
    for (name, code) in [("HOOKGATE_TOKEN", 1), ("HOOKGATE_ADMIN_TOKEN", 1)] {
        let ran = rig.explain(&[], &[(name, acme.as_str()), ("HOOKGATE_PROFILE", "one")]).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains("TOKEN_INVALID"), "{ran:?}");
        // If an argument selects the profile, its port and tokens take precedence over variables.
        let env = [(name, acme.as_str()), ("HOOKGATE_ADMIN_ADDR", "http://127.0.0.1:1")];
        assert_eq!(rig.explain(&["--profile", "one"], &env).await.code, Some(0), "{name}");
    }
    let both = [("HOOKGATE_PROFILE", "one"), ("HOOKGATE_TOKEN", &acme), ("HOOKGATE_ADMIN_TOKEN", &operator)];
    assert_eq!(rig.explain(&[], &both).await.code, Some(0));
    let away = json!({ "profiles": { "away": { "admin": "http://127.0.0.1:1", "token": { "file": "../operator.txt" } } } });
    write(&rig.folder, &away.to_string(), 0o600);
    let env = [("HOOKGATE_PROFILE", "away"), ("HOOKGATE_ADMIN_ADDR", rig.admin.as_str())];
    assert_eq!(rig.explain(&[], &env).await.code, Some(0));
    let ran = rig.explain(&[], &[]).await;
    assert!(ran.code == Some(2) && ran.stderr.starts_with("hookgate: no gateway is named: "), "{ran:?}");
    drop(rig.gateway);
}

#[tokio::test]
async fn a_command_prints_the_token_and_what_goes_wrong_with_it_is_one_sentence_without_it() {
    let rig = Rig::new().await;
    let command = |words: &[&str]| {
        let profile = json!({ "data": rig.data, "token": { "command": words } });
        write(&rig.folder, &json!({ "current": "p", "profiles": { "p": profile } }).to_string(), 0o644);
    };
    command(&["cat", "acme.txt"]);
    assert_eq!(rig.tenant(&[], &[]).await, "acme");
    let name = |program| format!("hookgate: the command `{program}` (`token` of the profile `p`)");
    let silent = format!("{} ended with 3: it gave no reason\n", name("sh"));
    for (words, said) in [
        (
            // No shell interprets the words, and its own token is never shown.
            &[
                "sh",
                "-c",
                "cat acme.txt; echo first >&2; echo \"no $(cat acme.txt) for $0\" >&2; exit 7",
                "$HOME",
            ][..],
            format!("{} ended with 7: no *** for $HOME\n", name("sh")),
        ),
        (&["sh", "-c", "echo hunter2; exit 3"], silent),
        (&["sh", "-c", "kill -9 $$"], format!("{} was ended by a signal: it gave no reason\n", name("sh"))),
        (
            &["./nowhere"],
            format!("{} can't be run: No such file or directory (os error 2)\n", name("./nowhere")),
        ),
    ] {
        command(words);
        let ran = rig.folder.run(&["whoami"]).await;
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (Some(2), "", said));
    }
    for words in [&["true"][..], &["echo", "hunter2 and more"]] {
        command(words);
        let ran = rig.folder.run(&["whoami"]).await;
        assert!(
            ran.code == Some(2) && ran.stderr.contains(" token") && !ran.stderr.contains("hunter2"),
            "{ran:?}"
        );
    }
    command(&["sh", "-c", "echo hunter2; exec sleep 60"]);
    let begun = std::time::Instant::now();
    let ran = rig.folder.run(&["whoami"]).await;
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    assert_eq!((ran.code, ran.stderr), (Some(2), format!("{} printed no token within 10 s\n", name("sh"))));
}

#[tokio::test]
async fn a_token_itself_is_read_from_a_file_of_its_owner_alone() {
    let rig = Rig::new().await;
    let file = json!({ "current": "p", "profiles": { "p": { "data": rig.data, "token": token("acme") } } });
    write(&rig.folder, &file.to_string(), 0o600);
    assert_eq!(rig.tenant(&[], &[]).await, "acme");
    let signature = token("acme").rsplit('.').next().unwrap().to_owned();
    for args in [&["list"][..], &["list", "--output", "json"], &["show"], &["show", "--output", "yaml"]] {
        let ran = rig.folder.run(&[&["profile"], args].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(!ran.stdout.contains(&signature), "{ran:?}");
    }
    for mode in [0o640, 0o604, 0o644] {
        write(&rig.folder, &file.to_string(), mode);
        let ran = rig.folder.run(&["whoami"]).await;
        let why = format!("holds a token, but other users may read it (mode {mode:04o}): make it 0600");
        assert!(ran.code == Some(2) && ran.stderr.contains(&why), "{ran:?}");
        assert!(!ran.stderr.contains(&signature), "{ran:?}");
    }
}

#[tokio::test]
async fn profiles_are_made_chosen_changed_and_removed() {
    let folder = Folder::new();
    let path = folder.0.path().join(FILE);
    let run = async |args: &[&str]| {
        let ran = folder.run(&[&["profile"], args].concat()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        ran.stdout
    };
    assert_eq!(run(&["list"]).await, "ASKED  NAME  ADMIN  DATA  TOKEN\n");
    let said = run(&["set", "local", "--admin", "unix:///run/hookgate/admin.sock"]).await;
    let shown = path.display();
    assert_eq!(said, format!("The profile `local` is in {shown}, as the current one.\n"));
    let url = "https://gw.example.com";
    run(&["set", "prod", "--data", url, "--ca", "ca.pem", "--token-env", "PROD"]).await;
    run(&["set", "prod", "--admin-token-command", "vault", "read", "-field", "x"]).await;
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    let there: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(there.len(), 1, "nothing is left beside it");
    let prod = folder.run(&["profile", "show", "prod", "--output", "json"]).await.json();
    let ca = folder.0.path().canonicalize().unwrap().join("ca.pem");
    let expected = json!({
        "name": "prod", "current": false, "data": url, "ca_file": ca, "token": { "env": "PROD" },
        "admin_token": { "command": ["vault", "read", "-field", "x"] },
    });
    assert_eq!(prod, expected);
    assert_eq!(run(&["use", "prod"]).await, format!("The profile `prod` is the current one in {shown}.\n"));
    let list = "ASKED  NAME   ADMIN                            DATA                    TOKEN\n       \
                local  unix:///run/hookgate/admin.sock\n*      prod                                    \
                https://gw.example.com  variable PROD\n";
    assert_eq!(run(&["list"]).await, list);
    let table = run(&["show"]).await;
    assert!(table.contains("admin_token  command vault read -field x\n"), "{table}");

    fs::write(&path, format!("# mine\n{}", fs::read_to_string(&path).unwrap())).unwrap();
    let said = run(&["remove", "prod"]).await;
    let expected = format!(
        "The profile `prod` is no longer in {shown}, and there is no current profile; its comments are gone.\n"
    );
    assert_eq!(said, expected);
    assert_eq!(fs::read_to_string(&path).unwrap().matches("prod").count(), 0);
    // Dotfiles are often links to another folder.
    let kept = folder.0.path().join("kept.yaml");
    fs::rename(&path, &kept).unwrap();
    std::os::unix::fs::symlink(&kept, &path).unwrap();
    run(&["use", "local"]).await;
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    assert!(fs::read_to_string(&kept).unwrap().contains("current: local"));
}
