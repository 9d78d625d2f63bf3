//! Tests of the file's contents and its error messages, which never show a value.

use super::*;

#[test]
fn every_member_is_read_and_written_as_it_was() {
    let text = "current: prod\nprofiles:\n  local: { admin: 'unix:///run/a.sock', data: 'http://h:1' }\n  prod:\n    \
                ca_file: ca.pem\n    token: { env: TOKEN }\n    admin_token: { command: [vault, read] }\n  more: { token: \
                { file: t.txt } }\n";
    let profiles = Profiles::parse(text).unwrap();
    let written = profiles.to_value();
    assert_eq!(written, serde_saphyr::from_str::<Value>(text).unwrap());
    let again = Profiles::parse(&serde_saphyr::to_string(&written).unwrap()).unwrap();
    assert_eq!(again.to_value(), written);
    assert!(!profiles.has_comments && Profiles::parse("current: a # b\n").unwrap().has_comments);
    for nothing in ["", "\n", "# nothing\n", "profiles:\n"] {
        assert!(Profiles::parse(nothing).unwrap().list.is_empty(), "{nothing}");
    }
}

#[test]
fn a_mistake_is_named_without_a_value() {
    for (text, said) in [
        ("[hunter2]", "it must be a mapping"),
        ("a: b: hunter2", "it is not a YAML mapping at line 1"),
        ("profile: hunter2", "it has no key `profile`: did you mean `profiles`?"),
        ("current: [hunter2]", "`current` must be text"),
        ("profiles: hunter2", "`profiles` must be a mapping of names to profiles"),
        (
            "profiles: { a b: hunter2 }",
            "`a b` is not a valid profile name: use a letter and up to 63 letters, digits, `_` and `-`",
        ),
        ("profiles: { a: hunter2 }", "`profiles.a` must be a mapping"),
        ("profiles: { a: { tokn: hunter2 } }", "`profiles.a` has no key `tokn`: did you mean `token`?"),
        ("profiles: { a: { data: [hunter2] } }", "`profiles.a.data` must be text"),
        ("profiles: { a: { token: [hunter2] } }", "`profiles.a.token` must be a mapping"),
        (
            "profiles: { a: { token: { env: hunter2, file: hunter2 } } }",
            "`profiles.a.token` must have exactly one of `env`, `file` and `command`",
        ),
        (
            "profiles: { a: { token: {} } }",
            "`profiles.a.token` must have exactly one of `env`, `file` and `command`",
        ),
        (
            "profiles: { a: { token: { command: hunter2 } } }",
            "`profiles.a.token.command` must be a list: a program and its arguments, each as text",
        ),
        (
            "profiles: { a: { token: { value: hunter2 } } }",
            "`profiles.a.token` has no key `value`: the keys are `env`, `file`, `command`",
        ),
    ] {
        assert_eq!(Profiles::parse(text).unwrap_err(), said, "{text}");
    }
}
