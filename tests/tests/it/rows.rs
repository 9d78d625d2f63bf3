//! `tests/rows.toml` names tests that exist and run.

use std::{collections::BTreeMap, fs};

use hookgate_tests::{repository, sources::Tests};

/// Tables of rows, by letter, with the number of the last row.
const TABLES: [(char, u32); 6] = [('D', 47), ('G', 43), ('K', 48), ('L', 48), ('M', 24), ('R', 24)];

fn rows() -> BTreeMap<String, Vec<String>> {
    let file =
        fs::read_to_string(repository::root().join("tests/rows.toml")).expect("tests/rows.toml is readable");
    toml::from_str(&file).expect("every row is a list of names")
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

#[test]
fn every_row_is_one_of_the_tables_and_names_a_test() {
    let rows = rows();
    let unknown: Vec<_> = rows.keys().filter(|row| !is_known(row)).collect();
    assert!(unknown.is_empty(), "no such rows: {unknown:?}");
    let empty: Vec<_> = rows.iter().filter(|(_, names)| names.is_empty()).map(|(row, _)| row).collect();
    assert!(empty.is_empty(), "rows without a test: {empty:?}");
}

#[test]
fn every_named_test_exists_and_runs() {
    let mut files = BTreeMap::new();
    let mut wrong = Vec::new();
    for (row, names) in rows() {
        for name in names {
            let checked = name.split_once("::").ok_or_else(|| "is not FILE::FUNCTION".to_owned()).and_then(
                |(file, function)| {
                    let tests: &Tests = files.entry(file.to_owned()).or_insert_with(|| Tests::of(file));
                    tests.check(function)
                },
            );
            if let Err(reason) = checked {
                wrong.push(format!("{row}: {name} {reason}"));
            }
        }
    }
    assert!(wrong.is_empty(), "tests/rows.toml names tests that prove nothing:\n{}", wrong.join("\n"));
}

#[test]
fn rows_outside_the_tables_are_refused() {
    for row in ["D1", "D47", "G43", "M24", "R24", "K48", "L48"] {
        assert!(is_known(row), "{row}");
    }
    for row in ["D0", "D48", "G44", "X1", "D", "D01", "D1a", "", "1", "d1", "D+1"] {
        assert!(!is_known(row), "{row}");
    }
}
