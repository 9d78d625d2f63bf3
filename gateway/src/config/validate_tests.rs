//! Tests each mistake that the schema rejects: the position, message and remedy, and that nothing else is
//! reported.

use std::collections::BTreeSet;

use super::MINIMAL_AUTH;
use crate::config::{fixtures::*, load::from_text};

#[test]
fn the_files_the_tables_start_from_are_good() {
    from_text("f.yaml".into(), &format!("{AUTH}{REST}"), []).unwrap();
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    rest("limit: {}\n", 2, "`limit` is not a key here", "did you mean `limits`?");
    rest("log: { levle: info }\n", 2, "`levle` is not a key here", "did you mean `level`?");
    rest("log: { colour: red }\n", 2, "`colour` is not a key here", "the keys are `format` and `level`");
    plugin("name: p, endpont: \"http://a:1\"", "`endpont` is not a key here", "did you mean `endpoint`?");
    plugin(
        "name: p, endpoint: \"http://a:1\", in_flight: 1",
        "`in_flight` is not a key here",
        "write it under `limits`",
    );
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, tiemout: 5s",
        "`tiemout` is not a key here",
        "did you mean `timeout`?",
    );
}

#[test]
fn numbers_that_only_the_schema_takes_for_whole_ones_are_refused_where_they_stand() {
    let (digits, range) = ("write only digits", format!("write one from {} to {}", i64::MIN, i64::MAX));
    for number in ["10.0", "1e3"] {
        let text = format!("limits: {{ in_flight: {number} }}\n");
        rest(&text, 2, "`in_flight` must be a whole number from 1 to 1000000", digits);
    }
    for (number, remedy) in [("10.0", digits), ("-1e3", digits), ("9223372036854775808", &range)] {
        let text = format!("plugin: p, name: b, tenant: \"*\", priority: {number}");
        binding(&text, "`priority` must be a whole number", remedy);
    }
}

#[test]
fn wrong_types_are_refused_in_words_of_the_schema() {
    rest("plugins: {}\n", 2, "`plugins` must be a list, not a mapping", LIST);
    rest("plugins:\n", 2, "`plugins` must be a list, not empty", "");
    rest("limits: []\n", 2, "`limits` must be a mapping, not a list", "");
    rest(
        "limits: { in_flight: many }\n",
        2,
        "`in_flight` must be a whole number from 1 to 1000000, not `many`",
        "",
    );
    rest(
        "limits: { in_flight: 0 }\n",
        2,
        "`in_flight` must be a whole number from 1 to 1000000, not `0`",
        "",
    );
    rest(
        "limits: { notices: 1.5 }\n",
        2,
        "`notices` must be a whole number from 1 to 1000000, not `1.5`",
        "",
    );
    rest("observers: { items: 0 }\n", 2, "`items` must be a whole number from 1 to 1000000, not `0`", "");
    rest(
        "tenants: { unknown: acept }\n",
        2,
        "`unknown` must be `refuse` or `accept`, not `acept`",
        "did you mean `accept`?",
    );
    rest("tenants: { list: [{ id: 5 }] }\n", 2, "`id` must be text, not `5`", "write it in quotes");
    rest("log: { format: yaml }\n", 2, "`format` must be `pretty` or `json`, not `yaml`", "");
    rest(
        "answer: { detail: ful }\n",
        2,
        "`detail` must be `full` or `minimal`, not `ful`",
        "did you mean `full`?",
    );
    plugin(
        "name: p, endpoint: \"http://a:1\", enabled: yes",
        "`enabled` must be `true` or `false`, not `yes`",
        "",
    );
    plugin(
        "name: p, endpoint: \"http://a:1\", grants: [storage]",
        "an entry of `grants` must be `storage:read`, `storage:write`, `log` or `emit`, not `storage`",
        "",
    );
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, mode: enforced",
        "`mode` must be `enforce`, `advise` or `observe`, not `enforced`",
        "did you mean `enforce`?",
    );
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, match: { tools: fs }",
        "`tools` must be a list",
        LIST,
    );
}

const LIST: &str = "write one entry per line, each after `- `, or put the list in [ ]";

#[test]
fn durations_sizes_rates_and_addresses_are_written_out() {
    let duration = "a duration: a whole number and `ms`, `s`, `m` or `h`, such as `500ms`";
    let size = "a size: a whole number and `B`, `KiB`, `MiB` or `GiB`, such as `4MiB`";
    let rate = "a rate: a whole number above 0, `/` and `s`, `m` or `h`, such as `100/s`";
    rest("drain: { grace: 5 }\n", 2, &format!("`grace` must be {duration}, not `5`"), "did you mean `5s`?");
    rest("drain: { grace: \"5\" }\n", 2, &format!("`grace` must be {duration}, not `5`"), "");
    rest("limits: { request: 5 }\n", 2, &format!("`request` must be {size}, not `5`"), "");
    rest("limits: { tenant_rate: 5 }\n", 2, &format!("`tenant_rate` must be {rate}, not `5`"), "");
    rest("drain: { grace: 5sec }\n", 2, &format!("`grace` must be {duration}, not `5sec`"), "");
    let long = "99999999999999999999s";
    rest(
        &format!("drain: {{ grace: {long} }}\n"),
        2,
        &format!("`grace` must be {duration}, not `{long}`"),
        "",
    );
    rest("limits: { request: 4MB }\n", 2, &format!("`request` must be {size}, not `4MB`"), "");
    rest("limits: { tenant_rate: 5/d }\n", 2, &format!("`tenant_rate` must be {rate}, not `5/d`"), "");
    rest("limits: { tenant_rate: 0/s }\n", 2, &format!("`tenant_rate` must be {rate}, not `0/s`"), "");
    rest(
        "tenants: { list: [{ id: a, limits: { rate: fast } }] }\n",
        2,
        &format!("`rate` must be {rate}, not `fast`"),
        "",
    );
    rest(
        "server: { data_addr: localhost }\n",
        2,
        "`data_addr` must be an address and a port, such as `127.0.0.1:8080` or `[::1]:8080`, not `localhost`",
        "",
    );
    plugin(
        "name: p, endpoint: \"http://a:1\", version: \">>1\"",
        "`version` must be a range of versions, such as `>=1.2, <2`, not `>>1`",
        "",
    );
}

#[test]
fn what_is_missing_is_named() {
    refused(
        "plugins: []\n",
        1,
        "`auth` is missing here",
        &format!("add the tokens' issuer, such as `{MINIMAL_AUTH}`"),
    );
    from_text("f".into(), &served(MINIMAL_AUTH), [("HOOKGATE_JWT_SECRET".to_owned(), "x".repeat(32))])
        .unwrap();
    refused("auth: {}\n", 1, "`issuers` is missing here", "add `issuers`: a list");
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, points: []",
        "`points` must have at least one entry",
        "",
    );
    binding(
        "plugin: p, name: b, tenant: \"*\", priority: 2, match: { tools: [] }",
        "`tools` must have at least one entry",
        "",
    );
    refused("auth: { issuers: [] }\n", 1, "`issuers` must have at least one entry", "");
    refused(
        "auth:\n  issuers:\n    - issuer: i\n      jwks_url: \"https://x\"\n",
        3,
        "`audience` is missing here",
        "add `audience`: text that is not empty",
    );
    binding(
        "plugin: p, name: b, tenant: \"*\"",
        "`priority` is missing here",
        "add `priority`: a whole number",
    );
    binding("name: b, tenant: \"*\", priority: 2", "`plugin` is missing here", "add `plugin`: text");
    rest("tenants: { list: [{}] }\n", 2, "`id` is missing here", "add `id`: text");
}

#[test]
fn all_mistakes_are_found_at_once_and_none_twice() {
    let text = format!(
        "{AUTH}{}",
        "server: { data_addr: here }
plugins:
  - { name: p, endpoint: \"ftp://a:1\", bogus: 1 }
  - { name: p, builtin: content-policy, limits: { timeout: 1ms } }
  - { name: q, endpoint: \"${UNSET}\" }
tenants: { list: [{ id: acme, disable: [nope] }] }
bindings:
  - { plugin: r, tenant: \"*\", blocking: true, mode: advise }
  - { plugin: q, tenant: \"*\", priority: x, tiemout: 1s }
limits: { request: 17MiB }
limits: {}
shop: {}
"
    );
    let problems = problems(&text);
    let found: Vec<(usize, &str)> = problems
        .iter()
        .map(|located| (located.position.unwrap().0, located.problem.pointer.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (2, "/server/data_addr"),
            (4, "/plugins/0/endpoint"),
            (4, "/plugins/0/bogus"),
            (5, "/plugins/1/name"),
            (5, "/plugins/1/limits/timeout"),
            (6, "/plugins/2/endpoint"),
            (9, "/bindings/0"),
            (9, "/bindings/0/plugin"),
            (9, "/bindings/0/blocking"),
            (10, "/bindings/1/priority"),
            (10, "/bindings/1/tiemout"),
            (11, "/limits/request"),
            (12, ""),
            (13, "/shop"),
        ]
    );
    let distinct: BTreeSet<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(distinct.len(), problems.count());
}
