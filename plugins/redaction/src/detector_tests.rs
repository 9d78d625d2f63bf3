//! Tests every detector in both directions, and what holds for all of them.

use proptest::prelude::*;

use super::*;
use crate::Redactor;

/// Random letters and digits that are nobody's key.
fn random(length: usize) -> String {
    "q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1E".chars().cycle().take(length).collect()
}

fn hex(length: usize) -> String {
    "4f9a2c7e1b8d3056".chars().cycle().take(length).collect()
}

/// Something that the detector finds as a whole. Put together here, so that no scanner of sources finds it.
fn example(detector: Detector) -> String {
    match detector {
        Detector::Email => "ada.l+x@mail.example.com".to_owned(),
        Detector::Card => "4111 1111 1111 1111".to_owned(),
        Detector::Iban => "DE89 3704 0044 0532 0130 00".to_owned(),
        Detector::PrivateKey => {
            let line = random(64);
            format!(
                "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{line}\n{line}\n-----END RSA PRIVATE KEY-----"
            )
        }
        Detector::Jwt => format!("eyJ{}.eyJ{}.{}", random(20), random(30), random(43)),
        Detector::AnthropicKey => format!("sk-ant-api03-{}", random(95)),
        Detector::AwsAccessKey => format!("AKIA{}", "Q7ZT3VBNKP2LMRW4"),
        Detector::AzureStorageKey => random(86) + "==",
        Detector::AzureSas => random(42) + "%2F%3D",
        Detector::DigitaloceanToken => format!("dop_v1_{}", hex(64)),
        Detector::DockerToken => format!("dckr_pat_{}", random(27)),
        Detector::GithubToken => format!("ghp_{}", random(36)),
        Detector::GitlabToken => format!("glpat-{}", random(20)),
        Detector::GoogleKey => format!("AIza{}", random(35)),
        Detector::HuggingfaceToken => format!("hf_{}", random(34)),
        Detector::NpmToken => format!("npm_{}", random(36)),
        Detector::OpenaiKey => format!("sk-proj-{}", random(60)),
        Detector::PypiToken => format!("pypi-AgEI{}", random(80)),
        Detector::SendgridKey => format!("SG.{}.{}", random(22), random(43)),
        Detector::SlackToken => format!("xoxb-123456789012-{}", random(24)),
        Detector::StripeKey => format!("sk_live_{}", random(24)),
        Detector::TelegramToken => format!("1234567890:AA{}", random(33)),
        Detector::TwilioKey => format!("SK{}", hex(32)),
        Detector::VaultToken => format!("hvs.{}", random(24)),
        Detector::UrlPassword => "correct-horse7".to_owned(),
        Detector::LabelledKey => "abcdef123456".to_owned(),
        Detector::HighEntropy => random(32),
        Detector::ApiKey => "da39a3ee5e6b4b0d3255bfef95601890afd80709".to_owned(),
    }
}

/// The example where a text has it.
fn in_text(detector: Detector, example: &str) -> String {
    match detector {
        Detector::UrlPassword => format!("postgres://ada:{example}@db.example.com/orders"),
        Detector::LabelledKey => format!("api_key={example}"),
        Detector::AzureStorageKey => format!("AccountKey={example}"),
        Detector::AzureSas => format!("sig={example}"),
        _ => example.to_owned(),
    }
}

fn found(detector: Detector, text: &str) -> Vec<String> {
    detector.find(text, None).into_iter().map(|range| text[range].to_owned()).collect()
}

#[test]
fn each_detector_finds_its_example_in_any_surroundings() {
    for detector in Detector::ALL {
        let example = example(detector);
        let text = in_text(detector, &example);
        for (before, after) in [("", ""), ("use ", " now."), ("é\"", "\"é"), ("(", "),\n"), ("=", ";")] {
            let text = format!("{before}{text}{after}");
            assert!(found(detector, &text).contains(&example), "{} in {text:?}", detector.name());
        }
    }
}

#[test]
fn each_detector_finds_its_example_after_an_escape_and_between_underscores() {
    for detector in Detector::ALL {
        let example = example(detector);
        let text = in_text(detector, &example);
        let starts = [
            r"id\n",
            r"id\\n",
            r"a\tb\r\n",
            r"\u001b[32m",
            "\u{1b}[1;31m",
            "\u{1b}[38;2;255;100;0m",
            "\u{1b}[01;31m\u{1b}[K",
            r"x\x20",
            r"a\u000a",
            "x%3D",
            "x%20",
            "_",
        ];
        for start in starts {
            for end in [r"\n", "\"", "'", "%0A", " "] {
                let text = format!("{start}{text}{end}");
                // An address may begin within an escape. A run may begin with `_`.
                let is_open = detector == Detector::Email || start == "_";
                let is_found =
                    |found: &String| found.starts_with(&example) || is_open && found.contains(&example);
                assert!(found(detector, &text).iter().any(is_found), "{} in {text:?}", detector.name());
            }
        }
    }
    let key = example(Detector::AwsAccessKey);
    for text in [format!("_{key}_"), format!("__{key}__"), format!("a_{key}_{key}")] {
        let count = text.matches(key.as_str()).count();
        assert_eq!(found(Detector::AwsAccessKey, &text), vec![key.as_str(); count], "{text}");
    }
}

#[test]
fn a_key_within_a_word_is_none() {
    for detector in [Detector::AwsAccessKey, Detector::GithubToken, Detector::OpenaiKey, Detector::TwilioKey]
    {
        let key = example(detector);
        for start in ["x", "9", "n", r"\q", r"\u00", "%3", "%GG"] {
            assert_eq!(found(detector, &format!("{start}{key}")), [""; 0], "{start}{key}");
        }
    }
}

#[test]
fn other_forms_of_the_same_keys_are_found() {
    for (detector, key) in [
        (Detector::AwsAccessKey, format!("ASIA{}", "Q7ZT3VBNKP2LMRW4")),
        (Detector::GithubToken, format!("github_pat_{}_{}", random(22), random(59))),
        (Detector::GitlabToken, format!("glrt-{}.01.{}", random(24), random(9))),
        (Detector::GoogleKey, format!("ya29.{}", random(60))),
        (Detector::OpenaiKey, format!("sk-{}", random(48))),
        (Detector::SlackToken, format!("xoxe.xoxp-1-{}", random(40))),
        (Detector::SlackToken, format!("https://hooks.slack.com/services/T{}/B{}/x", hex(8), random(24))),
        (Detector::StripeKey, format!("rk_test_{}", random(24))),
        (Detector::StripeKey, format!("whsec_{}", random(32))),
    ] {
        assert_eq!(found(detector, &format!("key: {key}, é")), [key]);
    }
}

#[test]
fn a_private_key_is_found_without_its_end_and_within_json() {
    let line = random(64);
    let cut = format!("-----BEGIN PRIVATE KEY-----\n{line}\n{line}");
    assert_eq!(found(Detector::PrivateKey, &format!("see\n{cut}\n\nand so on")), [cut.as_str()]);
    assert_eq!(found(Detector::PrivateKey, &format!("{cut}\n{cut}")), [cut.as_str(), cut.as_str()]);
    let mention = "-----BEGIN PRIVATE KEY----- is the first line";
    assert_eq!(found(Detector::PrivateKey, &format!("{mention}\n{cut}")), [cut.as_str()]);
    let in_json = format!(r"-----BEGIN EC PRIVATE KEY-----\n{line}\n-----END EC PRIVATE KEY-----");
    assert_eq!(found(Detector::PrivateKey, &format!(r#"{{"key":"{in_json}\n","n":1}}"#)), [in_json]);
    let pgp = format!("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{line}\n-----END PGP PRIVATE KEY BLOCK-----");
    assert_eq!(found(Detector::PrivateKey, &format!("{pgp}\n{pgp}")), [pgp.as_str(), pgp.as_str()]);
    for text in ["files with -----BEGIN PRIVATE KEY----- in them", "-----BEGIN PUBLIC KEY-----\nabc"] {
        assert_eq!(found(Detector::PrivateKey, text), [""; 0], "{text}");
    }
}

#[test]
fn the_short_last_line_of_a_private_key_without_its_end_is_a_part_of_it() {
    let begin = "-----BEGIN PRIVATE KEY-----";
    let line = random(64);
    for last in ["shortend==", "a", "AbC+/12=", "abcdefghijklmno"] {
        for (line_break, after) in [
            ("\n", ""),
            ("\r\n", "\r\n\r\nand so on"),
            ("\r", "\r"),
            ("\n    ", "\n"),
            (r"\n", "\"}"),
            (r"\r\n", r"\r\n"),
            (r"\\n", r"\\n"),
        ] {
            let key = [begin, &line, &line, last].join(line_break);
            assert_eq!(found(Detector::PrivateKey, &format!("{key}{after}")), [key.as_str()]);
        }
    }
    let key = format!("{begin}\n{line}");
    for after in ["\n\nDone", "\nThe key ends here.", "\nfile.pem\n", "\n...", "\nnot-base64\n", " a\n"] {
        assert_eq!(found(Detector::PrivateKey, &format!("{key}{after}")), [key.as_str()], "{after}");
    }
}

#[test]
fn names_that_begin_like_a_key_are_no_keys() {
    for text in [
        "sk-learn and sk-ant-hill",
        "ghp_short glpat-short npm_config_registry hf_hub",
        "AKIA is a prefix, pypi-server too",
        "eyJhbGciOiJIUzI1NiJ9 alone",
        "SG.1.2 dop_v1_ hvs.x",
        "pk_live_0123456789abcdefABCDEF01",
        "https://user:${PASSWORD}@example.com https://user@example.com:8080/a:b@c http://a:80/@x",
    ] {
        let others = [Detector::Email, Detector::ApiKey];
        for detector in Detector::ALL.into_iter().filter(|detector| !others.contains(detector)) {
            assert_eq!(found(detector, text), [""; 0], "{}: {text}", detector.name());
        }
    }
}

#[test]
fn a_member_s_name_labels_its_value() {
    for (member, value, is_key) in [
        ("api_key", "abcdefghijkl", true),
        ("X-Api-Key", "abcdefghijkl", true),
        ("awsSecretAccessKey", "abc/def+ghi=", true),
        ("password", "correct-horse", true),
        ("Authorization", "Bearer abcdefghijkl", true),
        ("password", "hunter2", false),
        ("password", "the word for it", false),
        ("password", "${DB_PASSWORD_OF_PROD}", false),
        ("secret", "************", false),
        ("nextPageToken", "CAUQAA123456", false),
        ("passwords_changed_at", "2026-11-24T12:00", false),
        ("key", "abcdefghijkl", false),
    ] {
        let found = !Detector::LabelledKey.find(value, Some(member)).is_empty();
        assert_eq!(found, is_key, "{member}: {value}");
    }
    let value = "Bearer abcdefghijkl";
    let ranges = Detector::LabelledKey.find(value, Some("authorization"));
    assert!(ranges.contains(&(7..19)), "{ranges:?}");
}

#[test]
fn no_detector_finds_a_mask_and_no_mask_is_longer_than_its_match() {
    for detector in Detector::ALL {
        let example = example(detector);
        let mask = detector.mask(&example);
        assert!(mask.len() <= example.len());
        for other in Detector::ALL {
            for text in [mask.to_owned(), in_text(detector, mask), format!("password: '{mask}'")] {
                assert_eq!(found(other, &text), [""; 0], "{} in {text:?}", other.name());
            }
        }
    }
}

#[test]
fn a_name_in_the_settings_is_the_name_in_notices() {
    for detector in Detector::ALL {
        let named: Detector = serde_json::from_value(detector.name().into()).unwrap();
        assert_eq!(named, detector);
    }
    assert!(Detector::ALL.is_sorted(), "`ALL` is in the order of the variants");
}

#[test]
fn detectors_are_selected_by_the_settings() {
    let names = |detectors: Vec<Detector>| detectors.into_iter().map(Detector::name).collect::<Vec<_>>();
    let select = |detectors: Option<&[Detector]>, except: &[Detector]| {
        Detector::select(detectors, except, &[Detector::ApiKey]).map(names)
    };
    let some = [Detector::Jwt, Detector::Email, Detector::Jwt];
    assert_eq!(select(Some(&some), &[]).unwrap(), ["email", "jwt"]);
    assert_eq!(select(Some(&some), &[Detector::Jwt]).unwrap(), ["email"]);
    assert_eq!(select(None, &[Detector::Email]).unwrap().len(), Detector::ALL.len() - 2);
    assert!(select(None, &[Detector::Email, Detector::ApiKey]).is_err(), "it is left out anyway");
}

/// Pieces that detectors find, cut at any character, between others.
fn texts() -> impl Strategy<Value = String> {
    let piece = (0..Detector::ALL.len(), 0_usize..200).prop_map(|(index, cut)| {
        let text = in_text(Detector::ALL[index], &example(Detector::ALL[index]));
        text[..text.floor_char_boundary(cut)].to_owned()
    });
    let other = "[ .,:=/@\"'é\n-]{0,3}|[A-Za-z0-9]{1,8}|a@b\\.cc|x://a:(b3c|b|bc|/|@|\\$)@";
    prop::collection::vec(prop_oneof![piece, other.prop_map(String::from)], 0..8)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn masking_never_makes_a_text_longer(text in texts()) {
        let redactor: Redactor = Detector::ALL.into_iter().collect();
        let redacted = redactor.redact(&text, Some("password"));
        prop_assert!(redacted.text.len() <= text.len(), "{:?} -> {:?}", text, redacted.text);
    }

    #[test]
    fn nothing_that_a_detector_finds_stays(text in texts(), index in 0..Detector::ALL.len()) {
        let redactor: Redactor = Detector::ALL.into_iter().collect();
        let redacted = redactor.redact(&text, None).text;
        let detector = Detector::ALL[index];
        for part in found(detector, &text).iter().filter(|part| part.len() > "[REDACTED]".len()) {
            // The same characters may stand elsewhere, where they are no match.
            let (before, after) = (text.matches(part.as_str()).count(), redacted.matches(part.as_str()).count());
            prop_assert!(after < before, "{:?} stays in {:?}", part, redacted);
        }
    }
}
