use std::{fs, os::unix::fs::symlink, path::PathBuf};

use serde_json::json;

use super::*;
use crate::config::fixtures::{AUTH, refused};

fn plugin(owner: Owner, spec: Value) -> Plugin {
    let mut plugin: Plugin = serde_json::from_value(spec).expect("a plugin");
    plugin.owner = owner;
    plugin
}

fn reach(secrets: impl Into<PathBuf>) -> ApiPluginPolicy {
    let egress = Egress {
        cidrs: vec!["127.0.0.0/8".parse().unwrap()],
        names: vec!["*.example.com".into()],
        socket_dirs: vec!["/run/plugins".into()],
    };
    ApiPluginPolicy {
        egress,
        secrets: Secrets { dir: secrets.into() },
        self_registration: SelfRegistration::default(),
    }
}

#[test]
fn consent_is_needed_for_plugins_that_neither_the_file_nor_the_gateway_nor_the_policy_vouches_for() {
    let registers = json!({ "name": "guard", "self_registration": true });
    let configured = json!({ "name": "guard", "endpoint": "http://127.0.0.1:1" });
    let builtin = json!({ "name": "redact", "builtin": "redact" });
    let point = json!({ "before_response": { "access": "read", "side_effects": "none" } });
    let pinned = json!({ "name": "guard", "self_registration": true, "accepted": { "points": point } });
    for (owner, spec, by_default, if_allowed) in [
        (Owner::Api, &registers, true, false),
        (Owner::Api, &configured, true, true),
        (Owner::Api, &builtin, false, false),
        (Owner::Api, &pinned, true, true),
        (Owner::File, &registers, false, false),
        (Owner::File, &pinned, true, true),
    ] {
        let plugin = plugin(owner, spec.clone());
        let mut reach = reach("/secrets");
        assert_eq!(reach.needs_consent(&plugin), by_default, "{owner:?} {spec}");
        reach.self_registration.unknown_plugins = UnknownPlugins::Allow;
        assert_eq!(reach.needs_consent(&plugin), if_allowed, "{owner:?} {spec}");
    }
}

#[test]
fn what_lies_beyond_is_named_with_its_place_and_what_would_be_right() {
    let spec = json!({
        "name": "guard",
        "endpoints": ["http://127.0.0.1:1", "http://10.0.0.1:1", "unix:///run/plugins/../a.sock"],
        "tls": { "ca_file": "/etc/ssl/ca.pem", "cert_file": "/secrets/cert.pem", "key_file": "/secrets/../key.pem" },
        "config": {
            "fine": "${HOOKGATE_SECRET_A} ${HOOKGATE_SECRET_B:-d} ${file:/secrets/a/b} $${HOME}",
            "home": "${HOME:-canary}",
            "list": [{ "bare": "${HOOKGATE_SECRET_}" }, "${file:/etc/passwd}"],
            "up": "canary ${file:/secrets/../etc/passwd}",
            "open": "${HOOKGATE_SECRET_A",
        },
    });
    let found = reach("/secrets").flaws(&plugin(Owner::Api, spec.clone()));
    let places: Vec<_> = found.iter().map(|problem| &*problem.pointer).collect();
    assert_eq!(
        places,
        [
            "/endpoints/1",
            "/endpoints/2",
            "/tls/ca_file",
            "/tls/key_file",
            "/config/home",
            "/config/list/0/bare",
            "/config/list/1",
            "/config/open",
            "/config/up",
        ]
    );
    let said: Vec<_> = found.iter().map(Problem::sentence).collect();
    assert!(said.iter().all(|said| !said.contains("canary")), "{said:?}");
    assert!(said[0].contains("`egress.cidrs`") && said[1].contains("`egress.socket_dirs`"), "{said:?}");
    assert!(said[2].ends_with("name one below /secrets (`secrets.dir`)"), "{said:?}");
    let allowed = "name a variable HOOKGATE_SECRET_*, or a file below /secrets (`secrets.dir`)";
    assert_eq!(said[4], format!("the API may not name the environment variable HOME: {allowed}"));
    assert!(reach("/secrets").flaws(&plugin(Owner::File, spec)).is_empty(), "the file's may name anything");
}

#[test]
fn links_that_lead_out_are_told_of_where_they_are_there() {
    let root = tempfile::tempdir().unwrap();
    let (secrets, elsewhere) = (root.path().join("secrets"), root.path().join("elsewhere"));
    fs::create_dir(&secrets).unwrap();
    fs::write(&elsewhere, "canary").unwrap();
    symlink(&elsewhere, secrets.join("out")).unwrap();
    fs::write(secrets.join("real"), "").unwrap();
    symlink("real", secrets.join("in")).unwrap();
    let at = |name: &str| secrets.join(name).display().to_string();
    let mut reach = reach(&secrets);
    reach.egress.socket_dirs.push(secrets.clone());
    let spec = |name: &str| {
        json!({
            "name": "guard",
            "endpoint": format!("unix://{}", at(name)),
            "tls": { "ca_file": at(name) },
            "config": { "key": format!("${{file:{}}}", at(name)) },
        })
    };
    let strays = |owner, name| {
        let found = reach.strays(&plugin(owner, spec(name)));
        found.into_iter().map(|problem| problem.pointer).collect::<Vec<_>>()
    };
    assert_eq!(strays(Owner::Api, "out"), ["/endpoint", "/tls/ca_file", "/config/key"]);
    assert!(strays(Owner::Api, "in").is_empty() && strays(Owner::Api, "nothing").is_empty());
    assert!(strays(Owner::File, "out").is_empty());
    assert!(reach.flaws(&plugin(Owner::Api, spec("out"))).is_empty(), "as they are written they are fine");

    // Nor is it followed when references are resolved.
    let resolve = |name, within| {
        let plugin = plugin(Owner::Api, spec(name));
        crate::config::resolve_references(&plugin.config, [], within)
    };
    let within = ReferenceScope::Dir(&secrets);
    let said = resolve("out", within).unwrap_err();
    assert!(
        said.starts_with("/key: ") && said.contains("leads out of") && !said.contains("canary"),
        "{said}"
    );
    assert!(resolve("in", within).is_ok());
    assert_eq!(resolve("out", ReferenceScope::Anywhere).unwrap().expose()["key"], json!("canary"));
}

#[test]
fn references_beyond_are_never_resolved() {
    let env = || [("HOME".to_owned(), "canary".to_owned()), ("HOOKGATE_SECRET_A".to_owned(), "a".to_owned())];
    let config = |text: &str| match json!({ "key": text }) {
        Value::Object(config) => config,
        _ => unreachable!("it is an object"),
    };
    let within = ReferenceScope::Dir(Path::new("/secrets"));
    for text in
        ["${HOME}", "${HOME:-x}", "${UNSET:-x}", "${file:/etc/hostname}", "${file:/secrets/../etc/hostname}"]
    {
        let said = crate::config::resolve_references(&config(text), env(), within).unwrap_err();
        assert!(said.contains("the API may not name") && !said.contains("canary"), "{said}");
    }
    for (text, value) in [("${HOOKGATE_SECRET_A}", "a"), ("${HOOKGATE_SECRET_B:-default}", "default")] {
        let resolved = crate::config::resolve_references(&config(text), env(), within).unwrap();
        assert_eq!(resolved.expose()["key"], json!(value));
    }
}

#[test]
fn networks_names_and_directories_are_checked() {
    let said = |text: &str, message: &str, remedy: &str| {
        refused(&format!("{AUTH}{text}\n"), 2, message, remedy);
    };
    said(
        "egress: { cidrs: [10.0.0.1/8] }",
        "an entry of `cidrs` must be a network without bits after its prefix, such as `10.1.0.0/16` or `fd00::/8`, \
         or one address, not `10.0.0.1/8`",
        "",
    );
    let name = "write a host's name such as `guard.example.com`, or `*.example.com` for all below it";
    for wrong in ["*", "*.", "a..b", "a.*.b", "https://a", "a:1", "*a.b"] {
        said(&format!("egress: {{ names: [\"{wrong}\"] }}"), &format!("`{wrong}` is not a host name"), name);
    }
    said("egress: { names: [\"::1\"] }", "`::1` is an address: list it in `cidrs`", name);
    let path = "write it from the root and without `..`, such as `/run/plugins`";
    for (text, dir) in
        [("egress: { socket_dirs: [run] }", "run"), ("secrets: { dir: /run/../x }", "/run/../x")]
    {
        said(text, &format!("`{dir}` is not a directory's path from the root"), path);
    }
}
