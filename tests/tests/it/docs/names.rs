//! Checks names on the pages for operators: metrics and log events.

use std::{collections::BTreeSet, path::Path};

use hookgate::telemetry::names::{METRICS, SPANS};
use hookgate_tests::repository;

use crate::docs::pages::{pages, parts, protocol, read};

/// Names in backticks in running text: words in lower case, joined by dots.
fn quoted(prose: &str) -> impl Iterator<Item = &str> {
    prose.split('`').skip(1).step_by(2).filter(|text| is_dotted(text))
}

fn is_dotted(text: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    text.contains('.') && text.split('.').all(is_word)
}

#[test]
fn every_metric_and_attribute_that_a_page_names_is_there() {
    let attributes = METRICS.iter().flat_map(|metric| metric.attributes.iter().copied());
    let of_spans = SPANS.iter().flat_map(|span| span.attributes.iter().copied());
    let known: BTreeSet<_> =
        METRICS.iter().map(|metric| metric.name).chain(attributes).chain(of_spans).collect();
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages() {
        let (prose, blocks) = parts(&read(&page));
        let is_other = |name: &str| name == "hookgate.yaml" || is_python_module(name);
        let ours = |name: &&str| name.starts_with("hookgate.") && !is_other(name);
        let dotted = quoted(&prose).filter(ours).filter(|name| !known.contains(name)).map(str::to_owned);
        wrong.extend(dotted.map(|name| format!("{}: {name}", page.display())));
        count += quoted(&prose).filter(ours).count();
        // In Prometheus' notation, perhaps with a unit at the end, or only the beginning.
        let shown = blocks.iter().filter(|(language, _)| language == "text").flat_map(|(_, text)| {
            text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'))
                .filter(|word| word.starts_with("hookgate_"))
        });
        for word in shown {
            count += 1;
            let is_known = known.iter().map(|name| name.replace('.', "_"));
            if !is_known.into_iter().any(|name| name.starts_with(word) || word.starts_with(&name)) {
                wrong.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "no such metric:\n{}", wrong.join("\n"));
    assert!(count > 80, "only {count} names were found: did their form change?");
}

/// Whether the SDK for Python has this module.
fn is_python_module(name: &str) -> bool {
    let path = repository::root().join("sdk/python/src").join(name.replace('.', "/"));
    path.is_dir() || path.with_extension("py").is_file()
}

/// All texts in the gateway's sources, without tests, that begin like an event: `"plugin.connected"`.
fn events_of_the_code() -> BTreeSet<String> {
    let files = repository::rust_files();
    let sources = files.iter().filter(|file| {
        let file = file.to_string_lossy();
        file.starts_with("gateway/src/") && !file.contains("tests")
    });
    let texts: String = sources.map(|file| read(&repository::root().join(file))).collect();
    let fields = texts.split("event = \"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
    let families: BTreeSet<_> = fields.filter_map(|event| Some(event.split_once('.')?.0)).collect();
    let mut events = BTreeSet::new();
    for text in texts.split('"').filter(|text| is_dotted(text)) {
        let is_one = text
            .split_once('.')
            .is_some_and(|(family, rest)| families.contains(family) && !rest.contains('.'));
        if is_one {
            events.insert(text.to_owned());
        }
    }
    events
}

#[test]
fn the_events_of_the_log_are_those_of_the_protocol() {
    let code = events_of_the_code();
    assert!(code.len() > 20, "only {code:?} were found: did their form change?");
    let protocol = parts(&protocol()).0;
    let list = protocol.split_once("\n### Events\n").expect("a heading says where they are listed").1;
    let keys = configuration_keys();
    let is_event = |name: &str| is_event(name, &code) && !keys.contains(name);
    let listed: BTreeSet<_> = quoted(list).filter(|name| is_event(name)).map(str::to_owned).collect();
    assert_eq!(listed, code, "docs/protocol.md, section 8, lists the events of the log");
    // Pages with names of other products or of code.
    let others = [
        "coming-from",
        "javascript-plugins",
        "kaged-plugins",
        "writing-a-plugin-python",
        "writing-a-plugin-typescript",
    ];
    let has_other_names = |page: &Path| others.iter().any(|name| page.ends_with(format!("docs/{name}.md")));
    for page in pages().into_iter().filter(|page| !has_other_names(page)) {
        let prose = parts(&read(&page)).0;
        let named = quoted(&prose).filter(|name| is_event(name) && !code.contains(*name));
        let wrong: Vec<_> = named.collect();
        assert!(wrong.is_empty(), "{}: no such event: {wrong:?}", page.display());
    }
}

/// The keys of the configuration, such as `log.level`. Their families overlap with those of events, such as
/// `log.dropped`.
fn configuration_keys() -> BTreeSet<String> {
    let page = read(&repository::root().join("docs/configuration.md"));
    let keys = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()));
    let keys: BTreeSet<_> = keys.collect();
    assert!(keys.contains("log.level"), "only {keys:?} were found: did the reference change its form?");
    keys
}

/// Whether this looks like an event, even one that doesn't exist.
fn is_event(name: &str, code: &BTreeSet<String>) -> bool {
    let family = |name: &str| name.split_once('.').map(|(family, _)| family.to_owned());
    let is_file = [".proto", ".js", ".py", ".rs"].iter().any(|ending| name.ends_with(ending));
    !is_file && code.iter().any(|event| family(event) == family(name))
}

#[test]
fn what_the_checks_look_for_is_found() {
    let prose = "`hookgate.steps` and `plugin.connected`, `Upper.case`, `hookgate.types.v1`, plain.text";
    assert_eq!(quoted(prose).collect::<Vec<_>>(), ["hookgate.steps", "plugin.connected"]);
    let code = BTreeSet::from(["plugin.connected".to_owned()]);
    assert!(
        is_event("plugin.gone", &code) && !is_event("plugin.proto", &code) && !is_event("limits.rate", &code)
    );
}
