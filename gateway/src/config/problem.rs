//! What is wrong with a configuration, said so that a person finds it: place, sentence, line, remedy. The only
//! code that shows parts of the file, and so the only code that can show too much of it: values are shown where
//! the schema knows them and they are no secrets, comments never, and what references resolved to never.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use super::{
    reference,
    schema::Schema,
    tree::{Fault, Kind, Mark, Node, Origin, Parsed, Region, child},
};
use crate::{error::Violation, store};

/// Most of a line that is shown.
const MAX_SHOWN: usize = 100;

/// Most of a sentence that is shown; it may quote a value of any length.
const MAX_SENTENCE: usize = 500;

/// From this length on a secret is blotted out wherever it occurs, not only between backticks.
const LONG_SECRET: usize = 8;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer (RFC 6901) to the value, from the root of the configuration.
    pub pointer: String,
    /// What is wrong and what would be right, in one sentence. Values stand between backticks.
    pub message: String,
    /// What to write instead, where that is known.
    pub remedy: Option<String>,
    anchor: Anchor,
}

/// What is marked in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Anchor {
    /// The value that the pointer leads to.
    Value,
    /// Its key.
    Key,
    /// A region of the file, whatever it holds.
    Region(Region),
    /// Nothing: it is this environment variable.
    Variable(String),
}

impl Problem {
    /// A mistake in the value at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { pointer: pointer.into(), message: message.into(), remedy: None, anchor: Anchor::Value }
    }

    /// A mistake in the key at `pointer`.
    pub(super) fn at_key(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { anchor: Anchor::Key, ..Problem::new(pointer, message) }
    }

    /// A mistake in an environment variable's name.
    pub(super) fn in_variable(name: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { anchor: Anchor::Variable(name.into()), ..Problem::new("", message) }
    }

    /// The mistakes that `violations` name.
    pub fn all(violations: Vec<Violation>) -> Vec<Self> {
        violations.into_iter().map(|wrong| Problem::new(wrong.pointer, wrong.message)).collect()
    }

    /// What is wrong, and what to write instead where that is known.
    pub fn sentence(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}: {remedy}", self.message),
            None => self.message.clone(),
        }
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Problem {
            pointer: String::new(),
            message: fault.message,
            remedy: fault.remedy,
            anchor: Anchor::Region(fault.at),
        }
    }
}

/// A mistake and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The mistake; holds no secret any more.
    pub problem: Problem,
    /// Line from 1 and column from 1, in characters; `None` for what isn't in the file.
    pub position: Option<(usize, usize)>,
    /// The environment variable that it is in, where it is in one.
    pub variable: Option<String>,
    /// The object of the registry that it is in, where it is in one; the pointer begins there.
    pub object: Option<(store::Kind, String)>,
    /// All of it as people read it, in several lines.
    rendered: String,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

/// All mistakes of a configuration, in the order of the file; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Located>);

impl Problems {
    /// A mistake that no place in a file belongs to.
    pub(crate) fn nowhere(file: &str, message: impl Into<String>, remedy: &str) -> Self {
        let problem = Problem::new("", message).remedy(remedy);
        let rendered = format!("{file}: {}\n  = {remedy}\n", problem.message);
        Problems(vec![Located { problem, position: None, variable: None, object: None, rendered }])
    }

    /// The mistakes.
    pub fn iter(&self) -> std::slice::Iter<'_, Located> {
        self.0.iter()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for located in &self.0 {
            writeln!(f, "{located}")?;
        }
        match self.0.len() {
            1 => f.write_str("1 problem in the configuration"),
            n => write!(f, "{n} problems in the configuration"),
        }
    }
}

impl std::error::Error for Problems {}

/// What problems are shown against: the file, its tree, and what of both is hidden.
#[derive(Clone)]
pub(super) struct Source {
    file: String,
    lines: Vec<String>,
    root: Option<Node>,
    /// Places of values that are not shown, by each line they stand in.
    hidden: HashMap<usize, Vec<Region>>,
    /// Places of comments, likewise.
    comments: HashMap<usize, Vec<Region>>,
    /// Texts that are blotted out of sentences, the longest first.
    secrets: Vec<String>,
}

impl Source {
    /// The file as it was written; see [`Source::resolved`].
    pub(super) fn new(file: String, text: &str, parsed: &Parsed, schema: &Schema) -> Self {
        let mut hidden = parsed.dropped.clone();
        if let Some(root) = &parsed.root {
            root.scalars("", &mut |pointer, node| {
                let default = matches!(&node.kind, Kind::Text(text) if reference::has_default(text));
                let credentials =
                    matches!(&node.kind, Kind::Text(text) if reference::without_credentials(text).is_some());
                if default || credentials || !schema.shows(pointer) {
                    hidden.push(node.region);
                }
            });
        }
        Source {
            file,
            lines: text.lines().map(str::to_owned).collect(),
            root: parsed.root.clone(),
            hidden: by_line(hidden),
            comments: by_line(parsed.comments.clone()),
            secrets: Vec::new(),
        }
    }

    /// Takes the tree with references resolved and the environment laid over it.
    pub(super) fn resolved(&mut self, root: &Node) {
        let mut secrets = Vec::new();
        root.scalars("", &mut |_, node| match (&node.origin, &node.kind) {
            (Origin::Reference(_), Kind::Text(text)) => secrets.push(text.clone()),
            (Origin::Reference(_), Kind::Number(number)) => secrets.push(number.to_string()),
            (_, Kind::Text(text)) if reference::without_credentials(text).is_some() => {
                secrets.push(text.clone())
            }
            _ => {}
        });
        self.root = Some(root.clone());
        secrets.retain(|secret: &String| !secret.trim().is_empty());
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        self.secrets = secrets;
    }

    /// The tree with references resolved and the environment laid over it, where the file is YAML.
    pub(super) fn root(&self) -> Option<&Node> {
        self.root.as_ref()
    }

    /// A line of the file, as an origin names it.
    pub(super) fn line(&self, line: usize) -> String {
        format!("{}:{line}", self.file)
    }

    /// `text` less whatever a reference resolved to.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            if secret.chars().count() >= LONG_SECRET { text.replace(secret.as_str(), "***") } else { text }
        })
    }

    /// Shows `problems` against the file, in its order, each once; those of an object that stands in no file, which is
    /// for `object` to say with the rest of the pointer, by its name.
    pub(super) fn render(
        &self,
        problems: &[Problem],
        object: impl Fn(&str) -> Option<(store::Kind, String, String)>,
    ) -> Problems {
        let mut seen = HashSet::new();
        let show = |problem: &Problem| match object(&problem.pointer) {
            Some((kind, name, pointer)) => self.name(kind, name, pointer, problem),
            None => self.locate(problem),
        };
        let mut located: Vec<Located> = problems.iter().map(show).collect();
        located.retain(|located| seen.insert(located.rendered.clone()));
        located.sort_by_key(|located| located.position.unwrap_or((usize::MAX, 0)));
        Problems(located)
    }

    fn locate(&self, problem: &Problem) -> Located {
        let mut variable = None;
        let (place, excerpt, position) = match self.place(problem) {
            Some(Place::File(region)) => {
                let Mark { line, column } = region.start;
                // Without a tree nobody knows which parts of the line are secrets.
                let excerpt = self.root.as_ref().map(|_| self.excerpt(region)).unwrap_or_default();
                (format!("{}:{line}:{}", self.file, column + 1), excerpt, Some((line, column + 1)))
            }
            Some(Place::Variable(name)) => {
                variable = Some(name.to_owned());
                (format!("environment variable {name}"), String::new(), None)
            }
            None => (self.file.clone(), String::new(), None),
        };
        let problem = self.redact(problem.clone());
        let pointer =
            if problem.pointer.is_empty() { String::new() } else { format!("{}: ", problem.pointer) };
        let remedy = problem.remedy.as_ref().map(|remedy| format!("  = {remedy}\n")).unwrap_or_default();
        let rendered = format!("{place}: {pointer}{}\n{excerpt}{remedy}", problem.message);
        Located { problem, position, variable, object: None, rendered }
    }

    /// A mistake in an object of the registry.
    fn name(&self, kind: store::Kind, name: String, pointer: String, problem: &Problem) -> Located {
        let problem = self.redact(Problem { pointer, ..problem.clone() });
        let pointer =
            if problem.pointer.is_empty() { String::new() } else { format!("{}: ", problem.pointer) };
        let remedy = problem.remedy.as_ref().map(|remedy| format!("  = {remedy}\n")).unwrap_or_default();
        let rendered = format!("{kind} `{name}` in the registry: {pointer}{}\n{remedy}", problem.message);
        Located { problem, position: None, variable: None, object: Some((kind, name)), rendered }
    }

    /// The place of what `problem` points to, or of the nearest thing around it.
    fn place<'s>(&'s self, problem: &'s Problem) -> Option<Place<'s>> {
        match &problem.anchor {
            Anchor::Region(region) => return Some(Place::File(*region)),
            Anchor::Variable(name) => return Some(Place::Variable(name)),
            Anchor::Value | Anchor::Key => {}
        }
        let root = self.root.as_ref()?;
        let mut pointer = problem.pointer.as_str();
        loop {
            if let Some((node, key)) = root.find(pointer) {
                if let Origin::Variable(name) = &node.origin {
                    return Some(Place::Variable(name));
                }
                // A mapping, a list and an empty value are marked by their key.
                let scalar = !matches!(node.kind, Kind::Null | Kind::List(_) | Kind::Map(_));
                let whole = key.filter(|_| problem.anchor == Anchor::Key || !scalar);
                let own = if scalar { node.region } else { Region { end: node.region.start, ..node.region } };
                return Some(Place::File(whole.unwrap_or(own)));
            }
            pointer = &pointer[..pointer.rfind('/')?];
        }
    }

    fn redact(&self, mut problem: Problem) -> Problem {
        let clean = |text: String| {
            let text = self.secrets.iter().fold(self.without_secrets(&text), |text, secret| {
                text.replace(&format!("`{secret}`"), "`***`")
            });
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_SENTENCE).collect::<String>()
        };
        problem.pointer = clean(problem.pointer);
        problem.message = clean(problem.message);
        problem.remedy = problem.remedy.map(clean);
        problem
    }

    /// The line, with hidden values as `***` and without its comment, and a mark under the region.
    fn excerpt(&self, region: Region) -> String {
        let number = region.start.line;
        let Some(line) = self.lines.get(number.wrapping_sub(1)) else { return String::new() };
        let (shown, from, to) = self.shown(line, region);
        let gutter = " ".repeat(number.to_string().len());
        format!("  {number} | {shown}\n  {gutter} | {}{}\n", " ".repeat(from), "^".repeat(to - from))
    }

    /// What of a line is shown, and where in it the region stands.
    fn shown(&self, line: &str, region: Region) -> (String, usize, usize) {
        let number = region.start.line;
        let mut shown: Vec<char> = Vec::new();
        let (mut from, mut to) = (None, None);
        let mut hidden_before = false;
        for (column, character) in line.chars().enumerate() {
            let here = Mark { line: number, column };
            let within = |places: &HashMap<usize, Vec<Region>>| {
                places
                    .get(&number)
                    .is_some_and(|regions| regions.iter().any(|r| r.start <= here && here < r.end))
            };
            if within(&self.comments) {
                break;
            }
            if here >= region.start {
                from.get_or_insert(shown.len());
            }
            if here >= region.end {
                to.get_or_insert(shown.len());
            }
            // A block of text ends behind the indentation of the line below it, which is no part of it.
            let indentation = character == ' ' && shown.iter().all(|c| *c == ' ');
            let hidden = within(&self.hidden) && !indentation;
            if hidden && !hidden_before {
                shown.extend("***".chars());
            } else if !hidden {
                shown.push(if character.is_control() { ' ' } else { character });
            }
            hidden_before = hidden;
        }
        while shown.last() == Some(&' ') {
            shown.pop();
        }
        let from = from.unwrap_or(shown.len());
        let to = to.unwrap_or(shown.len()).clamp(from + 1, (from + 1).max(shown.len()));
        cut(&shown, from, to)
    }
}

enum Place<'s> {
    File(Region),
    Variable(&'s str),
}

/// Regions by each line they stand in.
fn by_line(mut regions: Vec<Region>) -> HashMap<usize, Vec<Region>> {
    regions.sort_unstable_by_key(|region| (region.start, region.end));
    // The copies of an aliased value stand in one place.
    regions.dedup();
    let mut lines: HashMap<usize, Vec<Region>> = HashMap::new();
    for region in regions {
        for line in region.start.line..=region.end.line {
            lines.entry(line).or_default().push(region);
        }
    }
    lines
}

/// Cuts a long line down to what stands around the mark.
fn cut(shown: &[char], from: usize, to: usize) -> (String, usize, usize) {
    if shown.len() <= MAX_SHOWN {
        return (shown.iter().collect(), from, to);
    }
    let first = from.saturating_sub(MAX_SHOWN / 2).min(shown.len().saturating_sub(MAX_SHOWN));
    let last = (first + MAX_SHOWN).min(shown.len());
    let text: String = shown[first..last].iter().collect();
    let (left, right) = (if first > 0 { "..." } else { "" }, if last < shown.len() { "..." } else { "" });
    let shift = |column: usize| column.min(last) - first + left.len();
    let (from, to) = (shift(from), shift(to));
    (format!("{left}{text}{right}"), from, to.max(from + 1))
}

/// The nearest of `known` to a misspelt `word`.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let length = word.chars().count();
    let far = (length / 3).clamp(1, 3);
    let word = word.to_lowercase();
    known
        .into_iter()
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= far)
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min()
        .map(|(_, candidate)| candidate)
}

/// "did you mean" for the nearest of `known`.
pub(crate) fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

/// The pointer to the item `index` of the list at `pointer`.
pub(super) fn item(pointer: &str, index: usize) -> String {
    child(pointer, &index.to_string())
}
