use std::{env, fmt::Write as _, fs, path::Path};

use serde_json::json;

use super::*;

const SURFACE: &str = "src/llm/explain/golden/surface.txt";

/// The table is what requests are refused by: a rule that no table lists fails the tests of refusals.
#[test]
fn the_surface_is_what_was_reviewed() {
    let config = json!({ "upstreams": [], "models": [] });
    let config: LlmProxy = serde_json::from_value(config).expect("a configuration");
    let routes = ModelRoutes::build(&config, &[]).expect("routes");
    let tenant = TenantRules {
        guarded: GuardedPoints::default(),
        asked: Vec::new(),
        answer_way: AnswerWay::Pass,
        models: None,
        limited_to: None,
    };
    let proxy = explain(&config, &routes, tenant);
    let mut fresh = String::new();
    let mut write = |place: &str, refused: &[RefusalReport]| {
        let _ = writeln!(fresh, "{place}");
        for row in refused {
            let points: Vec<_> = row.points.iter().map(|point| point.as_str()).collect();
            let opened_by = match &row.opened_by {
                AllowSwitch::Entry(entry) => entry,
                AllowSwitch::ItsName => "(its name)",
                AllowSwitch::Nothing => "(nothing)",
            };
            let points = if points.is_empty() { "always".to_owned() } else { points.join(" ") };
            let _ = writeln!(fresh, "  {} | {opened_by} | {points} | {}", row.what, row.why);
        }
    };
    write("all formats", &proxy.refused);
    proxy.formats.iter().for_each(|format| write(&format.path, &format.refused));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SURFACE);
    if env::var_os("HOOKGATE_REGENERATE").is_some() {
        fs::write(&path, &fresh).expect("the file can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, fresh, "review the change, then run this test with HOOKGATE_REGENERATE=1");
}
