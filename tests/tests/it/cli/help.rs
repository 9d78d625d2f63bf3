//! Checks every text of the command line: help against docs/cli.md, messages against the golden file,
//! completions and manual pages for every subcommand. `HOOKGATE_REGENERATE=1` rewrites them.

use std::{fmt::Write as _, fs, path::Path};

use clap::CommandFactory as _;
use hookgate::core::error::Code;
use hookgate_cli::Cli;
use hookgate_tests::{gateway::binary, repository, token::SECRET};
use serde_json::json;

use crate::cli::support::{Folder, pasted, smallest};

/// Everything above it in docs/cli.md is written by hand.
const MARKER: &str =
    "<!-- Written by `HOOKGATE_REGENERATE=1 cargo test -p hookgate-tests cli::help`; do not edit. -->\n";

/// The words of every command, including groups, in the order of the help.
fn commands() -> Vec<Vec<String>> {
    fn walk(command: &clap::Command, words: &[String], all: &mut Vec<Vec<String>>) {
        all.push(words.to_vec());
        for inner in command.get_subcommands() {
            walk(inner, &[words, &[inner.get_name().to_owned()]].concat(), all);
        }
    }
    let mut all = Vec::new();
    walk(&Cli::command(), &[], &mut all);
    all
}

/// Compares with the file in git, or writes it.
pub(crate) fn golden(path: &Path, fresh: &str) {
    if std::env::var_os("HOOKGATE_REGENERATE").is_some() {
        fs::write(path, fresh).unwrap();
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == fresh,
        "{} is stale, run with HOOKGATE_REGENERATE=1; now it is\n{fresh}",
        path.display()
    );
}

#[tokio::test]
async fn the_page_shows_the_help_of_every_command() {
    let path = repository::root().join("docs/cli.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, _) = page.split_once(MARKER).expect("the page has its marker");
    let mut fresh = format!("{head}{MARKER}");
    let folder = Folder::new();
    for words in commands() {
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        args.push("--help");
        let help = folder.run(&args).await;
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(!help.stdout.contains('\u{1b}'), "no colour into a pipe: {help:?}");
        let name = ["hookgate".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ");
        let text: Vec<_> = help.stdout.trim_end().lines().map(str::trim_end).collect();
        let _ = write!(fresh, "\n## {name}\n\n```text\n{}\n```\n", text.join("\n"));
    }
    golden(&path, &fresh);
}

#[tokio::test]
async fn every_command_that_does_something_shows_an_example() {
    for words in commands() {
        let mut command = Cli::command();
        command.build();
        let mut found = &command;
        for word in &words {
            found = found.find_subcommand(word).unwrap();
        }
        let help = found.get_after_help().map(ToString::to_string).unwrap_or_default();
        let group = found.has_subcommands() && !words.is_empty();
        assert!(group || help.contains("Example: hookgate "), "{words:?}: {help}");
    }
}

/// Usage errors, in order; `$SECRET` never appears in a message.
const MISTAKES: &[&[&str]] = &[
    &[],
    &["confg"],
    &["--config", "good.yaml"],
    &["serve", "good.yaml"],
    &["config"],
    &["config", "chek", "good.yaml"],
    &["config", "check"],
    &["config", "check", "missing.yaml"],
    &["config", "check", "."],
    &["config", "check", "empty"],
    &["config", "check", "binary"],
    &["config", "check", "/dev/zero"],
    &["config", "check", "broken.yaml"],
    &["config", "check", "broken.yaml", "--output", "json"],
    &["config", "check", "broken.yaml", "--output", "yaml"],
    &["config", "check", "good.yaml"],
    &["config", "check", "good.yaml", "--output", "yml"],
    &["config", "check", "references.yaml"],
    &["config", "check", "files.yaml"],
    &["config", "check", "priorities.yaml"],
    &["config", "check", "good.yaml", "--connect"],
    &["config", "check", "good.yaml", "--wait", "1s"],
    &["config", "check", "good.yaml", "--connect", "--wait", "long"],
    &["config", "check", "plugins.yaml", "--connect"],
    &["config", "check", "plugins.yaml", "--connect", "--output", "yaml"],
    &["config", "check", "broken.yaml", "--connect"],
    &["config", "show", "good.yaml"],
    &["config", "show", "--config", "broken.yaml"],
    &["serve"],
    &["serve", "--dev", "--config", "missing.yaml"],
    &["serve", "--dev", "--config", "reachable.yaml"],
    &["conformance"],
    &["conformance", "tenant-auth"],
    &["conformance", "http://127.0.0.1:1", "--ca", "missing.pem"],
    &["conformance", "https://127.0.0.1:1", "--ca", "missing.pem"],
    &["conformance", "http://127.0.0.1:1", "--output", "xml"],
    &["init"],
    &["init", "good.yaml"],
    &["new"],
    &["new", "plugin"],
    &["new", "plugin", "no.shell", "--lang", "rust"],
    &["new", "plugin", "no-shell", "--lang", "cobol"],
    &["new", "plugin", "no-shell", "--lang", "rust", "--dir", "other"],
    &["new", "plugin", "no-shell", "--lang", "rust", "--dir", "good.yaml"],
    &["new", "plugin", "no-shell", "--lang", "rust", "--sdk-path", "other"],
    &["errors", "PLUGIN_TIMOUT"],
    &["errors", "SOMETHING_ELSE"],
    &["errors", "model_not_found"],
    &["errors", "invalid_request_error"],
    &["errors", "plugin_timeout"],
    &["errors", "LOOP", "--output", "yaml"],
    &["explain"],
    &["explain", "--config", "good.yaml", "--tenant", "acme", "--point", "before_tol_call"],
    &["explain", "--config", "missing.yaml", "--tenant", "acme", "--point", "before_tool_call"],
    &["explain", "--config", "good.yaml", "--tenant", "acmee", "--point", "before_tool_call"],
    &["explain", "--config", "good.yaml", "--tenant", "gone", "--point", "before_tool_call"],
    &[
        "explain",
        "--config",
        "good.yaml",
        "--tenant",
        "acme",
        "--point",
        "before_tool_call",
        "--timeout",
        "5ms",
    ],
    &["explain", "--config", "good.yaml", "--tenant", "*", "--point", "before_tool_call"],
    &["explain", "--surface", "llm", "--config", "good.yaml", "--tenant", "acme"],
    &["explain", "--surface", "llm", "--config", "good.yaml", "--tenant", "acmee"],
    &["explain", "--surface", "llm", "--config", "good.yaml", "--tenant", "*"],
    &["explain", "--surface", "llm", "--config", "good.yaml", "--tenant", "acme", "--tool", "x"],
    &["explain", "--surface", "mcp", "--config", "good.yaml", "--tenant", "acme"],
    &["explain", "--surface", "llm", "--addr", "http://h", "--tenant", "acme"],
    &["explain", "--config", "good.yaml", "--tenant", "acme", "--point", "before_tool_call", "--label", "a"],
    &[
        "explain",
        "--config",
        "good.yaml",
        "--tenant",
        "acme",
        "--point",
        "before_tool_call",
        "--timeout",
        "0ms",
    ],
    &[
        "explain",
        "--config",
        "good.yaml",
        "--addr",
        "http://h",
        "--tenant",
        "acme",
        "--point",
        "before_response",
    ],
    &["explain", "--config", "good.yaml", "--ca", "ca.pem", "--tenant", "acme", "--point", "before_response"],
    &["explain", "--addr", "http://127.0.0.1:1", "--tenant", "acme", "--point", "before_response"],
    &[
        "explain",
        "--addr",
        "h:1",
        "--token-file",
        "token.txt",
        "--tenant",
        "acme",
        "--point",
        "before_response",
    ],
    &["token", "inspect", "--config", "good.yaml"],
    &["token", "inspect", "a.b.c", "--config", "good.yaml"],
    &["token", "inspect", "a.b.c", "--config", "missing.yaml"],
    &["token", "inspect", "e30.eyJpc3MiOiJ4In0.e30", "--config", "good.yaml", "--output", "json"],
    &["token", "mint", "--config", "good.yaml"],
    &["token", "mint", "--config", "missing.yaml", "--tenant", "acme"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "nobody"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "gone"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "*"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "acme", "--issuer", "other"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "acme", "--scope", "hookgate:read"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "acme", "--scope", "invoke"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "acme", "--ttl", "1 hour"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "acme", "--ttl", "0s"],
    &["token", "mint", "--config", "good.yaml", "--tenant", "acme", "--ttl", "721h"],
    &["token", "mint", "--config", "good.yaml", "--admin", "--scope", "hookgate:invoke"],
    &["token", "mint", "--config", "public.yaml", "--tenant", "acme"],
    &["token", "mint", "--config", "public.yaml", "--tenant", "acme", "--issuer", "https://id.example.com"],
    &["token", "mint", "--config", "several.yaml", "--tenant", "acme"],
    &["token", "mint", "--config", "several.yaml", "--tenant", "nobody"],
    &["env"],
    &["env", "codex", "--config", "good.yaml"],
    &["env", "openai", "--config", "good.yaml", "--tenant", "acme"],
    &["env", "openai", "--config", "models.yaml", "--tenant", "acme"],
    &["env", "claude-code", "--config", "models.yaml", "--tenant", "acme"],
    &["env", "openai", "--config", "models.yaml", "--toml"],
    &["env", "codex", "--config", "models.yaml", "--toml"],
    &["env", "codex", "--config", "models.yaml", "--toml", "--url", "http://127.0.0.1:8080"],
    &["probe", "--addr", "nonsense"],
    &["probe", "--addr", "https://127.0.0.1:1"],
    &["probe", "--addr", "http://127.0.0.1:1"],
    &["proto"],
    &["proto", "export"],
    &["proto", "export", "good.yaml/proto"],
    &["proto", "export", "other"],
    &["whoami"],
    &["whoami", "--token-file", "missing.txt"],
    &["whoami", "--token-file", "good.yaml"],
    &["whoami", "--token-file", "."],
    &["whoami", "--token-file", "empty"],
    &["whoami", "--token-file", "binary"],
    &["whoami", "--token-file", "/dev/zero"],
    &["whoami", "--token-file", "token.txt", "--ca", "missing.pem"],
    &["whoami", "--token-file", "token.txt", "--ca", "good.yaml"],
    &["whoami", "--token-file", "token.txt", "--addr", "http://me:pw@127.0.0.1:1"],
    &["whoami", "--token-file", "token.txt", "--addr", "http://127.0.0.1:1/v1/whoami"],
    &["whoami", "--token-file", "token.txt", "--timeout", "2m"],
    &["whoami", "--token-file", "token.txt", "--addr", "localhost:8080"],
    &["whoami", "--token-file", "token.txt", "--addr", "http://127.0.0.1:1"],
    &["whoami", "--profile", "missing"],
    &["tools"],
    &["tools", "--token-file", "token.txt", "--addr", "http://127.0.0.1:1"],
    &["explain", "--addr", "unix://admin.sock", "--tenant", "acme", "--point", "before_response"],
    &["explain", "--addr", "unix:///nowhere/admin.sock", "--tenant", "acme", "--point", "before_response"],
    &["profile"],
    &["profile", "list"],
    &["profile", "show"],
    &["profile", "show", "prod"],
    &["profile", "use", "prod"],
    &["profile", "remove", "prod"],
    &["profile", "set", "prod"],
    &["profile", "set", "a b", "--data", "http://127.0.0.1:8080"],
    &["profile", "set", "prod", "--data", "unix:///run/hookgate/admin.sock"],
    &["profile", "set", "prod", "--admin", "127.0.0.1:9091"],
    &["profile", "set", "prod", "--token-env", "A", "--token-file", "b"],
    &["call"],
    &["call", "before_tool_cal"],
    &["call", "before_tool_call", "--tool", "t"],
    &["call", "before_tool_call", "--tool", "t", "--token-file", "token.txt", "--addr", "http://127.0.0.1:1"],
    &["call", "before_tool_call", "--args", "{}"],
    &["call", "before_tool_call", "--tool", "t", "--args", "{\"a\":nul}"],
    &["call", "before_tool_call", "--tool", "t", "--content", "hi"],
    &["call", "before_tool_call", "--tool", "t", "--payload", "payload.json"],
    &["call", "before_tool_call", "--payload", "good.yaml", "--token-file", "token.txt"],
    &["call", "before_tool_call", "--payload", "missing.json"],
    &["call", "before_tool_call", "--payload", "."],
    &["call", "before_tool_call", "--payload", "empty"],
    &["call", "before_tool_call", "--payload", "-"],
    &["call", "before_tool_call", "--payload", "binary"],
    &["call", "before_tool_call", "--payload", "/dev/zero"],
    &["call", "before_tool_call", "--tol", "t"],
    &["call", "before_tool_call", "--tool", "t", "--label", "=a"],
    &["call", "before_response"],
    &["call-hook"],
    &["call-hook", "before_tool_call"],
    &["call-hook", "recall"],
    &["call-hook", "my_hook", "--body", "[]"],
    &["call-hook", "my_hook", "--body-file", "missing.json"],
    &["plugin", "test", "tenant-auth", "before_tool_call", "--tool", "t"],
    &["plugin", "test", "unix:///nowhere.sock", "before_tool_call"],
    &["plugin", "test", "unix:///nowhere.sock", "before_tool_call", "--tool", "t"],
    &["plugin", "test", "http://127.0.0.1:1", "before_tool_call", "--tool", "t", "--config", "missing.yaml"],
    &["plugin", "test", "http://127.0.0.1:1", "before_tool_call", "--tool", "t", "--config", "/dev/zero"],
    &["plugin", "test", "http://127.0.0.1:1", "before_tool_call", "--tool", "t", "--config", "binary"],
    &["plugin", "run", "tenant-aut", "--listen", "unix:///nowhere/a.sock"],
    &["plugin", "run", "tenant-auth", "--listen", "127.0.0.1:1"],
    &["plugin", "run", "tenant-auth", "--listen", "unix:///nowhere/a.sock"],
    &["plugin", "test", "http://127.0.0.1:1", "before_tool_call", "--tool", "t", "--ca", "missing.pem"],
    &["plugin", "test", "http://127.0.0.1:1", "before_tool_call", "--tool", "t"],
    &["tenant"],
    &["tenant", "list"],
    &["tenant", "list", "--addr", "unix:///nowhere/admin.sock"],
    &["tenant", "set", "a", "--rate", "fast"],
    &["tenant", "set", "a", "--label", "gold"],
    &["tenant", "set", "a", "--config", "secret"],
    &["tenant", "set", "a", "--config", "p={\"a\": nul}"],
    &["tenant", "set", "a", "--file", "missing.yaml"],
    &["tenant", "set", "a", "--file", "token.txt"],
    &["tenant", "set", "a", "--file", "empty"],
    &["tenant", "set", "a", "--file", "/dev/zero"],
    &["tenant", "remove", "a", "--expected-version", "last"],
    &["binding", "set", "b", "--match", "tool=x"],
    &["binding", "set", "b", "--all", "--tenant", "acme"],
    &["binding", "set", "b", "--mode", "loud"],
    &["binding", "set", "b", "--hooks", "recall", "--points", "before_response"],
    &["plugin", "add", "guard", "--config", "missing.json"],
    &["plugin", "add", "guard", "--wait", "2m"],
    &["plugin", "remove"],
    &["revision", "rollback", "last"],
    &["revision", "list", "--limit", "0"],
    &["apply"],
    &["apply", "--file", "missing.yaml"],
    &["apply", "--file", "empty"],
    &["apply", "--file", "binary"],
    &["apply", "--file", "broken.yaml"],
    &["apply", "--file", "priorities.yaml", "--addr", "unix:///nowhere/admin.sock"],
    &["diff", "--file", "good.yaml"],
    &["apply", "--file", "good.yaml", "--prune"],
    &["apply", "--file", "good.yaml", "--prune", "--selector", "team!=a"],
    &["diff", "--file", "good.yaml", "--prune", "--selector", "team=a,team=b"],
    &["completions", "csh"],
    &["man"],
    &["man", "good.yaml/man"],
];

fn files(folder: &Folder) {
    fs::create_dir(folder.0.path().join("other")).unwrap();
    folder.write("other/buf.yaml", "version: v1\n");
    let good = smallest();
    folder.write("good.yaml", &good.to_string());
    folder.write("token.txt", "a.b.c\n");
    folder.write("empty", "");
    fs::write(folder.0.path().join("binary"), [0xff, 0xfe]).unwrap();
    folder.write("broken.yaml", "auth: {}\nlog: { level: loud }\n");
    let mut public = good.clone();
    let issuer = &mut public["auth"]["issuers"][0];
    issuer["jwks_url"] = json!("https://id.example.com/jwks.json");
    issuer.as_object_mut().unwrap().remove("keys");
    folder.write("public.yaml", &public.to_string());
    let mut reachable = good.clone();
    reachable["server"]["data_addr"] = json!("0.0.0.0:8080");
    folder.write("reachable.yaml", &reachable.to_string());
    folder.write("hookgate.yaml", "");
    let mut plugins = good.clone();
    plugins["plugins"] = json!([
        { "name": "content-policy", "builtin": "content-policy", "config": { "max_input_chars": 0 } },
        { "name": "response-sanitizer", "builtin": "response-sanitizer" },
        { "name": "away", "endpoints": ["http://127.0.0.1:1", "unix:///nowhere/away.sock"] },
    ]);
    plugins["bindings"] = json!([
        { "plugin": "content-policy", "tenant": "*", "priority": 1 },
        { "plugin": "response-sanitizer", "tenant": "*", "priority": 2, "points": ["before_tool_call"] },
        { "plugin": "away", "tenant": "*", "priority": 3, "mode": "observe" },
    ]);
    folder.write("plugins.yaml", &format!("{plugins:#}"));
    for binding in plugins["bindings"].as_array_mut().unwrap() {
        binding["priority"] = json!(7);
    }
    folder.write("priorities.yaml", &format!("{plugins:#}"));
    let mut references = good.clone();
    references["auth"]["issuers"][0]["keys"][0]["secret"] = json!("${file:/nowhere/jwt.key}");
    references["log"]["level"] = json!("${file:/}");
    folder.write("references.yaml", &format!("{references:#}"));
    let mut files = good.clone();
    files["auth"]["issuers"][0]["keys"] = json!([
        { "alg": "ES256", "pem_file": "/nowhere/key.pem" },
        { "kid": "b", "alg": "ES256", "pem_file": "/dev/null" },
        { "kid": "c", "jwk_file": "/dev/null" },
    ]);
    files["server"]["tls"] = json!({ "cert_file": "/dev/null", "key_file": "/nowhere/tls.key" });
    folder.write("files.yaml", &format!("{files:#}"));
    let mut models = good.clone();
    models["llm"] = json!({
        "upstreams": [{ "name": "demo", "builtin": "demo-model" }],
        "models": [{ "match": "*", "upstream": "demo" }],
    });
    folder.write("models.yaml", &models.to_string());
    let mut several = good;
    let issuers = several["auth"]["issuers"].as_array_mut().unwrap();
    issuers[0]["tenants"] = json!(["acme"]);
    issuers.push(issuers[0].clone());
    issuers[1]["issuer"] = json!("second");
    folder.write("several.yaml", &several.to_string());
}

#[tokio::test]
async fn every_message_is_that_of_the_golden_file() {
    let folder = Folder::new();
    files(&folder);
    let mut fresh = String::new();
    for args in MISTAKES {
        let ran = folder.run(args).await;
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            !all.contains(SECRET) && !all.contains('\u{1b}') && !all.contains("panicked"),
            "{args:?}: {all}"
        );
        let code = ran.code.expect("no signal ends it");
        assert!(matches!(code, 0 | 1 | 2 | 4), "{args:?}: {code}");
        let _ = writeln!(fresh, "$ hookgate {}\n[{code}]", args.join(" "));
        for (stream, text) in [("out", &ran.stdout), ("err", &ran.stderr)] {
            let text = text.replace(&folder.0.path().display().to_string(), "FOLDER");
            for line in text.lines() {
                let _ = writeln!(fresh, "{stream}: {line}");
            }
        }
        fresh.push('\n');
    }
    let fresh: String = fresh.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
    golden(&repository::root().join("tests/tests/it/cli/golden/messages.txt"), &fresh);
}

#[tokio::test]
async fn the_table_of_errors_is_the_page_s() {
    let folder = Folder::new();
    let listed = folder.run(&["errors", "--output", "json"]).await.json();
    let page = fs::read_to_string(repository::root().join("docs/errors.md")).unwrap();
    let rows = listed.as_array().unwrap();
    assert_eq!(rows.len(), Code::ALL.len());
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let line = format!(
            "| `{}` | {} | {} | {} | {} | {} |",
            text("code"),
            row["http"],
            text("grpc"),
            text("meaning"),
            text("who_failed"),
            text("what_to_do")
        );
        assert!(page.lines().any(|written| written == line), "docs/errors.md lacks {line}");
    }
    let table = folder.run(&["errors"]).await.stdout;
    assert_eq!(table.lines().count(), rows.len() + 1);
}

/// How a completion script names a command: not by its last word alone, which is ambiguous.
fn offer(shell: &str, words: &[String]) -> Option<String> {
    let (last, above) = words.split_last()?;
    let path = [&["hookgate".to_owned()], above].concat();
    Some(match shell {
        "bash" => format!("{},{last})", path.join("__subcmd__")),
        "zsh" => format!("'{last}:"),
        "fish" => format!("-a \"{last}\""),
        _ => format!("'{};{last}'", path.join(";")),
    })
}

#[tokio::test]
async fn completions_and_manual_pages_know_every_command() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = folder.run(&["completions", shell]).await;
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""), "{shell}");
        for words in commands() {
            let Some(offer) = offer(shell, &words) else { continue };
            assert!(script.stdout.contains(&offer), "{shell} lacks {offer}");
        }
    }
    assert_eq!(folder.run(&["man", "share/man1"]).await.code, Some(0));
    for words in commands() {
        let name = ["hookgate".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join("-");
        let page = fs::read_to_string(folder.0.path().join(format!("share/man1/{name}.1")));
        assert!(page.is_ok_and(|page| page.contains(".SH SYNOPSIS")), "{name}");
    }
}

/// If standard error can't be written, the exit code must still be right, without a stack trace.
#[tokio::test]
async fn what_cannot_be_said_is_told_by_the_exit_code() {
    let program = binary().display().to_string();
    for (args, code) in [("errors NOPE", 2), ("config check nowhere.yaml", 2), ("init /proc/nowhere", 1)] {
        for to in ["2>/dev/full", "2>&-"] {
            let ran = pasted(&format!("'{program}' {args} {to}; echo $?")).await;
            assert_eq!(ran.stdout, format!("{code}\n"), "{args} {to}");
        }
    }
}

/// A setting that isn't UTF-8 is an error, not ignored.
#[tokio::test]
async fn a_variable_that_is_no_text_is_refused() {
    let folder = Folder::new();
    let file = folder.write("good.yaml", &smallest().to_string());
    let (program, file) = (binary().display().to_string(), file.display().to_string());
    for variable in ["HOOKGATE__SERVER__DATA_ADDR", "HOOKGATE__LOG__LEVEL"] {
        let line = format!("{variable}=$(printf 'a\\377') '{program}' config check '{file}'");
        let ran = pasted(&line).await;
        assert!(ran.code == Some(2) && ran.stderr.contains(variable), "{ran:?}");
    }
}

/// A reader that closes the pipe early, like `head`, causes no stack trace.
#[tokio::test]
async fn a_reader_that_goes_away_is_no_failure() {
    let program = binary().display().to_string();
    let ran = pasted(&format!("{{ '{program}' config schema; echo $? >&2; }} | head -c 1")).await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("{", "0\n"));
}
