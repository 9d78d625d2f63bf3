//! Checks the documentation against the repository: links, citations, configurations and examples.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use hookgate::{config, routing::RouteTable};
use hookgate_proto::{
    gateway::v1::BeforeToolCallRequest,
    types::v1::{BeforeToolCallPayload, ExtensionPoint},
};
use hookgate_tests::{gateway::Gateway, repository, token::token};
use serde_json::{Value, json};
use tonic_types::StatusExt;

/// README.md, CONTRIBUTING.md, the examples' pages and everything in docs/.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    collect(&repository::root().join("docs"), &mut pages);
    let agents = ["dexto-agent", "drover-agent", "kaged-agent", "librefang-agent", "mastermind-agent"];
    let examples = agents.into_iter().chain(["python", "python-raw", "typescript"]);
    let examples: Vec<_> = examples.map(|example| format!("examples/{example}/README.md")).collect();
    for page in ["README.md", "CONTRIBUTING.md"].into_iter().chain(examples.iter().map(String::as_str)) {
        pages.push(repository::root().join(page));
    }
    pages.retain(|page| page.exists());
    assert!(!pages.is_empty(), "there is documentation");
    pages.sort();
    pages
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("docs/ is readable") {
        let path = entry.expect("docs/ is readable").path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

pub(crate) fn read(page: &Path) -> String {
    fs::read_to_string(page).expect("a page is readable text")
}

pub(crate) fn protocol() -> String {
    read(&repository::root().join("docs/protocol.md"))
}

/// Splits a page into its text without fenced blocks, and the blocks with their languages.
pub(crate) fn parts(page: &str) -> (String, Vec<(String, String)>) {
    let (mut prose, mut blocks) = (String::new(), Vec::new());
    let mut block: Option<(String, String)> = None;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), block.take()) {
            (Some(language), None) => block = Some((language.to_owned(), String::new())),
            (Some(_), Some(ended)) => blocks.push(ended),
            (None, Some((language, text))) => block = Some((language, text + line + "\n")),
            (None, None) => prose = prose + line + "\n",
        }
    }
    assert!(block.is_none(), "a fenced block is not closed");
    (prose, blocks)
}

/// The targets of a page's inline links, without those in backticks.
fn links(prose: &str) -> Vec<String> {
    let outside: String = prose.split('`').step_by(2).collect();
    let behind = outside.split("](").skip(1);
    behind.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchors of a page's headings, as code hosts generate them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = parts(page).0;
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// The error of a link on `page`, if any.
fn fault(page: &Path, link: &str) -> Option<String> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent().expect("a page is in a folder");
    let target = if path.is_empty() { page.to_owned() } else { folder.join(path) };
    if !target.exists() {
        return Some(format!("{}: `{link}` leads nowhere", page.display()));
    }
    let known = anchor.is_empty() || (target.is_file() && anchors(&read(&target)).contains(anchor));
    (!known).then(|| format!("{}: `{link}` names no heading", page.display()))
}

/// A source's text with its comments as running text, because a citation may span two lines.
fn running_text(source: &str) -> String {
    let text = |line: &str| line.trim().trim_start_matches(['/', '!']).trim_start().to_owned() + " ";
    source.lines().map(text).collect()
}

/// The section numbers that each citation of docs/protocol.md in `text` names, such as `, sections 2 to 5 and 7`.
fn cited_sections(text: &str) -> Vec<u32> {
    let mut cited = Vec::new();
    for behind in text.split("docs/protocol.md").skip(1) {
        let behind = behind.trim_start_matches([',', ' ']);
        let Some(list) = behind.strip_prefix("sections ").or_else(|| behind.strip_prefix("section ")) else {
            continue;
        };
        let mut words = list.split_whitespace().peekable();
        let number = |word: &str| word.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
        while let Some(word) = words.next() {
            match (word, number(word)) {
                ("to" | "and", _) => {}
                (_, Some(section)) => cited.push(section),
                (_, None) => break,
            }
            let goes_on = word.ends_with(',') || matches!(word, "to" | "and");
            if !goes_on && !matches!(words.peek(), Some(&("to" | "and"))) {
                break;
            }
        }
    }
    cited
}

#[test]
fn every_link_leads_somewhere() {
    let links = |page: &PathBuf| links(&parts(&read(page)).0);
    let faults: Vec<_> = pages()
        .iter()
        .flat_map(|page| links(page).into_iter().filter_map(|link| fault(page, &link)).collect::<Vec<_>>())
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(!links(&repository::root().join("docs/README.md")).is_empty(), "the map has links");
}

/// A heading that occurs twice is a section that was written or merged twice.
#[test]
fn no_page_says_a_thing_twice_or_waits_for_one() {
    for page in pages() {
        let (prose, _) = parts(&read(&page));
        let mut headings: Vec<_> = prose.lines().filter(|line| line.starts_with('#')).collect();
        let all = headings.len();
        headings.sort_unstable();
        headings.dedup();
        assert_eq!(headings.len(), all, "{}: a heading is there twice: {headings:?}", page.display());
        for remark in prose.split("<!-- ").skip(1) {
            let is_known =
                ["story: ", "Written by ", "Generated "].iter().any(|kind| remark.starts_with(kind));
            assert!(is_known, "{}: `<!-- {remark:.40}` waits for something", page.display());
        }
    }
}

#[test]
fn every_section_cited_in_the_code_exists() {
    let protocol = protocol();
    let sections: BTreeSet<u32> = protocol
        .lines()
        .filter_map(|line| line.strip_prefix("## ")?.split_once(". ")?.0.parse().ok())
        .collect();
    assert_eq!(sections, (1..=10).collect(), "the sections of docs/protocol.md keep their numbers");
    let decisions: Vec<String> = decisions().iter().map(|name| name[..4].to_owned()).collect();
    let (mut count, mut wrong) = (0, Vec::new());
    for file in repository::rust_files() {
        let text = running_text(&read(&repository::root().join(&file)));
        if file.ends_with("tests/it/docs/pages.rs") {
            continue; // its examples are wrong on purpose
        }
        for section in cited_sections(&text) {
            count += 1;
            if !sections.contains(&section) {
                wrong.push(format!("{}: section {section}", file.display()));
            }
        }
        for behind in text.split("docs/decisions/").skip(1) {
            let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
            if !decisions.contains(&number) {
                wrong.push(format!("{}: docs/decisions/{number}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "the code cites what is not there:\n{}", wrong.join("\n"));
    assert!(count > 20, "only {count} citations were found: did their form change?");
}

fn decisions() -> Vec<String> {
    let mut pages = Vec::new();
    collect(&repository::root().join("docs/decisions"), &mut pages);
    let name = |page: &PathBuf| page.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let mut names: Vec<_> = pages.iter().filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn decisions_are_numbered_and_in_the_map() {
    let map = read(&repository::root().join("docs/README.md"));
    for (index, name) in decisions().iter().enumerate() {
        let number = format!("{:04}", index + 1);
        assert!(name.starts_with(&format!("{number}-")), "{name} should begin with {number}");
        let page = read(&repository::root().join("docs/decisions").join(name));
        let title = page.lines().next().and_then(|line| line.strip_prefix(&format!("# {number}: ")));
        let title = title.unwrap_or_else(|| panic!("{name} begins with `# {number}: ` and its title"));
        let entry = format!("[{number}](decisions/{name}) {title}");
        assert!(map.contains(&entry), "docs/README.md lacks: - {entry}");
    }
}

/// The later decisions that the status of a decision names; `None` if the line below the title isn't a status.
fn amended_by(page: &str) -> Option<Vec<String>> {
    let mut lines = page.lines().skip(1);
    let status = lines.next().filter(|line| line.is_empty()).and(lines.next())?.strip_prefix("Status: ")?;
    if status == "accepted" {
        return Some(Vec::new());
    }
    let later =
        status.strip_prefix("accepted, amended by ").or_else(|| status.strip_prefix("superseded by "))?;
    later.split(", ").map(decision_of_link).collect()
}

/// The number in a link to a decision, such as `[0031](0031-what-the-api-may-reach.md)`.
fn decision_of_link(link: &str) -> Option<String> {
    let (number, target) = link.strip_prefix('[')?.strip_suffix(')')?.split_once("](")?;
    target.starts_with(&format!("{number}-")).then(|| number.to_owned())
}

/// The earlier decisions that the paragraph `Amends ...` or `Supersedes ...` of a decision links to.
fn amends(page: &str) -> Vec<String> {
    let is_amendment = |text: &&str| text.starts_with("Amends ") || text.starts_with("Supersedes ");
    let paragraph = page.split("\n\n").find(is_amendment).unwrap_or_default();
    let links = paragraph.split("](").skip(1);
    links.filter_map(|rest| Some(rest.split_once('-')?.0.to_owned())).collect()
}

#[test]
fn every_decision_has_a_status_and_amendments_are_linked_both_ways() {
    let page = |name: &String| read(&repository::root().join("docs/decisions").join(name));
    let pages: Vec<_> = decisions().iter().map(|name| (name[..4].to_owned(), page(name))).collect();
    let (mut by_status, mut by_amendment) = (BTreeSet::new(), BTreeSet::new());
    for (number, page) in &pages {
        let later = amended_by(page).unwrap_or_else(|| {
            panic!(
                "{number}: a blank line and one of these stand below the title: `Status: accepted`, \
                 `Status: accepted, amended by [NNNN](FILE)`, `Status: superseded by [NNNN](FILE)`"
            )
        });
        by_status.extend(later.into_iter().map(|later| (number.clone(), later)));
        by_amendment.extend(amends(page).into_iter().map(|earlier| (earlier, number.clone())));
    }
    assert_eq!(
        by_status, by_amendment,
        "each status matches `Amends ...` or `Supersedes ...` of the later page"
    );
    assert!(
        by_status.iter().all(|(earlier, later)| earlier < later),
        "only a later page amends an earlier one"
    );
}

/// Complete configurations are those with an issuer, which is mandatory.
#[test]
fn every_whole_configuration_loads_and_routes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut count = 0;
    for page in pages() {
        let blocks = parts(&read(&page)).1.into_iter();
        let whole = blocks.filter(|(language, text)| {
            language.starts_with("yaml") && text.lines().any(|line| line.starts_with("auth:"))
        });
        for (_, text) in whole {
            let file = folder.path().join("hookgate.yaml");
            fs::write(&file, &text).expect("a file can be written");
            loads_and_routes(&file, &page);
            count += 1;
        }
    }
    assert!(count > 0, "the documentation shows a whole configuration");
}

#[test]
fn every_example_of_a_configuration_loads_and_routes() {
    let folder = repository::root().join("examples");
    let entries = fs::read_dir(folder).expect("examples/ is readable");
    let files = entries.map(|entry| entry.expect("examples/ is readable").path());
    let files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")).collect();
    files.iter().for_each(|file| loads_and_routes(file, file));
    assert!(!files.is_empty(), "there is an example");
}

/// Checks the configuration in `file` from `page`, with every variable set that it names.
fn loads_and_routes(file: &Path, page: &Path) {
    let text = read(file);
    let variables = text.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    let env = variables.map(|name| (name.to_owned(), "0123456789abcdef".repeat(2)));
    let shown = format!("{}:\n{text}", page.display());
    let loaded = config::load(file, env).unwrap_or_else(|problems| panic!("{shown}\n{problems}"));
    let table = RouteTable::build(&loaded.config, &[], 1);
    table.unwrap_or_else(|problems| panic!("{shown}\n{}", loaded.render(&problems)));
}

#[test]
fn every_json_example_of_the_protocol_parses() {
    let blocks = parts(&protocol()).1;
    let examples: Vec<_> = blocks.iter().filter(|(language, _)| language == "json").collect();
    for (_, text) in &examples {
        if let Err(error) = serde_json::from_str::<Value>(text) {
            panic!("{error}:\n{text}");
        }
    }
    assert!(examples.len() >= 4, "requests, answers, a block and an error are shown");
}

/// Compares the example of a request's error with the answers of a real gateway.
#[tokio::test]
async fn the_example_of_an_invalid_request_is_what_a_gateway_answers() {
    let gateway = Gateway::with().tenant("acme").start().await;
    let body = json!({
        "payload": { "tool_name": "fs.read", "args": {}, "colour": "red" },
        "context": { "tenant": "acme" },
    });
    let mut answer = gateway.http(&token("acme")).post(ExtensionPoint::BeforeToolCall, &body).await.body;
    let blocks = parts(&protocol()).1;
    let examples = blocks.iter().filter_map(|(_, text)| serde_json::from_str::<Value>(text).ok());
    let mut example =
        examples.into_iter().find(|example| example["code"] == "PAYLOAD_INVALID").expect("it is there");
    for shown in [&mut answer, &mut example] {
        shown["request_id"] = json!("another each time");
    }
    assert_eq!(answer, example, "docs/protocol.md, section 4, should show {answer:#}");

    let request = BeforeToolCallRequest {
        payload: Some(BeforeToolCallPayload { args: r#"{"a":1"#.into(), ..BeforeToolCallPayload::default() }),
        ..BeforeToolCallRequest::default()
    };
    let mut grpc = gateway.grpc(&token("acme")).await.client;
    let status = grpc.before_tool_call(request).await.expect_err("it is invalid");
    let (_, example) = blocks.iter().find(|(_, text)| text.contains("rpc.BadRequest")).expect("it is there");
    let violations = status.get_details_bad_request().expect("mistakes are listed").field_violations;
    assert_eq!(violations.len(), example.matches("field_violations").count());
    let said = violations.into_iter().flat_map(|wrong| [wrong.field, wrong.description]);
    for text in said.chain([status.message().to_owned()]) {
        assert!(example.contains(&text), "docs/protocol.md, section 4, should show {text:?}:\n{example}");
    }
}

#[test]
fn what_the_checks_look_for_is_found() {
    assert_eq!(links("[a](b.md) `[c](d.md)` [e](f.md#g) [h]"), ["b.md", "f.md#g"]);
    assert!(anchors("## 4. What an agent calls, and owes\n").contains("4-what-an-agent-calls-and-owes"));
    let page = repository::root().join("docs/protocol.md");
    assert_eq!(fault(&page, "architecture.md"), None);
    assert_eq!(fault(&page, "https://example.com/x"), None);
    assert_eq!(fault(&page, "#6-limits"), None);
    for link in ["missing.md", "#nowhere", "architecture.md#nowhere"] {
        assert!(fault(&page, link).is_some(), "{link}");
    }
    for (comment, sections) in [
        ("(docs/protocol.md, section 3).", vec![3]),
        ("docs/protocol.md section 5) -> x", vec![5]),
        ("docs/protocol.md, sections 2 to 5 and 7). Finds 9", vec![2, 5, 7]),
        ("docs/protocol.md, sections 2, 4 and 17).", vec![2, 4, 17]),
        ("docs/protocol.md, section 6, drain): 12", vec![6]),
        ("docs/protocol.md).", vec![]),
    ] {
        assert_eq!(cited_sections(comment), sections, "{comment}");
    }
    let decision = |status: &str| amended_by(&format!("# 0001: A title\n\n{status}\n\n## Context\n"));
    assert_eq!(decision("Status: accepted"), Some(vec![]));
    assert_eq!(decision("Status: superseded by [0002](0002-a.md)"), Some(vec!["0002".to_owned()]));
    for status in
        ["", "## Context", "Status: draft", "Status: accepted, amended by 0002", "Status: accepted."]
    {
        assert_eq!(decision(status), None, "{status}");
    }
    let broken = "//! rules (docs/protocol.md,\n//! section 8). Text";
    assert_eq!(cited_sections(&running_text(broken)), [8]);
}
