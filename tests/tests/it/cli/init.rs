//! Tests `hookgate init`: its file starts unchanged, the commands that it prints work, and it overwrites
//! nothing.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
};

use hookgate_proto::types::v1::ExtensionPoint;
use hookgate_tests::{agent::HttpAgent, fake::FakePlugin, gateway::binary, repository};
use serde_json::{Value, json};

use crate::cli::support::{CommandOutput, Folder, Serving, pasted};

const FILES: [&str; 4] = [".gitignore", "dev.key", "hookgate.schema.json", "hookgate.yaml"];

/// The printed commands.
fn commands(ran: &CommandOutput) -> Vec<&str> {
    ran.stdout.lines().filter_map(|line| line.strip_prefix("  ")).collect()
}

/// Everything in a folder: relative paths, and the bytes of files.
fn everything(folder: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            let below = everything(&path);
            all.extend(below.into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
            all.insert(name, None);
        } else {
            all.insert(name, fs::read(&path).ok());
        }
    }
    all
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_printed_commands_lead_from_an_empty_folder_to_a_blocked_call() {
    let folder = Folder::new();
    let ran = folder.run(&["init", "it's a gateway"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let made = folder.0.path().join("it's a gateway");
    assert_eq!(everything(&made).keys().collect::<Vec<_>>(), FILES);
    assert_eq!(mode(&made.join("dev.key")), 0o600);

    let commands = commands(&ran);
    let [serve, mint, call] = commands.as_slice() else { panic!("three commands: {ran:?}") };
    let mut gateway = Serving::pasted(Path::new("/"), serve, &[]).await;
    let listening = gateway.logged("listening").await;
    gateway.logged("started").await;
    let address = listening["data_addr"].as_str().unwrap().parse().unwrap();
    let text = call.split('"').nth(1).unwrap();
    let asked = |token: String| async move {
        let agent = HttpAgent::new(address).with_token(&token);
        agent.call(ExtensionPoint::BeforeLlmRequest, json!({ "text": text })).await
    };

    let minted = pasted(&format!("{mint} && printf %s \"$HOOKGATE_TOKEN\"")).await;
    assert_eq!((minted.code, minted.stderr.as_str()), (Some(0), ""));
    let blocked = asked(minted.stdout).await;
    assert_eq!((blocked.status, &blocked.body["code"]), (413, &json!("INPUT_TOO_LONG")), "{blocked:?}");

    // The other tenant's call continues, with a notice that it would have been blocked.
    let minted =
        pasted(&format!("{} && printf %s \"$HOOKGATE_TOKEN\"", mint.replace("acme", "globex"))).await;
    let advised = asked(minted.stdout).await;
    assert_eq!((advised.status, &advised.body["steps"][0]["outcome"]), (200, &json!("would_block")));
    assert_eq!(gateway.stop().await.code, Some(0));
    assert!(call.ends_with(&format!("call before_llm_request --text \"{text}\"")), "{call}");
}

#[tokio::test]
async fn what_is_written_passes_the_check_also_with_the_plugin_that_it_suggests() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["init"]).await.code, Some(0));
    let check = folder.run(&["config", "check", "hookgate.yaml"]).await;
    let fine = "hookgate.yaml: no mistakes: 2 tenants, 2 plugins, 3 bindings\nthe registry at sqlite:";
    assert!(check.code == Some(0) && check.stdout.starts_with(fine), "{check:?}");
    let schema = folder.run(&["config", "schema"]).await.stdout;
    assert_eq!(fs::read_to_string(folder.0.path().join("hookgate.schema.json")).unwrap(), schema);

    let text = fs::read_to_string(folder.0.path().join("hookgate.yaml")).unwrap();
    let more: Vec<_> = text.lines().map(|line| line.replacen("  # - ", "  - ", 1)).collect();
    let more: Vec<_> = more.iter().map(|line| line.replacen("  #   ", "    ", 1)).collect();
    folder.write("more.yaml", &more.join("\n"));
    let env = [("MY_PLUGIN_KEY", "secret")];
    let check = folder.run_with(&["config", "check", "more.yaml"], &env, "").await;
    let fine = "more.yaml: no mistakes: 2 tenants, 3 plugins, 4 bindings\n";
    assert!(check.code == Some(0) && check.stdout.starts_with(fine), "{check:?}");
}

/// By default, the API's plugins may be nowhere.
#[tokio::test]
async fn a_plugin_whose_socket_is_in_the_folder_is_added_without_a_change_of_the_file() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["init"]).await.code, Some(0));
    let place = folder.0.path();
    let mut gateway =
        Serving::pasted(place, &format!("'{}' serve --config hookgate.yaml", binary().display()), &[]).await;
    gateway.logged("started").await;
    let guard = FakePlugin::named("guard").start_unix().await;
    symlink(guard.endpoint().trim_start_matches("unix://"), place.join("link.sock")).unwrap();
    let mut plugin = Serving::pasted(
        place,
        &format!(
            "'{}' plugin run tenant-auth --listen unix://{}/ta.sock",
            binary().display(),
            place.display()
        ),
        &[],
    )
    .await;
    plugin.logged("plugin listens").await;
    let env = [("HOOKGATE_ADMIN_ADDR", format!("unix://{}/admin.sock", place.display()))];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let endpoint = |name: &str| format!("unix://{}/{name}", place.display());
    let added = folder
        .run_with(&["plugin", "add", "tenant-auth", "--endpoint", &endpoint("ta.sock"), "--yes"], &env, "")
        .await;
    assert!(added.code == Some(0) && added.stdout.contains("Approved tenant-auth"), "{added:?}");
    // A link that leads out of the folder is not followed.
    let strayed = folder
        .run_with(&["plugin", "add", "guard", "--endpoint", &endpoint("link.sock"), "--yes"], &env, "")
        .await;
    assert!(strayed.code == Some(2) && strayed.stderr.contains("`egress.socket_dirs`"), "{strayed:?}");
    assert_eq!(gateway.stop().await.code, Some(0));
    plugin.stop().await;
}

/// Paths as shells and people write them; the check accepts only paths without `..`.
#[tokio::test]
async fn a_folder_is_written_as_the_system_calls_it_whichever_way_it_is_given() {
    let folder = Folder::new();
    let place = folder.0.path().canonicalize().unwrap();
    for made in ["work/deep", "elsewhere/below"] {
        fs::create_dir_all(place.join(made)).unwrap();
    }
    symlink(place.join("elsewhere/below"), place.join("work/link")).unwrap();
    for (given, made) in [
        ("../beside", "beside"),
        ("./new/../turned", "work/turned"),
        ("new/./deeper/../../also new/.", "work/also new"),
        ("..", "."),
        ("deep/..", "work"),
        ("link/../behind", "elsewhere/behind"),
        ("link/new", "elsewhere/below/new"),
        ("../../../../../../../../../../../../../../{}/from the root", "from the root"),
    ] {
        let given = given.replace("{}", &place.display().to_string());
        let ran = folder.run_below("work", &["init", &given]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{given}: {ran:?}");
        let file = place.join(made).canonicalize().unwrap().join("hookgate.yaml");
        let text = fs::read_to_string(&file).unwrap();
        let named = format!("socket_dirs: [\"{}\"]", file.parent().unwrap().display());
        assert!(text.contains(&named), "{given}: {text}");
        assert!(commands(&ran).concat().contains(file.to_str().unwrap()), "{given}: {ran:?}");
        let check = folder.run(&["config", "check", file.to_str().unwrap()]).await;
        assert_eq!(check.code, Some(0), "{given}: {check:?}");
    }
    assert!(!place.join("work/new").exists(), "what is only passed through is not made");
}

#[tokio::test]
async fn every_folder_has_a_key_of_its_own_which_git_does_not_take() {
    let folder = Folder::new();
    let mut keys = Vec::new();
    for name in ["a", "b/c"] {
        assert_eq!(folder.run(&["init", name]).await.code, Some(0));
        let made = folder.0.path().join(name);
        let key = fs::read_to_string(made.join("dev.key")).unwrap();
        assert!(key.len() == 64 && key.chars().all(|c| c.is_ascii_hexdigit()), "{} characters", key.len());
        let said = fs::read_to_string(made.join(".gitignore")).unwrap();
        assert!(said.lines().any(|line| line == "/dev.key"), "{said}");
        let others = everything(&made).into_iter().filter(|(name, _)| name != "dev.key");
        for (name, bytes) in others {
            assert!(!String::from_utf8_lossy(&bytes.unwrap()).contains(&key), "{name} holds the key");
        }
        keys.push(key);
    }
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn a_name_that_is_taken_is_named_and_then_nothing_is_written() {
    for name in FILES {
        for kind in ["file", "folder", "link that leads nowhere"] {
            let folder = Folder::new();
            let path = folder.0.path().join(name);
            match kind {
                "file" => fs::write(&path, "mine").unwrap(),
                "folder" => fs::create_dir(&path).unwrap(),
                _ => symlink("/nowhere/at/all", &path).unwrap(),
            }
            let before = everything(folder.0.path());
            let ran = folder.run(&["init"]).await;
            let said = format!("hookgate: nothing was written, because ./{name} already exists: ");
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{name}, a {kind}");
            assert!(ran.stderr.starts_with(&said) && ran.stderr.lines().count() == 1, "{ran:?}");
            assert_eq!(everything(folder.0.path()), before, "{name}, a {kind}");
        }
    }
}

/// Simulates a full disk for one file.
#[tokio::test]
async fn a_file_that_cannot_be_written_to_its_end_leaves_nothing_behind() {
    let folder = Folder::new();
    folder.write("mine", "mine");
    let before = everything(folder.0.path());
    for name in [".", "new/and newer"] {
        let program = binary().display().to_string();
        let place = folder.0.path().join(name).display().to_string();
        let ran = pasted(&format!("trap '' XFSZ; ulimit -f 8; exec '{program}' init '{place}'")).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains(" can't be written: File too large"), "{ran:?}");
        assert_eq!(everything(folder.0.path()), before, "{ran:?}");
    }
}

#[tokio::test]
async fn a_folder_that_will_not_do_is_refused_in_a_sentence() {
    let folder = Folder::new();
    folder.write("file", "");
    for (name, said) in [
        ("file/below", "file/below can't be written: Not a directory"),
        ("file", "file can't be written: "),
        ("/proc/hookgate", "/proc/hookgate can't be written: "),
        ("${HOME}", "/${HOME} can't be written in a configuration: give a folder"),
        ("a\nb", "/a b can't be written in a configuration: give a folder"),
    ] {
        let ran = folder.run(&["init", name]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{name}: {ran:?}");
        assert!(ran.stderr.contains(said) && ran.stderr.lines().count() == 1, "{name}: {ran:?}");
    }
    assert_eq!(everything(folder.0.path()).len(), 1);
}

/// The template in git is the file that is written, so the checks above cover it.
#[tokio::test]
async fn the_template_names_the_folder_and_nothing_else_of_the_machine() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["init", "x"]).await.code, Some(0));
    let made = folder.0.path().canonicalize().unwrap().join("x");
    let text = fs::read_to_string(made.join("hookgate.yaml")).unwrap();
    let template = fs::read_to_string(repository::root().join("cli/src/init/hookgate.yaml")).unwrap();
    assert_eq!(text, template.replace("@DIR@", made.to_str().unwrap()));
    let read: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(read["tenants"]["list"], json!([{ "id": "acme" }, { "id": "globex" }]));
}
