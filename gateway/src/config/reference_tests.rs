use std::io::Write as _;

use proptest::prelude::*;

use super::*;

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn variables_defaults_and_escapes_resolve() {
    let env = env(&[("A", "1"), ("EMPTY", ""), ("_b9", "$x")]);
    for (text, resolved) in [
        ("plain", "plain"),
        ("${A}", "1"),
        ("<${A}-${A}>", "<1-1>"),
        ("${_b9}", "$x"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${UNSET:-d}", "d"),
        ("${UNSET:-}", ""),
        ("${UNSET:-a:-b}", "a:-b"),
        ("${A:-d}", "1"),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("$$${A}", "$1"),
        ("^a$", "^a$"),
        ("$A", "$A"),
        ("5 $ and $", "5 $ and $"),
        ("}${A}}", "}1}"),
    ] {
        assert_eq!(resolve(text, &env).as_deref(), Ok(resolved), "{text}");
    }
}

#[test]
fn malformed_references_are_refused_without_quoting_them() {
    for text in ["${", "${A", "${}", "${1A}", "${A B}", "${A-b}", "${:-d}", "${file:}", "${file:a/b}", "${é}"]
    {
        let refused = resolve(text, &env(&[])).unwrap_err();
        assert!(refused.contains("write `${"), "{text}: {refused}");
        assert!(is_reference(text) && check(text).is_err(), "{text}");
    }
}

#[test]
fn an_unset_variable_is_named() {
    assert_eq!(
        resolve("x${TOKEN}", &env(&[])).unwrap_err(),
        "the environment variable TOKEN is not set: set it, or write `${TOKEN:-default}`"
    );
    assert_eq!(
        resolve("${HOOKGATE_SECRET_KEY}", &env(&[])).unwrap_err(),
        "the environment variable HOOKGATE_SECRET_KEY is not set: set it where the gateway runs"
    );
}

#[test]
fn files_are_read_without_their_last_line_end_and_up_to_64_kib() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let text = format!("<${{file:{}}}>", path.display());
    let write = |bytes: &[u8]| std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();

    assert!(resolve(&text, &env(&[])).unwrap_err().contains("token can't be read: "));
    for (bytes, resolved) in [
        (&b"a b"[..], "<a b>"),
        (b"a\n", "<a>"),
        (b"a\r\n", "<a>"),
        (b"a\n\n", "<a\n>"),
        (b"${X}", "<${X}>"),
        (b"", "<>"),
    ] {
        write(bytes);
        assert_eq!(resolve(&text, &env(&[])).as_deref(), Ok(resolved));
    }
    write(&[b'x'; 64 << 10]);
    assert_eq!(resolve(&text, &env(&[])).unwrap().len(), (64 << 10) + 2);
    write(&[b'x'; (64 << 10) + 1]);
    assert!(resolve(&text, &env(&[])).unwrap_err().contains("token is larger than 64 KiB: "));
    write(b"\xff");
    assert!(resolve(&text, &env(&[])).unwrap_err().ends_with("token is not UTF-8 text"));
    let folder_text = format!("${{file:{}}}", folder.path().display());
    assert!(resolve(&folder_text, &env(&[])).unwrap_err().contains("is not a file: "));
}

#[test]
fn only_references_count_as_such() {
    for (text, reference, default) in [
        ("a", false, false),
        ("$$", false, false),
        ("$${A}", false, false),
        ("${A}", true, false),
        ("${A:-b}", true, true),
    ] {
        assert_eq!((is_reference(text), has_default(text)), (reference, default), "{text}");
    }
}

proptest! {
    #[test]
    fn escaped_text_resolves_to_itself(text in any::<String>()) {
        prop_assert_eq!(resolve(&text.replace('$', "$$"), &env(&[])), Ok(text));
    }

    #[test]
    fn a_refusal_never_holds_a_value(before in "[a-z${}:-]{0,9}", value in "[A-Z]{12}") {
        if let Err(refused) = resolve(&format!("${{A}}{before}"), &env(&[("A", &value)])) {
            prop_assert!(!refused.contains(&value));
        }
    }
}

#[test]
fn users_and_queries_of_urls_are_not_shown() {
    for (text, shown) in [
        ("https://id/keys", None),
        ("not a url? no", None),
        ("https://u:s3cr3t@id/keys", Some("https://***@id/keys")),
        ("https://id/keys?key=s3cr3t", Some("https://id/keys?***")),
        ("http://u:s3c@r3t@id:1", Some("http://***@id:1")),
        ("dns:///u:s3cr3t@id:1?s3cr3t", Some("dns:///***@id:1?***")),
        ("unix:///a@b", None),
    ] {
        assert_eq!(without_credentials(text).as_deref(), shown, "{text}");
    }
}
