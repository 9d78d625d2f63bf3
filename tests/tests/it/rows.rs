//! Compares docs/guarantees.md, which describes each row, with `tests/rows.toml`, which names the tests
//! that prove it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use hookgate_tests::{repository, sources::Tests};

/// The tables by letter, with the number of their last row.
const TABLES: [(char, u32); 6] = [('D', 47), ('G', 46), ('K', 48), ('L', 48), ('M', 24), ('R', 24)];

/// The heading above the rows without a test.
const NOT_SERVED: &str = "\n## Not served\n";

fn read(path: &str) -> String {
    fs::read_to_string(repository::root().join(path)).unwrap_or_else(|err| panic!("{path}: {err}"))
}

fn proven_rows() -> BTreeMap<String, Vec<String>> {
    toml::from_str(&read("tests/rows.toml")).expect("every row is a list of names")
}

fn is_known(row: &str) -> bool {
    let mut letters = row.chars();
    let table = letters.next();
    let number = letters.as_str();
    let last = TABLES.iter().find(|(letter, _)| Some(*letter) == table).map(|(_, last)| *last);
    let is_canonical = !number.starts_with('0') && number.chars().all(|digit| digit.is_ascii_digit());
    match (last, number.parse::<u32>()) {
        (Some(last), Ok(number)) => is_canonical && (1..=last).contains(&number),
        _ => false,
    }
}

/// The rows in a page's tables, each with the texts of its other cells.
fn rows_of_page(page: &str) -> Vec<(String, Vec<String>)> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = cells.filter_map(|cells| {
        let mut cells = cells.split(" | ").map(str::to_owned);
        let row = cells.next().filter(|row| is_known(row))?;
        Some((row, cells.collect()))
    });
    rows.collect()
}

#[test]
fn every_row_is_one_of_the_tables_and_names_a_test() {
    let rows = proven_rows();
    let unknown: Vec<_> = rows.keys().filter(|row| !is_known(row)).collect();
    assert!(unknown.is_empty(), "no such rows: {unknown:?}");
    let empty: Vec<_> = rows.iter().filter(|(_, names)| names.is_empty()).map(|(row, _)| row).collect();
    assert!(empty.is_empty(), "rows without a test: {empty:?}");
}

/// Checks a test in Rust, `FILE::FUNCTION`, or in TypeScript, `FILE.test.ts: TITLE`.
fn check(name: &str, files: &mut BTreeMap<String, Tests>) -> Result<(), String> {
    if let Some((stem, title)) = name.split_once(".test.ts: ") {
        let file = format!("{stem}.test.ts");
        return files.entry(file).or_insert_with_key(|file| Tests::of_typescript(file)).check_title(title);
    }
    let (file, function) =
        name.split_once("::").ok_or("is neither FILE::FUNCTION nor FILE.test.ts: TITLE")?;
    files.entry(file.to_owned()).or_insert_with_key(|file| Tests::of(file)).check(function)
}

#[test]
fn every_named_test_exists_and_runs() {
    let mut files = BTreeMap::new();
    let mut wrong = Vec::new();
    for (row, names) in proven_rows() {
        for name in names {
            if let Err(reason) = check(&name, &mut files) {
                wrong.push(format!("{row}: {name} {reason}"));
            }
        }
    }
    assert!(wrong.is_empty(), "tests/rows.toml names tests that prove nothing:\n{}", wrong.join("\n"));
}

#[test]
fn the_page_says_of_every_row_what_it_means_or_why_it_is_not_served() {
    let page = read("docs/guarantees.md");
    let (served, not_served) = page.split_once(NOT_SERVED).expect("a heading divides the page");
    let (served, not_served) = (rows_of_page(served), rows_of_page(not_served));
    for (table, columns) in [(&served, 1), (&not_served, 2)] {
        for (row, texts) in table {
            let is_complete = texts.len() == columns && texts.iter().all(|text| !text.trim().is_empty());
            assert!(is_complete, "{row} has {columns} cells with text besides its name: {texts:?}");
        }
    }
    let names = |rows: &[(String, Vec<String>)]| -> BTreeSet<String> {
        rows.iter().map(|(row, _)| row.clone()).collect()
    };
    let proven: BTreeSet<String> = proven_rows().into_keys().collect();
    assert_eq!(names(&served), proven, "the served rows are those of tests/rows.toml");

    let mut listed: Vec<_> = served.iter().chain(&not_served).map(|(row, _)| row.clone()).collect();
    let mut all: Vec<_> = TABLES
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")))
        .collect();
    listed.sort();
    all.sort();
    assert_eq!(listed, all, "docs/guarantees.md lists every row once");
}

#[test]
fn rows_outside_the_tables_are_refused() {
    for row in ["D1", "D47", "G46", "M24", "R24", "K48", "L48"] {
        assert!(is_known(row), "{row}");
    }
    for row in ["D0", "D48", "G47", "X1", "D", "D01", "D1a", "", "1", "d1", "D+1"] {
        assert!(!is_known(row), "{row}");
    }
    let page = "| row | text |\n|---|---|\n| D1 | one | two |\ntext\n| D99 | three |\n";
    assert_eq!(rows_of_page(page), [("D1".to_owned(), vec!["one".to_owned(), "two".to_owned()])]);
}
