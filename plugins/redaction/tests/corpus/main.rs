//! Measures what the detectors find, and what they leave alone, on the corpus of tests/corpus.
//!
//! ```sh
//! cargo test -p hookgate-redaction --test corpus -- --nocapture
//! ```

mod template;
mod values;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use hookgate_redaction::{Detector, Redactor, Text, TextKind, TextPayload};
use hookgate_sdk::{AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload};
use serde_json::{Value, json};

use template::{Line, Template, templates};

/// The halves of the corpus. Nobody tunes detectors on the frozen ones.
const HALVES: [&str; 3] = ["tuned", "frozen", "frozen2"];

/// If this variable is set, the test names the lines of the second frozen half that went wrong. Leave it unset while you change detectors.
const SHOW_FROZEN2: &str = "HOOKGATE_SHOW_FROZEN2";

const MIN_POSITIVE_LINES: usize = 750;
const MIN_CLEAN_LINES: usize = 1500;
/// Of the marked values, in percent.
const MIN_FOUND: f64 = 97.0;
/// Of the clean lines, in percent.
const MAX_TOUCHED: f64 = 0.5;

const MASKS: [&str; 7] = ["[EMAIL]", "[MAIL]", "[CARD]", "[IBAN]", "[REDACTED]", "***", "**"];

/// What a kind's lines came to.
#[derive(Debug, Default)]
struct Tally {
    lines: usize,
    found: usize,
    touched_by_redact: usize,
    touched_by_secrets: usize,
}

/// What a half came to.
#[derive(Debug)]
struct HalfFigures {
    /// In Markdown.
    table: String,
    /// With something marked.
    lines: usize,
    found: usize,
    clean_lines: usize,
    /// Of the clean lines, in percent: by `redact` and by `secrets`.
    touched: [f64; 2],
}

fn tests_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

/// All detectors but some.
fn all_but(left_out: &[Detector]) -> Redactor {
    Detector::ALL.into_iter().filter(|detector| !left_out.contains(detector)).collect()
}

/// What `redact` makes of an answer.
fn redacted(redactor: &Redactor, text: &str) -> String {
    let payload = BeforeResponsePayload { content: text.to_owned(), ..Default::default() };
    let replaced = payload.replace_texts(&mut |text| {
        let found = redactor.find_in(text);
        (text.kind != TextKind::Name && !found.is_empty()).then(|| redactor.mask(text.text, &found))
    });
    let patch = replaced.expect("an answer is a text").patch;
    patch.and_then(|patch| patch.content).unwrap_or_else(|| text.to_owned())
}

/// Whether `secrets` finds anything in a payload.
fn has_secret(redactor: &Redactor, payload: &impl TextPayload) -> bool {
    let mut is_found = false;
    let mut look = |text: &Text<'_>| is_found |= !redactor.find_in(text).is_empty();
    payload.look_at_fixed(&mut look).expect("it is JSON");
    let replaced = payload.replace_texts(&mut |text| {
        look(text);
        None
    });
    replaced.expect("it is JSON");
    is_found
}

/// A tool's result that is this text.
fn result_of(text: &str) -> AfterToolResultPayload {
    AfterToolResultPayload { result: json!(text).to_string().into(), ..Default::default() }
}

/// Whether a mask stands for each marked part, and everything else kept its bytes.
fn is_hidden(line: &Line, redacted: &str) -> bool {
    let (mut rest, mut end) = (redacted, 0);
    for mark in &line.marks {
        let Some(after) = rest.strip_prefix(&line.text[end..mark.start]) else { return false };
        // A number in JSON becomes a string.
        let unquoted =
            after.strip_prefix('"').filter(|_| line.text[..mark.start].ends_with([' ', ':', '[', ',']));
        let mask =
            |text: &'_ str| MASKS.iter().find_map(|mask| Some(text.len() - text.strip_prefix(mask)?.len()));
        rest = match (mask(after), unquoted.and_then(|text| Some((text, mask(text)?)))) {
            (Some(length), _) => &after[length..],
            (None, Some((text, length))) => text[length..].strip_prefix('"').unwrap_or_default(),
            (None, None) => return false,
        };
        end = mark.end;
    }
    rest == &line.text[end..]
}

/// Counts what becomes of a half's lines. Returns the lines that went wrong, too.
fn measure(templates: &[Template]) -> (BTreeMap<String, Tally>, Vec<String>) {
    let redact = all_but(&[Detector::HighEntropy, Detector::ApiKey]);
    let with_entropy = all_but(&[Detector::ApiKey]);
    let secrets = all_but(&[Detector::Email, Detector::ApiKey]);
    let (mut tallies, mut wrong) = (BTreeMap::<String, Tally>::new(), Vec::new());
    for template in templates {
        let is_known =
            template.kind == "clean" || Detector::ALL.iter().any(|detector| detector.name() == template.kind);
        assert!(is_known, "{}: unknown kind", template.place);
        let tally = tallies.entry(template.kind.clone()).or_default();
        for line in template.lines() {
            let redactor = if template.kind == "high_entropy" { &with_entropy } else { &redact };
            let result = redacted(redactor, &line.text);
            tally.lines += 1;
            if template.kind == "clean" {
                let by_secrets = has_secret(&secrets, &result_of(&line.text));
                tally.touched_by_redact += usize::from(result != line.text);
                tally.touched_by_secrets += usize::from(by_secrets);
                if result != line.text || by_secrets {
                    wrong.push(format!("{}: touched: {:?} -> {result:?}", template.place, line.text));
                }
            } else if is_hidden(&line, &result) {
                tally.found += 1;
            } else {
                wrong.push(format!("{}: {:?} -> {result:?}", template.place, line.text));
            }
        }
    }
    (tallies, wrong)
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Measures a half. Its table begins with the lines that went wrong, if `shows`.
fn figures_of(half: &str, shows: bool) -> HalfFigures {
    let templates = templates(&tests_folder().join("corpus").join(half));
    let (tallies, wrong) = measure(&templates);
    let mut table: String = wrong.iter().filter(|_| shows).map(|line| format!("{line}\n")).collect();
    table += &format!("| {half} | lines | found |\n|---|---|---|\n");
    let (mut lines, mut found) = (0, 0);
    for (kind, tally) in tallies.iter().filter(|(kind, _)| *kind != "clean") {
        let share = percent(tally.found, tally.lines);
        table += &format!("| `{kind}` | {} | {share:.1} % |\n", tally.lines);
        lines += tally.lines;
        found += tally.found;
    }
    let clean = tallies.get("clean").expect("a half has clean lines");
    let touched =
        [clean.touched_by_redact, clean.touched_by_secrets].map(|count| percent(count, clean.lines));
    table += &format!("| all | {lines} | {:.1} % |\n", percent(found, lines));
    table += &format!(
        "| clean, touched by `redact` and by `secrets` | {} | {:.2} %, {:.2} % |",
        clean.lines, touched[0], touched[1]
    );
    HalfFigures { table, lines, found, clean_lines: clean.lines, touched }
}

#[test]
fn what_is_secret_is_found_and_what_is_not_stays() {
    let shows_frozen2 = std::env::var_os(SHOW_FROZEN2).is_some();
    for half in HALVES {
        let figures = figures_of(half, half == "tuned" || half == "frozen2" && shows_frozen2);
        println!("{}", figures.table);
        let is_large = figures.lines >= MIN_POSITIVE_LINES && figures.clean_lines >= MIN_CLEAN_LINES;
        assert!(is_large, "{half}: too few lines");
        assert!(percent(figures.found, figures.lines) >= MIN_FOUND, "{half}: too little is found");
        let is_quiet = figures.touched.iter().all(|touched| *touched <= MAX_TOUCHED);
        assert!(is_quiet, "{half}: too many clean lines change");
    }
}

#[test]
fn tools_and_extra_of_recorded_requests_have_no_secrets() {
    let secrets = all_but(&[Detector::Email, Detector::ApiKey]);
    let mut count = 0;
    for file in ["chat", "responses", "messages"] {
        let path = tests_folder().join("recorded").join(file).with_extension("jsonl");
        for exchange in fs::read_to_string(path).expect("the recorded exchanges").lines() {
            let exchange: Value = serde_json::from_str(exchange).expect("an exchange is JSON");
            let request = exchange["request"].as_str().expect("a request is a text");
            let Ok(Value::Object(mut request)) = serde_json::from_str(request) else { continue };
            let tools = request.remove("tools").unwrap_or_default();
            count += usize::from(!tools.is_null());
            // What the gateway has in fields of their own.
            request
                .retain(|name, _| !["messages", "input", "system", "instructions"].contains(&name.as_str()));
            let extra = json!({ "request": request });
            let (tools, extra) = (tools.to_string().into(), extra.to_string().into());
            let payload = BeforeLlmRequestPayload { tools, extra, ..Default::default() };
            assert!(!has_secret(&secrets, &payload), "{}: {payload:?}", exchange["name"]);
        }
    }
    assert!(count > 50, "only {count} requests have tools");
}
