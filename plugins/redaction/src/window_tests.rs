//! Tests that rules find the same in an answer wherever it is cut.

use std::{ops::Range, sync::LazyLock};

use hookgate_sdk::{ResponseWindow, window::AnswerText};
use proptest::prelude::*;

use crate::{Detector, FoundInWindow, Redactor, Rule, compile_pattern};

/// What detectors look for and what they look at.
const EXAMPLES: &[&str] = &[
    "ada.l+x@mail.example.com",
    "a@b.cc",
    "4111 1111 1111 1111",
    "3782-822463-10005",
    "4111111111111111",
    "1.4111111111111111",
    "DE89 3704 0044 0532 0130 00",
    "de89370400440532013000",
    "DE89 3704 AB12",
    "-----BEGIN PRIVATE KEY-----",
    "-----END PRIVATE KEY-----",
    "-----BEGIN CERTIFICATE-----",
    "---- BEGIN SSH2 PUBLIC KEY ----\nComment: a\n",
    "\nq8Zt3VbN7/Kp2LmRw9Yc+4sHf6GjTa1E/X5o0uPiq8Zt3VbN7/Kp2LmRw9YcAb12\n",
    "\nq8Zt3VbN7xKp2LmRw9YcD4sH\n",
    "\nq8Zt3VbN7xKp2LmRw9YcD4sH\nAb12==",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-DEF_123",
    "sk-ant-q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1E",
    "AccountKey=",
    "AKIAQ7ZT3VBNKP2LMRW4",
    "ghp_q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1Eq8Zt",
    "https://hooks.slack.com/services/T4f9a2c7e/B1b8d3056/q8Zt3VbN7xKp2L",
    "postgres://ada:correct-horse7@db.example.com/orders",
    "http://a:b/@x",
    r"x:\/\/u:p@ss\/w0rd@h\/",
    "@db.example.com:5432/",
    "a:1,b:2/?x=",
    ";base64,",
    "redis://:p@ss/w0rd@h",
    "jdbc:oracle:thin:ada/correct7@h:1521:X",
    "https://ada@example.com:correct7@h/x",
    "ftp://<user>:correct7@h",
    "password for ada: ",
    "secret -> ",
    "API_KEY\") or \"",
    "SET PASSWORD FOR 'a'@'%' = '",
    "http://a:${PW}@h:80/@",
    "http://a:8080/b@c",
    "api_key=",
    "token: ",
    "\"secret\": \"",
    "Authorization: Bearer ",
    "abcdef123456",
    "getAccessToken()",
    "h1:",
    "sha512-",
    "q8Zt3VbN7/Kp2LmRw9Yc+4sHf6GjTa1E/X5o0uPi",
    "550e8400-e29b-41d4-a716-446655440000",
    "git clone git@github.com:acme/site.git",
    "ssh -p 22 ",
    "ada@build.example.net:~",
    "jörg@exämple.de",
    "icon@2x.png",
    "()",
    "x@self.weight.t()",
    "this@Main.start(",
    "x@model.coef_ +",
    "a@b.example.net repo]$ ls",
    "\na@b.example.net % ls",
    "\na@b.example.net repo % ls",
    "(a@b.example.net)1> ",
    "a@b.example.net::module",
    "a@b.example.net's password:",
    "a@b.example.net: Permission denied",
    "celery@b.example.net ready.",
    "x@meta.data$y <- [",
    "nodes: [a@b.example.net,",
    "--target-host ",
    "Message-ID: <",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN2Cr3JX ",
    "%s@",
    "systemctl restart ",
    "1234567890:AAq8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1Eq",
    "?sig=q8Zt3VbN7xKp2LmRw9YcD4sHf6GjTa1Eq8Zt3VbN7xK%3D",
    "41111111-1111-4111-8111-111111111111",
    "4111.1111.1111.1111",
    "4111\u{a0}1111\u{2011}1111 1111",
    "Secret Access Key = ",
    "**API Key**: ",
    "| API key | ",
    "--password ",
    "<password>",
    "</td><td>",
    "ENV API_KEY ",
    "login ada password ",
    "curl -u ada:",
    "mysql -p",
    "IDENTIFIED BY '",
    "is ",
    "team/prod/anthropic",
    "EMP-123456",
    "--------------------------------",
    r"id\n",
    r"\\r\\n",
    r"\u001b[1;31m",
    "x%3D",
    "%41",
    "_",
];

/// The examples whole, in parts, and next to one another.
pub(crate) fn texts() -> impl Strategy<Value = String> {
    let example = prop::sample::select(EXAMPLES);
    let part = (example.clone(), any::<prop::sample::Index>(), any::<bool>()).prop_map(|(text, at, head)| {
        let at = text.floor_char_boundary(at.index(text.len() + 1));
        if head { text[..at].to_owned() } else { text[at..].to_owned() }
    });
    let piece = prop_oneof![
        4 => example.prop_map(str::to_owned),
        2 => part,
        3 => "[ .,:=/@\"'é日\n(\\[-]{1,2}",
        1 => "[A-Za-z0-9]{1,8}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// Compiled once, and not for each case.
static OWN_RULES: LazyLock<Redactor> = LazyLock::new(|| {
    let own =
        |regex: &str| Rule::from_pattern("own".to_owned(), compile_pattern(regex).unwrap(), "<->".to_owned());
    [r"\bEMP-\d{6}\b", r"(?m)^-+$", r"日\w+?é", r"\b12\d*\z"].map(own).into_iter().collect()
});

fn redactor(detectors: &[Detector]) -> Redactor {
    OWN_RULES.with(&detectors.iter().copied().collect())
}

/// What goes out of a text that comes in pieces, and how much was kept back of each window.
fn in_windows(redactor: &Redactor, text: &str, cuts: &[usize]) -> String {
    let (mut out, mut consumed, mut shown) = (String::new(), 0, 0);
    for (at, cut) in cuts.iter().map(|cut| text.floor_char_boundary(*cut)).chain([text.len()]).enumerate() {
        shown = cut.max(shown);
        let before = &text[text[..consumed].char_indices().rev().nth(1023).map_or(0, |(at, _)| at)..consumed];
        let window = ResponseWindow {
            before: before.to_owned(),
            offset: text[..consumed].chars().count() as u64,
            last: at == cuts.len(),
            ..Default::default()
        };
        let answer = AnswerText::windowed(&window, &text[consumed..shown]);
        let FoundInWindow { found, cut, .. } = redactor.find_in_window(&answer);
        let mut end = answer.start();
        for found in found {
            let Range { start, end: to } = found.range();
            out.push_str(&answer.text()[end..start]);
            out.push_str(redactor.mask_of(answer.text(), &found));
            end = to;
        }
        out.push_str(&answer.text()[end..cut]);
        consumed += cut - answer.start();
    }
    assert_eq!(consumed, text.len(), "nothing of the last window is kept back");
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn windows_have_what_the_whole_text_has(
        text in texts(),
        mut cuts in prop::collection::vec(0_usize..200, 0..10),
        only in prop::option::of(0..Detector::ALL.len()),
    ) {
        cuts.sort_unstable();
        let redactor = match only {
            Some(index) => redactor(&Detector::ALL[index..=index]),
            None => redactor(&Detector::ALL),
        };
        let whole = redactor.redact(&text, None).text.into_owned();
        prop_assert_eq!(in_windows(&redactor, &text, &cuts), whole, "{:?} cut at {:?}", text, cuts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn every_character_may_be_a_piece(text in texts()) {
        let redactor = redactor(&Detector::ALL);
        let cuts: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
        prop_assert_eq!(in_windows(&redactor, &text, &cuts), redactor.redact(&text, None).text, "{:?}", text);
    }
}

#[test]
fn of_prose_no_more_than_a_word_is_kept_back() {
    let redactor: Redactor = Detector::ALL.into_iter().collect();
    let text = "The model writes an answer of several words, with numbers such as 42, and a name: Ada.";
    for (at, _) in text.char_indices() {
        let answer = AnswerText::windowed(&ResponseWindow::default(), &text[..at]);
        let kept = &text[redactor.find_in_window(&answer).cut..at];
        assert!(kept.len() <= "numbers".len(), "{kept:?}");
    }
}
