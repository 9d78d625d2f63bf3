//! The benchmark works; what it measures is asserted nowhere.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_quick_run_measures_every_scenario_and_writes_the_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bench.json");
    let bench =
        Command::new(env!("CARGO_BIN_EXE_hookgate-bench")).args(["--quick", "--json"]).arg(&file).output();
    let bench = bench.expect("it can be run");
    let table = String::from_utf8_lossy(&bench.stdout);
    assert!(bench.status.success(), "{table}{}", String::from_utf8_lossy(&bench.stderr));

    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let rows = report["rows"].as_array().expect("there are rows");
    assert_eq!(rows.len(), 14, "7 scenarios, each with one worker and with several: {table}");
    for row in rows {
        let calls = row["calls"].as_u64();
        assert!(calls.is_some_and(|calls| calls > 0) && row["p50_ratio"].is_number(), "{row}");
        assert!(table.contains(row["name"].as_str().expect("a row has a name")), "{table}");
    }
}

/// Of docs/performance.md.
const STATED_FACTOR: f64 = 5.0;

#[test]
fn memory_under_the_largest_payloads_stays_within_ten_times_what_is_stated() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("memory.json");
    let bench = Command::new(env!("CARGO_BIN_EXE_hookgate-bench"))
        .args(["--memory", "--quick", "--json"])
        .arg(&file)
        .output()
        .expect("it can be run");
    assert!(bench.status.success(), "{}", String::from_utf8_lossy(&bench.stderr));
    let soaks: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let soak = &soaks[0];
    assert!(soak["answered"].as_u64().is_some_and(|answered| answered > 1), "{soak}");
    assert!(soak["refused"].as_u64().is_some_and(|refused| refused > 0), "the limit was reached: {soak}");
    assert!(soak["factor"].as_f64().is_some_and(|factor| factor < 10.0 * STATED_FACTOR), "{soak}");
}

#[test]
fn tables_of_many_tenants_are_built_changed_and_published() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scale.json");
    let bench = Command::new(env!("CARGO_BIN_EXE_hookgate-bench"))
        .args(["--scale", "--quick", "--json"])
        .arg(&file)
        .output()
        .expect("it can be run");
    assert!(bench.status.success(), "{}", String::from_utf8_lossy(&bench.stderr));
    let found: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let whole = found["whole"].as_array().expect("there are sizes");
    assert_eq!(whole.len(), 2);
    let found = found["tables"].as_array().expect("there are sizes");
    assert_eq!(found.len(), 4, "two sizes, with bindings for all and with each tenant's own");
    for (at, bindings) in [5, 5, 50, 500].into_iter().enumerate() {
        assert_eq!(found[at]["bindings"], bindings, "{}", found[at]);
    }
    for largest in [&found[1], &found[3], &whole[0], &whole[1]] {
        let counted = |name: &str| largest["calls"][name].as_u64().is_some_and(|count| count > 0);
        assert!(counted("tables") && counted("calls") && counted("alone_calls"), "{largest}");
    }
}
