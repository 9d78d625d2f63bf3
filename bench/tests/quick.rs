//! The benchmark works; what it measures is asserted nowhere.

use std::process::Command;

use serde_json::Value;

/// Each row's name, with the calls in flight of its lines in the table.
const ROWS: [(&str, &[Option<u64>]); 41] = [
    ("cpu-1-plugin", &[Some(16), Some(64)]),
    ("cpu-3-plugins", &[Some(16), Some(64)]),
    ("bare-1-plugin", &[Some(16), Some(64)]),
    ("bare-3-plugins", &[Some(16), Some(64)]),
    ("latency-per-plugin", &[Some(1)]),
    ("http-over-grpc", &[Some(16), Some(64)]),
    ("grpc-over-http", &[Some(16), Some(64)]),
    ("patch", &[Some(16), Some(64)]),
    ("read-plugins", &[Some(1), Some(4)]),
    ("hook-advise", &[Some(1)]),
    ("many-tenants", &[Some(16), Some(64)]),
    ("large-content", &[Some(16), Some(64)]),
    ("json-scan", &[None]),
    ("redact-clean", &[None]),
    ("redact-dense", &[None]),
    ("memory-idle", &[None]),
    ("memory-in-flight", &[Some(64)]),
    ("host-add", &[Some(1)]),
    ("host-traffic", &[Some(1)]),
    ("stdio-runner", &[Some(1)]),
    ("start", &[None]),
    ("open-loop-p50", &[Some(16)]),
    ("open-loop-p99", &[Some(16)]),
    ("neighbour-texts", &[Some(16)]),
    ("neighbour-events", &[Some(16)]),
    ("unix", &[Some(16), Some(16)]),
    ("tls", &[Some(16), Some(16)]),
    ("one-connection", &[Some(64), Some(64), Some(64)]),
    ("llm-cpu", &[Some(16), Some(64)]),
    ("llm-1-point", &[Some(16), Some(64)]),
    ("llm-4-points", &[Some(16), Some(64)]),
    ("llm-stream", &[Some(16), Some(64)]),
    ("llm-stream-chunk", &[Some(16), Some(64)]),
    ("llm-stream-windows", &[Some(16), Some(64)]),
    ("llm-history", &[Some(16), Some(64)]),
    ("llm-first-text-p50", &[Some(1)]),
    ("llm-first-text-p99", &[Some(1)]),
    ("llm-first-text-windows", &[Some(4)]),
    ("llm-streams-memory", &[None]),
    ("llm-stream-memory", &[None]),
    ("llm-stream-memory-windows", &[None]),
];

/// The benchmark with these arguments: what it printed, and its JSON.
fn run(arguments: &[&str]) -> (String, Value) {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("bench.json");
    let bench = Command::new(env!("CARGO_BIN_EXE_hookgate-bench"))
        .args(["--quick", "--json"])
        .arg(&file)
        .arg("--gateway")
        .arg(hookgate_tests::gateway::binary())
        .args(arguments)
        .output()
        .expect("it can be run");
    let printed = String::from_utf8_lossy(&bench.stdout).into_owned();
    assert!(bench.status.success(), "{printed}{}", String::from_utf8_lossy(&bench.stderr));
    let json = std::fs::read_to_string(&file).expect("the figures are written");
    (printed, serde_json::from_str(&json).expect("the figures are JSON"))
}

#[test]
fn a_quick_run_prints_a_figure_for_every_row_and_writes_the_raw_figures() {
    let (table, report) = run(&[]);
    let mut rows = report["rows"].as_array().expect("there are rows").iter();
    for (name, concurrencies) in ROWS {
        for concurrency in concurrencies {
            let row = rows.next().unwrap_or_else(|| panic!("{name} is missing: {table}"));
            let row_name = row["row"].as_str().expect("a row has a name");
            assert!(row_name.starts_with(name) && row["concurrency"].as_u64() == *concurrency, "{row}");
            assert!(["median", "min", "max"].iter().all(|figure| row[figure].is_number()), "{row}");
            let has_target = row["must"].is_number() && row["aim"].is_number();
            assert_eq!(row["verdict"].is_string(), has_target, "{row}");
            let line = table.lines().find(|line| line.trim_start().starts_with(row_name));
            assert!(line.is_some_and(|line| line.contains("..")), "{row_name}: {table}");
        }
    }
    assert!(rows.next().is_none(), "{table}");
    let raw = report["raw"].as_array().expect("there are raw figures");
    for sample in raw {
        let is_positive = |name: &str| sample[name].as_f64().is_some_and(|figure| figure > 0.0);
        assert!(is_positive("calls") && is_positive("cpu_us_per_call"), "{sample}");
    }
    assert!(report["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0), "{}", report["machine"]);
}

#[test]
fn only_the_rows_with_a_text_in_their_names_are_measured() {
    let (_, report) = run(&["--only", "json"]);
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["raw"].as_array().map(Vec::len), Some(0));
}

/// Of docs/performance.md.
const STATED_FACTOR: f64 = 5.0;

#[test]
fn memory_under_the_largest_payloads_stays_within_ten_times_what_is_stated() {
    let (_, soaks) = run(&["--memory"]);
    let soak = &soaks[0];
    assert!(soak["answered"].as_u64().is_some_and(|answered| answered > 1), "{soak}");
    assert!(soak["refused"].as_u64().is_some_and(|refused| refused > 0), "the limit was reached: {soak}");
    assert!(soak["factor"].as_f64().is_some_and(|factor| factor < 10.0 * STATED_FACTOR), "{soak}");
}

#[test]
fn tables_of_many_tenants_are_built_changed_and_published() {
    let (_, found) = run(&["--scale"]);
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
