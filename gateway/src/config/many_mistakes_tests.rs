//! Files with thousands of mistakes: the time to report them grows linearly, whatever the mistakes and the
//! layout of the file. A running gateway reads no later file meanwhile.

use std::fmt::Write as _;

use super::load::from_text;

const SOME: usize = 1000;
const TIMES: usize = 4;

/// Creates a file with this many mistakes.
type File = fn(usize) -> String;

/// Files by the kind of their mistakes.
const FILES: [(&str, File); 9] = [
    ("unknown keys, in one line", |n| {
        format!("tenants: {{ list: [{}] }}", list(n, |i| format!("{{ id: t{i}, lables: {{ plan: pro }} }}")))
    }),
    ("unknown keys, in lines of their own", |n| {
        format!(
            "tenants:\n  list:\n{}",
            lines(n, |i| format!("    - {{ id: t{i}, lables: {{ plan: pro }} }}"))
        )
    }),
    ("values of one mapping", |n| format!("block_status:\n{}", lines(n, |i| format!("  CODE_{i}: 200")))),
    ("missing keys", |n| {
        format!("tenants:\n  list:\n{}", lines(n, |i| format!("    - {{ labels: {{ a: \"{i}\" }} }}")))
    }),
    ("keys that are there twice, in one line", |n| {
        format!("block_status: {{ A: 400, {} }}", list(n, |_| "A: 400".to_owned()))
    }),
    ("names that are there twice", |n| {
        format!("tenants:\n  list:\n{}", lines(n + 1, |_| "    - { id: acme }".to_owned()))
    }),
    ("resolved references", |n| {
        let plugin = |i| format!("  - {{ name: p{i}, endpoint: \"${{R{i}}}\" }}");
        format!("tenants: {{ list: [{{ id: acme }}] }}\nplugins:\n{}", lines(n, plugin))
    }),
    ("names that are misspelt", |n| {
        let plugins =
            lines(n, |i| format!("  - {{ name: plugin-{i:05}, endpoint: \"http://127.0.0.1:7000\" }}"));
        let bindings = lines(n, |i| format!("  - {{ plugin: plugni-{i:05}, tenant: acme, priority: {i} }}"));
        format!("tenants: {{ list: [{{ id: acme }}] }}\nplugins:\n{plugins}bindings:\n{bindings}")
    }),
    ("bindings that a tenant can't switch off", |n| {
        let off = list(n, |i| format!("bound-{i:05}"));
        let bindings =
            lines(n, |i| format!("  - {{ name: bnud-{i:05}, plugin: p, tenant: \"*\", priority: {i} }}"));
        let plugin = "{ name: p, endpoint: \"http://127.0.0.1:7000\" }";
        format!(
            "tenants: {{ list: [{{ id: acme, disable: [{off}] }}] }}\nplugins: [{plugin}]\nbindings:\n{bindings}"
        )
    }),
];

fn lines(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).map(line).fold(String::new(), |mut all, line| {
        writeln!(all, "{line}").expect("a string takes everything");
        all
    })
}

fn list(n: usize, item: impl Fn(usize) -> String) -> String {
    (0..n).map(item).collect::<Vec<_>>().join(", ")
}

/// CPU time of this thread in nanoseconds, because other tests run at the same time.
fn spent() -> u64 {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
    said.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("it is a number")
}

/// How long it takes to find and show all mistakes of a file.
fn time(name: &str, text: &str, mistakes: usize) -> u64 {
    let env = (0..mistakes).map(|i| (format!("R{i}"), format!("no-endpoint-at-all-{i:05}")));
    let env: Vec<_> = env.collect();
    let auth =
        "auth: { issuers: [{ issuer: i, audience: a, jwks_url: \"https://id/keys\", tenants: \"*\" }] }";
    let before = spent();
    let problems = from_text("f.yaml".into(), &format!("{auth}\n{text}\n"), env).expect_err(name);
    let shown = problems.to_string();
    let after = spent();
    assert!(problems.count() >= mistakes, "{name}: {} of {mistakes}:\n{shown:.2000}", problems.count());
    after - before
}

#[test]
fn time_for_mistakes_grows_as_their_number_does() {
    for (name, file) in FILES {
        let (some, many) = (time(name, &file(SOME), SOME), time(name, &file(SOME * TIMES), SOME * TIMES));
        // With quadratic growth it would take `TIMES * TIMES` times as long.
        let most = some * (TIMES * TIMES / 2) as u64;
        assert!(many < most, "{name}: {TIMES} times the mistakes took {many} ns, not {some}");
    }
}
